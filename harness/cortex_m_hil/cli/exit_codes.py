"""The exit statuses of `hil`: yes, no, inconclusive, and those of a shell for an interrupt and a closed pipe."""

from __future__ import annotations

from typing import Final

OK: Final = 0
NO: Final = 1
CANNOT_TELL: Final = 2
INTERRUPTED: Final = 130
NO_READER: Final = 141
