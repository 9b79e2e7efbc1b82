"""Tolerances: how far outputs may be from references, by what users allow and by what rounding explains."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from numbers import Integral, Real
from typing import Any, Final

import numpy as np

from cortex_m_hil.errors import ConfigError
from cortex_m_hil.errors.text import shown
from cortex_m_hil.host.calls import checked_class
from cortex_m_hil.program.tensor import Array

ROUNDING_MARGIN: Final = 1.25  # factor on what the disturbed runs of fake-quant show, which are few
WORST_MARGIN: Final = 1.5  # the same for the largest deviation: a further run has a larger one, one time in nine
# dB against the float module: what has as much left is not coarse, whatever its inputs had. An int8 tensor that uses
# its range has 48 (a uniform signal) to 41 (a normal one, to 4 sigma); values of small networks that are right have
# 37 to 54 (measured on `native`). 30 is two bits less than 41: noise of 3 % of the signal.
FULL_SQNR: Final = 48.0
GOOD_SQNR: Final = 30.0


@checked_class
@dataclass(frozen=True)
class Tolerance:
    """The allowed distance of each element of an output from three references.

    Attributes:
        qtol: quanta (steps of the output's quantisation), a whole number, from the *dialect*: ExecuTorch's Python
            Cortex-M operators.
        fake_quant_qtol: quanta from the fake-quantised module; None: as far as rounding explains, and ``qtol`` more.
        atol: for outputs that are not quantised, in units of the output. As in numpy.allclose an element may differ by
            ``atol + rtol * abs(expected)`` from the fake-quantised module, else from the float module.
        rtol: the other part of it, a share of the expected value.
        eager_sqnr: dB of signal to quantisation noise against the float module, at least, over a whole output. An
            offset that all elements share counts as signal; where it alone meets the bound, a warning has both figures.

    Raises:
        ConfigError: negative, infinite, NaN, or no number, or no such tolerance. ``eager_sqnr`` alone may be negative.
    """

    qtol: int = 0
    fake_quant_qtol: int | None = None
    atol: float = 1e-3
    rtol: float = 1e-3
    eager_sqnr: float = 15.0

    def __post_init__(self) -> None:
        quanta, amount = "a whole number of quanta, 0 or more", "a finite number, 0 or more"
        _demand("qtol", self.qtol, Integral, 0, quanta, "1")
        if self.fake_quant_qtol is not None:
            _demand("fake_quant_qtol", self.fake_quant_qtol, Integral, 0, quanta, "1")
        _demand("atol", self.atol, Real, 0, amount, "0.001")
        _demand("rtol", self.rtol, Real, 0, amount, "0.001")
        _demand("eager_sqnr", self.eager_sqnr, Real, -sys.float_info.max, "a finite number of dB", "15.0")


def _demand(name: str, value: Any, kind: type, lowest: float, wanted: str, example: str) -> None:
    if not isinstance(value, kind) or isinstance(value, bool) or not lowest <= value < math.inf:  # type: ignore[operator]
        raise ConfigError(
            f"{name}={shown(value)}: it takes {wanted}",
            hint=f"such as {name}={example}; hil docs writing-tests#calls",
        )


@dataclass(frozen=True, slots=True)
class Spread:
    """The deviation of integers from a reference, as four figures.

    A zero point that is one off moves every element, all one way; rounding moves a few, both ways. By the worst element
    alone the two cannot be told apart.

    Attributes:
        worst: the largest deviation.
        elements: the number of elements that deviate.
        drift: the amount of the deviations' sum.
        energy: the sum of their squares.
    """

    worst: float = 0
    elements: float = 0
    drift: float = 0
    energy: float = 0

    @classmethod
    def of(cls, deviation: Array) -> Spread:
        return cls(
            float(np.abs(deviation).max(initial=0)),
            float((deviation != 0).sum()),
            float(abs(deviation.sum())),
            float((deviation**2).sum()),
        )

    @classmethod
    def of_disturbed_runs(cls, runs: Sequence[Array]) -> Spread:
        """Return the deviation that rounding explains, by those of several disturbed runs.

        A count that is by chance varies by its root: where 3 elements moved, it could have been 4 or 5. A sum of
        deviations whose signs are by chance is less than twice the root of their squares' sum, 19 times of 20: two
        elements that went opposite ways could have gone the same way.
        """
        if not runs:
            return cls()
        worst, elements, drift, energy = map(max, zip(*(astuple(cls.of(run)) for run in runs), strict=True))
        more = max(ROUNDING_MARGIN, 1 + 1 / math.sqrt(elements)) if elements else 1.0
        drift = max(ROUNDING_MARGIN * drift, 2 * math.sqrt(energy))
        return cls(WORST_MARGIN * worst, more * elements, drift, more * energy)

    def within(self, bound: Spread) -> bool:
        return all(mine <= most for mine, most in zip(astuple(self), astuple(bound), strict=True))
