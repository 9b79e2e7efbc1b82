"""Defects of ExecuTorch's that a generated program runs into, and lint does not foresee: recognised by their cause.

The cause is a property of the instruction that failed. What fails otherwise, or elsewhere in such a program, is new.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cortex_m_hil.program.dataflow import producer
from cortex_m_hil.program.model import Instruction, PteFile
from cortex_m_hil.program.schema import InstructionKind
from cortex_m_hil.targets.cpu import Isa

MUL: Final = "cortex_m::quantized_mul.out"
MOST_OFFSET: Final = (1 << 15) - 1 - 128
"""From zero: of int8, less a zero point within this, CMSIS-NN's multiplication keeps 16 bits."""


@dataclass(frozen=True)
class KnownBug:
    """`runtime`, `isa`: where it shows, None everywhere; `cause` asks an instruction of the operator."""

    find: str
    operator: str
    kinds: tuple[str, ...]
    runtime: str | None = None
    isa: Isa | None = None
    cause: Callable[[PteFile, Instruction], bool] = lambda _file, _instruction: True


def _has_a_bound_beyond_the_kernels(file: PteFile, mul: Instruction) -> bool:
    """Whether it is a hardswish's x * min(x + 3, 6), whose 3 in quanta of next to nothing is more than 16 bits."""
    arguments = mul.args[:-1]
    if len(arguments) < 4:
        return False
    offset = file.values[arguments[3]].scalar
    clamp = producer(file, arguments[2], mul.index)
    if not isinstance(offset, int) or abs(offset) <= MOST_OFFSET or clamp is None:
        return False
    return clamp.operator.partition("::")[2] == "minimum.out" and clamp.args[0] == arguments[0]


KNOWN: Final = (
    KnownBug("find 3", "cortex_m::quantize_per_tensor.out", ("Mismatch quanta", "runtimes differ"),
             "executorch", Isa.MVE),
    KnownBug("find 20", MUL, ("ProgramRejected",), "builtin", cause=_has_a_bound_beyond_the_kernels),
    KnownBug("find 20", MUL, ("Mismatch quanta", "Mismatch quantized"), "executorch",
             cause=_has_a_bound_beyond_the_kernels),
)  # fmt: skip


def find_of(kind: str, operator: str, at: int, file: PteFile, runtime: str, isa: Isa) -> str:
    """The find of docs/verification.md that a failure is, "" for something new.

    `at` is the instruction that failed, -1 where only its operator is known: then any of its instructions may be it.
    """
    places = [
        one for one in file.instructions
        if one.kind is InstructionKind.KERNEL and one.operator == operator and at in (-1, one.index)
    ]  # fmt: skip
    for bug in KNOWN:
        shows = bug.runtime in (None, runtime) and bug.isa in (None, isa)
        if shows and bug.operator == operator and kind in bug.kinds and any(bug.cause(file, one) for one in places):
            return bug.find
    return ""
