"""Fetches ExecuTorch's public repository at the installed wheel's release, with the submodules of a Cortex-M build.

Git fetches, without history, the release, those of its submodules that are in `NEEDED_SUBMODULES`, and the commit of
CMSIS-NN that its Cortex-M backend pins. A fetch that was interrupted is resumed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from cortex_m_hil.errors import BuildError, ConfigError
from cortex_m_hil.host import subprocesses, timeouts, toolchain
from cortex_m_hil.host.files import file_name_for
from cortex_m_hil.host.folders import build_lock
from cortex_m_hil.host.paths import cache_advice, cache_directory
from cortex_m_hil.targets.executorch_prefix import VERSION_FILE, version_fields

REPOSITORY: Final = "https://github.com/pytorch/executorch"
CMSIS_NN: Final = "https://github.com/ARM-software/CMSIS-NN"
PIN_FILE: Final = "backends/cortex_m/CMakeLists.txt"
NEEDED_SUBMODULES: Final = (
    *(f"third-party/{name}" for name in ("flatbuffers", "flatcc", "gflags", "json")),
    "backends/xnnpack/third-party/FXdiv",
)
"""Submodules that a build of ExecuTorch 1.5 for a Cortex-M needs; what a checkout does not list is not missing."""
_PIN: Final = re.compile(r'\bCMSIS_NN_VERSION\s+"?([0-9a-f]{40})\b')
_RELEASE: Final = re.compile(r"v?[0-9]+(\.[0-9]+)+(\.post[0-9]+)?")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_PROGRESS: Final = re.compile(rb"(?:Receiving objects|Resolving deltas|Updating files): +(\d+)%")
_TAIL: Final = 4096  # bytes of git's log that are read


@dataclass(frozen=True)
class Checkout:
    """A checkout of ExecuTorch, and a checkout of CMSIS-NN; None: ExecuTorch's build finds CMSIS-NN itself."""

    source: Path
    cmsis_nn: Path | None


def pinned_cmsis_nn(source: Path) -> str:
    """Return the commit of CMSIS-NN that a checkout of ExecuTorch pins, "" where it pins no commit."""
    path = source / PIN_FILE
    found = _PIN.search(path.read_text(errors="replace")) if path.is_file() else None
    return found[1] if found else ""


def release_of_wheel() -> str:
    """Return the tag of the installed executorch's release, such as `v1.5.1`.

    For a wheel that is no release, its commit.

    Raises:
        ToolchainError: executorch is not installed.
        ConfigError: the wheel has neither a release nor a commit in its version file.
    """
    folder = toolchain.executorch_package()
    version = metadata.version("executorch").partition("+")[0]
    if _RELEASE.fullmatch(version):
        return f"v{version}"
    commit = version_fields(folder / VERSION_FILE)[-1:]
    if commit and _COMMIT.fullmatch(commit[0]):
        return commit[0]
    raise ConfigError(
        f"executorch {version} is no release, and its {VERSION_FILE} names no commit",
        hint="--ref COMMIT, that of the sources that it was built from",
    )


def fetch_checkout(ref: str, repository: str = REPOSITORY, report: Callable[[str], None] = lambda _: None) -> Checkout:
    """Return a checkout of `ref`, from the folder `sources` of the cache, or fetched into it.

    Args:
        ref: a tag, branch or commit. A branch is fetched each time, a release's tag or a commit only once.
        repository: the URL or path of the repository.
        report: called with a description of each stage as it begins, and again with its progress.

    Raises:
        BuildError: the fetch fails; the hint has commands for a machine with a network.
    """
    home = cache_directory() / "sources"
    whose = "" if repository == REPOSITORY else f"-{hashlib.sha256(repository.encode()).hexdigest()[:8]}"
    name = file_name_for(f"executorch-{ref}{whose}")
    try:
        home.mkdir(parents=True, exist_ok=True)
        with build_lock(home / f"{name}.lock", 2 * timeouts.EXECUTORCH_FETCH):
            return _Fetch(ref, repository, home, home / name, home / f"{name}.log", report).run()
    except OSError as error:
        raise BuildError(f"cannot write to {home}: {error.strerror}", hint=cache_advice()) from error


@dataclass(frozen=True)
class _Fetch:
    """The stages of a fetch into `source`; git's output is appended to `log`."""

    ref: str
    repository: str
    home: Path
    source: Path
    log: Path
    report: Callable[[str], None]

    def run(self) -> Checkout:
        complete = self.home / f"{self.source.name}.complete"
        self.log.unlink(missing_ok=True)
        if not complete.is_file() or not self._is_fixed():
            complete.unlink(missing_ok=True)
            self._fetch(self.source, self.repository, self.ref)
            self._fetch_submodules()
        checkout = Checkout(self.source, self._fetch_cmsis_nn())
        complete.touch()
        return checkout

    def _is_fixed(self) -> bool:
        return bool(_RELEASE.fullmatch(self.ref) or _COMMIT.fullmatch(self.ref))

    def _fetch_submodules(self) -> None:
        listed = self.source / ".gitmodules"
        names = listed.read_text(errors="replace") if listed.is_file() else ""
        there = set(re.findall(r"^\s*path\s*=\s*(.*\S)\s*$", names, re.MULTILINE))
        if needed := [path for path in NEEDED_SUBMODULES if path in there]:
            update = ["submodule", "update", "--init", "--depth", "1", "--progress", "--", *needed]
            self._git("fetches submodules", self.source, update)

    def _fetch_cmsis_nn(self) -> Path:
        pinned = pinned_cmsis_nn(self.source)
        if not pinned:
            raise BuildError(
                f"{self.ref} of {self.repository} pins no commit of CMSIS-NN in {PIN_FILE}",
                hint=f"--source {self.source} --cmsis-nn PATH, a checkout of CMSIS-NN",
            )
        folder = self.home / f"CMSIS-NN-{pinned[:12]}"
        complete = self.home / f"{folder.name}.complete"
        with build_lock(self.home / f"{folder.name}.lock", 2 * timeouts.EXECUTORCH_FETCH):
            if not complete.is_file():
                self._fetch(folder, CMSIS_NN, pinned)
                complete.touch()
        return folder

    def _fetch(self, folder: Path, repository: str, ref: str) -> None:
        """Check out a tag, branch or commit of a repository in `folder`, which is made or has an earlier checkout."""
        if not (folder / ".git").exists():
            folder.mkdir(exist_ok=True)
            self._git("prepares", folder, ["init", "--quiet"])
        fetch = ["fetch", "--depth", "1", "--no-tags", "--progress", "--", repository, ref]
        self._git(f"fetches {ref} of {repository}:", folder, fetch)
        self._git("checks out", folder, ["checkout", "--quiet", "--force", "--detach", "FETCH_HEAD"])

    def _git(self, what: str, folder: Path, words: Sequence[str]) -> None:
        self.report(what)
        begin = self.log.stat().st_size if self.log.exists() else 0
        git = str(toolchain.find("git").path)
        # Git must not wait for a password, or for the confirmation of a host key.
        environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_SSH_COMMAND": "ssh -oBatchMode=yes"}
        status = subprocesses.run(
            [git, "-C", str(folder), *words], self.log, timeouts.EXECUTORCH_FETCH, env=environment,
            meanwhile=lambda: self._report_progress(what, begin),
        )  # fmt: skip
        if status != 0:
            raise self._failure(what, "" if status is not None else f"no end after {timeouts.EXECUTORCH_FETCH:.0f} s")

    def _tail(self, begin: int) -> bytes:
        with self.log.open("rb") as log:
            log.seek(max(begin, self.log.stat().st_size - _TAIL))
            return log.read()

    def _report_progress(self, what: str, begin: int) -> None:
        if done := _PROGRESS.findall(self._tail(begin)):
            self.report(f"{what} {int(done[-1])} %")

    def _failure(self, what: str, why: str) -> BuildError:
        """Return the error of a git command: what was to be fetched, and how to fetch it on another machine."""
        lines = [line for line in re.split(r"[\r\n]+", self._tail(0).decode(errors="replace")) if line.strip()]
        said = [line for line in lines if line.startswith(("fatal:", "error:"))] or lines
        return BuildError(
            f"git {what.rstrip(':')}: {why or (said[-1] if said else 'it failed without a message')}",
            log="\n".join(lines[-40:]),
            details=[("to fetch", f"{self.ref} of {self.repository}, {len(NEEDED_SUBMODULES)} submodules, CMSIS-NN")],
            hint=f"without a network here, elsewhere: {fetch_commands(self.ref, self.repository)}; bring both folders, "
            "then hil executorch install --source executorch --cmsis-nn CMSIS-NN --cpu NAME",
        )


def fetch_commands(ref: str, repository: str) -> str:
    """Return the shell commands that fetch `ref` into the current folder, on a machine with a network."""
    pin = f"$(grep -om1 '[0-9a-f]\\{{40\\}}' executorch/{PIN_FILE})"
    return " && ".join(
        [
            "git init -q executorch",
            f"git -C executorch fetch --depth 1 {shlex.quote(repository)} {shlex.quote(ref)}",
            "git -C executorch checkout -q FETCH_HEAD",
            f"git -C executorch submodule update --init --depth 1 {' '.join(NEEDED_SUBMODULES)}",
            "git init -q CMSIS-NN",
            f'git -C CMSIS-NN fetch --depth 1 {CMSIS_NN} "{pin}"',
            "git -C CMSIS-NN checkout -q FETCH_HEAD",
        ]
    )
