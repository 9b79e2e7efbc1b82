"""Checks whether tests can run an ExecuTorch, installed by `hil executorch install` or named by a user."""

from __future__ import annotations

import os

import pytest

from cortex_m_hil.host.paths import cache_directory
from cortex_m_hil.runner.executorch_install import STANDS_IN, VARIABLE, install_command, selected_link
from cortex_m_hil.targets.target import Target

CACHE = cache_directory()  # before pytester moves HOME


def has_executorch(target: Target, *, counts: bool = False) -> bool:
    """Tell whether an ExecuTorch is named or installed; a broken one counts, as the test then says what is wrong."""
    names = target.cpu, STANDS_IN.get(target.cpu, target.cpu)
    named = bool(os.environ.get(VARIABLE)) or target.executorch is not None
    return named or any(selected_link(CACHE, name, counts).is_dir() for name in names)


def skip_without_executorch(target: Target, *, counts: bool = False) -> None:
    if not has_executorch(target, counts=counts):
        pytest.skip(f"no ExecuTorch is installed for {target.name}: {install_command(target.cpu, counts)}")
