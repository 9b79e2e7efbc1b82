"""Lint on real programs: the committed known-answer programs, and edits of what is known of them."""

from __future__ import annotations

import re
import shutil
import struct
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from executorch.exir.backend.test.op_partitioner_demo import AddMulPartitionerDemo
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from command_line import CANNOT_TELL, call
from cortex_m_hil import errors, flow
from cortex_m_hil.checks import missing_operator_hints
from cortex_m_hil.checks.input_checks import input_misfits, require_fit
from cortex_m_hil.checks.lint import explain, lint, lint_elsewhere, raise_findings
from cortex_m_hil.checks.lint_rules.argument_findings import COMPUTED_BY_BUILTIN
from cortex_m_hil.checks.lint_rules.finding import NOTES, LintFinding, Rule
from cortex_m_hil.checks.lint_rules.hints import next_step
from cortex_m_hil.checks.signatures.refused_arguments import signature_of
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.host.paths import package_data
from cortex_m_hil.lowering import LoweringOptions, lower
from cortex_m_hil.maintainers.fuzzing.program_mutator import FieldEdit, Site, sites
from cortex_m_hil.program.example_inputs import example_inputs
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.program.memory_shortage import Shortage
from cortex_m_hil.program.program import Program, ScratchNeed
from cortex_m_hil.program.schema import DTYPES, InstructionKind, ValueKind
from cortex_m_hil.program.tensor import HostTensor, TensorSpec
from cortex_m_hil.program.values import Instruction, Value
from cortex_m_hil.runner.launchers.qemu import QemuLauncher
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.executorch_prefix import VARIABLE
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.memory import Memory
from cortex_m_hil.targets.resolve import resolve
from cortex_m_hil.targets.target import Board, OwnFirmware, Target
from memories import host_memory
from networks import Apply
from prefixes import FLAGS, make_prefix

CPUS = {Isa.MVE: "cortex-m55", Isa.DSP: "cortex-m4", Isa.SCALAR: "cortex-m0"}
OPERATORS = (
    "cortex_m::quantize_per_tensor.out",
    "cortex_m::quantized_linear.out",
    "cortex_m::dequantize_per_tensor.out",
)


ROOMY = host_memory(program=1 << 20, planned=1 << 18, method=1 << 16)


def target(isa: Isa, memory: Memory = ROOMY) -> Target:
    board = Board("mps2", Path("firmware/boards/mps2"), memory)
    return Target(f"{isa.value.lower()}-qemu", CPUS[isa], isa, board, QemuLauncher("mps2-an386"), None, "test:1")


def program(isa: Isa) -> Program:
    return replace(Program.from_bytes(known_answer(isa).program, "known_answer.pte"), isa=isa)


def rules(findings: tuple[LintFinding, ...]) -> list[Rule]:
    return [finding.rule for finding in findings]


@pytest.mark.parametrize("isa", Isa)
def test_a_fitting_program_has_no_findings(isa: Isa) -> None:
    found = lint(program(isa), target(isa), operators=OPERATORS)
    assert found == ()
    raise_findings(found, "x")


@pytest.mark.parametrize("isa", [Isa.DSP, Isa.SCALAR])
def test_kernel_sum_on_a_target_without_mve(isa: Isa) -> None:
    """The bug this project began with: runs fine, and is wrong."""
    unknown = replace(program(Isa.MVE), isa=None)
    found = lint(unknown, target(isa), operators=OPERATORS)
    assert rules(found) == [Rule.LAYOUT]
    assert (
        found[0].cause == f"a {isa.value} runtime ignores kernel_sum, so the bias: outputs collapse to the zero point"
    )
    assert (found[0].operator, found[0].instruction) == ("cortex_m::quantized_linear.out", 1)
    assert unknown.file.values[found[0].value].spec is not None
    assert found[0].message.endswith(f"; lower it with isa=Isa.{isa.name}")
    with pytest.raises(errors.LintError, match=r"collapse to the zero point.*\n.*lint=False"):
        raise_findings(found, f"{isa.value}-qemu")


def test_no_kernel_sum_on_mve() -> None:
    found = lint(replace(program(Isa.DSP), isa=None), target(Isa.MVE), operators=OPERATORS)
    assert rules(found) == [Rule.LAYOUT] and "an MVE runtime needs" in found[0].cause


def test_dsp_and_scalar_share_a_layout_but_the_class_is_recorded() -> None:
    assert lint(replace(program(Isa.DSP), isa=None), target(Isa.SCALAR), operators=None) == ()
    found = lint(program(Isa.DSP), target(Isa.SCALAR), operators=None)
    assert rules(found) == [Rule.ISA] and "lower it with isa=Isa.SCALAR" in found[0].message


def test_scratch_too_small_is_an_error_and_names_whose_it_is() -> None:
    need = ScratchNeed(1, "cortex_m::quantized_conv2d.out", 4, 128, 112, ((Isa.DSP, 112), (Isa.SCALAR, 112)))
    found = lint(program(Isa.MVE), target(Isa.MVE), operators=None, scratch=[need])
    assert rules(found) == [Rule.SCRATCH]
    assert "112 bytes of scratch are planned, which is what DSP or SCALAR needs; MVE needs 128" in found[0].message
    with pytest.raises(errors.LintError):
        raise_findings(found, "x")


def test_scratch_too_large_is_a_note() -> None:
    need = ScratchNeed(1, "cortex_m::quantized_conv2d.out", 4, 0, 4464, ((Isa.MVE, 4464), (Isa.SCALAR, 0)))
    found = lint(program(Isa.DSP), target(Isa.DSP), operators=None, scratch=[need])
    assert rules(found) == [Rule.SCRATCH_NOTE] and "which is what MVE needs" in found[0].message
    raise_findings(found, "x")


def test_executorch_takes_no_scratch_but_its_own() -> None:
    need = ScratchNeed(1, "cortex_m::quantized_depthwise_conv2d.out", 4, 16, 80)
    assert rules(lint(program(Isa.MVE), target(Isa.MVE), operators=None, scratch=[need])) == [Rule.SCRATCH_NOTE]
    found = lint(program(Isa.MVE), target(Isa.MVE), operators=None, scratch=[need], runtime="executorch")
    assert rules(found) == [Rule.SCRATCH] and "80 bytes of scratch are planned; MVE needs 16" in found[0].message


def test_operators_the_runner_lacks_are_all_named() -> None:
    found = lint(program(Isa.DSP), target(Isa.DSP), operators=OPERATORS[1:2])
    assert rules(found) == [Rule.OPERATOR] * 2
    with pytest.raises(errors.UnsupportedOperator, match=r"quantize_per_tensor.*dequantize_per_tensor"):
        raise_findings(found, "x")


def test_an_operator_that_the_wheels_release_has_alone_is_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program may be right: an ExecuTorch of the wheel's release would tell."""
    given, lacking = program(Isa.DSP), "cortex_m::quantized_linear.out"
    monkeypatch.setenv(VARIABLE, str(make_prefix(tmp_path / "prefix", FLAGS["m4-qemu"], without=lacking)))
    found = lint(given, target(Isa.DSP), operators=None, runtime="executorch")
    assert rules(found) == [Rule.RELEASE] and rules(lint(given, target(Isa.DSP), operators=None)) == []
    told = rf"operator 1.*: this ExecuTorch has no {lacking}, which executorch \S+ lowers to"
    with pytest.raises(errors.ToolchainError, match=told) as caught:
        raise_findings(found, "x")
    assert caught.value.operator == lacking
    assert caught.value.hint == (
        f"hil executorch install --cpu cortex-m4 builds the wheel's release; {VARIABLE} goes before that"
    )
    with pytest.raises(errors.ToolchainError, match=told):  # the runner's own refusal, without lint
        explain(errors.UnsupportedOperator(f"no {lacking}"), found)
    other = LintFinding(Rule.DIM_ORDER, "it", "aten::flip.out", bug=36)
    with pytest.raises(errors.LintError) as refused:
        raise_findings((*found, other), "x")
    assert refused.value.causes == (36,)
    monkeypatch.setattr(flow, "runner_operators", lambda _: (None, "it was not built"))
    (tmp_path / "it.pte").write_bytes(given.pte)
    done = call(capsys, "lint", tmp_path / "it.pte", "-t", "m4-qemu", "--runtime", "executorch")
    assert done.status == CANNOT_TELL and "it.pte fits m4-qemu cannot be told" in done.out


def test_delegates_are_named() -> None:
    given = program(Isa.DSP)
    found = lint(
        replace(given, file=replace(given.file, delegates=("EthosUBackend",))), target(Isa.DSP), operators=None
    )
    assert [one.rule for one in found if not one.is_note] == [Rule.DELEGATE]
    assert "EthosUBackend (no call)" in found[0].message
    with pytest.raises(errors.UnsupportedOperator, match="EthosUBackend"):
        raise_findings(found, "x")


class Partly(torch.nn.Module):
    """Its sums and products of matrices are delegated by ExecuTorch's demonstration of a partitioner."""

    def forward(self, x: Any, y: Any) -> Any:
        return torch.sin(torch.mm(x, y) + y) + torch.cos(torch.sin(y))


def delegated() -> Program:
    inputs = (torch.ones(3, 3), torch.ones(3, 3))
    exported = torch.export.export(Partly(), inputs, strict=True)
    edge = to_edge_transform_and_lower(exported, partitioner=[AddMulPartitionerDemo()])
    return Program.from_bytes(bytes(edge.to_executorch().buffer), "partly.pte")


def test_the_partition_of_a_program_with_delegates_is_told() -> None:
    """Which instructions are a delegate's, which fall back on kernels, and each kernel that is missing at load."""
    given = delegated()
    kinds = [(one.kind.value, one.operator) for one in given.file.instructions]
    theirs = [number for number, (kind, _) in enumerate(kinds) if kind == "DelegateCall"]
    assert theirs and len(theirs) < len(kinds)
    found = lint(given, target(Isa.DSP), operators=("aten::cos.out",))
    assert rules(found) == [Rule.DELEGATE, Rule.FALLBACK_NOTE, Rule.FALLBACK_NOTE, Rule.OPERATOR]
    listed = f"operator{'s' if len(theirs) > 1 else ''} {', '.join(map(str, theirs))} of {len(kinds)}"
    assert f"delegate BackendWithCompilerDemo ({listed})" in found[0].message
    left = {
        name: [number for number, one in enumerate(kinds) if one[1] == name]
        for name in ("aten::sin.out", "aten::cos.out")
    }
    for note in found[1:3]:
        numbers = ", ".join(map(str, left.pop(note.operator)))
        assert f" {numbers}: {note.operator} is not delegated, a kernel runs it" in note.message
    assert found[3].operator == "aten::sin.out"
    with pytest.raises(errors.UnsupportedOperator, match=r"BackendWithCompilerDemo.*the runner has no aten::sin\.out"):
        raise_findings(found, "x")


def test_what_the_users_own_firmware_lacks_is_not_the_runners() -> None:
    own = replace(target(Isa.DSP), firmware=OwnFirmware(Path("app.elf"), "", Path(), "targets.yaml:3"))
    operator, *others = sorted({one.operator for one in program(Isa.DSP).file.instructions})
    found = lint(program(Isa.DSP), own, operators=others)
    with pytest.raises(errors.UnsupportedOperator, match=rf"your firmware has no {re.escape(operator)}"):
        raise_findings(found, "x")


def test_a_program_without_delegates_has_no_fallback() -> None:
    assert Rule.FALLBACK_NOTE not in rules(lint(program(Isa.DSP), target(Isa.DSP), operators=OPERATORS))


def test_memory_says_what_was_asked_and_had() -> None:
    given = program(Isa.DSP)
    small = host_memory(program=given.file.size - 1, planned=given.file.planned_bytes - 16, method=0)
    found = lint(given, target(Isa.DSP, small), operators=OPERATORS)
    assert rules(found) == [Rule.PLANNED_POOL, Rule.PROGRAM_POOL]
    assert f"needs {given.file.size} bytes and dsp-qemu has {given.file.size - 1}: 1 too many" in found[1].message
    with pytest.raises(errors.OutOfTargetMemory, match=r"\(and 1 more lint finding\)"):
        raise_findings(found, "dsp-qemu")
    exact = host_memory(program=given.file.size, planned=given.file.planned_bytes, method=0)
    assert lint(given, target(Isa.DSP, exact), operators=OPERATORS) == ()


def test_a_plan_that_does_not_fit_is_told_with_its_peak_and_with_what_holds_it() -> None:
    given = program(Isa.DSP)
    planned, size = given.file.planned_bytes, given.file.size
    lacking = target(Isa.DSP, host_memory(program=size, planned=planned - 16, method=0))
    (found,) = lint(given, lacking, operators=OPERATORS)
    told = [text for label, text in found.details if label in ("peak", "held")]
    peak, held = told[0], [int(re.findall(r"^(\d+) bytes: ", one)[0]) for one in told[1:]]
    at = re.findall(rf"^operator (\d+), (\S+): {planned} bytes are held, 100 % of the plan$", peak)
    assert [name for _, name in at] == [given.file.instructions[int(at[0][0])].operator]
    assert held == sorted(held, reverse=True) and planned - 16 * len(held) < sum(held) <= planned
    assert f"planned {planned} of {planned - 16} bytes, program {size} of {size} bytes" in dict(found.details)["needs"]
    assert found.hint.startswith("no other target of DSP is known: add one to targets.yaml; bank host of at least ")
    larger = replace(target(Isa.DSP, host_memory(program=size, planned=planned, method=0)), name="larger")
    smaller = replace(target(Isa.DSP, host_memory(program=size - 7, planned=planned, method=0)), name="smaller")
    other = replace(target(Isa.MVE, host_memory(program=size, planned=planned, method=0)), name="other")
    for known, hint in (
        ((smaller, larger, other), "targets of DSP that hold it: larger; hil inspect fit -t larger tells"),
        ((smaller, other), "no other target of DSP holds it: the nearest, smaller, lacks 7 bytes"),
    ):
        (found,) = lint(given, replace(lacking, alternatives=known), operators=OPERATORS)
        assert found.hint.startswith(hint)


@pytest.mark.parametrize(
    ("bank", "shared", "shortage", "says"),
    [
        ("2K", "", ("planned", 3000, 2048), "bank psram of at least 3000 bytes in {}:13,"),
        ("2K", "", ("temp", 900, 800), "method of at least 1124 bytes in {}:12,"),
        ("2K", "", ("method", 1048, 1024), "method of at least 1048 bytes in {}:12,"),
        ("4K", "  shared: 5K\n", ("planned", 3000, 1120), "shared of at least 7000 bytes in {}:15"),
        ("4K", "  shared: 5K\n", ("planned", 5000, 4096), "bank psram of at least 5000 "),
    ],
)
def test_a_board_of_the_users_is_told_with_the_key(
    tmp_path: Path, bank: str, shared: str, shortage: tuple[str, int, int], says: str
) -> None:
    board = tmp_path / "acme"
    shutil.copytree(load_targets()["m4-qemu"].board.directory, board)
    description = board / "board.yaml"
    small = description.read_text().replace("size: 8M}", "size: 4K}").replace("size: 256K}", "size: 1K}")
    description.write_text(small.replace("psram, size: 4M}", f"psram, size: {bank}}}") + shared)
    text = "targets: {acme: {cpu: cortex-m4, board: ./acme, launcher: {qemu: mps2-an386}}}"
    (tmp_path / "targets.yaml").write_text(text)
    acme = load_targets(tmp_path / "targets.yaml")["acme"]
    hint = Shortage(*shortage, acme, None, lambda _: "").hint()
    if shortage[0] == "planned":
        targets = "targets of DSP that hold it: m4-fvp, m4-qemu, m7-qemu, m33-qemu, …; hil inspect fit -t m4-qemu tells"
    else:
        part = f"{shortage[1]} bytes are only what the allocations up to the first refusal took"
        measured = f"measure it first, with hil inspect fit MODEL -t m4-qemu: {part}; "
        targets = f"{measured}targets of DSP that hold so much: m4-fvp, m4-qemu, m7-qemu, m33-qemu, …; method of at"
    assert hint.startswith(targets)
    alone = Shortage(*shortage, replace(acme, alternatives=()), None, lambda _: "").hint()
    needs = dict(Shortage(*shortage, acme, program(Isa.DSP).file, lambda _: "").details())["needs"]
    assert (f"{shortage[0]} at least {shortage[1]} of {shortage[2]} bytes" in needs) == (shortage[0] != "planned")
    larger = "hil inspect fit on a simulator of DSP whose method pool is larger"
    assert (larger in alone) == (shortage[0] != "planned")
    assert says.format(board / "board.yaml") in hint
    stack = Shortage("stack", 70_000, 65_536, acme, None, lambda _: "").hint()
    assert stack == f"stack of at least 70000 bytes in {board / 'board.yaml'}:10"


def hint_of(*found: LintFinding) -> str:
    with pytest.raises(errors.HarnessError) as caught:
        raise_findings(found, "x")
    return caught.value.hint


def test_every_rule_has_a_next_step_of_its_own() -> None:
    hints = {rule: hint_of(LintFinding(rule, "it")) for rule in Rule if rule not in NOTES}
    assert all(hints.values())
    runs_all_the_same = {rule for rule, hint in hints.items() if "runs this program as it is" in hint}
    assert runs_all_the_same == {Rule.LAYOUT, Rule.ISA}
    assert "partitioner" in hints[Rule.DELEGATE]


def test_an_operator_on_quantised_integers_is_not_looked_for_in_another_runtime() -> None:
    """Any runtime that has it would compute without the scales."""
    given = program(Isa.DSP)
    first, *others = given.file.instructions
    integers = next(value.index for value in given.file.values if value.spec is not None and value.spec.dtype == "int8")
    blind = replace(first, operator="aten::convolution.out", args=(integers,))
    wrong = replace(given, file=replace(given.file, instructions=(blind, *others)))
    missing = [one for one in lint(wrong, target(Isa.DSP), operators=OPERATORS) if one.rule is Rule.OPERATOR]
    assert "quantised integers" in missing[0].message
    assert "change the module" in hint_of(*missing) and "run it on an ExecuTorch" not in hint_of(*missing)
    plain = lint(given, target(Isa.DSP), operators=OPERATORS[1:])
    assert "run it on an ExecuTorch that has the operator" in hint_of(*plain)


@pytest.mark.parametrize(
    ("operator", "says"),
    [
        ("aten::topk.values", "run it on an ExecuTorch that has the operator"),
        ("aten::hardswish.out", "portable kernels lack it: write x * torch.nn.functional.relu6(x + 3) / 6"),
        ("aten::hardsigmoid.out", "portable kernels lack it: write torch.nn.functional.relu6(x + 3) / 6"),
        ("aten::adaptive_max_pool2d.out", "portable kernels lack it: write max_pool2d, with the sizes"),
        ("aten::nobodys.out", "lack it too, so no runtime runs it: write the same with other operators of torch"),
    ],
)
def test_an_operator_that_executorch_has_is_told_from_one_that_nobody_has(operator: str, says: str) -> None:
    given = program(Isa.DSP)
    first, *others = given.file.instructions
    lacking = replace(given, file=replace(given.file, instructions=(replace(first, operator=operator), *others)))
    found = [one for one in lint(lacking, target(Isa.DSP), operators=OPERATORS[1:]) if one.rule is Rule.OPERATOR]
    assert [one.operator for one in found][:1] == [operator] and says in hint_of(found[0])


@pytest.mark.parametrize("operator", ["cortex_m::quantized_conv2d.out", "aten::silu.out"])
def test_an_operator_that_builtin_has_is_told_so(operator: str) -> None:
    assert "the runtime builtin has it" in missing_operator_hints.hint(operator, "executorch")
    assert "builtin" not in missing_operator_hints.hint(operator)


def test_where_no_executorch_is_installed_the_hint_leaves_it_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missing_operator_hints, "executorch_portable_operators", frozenset)
    assert "an ExecuTorch that has the operator" in missing_operator_hints.hint("aten::hardswish.out")


def test_red_zones_that_do_not_fit_are_left_out() -> None:
    given = replace(program(Isa.DSP), size_without_redzones=16)
    small = host_memory(program=given.file.size, planned=given.file.planned_bytes - 16, method=0)
    assert "leave the red zones out" in hint_of(*lint(given, target(Isa.DSP, small), operators=OPERATORS))
    given = replace(given, size_without_redzones=given.file.planned_bytes)
    assert "red zones" not in hint_of(*lint(given, target(Isa.DSP, small), operators=OPERATORS))


# --- inputs ----------------------------------------------------------------------------------------------


def with_input(spec: TensorSpec) -> Program:
    given = program(Isa.DSP)
    values = list(given.file.values)
    index = given.file.inputs[0]
    values[index] = replace(values[index], spec=spec)
    return replace(given, file=replace(given.file, values=tuple(values)))


def zeros(dtype: str, shape: tuple[int, ...], order: tuple[int, ...] | None = None) -> HostTensor:
    return HostTensor.from_array(np.zeros(shape, dtype), order)


NHWC = (0, 2, 3, 1)


@pytest.mark.parametrize(
    ("spec", "given", "message"),
    [
        (TensorSpec("float32", (1, 3, 8, 8), NHWC), zeros("float32", (1, 3, 8, 8)), "channels_last"),
        (TensorSpec.contiguous("float32", (1, 3, 8, 8)), zeros("float32", (1, 3, 8, 8), NHWC), r"\.contiguous\(\)"),
        (TensorSpec("float32", (2, 3, 4), (2, 0, 1)), zeros("float32", (2, 3, 4)), r"\.permute\(\(2, 0, 1\)\)"),
        (
            TensorSpec.contiguous("float32", (1, 4)),
            zeros("int8", (1, 4)),
            r"takes float32\[1, 4\], not int8\[1, 4\](.|\n)*to\(torch\.float32\).*astype\(\"float32\"\)",
        ),
        (
            TensorSpec.contiguous("float32", (1, 4)),
            zeros("float32", (4,)),
            r"takes float32\[1, 4\], not float32\[4\](.|\n)*lower the module",
        ),
        (
            TensorSpec.contiguous("float32", (1, 4)),
            HostTensor.from_scalar(2.0),
            r"takes float32\[1, 4\], not Double(.|\n)*scalars",
        ),
    ],
)
def test_inputs_that_do_not_fit(spec: TensorSpec, given: HostTensor, message: str) -> None:
    """The call is wrong, and not the program."""
    with pytest.raises(errors.ConfigError, match=message):
        require_fit(with_input(spec), (given,), "x", "builtin")


def test_one_channel_is_any_layout() -> None:
    spec = TensorSpec("float32", (1, 1, 8, 8), NHWC)
    assert not list(input_misfits(with_input(spec), (zeros("float32", (1, 1, 8, 8)),)))


def test_a_wrong_number_of_inputs_is_a_misfit() -> None:
    ((problem, hint),) = input_misfits(program(Isa.DSP), ())
    assert problem == "the program has 1 input, 0 given" and hint.startswith("the program takes (float32[")
    assert not list(input_misfits(program(Isa.DSP), known_answer(Isa.DSP).inputs))


def test_an_output_that_is_none_is_refused_and_told_by_its_number() -> None:
    made = program(Isa.DSP)
    none = Value(len(made.file.values), ValueKind.NULL)
    file = replace(made.file, values=(*made.file.values, none), outputs=(*made.file.outputs, none.index))
    [found] = [one for one in lint(replace(made, file=file), target(Isa.DSP), operators=None) if not one.is_note]
    assert (found.rule, found.value) == (Rule.OUTPUT, none.index)
    assert found.message == "output 1 is None, and outputs are tensors and numbers"
    assert "returns only the tensors" in hint_of(found)


# --- dtypes and dim orders -------------------------------------------------------------------------------

SEEDS = [Program.from_bytes(path.read_bytes(), str(path)) for path in sorted(Path("tests/fuzz_seeds").glob("*.pte"))]
TARGETS = load_targets()


@pytest.fixture(scope="module")
def native() -> Iterator[Dut]:
    with flow.open_dut(resolve("native", TARGETS)) as dut:
        yield dut


@cache
def dim_orders(pte: bytes) -> list[list[Site]]:
    """The bytes of each tensor's dim order."""
    items = sorted((site for site in sites(pte) if site.kind is FieldEdit.DIM_ORDER), key=lambda site: site.at)
    runs = groupby(enumerate(items), key=lambda item: item[1].at - item[0])
    return [run for run in ([site for _, site in group] for _, group in runs) if len(run) > 1]


@cache
def dtype_sites(pte: bytes) -> list[Site]:
    return [site for site in sites(pte) if site.kind is FieldEdit.DTYPE]


def same_size(number: int) -> list[int]:
    """The other dtypes whose items take as many bytes, so that the memory plan still fits."""
    size = np.dtype(DTYPES[number]).itemsize
    return [other for other, name in DTYPES.items() if other != number and np.dtype(name).itemsize == size]


NOT_PORTABLE = (
    *("aten::linear.out", "aten::silu.out"),  # ExecuTorch has them in other libraries
    *("aten::hardsigmoid.out", "aten::hardswish.out", "aten::adaptive_max_pool2d.out"),  # and these nowhere
    *("aten::_embedding_bag.out", "aten::_embedding_bag_forward_only.out"),
    *("aten::_adaptive_avg_pool3d.out", "aten::avg_pool3d.out"),
    *("aten::adaptive_max_pool3d.out", "aten::max_pool3d_with_indices.out"),
)


def test_every_operator_of_the_builtin_runtime_has_a_signature(native: Dut) -> None:
    operators = native.session().identity.operators
    assert [name for name in operators if signature_of(name, "builtin") is None] == []
    unknown = {name for name in operators if signature_of(name, "executorch") is None}
    assert unknown == {"aten::full.out", *NOT_PORTABLE}
    listed = (package_data("firmware") / "runtime" / "executorch" / "portable_operators.cpp").read_text()
    assert set(re.findall(r'Kernel\("([^"]+)"', listed)) == {
        name for name in operators if not name.startswith("cortex_m::") and name not in NOT_PORTABLE
    }


def of_one(operator: str, *arguments: TensorSpec | tuple[int, ...] | list[TensorSpec] | int | None) -> Program:
    """One instruction with these arguments, the out tensor last, as it stands in a file; nothing else is true of it."""
    values: list[Value] = []

    def add(value: Value) -> int:
        values.append(replace(value, index=len(values)))
        return len(values) - 1

    args = []
    for argument in arguments:
        if isinstance(argument, TensorSpec):
            args.append(add(Value(0, ValueKind.TENSOR, argument)))
        elif isinstance(argument, int):
            args.append(add(Value(0, ValueKind.INT, scalar=argument)))
        elif isinstance(argument, list):
            items = tuple(add(Value(0, ValueKind.TENSOR, one)) for one in argument)
            args.append(add(Value(0, ValueKind.TENSOR_LIST, items=items)))
        elif argument is None:
            args.append(add(Value(0, ValueKind.NULL)))
        else:
            items = tuple(add(Value(0, ValueKind.INT, TensorSpec.scalar(ValueKind.INT), item)) for item in argument)
            args.append(add(Value(0, ValueKind.INT_LIST, items=items)))
    made = program(Isa.DSP)
    call = Instruction(0, InstructionKind.KERNEL, operator, (*args, args[-1]))
    return replace(
        made,
        file=replace(
            made.file, values=tuple(values), instructions=(call,), operators=(operator,), inputs=(), outputs=()
        ),
    )


def image(dtype: str, *shape: int) -> TensorSpec:
    return TensorSpec(dtype, shape, NHWC)


def rows(dtype: str, *shape: int) -> TensorSpec:
    return TensorSpec.contiguous(dtype, shape)


def quantised_and(operator: str, dtype: str) -> Program:
    """An operator between a quantisation and nothing."""
    made = of_one(operator, rows(dtype, 4), rows(dtype, 4))
    first = replace(made.file.instructions[0], operator="cortex_m::quantize_per_tensor.out", args=())
    return replace(made, file=replace(made.file, instructions=(first, replace(made.file.instructions[0], index=1))))


def test_a_layer_that_stayed_float_in_a_quantised_program_is_a_note() -> None:
    found = lint(quantised_and("aten::mul.out", "float32"), target(Isa.DSP), operators=None)
    assert rules(found) == [Rule.FLOAT_NOTE] and found[0].operator == "aten::mul.out" and found[0].is_note
    assert "aten::mul.out computes in float32: ExecuTorch left it out of the quantisation" in found[0].message
    raise_findings(found, "x")


@pytest.mark.parametrize(
    "near",
    [
        quantised_and("aten::mul.out", "int8"),
        quantised_and("aten::cat.out", "float32"),  # which computes nothing
        quantised_and("cortex_m::dequantize_per_tensor.out", "float32"),
        of_one("aten::mul.out", rows("float32", 4), rows("float32", 4)),  # nothing is quantised, as was asked for
    ],
)
def test_what_is_no_layer_that_stayed_float(near: Program) -> None:
    assert Rule.FLOAT_NOTE not in rules(lint(near, target(Isa.DSP), operators=None))


def behind(first: str, operator: str, *specs: TensorSpec) -> Program:
    """An operator on what another one gave, its first tensor."""
    made = of_one(operator, *specs)
    (second,) = made.file.instructions
    instructions = (replace(second, operator=first, args=second.args[:1]), replace(second, index=1))
    return replace(made, file=replace(made.file, instructions=instructions))


INT8, INT8_AND_FLOAT = (rows("int8", 4),) * 3, (rows("int8", 4), rows("float32", 4), rows("float32", 4))


@pytest.mark.parametrize("operator", ["aten::add.out", "aten::mul.out", "aten::div.out"])
@pytest.mark.parametrize("specs", [INT8, INT8_AND_FLOAT])
def test_arithmetic_on_quantised_integers_is_refused(operator: str, specs: tuple[TensorSpec, ...]) -> None:
    found = lint(
        behind("cortex_m::quantized_linear.out", operator, *specs),
        target(Isa.DSP),
        operators=None,
        runtime="executorch",
    )
    assert [one.rule for one in found if one.operator == operator and not one.is_note] == [Rule.DTYPE]
    (told,) = (one for one in found if one.rule is Rule.DTYPE and one.operator == operator)
    assert "self is int8[4], quantised: on integers ExecuTorch computes without their scales" in told.message


@pytest.mark.parametrize(
    "near",
    [
        behind("aten::clone.out", "aten::add.out", *INT8),  # of an input, say: integers that mean themselves
        behind("cortex_m::quantized_linear.out", "aten::maximum.out", *INT8),  # which scales change nothing of
        behind("cortex_m::dequantize_per_tensor.out", "aten::add.out", *(rows("float32", 4),) * 3),
    ],
)
def test_what_is_no_arithmetic_on_quantised_integers(near: Program) -> None:
    found = lint(near, target(Isa.DSP), operators=None, runtime="executorch")
    assert not [one for one in found if one.operator.startswith("aten::") and not one.is_note]


def test_what_is_made_of_quantised_integers_is_quantised() -> None:
    """Through copies and lists; no more where the memory holds something else."""
    made = of_one("aten::cat.out", [rows("int8", 2), rows("int8", 2)], 0, rows("int8", 4))
    (join,) = made.file.instructions
    one, _, joined = (*made.file.values[join.args[0]].items, join.args[-1])
    quantise = replace(join, operator="cortex_m::quantized_add.out", args=(int(one),))
    copied = replace(join, operator="aten::clone.out", args=(joined, int(one)))
    filled = replace(join, operator="aten::full.out", args=(int(one),))
    chain = tuple(replace(it, index=at) for at, it in enumerate((quantise, join, copied, join, filled, join)))
    found = replace(made.file, instructions=chain).dataflow.quantised_arguments
    assert found == [frozenset(), {int(one)}, {joined}, {int(one)}, frozenset(), frozenset()]
    at_end = [
        replace(made.file, instructions=chain[:end], outputs=(joined,)).dataflow.quantised_outputs for end in (4, 6)
    ]
    assert at_end == [{0}, set()]


def transposed(
    stride: tuple[int, int], padding: tuple[int, int], kernel: tuple[int, int], scratch: int, channels: int = 3
) -> Program:
    """A quantized_transpose_conv2d of (1, channels, 4, 5) to 2 channels."""
    height, width = ((n - 1) * s - 2 * p + k for n, s, p, k in zip((4, 5), stride, padding, kernel, strict=True))
    per_channel = rows("int32", 2)
    return of_one(
        "cortex_m::quantized_transpose_conv2d.out",
        image("int8", 1, channels, 4, 5), rows("int8", 2, *kernel, channels), None,
        stride, padding, (0, 0), (1, 1), None, None, per_channel, per_channel, None, None,
        rows("uint8", scratch), rows("uint8", 0), image("int8", 1, 2, height, width),
    )  # fmt: skip


def softmax(shift: int, dim: int = -1, *shape: int) -> Program:
    tensor = rows("int8", *(shape or (2, 5)))
    return of_one("cortex_m::softmax.out", tensor, dim, 0, -128, 1 << 30, shift, 0, tensor)


def minimum(one: tuple[int, ...], other: tuple[int, ...]) -> Program:
    out = np.broadcast_shapes(one, other)
    return of_one("cortex_m::minimum.out", rows("int8", *one), rows("int8", *other), rows("int8", *out))


CONVOLUTION = ((1, 1), (0, 0), (1, 1), None, (0, 0), None)
PER_CHANNEL = rows("int32", 4)


def convolution(weight: TensorSpec, bias: TensorSpec | None) -> Program:
    return of_one(
        "cortex_m::quantized_conv2d.out", image("int8", 1, 6, 4, 4), weight, bias, (1, 1), (0, 0), (1, 1), None, None,
        PER_CHANNEL, PER_CHANNEL, None, None, rows("uint8", 0), image("int8", 1, 4, 4, 4),
    )  # fmt: skip


def of_a_row(kernel: int, width: int, stride: int, padding: tuple[int, int], dilation: int = 1) -> Program:
    """A convolution of an image of one row and four channels, by a kernel of one row."""
    columns = (width + 2 * padding[1] - kernel) // stride + 1
    return of_one(
        "cortex_m::quantized_conv2d_nhwc.out", rows("int8", 1, 1, width, 4), rows("int8", 4, 1, kernel, 4), None,
        (1, stride), padding, (dilation, 1), None, None, PER_CHANNEL, PER_CHANNEL, None, None, rows("uint8", 0),
        rows("int8", 1, 1 + 2 * padding[0], columns, 4),
    )  # fmt: skip


# What CMSIS-NN dbf45dbfcc51 makes of them on a Cortex-M55, by tests/nightly/test_foreseen_convolutions.py.
ROWS = {
    "not padded": (of_a_row(3, 8, 1, (0, 0)), ""),
    "padded": (of_a_row(3, 8, 1, (0, 1)), ""),
    "every second column": (of_a_row(3, 9, 2, (0, 0)), ""),
    "a column too many": (of_a_row(3, 8, 2, (0, 0)), "wrongly"),
    "two columns too many": (of_a_row(3, 11, 3, (0, 0)), "refuses"),
    "padded, a column too many": (of_a_row(3, 8, 2, (0, 1)), "refuses"),
    "padded by two": (of_a_row(3, 8, 1, (0, 2)), ""),
    "padded by two, every second column": (of_a_row(3, 5, 2, (0, 2)), "wrongly"),
    "padded by two, a kernel of one": (of_a_row(1, 5, 4, (0, 2)), ""),
    "padded above and below": (of_a_row(3, 8, 1, (1, 1)), "wrongly"),
    "padded above and below, one column": (of_a_row(3, 1, 1, (1, 1)), ""),
    "a kernel of one, padded": (of_a_row(1, 8, 1, (1, 0)), "wrongly"),
    "a kernel of one": (of_a_row(1, 8, 2, (0, 0)), ""),
    "dilated along the height": (of_a_row(3, 8, 2, (0, 0), 2), "wrongly"),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("isa", Isa)
def test_a_convolution_of_a_row_that_cmsis_nn_gets_wrong_on_mve(name: str, isa: Isa) -> None:
    """Known bug 39 (docs/known_bugs.md)."""
    made, what = replace(ROWS[name][0], isa=isa), ROWS[name][1]
    assert lint(made, target(isa), operators=None, runtime="builtin") == ()
    found = lint(made, target(isa), operators=None, runtime="executorch")
    assert rules(found) == ([Rule.ARGUMENTS] if what and isa is Isa.MVE else [])
    assert all(what in one.message and one.bug == 39 and one.details == (COMPUTED_BY_BUILTIN,) for one in found)


def test_a_convolution_that_makes_no_sense_is_left_to_the_runner() -> None:
    for stride, padding in (((1, 0), (0, 0)), ((1,), (0, 0)), ((1, 1), ())):
        made = of_one(
            "cortex_m::quantized_conv2d_nhwc.out", rows("int8", 1, 1, 8, 4), rows("int8", 4, 1, 3, 4), None,
            stride, padding, (1, 1), None, None, PER_CHANNEL, PER_CHANNEL, None, None, rows("uint8", 0),
            rows("int8", 1, 1, 6, 4),
        )  # fmt: skip
        assert lint(replace(made, isa=Isa.MVE), target(Isa.MVE), operators=None, runtime="executorch") == ()


BROADCAST = image("float32", 2, 8, 5, 5), image("float32", 1, 8, 1, 1), image("float32", 2, 8, 5, 5)
ODD = TensorSpec("int8", (1, 1, 4, 4), (0, 2, 1, 3))

# What each runtime does with it: the rule it breaks, None where it is right; and a program close by that is right.
EXAMPLES: dict[str, tuple[Program, Rule | None, Rule | None, Program]] = {
    "convolution that ExecuTorch could not fuse": (
        of_one("aten::convolution.out", image("int8", 1, 3, 6, 6), image("int8", 4, 3, 3, 3), rows("int32", 4),
               *CONVOLUTION, image("int8", 1, 4, 4, 4)),
        Rule.DTYPE, Rule.DTYPE,
        of_one("aten::convolution.out", image("float32", 1, 3, 6, 6), image("float32", 4, 3, 3, 3), None,
               *CONVOLUTION, image("float32", 1, 4, 4, 4)),
    ),
    "known bug 5": (
        of_one("aten::mul.out", *BROADCAST), None, Rule.DIM_ORDER,
        of_one("aten::mul.out", BROADCAST[0], BROADCAST[0], BROADCAST[2]),
    ),
    "known bug 6": (
        of_one("aten::max_pool2d_with_indices.out", ODD, (3, 3), (2, 2), (1, 1), (1, 1), None,
               rows("int8", 1, 1, 3, 3), rows("int64", 1, 1, 3, 3)),
        None, Rule.DIM_ORDER,
        of_one("aten::max_pool2d_with_indices.out", image("int8", 1, 2, 4, 4), (3, 3), (2, 2), (1, 1), (1, 1), None,
               image("int8", 1, 2, 3, 3), image("int64", 1, 2, 3, 3)),
    ),
    "known bug 7, minimum": (
        of_one("cortex_m::minimum.out", image("int8", 1, 2, 3, 4), image("int8", 5, 2, 3, 4),
               image("int8", 5, 2, 3, 4)),
        Rule.DIM_ORDER, Rule.DIM_ORDER,
        of_one("cortex_m::minimum.out", image("int8", 5, 2, 3, 4), rows("int8"), image("int8", 5, 2, 3, 4)),
    ),
    "known bug 7, transpose": (
        of_one("cortex_m::transpose.out", image("int8", 2, 3, 4, 5), (0, 3, 1, 2), rows("int8", 2, 5, 3, 4)),
        Rule.DIM_ORDER, Rule.DIM_ORDER,
        of_one("cortex_m::transpose.out", rows("int8", 2, 3, 4, 5), (0, 3, 1, 2), rows("int8", 2, 5, 3, 4)),
    ),
    "a transpose of five dimensions": (
        of_one("cortex_m::transpose.out", rows("int8", 1, 2, 2, 4, 5), (0, 3, 1, 4, 2), rows("int8", 1, 4, 2, 5, 2)),
        Rule.ARGUMENTS, Rule.ARGUMENTS,
        of_one("cortex_m::transpose.out", rows("int8", 2, 3, 4, 5), (0, 3, 1, 2), rows("int8", 2, 5, 3, 4)),
    ),
    "known bug 1": (
        transposed((2, 3), (0, 0), (3, 2), 4 * 3 * 14 * 2), None, Rule.ARGUMENTS,
        transposed((2, 3), (0, 0), (3, 2), 4 * 3 * 15 * 2),
    ),
    "known bug 2": (
        transposed((3, 2), (1, 1), (3, 3), 4096), None, Rule.ARGUMENTS, transposed((3, 2), (3, 1), (6, 3), 4096),
    ),
    "known bug 21": (
        transposed((2, 1), (0, 0), (1, 3), 4096), None, Rule.ARGUMENTS, transposed((2, 1), (0, 0), (2, 3), 4096),
    ),
    "known bug 21, by its padding": (
        transposed((2, 1), (2, 0), (3, 3), 4096), None, Rule.ARGUMENTS, transposed((2, 1), (2, 0), (4, 3), 4096),
    ),
    "known bug 44, by its height": (
        transposed((2, 1), (1, 0), (1, 3), 64, 17), None, Rule.ARGUMENTS, transposed((2, 1), (1, 0), (2, 3), 64, 17),
    ),
    "known bug 44, by its width": (
        transposed((1, 2), (0, 3), (1, 3), 64, 17), None, Rule.ARGUMENTS, transposed((1, 2), (0, 3), (1, 4), 64, 17),
    ),
    "known bug 44, by its channels": (
        transposed((1, 1), (0, 1), (1, 1), 64, 17), None, Rule.ARGUMENTS, transposed((1, 1), (0, 1), (1, 1), 64, 16),
    ),
    "known bug 22": (
        of_one("aten::cat.out", [image("int8", 2, 3, 4, 5), image("int8", 2, 1, 4, 5)], 1, image("int8", 2, 4, 4, 5)),
        None, Rule.DIM_ORDER,
        of_one("aten::cat.out", [image("int8", 2, 3, 4, 5), image("int8", 1, 3, 4, 5)], 0, image("int8", 3, 3, 4, 5)),
    ),
    "known bug 36, flip": (
        of_one("aten::flip.out", image("float32", 2, 3, 4, 5), (2,), image("float32", 2, 3, 4, 5)),
        None, Rule.DIM_ORDER,
        of_one("aten::flip.out", rows("float32", 2, 3, 4, 5), (2,), rows("float32", 2, 3, 4, 5)),
    ),
    "known bug 36, unsqueeze": (
        of_one("aten::unsqueeze_copy.out", image("int8", 2, 3, 4, 5), 1, rows("int8", 2, 1, 3, 4, 5)),
        None, Rule.DIM_ORDER,
        of_one("aten::unsqueeze_copy.out", image("int8", 2, 3, 1, 1), 1, rows("int8", 2, 1, 3, 1, 1)),
    ),
    "known bug 36, copy": (
        of_one("aten::copy.out", image("int8", 2, 3, 4, 5), image("int8", 1, 3, 4, 5), 0, image("int8", 2, 3, 4, 5)),
        None, Rule.DIM_ORDER,
        of_one("aten::copy.out", image("int8", 2, 3, 4, 5), image("int8", 2, 3, 4, 5), 0, image("int8", 2, 3, 4, 5)),
    ),
    "known bug 36, indices of a pool": (
        of_one("aten::max_pool2d_with_indices.out", image("int8", 2, 3, 4, 4), (2, 2), (2, 2), (0, 0), (1, 1), 0,
               image("int8", 2, 3, 2, 2), rows("int64", 2, 3, 2, 2)),
        None, Rule.DIM_ORDER,
        of_one("aten::max_pool2d_with_indices.out", image("int8", 2, 3, 4, 4), (2, 2), (2, 2), (0, 0), (1, 1), 0,
               image("int8", 2, 3, 2, 2), image("int64", 2, 3, 2, 2)),
    ),
    "known bug 37": (
        of_one("aten::_softmax.out", image("float32", 2, 3, 4, 5), 3, 0, image("float32", 2, 3, 4, 5)),
        None, Rule.DIM_ORDER,
        of_one("aten::_softmax.out", rows("float32", 2, 3, 4, 5), 3, 0, rows("float32", 2, 3, 4, 5)),
    ),
    "a copy to another dim order than it names": (
        of_one("dim_order_ops::_clone_dim_order.out", rows("int8", 2, 3, 4, 5), 0, (0, 2, 3, 1),
               rows("int8", 2, 3, 4, 5)),
        Rule.DIM_ORDER, Rule.DIM_ORDER,
        of_one("dim_order_ops::_clone_dim_order.out", rows("int8", 2, 3, 4, 5), 0, (0, 2, 3, 1),
               image("int8", 2, 3, 4, 5)),
    ),
    "a copy to a dim order of the same bytes": (
        of_one("dim_order_ops::_clone_dim_order.out", rows("int8", 2, 1, 4, 5), 0, (0, 2, 3, 1),
               TensorSpec("int8", (2, 1, 4, 5), (0, 2, 1, 3))),
        None, Rule.DIM_ORDER,
        of_one("dim_order_ops::_clone_dim_order.out", rows("int8", 2, 1, 4, 5), 0, (0, 2, 3, 1),
               image("int8", 2, 1, 4, 5)),
    ),
    "a softmax shifted to the right": (
        softmax(-1), Rule.ARGUMENTS, Rule.ARGUMENTS, softmax(0),
    ),
    "a softmax shifted out": (
        softmax(32), Rule.ARGUMENTS, Rule.ARGUMENTS, softmax(31),
    ),
    "known bug 45": (
        softmax(0, 1, 2, 5, 1, 1), Rule.ARGUMENTS, Rule.ARGUMENTS, softmax(0, 3, 2, 1, 1, 5),
    ),
    "known bug 46, by its first operand": (
        minimum((4, 1, 1), (1, 4, 2, 3)), None, Rule.ARGUMENTS, minimum((1, 1, 1), (1, 4, 2, 3)),
    ),
    "known bug 46, by its second operand": (
        minimum((1, 4, 2, 1), (1, 4, 1, 1)), None, Rule.ARGUMENTS, minimum((1, 4, 1, 3), (1, 4, 1, 1)),
    ),
    "known bug 46, by its dimensions": (
        minimum((2, 1, 4, 2, 3), (2, 1, 4, 2, 3)), None, Rule.ARGUMENTS,
        minimum((1, 2, 4, 2, 3), (1, 2, 4, 2, 3)),
    ),
    "known bug 9": (
        convolution(rows("int8", 4, 1, 1, 3), None), None, Rule.ARGUMENTS,
        convolution(rows("int8", 4, 1, 1, 3), rows("int32", 4)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("runtime", ["builtin", "executorch"])
def test_what_a_runtime_gets_wrong(name: str, runtime: str) -> None:
    wrong, by_builtin, by_executorch, right = EXAMPLES[name]
    expected = by_builtin if runtime == "builtin" else by_executorch
    found = lint(wrong, target(Isa.DSP), operators=None, runtime=runtime)
    assert set(rules(found)) == ({expected} if expected else set())
    assert lint(right, target(Isa.DSP), operators=None, runtime=runtime) == ()
    elsewhere = expected not in (None, Rule.DTYPE) and by_builtin is None
    assert {COMPUTED_BY_BUILTIN in one.details for one in found} == ({elsewhere} if found else set())
    if expected is not None:
        with pytest.raises(errors.LintError, match=rf"runtime {runtime}"):
            raise_findings(found, "x")


def test_a_bug_that_the_linked_cmsis_nn_does_not_have_is_not_foreseen() -> None:
    only_2, and_21 = transposed((3, 2), (1, 1), (4, 3), 4096), transposed((3, 2), (1, 1), (3, 3), 4096)
    for program, left in ((only_2, []), (and_21, [21])):
        found = lint(program, target(Isa.DSP), operators=None, runtime="executorch", mended=[2])
        assert [one.bug for one in found] == left
        elsewhere = lint_elsewhere(program, target(Isa.DSP), runtime="builtin", mended=[2])
        assert [one.bug for one in elsewhere] == left
        assert 2 in {one.bug for one in lint(program, target(Isa.DSP), operators=None, runtime="executorch")}


@pytest.mark.slow
@pytest.mark.parametrize("shuffle", [nn.PixelShuffle(2), nn.ChannelShuffle(2)], ids=lambda one: type(one).__name__)
def test_a_view_of_a_channels_last_tensor_that_reads_another_order(shuffle: nn.Module) -> None:
    """Known bug 24 (docs/known_bugs.md). In the explicit layout, and of a flattened image, the order is right.

    There a pixel shuffle has a transpose of six dimensions, which no kernel takes.
    """
    module, images = nn.Sequential(nn.Conv2d(3, 8, 1), shuffle), torch.randn(2, 3, 4, 5)
    lowered = lower(module, (images,), isa=Isa.DSP)
    found, *_ = (one for one in lint(lowered, target(Isa.DSP), operators=None) if not one.is_note)
    assert found.rule is Rule.DIM_ORDER and "without a copy: its elements are in another order" in found.message
    assert lowered.file.values[found.value].spec is not None
    explicit = lower(module, (images,), isa=Isa.DSP, options=LoweringOptions(layout="explicit"))
    wrong = [one.message for one in lint(explicit, target(Isa.DSP), operators=None) if not one.is_note]
    assert ["6 dimensions" in message for message in wrong] == [True] * isinstance(shuffle, nn.PixelShuffle)
    flat = lower(nn.Sequential(nn.Conv2d(3, 8, 1), nn.Flatten()), (images,), isa=Isa.DSP)
    assert set(rules(lint(flat, target(Isa.DSP), operators=None))) <= NOTES


sizes = st.lists(st.integers(1, 3), min_size=1, max_size=4)


@given(st.data())
def test_a_reshape_reads_the_same_elements_in_the_same_order(data: st.DataObject) -> None:
    """Against numpy: the bytes of a tensor, read as another of as many elements."""
    shape = tuple(data.draw(sizes))
    wanted = data.draw(st.sampled_from([(int(np.prod(shape)),), (*shape, 1), (1, *shape), shape[::-1]]))
    base, view = (
        TensorSpec("int8", one, tuple(data.draw(st.permutations(range(len(one)))))) for one in (shape, wanted)
    )
    numbers = np.arange(base.numel, dtype="int8").reshape(shape)
    read = HostTensor(view, HostTensor.from_array(numbers, base.dim_order).data).array()
    assert base.reads_as(view) == (read.ravel() == np.arange(base.numel)).all()


@pytest.mark.slow
@settings(max_examples=200)
@given(data=st.data())
def test_lint_refuses_the_dtypes_and_dim_orders_that_the_runner_refuses(native: Dut, data: st.DataObject) -> None:
    original = data.draw(st.sampled_from(SEEDS)).pte
    edited = bytearray(original)
    if data.draw(st.booleans()):
        site = data.draw(st.sampled_from(dtype_sites(original)))
        number = data.draw(st.sampled_from(same_size(struct.unpack_from(site.code, original, site.at)[0])))
        struct.pack_into(site.code, edited, site.at, number)
    else:
        run = data.draw(st.sampled_from(dim_orders(original)))
        for site, dim in zip(run, data.draw(st.permutations(range(len(run)))), strict=True):
            struct.pack_into(site.code, edited, site.at, dim)
    try:
        changed = Program.from_bytes(bytes(edited))
    except errors.ProgramRejected:
        return  # two tensors that share their dim order's bytes
    findings = lint(changed, native.target, operators=None)
    # Which elements a view reads no runner asks: what lint says of that stands in tests above.
    found = tuple(one for one in findings if not one.is_note and "without a copy" not in one.message)
    try:
        flow.run(native, changed, example_inputs(changed), linted=False)
    except errors.ProgramRejected as refused:
        assert found, refused
        assert {finding.operator for finding in found} >= {refused.operator}
    else:
        assert found == ()


@pytest.mark.parametrize(
    ("dtype", "fits"),
    [
        ("uint8", True),
        ("int8", False),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (("int16", True), ("int32", True), ("float16", False))
        ),
    ],
)
def test_what_builtin_converts_lint_knows(native: Dut, dtype: str, fits: bool) -> None:
    """Pixels and samples of sound become floats; whatever lint refuses the runner does."""
    given = torch.tensor([[1.0, 2.0, 127.0]]).to(getattr(torch, dtype))
    made = lower(Apply(lambda x: x.float() / 4), (given,), isa=Isa.SCALAR, options=LoweringOptions(quantize=False))
    found = [one for one in lint(made, native.target, operators=None) if not one.is_note]
    if fits:
        assert not found
        [output] = flow.run(native, made).outputs
        assert output.array().tolist() == [[0.25, 0.5, 31.75]]
    else:
        assert found[0].rule is Rule.DTYPE and f"{dtype} does not become float32 here" in found[0].message
        assert "converted by whoever calls it" in found[0].hint
        with pytest.raises(errors.ProgramRejected, match="the operator takes"):
            flow.run(native, made, linted=False)
        assert not [one for one in lint(made, native.target, operators=None, runtime="executorch") if not one.is_note]


def test_a_pool_with_a_window_in_the_padding_alone_is_refused(native: Dut) -> None:
    """torch gives minus infinity for it, ExecuTorch zero; found by a generated network."""
    pool = Apply(lambda x: nn.functional.max_pool2d(x, (2, 2), (2, 1), (0, 1), (2, 2)))
    floats = LoweringOptions(quantize=False)
    alone, fits = (lower(pool, (torch.randn(1, 2, 4, width),), isa=Isa.SCALAR, options=floats) for width in (1, 2))
    for runtime in ("builtin", "executorch"):
        found = [one for one in lint(alone, native.target, operators=None, runtime=runtime) if not one.is_note]
        assert "a window lies in the padding alone (width: the one at -1)" in found[0].message
        assert not [one for one in lint(fits, native.target, operators=None, runtime=runtime) if not one.is_note]
    with pytest.raises(errors.ProgramRejected, match="a window lies in the padding alone"):
        flow.run(native, alone, linted=False)
    flow.run(native, fits, linted=False)


@pytest.mark.slow
@pytest.mark.parametrize(("joined", "name"), ((torch.cat, "cat"), (lambda pair: torch.minimum(*pair), "minimum")))
def test_why_a_layer_is_not_replaced_whose_neighbour_has_another_activation(joined: Any, name: str) -> None:
    layers = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3)
    one = Apply(lambda a, b, x: joined((torch.relu(a(x)), b(x))), *layers)
    both = Apply(lambda a, b, x: joined((torch.relu(a(x)), torch.relu(b(x)))), *layers)
    hints = []
    for module in (one, both):
        program = lower(module, (torch.randn(1, 3, 6, 6),), isa=Isa.DSP)
        hints.append([found.hint for found in lint(program, target(Isa.DSP), operators=None)])
    assert f"{name} gives all its inputs one quantisation" in hints[0][0]
    assert not any("one quantisation" in hint for hint in hints[1])


def _put(*indices: Any, accumulate: bool = False) -> nn.Module:
    return Apply(lambda x, new: torch.ops.aten.index_put(x, list(indices), new, accumulate))


AT = torch.tensor([0, 1])


@pytest.mark.first_only
@pytest.mark.parametrize(
    ("module", "quantize", "message", "runtimes"),
    [
        (_put(AT), True, "", ("builtin", "executorch")),
        (_put(AT, accumulate=True), False, "", ("builtin", "executorch")),
        (_put(AT, accumulate=True), True, "accumulate=True adds without scale", ("builtin", "executorch")),
        (_put(torch.tensor([True, False])), False, "the operator takes int64 or int32", ("builtin",)),
        (_put(AT, None, AT), False, "not neighbours", ("builtin",)),
        (Apply(lambda x, new: torch.max(x, 1)[0]), True, "x.amax(dim)", ("builtin", "executorch")),
    ],
    ids=["put", "sum", "sum of quantised", "mask", "apart", "largest"],
)
def test_calls_that_a_runtime_does_not_take(
    module: nn.Module, quantize: bool, message: str, runtimes: tuple[str, ...]
) -> None:
    options = LoweringOptions(quantize=quantize, layout="explicit")
    program = lower(module, (torch.randn(2, 3, 2), torch.randn(1)), isa=Isa.DSP, options=options)
    for runtime in ("builtin", "executorch"):
        found = [one for one in lint(program, target(Isa.DSP), operators=None, runtime=runtime) if not one.is_note]
        said = [f"{one.message} {next_step(one)}" for one in found]
        assert any(message in one for one in said) if message and runtime in runtimes else not said
