"""The test pipeline: lower, lint, run, compare. No other package defines this sequence."""

from __future__ import annotations

from cortex_m_hil.checks.input_checks import InputQuantizer, arrange
from cortex_m_hil.flow.checking import (
    Checked,
    ProgramLint,
    findings,
    findings_elsewhere,
    findings_everywhere,
    judge_on_executorch,
    keep,
    kept_input,
    refused_by_lint,
    run,
    stream,
    verify,
)
from cortex_m_hil.flow.dut import Dut, open_dut, require, runner_operators
from cortex_m_hil.flow.export_and_lower import export, lower, warn_of_training
from cortex_m_hil.flow.firmware_app import App, Recording
from cortex_m_hil.flow.interactive_elf import Launched, files_in, launched
from cortex_m_hil.flow.launch_elf import Launch, is_board
from cortex_m_hil.flow.self_test import selftest
from cortex_m_hil.flow.single_run import POISON, Guard, Guards, prepare
from cortex_m_hil.flow.streaming import stream_frames
from cortex_m_hil.lowering.scratch import scratch_needs

__all__ = [
    "POISON",
    "App",
    "Checked",
    "Dut",
    "Guard",
    "Guards",
    "InputQuantizer",
    "Launch",
    "Launched",
    "ProgramLint",
    "Recording",
    "arrange",
    "export",
    "files_in",
    "findings",
    "findings_elsewhere",
    "findings_everywhere",
    "is_board",
    "judge_on_executorch",
    "keep",
    "kept_input",
    "launched",
    "lower",
    "open_dut",
    "prepare",
    "refused_by_lint",
    "require",
    "run",
    "runner_operators",
    "scratch_needs",
    "selftest",
    "stream",
    "stream_frames",
    "verify",
    "warn_of_training",
]
