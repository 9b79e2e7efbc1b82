"""Records the contents of loaded packages (modules, classes, functions and data), to detect changes later.

All values are compared by identity, in loops that run in C, so that a hundred thousand values take some ten
milliseconds. If no recorded container, function or object has changed, the same values as before can be reached from
the modules, so nothing is walked again.
"""

from __future__ import annotations

import functools
import operator
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain
from types import CellType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any, Final

_ATOMS: Final = (int, float, complex, str, bytes, bool, type(None))
_GROWTH: Final = 1.1  # growth from which on all is recorded again, since some recorded values are gone
_SKIPPED: Final = frozenset({"__builtins__", "__loader__", "__spec__"})
# Additions to modules and classes by Python itself: registries of warnings, and caches of copy and inspect.
_NOTES: Final = frozenset({"__annotations__", "__slotnames__", "__warningregistry__"})


class RecordedGroup:
    """Values of one kind, each with its parts at the time of the record.

    `read` returns the parts of a value; None: a value is itself the collection of its parts.
    """

    def __init__(self, read: Callable[[Any], tuple[object, ...]] | None = None) -> None:
        self.values: list[Any] = []
        self.names: list[str] = []
        self._read = read
        self._sizes: list[int] = []
        self._parts: list[object] = []

    def add(self, name: str, value: object) -> None:
        self.names.append(name)
        self.values.append(value)

    def record(self) -> None:
        self._sizes = list(map(len, self._now()))
        self._parts = list(chain.from_iterable(self._now()))

    def is_same(self) -> bool:
        try:
            same_sizes = self._read is not None or list(map(len, self.values)) == self._sizes
            return same_sizes and all(map(operator.is_, chain.from_iterable(self._now()), self._parts))
        except (AttributeError, ValueError):  # a cell that was emptied
            return False

    def changed(self) -> Iterator[tuple[int, list[object], list[object]]]:
        """Yield the number, the recorded parts and the present parts of each value whose parts have changed."""
        begin = 0
        for number, size in enumerate(self._sizes):
            before, begin = self._parts[begin : begin + size], begin + size
            now = self.parts_of(number)
            if len(now) != size or not all(map(operator.is_, before, now)):
                yield number, before, now

    def recorded(self, number: int) -> list[object]:
        begin = sum(self._sizes[:number])
        return self._parts[begin : begin + self._sizes[number]]

    def parts_of(self, number: int) -> list[object]:
        """Return the present parts of a value; none where they cannot be read."""
        value = self.values[number]
        try:
            return list(value if self._read is None else self._read(value))
        except (AttributeError, ValueError):
            return []

    def _now(self) -> Iterable[Collection[object]]:
        return self.values if self._read is None else map(self._read, self.values)


class Record:
    """The modules of some packages at the time of the last `update`."""

    def __init__(self, packages: tuple[str, ...]) -> None:
        self._prefixes = tuple(f"{package}." for package in packages)
        self._begin()

    def _begin(self) -> None:
        self.modules: dict[str, ModuleType] = {}
        self._keys, self._values = RecordedGroup(), RecordedGroup()  # the keys and values of mappings
        self._items = RecordedGroup()  # the items of lists and sets
        self._functions = RecordedGroup(operator.attrgetter("__code__", "__defaults__", "__kwdefaults__"))
        self._cells = RecordedGroup(
            operator.attrgetter("cell_contents", "cell_contents")
        )  # one name is given twice, since attrgetter returns no tuple for a single name
        self._objects = RecordedGroup(operator.attrgetter("__class__", "__dict__"))
        self._groups = (self._keys, self._values, self._items, self._functions, self._cells, self._objects)
        self._alive: dict[int, object] = {}  # the values that were reached, by identity
        self._alive_at_first = 0
        self._waiting: deque[tuple[str, Any]] = deque()

    def update(self) -> None:
        """Record the present state of everything."""
        if len(self._alive) > _GROWTH * self._alive_at_first:
            self._begin()
        for number in self._changed_mappings():
            self._follow_members(number)
        for group in (self._items, self._functions, self._cells, self._objects):
            for number, _, now in group.changed():
                for value in now:
                    self._follow(group.names[number], value)
        for name, module in self._loaded().items():
            if self.modules.get(name) is not module:
                self.modules[name] = module
                self._mapping(name, vars(module))
        while self._waiting:
            self._take(*self._waiting.popleft())
        for group in self._groups:
            group.record()
        self._alive_at_first = self._alive_at_first or len(self._alive)

    def is_current(self) -> bool:
        """Tell whether nothing has changed since `update`.

        Unlike in `changes`, attributes that Python itself adds to modules and classes are counted as changes.
        """
        return self._loaded() == self.modules and all(group.is_same() for group in self._groups)

    def changes(self) -> Iterator[str]:
        """Yield the full names of changes since `update`, except for attributes that Python itself adds."""
        loaded = self._loaded()
        yield from (name for name, module in self.modules.items() if loaded.get(name) is not module)
        yield from (name for name, module in loaded.items() if name not in self.modules and not _is_bare(module))
        for number in self._changed_mappings():
            yield from self._changed_members(number)
        for group in (self._functions, self._cells, self._objects, self._items):
            yield from (group.names[number] for number, _, _ in group.changed())

    def _loaded(self) -> dict[str, ModuleType]:
        named = [name for name in list(sys.modules) if f"{name}.".startswith(self._prefixes)]
        return {name: sys.modules[name] for name in named if sys.modules[name] is not None}

    # --- the parts of values ----------------------------------------------------------------------------------

    def _follow(self, name: str, value: Any) -> None:
        if id(value) not in self._alive and self._is_followed(type(value)):
            self._alive[id(value)] = value
            self._waiting.append((name, value))

    def _is_followed(self, kind: type) -> bool:
        return kind not in _ATOMS and (issubclass(kind, _FOLLOWED) or self._is_own(kind))

    def _take(self, name: str, value: Any) -> None:
        kind = type(value)
        if kind is FunctionType:
            self._function(value)
        elif issubclass(kind, type):
            self._class(value)
        elif issubclass(kind, (dict, MappingProxyType)):
            self._mapping(name, value)
        elif issubclass(kind, (list, set, deque)):
            self._items.add(name, value)
            self._follow_all(name, value)
        elif issubclass(kind, (tuple, frozenset)):
            self._follow_all(name, value)
        elif kind in _WRAPPERS:
            self._follow_all(name, [getattr(value, part) for part in _WRAPPERS[kind]])
        elif self._is_own(kind) and hasattr(value, "__dict__"):
            self._follow(name, kind)
            self._objects.add(name, value)
            self._mapping(name, vars(value))

    def _function(self, function: FunctionType) -> None:
        name = f"{function.__module__}.{function.__qualname__}"
        self._functions.add(name, function)
        self._follow_all(name, (function.__defaults__, function.__kwdefaults__))
        if function.__dict__:
            self._mapping(name, function.__dict__)
        for cell in filter(_is_filled, function.__closure__ or ()):
            self._cells.add(name, cell)
            self._follow(name, cell.cell_contents)

    def _class(self, value: Any) -> None:
        """Follow the members and bases of a class of the packages; classes of other packages are skipped."""
        if self._is_own(value):
            name = f"{value.__module__}.{value.__qualname__}"
            self._mapping(name, vars(value))
            self._follow_all(name, value.__bases__)

    def _is_own(self, value: Any) -> bool:
        module = getattr(value, "__module__", None)
        return isinstance(module, str) and f"{module}.".startswith(self._prefixes)

    def _mapping(self, name: str, mapping: Any) -> None:
        self._keys.add(name, mapping.keys())
        self._values.add(name, mapping.values())
        self._follow_members(len(self._keys.values) - 1)

    def _follow_members(self, number: int) -> None:
        name = self._keys.names[number]
        for key, value in zip(self._keys.parts_of(number), self._values.parts_of(number), strict=True):
            if isinstance(key, str):
                if key not in _SKIPPED and key not in _NOTES:
                    self._follow(f"{name}.{key}", value)
            else:
                self._follow(f"a key of {name}", key)
                self._follow(f"{name}[{type(key).__name__}]", value)

    def _follow_all(self, name: str, values: Iterable[Any]) -> None:
        for value in list(values):
            self._follow(name, value)

    # --- changes -----------------------------------------------------------------------------------------

    def _changed_mappings(self) -> list[int]:
        return sorted({number for group in (self._keys, self._values) for number, _, _ in group.changed()})

    def _changed_members(self, number: int) -> Iterator[str]:
        name = self._keys.names[number]
        before, now = (
            {id(key): (key, value) for key, value in zip(keys, values, strict=True)}
            for keys, values in (
                (self._keys.recorded(number), self._values.recorded(number)),
                (self._keys.parts_of(number), self._values.parts_of(number)),
            )
        )
        kept = [key for key in now if key in before]
        for key, (label, value) in now.items():
            if before[key][1] is not value if key in before else not _is_note(name, label, value):
                yield f"{name}.{label}"
        if kept != list(before):  # a value is missing, or the order differs
            gone = [str(label) for key, (label, _) in before.items() if key not in now]
            yield f"{name}.{gone[0]}" if gone else name


# Values of these types cannot be changed themselves, but the values that they wrap can.
_WRAPPERS: Final[dict[type, tuple[str, ...]]] = {
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    property: ("fget", "fset", "fdel"),
    MethodType: ("__func__", "__self__"),
    functools.partial: ("func", "args", "keywords"),
    functools.cached_property: ("func",),
    functools._lru_cache_wrapper: ("__wrapped__",),
}


_FOLLOWED: Final = (
    *(FunctionType, type, dict, MappingProxyType, list, set, deque, tuple, frozenset),
    *_WRAPPERS,
)


def _is_filled(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - raises
    except ValueError:
        return False
    return True


def _is_note(name: str, key: object, value: object) -> bool:
    """Tell whether an addition was made by Python itself: one of `_NOTES`, or a submodule in its package."""
    return key in _NOTES or (isinstance(key, str) and value is not None and sys.modules.get(f"{name}.{key}") is value)


def _is_bare(module: ModuleType) -> bool:
    """Tell whether a module contains only other modules, as a package without a file of its own does."""
    return all(name.startswith("__") or isinstance(value, ModuleType) for name, value in vars(module).items())
