"""The keys of `memory:` in a `board.yaml`, and in an entry of `targets.yaml`, which overrides single keys.

Every ConfigError names the file and the line of the wrong key, in whichever of the two files it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, ValidationError
from ruamel.yaml.comments import CommentedMap

from cortex_m_hil.errors import ConfigError, did_you_mean
from cortex_m_hil.host import yaml_files
from cortex_m_hil.targets.memory import (
    MAX_BANKS,
    STACK_ALIGNMENT,
    Holds,
    Memory,
    Placed,
    Region,
    parse_size,
    size_text,
)
from cortex_m_hil.targets.target import Strict

_END: Final = 1 << 32  # the end of a Cortex-M's address space
_Bytes = Annotated[int, BeforeValidator(parse_size), Field(gt=0, lt=1 << 31)]  # a 32-bit C object cannot be larger
_RegionBytes = Annotated[int, BeforeValidator(parse_size), Field(gt=0, le=_END)]
_Address = Annotated[int, Field(ge=0, lt=_END)]
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")  # a region's name, in a linker script and in C++
_TAKEN: Final = ("CODE", "STACK", "DATA", "PROGRAM_POOL", "METHOD_POOL")  # names that the linker script uses itself
_MAY_HOLD: Final = {"code": ("code", "both"), "data": ("data", "both")}


class _RegionKeys(Strict):
    size: _RegionBytes
    address: _Address | None = None
    holds: Holds = "data"


class _PlacedKeys(Strict):
    region: str
    size: _Bytes


class _MemoryKeys(Strict):
    """The keys of `memory:`, of a board alone or of a board merged with a target's."""

    regions: dict[str, _RegionKeys]
    program: _PlacedKeys
    method: _PlacedKeys
    banks: Annotated[list[_PlacedKeys], Field(min_length=1, max_length=MAX_BANKS)]
    code: str | None = None
    data: str | None = None
    stack: _PlacedKeys | None = None
    shared: _Bytes | None = None
    resident: str | None = None
    temp: _PlacedKeys | None = None
    unplanned: str | None = None


@dataclass(frozen=True)
class _Source:
    """A file, its content, and the keys in it that lead to `memory`."""

    path: Path
    tree: CommentedMap
    keys: tuple[str, ...]

    def locate(self, place: tuple[int | str, ...]) -> tuple[int, str]:
        """Return how many keys of the path `place` the file has, and `file:line` of the last of them."""
        found, line = yaml_files.locate(self.tree, (*self.keys, *place))
        return len(found) - len(self.keys), f"{self.path}:{line}"


@dataclass(frozen=True)
class MemoryKeysReader:
    """Reads the memory of a board, and of a target that overrides keys of it.

    Attributes:
        sources: the files with keys, the overriding file first.
        on_host: whether the board is the host, which has no addresses.
    """

    sources: tuple[_Source, ...]
    on_host: bool

    @classmethod
    def of_board(cls, path: Path, tree: CommentedMap, *, on_host: bool) -> MemoryKeysReader:
        """Return a reader of a `board.yaml`, by its path and content."""
        return cls((_Source(path, tree, ("memory",)),), on_host)

    def overridden(self, path: Path, tree: CommentedMap, target: str) -> MemoryKeysReader:
        """Return a reader of the board's keys, with those replaced that a target's entry has."""
        return MemoryKeysReader((_Source(path, tree, ("targets", target, "memory")), *self.sources), self.on_host)

    def read(self) -> Memory:
        """Return the memory. Raises ConfigError where a key is wrong, or where keys contradict each other."""
        merged: Any = {}
        for source in reversed(self.sources):
            merged = _merged(merged, _value_at(yaml_files.plain(source.tree), source.keys))
        keys = self._validated(merged)
        memory = Memory(
            tuple(Region(name, one.address, one.size, one.holds) for name, one in keys.regions.items()),
            _placed(keys.program), tuple(map(_placed, keys.banks)), _placed(keys.method), keys.code or "",
            keys.data or "", None if keys.stack is None else _placed(keys.stack), keys.shared or 0, keys.resident or "",
            None if keys.temp is None else _placed(keys.temp), keys.unplanned or "", self._places(merged),
        )  # fmt: skip
        self._check_regions(memory)
        self._check_names(memory)
        self._check_banks(memory)
        self._check_room(memory)
        return memory

    def _validated(self, merged: Any) -> _MemoryKeys:
        """Return the keys of both files together; raise ConfigError where one is missing, or has a wrong value."""
        try:
            return _MemoryKeys.model_validate(merged)
        except ValidationError as error:
            worst = yaml_files.worst_of(error)["loc"]
        source = max(self.sources, key=lambda one: one.locate(worst)[0])
        keys: _MemoryKeys = yaml_files.validate_at(source.keys, _MemoryKeys, merged, source.tree, source.path, EXAMPLES)
        return keys

    def _places(self, merged: Mapping[str, Any]) -> dict[str, str]:
        """Return `file:line` of each key, and of each region as `regions.NAME`."""
        keys = [(key,) for key in merged] + [("regions", name) for name in merged["regions"]]
        return {".".join(key): self._line(*key) for key in keys}

    def _line(self, *place: int | str) -> str:
        """Return `file:line` of a key, in the file that has more of the keys on the path to it."""
        found = [source.locate(place) for source in self.sources]
        return max(found, key=lambda one: one[0])[1]

    def _error(self, place: tuple[int | str, ...], problem: str, hint: str) -> ConfigError:
        name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in ("memory", *place))[1:]
        return ConfigError(f"{self._line(*place)}: {name}: {problem}", hint=hint)

    def _check_regions(self, memory: Memory) -> None:
        """Check names and addresses of regions, and that no two overlap."""
        for region in memory.regions:
            place = ("regions", region.name)
            if not _NAME.fullmatch(region.name) or region.name in _TAKEN:
                raise self._error(place, "no name for a region", f"letters, digits and _; none of {', '.join(_TAKEN)}")
            if self.on_host != (region.address is None):
                problem = "has an address, and the host chooses its own" if self.on_host else "has no address"
                raise self._error(place, problem, "console: native is for the host" if self.on_host else "address: 0x…")
            if region.end > _END:
                raise self._error(
                    place, "ends beyond the 4G that a Cortex-M addresses", "its size counts from its address"
                )
        if self.on_host:
            return
        for lower, upper in pairwise(sorted(memory.regions, key=lambda region: region.address or 0)):
            if upper.address is not None and lower.end > upper.address:
                problem = f"overlaps {lower.name}, which ends at {lower.end:#010x}"
                raise self._error(("regions", upper.name), problem, "regions are apart: correct an address or a size")

    def _check_names(self, memory: Memory) -> None:
        """Check that each key names an existing region whose kind, code or data, it may use."""
        if self.on_host and (memory.code or memory.data or memory.stack):
            key = "code" if memory.code else "data" if memory.data else "stack"
            raise self._error((key,), "the host's linker places it", "leave it out")
        known = {region.name: region for region in memory.regions}
        for place, name, content in _uses(memory, self.on_host):
            if not name:
                raise self._error((), f"{place[0]}: missing", f"add {place[0]}: …; {EXAMPLES}")
            if name not in known:
                raise self._error(place, f"no region {name!r}", did_you_mean(name, known))
            if known[name].holds not in _MAY_HOLD[content]:
                where = self._line("regions", name)
                problem = f"{name} holds {known[name].holds} only ({where})"
                raise self._error(place, problem, f"another region, or holds: both, where {name} can be written")
        if memory.stack is not None and memory.stack.size % STACK_ALIGNMENT:
            raise self._error(("stack", "size"), f"{memory.stack.size} bytes", f"a multiple of {STACK_ALIGNMENT}")

    def _check_banks(self, memory: Memory) -> None:
        """Check that each bank has a region of its own, and that the sizes of shared memory are possible."""
        names = [bank.region for bank in memory.banks]
        for number, name in enumerate(names):
            if name in names[:number]:
                raise self._error(("banks", number), f"{name} is the region of two banks", "one bank for each region")
        if memory.unplanned and memory.unplanned not in names:
            problem = f"no bank lies in {memory.unplanned!r}"
            raise self._error(("unplanned",), problem, did_you_mean(memory.unplanned, names))
        if not memory.shared:
            return
        first = memory.banks[0]
        if first.region != memory.program.region:
            problem = f"program lies in {memory.program.region}, and the first bank in {first.region}"
            raise self._error(("shared",), problem, "what program and the first bank share is in one region")
        if max(memory.program.size, first.size) > memory.shared:
            problem = "smaller than the program or the bank that lies in it"
            raise self._error(("shared",), problem, "shared is the memory that program and the first bank share")

    def _check_room(self, memory: Memory) -> None:
        """Check that each region is large enough for its contents, as far as their sizes are known before the build."""
        for region in memory.regions:
            inside = list(memory.contents(region.name))
            if region.name == memory.resident and (inside or region.name in (memory.code, memory.data)):
                raise self._error(("resident",), f"more lies in {region.name}", "a region of flash for programs alone")
            total = sum(nbytes for _, nbytes in inside)
            if total > region.size:
                key = max(inside, key=lambda one: one[1])[0]
                told = ", ".join(f"{name} {size_text(nbytes)}" for name, nbytes in inside)
                problem = (
                    f"{region.name} has {size_text(region.size)} ({self._line('regions', region.name)}), "
                    f"and {told} are to lie there: {total - region.size} bytes too many"
                )
                raise self._error((key,), problem, "smaller sizes, or another region")


EXAMPLES: Final = "hil docs boards and hil docs architecture have examples"


def _uses(memory: Memory, on_host: bool) -> Iterator[tuple[tuple[int | str, ...], str, str]]:
    """Yield the place of each key that names a region, the region's name, and what it is used for: `code` or `data`."""
    if not on_host:
        yield ("code",), memory.code, "code"
        yield ("data",), memory.data, "data"
        yield ("stack",), memory.stack.region if memory.stack is not None else "", "data"
    yield ("program",), memory.program.region, "data"
    for number, bank in enumerate(memory.banks):
        yield ("banks", number), bank.region, "data"
    yield ("method",), memory.method.region, "data"
    if memory.temp is not None:
        yield ("temp",), memory.temp.region, "data"
    if memory.resident:
        yield ("resident",), memory.resident, "code"


def _placed(keys: _PlacedKeys) -> Placed:
    return Placed(keys.region, keys.size)


def _value_at(value: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        value = value[key]
    return value


def _merged(base: Any, override: Any) -> Any:
    """Return `base` with the keys of `override` in place of its own; lists are replaced as a whole."""
    if not isinstance(base, dict) or not isinstance(override, dict):
        return override
    return base | {key: _merged(base.get(key), value) for key, value in override.items()}


# --- the old form of board.yaml and board.ld, without `memory` ----------------------------------------------

_LENGTH: Final = re.compile(
    r"(\w+)\s*(?:\(([!\w]*)\))?\s*:\s*ORIGIN\s*=\s*(0x[0-9a-fA-F]+|\d+)\s*,\s*LENGTH\s*=\s*(\w+)(?:\s*-\s*(\d+))?"
)
_ALIAS: Final = re.compile(r'REGION_ALIAS\s*\(\s*"(\w+)"\s*,\s*(\w+)\s*\)')
_STACK: Final = re.compile(r"\bHIL_STACK_SIZE\s*=\s*(\w+)")
_OLD_STACK: Final = "64K"  # without HIL_STACK_SIZE


def in_new_keys(pools: Mapping[str, Any], resident: Any, script: str) -> str:
    """Return `memory:`, as lines of YAML, with the values of a board's old `pools`, `resident` and linker script."""
    aliases: dict[str, str] = dict(_ALIAS.findall(script))
    lines = ["memory:", "  regions:"]
    for name, flags, origin, length, less in _LENGTH.findall(script):
        size = size_text(_parsed(length) - int(less or 0))
        holds = "" if "w" in flags.lower() else ", holds: code"
        lines.append(f"    {name}: {{address: {origin}, size: {size}{holds}}}")
    if isinstance(resident, dict):
        place = ", ".join(f"{key}: {value}" for key, value in resident.items())
        lines.append(f"    programs: {{{place}, holds: code}}")
    lines += [f"  {key}: {aliases.get(key.upper(), '…')}" for key in ("code", "data")]
    stack = _STACK.search(script)
    rows = [("stack", "STACK", stack[1] if stack else _OLD_STACK)]
    rows += [(key, f"{key.upper()}_POOL", pools.get(key, "…")) for key in ("program", "method")]
    lines += [f"  {key}: {{region: {aliases.get(alias, '…')}, size: {size}}}" for key, alias, size in rows]
    bank = f"{{region: {aliases.get('PLANNED_POOL', '…')}, size: {pools.get('planned', '…')}}}"
    lines += ["  banks:", f"    - {bank}"]
    lines += [f"  shared: {pools['shared']}"] if "shared" in pools else []
    lines += ["  resident: programs"] if isinstance(resident, dict) else []
    return "\n".join(lines)


def _parsed(length: str) -> int:
    return int(length, 16) if length.lower().startswith("0x") else parse_size(length.upper())
