"""Verdicts that have no outputs, replayed by the runner that gave them: faults, hangs, writes outside a tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from cortex_m_hil import flow
from cortex_m_hil.checks.comparison.tolerance import Tolerance
from cortex_m_hil.diagnose.failure_bundle import Bundle, BundleTask
from cortex_m_hil.diagnose.failure_bundle_file import read_bundle, write_bundle
from cortex_m_hil.diagnose.replay import Replay, open_target, replay
from cortex_m_hil.errors import ConfigError, IdentityError, LaunchError
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.program.program import Program, References
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve
from failure_bundles import TEST, failure
from misbehaving import BUSY, OPTIONS, UNMAPPED, bad, ones, with_redzones
from misbehaving import program as program_of

RESOLVED = resolve("m4-qemu", load_targets())


class Stray(nn.Module):
    """Writes a byte behind its tensor."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.clone(torch.ops.hil_test.stray(torch.clone(x), 20, 0))


class Clones(nn.Module):
    """As many instructions as a program of `bad`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.clone(torch.clone(x))


@pytest.fixture(scope="module")
def dut() -> Iterator[Dut]:
    with flow.open_dut(RESOLVED, options=OPTIONS, multiplier=0.02) as opened:
        yield opened


def again(bundle: Bundle, folder: Path) -> Replay:
    write_bundle(bundle, folder / "it.hil.zip")
    found = read_bundle(folder / "it.hil.zip")
    opened = open_target(found, RESOLVED, folder)
    with opened.dut as dut:
        assert opened.bundled and opened.notices == ()
        return replay(found, dut)


@pytest.mark.first_only
@pytest.mark.parametrize(
    ("task", "verdict"),
    [
        (lambda: BundleTask(bad("fault", UNMAPPED), ones()), "TargetFault"),
        (lambda: BundleTask(bad("hang", BUSY), ones()), "TargetHang"),
        (lambda: BundleTask(with_redzones(Stray(), (5,)), ones((5,)), redzones=True), "RedzoneViolation"),
    ],
    ids=["fault", "hang", "red zone"],
)
def test_a_verdict_without_outputs_is_reproduced(
    dut: Dut, task: Callable[[], BundleTask], verdict: str, tmp_path: Path
) -> None:
    """No tool of this machine reads the runner, so what was recorded of a fault has more: function and line."""
    bundle = failure(dut, task()).bundle(TEST)
    assert bundle.description.verdict.type == verdict and bundle.description.verdict.operator.startswith("hil_test::")
    found = again(bundle, tmp_path)
    assert found.reproduced and found.compared is None, found.differences
    if verdict == "TargetFault":
        assert found.now is not None
        then, now = dict(bundle.description.verdict.details)["pc"], dict(found.now.details)["pc"]
        assert " in " in then and now == then.partition(" ")[0]


def test_a_fault_that_is_gone_is_no_pass(dut: Dut, tmp_path: Path) -> None:
    """The references were not computed when it faulted; a replay that gives outputs has them."""
    references = References(quantized=(np.full(4, 9, np.float32),))
    program = replace(bad("fault", UNMAPPED), inputs=ones(), reference=lambda _: references)
    bundle = failure(dut, BundleTask(program, ones(), Tolerance())).bundle(TEST)
    assert bundle.description.verdict.type == "TargetFault" and bundle.judges
    good = program_of(Clones())
    repaired = replace(bundle.task.program, pte=good.pte, file=good.file)
    found = again(replace(bundle, task=replace(bundle.task, program=repaired)), tmp_path)
    assert found.now is not None and found.now.type == "Mismatch", found.now

    def broken(_: object) -> References:
        raise RuntimeError("no reference")

    program = replace(program, reference=broken)
    without = failure(dut, BundleTask(program, ones(), Tolerance())).bundle(TEST)
    assert not without.judges
    write_bundle(without, tmp_path / "it.hil.zip")
    assert "compared with nothing" in open_target(read_bundle(tmp_path / "it.hil.zip"), RESOLVED, tmp_path).notices[0]


@pytest.mark.slow
def test_a_runner_that_is_none_tells_nothing(dut: Dut, tmp_path: Path) -> None:
    """Of the program; and the bundle's claims of its runner are checked by the handshake as ever."""
    program = replace(Program.from_bytes(known_answer(Isa.MVE).program, "x.pte"), inputs=known_answer(Isa.MVE).inputs)
    bundle = failure(dut, BundleTask(program, program.inputs)).bundle(TEST)
    for elf in (b"", b"\x7fELF", bundle.elf[:4096]):
        with pytest.raises(LaunchError, match=r"the runner does not (start: the core locked up|answer its handshake)"):
            again(replace(bundle, elf=elf), tmp_path)
    machine = bundle.description.machine.model_copy(update={"build_id": "0" * 16})
    liar = replace(bundle, description=bundle.description.model_copy(update={"machine": machine}))
    with pytest.raises(IdentityError, match="build id"):
        again(liar, tmp_path)
    with pytest.raises(ConfigError):
        read_bundle(tmp_path / "none")
