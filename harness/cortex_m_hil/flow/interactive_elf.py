"""An ELF of the user's own as a test has it in hand: it is expected to say something, given text, and waited for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pexpect.expect
import pexpect.spawnbase

from cortex_m_hil.checks.input_checks import as_array
from cortex_m_hil.errors import ConfigError, ProgramFailed, ProgramTimeout
from cortex_m_hil.errors.text import shown
from cortex_m_hil.flow.launch_elf import Launch, Started, Wait, may_go_on, started
from cortex_m_hil.flow.user_facing_errors import UsersCall
from cortex_m_hil.host import timeouts
from cortex_m_hil.host.api_calls import checked_call
from cortex_m_hil.host.numbers import in_range
from cortex_m_hil.targets.connection import Budget, LinkClosed
from cortex_m_hil.targets.resolve import Resolved

LOG_LIMIT: Final = 256 * 1024  # characters of the console that are kept, the newest


class _Searcher(pexpect.expect.searcher_re):  # type: ignore[type-arg]
    """Finds a pattern for pexpect, but does not take a match that more output could change.

    Attributes:
        undecided: whether there is such a match.
        settled: whether it is taken, since nothing follows it.
    """

    undecided = settled = False

    def search(self, buffer: str, freshlen: int, searchwindowsize: int | None = None) -> int:
        found = super().search(buffer, freshlen, searchwindowsize)
        self.undecided = found >= 0 and not self.settled and may_go_on(self.match, buffer)
        return -1 if self.undecided else found


class _Expecting(pexpect.spawnbase.SpawnBase):  # type: ignore[type-arg]
    """Reads from a program's console for pexpect, which knows no deadline but the wait's."""

    def __init__(self, program: Started, said: list[str]) -> None:
        super().__init__(timeout=None, encoding="utf-8")
        self._program, self._said = program, said
        self._wait, self._searcher = Wait([]), _Searcher([])

    def wait_for(self, pattern: re.Pattern[str], budget: Budget) -> None:
        """Wait for a match, which is then `match`. Raises pexpect's EOF and TIMEOUT."""
        self._wait, self._searcher = Wait([budget]), _Searcher([pattern])
        self.expect_loop(self._searcher, timeout=None)

    def read_nonblocking(self, size: int = 1, timeout: float | None = None) -> str:
        """Return what the program says next; `size` and `timeout` are pexpect's own and do not count."""
        ended = bool(self._program.console.done)
        if not ended:
            try:
                self._program.hear(self._wait, undecided=self._searcher.undecided)
            except LinkClosed:
                ended = True
        text = "".join(self._said)
        self._said.clear()
        if text:
            return text
        if self._searcher.undecided:
            self._searcher.settled = True
            return ""
        if ended or self._program.console.done:
            raise pexpect.EOF("it has ended")
        raise pexpect.TIMEOUT("nothing more")


class Launched:
    """A program that runs, or has ended.

    Attributes:
        folder: the folder that it may read and write by semihosting; None on a board.
    """

    def __init__(self, resolved: Resolved, program: Started, order: Launch) -> None:
        """Take a program that was started, of which nothing has been read yet."""
        self._resolved, self._program, self._order = resolved, program, order
        self._text = ""
        self._ended = False
        said: list[str] = []
        program.console.sink = lambda text: self._hear(text, said)
        self._expecting = _Expecting(program, said)

    @property
    def folder(self) -> Path | None:
        return self._program.folder

    @property
    def text(self) -> str:
        """Return what it has said so far, as far as the test has waited for it."""
        return self._text

    @property
    def instructions(self) -> int | None:
        """Return the exact number of CPU instructions from reset to exit, once it has ended.

        None where they were not to be counted (`count_instructions=True`), or nobody can: QEMU can.
        """
        return self._program.instructions

    @checked_call("launched.expect")
    def expect(self, pattern: str, *, timeout: float | None = None) -> re.Match[str]:
        """Wait until it says something that matches, behind what was matched before; return the match.

        Args:
            pattern: a regular expression; a line ends with one newline. A match that ends within a line which is not
                whole yet is taken when nothing follows for 0.1 seconds.
            timeout: seconds of the simulator's CPU time, on a board by the clock; None: that of the launch.

        Raises:
            ConfigError: the pattern is no regular expression.
            ProgramTimeout: it does not say so in time.
            ProgramFailed: it ends without saying so.
            TargetFault, UnsupportedOperator, ForbiddenAccess, InfraError: as of `hil launch`.
        """
        __tracebackhide__ = True
        try:
            compiled = re.compile(pattern, re.MULTILINE)
        except re.error as error:
            what = f"expect({shown(pattern)}): no regular expression: {error}"
            raise ConfigError(what, hint="a backslash before what is meant literally") from None
        seconds = self._order.seconds if timeout is None else timeout
        try:
            in_range(seconds, timeouts.SHORTEST_EXECUTION, timeouts.LONGEST_EXECUTION)
        except ValueError as error:
            raise ConfigError(f"timeout: {error}", hint="seconds: timeout=1.0") from None
        with self._explained():
            try:
                self._expecting.wait_for(compiled, self._program.budget(seconds))
            except pexpect.TIMEOUT:
                what = f"{self._order.elf.name} has not said {shown(pattern)} in {seconds:g} s"
                raise ProgramTimeout(what, hint="a longer timeout; what it said is below") from None
            except pexpect.EOF:
                self._finish()
                what = f"{self._order.elf.name} has ended without saying {shown(pattern)}"
                raise ProgramFailed(what, hint="what it said is below") from None
        found = self._expecting.match
        assert isinstance(found, re.Match)
        return found

    @checked_call("launched.send")
    def send(self, text: str) -> None:
        """Send text to the program's console: its first UART, or its input by semihosting.

        Raises:
            ProgramTimeout: the program does not read the text in time.
            ProgramFailed: the program has ended.
            TargetFault, UnsupportedOperator, ForbiddenAccess, InfraError: as of `hil launch`.
        """
        __tracebackhide__ = True
        with self._explained():
            if self._ended:
                raise ProgramFailed(f"{self._order.elf.name} has ended before it was sent {shown(text)}")
            budget = self._program.budget(self._order.seconds)
            try:
                self._program.link.write(text.encode(), budget.next_poll)
            except TimeoutError:
                what = f"{self._order.elf.name} does not take what is sent to it"
                raise ProgramTimeout(what, hint="does it read its console?") from None
            except LinkClosed:
                self._finish()
                raise ProgramFailed(f"{self._order.elf.name} has ended before it was sent {shown(text)}") from None

    @checked_call("launched.wait")
    def wait(self) -> int | None:
        """Wait until it ends, and return its exit status; None where it has none: on a board, or by EOT or `until`.

        Raises:
            ProgramTimeout: it does not end within the launch's timeout.
            TargetFault, UnsupportedOperator, ForbiddenAccess, InfraError: as of `hil launch`.
        """
        __tracebackhide__ = True
        with self._explained():
            self._finish()
            return self._program.status

    def _finish(self) -> None:
        """Wait for its end; an exit status other than 0 is the caller's to judge."""
        if self._ended:
            return
        self._ended = True
        try:
            self._program.finish()
        except ProgramFailed:
            if not self._program.status:
                raise

    def _hear(self, text: str, said: list[str]) -> None:
        self._text = (self._text + text)[-LOG_LIMIT:]
        said.append(text)

    def _explained(self) -> UsersCall:
        return UsersCall(self._resolved.target.name, lambda: self._text)


def files_in(folder: Path, files: Mapping[str, Any]) -> None:
    """Write what a program is to find in its folder.

    Args:
        folder: the folder, which is there.
        files: bytes, text, a path of a file, or an array of which the bytes are taken, by the name in the folder.

    Raises:
        ConfigError: a name leads out of the folder, or something cannot be read or written.
    """
    for name, content in files.items():
        path = Path(name)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise ConfigError(f"files: {shown(name)} is no name in the program's folder", hint='files={"in.bin": data}')
        try:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(_content(content))
        except OSError as error:
            raise ConfigError(f"files: {name}: {error.strerror}", hint="bytes, text, or the path of a file") from error


def _content(content: Any) -> bytes:
    if isinstance(content, Path):
        return content.read_bytes()
    if isinstance(content, (bytes, bytearray)):
        return bytes(content)
    return content.encode() if isinstance(content, str) else as_array(content).tobytes()


@contextmanager
def launched(resolved: Resolved, order: Launch, *, count: bool = False) -> Iterator[Launched]:
    """Start a program, and end it with the block. Raises as `launch_elf.launch`."""
    with started(resolved, order, lambda _: None, count=count) as program:
        yield Launched(resolved, program, order)
