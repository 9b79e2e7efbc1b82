"""Hides this machine's ExecuTorch from tests, except from tests that ask for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from cortex_m_hil.host.paths import cache_directory
from cortex_m_hil.targets.connection import NOTES
from cortex_m_hil.targets.executorch_prefix import VARIABLE, directory_of, find_install, install_command
from cortex_m_hil.targets.target import Target

CACHE = cache_directory()  # read before pytester changes HOME
NAMED: Final = "HIL_TESTS_EXECUTORCH"  # the value of VARIABLE, for the processes that tests start


def hide_executorch() -> None:
    """Make `auto` mean builtin in tests and their processes, even if an ExecuTorch is installed on this machine."""
    os.environ.setdefault(NAMED, os.environ.get(VARIABLE, ""))
    os.environ[VARIABLE] = ""


@contextmanager
def executorch_of_this_machine() -> Iterator[None]:
    """Let programs find the ExecuTorch that is installed here, or named by the user who runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        named = os.environ.get(NAMED)  # None where it is not hidden
        if named:
            patch.setenv(VARIABLE, named)
        elif named is not None:
            patch.delenv(VARIABLE, raising=False)
        yield


def has_executorch(target: Target, *, counts: bool = False) -> bool:
    """Tell whether an ExecuTorch is named or installed: a broken one too, as the test then says what is wrong.

    Args:
        target: the target.
        counts: whether its kernels have to count coverage; one that is named, and counts none, is then not there.
    """
    with executorch_of_this_machine():
        found = find_install(target, counts, CACHE)
    return found is not None and (not counts or (directory_of(found, target.cpu) / NOTES).is_dir())


@contextmanager
def installed_executorch(target: Target, *, counts: bool = False) -> Iterator[None]:
    """Let programs find the ExecuTorch of this machine for a target; skip the test where there is none."""
    if not has_executorch(target, counts=counts):
        pytest.skip(f"no ExecuTorch is installed for {target.name}: {install_command(target.cpu, counts)}")
    with executorch_of_this_machine():
        yield
