"""What a comparison says of where to look, and the next step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Advice:
    """What the findings about one output say of where to look, and the next step; "" where nothing can be said."""

    cause: str = ""
    hint: str = ""


READING: Final = "hil docs writing-tests#reading-a-failure"
LAYOUT: Final = "hil lint tells whether a program's layout is its target's"
QUANTISATION: Final = Advice(
    "the quantisation: the target computes what the quantised module does, and that is far from the float module",
    "calibrate with inputs like these, or lower eager_sqnr if so coarse a result will do",
)
LOST: Final = Advice(
    "the quantisation: the target computes what the quantised module does, and that has little of the float module",
    "look for a layer that gets nothing but zeros or a constant from the calibration: the scale of its inputs is next "
    "to nothing, and its bias does not fit (hil docs verification, find 15)",
)
ROUNDING: Final = Advice(
    "rounding, as far as can be told: disturbed runs of the fake-quantised module differ from it by as much",
    "leave fake_quant_qtol out: by default what rounding explains passes (hil docs writing-tests#rounding)",
)
LOWERING: Final = Advice(
    "the lowering: the target computes what the lowered program says, and that is not what the module does",
    "lower parts of the module until they agree; fake_quant_qtol=N (atol, rtol for floats) allows more",
)
SIZE: Final = Advice(
    "a kernel that does not resize its output: it leaves it at its upper bounds, whatever the size of its inputs",
    "inputs of the upper bounds, or a program that is lowered for this size, without dynamic_shapes",
)
EXPECTED: Final = Advice(
    hint="are the expected values those of this program and these inputs? --qtol=N (--atol, --rtol for floats) allows "
    "more"
)
TARGET: Final = Advice(
    "the target: ExecuTorch's Python operators give other values for the same program",
    "--redzones tells whether something writes outside its tensor; qtol=N (atol, rtol for floats) allows more",
)
