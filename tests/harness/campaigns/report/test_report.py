"""A report's three files: what they hold, how large they are, and texts of others in them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortex_m_hil.campaigns.nightly.nightly import shareable
from cortex_m_hil.campaigns.report.changes import ChangeKind
from cortex_m_hil.campaigns.report.junit_xml import junit
from cortex_m_hil.campaigns.report.model_table import models
from cortex_m_hil.campaigns.report.nightly_results import Figure, Key, Night, Result, by_key
from cortex_m_hil.campaigns.report.report_contents import ReportContents
from cortex_m_hil.campaigns.report.report_files import write_report
from cortex_m_hil.campaigns.report.report_page import html
from cortex_m_hil.campaigns.report.results_json import SCHEMA, results_json
from cortex_m_hil.campaigns.report.trend_encoding import decoded, encoded, trends
from cortex_m_hil.flow.coverage.counts import ClassCoverage, Counts, Coverage, LostCounts
from cortex_m_hil.runner.run_results import Verdict
from generated_nights import HOSTILE, hostile, report, report_on
from junit_schema import invalid

LARGEST = 3_000_000  # bytes
VALIDATOR = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))
OWN = """
import pytest, warnings
def test_passes(record_property):
    record_property("hil_test", "a")
def test_fails(record_property):
    record_property("hil_test", "a")
    assert False
@pytest.fixture
def broken(): raise ValueError
def test_error(broken, record_property): pass
def test_skips(): pytest.skip("why")
@pytest.mark.xfail(reason="why", strict=True)
def test_xfails(): assert False
@pytest.mark.xfail(reason="why", strict=True)
def test_xpasses(): pass
"""


class Tags(HTMLParser):
    """What a browser makes of a page, as far as elements go; `data` is the JSON in it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()
        self.attributes: set[str] = set()
        self.data = ""
        self._in_data = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found[tag] += 1
        self.attributes |= {name for name, _ in attrs}
        self._in_data = ("id", "data") in attrs

    def handle_endtag(self, tag: str) -> None:
        self._in_data = False

    def handle_data(self, data: str) -> None:
        if self._in_data:
            self.data += data


def data_of(page: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Tags(page).data)
    return found


# --- index.html ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("moving", "failing"), [(0.01, 0.05), (1.0, 0.5), (0.0, 1.0)])
def test_the_page_of_2000_cells_and_30_nights_is_at_most_3_mb(moving: float, failing: float) -> None:
    found = report(2000, 31, moving=moving, failing=failing)
    page = html(found)
    assert len(page.encode()) <= LARGEST
    data = data_of(page)
    assert len(data["cells"]) == 2000 and Tags(page).found["td"] >= 2000
    assert len(data["nights"]) == 31 or moving == 1.0


def test_the_page_fetches_nothing_and_the_texts_of_others_stay_text() -> None:
    harmless, page = html(report(3, 2, moving=1.0)), html(hostile())
    tags = Tags(page)
    assert tags.found["script"] == 2 and tags.found["img"] == tags.found["link"] == tags.found["iframe"] == 0
    assert not {name for name in tags.attributes if name.startswith("on")} | ({"src", "style"} & tags.attributes)
    assert set(tags.found) == set(Tags(harmless).found)
    assert HOSTILE in data_of(page)["names"]
    assert 'content="default-src &#39;none&#39;; ' in page


def test_the_page_has_each_cell_with_all_that_is_known_of_it() -> None:
    [one] = report(1, 2, failing=1.0).night.results.values()
    found = report_on([replace_results(report(1, 1).night, one)])
    one = replace(one, localized="where it departs", bundle="it.hil.zip", earlier=("FAIL Mismatch",))
    found = replace(found, night=replace_results(found.night, one), bundles=frozenset({"it.hil.zip"}))
    data = data_of(html(found))
    [cell], names = data["cells"], data["names"]
    assert names[cell["test"]] == one.key.test and names[cell["ending"]] == "FAIL Mismatch"
    assert (cell["headline"], cell["log"], cell["localized"]) == (one.headline, one.log, one.localized)
    assert (cell["bundle"], cell["earlier"]) == ("bundles/it.hil.zip", list(one.earlier))
    assert cell["command"].startswith(f"pytest --hil-target={one.key.target} --hil-runtime=builtin ")
    parts = {names[name]: of for name, of in zip(cell["parts"][::2], cell["parts"][1::2], strict=True)}
    assert [names[number] for number in parts["max_quanta"][::2]] == ["0", "1"]


def test_models_are_a_table_with_the_first_obstacle_and_whose_it_is() -> None:
    about = {"cortex_m_macs": (0.5, 1.0), "cortex_m_operators": (0.25,), "planned_bytes": (2048,)}
    ran = Result(Key("tests", "builtin", "models/a::net", "m4-qemu"), "m4-qemu", "", Verdict.PASS, figures=about)
    refused = Result(
        Key("tests", "builtin", "models/b::net", "m4-qemu"), "", "", Verdict.FAIL, "LoweringError",
        f"LoweringError: Net: prepare_pt2e failed: {HOSTILE}",
    )  # fmt: skip
    left = replace(
        refused, key=Key("tests", "builtin", "models/c::net", "m4-qemu"), verdict=Verdict.INFRA, error="LaunchError",
        headline="LaunchError: no answer",
    )  # fmt: skip
    other = replace(ran, key=Key("tests", "builtin", "a::test_layer", "m4-qemu"))
    night = replace(report(1, 1).night, results=by_key([ran, refused, left, other]), models=("models/*",))
    first, second, third = models(night)
    assert (first.operators, first.macs, first.planned, first.quanta, first.obstacle) == (
        "25 %",
        "50 %",
        "2,048",
        "–",
        "",
    )
    assert second.obstacle.startswith("quantiser: LoweringError: Net: ") and third.obstacle == left.headline
    page = html(report_on([night]))
    assert "<td>25 %</td><td>50 %</td><td>–</td><td>–</td><td>2,048</td>" in page and "<img" not in page
    assert "Models" not in html(report(1, 1))


def test_the_coverage_of_kernels_is_shown_with_what_was_not_executed() -> None:
    files = {"softmax.cpp": Counts({1: 5, 2: 0, 3: 0, 5: 1}, {1: [1, 0]}), HOSTILE: Counts({7: 0})}
    first = next(iter(report(1, 1).night.results))
    key = f"{first.test}@{first.target}"
    coverage = Coverage(
        {"DSP": ClassCoverage({"m4-qemu", HOSTILE}, 1, files, {key: {HOSTILE: 1, "softmax.cpp": 2}})},
        [LostCounts("m4-qemu", HOSTILE, "it died")],
        ["t"],
    )
    found = report_on([replace(report(1, 1).night, coverage=coverage)])
    page, tags = html(found), Tags(html(report(1, 1)))
    for text in (
        "DSP: lines 2/5 40.0 %, branches 1/2 50.0 %",
        "softmax.cpp</th><td>2/4 50.0 %",
        "<td>2-3</td>",
        "it died",
    ):
        assert text in page
    assert set(Tags(page).found) <= {*tags.found, "details", "summary", "small", "li", "ul"}
    assert "Coverage of the kernels" not in html(report(1, 1))
    data = data_of(page)
    [cell] = data["cells"]
    assert [data["names"][one] for one in cell["executed"][::3]] == sorted([HOSTILE, "softmax.cpp"])
    assert sorted(zip(cell["executed"][1::3], cell["executed"][2::3], strict=True)) == [(1, 1), (2, 4)]
    read = json.loads(results_json(found))
    VALIDATOR.validate(read)
    assert Coverage.from_fields(read["coverage"]) == coverage


def replace_results(night: Night, *results: Result) -> Night:
    return replace(night, results=by_key(results))


def test_a_nightly_without_results_and_one_without_an_earlier_one_have_a_page() -> None:
    night = Night("1", "", False, 0.0, {}, False, {})
    assert "no nightly before" in html(ReportContents(night, None, []))
    assert "Nothing changed" in html(ReportContents(night, night, []))


# --- trends --------------------------------------------------------------------------------------------------


@given(st.lists(st.one_of(st.none(), st.integers(0, 2), st.floats(0, 1))))
def test_trends_come_back_from_their_runs(values: list[float | None]) -> None:
    assert decoded(encoded(values)) == values


def test_a_trend_has_what_the_same_engine_gave_whatever_the_verdict() -> None:
    first, second, third, fourth = (
        Result(
            Key("tests", "builtin", "t", "m4-qemu"), "m4-qemu", engine, verdict,
            figures={"instructions": (count, 1), "sqnr_db": (3.14159, 2.0), "host_ticks": (1,)},
        )
        for engine, verdict, count in (
            ("QEMU 7", Verdict.PASS, 1), ("QEMU 8", Verdict.PASS, 7),
            ("QEMU 8", Verdict.FAIL, 8), ("QEMU 8", Verdict.PASS, 9),
        )
    )  # fmt: skip
    nights = [Night("1", "", False, 0.0, {}, True, by_key([one])) for one in (first, second, third, fourth)]
    found = trends(first.key, nights)
    assert {name: decoded(runs) for name, runs in found.items()} == {
        "instructions": [None, 8, 9, 10],
        "sqnr_db": [None, 2, 2, 2],
    }
    assert trends(first.key, nights[:1]) == {}


def test_a_trend_ends_with_what_a_test_measured_before_it_failed() -> None:
    """Of the programs that it ran until then, and with none where it ran none."""
    key = Key("tests", "builtin", "t", "m4-qemu")
    measured = [((1, 5), Verdict.PASS), ((2,), Verdict.FAIL), ((2, 5), Verdict.PASS), ((3,), Verdict.FAIL)]
    nights = [
        Night("1", "", False, 0.0, {}, True, by_key([Result(key, "", "", verdict, figures={"instructions": counts})]))
        for counts, verdict in measured
    ]
    found = [decoded(trends(key, nights[:end])["instructions"]) for end in (2, 3, 4)]
    assert found == [[1, 2], [6, None, 7], [1, 2, 2, 3]]
    faulted = Night("5", "", False, 0.0, {}, True, by_key([Result(key, "", "", Verdict.FAIL)]))
    assert decoded(trends(key, [*nights, faulted])["instructions"]) == [1, 2, 2, 3, None]


# --- results.json --------------------------------------------------------------------------------------------


def test_results_json_is_what_its_schema_says() -> None:
    jsonschema.Draft202012Validator.check_schema(VALIDATOR.schema)
    for one in (report(40, 3), hostile(), report_on([report(4, 1).night])):
        VALIDATOR.validate(json.loads(results_json(one)))
    wrong = json.loads(results_json(report(4, 2)))
    for broken in ({**wrong, "more": 1}, {**wrong, "results": [{**wrong["results"][0], "verdict": "pass"}]}):
        assert not VALIDATOR.is_valid(broken)


def test_the_schema_has_each_kind_of_change() -> None:
    assert VALIDATOR.schema["$defs"]["change"]["properties"]["kind"]["enum"] == [kind.value for kind in ChangeKind]


def test_results_json_has_every_result_and_change() -> None:
    found = report(40, 2, moving=0.2)
    read = json.loads(results_json(found))
    assert by_key(map(Result.of_fields, read["results"])) == dict(found.night.results)
    assert len(read["changes"]) == len(found.changes) > 0
    assert read["compared_with"]["nightly"] == "1" and sum(read["verdicts"].values()) == 40


def test_results_json_has_the_name_of_a_nightly() -> None:
    found = report(1, 2)
    read = json.loads(results_json(replace(found, night=replace(found.night, called="v1.4"))))
    VALIDATOR.validate(read)
    assert (read["nightly"], read["name"], read["compared_with"]["name"]) == ("2", "v1.4", "")


def test_what_is_not_finite_is_null() -> None:
    one = next(iter(report(1, 1).night.results.values()))
    one = replace(one, figures={"sqnr_db": (float("inf"),)})
    found = report_on([replace_results(report(1, 1).night, one)])
    read = json.loads(results_json(found))
    VALIDATOR.validate(read)
    assert read["results"][0]["figures"] == {"sqnr_db": [None]}
    assert data_of(html(found))["cells"][0]["figures"][1] == ["inf"]


# --- junit.xml -----------------------------------------------------------------------------------------------


def grammar(root: ElementTree.Element) -> set[tuple[str, str, str]]:
    """Each element with what it stands in, and each attribute of it."""
    found = {("", root.tag, "")}
    for parent in root.iter():
        for child in parent:
            found.add((parent.tag, child.tag, ""))
            found |= {(parent.tag, child.tag, name) for name in child.attrib}
    return found


def test_junit_files_have_the_form_of_pytests_own(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(OWN)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "junit_family=xunit2"]
    subprocess.run([*command, "--junitxml=own.xml"], cwd=tmp_path, check=False, capture_output=True, timeout=120)
    theirs = grammar(ElementTree.parse(tmp_path / "own.xml").getroot())
    results = [
        replace(one, verdict=verdict, error="Why", headline="said")
        for one, verdict in zip(report(7, 1).night.results.values(), Verdict, strict=True)
    ]
    root = ElementTree.fromstring(junit(report_on([replace_results(report(7, 1).night, *results)])))
    assert grammar(root) <= theirs
    for case in root.iter("testcase"):
        assert [child.tag for child in case][:1] == ["properties"] and len(case) <= 2
    [suite] = root
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "7", "failures": "2", "errors": "2", "skipped": "2",
    }  # fmt: skip


@pytest.mark.parametrize(
    "found", [report(40, 2, failing=0.5), hostile(), report_on([report(1, 1).night])], ids=["some", "hostile", "one"]
)
def test_junit_files_are_what_the_schema_says(found: ReportContents) -> None:
    assert invalid(junit(found)) == []


def test_a_test_without_a_target_has_no_runtime_in_junit_files() -> None:
    night = report(1, 1).night
    [one] = night.results.values()
    hosts = replace(one, key=replace(one.key, target=""), ran="", about={})
    for result, expected in ((one, 1), (hosts, 0)):
        root = ElementTree.fromstring(junit(report_on([replace_results(night, result)])))
        assert len(root.findall(".//property[@name='hil_runtime']")) == expected


def test_junit_files_say_how_each_result_was_made() -> None:
    """As pytest's own do: what is compared, and what it was made by."""
    one = next(iter(report(1, 1).night.results.values()))
    about: dict[str, tuple[Figure, ...]] = {
        "runtime": ("builtin 4",), "build_id": ("0123", "0123"), "isa": ("DSP",), "seed": (7,), "lowering": ("made",),
    }  # fmt: skip
    text = junit(report_on([replace_results(report(1, 1).night, replace(one, about=about))]))
    properties = [(each.get("name"), each.get("value")) for each in ElementTree.fromstring(text).iter("property")]
    wanted = [(f"hil_{name}", str(value)) for name, values in about.items() for value in values]
    assert [each for each in properties if each[0] in dict(wanted)] == wanted and invalid(text) == []


def test_every_result_is_a_testcase_of_its_own_with_its_target_and_figures() -> None:
    found = report(40, 1)
    cases = list(ElementTree.fromstring(junit(found)).iter("testcase"))
    assert len({(case.get("classname"), case.get("name")) for case in cases}) == len(cases) == 40
    for case, one in zip(cases, found.night.results.values(), strict=True):
        properties = [(each.get("name"), each.get("value")) for each in case.iter("property")]
        assert one.key.target in (case.get("name") or "")
        assert ("hil_instructions", str(one.figures["instructions"][0])) in properties
        assert ("hil_requested", one.key.target) in properties and ("hil_verdict", one.verdict.name) in properties


def test_texts_that_no_xml_can_have_are_escaped() -> None:
    root = ElementTree.fromstring(junit(hostile()))
    failure = next(root.iter("failure"))
    assert failure.text == HOSTILE.replace("\x00", r"\x00").replace("\x1b", r"\x1b")


# --- all -----------------------------------------------------------------------------------------------------


def test_the_same_report_gives_the_same_bytes(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write_report(report(20, 2), tmp_path / folder)
    for name in ("index.html", "results.json", "junit.xml"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_what_has_no_utf_8_is_written_all_the_same(tmp_path: Path) -> None:
    one = next(iter(report(1, 1, failing=1).night.results.values()))
    found = report_on([replace_results(report(1, 1).night, replace(one, verdict=Verdict.FAIL, log="\udc80"))])
    write_report(found, tmp_path)
    VALIDATOR.validate(json.loads((tmp_path / "results.json").read_text()))
    ElementTree.parse(tmp_path / "junit.xml")


def test_options_are_shown_without_the_places_of_files() -> None:
    options = ["--redzones", "--targets-file=/home/me/work/boards/targets.yaml", "-k", "a/b", "--x=/opt/secret/y.txt"]
    shown = ("--redzones", "--targets-file=boards/targets.yaml", "-k", "a/b", "--x=y.txt")
    assert shareable(options, "/home/me/work") == shown


def test_a_test_of_executorchs_is_run_again_by_its_command() -> None:
    key = Key("upstream", "builtin", "ops/test_add.py::test_add", "m4-qemu")
    one = Result(key, "m4-qemu", "QEMU", Verdict.PASS, node_id="ops/test_add.py::test_add[m4-qemu]")
    found = report_on([Night("1", "", False, 0.0, {}, True, by_key([one]))])
    wanted = "hil dev upstream --target=m4-qemu --runtime=builtin -- 'ops/test_add.py::test_add[m4-qemu]'"
    assert found.command(one) == wanted
