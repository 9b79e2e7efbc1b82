"""Builds runners, and caches each under a key of the sources and settings that it is built from.

The key covers the firmware's sources, the board's folder, the schema, the compiler and the configuration; the key is
also the build id that the runner reports in its handshake.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cortex_m_hil.errors import BuildError, ConfigError
from cortex_m_hil.host import file_trees, files, subprocesses, timeouts, toolchain
from cortex_m_hil.host.folders import TemporaryFolder, build_lock, remove_abandoned
from cortex_m_hil.host.paths import cache_advice, cache_directory, package_data
from cortex_m_hil.host.spans import span
from cortex_m_hil.runner import linked_executorch, region_overflow
from cortex_m_hil.runner.compiler import check_counting, compiler
from cortex_m_hil.runner.memory_files import memory_files, write_memory_files
from cortex_m_hil.runner.own_firmware import needs_runner, own_firmware
from cortex_m_hil.targets.connection import NOTES, Elf
from cortex_m_hil.targets.cpu import HOST
from cortex_m_hil.targets.memory import Memory
from cortex_m_hil.targets.runtimes import check_runtime
from cortex_m_hil.targets.target import Target

RUNNER, DIGEST, LOG = "runner.elf", "runner.elf.sha256", "build.log"
COUNTING: Final[Mapping[str, str]] = {"HIL_COUNT_KERNELS": "ON"}
WITHOUT_PORTABLE: Final[Mapping[str, str]] = {"HIL_PORTABLE": "OFF"}
"""CMake definitions of a runner without the portable operators that ExecuTorch's own test runner lacks."""
_MEMORY: Final = "memory"  # the folder in a build that has the files of `memory_files`
DAMAGED = "built again: the runner in the cache was damaged, or had no digest beside it"
LOCK_TIMEOUT = 2 * timeouts.RUNNER_BUILD + 60.0
_CAUSE = re.compile(r"error:|undefined reference|CMake Error")


def build_runner(
    target: Target, runtime: str = "builtin", options: Mapping[str, str] | None = None, firmware: Path | None = None
) -> Elf:
    """Return the runner for `target`, from the cache or freshly built.

    Or the user's own firmware, built by its command.

    Args:
        target: the target.
        runtime: `builtin` or `executorch`.
        options: further CMake definitions, which are part of the key; None: no others.
        firmware: a changed copy of this package's firmware; None: this package's own.

    Raises:
        ConfigError: there is no such runtime, or the installed ExecuTorch is wrong.
        ToolchainError: a tool is missing or too old.
        BuildError: the build fails (the error has the end of its log), or another process does not finish the same
            build.
    """
    check_runtime(runtime)
    if target.firmware is not None:
        return own_firmware(target, options or {})
    recipe = _Request(target, runtime, firmware or package_data("firmware"), options or {}).recipe()
    folder = cache_directory() / "runners" / recipe.build_id
    elf = recipe.elf(folder)
    if _is_whole(folder):
        return elf
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(folder.parent, "*-*")
        # One lock for each instruction set: runners that differ only in their board share most objects, by ccache.
        with build_lock(folder.parent / f"{target.cpu}-{target.isa.value}.lock", LOCK_TIMEOUT):
            if not _is_whole(folder):
                with span("build", f"runner for {target.name}, {runtime}"):
                    recipe.build(folder)
    except OSError as error:
        what = f"cannot write the runner to {folder}: {error.strerror}"
        raise BuildError(what, target=target.name, hint=cache_advice()) from error
    return elf


def portable_operators() -> tuple[str, ...]:
    """Return the operators that a runner built WITHOUT_PORTABLE lacks."""
    rows = (package_data("firmware") / "runtime" / "builtin" / "operators.inc").read_text()
    _, _, group = rows.partition("#ifdef HIL_PORTABLE")
    return tuple(re.findall(r'^HIL_OPERATOR\("([^"]+)"', group.partition("#endif")[0], re.MULTILINE))


def _is_whole(folder: Path) -> bool:
    """Tell whether a runner in the cache is undamaged, by the digest stored with it. This takes milliseconds."""
    try:
        return _digest(folder) == files.read(folder / DIGEST, files.ELF_LIMIT)
    except ConfigError:
        return False


def _digest(folder: Path) -> bytes:
    """Return the digest of the runner and, if it counts coverage, of its .gcno files.

    Raises ConfigError where a file cannot be read.
    """
    digest = hashlib.sha256(files.read(folder / RUNNER, files.ELF_LIMIT))
    for path in sorted((folder / NOTES).glob("*")):
        digest.update(path.name.encode() + files.read(path, files.ELF_LIMIT))
    return digest.hexdigest().encode()


@dataclass(frozen=True)
class _Request:
    """A request for a runner: the arguments of `build_runner`."""

    target: Target
    runtime: str
    firmware: Path
    options: Mapping[str, str]

    def recipe(self) -> _Recipe:
        """Return the recipe of the runner.

        The build id depends on the contents of an installed ExecuTorch, not on its path.
        """
        target, board = self.target, self.target.board.directory
        if target.firmware is not None:
            raise needs_runner(target, "built with other sources or sizes of memory")
        if not board.is_dir():  # in a bisection a commit without it
            raise BuildError(f"no folder {board} for the board", target=target.name)
        counts = COUNTING.items() <= self.options.items()
        if counts:
            check_counting(target)
        definitions, places, installed = self._definitions(), {}, ""
        if self.runtime == "executorch":
            found = linked_executorch.find_prefix(target, cache_directory(), counts)
            definitions["HIL_EXECUTORCH_VERSION"] = found.version
            definitions["HIL_EXECUTORCH_LIBRARIES"] = ",".join(found.libraries)
            places, installed = {"HIL_EXECUTORCH_PREFIX": str(found.directory)}, found.digest
        build_id = self._key(definitions, installed)
        return _Recipe(target, self.firmware, definitions | places | {"HIL_BUILD_ID": build_id}, build_id)

    def _definitions(self) -> dict[str, str]:
        target = self.target
        return {
            "HIL_CPU": target.cpu,
            "HIL_ISA": target.isa.value,
            "HIL_RUNTIME": self.runtime,
            **({} if target.board.portable else WITHOUT_PORTABLE),
            **({} if target.fpu else {"HIL_NO_FPU": "1"}),
            **target.launcher.definitions(),
            **self.options,
        }

    def _key(self, definitions: Mapping[str, str], installed: str) -> str:
        """Return the build id. `installed` is the digest of the installed ExecuTorch that is linked, else ""."""
        target = self.target
        digest = hashlib.sha256(f"{target.config}\n{installed}\n".encode())
        for name, value in sorted(definitions.items()):
            digest.update(f"{name}={value}\n".encode())
        digest.update(f"{compiler(target).banner}\n{toolchain.flatbuffers().flatc.banner}\n".encode())
        schema = toolchain.schema_directory()
        for path in (schema / "program.fbs", schema / "scalar_type.fbs"):
            digest.update(path.read_bytes())
        for name, text in memory_files(target.board).items():
            digest.update(f"{name}\0{text}\0".encode())
        for root, path in _sources(self.firmware, target.board.directory):
            digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
        return digest.hexdigest()[:16]


@dataclass(frozen=True)
class _Recipe:
    """The inputs of a runner's build, and the build id that they determine.

    Attributes:
        target: the target; the folder of its board has sources too.
        firmware: the folder of the other sources.
        definitions: the CMake definitions.
        build_id: the build id, which is also the key of the cache.
    """

    target: Target
    firmware: Path
    definitions: Mapping[str, str]
    build_id: str

    def elf(self, folder: Path) -> Elf:
        """Return the runner that lies in a folder."""
        counts = COUNTING.items() <= self.definitions.items()
        return Elf(folder / RUNNER, self.build_id, self.target.config, counts=counts)

    def build(self, folder: Path) -> None:
        """Build the runner in a folder next to `folder`, and rename it last: a killed build never looks complete."""
        with TemporaryFolder(f"{folder.name}-", folder.parent) as work:
            self.copy(work)
            self.run(self.configure(work), work)
            finished = work / "finished"
            finished.mkdir()
            shutil.copy2(work / "build" / RUNNER, finished / RUNNER)
            _keep_notes(finished, work / "build", self.definitions.get("HIL_EXECUTORCH_PREFIX"))
            (finished / DIGEST).write_bytes(_digest(finished))
            shutil.copy2(work / LOG, finished / LOG)
            if folder.exists():
                with (finished / LOG).open("a") as text:
                    text.write(f"{DAMAGED}\n")
                shutil.rmtree(folder)
            finished.rename(folder)

    def copies(self, work: Path) -> dict[Path, Path]:
        """Return for each folder of sources the folder of its copy in `work`.

        The paths within `work` are the same in each build, so that ccache finds files wherever the original sources
        are.
        """
        board = self.target.board.directory
        return {self.firmware: work / "firmware", board: work / "board" / board.name}

    def copy(self, work: Path) -> None:
        copies = self.copies(work)
        for root, path in _sources(*copies):
            copy = copies[root] / path.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        write_memory_files(self.target.board, work / _MEMORY)

    def configure(self, work: Path) -> list[str]:
        """Configure the build of the sources that were copied to `work`; return the command that builds."""
        firmware, board = self.copies(work).values()
        cmake = str(toolchain.find("cmake").path)
        toolchain.find("ninja")
        flatbuffers = toolchain.flatbuffers()
        configure = [cmake, "-S", str(firmware), "-B", str(work / "build"), "-G", "Ninja"]
        if self.target.cpu != HOST.name:
            configure.append(f"-DCMAKE_TOOLCHAIN_FILE={firmware / 'cmake' / 'arm-none-eabi.cmake'}")
        configure.append(f"-DHIL_BOARD_DIR={board}")
        configure.append(f"-DHIL_MEMORY_DIR={work / _MEMORY}")
        configure.append(f"-DHIL_SCHEMA_DIR={toolchain.schema_directory()}")
        configure.append(f"-DHIL_FLATC={flatbuffers.flatc.path}")
        configure.append(f"-DHIL_FLATBUFFERS_INCLUDE={flatbuffers.include}")
        configure += [f"-D{name}={value}" for name, value in self.definitions.items()]
        configure += _ccache(cmake, work)
        self.run(configure, work)
        return [cmake, "--build", str(work / "build")]

    def run(self, command: list[str], work: Path) -> None:
        """Run a command of a build, and rewrite its log to name the original folders instead of their copies.

        Raises BuildError, with the cause and the end of the log, where the command fails.
        """
        log = work / LOG
        status = subprocesses.run(command, log, timeouts.RUNNER_BUILD)
        text = log.read_text(errors="replace")
        for original, copy in self.copies(work).items():  # ccache gives the compiler relative paths
            text = text.replace(str(copy), str(original)).replace(f"../{copy.relative_to(log.parent)}", str(original))
        log.write_text(text)
        if status is None:
            raise BuildError(
                f"no end after {timeouts.RUNNER_BUILD:.0f} s: {' '.join(command[:3])} …", target=self.target.name
            )
        if status != 0:
            lines = text.splitlines()
            tail = "\n".join(lines[-40:])
            if regions := region_overflow.overflowed(text):
                raise region_overflow.does_not_fit(self.target, self.definitions["HIL_RUNTIME"], regions, tail)
            cause = next((line.strip() for line in lines if _CAUSE.search(line)), "no line of the log says why")
            raise BuildError(
                f"the runner does not build for {self.target.config} (exit status {status}): {cause}\n{tail}",
                target=self.target.name,
                log=tail,
                hint="hil doctor tries the tools; else correct the sources, "
                f"the board's are in {self.target.board.directory}",
            )


def _sources(firmware: Path, board: Path) -> Iterator[tuple[Path, Path]]:
    """Yield each source file of both folders, with the folder that it is in."""
    for root in (firmware, board):
        for path in file_trees.files(root):
            skip = root == firmware and firmware / "boards" in path.parents
            if not skip and path.suffix not in (".md", ".pyc"):
                yield root, path


def _keep_notes(finished: Path, build: Path, prefix: str | None) -> None:
    """Copy gcov's .gcno files of the compiled objects, and of the prefix's objects that were linked, into `finished`.

    The runner contains the names of the .gcda files of its objects; these names select the .gcno files of the prefix.
    """
    notes = list(build.rglob("*.gcno"))
    if prefix is not None:
        elf = (finished / RUNNER).read_bytes()
        installed = (Path(prefix) / NOTES).glob("*.gcno")
        notes += [path for path in installed if f"/{path.stem}.gcda\0".encode() in elf]
    for path in notes:
        (finished / NOTES).mkdir(exist_ok=True)
        shutil.copy2(path, finished / NOTES)


class BuildTree:
    """The sources and objects of a runner in a folder, to build it repeatedly with changed files or memory sizes.

    Only changed files and those that depend on them are compiled. All runners of a tree have the same build id, and
    none is cached. They are for simulators only: a board that has one runner of the tree would not be flashed with the
    next.
    """

    def __init__(self, target: Target, folder: Path, runtime: str = "builtin", *, lenient: bool = False) -> None:
        """Configure a copy of the sources without compiling anything. Raises the errors of `build_runner`.

        Args:
            target: the target that the runner is for.
            folder: the folder for the copy of the sources and the objects.
            runtime: the runtime in the runner, `builtin` or `executorch`.
            lenient: whether compiler warnings are no errors, for files that a program changes. The objects that
                `build_runner` left in ccache are then of no use.
        """
        self._folder = folder
        options = {"HIL_WERROR": "OFF"} if lenient else {}
        self._recipe = _Request(target, runtime, package_data("firmware"), options).recipe()
        self._recipe.copy(folder)
        self._changed: frozenset[str] = frozenset()
        self._configure()

    def resize(self, memory: Memory) -> None:
        """Set the sizes of the target's memory for all following builds."""
        target = self._recipe.target
        self._recipe = replace(self._recipe, target=replace(target, board=replace(target.board, memory=memory)))
        write_memory_files(self._recipe.target.board, self._folder / _MEMORY)

    def build(self, changed: Mapping[str, str]) -> Elf:
        """Build the runner with changed files, and return it; the ELF is valid until the next build.

        Args:
            changed: new contents by the paths of files below `firmware`; all other files are as they were.

        Raises:
            BuildError: the build fails.
        """
        firmware = self._recipe.firmware
        copy = self._recipe.copies(self._folder)[firmware]
        for path in self._changed - changed.keys():
            shutil.copyfile(firmware / path, copy / path)
        for path, text in changed.items():
            (copy / path).write_text(text)
        self._changed = frozenset(changed)
        (self._folder / LOG).unlink(missing_ok=True)
        self._recipe.run(self._build, self._folder)
        return self._recipe.elf(self._folder / "build")

    def _configure(self) -> None:
        (self._folder / LOG).unlink(missing_ok=True)
        self._build = self._recipe.configure(self._folder)


def _ccache(cmake: str, work: Path) -> list[str]:
    """Return CMake definitions to use ccache, if it is on PATH: runners have most files in common."""
    ccache = shutil.which("ccache")
    if ccache is None:
        return []
    settings = {
        "DIR": cache_directory() / "objects",
        "MAXSIZE": "1G",
        "BASEDIR": work,
        "NOHASHDIR": 1,  # -ffile-prefix-map takes the folder out of what is compiled
        "COMPILERCHECK": "content",
    }
    variables = (f"CCACHE_{name}={value}" for name, value in settings.items())
    launcher = ";".join([cmake, "-E", "env", *variables, str(Path(ccache).absolute())])
    return [f"-DCMAKE_{language}_COMPILER_LAUNCHER={launcher}" for language in ("C", "CXX")]
