"""Known bugs that lint foresees, on an installed ExecuTorch: it fails, unless it has them mended; workarounds pass."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import cache

import pytest

from cortex_m_hil import flow
from cortex_m_hil.checks.comparison.tolerance import Tolerance
from cortex_m_hil.diagnose.lifetime_check import WatchedMemory
from cortex_m_hil.errors import VerdictError
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.targets.executorch_prefix import mended_bugs
from cortex_m_hil.targets.resolve import resolve
from installed import installed_executorch
from known_bugs.bugs import Shown
from known_bugs.next_steps import STEPS, foreseen
from known_bugs.showing import TARGETS, Setup

# Another arithmetic of floats and a coarse quantisation are no failures here.
TOLERANCE = Tolerance(atol=1e-3, rtol=1e-3, eager_sqnr=-1000.0)


@pytest.fixture(scope="module")
def installed() -> Iterator[Callable[[str], Dut]]:
    """Return a function that opens a target with its installed ExecuTorch, once, and skips the test without one."""
    with ExitStack() as stack:

        @cache
        def opened(name: str) -> Dut:
            stack.enter_context(installed_executorch(TARGETS[name]))
            return stack.enter_context(flow.open_dut(resolve(name, TARGETS, runtime="executorch")))

        yield opened


def judged(dut: Dut, setup: Setup) -> None:
    watched = replace(setup, options={**setup.options, "redzones": True})
    program = watched.program(dut.target.isa)
    _ = flow.verify(dut, program, tolerance=TOLERANCE, linted=False, guards=WatchedMemory)


CASES = [pytest.param(key, shown, target, id=f"{key}-{target}") for key, shown in foreseen() for target in shown.shows]


@pytest.mark.parametrize(("key", "shown", "target"), CASES)
def test_executorch_fails_on_it_and_takes_the_workaround(
    installed: Callable[[str], Dut], key: str, shown: Shown, target: str
) -> None:
    dut = installed(target)
    number = re.match(r"known bug (\d+) ", key)
    if number and int(number[1]) in mended_bugs(dut.target):
        judged(dut, shown.wrong)
    else:
        with pytest.raises(VerdictError):
            judged(dut, shown.wrong)
    judged(dut, STEPS[key].setup)
