"""Commits that are suspected before they are run, and their weights in the prior.

Suspected are commits that change a path that the user calls likely, or a file whose name contains a part of a faulty
operator's name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from cortex_m_hil.campaigns.bisection.run_verdicts import RunVerdict, cases_of
from cortex_m_hil.campaigns.git_history import Commit
from cortex_m_hil.campaigns.store import Run

LIKELY: Final = 4.0  # factor by which a suspected commit is more probable than others
_OPERATOR: Final = re.compile(r"\b\w+::(\w+)")
# Parts of many operators' names, which therefore do not identify a kernel.
_COMMON_PARTS: Final = frozenset(
    {"quantized", "per", "tensor", "copy", "default", "nhwc", "out", "dim", "order", "clone"}
)
# Words in CMSIS-NN's file names, for operators that have another name there.
_CMSIS_NN_WORDS: Final = {"linear": ("fully_connected",), "avg": ("pool",), "bmm": ("batch_matmul",)}
_SHORTEST: Final = 3  # characters of a part; shorter ones are in too many file names


def weights(commits: Iterable[Commit], suspected: Collection[str]) -> list[float]:
    """Return the weight of each commit in the prior, given the SHAs of suspected commits."""
    return [LIKELY if commit.sha in suspected else 1.0 for commit in commits]


def file_name_words(operators: Iterable[str]) -> tuple[str, ...]:
    """Return the parts of operators' names that file names may contain: `conv` for `quantized_conv2d`.

    `operators` are names without namespace and overload. CMSIS-NN's words for the same operators are added, and all
    words are sorted.
    """
    found: set[str] = set()
    for name in operators:
        for part in name.split("_"):
            stem = re.sub(r"\d+d?$", "", part)
            if len(stem) >= _SHORTEST and stem not in _COMMON_PARTS:
                found |= {stem, *_CMSIS_NN_WORDS.get(stem, ())}
    return tuple(sorted(found))


def operators_at_fault(runs: Sequence[Run]) -> frozenset[str]:
    """Return the operators, without namespace and overload, that the failed runs' records name."""
    texts = (case.at_fault for run in runs if run.verdict == RunVerdict.FAIL for case in cases_of(run.figures))
    return frozenset(name for text in texts for name in _OPERATOR.findall(text))
