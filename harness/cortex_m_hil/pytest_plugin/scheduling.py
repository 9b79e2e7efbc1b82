"""Distributes tests to xdist's workers so that one worker runs a test on all its targets.

So a module is quantised and exported once for all ISA classes, and not again in each worker.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling


class ByTest(LoadScopeScheduling):  # type: ignore[misc]
    """A scheduler that gives each test with all its targets to one worker; `targets` are the names in test ids."""

    def __init__(self, config: pytest.Config, log: Any, targets: Sequence[str]) -> None:
        super().__init__(config, log)
        self._targets = targets

    def _split_scope(self, nodeid: str) -> str:
        return without_target(nodeid, self._targets)


def without_target(node_id: str, targets: Iterable[str]) -> str:
    """Return a node id without its target: `test_a.py::test_b[m4-qemu-3]` becomes `test_a.py::test_b[3]`."""
    base, bracket, parameters = node_id.partition("[")
    names = "|".join(re.escape(name) for name in sorted(targets, key=len, reverse=True))
    others = re.sub(rf"(?:^|-)(?:{names})(?=-|\]$)", "", parameters, count=1).removeprefix("-")
    return base if others == "]" else base + bracket + others
