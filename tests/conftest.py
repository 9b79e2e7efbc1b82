"""What holds for all tests."""

from __future__ import annotations

import signal

# A shell's background job ignores SIGINT, and what the tests start would inherit that; some of them send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
