"""Builds a user's ExecuTorch checkout by ExecuTorch's own bare-metal preset, and installs it for one CPU.

Nothing is downloaded: an error names the submodules that the checkout lacks. A build is cached under a key of all its
sources and settings; a build that was interrupted or failed is resumed.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import filelock

from cortex_m_hil.errors import BuildError, ConfigError
from cortex_m_hil.errors.known_bugs import KNOWN_BUGS
from cortex_m_hil.host import subprocesses, timeouts, toolchain
from cortex_m_hil.host.files import check_folder
from cortex_m_hil.host.folders import build_lock
from cortex_m_hil.host.paths import cache_advice, cache_directory, package_data
from cortex_m_hil.runner import linked_executorch
from cortex_m_hil.runner.executorch_checkout import pinned_cmsis_nn
from cortex_m_hil.targets import executorch_prefix as prefixes
from cortex_m_hil.targets.connection import NOTES
from cortex_m_hil.targets.cpu import HOST, cpus

PRESET: Final = "arm-baremetal"
DESCRIPTION: Final = prefixes.DESCRIPTION
_UNFINISHED: Final = ".unfinished"
_TAIL: Final = 4096  # bytes of a log that are read for the progress of a build
_OPTIONS: Final = (
    "CMAKE_BUILD_TYPE=Release",
    "EXECUTORCH_BAREMETAL_SKIP_INSTALL=OFF",  # by default the preset installs nothing
    # A release build leaves out ExecuTorch's own check of programs. The runner verifies every FlatBuffers offset
    # itself, but not the meaning of the fields.
    "EXECUTORCH_ENABLE_PROGRAM_VERIFICATION=ON",
    "CORTEX_M_ENABLE_RUNTIME_CHECKS=ON",  # kernels check their arguments, as in ExecuTorch's own test runner
    "FETCHCONTENT_FULLY_DISCONNECTED=ON",
    # Without the Ethos-U delegate: the runner refuses delegates, and CMake would download the delegate's driver. The
    # next two options are on by default without it, but a Cortex-M has no threads.
    "EXECUTORCH_BUILD_ARM_BAREMETAL=OFF",
    "EXECUTORCH_BUILD_PTHREADPOOL=OFF",
    "EXECUTORCH_BUILD_CPUINFO=OFF",
)


@dataclass(frozen=True)
class BuildRequest:
    """A request for a build of ExecuTorch.

    Attributes:
        source: the checkout of ExecuTorch.
        cpu: the CPU to build for.
        cmsis_nn: a checkout of CMSIS-NN; None: the CMSIS-NN that ExecuTorch's own build finds.
        options: further options for CMake, `-DNAME=VALUE`.
        coverage: whether the Cortex-M kernels and CMSIS-NN count the lines and branches that they execute.
    """

    source: Path
    cpu: str
    cmsis_nn: Path | None = None
    options: tuple[str, ...] = ()
    coverage: bool = False


@dataclass(frozen=True)
class InstalledPrefix:
    """An installed ExecuTorch for one CPU.

    Attributes:
        directory: the prefix, a folder.
        cpu: the CPU that the libraries are built for.
        version: the version and commit of the checkout.
        built: whether this call built it; False if it was installed before.
        coverage: as in `BuildRequest`.
    """

    directory: Path
    cpu: str
    version: str
    built: bool
    coverage: bool = False


def install_prefix(
    request: BuildRequest, report: Callable[[str], None] = lambda _: None, link: Path | None = None
) -> InstalledPrefix:
    """Build ExecuTorch unless the same build is installed, select it for the targets of its CPU, and return the prefix.

    Args:
        request: the build's sources, CPU and options.
        report: called with a description of each stage as it begins, and again with its progress.
        link: a symbolic link to make to the prefix, in place of selecting it for the CPU's targets; None: no link.

    Raises:
        ConfigError: the request is wrong, or `link` cannot be made, which is found before anything is built.
        ToolchainError: a tool is missing.
        BuildError: the build fails; the error names the first error in the log and the submodules that are missing.
    """
    _check(request)
    if link is not None:
        _prepare(link)
    home = cache_directory() / "executorch"
    directory = home / f"{request.cpu}-{_key(request)}"
    try:
        home.mkdir(parents=True, exist_ok=True)
        with build_lock(directory.with_suffix(".lock"), 2 * timeouts.EXECUTORCH_BUILD):
            built = prefixes.recorded_as_mended(directory) is None
            if built:
                _build(request, directory, report)
            ours = prefixes.selected_link(cache_directory(), request.cpu, request.coverage)
            _link(ours if link is None else link, directory)
    except OSError as error:
        raise BuildError(f"cannot write to {home}: {error.strerror}", hint=cache_advice()) from error
    version = prefixes.installed_version(directory)
    return InstalledPrefix(directory, request.cpu, version, built, request.coverage)


def _prepare(link: Path) -> None:
    """Make the folder of a symbolic link, and refuse to replace anything but a symbolic link."""
    if not link.is_symlink() and link.exists():
        raise ConfigError(f"{link} exists, and is no symlink", hint="--link PATH that does not exist: it is made")
    check_folder(link.parent, "--link")
    link.parent.mkdir(parents=True, exist_ok=True)


def _check(request: BuildRequest) -> None:
    if request.cpu == HOST.name or request.cpu not in cpus():
        known = ", ".join(name for name in cpus() if name != HOST.name)
        raise ConfigError(f"no CPU {request.cpu!r}", hint=f"--cpu is one of {known}")
    for name in ("CMakeLists.txt", "CMakePresets.json", "version.txt"):
        if not (request.source / name).is_file():
            raise ConfigError(f"{request.source} is no ExecuTorch checkout: it has no {name}", hint="--source PATH")
    with contextlib.suppress(ValueError):
        presets = json.loads((request.source / "CMakePresets.json").read_text(errors="replace"))
        if PRESET not in {one.get("name") for one in presets.get("configurePresets", [])}:
            version = (request.source / "version.txt").read_text(errors="replace").strip()
            hint = "check out ExecuTorch 1.5 or newer"
            raise ConfigError(f"{request.source}, version {version}, has no preset {PRESET}", hint=hint)
    if request.cmsis_nn is not None and not (request.cmsis_nn / "CMakeLists.txt").is_file():
        raise ConfigError(
            f"{request.cmsis_nn} is no CMSIS-NN checkout: it has no CMakeLists.txt", hint="--cmsis-nn PATH"
        )
    for option in request.options:
        if not option.startswith("-D"):
            raise ConfigError(f"{option!r} is no option of CMake's cache", hint="-- -DNAME=VALUE …")


def _key(request: BuildRequest) -> str:
    compiler = toolchain.find("arm-none-eabi-g++").banner
    digest = hashlib.sha256(f"{compiler}\0{request.cpu}\0{_OPTIONS}\0{request.options}\0".encode())
    for path in _counting() if request.coverage else ():
        digest.update(path.read_bytes() + b"\0")
    for folder in filter(None, (request.source, request.cmsis_nn)):
        for path in sorted(linked_executorch.source_files(folder, Path())):
            digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _counting() -> tuple[Path, ...]:
    """Return the file that CMake includes for a build that counts coverage, and the file that the first includes."""
    folder = package_data("firmware") / "cmake"
    return folder / "counting_executorch.cmake", folder / "counting.cmake"


def _build(request: BuildRequest, directory: Path, report: Callable[[str], None]) -> None:
    """Build and install in a folder next to `directory`, and rename it last: a prefix that exists is complete."""
    log, work = directory.with_suffix(".log"), directory.with_suffix(_UNFINISHED)
    log.unlink(missing_ok=True)
    _Stages(request, work, log, report).run()
    prefix = work / "prefix"
    if not (prefix / "lib" / prefixes.CORE).is_file():
        raise BuildError(f"the preset {PRESET} of {request.source} installs no {prefixes.CORE}")
    if request.coverage:
        _keep_notes(request, work / "build", prefix / NOTES)
    description = {
        "version": _version(request),
        prefixes.MENDED: _mended(request, work / "build"),
        "order": asdict(request),
    }
    (prefix / DESCRIPTION).write_text(json.dumps(description, default=str, indent=1))
    if directory.exists():
        shutil.rmtree(directory)
    prefix.rename(directory)
    shutil.rmtree(work)


def _mended(request: BuildRequest, build: Path) -> list[int]:
    """Return the known bugs that the CMSIS-NN of a build does not have; [] where its sources are not found."""
    folders = [request.cmsis_nn] if request.cmsis_nn is not None else sorted(build.glob("_deps/*-src"))
    found = []
    for number, bug in KNOWN_BUGS.items():
        name, faulty = bug.faulty_code
        files = [folder / name for folder in folders if name and (folder / name).is_file()]
        if files and not any(faulty in file.read_text(errors="replace") for file in files):
            found.append(number)
    return found


@dataclass(frozen=True)
class _Stages:
    """The stages of a build in `work`, a folder that stays until all have succeeded, so that ninja can resume."""

    request: BuildRequest
    work: Path
    log: Path
    report: Callable[[str], None]

    def run(self) -> None:
        configure, build, install_ = _commands(self.request, self.work)
        configured = self.work / "configured"
        if self._can_resume(configure):
            self.report("goes on with what was built before")
        if not configured.exists():
            self._run("configures", configure)
            configured.touch()
        self._run("builds", build)
        shutil.rmtree(self.work / "prefix", ignore_errors=True)
        self._run("installs", install_)

    def _can_resume(self, configure: Sequence[str]) -> bool:
        """Tell whether `work` has an unfinished build of the same command.

        Remove an unfinished build of another command.
        """
        begun, said = self.work / "begun", json.dumps(configure)
        with contextlib.suppress(OSError):
            if begun.read_text() == said:
                return True
        shutil.rmtree(self.work, ignore_errors=True)
        self._remove_older(said)
        self.work.mkdir()
        begun.write_text(said)
        return False

    def _remove_older(self, said: str) -> None:
        """Remove unfinished builds of the same command and older sources, unless a process is using them."""
        for other in self.work.parent.glob(f"{self.request.cpu}-*{_UNFINISHED}"):
            with contextlib.suppress(OSError, filelock.Timeout):
                if (other / "begun").read_text().replace(str(other), str(self.work)) == said:
                    with filelock.FileLock(other.with_suffix(".lock"), timeout=0):
                        shutil.rmtree(other)

    def _run(self, what: str, command: Sequence[str]) -> None:
        self.report(what)
        begin = self.log.stat().st_size if self.log.exists() else 0
        # Paths in a preset are relative to the current folder.
        status = subprocesses.run(
            command,
            self.log,
            timeouts.EXECUTORCH_BUILD,
            cwd=self.request.source,
            meanwhile=lambda: self._report_progress(what, begin),
        )
        if status is None:
            hint = f"the same command goes on where it ended; its log is {self.log}"
            raise BuildError(f"{self.request.source} {what}: no end after {timeouts.EXECUTORCH_BUILD:.0f} s", hint=hint)
        if status != 0:
            raise _failure(self.request, self.log, status)

    def _report_progress(self, what: str, begin: int) -> None:
        """Report the progress from the log, where ninja prints `[12/345]` before each step."""
        with self.log.open("rb") as log:
            log.seek(max(begin, self.log.stat().st_size - _TAIL))
            steps = re.findall(rb"^\[(\d+)/(\d+)\]", log.read(), re.MULTILINE)
        if steps:
            done, all_ = map(int, steps[-1])
            self.report(f"{what} {done} of {all_}")


def _keep_notes(request: BuildRequest, build: Path, folder: Path) -> None:
    folder.mkdir()
    for path in build.rglob("*.gcno"):
        shutil.copy2(path, folder)
    if not any(folder.iterdir()):
        raise BuildError(
            f"{request.source} for {request.cpu}: no kernel counts",
            hint="--coverage needs GCC 11, and CMAKE_PROJECT_INCLUDE, which no option after -- may set",
        )


def _version(request: BuildRequest) -> str:
    """Return the versions of the checkouts: `1.5.0 cff6f4dd32e6, CMSIS-NN dbf45dbfcc51`.

    The version of CMSIS-NN is included only if its checkout was named, and has a version.
    """
    versions = [linked_executorch.version_of(request.source)]
    if request.cmsis_nn is not None and (version := linked_executorch.version_of(request.cmsis_nn)):
        versions.append(f"CMSIS-NN {version}")
    return ", ".join(versions)


def _commands(request: BuildRequest, work: Path) -> tuple[list[str], list[str], list[str]]:
    """Return the commands that configure, build and install."""
    cmake, build = str(toolchain.find("cmake").path), str(work / "build")
    toolchain.find("ninja")
    given = [f"-DTARGET_CPU={request.cpu}", f"-DPYTHON_EXECUTABLE={sys.executable}", *(f"-D{one}" for one in _OPTIONS)]
    if request.cmsis_nn is not None:
        given.append(f"-DCMSIS_NN_LOCAL_PATH={request.cmsis_nn.absolute()}")
    if flatc := toolchain.flatc_for(request.source / "third-party" / "flatbuffers" / "include"):
        given.append(f"-DFLATC_EXECUTABLE={flatc.path}")  # otherwise each build first compiles flatc, on one core
    if request.coverage:
        given += [f"-DCMAKE_PROJECT_INCLUDE={_counting()[0]}", f"-DHIL_COUNTED_SOURCES={request.source.absolute()}"]
    configure = [cmake, "-S", str(request.source.absolute()), "-B", build, "-G", "Ninja", "--preset", PRESET]
    return (
        [*configure, *given, *request.options],
        [cmake, "--build", build],
        [cmake, "--install", build, "--prefix", str(work / "prefix")],
    )


def _failure(request: BuildRequest, log: Path, status: int) -> BuildError:
    """Return the error of a failed stage: the submodules that the checkout lacks, else the first error in the log."""
    text = log.read_text(errors="replace")
    missing = linked_executorch.Missing.from_log(request.source, text)
    first = linked_executorch.first_error(text) or f"status {status}"
    steps = [missing.command]
    needs_kernels = request.cmsis_nn is None and not any("CMSIS" in option for option in request.options)
    if request.cmsis_nn is None and ("cmsis" in f"{first}{text[-4000:]}".lower() or (missing.words and needs_kernels)):
        pinned = pinned_cmsis_nn(request.source)[:12]
        steps.append(f"--cmsis-nn PATH, a checkout of {f'CMSIS-NN {pinned}'.strip()}, which ExecuTorch would fetch")
    steps.append(f"the whole log is {log}")
    return BuildError(
        f"{request.source} {missing.words}" if missing.words else f"{request.source} for {request.cpu}: {first}",
        log="\n".join(text.splitlines()[-40:]),
        details=[("first error", first)] if missing.words else [],
        hint="; ".join(filter(None, steps)),
    )


def _link(link: Path, directory: Path) -> None:
    """Replace a symbolic link atomically, since other processes may read it at the same time."""
    fresh = link.with_name(f".{link.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(directory if link.parent != directory.parent else directory.name)
    fresh.replace(link)


def selected_prefixes() -> tuple[InstalledPrefix, ...]:
    """Return the selected installations: for each CPU at most one, and at most one that counts coverage."""
    found = []
    for cpu, coverage in itertools.product(cpus(), (False, True)):
        link = prefixes.selected_link(cache_directory(), cpu, coverage)
        if (link / DESCRIPTION).is_file():
            directory = link.resolve()
            version = prefixes.installed_version(directory)
            found.append(InstalledPrefix(directory, cpu, version, built=False, coverage=coverage))
    return tuple(found)
