"""Rules on the ISA class that arguments are laid out for, and on what each operator takes on the runtime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cortex_m_hil.checks.executorch_signatures import BLIND_TO_SCALES
from cortex_m_hil.checks.layout import wrong_layout
from cortex_m_hil.checks.lint_rules.finding import HINTS, IN_FLOAT, LintFinding, LintSubject, Rule
from cortex_m_hil.checks.operator_signature import Misfit
from cortex_m_hil.checks.signatures import blind_to_scales, operator_misfits, takes
from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.schema import ValueKind
from cortex_m_hil.program.values import Instruction

_BUFFER: Final = "a constant that forward makes (torch.ones) stays float: keep it in a registered buffer"
_ACTIVATIONS: Final = ("aten::clamp.out", "aten::hardtanh.out", "aten::relu.out")
_OF_ONE_QUANTISATION: Final = ("aten::cat.out", "cortex_m::minimum.out", "cortex_m::maximum.out")


def layout(subject: LintSubject) -> Iterator[LintFinding]:
    isa = subject.target.isa
    for instruction in subject.file.instructions:
        if (wrong := wrong_layout(subject.file, instruction, isa)) is not None:
            text = f"{wrong.problem}; lower it with isa=Isa.{isa.name}"
            yield subject.finding(Rule.LAYOUT, text, instruction, wrong.value, cause=wrong.cause)


def isa_class(subject: LintSubject) -> Iterator[LintFinding]:
    known, target = subject.program.isa, subject.target
    if known is not None and known is not target.isa:
        yield LintFinding(
            Rule.ISA,
            f"the program was lowered for {known.value}, and {target.name} ({target.cpu}) is {target.isa.value}: "
            f"lower it with isa=Isa.{target.isa.name}",
        )


def signatures(subject: LintSubject) -> Iterator[LintFinding]:
    file, runtime, isa = subject.file, subject.runtime, subject.target.isa
    quantised = file.dataflow.quantised_arguments
    for instruction in file.instructions:
        found = list(operator_misfits(file, instruction, runtime, isa))
        for misfit in found or blind_to_scales(file, instruction, quantised[instruction.index]):
            if misfit.about == "dtype":
                problem, hint = _of_dtype(file, instruction, misfit)
            else:
                problem, hint = misfit.problem, misfit.hint or HINTS[Rule(misfit.about)]
                hint += "; the runtime builtin computes it" if takes(file, instruction, "builtin", isa) else ""
            text = f"{problem} (runtime {runtime})"
            yield subject.finding(Rule(misfit.about), text, instruction, misfit.value, hint=hint)


def _of_dtype(file: PteFile, instruction: Instruction, misfit: Misfit) -> tuple[str, str]:
    """Return the problem of a wrong dtype with what ExecuTorch makes of it, and the next step."""
    problem, hint = misfit.problem, misfit.hint
    if instruction.operator in BLIND_TO_SCALES:
        problem += ": on integers ExecuTorch computes without their scales and zero points"
    of_tensor = misfit.value < 0 or file.values[misfit.value].kind is ValueKind.TENSOR
    if of_tensor and instruction.operator.startswith("aten::"):
        problem += ", and ExecuTorch has put no operator of cortex_m in its place"
        hint = hint or _activation_apart(file, instruction)
    return problem, hint or _dtype_step(file, instruction, misfit.value)


def _dtype_step(file: PteFile, instruction: Instruction, value: int) -> str:
    """Return the next step for what has the wrong dtype: a constant, quantised integers or a tensor of the user's."""
    spec = file.values[value].spec if value >= 0 else None
    dtype = spec.dtype if spec is not None else ""
    if instruction.operator.startswith("cortex_m::"):
        return f"{_BUFFER}; or {IN_FLOAT}" if "float" in dtype else IN_FLOAT
    return IN_FLOAT if dtype in ("int8", "int16", "") else "convert it before the operator: x.to(torch.float32)"


def _activation_apart(file: PteFile, layer: Instruction) -> str:
    """Return a hint for a layer that stays in ATen since a later operator shares its activation's quantisation.

    "": that is not the reason.
    """
    activation = _reader(file, layer)
    sharing = _reader(file, activation) if activation is not None and activation.operator in _ACTIVATIONS else None
    if sharing is None or sharing.operator not in _OF_ONE_QUANTISATION:
        return ""
    name = sharing.operator.partition("::")[2].removesuffix(".out")
    return (
        f"{name} gives all its inputs one quantisation, and they have not the same activation: put it behind the "
        f"{name}, or behind each input"
    )


def _reader(file: PteFile, instruction: Instruction) -> Instruction | None:
    """Return the first later instruction that reads a result of this one; None where there is none."""
    data = file.dataflow
    values = set(data.written[instruction.index])
    later = file.instructions[instruction.index + 1 :]
    return next((one for one in later if values & ({*data.arguments[one.index]} - {*data.written[one.index]})), None)
