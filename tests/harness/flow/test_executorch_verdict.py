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
from command_line import NO, OK, answer, call, expect
from cortex_m_hil import errors
from cortex_m_hil.checks.lint import lint_elsewhere
from cortex_m_hil.checks.lint_rules.finding import Rule
from cortex_m_hil.diagnose.failure_bundle import Attempt
from cortex_m_hil.diagnose.failure_bundle_file import read_bundle, write_bundle
from cortex_m_hil.diagnose.replay import replay
from cortex_m_hil.errors.known_bugs import KNOWN_BUGS
from cortex_m_hil.maintainers.networks.network_judge import Checks, attempt
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
        assert error.message.startswith("instruction ") and f"ExecuTorch has no {cause}" in error.message
    native.check(wrong, inputs, known=[cause], **options)
    native.check(mended, inputs, **options)
    with pytest.raises(errors.KnownBugAbsent, match="is accepted, and does not occur in this program"):
        native.check(mended, inputs, known=[cause], **options)


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


def test_what_lint_refuses_here_too_is_expected_where_it_is_accepted(native: hil.OpenTarget) -> None:
    largest = Apply(lambda x: torch.max(x, 1)[0])
    for known, accepted in (((), ""), ((26,), "accepted: known bug 26 of ExecuTorch")):
        with pytest.raises(errors.LintError) as caught:
            native.check(largest, (torch.randn(2, 3, 4),), known=known, **QUANTISED)
        assert caught.value.causes == (26,) and caught.value.accepted == accepted


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
    native: hil.OpenTarget, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = native.lower(Apply(mirrored), (torch.randn(IMAGE),), quantize=False)
    pte = tmp_path / "mirrored.pte"
    pte.write_bytes(program.pte)
    done = call(capsys, "run", pte, "-t", "native")
    expect(done, NO, "WouldFailOnExecuTorch: instruction 0", "--known 36 accepts it")
    assert call(capsys, "run", pte, "-t", "native", "--known", 36).status == OK
    expect(call(capsys, "run", pte, "-t", "native", "--known", 36, "--known", 7), NO, "KnownBugAbsent: known bug 7")
    done = call(capsys, "lint", pte, "-t", "native", "--json")
    told = answer(done.out)
    assert done.status == NO
    assert [(one["known_bug"], one["runtime"]) for one in told["findings"]] == [(36, "executorch")] * 2
    assert call(capsys, "lint", pte, "-t", "native", "--known", 36).status == OK


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
