"""Why a process gave nothing to measure."""

from __future__ import annotations

from pathlib import Path

from cortex_m_hil.errors import ToolchainError


def failed(what: str, status: int | None, log: Path) -> ToolchainError:
    """`what` ended with `status`, None if it had to be ended; `log` has what it said."""
    text = log.read_text(errors="replace")
    last = next(reversed(text.strip().splitlines()), "it said nothing")
    how = "does not end" if status is None else f"ended with status {status}: {last}"
    return ToolchainError(f"{what} {how}", log=text, hint="its seconds would mean nothing: make it pass first")
