"""Import hooks: something is done around the execution of modules, and nobody can tell afterwards."""

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
    """What the finders behind this one in `sys.meta_path` find; None where no loader executes it."""
    behind = sys.meta_path[sys.meta_path.index(finder) + 1 :] if finder in sys.meta_path else []
    found = (other.find_spec(name, path, target) for other in behind)
    spec = next((one for one in found if one is not None), None)
    return spec if spec is not None and hasattr(spec.loader, "exec_module") else None


class Loader(importlib.abc.Loader):
    """Executes a module within a context, and is gone afterwards: the module keeps its own loader."""

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
        """Resources and source text: what else a loader is asked for."""
        return getattr(self._loader, name)
