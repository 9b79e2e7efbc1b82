"""Reports of nightlies, built from the store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from cortex_m_hil.campaigns.nightly import stored_nightlies as nights
from cortex_m_hil.campaigns.nightly.nightly import nightly_plan, shareable
from cortex_m_hil.campaigns.report.nightly_results import Night, Result
from cortex_m_hil.campaigns.report.report_contents import BUNDLES, ReportContents
from cortex_m_hil.campaigns.report.trend_encoding import BY_PART
from cortex_m_hil.campaigns.store import Store, StoredCampaign
from cortex_m_hil.host.pytest_options import pytest_options

HISTORY: Final = 30  # nights in a report at most


def report_of(
    kept: Store, campaign: StoredCampaign, before: StoredCampaign | None, folder: Path | None
) -> ReportContents:
    """Build the report of a nightly.

    Args:
        kept: the store.
        campaign: the nightly.
        before: the nightly to compare with; None: there is none.
        folder: the folder where the report will be written; the report then has earlier nights, and links to bundles in
            the folder. None: it is not written, and has neither.
    """
    plan, night = nightly_plan(campaign), nights.night(kept, campaign)
    against = nights.night(kept, before) if before is not None else None
    targets = pytest_options(targets_file=plan.targets_file)
    return ReportContents(
        night=night,
        against=against,
        changes=nights.what_changed(kept, campaign, against, night),
        history=[_figures_of(nights.night(kept, one)) for one in nights.series(kept, campaign)[-HISTORY:] if folder],
        options=shareable([*targets, *plan.options], campaign.folder),
        bundles=frozenset(path.name for path in (folder / BUNDLES).glob("*.zip")) if folder else frozenset(),
    )


def _figures_of(night: Night) -> Night:
    """Return a nightly without logs and without parts but `BY_PART`: the report needs no more of earlier nights."""
    return replace(night, results={key: _without_log(one) for key, one in night.results.items()})


def _without_log(one: Result) -> Result:
    parts = {figure: one.parts[figure] for figure in BY_PART if figure in one.parts}
    return replace(one, parts=parts, log="", localized="")
