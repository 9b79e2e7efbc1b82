"""Checks all assumptions of this project about FVPs on an installed FVP; writes the result as Markdown for an issue.

This code was written without access to an FVP (docs/runtimes.md); users who have one can report wrong assumptions.
"""

from __future__ import annotations

import functools
import platform
import random
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from enum import Enum, IntEnum
from pathlib import Path
from typing import Final

from cortex_m_hil import flow
from cortex_m_hil.errors import ConfigError, HarnessError, LaunchError, ToolchainError, did_you_mean
from cortex_m_hil.host import toolchain
from cortex_m_hil.host.deadline import Deadline
from cortex_m_hil.host.folders import TemporaryFolder
from cortex_m_hil.host.paths import package_data
from cortex_m_hil.host.version import __version__
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.runner import launchers
from cortex_m_hil.runner.build import build_runner
from cortex_m_hil.runner.launchers import fvp
from cortex_m_hil.runner.launchers.process import Process
from cortex_m_hil.runner.links.protocol import MemoryRegion, Request
from cortex_m_hil.runner.memory_files import SCRIPT, write_memory_files
from cortex_m_hil.targets.connection import LinkClosed, RunningProcess
from cortex_m_hil.targets.cpu import cpus
from cortex_m_hil.targets.resolve import Resolved
from cortex_m_hil.targets.target import Target

STARTUP: Final = 60.0  # seconds of host time that a model may take to start, or to end when told to
SECONDS: Final = 60.0  # time limit for programs that take milliseconds on the model
LIMIT: Final = 2  # value of the time limits under test, in seconds or simulated seconds
COMPILE: Final = 60.0
ECHOED: Final = 256 * 1024  # bytes that are sent and echoed
BLOCK: Final = 64 * 1024  # bytes of the program pool that have one pattern
EXIT_STATUS, MEMORY_FINE = 42, 10  # the probe's exit statuses
STOPPED: Final = "Simulation is stopping. Reason: "


class FvpProbe(IntEnum):
    """The test programs that `fvp_probe.c` can be compiled to; the numbers are those in the file."""

    EXIT = 0
    SPIN = 1
    FAULT = 2
    ECHO = 3
    COMMAND_LINE = 4
    MEMORY = 5


class AssumptionState(str, Enum):
    HOLDS = "holds"
    DIFFERS = "differs"  # not as assumed, but the harness does not depend on it
    FAILS = "FAILS"


class Violated(Exception):
    """An assumption is wrong; the message has the actual behaviour."""


@dataclass(frozen=True)
class Assumption:
    """An assumption about a model.

    Attributes:
        text: the assumption, in words.
        look: returns its findings if the assumption holds, and raises Violated or another error if not.
        relied: whether the harness depends on it.
    """

    text: str
    look: Callable[[], str]
    relied: bool = True

    def examine(self) -> ExaminedAssumption:
        try:
            return ExaminedAssumption(self.text, AssumptionState.HOLDS, self.look())
        except Violated as error:
            problem = str(error)
        except HarnessError as error:
            problem = f"{type(error).__name__}: {error.message}"
        except (OSError, TimeoutError) as error:
            problem = f"{type(error).__name__}: {error}"
        return ExaminedAssumption(self.text, AssumptionState.FAILS if self.relied else AssumptionState.DIFFERS, problem)


@dataclass(frozen=True)
class ExaminedAssumption:
    text: str
    state: AssumptionState
    found: str


@dataclass(frozen=True)
class EndedModel:
    """The end of a model's process; `status` is None if the process did not end and was killed."""

    status: int | None
    output: bytes

    @property
    def tail(self) -> str:
        lines = self.output.decode(errors="replace").strip().splitlines()
        return f"the last line is {lines[-1]!r}" if lines else "it printed nothing"


def target_of_model(name: str, targets: Mapping[str, Target]) -> Target:
    """Return the target called `name`, or the first target that uses the model `name`."""
    users = {target.name: target for target in targets.values() if isinstance(target.launcher, fvp.FvpLauncher)}
    by_model = {target.launcher.program: target for target in reversed(users.values())}
    known = {**by_model, **users}
    if name not in known:
        raise ConfigError(f"no target runs on an FVP called {name!r}", hint=did_you_mean(name, known))
    return known[name]


class FvpSession:
    """The FVP of a target; each run starts it in a new folder."""

    def __init__(self, target: Target) -> None:
        assert isinstance(target.launcher, fvp.FvpLauncher)
        self.target, self.launcher = target, target.launcher
        self.cpu = fvp.model_family(self.launcher.model).cpu
        fvp.executable(self.launcher.model)  # ToolchainError where there is none

    @functools.cache  # noqa: B019 - one fvp_session a process
    def probe(self, kind: FvpProbe) -> Path:
        """Compile a probe, and return its ELF, in a folder that exists as long as this process."""
        path = _folder().path / f"{self.target.name}-{kind.name.lower()}.elf"
        folder = _folder().path / f"{self.target.name}-memory"
        write_memory_files(self.target.board, folder)
        compiler = toolchain.find("arm-none-eabi-g++").path
        command = [str(compiler), "-x", "c", "-std=gnu11", f"-mcpu={self.target.cpu}", "-mthumb", "-mfloat-abi=soft"]
        command += ["-O1", "-ffreestanding", "-fno-tree-loop-distribute-patterns", "-nostdlib", f"-DPROBE={kind.value}"]
        command += [str(package_data("firmware") / "fvp_probe.c"), f"-I{folder}", f"-T{folder / SCRIPT}", f"-L{folder}"]
        command += [f"-L{self.target.board.directory}", f"-L{package_data('firmware') / 'platform'}"]
        command += ["-lgcc", "-o", str(path)]
        done = toolchain.run_tool(command, COMPILE)
        if done.status != 0:
            what = f"the probe does not compile: {' '.join(done.err.split())}"
            raise ToolchainError(what, hint="hil doctor tries the compiler")
        return path

    def run(
        self,
        elf: Path,
        options: Sequence[str] = (),
        *,
        features: bool = True,
        limit: int = fvp.TIME_LIMIT,
        given: bytes = b"",
        seconds: float = STARTUP,
    ) -> EndedModel:
        """Run an ELF on the model until it ends, or for some seconds.

        Args:
            elf: the program.
            options: further options of the model.
            features: False removes the semihosting features file, to test firmware that does not use it.
            limit: `--timelimit` of the model, in seconds.
            given: the bytes of standard input, which ends after them.
            seconds: the time after which the model is killed.
        """
        with TemporaryFolder() as folder:
            command = self.launcher.command(elf, folder, (), time_limit=limit)
            if not features:
                (folder / fvp.FEATURES_FILE).unlink()
            with closing(Process([*command, *options], cwd=folder)) as process:
                return _drain(process, given, Deadline.after(seconds))

    def set(self, name: str, value: str) -> tuple[str, str]:
        return "-C", f"{self.cpu}.{name}={value}"


@functools.cache
def _folder() -> TemporaryFolder:
    return TemporaryFolder()


def _drain(process: RunningProcess, given: bytes, deadline: Deadline) -> EndedModel:
    output = bytearray()
    try:
        process.write(given, deadline)
        process.end_input()
        while True:
            output += process.read(deadline)
    except (LinkClosed, TimeoutError):
        status = process.wait(0.0 if deadline.expired else STARTUP)
    return EndedModel(status, bytes(output + process.log))


# --- assumptions ---------------------------------------------------------------------------------------------


def assumptions(fvp_session: FvpSession) -> Iterator[Assumption]:
    def one(text: str, look: Callable[[FvpSession], str], *, relied: bool = True) -> Assumption:
        return Assumption(text, lambda: look(fvp_session), relied)

    yield one("`-l` lists every parameter that the harness sets", _parameters)
    yield one("a parameter that the model does not have is refused", _unknown_parameter, relied=False)
    yield one("SYS_EXIT_EXTENDED's status is the model's, with the features file", _exit_status)
    yield one(
        "and without the file, as the guest does not ask for it",
        lambda fvp_session: _exit_status(fvp_session, features=False),
        relied=False,
    )
    yield one(f"`--timelimit {LIMIT}` ends a guest that spins", _time_limit)
    for option, value, reason in _LIMITS:
        look = functools.partial(_stop_line, option=option, value=value, reason=reason)
        yield one(f"`{option} {value}` ends with status 0 and `{STOPPED}{reason}`", look, relied=False)
    yield one(f"`:tt` carries {ECHOED >> 10} KiB each way unchanged, then end of file", _echo)
    yield one(f"a command line of {fvp.COMMAND_LINE_LIMIT} characters arrives whole", _whole_line)
    yield one("one of 300 characters is cut there", _cut_line, relied=False)
    yield one("a core that locks up leaves the model running until a limit", _lockup, relied=False)
    yield one("memory is where the board's linker script says: every word of the pools", _memory)
    yield one("the runner answers its handshake, and the self-test passes", _self_test)
    yield one(f"the core is a {fvp_session.target.cpu}, by its CPUID", _cpuid, relied=False)
    yield one("FILL, DIGEST, WRITE and READ agree over the whole program pool", _program_pool)
    yield one("the runner runs once with a command line, by files", _one_shot)


_LIMITS: Final = (
    ("--timelimit", str(LIMIT), "CPU time has been exceeded."),
    ("--cpulimit", str(LIMIT), "CPU time has been exceeded."),
    ("--simlimit", "1", "Simulated time has been exceeded."),
    ("--cyclelimit", "10000000", "Cycle limit has been exceeded."),
)


def _parameters(fvp_session: FvpSession) -> str:
    with TemporaryFolder() as folder:
        line = fvp_session.launcher.command(folder / "runner.elf", folder, ("x",))
    return f"all {line.count('-C')} of them"


def _unknown_parameter(fvp_session: FvpSession) -> str:
    ended = fvp_session.run(fvp_session.probe(FvpProbe.EXIT), ["-C", "hil.no_such_parameter=1"])
    if ended.status in (None, 0, EXIT_STATUS):
        raise Violated(f"status {ended.status}; {ended.tail}")
    return f"status {ended.status}; {ended.tail}"


def _exit_status(fvp_session: FvpSession, features: bool = True) -> str:
    ended = fvp_session.run(fvp_session.probe(FvpProbe.EXIT), features=features)
    if ended.status != EXIT_STATUS:
        raise Violated(f"the guest said {EXIT_STATUS}, the model {ended.status}; {ended.tail}")
    return f"{EXIT_STATUS}"


def _time_limit(fvp_session: FvpSession) -> str:
    ended = fvp_session.run(fvp_session.probe(FvpProbe.SPIN), limit=LIMIT)
    if ended.status is None:
        raise Violated(f"still running after {STARTUP:.0f} s")
    return f"status {ended.status}"


def _stop_line(fvp_session: FvpSession, option: str, value: str, reason: str) -> str:
    """Check exit status and last line of a model that reaches a limit.

    The launcher's own `--timelimit` is given in addition to another limit, and is too long to matter.
    """
    if option == "--timelimit":
        ended = fvp_session.run(fvp_session.probe(FvpProbe.SPIN), limit=int(value))
    else:
        ended = fvp_session.run(fvp_session.probe(FvpProbe.SPIN), [option, value])
    line = next(
        (line for line in ended.output.decode(errors="replace").splitlines() if STOPPED in line), "no such line"
    )
    if ended.status != 0 or not line.endswith(STOPPED + reason):
        raise Violated(f"status {ended.status}, {line!r}; {ended.tail}")
    return f"status 0, {line!r}"


def _echo(fvp_session: FvpSession) -> str:
    data = bytes(range(256)) + random.Random(1).randbytes(ECHOED - 256)
    ended = fvp_session.run(fvp_session.probe(FvpProbe.ECHO), given=data, seconds=SECONDS)
    if data not in ended.output:
        raise Violated(f"{len(data)} bytes sent, other bytes came back ({len(ended.output)} with the model's own text)")
    if ended.status != 0:
        raise Violated(f"unchanged, but end of file does not reach the guest: status {ended.status}")
    extra = len(ended.output) - len(data)
    return f"and {extra} bytes of the model's own text around them"


def _line_seen(fvp_session: FvpSession, length: int) -> int:
    """Return how many characters of a command line of `length` characters the firmware receives."""
    text = "".join(chr(ord("a") + at % 26) for at in range(length))
    ended = fvp_session.run(fvp_session.probe(FvpProbe.COMMAND_LINE), fvp_session.set("semihosting-cmd_line", text))
    output = ended.output.decode(errors="replace")
    return next((size for size in range(length, 0, -1) if text[:size] in output), 0)


def _whole_line(fvp_session: FvpSession) -> str:
    seen = _line_seen(fvp_session, fvp.COMMAND_LINE_LIMIT)
    if seen != fvp.COMMAND_LINE_LIMIT:
        raise Violated(f"{seen} of them")
    return "it does"


def _cut_line(fvp_session: FvpSession) -> str:
    seen = _line_seen(fvp_session, 300)
    if seen != fvp.COMMAND_LINE_LIMIT:
        raise Violated(f"{seen} characters arrive")
    return f"{seen} characters arrive"


def _lockup(fvp_session: FvpSession) -> str:
    ended = fvp_session.run(fvp_session.probe(FvpProbe.FAULT), limit=LIMIT)
    if STOPPED not in ended.output.decode(errors="replace"):
        raise Violated(f"status {ended.status} before the limit; {ended.tail}")
    return f"ended by the limit, with status {ended.status}"


def _memory(fvp_session: FvpSession) -> str:
    ended = fvp_session.run(fvp_session.probe(FvpProbe.MEMORY), seconds=SECONDS)
    pools = {11: "the program pool", 12: "the first bank", 13: "the method pool"}
    if ended.status != MEMORY_FINE:
        problem = f"{pools[ended.status]} does not read back" if ended.status in pools else f"status {ended.status}"
        raise Violated(f"{problem}; {ended.tail}")
    memory = fvp_session.target.board.memory
    sizes = {"program": memory.program, "bank": memory.banks[0], "method": memory.method}
    return ", ".join(f"{name} {placed.size >> 10}K" for name, placed in sizes.items())


def _dut(fvp_session: FvpSession) -> flow.Dut:
    return flow.open_dut(Resolved(fvp_session.target, fvp_session.target, "builtin"))


def _self_test(fvp_session: FvpSession) -> str:
    with _dut(fvp_session) as dut:
        result = flow.selftest(dut)
        return result.ran.label


def _cpuid(fvp_session: FvpSession) -> str:
    with _dut(fvp_session) as dut:
        cpuid = dut.session().identity.cpuid
    wanted = cpus()[fvp_session.target.cpu].part
    if cpuid >> 4 & 0xFFF != wanted:
        raise Violated(f"CPUID 0x{cpuid:08x}" + (f"; the part number should be 0x{wanted:03x}" if wanted else ""))
    return f"CPUID 0x{cpuid:08x}"


def _program_pool(fvp_session: FvpSession) -> str:
    with _dut(fvp_session) as dut:
        session = dut.session()
        size = session.identity.program_pool
        expected = bytearray()
        for at in range(0, size, BLOCK):
            length, pattern = min(BLOCK, size - at), (at // BLOCK * 37 + 1) % 256
            session.fill(MemoryRegion.PROGRAM, 0, pattern, offset=at, length=length)
            expected += bytes([pattern]) * length
        written = random.Random(2).randbytes(BLOCK)
        session.write(MemoryRegion.PROGRAM, 0, written)
        expected[: len(written)] = written
        if session.digest(MemoryRegion.PROGRAM, 0) != zlib.crc32(expected):
            raise Violated(f"{Request.DIGEST.name} of {size} bytes is not that of what was written")
        if session.read(MemoryRegion.PROGRAM, 0, 2 * BLOCK) != expected[: 2 * BLOCK]:
            raise Violated("READ is not what was written")
    return f"{size} bytes"


def _one_shot(fvp_session: FvpSession) -> str:
    known, elf = known_answer(fvp_session.target.isa), build_runner(fvp_session.target)
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryFolder())
        (folder / "c.pte").write_bytes(known.program)
        words = ["executor_runner", "-m", "c.pte", "-o", "out"]
        for number, value in enumerate(known.inputs):
            (folder / f"i{number}.bin").write_bytes(value.data)
            words += ["-i", f"i{number}.bin"]
        process = stack.enter_context(closing(launchers.start(fvp_session.target, elf, folder, words)))
        ended = _drain(process, b"", Deadline.after(SECONDS))
        outputs = [folder / f"out-{number}.bin" for number in range(len(known.expected))]
        if ended.status != 0 or not all(path.is_file() for path in outputs):
            raise Violated(f"status {ended.status}; {ended.tail}")
        if [path.read_bytes() for path in outputs] != [value.data for value in known.expected]:
            raise Violated("the self-test's output is wrong")
    return "status 0, and the self-test's output bit for bit"


# --- the page ------------------------------------------------------------------------------------------------


def assumptions_as_markdown(fvp_session: FvpSession, findings: Sequence[ExaminedAssumption]) -> str:
    """Return the page with the model's version and the findings.

    The user's machine is described only by system and architecture.
    """
    banner = fvp_session.launcher.version_text()
    if not banner:
        raise LaunchError(f"{fvp_session.launcher.model} --version says nothing")
    lines = [f"### {fvp_session.launcher.model} as `{fvp_session.target.name}`", ""]
    if fvp_session.launcher.shim():
        lines += [
            "**This is a shim and not Arm's model: it shows what the harness does, and nothing of a model.**",
            "",
        ]
    lines += ["```", *banner.splitlines(), "```", ""]
    lines += [f"harness {__version__}, {platform.system()} {platform.machine()}", ""]
    lines += ["| | assumption | found |", "|---|---|---|"]
    for finding in findings:
        cells = (finding.state.value, finding.text, finding.found)
        lines.append("| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |")
    counts = {state: sum(finding.state is state for finding in findings) for state in AssumptionState}
    lines += ["", f"{counts[AssumptionState.HOLDS]} of {len(findings)} hold, {counts[AssumptionState.FAILS]} fail, "]
    lines[-1] += f"{counts[AssumptionState.DIFFERS]} differ where nothing depends on it."
    return "\n".join(lines)
