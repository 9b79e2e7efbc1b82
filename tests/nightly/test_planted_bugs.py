"""Each bug that is planted into the kernels is caught and named, on a target of each ISA class."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from cortex_m_hil import flow
from cortex_m_hil.checks.tolerance import Tolerance
from cortex_m_hil.diagnose.localize import localize
from cortex_m_hil.diagnose.redzones import RedZones
from cortex_m_hil.errors import Mismatch, RedzoneViolation, TargetFault
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.lowering import LoweringOptions, lower
from cortex_m_hil.program.program import Program
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve
from planting import BUGS, Bug, network

TARGETS = load_targets()
NAMES = ("m4-qemu", "m55-qemu", "m0-qemu")


@functools.cache
def program(isa: Isa, redzones: bool) -> Program:
    module, inputs = network()
    return lower(module, inputs, isa=isa, options=LoweringOptions(redzones=redzones))


def operator(text: str) -> str:
    return text.partition("::")[2].partition(".")[0]


def caught(dut: Dut, bug: Bug) -> set[str]:
    """The operators that are named, by whatever check it is that ends the test."""
    one = program(dut.target.isa, bug.patch.stem == "scratch_overflow")
    try:
        flow.verify(dut, one, tolerance=Tolerance(), guards=RedZones if one.size_without_redzones is not None else None)
    except (TargetFault, RedzoneViolation) as error:
        return {operator(error.operator)}
    except Mismatch:
        return {operator(row.operator) for row in localize(dut, one).at_fault}
    return set()


@pytest.mark.parametrize("target", NAMES)
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught_and_named(name: str, target: str, tmp_path: Path) -> None:
    bug, resolved = BUGS[name], resolve(target, TARGETS)
    if resolved.target.isa not in bug.classes:
        pytest.skip(f"no {resolved.target.isa.value} core shows it")
    with flow.open_dut(resolved, firmware=bug.plant(tmp_path)) as dut:
        named = caught(dut, bug)
    assert named and named <= bug.operators
