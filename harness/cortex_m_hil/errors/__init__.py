"""The exceptions of the harness, in two branches: InfraError (nothing is known about the program) and VerdictError.

Retries and bisection depend on the branch, so each class belongs to exactly one of them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar

from cortex_m_hil.errors.text import printable, printable_lines


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a hint such as `did you mean 'm4-qemu'?`, or a list of the known words where none is similar."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=3, cutoff=0.5)
    if near:
        return f"did you mean {' or '.join(repr(n) for n in near)}?"
    return f"known: {', '.join(names)}"


class HarnessError(Exception):
    """An error that says what happened, where, and what to do next; names and foreign output in it are made printable.

    Attributes:
        message: the error in one line.
        target: the name of the target; empty where it does not apply.
        operator: the name of the operator; empty where it does not apply.
        hint: the next step; `default_hint` of the class where none is given.
        log: the end of the output of the target or the tool.
        details: further lines, each with its label, in the order in which they are shown.
    """

    default_hint: ClassVar[str] = ""

    def __init__(
        self,
        message: str,
        *,
        target: str = "",
        operator: str = "",
        hint: str = "",
        log: str = "",
        details: Iterable[tuple[str, str]] = (),
    ) -> None:
        super().__init__(printable_lines(message))
        self.message = printable_lines(message)
        self.target = target
        self.operator = printable(operator)
        self.hint = printable_lines(hint or self.default_hint)
        self.log = printable_lines(log)
        self.details = tuple((label, printable_lines(text)) for label, text in details)

    def __str__(self) -> str:
        """Return the message with target and operator, then a line for each detail and one for the hint."""
        places = [
            f"target {self.target}" if self.target else "",
            f"operator {self.operator}" if self.operator else "",
        ]
        where = ", ".join(place for place in places if place)
        width = max((len(label) for label, _ in self.details), default=0) + 1
        below = [f"  {f'{label}:':<{width}} {text}" for label, text in self.details]
        below += [f"  → {self.hint}"] if self.hint else []
        return "\n".join([self.message + (f" [{where}]" if where else ""), *below])

    def describe(self) -> str:
        """Return `str(self)` with the class's name in front, for output without a traceback."""
        return f"{type(self).__name__}: {self}"


class InfraError(HarnessError):
    """An error of the environment, such as a board or a tool; it says nothing about the program."""


class ConfigError(InfraError):
    """A mistake in targets.yaml, in an option or in an argument."""


class ToolchainError(InfraError):
    """A compiler, simulator, ExecuTorch or other tool is missing or too old."""


class BuildError(InfraError):
    """The runner could not be built."""

    default_hint = "hil doctor tries compiler, CMake and flatc"


class LaunchError(InfraError):
    """The target could not be started, or was ended from outside."""

    default_hint = "hil doctor tries the tools of this machine"


class SelfTestFailed(LaunchError):
    """The target answers, and computes its known-answer self-test wrong."""


class PortNotFound(LaunchError):
    """The board's port does not exist, or does not open. It says nothing about the board either."""


class FlashError(InfraError):
    """The runner could not be put on the board."""

    default_hint = "is the ELF one for this board, and does its tool reach it?"


class BoardBusy(InfraError):
    """The board is leased by somebody else."""


class BoardWedged(InfraError):
    """The board does not pass its self-test."""


class LinkError(InfraError):
    """Bytes do not get through the link to the target."""

    default_hint = "on a board: cable, power, baud rate; else run it again, and report it if it stays"


class ProtocolError(InfraError):
    """Bytes arrive over the link, but do not form a valid message."""

    default_hint = "a defect of the runner or of this harness: report it with the target log and the program"


class IdentityError(InfraError):
    """The runner that answered was not built for this target, or a module comes from another checkout."""


class NotOffered(InfraError):
    """The user's own firmware does not support a request that is needed here.

    A pytest test that needs it is skipped.
    """

    default_hint = "a target whose firmware answers them"


class VerdictError(HarnessError):
    """Something is wrong with the program, its lowering, or the code that ran it.

    Attributes:
        causes: if lint raised it only because of known bugs of ExecuTorch, missing operators and refused calls: the
            numbers of the bugs, and the names of the operators.
        accepted: why the error is expected, if the caller accepts all of these causes; else "".
    """

    causes: tuple[int | str, ...] = ()
    accepted: str = ""


class LoweringError(VerdictError):
    """The module could not be exported, quantised or lowered; the message names the stage and the node."""


class LintError(VerdictError):
    """The program does not fit the target; it was not run."""


class ProgramRejected(VerdictError):
    """The bytes are not a valid program, or the runtime refused to run it."""


class UnsupportedOperator(VerdictError):
    """The runner lacks operators, or would need a delegate."""


class OutOfTargetMemory(VerdictError):
    """The program needs more memory than the target has."""


class TargetFault(VerdictError):
    """The core took a fault."""


class TargetHang(VerdictError):
    """The program does not end, on a target that passes its self-test."""


class ProgramFailed(VerdictError):
    """A user's program, run by `hil launch`, ended with an exit status other than 0."""


class ProgramTimeout(VerdictError):
    """A user's program, run by `hil launch`, did not end within its time limit."""


class ChannelError(VerdictError):
    """The firmware does not take or publish a frame of a channel in time, or loses one."""


class ForbiddenAccess(VerdictError):
    """The firmware requested a file or an action of the host that is not allowed, and was terminated."""


class Mismatch(VerdictError):
    """Outputs differ from the references, or an output was not written.

    Attributes:
        stage: the first stage of the firmware's own path that departs; empty where a program's outputs differ.
    """

    stage: str = ""


class RedzoneViolation(VerdictError):
    """Something wrote outside its tensor."""


class LifetimeViolation(VerdictError):
    """Something read a tensor whose lifetime was over."""


class BudgetExceeded(VerdictError):
    """The program takes more instructions or bytes than its test permits."""


class WouldFailOnExecuTorch(VerdictError):
    """The program is right on builtin, and ExecuTorch refuses it or computes it wrongly."""


class KnownBugAbsent(VerdictError):
    """A known bug, or missing operator, that the caller declared does not occur in the program."""


class HilWarning(UserWarning):
    """A warning that a check proves less than it seems to prove."""


def is_pytests_own(error: Exception) -> bool:
    """Tell whether pytest raised an error to end the run.

    pytest's signal handler raises it while any code may be running. It is recognised by the module of its class,
    because the harness works without pytest.
    """
    return type(error).__module__.startswith("_pytest.")
