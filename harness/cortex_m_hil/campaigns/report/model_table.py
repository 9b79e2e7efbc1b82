"""The table of a nightly's models: each model's result on each target, with the component to blame for an error.

Models are the tests that `models:` of nightly.yaml names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cortex_m_hil import errors
from cortex_m_hil.campaigns import property_names as prop
from cortex_m_hil.campaigns.report.nightly_results import PASSED, Night, Result, is_named
from cortex_m_hil.checks.comparison.comparison_result import FindingKind
from cortex_m_hil.checks.missing_operator_hints import executorch_lacks
from cortex_m_hil.errors.text import in_decibels, percent

_KERNEL: Final = "kernel"
# Components responsible for a LoweringError, by words of the message that tell the stage of the lowering.
_STAGES: Final = {
    "export": "exporter",
    "prepare_pt2e": "quantiser",
    "calibration": "quantiser",
    "convert_pt2e": "quantiser",
    "is not supported": "quantiser",
    "to_edge": "exporter",
    "Cortex-M passes": "pass",
    "to_executorch": "pass",
}
_OF_MISMATCH: Final = {FindingKind.EAGER.value: "quantiser", FindingKind.QUANTIZED.value: "pass"}
EXECUTORCH: Final = "ExecuTorch"
_OF_VERDICTS: Final = {
    errors.LintError: "pass",
    errors.OutOfTargetMemory: "memory",
    errors.WouldFailOnExecuTorch: EXECUTORCH,
}
_FIGURES: Final = (
    *(prop.CORTEX_M_OPERATORS, prop.CORTEX_M_MACS, prop.MAX_QUANTA, prop.SQNR_DB),
    *(prop.PLANNED_BYTES, prop.INSTRUCTIONS),
)
_NONE: Final = "–"


def owner(error: str, message: str) -> str:
    """Return the component that is responsible for an error, by the error's class name and message.

    It is `exporter`, `quantiser`, `pass`, `kernel`, `ExecuTorch` (also for an operator that neither it nor the runner
    has), `memory` or `model`; "" for an infra error, or an error that is not the harness's.
    """
    kind = vars(errors).get(error)
    if kind is errors.ConfigError:
        return "model"
    if kind is errors.LoweringError:
        return next((of for stage, of in _STAGES.items() if stage in message), "exporter")
    if kind is errors.Mismatch:
        found = re.search(r"output \d+: (\w+):", message)
        return _OF_MISMATCH.get(found[1], _KERNEL) if found else _KERNEL
    if kind is errors.UnsupportedOperator:
        missing = re.search(r"(?:the runner|your firmware) has no ([\w:]+\.\w+)", message)
        return EXECUTORCH if missing and executorch_lacks(missing[1]) else _KERNEL
    if isinstance(kind, type) and issubclass(kind, errors.VerdictError):
        return _OF_VERDICTS.get(kind, _KERNEL)
    return ""


@dataclass(frozen=True)
class ModelRow:
    """A model on a target, as text; values that are missing because of an error are `–`.

    Attributes:
        operators: the share of operators on Cortex-M kernels.
        macs: the share of multiply-accumulates on Cortex-M kernels.
        quanta: the largest distance from the dialect.
        sqnr: the SQNR against the float module.
        planned: the bytes of planned tensors.
        obstacle: the error that ended the test, with the responsible component; "" if it passed.
    """

    result: Result
    operators: str
    macs: str
    quanta: str
    sqnr: str
    planned: str
    instructions: str
    obstacle: str


def models(night: Night) -> Iterator[ModelRow]:
    """Yield a row for each model and target, in the order of tests and targets."""
    yield from (_row(one) for one in night.tests if one.key.target and is_named(one.key.test, night.models))


def _row(one: Result) -> ModelRow:
    operators, macs, quanta, sqnr, planned, instructions = map(one.value, _FIGURES)
    return ModelRow(
        one,
        _NONE if operators is None else percent(operators),
        _NONE if macs is None else percent(macs),
        _NONE if quanta is None else f"{quanta:g}",
        _NONE if sqnr is None else in_decibels(sqnr),
        _NONE if planned is None else f"{planned:,.0f}",
        _NONE if instructions is None else f"{instructions:,.0f}",
        "" if one.verdict in PASSED else _obstacle(one),
    )


def _obstacle(one: Result) -> str:
    """Return the component responsible for a result's error, and its headline, which begins with the error's name."""
    return ": ".join(filter(None, (owner(one.error, one.headline), one.headline or one.error)))
