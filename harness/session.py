"""A live target: handshake, load, memory, execute, step. Specification: docs/protocol.md."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path

from harness.build import Elf
from harness.errors import (
    HarnessError,
    IdentityError,
    LaunchError,
    LinkError,
    OutOfTargetMemory,
    ProgramRejected,
    ProtocolError,
    TargetFault,
    UnsupportedOperator,
)
from harness.faults import Fault
from harness.launchers import EXIT_FAULT, assertion, explain_end
from harness.links import Budget, Connection, Deadline, LinkClosed
from harness.links.framing import Decoder, Frame, encode
from harness.links.window import Window
from harness.program import DTYPES, HostTensor, TensorSpec, ValueKind
from harness.results import Identity, Pool, Stats
from harness.targets import Target

HANDSHAKE = 30.0  # seconds of the engine's CPU time for boot and HELLO
REQUEST = 30.0  # for one request that executes no program
END = 5.0  # seconds for a process whose pipe closed to end
LOG_LIMIT = 256 * 1024  # characters kept, the newest
TO_THE_END = 0xFFFFFFFF
# On a lossy link, docs/protocol.md. A frame has 11 bytes around its chunk. With one byte in a thousand damaged, chunks
# of 105 bytes bring most through, 81 %; 152 bring 79 %, and use 93 % of an undamaged line in place of 90 %.
CHUNK = 152
WINDOW = 48  # frames under way: 7.8 KB, which a runner's 8192 hold; 85 ms at 921600 baud, for adapters and busy hosts
STREAM = 8192  # chunks of one stream
PATIENCE = 0.1, 1.0  # seconds of silence before what is not answered is sent again: at first, and at most
RESPONSE = 0x80
LAST_WORDS = 20  # times that a runner which has ended is asked for its fault


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
    STREAM = 0x0C
    DATA = 0x0D
    OPERATORS = 0x0E


class Event(IntEnum):
    LOG = 0x40
    PROGRESS = 0x41
    FAULT = 0x42
    READY = 0x43
    ENDED = 0x44


class Space(IntEnum):
    PROGRAM = 0
    PLANNED = 1
    VALUE = 2
    INPUT = 3
    OUTPUT = 4
    RESIDENT = 5


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

    def peek(self, layout: str) -> int:
        return _Reader(self.rest).take(layout)[0]

    def text(self) -> str:
        (length,) = self.take("H")
        raw, self.rest = self.rest[:length], self.rest[length:]
        return raw.decode(errors="replace")


class Session:
    """One boot of one runner. After any infra error, a fault or NoAnswer it is broken: close it."""

    def __init__(self, target: Target, elf: Elf, process: Connection) -> None:
        self.target = target
        self._elf = elf
        self._process = process
        self._decoder = Decoder()
        self._frames: list[Frame] = []
        self._seq = 0
        self._patience = PATIENCE[0]
        self._sent_again = False  # since the last answer that came twice
        self._log: list[str] = []
        self._operators: Callable[[int], str] = lambda _: ""
        self._executing = -1
        self._fault: Fault | None = None
        self._ended_with: int | None = None
        self._asked_again = 0
        self._greeted = False
        self.broken = False
        with self._breaking():
            self.identity = self._hello()

    # --- requests -----------------------------------------------------------------------------

    def load(self, pte: bytes, operators: Callable[[int], str] = lambda _: "", *, planned: int = 0) -> Loaded:
        """Brings the program to the target, if it is not there, and prepares it.

        `operators` names an instruction's operator, for messages; `planned` is what its tensors need, in bytes.
        """
        self._operators = operators
        board = self.target.board
        if len(pte) > board.program_room:
            raise self._too_large("program pool", len(pte), board.program_room)
        self.reset()
        if board.keeps_in_flash(len(pte), planned):
            self._keep(pte)
        elif self._process.lossless or not self._holds(Space.PROGRAM, pte):
            self.write(Space.PROGRAM, 0, pte)
        reader = self._ask(Request.LOAD, struct.pack("<II", len(pte), zlib.crc32(pte)))
        return Loaded(*reader.take("HHIII"))

    def _holds(self, space: Space, pte: bytes) -> bool:
        """Whether a program is there already: then it is not sent again."""
        return self.digest(space, 0, length=len(pte)) == zlib.crc32(pte)

    def _keep(self, pte: bytes) -> None:
        """In flash, by the flash tool; the runner starts anew."""
        if self._holds(Space.RESIDENT, pte):
            return
        with self._breaking():
            self._process.store(pte)
            self._greeted = False
            self._hello()

    def reset(self) -> None:
        """Forgets the program."""
        self._ask(Request.RESET)

    def write(self, space: Space, index: int, data: bytes) -> None:
        if not self._process.lossless and len(data) > CHUNK:
            return self._stream(space, index, data)
        chunk = self.identity.max_payload - 9
        for at in range(0, len(data), chunk):
            self._ask(Request.WRITE, struct.pack("<BII", space, index, at) + data[at : at + chunk])
        return None

    def _stream(self, space: Space, index: int, data: bytes) -> None:
        """As short frames without addresses, many under way."""
        for start in range(0, len(data), STREAM * CHUNK):
            part = data[start : start + STREAM * CHUNK]
            chunks = [part[at : at + CHUNK] for at in range(0, len(part), CHUNK)]
            self._reserve(1 + len(chunks))
            self._ask(Request.STREAM, struct.pack("<BIIII", space, index, start, len(part), CHUNK))
            self._ask_all(Request.DATA, chunks)

    def read(self, space: Space, index: int, length: int, *, offset: int = 0) -> bytes:
        chunk = self.identity.max_payload - 2 if self._process.lossless else CHUNK  # a response begins with its status
        sizes = [min(chunk, length - at) for at in range(0, length, chunk)]
        asked = [struct.pack("<BIII", space, index, offset + n * chunk, size) for n, size in enumerate(sizes)]
        self._reserve(len(asked))
        parts = [reader.rest for reader in self._ask_all(Request.READ, asked, answer=chunk)]
        for size, part in zip(sizes, parts, strict=True):
            if len(part) != size:
                raise ProtocolError(f"READ of {size} bytes gave {len(part)}", target=self.target.name)
        return b"".join(parts)

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
        tick_source, (tick_hz,) = reader.text(), reader.take("I")
        identity = Identity(
            build_id, config, cpuid, isa, architecture, runtime, version, max_payload, program, planned, method,
            tick_source, tick_hz, (),
        )  # fmt: skip
        self._greeted = True
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
        return replace(identity, operators=self._operator_names(max_payload))

    def _operator_names(self, max_payload: int) -> tuple[str, ...]:
        """In several answers on a lossy link, where a long frame does not arrive."""
        room = max_payload - 6 if self._process.lossless else CHUNK
        names: list[str] = []
        total = 1
        while len(names) < total:
            reader = self._ask(Request.OPERATORS, struct.pack("<II", len(names), room))
            (total,) = reader.take("I")
            before = len(names)
            while reader.rest:
                names.append(reader.text())
            if total > len(names) == before:
                raise ProtocolError("the runner does not name its operators", target=self.target.name)
        return tuple(names)

    # --- exchange -----------------------------------------------------------------------------

    def _reserve(self, count: int) -> None:
        """The next `count` seqs follow each other."""
        if self._seq + count > 0xFFFF:
            self._seq = 0

    def _ask(self, request: Request, payload: bytes = b"", seconds: float | None = None) -> _Reader:
        self._reserve(1)
        return self._ask_all(request, [payload], seconds)[0]

    def _ask_all(
        self, request: Request, payloads: Sequence[bytes], seconds: float | None = None, *, answer: int = 0
    ) -> list[_Reader]:
        """The answers' bodies, each of `answer` bytes or so. Several are under way at a time on a lossy link.

        NoAnswer after `seconds` (default REQUEST) without one, beside what the bytes under way need on the wire.
        """
        frames = []
        for payload in payloads:
            self._seq += 1
            frames.append(Frame(request, self._seq, payload))
        self._executing = -1
        with self._breaking():
            nbytes = sum(len(payload) + answer for payload in payloads[:WINDOW])
            limit = REQUEST if seconds is None else seconds
            answers = self._exchange(frames, lambda: self._process.budget(limit, nbytes))
            readers = [_Reader(frame.payload) for frame in answers]
            failed = next((reader for reader in readers if reader.peek("H") != Status.OK), None)
            if failed is None:
                for reader in readers:
                    reader.take("H")
                return readers
            error = self._failure(request, failed.take("H")[0], failed)
        raise error

    def _exchange(self, requests: Sequence[Frame], budget_of_one: Callable[[], Budget]) -> list[Frame]:
        """The answers in the order of the requests. On a lossy link, what is not answered is sent again.

        An answer that comes twice says that what it answers was not lost but late: from then on we wait longer.
        """
        budget = budget_of_one()
        places = {(frame.type | RESPONSE, frame.seq): place for place, frame in enumerate(requests)}
        answers: dict[int, Frame] = {}
        window = Window(len(requests), 1 if self._process.lossless else WINDOW)
        patience = self._patience
        try:
            while not window.done:
                if batch := b"".join(encode(requests[place]) for place in window.launch()):
                    self._process.write(batch, budget.next_look)
                frame = self._next_frame(budget, patience)
                if frame is None:
                    window.all_lost()
                    self._sent_again = True
                    patience = min(2 * patience, PATIENCE[1])
                    continue
                patience = self._patience
                place = places.get((frame.type, frame.seq))
                if frame.type & RESPONSE == 0:
                    self._take_event(frame)
                    self._look_for_the_end(budget)
                elif place is None or place in answers:
                    self._take_late_answer()
                else:
                    answers[place] = frame
                    window.answered(place)
                    budget = budget if window.done else budget_of_one()
        except TimeoutError:
            self._log_stray()
            operator = self._operators(self._executing) if self._executing >= 0 else ""
            raise NoAnswer(Request(requests[0].type), operator, self.log) from None
        except LinkClosed:
            raise self._ended() from None
        return [answers[place] for place in range(len(requests))]

    def _take_late_answer(self) -> None:
        if self._sent_again:
            self._sent_again = False
            self._patience = min(2 * self._patience, PATIENCE[1])

    def _next_frame(self, budget: Budget, patience: float) -> Frame | None:
        """None after `patience` seconds of silence on a lossy link."""
        quiet = None if self._process.lossless else Deadline.after(patience)
        while not self._frames:
            if budget.expired:  # asked also of a runner that goes on sending: a loop makes progress for ever
                raise TimeoutError
            look = budget.next_look if quiet is None else min(budget.next_look, quiet, key=lambda one: one.at)
            try:  # also when it is late: what came while we were not running is no silence
                self._frames += self._decoder.feed(self._process.read(look))
            except TimeoutError:
                if quiet is not None and quiet.expired:
                    return None
        return self._frames.pop(0)

    def _look_for_the_end(self, budget: Budget) -> None:
        """A board that took a fault, or was reset, stays there: LinkClosed, as if it had ended."""
        if self._process.lossless:
            return
        if self._fault is not None:
            raise LinkClosed
        if self._ended_with is None:
            return
        if self._ended_with != EXIT_FAULT or self._asked_again == LAST_WORDS:
            raise LinkClosed
        self._asked_again += 1  # the report did not arrive: at the end of any frame the runner says it again
        self._process.write(b"\0", budget.next_look)

    def _take_event(self, frame: Frame) -> None:
        try:
            if frame.type == Event.PROGRESS:
                (self._executing,) = struct.unpack_from("<I", frame.payload)
            elif frame.type == Event.LOG:
                text = _Reader(frame.payload[1:]).text()
                self._log.append(f"[{_LEVELS[min(frame.payload[0], 2)]}] {text}")
            elif frame.type == Event.FAULT:
                self._fault = Fault.parse(frame.payload)
            elif frame.type == Event.ENDED:
                self._ended_with = frame.payload[0]
            elif frame.type == Event.READY and self._greeted and not self._process.lossless:
                raise LaunchError("the board was reset in the middle", target=self.target.name, log=self.log)
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
            error = self._unreported(status) or explain_end(self.target, self._process, status, self.log)
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

    def _unreported(self, status: int | None) -> HarnessError | None:
        """A board that said it had ended, without a fault's report: then it was a failed assertion."""
        if self._ended_with is None:
            return None
        what = "a fault, whose report did not arrive" if self._ended_with == EXIT_FAULT else assertion(self.log)
        return TargetFault(f"the runner ended after {what}", target=self.target.name, log=self.log)

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
