"""Limits of figures, set by `fail_if` in a nightly.yaml, and the results that exceed them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from cortex_m_hil.campaigns.report.changes import Change, ChangeKind
from cortex_m_hil.campaigns.report.nightly_results import (
    FIGURES,
    PASSED,
    WORST,
    Figure,
    Key,
    Night,
    Result,
    as_text,
    combined,
    comparable_values,
    matches,
)
from cortex_m_hil.errors import did_you_mean
from cortex_m_hil.targets.target import Strict

_SHARE: Final = re.compile(r"([+-]) ?(\d+(?:\.\d+)?) ?%")


def _bound(sign: str) -> Any:
    def checked(value: object) -> object:
        is_share = isinstance(value, str) and (found := _SHARE.fullmatch(value)) and found[1] == sign
        if is_share or (isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)):
            return value
        what = f"has to be a number, or a change such as '{sign}1 %', not {value!r}"
        raise PydanticCustomError("bound", "{what}", {"what": what})

    return BeforeValidator(checked)


class FigureLimit(Strict):
    """A limit of a figure, for each test and target that the patterns name. One of `above` and `below` is given.

    A number is absolute; a text such as `+1 %` is relative to the nightly that is the baseline.
    """

    figure: str = Field(min_length=1)
    test: str = "*"
    target: str = "*"
    above: Annotated[int | float | str | None, _bound("+")] = None
    below: Annotated[int | float | str | None, _bound("-")] = None

    @model_validator(mode="after")
    def _one_bound(self) -> FigureLimit:
        if (self.above is None) == (self.below is None):
            raise PydanticCustomError("bound", "says one of above: and below:")
        return self

    @property
    def _given(self) -> int | float | str:
        given = self.above if self.above is not None else self.below
        assert given is not None
        return given

    @property
    def is_relative(self) -> bool:
        return isinstance(self._given, str)

    def names(self, key: Key) -> bool:
        return matches(key.test, key.target, self.test, self.target)

    def threshold(self, baseline: float | None) -> float | Fraction | None:
        """Return the last value that is allowed; None if the limit is relative and there is no baseline.

        Args:
            baseline: the figure in the nightly that is the baseline; None if it has no such figure.
        """
        given = self._given
        if not isinstance(given, str):
            return given
        if baseline is None or not math.isfinite(baseline):
            return baseline
        found = _SHARE.fullmatch(given)
        assert found is not None
        return Fraction(baseline) + Fraction(found[1] + found[2]) / 100 * abs(Fraction(baseline))

    def allows(self, value: float, threshold: float | Fraction) -> bool:
        """Tell whether a value is within the threshold; false if either is NaN."""
        return value <= threshold if self.above is not None else value >= threshold

    def text(self, threshold: float | Fraction) -> str:
        words = "at most" if self.above is not None else "at least"
        return f"{words} {as_text(float(threshold))}" + (f" ({self._given})" if self.is_relative else "")


def of_known_figure(limit: FigureLimit) -> FigureLimit:
    """Validate a limit in a nightly.yaml; raise PydanticCustomError for a figure that does not exist."""
    if limit.figure not in FIGURES:
        what = f"no figure {limit.figure!r}: {did_you_mean(limit.figure, FIGURES)}"
        raise PydanticCustomError("figure", "{what}", {"what": what})
    return limit


def beyond_limits(limits: Sequence[FigureLimit], old: Night | None, new: Night, *, whole: bool) -> Iterator[Change]:
    """Yield figures that exceed a limit, and limited figures that are missing for a test or for all.

    A measured figure is judged whatever the verdict is.

    Args:
        limits: the nightly's limits.
        old: the baseline of relative limits; None: there is none.
        new: the nightly to judge.
        whole: False for an incomplete nightly or a shard, where missing figures are no error.
    """
    for limit in limits:
        named = [one for key, one in new.results.items() if limit.names(key)]
        if whole and not any(one.value(limit.figure) is not None for one in named):
            yield _of_none(limit, new)
        for one in named:
            yield from _judged(limit, old.results.get(one.key) if old is not None else None, one)


def _judged(limit: FigureLimit, before: Result | None, after: Result) -> Iterator[Change]:
    values = comparable_values(before, after, limit.figure) if before is not None and not before.went_wrong else None
    was = None if values is None else combined(limit.figure, values[0])
    is_now = after.value(limit.figure)
    if values is None and after.verdict not in PASSED and limit.below is not None and limit.figure not in WORST:
        return  # the sum may lack programs that were not run
    if is_now is None and was is not None:
        yield Change(ChangeKind.MISSING, after.key, limit.figure, as_text(was), as_text(is_now))
    threshold = limit.threshold(was)
    if is_now is not None and threshold is not None and not limit.allows(is_now, threshold):
        told = as_text(was), as_text(is_now)
        yield Change(ChangeKind.LIMIT, after.key, limit.figure, *told, limit=limit.text(threshold))


def _of_none(limit: FigureLimit, night: Night) -> Change:
    known = sorted({name for one in night.results.values() for name, of in one.figures.items() if _has_number(of)})
    if limit.figure in known:
        said = "no test that it names has this figure"
    else:
        said = f"no test has this figure: {did_you_mean(limit.figure, known)}"
    key = Key("", "", *("" if pattern == "*" else pattern for pattern in (limit.test, limit.target)))
    return Change(ChangeKind.MISSING, key, limit.figure, "-", "-", limit=said)


def _has_number(values: Sequence[Figure]) -> bool:
    return any(not isinstance(value, str) for value in values)
