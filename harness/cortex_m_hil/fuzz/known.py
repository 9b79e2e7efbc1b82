"""Defects of ExecuTorch's that a generated program runs into, and lint does not foresee."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cortex_m_hil.targets.cpu import Isa


@dataclass(frozen=True)
class KnownBug:
    """Where it shows: the operator that failed, how, on which runtime and ISA class."""

    find: str
    operator: str
    kinds: tuple[str, ...]
    runtime: str
    isa: Isa


KNOWN: Final = (
    KnownBug("find 3", "cortex_m::quantize_per_tensor.out", ("Mismatch quanta", "runtimes differ"),
             "executorch", Isa.MVE),
)  # fmt: skip


def find_of(kind: str, operator: str, runtime: str, isa: Isa) -> str:
    """The find of docs/verification.md that a failure is, "" for something new."""
    for bug in KNOWN:
        if (bug.operator, bug.runtime, bug.isa) == (operator, runtime, isa) and kind in bug.kinds:
            return bug.find
    return ""
