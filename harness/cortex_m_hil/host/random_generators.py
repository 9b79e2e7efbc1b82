"""The random generators of `random`, numpy and torch: seeded together, and restored.

torch is not imported for this, as its import takes seconds. If it is imported later, it is seeded then, with the same
result as if it had been imported before. Only torch's generator for the CPU is restored.
"""

from __future__ import annotations

import importlib.abc
import random
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np
import numpy.random  # imported here, as its import on first use would be within the import hook below

from cortex_m_hil.host.import_hooks import ContextLoader, find_next_spec

_PACKAGES: Final = frozenset({"site-packages", "dist-packages"})  # names of folders into which pip and Debian install


class _Last:
    """The last seed of the generators."""

    number: int | None = None


def seed(number: int) -> None:
    """Seed all three generators; numpy's takes the lower 32 bits of the number."""
    _Last.number = number
    random.seed(number)
    np.random.seed(number % 2**32)
    _seed_torch()


@dataclass(frozen=True)
class _State:
    """The states of all three generators; torch's is None while torch is not imported."""

    number: int | None
    of_random: Any
    of_numpy: Any
    of_torch: Any | None

    @classmethod
    def now(cls) -> _State:
        torch = _torch()
        of_torch = None if torch is None else torch.get_rng_state()
        return cls(_Last.number, random.getstate(), np.random.get_state(), of_torch)

    def restore(self) -> None:
        _Last.number = self.number
        random.setstate(self.of_random)
        np.random.set_state(self.of_numpy)
        torch = _torch()
        if torch is not None and self.of_torch is not None:
            torch.set_rng_state(self.of_torch)
        else:
            _seed_torch()  # torch was imported in between: seed it as if it had been imported before


@contextmanager
def seeded(number: int) -> Iterator[None]:
    """Seed the generators for the block, and restore their states after it."""
    before = _State.now()
    seed(number)
    try:
        yield
    finally:
        before.restore()


class RandomStream:
    """A sequence of random numbers from one seed, which continues in each `resumed` block.

    Numbers that are drawn between the blocks do not affect it.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._state: _State | None = None
        self._open = False

    @contextmanager
    def resumed(self) -> Iterator[None]:
        """Resume the sequence in the block where the last block ended; a nested block has no effect."""
        if self._open:
            yield
            return
        before = _State.now()
        if self._state is None:
            seed(self._number)
        else:
            self._state.restore()
        self._open = True
        try:
            yield
        finally:
            self._open = False
            self._state = _State.now()
            before.restore()


def _torch() -> Any | None:
    """Return torch, if its import is complete; while it is being imported, it has no generator yet."""
    module = sys.modules.get("torch")
    return None if module is None or getattr(module.__spec__, "_initializing", False) else module


def _seed_torch() -> None:
    torch = _torch()
    if torch is None or _Last.number is None:
        return
    if torch.accelerator.is_available():
        torch.manual_seed(_Last.number)
    else:  # manual_seed would format and store the call stack for each missing device
        torch.default_generator.manual_seed(_Last.number)


class ModuleSeeder(importlib.abc.MetaPathFinder):
    """An import hook that seeds the generators before each module of a test suite is executed.

    So weights that test modules, conftest.py and their helpers draw on import are the same in any order of imports, and
    in any process. Installed modules are not seeded, unless `root` is a folder of an installed package itself.
    """

    def __init__(self, number: int, root: Path) -> None:
        self._number = number
        self._root = f"{root}/"
        self._library = tuple(f"{place}/" for place in _library())

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec from the later finders, with a loader that seeds the generators before the module runs."""
        spec = find_next_spec(self, name, path, target)
        if spec is None:
            return None
        if name == "torch":
            spec.loader = ContextLoader(spec.loader, _then_seed_torch)
        elif spec.has_location and self._is_of_suite(spec.origin or ""):
            spec.loader = ContextLoader(spec.loader, lambda: seeded(self._number))
        return spec

    def _is_of_suite(self, origin: str) -> bool:
        """Tell whether a module's file belongs to the test suite, and not to a Python environment.

        An environment may be inside the root or contain it, or be added by a `.pth` file.
        """
        within = origin.startswith(self._root)
        below = origin.removeprefix(self._root)
        return not _PACKAGES.intersection(Path(below).parts) and (within or not origin.startswith(self._library))


def _library() -> set[str]:
    """Return the folders of the standard library, with and without symbolic links resolved."""
    paths = sysconfig.get_paths()
    return {str(place) for name in ("stdlib", "platstdlib") for place in (paths[name], Path(paths[name]).resolve())}


@contextmanager
def _then_seed_torch() -> Iterator[None]:
    yield
    if _Last.number is not None:
        sys.modules["torch"].manual_seed(_Last.number)
