"""Import hooks that execute modules within a context, and leave no trace in these modules."""

from __future__ import annotations

import importlib.abc
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def found_behind(
    finder: object, name: str, path: Sequence[str] | None, target: ModuleType | None = None
) -> ModuleSpec | None:
    """Return what the finders behind this one in `sys.meta_path` find; None where no loader executes the module.

    Args:
        finder: the finder that asks.
        name: as of `find_spec`, like the others.
        path: as of `find_spec`.
        target: as of `find_spec`.
    """
    behind = sys.meta_path[sys.meta_path.index(finder) + 1 :] if finder in sys.meta_path else []
    found = (other.find_spec(name, path, target) for other in behind)
    spec = next((one for one in found if one is not None), None)
    return spec if spec is not None and hasattr(spec.loader, "exec_module") else None


class Loader(importlib.abc.Loader):
    """A loader that executes a module within a context, and is gone afterwards: the module keeps its own loader."""

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
        """Get from the module's own loader all else that a loader is asked for, such as resources and source text."""
        return getattr(self._loader, name)
