"""`hil inspect partition`: what it answers, to people and to machines."""

from __future__ import annotations

import re
from pathlib import Path

from command_line import CANNOT_TELL, NO, OK, Files, Hil, answer, expect
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.targets.cpu import Isa
from paths import REPOSITORY

FLOATS = REPOSITORY / "tests" / "fuzz_seeds" / "floats.pte"
REST = REPOSITORY / "tests" / "fuzz_seeds" / "rest.pte"


def test_a_program_on_cortex_m_kernels(hil: Hil, files: Files) -> None:
    done = hil("inspect", "partition", files.pte, "--json")
    found = answer(done.out)
    assert (done.status, found["cortex_m_macs"], found["cortex_m_operator_share"], found["islands"]) == (
        OK,
        1.0,
        1.0,
        [],
    )
    assert found["macs"] == 16 * 8 and found["instructions"] is None
    rows = {one["operator"]: one for one in found["operators"]}
    assert rows["cortex_m::quantized_linear.out"]["kind"] == "Cortex-M kernel"
    assert rows["cortex_m::quantized_linear.out"]["macs"] == 16 * 8
    assert sum(one["count"] for one in found["kinds"]) == found["count"] == 3
    shown = hil("inspect", "partition", files.pte).out
    assert "100 % of 128 MACs and 1 of 1 operators (100 %) are on Cortex-M kernels" in shown
    assert "instructions" not in shown and "float island" not in shown and "in float" not in shown
    assert (found["planned_bytes"] > 0, found["planned_bytes_in_int8"]) == (True, None)


def test_float_islands_are_named(hil: Hil) -> None:
    shown = hil("inspect", "partition", REST).out
    assert "float island 1 (operator 16; 0 % of the MACs): aten::add.out\n" in shown
    assert re.search(
        r"^12 in float: 432 bytes are planned, about \d+ in int8$", hil("inspect", "partition", FLOATS).out, re.M
    )
    found = answer(hil("inspect", "partition", FLOATS, "--json").out)
    assert (found["cortex_m_operator_share"], found["planned_bytes"]) == (0, 432) and found[
        "planned_bytes_in_int8"
    ] < 432
    (island,) = found["islands"]
    assert found["cortex_m_macs"] == 0 and island["macs"] == found["macs"] == 288
    assert island["steps"] == list(range(20)) and "aten::cat.out" not in island["operators"]


def test_instructions_are_those_that_a_profile_counts(hil: Hil, files: Files) -> None:
    found = answer(hil("inspect", "partition", files.pte, "-t", "m4-qemu", "--json").out)
    counted = answer(hil("profile", files.pte, "-t", "m4-qemu", "--json").out)
    theirs = {one["operator"]: one["ticks"] for one in counted["rows"]}
    assert found["ran"]["target"] == "m4-qemu" and found["instructions"] == counted["ticks"]
    assert {one["operator"]: one["instructions"] for one in found["operators"]} == theirs
    assert sum(one["instructions"] for one in found["kinds"]) == found["instructions"]
    shown = hil("inspect", "partition", FLOATS, "-t", "m4-qemu").out
    assert re.search(r"^kind +count +MACs +share +bytes +instructions +share$", shown, re.M)
    assert re.search(r"^all +20 +288 +100 % +4096 +\d+ +100 %$", shown, re.M)


def test_partition_refuses_missing_files_and_targets_without_counts(hil: Hil, files: Files, tmp_path: Path) -> None:
    done = hil("inspect", "partition", files.pte, "-t", "native")
    expect(done, CANNOT_TELL, "native counts neither instructions nor cycles")
    expect(hil("inspect", "partition", files.pte, "-t", "m4-qmeu"), CANNOT_TELL, "did you mean 'm4-qemu'")
    expect(hil("inspect", "partition", "missing.pte"), CANNOT_TELL, "missing.pte")
    (tmp_path / "mve.pte").write_bytes(known_answer(Isa.MVE).program)
    refused = hil("inspect", "partition", tmp_path / "mve.pte", "-t", "m4-qemu")
    assert refused.status == NO and "lower the module for this target's ISA class" in refused.err
    assert "lint=False" not in refused.err and "--no-lint" not in refused.err  # which this command has not
