"""The file results.json: the whole report as JSON. Its schema is `results.schema.json` in this folder.

The fields of a nightly are those of `nightly_results.Night`, which `campaigns.nightly` makes of a stored plan; those of
a result are of `nightly_results.Result`. Its `figures` and `about` are the properties that
`pytest_plugin/report_properties.py` records while a test runs, by the names of `campaigns/property_names.py`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cortex_m_hil.campaigns.report.nightly_results import Night
from cortex_m_hil.campaigns.report.report_contents import ReportContents, utc_text
from cortex_m_hil.campaigns.report.terminal_summary import counts

SCHEMA_VERSION: Final = 1  # higher when a field is removed, renamed or changes its meaning
SCHEMA: Final = Path(__file__).parent / "results.schema.json"


def results_json(report: ReportContents) -> str:
    """Return the text of results.json; a number that is not finite is null in it."""
    found = {
        "schema_version": SCHEMA_VERSION,
        **_about(report.night),
        "verdicts": counts(report.night),
        "compared_with": None if report.against is None else _about(report.against),
        "changes": [one.fields() for one in report.changes],
        "coverage": None if report.night.coverage is None else report.night.coverage.fields(),
        "results": [
            {**one.fields(), "bundle": report.bundle(one), "command": report.command(one)}
            for one in report.night.results.values()
        ],
    }
    return json.dumps(_plain(found), indent=1, allow_nan=False) + "\n"


def _about(night: Night) -> dict[str, Any]:
    return {
        "nightly": night.name,
        "name": night.called,
        "commit": night.commit,
        "dirty": night.dirty,
        "began": utc_text(night.began),
        "complete": night.complete,
        "tools": night.tools,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
