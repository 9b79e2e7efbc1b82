"""A session with a live target: handshake, load, memory, execute, step. Specification: docs/protocol.md."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TypeVar

from cortex_m_hil.errors import (
    HarnessError,
    IdentityError,
    LinkError,
    NotOffered,
    OutOfTargetMemory,
    ProgramRejected,
    ProtocolError,
    TargetFault,
    UnsupportedOperator,
)
from cortex_m_hil.host import timeouts
from cortex_m_hil.program.memory_shortage import Shortage, region_of
from cortex_m_hil.program.methods import DEFAULT_METHOD
from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.schema import InstructionKind
from cortex_m_hil.program.tensor import HostTensor, TensorSpec
from cortex_m_hil.runner.launchers import assertion, explain_end
from cortex_m_hil.runner.links import protocol
from cortex_m_hil.runner.links.framing import ProtocolFrame
from cortex_m_hil.runner.links.protocol import (
    EXIT_FAULT,
    Action,
    Channel,
    ChannelState,
    EventCounts,
    Loaded,
    MemoryRegion,
    PayloadReader,
    Request,
    ResponseStatus,
    Stepped,
)
from cortex_m_hil.runner.run_results import Arena, Identity, Usage
from cortex_m_hil.runner.session.events import Events, parse_all
from cortex_m_hil.runner.session.requests import CHUNK, WINDOW, Exchange
from cortex_m_hil.runner.statistics import STATISTICS
from cortex_m_hil.targets.connection import Budget, Connection, Elf, LinkClosed
from cortex_m_hil.targets.target import Clock, Target

TO_THE_END = 0xFFFFFFFF
# Seconds of silence after which a request about a channel is sent again on a lossy link. It is answered at once where
# the firmware waits for it, and frames are small: what is missing was lost.
CHANNEL_RETRY = 0.03
STREAM_CHUNKS = 8192  # chunks of one STREAM request, and READ requests in flight: far fewer than sequence numbers

_ERRORS: dict[int, type[HarnessError]] = {
    ResponseStatus.PROGRAM_REJECTED: ProgramRejected,
    ResponseStatus.UNSUPPORTED_OPERATOR: UnsupportedOperator,
    ResponseStatus.UNSUPPORTED_DELEGATE: UnsupportedOperator,
    ResponseStatus.OUT_OF_MEMORY: OutOfTargetMemory,
    ResponseStatus.KERNEL_FAILED: ProgramRejected,
    ResponseStatus.BAD_DIGEST: LinkError,
}
_Answer = TypeVar("_Answer")


class ResponseTimeout(LinkError):
    """No response within the budget. `operator` is the operator that was being executed, "" if none.

    `log` is the session's log. After a request to execute, the caller turns it into a verdict if the program hangs;
    otherwise it is an infra error.
    """

    def __init__(self, request: Request, operator: str, log: str, target: str = "") -> None:
        super().__init__(f"no answer to {request.name}", target=target, operator=operator, log=log)
        self.request = request


class Session:
    """A session with one runner, from its boot. After any infra error or a fault it is `broken`, and must be closed."""

    def __init__(self, target: Target, elf: Elf, process: Connection) -> None:
        self.target = target
        self._elf = elf
        self._process = process
        self._events = Events(process)
        self._exchange = Exchange(process, self._events)
        self._operators: Callable[[int], str] = lambda _: ""
        self.file: PteFile | None = None  # the loaded program, as the host parsed it
        self.arenas: tuple[Arena, ...] = ()  # where the program's planned buffers are
        self._offered: PteFile | None = None  # the program of the last LOAD, which may have failed
        self._given = 0  # frames of channels
        self._events_chosen: tuple[int, ...] = ()  # of the PMU, since the last LOAD
        self.broken = False
        with self._broken_on_error():
            self.identity: Identity = self._hello()

    # --- requests -----------------------------------------------------------------------------

    def load(
        self,
        pte: bytes,
        operators: Callable[[int], str] = lambda _: "",
        *,
        file: PteFile | None = None,
        method: str = DEFAULT_METHOD,
        planned: int = 0,
    ) -> Loaded:
        """Write the program to the target, unless the target has it already, and load one of its methods.

        Args:
            pte: the bytes of the program.
            operators: returns the name of an instruction's operator, for messages.
            file: the program as the host parsed it, which the target must agree with; None if the host did not parse
                it.
            method: the name of the method, if `file` is None.
            planned: the bytes that the program's tensors need at least in the first bank, if `file` is None.

        Raises:
            OutOfTargetMemory: the program does not fit the target.
            ProgramRejected, UnsupportedOperator: the runtime refuses it.
        """
        self._operators, self._offered = operators, file
        memory = self.target.board.memory
        if len(pte) > memory.program_room:
            raise self._too_large("program pool", len(pte), memory.program_room)
        self.reset()
        self._events.begin()
        self._events.instructions = len(pte) if file is None else len(file.instructions)
        first = file.bytes_in_banks(memory)[0] if file is not None else planned
        if memory.keeps_in_flash(len(pte), first):
            self._store_in_flash(pte)
        elif self._process.lossless or not self._has_program(MemoryRegion.PROGRAM, pte):
            self.write(MemoryRegion.PROGRAM, 0, pte)
        loaded = self._ask(
            Request.LOAD,
            struct.pack("<II", len(pte), zlib.crc32(pte)) + protocol.name(file.method if file is not None else method),
            lambda reader: protocol.loaded(reader, len(pte), file, memory, self.identity.banks),
        )
        self._events.instructions, self.file, self.arenas = loaded.instructions, file, loaded.arenas
        return loaded

    def _has_program(self, region: MemoryRegion, pte: bytes) -> bool:
        """Tell by its CRC whether a program is already in the region, so that it need not be sent."""
        return self.digest(region, 0, length=len(pte)) == zlib.crc32(pte)

    def _store_in_flash(self, pte: bytes) -> None:
        """Write a program to flash with the flash tool, unless it is there; the runner restarts after that."""
        if self._has_program(MemoryRegion.RESIDENT, pte):
            return
        with self._broken_on_error():
            self._process.store(pte)
            self._events.greeted = False
            self._hello()

    def reset(self) -> None:
        """Ask the target to unload its program."""
        self._ask(Request.RESET)
        self._events.instructions, self.file, self.arenas, self._events_chosen = 0, None, (), ()

    def write(self, region: MemoryRegion, index: int, data: bytes) -> None:
        if not self._process.lossless and len(data) > CHUNK:
            return self._stream(region, index, data)
        chunk = self.identity.max_payload - 9
        for at in range(0, len(data), chunk):
            self._ask(Request.WRITE, struct.pack("<BII", region, index, at) + data[at : at + chunk])
        return None

    def _stream(self, region: MemoryRegion, index: int, data: bytes) -> None:
        """Write data as short frames without addresses, many in flight."""
        for start in range(0, len(data), STREAM_CHUNKS * CHUNK):
            part = data[start : start + STREAM_CHUNKS * CHUNK]
            chunks = [part[at : at + CHUNK] for at in range(0, len(part), CHUNK)]
            self._exchange.reserve(1 + len(chunks))
            self._ask(Request.STREAM, struct.pack("<BIIII", region, index, start, len(part), CHUNK))
            self._ask_all(Request.DATA, chunks)

    def read(self, region: MemoryRegion, index: int, length: int, *, offset: int = 0) -> bytes:
        chunk = self.identity.max_payload - 2 if self._process.lossless else CHUNK  # a response begins with its status
        sizes = [min(chunk, length - at) for at in range(0, length, chunk)]
        asked = [struct.pack("<BIII", region, index, offset + n * chunk, size) for n, size in enumerate(sizes)]
        parts: list[bytes] = []
        for first in range(0, len(asked), STREAM_CHUNKS):
            requests = asked[first : first + STREAM_CHUNKS]
            self._exchange.reserve(len(requests))
            parts += self._ask_all(Request.READ, requests, PayloadReader.rest, answer=chunk)
        with self._broken_on_error():
            for size, part in zip(sizes, parts, strict=True):
                if len(part) != size:
                    raise ProtocolError(f"READ of {size} bytes gave {len(part)}")
        return b"".join(parts)

    def fill(
        self, region: MemoryRegion, index: int, pattern: int, *, offset: int = 0, length: int = TO_THE_END
    ) -> None:
        self._ask(Request.FILL, struct.pack("<BIIIB", region, index, offset, length, pattern))

    def in_banks(self, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield bank, offset and length of each piece of the loaded program's arena, in ascending order.

        Args:
            begin: the offset of the first byte, in the planned buffers of all banks one after another, as in
                `PteFile.planned_bases`.
            end: the offset after the last byte.
        """
        base = 0
        sizes = [arena.nbytes for arena in self.arenas]
        if self.file is not None:
            sizes = self.target.board.memory.buffers_of_banks(self.file.planned_sizes)
        for number, nbytes in enumerate(sizes):
            first, last = max(begin - base, 0), min(end - base, nbytes)
            if first < last:
                yield number, first, last - first
            base += nbytes

    def fill_planned(self, pattern: int, begin: int, end: int) -> None:
        """Fill a part of the loaded program's planned buffers; `begin` and `end` are offsets as in `in_banks`."""
        for bank, offset, length in self.in_banks(begin, end):
            self.fill(MemoryRegion.PLANNED, bank, pattern, offset=offset, length=length)

    def fill_arenas(self, pattern: int) -> None:
        """Fill all memory of the loaded program in the banks: planned buffers, and unplanned inputs and outputs."""
        for bank, arena in enumerate(self.arenas):
            if arena.nbytes:
                self.fill(MemoryRegion.PLANNED, bank, pattern)

    def digest(self, region: MemoryRegion, index: int, *, offset: int = 0, length: int = TO_THE_END) -> int:
        """Return the CRC-32 of the bytes, computed on the target."""
        return self._ask(Request.DIGEST, struct.pack("<BIII", region, index, offset, length), protocol.crc)

    def describe(self, region: MemoryRegion, index: int) -> TensorSpec | None:
        """Return the spec of a value; None for one that holds no data (a list, None)."""
        return self._ask(Request.DESCRIBE, struct.pack("<BI", region, index), protocol.value_spec)

    def set_input(self, number: int, value: HostTensor) -> None:
        """Write an input. If its size is dynamic, and `load` was given `file`, set the size first."""
        if self.file is not None and self.file.values[self.file.inputs[number]].is_dynamic:
            shape = value.spec.shape
            self._ask(Request.RESIZE, struct.pack(f"<IB{len(shape)}i", number, len(shape), *shape))
        self.write(MemoryRegion.INPUT, number, value.data)

    def get_output(self, number: int) -> HostTensor:
        """Read an output.

        If `load` was given `file`, the output must have the program's spec, or a smaller shape where the shape is
        dynamic.
        """
        said = self.file.output_value(number) if self.file is not None else None
        asked = struct.pack("<BI", MemoryRegion.OUTPUT, number)
        spec = self._ask(Request.DESCRIBE, asked, lambda reader: protocol.output_spec(reader, said))
        return HostTensor(spec, self.read(MemoryRegion.OUTPUT, number, spec.nbytes))

    def outputs(self) -> list[HostTensor]:
        """Read all outputs of a program; `load` must have been given its `file`."""
        assert self.file is not None
        return [self.get_output(number) for number in range(len(self.file.outputs))]

    def execute(self, seconds: float) -> int:
        """Run the program from its first instruction to its end; return the ticks.

        Raises ResponseTimeout after `seconds` of the simulator's CPU time, and ProtocolError where operators were
        executed but the counter of instructions or cycles is 0: such a program would seem to cost nothing (ExecuTorch
        #21833).
        """
        ticks = self._ask(Request.EXECUTE, b"", protocol.ticks, seconds)
        instructions = self.file.instructions if self.file is not None else ()
        operators = sum(one.kind is InstructionKind.KERNEL for one in instructions)
        if operators and not ticks and self.clock in (Clock.INSTRUCTIONS, Clock.CORE):
            what = f"the runner counted 0 {self.clock.value} while {operators} operators were executed"
            raise ProtocolError(what, target=self.target.name)
        return ticks

    def step(self, count: int, seconds: float) -> Stepped:
        """Execute `count` more instructions. Raises ResponseTimeout after `seconds` of the simulator's CPU time."""
        asked = struct.pack("<I", count)
        return self._ask(
            Request.STEP, asked, lambda reader: protocol.stepped(reader, self._events.instructions), seconds
        )

    def choose_events(self, events: Sequence[int]) -> EventCounts:
        """Let the target's PMU count these events in each EXECUTE and STEP from now on, until the next LOAD.

        Args:
            events: Arm's numbers of events, at most as many as there are counters; without a PMU nothing is counted.
        """
        found = self._counters(events, events)
        self._events_chosen = tuple(found.counts)
        return found

    def event_counts(self) -> EventCounts:
        """Return the counts of the chosen events in the last EXECUTE or STEP."""
        return self._counters((), self._events_chosen)

    def _counters(self, asked: Sequence[int], events: Sequence[int]) -> EventCounts:
        payload = struct.pack(f"<{len(asked)}H", *asked)
        return self._ask(Request.COUNTERS, payload, lambda reader: protocol.event_counts(reader, events))

    def stats(self) -> Mapping[str, Usage]:
        """Return memory peaks.

        Raises OutOfTargetMemory where more was used than there is and nothing has reported it so far.
        """
        room = self.target.board.memory.program_room
        found = self._ask(Request.STATS, b"", lambda reader: protocol.stats(reader, self.identity, room))
        for name in (row.name for row in STATISTICS if row.beyond):
            if found[name].size and found[name].used > found[name].size:
                self.broken = True  # the overflow stays visible below the stack, and would count for the next program
                raise self._too_large(name, found[name].used, found[name].size)
        return found

    def coverage(self) -> Mapping[str, bytes]:
        """Return the coverage counts of the kernels since the boot: the contents of `.gcda` files by their names.

        The target unloads its program. A runner that does not count coverage ends the session with a ProtocolError.
        """
        self._events.instructions, self.file = 0, None
        where = MemoryRegion.COVERAGE, 0
        spec = self._ask(Request.DESCRIBE, struct.pack("<BI", *where), protocol.value_spec)
        content = self.read(*where, spec.nbytes if spec is not None else 0)
        with self._broken_on_error():
            return protocol.coverage(PayloadReader(MemoryRegion.COVERAGE.name, content))

    # --- channels -----------------------------------------------------------------------------

    def budget(self, seconds: float) -> Budget:
        """Return a budget of `seconds` from now: of the simulator's CPU time, or by the clock."""
        return self._process.budget(seconds)

    @property
    def resent(self) -> int:
        """Return the number of requests that were sent again, since they or their answers were lost or damaged."""
        return self._exchange.resent

    def channels(self, seconds: float) -> tuple[Channel, ...]:
        """Ask for the channels that the firmware has passed so far. Raises ResponseTimeout after `seconds`."""
        room = self._exchange.max_payload - 6 if self._process.lossless else CHUNK
        known: list[Channel] = []
        total = 1
        while len(known) < total:
            asked = struct.pack("<II", len(known), room)
            found = self._ask(Request.CHANNELS, asked, partial(protocol.channels, first=len(known)), seconds)
            total = found.total
            known += found.found
        return tuple(known)

    def give_frame(self, channel: Channel, data: bytes, seconds: float) -> tuple[int, ChannelState]:
        """Give an input a frame, if the firmware has room for it, and all that it published was fetched (`done`).

        Returns the frame's number, and the input's state.
        """
        frame = self._given + 1
        if len(data) > self._inline:
            state = self.use_channel(channel, Action.LOOK, seconds)
            if state.queued or state.pending:
                return frame, replace(state, done=False)
            self.write(MemoryRegion.CHANNEL, channel.number, data)
            data = b""
        state = self.use_channel(channel, Action.GIVE, seconds, number=frame, data=data)
        self._given += state.done
        return frame, state

    def fetch_frame(self, channel: Channel, seconds: float) -> ChannelState:
        """Fetch the next frame of an output; `fetched` is None if there is none."""
        inline = channel.nbytes <= self._inline
        state = self.use_channel(channel, Action.FETCH, seconds, number=channel.nbytes if inline else 0)
        if state.fetched is None or inline:
            return state
        return replace(state, data=self.read(MemoryRegion.CHANNEL, channel.number, channel.nbytes))

    def use_channel(
        self, channel: Channel, action: Action, seconds: float, *, number: int = 0, data: bytes = b""
    ) -> ChannelState:
        """Ask for an action on a channel, and return its state after that. Raises ResponseTimeout after `seconds`."""
        asked = struct.pack("<IBI", channel.number, action, number) + data
        room = number if action is Action.FETCH else 0
        parse = partial(protocol.channel_state, room=room)
        return self._ask_all(Request.CHANNEL, [asked], parse, seconds, again=CHANNEL_RETRY)[0]

    def await_work(self, budget: Budget) -> bool:
        """Send nothing while the firmware works on a frame, until it waits for the host, or the budget ends.

        Bytes that it receives meanwhile would interrupt its work, and be part of its latency. On a lossy link its word
        may be lost: then this ends after CHANNEL_RETRY, so that the caller asks now and then.

        Returns:
            Whether there was something to wait for.
        """
        if self._events.done_with == self._given:
            return False
        lossless = self._process.lossless
        with self._broken_on_error():
            try:
                quiet = budget if lossless else self.budget(CHANNEL_RETRY)
                self._exchange.take_events(lambda: self._events.done_with == self._given, quiet)
            except LinkClosed:
                raise self._ended() from None
        if lossless:  # if it does not come back to an input it is asked from now on
            self._events.done_with = self._given
        return True

    @property
    def _inline(self) -> int:
        """Return the bytes of the largest frame that is sent in the request or the response itself."""
        return self.identity.max_payload - 64 if self._process.lossless else CHUNK

    # --- life ---------------------------------------------------------------------------------

    @property
    def clock(self) -> Clock:
        """Return the clock that the runner's ticks follow."""
        return Clock.INSTRUMENTED if self._elf.counts else self.target.launcher.clock(self.identity.counts)

    @property
    def log(self) -> str:
        """Return the newest log of the runner since the last program was loaded, and of its simulator."""
        return self._events.log

    def close(self) -> None:
        self.broken = True
        self._process.close()

    def _hello(self) -> Identity:
        identity = self._ask(Request.HELLO, b"", protocol.hello, timeouts.HANDSHAKE)
        self._events.greeted = True
        self._exchange.max_payload = identity.max_payload
        own = self._elf.is_own
        if own and not self._elf.has_id(identity.build_id):
            what = (
                f"the build id of the firmware that answers, {identity.build_id!r}, does not occur in {self._elf.path}"
            )
            raise IdentityError(what, target=self.target.name, hint="flash it, or does it not set hil_target.build_id?")
        expected = {
            "build id": (identity.build_id if own else self._elf.build_id, identity.build_id),
            "config": (self._elf.config or identity.config, identity.config),
            "ISA class": (self.target.isa.value, identity.isa),
            "architecture": (self.target.architecture, identity.architecture),
        }
        hint = "another firmware answers, or one of other compiler flags; reset or flash the target"
        if self._process.lossless:  # the link of a simulator, which has just been started with the ELF
            flags = f"or its build does not heed the target's compiler flags ({self.target.origin})"
            hint = f"the launcher starts another ELF than {self._elf.path}, {flags}"
        for what, (wanted, got) in expected.items():
            if wanted != got:
                problem = f"the runner's {what} is {got!r}, built was {wanted!r}"
                raise IdentityError(problem, target=self.target.name, hint=hint)
        if own != bool(identity.firmware):
            problem = f"firmware of your own answers, {identity.firmware!r}, and not the runner"
            if own:
                problem = "a runner answers, and not firmware of your own: it gives no name of a firmware"
            raise IdentityError(problem, target=self.target.name, hint=hint)
        protocol.check_pools(identity, self.target.board.memory)
        self.identity = identity
        return replace(identity, operators=self._operator_names())

    def _operator_names(self) -> tuple[str, ...]:
        """Ask for the names of the runner's operators.

        On a lossy link this takes several requests, as long frames would be lost.
        """
        room = self._exchange.max_payload - 6 if self._process.lossless else CHUNK
        names: list[str] = []
        total = 1
        budget = self._process.budget(timeouts.HANDSHAKE)
        while len(names) < total:
            if budget.expired:
                raise ProtocolError(f"OPERATORS: {len(names)} of {total} names after {timeouts.HANDSHAKE:g} s")
            first = len(names)
            asked = struct.pack("<II", first, room)
            found = self._ask(Request.OPERATORS, asked, partial(protocol.operators, first=first))
            total = found.total
            names += found.names
        return tuple(names)

    # --- exchange -----------------------------------------------------------------------------

    def _ask(
        self,
        request: Request,
        payload: bytes = b"",
        parse: Callable[[PayloadReader], _Answer] = protocol.no_body,  # type: ignore[assignment]
        seconds: float | None = None,
    ) -> _Answer:
        self._exchange.reserve(1)
        return self._ask_all(request, [payload], parse, seconds)[0]

    def _ask_all(
        self,
        request: Request,
        payloads: Sequence[bytes],
        parse: Callable[[PayloadReader], _Answer] = protocol.no_body,  # type: ignore[assignment]
        seconds: float | None = None,
        *,
        answer: int = 0,
        again: float | None = None,
    ) -> list[_Answer]:
        """Send a request for each payload, and return what `parse` reads in the responses.

        On a lossy link several requests are in flight.

        Args:
            request: the request.
            payloads: a payload for each request.
            parse: reads the body of a response.
            seconds: how long to wait for each response, in addition to the time of its bytes on the wire; None:
                timeouts.REQUEST.
            answer: roughly the bytes of each response, to compute that time.
            again: seconds of silence after which a request is sent again on a lossy link; None: as the line has it.

        Raises:
            ResponseTimeout: no response within `seconds`.
            HarnessError: a response has a bad status, or the runner has ended.
        """
        if request is not Request.HELLO and self.identity.without >> request & 1:
            who = self.identity.firmware
            raise NotOffered(f"the firmware {who} does not answer {request.name}", target=self.target.name)
        self._events.executing = -1
        with self._broken_on_error():
            nbytes = sum(len(payload) + answer for payload in payloads[:WINDOW])
            limit = timeouts.REQUEST if seconds is None else seconds
            responses = self._responses(request, payloads, lambda: self._process.budget(limit, nbytes), again)
            readers = [PayloadReader(request.name, frame.payload) for frame in responses]
            statuses = [protocol.status(reader) for reader in readers]
            failed = next((place for place, status in enumerate(statuses) if status is not ResponseStatus.OK), None)
            if failed is None:
                return [parse_all(parse, reader) for reader in readers]
            error = self._failure(request, statuses[failed], readers[failed])
        raise error

    def _responses(
        self, request: Request, payloads: Sequence[bytes], budget_of_one: Callable[[], Budget], again: float | None
    ) -> list[ProtocolFrame]:
        try:
            return self._exchange.responses(request, payloads, budget_of_one, again)
        except TimeoutError:
            self._exchange.log_stray_bytes()
            raise ResponseTimeout(request, self._executed_operator(), self.log, self.target.name) from None
        except LinkClosed:
            raise self._ended() from None

    def _executed_operator(self) -> str:
        return self._operators(self._events.executing) if self._events.executing >= 0 else ""

    def _failure(self, request: Request, status: ResponseStatus, reader: PayloadReader) -> HarnessError:
        failure = protocol.failure(reader, status, request, self._events.instructions)
        if not failure.says_of_program:
            self.broken = True
            return ProtocolError(f"{request.name}: {status.name}: {failure.message}", target=self.target.name)
        if status == ResponseStatus.OUT_OF_MEMORY:
            return self._too_large(failure.message, failure.requested, failure.available)
        where = f" (operator {failure.instruction})" if failure.instruction >= 0 else ""
        message = failure.message
        if status == ResponseStatus.UNSUPPORTED_DELEGATE:
            message = f"delegate {failure.operator!r}: {message}"
        return _ERRORS[status](message + where, target=self.target.name, operator=failure.operator, log=self.log)

    def _too_large(self, pool: str, requested: int, available: int) -> OutOfTargetMemory:
        region, bank = region_of(pool)
        shortage = Shortage(region, requested, available, self.target, self._offered, self._operators, bank)
        return OutOfTargetMemory(
            f"{pool}: {requested} bytes requested, {available} available",
            target=self.target.name,
            details=shortage.details() if region else (),
            hint=shortage.hint() if region else "",
            log=self.log,
        )

    def _ended(self) -> HarnessError:
        """Return the error that explains why the runner has ended, by the most certain evidence."""
        status = self._process.wait(timeouts.PROCESS_END)
        self._exchange.take_remaining_events()
        self._exchange.log_stray_bytes()
        if self._events.fault is None:
            error = self._end_without_fault(status) or explain_end(self.target, self._process, status, self.log)
            error.operator = self._executed_operator() or error.operator
            return error
        elf = None if self.target.cpu == "host" or self._elf.foreign else self._elf.path
        self._events.remember(self._events.fault.dump())
        return TargetFault(
            self._events.fault.describe(),
            details=self._events.fault.places(elf),
            target=self.target.name,
            operator=self._events.fault.operator or self._operators(self._events.fault.instruction),
            log=self.log,
        )

    def _end_without_fault(self, status: int | None) -> HarnessError | None:
        """Return the error for a board that reported its end but no fault, None for any other end.

        The cause is a failed assertion, or a fault whose event was lost.
        """
        if self._events.ended_with is None:
            return None
        what = "a fault, whose report did not arrive" if self._events.ended_with == EXIT_FAULT else assertion(self.log)
        return TargetFault(f"the runner ended after {what}", target=self.target.name, log=self.log)

    @contextmanager
    def _broken_on_error(self) -> Iterator[None]:
        """Mark the session as broken if the block raises, and set the target of a HarnessError that has none."""
        try:
            yield
        except BaseException as error:
            self.broken = True
            if isinstance(error, HarnessError):
                error.target = error.target or self.target.name
            raise
