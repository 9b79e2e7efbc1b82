"""300 random correct networks on all ISA classes, none of which may fail; and errors planted into them, which should.

Half an hour of CPU time. `pytest -s` shows a line for each network and the table of errors while they are made.
"""

from __future__ import annotations

import contextlib
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from cortex_m_hil import flow
from cortex_m_hil.checks.comparison.comparison_result import Comparison
from cortex_m_hil.checks.comparison.tolerance import Tolerance
from cortex_m_hil.errors import LintError, LoweringError, OutOfTargetMemory, VerdictError
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.lowering import lower
from cortex_m_hil.program.program import Program, References
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.memory import Placed
from cortex_m_hil.targets.resolve import resolve
from cortex_m_hil.targets.runtimes import RUNTIMES
from installed import installed_executorch
from planted_errors import judged, planted
from random_networks import network

TARGETS = ("m4-qemu", "m55-qemu", "m0-qemu")
NETWORKS = 300
WITH_ERRORS = 100  # of these networks


@pytest.fixture(scope="module")
def duts() -> Iterator[list[Dut]]:
    opened = [flow.open_dut(resolve(name, load_targets())) for name in TARGETS]
    yield opened
    for dut in opened:
        dut.close()


def test_no_correct_network_fails(duts: list[Dut]) -> None:
    failures: list[str] = []
    for number in range(NETWORKS):
        module, inputs = network(number)
        for dut in duts:
            what = f"network {number} on {dut.target.name}"
            try:
                program = lower(module, inputs, isa=dut.target.isa)
                comparison = flow.verify(dut, program, tolerance=Tolerance()).comparison
                print(f"{what}, {len(program.file.instructions)} instructions: {comparison.outputs[0]}", flush=True)
            except VerdictError as error:
                failures.append(f"{what}: {error.describe()}")
                print(failures[-1], flush=True)
    assert failures == []


def differs_by_a_fixed_bound(found: Comparison, outputs: References) -> bool:
    """For comparison, what upstream's tests ask: 1e-3 + 1e-3·|expected|, which half the correct networks fail."""
    assert outputs.dialect is not None and outputs.quantized is not None
    near = np.isclose(outputs.dialect[0], outputs.quantized[0], rtol=1e-3, atol=1e-3)
    return not near.all() or any(finding.kind.value == "eager" for finding in found.errors)


@dataclass
class Caught:
    """How often an error was planted, caught by the default tolerance, and caught by a fixed bound."""

    planted: int = 0
    by_default: int = 0
    by_a_bound: int = 0
    usable: list[tuple[bool, bool]] = field(default_factory=list)
    """The same two, in networks that the fixed bound passes while they are correct: elsewhere it tells nothing."""
    missed: list[str] = field(default_factory=list)

    def count(self, network: int, found: Comparison, outputs: References, bound_is_usable: bool) -> None:
        by_a_bound = differs_by_a_fixed_bound(found, outputs)
        self.planted += 1
        self.by_default += not found.ok
        self.by_a_bound += by_a_bound
        if bound_is_usable:
            self.usable.append((not found.ok, by_a_bound))
        if found.ok:
            self.missed.append(f"{network} ({found.outputs[0]})")


def test_errors_of_a_lowering_are_caught() -> None:
    kinds: defaultdict[str, Caught] = defaultdict(Caught)
    for number in range(WITH_ERRORS):
        program: Program = lower(*network(number), isa=Isa.DSP)
        assert program.reference is not None
        right = program.reference(program.inputs)
        bound_is_usable = not differs_by_a_fixed_bound(judged(program, right), right)
        for name, outputs in planted(program, number):
            kinds[name].count(number, judged(program, outputs), outputs, bound_is_usable)
    print(f"\n{'error':42} planted caught by 1e-3 | usable caught by 1e-3 | missed in network")
    for name, caught in kinds.items():
        default, bound = (sum(one[which] for one in caught.usable) for which in (0, 1))
        print(
            f"{name:42} {caught.planted:7} {caught.by_default:6} {caught.by_a_bound:7} | "
            f"{len(caught.usable):6} {default:6} {bound:7} | {', '.join(caught.missed[:4])}",
            flush=True,
        )
    assert sum(one.by_default for one in kinds.values()) >= 0.8 * sum(one.planted for one in kinds.values())
    assert [name for name, one in kinds.items() if one.by_default < 0.25 * one.planted] == []


BANKS = """\
targets:
  m55-banks:
    cpu: cortex-m55
    board: mps3-sse300
    launcher: {qemu: mps3-an547}
    memory: {banks: [{region: dtcm, size: 256K}, {region: isram, size: 1M}]}
  m4-banks:
    cpu: cortex-m4
    board: mps2-an386
    launcher: {qemu: mps2-an386}
    memory: {banks: [{region: ram, size: 1M}, {region: psram, size: 1M}]}
"""


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_networks_with_int8_in_and_out_in_two_random_banks_are_right_or_refused_by_name(
    runtime: str, tmp_path: Path
) -> None:
    """A bank may be too small for a tensor, and an output may be no int8; all else is the dialect's to the bit.

    What lint refuses for ExecuTorch's runtime has to fail there without lint.
    """
    (tmp_path / "targets.yaml").write_text(BANKS)
    targets = load_targets(tmp_path / "targets.yaml")
    resolved = [resolve(name, targets, runtime=runtime) for name in ("m55-banks", "m4-banks")]
    refused: list[str] = []
    spread = 0
    with contextlib.ExitStack() as stack:
        for one in resolved if runtime == "executorch" else ():
            stack.enter_context(installed_executorch(one.target))
        duts = [stack.enter_context(flow.open_dut(one)) for one in resolved]
        for number in range(100):
            module, inputs = network(number)
            dut, chance = duts[number % 2], random.Random(number)
            first, second = (bank.region for bank in dut.target.board.memory.banks)
            try:
                plain = flow.lower(module, inputs, isa=dut.target.isa, io="int8")
                size = plain.file.planned_bytes
                banks = Placed(first, chance.randrange(16, size + 16, 16)), Placed(second, size)
                banked = flow.lower(module, inputs, isa=dut.target.isa, io="int8", banks=banks)
            except (LoweringError, OutOfTargetMemory) as error:
                refused.append(f"network {number}: {error.describe()}")
                continue
            try:
                checked = flow.verify(dut, banked, tolerance=Tolerance())
            except LintError as error:
                refused.append(f"network {number}: {error.describe()}")
                assert runtime == "executorch" and "(runtime executorch)" in error.message
                with pytest.raises(VerdictError):
                    flow.verify(dut, banked, tolerance=Tolerance(), linted=False)
                continue
            assert checked.comparison.outputs[0].max_quanta == 0 and checked.comparison.ok
            arenas = checked.result.arenas
            assert all(arena.nbytes <= bank.size for arena, bank in zip(arenas, banks, strict=True))
            assert flow.run(dut, plain).outputs == checked.result.outputs
            spread += sum(arena.nbytes > 0 for arena in arenas) == 2
    print(*refused, sep="\n")
    assert spread >= 30 and len(refused) <= 40
