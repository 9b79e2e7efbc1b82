"""What holds for all tests."""

from __future__ import annotations

import signal

# A shell's background job ignores SIGINT and SIGQUIT, and what nohup starts SIGHUP. What the tests start would inherit
# that, and some of them send it.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)
