"""What is told of two nightlies: what differs, all of it, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortex_m_hil.campaigns.report.change_groups import groups
from cortex_m_hil.campaigns.report.changes import (
    Change,
    ChangeKind,
    FigureShare,
    changes,
    figure_shares,
    problems_within,
)
from cortex_m_hil.campaigns.report.nightly_results import Figure, Key, Night, Result, as_text, by_key
from cortex_m_hil.flow.coverage.counts import ClassCoverage, Counts, Coverage, LostCounts
from cortex_m_hil.runner.run_results import Verdict

TOOLS = {"arm-none-eabi-g++": "12.2.1", "executorch": "1.5.1"}
COUNTS = {"aten::add": 40, "cortex_m::quantized_linear.out": 60}


def result(test: str = "t", target: str = "m4-qemu", verdict: Verdict = Verdict.PASS, **changed: object) -> Result:
    figures: Mapping[str, tuple[Figure, ...]] = {"instructions": (100,), "pte_bytes": (2048,), "outputs": ("aa",)}
    whole = Result(
        Key("tests", "builtin", test, target),
        target,
        "QEMU 7.2",
        verdict,
        figures=figures,
        parts={"instructions": COUNTS},
    )
    return replace(whole, **changed)  # type: ignore[arg-type]


def night(*results: Result, commit: str = "c1", **changed: object) -> Night:
    return replace(Night("1", commit, False, 0.0, TOOLS, True, by_key(results)), **changed)  # type: ignore[arg-type]


def told(old: Result | None, new: Result | None, commit: str = "c2") -> list[tuple[ChangeKind, str]]:
    common = result("in both")
    before, after = (night(common, *([one] if one else []), commit=at) for one, at in ((old, "c1"), (new, commit)))
    return [(one.kind, one.figure) for one in changes(before, after)]


def figures(**changed: tuple[Figure, ...]) -> Mapping[str, tuple[Figure, ...]]:
    return {**result().figures, **changed}


def test_more_instructions_are_told_with_their_layer_where_both_nights_have_layers() -> None:
    layers = {"aten::add in a": 30, "aten::add in b": 10}
    old = result(parts={"instructions": COUNTS, "layers": layers})
    parts = {"instructions": {**COUNTS, "aten::add": 41}, "layers": {**layers, "aten::add in b": 11}}
    new = result(figures=figures(instructions=(101,)), parts=parts)
    for before, layer in ((old, FigureShare("aten::add in b", 10, 11)), (result(), None)):
        [told] = changes(night(before, began=1.0), night(new, commit="c2", began=2.0))
        assert (told.layer, told.told) == (layer, "slower (more instructions)")


@pytest.mark.parametrize("bad", [Verdict.FAIL, Verdict.INFRA, Verdict.SKIP])
def test_a_night_without_figures_hides_nothing(bad: Verdict) -> None:
    """What grew while a test failed is told when it passes again, against when it last passed."""
    good, gap = night(result(), began=1.0), night(result(verdict=bad, figures={}, parts={}), began=2.0)
    slower = result(figures=figures(instructions=(101,)), parts={"instructions": {**COUNTS, "aten::add": 41}})
    new = night(slower, commit="c3", began=3.0)
    found = [one for one in changes(gap, new, [good, gap]) if one.figure == "instructions"]
    assert [(one.kind, one.before, one.after) for one in found] == [(ChangeKind.SLOWER, "100", "101")]
    assert found[0].parts == (FigureShare("aten::add", 40, 41),)


@pytest.mark.parametrize("verdict", Verdict)
def test_what_was_measured_counts_whatever_the_verdict(verdict: Verdict) -> None:
    """A test that fails its own budget, is quarantined, or whose teardown goes wrong."""
    good = night(result(), began=1.0)
    slower = result(figures=figures(instructions=(101,)), parts={"instructions": {**COUNTS, "aten::add": 41}})
    bad = night(replace(slower, verdict=verdict, error="AssertionError"), commit="c2", began=2.0)
    [found] = [one for one in changes(good, bad) if one.figure]
    assert (found.kind, found.before, found.after) == (ChangeKind.SLOWER, "100", "101")
    assert found.parts == (FigureShare("aten::add", 40, 41),)
    for later in (bad, night(slower)):  # told once, whether or not the budget is made larger
        again = replace(later, commit="c3", began=3.0)
        assert [one for one in changes(bad, again, [good, bad]) if one.figure] == []


def test_what_a_wrong_program_had_is_told_and_nothing_is_compared_with_it() -> None:
    good, again = night(result(), began=1.0), night(result(), commit="c3", began=3.0)
    wrong = night(
        result(verdict=Verdict.FAIL, error="Mismatch", figures=figures(instructions=(50,))), commit="c2", began=2.0
    )
    assert [one.kind for one in changes(good, wrong)] == [ChangeKind.NEW_FAILURE, ChangeKind.FASTER]
    assert [one.kind for one in changes(wrong, again, [good, wrong])] == [ChangeKind.FIXED]


def test_what_a_test_measured_before_it_failed_is_compared_with_the_same_programs() -> None:
    whole = result(figures=figures(instructions=(40, 60)), parts={"instructions": {"aten::add": 100}})
    half = result(verdict=Verdict.FAIL, figures={"instructions": (42,)}, parts={"instructions": {"aten::add": 42}})
    good, bad = night(whole, began=1.0), night(half, commit="c2", began=2.0)
    found = [(one.before, one.after, one.parts) for one in changes(good, bad) if one.figure]
    assert found == [("40", "42", ())]  # of which operators is not known
    again = night(whole, commit="c3", began=3.0)
    assert [one for one in changes(bad, again, [good, bad]) if one.figure] == []


def test_nights_after_the_baseline_do_not_count() -> None:
    old = night(result(verdict=Verdict.FAIL, figures={}, parts={}), began=1.0)
    later = night(result(figures=figures(instructions=(90,))), began=2.0)
    new = night(result(), commit="c3", began=3.0)
    assert [one for one in changes(old, new, [old, later]) if one.figure] == []


def test_with_other_tools_what_passed_last_does_not_count() -> None:
    good = night(result(figures=figures(instructions=(90,))), began=1.0, tools=dict.fromkeys(TOOLS, "1"))
    gap = night(result(verdict=Verdict.FAIL, figures={}, parts={}), began=2.0)
    assert [one for one in changes(gap, night(result(), began=3.0), [good, gap]) if one.figure] == []


def test_a_new_target_with_other_tools_does_not_hide_slower_tests_of_old_targets() -> None:
    slower = result(figures=figures(instructions=(101,)))
    new = night(slower, result(target="native"), commit="c2", tools={**TOOLS, "g++": "12.2"})
    found = [(one.kind, one.figure) for one in changes(night(result()), new)]
    assert found == [(ChangeKind.SLOWER, "instructions"), (ChangeKind.TOOLS, "g++")]


def of_executorch(libraries: str, **changed: object) -> Result:
    about = {"runtime": (f"executorch 1.5.0 cff6f4dd32e6, libraries {libraries}",)}
    return replace(result(**changed), key=Key("tests", "executorch", "t", "m4-qemu"), about=about)  # type: ignore[arg-type]


def test_another_installed_executorch_begins_a_new_series_and_is_told_once() -> None:
    """Its libraries are no part of the code that nightlies are of, so of no commit's."""
    many = [
        replace(of_executorch("aa"), key=Key("tests", "executorch", f"t{number}", "m4-qemu")) for number in range(3)
    ]
    newer = [
        replace(one, about=of_executorch("bb").about, figures=figures(instructions=(90,), outputs=("bb",)))
        for one in many
    ]
    old, new = night(*many), night(*newer, commit="c2", began=1.0)
    [found] = changes(old, new)
    assert (found.kind, found.key.target, found.figure) == (ChangeKind.TOOLS, "m4-qemu", "runtime")
    assert ("libraries aa" in found.before, "libraries bb" in found.after) == (True, True)
    slower = [replace(one, figures=figures(instructions=(91,), outputs=("bb",))) for one in newer]
    later = changes(new, night(*slower, commit="c3", began=2.0), [old, new])
    assert [(one.kind, one.before, one.after) for one in later] == [(ChangeKind.SLOWER, "90", "91")] * 3


def test_the_version_of_the_own_runtime_is_no_tool() -> None:
    """It is what the nightly is of."""
    old, new = (
        result(about={"runtime": (f"builtin {number}",)}, figures=figures(instructions=(number,))) for number in (4, 5)
    )
    assert told(old, new) == [(ChangeKind.SLOWER, "instructions")]


@pytest.mark.parametrize("figure", ["instructions", "pte_bytes", "fit_stack_bytes"])
def test_a_figure_that_is_zero_is_an_error_of_a_new_test_too(figure: str) -> None:
    zero = result(figures=figures(**{figure: (0,)}))
    assert told(None, zero) == [(ChangeKind.MISSING, figure)]
    assert [(one.kind, one.figure) for one in problems_within(night(zero))] == [(ChangeKind.MISSING, figure)]


RESULTS = st.builds(
    result,
    st.sampled_from("abc"),
    st.sampled_from(["m4-qemu", "native"]),
    st.sampled_from(Verdict),
    seconds=st.floats(0, 100),
    cpu_seconds=st.floats(0, 100),
    log=st.text(max_size=5),
)


@given(st.lists(RESULTS), st.floats(0, 9), st.text(max_size=3))
def test_the_same_results_in_other_seconds_are_no_change(results: list[Result], seconds: float, log: str) -> None:
    again = [replace(one, seconds=seconds, log=log) for one in results]
    assert changes(night(*results), night(*again, commit="c2", began=seconds)) == []


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 50), min_size=1), st.sampled_from("abcdef"))
def test_one_instruction_more_is_told_with_its_operator(counts: dict[str, int], operator: str) -> None:
    more = {**counts, operator: counts.get(operator, 0) + 1}
    before, after = (
        result(figures=figures(instructions=(sum(of.values()),)), parts={"instructions": of}) for of in (counts, more)
    )
    [found] = changes(night(before), night(after, commit="c2"))
    assert found.kind is ChangeKind.SLOWER and (found.before, found.after) == (
        str(sum(counts.values())),
        str(sum(more.values())),
    )
    assert found.parts == (FigureShare(operator, counts.get(operator, 0), more[operator]),)
    [back] = changes(night(after), night(before, commit="c2"))
    assert back.kind is ChangeKind.FASTER


def test_an_operator_that_was_renamed_split_or_fused_is_no_change_while_the_total_stays() -> None:
    for parts in ({"aten::sum": 100}, {"aten::add": 10, "aten::mul": 30, "cortex_m::quantized_linear.out": 60}):
        assert told(result(), result(parts={"instructions": parts})) == []


@pytest.mark.parametrize(
    ("after", "kinds"),
    [
        (result(figures=figures(pte_bytes=(2049,))), [(ChangeKind.LARGER, "pte_bytes")]),
        (result(figures=figures(pte_bytes=(1024,))), [(ChangeKind.SMALLER, "pte_bytes")]),
        (result(figures=figures(outputs=("ab",))), [(ChangeKind.OUTPUTS, "outputs")]),
        (result(figures=figures(instructions=(0,))), [(ChangeKind.MISSING, "instructions")]),
        (result(figures={"pte_bytes": (2048,), "outputs": ("aa",)}), [(ChangeKind.MISSING, "instructions")]),
        (result(figures=figures(instructions=(50, 51))), [(ChangeKind.SLOWER, "instructions")]),
        (result(figures=figures(host_ticks=(9,), run_seconds=(1.5,))), []),
        (result(verdict=Verdict.FAIL, error="Mismatch", figures={}), [(ChangeKind.NEW_FAILURE, "")]),
        (result(verdict=Verdict.ERROR), [(ChangeKind.NEW_FAILURE, "")]),
        (result(verdict=Verdict.INFRA), [(ChangeKind.NO_VERDICT, "")]),
        (result(verdict=Verdict.SKIP, figures={}), [(ChangeKind.SKIPPED, "")]),
        (result(figures={"instructions": (100,), "pte_bytes": (2048,)}), [(ChangeKind.MISSING, "outputs")]),
        (result(earlier=("FAIL Mismatch",)), [(ChangeKind.FLAKY, "")]),
    ],
)
def test_each_kind_of_change_between_two_results_is_reported(
    after: Result, kinds: list[tuple[ChangeKind, str]]
) -> None:
    assert told(result(), after) == kinds


@pytest.mark.parametrize("figure", ["max_quanta", "fake_quant_quanta", "max_abs_error", "sqnr_db", "cortex_m_macs"])
def test_what_is_not_compared_any_more_is_missing(figure: str) -> None:
    before = result(figures=figures(**{figure: (0,)}))
    assert told(before, result()) == [(ChangeKind.MISSING, figure)]
    assert told(result(), before) == []


def test_what_was_skipped_before_or_was_not_there_is_not_skipped_now() -> None:
    skipped = result(verdict=Verdict.SKIP, figures={})
    assert told(skipped, skipped) == told(None, skipped) == []
    assert told(result(verdict=Verdict.FAIL), skipped) == [(ChangeKind.SKIPPED, "")]


def test_a_test_is_gone_where_others_of_its_suite_and_target_are_there() -> None:
    """A nightly of other tests or targets, or of a part of the tests, does not say that the rest is gone."""
    old = night(result("t"), result("u"), result("t", "native"))
    new = night(result("u"))
    assert [(one.kind, one.key.test, one.key.target) for one in changes(old, new)] == [
        (ChangeKind.GONE, "t", "m4-qemu")
    ]
    assert changes(old, night(result("u"), shard="1/2")) == []
    assert changes(old, night(result("u"), complete=False)) == []
    shard = night(result("t"), result("u"), shard="1/2")
    assert [one.kind for one in changes(shard, night(result("u"), shard="1/2"))] == [ChangeKind.GONE]


def test_a_target_that_is_left_out_is_told_every_night_with_its_reason() -> None:
    old = night(result("t"), result("t", "nucleo"))
    new = night(result("t"), left_out={"nucleo": "no such port"}, commit="c2")
    [found] = changes(old, new)
    assert (found.kind, found.key.target, found.after) == (ChangeKind.LEFT_OUT, "nucleo", "no such port")
    assert (
        [one.kind for one in changes(new, new)] == [one.kind for one in problems_within(new)] == [ChangeKind.LEFT_OUT]
    )


def test_other_integers_on_another_runtime_are_told_until_they_are_known() -> None:
    one = result(figures=figures(max_quanta=(0,)))

    def on_executorch(**figures: tuple[Figure, ...]) -> Result:
        return replace(one, key=Key("tests", "executorch", "t", "m4-qemu"), figures=figures)

    off = on_executorch(max_quanta=(1,), outputs=("ab",))
    [found] = problems_within(night(one, off))
    assert (found.kind, found.key.runtime) == (ChangeKind.RUNTIMES, "executorch")
    assert groups([found])[0].line == "differs by runtime max_quanta 0 on builtin → 1 on executorch"
    equal, floats = on_executorch(**one.figures), on_executorch(outputs=("ab",))
    wrong = replace(off, verdict=Verdict.FAIL, error="Mismatch")  # told as a failure
    for other in (equal, floats, wrong):
        assert [*problems_within(night(one, other))] == []
    assert changes(night(one, off), night(one, off, commit="c2")) == []
    assert ChangeKind.RUNTIMES in {each.kind for each in changes(night(one, equal), night(one, off, commit="c2"))}


def test_a_pattern_that_no_test_has_is_told() -> None:
    found = problems_within(night(result("a"), fit=("a", "typo*"), models=("a", "other*")))
    told = [(one.kind, one.figure, one.key.test) for one in found]
    assert told == [(ChangeKind.MISSING, "fit", "typo*"), (ChangeKind.MISSING, "models", "other*")]


def test_where_no_test_is_in_common_nothing_changed_is_not_said() -> None:
    one, other = night(result("t")), night(result("t", "m0-qemu"), commit="c2")
    assert [(found.kind, found.key.target) for found in changes(one, other)] == [(ChangeKind.NOTHING_IN_COMMON, "")]
    assert changes(one, night(result("t"), result("u"), commit="c2")) == [] == changes(one, night(commit="c2"))


@pytest.mark.parametrize(
    ("bytes_now", "kinds"), [(1108, []), (892, []), (1109, [ChangeKind.LARGER]), (891, [ChangeKind.SMALLER])]
)
def test_an_interrupt_at_the_peak_of_the_stack_is_no_change(bytes_now: int, kinds: list[ChangeKind]) -> None:
    before, after = (result(figures=figures(stack_bytes=(number,))) for number in (1000, bytes_now))
    assert [kind for kind, _ in told(before, after)] == kinds


def test_what_failed_is_fixed_or_flaky_by_the_commit() -> None:
    failed = result(verdict=Verdict.FAIL)
    assert told(failed, result()) == [(ChangeKind.FIXED, "")]
    assert told(failed, failed) == [] and told(None, failed) == [(ChangeKind.NEW_FAILURE, "")]
    assert told(failed, result(), commit="c1") == [(ChangeKind.FLAKY, "")] == told(result(), failed, commit="c1")
    dirty = changes(night(failed), night(result(), dirty=True))
    assert [one.kind for one in dirty] == [ChangeKind.FIXED]
    tools = changes(night(failed), night(result(), tools=dict.fromkeys(TOOLS, "1")))
    assert (ChangeKind.FIXED, ChangeKind.FLAKY in [one.kind for one in tools]) == (tools[0].kind, False)


def nights_of(verdicts: str, commits: str) -> list[Night]:
    """A character each: `F` or `.`, and the commit."""
    words = {"F": Verdict.FAIL, ".": Verdict.PASS}
    pairs = enumerate(zip(verdicts, commits, strict=True))
    return [night(result(verdict=words[word]), commit=commit, began=float(at)) for at, (word, commit) in pairs]


@pytest.mark.parametrize(
    ("verdicts", "commits", "wanted"),
    [
        (
            "..F...",
            "aaabbb",
            [(ChangeKind.FLAKY, "failed in 1 of 3 nightlies of the same code")],
        ),  # not in the last two
        ("F.F.F", "aaaaa", [(ChangeKind.FLAKY, "failed in 3 of 5 nightlies of the same code")]),
        (
            "F..F",
            "aabc",
            [(ChangeKind.NEW_FAILURE, "pass"), (ChangeKind.FLAKY, "failed in 1 of 2 nightlies of the same code")],
        ),
        ("...FF", "aaabb", []),  # it fails since the commit
        ("FF..", "aabb", []),
        ("F...", "abcd", []),
    ],
)
def test_a_test_is_flaky_by_all_nightlies_of_a_commit(
    verdicts: str, commits: str, wanted: list[tuple[ChangeKind, str]]
) -> None:
    *history, old, new = nights_of(verdicts, commits)
    assert [(one.kind, one.before) for one in changes(old, new, [*history, old])] == wanted


def test_what_differs_by_other_tools_or_changed_files_is_not_flaky() -> None:
    old, new = nights_of("F.", "ab")
    others = nights_of("..", "aa")
    unlike = [replace(others[0], dirty=True), replace(others[1], tools=dict.fromkeys(TOOLS, "1"))]
    assert [one.kind for one in changes(old, new, [*unlike, old])] == [ChangeKind.FIXED]


def test_other_tools_are_told_once_and_their_figures_not_compared() -> None:
    many = [result(str(number), figures=figures(instructions=(number + 1,))) for number in range(9)]
    newer = [replace(one, figures=figures(instructions=(900,))) for one in many]
    [found] = changes(night(*many), night(*newer, commit="c2", tools={**TOOLS, "executorch": "1.6.0"}))
    assert (found.kind, found.figure, found.before, found.after) == (ChangeKind.TOOLS, "executorch", "1.5.1", "1.6.0")
    [found] = changes(night(*many), night(*(replace(one, engine="QEMU 9.0") for one in newer), commit="c2"))
    assert (found.kind, found.key.target, found.after) == (ChangeKind.TOOLS, "m4-qemu", "QEMU 9.0")


def test_tests_that_are_left_are_not_gone() -> None:
    assert changes(night(result("a"), result("b")), night(result("a"), commit="c2", complete=False)) == []


def test_the_least_memory_is_exact_and_missed_where_it_was_asked_for() -> None:
    before, more, without = (figures(fit_stack_bytes=(1784,)), figures(fit_stack_bytes=(1792,)), figures())
    every, others = ("*",), ("*test_other*",)
    for now, fit, kinds in (
        (more, every, [ChangeKind.LARGER]),
        (without, every, [ChangeKind.MISSING]),
        (without, (), []),
    ):
        found = changes(night(result(figures=before), fit=every), night(result(figures=now), commit="c2", fit=fit))
        assert [one.kind for one in found] == kinds
    [one] = changes(night(result(figures=before), fit=every), night(result(figures=without), commit="c2", fit=others))
    assert (one.kind, one.key.test, one.limit) == (ChangeKind.MISSING, "*test_other*", "no test has such a name")


def counted(*counts: int, lost: bool = False, isa: str = "DSP") -> Coverage:
    lines = {10 * (number + 1): count for number, count in enumerate(counts)}
    found = Coverage({isa: ClassCoverage({"m4-qemu"}, 1, {"softmax.cpp": Counts(lines)})})
    found.lost += [LostCounts("m4-qemu", "test_x", "it died")] if lost else []
    return found


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (counted(1, 1, 1, 0), counted(9, 0, 0, 0), "not 20-30"),
        (counted(1, 0, 1), counted(0, 0, 1), "not 10"),
        (counted(0, 1), counted(1, 1), ""),
        (counted(1, 1), counted(1, 0, 1), ""),  # another file: which of its lines are those of before?
        (counted(1, 1), counted(1, 0, lost=True), ""),
        (counted(1, 1, isa="MVE"), counted(1, 0), ""),
        (None, counted(1, 0), ""),
        (counted(1, 1), None, ""),
    ],
)
def test_lines_that_no_test_executes_any_more(before: Coverage | None, after: Coverage | None, told: str) -> None:
    found = changes(night(coverage=before), night(commit="c2", coverage=after))
    assert [(one.kind, one.figure, one.after, one.key.target) for one in found] == (
        [(ChangeKind.UNCOVERED, "softmax.cpp", told, "DSP")] if told else []
    )


@given(RESULTS)
def test_a_result_comes_back_from_json(one: Result) -> None:
    assert Result.of_fields(json.loads(json.dumps(one.fields()))) == one


def test_a_slower_board_is_told_from_its_course() -> None:
    random = np.random.default_rng(0)

    def night_of_board(number: int, by: float) -> Night:
        cycles = [round(float(10_000 * (test + 1) * by * random.normal(1, 0.002))) for test in range(10)]
        results = [result(str(test), "board", figures={"cycles": (one,)}) for test, one in enumerate(cycles)]
        return night(*results, commit=str(number))

    history = [night_of_board(number, 1.0) for number in range(12)]
    assert changes(history[-1], night_of_board(12, 1.0), history) == []
    [found] = changes(history[-1], night_of_board(13, 1.03), history)
    assert (found.kind, found.figure, found.before, found.key.target) == (
        ChangeKind.SLOWER,
        "cycles",
        "all tests",
        "board",
    )
    assert found.after in ("+2.9 %", "+3.0 %", "+3.1 %")


OF_OPERATORS = {"conv": 20_000, "linear": 12_000, "softmax": 6_000, "add": 2_000}


def on_a_board(number: int, by: Mapping[str, float] | None = None, tests: int = 8, of: int = 1) -> Night:
    """A night: the operators of the first `of` tests are so many times as slow."""
    random = np.random.default_rng(number)
    results = []
    for test in range(tests):
        slower = {**dict.fromkeys(OF_OPERATORS, 1.0), **((by or {}) if test < of else {})}
        parts = {name: round(OF_OPERATORS[name] * slower[name] * random.normal(1, 0.002)) for name in OF_OPERATORS}
        results.append(result(str(test), "board", figures={"cycles": (sum(parts.values()),)}, parts={"cycles": parts}))
    return night(*results, commit=str(number), name=str(number + 1))


def of_boards(nights: list[Night]) -> list[tuple[int, Change]]:
    return [(at, one) for at in range(1, len(nights)) for one in changes(nights[at - 1], nights[at], nights[:at])]


def test_a_test_that_is_slower_on_a_board_is_told_once_with_its_operator() -> None:
    slower = {"linear": 1.05}
    nights = [on_a_board(number, slower if number >= 12 else None) for number in range(16)]
    [(at, found)] = of_boards(nights)
    assert (at, found.kind, found.key.test, found.limit) == (12, ChangeKind.SLOWER, "0", "")
    [part] = found.parts
    assert part.name == "linear" and part.after - part.before == pytest.approx(600, abs=100)
    assert float(found.after) - float(found.before) == pytest.approx(600, abs=200)


def test_a_board_that_is_slower_is_told_with_all_operators_or_with_the_one() -> None:
    for slower, name in ((dict.fromkeys(OF_OPERATORS, 1.03), "all operators"), ({"conv": 1.06}, "conv")):
        nights = [on_a_board(number, slower if number >= 12 else None, of=8) for number in range(13)]
        [(_, found)] = of_boards(nights)
        assert (found.before, [part.name for part in found.parts]) == ("all tests", [name])


def test_a_step_that_a_later_night_shows_says_since_when() -> None:
    slower = dict.fromkeys(OF_OPERATORS, 1.008)
    nights = [on_a_board(number, slower if number >= 4 else None, of=8) for number in range(12)]
    [(at, found)] = of_boards(nights)
    assert at > 4 and found.limit == "since nightly 5"


def test_an_operator_of_a_board_that_is_renamed_or_split_is_no_change() -> None:
    def renamed(one: Night) -> Night:
        other = {"conv": "conv_fast", "linear": "matmul"}
        of = {
            key: replace(got, parts={"cycles": {other.get(name, name): n for name, n in got.parts["cycles"].items()}})
            for key, got in one.results.items()
        }
        return replace(one, results=of)

    nights = [on_a_board(number) for number in range(12)]
    assert of_boards([*nights, *(renamed(on_a_board(number)) for number in range(12, 16))]) == []


def test_a_board_that_fails_its_own_budget_is_told_as_slower() -> None:
    nights = [on_a_board(number, {"conv": 1.06} if number >= 12 else None, of=8) for number in range(13)]
    failed = {key: replace(one, verdict=Verdict.FAIL) for key, one in nights[-1].results.items()}
    found = [one for one in changes(nights[-2], replace(nights[-1], results=failed), nights[:-1]) if one.figure]
    assert [(one.kind, one.before) for one in found] == [(ChangeKind.SLOWER, "all tests")]


def test_30_nightlies_of_a_board_give_no_report() -> None:
    assert of_boards([on_a_board(number) for number in range(30)]) == []


@pytest.mark.parametrize(
    ("total", "text"), [(None, "-"), (0, "0"), (102_560_951, "102560951"), (10**12, "1000000000000"), (2.5, "2.5")]
)
def test_counts_are_shown_in_full(total: float | None, text: str) -> None:
    assert as_text(total) == text


def test_other_outputs_that_are_less_accurate_are_told_as_that() -> None:
    """2.8 dB less stood only among the trends. The references are the host's: the same outputs are as accurate."""
    good, bad = (figures(sqnr_db=(at,), max_quanta=(off,)) for at, off in ((43.2, 1), (40.4, 2)))
    before = result(figures=good)
    after = result(figures={**bad, "outputs": ("bb",)})
    less, more = ChangeKind.LESS_ACCURATE, ChangeKind.MORE_ACCURATE
    outputs = (ChangeKind.OUTPUTS, "outputs")
    assert told(before, after) == [(less, "max_quanta"), (less, "sqnr_db"), outputs]
    assert told(after, before) == [outputs, (more, "max_quanta"), (more, "sqnr_db")]
    assert told(before, result(figures=bad)) == []


def test_an_elf_is_larger_only_if_what_is_loaded_is() -> None:
    """It has debug information."""
    old = result(figures=figures(elf_bytes=(1000,), elf_stored_bytes=(100,)))
    for elf, stored, larger in ((1032, 100, []), (1032, 96, []), (1032, 104, ["elf_bytes"])):
        new = result(figures=figures(elf_bytes=(elf,), elf_stored_bytes=(stored,)))
        assert [name for kind, name in told(old, new) if kind is ChangeKind.LARGER and name == "elf_bytes"] == larger


def test_what_moved_as_the_sum_did_is_its_cause() -> None:
    shares = figure_shares({"a": 100, "b": 10, "c": 10}, {"a": 0, "b": 70, "c": 60})
    assert [one.name for one in shares] == ["b", "c", "a"]


def test_a_changed_share_of_cortex_m_kernels_is_told() -> None:
    """Of several programs the least counts."""
    whole, part = (result(figures=figures(cortex_m_macs=values)) for values in ((1.0, 1.0), (1.0, 0.875)))
    assert told(whole, part) == [(ChangeKind.LESS_CORTEX_M, "cortex_m_macs")]
    assert told(part, whole) == [(ChangeKind.MORE_CORTEX_M, "cortex_m_macs")]
    assert told(whole, whole) == told(result(), whole) == []
    (change,) = changes(night(whole), night(part))
    assert (change.before, change.after) == ("1", "0.875")
    assert told(whole, result()) == [(ChangeKind.MISSING, "cortex_m_macs")]
