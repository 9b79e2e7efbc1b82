"""A live target: handshake, load, memory, execute, step. Specification: docs/protocol.md."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from harness.build import Elf
from harness.errors import (
    HarnessError,
    IdentityError,
    LinkError,
    OutOfTargetMemory,
    ProgramRejected,
    ProtocolError,
    TargetFault,
    UnsupportedOperator,
)
from harness.faults import Fault
from harness.launchers import explain_end
from harness.launchers.process import Process
from harness.links import Budget, Deadline, LinkClosed
from harness.links.framing import Decoder, Frame, encode
from harness.program import DTYPES, HostTensor, TensorSpec, ValueKind
from harness.results import Identity, Pool, Stats
from harness.targets import Target

HANDSHAKE = 30.0  # seconds of the engine's CPU time for boot and HELLO
REQUEST = 30.0  # for one request that executes no program
END = 5.0  # seconds for a process whose pipe closed to end
LOG_LIMIT = 256 * 1024  # characters kept, the newest
TO_THE_END = 0xFFFFFFFF


class Request(IntEnum):
    HELLO = 0x01
    WRITE = 0x02
    READ = 0x03
    FILL = 0x04
    DIGEST = 0x05
    LOAD = 0x06
    DESCRIBE = 0x07
    EXECUTE = 0x08
    STEP = 0x09
    STATS = 0x0A
    RESET = 0x0B
    OPERATORS = 0x0C


class Event(IntEnum):
    LOG = 0x40
    PROGRESS = 0x41
    FAULT = 0x42
    READY = 0x43


class Space(IntEnum):
    PROGRAM = 0
    PLANNED = 1
    VALUE = 2
    INPUT = 3
    OUTPUT = 4


class Status(IntEnum):
    OK = 0
    BAD_REQUEST = 1
    BAD_VERSION = 2
    BAD_STATE = 3
    PROGRAM_REJECTED = 4
    UNSUPPORTED_OPERATOR = 5
    UNSUPPORTED_DELEGATE = 6
    OUT_OF_MEMORY = 7
    KERNEL_FAILED = 8
    BAD_DIGEST = 9


_ERRORS: dict[int, type[HarnessError]] = {
    Status.PROGRAM_REJECTED: ProgramRejected,
    Status.UNSUPPORTED_OPERATOR: UnsupportedOperator,
    Status.UNSUPPORTED_DELEGATE: UnsupportedOperator,
    Status.OUT_OF_MEMORY: OutOfTargetMemory,
    Status.KERNEL_FAILED: ProgramRejected,
    Status.BAD_DIGEST: LinkError,
}
_LEVELS = ("debug", "info", "error")


class NoAnswer(Exception):
    """The budget ran out. `operator` is the one that was being executed, "" if none; `log` as Session's."""

    def __init__(self, request: Request, operator: str, log: str) -> None:
        super().__init__(f"no answer to {request.name}")
        self.request = request
        self.operator = operator
        self.log = log


@dataclass(frozen=True)
class Loaded:
    """Counts of the loaded program; `planned` in bytes."""

    inputs: int
    outputs: int
    values: int
    instructions: int
    planned: int


@dataclass(frozen=True)
class Step:
    next: int
    done: bool
    ticks: int


class _Reader:
    """Takes fields off a payload. Raises ProtocolError where it is too short."""

    def __init__(self, data: bytes) -> None:
        self.rest = data

    def take(self, layout: str) -> tuple[int, ...]:
        size = struct.calcsize("<" + layout)
        if len(self.rest) < size:
            raise ProtocolError(f"a response is {size - len(self.rest)} bytes too short")
        values = struct.unpack_from("<" + layout, self.rest)
        self.rest = self.rest[size:]
        return values

    def text(self) -> str:
        (length,) = self.take("H")
        raw, self.rest = self.rest[:length], self.rest[length:]
        return raw.decode(errors="replace")

    def texts(self) -> tuple[str, ...]:
        (count,) = self.take("H")
        return tuple(self.text() for _ in range(count))


class Session:
    """One boot of one runner. After any infra error, a fault or NoAnswer it is broken: close it."""

    def __init__(self, target: Target, elf: Elf, process: Process) -> None:
        self.target = target
        self._elf = elf
        self._process = process
        self._decoder = Decoder()
        self._frames: list[Frame] = []
        self._seq = 0
        self._log: list[str] = []
        self._operators: Callable[[int], str] = lambda _: ""
        self._executing = -1
        self._fault: Fault | None = None
        self.broken = False
        with self._breaking():
            self.identity = self._hello()

    # --- requests -----------------------------------------------------------------------------

    def load(self, pte: bytes, operators: Callable[[int], str] = lambda _: "") -> Loaded:
        """Streams the program and prepares it. `operators` names an instruction's operator, for messages."""
        self._operators = operators
        if len(pte) > self.identity.program_pool:
            had = self.identity.program_pool
            raise self._too_large("program pool", len(pte), had)
        self.reset()
        self.write(Space.PROGRAM, 0, pte)
        reader = self._ask(Request.LOAD, struct.pack("<II", len(pte), zlib.crc32(pte)))
        return Loaded(*reader.take("HHIII"))

    def reset(self) -> None:
        """Forgets the program."""
        self._ask(Request.RESET)

    def write(self, space: Space, index: int, data: bytes) -> None:
        chunk = self.identity.max_payload - 9
        for at in range(0, len(data), chunk):
            self._ask(Request.WRITE, struct.pack("<BII", space, index, at) + data[at : at + chunk])

    def read(self, space: Space, index: int, length: int, *, offset: int = 0) -> bytes:
        chunk = self.identity.max_payload - 2  # a response begins with its status
        out = bytearray()
        while len(out) < length:
            size = min(chunk, length - len(out))
            part = self._ask(Request.READ, struct.pack("<BIII", space, index, offset + len(out), size)).rest
            if len(part) != size:
                raise ProtocolError(f"READ of {size} bytes gave {len(part)}", target=self.target.name)
            out += part
        return bytes(out)

    def fill(self, space: Space, index: int, pattern: int, *, offset: int = 0, length: int = TO_THE_END) -> None:
        self._ask(Request.FILL, struct.pack("<BIIIB", space, index, offset, length, pattern))

    def digest(self, space: Space, index: int, *, offset: int = 0, length: int = TO_THE_END) -> int:
        """CRC-32 of the bytes, computed on the target."""
        return self._ask(Request.DIGEST, struct.pack("<BIII", space, index, offset, length)).take("I")[0]

    def describe(self, space: Space, index: int) -> TensorSpec | None:
        """What a value is; None for one that holds no data (a list, None)."""
        reader = self._ask(Request.DESCRIBE, struct.pack("<BI", space, index))
        kind, dtype, rank, _ = reader.take("BBBI")
        if kind == 0:
            return None
        if kind > 1:
            return TensorSpec.scalar((ValueKind.INT, ValueKind.DOUBLE, ValueKind.BOOL)[kind - 2])
        if dtype not in DTYPES:
            raise ProtocolError(f"unknown ScalarType {dtype}", target=self.target.name)
        return TensorSpec(DTYPES[dtype], reader.take(f"{rank}i"), reader.take(f"{rank}B"))

    def set_input(self, number: int, value: HostTensor) -> None:
        self.write(Space.INPUT, number, value.data)

    def get_output(self, number: int) -> HostTensor:
        spec = self.describe(Space.OUTPUT, number)
        if spec is None:
            raise ProtocolError(f"output {number} holds no data", target=self.target.name)
        return HostTensor(spec, self.read(Space.OUTPUT, number, spec.nbytes))

    def execute(self, seconds: float) -> int:
        """Runs the program from its first instruction to its end; ticks. NoAnswer after `seconds` of engine time."""
        return self._ask(Request.EXECUTE, seconds=seconds).take("Q")[0]

    def step(self, count: int, seconds: float) -> Step:
        """`count` more instructions."""
        position, done, ticks = self._ask(Request.STEP, struct.pack("<I", count), seconds=seconds).take("IBQ")
        return Step(position, bool(done), ticks)

    def stats(self) -> Stats:
        used = self._ask(Request.STATS).take("10I")
        return Stats(*(Pool(used[i], used[i + 1]) for i in range(0, 10, 2)))

    # --- life ---------------------------------------------------------------------------------

    @property
    def log(self) -> str:
        """Everything the runner and its simulator have printed, the newest."""
        errors = self._process.log.decode(errors="replace").strip()
        return "\n".join([*self._log, errors] if errors else self._log)[-LOG_LIMIT:]

    def close(self) -> None:
        self.broken = True
        self._process.close()

    def _hello(self) -> Identity:
        reader = self._ask(Request.HELLO, seconds=HANDSHAKE)
        build_id, config, (cpuid,) = reader.text(), reader.text(), reader.take("I")
        isa, architecture, runtime, version = reader.text(), reader.text(), reader.text(), reader.text()
        max_payload, program, planned, method = reader.take("IIII")
        tick_source, (tick_hz,), operators = reader.text(), reader.take("I"), reader.texts()
        while more := self._ask(Request.OPERATORS, struct.pack("<I", len(operators))).texts():
            operators += more
        identity = Identity(
            build_id, config, cpuid, isa, architecture, runtime, version, max_payload, program, planned, method,
            tick_source, tick_hz, operators,
        )  # fmt: skip
        expected = {
            "build id": (self._elf.build_id, identity.build_id),
            "config": (self._elf.config, identity.config),
            "ISA class": (self.target.isa.value, identity.isa),
            "architecture": (self.target.architecture, identity.architecture),
        }
        for what, (wanted, got) in expected.items():
            if wanted != got:
                raise IdentityError(
                    f"the runner's {what} is {got!r}, built was {wanted!r}",
                    target=self.target.name,
                    hint="another firmware answers, or one of other compiler flags; reset or flash the target",
                )
        return identity

    # --- exchange -----------------------------------------------------------------------------

    def _ask(self, request: Request, payload: bytes = b"", seconds: float = REQUEST) -> _Reader:
        self._seq = self._seq % 0xFFFF + 1
        self._executing = -1
        with self._breaking():
            budget = self._process.budget(seconds)
            frame = self._exchange(Frame(request, self._seq, payload), budget)
            reader = _Reader(frame.payload)
            (status,) = reader.take("H")
            if status == Status.OK:
                return reader
            error = self._failure(request, status, reader)
        raise error

    def _exchange(self, request: Frame, budget: Budget) -> Frame:
        kind = Request(request.type)
        try:
            self._process.write(encode(request), budget.next_look)
            while True:
                frame = self._next_frame(budget)
                if frame.type == request.type | 0x80 and frame.seq == request.seq:
                    return frame
                if frame.type & 0x80 == 0:
                    self._take_event(frame)
        except TimeoutError:
            self._log_stray()
            operator = self._operators(self._executing) if self._executing >= 0 else ""
            raise NoAnswer(kind, operator, self.log) from None
        except LinkClosed:
            raise self._ended() from None

    def _next_frame(self, budget: Budget) -> Frame:
        while not self._frames:
            if budget.expired:  # asked also of a runner that goes on sending: a loop makes progress for ever
                raise TimeoutError
            with suppress(TimeoutError):
                self._frames += self._decoder.feed(self._process.read(budget.next_look))
        return self._frames.pop(0)

    def _take_event(self, frame: Frame) -> None:
        try:
            if frame.type == Event.PROGRESS:
                (self._executing,) = struct.unpack_from("<I", frame.payload)
            elif frame.type == Event.LOG:
                text = _Reader(frame.payload[1:]).text()
                self._log.append(f"[{_LEVELS[min(frame.payload[0], 2)]}] {text}")
            elif frame.type == Event.FAULT:
                self._fault = Fault.parse(frame.payload)
        except (struct.error, IndexError) as error:
            raise ProtocolError(f"event 0x{frame.type:02x} is cut short", target=self.target.name) from error

    def _failure(self, request: Request, status: int, reader: _Reader) -> HarnessError:
        instruction, asked, had = reader.take("iQQ")
        operator, message = reader.text(), reader.text()
        if status not in _ERRORS:
            name = Status(status).name if status in set(Status) else f"status {status}"
            self.broken = True
            return ProtocolError(f"{request.name}: {name}: {message}", target=self.target.name)
        if status == Status.OUT_OF_MEMORY:
            return self._too_large(message, asked, had)
        where = f" (instruction {instruction})" if instruction >= 0 else ""
        if status == Status.UNSUPPORTED_DELEGATE:
            message = f"delegate {operator!r}: {message}"
        message = ", ".join(message.splitlines())
        return _ERRORS[status](message + where, target=self.target.name, operator=operator, log=self.log)

    def _too_large(self, pool: str, asked: int, had: int) -> OutOfTargetMemory:
        return OutOfTargetMemory(
            f"{pool}: {asked} bytes asked, {had} had",
            target=self.target.name,
            hint="use a larger target, or a smaller model",
            log=self.log,
        )

    def _ended(self) -> HarnessError:
        """Why the runner is gone, in the order of what is known for certain."""
        status = self._process.wait(END)
        self._take_last_words()
        self._log_stray()
        if self._fault is None:
            error = explain_end(self.target, self._process, status, self.log)
            if self._executing >= 0:
                error.operator = self._operators(self._executing)
            return error
        elf: Path | None = self._elf.path if self.target.cpu != "host" else None
        self._log.append(self._fault.dump())
        return TargetFault(
            self._fault.describe(elf),
            target=self.target.name,
            operator=self._fault.operator or self._operators(self._fault.instruction),
            log=self.log,
        )

    def _take_last_words(self) -> None:
        """What arrived after the last read: the runner may have ended, with a FAULT event, while we were writing."""
        with suppress(LinkClosed, TimeoutError):
            self._frames += self._decoder.feed(self._process.read(Deadline.after(0.0)))
        for frame in self._frames:
            if frame.type & 0x80 == 0:
                self._take_event(frame)
        self._frames.clear()

    def _log_stray(self) -> None:
        lines = self._decoder.flush().decode(errors="replace").splitlines()
        self._log += [line for line in lines if line.strip()]

    @contextmanager
    def _breaking(self) -> Iterator[None]:
        """Whatever leaves here as an exception leaves the exchange out of step."""
        try:
            yield
        except BaseException:
            self.broken = True
            raise
