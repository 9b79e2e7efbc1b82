"""Defects of ExecuTorch that generated programs run into and lint does not predict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cortex_m_hil.errors.known_bugs import known_bug
from cortex_m_hil.targets.cpu import Isa


@dataclass(frozen=True)
class KnownDefect:
    """A known bug of ExecuTorch, by the failure that shows it.

    Attributes:
        number: the bug's number in docs/known_bugs.md.
        operator: the operator that fails.
        kinds: the kinds of failure that it causes (`Disagreement.kind`).
        runtime, isa: the runtime and ISA class on which it shows.
    """

    number: int
    meaning: str
    operator: str
    kinds: tuple[str, ...]
    runtime: str
    isa: Isa


KNOWN: Final = (
    KnownDefect(
        3, "its MVE form multiplies and adds in one rounding", "cortex_m::quantize_per_tensor.out",
        ("Mismatch quanta", "runtimes differ"), "executorch", Isa.MVE,
    ),
)  # fmt: skip


def known_defect_of(kind: str, operator: str, runtime: str, isa: Isa) -> str:
    """Return a text on the known bug that explains a failure, with its number; "" if none does."""
    for bug in KNOWN:
        if (bug.operator, bug.runtime, bug.isa) == (operator, runtime, isa) and kind in bug.kinds:
            return f"{bug.meaning} ({known_bug(bug.number)})"
    return ""
