"""Loads and validates `targets.yaml` and `board.yaml`.

A missing board or a duplicate name raises a ConfigError that names file and line; so does an unknown key or a wrong
value, in `host.yaml_files`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field
from ruamel.yaml.comments import CommentedMap

from cortex_m_hil.errors import ConfigError, did_you_mean
from cortex_m_hil.host import files, yaml_files
from cortex_m_hil.host.paths import package_data, path_under_test
from cortex_m_hil.targets import launcher as launchers
from cortex_m_hil.targets.cpu import Isa, cpu_name, cpus
from cortex_m_hil.targets.memory_keys import EXAMPLES, MemoryKeysReader, in_new_keys
from cortex_m_hil.targets.runtimes import AUTO, check_choice
from cortex_m_hil.targets.target import Board, ExecutorchInstall, Launcher, OwnFirmware, Strict, Target


class _RawBoard(Strict):
    memory: dict[str, Any]
    console: Literal["semihosting", "native", "uart"] = "semihosting"
    portable: bool = True


class _RawFirmware(Strict):
    elf: str
    build: str = ""


class _RawTarget(Strict):
    cpu: Annotated[str, AfterValidator(cpu_name)]
    board: str
    launcher: str | dict[str, Any]
    isa: str | None = None
    fpu: bool | None = None
    fallback: str | None = None
    firmware: _RawFirmware | None = None
    memory: dict[str, Any] | None = None
    runtime: str | None = None


class _RawExecutorch(Strict):
    prefix: str
    source: str | None = None
    build: str = ""
    libraries: list[str] = Field([])


class _RawRuntimes(Strict):
    default: str = AUTO
    executorch: _RawExecutorch | None = None


class _RawFile(Strict):
    targets: dict[str, _RawTarget]
    runtimes: _RawRuntimes = _RawRuntimes()


class _RawRuntimesFile(_RawFile):
    """A `targets.yaml` that may have `runtimes:` alone, without `targets:`."""

    targets: dict[str, _RawTarget] = Field({})


USER_FILE: Final = "targets.yaml"
_BEGINS: Final = "a targets.yaml begins with targets:, a board.yaml with memory:; delete a file that is to say nothing"


def load_user_targets(file: Path | None = None) -> dict[str, Target]:
    """Load the default targets, and the targets of a file, which are added.

    `file` is None for the `targets.yaml` of the current folder, if there is one. Raises ConfigError as `load_targets`.
    """
    if file is None and os.path.lexists(USER_FILE):
        file = Path(USER_FILE)
    return load_targets(file)


def load_targets(extra: Path | None = None) -> dict[str, Target]:
    """Load the default targets, and the targets of `extra`, a user's `targets.yaml`, which are added.

    Raises ConfigError where a file is wrong, two targets have one name, or a fallback names no target.
    """
    default = package_data("targets.yaml")
    targets, runtime, executorch = _load_file(default, f"{__package__.partition('.')[0]}/{default.name}")
    if extra is not None and not _is_same(extra, default):
        more, runtime, theirs = _load_file(extra, extra.name)
        executorch = theirs or executorch
        for name, target in more.items():
            if name not in targets:
                targets[name] = target
            elif (target.entry, target.board) != (targets[name].entry, targets[name].board):
                raise _taken(target, extra, default)
    for target in targets.values():
        if target.fallback is not None and target.fallback not in targets:
            raise ConfigError(
                f"{target.origin}: fallback {target.fallback!r} of {target.name!r} is not a target",
                hint=did_you_mean(target.fallback, targets),
            )
    return {
        name: dataclasses.replace(
            target,
            executorch=executorch,
            runtime=target.entry.get("runtime", runtime),
            alternatives=tuple(one for one in targets.values() if one is not target),
        )
        for name, target in targets.items()
    }


def _taken(target: Target, path: Path, default: Path) -> ConfigError:
    """Return the error for a target of the file `path` that differs from the default target of the same name."""
    checkout = path.absolute().parent
    if (checkout / "harness" / __package__.partition(".")[0]).is_dir():  # the file is this package's, not a user's
        return ConfigError(
            f"{path}: {target.name!r} is not what it is in {default}: these are the targets of another checkout than "
            "the one that is installed here",
            hint=f"pip install -e {checkout}, or run its own .venv/bin/hil; or stand in another folder",
        )
    return ConfigError(
        f"{target.origin}: {target.name!r} is the name of a target that comes with this package",
        hint="give it another name; hil targets lists those there are",
    )


def _is_same(path: Path, other: Path) -> bool:
    with contextlib.suppress(OSError):
        return path.samefile(other)
    return False


def _load_file(path: Path, name: str) -> tuple[dict[str, Target], str, ExecutorchInstall | None]:
    """Load a file: its targets, its default runtime and its ExecuTorch settings.

    `name` is the file's name in `Target.origin`.
    """
    tree = yaml_files.parse(path, _BEGINS)
    raw = yaml_files.validate(_RawRuntimesFile if "runtimes" in tree else _RawFile, tree, path, EXAMPLES)
    targets = {
        one: _check_target(one, entry, tree, path, f"{name}:{yaml_files.locate(tree, ('targets', one))[1]}")
        for one, entry in raw.targets.items()
    }
    place = f"{name}:{yaml_files.locate(tree, ('runtimes', 'executorch'))[1]}"
    line = yaml_files.locate(tree, ("runtimes", "default"))[1]
    runtime = _check_runtime(raw.runtimes.default, f"{name}:{line}: default")
    return targets, runtime, _check_executorch(raw.runtimes.executorch, path.parent, place)


def _check_runtime(name: str, where: str) -> str:
    try:
        check_choice(name)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error.message}", hint=error.hint) from None
    return name


def _check_executorch(raw: _RawExecutorch | None, base: Path, origin: str) -> ExecutorchInstall | None:
    """Check the settings of an installed ExecuTorch; their paths are relative to the folder `base`."""
    if raw is None:
        return None
    stray = set(re.findall(r"{[^}]*}", raw.prefix)) - {"{cpu}"}
    if stray:
        raise ConfigError(
            f"{origin}: prefix: {stray.pop()} has no meaning", hint="only {cpu} has one: the target's CPU"
        )
    if raw.build and raw.source is None:
        raise ConfigError(
            f"{origin}: build: needs source:", hint="source: FOLDER; the prefix is built when it is older than that"
        )
    base = base.absolute()
    source = base / Path(raw.source).expanduser() if raw.source is not None else None
    if source is not None and not source.is_dir():
        raise ConfigError(
            f"{origin}: source: no folder {source}", hint="the folder of ExecuTorch's sources, relative to this file"
        )
    prefix = str(base / Path(raw.prefix).expanduser())
    return ExecutorchInstall(prefix, origin, source, raw.build, tuple(raw.libraries), base)


# Names that --target can select: no comma, no glob, and not `all`.
_NAME = re.compile(r"(?!all$)[A-Za-z0-9][A-Za-z0-9_.+-]*")


def _check_target(name: str, raw: _RawTarget, tree: CommentedMap, path: Path, origin: str) -> Target:
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{origin}: {name!r} cannot name a target", hint="letters, digits and -_.+, and not 'all'")
    if raw.cpu not in cpus():
        raise ConfigError(f"{origin}: {name}: unknown cpu {raw.cpu!r}", hint=did_you_mean(raw.cpu, cpus()))
    return Target(
        name=name,
        cpu=raw.cpu,
        isa=_check_isa(raw, f"{origin}: {name}"),
        board=_load_board(raw, name, tree, path, f"{origin}: {name}"),
        launcher=_check_launcher(raw.launcher, f"{origin}: {name}", ("targets", name, "launcher"), tree, path),
        fallback=raw.fallback,
        origin=origin,
        runtime=_check_runtime(raw.runtime or AUTO, f"{origin}: {name}"),
        fpu=_check_fpu(raw, f"{origin}: {name}"),
        firmware=_firmware(raw.firmware, path.parent, origin),
        entry=raw.model_dump(exclude_none=True),
    )


def _firmware(raw: _RawFirmware | None, base: Path, origin: str) -> OwnFirmware | None:
    """Return the settings of the user's own firmware; paths are relative to the folder `base`.

    In a bisection ELF and folder are those of the commit. Without such a folder its build is left to the bisection.
    """
    if raw is None:
        return None
    base = base.absolute()
    elf = base / Path(raw.elf).expanduser()
    tested = path_under_test(elf)
    folder = path_under_test(base)
    build = "" if tested != elf and folder == base else raw.build
    return OwnFirmware(tested, build, folder, origin)


def _check_fpu(raw: _RawTarget, where: str) -> bool:
    if raw.fpu is not None and not cpus()[raw.cpu].has_fpu:
        with_fpu = ", ".join(cpu.name for cpu in cpus().values() if cpu.has_fpu)
        raise ConfigError(
            f"{where}: {raw.cpu} has no FPU that a runner could use or leave out",
            hint=f"leave out `fpu`; it is for {with_fpu}",
        )
    return raw.fpu is not False


def _check_isa(raw: _RawTarget, where: str) -> Isa:
    legal = cpus()[raw.cpu].isas
    if raw.isa is None:
        return legal[0]
    for isa in legal:
        if isa.value.lower() == raw.isa.lower():
            return isa
    choices = ", ".join(i.value.lower() for i in legal)
    raise ConfigError(f"{where}: isa {raw.isa!r} is not possible on {raw.cpu}", hint=f"possible: {choices}")


def _check_launcher(
    raw: str | dict[str, Any], where: str, place: tuple[str, ...], tree: CommentedMap, path: Path
) -> Launcher:
    if isinstance(raw, str):
        key, value = raw, None
    elif len(raw) == 1:
        ((key, value),) = raw.items()
    else:
        known = ", ".join(launchers.SHIPPED)
        raise ConfigError(f"{where}: launcher needs exactly one of {known}", hint="{qemu: mps2-an386}")
    try:
        kind = launchers.find_launcher(key)
    except ConfigError as error:
        line = yaml_files.locate(tree, (*place, key))[1]
        raise ConfigError(f"{path}:{line}: launcher: {error.message}", hint=error.hint) from error
    if isinstance(raw, str) and kind.shorthand:
        example = f"{{{key}: {kind.shorthand.upper()}}}"
        raise ConfigError(f"{where}: launcher {raw!r} without its {kind.shorthand}", hint=f"launcher: {example}")
    value = {kind.shorthand: value} if kind.shorthand and isinstance(value, str) else {} if value is None else value
    return kind.parse(yaml_files.validate_at((*place, key), kind.settings, value, tree, path, EXAMPLES), where)


def is_shipped(board: Board, key: str) -> bool:
    """Tell whether a key of a board's memory is in a file of this package, which users do not change."""
    shipped = package_data("firmware")
    place = board.memory.places.get(key)
    return shipped in board.directory.parents if place is None else place.startswith(f"{shipped}{os.sep}")


def load_board(directory: Path) -> Board:
    """Return the board described by the `board.yaml` in a folder. Raises ConfigError where the file is wrong."""
    return _read_board(directory)[0]


def _read_board(directory: Path) -> tuple[Board, MemoryKeysReader]:
    """Return the board in a folder, with the reader of its memory keys, which lets a target override them."""
    tested = path_under_test(directory)  # no runner is built for a commit without it
    path = (tested if (tested / "board.yaml").is_file() else directory) / "board.yaml"
    content = yaml_files.parse(path, _BEGINS)
    _refuse_old_keys(content, path)
    raw = yaml_files.validate(_RawBoard, content, path, EXAMPLES)
    reader = MemoryKeysReader.of_board(path, content, on_host=raw.console == "native")
    return Board(directory.name, tested, reader.read(), raw.portable), reader


def _load_board(raw: _RawTarget, target: str, tree: CommentedMap, path: Path, where: str) -> Board:
    """Return the board of a target's entry, with the memory keys that the entry overrides.

    Args:
        raw: the target's entry.
        target: the target's name.
        tree: the content of the file that has the entry.
        path: the path of that file.
        where: the text with which messages about the entry begin.
    """
    board, reader = _read_board(_board_folder(raw.board, path.parent, where))
    if raw.memory is None:
        return board
    return dataclasses.replace(board, memory=reader.overridden(path, tree, target).read())


def _board_folder(name: str, base: Path, where: str) -> Path:
    shipped = package_data("firmware") / "boards"
    directory = Path(os.path.abspath(base / name)) if "/" in name else shipped / name
    if os.path.isfile(directory / "board.yaml"):  # also False, not an error, for names that no file system allows
        return directory
    if "/" in name:
        raise ConfigError(
            f"{where}: board {name!r}: no {directory / 'board.yaml'}",
            hint="a board's folder has board.yaml and board.cpp (hil docs boards)",
        )
    known = [entry.name for entry in shipped.iterdir() if entry.is_dir()]
    raise ConfigError(f"{where}: unknown board {name!r}", hint=did_you_mean(name, known))


_OLD_SCRIPT: Final = re.compile(
    r"^\s*(?:MEMORY\b|REGION_ALIAS\b|INCLUDE\s+sections\.ld|HIL_STACK_SIZE\b)", re.MULTILINE
)


def _refuse_old_keys(content: CommentedMap, description: Path) -> None:
    """Raise ConfigError for a `board.yaml` in the old form without `memory`, and show its values in the new keys."""
    script = description.parent / "board.ld"
    text = files.read(script, yaml_files.YAML_LIMIT).decode(errors="replace") if script.is_file() else ""
    old = [key for key in ("pools", "resident") if key in content]
    if old:
        line = yaml_files.locate(content, old[:1])[1]
        values = yaml_files.plain(content)
        pools = values.get("pools") if isinstance(values.get("pools"), dict) else {}
        raise ConfigError(
            f"{description}:{line}: {old[0]}: memory: has taken its place, and that of MEMORY in board.ld",
            hint=f"write this in {description.name} instead, and delete the rest of it from board.ld:\n"
            + in_new_keys(pools, values.get("resident"), text),
        )
    if found := _OLD_SCRIPT.search(text):
        line = text.count("\n", 0, found.end()) + 1
        problem = f"{found[0].split()[0]}: memory: in {description} says it"
        raise ConfigError(
            f"{script}:{line}: {problem}", hint="delete it here: board.ld is for sections of the board's own"
        )
