"""Ends runs cleanly: a worker ends with its controller, any other process on SIGTERM and SIGHUP."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from typing import Any, Final

import pytest

from cortex_m_hil.host import supervisor

_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)
_PARENT: Final = "hil_controller"  # the key of the controller's process id in a worker's input


class _Workers:
    """A plugin that keeps track of the worker processes that xdist's controller has started."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        if node.gateway.spec.popen and not node.gateway.spec.via:
            node.workerinput[_PARENT] = os.getpid()
            self._processes.append(node.gateway._io.popen)

    def pytest_keyboard_interrupt(self) -> None:
        """Interrupt the workers: xdist would wait 10 s for their current tests."""
        for worker in self._processes:
            worker.send_signal(signal.SIGINT)


def prepare(config: pytest.Config) -> None:
    """Let a worker end with its controller, and any other run end in good order on SIGTERM and SIGHUP."""
    if threading.current_thread() is not threading.main_thread():
        return
    if hasattr(config, "workerinput"):
        if _PARENT in config.workerinput:
            supervisor.die_with(config.workerinput[_PARENT], signal.SIGKILL)
            signal.signal(signal.SIGINT, _interrupt_once)
        return
    config.pluginmanager.register(_Workers(), "hil-workers")
    ending = _Ending()
    config.pluginmanager.register(ending, "hil-ending")
    for number in _SIGNALS:
        if signal.getsignal(number) is signal.SIG_DFL:  # not if the signal is handled or ignored already, as by nohup
            signal.signal(number, ending.take)
            config.add_cleanup(ending.restore)


class _Ending:
    """A plugin by which SIGTERM and SIGHUP end a run as Ctrl-C does, with a summary of what has run so far."""

    def __init__(self) -> None:
        self._taken: signal.Signals | None = None

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Print the summaries as after Ctrl-C: pytest omits them if the exit status is not one of its own."""
        config = session.config
        terminal = config.pluginmanager.getplugin("terminalreporter")
        if self._taken is not None and terminal is not None:
            terminal.write_line("")
            config.hook.pytest_terminal_summary(
                terminalreporter=terminal, exitstatus=pytest.ExitCode.INTERRUPTED, config=config
            )

    def take(self, number: int, frame: object) -> None:
        """Handle the first signal by ending the run; a second one ends the process at once."""
        signal.signal(number, signal.SIG_DFL)
        self._taken = signal.Signals(number)
        self.pytest_runtest_logstart()

    def pytest_runtest_logstart(self) -> None:
        """End the run before the next test, in case the signal handler's exception was lost in a destructor."""
        if self._taken is not None:
            pytest.exit(f"ended by {self._taken.name}", returncode=128 + self._taken)

    def restore(self) -> None:
        for number in _SIGNALS:
            if signal.getsignal(number) == self.take:
                signal.signal(number, signal.SIG_DFL)


def _interrupt_once(number: int, frame: object) -> None:
    """Handle an interrupt once, and ignore further ones.

    Ctrl-C in a terminal interrupts workers too; then the controller's interrupt must not disturb their clean-up.
    """
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def put_away() -> None:
    """Ignore interrupts from now on, since execnet interrupts a worker 5 s after its end began, during its clean-up."""
    if signal.getsignal(signal.SIGINT) is _interrupt_once:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
