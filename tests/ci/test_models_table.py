"""tests/nightly/models.md is of the form that ci/models_table.py gives it, and of the models that there are.

What it says is asked again, of some of them, by tests/nightly/test_models.py.
"""

from __future__ import annotations

import unittest

import pytest

import models_table as made
from cortex_m_hil.checks.comparison.comparison_result import Comparison, Figures, Finding, FindingKind
from cortex_m_hil.errors import (
    ConfigError,
    HarnessError,
    LaunchError,
    LintError,
    LoweringError,
    Mismatch,
    OutOfTargetMemory,
    WouldFailOnExecuTorch,
)
from cortex_m_hil.errors import UnsupportedOperator as Unsupported

PAGE = made.TABLES.read_text()


def mismatch(kind: FindingKind) -> Mismatch:
    """As a comparison says it."""
    with pytest.raises(Mismatch) as raised:
        Comparison((Finding(kind, 0, "wrong"),), (Figures(),)).raise_for_verdict(target="")
    return raised.value


def rows(name: str, columns: int) -> list[list[str]]:
    found = [made.cells_of(line) for line in made.lines_of(PAGE, name)]
    assert {len(cells) for cells in found} == {columns}
    return found


def test_it_has_each_model_on_each_target_or_says_why_not() -> None:
    found: dict[tuple[str, str], list[list[str]]] = {}
    for cells in rows("models", len(made.COLUMNS)):
        found.setdefault((cells[0], cells[1]), []).append(cells)
    assert list(found) == [(one.name, one.of) for one in made.models()]
    for group in found.values():
        targets = [row[2] for row in group]
        assert (
            (len(group) == 1 and targets[0] in (made.ALL, ""))
            or targets == [*made.TARGETS]
            or targets == [*made.TARGETS, made.LARGER]
        )
        for row in group:
            obstacle = row[-1]
            assert (row[6] == "yes") == (obstacle == ""), row
            assert obstacle in ("", made.NOT_RUN) or obstacle.partition(":")[0] in made.OWNERS, row


def test_mlperf_tinys_networks_run_on_all_targets() -> None:
    ran = [row for row in rows("models", len(made.COLUMNS)) if row[1] == "MLPerf Tiny"]
    assert len(ran) == 4 * len(made.TARGETS)
    assert {(row[3], row[4], row[5], row[6]) for row in ran} == {("yes", "100 %", "100 %", "yes")}


@pytest.mark.parametrize("kind", list(made.GROUPED_TABLES))
def test_it_has_each_operator_and_each_collection_of_layers(kind: str) -> None:
    found = rows(kind, len(made.GROUPED_TABLES[kind].columns))
    assert [cells[0] for cells in found] == made.GROUPED_TABLES[kind].names()
    for name, tests, *passed, obstacles in found:
        if obstacles == made.NOT_RUN:
            continue
        assert all(0 <= int(number) <= int(tests) for number in passed), name
        assert obstacles or all(number == tests for number in passed), name


def test_the_tables_are_laid_out_as_the_script_does() -> None:
    page = PAGE
    tables = {"models": made.COLUMNS, **{kind: of.columns for kind, of in made.GROUPED_TABLES.items()}}
    for name, columns in tables.items():
        page = made.written(page, name, columns, made.lines_of(PAGE, name))
    assert page == PAGE and PAGE.count("<!-- table: ") == PAGE.count("<!-- end -->") == len(tables)
    assert " /" not in PAGE  # folders of a machine


def test_the_page_has_the_summary_of_the_tables() -> None:
    page = made.PAGE.read_text()
    assert page.count("<!-- table: summary -->") == 1 and made.summarised(page, PAGE) == page
    assert made.lines_of(page, "summary")[0] == "| MLPerf Tiny | 4 | 4 | 4 | 4 |  |"


def test_a_row_that_was_not_run_is_told() -> None:
    page = "<!-- table: models -->\n<!-- end -->\nrest\n"
    once = made.written(page, "models", ("a", "b"), ["| 1 | 2 |"])
    assert once == "<!-- table: models -->\n| a | b |\n|---|---|\n| 1 | 2 |\n<!-- end -->\nrest\n"
    assert made.lines_of(once, "models") == ["| 1 | 2 |"]


def test_neighbours_that_differ_in_their_names_alone_share_a_row() -> None:
    page, lines = (
        "<!-- table: models -->\n<!-- end -->\n",
        ["| 1 | 2 |  |", "| 3 | 2 |  |", "| 4 | 5 |  |", "| 6 | 2 |  |"],
    )
    once = made.written(page, "models", ("a", "b", "c"), lines)
    assert [line[:9] for line in once.splitlines()[3:-1]] == ["| 1, 3 | ", "| 4 | 5 |", "| 6 | 2 |"]
    assert made.lines_of(once, "models") == lines


def test_what_the_suite_skips_is_told() -> None:
    """As test_abs_extreme_values: unittest's skip, which is raised where the test is called."""

    def skipped() -> made.Module:
        raise unittest.SkipTest("NaN and Inf are not enforced for backends.")

    [row] = made.judged(made.Model("test_abs_extreme_values", "abs", skipped), {})
    assert row == made.Row(made.ALL, obstacle="suite: skipped: NaN and Inf are not enforced for backends.")


@pytest.mark.parametrize(
    ("error", "owner"),
    [
        (LoweringError("Net: export failed: x"), "exporter"),
        (LoweringError("Net: forward changes state"), "exporter"),
        (LoweringError("Net: prepare_pt2e failed: x"), "quantiser"),
        (LoweringError("Net: Cortex-M passes for DSP failed at node: x"), "pass"),
        (LintError("self is int8"), "pass"),
        (Unsupported("the runner has no aten::embedding.out"), "kernel"),
        (Unsupported("the runner has no aten::median.out, nor 2 others"), "ExecuTorch"),
        (WouldFailOnExecuTorch("quantized_conv2d: 80 bytes of scratch"), "ExecuTorch"),
        (OutOfTargetMemory("too much"), "memory"),
        (mismatch(FindingKind.QUANTA), "kernel"),
        (mismatch(FindingKind.QUANTIZED), "pass"),
        (mismatch(FindingKind.EAGER), "quantiser"),
        (Mismatch("4 of 8 elements of output 0 were never written"), "kernel"),
        (ConfigError("the module fails"), "model"),
    ],
)
def test_an_obstacle_has_an_owner(error: HarnessError, owner: str) -> None:
    assert owner in made.OWNERS
    assert made.obstacle(error) == f"{owner}: {type(error).__name__}: {error.message}"


def test_smaller_inputs_have_half_the_batch_and_then_half_the_height_and_width() -> None:
    import torch

    made_smaller, inputs = [], (torch.zeros(3, 3, 64, 80), torch.zeros(3, 1, 64, 64))
    while (smaller := made.halved(inputs)) is not None:
        inputs = smaller
        made_smaller.append([tuple(one.shape) for one in inputs])
    assert made_smaller == [[(1, 3, 64, 80), (1, 1, 64, 64)], [(1, 3, 32, 40), (1, 1, 32, 32)]]
    assert made.halved((torch.zeros(1, 400, 80),)) is None
    assert made.halved((torch.zeros(2, 4), torch.zeros(4))) is None  # which of them is a batch?


def test_an_infra_error_is_nobodys_obstacle() -> None:
    assert made.obstacle(LaunchError("no answer")) == "LaunchError: no answer"
