"""`targets.yaml` and `board.yaml`, read strictly.

An unknown key, a missing board, a duplicate name is a ConfigError that names file and line.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BaseModel, BeforeValidator, Field, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, ScalarEvent

from cortex_m_hil.errors import ConfigError, did_you_mean, is_pytests_own
from cortex_m_hil.host import files
from cortex_m_hil.host.paths import package_data
from cortex_m_hil.targets import launcher as launchers
from cortex_m_hil.targets.cpu import Isa, cpus
from cortex_m_hil.targets.launcher import Launcher, Strict
from cortex_m_hil.targets.model import Board, ExecutorchInstall, Pools, Resident, Target
from cortex_m_hil.text import shown

# A farm of a hundred boards takes a tenth of these. At a limit, reading takes about a second.
YAML_LIMIT = 128 << 10  # bytes of a file
NODE_LIMIT = 5000  # values in it, aliases expanded
DEPTH_LIMIT = 20

_SIZE = re.compile(r"([0-9]+)([KMG]?)")


def parse_size(text: object) -> int:
    """Bytes from `65536`, `"64K"`, `"2M"` or `"1G"`."""
    match = _SIZE.fullmatch(str(text).strip())
    if match is None or isinstance(text, bool):
        raise ValueError(f"{shown(text)} is not a size such as 65536, 64K or 2M")
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]


PoolSize = Annotated[int, BeforeValidator(parse_size), Field(gt=0, lt=1 << 32)]


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


class _RawTarget(Strict):
    cpu: str
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
    """A file that says where a runtime is need not have targets of its own."""

    targets: dict[str, _RawTarget] = Field({})


USER_FILE: Final = "targets.yaml"


def load_user_targets(file: Path | None = None) -> dict[str, Target]:
    """The default targets, extended by the file; None: by the `targets.yaml` of the current folder, if there is one."""
    if file is None and os.path.lexists(USER_FILE):
        file = Path(USER_FILE)
    return load_targets(file)


def load_targets(extra: Path | None = None) -> dict[str, Target]:
    """The default targets, and those of `extra` (a user's `targets.yaml`) which extends them."""
    default = package_data("targets.yaml")
    targets, executorch = _load_file(default)
    if extra is not None and not _is_same(extra, default):
        more, theirs = _load_file(extra)
        executorch = theirs or executorch
        for name, target in more.items():
            if name not in targets:
                targets[name] = target
            elif dataclasses.replace(target, origin="") != dataclasses.replace(targets[name], origin=""):
                raise _taken(target, extra, default)
    for target in targets.values():
        if target.fallback is not None and target.fallback not in targets:
            raise ConfigError(
                f"{target.origin}: fallback {target.fallback!r} of {target.name!r} is not a target",
                hint=did_you_mean(target.fallback, targets),
            )
    return {name: dataclasses.replace(target, executorch=executorch) for name, target in targets.items()}


def _taken(target: Target, path: Path, default: Path) -> ConfigError:
    """`target` of the file `path` is not what a target of that name is in this package's file."""
    checkout = path.absolute().parent
    if (checkout / "harness" / __package__.partition(".")[0]).is_dir():  # its own defaults, and none of the user's
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


def _load_file(path: Path) -> tuple[dict[str, Target], ExecutorchInstall | None]:
    tree = _parse_yaml(path)
    raw = _validate(_RawRuntimesFile if "runtimes" in tree else _RawFile, tree, path)
    targets = {
        name: _check_target(name, entry, tree, path, f"{path.name}:{_locate(tree, ('targets', name))[1]}")
        for name, entry in raw.targets.items()
    }
    place = f"{path.name}:{_locate(tree, ('runtimes', 'executorch'))[1]}"
    return targets, _check_executorch(raw.runtimes.executorch, path.parent, place)


def _check_executorch(raw: _RawExecutorch | None, base: Path, origin: str) -> ExecutorchInstall | None:
    """Paths are relative to the file."""
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


def _parse_yaml(path: Path) -> CommentedMap:
    try:
        text = files.read(path, YAML_LIMIT).decode("utf-8-sig")
        tree = _yaml().load(text)
    except ConfigError:
        raise
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text", hint="save it as UTF-8; is it the right file?") from error
    except MarkedYAMLError as error:
        mark = error.problem_mark
        line = f":{mark.line + 1}" if mark else ""
        problem, hint = _of_yaml(str(error.problem).strip().splitlines()[0])
        raise ConfigError(f"{path}{line}: {problem}", hint=hint) from error
    except YAMLError as error:
        raise ConfigError(f"{path}: {error}", hint="correct the YAML") from error
    except Exception as error:  # ruamel.yaml lets ValueError, RecursionError and others of its constructors out
        if is_pytests_own(error):
            raise
        raise ConfigError(f"{path}: {error or type(error).__name__}", hint="correct the YAML") from error
    if not isinstance(tree, CommentedMap):
        hint = "a targets.yaml begins with targets:, a board.yaml with pools:; delete a file that is to say nothing"
        raise ConfigError(f"{path}:1: expected a mapping at the top", hint=hint)
    return tree


def _of_yaml(problem: str) -> tuple[str, str]:
    """What ruamel.yaml says of a file that is no YAML, in words of YAML's users, and what to do."""
    if "'\\t'" in problem:
        return "a tab in the indentation", "indent with spaces"
    if problem.startswith("expected <block end>"):
        return "this line is indented unlike its neighbours", "indent keys of one mapping alike"
    if duplicate := re.match(r'found duplicate key "([^"]*)"', problem):
        return f"duplicate key {duplicate[1]!r}", "rename or delete one of the two"
    return problem, "correct the YAML"


class _Bounded(Composer):
    """Refuses what would take too long, or too deep a stack, to make values of; aliases count as they expand.

    So does text that no command line can hold. Ends where a limit is passed.
    """

    def __init__(self, loader: Any = None) -> None:
        super().__init__(loader)
        self._nodes = 0
        self._level = 0
        self._expanded: dict[str, int] = {}  # nodes of each anchor whose node is complete

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.parser.peek_event()
        before, anchor = self._nodes, event.anchor
        if isinstance(event, AliasEvent):
            self._nodes += self._expanded.get(anchor, 1)
        else:
            self._nodes += 1
            self._expanded.pop(anchor, None)
        problem = self._problem(event)
        if problem:
            raise MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
        self._level += 1
        node = super().compose_node(parent, index)
        self._level -= 1
        if anchor is not None and not isinstance(event, AliasEvent):
            self._expanded[anchor] = self._nodes - before
        return node

    def _problem(self, event: Any) -> str:
        if self._nodes > NODE_LIMIT:
            return f"more than {NODE_LIMIT} values, aliases expanded"
        if self._level > DEPTH_LIMIT:
            return f"more than {DEPTH_LIMIT} levels"
        if isinstance(event, AliasEvent):
            within = event.anchor in self.anchors and event.anchor not in self._expanded
            return f"alias *{event.anchor} within its own anchor" if within else ""
        return _unusable(event.value) if isinstance(event, ScalarEvent) else ""


def _yaml() -> YAML:
    yaml = YAML(typ="rt")
    yaml.Composer = _Bounded
    return yaml


def _unusable(value: str) -> str:
    """What is wrong with a text that is to become a word of a command, a path or a name; "" if nothing."""
    if "\0" in value:
        return "a NUL within text"
    return "a lone surrogate within text" if any("\ud800" <= one <= "\udfff" for one in value) else ""


def _validate(model: type[Any], tree: CommentedMap, path: Path) -> Any:
    return _validate_at((), model, _plain(tree), tree, path)


def _validate_at(place: tuple[str, ...], model: type[Any], value: Any, tree: CommentedMap, path: Path) -> Any:
    """`value`, from that place of the file's `tree`, as `model`."""
    try:
        return model.model_validate(value)
    except RecursionError:
        raise ConfigError(
            f"{path}: an alias within its own anchor", hint="write out what the alias stands for"
        ) from None
    except ValidationError as error:
        # The deepest is about the union member that was meant; an unknown key explains a missing one.
        worst = max(error.errors(), key=lambda e: (len(e["loc"]), e["type"] == "extra_forbidden"))
        location, line = _locate(tree, (*place, *worst["loc"]))
        if worst["type"] == "extra_forbidden":
            known = _fields_at(model, location[len(place) : -1])
            message = f"unknown key {location[-1]!r}"
            hint = did_you_mean(location[-1], known)
            if len(location) == 1 and isinstance(worst["input"], dict) and "cpu" in worst["input"]:
                hint = "targets stand below a line targets:, and are indented"
            raise ConfigError(f"{path}:{line}: {message}", hint=hint) from None
        examples = "docs/boards.md and docs/architecture.md have examples"
        if worst["type"] == "missing":
            key = str(worst["loc"][-1])
            problem, hint = f"{'.'.join([*location, key])}: missing", f"add {key}: …; {examples}"
        else:
            problem, hint = f"{'.'.join(location)}: {_of_value(worst)}", f"correct this value; {examples}"
        raise ConfigError(f"{path}:{line}: {problem}", hint=hint) from None


_WANTED = {"dict_type": "a mapping", "model_type": "a mapping", "string_type": "text", "list_type": "a list"}


def _of_value(error: Any) -> str:
    """What pydantic says of a value, in words of YAML's users."""
    wanted = _WANTED.get(error["type"])
    if wanted is None and not error["msg"].startswith("Input should be "):
        return str(error["msg"])
    given = "nothing" if error["input"] is None else shown(error["input"])
    return f"has to be {wanted or error['msg'].removeprefix('Input should be ')}, not {given}"


def _plain(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _plain(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_plain(value) for value in node]
    if isinstance(node, bool) or node is None:
        return node
    return int(node) if isinstance(node, int) else str(node) if isinstance(node, str) else node


def _locate(tree: Any, location: Iterable[int | str]) -> tuple[list[str], int]:
    """The parts of `location` that the file has (pydantic names union members too), and their line, from 1."""
    found: list[str] = []
    line = 1
    for part in location:
        if (isinstance(tree, CommentedMap) and part in tree) or (
            isinstance(tree, CommentedSeq) and isinstance(part, int)
        ):
            place = (tree.lc.data or {}).get(part)  # what a merge key brought in has no place of its own
            line = int(place[0]) + 1 if place else line
            found.append(str(part))
            tree = tree[part]
    return found, line


def _fields_at(model: type[BaseModel], location: list[str]) -> Iterable[str]:
    """What a mapping at `location` may have."""
    for part in location:
        field = model.model_fields.get(part)
        model = next(_models_in(field.annotation), model) if field else model
    return model.model_fields


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)


# What --target can name: no comma, no glob, and not `all`.
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
        kind = launchers.find(key)
    except ConfigError as error:
        line = _locate(tree, (*place, key))[1]
        raise ConfigError(f"{path}:{line}: launcher: {error.message}", hint=error.hint) from error
    if isinstance(raw, str) and kind.shorthand:
        example = f"{{{key}: {kind.shorthand.upper()}}}"
        raise ConfigError(f"{where}: launcher {raw!r} without its {kind.shorthand}", hint=f"launcher: {example}")
    value = {kind.shorthand: value} if kind.shorthand and isinstance(value, str) else {} if value is None else value
    return kind.parse(_validate_at((*place, key), kind.settings, value, tree, path), where)


def _load_board(name: str, base: Path, where: str) -> Board:
    shipped = package_data("firmware") / "boards"
    directory = Path(os.path.abspath(base / name)) if "/" in name else shipped / name
    description = directory / "board.yaml"
    if not os.path.isfile(description):  # false also for names that no file system takes
        if "/" in name:
            raise ConfigError(
                f"{where}: board {name!r}: no {description}",
                hint="a board's folder has board.yaml, board.ld and board.cpp (docs/boards.md)",
            )
        known = [entry.name for entry in shipped.iterdir() if entry.is_dir()]
        raise ConfigError(f"{where}: unknown board {name!r}", hint=did_you_mean(name, known))
    raw = _validate(_RawBoard, _parse_yaml(description), description)
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
    return Board(directory.name, directory, pools, resident)
