"""`bench.memory`: every figure is a pass there and a failure one step below, and a runner that lies is found."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from cortex_m_hil import flow
from cortex_m_hil.diagnose.memory_fit import Fit, Fitting, Region, step_of
from cortex_m_hil.errors import BuildError, ConfigError, Mismatch, OutOfTargetMemory, ProtocolError
from cortex_m_hil.host.paths import package_data
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.program.program import Program
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve

TARGETS = load_targets()
CORES = ("m4-qemu", "m55-qemu", "m0-qemu")


def known(isa: Isa) -> Program:
    answer = known_answer(isa)
    return replace(Program.from_bytes(answer.program, "known_answer.pte"), inputs=answer.inputs)


@pytest.fixture(scope="module", params=CORES)
def fit(request: pytest.FixtureRequest) -> Iterator[tuple[str, Fit]]:
    with Fitting(resolve(request.param, TARGETS)) as fitting:
        yield request.param, fitting.fit(known(TARGETS[request.param].isa))


@pytest.mark.slow
def test_each_region_fails_one_step_below(fit: tuple[str, Fit]) -> None:
    name, found = fit
    program = known(TARGETS[name].isa)
    assert [need.region for need in found.needs] == [one for one in Region if one is not Region.TEMP]
    assert all(need.size % need.step == 0 and need.step == step_of(need.region) for need in found.needs)
    assert all(
        need.size - need.step < need.reported_peak <= need.size for need in found.needs if need.region != Region.STACK
    )
    assert found.size(Region.PROGRAM) == -(-len(program.pte) // 16) * 16
    assert found.size(Region.PLANNED) == program.file.planned_bytes
    *pools, stack = found.needs
    assert {need.failure_one_step_below.partition(":")[0] for need in pools} == {"OutOfTargetMemory"}
    assert stack.reported_peak <= stack.size < 4096 and stack.failure_one_step_below
    assert (found.temp, found.ran.target) == (0, name)


@pytest.mark.slow
@pytest.mark.parametrize("region", [Region.PROGRAM, Region.PLANNED, Region.METHOD])
def test_a_runner_of_every_day_agrees(fit: tuple[str, Fit], region: Region) -> None:
    """Built by itself, from the cache's recipe: what `targets.yaml` with these pools gives."""
    name, found = fit
    target, program = TARGETS[name], known(TARGETS[name].isa)
    for less, passes in ((0, True), (step_of(region), False)):
        program_size, planned, method = (
            found.size(one) - (less if one is region else 0) for one in (Region.PROGRAM, Region.PLANNED, Region.METHOD)
        )
        memory = target.board.memory.resized(program=program_size, banks=[planned], method=method)
        small = replace(target, board=replace(target.board, memory=memory))
        with flow.open_dut(resolve(name, {name: small})) as dut:
            if passes:
                flow.run(dut, program)
                continue
            with pytest.raises(OutOfTargetMemory):
                flow.run(dut, program, linted=False)


# --- figures that are wrong ----------------------------------------------------------------------------------

METHOD = ("runtime/builtin/runtime.cpp", "static_cast<size_t>(arena_.requested())")
PLANNED = ("target_library/statistics.c", "if_loaded(hil_runtime_planned(i).size)")
STACK = ("target_library/statistics.c", "usage(hil_stack_used()")
LIES = {
    "method, too much": (*METHOD, " + 16", "method used is"),
    "method, too little": (*METHOD, " - 16", "with pools of the reported peak sizes .*the method pool is too small"),
    "planned, too much": (*PLANNED, " + 16", "planned used is"),
    "planned, too little": (*PLANNED, " - 16", "with pools of the reported peak sizes .*the planned pool is too small"),
    "stack, too much": (
        *STACK,
        " + (hil_stack_used() + 8 <= hil_used_target()->stack.size ? 8 : 0)",
        "stack in .* one step below .*: it runs",
    ),
}


def changed(path: str, text: str, to: str) -> dict[str, str]:
    source = (package_data("firmware") / path).read_text()
    assert source.count(text) == 1
    return {path: source.replace(text, to)}


@pytest.mark.slow
@pytest.mark.parametrize("lie", LIES)
def test_a_wrong_figure_is_an_error(lie: str) -> None:
    path, text, more, said = LIES[lie]
    lies = changed(path, text, text + more)
    with Fitting(resolve("m4-qemu", TARGETS), changed=lies) as fitting, pytest.raises(ProtocolError, match=said):
        fitting.fit(known(Isa.DSP))


@pytest.mark.slow
def test_a_stack_whose_mark_is_too_low_is_searched() -> None:
    """Words that were reserved and not written leave no mark; the figure is the real one all the same."""
    lie = changed(*STACK, f"{STACK[1]} - 200")
    with Fitting(resolve("m4-qemu", TARGETS)) as honest, Fitting(resolve("m4-qemu", TARGETS), changed=lie) as liar:
        right, found = honest.fit(known(Isa.DSP)), liar.fit(known(Isa.DSP))
    assert [need.size for need in found.needs] == [need.size for need in right.needs]
    assert found.runs > right.runs


@pytest.mark.slow
def test_outputs_that_depend_on_the_sizes_are_a_mismatch() -> None:
    """An output that holds the size of the method pool."""
    path, text = "target_library/requests.c", "  hil_put_bytes(reply, region.bytes.data, region.bytes.size);"
    lie = changed(path, text, f"  region.bytes.data[0] ^= (uint8_t)(hil_used_target()->method.size >> 4);\n{text}")
    with Fitting(resolve("native", TARGETS), changed=lie) as fitting, pytest.raises(Mismatch, match="how much memory"):
        fitting.fit(known(Isa.SCALAR))


# --- other runtimes, other targets ---------------------------------------------------------------------------


class Floats(nn.Module):
    """Portable operators only, one of which takes temporary memory: the wheel has no Cortex-M ones."""

    def forward(self, x: Any) -> Any:
        return torch.softmax(torch.flatten(torch.conv2d(x, torch.ones(4, 3, 3, 3)), 1), dim=-1)


@pytest.mark.slow
def test_executorchs_runtime_needs_what_stays_and_what_is_given_back() -> None:
    program = flow.lower(Floats(), (torch.ones(1, 3, 8, 8),), isa=Isa.SCALAR, quantize=False)
    with Fitting(resolve("native", TARGETS, runtime="executorch")) as fitting:
        found = fitting.fit(program)
    assert [need.region for need in found.needs] == [Region.PROGRAM, Region.PLANNED, Region.METHOD]
    method = found.needs[-1]
    assert found.ran.runtime == "executorch"
    assert found.temp > 0 and method.reported_peak < method.size <= -(-(method.reported_peak + found.temp) // 16) * 16
    assert "OutOfTargetMemory: the " in method.failure_one_step_below


@pytest.mark.slow
def test_a_program_that_does_not_fit_the_board_at_all() -> None:
    board = TARGETS["native"].board
    small = replace(TARGETS["native"], board=replace(board, memory=board.memory.resized(banks=[16])))
    with Fitting(resolve("native", {"native": small})) as fitting, pytest.raises(OutOfTargetMemory):
        fitting.fit(known(Isa.SCALAR))


def test_a_board_is_not_flashed_for_each_size() -> None:
    with pytest.raises(ConfigError, match="a board would be flashed ten times and more"):
        Fitting(resolve("rpi-pico", TARGETS))


@pytest.mark.slow
def test_a_linker_script_that_insists_on_its_stack(tmp_path: Path) -> None:
    folder = shutil.copytree(TARGETS["m4-qemu"].board.directory, tmp_path / TARGETS["m4-qemu"].board.name)
    target = replace(TARGETS["m4-qemu"], board=replace(TARGETS["m4-qemu"].board, directory=folder))
    (folder / "board.ld").write_text("HIL_STACK_SIZE = 16K;\n")
    with Fitting(resolve("m4-qemu", {"m4-qemu": target})) as fitting, pytest.raises(BuildError, match="16384 bytes"):
        fitting.fit(known(Isa.DSP))
