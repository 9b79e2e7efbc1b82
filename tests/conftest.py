"""What holds for all tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from cortex_m_hil.lowering.disk_cache import disk

# A shell's background job ignores SIGINT and SIGQUIT, and what nohup starts SIGHUP. What the tests start would inherit
# that, and some of them send it.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def lowered_anew() -> Iterator[None]:
    """What these tests lower is lowered, whatever earlier runs have kept. Those of the cache switch it on."""
    disk.enabled = False
    yield
