"""Which ISA classes an instruction's arguments are laid out for. `quantized_linear` alone tells: `kernel_sum` or bias.

For MVE the bias is folded into `kernel_sum`, for DSP and SCALAR it stays by itself (ExecuTorch's
`backends/cortex_m/passes/`).
"""

from __future__ import annotations

from dataclasses import dataclass

from cortex_m_hil.program.model import Instruction, PteFile
from cortex_m_hil.program.schema import ValueKind
from cortex_m_hil.targets.cpu import Isa


@dataclass(frozen=True, slots=True)
class WrongLayout:
    """`problem`: of which class the layout is, and the target; `cause`: what comes of it; `value`: the argument."""

    problem: str
    cause: str
    value: int


def has_kernel_sum(file: PteFile, instruction: Instruction) -> bool | None:
    """Whether it is in the MVE layout; None for operators that do not tell."""
    if instruction.operator != "cortex_m::quantized_linear.out" or len(instruction.args) < 4:
        return None
    return file.values[instruction.args[3]].kind is not ValueKind.NULL


def wrong_layout(file: PteFile, instruction: Instruction, isa: Isa) -> WrongLayout | None:
    """What is wrong with an instruction's layout on a target of the class; None where nothing is known to be."""
    found = has_kernel_sum(file, instruction)
    if found is None or found == (isa is Isa.MVE):
        return None
    value = instruction.args[3]
    if found:
        cause = f"a {isa.value} runtime ignores kernel_sum, so the bias: outputs collapse to the zero point"
        return WrongLayout(f"MVE layout on a {isa.value} target", cause, value)
    return WrongLayout("DSP/SCALAR layout on an MVE target", "an MVE runtime needs a kernel_sum", value)
