"""Guess the source files that may implement an operator at fault, from parts of its name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from cortex_m_hil.campaigns.bisection.test_verdicts import RunVerdict, cases_of
from cortex_m_hil.campaigns.store import Run

_OPERATOR: Final = re.compile(r"\b\w+::(\w+)")
# Parts of operators' names that say nothing of the kernel.
_OF_ANY: Final = frozenset({"quantized", "per", "tensor", "copy", "default", "nhwc", "out", "dim", "order", "clone"})
# CMSIS-NN's words for operators of whose names no part is in the names of their files.
_ALSO: Final = {"linear": ("fully_connected",), "avg": ("pool",), "bmm": ("batch_matmul",)}
_SHORTEST: Final = 3  # characters of a word that is looked for


def words(operators: Iterable[str]) -> tuple[str, ...]:
    """Return the parts of operators' names that file names may contain: `conv` for `quantized_conv2d`.

    `operators` are names without namespace and overload. CMSIS-NN's words for the same are added, and the parts are
    sorted.
    """
    found: set[str] = set()
    for name in operators:
        for part in name.split("_"):
            stem = re.sub(r"\d+d?$", "", part)
            if len(stem) >= _SHORTEST and stem not in _OF_ANY:
                found |= {stem, *_ALSO.get(stem, ())}
    return tuple(sorted(found))


def at_fault(runs: Sequence[Run]) -> frozenset[str]:
    """Return the operators, without namespace and overload, that the failed runs' records name."""
    texts = (case.at_fault for run in runs if run.verdict == RunVerdict.FAIL for case in cases_of(run.figures))
    return frozenset(name for text in texts for name in _OPERATOR.findall(text))
