"""What holds for all tests."""

from __future__ import annotations

import signal

# A shell's background job ignores SIGINT and SIGQUIT, and what nohup starts SIGHUP. What the tests start would inherit
# that, and some of them send it.
HANDLERS = {signal.SIGINT: signal.default_int_handler, signal.SIGQUIT: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL}
for number, handler in HANDLERS.items():
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)
