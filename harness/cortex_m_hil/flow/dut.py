"""A device under test (DUT): a target with its runner."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final

from cortex_m_hil.boards.leased_board import LeasedBoard
from cortex_m_hil.errors import (
    HarnessError,
    IdentityError,
    LaunchError,
    LinkError,
    PortNotFound,
    VerdictError,
)
from cortex_m_hil.flow.coverage.counting import Counting
from cortex_m_hil.flow.self_test import selftest
from cortex_m_hil.host import timeouts
from cortex_m_hil.host.folders import TemporaryFolder
from cortex_m_hil.host.spans import span
from cortex_m_hil.runner import elf_size as weight
from cortex_m_hil.runner import launchers
from cortex_m_hil.runner.build import build_runner
from cortex_m_hil.runner.run_results import Identity, Ran
from cortex_m_hil.runner.session.session import ResponseTimeout, Session
from cortex_m_hil.targets.connection import Elf
from cortex_m_hil.targets.resolve import Resolved
from cortex_m_hil.targets.target import Clock, HardwareLauncher, Target

_ASKED_OF_FIRMWARE: Final = (
    "does it call hil_target_start() for this UART, and hil_target_poll() often enough (hil docs own-firmware)?"
)


class Dut:
    """A device under test: it boots on first use, stays up between programs, and boots again when its session breaks.

    Attributes:
        resolved: the target that was asked for and the one that runs.
        elf: the runner.
        seconds: the simulator's CPU time that one program may take.
        what: the purpose of a board's lease, shown to other users.
        keep: a folder in which all programs that are run are kept with their inputs; None: they are not kept.
        counting: collects the coverage, if the runner counts it.
        recovered_by: the recovery step that brought the board back since the last restart; "" if none.
    """

    def __init__(self, resolved: Resolved, elf: Elf, *, multiplier: float = 1.0) -> None:
        self.resolved = resolved
        self.elf = elf
        self.seconds = timeouts.EXECUTION * multiplier
        self.what = "hil"  # the purpose of a board's lease, shown to other users
        self.keep: Path | None = None  # a folder in which all programs that are run are kept with their inputs
        self.counting: Counting | None = None  # collects the coverage, if the runner counts it
        self.recovered_by = ""  # the recovery step that brought the board back since the last restart
        self._identity: Identity | None = None  # the identity of the last runner that answered
        self._clock = Clock.HOST  # the clock of the last runner that answered
        self._session: Session | None = None
        self._folder: TemporaryFolder | None = None
        self._leased: LeasedBoard | None = None
        self._recovering = False

    @property
    def target(self) -> Target:
        """Return the target, with the port of the leased board while there is one."""
        return self._leased.target if self._leased is not None else self.resolved.target

    def session(self) -> Session:
        """Return the live session; boot the target if there is no session, or a broken one.

        Raises:
            InfraError: the target cannot be started; the error has the target's name as the user gave it.
        """
        if self._session is not None and self._session.broken:
            self.restart()
        if self._session is None:
            self._session = self._begin()
        return self._session

    @property
    def live_session(self) -> Session | None:
        """Return the session, also a broken one, without booting; None where there is none."""
        return self._session

    def ran(self) -> Ran:
        self.session()
        ran = self.last_ran()
        assert ran is not None
        return ran

    def last_ran(self) -> Ran | None:
        """Return the same as `ran`, without a boot; None if no runner has answered yet."""
        identity = self._identity
        if identity is None:
            return None
        return Ran(
            self.resolved.display_name,
            self.target.name,
            launchers.engine(self.target),
            identity.runtime,
            identity.runtime_version,
            self._clock,
            identity.firmware,
        )

    def restart(self) -> None:
        """End the simulator, or close the port. The next use boots the target again. A board stays leased."""
        self.recovered_by = ""
        if self._session is not None:
            if self.counting is not None:
                self.counting.end(self._session, self.what)
            self._session.close()
            self._session = None
        self._remove_folder()

    def _remove_folder(self) -> None:
        if self._folder is not None:
            self._folder.remove()
            self._folder = None

    def close(self) -> None:
        """End the simulator, or close the port, and release the board."""
        self.restart()
        if self._leased is not None:
            self._leased.release()
            self._leased = None

    def release_between_tests(self) -> None:
        """Release a board between two tests, and let a simulator stay up.

        The board's firmware is used again if the handshake shows that it is the right one.
        """
        if self._leased is not None:
            self.close()

    def read_coverage(self) -> None:
        """Read the counts between two tests, if the runner has them, so that a target that dies later loses few."""
        if self.counting is not None and self._session is not None:
            self.counting.read(self._session)
            if self._session.broken:
                self.restart()

    def recover(self, cause: HarnessError) -> HarnessError:
        """Recover a board, and return `cause`; a simulator needs no recovery. Raises BoardWedged if nothing helps."""
        if self._leased is None:
            return cause
        self._recovering = True
        try:
            self.recovered_by = self._leased.recover(cause, self._self_test)
        finally:
            self._recovering = False
        return cause

    def _self_test(self) -> None:
        self.restart()
        selftest(self)

    def _begin(self) -> Session:
        with span("boot", self.target.name):
            return self._started()

    def _started(self) -> Session:
        if not isinstance(self.target.launcher, HardwareLauncher):
            return self._boot()
        if self._leased is None:
            self._leased = LeasedBoard(self.target, self.elf, self.what)
        self._leased.begin()
        if self._recovering:
            return self._boot(self._leased)
        try:
            self._session = self._boot(self._leased)
            if self._leased.is_wedged:
                self.verify()
        except PortNotFound:
            raise
        except (LaunchError, LinkError) as error:
            cause = error
            self.restart()
            self.recover(error)
        if self._session is None:  # without recovery tools, recover() does not boot the board
            raise cause
        self._leased.passed()
        return self._session  # the self-test's session, if the board had to be recovered

    def verify(self) -> None:
        """Run the self-test. Raises LaunchError, or another infra error, if the target does not pass it."""
        try:
            selftest(self)
        except VerdictError as error:  # the self-test's verdict says nothing about the user's program
            what = f"the self-test ends with {type(error).__name__}: {error.message}"
            raise LaunchError(what, target=self.target.name, log=error.log) from error

    def __enter__(self) -> Dut:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _boot(self, board: LeasedBoard | None = None) -> Session:
        self._remove_folder()  # the folder of a boot that failed
        try:
            self._folder = TemporaryFolder()
            process = launchers.connect(self.target, self.elf, self._folder.path, board)
        except OSError as error:
            raise LaunchError(f"no working folder: {error.strerror}", target=self.target.name) from error
        try:
            session = Session(self.target, self.elf, process)
            if session.identity.runtime != self.resolved.runtime:
                what = f"the firmware has the runtime {session.identity.runtime}, asked for was {self.resolved.runtime}"
                hint = f"runtime: {session.identity.runtime} in the target's entry, or --runtime"
                raise IdentityError(what, target=self.target.name, hint=hint)
            self._identity, self._clock = session.identity, session.clock
            return session
        except ResponseTimeout as stuck:
            process.close()
            who = "firmware" if self.elf.is_own else "runner"
            hint = _ASKED_OF_FIRMWARE if self.elf.is_own else ""
            what = f"the {who} does not answer its handshake"
            raise LaunchError(what, target=self.target.name, hint=hint, log=stuck.log) from None
        except BaseException:
            process.close()
            raise


def require(resolved: Resolved) -> None:
    """Raise an error before a build if the target's simulator is missing, or lacks something.

    A board is looked for only when it is used.
    """
    if not isinstance(resolved.target.launcher, HardwareLauncher):
        launchers.require(resolved.target)


def runner_operators(resolved: Resolved) -> tuple[tuple[str, ...] | None, str]:
    """Return the operators that the target's runner has, without using a board.

    The runner's ELF names them; if it does not, the runner is started on the target's simulator and asked.

    Returns:
        The operators and ""; None and the reason if only a board could tell.
    """
    is_board = isinstance(resolved.target.launcher, HardwareLauncher)
    elf = build_runner(resolved.target, resolved.runtime)
    if found := weight.builtin_operators(elf.path):
        return found, ""
    if is_board:
        return (
            None,
            f"only a started runner of {resolved.runtime} tells it: try a simulator of {resolved.target.cpu}",
        )
    with open_dut(resolved) as dut:
        return dut.session().identity.operators, ""


def open_dut(
    resolved: Resolved,
    *,
    multiplier: float = 1.0,
    options: Mapping[str, str] | None = None,
    firmware: Path | None = None,
) -> Dut:
    """Build a target's runner, and return the Dut.

    An error about the simulator is raised before the build, which takes longer.

    Args:
        resolved: the target.
        multiplier: a factor on the time that a program may take.
        options: further CMake definitions for the runner's build.
        firmware: a changed copy of this package's firmware; None: the package's own.
    """
    require(resolved)
    return Dut(resolved, build_runner(resolved.target, resolved.runtime, options, firmware), multiplier=multiplier)
