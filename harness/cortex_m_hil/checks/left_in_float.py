"""Are the multiply-accumulates of a program on Cortex-M kernels?

What ExecuTorch leaves out of the quantisation is right and slow, and it says nothing.
"""

from __future__ import annotations

from typing import Final

from cortex_m_hil.errors import ConfigError, LoweringError
from cortex_m_hil.numbers import in_range
from cortex_m_hil.program.program import Program
from cortex_m_hil.text import counted, percent

_SHOWN: Final = 5  # places, those with the most multiply-accumulates
_SEE: Final = "hil partition shows each operator of a program, which pytest --keep-programs DIR writes"
_HINTS: Final = {
    "channels_last": f'change the layer, or try layout="explicit", whose quantiser has more patterns; {_SEE}',
    "explicit": f"change the layer; {_SEE}",
}
_FLOAT: Final = "quantize=False leaves everything in float: leave one of the two out"


def checked_share(value: float | None) -> float | None:
    """A `min_cortex_m`; ConfigError for what is no share."""
    try:
        return None if value is None else in_range(value, 0, 1)
    except ValueError as error:
        raise ConfigError(f"min_cortex_m: {error}", hint="0.99 is 99 % of the multiply-accumulates") from None


def require_share(program: Program, minimum: float, target: str, *, layout: str, quantize: bool) -> None:
    """LoweringError where a smaller share of the multiply-accumulates is on Cortex-M kernels.

    ConfigError where the share is not known: nothing would be checked.
    """
    share = program.partition.cortex_m_macs
    if share is None:
        unknown = ", ".join(program.partition.uncounted)
        what = f"those of {unknown} are not known" if unknown else "it has none"
        raise ConfigError(
            f"min_cortex_m says nothing of {program.name}: it is about multiply-accumulates, and {what}",
            target=target,
            hint="leave min_cortex_m out",
        )
    if share < minimum:
        places = program.partition.elsewhere
        details = [("elsewhere", str(one)) for one in places[:_SHOWN]]
        rest = [("and", f"{len(places) - _SHOWN} more")] if len(places) > _SHOWN else []
        what = f"{percent(share)} of {program.name}'s multiply-accumulates are on Cortex-M kernels"
        raise LoweringError(
            f"{what}, at least {percent(minimum)} was asked for",
            target=target,
            details=[*details, *rest],
            hint=_HINTS[layout] if quantize else _FLOAT,
        )


def left_in_float(program: Program) -> str:
    """A warning, where not all multiply-accumulates are on Cortex-M kernels; "" where they are, or there are none."""
    share, places = program.partition.cortex_m_macs, program.partition.elsewhere
    if share is None or not places:
        return ""
    more = f"; and {counted(len(places) - 1, 'more place')}" if len(places) > 1 else ""
    what = f"{percent(share)} of {program.name}'s multiply-accumulates are on Cortex-M kernels"
    return f"{what}; left out: {places[0]}{more}"
