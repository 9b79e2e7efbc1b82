"""What tests/nightly/models.md says of models and operators that run in minutes: the same once more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import models_table as made
from cortex_m_hil import OpenTarget

PAGE = made.TABLES.read_text()
SLOW = ("mobilenet_v2", "mobilenet_v3_small")  # tests/targets/models runs these
MODELS = [pytest.param(one, id=f"{one.of}/{one.name}") for one in made.models() if one.name not in SLOW]
RAN = [
    pytest.param(kind, line, id=f"{kind}/{made.cells_of(line)[0]}")
    for kind in made.TOGETHER
    for line in made.lines_of(PAGE, kind)
    if not line.endswith(f" {made.NOT_RUN} |")
]


@pytest.fixture(scope="module")
def targets() -> Iterator[dict[str, OpenTarget]]:
    with made.opened() as opened:
        yield opened


@pytest.mark.parametrize("model", MODELS)
def test_a_model_does_as_the_page_says(model: made.Model, targets: dict[str, OpenTarget]) -> None:
    lines = [line for line in made.lines_of(PAGE, "models") if line.startswith(f"| {model.name} | {model.of} |")]
    assert [row.line(model) for row in made.judged(model, targets)] == lines


@pytest.mark.parametrize(("kind", "line"), RAN)
def test_an_operator_or_a_collection_does_as_the_page_says(
    kind: str, line: str, targets: dict[str, OpenTarget]
) -> None:
    name = made.cells_of(line)[0]
    assert made.judged_together(name, made.TOGETHER[kind].tests(name), targets) == line
