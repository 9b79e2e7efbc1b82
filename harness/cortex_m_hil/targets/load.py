"""Loads `targets.yaml` and `board.yaml`, strictly.

An unknown key, a missing board or a duplicate name raises a ConfigError that names file and line.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from ruamel.yaml.comments import CommentedMap

from cortex_m_hil.errors import ConfigError, did_you_mean
from cortex_m_hil.errors.text import shown
from cortex_m_hil.host import yaml_files
from cortex_m_hil.host.paths import package_data
from cortex_m_hil.targets import launcher as launchers
from cortex_m_hil.targets.cpu import Isa, cpu_name, cpus
from cortex_m_hil.targets.target import Board, ExecutorchInstall, Launcher, Pools, Resident, Strict, Target

_SIZE = re.compile(r"([0-9]+)([KMG]?)")


def parse_size(text: object) -> int:
    """Parse a size such as `65536`, `"64K"`, `"2M"` or `"1G"`; return bytes. Raises ValueError for anything else."""
    match = _SIZE.fullmatch(str(text).strip())
    if match is None or isinstance(text, bool):
        raise ValueError(f"{shown(text)} is not a size such as 65536, 64K or 2M")
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]


def size_text(nbytes: int) -> str:
    """Return a size in the syntax of `parse_size`, in the largest unit of which it is a multiple."""
    for unit, shift in (("G", 30), ("M", 20), ("K", 10)):
        if nbytes and nbytes % (1 << shift) == 0:
            return f"{nbytes >> shift}{unit}"
    return str(nbytes)


PoolSize = Annotated[int, BeforeValidator(parse_size), Field(gt=0, lt=1 << 31)]  # a 32-bit C object cannot be larger


class _RawPools(Strict):
    program: PoolSize
    planned: PoolSize
    method: PoolSize
    shared: PoolSize | None = None


class _RawResident(Strict):
    address: Annotated[int, Field(ge=0, lt=1 << 32)]
    size: PoolSize


class _RawBoard(Strict):
    pools: _RawPools
    console: Literal["semihosting", "native", "uart"] = "semihosting"
    resident: _RawResident | None = None
    portable: bool = True


class _RawTarget(Strict):
    cpu: Annotated[str, AfterValidator(cpu_name)]
    board: str
    launcher: str | dict[str, Any]
    isa: str | None = None
    fpu: bool | None = None
    fallback: str | None = None


class _RawExecutorch(Strict):
    prefix: str
    source: str | None = None
    build: str = ""
    libraries: list[str] = Field([])


class _RawRuntimes(Strict):
    executorch: _RawExecutorch | None = None


class _RawFile(Strict):
    targets: dict[str, _RawTarget]
    runtimes: _RawRuntimes = _RawRuntimes()


class _RawRuntimesFile(_RawFile):
    """A file that says where a runtime is; it need not have targets of its own."""

    targets: dict[str, _RawTarget] = Field({})


USER_FILE: Final = "targets.yaml"
_BEGINS: Final = "a targets.yaml begins with targets:, a board.yaml with pools:; delete a file that is to say nothing"
_EXAMPLES: Final = "hil docs boards and hil docs architecture have examples"


def load_user_targets(file: Path | None = None) -> dict[str, Target]:
    """Load the default targets, and those of a file, which extends them.

    `file` is None for the `targets.yaml` of the current folder, if there is one. Raises ConfigError as `load_targets`.
    """
    if file is None and os.path.lexists(USER_FILE):
        file = Path(USER_FILE)
    return load_targets(file)


def load_targets(extra: Path | None = None) -> dict[str, Target]:
    """Load the default targets, and those of `extra`, a user's `targets.yaml`, which extends them.

    Raises ConfigError where a file is wrong, a target has the name of another one, or a fallback is no target.
    """
    default = package_data("targets.yaml")
    targets, executorch = _load_file(default, f"{__package__.partition('.')[0]}/{default.name}")
    if extra is not None and not _is_same(extra, default):
        more, theirs = _load_file(extra, extra.name)
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
            target, executorch=executorch, alternatives=tuple(one for one in targets.values() if one is not target)
        )
        for name, target in targets.items()
    }


def _taken(target: Target, path: Path, default: Path) -> ConfigError:
    """Return the error for a target of the file `path` that differs from the default target of the same name."""
    checkout = path.absolute().parent
    if (checkout / "harness" / __package__.partition(".")[0]).is_dir():  # its default targets, not a user's
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


def _load_file(path: Path, name: str) -> tuple[dict[str, Target], ExecutorchInstall | None]:
    """Load the targets and the ExecuTorch of a file; `name` is the file's name in the origin of its entries."""
    tree = yaml_files.parse(path, _BEGINS)
    raw = yaml_files.validate(_RawRuntimesFile if "runtimes" in tree else _RawFile, tree, path, _EXAMPLES)
    targets = {
        one: _check_target(one, entry, tree, path, f"{name}:{yaml_files.locate(tree, ('targets', one))[1]}")
        for one, entry in raw.targets.items()
    }
    place = f"{name}:{yaml_files.locate(tree, ('runtimes', 'executorch'))[1]}"
    return targets, _check_executorch(raw.runtimes.executorch, path.parent, place)


def _check_executorch(raw: _RawExecutorch | None, base: Path, origin: str) -> ExecutorchInstall | None:
    """Check the settings of an installed ExecuTorch; their paths are relative to the folder `base`."""
    if raw is None:
        return None
    stray = set(re.findall(r"{[^}]*}", raw.prefix)) - {"{cpu}"}
    if stray:
        raise ConfigError(f"{origin}: prefix: {stray.pop()} has no meaning", hint="{cpu} stands for the target's CPU")
    if raw.build and raw.source is None:
        raise ConfigError(
            f"{origin}: build without source", hint="the prefix is built when it is older than the source"
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
        board=_load_board(raw.board, path.parent, f"{origin}: {name}"),
        launcher=_check_launcher(raw.launcher, f"{origin}: {name}", ("targets", name, "launcher"), tree, path),
        fallback=raw.fallback,
        origin=origin,
        fpu=_check_fpu(raw, f"{origin}: {name}"),
        entry=raw.model_dump(exclude_none=True),
    )


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
    return kind.parse(yaml_files.validate_at((*place, key), kind.settings, value, tree, path, _EXAMPLES), where)


STACK_SIZE: Final = re.compile(r"\bHIL_STACK_SIZE\s*=")
"""Where a linker script sets the size of the stack."""


def line_of_pool(board: Board, key: str) -> str:
    """Return `file:line` of a key of `pools` in a board's file; only the file where that cannot be read."""
    file = board.directory / "board.yaml"
    with contextlib.suppress(ConfigError):
        return f"{file}:{yaml_files.locate(yaml_files.parse(file, _BEGINS), ('pools', key))[1]}"
    return str(file)


def is_shipped(board: Board) -> bool:
    """Tell whether a board is one of this package's, which a user does not change."""
    return package_data("firmware") in board.directory.parents


def _load_board(name: str, base: Path, where: str) -> Board:
    shipped = package_data("firmware") / "boards"
    directory = Path(os.path.abspath(base / name)) if "/" in name else shipped / name
    description = directory / "board.yaml"
    if not os.path.isfile(description):  # is false also for names that no file system allows
        if "/" in name:
            raise ConfigError(
                f"{where}: board {name!r}: no {description}",
                hint="a board's folder has board.yaml, board.ld and board.cpp (hil docs boards)",
            )
        known = [entry.name for entry in shipped.iterdir() if entry.is_dir()]
        raise ConfigError(f"{where}: unknown board {name!r}", hint=did_you_mean(name, known))
    raw = yaml_files.validate(_RawBoard, yaml_files.parse(description, _BEGINS), description, _EXAMPLES)
    resident = Resident(raw.resident.address, raw.resident.size) if raw.resident else Resident(0, 0)
    if resident.address + resident.size > 1 << 32:
        raise ConfigError(
            f"{description}: resident ends beyond the 4G that a Cortex-M addresses",
            hint="its size counts from its address",
        )
    pools = Pools(raw.pools.program, raw.pools.planned, raw.pools.method, raw.pools.shared or 0)
    if pools.shared and max(pools.program, pools.planned) > pools.shared:
        raise ConfigError(
            f"{description}: pools.shared is smaller than a pool that lies in it",
            hint="shared is the memory that program and planned share",
        )
    return Board(directory.name, directory, pools, resident, raw.portable)
