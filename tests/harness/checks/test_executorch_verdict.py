"""A program that is right on builtin, and that ExecuTorch refuses or computes wrongly: a failure, unless accepted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import cortex_m_hil as hil
from command_line import CANNOT_TELL, NO, OK, Done, answer, call, expect, spawn
from cortex_m_hil import errors
from cortex_m_hil.checks.comparison.tolerance import Tolerance
from cortex_m_hil.checks.lint import lint_elsewhere
from cortex_m_hil.checks.lint_rules.finding import Rule
from cortex_m_hil.diagnose.failure_bundle import Attempt, BundleTask
from cortex_m_hil.diagnose.failure_bundle_file import read_bundle, write_bundle
from cortex_m_hil.diagnose.replay import replay
from cortex_m_hil.diagnose.shrink import Judge, Symptom, own_check
from cortex_m_hil.errors.known_bugs import KNOWN_BUGS
from cortex_m_hil.lowering import LoweringOptions
from cortex_m_hil.lowering.submodules import ModulePart
from cortex_m_hil.maintainers.networks.network_judge import Checks, attempt
from cortex_m_hil.program.program import Program
from known_bugs.modules import behind_a_sigmoid
from known_bugs.next_steps import Hardswish
from networks import Apply


@pytest.fixture(scope="module")
def native() -> Iterator[hil.OpenTarget]:
    with hil.open("native") as target:
        yield target


IMAGE = (2, 3, 4, 5)
FLOAT: dict[str, Any] = {"quantize": False, "eager_sqnr": -1000.0}
QUANTISED: dict[str, Any] = {"eager_sqnr": -1000.0}


def mirrored(x: torch.Tensor) -> torch.Tensor:
    return x.flip(2)


# A module that ExecuTorch fails on, its workaround, the shape of the input, options, and the cause.
CASES: dict[str, tuple[Any, Any, tuple[int, ...], dict[str, Any], int | str]] = {
    "an image mirrored": (Apply(mirrored), Apply(lambda x: x.contiguous().flip(2)), IMAGE, FLOAT, 36),
    "a layer in float": (
        nn.Linear(4, 3), Apply(lambda layer, x: x @ layer.weight.T + layer.bias, nn.Linear(4, 3)), (2, 4), FLOAT,
        "aten::linear.out",
    ),
    "a hardswish behind a sigmoid": (
        behind_a_sigmoid(nn.Hardswish), behind_a_sigmoid(Hardswish), (1, 3, 8, 8), QUANTISED, 42,
    ),
}  # fmt: skip


@pytest.mark.first_only
@pytest.mark.parametrize("name", CASES)
def test_what_executorch_fails_on_is_a_failure_unless_it_is_accepted(native: hil.OpenTarget, name: str) -> None:
    wrong, mended, shape, options, cause = CASES[name]
    inputs = (torch.randn(shape),)
    with pytest.raises(errors.WouldFailOnExecuTorch) as caught:
        native.check(wrong, inputs, **options)
    error = caught.value
    assert error.causes == (cause,) and error.operator and error.hint.endswith(f"known=[{cause!r}] accepts it")
    if isinstance(cause, int):
        told, known = dict(error.details), KNOWN_BUGS[cause]
        assert (
            f"(known bug {cause} of ExecuTorch)" in error.message and known.tried and error.hint.startswith(known.hint)
        )
        assert (
            told["known bug"].startswith(f"{cause}: {known.name}") and known.where.replace("`", "") in told["upstream"]
        )
    else:
        assert error.message.startswith("operator ") and f"ExecuTorch has no {cause}" in error.message
    native.check(wrong, inputs, known=[cause], **options)
    native.check(mended, inputs, **options)
    with pytest.raises(errors.KnownBugAbsent, match="is accepted, and does not occur in this program"):
        native.check(mended, inputs, known=[cause], **options)


@pytest.fixture(scope="module")
def mirrored_program(native: hil.OpenTarget) -> Program:
    return native.lower(Apply(mirrored), (torch.randn(IMAGE),), quantize=False)


def test_a_wrong_result_is_told_first(native: hil.OpenTarget) -> None:
    program = native.lower(Apply(mirrored), (torch.randn(IMAGE),), quantize=False)
    with pytest.raises(errors.Mismatch):
        native.check_program(program, program.inputs, (np.zeros(IMAGE, np.float32),))


def test_each_way_of_running_a_program_has_the_verdict(native: hil.OpenTarget) -> None:
    program = native.lower(Apply(mirrored), (torch.randn(IMAGE),), quantize=False)
    array = native.run(program, known=[36]).outputs[0].array()
    for way in (
        lambda known: native.run(program, known=known),
        lambda known: native.verify(program, known=known),
        lambda known: native.stream(program, [program.inputs], known=known),
        lambda known: native.check_program(program, program.inputs, (array,), known=known),
    ):
        with pytest.raises(errors.WouldFailOnExecuTorch):
            way(())
        way([36])
        with pytest.raises(errors.KnownBugAbsent, match="known bug 7 of ExecuTorch"):
            way([36, 7])
    found = [one for one in native.lint(program) if not one.is_note]
    assert {(one.rule, one.bug, one.runtime) for one in found} == {(Rule.DIM_ORDER, 36, "executorch")}


def test_without_lint_it_is_a_warning(native: hil.OpenTarget) -> None:
    program = native.lower(Apply(mirrored), (torch.randn(IMAGE),), quantize=False)
    with pytest.warns(hil.HilWarning, match="known bug 36 of ExecuTorch"):
        native.run(program, lint=False)
    with pytest.raises(errors.ConfigError, match="lint=False leaves it out"):
        native.run(program, lint=False, known=[36])


@pytest.mark.parametrize("cause", [0, 99, "linear", 1.5])
def test_what_is_no_known_bug_and_no_operator_cannot_be_accepted(native: hil.OpenTarget, cause: Any) -> None:
    program = native.lower(nn.Tanh(), (torch.randn(2, 4),), quantize=False)
    with pytest.raises(errors.ConfigError, match=rf"known: '?{re.escape(str(cause))}'? is no known bug of ExecuTorch"):
        native.run(program, known=[cause])


def test_a_bug_of_another_isa_class_may_be_accepted(native: hil.OpenTarget) -> None:
    """Bug 10 shows on MVE alone: one call serves targets of all classes."""
    native.check(nn.Conv2d(1, 16, 1), (torch.randn(1, 1, 6, 6),), known=[10], **QUANTISED)


@pytest.mark.slow
def test_a_convolution_of_one_channel_and_pixel_fails_on_mve() -> None:
    torch.manual_seed(0)
    inputs = (torch.randn(1, 1, 6, 6),)
    with hil.open("m55-qemu") as target:
        with pytest.raises(errors.WouldFailOnExecuTorch, match="80 bytes of scratch are planned; MVE needs 16"):
            target.check(nn.Conv2d(1, 16, 1), inputs)
        target.check(nn.Conv2d(1, 16, 1), inputs, known=[10])
        target.check(nn.Conv2d(1, 16, 3, padding=1), inputs)  # what the kernel filled up with zeros is lowered to


@pytest.mark.slow
def test_what_lint_refuses_here_too_is_expected_where_it_is_accepted(native: hil.OpenTarget) -> None:
    largest = Apply(lambda x: torch.max(x, 1)[0])
    for known, accepted in (((), ""), ((26,), "accepted: known bug 26 of ExecuTorch")):
        with pytest.raises(errors.LintError) as caught:
            native.check(largest, (torch.randn(2, 3, 4),), known=known, **QUANTISED)
        assert caught.value.causes == (26,) and caught.value.accepted == accepted


@pytest.mark.slow
def test_a_bundle_replays_with_what_was_accepted(native: hil.OpenTarget, tmp_path: Path) -> None:
    failed: list[Attempt] = []

    class Kept(hil.OpenTarget):
        def _failed(self, task: Any, error: errors.VerdictError, checked: Any) -> None:
            failed.append(Attempt.from_task(self.dut, task, error, checked))

    target = Kept(native.dut)
    program = target.lower(Apply(mirrored), (torch.randn(IMAGE),), quantize=False)
    for known in ([], [36, 7]):
        with pytest.raises(errors.VerdictError):
            target.verify(program, known=known)
    for one, verdict in zip(failed, ("WouldFailOnExecuTorch", "KnownBugAbsent"), strict=True):
        path = tmp_path / f"{verdict}.hil.zip"
        write_bundle(one.bundle("test"), path)
        found = replay(read_bundle(path), native.dut)
        assert found.now is not None and found.now.type == verdict and found.reproduced


def test_the_commands_have_the_verdict_and_an_option(
    mirrored_program: Program, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pte = tmp_path / "mirrored.pte"
    pte.write_bytes(mirrored_program.pte)
    done = call(capsys, "run", pte, "-t", "native")
    expect(done, NO, "WouldFailOnExecuTorch: operator 0", "--known 36 accepts it")
    done = call(capsys, "lint", pte, "-t", "native", "--json")
    told = answer(done.out)
    assert done.status == NO
    assert [(one["known_bug"], one["runtime"]) for one in told["findings"]] == [(36, "executorch")] * 2
    assert call(capsys, "lint", pte, "-t", "native", "--known", 36).status == OK


def test_an_operator_that_executorch_lacks_is_named_in_the_head_of_a_run(
    native: hil.OpenTarget, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pte, lacking = tmp_path / "layer.pte", "aten::linear.out"
    pte.write_bytes(native.lower(nn.Linear(4, 3), (torch.randn(2, 4),), quantize=False).pte)
    words = ["run", pte, "-t", "native", "--known", lacking]
    assert f"\nruntime   ExecuTorch has no {lacking}\n" in call(capsys, *words).out
    assert answer(call(capsys, *words, "--json").out)["missing_elsewhere"] == [lacking]


DOORS = ("run", "evaluate", "localize", "replay")


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("known", "verdict"), [((), "WouldFailOnExecuTorch"), ((36,), ""), ((36, 7), "KnownBugAbsent")], ids=str
)
def test_each_command_that_runs_a_program_has_the_verdict(
    native: hil.OpenTarget,
    mirrored_program: Program,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    door: str,
    known: tuple[int, ...],
    verdict: str,
) -> None:
    """A bundle brings what its test accepts, which the other commands are told."""
    program = mirrored_program
    words: list[object] = [word for one in known for word in ("--known", one)]
    if door in ("run", "evaluate"):
        file = tmp_path / "mirrored.pte"
        file.write_bytes(program.pte)
        np.savez(tmp_path / "data.npz", inputs=np.stack([program.inputs[0].array()] * 2), labels=[0, 1])
        data = ["--data", tmp_path / "data.npz", "--store", tmp_path / "store.sqlite"]
        words += data if door == "evaluate" else []
    else:
        file, words = tmp_path / "mirrored.hil.zip", []
        task = BundleTask(program, program.inputs, Tolerance(eager_sqnr=-1000.0), known=known, expected=known)
        failed = Attempt.from_task(native.dut, task, errors.WouldFailOnExecuTorch("it"), None)
        assert program.intermediates is not None
        write_bundle(replace(failed, intermediates=program.intermediates(program.inputs)).bundle("test"), file)
    done = call(capsys, door, file, "-t", "native", *words)
    told = re.sub(r"^(was|differs) .*", "", done.out + done.err, flags=re.MULTILINE)  # of the bundle, by replay
    named = set(re.findall("WouldFailOnExecuTorch|KnownBugAbsent", told))
    assert (done.status, named) == ((NO, {verdict}) if verdict else (OK, set())), told


@pytest.mark.slow
def test_shrinking_follows_what_executorch_fails_on_unless_it_is_accepted(native: hil.OpenTarget) -> None:
    """What the parts' tests accept is what occurs in them."""
    module, inputs = Apply(mirrored).eval(), (torch.randn(IMAGE),)
    part = ModulePart.from_exported(torch.export.export(module, inputs), inputs)
    options, tolerance = LoweringOptions(quantize=False), Tolerance(eager_sqnr=-1000.0)
    judge = Judge(native.dut, native.isa, options, tolerance)
    assert judge(part) == (Symptom("WouldFailOnExecuTorch", "aten::flip.out"),) and judge.occurring(part) == ()
    accepting = replace(judge, known=(7, 36))
    assert accepting(part) == () and accepting.occurring(part) == (36,)
    assert "known=[36], quantize=False" in own_check(tolerance, options, known=accepting.occurring(part))[1]


@pytest.mark.slow
def test_a_part_that_lint_refuses_for_what_is_accepted_neither_fails_nor_passes(native: hil.OpenTarget) -> None:
    rows, network = (torch.randn(3, 8),), nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.ReLU()).eval()
    part = ModulePart.from_exported(torch.export.export(network, rows), rows)
    judge = Judge(native.dut, native.isa, LoweringOptions(), Tolerance())
    assert [one.verdict for one in judge(part)] == ["LintError"]
    with pytest.raises(errors.ConfigError, match="known bug 16"):
        replace(judge, known=(16,))(part)


SUITE = """
import pytest, torch

class Mirrored(torch.nn.Module):
    def forward(self, x): return x.flip(2)

KNOWN = {"rejected": (), "accepted": (36,), "absent": (36, 7)}

@pytest.mark.parametrize("known", KNOWN)
def test_it(hil, known):
    hil.check(Mirrored(), (torch.randn(2, 3, 4, 5),), quantize=False, known=KNOWN[known])
"""


ABSENT = "known bug 7 of ExecuTorch (minimum and transpose of channels-last tensors) is accepted, and does not occur"


@pytest.mark.slow
def test_localize_has_the_verdict_of_each_test(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(SUITE)
    done = spawn("localize", "test_it.py", "-t", "native", cwd=tmp_path)
    assert done.status == NO and "test_it[native-accepted]: pass\n" in done.out
    assert "WouldFailOnExecuTorch: test_it.py::test_it[native-rejected]: operator 0" in done.err
    assert "known=[36] accepts it\n" in done.err
    assert f"KnownBugAbsent: test_it.py::test_it[native-absent]: {ABSENT}" in done.err and "→ leave 7 out" in done.err


@pytest.mark.slow
def test_shrink_has_the_verdict_of_each_test(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(SUITE)

    def shrunk(name: str) -> Done:
        return spawn("shrink", f"test_it.py::test_it[native-{name}]", "-t", "native", cwd=tmp_path)

    rejected, accepted, absent = map(shrunk, ("rejected", "accepted", "absent"))
    assert rejected.status == NO and "WouldFailOnExecuTorch of aten::flip.out: 1 operator" in rejected.out
    assert accepted.status == OK and "nothing fails" in accepted.out
    expect(absent, CANNOT_TELL, ABSENT, "→ leave 7 out")


def test_a_generated_network_that_would_fail_has_its_result_and_the_reason(native: hil.OpenTarget) -> None:
    program = native.lower(Apply(mirrored), (torch.randn(IMAGE),), quantize=False)
    tried = attempt(native.dut, program, Checks(quantize=False))
    assert tried.result is not None and isinstance(tried.error, errors.WouldFailOnExecuTorch)


def test_what_only_executorch_takes_is_a_note_there(native: hil.OpenTarget) -> None:
    program = native.lower(nn.Tanh(), (torch.randn(2, 4),), quantize=False)
    (call_,) = program.file.instructions
    other = replace(program, file=replace(program.file, instructions=(replace(call_, operator="aten::atan.out"),)))
    (note,) = lint_elsewhere(other, native.target, runtime="executorch")
    assert note.is_note and note.rule is Rule.BUILTIN_NOTE and "builtin has no aten::atan.out" in note.message
    assert np.isfinite(native.run(program).outputs[0].array()).all()
