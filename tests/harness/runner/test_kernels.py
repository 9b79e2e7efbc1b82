"""The kernels' own tests, in C++ and under sanitizers: `firmware/tests`. A build of them is a run of them."""

from __future__ import annotations

import pytest

from cortex_m_hil.runner.build import build_runner
from cortex_m_hil.targets.load import load_targets


@pytest.mark.slow
def test_the_kernels_pass_their_own_tests() -> None:
    elf = build_runner(load_targets()["native"], options={"HIL_TESTS": "ON", "HIL_TEST_KERNELS": "ON"})
    assert "[doctest] Status: SUCCESS!" in (elf.path.parent / "build.log").read_text()
