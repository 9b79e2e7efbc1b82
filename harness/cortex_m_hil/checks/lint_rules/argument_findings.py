"""Rules on operator arguments: the values and dtypes that each operator accepts on the runtime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cortex_m_hil.checks.lint_rules.finding import LintFinding, LintSubject, Rule
from cortex_m_hil.checks.lint_rules.hints import IN_FLOAT
from cortex_m_hil.checks.signatures.executorch_signatures import BLIND_TO_SCALES
from cortex_m_hil.checks.signatures.operator_signature import Misfit
from cortex_m_hil.checks.signatures.refused_arguments import blind_to_scales, operator_misfits, takes
from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.schema import InstructionKind, ValueKind
from cortex_m_hil.program.values import Instruction

COMPUTED_BY_BUILTIN: Final = ("builtin", "computes it rightly; only ExecuTorch does not")
_ONE_QUANTISATION: Final = 12  # known bugs
_CONSTANT_IN_FLOAT: Final = 13
_CLAMP: Final = 16
_COPY_INTO_FLOAT: Final = 31
_BRANCH: Final = 41
_ACTIVATIONS: Final = ("aten::clamp.out", "aten::hardtanh.out", "aten::relu.out")
_OF_ONE_QUANTISATION: Final = ("aten::cat.out", "cortex_m::minimum.out", "cortex_m::maximum.out")


def signatures(subject: LintSubject) -> Iterator[LintFinding]:
    file, runtime, isa = subject.file, subject.runtime, subject.target.isa
    quantised = file.dataflow.quantised_arguments
    for instruction in file.instructions:
        found = [one for one in operator_misfits(file, instruction, runtime, isa) if one.bug not in subject.mended]
        for misfit in found or blind_to_scales(file, instruction, quantised[instruction.index]):
            problem, hint, bug = misfit.problem, misfit.hint, misfit.bug
            details: tuple[tuple[str, str], ...] = ()
            if misfit.about == "dtype":
                problem, hint, bug = _of_dtype(file, instruction, misfit)
            elif runtime != "builtin" and takes(file, instruction, "builtin", isa):
                details = (COMPUTED_BY_BUILTIN,)
            text, rule = f"{problem} (runtime {runtime})", Rule(misfit.about)
            yield subject.finding(rule, text, instruction, misfit.value, hint=hint, details=details, bug=bug)


def _of_dtype(file: PteFile, instruction: Instruction, misfit: Misfit) -> tuple[str, str, int | None]:
    """Return problem (with what ExecuTorch does), next step and known bug of an argument of a wrong dtype."""
    problem, apart = misfit.problem, ""
    if instruction.operator in BLIND_TO_SCALES:
        problem += ": on integers ExecuTorch computes without their scales and zero points"
    of_tensor = misfit.value < 0 or file.values[misfit.value].kind is ValueKind.TENSOR
    if of_tensor and instruction.operator.startswith("aten::"):
        problem += ", and ExecuTorch has put no operator of cortex_m in its place"
        apart = _activation_apart(file, instruction)
    spec = file.values[misfit.value].spec if misfit.value >= 0 else None
    dtype = spec.dtype if spec is not None else ""
    if apart:
        return problem, misfit.hint or apart, _ONE_QUANTISATION
    bug = misfit.bug or _bug_of_dtype(file, instruction, dtype)
    if misfit.hint or bug:
        return problem, misfit.hint, bug
    is_users = dtype not in ("int8", "int16", "") and not instruction.operator.startswith("cortex_m::")
    return problem, "convert it before the operator: x.to(torch.float32)" if is_users else IN_FLOAT, None


def _bug_of_dtype(file: PteFile, instruction: Instruction, dtype: str) -> int | None:
    """Return the known bug that an argument of the wrong dtype comes from; None where none is known."""
    operator = instruction.operator
    if operator in ("cortex_m::minimum.out", "cortex_m::maximum.out"):
        return _CONSTANT_IN_FLOAT if "float" in dtype else None
    if dtype != "int8":
        return None
    if operator == "aten::copy.out":
        return _COPY_INTO_FLOAT
    if operator in BLIND_TO_SCALES and _is_in_branch(file, instruction):
        return _BRANCH
    return _CLAMP if operator in ("aten::hardtanh.out", "aten::relu.out") else None


def _is_in_branch(file: PteFile, instruction: Instruction) -> bool:
    jumps = (one for one in file.instructions if one.kind is InstructionKind.JUMP_FALSE)
    return any(one.index < instruction.index < one.destination for one in jumps)


def _activation_apart(file: PteFile, layer: Instruction) -> str:
    """Return a hint for a layer that stays an ATen operator because a later one shares its activation's quantisation.

    "" if that is not the reason.
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
