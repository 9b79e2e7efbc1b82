"""Identifies the ExecuTorch that a runner is linked with, and runs the user's `build:` command if it is out of date.

`targets.executorch_prefix` finds the installation: the one that the user names, else one that `executorch_build` made.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cortex_m_hil.errors import BuildError, ConfigError, ToolchainError
from cortex_m_hil.errors.text import counted
from cortex_m_hil.host import file_trees, subprocesses, timeouts, toolchain
from cortex_m_hil.host.folders import build_lock
from cortex_m_hil.host.paths import cache_advice
from cortex_m_hil.runner.executorch_checkout import NEEDED_SUBMODULES
from cortex_m_hil.targets import executorch_prefix as prefixes
from cortex_m_hil.targets.executorch_prefix import DOCS, VARIABLE
from cortex_m_hil.targets.target import ExecutorchInstall, Target

# An error message of a compiler, or of CMake, with file and line.
_FIRST_ERROR = re.compile(r"^(?:\S+?:\d+(?::\d+)?: (?:fatal )?error: .*|CMake Error at \S+:\d+\b.*)$", re.MULTILINE)
_SOURCES = (".c", ".cc", ".cpp", ".h", ".hpp", ".S", ".cmake", ".yaml", ".fbs", "CMakeLists.txt", "version.txt")


@dataclass(frozen=True)
class Prefix:
    """An installed ExecuTorch that a runner can be linked with.

    Attributes:
        directory: the folder of the installation.
        version: the version, which the runner reports in its handshake.
        digest: the digest of the folder's contents, for the build id.
        libraries: libraries of operators that replace this project's selection of portable ones.
    """

    directory: Path
    version: str
    digest: str
    libraries: tuple[str, ...] = ()


def find_prefix(target: Target, cache: Path, counts: bool = False) -> Prefix:
    """Return the ExecuTorch prefix for a target; first build it if its source is newer.

    Args:
        target: the target.
        cache: the harness's cache folder.
        counts: whether to find the prefix whose kernels count coverage.

    Raises:
        ConfigError: no prefix is found, or the prefix does not fit the target.
        BuildError: the user's build command fails.
    """
    if target.cpu == "host":
        return _wheel(target)
    install = prefixes.find_install(target, counts, cache)
    if install is None:
        raise prefixes.not_found(target, counts)
    directory = prefixes.directory_of(install, target.cpu)
    if install.build:
        _refresh(install, directory, target, cache)
    prefixes.check(install, target, counts)
    digest = _digest(directory)
    version = version_of(install.source) if install.source is not None else prefixes.installed_version(directory)
    told = f"{version}, " if version else ""
    return Prefix(directory, f"{told}libraries {digest[:8]}", digest, install.libraries)


def build_settings(target: Target) -> ExecutorchInstall:
    """Return the target's ExecuTorch settings. Raises ConfigError if the settings have no `source` or `build`."""
    install = target.executorch
    has_build = install is not None and install.source is not None and bool(install.build)
    if install is None or not has_build or VARIABLE in os.environ:
        raise ConfigError(
            f"{VARIABLE} is set" if has_build else "it has no ExecuTorch that can be built",
            target=target.name,
            hint="runtimes: {executorch: {prefix: …, source: …, build: …}} in targets.yaml, and no "
            f"{VARIABLE}; {DOCS}",
        )
    return install


def rebuild(target: Target, log: Path) -> None:
    """Run the user's build command, whether or not anything has changed. Raises BuildError where the command fails."""
    install = build_settings(target)
    _run_build(install, prefixes.directory_of(install, target.cpu), target, log)


# --- identification ------------------------------------------------------------------------------------------


def _digest(directory: Path) -> str:
    """Return a digest of all headers and libraries of a prefix."""
    digest = hashlib.sha256()
    for root in ("include", "lib"):
        for path in file_trees.files(directory / root):
            digest.update(f"{path.relative_to(directory)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def version_of(source: Path) -> str:
    """Return version and commit of a checkout, `1.5.0 cff6f4dd32e6`; "" for a prefix, which has neither."""
    version = source / "version.txt"
    words = [version.read_text().strip()] if version.is_file() else []
    command = ["git", "-C", str(source), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    with contextlib.suppress(ToolchainError):  # no git
        said = toolchain.run_tool(command, 60)
        words += [said.out.strip()] if said.status == 0 else []
    return " ".join(words)


def _wheel(target: Target) -> Prefix:
    """Return the libraries of the executorch wheel, for the host. Raises ConfigError where the wheel has none."""
    package = toolchain.executorch_package()
    found = prefixes.version_fields(package / prefixes.VERSION_FILE)
    library = package / "lib" / "libexecutorch.so"
    if not library.is_file():
        raise ConfigError(
            f"executorch {found[0] if found else ''} has no C++ libraries for this machine",
            target=target.name,
            hint="on the host the wheel's own are linked, from executorch 1.5 on",
        )
    # The runner loads the library at run time by its path, so two virtual environments need two runners.
    digest = hashlib.sha256(os.fsencode(library.resolve()) + b"\0" + library.read_bytes()).hexdigest()
    return Prefix(package, " ".join(word[:12] for word in found) or digest[:8], digest)


# --- the user's build ----------------------------------------------------------------------------------------


def _refresh(install: ExecutorchInstall, directory: Path, target: Target, cache: Path) -> None:
    """Run the user's build command if the prefix is older than its source; one process at a time builds a prefix."""
    key = hashlib.sha256(str(directory.absolute()).encode()).hexdigest()[:16]
    folder = cache / "prefixes"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"cannot note when {directory} was built, in {folder}: {error.strerror}"
        raise ConfigError(what, target=target.name, hint=cache_advice()) from error
    with build_lock(folder / f"{key}.lock", 2 * timeouts.EXECUTORCH_BUILD):
        stamp = folder / f"{key}.stamp"
        if not _is_older(directory, stamp, install.source):
            return
        begun = folder / f"{key}.begun"  # the file's time is the time when the build started
        begun.touch()
        _run_build(install, directory, target, folder / f"{key}.log")
        begun.replace(stamp)


def _is_older(directory: Path, stamp: Path, source: Path | None) -> bool:
    libraries = [path.stat().st_mtime for path in (directory / "lib").glob("*.a")]
    if not libraries:
        return True
    if source is None:
        return False
    # An installation leaves unchanged files with their old times, so the start of the last build is compared too.
    built = max([*libraries, stamp.stat().st_mtime if stamp.exists() else 0.0])
    return any(path.stat().st_mtime > built for path in source_files(source, directory))


def source_files(source: Path, prefix: Path) -> Iterator[Path]:
    """Yield the source files of a checkout, without the prefix and build folders (those with a CMakeCache.txt)."""
    for here, folders, files in file_trees.walk(source):
        if "CMakeCache.txt" in files:
            folders.clear()
            continue
        folders[:] = [name for name in folders if name[0] != "." and here / name != prefix]
        yield from (here / name for name in files if name.endswith(_SOURCES))


def _run_build(install: ExecutorchInstall, directory: Path, target: Target, log: Path) -> None:
    environment = {
        **os.environ,
        "HIL_CPU": target.cpu,
        "HIL_PREFIX": str(directory.absolute()),
        "HIL_SOURCE": str(install.source or ""),
    }
    where = install.base or Path.cwd()
    log.unlink(missing_ok=True)
    status = subprocesses.run(
        ["/bin/sh", "-c", install.build], log, timeouts.EXECUTORCH_BUILD, cwd=where, env=environment
    )
    if status is None:
        raise BuildError(f"no end after {timeouts.EXECUTORCH_BUILD:.0f} s: {install.build}", target=target.name)
    if status != 0:
        text = log.read_text(errors="replace")
        tail = "\n".join(text.splitlines()[-40:])
        missing = Missing.from_log(install.source, text)
        what = f"{install.source} {missing.words}" if missing.words else first_error(text)
        why = f": {what}" if what else ""
        raise BuildError(
            f"{install.origin}: build: {install.build!r} ended with status {status}{why}\n{tail}",
            target=target.name,
            log=tail,
            hint="; ".join(filter(None, (missing.command, f"the whole of what it said is in {log}"))),
        )


def first_error(log: str) -> str:
    """Return the first error with file and line in a log, with CMake's text below it; "" if the log has no error."""
    found = _FIRST_ERROR.search(log)
    if found is None:
        return ""
    below = re.split(r"\n\n\n|\nCall Stack", log[found.end() :])[0] if found[0].startswith("CMake") else ""
    return " ".join(f"{found[0]} {below}".split())


@dataclass(frozen=True)
class Missing:
    """The submodules that a checkout lacks: `words` names them, and `command` fetches them.

    Both are "" if none is missing.
    """

    words: str = ""
    command: str = ""

    @classmethod
    def from_log(cls, source: Path | None, log: str) -> Missing:
        """Return the submodules that a failed build lacked: empty submodule folders that its log names.

        Missing submodules that every Cortex-M build needs are added, so that the next build does not fail for another
        one. Any other submodule that the log does not name is taken as not needed.
        """
        said = ""
        with contextlib.suppress(ToolchainError):  # no git
            said = toolchain.run_tool(["git", "-C", str(source), "submodule", "status"], 60).out if source else ""
        unknown = re.findall(r"^-[0-9a-f]+ (.+)$", said, re.MULTILINE)  # by git; there may be files
        absent = [path for path in unknown if source is not None and not any((source / path).glob("*"))]
        named = [path for path in absent if re.search(rf"(?<![\w.-]){re.escape(path)}(?![\w.-])", log)]
        if not named:
            return cls()
        needed = [path for path in absent if path in named or path in NEEDED_SUBMODULES]
        get = ["git", "-C", str(source), "submodule", "update", "--init", "--depth", "1", *needed]
        return cls(f"lacks {counted(len(needed), 'submodule')}: {', '.join(needed)}", shlex.join(get))
