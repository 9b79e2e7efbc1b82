"""The list of known bugs: the first is shown, all that it names exists, and docs/known_bugs.md is made from it.

The nightly shows one way of each; tests/nightly/test_known_bugs.py shows them in all ways.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import torch

import known_bugs_table
from cortex_m_hil import flow
from cortex_m_hil.checks.lint import raise_findings
from cortex_m_hil.checks.lint_rules.finding import LintFinding
from cortex_m_hil.checks.lint_rules.hints import next_step
from cortex_m_hil.errors import VerdictError
from cortex_m_hil.program.program import Program
from known_bugs.bugs import BUGS, THREADS, How, KnownBug, Shown
from known_bugs.next_steps import STEPS, foreseen
from known_bugs.showing import PATCHES, TARGETS, By, judge
from paths import REPOSITORY

ALL = [pytest.param(bug, id=bug.name) for bug in BUGS]
# The first way of each bug of upstream's threads that needs no firmware of its own, on one target.
CHEAP = [
    pytest.param(shown, id=bug.name)
    for bug in THREADS
    for shown in [one for one in bug.shown if one.wrong.patch is None][:1]
]


@pytest.mark.first_only
@pytest.mark.parametrize("shown", CHEAP)
def test_a_known_bug_is_caught_by_its_check(shown: Shown, tmp_path: Path) -> None:
    target = shown.shows[0]
    assert judge(target, shown.right, tmp_path) is None
    assert judge(target, shown.wrong, tmp_path) == shown.caught


def refused(program: Program, target: str) -> list[LintFinding]:
    """What builtin refuses, and then what ExecuTorch would not run as it is."""
    return [one for one in flow.findings_everywhere(program, TARGETS[target], None, "builtin") if not one.is_note]


@pytest.mark.first_only
@pytest.mark.parametrize(("key", "shown"), foreseen())
def test_the_next_step_of_what_lint_foresees_was_tried(key: str, shown: Shown) -> None:
    """As the hint says: it lowers, lint refuses it no more, and where it is to compute the same it does.

    What is accepted on builtin is what lint refuses on ExecuTorch: one marker does for both.
    """
    step, target = STEPS[key], TARGETS[shown.shows[0]]
    wrong_program, mended_program = shown.wrong.program(target.isa), step.setup.program(target.isa)
    found = refused(wrong_program, target.name)
    assert step.words in next_step(found[0])
    number = key.partition(" bug ")[2].partition(" ")[0]
    assert not number or (found[0].bug == int(number) and f"(known bug {number} of ExecuTorch)" in found[0].message)
    assert all(next_step(one) for one in found)
    if number:
        with pytest.raises(VerdictError) as caught:
            raise_findings(flow.findings(wrong_program, target, None, "executorch"), target.name)
        assert {*caught.value.causes} == {one.cause_key for one in found}
    assert refused(mended_program, target.name) == []
    if step.same:
        (wrong, inputs), (mended, _) = shown.wrong.network(), step.setup.network()
        assert torch.allclose(mended(*inputs), wrong(*inputs), atol=1e-5)


def test_every_next_step_is_one_of_a_known_bug() -> None:
    keys = [key for key, _ in foreseen()]
    assert len(set(keys)) == len(keys) and {*keys} == {*STEPS}


@pytest.mark.parametrize("bug", ALL)
def test_a_known_bug_is_shown_or_says_why_not(bug: KnownBug) -> None:
    assert bool(bug.shown or bug.shown_by) != bool(bug.why_not)
    for shown in bug.shown:
        targets = (*shown.shows, *shown.hidden)
        assert shown.shows and len({*targets}) == len(targets) and {*targets} <= {*TARGETS}
        assert shown.right is not shown.wrong and shown.right.patch is None and shown.right.compiler is None
        foreseen = not shown.wrong.runs and shown.wrong.runtime == "executorch"
        changed = shown.wrong.patch is not None or shown.wrong.compiler is not None
        assert (shown.how is not How.FORESEEN or foreseen) and (shown.how is How.PLANTED or not changed)
        assert bool(shown.caught.operator) == (shown.caught.named_by is not By.NOBODY)


@pytest.mark.parametrize("bug", ALL)
def test_the_tests_that_are_said_to_show_it_exist(bug: KnownBug) -> None:
    for test in bug.shown_by:
        path, _, name = test.partition("::")
        statements = ast.parse((REPOSITORY / path).read_text()).body
        functions = [one.name for one in statements if isinstance(one, ast.FunctionDef)]
        assert name.startswith("test_") and functions.count(name) == 1, test


def test_names_and_references_are_those_of_one_bug() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS)
    references = [reference for bug in BUGS for reference in bug.upstream]
    form = re.compile(r"pytorch/executorch#\d+|ARM-software/CMSIS-NN#\d+|known bug \d+")
    assert all(bug.upstream for bug in BUGS) and all(form.fullmatch(reference) for reference in references)


def test_every_numbered_bug_is_listed_once() -> None:
    text = (REPOSITORY / "docs" / "known_bugs.md").read_text()
    table = text[text.index("## Bugs by number") :]
    numbers = re.findall(r"^\| (\d+) \|", table, re.MULTILINE)
    listed = [reference.split()[-1] for bug in BUGS for reference in bug.upstream if reference.startswith("known bug")]
    assert len(numbers) >= 16 and sorted(listed, key=int) == numbers


def test_every_patch_is_used() -> None:
    found = sorted(PATCHES.glob("*.patch"))
    assert found and {*found} <= {shown.wrong.patch for bug in BUGS for shown in bug.shown}


def test_the_page_is_made_from_the_list() -> None:
    """Otherwise: python ci/known_bugs_table.py."""
    page = known_bugs_table.PAGE.read_text()
    assert page.count("<!-- table: ") == page.count("<!-- end -->") == 3
    assert known_bugs_table.rendered(page).splitlines() == page.splitlines()
    assert all(bug.name in page for bug in BUGS)
