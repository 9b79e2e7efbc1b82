"""The ISA classes that an instruction's arguments are laid out for, which only `quantized_linear` shows.

For MVE the bias is folded into `kernel_sum`, for DSP and SCALAR it stays by itself (ExecuTorch's
`backends/cortex_m/passes/`).
"""

from __future__ import annotations

from dataclasses import dataclass

from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.schema import ValueKind
from cortex_m_hil.program.values import Instruction
from cortex_m_hil.targets.cpu import Isa


@dataclass(frozen=True, slots=True)
class WrongLayout:
    """A layout that is not the target's.

    Attributes:
        problem: the class that the layout is of, and the target's.
        cause: what comes of it.
        value: the number of the argument's value.
    """

    problem: str
    cause: str
    value: int


def has_kernel_sum(file: PteFile, instruction: Instruction) -> bool | None:
    """Tell whether an instruction is in the MVE layout; None for operators that do not show it."""
    if instruction.operator != "cortex_m::quantized_linear.out" or len(instruction.args) < 4:
        return None
    return file.values[instruction.args[3]].kind is not ValueKind.NULL


def wrong_layout(file: PteFile, instruction: Instruction, isa: Isa) -> WrongLayout | None:
    """Return what is wrong with an instruction's layout on a target of the class; None where nothing is known to be."""
    found = has_kernel_sum(file, instruction)
    if found is None or found == (isa is Isa.MVE):
        return None
    value = instruction.args[3]
    if found:
        cause = f"a {isa.value} runtime ignores kernel_sum, so the bias: outputs collapse to the zero point"
        return WrongLayout(f"MVE layout on a {isa.value} target", cause, value)
    return WrongLayout("DSP/SCALAR layout on an MVE target", "an MVE runtime needs a kernel_sum", value)
