"""The exit statuses of `hil`: yes, no, inconclusive, and those of a shell for an interrupt and a closed pipe."""

from __future__ import annotations

from typing import Final

from cortex_m_hil.errors import HarnessError, VerdictError

OK: Final = 0
NO: Final = 1
CANNOT_TELL: Final = 2
INTERRUPTED: Final = 130
NO_READER: Final = 141


def status_of(error: HarnessError) -> int:
    """Return the exit status of a command that an error ends."""
    return NO if isinstance(error, VerdictError) else CANNOT_TELL
