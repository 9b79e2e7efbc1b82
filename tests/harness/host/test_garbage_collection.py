"""What is imported is not gone through by the collector of garbage."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from cortex_m_hil.host.garbage_collection import garbage_collection_paused

pytest_plugins = ["pytester"]


class Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.enable()


def test_what_is_there_at_the_end_is_frozen_and_what_was_garbage_before_is_gone() -> None:
    garbage = weakref.ref(Cycle())
    before = gc.get_freeze_count()
    with garbage_collection_paused():
        assert not gc.isenabled() and garbage() is None
        kept = Cycle()
    assert gc.isenabled() and gc.get_freeze_count() > before
    assert not any(one is kept for one in gc.get_objects())


def test_who_has_disabled_it_finds_it_disabled() -> None:
    gc.disable()
    with pytest.raises(ImportError), garbage_collection_paused():
        raise ImportError("torch")
    assert not gc.isenabled()


def test_the_plugin_imports_tests_so(pytester: pytest.Pytester) -> None:
    file = "import gc\nINSIDE = gc.isenabled()\n\ndef test():\n    assert not INSIDE and gc.isenabled()\n"
    pytester.makepyfile(file + "    assert gc.get_freeze_count() > 0\n")
    pytester.runpytest_subprocess("--target=native").assert_outcomes(passed=1)
