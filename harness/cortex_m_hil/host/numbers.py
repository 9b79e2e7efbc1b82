"""Checks of numbers from users: they must be finite, and within a range."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable
from typing import TypeVar

from cortex_m_hil.errors.text import shown

Number = TypeVar("Number", int, float)


def in_range(value: object, low: float, high: float) -> float:
    """Return a number from `low` to `high` as a float.

    Raises:
        ValueError: `value` is outside the range, NaN or no number; the message tells the range.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high:
        return float(value)
    raise ValueError(f"a number from {low:.10g} to {high:.10g}, not {shown(value)}")


def ranged_number(kind: Callable[[str], Number], low: Number, high: Number) -> Callable[[str], Number]:
    """Return a `type` for an option of argparse or pytest that accepts numbers within a range.

    Args:
        kind: `int` or `float`.
        low: the least number.
        high: the largest number.
    """

    def parse(text: str) -> Number:
        number: Number | str = text
        with contextlib.suppress(ValueError):
            number = kind(text)
        try:
            in_range(number, low, high)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return kind(text)

    return parse
