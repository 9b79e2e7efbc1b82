"""Lint: does this `.pte` fit this target? It asks before anything is run, from the file alone, without torch."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from cortex_m_hil.checks import unsupported
from cortex_m_hil.checks.advice import FEEDS, TARGET
from cortex_m_hil.checks.executorch_signatures import BLIND_TO_SCALES
from cortex_m_hil.checks.layout import wrong_layout
from cortex_m_hil.checks.signatures import blind_to_scales, operator_misfits, takes
from cortex_m_hil.errors import LintError, OutOfTargetMemory, UnsupportedOperator, VerdictError
from cortex_m_hil.program.memory_shortage import Shortage
from cortex_m_hil.program.program import Program, ScratchNeed
from cortex_m_hil.program.schema import InstructionKind, ValueKind
from cortex_m_hil.program.values import Instruction
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.model import Target


class Rule(str, Enum):
    """The subject of a finding."""

    LAYOUT = "layout"
    ISA = "isa"
    DTYPE = "dtype"
    DIM_ORDER = "dim-order"
    ARGUMENTS = "arguments"
    OUTPUT = "output"
    SCRATCH = "scratch"
    SCRATCH_NOTE = "scratch-note"
    OVERLAP = "overlap"
    OPERATOR = "operator"
    DELEGATE = "delegate"
    FALLBACK_NOTE = "fallback-note"
    FLOAT_NOTE = "float-note"
    STATE_NOTE = "state-note"
    PLANNED_POOL = "planned-pool"
    PROGRAM_POOL = "program-pool"


NOTES: Final = frozenset({Rule.SCRATCH_NOTE, Rule.FLOAT_NOTE, Rule.FALLBACK_NOTE, Rule.STATE_NOTE})
"""Rules whose findings are notes: they stop nothing."""
_UNSUPPORTED: Final = frozenset({Rule.OPERATOR, Rule.DELEGATE})
_MEMORY: Final = frozenset({Rule.PLANNED_POOL, Rule.PROGRAM_POOL})
_QUANTIZE: Final = "cortex_m::quantize_per_tensor.out"


@dataclass(frozen=True, slots=True)
class LintFinding:
    """A reason why a program does not fit a target, or a note.

    Attributes:
        rule: the subject.
        message: in words.
        operator: its name; "" where it is not about one.
        instruction: its number; -1 where it is not about one.
        value: its index; -1 where it is not about one.
        cause: why it is so; "" where that is not known.
        hint: the next step, in place of that of its rule; "" where that applies.
        details: further lines, each with its label.
    """

    rule: Rule
    message: str
    operator: str = ""
    instruction: int = -1
    value: int = -1
    cause: str = ""
    hint: str = ""  # in place of that of its rule
    details: tuple[tuple[str, str], ...] = ()  # further lines, each with its label

    @property
    def is_note(self) -> bool:
        return self.rule in NOTES


def lint(
    program: Program,
    target: Target,
    *,
    operators: Collection[str] | None,
    scratch: Sequence[ScratchNeed] = (),
    runtime: str = "builtin",
) -> tuple[LintFinding, ...]:
    """Return all findings about a program on a target.

    They are in the order layout, ISA class, outputs, views, dtypes and dim orders, scratch, plan, operators, floats,
    state, memory.

    Args:
        program: the program.
        target: the target.
        operators: the runner's list; None if unknown.
        scratch: from `lowering.scratch.scratch_needs` for the target's ISA class; empty where ExecuTorch is not
            installed.
        runtime: what will execute the program.
    """
    return (
        *_layout(program, target),
        *_isa_class(program, target),
        *_outputs(program),
        *_views(program),
        *_signatures(program, target.isa, runtime),
        *_scratch(program, target, scratch, runtime),
        *_overlaps(program),
        *_operators(program, operators, runtime),
        *_left_in_float(program),
        *_state(program),
        *_memory(program, target),
    )


def _isa_class(program: Program, target: Target) -> Iterator[LintFinding]:
    if program.isa is not None and program.isa is not target.isa:
        yield LintFinding(
            Rule.ISA,
            f"the program was lowered for {program.isa.value}, and {target.name} ({target.cpu}) is {target.isa.value}: "
            f"lower it with isa=Isa.{target.isa.name}",
        )


def _outputs(program: Program) -> Iterator[LintFinding]:
    for number, index in enumerate(program.file.outputs):
        if (value := program.file.values[index]).spec is None:
            is_none = "None" if value.kind is ValueKind.NULL else f"a {value.kind.value}"
            yield LintFinding(
                Rule.OUTPUT, f"output {number} is {is_none}, and outputs are tensors and numbers", value=index
            )


def _layout(program: Program, target: Target) -> Iterator[LintFinding]:
    for instruction in program.file.instructions:
        if (wrong := wrong_layout(program.file, instruction, target.isa)) is not None:
            text = f"{wrong.problem}; lower it with isa=Isa.{target.isa.name}"
            yield _finding(Rule.LAYOUT, text, program, instruction, wrong.value, wrong.cause)


def _signatures(program: Program, isa: Isa, runtime: str) -> Iterator[LintFinding]:
    quantised = program.file.dataflow.quantised_arguments
    for instruction in program.file.instructions:
        found = list(operator_misfits(program.file, instruction, runtime, isa))
        for misfit in found or blind_to_scales(program.file, instruction, quantised[instruction.index]):
            problem, hint = misfit.problem, misfit.hint
            is_dtype = misfit.about == "dtype"
            if is_dtype and instruction.operator in BLIND_TO_SCALES:
                problem += ": on integers ExecuTorch computes without their scales and zero points"
            of_tensor = misfit.value < 0 or program.file.values[misfit.value].kind is ValueKind.TENSOR
            if is_dtype and of_tensor and instruction.operator.startswith("aten::"):
                problem += ", and ExecuTorch has put no operator of cortex_m in its place"
                hint = hint or _activation_apart(program, instruction)
            hint = hint or (_dtype_step(program, instruction, misfit.value) if is_dtype else _HINTS[Rule(misfit.about)])
            if misfit.about != "dtype" and takes(program.file, instruction, "builtin", isa):
                hint = f"{hint}; the runtime builtin computes it"
            finding = _finding(Rule(misfit.about), f"{problem} (runtime {runtime})", program, instruction, misfit.value)
            yield replace(finding, hint=hint)


def _dtype_step(program: Program, instruction: Instruction, value: int) -> str:
    """Return the next step for what has the wrong dtype: a constant, quantised integers or a tensor of the user's."""
    spec = program.file.values[value].spec if value >= 0 else None
    dtype = spec.dtype if spec is not None else ""
    if instruction.operator.startswith("cortex_m::"):
        return f"{_BUFFER}; or {_IN_FLOAT}" if "float" in dtype else _IN_FLOAT
    return _IN_FLOAT if dtype in ("int8", "int16", "") else "convert it before the operator: x.to(torch.float32)"


_ACTIVATIONS: Final = ("aten::clamp.out", "aten::hardtanh.out", "aten::relu.out")
_OF_ONE_QUANTISATION: Final = ("aten::cat.out", "cortex_m::minimum.out", "cortex_m::maximum.out")


def _activation_apart(program: Program, layer: Instruction) -> str:
    """Return a hint for a layer that stays in ATen since a later operator shares its activation's quantisation.

    "": that is not the reason.
    """
    activation = _reader(program, layer)
    sharing = _reader(program, activation) if activation is not None and activation.operator in _ACTIVATIONS else None
    if sharing is None or sharing.operator not in _OF_ONE_QUANTISATION:
        return ""
    name = sharing.operator.partition("::")[2].removesuffix(".out")
    return (
        f"{name} gives all its inputs one quantisation, and they have not the same activation: put it behind the "
        f"{name}, or behind each input"
    )


def _reader(program: Program, instruction: Instruction) -> Instruction | None:
    """Return the first instruction that reads what another writes; None where none does."""
    data = program.file.dataflow
    values = set(data.written[instruction.index])
    later = program.file.instructions[instruction.index + 1 :]
    return next((one for one in later if values & ({*data.arguments[one.index]} - {*data.written[one.index]})), None)


def _scratch(program: Program, target: Target, needs: Sequence[ScratchNeed], runtime: str) -> Iterator[LintFinding]:
    for need in needs:
        if need.planned == need.required:
            continue
        fits = [isa.value for isa, size in need.elsewhere if size == need.planned]
        whose = f", which is what {' or '.join(fits)} needs" if fits else ""
        sizes = f"{need.planned} bytes of scratch are planned{whose}; {target.isa.value} needs {need.required}"
        instruction = program.file.instructions[need.instruction]
        if need.planned < need.required:
            text = f"{sizes}: the kernel would write past its buffer"
            yield _finding(Rule.SCRATCH, text, program, instruction, need.value)
        elif runtime == "executorch":
            text = f"{sizes}: ExecuTorch's operators refuse any other size"
            found = _finding(Rule.SCRATCH, text, program, instruction, need.value)
            yield found if fits or "depthwise" not in instruction.operator else replace(found, hint=_FILLED_UP)
        else:
            text = f"{sizes}: lowered for another ISA class?" if fits else f"{sizes}: harmless"
            yield _finding(Rule.SCRATCH_NOTE, text, program, instruction, need.value)


def _overlaps(program: Program) -> Iterator[LintFinding]:
    for overlap in program.lifetimes.overlaps():
        laid, victim = (program.file.values[value] for value in (overlap.value, overlap.victim))
        text = f"the memory plan lays value {laid.index}, {laid.spec}, over value {victim.index}, {victim.spec}"
        instruction = program.file.instructions[overlap.instruction]
        cause = "the lifetime of the second ends too early in the plan: it is read after the first is written"
        if overlap.value in program.file.dataflow.scratch:
            cause = "the first is scratch, and the second is still needed while or after the operator works in it"
        yield _finding(Rule.OVERLAP, text, program, instruction, overlap.value, cause)


def _views(program: Program) -> Iterator[LintFinding]:
    """Yield the views whose elements are in another order than those of the value they view.

    ExecuTorch makes a view without a copy, whatever the dim orders (find 24 in docs/known_bugs.md).
    """
    values = program.file.values
    for view in dict.fromkeys(program.lifetimes.views):
        of, base = values[view.value].spec, values[view.base].spec
        if of is None or base is None or (of.numel, of.dtype) != (base.numel, base.dtype) or base.reads_as(of):
            continue
        what = f"value {view.value}, {of}, is a view of value {view.base}, {base}"
        text = f"{what}, without a copy: its elements are in another order"
        if view.written >= 0:
            found = _finding(Rule.DIM_ORDER, text, program, program.file.instructions[view.written], view.value)
        else:
            found = LintFinding(Rule.DIM_ORDER, text, value=view.value)
        yield replace(found, hint=_NO_VIEW)


def _operators(program: Program, operators: Collection[str] | None, runtime: str) -> Iterator[LintFinding]:
    yield from _delegates(program)
    if operators is None:
        return
    seen: set[str] = set()
    for instruction in program.file.instructions:
        name = instruction.operator
        if instruction.kind is InstructionKind.KERNEL and name not in operators and name not in seen:
            seen.add(name)
            blind = _is_blind(instruction, program)
            cause = "; ExecuTorch left it on quantised integers, where it knows no scale" if blind else ""
            finding = _finding(Rule.OPERATOR, f"the runner has no {name}{cause}", program, instruction)
            yield replace(finding, hint=_IN_FLOAT if blind else unsupported.hint(name, runtime))


def _delegates(program: Program) -> Iterator[LintFinding]:
    """Yield findings about the instructions of each delegate, and about the kernels that run the rest.

    What a delegate's own data holds is not known. Each kernel has to be there when the program is loaded, whether it is
    reached or not.
    """
    file = program.file
    places: dict[tuple[InstructionKind, str], list[int]] = {}
    for instruction in file.instructions:
        places.setdefault((instruction.kind, instruction.operator), []).append(instruction.index)
    for delegate in dict.fromkeys(file.delegates):
        at = places.get((InstructionKind.DELEGATE, delegate), [])
        what = f"{_at(at)} of {len(file.instructions)}" if at else "no instruction"
        text = f"the program needs delegate {delegate} ({what}), and the runner has none: lower it without"
        yield LintFinding(Rule.DELEGATE, text, delegate, at[0] if at else -1)
    for (kind, name), at in places.items():
        if file.delegates and kind is InstructionKind.KERNEL:
            yield LintFinding(Rule.FALLBACK_NOTE, f"{_at(at)}: {name} is not delegated, a kernel runs it", name, at[0])


def _at(instructions: Sequence[int]) -> str:
    word = "instruction" if len(instructions) == 1 else "instructions"
    return f"{word} {', '.join(map(str, instructions))}"


def _left_in_float(program: Program) -> Iterator[LintFinding]:
    """Yield the operators that compute in float in a quantised program: right and slow, and not reported by others."""
    if all(one.operator != _QUANTIZE for one in program.file.instructions):
        return
    for step in program.partition.left_in_float:
        dtype = next(one for one in step.results if one.startswith("float"))
        text = f"{step.operator} computes in {dtype}: ExecuTorch left it out of the quantisation"
        yield _finding(Rule.FLOAT_NOTE, text, program, program.file.instructions[step.instruction], cause=step.why)


def _state(program: Program) -> Iterator[LintFinding]:
    """Yield a note about the state that the program keeps: each run begins with the initial one, a stream keeps it."""
    file = program.file
    if not file.states:
        return
    found = []
    for number, index in enumerate(file.states):
        name = program.state_names[number] if program.state_names else f"value {index}"
        unset = (
            "" if file.values[index].initial is not None else ", without an initial value: it begins with zeros here"
        )
        found.append(f"{name}, {file.values[index].spec}{unset}")
    nbytes = sum(spec.nbytes for index in file.states if (spec := file.values[index].spec) is not None)
    yield LintFinding(Rule.STATE_NOTE, f"the program has state, {nbytes} bytes: {'; '.join(found)}")


def _is_blind(instruction: Instruction, program: Program) -> bool:
    """Tell whether an operator that knows no scales is given int8: any runtime would compute something else."""
    tensors = [program.file.values[argument].spec for argument in instruction.args]
    dtypes = {spec.dtype for spec in tensors if spec is not None}
    return instruction.operator in BLIND_TO_SCALES and "int8" in dtypes


def _memory(program: Program, target: Target) -> Iterator[LintFinding]:
    board = target.board
    planned = board.planned_room(program.file.size)
    for rule, region, what, requested, available in (
        (Rule.PLANNED_POOL, "planned", "the tensors need", program.file.planned_bytes, planned),
        (Rule.PROGRAM_POOL, "program", "the program needs", program.file.size, board.program_room),
    ):
        if requested > available:
            shortage = Shortage(region, requested, available, target, program.file, program.named)
            problem, hint = f"{requested - available} too many", shortage.hint()
            if rule is Rule.PLANNED_POOL and program.size_without_redzones is not None:
                plain = program.size_without_redzones
                problem = f"red zones need {requested - available} bytes more; without them the plan takes {plain}"
                hint = f"leave the red zones out (--redzones); {hint}" if plain <= available else hint
            text = f"{what} {requested} bytes and {target.name} has {available}: {problem}"
            yield LintFinding(rule, text, hint=hint, details=tuple(shortage.details()))


def _finding(
    rule: Rule, text: str, program: Program, instruction: Instruction, value: int = -1, cause: str = ""
) -> LintFinding:
    """Return a finding about an instruction, whose message begins with where it is."""
    node = program.nodes[instruction.index] if instruction.index < len(program.nodes) else ""
    where = f"instruction {instruction.index}" + (f", {node}" if node else "")
    return LintFinding(rule, f"{where}: {text}", instruction.operator, instruction.index, value, cause)


_ERRORS: Final[tuple[tuple[type[VerdictError], frozenset[Rule]], ...]] = (
    (LintError, frozenset(Rule) - NOTES - _UNSUPPORTED - _MEMORY),
    (UnsupportedOperator, _UNSUPPORTED),
    (OutOfTargetMemory, _MEMORY),
)
UNLINTED: Final = "lint=False"
"""The way a call leaves the lint out, for hints; a command with an option for it puts that in its place."""
_LOWER_ANEW: Final = f"lower the module for this target's ISA class; {UNLINTED} runs this program as it is"
_IN_FLOAT: Final = (
    "quantize=False lowers the module in float; else change the module, so that another operator is there"
)
_BUFFER: Final = "a constant that forward makes (torch.ones) stays float: keep it in a registered buffer"
_FILLED_UP: Final = (
    "a kernel filled up with zeros to 3×3, and padding=1, computes the same; so does the runtime builtin"
)
_NO_VIEW: Final = (
    'layout="explicit" lowers some of these rightly; a pixel shuffle can be a ConvTranspose2d whose kernel is its '
    "stride, with one 1 in each filter"
)
_HINTS: Final = {
    Rule.LAYOUT: _LOWER_ANEW,
    Rule.ISA: _LOWER_ANEW,
    Rule.DTYPE: _IN_FLOAT,
    Rule.DIM_ORDER: (
        "x.contiguous() before the operator (x.reshape(x.shape) where height and width are 1), or the module with "
        'layout="explicit"; hil docs failures#what-the-lint-refuses'
    ),
    Rule.ARGUMENTS: _IN_FLOAT,
    Rule.OUTPUT: "leave it out of what forward returns: a module around yours that returns its tensors alone",
    Rule.OVERLAP: "a defect of ExecuTorch's memory planning: report it with the program",
    Rule.SCRATCH: "lower the module for this target's ISA class, with the ExecuTorch that the runner is built for",
    Rule.OPERATOR: unsupported.ELSEWHERE,
    Rule.DELEGATE: "lower the module without a partitioner for that delegate",
    Rule.PLANNED_POOL: "a larger target; hil inspect fit tells the least that a program runs in",
    Rule.PROGRAM_POOL: "a larger target; hil inspect size tells what its bytes are for",
}
"""The next step, by the rule of a finding."""


def next_step(finding: LintFinding) -> str:
    """Return the hint of a finding that stops something; "" for a note."""
    return "" if finding.is_note else finding.hint or _HINTS[finding.rule]


def explain(error: VerdictError, findings: Sequence[LintFinding]) -> None:
    """Add to a bad verdict of a run without lint what lint would have refused, and the next step.

    A layout of another class is the cause in place of one that is not known better than by the target or operator.
    """
    grave = [finding for finding in findings if not finding.is_note]
    if not grave or any(label == "lint" for label, _ in error.details):
        return
    layout = next((finding for finding in grave if finding.rule is Rule.LAYOUT), None)
    known = [(label, _by_layout(text, layout) if label == "cause" else text) for label, text in error.details]
    error.details = (*known, ("lint", would_refuse(findings)))
    error.hint = next_step(grave[0]).partition(f"; {UNLINTED}")[0]


def would_refuse(findings: Sequence[LintFinding]) -> str:
    """Return a line with the gravest finding, for a run without lint; "" where there are notes at most."""
    grave = [finding for finding in findings if not finding.is_note]
    more = f" (and {len(grave) - 1} more)" if len(grave) > 1 else ""
    return f"{grave[0].message}{more}; not asked before ({UNLINTED})" if grave else ""


def _by_layout(cause: str, layout: LintFinding | None) -> str:
    if layout is None or not (cause == TARGET.cause or cause.endswith(FEEDS)):
        return cause
    return f"the layout: {layout.message.partition('; lower it')[0]}"


def raise_findings(findings: Sequence[LintFinding], target_name: str) -> None:
    """Raise the error of the gravest findings; notes alone raise nothing.

    Its message is the first such finding; the others follow in the log.

    Raises:
        LintError: layout, dtypes, scratch and the like do not fit.
        UnsupportedOperator: else, an operator or delegate is missing.
        OutOfTargetMemory: else, memory is too small.
    """
    grave = [finding for finding in findings if not finding.is_note]
    for error, rules in _ERRORS:
        mine = [finding for finding in grave if finding.rule in rules]
        if mine:
            more = f" (and {len(grave) - 1} more)" if len(grave) > 1 else ""
            log = "\n".join(f"{finding.rule.value}: {finding.message}" for finding in findings)
            message = mine[0].message
            if error is UnsupportedOperator:
                message = "; ".join(finding.message for finding in mine)
            raise error(
                message + more,
                target=target_name,
                operator=mine[0].operator,
                details=[*([("cause", mine[0].cause)] if mine[0].cause else []), *mine[0].details],
                hint=next_step(mine[0]),
                log=log,
            )
