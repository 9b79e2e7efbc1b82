"""What changed is told once, wherever it shows: with its tests and targets, and in percent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cortex_m_hil.campaigns.report.change_groups import groups, values
from cortex_m_hil.campaigns.report.changes import Change, ChangeKind, FigureShare, changes, programs
from cortex_m_hil.campaigns.report.nightly_results import Key, Night, Result, by_key
from cortex_m_hil.cli.change_lines import lines_of_changes
from cortex_m_hil.errors.text import change_in_percent
from cortex_m_hil.runner.run_results import Verdict

TARGETS = {"m4-qemu": 1_091_233, "m7-qemu": 1_091_233, "m0-qemu": 3_000_000, "m55-qemu": 400_000}
SHARED = ("test_a.py::test_one", "test_a.py::test_two", "test_b.py::test_three")


def result(test: str, target: str, more: int = 0, content: str = "", **changed: object) -> Result:
    count = TARGETS[target] + more
    whole = Result(
        Key("tests", "builtin", test, target), target, "QEMU", Verdict.PASS, figures={"instructions": (count,)},
        parts={"instructions": {"conv": 1000 + more, "linear": count - more - 1000}},
        about={"program": (content,)} if content else {},
    )  # fmt: skip
    return replace(whole, **changed)  # type: ignore[arg-type]


def night(*results: Result, commit: str = "c1") -> Night:
    return Night("1", commit, False, 0.0, {}, True, by_key(results))


def told(old: Night, new: Night) -> list[Change]:
    names = programs(new)
    return [replace(one, program=names[one.key]) for one in changes(old, new)]


def test_one_regression_is_one_entry_with_all_tests_and_targets() -> None:
    """It was told once for each target; of three tests on several, so, many times."""
    old, new = (
        night(*(result(test, target, more) for test in SHARED for target in TARGETS), commit=commit)
        for more, commit in ((0, "c1"), (546, "c2"))
    )
    [group] = groups(told(old, new))
    assert len(group.changes) == 12 and {row.change.key.test for row in group.rows} == {*SHARED}
    [_, line] = lines_of_changes(group.changes, "nightly 1", "hil results compare 1 2")
    assert "conv +546" in line and "more tests" in line
    every = "\n".join(lines_of_changes(group.changes, "nightly 1"))
    for test in SHARED:
        assert f"1091233 → 1091779: +546, +0.05 % {test} [m4-qemu, m7-qemu]" in every.replace(" (conv +546)", "")
        assert sum(test in line for line in every.splitlines()) == 3  # three counts on four targets


def test_a_regression_is_one_where_the_lesser_operators_differ_by_target() -> None:
    """It was told once for each target, though one kernel had nearly all of it."""
    [one] = night(result(SHARED[0], "m4-qemu")).results.values()
    lesser = replace(one, parts={"instructions": {"conv": 1000, "relu": 5, "linear": TARGETS["m4-qemu"] - 1005}})
    grown = {"m4-qemu": {"conv": 1500, "relu": 6}, "m7-qemu": {"conv": 1500, "relu": 5}}
    old, new = [], []
    for target, parts in grown.items():
        key, rest = replace(one.key, target=target), lesser.parts["instructions"]["linear"]
        old.append(replace(lesser, key=key))
        figures = {"instructions": (rest + sum(parts.values()),)}
        new.append(replace(lesser, key=key, figures=figures, parts={"instructions": {**parts, "linear": rest}}))
    [group] = groups(told(night(*old), night(*new, commit="c2")))
    assert len(group.changes) == 2
    assert group.causes == ["m4-qemu: conv +500, relu +1", "m7-qemu: conv +500"]  # the figures of each target
    [apart] = groups([one for one in group.changes if one.key.target == "m7-qemu"])
    assert apart.causes == ["conv +500"]


def moved(key: Key, before: int, after: int, by: int) -> Change:
    return Change(ChangeKind.SLOWER, key, "instructions", f"{before}", f"{after}", (FigureShare("conv", 10, 10 + by),))


def test_the_largest_relative_change_leads_and_each_target_has_its_own_cause() -> None:
    """A network that is 0.7 % slower hid a layer that is 15 % slower, and a target showed the causes of another."""
    key = Key("tests", "builtin", "t::net", "m4-qemu")
    layer, on_m0 = replace(key, test="t::layer"), replace(key, target="m0-qemu")
    found = [moved(key, 200_000, 203_000, 3000), moved(layer, 1000, 1150, 150), moved(on_m0, 500_000, 504_000, 4000)]
    [group] = groups(found)
    assert group.rows[0].test == "t::layer"
    assert [(one.targets, one.by, one.causes) for one in group.by_target] == [
        ("m4-qemu", "up to +15 %", "conv +150"),
        ("m0-qemu", "+4000, +0.8 %", "conv +4000"),
    ]
    lines = [*lines_of_changes(found, "nightly 1")][1:]
    assert "1000 → 1150: +150, +15 % (conv +150) t::layer [m4-qemu]" in lines[0]
    assert "    and 500000 → 504000: +4000, +0.8 % (conv +4000) t::net [m0-qemu]" in lines


def test_decibels_and_shares_have_no_percentage() -> None:
    key = Key("tests", "builtin", "t", "m4-qemu")
    less = Change(ChangeKind.LESS_ACCURATE, key, "sqnr_db", "43.2", "40.4")
    assert values(less) == "43.2 → 40.4: -2.8 dB" and less.share == pytest.approx(0.905, abs=0.001)
    assert values(replace(less, after="inf")) == "43.2 → inf: +inf dB" and replace(less, after="inf").share == 0
    assert values(Change(ChangeKind.LIMIT, key, "sqnr_db", "43.2", "40.4")) == "43.2 → 40.4: -2.8 dB"
    share = Change(ChangeKind.LESS_CORTEX_M, key, "cortex_m_macs", "1", "0.875")
    assert values(share) == "100 % → 87.5 %: -12.5 percentage points"


def test_a_failure_of_a_program_is_one_entry_for_all_tests_that_run_it_on_all_targets() -> None:
    wrong = {"verdict": Verdict.FAIL, "error": "Mismatch", "figures": {}, "parts": {}}
    content = dict(zip(SHARED, ("aa", "aa", "bb"), strict=True))
    old = night(*(result(test, target) for test in SHARED for target in TARGETS))
    new = night(
        *(
            # the content is known on one target; elsewhere it did not run
            result(test, target, 0, content[test] if target == "m4-qemu" else "", **wrong)
            for test in SHARED
            for target in TARGETS
        ),
        commit="c2",
    )
    one, other = groups(told(old, new))
    assert {row.change.key.test for row in one.rows} == {*SHARED[:2]} and len(one.changes) == 8
    assert [row.where for row in other.rows] == [f"{SHARED[2]} [m0-qemu, m4-qemu, m55-qemu, m7-qemu]"]


def test_what_differs_in_cause_is_told_apart() -> None:
    key = Key("tests", "builtin", "t", "m4-qemu")
    on_m0 = replace(key, target="m0-qemu")
    apart = [
        Change(ChangeKind.SLOWER, key, "cycles", "all tests", "+3.0 %"),
        Change(ChangeKind.SLOWER, on_m0, "cycles", "all tests", "+3.0 %"),
        Change(ChangeKind.NEW_FAILURE, key, "", "pass", "FAIL Mismatch"),
        Change(ChangeKind.NEW_FAILURE, on_m0, "", "pass", "FAIL TargetFault"),
        Change(ChangeKind.UNCOVERED, replace(key, test=""), "a.cpp", "covered", "not 1"),
        Change(ChangeKind.UNCOVERED, replace(on_m0, test=""), "a.cpp", "covered", "not 2"),
        Change(ChangeKind.NEW_FAILURE, replace(key, runtime="executorch"), "", "pass", "FAIL Mismatch"),
    ]
    assert len(groups(apart)) == len(apart)
    limits = [
        Change(ChangeKind.LIMIT, one, "instructions", "100", after, limit="at most 101")
        for one, after in ((key, "102"), (on_m0, "103"))
    ]
    [group] = groups(limits)
    assert group.what == "instructions 100 → 103: +3, +3 %, at most 101" and group.others == "1 more target"


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        (1_091_233, 1_091_779, "+0.05 %"), (100, 101, "+1 %"), (10**8, 10**8 + 1, "+0.000001 %"),
        (1, 0.875, "-12.5 %"), (50, 5000, "+9900 %"), (0, 3, ""), (1, float("nan"), ""), (-2, -1, "+50 %"),
    ],
)  # fmt: skip
def test_a_change_in_percent_has_the_first_digit_that_counts(before: float, after: float, wanted: str) -> None:
    assert change_in_percent(before, after) == wanted


def test_what_is_no_number_has_no_percentage() -> None:
    key = Key("", "", "", "")
    assert values(Change(ChangeKind.TOOLS, key, "gcc", "12", "-")) == "12 → -"
    assert values(Change(ChangeKind.MISSING, key, "instructions", "-", "-", limit="no test has it")) == ""
    assert values(Change(ChangeKind.LARGER, key, "pte_bytes", "0", "3")) == "0 → 3: +3"


def test_a_command_that_shows_all_names_no_other() -> None:
    key = Key("tests", "builtin", "t", "m4-qemu")
    many = [
        Change(ChangeKind.LARGER, replace(key, test=str(number)), f"{number}_bytes", "1", "2") for number in range(30)
    ]
    assert len(list(lines_of_changes(many, "nightly 1"))) == 31
    *_, last = lines_of_changes(many, "nightly 1", "hil results compare 1 2")
    assert last == "  and 24 more lines: hil results compare 1 2"
