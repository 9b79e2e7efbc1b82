"""What tests record, in the files that other tools read: JUnit, with workers."""

from __future__ import annotations

import re
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

from cortex_m_hil.bench.memory import Region
from cortex_m_hil.host.paths import cache_directory
from cortex_m_hil.targets.launcher import Clock
from paths import REPOSITORY

pytest_plugins = ["pytester"]

CACHE = cache_directory()  # before pytester moves HOME
DEADLINE = 600.0
# The xunit2 family, as pytest documents it: for each element its attributes, needed ones with "!", and its children.
TEXT = ("message!", "type")
XUNIT2 = {
    "testsuites": (("name",), ("testsuite",)),
    "testsuite": (
        ("name!", "errors", "failures", "skipped", "tests", "time", "timestamp", "hostname"),
        ("properties", "testcase", "system-out", "system-err"),
    ),
    "testcase": (("classname!", "name!", "time"), ("skipped", "error", "failure", "system-out", "system-err")),
    "skipped": (TEXT, ()),
    "error": (TEXT, ()),
    "failure": (TEXT, ()),
    "system-out": ((), ()),
    "system-err": ((), ()),
}
TESTS = """
import pytest, torch
from cortex_m_hil.known_answer import known_answer
from cortex_m_hil.errors import LaunchError

class Zero(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x) * 0

def test_zero(hil):
    hil.check(Zero(8, 4), (torch.rand(1, 8),))

def test_twice(hil, run_pte):
    known = known_answer(hil.isa)
    run_pte(known.program, known.inputs)
    run_pte(known.program, known.inputs)

def test_infra(hil): raise LaunchError("gone")
def test_call(hil): hil.check()
@pytest.mark.requires("mve")
def test_skipped(hil): pass
def test_plain(): pass
"""


def invalid(element: xml.Element) -> list[str]:
    """What of an element, and of those in it, xunit2 does not have."""
    if element.tag not in XUNIT2:
        return [f"<{element.tag}>"]
    attributes, children = XUNIT2[element.tag]
    needed = {name[:-1] for name in attributes if name.endswith("!")}
    wrong = [f"{element.tag}: {name}" for name in set(element.keys()) - {name.rstrip("!") for name in attributes}]
    wrong += [f"{element.tag}: no {name}" for name in needed - set(element.keys())]
    wrong += [f"{element.tag}/{child.tag}" for child in element if child.tag not in children]
    return wrong + [one for child in element if child.tag in children for one in invalid(child)]


def test_the_check_of_a_junit_file_finds_what_is_wrong() -> None:
    text = '<testsuites><testsuite name="a"><testcase name="b" file="c"><note/></testcase></testsuite></testsuites>'
    assert sorted(invalid(xml.fromstring(text))) == ["testcase/note", "testcase: file", "testcase: no classname"]


@pytest.mark.parametrize("workers", [[], ["-n2"]], ids=["single", "xdist"])
def test_a_junit_file_has_what_the_docs_list_and_is_valid_but_for_it(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: list[str]
) -> None:
    monkeypatch.setenv("HIL_CACHE_DIR", str(CACHE))
    pytester.makepyfile(TESTS)
    run = pytester.runpytest_subprocess("--target=native", "--junit-xml=report.xml", *workers, timeout=DEADLINE)
    run.assert_outcomes(passed=3, failed=1, errors=1, skipped=1, warnings=1)
    tree = xml.parse(pytester.path / "report.xml").getroot()
    found = {case.get("name"): properties(case) for case in tree.iter("testcase")}
    assert invalid(tree) == []  # properties() has taken those of the tests away
    assert [element.tag for suite in tree for element in suite if element.tag == "properties"] == []
    of_others = {f"hil_{clock.value}" for clock in Clock} - {"hil_host_ticks"}  # clocks that `native` does not have
    of_others |= {"hil_at_fault", "hil_wrong_layout", "hil_operator"}  # of wrong outputs and other verdicts
    of_others |= {"hil_bundle", "hil_quarantine"}  # of options
    of_others |= {f"hil_fit_{region.value}_bytes" for region in Region} | {"hil_not_fitted"}  # of hil nightly
    assert {name for one in found.values() for name, _ in one} == documented() - of_others
    assert of_others < documented()
    verdicts = {name: [value for key, value in one if key == "hil_verdict"] for name, one in found.items()}
    assert verdicts == {
        "test_zero[native]": ["PASS"], "test_twice[native]": ["PASS"], "test_infra[native]": ["INFRA"],
        "test_call[native]": ["ERROR"], "test_skipped[native]": ["SKIP"], "test_plain": [],
    }  # fmt: skip
    zero = dict(found["test_zero[native]"])
    assert (zero["hil_uninformative"], zero["hil_max_quanta"], zero["hil_seed"]) == ("1", "0", "0")
    assert re.fullmatch(r"[0-9a-f]+", zero["hil_build_id"]) and int(zero["hil_pte_bytes"]) > 1000
    assert float(zero["hil_lower_seconds"]) > 0 and float(zero["hil_run_seconds"]) > 0
    twice = found["test_twice[native]"]
    assert len({one for one in twice if one[0] == "hil_outputs"}) == 1
    assert [name for name, _ in twice].count("hil_run_seconds") == 2
    assert "hil_lower_seconds" not in dict(twice)


def properties(case: xml.Element) -> list[tuple[str, str]]:
    """Takes them out of the test case."""
    found = [(one.get("name") or "", one.get("value") or "") for one in case.iter("property")]
    for group in case.findall("properties"):
        case.remove(group)
    return found


def documented() -> set[str]:
    text = Path(REPOSITORY / "docs" / "writing-tests.md").read_text()
    return set(re.findall(r"^\| `(hil_\w+)` \| [^|]+ \|$", text, re.MULTILINE))
