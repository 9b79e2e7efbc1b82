"""Tells for which ISA class the arguments of an instruction are laid out; only `quantized_linear` shows it.

For MVE the bias is folded into `kernel_sum`, for DSP and SCALAR it is an argument of its own (ExecuTorch's
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
    """A layout for another ISA class than the target's.

    Attributes:
        problem: a text with the layout's ISA class and the target's.
        cause: the consequence of the wrong layout.
        value: the index of the argument that shows the layout.
    """

    problem: str
    cause: str
    value: int


def has_kernel_sum(file: PteFile, instruction: Instruction) -> bool | None:
    """Tell whether an instruction has the MVE layout; None for operators that do not show their layout."""
    if instruction.operator != "cortex_m::quantized_linear.out" or len(instruction.args) < 4:
        return None
    return file.values[instruction.args[3]].kind is not ValueKind.NULL


def wrong_layout(file: PteFile, instruction: Instruction, isa: Isa) -> WrongLayout | None:
    """Return the error of an instruction's layout on a target of an ISA class; None where no error is known."""
    found = has_kernel_sum(file, instruction)
    if found is None or found == (isa is Isa.MVE):
        return None
    value = instruction.args[3]
    if found:
        cause = f"a {isa.value} runtime ignores kernel_sum, so the bias: outputs collapse to the zero point"
        return WrongLayout(f"MVE layout on a {isa.value} target", cause, value)
    return WrongLayout("DSP/SCALAR layout on an MVE target", "an MVE runtime needs a kernel_sum", value)
