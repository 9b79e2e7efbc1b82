"""Helpers for import hooks: find a module by later finders, and execute it within a context."""

from __future__ import annotations

import importlib.abc
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def find_next_spec(
    finder: object, name: str, path: Sequence[str] | None, target: ModuleType | None = None
) -> ModuleSpec | None:
    """Return the spec from the finders after this one in `sys.meta_path`; None if its loader has no `exec_module`.

    Args:
        finder: the calling finder.
        name: as in `importlib.abc.MetaPathFinder.find_spec`.
        path: as in `find_spec`.
        target: as in `find_spec`.
    """
    later = sys.meta_path[sys.meta_path.index(finder) + 1 :] if finder in sys.meta_path else []
    found = (other.find_spec(name, path, target) for other in later)
    spec = next((one for one in found if one is not None), None)
    return spec if spec is not None and hasattr(spec.loader, "exec_module") else None


class ContextLoader(importlib.abc.Loader):
    """A wrapper around a loader that executes a module within a context.

    The module's attributes refer to the wrapped loader.
    """

    def __init__(self, loader: Any, context: Callable[[], AbstractContextManager[None]]) -> None:
        self._loader = loader
        self._context = context

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        with self._context():
            self._loader.exec_module(module)

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute from the wrapped loader, such as methods for resources and source text."""
        return getattr(self._loader, name)
