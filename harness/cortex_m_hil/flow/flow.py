"""The way of a test: lower → lint → run → compare. Nothing else owns this sequence."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from cortex_m_hil import launchers
from cortex_m_hil.boards.bench import Bench
from cortex_m_hil.canary import canary
from cortex_m_hil.checks.compare import Comparison, Tolerance, compare
from cortex_m_hil.checks.lint import LintFinding, lint, lint_inputs, raise_findings
from cortex_m_hil.errors import (
    BoardWedged,
    HarnessError,
    InfraError,
    LaunchError,
    LinkError,
    NoPort,
    TargetHang,
    ToolchainError,
    VerdictError,
)
from cortex_m_hil.host.folders import TemporaryFolder
from cortex_m_hil.links.protocol import Request, Space
from cortex_m_hil.program.program import Program, References, ScratchNeed
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.results import Ran, RunResult
from cortex_m_hil.runner.build import Elf, build_runner
from cortex_m_hil.session.session import NoAnswer, Session
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.model import SerialLauncher, Target
from cortex_m_hil.targets.resolve import Resolved

POISON, COUNTER_POISON = 0xA5, 0x5A
EXECUTE = 30.0  # seconds of the engine's CPU time for one program, times the multiplier
# A wait in the kernel takes at most 2^31 ms, 24 days, and waits by the wall clock are six times those in CPU time.
LONGEST_EXECUTION = 86400.0
MULTIPLIERS = 0.01, 1000.0  # 0.3 s, in which no simulator boots, and 8 hours of EXECUTE


class Guard(Protocol):
    """Watches what one program does to memory, in two passes: with POISON and with COUNTER_POISON."""

    def fill(self, session: Session, poison: int) -> None:
        """The arena is full of `poison`, the inputs are not yet set."""

    def inspect(self, session: Session, poison: int) -> None:
        """The program has run."""

    def judge(self, dut: Dut, session: Session, inputs: Sequence[HostTensor]) -> None:
        """After both passes. Raises a verdict."""


Guards = Callable[[Program], Guard]


class Dut:
    """A device under test: boots when first used, stays up between programs, boots anew when broken."""

    def __init__(self, resolved: Resolved, elf: Elf, *, multiplier: float = 1.0) -> None:
        self.resolved = resolved
        self.elf = elf
        self.seconds = EXECUTE * multiplier
        self.what = "hil"  # what a board is used for, as others are told
        self.keep: Path | None = None  # a folder for the programs that are run here, with their inputs
        self.remedy = ""  # what brought the board back since the last restart
        self._session: Session | None = None
        self._folder: TemporaryFolder | None = None
        self._bench: Bench | None = None
        self._recovering = False

    @property
    def target(self) -> Target:
        """With the port of the very board, while there is one."""
        return self._bench.target if self._bench is not None else self.resolved.target

    def session(self) -> Session:
        """The live session. Raises infra errors, with the name that the user asked for."""
        if self._session is not None and self._session.broken:
            self.restart()
        if self._session is None:
            self._session = self._begin()
        return self._session

    def ran(self) -> Ran:
        identity = self.session().identity
        engine = launchers.engine(self.target)
        return Ran(self.resolved.name, self.target.name, engine, identity.runtime, identity.runtime_version)

    def restart(self) -> None:
        """Ends the simulator, or closes the port. The next use boots anew. A board is still ours."""
        self.remedy = ""
        if self._session is not None:
            self._session.close()
            self._session = None
        self._remove_folder()

    def _remove_folder(self) -> None:
        if self._folder is not None:
            self._folder.remove()
            self._folder = None

    def close(self) -> None:
        """The same, and gives the board back."""
        self.restart()
        if self._bench is not None:
            self._bench.release()
            self._bench = None

    def rest(self) -> None:
        """Between two tests: a simulator stays up, a board is given back, and adopted again by its handshake."""
        if self._bench is not None:
            self.close()

    def recover(self, cause: HarnessError) -> HarnessError:
        """`cause`, if it is for a simulator, or for a board that was brought back. BoardWedged if it was not."""
        if self._bench is None:
            return cause
        self._recovering = True
        try:
            self.remedy = self._bench.recover(cause, self._canary)
        finally:
            self._recovering = False
        return cause

    def _canary(self) -> None:
        self.restart()
        selftest(self)

    def _begin(self) -> Session:
        if not isinstance(self.target.launcher, SerialLauncher):
            return self._boot()
        if self._bench is None:
            self._bench = Bench(self.target, self.elf, self.what)
        self._bench.begin()
        if self._recovering:
            return self._boot(self._bench)
        try:
            self._session = self._boot(self._bench)
            if self._bench.is_wedged:
                self._prove()
        except NoPort:
            raise
        except (LaunchError, LinkError) as error:
            cause = error
            self.restart()
            self.recover(error)
        if self._session is None:  # the board has no tools, so nobody climbed
            raise cause
        self._bench.passed()
        return self._session  # the canary's, if it had to be recovered

    def _prove(self) -> None:
        """The canary, on a board that somebody else has given up."""
        try:
            selftest(self)
        except VerdictError as error:  # which is no verdict on anybody's program
            what = f"the canary ends with {type(error).__name__}: {error.message}"
            raise LaunchError(what, target=self.target.name, log=error.log) from error

    def __enter__(self) -> Dut:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _boot(self, bench: Bench | None = None) -> Session:
        self._remove_folder()  # of a boot that failed
        try:
            self._folder = TemporaryFolder()
            process = launchers.connect(self.target, self.elf, self._folder.path, bench)
        except OSError as error:
            raise LaunchError(f"no working folder: {error.strerror}", target=self.target.name) from error
        try:
            return Session(self.target, self.elf, process)
        except NoAnswer as stuck:
            process.close()
            raise LaunchError(
                "the runner does not answer its handshake",
                target=self.target.name,
                log=stuck.log,
                hint=f"hil doctor; hil selftest --target {self.target.name}",
            ) from None
        except BaseException:
            process.close()
            raise


def open_dut(resolved: Resolved, *, multiplier: float = 1.0, options: Mapping[str, str] | None = None) -> Dut:
    """A Dut with its runner built."""
    return Dut(resolved, build_runner(resolved.target, resolved.runtime, options), multiplier=multiplier)


def lower(module: Any, inputs: tuple[Any, ...], *, isa: Isa, **options: Any) -> Program:
    """`lowering.lower`; torch is imported here and not before."""
    from cortex_m_hil import lowering

    return lowering.lower(module, inputs, isa=isa, **options)


def scratch_needs(program: Program, isa: Isa) -> tuple[ScratchNeed, ...]:
    """Scratch sizes by the wheel's CMSIS-NN; none where the program is for no wheel on this machine."""
    from cortex_m_hil.lowering.scratch import required_scratch

    with contextlib.suppress(ToolchainError):
        return required_scratch(program.file, isa)
    return ()


def findings(
    program: Program, target: Target, operators: Sequence[str] | None, runtime: str
) -> tuple[LintFinding, ...]:
    """Everything that lint has to say; `operators` is the runner's list, None if unknown."""
    return lint(program, target, operators=operators, scratch=scratch_needs(program, target.isa), runtime=runtime)


def run(
    dut: Dut,
    program: Program,
    inputs: tuple[HostTensor, ...] | None = None,
    *,
    linted: bool = True,
    withheld: Sequence[str] = (),
    guards: Guards | None = None,
) -> RunResult:
    """One program, once (twice where an output looks unwritten, or under a guard).

    `inputs` default to the program's own. `linted=False` skips the rules of fit, never those of the inputs.
    `withheld` are patterns of operators that lint takes for absent, though the runner has them.
    `guards` makes the program's guard, for instance `diagnose.redzones.RedZones`.
    Raises infra or verdict errors; a program that does not end is TargetHang only if the target
    passes its canary afterwards.
    """
    given = program.inputs if inputs is None else inputs
    if dut.keep is not None:
        _keep(program, given, dut.keep, dut.what)
    session = dut.session()
    if linted:
        offered = [name for name in session.identity.operators if not any(map(partial(fnmatch, name), withheld))]
        raise_findings(findings(program, dut.target, offered, dut.resolved.runtime), dut.target.name)
    raise_findings(lint_inputs(program, given), dut.target.name)
    try:
        return _execute(dut, session, program, given, guards(program) if guards else None)
    except NoAnswer as stuck:
        problem = _explain_hang(dut, stuck, session.log)
    if isinstance(problem, TargetHang) and isinstance(dut.target.launcher, SerialLauncher):
        problem = _hangs_again(dut, program, given, problem)
    raise problem


def kept_input(pte: Path, number: int) -> Path:
    """Where the input of a program that was kept lies."""
    return pte.with_suffix(f".{number}.npy")


def _keep(program: Program, inputs: Sequence[HostTensor], folder: Path, what: str) -> None:
    """Each program with its inputs once, whatever becomes of it."""
    content = hashlib.sha256(b"".join([program.pte, *(value.data for value in inputs)])).hexdigest()
    name = re.sub(r"[^\w.+-]+", "_", what)[:160]
    path = folder / f"{name}-{content[:8]}.pte"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number, value in enumerate(inputs):
            kept_input(path, number).write_bytes(value.npy())
        path.write_bytes(program.pte)
    except OSError as error:
        raise InfraError(f"cannot keep the program in {folder}: {error.strerror}") from error


def _execute(
    dut: Dut, session: Session, program: Program, inputs: Sequence[HostTensor], guard: Guard | None = None
) -> RunResult:
    session.load(program.pte, lambda at: operator_at(program, at), file=program.file)
    outputs, ticks = _pass(dut, session, program, inputs, POISON, guard)
    unwritten = [_equals(output, POISON) for output in outputs]
    if guard or any(mask.any() for mask in unwritten):
        again, _ = _pass(dut, session, program, inputs, COUNTER_POISON, guard)
        unwritten = [mask & _equals(output, COUNTER_POISON) for mask, output in zip(unwritten, again, strict=True)]
    if guard:
        guard.judge(dut, session, inputs)
    return RunResult(tuple(outputs), tuple(unwritten), session.stats(), ticks, dut.ran(), session.log)


def _pass(
    dut: Dut, session: Session, program: Program, inputs: Sequence[HostTensor], poison: int, guard: Guard | None
) -> tuple[list[HostTensor], int]:
    prepare(session, inputs, poison, guard)
    ticks = session.execute(dut.seconds)
    if guard:
        guard.inspect(session, poison)
    return [session.get_output(number) for number in range(len(program.file.outputs))], ticks


def prepare(session: Session, inputs: Sequence[HostTensor], poison: int, guard: Guard | None = None) -> None:
    """Brings a loaded program to its first instruction: arena full of poison, inputs set."""
    session.fill(Space.PLANNED, 0, poison)
    if guard:
        guard.fill(session, poison)
    for number, value in enumerate(inputs):
        session.set_input(number, value)


def operator_at(program: Program, instruction: int) -> str:
    """`cortex_m::quantized_linear.out`, with the graph node where it is known."""
    if not 0 <= instruction < len(program.file.instructions):
        return ""
    name = program.file.instructions[instruction].operator
    node = program.nodes[instruction]
    return f"{name} ({node})" if node else name


def _equals(output: HostTensor, poison: int) -> npt.NDArray[np.bool_]:
    """Elements all of whose bytes are the poison."""
    spec = output.spec
    itemsize = np.dtype(spec.dtype).itemsize
    stored = np.frombuffer(output.data, np.uint8).reshape([*(spec.shape[d] for d in spec.dim_order), itemsize])
    mask: npt.NDArray[np.bool_] = (stored == poison).all(axis=-1)
    return mask.transpose([spec.dim_order.index(d) for d in range(len(spec.shape))])


def _explain_hang(dut: Dut, stuck: NoAnswer, log: str) -> HarnessError:
    """The program hangs, or the target does: the canary tells."""
    name = dut.target.name
    dut.restart()
    try:
        selftest(dut)
    except BoardWedged as error:
        return error
    except HarnessError as error:
        problem = LaunchError("the target stopped answering, and does not pass its canary now", target=name, log=log)
        problem.__cause__ = error
        return dut.recover(problem)
    if dut.remedy:
        return LaunchError(f"the target stopped answering, and came back by {dut.remedy} only", target=name, log=log)
    if stuck.request not in (Request.EXECUTE, Request.STEP) and isinstance(dut.target.launcher, SerialLauncher):
        return LinkError(f"no answer to {stuck.request.name}; after a restart the target answers", target=name, log=log)
    return TargetHang(
        f"no end after {dut.seconds:g} s of engine time; after a restart the target passes its canary",
        target=name,
        operator=stuck.operator,
        log=log,
        hint="--timeout-multiplier, if the program is only slow",
    )


def _hangs_again(dut: Dut, program: Program, inputs: Sequence[HostTensor], hang: TargetHang) -> HarnessError:
    """The same hang if the program hangs a second time: once, it looks like a wire that is cut for a while."""
    try:
        _execute(dut, dut.session(), program, inputs)
    except NoAnswer as stuck:
        if stuck.request is Request.EXECUTE:
            dut.restart()
            return hang
    except HarnessError as error:
        return error
    return LinkError(
        "the board fell silent while it ran the program, and did not when it ran it again",
        target=hang.target,
        operator=hang.operator,
        log=hang.log,
        hint="cable, power, or a board that hangs now and then",
    )


def selftest(dut: Dut) -> RunResult:
    """The canary: a known program with known outputs, bit for bit. LaunchError if the target fails it."""
    known = canary(dut.target.isa)
    program = Program.from_bytes(known.program, "canary.pte")
    try:
        result = _execute(dut, dut.session(), program, known.inputs)
    except NoAnswer:
        dut.restart()
        raise LaunchError("the canary does not end", target=dut.target.name) from None
    for got, wanted in zip(result.outputs, known.expected, strict=True):
        if got.data != wanted.data:
            raise LaunchError(
                f"the canary's output is {got.array().tolist()}, expected {wanted.array().tolist()}",
                target=dut.target.name,
                hint="the simulator, the build or the board is broken, not your program",
            )
    return result


@dataclass(frozen=True)
class Checked:
    """What `check` found on the way."""

    program: Program
    result: RunResult
    comparison: Comparison


def check(
    dut: Dut,
    module: Any,
    inputs: tuple[Any, ...],
    *,
    tolerance: Tolerance,
    isa: Isa | None = None,
    linted: bool = True,
    observe: Callable[[Checked], None] = lambda _: None,
    calibration: Iterable[tuple[Any, ...]] | None = None,
    quantize: bool = True,
    layout: str = "channels_last",
    redzones: bool = False,
    guards: Guards | None = None,
) -> Checked:
    """Lowers, lints, runs, compares; raises on a bad verdict, after telling `observe` what was measured."""
    options = {"calibration": calibration, "quantize": quantize, "layout": layout, "redzones": redzones}
    program = lower(module, inputs, isa=isa or dut.target.isa, **options)
    return verify(dut, program, tolerance=tolerance, linted=linted, observe=observe, guards=guards)


def verify(
    dut: Dut,
    program: Program,
    *,
    tolerance: Tolerance,
    linted: bool = True,
    withheld: Sequence[str] = (),
    guards: Guards | None = None,
    observe: Callable[[Checked], None] = lambda _: None,
) -> Checked:
    """`check` of a program that exists already, on its own inputs and with the references it brings."""
    result = run(dut, program, linted=linted, withheld=withheld, guards=guards)
    references = program.reference(program.inputs) if program.reference else References()
    comparison = compare(program.file, result.outputs, references, tolerance, result.unwritten)
    checked = Checked(program, result, comparison)
    observe(checked)
    comparison.raise_for_verdict(dut.resolved.arrow)
    return checked


def arrange(program: Program, arrays: Sequence[Any]) -> tuple[HostTensor, ...]:
    """Arrays of logical shape (numbers for scalars), laid out in the dim orders that the program wants."""
    specs = program.file.input_specs()
    tensors = []
    for number, value in enumerate(arrays):
        if isinstance(value, HostTensor):
            tensors.append(value)
        elif isinstance(value, (bool, int, float)):
            tensors.append(HostTensor.from_scalar(value))
        else:
            array = np.asarray(value)
            order = specs[number].dim_order if number < len(specs) else ()
            tensors.append(HostTensor.from_array(array, order if len(order) == array.ndim else None))
    return tuple(tensors)
