"""The file junit.xml, as pytest writes it with junit_family=xunit2: a testcase a result, figures as properties."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from itertools import groupby
from typing import Final
from xml.etree import ElementTree

from cortex_m_hil.campaigns import property_names as prop
from cortex_m_hil.campaigns.report.nightly_results import Result, count
from cortex_m_hil.campaigns.report.report_contents import ReportContents
from cortex_m_hil.runner.run_results import Verdict

_SKIPPED: Final = (Verdict.SKIP, Verdict.XFAIL)
_FAILURE: Final = (Verdict.FAIL, Verdict.XPASS)
_ERROR: Final = (Verdict.ERROR, Verdict.INFRA)
# Characters that no XML 1.0 document may have, not even as a reference (https://www.w3.org/TR/xml/#charsets).
_ILLEGAL: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(report: ReportContents) -> str:
    """Return the text of junit.xml, with a suite for each run of pytest."""
    root = ElementTree.Element("testsuites", name="hil nightly")
    began = datetime.fromtimestamp(report.night.began, timezone.utc).isoformat()
    ordered = sorted(report.night.tests, key=_suite)
    for name, results in groupby(ordered, key=_suite):
        _add_suite(root, ".".join(name), began, list(results), report)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(one: Result) -> tuple[str, str]:
    return one.key.suite, one.key.runtime


def _add_suite(
    root: ElementTree.Element, name: str, began: str, results: Sequence[Result], report: ReportContents
) -> None:
    suite = ElementTree.SubElement(root, "testsuite", {
        "name": _legal(name),
        "errors": str(count(results, _ERROR)),
        "failures": str(count(results, _FAILURE)),
        "skipped": str(count(results, _SKIPPED)),
        "tests": str(len(results)),
        "time": f"{sum(one.seconds for one in results):.3f}",
        "timestamp": began,
    })  # fmt: skip
    for one in results:
        _add_case(suite, one, name, report)


def _add_case(suite: ElementTree.Element, one: Result, prefix: str, report: ReportContents) -> None:
    module, name = _names(one)
    where = {"classname": _legal(f"{prefix}.{module}"), "name": _legal(name), "time": f"{one.seconds:.3f}"}
    case = ElementTree.SubElement(suite, "testcase", where)
    properties = ElementTree.SubElement(case, "properties")
    for key, value in _properties(one, report):
        ElementTree.SubElement(properties, "property", name=_legal(prop.PREFIX + key), value=_legal(str(value)))
    said = f"{one.error}: {one.headline}" if one.error and not one.headline.startswith(one.error) else one.headline
    if one.verdict in _SKIPPED:
        kind = "pytest.skip" if one.verdict is Verdict.SKIP else "pytest.xfail"
        ElementTree.SubElement(case, "skipped", type=kind, message=_legal(said))
    elif one.verdict in (*_FAILURE, *_ERROR):
        tag = "failure" if one.verdict in _FAILURE else "error"
        told = said or one.verdict.value
        ElementTree.SubElement(case, tag, message=_legal(told)).text = _legal(one.log or told)


def _names(one: Result) -> tuple[str, str]:
    """Return class name and name of a testcase, as pytest derives them from an id; the name includes the target."""
    test = one.node_id or one.key.test
    path, bracket, parameters = test.partition("[")
    head, *classes, name = path.split("::") if "::" in path else (path, path)
    module = ".".join([head.removesuffix(".py").replace("/", "."), *classes])
    name += bracket + parameters
    return module, name if one.key.target in parameters else f"{name}[{one.key.target}]"


def _properties(one: Result, report: ReportContents) -> Iterator[tuple[str, object]]:
    """Yield a result's properties, by their names in pytest's JUnit files, without the prefix."""
    key = one.key
    yield from {
        prop.TEST: key.test,
        prop.REQUESTED: key.target,
        prop.RAN: one.ran,
        prop.ENGINE: one.engine,
        prop.VERDICT: one.verdict.name,
        prop.ERROR: one.error,
    }.items()
    about = {prop.RUNTIME: (key.runtime,), **one.about} if key.target else one.about
    for name, values in (*about.items(), *one.figures.items()):
        yield from ((name, value) for value in values)
    yield from ((prop.EARLIER, ended) for ended in one.earlier)
    if bundle := report.bundle(one):
        yield prop.BUNDLE, bundle


def _legal(text: str) -> str:
    return _ILLEGAL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
