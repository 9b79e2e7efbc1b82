"""Tolerances: how far outputs may be from references, by the user's settings and by the effect of rounding."""

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
from cortex_m_hil.host.api_calls import checked_class
from cortex_m_hil.program.tensor import Array

ROUNDING_MARGIN: Final = 1.25  # factor on the deviations of the disturbed runs of fake-quant, since the runs are few
WORST_MARGIN: Final = 1.5  # the factor for the largest deviation, which a further run exceeds one time in nine
# The default bound of the SQNR against the float module, in dB. An int8 tensor that uses its range has 48 (a uniform
# signal) to 41 (a normal one, to 4 sigma); right values of small networks have 37 to 54 (measured on
# `native`). 30 is two bits less than 41: noise of 3 % of the signal.
FULL_SQNR: Final = 48.0
NO_SQNR: Final = -sys.float_info.max  # as a bound in dB: none
GOOD_SQNR: Final = 30.0


@checked_class
@dataclass(frozen=True)
class Tolerance:
    """The allowed distance of each element of an output from three references.

    Attributes:
        qtol: quanta (steps of the output's quantisation), a whole number, from the *dialect*: ExecuTorch's Python
            Cortex-M operators.
        fake_quant_qtol: quanta from the fake-quantised module; None: the deviation that rounding explains, plus
            ``qtol``.
        atol: the absolute tolerance of outputs that are not quantised. As in numpy.allclose an element may differ by
            ``atol + rtol * abs(expected)`` from the fake-quantised module, else from the float module.
        rtol: the relative tolerance, as a share of the expected value.
        eager_sqnr: the least signal-to-quantisation-noise ratio in dB against the float module, over a whole output. An
            offset that all elements share counts as signal; if the bound is met only because of it, a warning has both
            figures. ``-sys.float_info.max`` is no bound.

    Raises:
        ConfigError: a tolerance is negative, infinite, NaN or no number, or has an unknown name. Only ``eager_sqnr``
            may be negative.
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
        _demand("eager_sqnr", self.eager_sqnr, Real, NO_SQNR, "a finite number of dB", "15.0")

    def has_enough(self, sqnr: float) -> bool:
        """Tell whether an SQNR in dB meets the bound; minus infinity, without a signal, meets none but ``NO_SQNR``."""
        return max(sqnr, NO_SQNR) >= self.eager_sqnr


def _demand(name: str, value: Any, kind: type, lowest: float, wanted: str, example: str) -> None:
    if not isinstance(value, kind) or isinstance(value, bool) or not lowest <= value < math.inf:  # type: ignore[operator]
        raise ConfigError(
            f"{name}={shown(value)}: it takes {wanted}",
            hint=f"such as {name}={example}; hil docs writing-tests#calls",
        )


@dataclass(frozen=True, slots=True)
class Spread:
    """The deviation of integers from a reference, as four figures.

    A wrong zero point moves every element in one direction; rounding moves a few in both directions. The worst element
    alone does not distinguish the two.

    Attributes:
        worst: the largest deviation.
        elements: the number of elements that deviate.
        drift: the absolute value of the deviations' sum.
        energy: the sum of the deviations' squares.
    """

    worst: float = 0
    elements: float = 0
    drift: float = 0
    energy: float = 0

    @classmethod
    def of_deviation(cls, deviation: Array) -> Spread:
        return cls(
            float(np.abs(deviation).max(initial=0)),
            float((deviation != 0).sum()),
            float(abs(deviation.sum())),
            float((deviation**2).sum()),
        )

    @classmethod
    def of_disturbed_runs(cls, runs: Sequence[Array]) -> Spread:
        """Return the deviation that rounding explains, estimated from the deviations of several disturbed runs.

        A random count varies by its square root: where 3 elements moved, 4 or 5 could have moved. The sum of deviations
        with random signs is less than twice the root of the sum of their squares, 19 times of 20.
        """
        if not runs:
            return cls()
        worst, elements, drift, energy = map(max, zip(*(astuple(cls.of_deviation(run)) for run in runs), strict=True))
        more = max(ROUNDING_MARGIN, 1 + 1 / math.sqrt(elements)) if elements else 1.0
        drift = max(ROUNDING_MARGIN * drift, 2 * math.sqrt(energy))
        return cls(WORST_MARGIN * worst, more * elements, drift, more * energy)

    def within(self, bound: Spread) -> bool:
        return all(mine <= most for mine, most in zip(astuple(self), astuple(bound), strict=True))
