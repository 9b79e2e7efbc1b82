"""Is the compiler in memory the one in its files? Who replaces a pass, in a test say, has another compiler.

A cache's key knows the files of the compiler; this finds the functions and classes that are not what these define.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any, Final

_MEMBERS: Final = (FunctionType, staticmethod, classmethod, property)
_WATCHED: Final = (*_MEMBERS, type, functools._lru_cache_wrapper)
_seen: dict[str, object] = {}  # by full name: what a file defined


def replaced(packages: tuple[str, ...]) -> str:
    """The name of a function or class in a loaded module of the packages that is no file's; "" where there is none.

    The compiler replaces functions of its own by others of its own, and so does this package: these are in files. Who
    replaces one by another function of the compiler is not found out.
    """
    for name, module in list(sys.modules.items()):
        if module is not None and name.startswith(packages):
            for attribute, value in _watched(f"{name}.", vars(module)):
                if _seen.get(attribute) is value:
                    continue
                home = _home(value)
                if not home.startswith(_compiler() if attribute in _seen else _installed()):
                    return attribute
                _seen[attribute] = value
    return ""


def _watched(prefix: str, names: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Functions and classes, members of classes that are defined here, and whatever is in the place of such by now."""
    module = prefix[:-1]
    for name, value in list(names.items()):
        attribute = prefix + name
        if isinstance(value, _WATCHED) or attribute in _seen or type(value).__module__ == "unittest.mock":
            yield attribute, value
        if isinstance(value, type) and value.__module__ == module:
            for member, what in list(vars(value).items()):
                if isinstance(what, _MEMBERS) or f"{attribute}.{member}" in _seen:
                    yield f"{attribute}.{member}", what


def _home(value: Any) -> str:
    """The file of a function's code or of a class's module; "<": the interpreter made it; "": unknown."""
    if isinstance(value, type):
        return getattr(sys.modules.get(value.__module__), "__file__", None) or "<"
    for inner in ("__func__", "fget", "__wrapped__"):
        if not isinstance(value, FunctionType):
            value = getattr(value, inner, value)
    if isinstance(value, FunctionType):
        return value.__code__.co_filename
    return "<" if type(value).__module__ in ("builtins", "functools") else ""


@functools.cache
def _compiler() -> tuple[str, ...]:
    """Where the files are that a key knows."""
    specs = [importlib.util.find_spec(package) for package in ("torch", "torchao", "executorch")]
    places = [place for spec in specs if spec is not None for place in spec.submodule_search_locations or ()]
    return (str(Path(__file__).parents[1]), *places)


@functools.cache
def _installed() -> tuple[str, ...]:
    """Where code is that has a file of its own: also that of the interpreter and of all installed packages."""
    places = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return ("<", *_compiler(), *places)
