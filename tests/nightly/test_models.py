"""What tests/nightly/models.md says of models and operators that run in minutes: the same once more."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import models_table as made
from cortex_m_hil import OpenTarget

PAGE = made.TABLES.read_text()
SLOW = ("mobilenet_v2", "mobilenet_v3_small")  # tests/targets/models runs these
LONG = 10**9  # CPU instructions on all targets, from which on a model takes minutes


def lines_of(model: made.Model) -> list[str]:
    return [line for line in made.lines_of(PAGE, "models") if line.startswith(f"| {model.name} | {model.of} |")]


def is_short(model: made.Model) -> bool:
    """Tell whether a model runs in seconds; one whose file is too large for a target is large to lower, too."""
    rows = [dict(zip(made.COLUMNS, made.cells_of(line), strict=True)) for line in lines_of(model)]
    counts = [int(re.sub(r"\D", "", row["instructions"]) or 0) for row in rows]
    return sum(counts) < LONG and not any(row["first obstacle"].startswith(("memory", made.NOT_RUN)) for row in rows)


MODELS = [
    pytest.param(one, id=f"{one.of}/{one.name}") for one in made.models() if one.name not in SLOW and is_short(one)
]
RAN = [
    pytest.param(kind, line, id=f"{kind}/{made.cells_of(line)[0]}")
    for kind in made.GROUPED_TABLES
    for line in made.lines_of(PAGE, kind)
    if not line.endswith(f" {made.NOT_RUN} |")
]


@pytest.fixture(scope="module")
def targets() -> Iterator[dict[str, OpenTarget]]:
    with made.opened() as opened:
        yield opened


@pytest.mark.parametrize("model", MODELS)
def test_a_model_does_as_the_page_says(model: made.Model, targets: dict[str, OpenTarget]) -> None:
    found = list(made.judged(model, targets))
    lines = lines_of(model)
    if found[0].obstacle.startswith("package: ") and found[0].obstacle not in lines[0]:
        pytest.skip(f"{found[0].obstacle} here")
    assert [row.line(model) for row in found] == lines


@pytest.mark.parametrize(("kind", "line"), RAN)
def test_an_operator_or_a_collection_does_as_the_page_says(
    kind: str, line: str, targets: dict[str, OpenTarget]
) -> None:
    name = made.cells_of(line)[0]
    assert made.judged_together(name, made.GROUPED_TABLES[kind].tests(name), targets) == line
