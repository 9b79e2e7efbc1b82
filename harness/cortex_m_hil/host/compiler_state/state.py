"""Watches the compiler (ExecuTorch and torchao) in this process for changes by the user, from its import on.

An import hook records the contents of ExecuTorch and torchao right after their import, before user code can change
them; of torch, NumPy and some modules of Python it records the functions and classes. A later difference is a change by
the user, unless it was made within a block of `own_work`: lowering fills registries and caches of the compiler. After a
change the compiler is not trusted any more in this process, even if the change is undone, since caches may hold results
that were computed in between.
"""

from __future__ import annotations

import importlib
import importlib.abc
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

from cortex_m_hil.host.compiler_state.callables import Callables
from cortex_m_hil.host.compiler_state.record import Record
from cortex_m_hil.host.import_hooks import ContextLoader, find_next_spec

_COMPILER: Final = ("executorch", "torchao")
_COMPUTING: Final = ("builtins", "cmath", "collections", "copy", "functools", "itertools", "math", "operator", "struct")
_LIBRARIES: Final = ("cortex_m_hil.lowering", "numpy", "torch")
_SEEN: Final = tuple(f"{package}." for package in (*_COMPILER, *_LIBRARIES))
_NAMESPACES: Final = ("aten/", "prims/", "quantized_decomposed/", "torchao/", "dim_order_ops/", "cortex_m/")


class CompilerState(importlib.abc.MetaPathFinder):
    """A record of the compiler's state; as a finder in `sys.meta_path` it notices imports. Not thread-safe."""

    def __init__(self) -> None:
        self._compiler = Record(_COMPILER)
        self._callables = Callables((*_COMPUTING, *_LIBRARIES))
        self._kernels = _kernels()
        self._imported: list[str] = []  # modules imported since changes were last accepted
        self._worked = False  # whether this package or the compiler has run since then
        self._depth = 0  # depth of nested imports and blocks of own work
        self._shared = ""  # why the user's code may run, within a block of shared work
        self._problem = ""

    def install(self) -> None:
        for name in _COMPUTING:
            importlib.import_module(name)
        self._callables.record(list(sys.modules))
        if _is_loaded():
            self._problem = "ExecuTorch was imported before cortex_m_hil, which cannot tell whether it was changed"
        sys.meta_path.insert(0, self)

    def problem(self) -> str:
        """Return why the compiler may differ from its files, or use a changed torch; "" if it is unchanged.

        The check takes some ten milliseconds if the compiler is loaded, half of that if only torch is.
        """
        if not self._problem and not self._depth and (changed := self._changed()):
            how = f"while code of the user's may have run: {self._shared}" if self._shared else "in memory"
            self._problem = f"{changed} was changed {how}"
        return self._problem

    def work(self, no_key: str) -> AbstractContextManager[None]:
        """Return the context for a computation: `own_work` if its result has a cache key, else `shared_work`.

        Args:
            no_key: why there is no key; "": there is one.
        """
        return self.shared_work(no_key) if no_key else self.own_work()

    @contextmanager
    def own_work(self) -> Iterator[None]:
        """Accept all changes made in the block, in which only this package and the compiler run."""
        self.problem()
        self._worked = True
        with self._nested():
            yield

    @contextmanager
    def shared_work(self, why: str) -> Iterator[None]:
        """Stop trusting the compiler if it changes in the block, in which the user's code may run too.

        Modules that the block imports are recorded like others: the first lowering imports parts of the compiler.

        Args:
            why: why the user's code may run, for the message.
        """
        self.problem()
        outer, self._shared = self._shared, self._shared or why
        try:
            yield
        finally:
            self.problem()
            self._shared = outer

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec from the later finders, with a loader that records the import."""
        if not f"{name}.".startswith(_SEEN):
            return None
        if not self._depth and (_is_of_compiler(name) or self._kernels != _kernels()):
            self.problem()
        spec = find_next_spec(self, name, path, target)
        if spec is not None:
            spec.loader = ContextLoader(spec.loader, partial(self._importing, name))
        return spec

    @contextmanager
    def _importing(self, name: str) -> Iterator[None]:
        """Record the import of a module; the block executes the module and its imports.

        Warnings in the block are ignored: they do not concern the user, whose filters might turn one into an error.
        """
        if name in self._compiler.modules and not self._problem:
            self._problem = f"{name} was imported again"
        self._imported.append(name)
        with self._nested(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield

    @contextmanager
    def _nested(self) -> Iterator[None]:
        """Accept the changes at the end of the outermost of nested blocks."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth and not self._problem:
                self._take()

    def _take(self) -> None:
        imported, self._imported = self._imported, []
        worked, self._worked = self._worked or any(map(_is_of_compiler, imported)), False
        self._callables.record(imported)
        self._kernels = _kernels()
        if worked and not self._compiler.is_current():
            self._compiler.update()

    def _changed(self) -> str:
        """Return the full name of a changed function, class or value, "" if there is none."""
        if not self._callables.is_current() and (changed := self._callables.changed()):
            return changed
        if kernels := self._kernels ^ _kernels():
            return f"the kernel {min(kernels)}"
        if not _is_loaded() or self._compiler.is_current():
            return ""
        changed = next(self._compiler.changes(), "")
        if not changed:
            self._compiler.update()
        return changed


def _is_of_compiler(name: str) -> bool:
    return name.partition(".")[0] in _COMPILER


def _is_loaded() -> bool:
    return not sys.modules.keys().isdisjoint(_COMPILER)


def _kernels() -> frozenset[str]:
    """Return the names of kernels that Python code registered for operators that are not the user's own."""
    known = getattr(sys.modules.get("torch.library"), "_impls", ())
    return frozenset(one for one in known if one.startswith(_NAMESPACES))


compiler_state: Final = CompilerState()
