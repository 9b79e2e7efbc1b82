"""Shrinks a failure: finds the smallest part of a module that fails like the test, and the largest part that passes.

A part fails like the test if its verdict has the same class and `localize` names the same operator for the same cause;
any other failure is ignored. Operators are removed first (from the end, from the beginning, one by one), then tensors
are made smaller, then digits are dropped. This is repeated while anything becomes smaller, since a part that did not
fit the target's memory fits with smaller tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from cortex_m_hil import flow, lowering
from cortex_m_hil.checks.comparison.tolerance import Tolerance
from cortex_m_hil.diagnose.localize import Cause, localize
from cortex_m_hil.errors import ConfigError, LoweringError, Mismatch, VerdictError
from cortex_m_hil.errors.text import counted
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.flow.single_run import Guards
from cortex_m_hil.host import timeouts
from cortex_m_hil.host.deadline import Deadline
from cortex_m_hil.lowering import LoweringOptions
from cortex_m_hil.program.program import Program
from cortex_m_hil.targets.cpu import Isa

PARTS: Final = 2000  # tried at most
SO_FAR: Final = "the smallest part so far"
_OF_THE_TEST: Final = "the test makes a wrong value itself, or the failure comes and goes: run the test again"
_OF_CALIBRATION: Final = (
    "a part is calibrated with its own inputs, and the test gives calibration=: "
    "its samples may be other than the inputs; or the failure comes and goes: run the test again"
)
_OF_IO: Final = "a part takes and gives floats, and the test has io=: hil localize names the operator"


@dataclass(frozen=True)
class Symptom:
    """The way in which a part fails.

    Attributes:
        verdict: the class of the verdict.
        operator: the faulty operator; "" where none is known.
        cause: why `localize` names the operator; None if the operator comes from the verdict, because `localize` was
            not run or named none.
    """

    verdict: str
    operator: str
    cause: Cause | None = None

    def __str__(self) -> str:
        why = f" ({self.cause.meaning})" if self.cause is not None else ""
        return f"{self.verdict} of {self.operator}{why}" if self.operator else self.verdict


@dataclass(frozen=True, eq=False)
class Shrunk:
    """The result of shrinking.

    Attributes:
        part: the smallest part (a `lowering.submodules.ModulePart`) that was found to fail.
        symptom: how the smallest part fails.
        passing: the largest part that passed; None without one.
        tried: how many parts were run.
        ended: whether the search is complete; False if it stopped at the budget or at `PARTS`.
    """

    part: Any
    symptom: Symptom
    passing: Any | None
    tried: int
    ended: bool


@dataclass(frozen=True)
class Judge:
    """Runs parts on a target in the same way as the test, and tells how they fail."""

    dut: Dut
    isa: Isa
    options: LoweringOptions
    tolerance: Tolerance
    linted: bool = True
    guards: Guards | None = None
    known: tuple[int | str, ...] = ()

    def __call__(self, part: Any) -> tuple[Symptom, ...]:
        """Return the symptoms of a part, none if it passes; a Mismatch has a symptom for each faulty operator.

        Raises:
            LoweringError, ConfigError: the part cannot be lowered by itself, or lint refuses it by accepted causes.
            InfraError: the target fails.
        """
        program = self._lowered(part)
        try:
            flow.verify(self.dut, program, tolerance=self.tolerance, linted=self.linted, guards=self.guards)
            if self.linted:
                flow.judge_on_executorch(self.dut, program, self.known)
        except VerdictError as error:
            if error.causes and {*error.causes} <= {*self.known}:
                raise ConfigError(error.message, hint=error.hint) from error
            return tuple(dict.fromkeys(symptoms(self.dut, program, error)))
        return ()

    def occurring(self, part: Any) -> tuple[int | str, ...]:
        """Return what occurs in a part of the known bugs and missing operators that are accepted."""
        if not (self.known and self.linted):
            return ()
        found = {one.cause_key for one in flow.findings_elsewhere(self._lowered(part), self.dut.target, "builtin")}
        return tuple(one for one in self.known if one in found)

    def _lowered(self, part: Any) -> Program:
        return lowering.lower(part.module(), part.arguments(), isa=self.isa, options=self.options)


def symptoms(dut: Dut, program: Program, error: VerdictError) -> Iterator[Symptom]:
    """Yield a symptom for each operator that `localize` names, or else one with the operator of the verdict."""
    verdict = type(error).__name__
    causes = localize(dut, program).causes if isinstance(error, Mismatch) else ()
    yield from (Symptom(verdict, row.operator, cause) for cause, row in causes)
    if not causes:
        yield Symptom(verdict, error.operator.partition(" (")[0])


def shrink(
    part: Any,
    judge: Callable[[Any], Sequence[Symptom]],
    *,
    budget: float = timeouts.SHRINKING,
    parts: int = PARTS,
    calibrated: bool = False,
    had_io: bool = False,
    told: Callable[[str], None],
    kept: Callable[[Shrunk], None] = lambda _: None,
) -> Shrunk:
    """Return the smallest part found that fails like `part`.

    If several operators are faulty, the first one is followed.

    Args:
        part: a `lowering.submodules.ModulePart`.
        judge: returns the symptoms of a part; raises LoweringError or ConfigError where the part cannot be lowered.
        budget: seconds after which no further part is tried.
        parts: how many parts are tried at most, including the whole.
        calibrated: whether the test gives calibration samples, which parts cannot use.
        had_io: whether the test lowers inputs or outputs to int8, which parts do not.
        told: called with a line for each smaller part that fails.
        kept: called with the result so far before each line, since an interrupt or an error may end the search.

    Returns:
        The smallest part, how it fails, and the largest part that passed.

    Raises:
        ConfigError: the whole module does not fail.
        InfraError: the target fails.
    """
    found = judge(part)
    if not found:
        raise ConfigError(
            "what the test lowered does not fail when it is lowered by itself",
            hint=_OF_IO if had_io else _OF_CALIBRATION if calibrated else _OF_THE_TEST,
        )
    return _Search(part, judge, found[0], Deadline.after(budget), parts, told, kept).run()


class _Search:
    def __init__(
        self,
        part: Any,
        judge: Callable[[Any], Sequence[Symptom]],
        symptom: Symptom,
        deadline: Deadline,
        parts: int,
        told: Callable[[str], None],
        kept: Callable[[Shrunk], None],
    ) -> None:
        self.part, self.symptom = part, symptom
        self._judge, self._deadline, self._parts, self._told, self._kept = judge, deadline, parts, told, kept
        self._passing: Any | None = None
        self._tried, self._ended = 1, True
        self._said = ""
        self._seen = {part.key}

    def run(self) -> Shrunk:
        whole = self.part
        while self._reduces():
            pass
        if self._passing is None:
            self._find_passing(whole)
        return self._so_far

    @property
    def _so_far(self) -> Shrunk:
        return Shrunk(self.part, self.symptom, self._passing, self._tried, self._ended)

    def _reduces(self) -> bool:
        """Try one round of reductions, and tell whether anything became smaller.

        Each accepted part has fewer operators, elements or digits, so the search ends.
        """
        before = self.part
        self._cut_end()
        self._cut_beginning()
        for propose in (self._without_each, self._smaller, self._rounder):
            while self._takes_one_of(propose()):
                pass
        return self.part is not before

    def _fails(self, part: Any | None) -> bool:
        """Tell whether a part fails like the test. A part that cannot be lowered, or fails differently, does not."""
        if part is None or (key := part.key) in self._seen:
            return False
        if self._deadline.expired or self._tried >= self._parts:
            self._ended = False
            return False
        self._seen.add(key)
        self._tried += 1
        try:
            found = self._judge(part)
        except (LoweringError, ConfigError):
            return False
        if not found and (self._passing is None or _size(part) > _size(self._passing)):
            self._passing = part
        return self.symptom in found

    def _find_passing(self, whole: Any) -> None:
        """Find the longest suffix of the whole module that passes: after the faulty operator, inputs are right."""
        for first in range(1, len(whole.steps)):
            self._fails(whole.step_range(first, len(whole.steps)))
            if self._passing is not None:
                return

    def _take(self, part: Any) -> None:
        self.part = part
        size = f"{counted(len(part.steps), 'operator')}, {counted(part.elements, 'element')}"
        if size != self._said:  # a part with fewer digits has the same size
            self._said = size
            self._kept(self._so_far)
            self._told(f"{size}: {self.symptom}")

    def _takes_one_of(self, parts: Iterator[Any]) -> bool:
        for part in parts:
            if self._fails(part):
                self._take(part)
                return True
        return False

    def _cut_end(self) -> None:
        """Take the shortest beginning that fails, found by bisection, assuming that each longer beginning fails too."""
        whole, low, high = self.part, 0, len(self.part.steps)
        while high - low > 1:
            middle = (low + high) // 2
            shorter = whole.step_range(0, middle)
            if self._fails(shorter):
                high = middle
                self._take(shorter)
            else:
                low = middle

    def _cut_beginning(self) -> None:
        whole, low, high = self.part, 0, len(self.part.steps)
        while high - low > 1:
            middle = (low + high) // 2
            shorter = whole.step_range(middle, len(whole.steps))
            if self._fails(shorter):
                low = middle
                self._take(shorter)
            else:
                high = middle

    def _without_each(self) -> Iterator[Any]:
        if len(self.part.steps) > 1:
            yield from (self.part.without_step(number) for number in reversed(range(len(self.part.steps))))

    def _smaller(self) -> Iterator[Any]:
        yield from self.part.with_smaller_tensors()

    def _rounder(self) -> Iterator[Any]:
        yield from self.part.with_fewer_digits()


def own_check(
    tolerance: Tolerance,
    options: LoweringOptions,
    *,
    linted: bool = True,
    isa: Isa | None = None,
    known: Sequence[int | str] = (),
) -> tuple[list[str], str]:
    """Return imports and body of a test that calls `hil.check` with the arguments that differ from the defaults.

    Args:
        tolerance: the tolerance of the test.
        options: the options that the part is lowered with.
        linted: whether the test lints the program.
        isa: the ISA class that the part is lowered for; None: the target's.
        known: the causes that the test accepts, and that occur in the part.
    """
    given = {one.name: getattr(tolerance, one.name) for one in fields(tolerance)}
    given |= {"lint": linted, "known": [*known], "quantize": options.quantize, "layout": options.layout}
    usual = {one.name: one.default for one in fields(tolerance)}
    usual |= {"lint": True, "known": [], "quantize": LoweringOptions.quantize, "layout": LoweringOptions.layout}
    changed = "".join(f", {name}={value!r}" for name, value in given.items() if value != usual[name])
    if isa is None:
        return [], f"hil.check({{module}}, {{inputs}}{changed})"
    return ["from cortex_m_hil import Isa"], f"hil.check({{module}}, {{inputs}}{changed}, isa=Isa.{isa.name})"


def _size(part: Any) -> tuple[int, int]:
    return len(part.steps), part.elements
