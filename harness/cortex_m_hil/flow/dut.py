"""A device under test: a target with its runner."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

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
from cortex_m_hil.host.folders import TemporaryFolder
from cortex_m_hil.runner import elf_size as weight
from cortex_m_hil.runner import launchers
from cortex_m_hil.runner.build import build_runner
from cortex_m_hil.runner.results import Identity, Ran
from cortex_m_hil.runner.session.session import ResponseTimeout, Session
from cortex_m_hil.targets.connection import Elf
from cortex_m_hil.targets.resolve import Resolved
from cortex_m_hil.targets.target import Clock, HardwareLauncher, Target

DEFAULT_EXECUTION_SECONDS = 30.0  # seconds of the engine's CPU time for one program, times the multiplier
# A wait in the kernel takes at most 2^31 ms, 24 days, and waits by the wall clock are six times those in CPU time.
LONGEST_EXECUTION = 86400.0


class Dut:
    """A device under test: it boots when first used, stays up between programs, and boots anew when its session breaks.

    Attributes:
        resolved: the target that was asked for and the one that runs.
        elf: the runner.
        seconds: of the engine's CPU time that one program may take.
        what: what a board is leased for, as others see it.
        keep: a folder for the programs that are run here, with their inputs; None: they are not kept.
        counting: collects the coverage, if the runner counts.
        recovered_by: the recovery step that brought the board back since the last restart; "" if none.
    """

    def __init__(self, resolved: Resolved, elf: Elf, *, multiplier: float = 1.0) -> None:
        self.resolved = resolved
        self.elf = elf
        self.seconds = DEFAULT_EXECUTION_SECONDS * multiplier
        self.what = "hil"  # what a board is used for, as others are told
        self.keep: Path | None = None  # a folder for the programs that are run here, with their inputs
        self.counting: Counting | None = None  # where the coverage goes, if the runner counts
        self.recovered_by = ""  # the recovery step since the last restart
        self._identity: Identity | None = None  # of the last runner that answered
        self._clock = Clock.HOST  # its
        self._session: Session | None = None
        self._folder: TemporaryFolder | None = None
        self._leased: LeasedBoard | None = None
        self._recovering = False

    @property
    def target(self) -> Target:
        """Return the target, with the port of the leased board while there is one."""
        return self._leased.target if self._leased is not None else self.resolved.target

    def session(self) -> Session:
        """Return the live session; boot the target where there is none, or a broken one.

        Raises:
            InfraError: the target cannot be brought to life; the error has the name that the user asked for.
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
        """Return what `ran` does, without booting: None where nothing has answered yet."""
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
        """End the simulator, or close the port. The next use boots anew. A board stays leased."""
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

        The board's firmware is reused after a handshake.
        """
        if self._leased is not None:
            self.close()

    def read_coverage(self) -> None:
        """Read the counts between two tests, if the runner counts: a target that ends later loses only what follows."""
        if self.counting is not None and self._session is not None:
            self.counting.read(self._session)
            if self._session.broken:
                self.restart()

    def recover(self, cause: HarnessError) -> HarnessError:
        """Recover a board, and return `cause`; for a simulator return it at once. BoardWedged if nothing helps."""
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
        if self._session is None:  # the board has no recovery tools, so recover() has not booted it
            raise cause
        self._leased.passed()
        return self._session  # the self-test's, if it had to be recovered

    def verify(self) -> None:
        """Run the self-test. Raises LaunchError, or another infra error, if the target does not pass it."""
        try:
            selftest(self)
        except VerdictError as error:  # no verdict on the user's program
            what = f"the self-test ends with {type(error).__name__}: {error.message}"
            raise LaunchError(what, target=self.target.name, log=error.log) from error

    def __enter__(self) -> Dut:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _boot(self, board: LeasedBoard | None = None) -> Session:
        self._remove_folder()  # of a boot that failed
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
            raise LaunchError(
                "the runner does not answer its handshake",
                target=self.target.name,
                log=stuck.log,
            ) from None
        except BaseException:
            process.close()
            raise


def require(resolved: Resolved) -> None:
    """Raise an error where the target's simulator is missing or lacks something, before a build.

    A board is looked for when it is used.
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
            f"a runner of {resolved.runtime} says it when it runs; a simulator of {resolved.target.cpu} can be asked",
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

    What its simulator lacks is an error before the build, which takes longer.

    Args:
        resolved: the target.
        multiplier: of the time that a program may take.
        options: of the runner's build.
        firmware: a changed copy of this package's firmware; None: the package's own.
    """
    require(resolved)
    return Dut(resolved, build_runner(resolved.target, resolved.runtime, options, firmware), multiplier=multiplier)
