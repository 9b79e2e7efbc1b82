"""A conftest.py that runs a test again whose body or setup fails, and logs its attempts as rerunfailures does."""

from __future__ import annotations

_TEXT = """
from _pytest.runner import runtestprotocol

def pytest_runtest_protocol(item, nextitem):
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    failed = next((report for report in reports if report.failed), None)
    if failed is not None:
        for report in reports[: {logged}]:
            report.outcome = "rerun" if report.failed else report.outcome
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        item._initrequest()
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    return True
"""
WITHOUT_TEARDOWN = _TEXT.format(logged="reports.index(failed) + 1")  # as pytest-rerunfailures up to 15 does
WITH_TEARDOWN = _TEXT.format(logged="")
