"""Advice for failed comparisons: the likely cause, and the next step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Advice:
    """The cause that the findings about one output point to, and the next step; "" where nothing can be said."""

    cause: str = ""
    hint: str = ""


READING: Final = "hil docs failures#reading-a-failure"
LAYOUT: Final = "hil lint tells whether a program's layout is its target's"
LOCALIZE: Final = "target.localize(program)"
"""The hint for a script that looks for the wrong operator; tests and bundles have a command in its place."""
FEEDS: Final = "or what feeds it"
"""The end of the cause's text where only the operator of the collapsed output is known."""
CALIBRATE: Final = "calibrate with inputs of the range that is run"
QUANTISATION: Final = Advice(
    "the quantisation: the target computes what the quantised module does, and that is far from the float module",
    f"{LOCALIZE} names the operator that loses most; {CALIBRATE}, or lower eager_sqnr",
)
LOST: Final = Advice(
    "the quantisation: the target computes what the quantised module does, and that has little of the float module",
    f"{LOCALIZE} names the operator that loses most; {CALIBRATE}",
)
BOUND: Final = Advice(
    "the bound: int8 that uses its range reaches about 40 to 50 dB against the float module",
    "lower eager_sqnr: 30 dB is good, 15 the default",
)
ROUNDING: Final = Advice(
    "probably rounding: the fake-quantised module differs from itself by as much where its values are disturbed",
    "leave fake_quant_qtol out: by default, differences that rounding explains pass (hil docs writing-tests#rounding)",
)
LOWERING: Final = Advice(
    "the lowering: the target computes what the lowered program says, and that is not what the module does",
    f"{LOCALIZE} names the operator; fake_quant_qtol=N (atol, rtol for floats) allows more",
)
SIZE: Final = Advice(
    "a kernel that does not resize its output: it leaves it at its upper bounds, whatever the size of its inputs",
    "inputs of the upper bounds, or a program that is lowered for this size, without dynamic_shapes",
)
EXPECTED: Final = Advice(
    hint="are the expected values those of this program and these inputs? qtol=N or --qtol=N (for floats atol, rtol) "
    "allows more"
)
TARGET: Final = Advice(
    "the target: ExecuTorch's Python operators give other values for the same program",
    f"{LOCALIZE} names the operator; --redzones finds writes outside tensors; qtol=N (atol, rtol) allows more",
)
