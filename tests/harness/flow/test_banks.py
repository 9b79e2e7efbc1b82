"""Programs that are planned for several banks: where their tensors lie, and what does not fit is refused."""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.exir.passes import MemoryPlanningPass
from torch import nn

import misbehaving
from cortex_m_hil import flow
from cortex_m_hil.diagnose.bank_orders import bank_orders
from cortex_m_hil.diagnose.memory_fit import Fitting
from cortex_m_hil.diagnose.redzones import RedZones
from cortex_m_hil.errors import OutOfTargetMemory, ProgramRejected, RedzoneViolation, ToolchainError
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.lowering import bank_planning, quiet
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.pte_reader import parse_pte
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.runner.links.protocol import MemoryRegion
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.memory import Placed
from cortex_m_hil.targets.resolve import resolve
from cortex_m_hil.targets.target import Target
from installed import installed_executorch
from paths import REPOSITORY
from several_methods import edited

TARGETS_FILE = """\
targets:
  native-banks:
    cpu: host
    isa: scalar
    board: native
    launcher: native
    memory:
      regions: {fast: {size: 8K}}
      temp: {region: fast, size: 1K}
      unplanned: host
      banks: [{region: fast, size: 2K}, {region: host, size: 64K}]
  m7-banks:
    cpu: cortex-m7
    board: mps2-an500
    launcher: {qemu: mps2-an500}
    memory: {banks: [{region: ram, size: 2K}, {region: psram, size: 64K}]}
  m4-banks:
    cpu: cortex-m4
    board: mps2-an386
    launcher: {qemu: mps2-an386}
    memory: {banks: [{region: ram, size: 2K}, {region: psram, size: 64K}]}
  m55-banks:
    cpu: cortex-m55
    board: mps3-sse300
    launcher: {qemu: mps3-an547}
    memory: {banks: [{region: dtcm, size: 2K}, {region: isram, size: 64K}]}
"""
ONE_BANK = {"native-banks": "native", "m7-banks": "m7-qemu", "m4-banks": "m4-qemu", "m55-banks": "m55-qemu"}
INPUTS = (torch.arange(3 * 12 * 12, dtype=torch.float32).reshape(1, 3, 12, 12) / 200 - 1,)


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Target]:
    path = tmp_path_factory.mktemp("banks") / "targets.yaml"
    path.write_text(TARGETS_FILE)
    return load_targets(path)


SLOW = ("m7-banks", "builtin"), ("m55-banks", "builtin"), ("m4-banks", "executorch"), ("m55-banks", "executorch")


@pytest.fixture(
    scope="module",
    params=[("native-banks", "builtin"), *(pytest.param(one, marks=pytest.mark.slow) for one in SLOW)],
    ids="-".join,
)
def dut(request: pytest.FixtureRequest, targets: dict[str, Target]) -> Iterator[Dut]:
    name, runtime = request.param
    resolved = resolve(name, targets, runtime=runtime)
    found = installed_executorch(resolved.target) if runtime == "executorch" else nullcontext()
    with found, flow.open_dut(resolved) as opened:
        yield opened


@functools.cache
def module() -> nn.Module:
    torch.manual_seed(5)
    layers = nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3, stride=2), nn.Flatten(), nn.Linear(64, 10)
    return nn.Sequential(*layers).eval()


def lowered(isa: Isa, *banks: Placed) -> Program:
    return flow.lower(module(), INPUTS, isa=isa, banks=banks)


def resized(program: Program, *sizes: int) -> Program:
    """A program whose planned buffers have other sizes, which no planner has chosen."""
    old = struct.pack(
        f"<I{len(program.file.planned_sizes)}q", len(program.file.planned_sizes), *program.file.planned_sizes
    )
    assert program.pte.count(old) == 1 and len(sizes) == len(program.file.planned_sizes)
    return Program.from_bytes(program.pte.replace(old, struct.pack(f"<I{len(sizes)}q", len(sizes), *sizes)), "net.pte")


def test_both_plans_give_the_same_bits_and_each_arena_lies_in_its_bank(dut: Dut, targets: dict[str, Target]) -> None:
    memory = dut.target.board.memory
    banked, greedy = lowered(dut.target.isa, *memory.banks), lowered(dut.target.isa)
    assert [size > 0 for size in banked.file.planned_sizes] == [False, True, True]
    assert len(greedy.file.planned_sizes) == 2 and greedy.file.planned_bytes > memory.banks[0].size
    found = flow.run(dut, banked)
    assert [arena.region for arena in found.arenas] == [bank.region for bank in memory.banks]
    assert [arena.nbytes for arena in found.arenas] == banked.file.bytes_in_banks(memory)
    for arena in found.arenas:
        assert arena.address % 16 == 0
        assert memory.region(arena.region).contains(arena.address, arena.nbytes)
        assert not memory.region(arena.region).address or arena.address > 0x2000_0000
    with flow.open_dut(resolve(ONE_BANK[dut.target.name], targets, runtime=dut.resolved.runtime)) as other:
        assert flow.run(other, greedy).outputs == found.outputs


@pytest.mark.slow
def test_red_zones_spill_to_the_bank_that_has_room(dut: Dut) -> None:
    memory = dut.target.board.memory
    program = flow.lower(module(), INPUTS, isa=dut.target.isa, banks=memory.banks, redzones=True)
    assert program.size_without_redzones == lowered(dut.target.isa, *memory.banks).file.planned_bytes
    rooms = [bank.size for bank in memory.banks]
    taken = program.file.bytes_in_banks(memory)
    assert all(0 < nbytes <= room for nbytes, room in zip(taken, rooms, strict=True))
    guarded = flow.run(dut, program, guards=RedZones)
    assert guarded.outputs == flow.run(dut, lowered(dut.target.isa, *memory.banks)).outputs


def test_with_one_bank_the_plan_is_as_without_any(dut: Dut) -> None:
    one = Placed("any", 64 << 10)
    assert lowered(dut.target.isa, one).pte == lowered(dut.target.isa).pte


@pytest.mark.parametrize("linted", [True, False], ids=["by-lint", "by-the-runner"])
def test_a_bank_one_step_too_small_is_refused(dut: Dut, linted: bool) -> None:
    memory = dut.target.board.memory
    program = lowered(dut.target.isa, *memory.banks)
    room = memory.banks[1].size
    fits = resized(program, 0, memory.banks[0].size, room)
    flow.run(dut, fits, program.inputs, linted=linted)
    with pytest.raises(OutOfTargetMemory) as caught:
        flow.run(dut, resized(program, 0, memory.banks[0].size, room + 1), program.inputs, linted=linted)
    error = caught.value
    assert memory.banks[1].region in error.message
    assert {room + 16, room} <= {int(number) for number in re.findall(r"\d+", error.message)}
    details = dict(error.details)
    assert f"bank {memory.banks[1].region} {room + 16} of {room} bytes" in details["needs"]
    assert "peak" in details and "held" in details
    assert f"bank {memory.banks[1].region} of at least {room + 16} bytes" in error.hint
    flow.selftest(dut)


@pytest.mark.parametrize("linted", [True, False], ids=["by-lint", "by-the-runner"])
def test_a_planned_buffer_without_a_bank_is_refused(dut: Dut, linted: bool) -> None:
    banks = (Placed("a", 512), Placed("b", 1024), Placed("c", 64 << 10))
    program = lowered(dut.target.isa, *banks)
    assert len(program.file.planned_sizes) == 4 and all(program.file.planned_sizes[1:])
    with pytest.raises(OutOfTargetMemory, match=r"planned buffer 3\b.* has no bank: .*\b2\b") as caught:
        flow.run(dut, program, linted=linted)
    assert "a further bank" in caught.value.hint


@pytest.mark.parametrize(
    "sizes", [(1 << 62, 64), (-1, 64), (64, -(1 << 63)), ((1 << 63) - 1, (1 << 63) - 1), (1 << 31, 0)]
)
def test_absurd_sizes_are_a_typed_refusal_of_the_runner(dut: Dut, sizes: tuple[int, int]) -> None:
    program = lowered(dut.target.isa, *dut.target.board.memory.banks)
    old = struct.pack("<I3q", 3, *program.file.planned_sizes)
    pte = program.pte.replace(old, struct.pack("<I3q", 3, 0, *sizes))
    with pytest.raises((ProgramRejected, OutOfTargetMemory)):
        dut.session().load(pte)
    flow.selftest(dut)


def test_absurd_banks_and_methods_without_a_plan_are_typed_refusals_of_host_and_runner(dut: Dut) -> None:
    seeds = REPOSITORY / "tests" / "fuzz_seeds"
    banked, methods = (seeds / "banks.pte").read_bytes(), (seeds / "methods.pte").read_bytes()

    def forward(tree: Any) -> Any:
        return next(plan for plan in tree.execution_plan if plan.name == "forward")

    def bank(number: int) -> bytes:
        def edit(tree: Any) -> None:
            for value in forward(tree).values:
                if getattr(value.val, "allocation_info", None) is not None:
                    value.val.allocation_info.memory_id = number

        return edited(banked, edit)

    def buffers(pte: bytes, sizes: list[int]) -> bytes:
        return edited(pte, lambda tree: setattr(forward(tree), "non_const_buffer_sizes", sizes))

    session = dut.session()
    said = {"builtin": r"planned buffer \d+ does not exist", "executorch": r"\bid \d+ >= \d+\b"}[dut.resolved.runtime]
    for data in (*map(bank, (0, 3, (1 << 32) - 1)), buffers(methods, []), buffers(methods, [0]), buffers(banked, [])):
        with pytest.raises(ProgramRejected, match=r"planned buffer \d+, and the buffers have \["):
            parse_pte(data)
        with pytest.raises(ProgramRejected, match=said):
            session.load(data)
    with pytest.raises(OutOfTargetMemory):
        session.load(buffers(banked, [0, 64, 4096] + 100_000 * [0]))
    flow.selftest(dut)


@pytest.mark.slow
def test_the_poison_reaches_every_bank_and_what_lies_beyond_a_plan_can_be_read(dut: Dut) -> None:
    session = dut.session()
    program = lowered(dut.target.isa, *dut.target.board.memory.banks)
    loaded = session.load(program.pte, file=program.file)
    session.fill_arenas(0xA5)
    for number, arena in enumerate(loaded.arenas):
        assert session.read(MemoryRegion.PLANNED, number, arena.nbytes) == b"\xa5" * arena.nbytes
        whole = session.digest(MemoryRegion.BANK, number)
        session.fill(MemoryRegion.BANK, number, 0x11, offset=arena.nbytes, length=16)
        session.fill(MemoryRegion.BANK, number, 0x22, offset=arena.nbytes, length=16)
        assert session.read(MemoryRegion.BANK, number, 17, offset=arena.nbytes - 1) == b"\xa5" + b"\x22" * 16
        assert session.digest(MemoryRegion.BANK, number) != whole


@pytest.mark.slow
def test_what_no_bank_can_hold_is_told_with_what_each_lacks() -> None:
    with pytest.raises(OutOfTargetMemory, match=r"no bank has room for a tensor of \d+ bytes: a lacks \d+ bytes, b l"):
        lowered(Isa.DSP, Placed("a", 1024), Placed("b", 1024))


def test_an_executorch_without_banked_planning_is_named_with_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bank_planning, "_MODULE", "executorch.exir.no_banked_memory_planning")
    with pytest.raises(ToolchainError, match=r"^executorch \d[.\d]+ has no planning for several banks") as caught:
        bank_planning.planning_algorithm((Placed("a", 1024), Placed("b", 1024)), "Net")
    assert caught.value.hint == "pip install 'executorch[ethos-u]>=1.5.1'"
    assert caught.value.details[0] == ("module", "Net")


def test_banks_are_part_of_a_programs_key() -> None:
    """The first of these would give its program to the second."""
    small, large = (
        lowered(Isa.DSP, Placed("a", 2048), Placed("b", 64 << 10)),
        lowered(Isa.DSP, Placed("a", 4096), Placed("b", 64 << 10)),
    )
    assert small.file.planned_sizes != large.file.planned_sizes


class Halves(nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        return torch.relu(torch.relu(x) + y), torch.relu(y)


GIVEN = (torch.arange(50, dtype=torch.float32).reshape(2, 25) - 20, torch.full((2, 25), 3.0))


def unplanned(module: nn.Module, given: tuple[torch.Tensor, ...], *, inputs: bool, outputs: bool) -> Program:
    """Return a program that leaves the memory of inputs or outputs to its caller, with its inputs."""
    planning = MemoryPlanningPass(alloc_graph_input=not inputs, alloc_graph_output=not outputs)
    with quiet():
        edge = to_edge(torch.export.export(module, given))
        lowered = edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))
    program = Program.from_bytes(lowered.buffer, "halves.pte")
    return replace(program, inputs=tuple(HostTensor.from_array(one.numpy()) for one in given))


@pytest.mark.first_only
@pytest.mark.parametrize(("inputs", "outputs", "count"), [(True, True, 4), (True, False, 2), (False, True, 2)])
def test_inputs_and_outputs_without_a_plan_lie_in_their_bank(dut: Dut, inputs: bool, outputs: bool, count: int) -> None:
    memory = dut.target.board.memory
    program = unplanned(Halves(), GIVEN, inputs=inputs, outputs=outputs)
    assert len(program.file.unplanned) == count and program.file.unplanned_bytes == count * 208  # 200, aligned
    found = flow.run(dut, program, guards=RedZones)
    planned, taken = memory.buffers_of_banks(program.file.planned_sizes), [arena.nbytes for arena in found.arenas]
    planned[memory.unplanned_bank] += count * 208
    assert taken == planned == program.file.bytes_in_banks(memory)
    assert [one.array().tolist() for one in found.outputs] == [one.tolist() for one in Halves()(*GIVEN)]


@pytest.mark.first_only
@pytest.mark.parametrize("linted", [True, False], ids=["by-lint", "by-the-runner"])
def test_a_bank_too_small_for_inputs_without_a_plan_is_refused(dut: Dut, linted: bool) -> None:
    memory = dut.target.board.memory
    bank = memory.banks[memory.unplanned_bank]
    program = unplanned(nn.ReLU(), (torch.zeros(bank.size // 4 + 4),), inputs=True, outputs=True)
    with pytest.raises(OutOfTargetMemory, match=rf"\b{bank.region}\b.*\b{2 * bank.size + 32}\b") as caught:
        flow.run(dut, program, linted=linted)
    assert f"bank {bank.region} of at least {2 * bank.size + 32} bytes" in caught.value.hint
    flow.selftest(dut)


class Floats(nn.Module):
    """Operators that the wheel has."""

    def forward(self, x: Any) -> Any:
        return torch.softmax(torch.flatten(torch.relu(torch.conv2d(x, torch.ones(4, 3, 3, 3))), 1), dim=-1)


@pytest.mark.slow
def test_executorchs_own_runtime_places_buffers_likewise(targets: dict[str, Target]) -> None:
    memory = targets["native-banks"].board.memory
    lower = functools.partial(flow.lower, Floats(), INPUTS, isa=Isa.SCALAR, quantize=False)
    banked, greedy = lower(banks=memory.banks), lower()
    assert all(banked.file.planned_sizes[1:]) and len(banked.file.planned_sizes) == 3
    with flow.open_dut(resolve("native-banks", targets, runtime="executorch")) as dut:
        found = flow.run(dut, banked)
        assert [arena.nbytes for arena in found.arenas] == banked.file.bytes_in_banks(memory)
        room = memory.banks[0].size
        large = resized(banked, 0, room + 16, banked.file.planned_sizes[2])
        with pytest.raises(OutOfTargetMemory, match=f"the planned pool in fast is too small.*{room + 16}"):
            flow.run(dut, large, banked.inputs, linted=False)
        assert found.stats["temp"].size == 1 << 10
        for inputs, outputs in ((True, True), (True, False), (False, True)):
            program = unplanned(Halves(), GIVEN, inputs=inputs, outputs=outputs)
            ran = flow.run(dut, program)
            assert [arena.nbytes for arena in ran.arenas] == program.file.bytes_in_banks(memory)
            assert [one.array().tolist() for one in ran.outputs] == [one.tolist() for one in Halves()(*GIVEN)]
        three = lower(banks=(Placed("a", 512), Placed("b", 1024), Placed("c", 64 << 10)))
        assert len(three.file.planned_sizes) == 4 and three.file.planned_sizes[3]
        with pytest.raises(OutOfTargetMemory, match=r"planned buffer 3\b.* has no bank: .*\b2\b"):
            flow.run(dut, three, linted=False)
    with flow.open_dut(resolve("native", targets, runtime="executorch")) as one:
        assert flow.run(one, greedy).outputs == found.outputs
        room = one.target.board.memory.banks[0].size
        with pytest.raises(OutOfTargetMemory, match=f"the planned pool is too small.*{room}"):
            flow.run(one, resized(banked, 0, room + 16, banked.file.planned_sizes[2]), banked.inputs, linted=False)


@pytest.mark.slow
def test_fit_proves_a_size_for_each_bank(targets: dict[str, Target]) -> None:
    memory = targets["m7-banks"].board.memory
    program = lowered(Isa.DSP, *memory.banks)
    with Fitting(resolve("m7-banks", targets)) as fitting:
        found = fitting.fit(program)
    assert [need.region for need in found.needs] == ["program", "bank ram", "bank psram", "method", "stack"]
    for bank, nbytes in zip(memory.banks, program.file.planned_sizes[1:], strict=True):
        need = next(need for need in found.needs if need.region == f"bank {bank.region}")
        assert (need.size, need.reported_peak) == (nbytes, nbytes)
        assert need.failure_one_step_below.startswith(
            f"OutOfTargetMemory: the planned pool in {bank.region} is too small"
        )
    assert [bank.size for bank in found.memory(memory).banks] == list(program.file.planned_sizes[1:])


@pytest.mark.slow
def test_each_order_of_the_banks_is_tried_and_qemu_cannot_tell_them_apart(targets: dict[str, Target]) -> None:
    resolved = resolve("m7-banks", targets)
    found = bank_orders(resolved, lambda target: lowered(target.isa, *target.board.memory.banks))
    taken = {one.banks: {arena.region: arena.nbytes for arena in one.arenas} for one in found.orders}
    small, large = (lowered(Isa.DSP, *banks).file.planned_sizes[1:] for banks in _both(resolved.target))
    assert taken == {
        ("ram", "psram"): dict(zip(("ram", "psram"), small, strict=True)),
        ("psram", "ram"): dict(zip(("psram", "ram"), large, strict=True)),
    }
    assert not found.ticks_show_memory_speed and all(one.ticks and not one.refused for one in found.orders)


def _both(target: Target) -> tuple[tuple[Placed, ...], ...]:
    first, second = target.board.memory.banks
    return (first, second), (second, first)


class Stray(nn.Module):
    """Writes one byte, so far from its output that it lies behind all tensors."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def forward(self, x: Any) -> Any:
        return torch.clone(torch.ops.hil_test.stray(torch.clone(x), self.at, 0))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["native", "native-banks"])
def test_a_write_behind_the_plan_of_a_bank_is_found(targets: dict[str, Target], name: str) -> None:
    """Without red zones in the plan, and with lint off."""
    file = misbehaving.program(Stray(0)).file
    planned = file.values[file.instructions[1].args[-1]].planned
    assert planned is not None
    with flow.open_dut(resolve(name, targets), options=misbehaving.OPTIONS) as dut:
        bank = dut.target.board.memory.banks[0].region
        for beyond in (0, 3, 255):
            program = misbehaving.program(Stray(file.planned_bytes - planned.offset + beyond))
            with pytest.raises(RedzoneViolation, match=f"wrote outside .*, behind .* plan of bank {bank} ") as caught:
                flow.run(dut, program, misbehaving.ones(), linted=False, guards=RedZones)
            assert caught.value.operator == "hil_test::stray.out"
        flow.run(dut, misbehaving.program(Stray(3)), misbehaving.ones(), linted=False, guards=RedZones)
