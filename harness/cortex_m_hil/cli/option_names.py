"""Texts of lint and of verdicts that name the options of a command in place of the API's arguments."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cortex_m_hil.cli.command_output import hint_for_commands
from cortex_m_hil.errors import VerdictError

if TYPE_CHECKING:
    from cortex_m_hil.flow.dut import Dut
    from cortex_m_hil.program.program import Program


def refused_by_lint(dut: Dut, program: Program, *, linted: bool) -> str:
    """Return why lint would refuse a program that was run with --no-lint; else ""."""
    from cortex_m_hil import flow
    from cortex_m_hil.checks.lint_rules.hints import UNLINTED

    return "" if linted else flow.refused_by_lint(dut, program).replace(UNLINTED, "--no-lint")


@contextlib.contextmanager
def options_named() -> Iterator[None]:
    """Replace the arguments `lint=False` and `known=…` by the command's options in verdicts that the block raises."""
    from cortex_m_hil.checks.lint_rules.hints import UNLINTED

    try:
        yield
    except VerdictError as error:
        error.hint = hint_for_commands(error.hint.replace(UNLINTED, "--no-lint"))
        error.details = tuple((label, text.replace(UNLINTED, "--no-lint")) for label, text in error.details)
        raise
