"""Merge the results of a run's jobs, compare them with the last nightly, and report.

The script reads hil-parts (a file from each job) and hil-nightlies (earlier runs), and writes hil-report, the job's
summary, hil-comment for the workflow that comments, and this run's nightly into hil-nightlies, which keeps the last 30.
Exit status 1 for a failed test, or a figure that is missing or beyond its limit, 2 where something could not be tested.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cortex_m_hil.campaigns.nightly import stored_nightlies as nights
from cortex_m_hil.campaigns.nightly.report_from_store import report_of
from cortex_m_hil.campaigns.report.changes import ChangeKind
from cortex_m_hil.campaigns.report.markdown import as_markdown
from cortex_m_hil.campaigns.report.nightly_results import FAILED
from cortex_m_hil.campaigns.report.report_contents import ReportContents
from cortex_m_hil.campaigns.report.report_files import write_report
from cortex_m_hil.campaigns.store import Store, StoredCampaign
from cortex_m_hil.errors import HarnessError
from cortex_m_hil.runner.run_results import Verdict
from github_actions import append, fail, fenced, is_harmless, shortened

KEPT = 30  # nightlies that are kept
REST = "index.html in the artifact hil-report"
PARTS, NIGHTLIES, REPORT, COMMENT = (Path(f"hil-{name}") for name in ("parts", "nightlies", "report", "comment"))


@dataclass(frozen=True)
class RunFindings:
    """The findings of a run; `missing` are the expected targets without results."""

    report: ReportContents
    missing: Sequence[str]

    @property
    def text(self) -> str:
        """Return the findings as Markdown."""
        told = as_markdown(self.report, REST, REST)
        names = ", ".join(f"`{name}`" for name in self.missing)
        return f"**No results of {names}**: their jobs say why.\n\n{told}" if names else told

    @property
    def status(self) -> int:
        verdicts = {one.verdict for one in self.report.night.tests}
        if verdicts & set(FAILED) or any(
            one.kind in (ChangeKind.LIMIT, ChangeKind.MISSING) for one in self.report.changes
        ):
            return 1
        return 2 if self.missing or not self.report.night.complete or Verdict.INFRA in verdicts or not verdicts else 0

    @property
    def is_news(self) -> bool:
        return bool(self.report.changes or self.missing or not self.report.night.complete)


def examine(store: Store, parts: Sequence[Path], expected: Sequence[str], against: str, *, whole: bool) -> RunFindings:
    """Merge the parts of a nightly, compare it with an earlier one, and write the report.

    Args:
        store: a store, to which the earlier nightlies and this one are added.
        parts: the files of the jobs.
        expected: the targets that should have results.
        against: the nightly to compare with, as for `nights.find`; "": the last one.
        whole: whether the nightly is a full one, which is kept for later comparisons.
    """
    for file in sorted(NIGHTLIES.glob("*.jsonl.gz")):
        nights.add_nightly(store, os.getcwd(), nights.read_nightly(file))
    campaign = nights.add_nightly(store, os.getcwd(), nights.merge([nights.read_nightly(part) for part in parts]))
    if campaign is None:
        fail("these results are among the earlier nightlies already; is hil-nightlies of another run?")
    before = nights.find(store, against, complete=True) if against else nights.previous(store, campaign)
    missing = [name for name in expected if name not in campaign.plan["targets"]]
    report = report_of(store, campaign, before, REPORT)
    write_report(report, REPORT)
    if whole and report.night.complete and not missing:
        keep(store, campaign)
    return RunFindings(report, missing)


def keep(store: Store, campaign: StoredCampaign) -> None:
    NIGHTLIES.mkdir(exist_ok=True)
    nights.export_nightly(store, campaign, NIGHTLIES / f"{campaign.began:015.3f}.jsonl.gz")
    for file in sorted(NIGHTLIES.glob("*.jsonl.gz"))[:-KEPT]:
        file.unlink()


def tell(text: str, *, news: bool) -> None:
    append("GITHUB_STEP_SUMMARY", text if is_harmless(text) else fenced(text))
    print(text)
    number = os.environ["PULL_REQUEST"]
    COMMENT.mkdir(exist_ok=True)
    told = {"pull_request": int(number) if number else None, "text": shortened(text), "news": news}
    (COMMENT / "comment.json").write_text(json.dumps(told, ensure_ascii=False), errors="backslashreplace")


def main() -> None:
    for folder in (REPORT, COMMENT):
        folder.mkdir(exist_ok=True)
    parts = sorted(PARTS.glob("*.jsonl.gz"))
    if not parts:
        tell("no job left results: their logs say why", news=True)
        fail("no job left results")
    file = Path(os.environ["RUNNER_TEMP"]) / "hil-report.sqlite"
    try:
        with Store(file) as store:
            whole, expected = not os.environ["PULL_REQUEST"], json.loads(os.environ["EXPECTED"])
            found = examine(store, parts, expected, os.environ["AGAINST"], whole=whole)
    except HarnessError as error:
        tell(str(error), news=True)
        fail(error.message)
    tell(found.text, news=found.is_news)
    sys.exit(found.status)


if __name__ == "__main__":
    main()
