"""Checks how much of a program runs on Cortex-M kernels, by its multiply-accumulates and by its operators.

Operators that ExecuTorch does not quantise compute correctly, but slowly and in more memory, and it gives no warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from cortex_m_hil.errors import ConfigError, LoweringError
from cortex_m_hil.errors.text import counted, percent
from cortex_m_hil.host.numbers import in_range
from cortex_m_hil.program.partition import Partition, PartitionKind, planned_in_int8
from cortex_m_hil.program.program import Program

_SHOWN: Final = 8  # places that a message shows at most
_SEE: Final = "hil inspect partition lists all operators of a program (pytest --keep-programs FOLDER)"
_LAYOUT: Final = 'layout="explicit", whose quantiser has more patterns'
_FLOAT: Final = "quantize=False leaves everything in float: leave one of the two out"
_INSTEAD: Final = {
    r"aten\.relu6\.": "torch.nn.ReLU6 for F.relu6",
    r"aten\.pow\.": "x * x for x ** 2",
    r" and [-+.\de]+: CortexMAddMulCheck": (
        "for a number beside an image a registered buffer with one for each channel, torch.full((1, C, 1, 1), 3.0), "
        "beside another tensor one of its shape"
    ),
    r" and [-+.\de]+: CortexMDivCheck": "for a quotient by a number a product with a registered buffer",
}
"""Replacements that the quantiser supports, by a pattern in the reason for not quantising."""


def checked_share(value: float | None) -> float | None:
    """Return a valid `min_cortex_m`: None or a share from 0 to 1. Raise ConfigError for anything else."""
    try:
        return None if value is None else in_range(value, 0, 1)
    except ValueError as error:
        raise ConfigError(f"min_cortex_m: {error}", hint="0.99 is 99 % of the multiply-accumulates") from None


def require_share(program: Program, minimum: float, target: str, *, layout: str, quantize: bool) -> None:
    """Require a share of the multiply-accumulates, and of the operators, to be on Cortex-M kernels.

    Args:
        program: the lowered program.
        minimum: the least allowed share, 0 to 1.
        target: the target's name, for messages.
        layout: the layout that the program was lowered for.
        quantize: whether the program was quantised.

    Raises:
        LoweringError: one of the two shares is smaller.
        ConfigError: no share is known, so nothing would be checked.
    """
    found = program.partition
    shares = [one for one in (found.cortex_m_macs, found.cortex_m_operator_share) if one is not None]
    if found.uncounted or not shares:
        unknown = ", ".join(found.uncounted)
        what = f"the multiply-accumulates of {unknown} are not known" if unknown else "it has no operator that computes"
        raise ConfigError(
            f"min_cortex_m says nothing of {program.name}: {what}", target=target, hint="leave min_cortex_m out"
        )
    if min(shares) < minimum:
        raise LoweringError(
            f"{_shares(program.name, found)}, at least {percent(minimum)} of each was asked for",
            target=target,
            details=[("elsewhere", one) for one in _places(found)],
            hint=_hint(found, layout) if quantize else _FLOAT,
        )


def left_in_float(program: Program, layout: str) -> str:
    """Return a warning if operators are left in float, or multiply-accumulates run on portable integer kernels.

    Return "" otherwise.
    """
    found = program.partition
    if not found.left_in_float and not any(one.macs for one in found.elsewhere):
        return ""
    costs = _costs(program, found)
    return "\n  ".join([f"{_shares(program.name, found)}{costs}", *_places(found), f"→ {_hint(found, layout)}"])


def _shares(name: str, found: Partition) -> str:
    macs = "" if found.cortex_m_macs is None else f"{percent(found.cortex_m_macs)} of the multiply-accumulates and "
    operators = f"{found.count(PartitionKind.CORTEX_M)} of {len(found.counting)} operators"
    return f"{name}: {macs}{operators} are on Cortex-M kernels"


def _costs(program: Program, found: Partition) -> str:
    """Return a text with the share of operators in float, and the planned bytes that floats cost."""
    if not found.left_in_float:
        return ""
    now, then = program.size_without_redzones or program.file.planned_bytes, planned_in_int8(program.file, found)
    memory = f"{now} bytes are planned, about {then} in int8" if now > then else "the memory plan is no larger for it"
    left = len(found.left_in_float)
    return f"; {left} {'is' if left == 1 else 'are'} left in float: {memory}"


def _places(found: Partition) -> Iterator[str]:
    places = found.elsewhere
    yield from map(str, places[:_SHOWN])
    if len(places) > _SHOWN:
        yield f"and {counted(len(places) - _SHOWN, 'more place')}"


def _hint(found: Partition, layout: str) -> str:
    """Return advice, with a replacement that is quantised where one is known."""
    reasons = " ".join(one.steps[0].why for one in found.elsewhere)
    instead = [what for reason, what in _INSTEAD.items() if re.search(reason, reasons)]
    more = [_LAYOUT] if layout != "explicit" and "aten.conv" in reasons else []
    return "; ".join([*instead, *more, _SEE])
