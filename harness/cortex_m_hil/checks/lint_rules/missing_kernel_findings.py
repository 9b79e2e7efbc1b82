"""Rules on the code that computes: delegates, operators that the runner lacks, and operators left in float."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from cortex_m_hil.checks import missing_operator_hints
from cortex_m_hil.checks.lint_rules.finding import LintFinding, LintSubject, Rule
from cortex_m_hil.checks.lint_rules.hints import IN_FLOAT
from cortex_m_hil.checks.signatures.executorch_signatures import BLIND_TO_SCALES
from cortex_m_hil.checks.signatures.refused_arguments import signature_of
from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.schema import InstructionKind
from cortex_m_hil.program.values import Instruction
from cortex_m_hil.targets import executorch_prefix as prefixes

_QUANTIZE: Final = "cortex_m::quantize_per_tensor.out"


def delegates(subject: LintSubject) -> Iterator[LintFinding]:
    """Yield findings about the instructions of each delegate, and about the kernels of all other instructions.

    A delegate's own data is not looked into. Every kernel is required when the program is loaded, even if it is never
    called.
    """
    file = subject.file
    places: dict[tuple[InstructionKind, str], list[int]] = {}
    for instruction in file.instructions:
        places.setdefault((instruction.kind, instruction.operator), []).append(instruction.index)
    for delegate in dict.fromkeys(file.delegates):
        at = places.get((InstructionKind.DELEGATE, delegate), [])
        what = f"{_at(at)} of {len(file.instructions)}" if at else "no call"
        theirs = f"the program needs delegate {delegate} ({what}), and {_computes(subject)} has none"
        text = f"{theirs}: lower the module without it"
        yield LintFinding(Rule.DELEGATE, text, delegate, at[0] if at else -1)
    for (kind, name), at in places.items():
        if file.delegates and kind is InstructionKind.KERNEL:
            yield LintFinding(Rule.FALLBACK_NOTE, f"{_at(at)}: {name} is not delegated, a kernel runs it", name, at[0])


def _at(instructions: Sequence[int]) -> str:
    word = "operator" if len(instructions) == 1 else "operators"
    return f"{word} {', '.join(map(str, instructions))}"


def _computes(subject: LintSubject) -> str:
    return "the runner" if subject.target.firmware is None else "your firmware"


def lacking(subject: LintSubject) -> Iterator[LintFinding]:
    """Yield a finding for each operator that the runner lacks; nothing where the runner's operators are not known.

    An operator that is missing because the runner's ExecuTorch is older than the wheel says nothing about the program.
    """
    there, is_executorch = subject.operators, subject.runtime == "executorch"
    other_release = prefixes.lacking_operators(subject.target) if is_executorch else ()
    for instruction in _each_once(subject.file):
        name = instruction.operator
        if name in other_release and (there is None or name not in there):
            hint, text = prefixes.remedy(subject.target), prefixes.lacking_operator(name)
            yield subject.finding(Rule.RELEASE, text, instruction, hint=hint)
        elif there is not None and name not in there:
            blind = _is_blind(subject.file, instruction)
            cause = "; ExecuTorch left it on quantised integers, where it knows no scale" if blind else ""
            hint = IN_FLOAT if blind else missing_operator_hints.hint(name, subject.runtime)
            yield subject.finding(Rule.OPERATOR, f"{_computes(subject)} has no {name}{cause}", instruction, hint=hint)


def lacking_in_executorch(subject: LintSubject) -> Iterator[LintFinding]:
    """Yield a finding for each operator that neither ExecuTorch's portable library nor its Cortex-M backend has.

    The list comes from the installed ExecuTorch; without one, nothing is yielded.
    """
    for instruction in _each_once(subject.file):
        if missing_operator_hints.executorch_lacks(instruction.operator):
            hint = missing_operator_hints.hint(instruction.operator, "executorch")
            yield subject.finding(Rule.OPERATOR, f"ExecuTorch has no {instruction.operator}", instruction, hint=hint)


def lacking_in_builtin(subject: LintSubject) -> Iterator[LintFinding]:
    """Yield a finding for each operator that the runtime builtin does not have."""
    for instruction in _each_once(subject.file):
        if signature_of(instruction.operator, "builtin") is None:
            yield subject.finding(Rule.OPERATOR, f"builtin has no {instruction.operator}", instruction)


def _each_once(file: PteFile) -> Iterator[Instruction]:
    """Yield the first call of each operator."""
    first: dict[str, Instruction] = {}
    for one in file.instructions:
        if one.kind is InstructionKind.KERNEL:
            first.setdefault(one.operator, one)
    yield from first.values()


def _is_blind(file: PteFile, instruction: Instruction) -> bool:
    """Tell whether an operator that ignores scales is given int8, which no runtime computes correctly."""
    tensors = [file.values[argument].spec for argument in instruction.args]
    dtypes = {spec.dtype for spec in tensors if spec is not None}
    return instruction.operator in BLIND_TO_SCALES and "int8" in dtypes


def left_in_float(subject: LintSubject) -> Iterator[LintFinding]:
    """Yield the operators that compute in float in a quantised program: right but slow. No other rule reports them."""
    instructions = subject.file.instructions
    if all(one.operator != _QUANTIZE for one in instructions):
        return
    for step in subject.program.partition.left_in_float:
        dtype = next(one for one in step.results if one.startswith("float"))
        text = f"{step.operator} computes in {dtype}: ExecuTorch left it out of the quantisation"
        yield subject.finding(Rule.FLOAT_NOTE, text, instructions[step.instruction], cause=step.why)
