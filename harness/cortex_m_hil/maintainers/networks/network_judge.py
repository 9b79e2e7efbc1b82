"""Judge of generated programs: outputs are compared with the dialect, and with other targets and runtimes.

A relation (`Relation`) needs no reference: it is a change of the module that the quantised program's outputs must
follow exactly. Where the changed module is quantised differently, as rounding in the observers can cause, nothing is
compared.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cortex_m_hil import flow, lowering
from cortex_m_hil.checks.comparison.comparison_result import FindingKind
from cortex_m_hil.checks.comparison.tolerance import NO_SQNR, Tolerance
from cortex_m_hil.diagnose.compare_runtimes import compare_runtimes
from cortex_m_hil.diagnose.lifetime_check import WatchedMemory
from cortex_m_hil.diagnose.shrink import symptoms
from cortex_m_hil.errors import (
    ConfigError,
    HarnessError,
    LintError,
    LoweringError,
    OutOfTargetMemory,
    ToolchainError,
    UnsupportedOperator,
    VerdictError,
    WouldFailOnExecuTorch,
)
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.lowering import Exported, Layout, LoweringOptions
from cortex_m_hil.maintainers.networks.kernel_lines import RUNTIME, KernelLines
from cortex_m_hil.maintainers.networks.known_defects import known_defect_of
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.schema import InstructionKind, ValueKind
from cortex_m_hil.program.tensor import Array
from cortex_m_hil.runner.run_results import RunResult
from cortex_m_hil.targets.cpu import Isa

if TYPE_CHECKING:
    from cortex_m_hil.maintainers.networks.compiler_lines import Lowered

REFUSALS: Final = (LintError, UnsupportedOperator, OutOfTargetMemory, ToolchainError)
"""Errors without a run, for programs that are known not to work here: they are counted, but are no failures."""

QUANTISED: Final = Tolerance(eager_sqnr=NO_SQNR)  # a coarse quantisation is no defect of a runtime
FLOAT: Final = Tolerance(atol=1e-4, rtol=1e-4, eager_sqnr=NO_SQNR)
REASON: Final = 200  # characters of the reason for a refusal at most
_TENSOR: Final = r"\w+ is \w+\[[\d, ]*\](?: dim order \[[\d, ]*\])?"
_TENSORS: Final = re.compile(rf": {_TENSOR}(?:, {_TENSOR})*(?:,[^()]*…)?(?= \()")  # tensors in a lint message
LARGE: Final = 1 << 16  # an integer argument from this value on is taken for a multiplier, not a size


@dataclass(frozen=True)
class Checks:
    """The options with which a program is lowered, and the checks to make.

    Attributes:
        layout: the layout that it is lowered for.
        quantize: whether it is quantised.
        redzones: whether memory plans have red zones, which are watched.
        relation: the relation that is checked besides the outputs, "" for none.
    """

    layout: Layout = "channels_last"
    quantize: bool = True
    redzones: bool = False
    relation: str = ""

    @property
    def options(self) -> LoweringOptions:
        return LoweringOptions(quantize=self.quantize, redzones=self.redzones, layout=self.layout)

    @property
    def tolerance(self) -> Tolerance:
        return QUANTISED if self.quantize else FLOAT


@dataclass(frozen=True)
class Disagreement:
    """A disagreement of outputs with the dialect, another target, another runtime or a relation.

    Attributes:
        kind: the class of the verdict with the kind of its first finding (`Mismatch quanta`), `targets differ`,
            `runtimes differ`, or `relation batch`.
        operator: the faulty operator, "" where none is known.
        places: the targets with their runtimes, as `m4-qemu builtin`.
        known: the bug of docs/known_bugs.md that explains it, in words and with its number; "" for a new one.
    """

    kind: str
    operator: str
    places: tuple[str, ...]
    message: str
    known: str = ""


@dataclass
class NetworkJudgement:
    """The results of one program. A place is a target with a runtime, as `m4-qemu builtin`.

    Attributes:
        passed: places where the program ran and was right.
        refused: by place, why the program was not run.
        would_fail: by place with runtime builtin, where it was right, why it would fail on ExecuTorch.
        departed: by place, deviations from fake-quant that rounding does not explain. They are no failures: the bound
            by disturbed runs is an estimate, and a steep table or a division amplifies a quantum.
        relation: the result of the relation by place: `holds`, `fails`, or why it was not checked.
        operators: the programs' operators by ISA class.
        reached: lines and decisions of the compiler (`compiler_lines`), and lines of kernels (`kernel_lines`).
    """

    passed: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    would_fail: dict[str, str] = field(default_factory=dict)
    departed: dict[str, str] = field(default_factory=dict)
    failures: list[Disagreement] = field(default_factory=list)
    relation: dict[str, str] = field(default_factory=dict)
    operators: dict[str, list[str]] = field(default_factory=dict)
    reached: frozenset[str] = frozenset()


def place_of(dut: Dut) -> str:
    return f"{dut.resolved.name} {dut.resolved.runtime}"


@dataclass(frozen=True)
class NetworkAttempt:
    """The result of one run of a program, or the verdict that it ended with.

    Attributes:
        error: for a run that was right, the verdict that it would fail on ExecuTorch, if it would.
        kind: the kind of the first finding of the comparison, "" for none.
        departed: a deviation from fake-quant that is no verdict, as in `NetworkJudgement`.
    """

    result: RunResult | None
    error: VerdictError | ToolchainError | None = None
    kind: str = ""
    departed: str = ""


def attempt(dut: Dut, program: Program, checks: Checks) -> NetworkAttempt:
    """Lint and run a program, and compare its outputs with the dialect. Raise infra errors but those of `REFUSALS`."""
    guards = WatchedMemory if checks.redzones else None
    seen: list[flow.Checked] = []
    try:
        flow.verify(dut, program, tolerance=checks.tolerance, guards=guards, observe=seen.append)
        flow.judge_on_executorch(dut, program)
    except WouldFailOnExecuTorch as error:
        return NetworkAttempt(seen[0].result, error)
    except (VerdictError, ToolchainError) as error:
        kinds = [one.kind for one in seen[0].comparison.errors] if seen else []
        if checks.quantize and kinds and set(kinds) == {FindingKind.QUANTIZED}:
            return NetworkAttempt(seen[0].result, departed=error.message)
        return NetworkAttempt(None, error, kinds[0].value if kinds else "")
    return NetworkAttempt(seen[0].result)


class ModelJudge:
    """A judge that lowers each `lowering.submodules.ModulePart` once for each ISA class, and runs it on each Dut."""

    def __init__(self, duts: Sequence[Dut], kernels: Mapping[str, KernelLines] | None = None) -> None:
        """Store the Duts to judge on.

        Args:
            duts: the Duts. Those with the runtime of the first Dut are compared with each other across targets; each
                other Dut is compared with the first runtime on its own target.
            kernels: by target, runners that count the lines of the kernels that a program executes.
        """
        self.duts, self._kernels = tuple(duts), kernels or {}
        self.isas = tuple(dict.fromkeys(dut.target.isa for dut in duts))

    def judge(self, part: Any, checks: Checks) -> NetworkJudgement:
        """Lower a part, run it on each Dut and return the results. Raise infra errors: then the part is not judged."""
        from cortex_m_hil.maintainers.networks.compiler_lines import lower_and_trace

        judged = NetworkJudgement()
        try:
            exported = lowering.export(part.module(), part.arguments(), checks.layout)
        except LoweringError as error:
            judged.refused = dict.fromkeys(map(place_of, self.duts), reason(error))
            return judged
        lowered = lower_and_trace(exported, self.isas, checks.options)
        judged.reached = lowered.reached
        judged.operators = {
            isa.value: sorted({one.operator for one in program.file.instructions if one.operator})
            for isa, program in lowered.programs.items()
        }
        programs = dict(self._programs(exported, lowered, checks, judged))
        ran = dict(self._ran(programs, checks, judged))
        judged.failures += _differing(ran, programs)
        for dut in ran:
            if dut.resolved.runtime == RUNTIME and (kernels := self._kernels.get(dut.resolved.name)) is not None:
                judged.reached |= kernels.executed(programs[dut])
        if checks.relation and not judged.failures:
            self._relate(part, checks, programs, ran, judged)
        return judged

    def _programs(
        self, exported: Exported, lowered: Lowered, checks: Checks, judged: NetworkJudgement
    ) -> Iterator[tuple[Dut, Program]]:
        """Yield the program for each Dut, planned for its banks; record the reason if there is none."""
        for dut in self.duts:
            error: HarnessError | None = lowered.refused.get(dut.target.isa)
            if error is None:
                try:
                    program = _planned_for(dut, exported, lowered.programs[dut.target.isa], checks)
                except REFUSALS as refusal:
                    error = refusal
            if error is None:
                yield dut, program
            else:
                judged.refused[place_of(dut)] = reason(error)

    def _ran(
        self, programs: Mapping[Dut, Program], checks: Checks, judged: NetworkJudgement
    ) -> Iterator[tuple[Dut, RunResult]]:
        for dut, program in programs.items():
            tried = attempt(dut, program, checks)
            if isinstance(tried.error, REFUSALS):
                judged.refused[place_of(dut)] = reason(tried.error)
            elif tried.error is not None and tried.result is None:
                judged.failures.append(_failure(dut, program, tried))
            elif tried.result is not None:
                judged.would_fail |= {place_of(dut): reason(tried.error)} if tried.error is not None else {}
                judged.passed.append(place_of(dut))
                judged.departed |= {place_of(dut): tried.departed} if tried.departed else {}
                yield dut, tried.result

    def _relate(
        self,
        part: Any,
        checks: Checks,
        programs: Mapping[Dut, Program],
        ran: Mapping[Dut, RunResult],
        judged: NetworkJudgement,
    ) -> None:
        relation = Relation(part, checks)
        for dut in ran:
            try:
                told = relation.told(dut, programs[dut])
            except (LoweringError, *REFUSALS) as error:
                told = f"refused: {reason(error)}"
            except VerdictError as error:
                told = f"fails: {error.message}"
            judged.relation[place_of(dut)] = told.partition(":")[0]
            if told.startswith("fails"):
                operator = relation.at_fault(dut)
                judged.failures.append(Disagreement(f"relation {checks.relation}", operator, (place_of(dut),), told))


def _planned_for(dut: Dut, exported: Exported, program: Program, checks: Checks) -> Program:
    """Return a program with a memory plan for the banks of a target; its own where there is one bank."""
    banks = dut.target.board.memory.banks
    if len(banks) == 1:
        return program
    return lowering.lower(exported, isa=dut.target.isa, options=replace(checks.options, banks=banks))


def reason(error: HarnessError) -> str:
    """Return why a program is refused, in one line."""
    said = error.message
    if isinstance(error, LoweringError):  # the stage, and the last of the causes in the message
        stage, _, cause = said.partition(": ")[2].partition(" failed")
        said = f"{stage}: {cause.rpartition('; from ')[2].removeprefix(': ')}"
    operator = error.operator.partition(" (")[0]
    short = textwrap.shorten(said.splitlines()[0], REASON, placeholder=" …")
    return f"{type(error).__name__}: {short}" + (f" ({operator})" if operator else "")


def kind_of_reason(why: str) -> str:
    """Return a reason without ISA class, tensors and numbers, which is the same for all programs refused for it."""
    why = re.sub(f" for ({'|'.join(isa.value for isa in Isa)}):", ":", why)
    why = _TENSORS.sub("", why)
    why = re.sub(r"(?<=_default)_\d+", "", why)
    why = re.sub(r" at node %?\w+| at [^ ]+:\d+", "", why)
    return re.sub(r"\[[-\d., ]*\]|-?\d+(\.\d+)?(e-?\d+)?", "N", why)


def _failure(dut: Dut, program: Program, tried: NetworkAttempt) -> Disagreement:
    error = tried.error
    assert isinstance(error, VerdictError)
    operator = next(symptoms(dut, program, error)).operator
    kind = f"{type(error).__name__} {tried.kind}".strip()
    return _told(Disagreement(kind, operator, (place_of(dut),), error.message), dut)


def _told(failure: Disagreement, dut: Dut) -> Disagreement:
    """Return the failure with the known bug that explains it added, if there is one."""
    known = known_defect_of(failure.kind, failure.operator, dut.resolved.runtime, dut.target.isa)
    return replace(failure, known=known)


# --- targets and runtimes against each other ------------------------------------------------------------------


def _differing(ran: Mapping[Dut, RunResult], programs: Mapping[Dut, Program]) -> Iterator[Disagreement]:
    """Yield failures where outputs of targets or runtimes differ although each is right by the dialect.

    This is possible where the tolerance allows one quantum from the dialect.
    """
    if not ran:
        return
    runtime = next(iter(ran)).resolved.runtime
    own = [dut for dut in ran if dut.resolved.runtime == runtime]
    for other in own[1:]:
        if not _equal(ran[own[0]], ran[other]) and (runtime == "builtin" or _is_exact(programs[other])):
            yield Disagreement("targets differ", "", (place_of(own[0]), place_of(other)), "the outputs differ")
    for dut in (dut for dut in ran if dut.resolved.runtime != runtime):
        first = next((one for one in own if one.resolved.name == dut.resolved.name), None)
        program = programs[dut]
        if first is not None and _is_exact(program) and not _equal(ran[first], ran[dut]):
            found = next(filter(None, compare_runtimes(first, dut, program, program.inputs)), None)
            operator = found.operator.partition(" (")[0] if found else ""
            places = place_of(first), place_of(dut)
            failure = Disagreement("runtimes differ", operator, places, str(found or "the outputs differ"))
            yield _told(failure, dut)


def _equal(one: RunResult, other: RunResult) -> bool:
    return all(mine.data == theirs.data for mine, theirs in zip(one.outputs, other.outputs, strict=True))


def _is_exact(program: Program) -> bool:
    """Tell whether a program uses floats only to quantise and dequantise.

    Other float kernels may differ between runtimes, which add numbers in different orders.
    """
    file = program.file
    for instruction in file.instructions:
        if instruction.kind is InstructionKind.KERNEL and "quantize_per_tensor" not in instruction.operator:
            specs = (file.values[at].spec for at in instruction.args)
            if any(spec and spec.kind is ValueKind.TENSOR and spec.dtype.startswith("float") for spec in specs):
                return False
    return True


# --- relations -----------------------------------------------------------------------------------------------


class Relation:
    """A module, a changed module that is made from it, and the relation that must hold between their outputs."""

    def __init__(self, part: Any, checks: Checks) -> None:
        self._part, self._checks = part, checks
        self._exported: Any = None

    def told(self, dut: Dut, program: Program) -> str:
        """Return `holds`, `fails: …`, or why the relation was not checked. Raise verdicts of the changed program."""
        return {
            "batch": self._batch, "permutation": self._permutation, "padding": self._padding, "layout": self._layout,
        }[self._checks.relation](dut, program)  # fmt: skip

    def at_fault(self, dut: Dut) -> str:
        """Return the operator of the changed program that differs from the dialect, "" if none does."""
        if self._exported is None:
            return ""
        program = self._lowered_for(dut)
        tried = attempt(dut, program, replace(self._checks, redzones=False))
        failed = isinstance(tried.error, VerdictError) and tried.result is None
        return _failure(dut, program, tried).operator if failed else ""

    def _batch(self, dut: Dut, program: Program) -> str:
        """Compare a run of a batch of two with two runs of its items.

        The batch is calibrated with the same numbers twice, so that its ranges are the same.
        """
        from cortex_m_hil.maintainers.networks.recipe_part import other_inputs, with_batch

        others = other_inputs(self._part)
        if (changed := with_batch(self._part, others)) is None:
            return "does not apply"
        part, both = changed
        if (other := self._lowered(part, dut, self._checks.layout)) is None:
            return "does not apply"
        if not _quantised_alike(program, other):
            return "quantised differently"
        single = [self._outputs(dut, program, given) for given in (self._part.arguments(), others)]
        whole = [np.concatenate(pair) for pair in zip(*single, strict=True)]
        return _compared(whole, self._outputs(dut, other, both))

    def _permutation(self, dut: Dut, program: Program) -> str:
        """Compare with a module whose last layer's output channels are reversed: its outputs must be reversed too."""
        from cortex_m_hil.maintainers.networks.recipe_part import channel_dim, with_channels_reversed

        dim = channel_dim(self._part)
        return self._changed(dut, program, with_channels_reversed(self._part), lambda one: np.flip(one, dim))

    def _padding(self, dut: Dut, program: Program) -> str:
        """Compare with a module that pads the image with zeros by a separate operator: its outputs must be the same."""
        from cortex_m_hil.maintainers.networks.recipe_part import with_padding_apart

        return self._changed(dut, program, with_padding_apart(self._part))

    def _layout(self, dut: Dut, program: Program) -> str:
        """Compare with the module lowered for the other layout: its outputs must be the same."""
        other: Layout = "explicit" if self._checks.layout == "channels_last" else "channels_last"
        return self._changed(dut, program, self._part, layout=other)

    def _changed(
        self, dut: Dut, program: Program, part: Any, expected: Any = lambda one: one, layout: Layout | None = None
    ) -> str:
        if part is None or (other := self._lowered(part, dut, layout or self._checks.layout)) is None:
            return "does not apply"
        if not _quantised_alike(program, other):
            return "quantised differently"
        given = self._part.arguments()
        wanted = [expected(one) for one in self._outputs(dut, program, given)]
        return _compared(wanted, self._outputs(dut, other, given))

    def _lowered(self, part: Any, dut: Dut, layout: Layout) -> Program | None:
        if self._exported is None:
            try:
                self._exported = lowering.export(part.module(), part.arguments(), layout)
            except ConfigError:  # the changed module does not run, since it contains a fixed shape
                return None
        return self._lowered_for(dut)

    def _lowered_for(self, dut: Dut) -> Program:
        options = LoweringOptions(banks=dut.target.board.memory.banks)
        return lowering.lower(self._exported, isa=dut.target.isa, options=options)

    def _outputs(self, dut: Dut, program: Program, inputs: Sequence[Any]) -> list[Array]:
        given = flow.arrange(program, [value.numpy() for value in inputs])
        return [output.array() for output in flow.run(dut, program, given).outputs]


def _compared(wanted: Sequence[Array], got: Sequence[Array]) -> str:
    for number, (one, other) in enumerate(zip(wanted, got, strict=True)):
        if one.shape != other.shape:
            return f"fails: output {number} has shape {list(other.shape)}, and {list(one.shape)} without the change"
        if differing := int((one != other).sum()):
            return f"fails: {differing} of {one.size} elements of output {number} differ"
    return "holds"


def _quantised_alike(one: Program, other: Program) -> bool:
    """Tell whether both programs compute with integers only and with the same scales, which their multipliers show."""
    return _is_exact(one) and _is_exact(other) and _scales(one) == _scales(other)


def _scales(program: Program) -> frozenset[object]:
    file = program.file
    found: set[object] = set()
    for instruction in file.instructions:
        for at in instruction.args if instruction.kind is InstructionKind.KERNEL else ():
            value = file.values[at]
            if isinstance(value.scalar, float) or (type(value.scalar) is int and abs(value.scalar) >= LARGE):
                found.add(value.scalar)
            elif (constant := file.constant(at)) is not None and constant.spec.dtype == "int32":
                found.add(tuple(sorted(constant.array().flatten().tolist())))
    return frozenset(found)
