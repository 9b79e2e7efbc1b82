"""ci/kernel_coverage.py on programs that are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.pte_reader import parse_pte
from kernel_coverage import ATTRIBUTES, gaps, main, operators
from paths import REPOSITORY

SEEDS = REPOSITORY / "tests" / "fuzz_seeds"


def seed(name: str) -> PteFile:
    return parse_pte((SEEDS / f"{name}.pte").read_bytes(), name)


def test_every_operator_is_missing_where_there_are_no_programs() -> None:
    assert list(gaps(())) == [f"{name}: no program uses it" for name in operators()]
    assert len(operators()) == len(set(operators())) >= 41
    assert set(ATTRIBUTES) <= set(operators())


def test_an_attribute_that_is_the_same_in_all_programs_is_named() -> None:
    found = list(gaps([seed("rows"), seed("conv")]))
    assert "cortex_m::quantized_linear.out: no program uses it" not in found
    assert "cortex_m::quantized_linear.out: rank is 2 in all programs" in found
    assert "cortex_m::quantized_conv2d.out: stride height is 1 in all programs" in found
    assert "cortex_m::quantized_conv2d.out: stride oblong is equal in all programs" in found


def test_an_argument_with_two_values_is_no_gap() -> None:
    wanted = "cortex_m::quantized_conv2d.out: kernel height is 3 in all programs"
    assert wanted in list(gaps([seed("conv")]))
    both = list(gaps([seed("linear"), seed("images"), seed("rows")]))
    assert not any(line.startswith("cortex_m::quantized_linear.out: input offset") for line in both)


def test_the_command_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.pte").write_bytes((SEEDS / "rows.pte").read_bytes())
    assert main(str(tmp_path)) == 1
    assert "aten::convolution.out: no program uses it" in capsys.readouterr().out
