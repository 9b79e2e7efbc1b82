"""The functions and classes of modules that the compiler uses, recorded to detect whether any was replaced."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from operator import is_, itemgetter
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final

_MEMBERS: Final = (staticmethod, classmethod, property, float)  # floats such as math.pi
_INNER: Final = ("__func__", "fget", "func", "__wrapped__")  # attributes in which wrappers keep the wrapped function


@dataclass(frozen=True, eq=False)
class _Namespace:
    """The namespace of a module or class, with the values that some of its names had.

    Attributes:
        name: the full name of the module or class.
        names: the namespace, which may change.
        known: the functions, classes, properties and floats in it by name, at the time of the record.
    """

    name: str
    names: Mapping[str, Any]
    known: dict[str, object]

    def changed(self) -> Iterator[str]:
        return (key for key, value in self.known.items() if self.names.get(key) is not value)


class Callables:
    """The functions and classes of modules at the time of `record`; later additions are ignored."""

    def __init__(self, packages: tuple[str, ...]) -> None:
        self._prefixes = tuple(f"{package}." for package in packages)
        self._namespaces: dict[int, _Namespace] = {}  # by identity of module and class
        self._alive: list[object] = []
        self._readers: list[tuple[Any, Mapping[str, Any]]] = []
        self._known: list[object] = []

    def record(self, names: Iterable[str]) -> None:
        """Record modules by name, with the classes in them, unless they are recorded already."""
        for name in names:
            module = sys.modules.get(name)
            if self._is_of(name) and isinstance(module, ModuleType):
                self._add(name, module)
                for value in list(vars(module).values()):
                    if issubclass(type(value), type) and self._is_of(getattr(value, "__module__", None)):
                        self._add(f"{value.__module__}.{value.__qualname__}", value)

    def is_current(self) -> bool:
        try:
            now = chain.from_iterable(read(names) for read, names in self._readers)
            return all(map(is_, now, self._known))
        except KeyError:
            return False

    def changed(self) -> str:
        """Return the full name of a function or class that was replaced, or "".

        Replacements that torch's own code has made are accepted and recorded: torch.compile, for example, wraps
        functions of torch.
        """
        known = set(map(id, self._known))
        for namespace in self._namespaces.values():
            for key in list(namespace.changed()):
                value = namespace.names.get(key)
                if id(value) in known or not _is_in(value, _folders()):
                    return f"{namespace.name}.{key}"
                namespace.known[key] = value
        namespaces, self._readers, self._known = self._namespaces.values(), [], []
        for namespace in namespaces:
            self._read(namespace)
        return ""

    def _is_of(self, module: object) -> bool:
        return isinstance(module, str) and f"{module}.".startswith(self._prefixes)

    def _add(self, name: str, value: object) -> None:
        names = vars(value)
        known = {key: one for key, one in list(names.items()) if callable(one) or issubclass(type(one), _MEMBERS)}
        if known and id(value) not in self._namespaces:
            self._alive.append(value)
            self._namespaces[id(value)] = _Namespace(name, names, known)
            self._read(self._namespaces[id(value)])

    def _read(self, namespace: _Namespace) -> None:
        first = next(iter(namespace.known))
        # The first name is given twice, since itemgetter returns no tuple for a single name.
        self._readers.append((itemgetter(*namespace.known, first), namespace.names))
        self._known += [*namespace.known.values(), namespace.known[first]]


def _folders() -> tuple[str, ...]:
    """Return the folder of torch, if it is imported."""
    return (f"{Path(sys.modules['torch'].__file__ or '').parent}/",) if "torch" in sys.modules else ()


def _is_in(value: Any, folders: tuple[str, ...]) -> bool:
    """Tell whether a function, and every function that it wraps, is code in one of the folders."""
    inner = next((getattr(value, name) for name in _INNER if name in _attributes(value)), None)
    if inner is not None and not _is_in(inner, folders):
        return False
    if isinstance(value, FunctionType):
        return value.__code__.co_filename.startswith(folders)
    return isinstance(value, (staticmethod, classmethod, property, functools.partial)) and inner is not None


def _attributes(value: Any) -> Iterable[str]:
    return (*getattr(value, "__dict__", ()), *(name for name in _INNER if hasattr(type(value), name)))
