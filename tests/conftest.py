"""What holds for all tests."""

from __future__ import annotations

import signal

# A shell's background job ignores SIGINT, and what nohup starts SIGHUP. What the tests start would inherit that, and
# some of them send it.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)
