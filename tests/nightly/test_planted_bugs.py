"""Each planted bug of a kernel is caught, named and shrunk to one operator, by ISA class and on a virtual board.

Caught twice: by a network that has every operator with a bug, and by the tests that users have as well, `tests/targets`
and ExecuTorch's own.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from cortex_m_hil import flow
from cortex_m_hil.boards.virtual import vboard
from cortex_m_hil.checks.comparison.tolerance import Tolerance
from cortex_m_hil.diagnose.localize import localize
from cortex_m_hil.diagnose.redzones import RedZones
from cortex_m_hil.diagnose.shrink import Judge, shrink
from cortex_m_hil.errors import Mismatch, OutOfTargetMemory, RedzoneViolation, TargetFault
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.lowering import LoweringOptions, lower
from cortex_m_hil.lowering.submodules import ModulePart
from cortex_m_hil.maintainers.mutation.kept_programs import Noticed, ReadyProgram, judge_kept_program, kept_in, ordered
from cortex_m_hil.program.program import Program
from cortex_m_hil.runner.session.session import ResponseTimeout
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import Resolved, resolve
from paths import REPOSITORY
from planting import BUGS, SIDE, Bug, network

TARGETS = load_targets()
DEADLINE = 4 * 3600.0  # seconds for a search: what is asked is where it ends, however busy this machine is
NAMES = ("m4-qemu", "m55-qemu", "m0-qemu", "vboard-f405")
SIMULATORS = {Isa.DSP: "m4-qemu", Isa.MVE: "m55-qemu", Isa.SCALAR: "m0-qemu"}
ENDLESS = 60.0  # seconds after which a program with a planted bug never ends


def side(redzones: bool) -> int:
    """Of the network's image: tensors between red zones share no memory, which the board has no room for at 24."""
    return SIDE // 2 if redzones else SIDE


@functools.cache
def program(isa: Isa, redzones: bool) -> Program:
    module, inputs = network(side(redzones))
    return lower(module, inputs, isa=isa, options=LoweringOptions(redzones=redzones))


def operator(text: str) -> str:
    return text.partition("::")[2].partition(".")[0]


def caught(dut: Dut, bug: Bug) -> set[str]:
    """The operators that are named, by whatever check it is that ends the test."""
    one = program(dut.target.isa, planned(bug))
    try:
        flow.verify(dut, one, tolerance=Tolerance(), guards=RedZones if one.size_without_redzones is not None else None)
    except (TargetFault, RedzoneViolation) as error:
        return {operator(error.operator)}
    except Mismatch:
        return {operator(row.operator) for row in localize(dut, one).at_fault}
    return set()


def planned(bug: Bug) -> bool:
    """With red zones, where it is those that find it."""
    return bug.patch.stem == "scratch_overflow"


@pytest.fixture(scope="module")
def board() -> Iterator[Resolved]:
    """A virtual board of this process's own: workers of pytest-xdist run side by side."""
    name = f"planted-{os.getpid()}"
    with vboard.running("f405", name):
        target = dataclasses.replace(TARGETS["vboard-f405"], launcher=vboard.launcher("f405", name))
        yield Resolved(target, target, "builtin")


@pytest.fixture
def resolved(bug: Bug, target: str, request: pytest.FixtureRequest) -> Resolved:
    """The target, which runs."""
    if target.startswith("vboard"):
        found: Resolved = request.getfixturevalue("board")
        return found
    return resolve(target, TARGETS)


@pytest.fixture
def bug(name: str, target: str) -> Bug:
    """The one of that name, if the target's class shows it."""
    isa = TARGETS[target].isa
    if isa not in BUGS[name].classes:
        pytest.skip(f"no {isa.value} core shows it")
    return BUGS[name]


@pytest.mark.parametrize("target", NAMES)
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught_and_named(bug: Bug, resolved: Resolved, tmp_path: Path) -> None:
    with flow.open_dut(resolved, firmware=bug.plant(tmp_path)) as dut:
        named = caught(dut, bug)
    assert named and named <= bug.operators


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of `tests/targets` and of ExecuTorch's suite, a folder for each target, and how they are judged."""
    folder = tmp_path_factory.mktemp("kept")
    keep = ["-p", "cortex_m_hil.maintainers.pytest_plugins.keep_programs", f"--hil-keep-into={folder}", "-n2", "-q"]
    targets = ",".join(SIMULATORS.values())
    own = ["-m", "pytest", f"--target={targets}", *keep, "tests/targets"]
    theirs = ["-m", "cortex_m_hil.cli", "dev", "upstream", "-t", targets, "--", *keep]
    for arguments in (own, theirs):
        subprocess.run([sys.executable, *arguments], cwd=REPOSITORY, check=True, timeout=DEADLINE)
    return folder


def first_test(dut: Dut, programs: list[ReadyProgram]) -> Noticed | None:
    """What tells first; a program that the target has no room for is none of its tests."""
    for program in programs:
        try:
            if (noticed := judge_kept_program(dut, program)) is not None and noticed.type != OutOfTargetMemory.__name__:
                return noticed
        except ResponseTimeout as stuck:
            return Noticed(program, "TargetHang", "no end", stuck.operator)
    return None


@pytest.mark.parametrize("target", NAMES)
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught_by_tests_that_users_have(
    bug: Bug, resolved: Resolved, kept: Path, tmp_path: Path
) -> None:
    programs = [dataclasses.replace(one, seconds=ENDLESS) for one in kept_in(kept / SIMULATORS[resolved.target.isa])]
    assert len(programs) >= 200
    names = frozenset(name for one in programs for name in one.operators if operator(name) in bug.operators)
    using = [one for one in ordered(programs, names) if one.operators & names]
    with flow.open_dut(resolved, firmware=bug.plant(tmp_path)) as dut:
        noticed = first_test(dut, using)
    assert noticed is not None, f"none of {len(using)} programs with {', '.join(names)} shows it"
    print(f"{bug.name} on {resolved.name}: {noticed}")


def computing(part: ModulePart, judge: Judge) -> list[str]:
    """The operators of its program but those that quantise: an activation after a layer is part of the layer's."""
    program = lower(part.module(), part.arguments(), isa=judge.isa, options=judge.options)
    names = [operator(one.operator) for one in program.file.instructions]
    return [name for name in names if not name.endswith("quantize_per_tensor")]


@pytest.mark.parametrize("target", NAMES)
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_shrunk_to_one_operator(bug: Bug, resolved: Resolved, tmp_path: Path) -> None:
    module, inputs = network(side(planned(bug)))
    whole = ModulePart.from_exported(torch.export.export(module, inputs, strict=True), inputs)
    guards = RedZones if planned(bug) else None
    with flow.open_dut(resolved, firmware=bug.plant(tmp_path)) as dut:
        judge = Judge(dut, dut.target.isa, LoweringOptions(redzones=planned(bug)), Tolerance(), guards=guards)
        found = shrink(whole, judge, budget=DEADLINE, told=print)
    assert found.ended
    named = operator(found.symptom.operator)
    assert named in bug.operators
    assert len(found.part.steps) == 1 or computing(found.part, judge) == [named], found.part.steps
