"""The contents of a report: a nightly, the changes since another nightly, and earlier nights."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Final

from cortex_m_hil.campaigns.report.changes import Change
from cortex_m_hil.campaigns.report.nightly_results import RUNNER, Night, Result
from cortex_m_hil.host.pytest_options import pytest_options

UPSTREAM: Final = "upstream"
BUNDLES: Final = "bundles"  # the folder with bundles, next to the report
DAY: Final = "%a %Y-%m-%d"  # as a form for `utc_text`


@dataclass(frozen=True)
class ReportContents:
    """The contents of a report.

    Attributes:
        night: the nightly that the report is about.
        against: the nightly that `changes` compares with; None without a comparison.
        history: earlier nights whose figures can be compared, oldest first.
        options: pytest's options in the commands that run a test again.
        bundles: names of the bundles in the folder `BUNDLES`.
    """

    night: Night
    against: Night | None
    changes: Sequence[Change]
    history: Sequence[Night] = ()
    options: tuple[str, ...] = ()
    bundles: frozenset[str] = field(default=frozenset(), repr=False)

    def bundle(self, result: Result) -> str:
        """Return the path of a result's bundle, relative to the report; "" if there is none."""
        return f"{BUNDLES}/{result.bundle}" if result.bundle in self.bundles else ""

    def command(self, result: Result) -> str:
        """Return the command that runs a result's test again; "" where the result is about a runner."""
        key = result.key
        if key.test == RUNNER:
            return ""
        upstream = key.suite == UPSTREAM
        target = key.target or next((one.target for one in self.night.results if upstream and one.target), "")
        words = ["hil", "dev", "upstream"] if upstream else ["pytest"]
        if upstream:
            words += [f"--target={target}", f"--runtime={key.runtime}"] if target else []
            words.append("--")
        else:
            words += pytest_options(target=target, runtime=key.runtime) if target else []
        return shlex.join([*words, *self.options, result.node_id or key.test])


def utc_text(seconds: float, form: str = "%Y-%m-%d %H:%M:%SZ") -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime(form)
