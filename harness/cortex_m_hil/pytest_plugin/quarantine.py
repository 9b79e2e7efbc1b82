"""`--hil-quarantine FILE`: tests that are known to fail on some targets, each with a reason, and until when.

A verdict of theirs is an expected failure; an infra error is none. One that passes is told, so that its entry goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Final

import pytest
from pydantic import Field

from cortex_m_hil.campaigns.report.night import matches
from cortex_m_hil.host import yaml_files
from cortex_m_hil.pytest_plugin.fixtures import TEST_ID, resolved_of
from cortex_m_hil.targets.model import Strict

_BEGINS: Final = "it begins with quarantine:, a list of test:, target:, reason:, until:"
_EXAMPLES: Final = "hil docs nightly has an example"


class Entry(Strict):
    """`test` and `target` are globs, of a test's id without its target and of the target that is asked for.

    `until` is the last day on which it counts.
    """

    test: str
    target: str = "*"
    reason: str = Field(min_length=1)
    until: date


class _File(Strict):
    quarantine: list[Entry]


ENTRIES = pytest.StashKey[Sequence[Entry]]()


def load(path: Path) -> list[Entry]:
    """ConfigError with file and line."""
    found: _File = yaml_files.validate(_File, yaml_files.parse(path, _BEGINS), path, _EXAMPLES)
    return found.quarantine


def entry_of(item: pytest.Item, today: date) -> Entry | None:
    """The first that counts for a test on a target."""
    return next((one for one in _entries_of(item) if today <= one.until), None)


def ended_entry_of(item: pytest.Item, today: date) -> Entry | None:
    """The last to end, of a test that no entry counts for any more."""
    known = _entries_of(item)
    return None if entry_of(item, today) else max(known, key=lambda one: one.until, default=None)


def _entries_of(item: pytest.Item) -> list[Entry]:
    resolved = resolved_of(item)
    if resolved is None:
        return []
    names = item.stash[TEST_ID], resolved.name
    return [one for one in item.config.stash[ENTRIES] if matches(*names, one.test, one.target)]


def ended(entries: Sequence[Entry], today: date) -> Iterator[str]:
    """A line for each that does not count any more."""
    for one in entries:
        if today > one.until:
            yield f"quarantine of {one.test} on {one.target} ended on {one.until}: {one.reason}"
