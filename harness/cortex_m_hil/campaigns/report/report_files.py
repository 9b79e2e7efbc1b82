"""A report as files in a folder: index.html, results.json and junit.xml."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cortex_m_hil.campaigns.report.junit_xml import junit
from cortex_m_hil.campaigns.report.report_contents import ReportContents
from cortex_m_hil.campaigns.report.report_page import html
from cortex_m_hil.campaigns.report.results_json import results_json
from cortex_m_hil.host.files import write_atomically

_WRITERS: Final = {"index.html": html, "results.json": results_json, "junit.xml": junit}


def write_report(report: ReportContents, folder: Path) -> list[Path]:
    """Write the files of a report into a folder, and return their paths.

    Raises:
        InfraError: a file cannot be written.
    """
    for name, writer in _WRITERS.items():
        text = writer(report)
        # A lone surrogate, which an imported file may contain, cannot be encoded in UTF-8.
        write_atomically(folder / name, text.encode(errors="backslashreplace"), "another folder")
    return [folder / name for name in _WRITERS]
