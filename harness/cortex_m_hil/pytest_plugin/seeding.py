"""Seeds random generators, so that a test's random numbers depend only on `--hil-seed`, not on order or process.

A test, its function-scoped fixtures, each wider fixture and each module have separate streams of random numbers, so
that the weights of a fixture and the inputs of its test are different numbers. Generators are seeded only in runs with
a target, and not for tests that do not use it.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Generator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from cortex_m_hil.host.random_generators import ModuleSeeder, RandomStream, seeded
from cortex_m_hil.pytest_plugin.fixtures import resolved_of

HIGHEST = 2**32 - 1  # the largest seed: numpy's generator takes 32 bits
_FIXTURES: pytest.StashKey[RandomStream] = pytest.StashKey()  # random numbers of a test's function-scoped fixtures
_SEEDING: pytest.StashKey[Seeding] = pytest.StashKey()


def start(config: pytest.Config, number: int, root: Path, *, modules: int | None = None) -> None:
    """Seed modules, tests and fixtures from now on. A second call does nothing.

    Args:
        config: pytest's configuration.
        number: the seed of the run.
        root: the folder whose modules are seeded when they are imported.
        modules: the seed of modules; None: a seed derived from `number`, so that modules and test bodies draw different
            numbers.
    """
    if _SEEDING not in config.stash:
        config.stash[_SEEDING] = Seeding(number, root, modules)
        config.pluginmanager.register(config.stash[_SEEDING], "hil-seeding")


class Seeding:
    """A plugin whose hooks seed the generators around all code that may draw random numbers."""

    def __init__(self, number: int, root: Path, modules: int | None = None) -> None:
        self._number = number
        self._modules = ModuleSeeder(self._of("module") if modules is None else modules, root)
        sys.meta_path.insert(0, self._modules)

    def _of(self, part: str) -> int:
        """Return the seed of a part of the run. The body of a test has the run's seed."""
        return zlib.crc32(f"{part} {self._number}".encode())

    @pytest.hookimpl(wrapper=True)
    def pytest_generate_tests(self) -> Generator[None, object, object]:
        with seeded(self._of("module")):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        __tracebackhide__ = True
        if resolved_of(item) is None:
            return (yield)
        with seeded(self._of("teardown")):
            return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        item.stash[_FIXTURES] = RandomStream(self._of("function fixtures"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, request: Any) -> Generator[None, object, object]:
        """Seed around each fixture, but not around the whole setup.

        During the setup other plugins seed generators, and wider fixtures are torn down.
        """
        __tracebackhide__ = True
        with self._numbers(request):
            return (yield)

    def _numbers(self, request: Any) -> AbstractContextManager[None]:
        if request.scope != "function":
            return seeded(self._of(f"{request.scope} fixture"))
        if resolved_of(request.node) is None:
            return nullcontext()
        stream: RandomStream = request.node.stash[_FIXTURES]
        return stream.resumed()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> Generator[None, object, object]:
        __tracebackhide__ = True
        if resolved_of(pyfuncitem) is None:
            return (yield)
        with seeded(self._number):
            return (yield)

    def pytest_unconfigure(self) -> None:
        sys.meta_path.remove(self._modules)
