"""Numbers of options: within their range, and nothing else."""

from __future__ import annotations

import argparse
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortex_m_hil.host import timeouts
from cortex_m_hil.host.numbers import in_range, ranged_number
from cortex_m_hil.pytest_plugin import seeding


@given(st.floats(), st.floats(0.5, 1.0), st.floats(2.0, 3.0))
def test_a_number_is_within_its_range_or_refused(value: float, low: float, high: float) -> None:
    if low <= value <= high:
        assert in_range(value, low, high) == value
        return
    with pytest.raises(ValueError, match=r"^a number from .* to .*, not "):
        in_range(value, low, high)


@pytest.mark.parametrize("value", ["30", None, True, [1.0], math.nan])
def test_what_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="a number from 0 to 100"):
        in_range(value, 0, 100)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e308", "0", "-1", "abc", "", "1000.1"])
def test_time_multipliers_out_of_range_are_refused(text: str) -> None:
    parse = ranged_number(float, *timeouts.MULTIPLIERS)
    assert parse("0.01") == 0.01 and parse("1e3") == 1000.0
    with pytest.raises(argparse.ArgumentTypeError, match=r"a number from 0\.01 to 1000, not"):
        parse(text)


@pytest.mark.parametrize("text", ["nan", "1.5", "-1", "4294967296", "0x10", "x"])
def test_seeds_out_of_range_are_refused(text: str) -> None:
    parse = ranged_number(int, 0, seeding.HIGHEST)
    assert parse("0") == 0 and parse("4294967295") == seeding.HIGHEST
    with pytest.raises(argparse.ArgumentTypeError, match="a number from 0 to 4294967295, not"):
        parse(text)
