"""`--hil-quarantine FILE`: tests that are known to fail on some targets, each with a reason and a last day.

A verdict of such a test is an expected failure; an infra error is not. A test that passes is named in the summary, so
that its entry can be removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Final

import pytest
from pydantic import Field

from cortex_m_hil.campaigns.report.nightly_results import matches
from cortex_m_hil.host import yaml_files
from cortex_m_hil.pytest_plugin.fixtures import TEST_ID, resolved_of
from cortex_m_hil.targets.target import Strict

_BEGINS: Final = "it begins with quarantine:, a list of test:, target:, reason:, until:"
_EXAMPLES: Final = "hil docs nightly has an example"


class Entry(Strict):
    """A known failure of some tests on some targets.

    Attributes:
        test: a glob of test ids without their targets.
        target: a glob of the names of requested targets.
        reason: why the tests fail.
        until: the last day on which the entry is valid.
    """

    test: str
    target: str = "*"
    reason: str = Field(min_length=1)
    until: date


class _File(Strict):
    quarantine: list[Entry]


ENTRIES = pytest.StashKey[Sequence[Entry]]()


def load(path: Path) -> list[Entry]:
    """Load a quarantine file; raise ConfigError with file and line where it is wrong."""
    found: _File = yaml_files.validate(_File, yaml_files.parse(path, _BEGINS), path, _EXAMPLES)
    return found.quarantine


def entry_of(item: pytest.Item, today: date) -> Entry | None:
    """Return the first valid entry for a test on its target; None if there is none."""
    return next((one for one in _entries_of(item) if today <= one.until), None)


def ended_entry_of(item: pytest.Item, today: date) -> Entry | None:
    """Return the last entry of a test if all its entries have ended; None if it has no entry, or one is still valid."""
    known = _entries_of(item)
    return None if entry_of(item, today) else max(known, key=lambda one: one.until, default=None)


def _entries_of(item: pytest.Item) -> list[Entry]:
    resolved = resolved_of(item)
    if resolved is None:
        return []
    names = item.stash[TEST_ID], resolved.name
    return [one for one in item.config.stash[ENTRIES] if matches(*names, one.test, one.target)]


def ended(entries: Sequence[Entry], today: date) -> Iterator[str]:
    """Yield a line for each entry that has ended."""
    for one in entries:
        if today > one.until:
            yield f"quarantine of {one.test} on {one.target} ended on {one.until}: {one.reason}"
