"""Bundles of the known-answer program, which fails because its reference is changed on purpose; torch is not needed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cortex_m_hil import flow
from cortex_m_hil.checks.comparison.tolerance import Tolerance
from cortex_m_hil.diagnose.failure_bundle import Attempt, Bundle, BundleTask
from cortex_m_hil.diagnose.lifetime_check import WatchedMemory
from cortex_m_hil.errors import VerdictError
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.program.program import Program, References

TEST = "test_it.py::test_it"


def wrong_program(dut: Dut) -> Program:
    """Return the target's known-answer program, with a dialect that is ten units off in one element."""
    known = known_answer(dut.target.isa)
    wrong = known.expected[0].array().copy()
    wrong[0, 2] += np.float32(10)
    references = References(dialect=(wrong,), eager=(wrong * np.float32(2),))
    program = Program.from_bytes(known.program, "known.pte")
    return replace(program, inputs=known.inputs, reference=lambda _: references, isa=dut.target.isa)


def failure(dut: Dut, task: BundleTask) -> Attempt:
    """Run the task, which must fail by a verdict, and return the attempt."""
    seen: list[flow.Checked] = []
    with pytest.raises(VerdictError) as raised:
        guards = WatchedMemory if task.redzones else None
        if task.tolerance is None:
            flow.run(dut, task.program, task.inputs, linted=task.linted, guards=guards)
        else:
            flow.verify(dut, task.program, tolerance=task.tolerance, linted=task.linted, observe=seen.append)
    return Attempt.from_task(dut, task, raised.value, seen[0] if seen else None)


def mismatch(dut: Dut) -> Bundle:
    program = wrong_program(dut)
    found = failure(dut, BundleTask(program, program.inputs, Tolerance(qtol=1)))
    return found.bundle(TEST, seed=7, rerun="pytest test_it.py")
