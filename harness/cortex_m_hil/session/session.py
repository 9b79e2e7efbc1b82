"""A live target: handshake, load, memory, execute, step. Specification: docs/protocol.md."""

from __future__ import annotations

import struct
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from cortex_m_hil.errors import (
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
from cortex_m_hil.host.deadline import Deadline
from cortex_m_hil.launchers import assertion, explain_end
from cortex_m_hil.links import Budget, Connection, LinkClosed, protocol
from cortex_m_hil.links.framing import VERSION, Decoder, Frame, encode
from cortex_m_hil.links.protocol import EXIT_FAULT, RESPONSE, Event, Loaded, Reader, Request, Space, Status, Step
from cortex_m_hil.links.window import Window
from cortex_m_hil.program.model import PteFile
from cortex_m_hil.program.tensor import HostTensor, TensorSpec
from cortex_m_hil.results import Identity, Stats
from cortex_m_hil.runner.build import Elf
from cortex_m_hil.session.faults import Fault
from cortex_m_hil.targets.model import Target
from cortex_m_hil.text import printable_lines

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
RETRANSMISSION_TIMEOUT = 0.1, 1.0  # seconds of silence before what is not answered is sent again: at first, and at most
FAULT_REPORT_ATTEMPTS = 20  # times that a runner which has ended is asked for its fault


_ERRORS: dict[int, type[HarnessError]] = {
    Status.PROGRAM_REJECTED: ProgramRejected,
    Status.UNSUPPORTED_OPERATOR: UnsupportedOperator,
    Status.UNSUPPORTED_DELEGATE: UnsupportedOperator,
    Status.OUT_OF_MEMORY: OutOfTargetMemory,
    Status.KERNEL_FAILED: ProgramRejected,
    Status.BAD_DIGEST: LinkError,
}
_Answer = TypeVar("_Answer")


class ResponseTimeout(Exception):
    """The budget ran out. `operator` is the one that was being executed, "" if none; `log` as Session's."""

    def __init__(self, request: Request, operator: str, log: str) -> None:
        super().__init__(f"no answer to {request.name}")
        self.request = request
        self.operator = operator
        self.log = log


class Session:
    """One boot of one runner. After any infra error, a fault or ResponseTimeout it is broken: close it."""

    def __init__(self, target: Target, elf: Elf, process: Connection) -> None:
        self.target = target
        self._elf = elf
        self._process = process
        self._decoder = Decoder()
        self._frames: deque[Frame] = deque()
        self._max_payload = protocol.MAX_PAYLOAD
        self._seq = 0
        self._timeout = RETRANSMISSION_TIMEOUT[0]
        self._sent_again = False  # since the last answer that came twice
        self._log: deque[str] = deque()
        self._log_size = 0  # characters
        self._operators: Callable[[int], str] = lambda _: ""
        self._instructions = 0  # of the program that is loaded, or is being loaded
        self._file: PteFile | None = None  # what the host read in it
        self._executing = -1
        self._fault: Fault | None = None
        self._ended_with: int | None = None
        self._asked_again = 0
        self._greeted = False
        self.broken = False
        with self._breaking():
            self.identity = self._hello()

    # --- requests -----------------------------------------------------------------------------

    def load(
        self,
        pte: bytes,
        operators: Callable[[int], str] = lambda _: "",
        *,
        file: PteFile | None = None,
        planned: int = 0,
    ) -> Loaded:
        """Brings the program to the target, if it is not there, and prepares it.

        `operators` names an instruction's operator, for messages; `file` is what the host read in the program, which
        the target must read in it too; `planned` is what its tensors need at least, in bytes, where that is not known.
        """
        self._operators = operators
        board = self.target.board
        if len(pte) > board.program_room:
            raise self._too_large("program pool", len(pte), board.program_room)
        self.reset()
        self._instructions = len(pte) if file is None else len(file.instructions)
        if board.keeps_in_flash(len(pte), file.planned_bytes if file is not None else planned):
            self._keep(pte)
        elif self._process.lossless or not self._holds(Space.PROGRAM, pte):
            self.write(Space.PROGRAM, 0, pte)
        loaded = self._ask(
            Request.LOAD,
            struct.pack("<II", len(pte), zlib.crc32(pte)),
            lambda reader: protocol.loaded(reader, len(pte), file, self.identity.planned_pool),
        )
        self._instructions, self._file = loaded.instructions, file
        return loaded

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
        self._instructions, self._file = 0, None

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
        parts = self._ask_all(Request.READ, asked, Reader.rest, answer=chunk)
        with self._breaking():
            for size, part in zip(sizes, parts, strict=True):
                if len(part) != size:
                    raise ProtocolError(f"READ of {size} bytes gave {len(part)}")
        return b"".join(parts)

    def fill(self, space: Space, index: int, pattern: int, *, offset: int = 0, length: int = TO_THE_END) -> None:
        self._ask(Request.FILL, struct.pack("<BIIIB", space, index, offset, length, pattern))

    def digest(self, space: Space, index: int, *, offset: int = 0, length: int = TO_THE_END) -> int:
        """CRC-32 of the bytes, computed on the target."""
        return self._ask(Request.DIGEST, struct.pack("<BIII", space, index, offset, length), protocol.crc)

    def describe(self, space: Space, index: int) -> TensorSpec | None:
        """What a value is; None for one that holds no data (a list, None)."""
        return self._ask(Request.DESCRIBE, struct.pack("<BI", space, index), protocol.described)

    def set_input(self, number: int, value: HostTensor) -> None:
        self.write(Space.INPUT, number, value.data)

    def get_output(self, number: int) -> HostTensor:
        """As the program says of it, if `load` was told that; smaller only where its shape is dynamic."""
        said = self._file.values[self._file.outputs[number]] if self._file is not None else None
        asked = struct.pack("<BI", Space.OUTPUT, number)
        spec = self._ask(Request.DESCRIBE, asked, lambda reader: protocol.output_spec(reader, said))
        return HostTensor(spec, self.read(Space.OUTPUT, number, spec.nbytes))

    def execute(self, seconds: float) -> int:
        """Runs the program from its first instruction to its end; ticks.

        ResponseTimeout after `seconds` of engine time.
        """
        return self._ask(Request.EXECUTE, b"", protocol.ticks, seconds)

    def step(self, count: int, seconds: float) -> Step:
        """`count` more instructions."""
        asked = struct.pack("<I", count)
        return self._ask(Request.STEP, asked, lambda reader: protocol.stepped(reader, self._instructions), seconds)

    def stats(self) -> Stats:
        room = self.target.board.program_room
        return self._ask(Request.STATS, b"", lambda reader: protocol.stats(reader, self.identity, room))

    # --- life ---------------------------------------------------------------------------------

    @property
    def log(self) -> str:
        """Everything the runner and its simulator have printed, the newest."""
        errors = printable_lines(self._process.log.decode(errors="replace")).strip()
        return "\n".join([*self._log, errors] if errors else self._log)[-LOG_LIMIT:]

    def close(self) -> None:
        self.broken = True
        self._process.close()

    def _hello(self) -> Identity:
        identity = self._ask(Request.HELLO, b"", protocol.hello, HANDSHAKE)
        self._greeted = True
        self._max_payload = identity.max_payload
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
        protocol.check_pools(identity, self.target.board.pools)
        return replace(identity, operators=self._operator_names())

    def _operator_names(self) -> tuple[str, ...]:
        """In several answers on a lossy link, where a long frame does not arrive."""
        room = self._max_payload - 6 if self._process.lossless else CHUNK
        names: list[str] = []
        total = 1
        budget = self._process.budget(HANDSHAKE)
        while len(names) < total:
            if budget.expired:
                raise ProtocolError(f"OPERATORS: {len(names)} of {total} names after {HANDSHAKE:g} s")
            first = len(names)
            asked = struct.pack("<II", first, room)
            found = self._ask(Request.OPERATORS, asked, partial(protocol.operators, first=first))
            total = found.total
            names += found.names
        return tuple(names)

    # --- exchange -----------------------------------------------------------------------------

    def _reserve(self, count: int) -> None:
        """The next `count` seqs follow each other."""
        if self._seq + count > 0xFFFF:
            self._seq = 0

    def _ask(
        self,
        request: Request,
        payload: bytes = b"",
        parse: Callable[[Reader], _Answer] = protocol.nothing,  # type: ignore[assignment]
        seconds: float | None = None,
    ) -> _Answer:
        self._reserve(1)
        return self._ask_all(request, [payload], parse, seconds)[0]

    def _ask_all(
        self,
        request: Request,
        payloads: Sequence[bytes],
        parse: Callable[[Reader], _Answer] = protocol.nothing,  # type: ignore[assignment]
        seconds: float | None = None,
        *,
        answer: int = 0,
    ) -> list[_Answer]:
        """What `parse` reads in the answers, each of `answer` bytes or so. On a lossy link several are under way.

        ResponseTimeout after `seconds` (default REQUEST) without one, beside what the bytes under way need on the wire.
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
            readers = [Reader(request.name, frame.payload) for frame in answers]
            statuses = [protocol.status(reader) for reader in readers]
            failed = next((place for place, status in enumerate(statuses) if status is not Status.OK), None)
            if failed is None:
                return [_parse_all(parse, reader) for reader in readers]
            error = self._failure(request, statuses[failed], readers[failed])
        raise error

    def _exchange(self, requests: Sequence[Frame], budget_of_one: Callable[[], Budget]) -> list[Frame]:
        """The answers in the order of the requests. On a lossy link, what is not answered is sent again.

        An answer that comes twice says that what it answers was not lost but late: from then on we wait longer.
        """
        budget = budget_of_one()
        places = {(frame.type | RESPONSE, frame.seq): place for place, frame in enumerate(requests)}
        answers: dict[int, Frame] = {}
        window = Window(len(requests), 1 if self._process.lossless else WINDOW)
        timeout = self._timeout
        try:
            while not window.done:
                if batch := b"".join(encode(requests[place]) for place in window.launch()):
                    self._process.write(batch, budget.next_look)
                frame = self._next_frame(budget, timeout)
                if frame is None:
                    window.all_lost()
                    self._sent_again = True
                    timeout = min(2 * timeout, RETRANSMISSION_TIMEOUT[1])
                    continue
                timeout = self._timeout
                place = places.get((frame.type, frame.seq))
                if frame.type & RESPONSE == 0:
                    self._take_event(frame)
                    self._look_for_the_end(budget)
                elif place is None or place in answers:
                    self._take_late_answer(frame)
                else:
                    answers[place] = frame
                    window.answered(place)
                    budget = budget if window.done else budget_of_one()
        except TimeoutError:
            self._log_stray()
            operator = self._operators(self._executing) if self._executing >= 0 else ""
            raise ResponseTimeout(Request(requests[0].type), operator, self.log) from None
        except LinkClosed:
            raise self._ended() from None
        return [answers[place] for place in range(len(requests))]

    def _take_late_answer(self, frame: Frame) -> None:
        if self._process.lossless:  # nothing is asked twice there
            raise ProtocolError(f"an answer of type 0x{frame.type:02x} and seq {frame.seq}, which nothing asked for")
        if self._sent_again:
            self._sent_again = False
            self._timeout = min(2 * self._timeout, RETRANSMISSION_TIMEOUT[1])

    def _next_frame(self, budget: Budget, timeout: float) -> Frame | None:
        """None after `timeout` seconds of silence on a lossy link."""
        quiet = None if self._process.lossless else Deadline.after(timeout)
        while not self._frames:
            if budget.expired:  # asked also of a runner that goes on sending: a loop makes progress for ever
                raise TimeoutError
            look = budget.next_look if quiet is None else min(budget.next_look, quiet, key=lambda one: one.at)
            try:  # also when it is late: what came while we were not running is no silence
                self._receive(self._process.read(look))
            except TimeoutError:
                if quiet is not None and quiet.expired:
                    return None
        return self._frames.popleft()

    def _receive(self, data: bytes) -> None:
        for frame in self._decoder.feed(data):
            if frame.version != VERSION:
                raise ProtocolError(
                    f"a frame of version {frame.version} of the protocol; this harness speaks version {VERSION}",
                    hint="the runner was built by another version of the harness: flash or build it again",
                )
            if len(frame.payload) > self._max_payload:
                raise ProtocolError(
                    f"a frame of type 0x{frame.type:02x} has {len(frame.payload)} bytes, at most {self._max_payload}"
                )
            self._frames.append(frame)

    def _look_for_the_end(self, budget: Budget) -> None:
        """A board that took a fault, or was reset, stays there: LinkClosed, as if it had ended."""
        if self._process.lossless:
            return
        if self._fault is not None:
            raise LinkClosed
        if self._ended_with is None:
            return
        if self._ended_with != EXIT_FAULT or self._asked_again == FAULT_REPORT_ATTEMPTS:
            raise LinkClosed
        self._asked_again += 1  # the report did not arrive: at the end of any frame the runner says it again
        self._process.write(b"\0", budget.next_look)

    def _take_event(self, frame: Frame) -> None:
        if frame.type not in set(Event):
            if frame.type < min(Event):  # our own request: some adapters echo what is sent
                return
            raise ProtocolError(f"an event of unknown type 0x{frame.type:02x}")
        reader = Reader(Event(frame.type).name, frame.payload)
        if frame.seq != 0:
            raise reader.wrong("seq", frame.seq, "0")
        match Event(frame.type):
            case Event.PROGRESS:
                self._executing = _parse_all(lambda one: protocol.progress(one, self._instructions), reader)
            case Event.LOG:
                said = _parse_all(protocol.log, reader)
                self._remember(f"[{said.level}] {said.text}")
            case Event.FAULT:
                self._fault = _parse_all(lambda one: Fault.parse(one, self._instructions), reader)
            case Event.ENDED:
                self._ended_with = _parse_all(protocol.ended, reader)
            case Event.READY:
                _parse_all(protocol.ready, reader)
                if self._greeted:
                    raise LaunchError("the target was reset in the middle", log=self.log)

    def _remember(self, line: str) -> None:
        self._log.append(line)
        self._log_size += len(line)
        while self._log_size > LOG_LIMIT and len(self._log) > 1:
            self._log_size -= len(self._log.popleft())

    def _failure(self, request: Request, status: Status, reader: Reader) -> HarnessError:
        failure = protocol.failure(reader, status, request, self._instructions)
        if not failure.says_of_program:
            self.broken = True
            return ProtocolError(f"{request.name}: {status.name}: {failure.message}", target=self.target.name)
        if status == Status.OUT_OF_MEMORY:
            return self._too_large(failure.message, failure.asked, failure.had)
        where = f" (instruction {failure.instruction})" if failure.instruction >= 0 else ""
        message = ", ".join(failure.message.splitlines())
        if status == Status.UNSUPPORTED_DELEGATE:
            message = f"delegate {failure.operator!r}: {message}"
        return _ERRORS[status](message + where, target=self.target.name, operator=failure.operator, log=self.log)

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
        self._remember(self._fault.dump())
        return TargetFault(
            self._fault.describe(),
            details=self._fault.places(elf),
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
            self._receive(self._process.read(Deadline.after(0.0)))
        while self._frames:
            frame = self._frames.popleft()
            if frame.type & RESPONSE == 0:
                self._take_event(frame)

    def _log_stray(self) -> None:
        for line in printable_lines(self._decoder.flush().decode(errors="replace")).splitlines():
            if line.strip():
                self._remember(line)

    @contextmanager
    def _breaking(self) -> Iterator[None]:
        """Whatever leaves here as an exception leaves the exchange out of step; an error knows its target then."""
        try:
            yield
        except BaseException as error:
            self.broken = True
            if isinstance(error, HarnessError):
                error.target = error.target or self.target.name
            raise


def _parse_all(parse: Callable[[Reader], _Answer], reader: Reader) -> _Answer:
    answer = parse(reader)
    reader.end()
    return answer
