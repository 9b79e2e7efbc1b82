"""Parses a runner's messages into checked values, and defines the numbers of `firmware/target_library/protocol.h`.

Specification: docs/protocol.md.

Each function takes a response or an event off a `PayloadReader` and returns a frozen value. A violation of the
specification raises a ProtocolError that names the message, the field and the value. Callers need not check the values
again.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from cortex_m_hil.errors import ConfigError, ProtocolError
from cortex_m_hil.errors.text import printable
from cortex_m_hil.program.pte_file import MAX_RANK, PteFile
from cortex_m_hil.program.schema import DTYPES, ValueKind
from cortex_m_hil.program.tensor import MAX_TENSOR_BYTES, TensorSpec
from cortex_m_hil.program.values import Value
from cortex_m_hil.runner.run_results import INSTRUCTIONS, Arena, Identity, Usage
from cortex_m_hil.runner.statistics import STATISTICS, Statistic
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.memory import ALIGNMENT, MAX_BANKS, Memory

RESPONSE = 0x80  # the bit of a frame's type that marks a response
EXIT_FAULT = 70  # the runner's exit status after a FAULT event
EXIT_ASSERT = 71  # the runner's exit status after a failed assertion
MIN_PAYLOAD, MAX_PAYLOAD = 256, 1 << 16  # bytes, the limits of HELLO's max_payload
MAX_NAME = 255  # bytes of a name at most
MAX_OPERATORS = 8192
MAX_CHANNELS = 1024
MAX_TICKS = (1 << 63) - 1
MAX_EVENTS = 8  # that a PMU counts at once, at most
TICK_SOURCES = ("none", INSTRUCTIONS, "DWT", "SysTick", "timer", "CLOCK_MONOTONIC")
LEVELS = ("debug", "info", "error")
_GCDA = re.compile(r"\w[\w.+-]*\.gcda")
_OPERATOR = re.compile(r"[!-~]+::[!-~]+")
_SHOWN = 80  # characters of a value in a message


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
    RESIZE = 0x0F
    CHANNELS = 0x10
    CHANNEL = 0x11
    COUNTERS = 0x12


class Event(IntEnum):
    LOG = 0x40
    PROGRESS = 0x41
    FAULT = 0x42
    READY = 0x43
    ENDED = 0x44
    WAITING = 0x45


class MemoryRegion(IntEnum):
    PROGRAM = 0
    PLANNED = 1
    VALUE = 2
    INPUT = 3
    OUTPUT = 4
    RESIDENT = 5
    COVERAGE = 6
    BANK = 7
    CHANNEL = 8


class Direction(IntEnum):
    INPUT = 0
    OUTPUT = 1


class Action(IntEnum):
    LOOK = 0
    ATTACH = 1
    DETACH = 2
    GIVE = 3
    FETCH = 4


class ResponseStatus(IntEnum):
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


MAY_LACK = sum(1 << one for one in Request if one is not Request.HELLO)  # bits of HELLO's `without`

# Statuses about the program are allowed only in responses to requests that look at the program.
_SAYS_OF_PROGRAM = frozenset(
    {ResponseStatus.PROGRAM_REJECTED, ResponseStatus.UNSUPPORTED_OPERATOR, ResponseStatus.UNSUPPORTED_DELEGATE,
     ResponseStatus.OUT_OF_MEMORY, ResponseStatus.KERNEL_FAILED, ResponseStatus.BAD_DIGEST}
)  # fmt: skip
_LOOKS_AT_PROGRAM = frozenset({Request.LOAD, Request.EXECUTE, Request.STEP})


@dataclass(frozen=True)
class FailureBody:
    """The body of a response whose status is not OK. `instruction` is -1 where the failure concerns no instruction."""

    status: ResponseStatus
    instruction: int
    requested: int
    available: int
    operator: str
    message: str

    @property
    def says_of_program(self) -> bool:
        """Tell whether the failure is about the program, and not about the request."""
        return self.status in _SAYS_OF_PROGRAM


@dataclass(frozen=True)
class Loaded:
    """The counts of a loaded program's values and instructions, and the place of its planned buffers in each bank."""

    inputs: int
    outputs: int
    values: int
    instructions: int
    arenas: tuple[Arena, ...]

    @property
    def planned(self) -> int:
        """Return the bytes of all planned buffers."""
        return sum(arena.nbytes for arena in self.arenas)


@dataclass(frozen=True)
class Stepped:
    next: int
    done: bool
    ticks: int


@dataclass(frozen=True)
class EventCounts:
    """The counters of the target's PMU, and the counts of the events that it counted in the last EXECUTE or STEP.

    Attributes:
        counters: the number of events that it counts at once; 0: there is no PMU.
        is_counting: False where it stands still, as without the signals that admit debugging.
        counts: the counts by the numbers of the events; None: more than 32 bits hold.
    """

    counters: int
    is_counting: bool
    counts: Mapping[int, int | None]


@dataclass(frozen=True)
class OperatorNames:
    """A part of the names of the runner's operators, and the number of all operators (`total`)."""

    total: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class Channel:
    """A point of the firmware at which the host gives data, or sees it.

    Attributes:
        number: as requests name it.
        name: as the firmware names it.
        direction: the firmware's.
        element: bytes of an element of a frame; 0: its elements are no numbers.
        nbytes: of a frame.
    """

    number: int
    name: str
    direction: Direction
    element: int
    nbytes: int


@dataclass(frozen=True)
class Channels:
    """Some of the firmware's channels, and the number of all that it has passed so far (`total`)."""

    total: int
    found: tuple[Channel, ...]


@dataclass(frozen=True)
class Stamp:
    """The facts that the firmware tells about a frame that it published.

    Attributes:
        number: the frame's number among the channel's frames since the boot.
        input: the number of the last frame that the firmware took from the host; 0: none.
        ticks: the target's clock when the firmware published the frame.
        latency: ticks from taking the host's frame to publishing this one.
    """

    number: int
    input: int
    ticks: int
    latency: int


@dataclass(frozen=True)
class ChannelState:
    """The state of a channel.

    Attributes:
        done: whether the firmware had room for the frame that the host gave.
        waiting: whether the firmware waits for a frame of this input.
        total: the number of frames of this channel that the firmware has taken or published since its boot.
        queued: the number of its frames that wait to be taken by the firmware, or fetched by the host.
        pending: the number of frames of all outputs that wait to be fetched by the host.
        fetched: the stamp of the frame that was fetched; None: there was no frame.
        data: the first bytes of the fetched frame.
    """

    done: bool
    waiting: bool
    total: int
    queued: int
    pending: int
    fetched: Stamp | None = None
    data: bytes = b""


@dataclass(frozen=True)
class Log:
    level: str
    text: str


class PayloadReader:
    """A reader of a payload's fields. ProtocolError: a field is cut short, or its value is not allowed."""

    def __init__(self, what: str, data: bytes) -> None:
        """Read the payload `data`; `what` is the name of the request or the event, for messages."""
        self.what = what
        self._data = data
        self._at = 0

    def wrong(self, field: str, value: object, expected: str) -> ProtocolError:
        shown = repr(value)
        shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
        return ProtocolError(
            f"{self.what}: {field} is {shown}, expected {expected}", hint="a defect of the runner, or other firmware"
        )

    @property
    def left(self) -> int:
        """Return the number of bytes not yet taken."""
        return len(self._data) - self._at

    def take(self, size: int, field: str) -> bytes:
        if size > self.left:
            raise ProtocolError(f"{self.what}: {field} is cut short: {self.left} of {size} bytes")
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self, field: str, code: str, least: int | None = None, most: int | None = None) -> int:
        """Take an integer, `code` as in `struct`. Raises ProtocolError if it is not from `least` to `most`."""
        value = int(struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}"), field))[0])
        if (least is not None and value < least) or (most is not None and value > most):
            raise self.wrong(field, value, _limits(least, most))
        return value

    def expect(self, field: str, code: str, expected: int, why: str) -> int:
        """Take an integer that must be `expected`; `why` is the reason for it in a ProtocolError."""
        value = self.number(field, code)
        if value != expected:
            raise self.wrong(field, value, f"{expected}: {why}")
        return value

    def text(self, field: str) -> str:
        """Take a text for people: any bytes are made printable, and several lines are joined."""
        said = self.take(self.number(f"{field}'s length", "H"), field).decode(errors="replace")
        return printable(", ".join(filter(None, said.split("\n"))))

    def name(self, field: str, known: Collection[str] = ()) -> str:
        """Take a word that the host interprets: short, UTF-8, printable, and one of `known` if there are any.

        Raises ProtocolError for anything else.
        """
        raw = self.take(self.number(f"{field}'s length", "H", most=MAX_NAME), field)
        try:
            name = raw.decode()
        except UnicodeDecodeError:
            raise self.wrong(field, raw, "UTF-8") from None
        if not name.isprintable():
            raise self.wrong(field, name, "printable text")
        if known and name not in known:
            raise self.wrong(field, name, f"one of {', '.join(known)}")
        return name

    def rest(self) -> bytes:
        return self.take(self.left, "bytes")

    def end(self) -> None:
        """Raise ProtocolError if bytes are left over."""
        if self.left:
            raise ProtocolError(f"{self.what}: {self.left} bytes too many")


def _limits(least: int | None, most: int | None) -> str:
    if least is None or most is None:
        return f"at most {most}" if least is None else f"at least {least}"
    return f"{least} to {most}" if least <= most else "none"


def name(text: str) -> bytes:
    """Return the bytes of a name as the protocol sends it."""
    raw = text.encode()
    return struct.pack("<H", len(raw)) + raw


def no_body(_: PayloadReader) -> None:
    """Accept a response without a body."""


def status(reader: PayloadReader) -> ResponseStatus:
    return ResponseStatus(reader.number("status", "H", 0, max(ResponseStatus)))


def failure(reader: PayloadReader, status: ResponseStatus, request: Request, instructions: int) -> FailureBody:
    """Parse a response with a bad status.

    `instructions` is the number of instructions of the program in the last LOAD.
    """
    instruction = reader.number("instruction", "i", -1, instructions - 1)
    requested, available = reader.number("requested", "Q"), reader.number("available", "Q")
    found = FailureBody(status, instruction, requested, available, reader.text("operator"), reader.text("message"))
    reader.end()
    if found.says_of_program and request not in _LOOKS_AT_PROGRAM:
        raise reader.wrong("status", f"{status.name}: {found.message}", "none that is about a program")
    return found


def hello(reader: PayloadReader) -> Identity:
    """Parse the response to HELLO. The operators' names are asked for by OPERATORS."""
    identity = Identity(
        build_id=reader.name("build_id"),
        config=reader.name("config"),
        cpuid=reader.number("cpuid", "I"),
        isa=reader.name("isa", [isa.value for isa in Isa]),
        architecture=reader.name("architecture"),
        runtime=reader.name("runtime"),
        runtime_version=reader.name("runtime_version"),
        max_payload=reader.number("max_payload", "I", MIN_PAYLOAD, MAX_PAYLOAD),
        program_pool=reader.number("program_pool", "I"),
        method_pool=reader.number("method_pool", "I"),
        temp_pool=reader.number("temp_pool", "I"),
        banks=tuple(reader.number(f"bank {n}", "I") for n in range(reader.number("banks", "B", 1, MAX_BANKS))),
        tick_source=reader.name("tick_source", TICK_SOURCES),
        tick_hz=reader.number("tick_hz", "I"),
        operators=(),
    )
    if (identity.tick_hz == 0) != (identity.tick_source == "none"):
        raise reader.wrong("tick_hz", identity.tick_hz, f"the frequency of tick_source {identity.tick_source!r}")
    if not reader.left:  # a runner
        return identity
    identity = replace(identity, firmware=reader.name("firmware"), without=reader.number("without", "I"))
    if identity.without & ~MAY_LACK:
        raise reader.wrong("without", identity.without, f"bits of {MAY_LACK:#x}")
    return identity


def check_pools(identity: Identity, memory: Memory) -> None:
    """Check that a runner's pools and banks have the sizes in `board.yaml`, and raise ProtocolError if not.

    A bank in shared memory begins at a multiple of 16, and so may be up to 15 bytes larger.
    """
    reader = PayloadReader("HELLO", b"")
    wanted = {
        "banks": (len(identity.banks), len(memory.banks)),
        "program_pool": (identity.program_pool, memory.program.size),
        "method_pool": (identity.method_pool, memory.method.size),
        "temp_pool": (identity.temp_pool, memory.temp.size if memory.temp is not None else 0),
        **{
            f"bank {n}": (told, bank.size)
            for n, (told, bank) in enumerate(zip(identity.banks, memory.banks, strict=False))
        },
    }
    for field, (told, expected) in wanted.items():
        slack = ALIGNMENT if memory.shared and field == "bank 0" else 1
        if not expected <= told < expected + slack:
            error = reader.wrong(field, told, f"{expected}, which the board has")
            if identity.firmware:
                error.hint = "the firmware's hil_target and memory: in its board.yaml have to say the same"
            raise error


def build_id(payload: bytes) -> str:
    """Parse only the build id in a response to HELLO; return "" if it has none, since something else has answered."""
    reader = PayloadReader("HELLO", payload)
    try:
        return reader.name("build_id") if status(reader) is ResponseStatus.OK else ""
    except ProtocolError:
        return ""


def operators(reader: PayloadReader, first: int) -> OperatorNames:
    """Parse the next of the runner's operator names, from `first` on; none while some are missing is an error."""
    total = reader.number("total", "I", first, MAX_OPERATORS)
    names: list[str] = []
    while reader.left:
        name = reader.name(f"operator {first + len(names)}")
        if not _OPERATOR.fullmatch(name):
            raise reader.wrong(f"operator {first + len(names)}", name, "namespace::name.overload")
        names.append(name)
    if first + len(names) > total or (first < total and not names):
        raise reader.wrong("number of names", len(names), f"1 to {total - first}")
    return OperatorNames(total, tuple(names))


def channels(reader: PayloadReader, first: int) -> Channels:
    """Parse channels from number `first` on: at least one, while there are more."""
    total = reader.number("total", "I", first, MAX_CHANNELS)
    found: list[Channel] = []
    while reader.left:
        number = first + len(found)
        direction = Direction(reader.number(f"direction of channel {number}", "B", 0, max(Direction)))
        element = reader.number(f"element of channel {number}", "B", 0, 8)
        nbytes = reader.number(f"bytes of channel {number}", "I", 1, MAX_TENSOR_BYTES)
        found.append(Channel(number, reader.name(f"channel {number}"), direction, element, nbytes))
    if first + len(found) > total or (first < total and not found):
        raise reader.wrong("number of channels", len(found), f"1 to {total - first}")
    return Channels(total, tuple(found))


def channel_state(reader: PayloadReader, room: int) -> ChannelState:
    """Parse the response to CHANNEL; a frame that is fetched has `room` bytes in it."""
    done, waiting = bool(reader.number("done", "B", 0, 1)), bool(reader.number("waiting", "B", 0, 1))
    total, queued, pending = reader.number("total", "I"), reader.number("queued", "I"), reader.number("pending", "I")
    if not reader.left:
        return ChannelState(done, waiting, total, queued, pending)
    number, given = reader.number("number", "I"), reader.number("input", "I")
    ticks, latency = reader.number("ticks", "Q"), reader.number("latency", "Q", most=MAX_TICKS)
    if reader.left != room:
        raise reader.wrong("bytes of the frame", reader.left, str(room))
    return ChannelState(done, waiting, total, queued, pending, Stamp(number, given, ticks, latency), reader.rest())


def loaded(reader: PayloadReader, size: int, file: PteFile | None, memory: Memory, rooms: Sequence[int]) -> Loaded:
    """Parse the response to LOAD.

    Args:
        reader: the response.
        size: bytes of the program.
        file: the program as the host parsed it, which the response must agree with; None if the host did not parse it.
        memory: the board's memory.
        rooms: the bytes of each bank.
    """
    if file is None:  # each value and instruction takes at least one byte of a program
        return Loaded(
            reader.number("inputs", "H", most=size), reader.number("outputs", "H", most=size),
            reader.number("values", "I", most=size), reader.number("instructions", "I", most=size),
            tuple(_arena(reader, memory, n, None, most) for n, most in enumerate(rooms)),
        )  # fmt: skip
    why = "as in the program"
    return Loaded(
        reader.expect("inputs", "H", len(file.inputs), why), reader.expect("outputs", "H", len(file.outputs), why),
        reader.expect("values", "I", len(file.values), why),
        reader.expect("instructions", "I", len(file.instructions), why),
        tuple(
            _arena(reader, memory, n, nbytes, rooms[n])
            for n, nbytes in enumerate(file.bytes_in_banks(memory)[: len(rooms)])
        ),
    )  # fmt: skip


def _arena(reader: PayloadReader, memory: Memory, number: int, expected: int | None, room: int) -> Arena:
    """Parse address and size of a program's buffers in a bank, which must lie in the bank's region."""
    region = memory.region(memory.banks[number].region)
    address = reader.number(f"address in bank {number}", "Q")
    field = f"planned bytes in bank {number}"
    if expected is None:
        nbytes = reader.number(field, "I", most=room)
    else:
        nbytes = reader.expect(field, "I", expected, "as in the program")
    if not region.contains(address, nbytes):
        raise reader.wrong(f"address in bank {number}", hex(address), f"one in {region.name}, which the board has")
    return Arena(region.name, address, nbytes)


_SCALARS = (ValueKind.INT, ValueKind.DOUBLE, ValueKind.BOOL)  # kinds 2, 3, 4


def value_spec(reader: PayloadReader) -> TensorSpec | None:
    """Parse the response to DESCRIBE; return None for a value that holds no data."""
    kind = reader.number("kind", "B", 0, 1 + len(_SCALARS))
    dtype = reader.number("dtype", "B")
    rank = reader.number("rank", "B", 0, MAX_RANK if kind == 1 else 0)
    nbytes = reader.number("nbytes", "I")
    spec = None
    if kind == 1:
        spec = _tensor(reader, dtype, rank)
    elif kind > 1:
        spec = TensorSpec.scalar(_SCALARS[kind - 2])
    has = spec.nbytes if spec is not None else 0
    if nbytes not in (has, 0):  # 0: the value has no memory
        raise reader.wrong("nbytes", nbytes, f"{has} for {spec}")
    return spec


def _tensor(reader: PayloadReader, dtype: int, rank: int) -> TensorSpec:
    if dtype not in DTYPES:
        raise reader.wrong("dtype", dtype, "a ScalarType that tensors have here")
    sizes = tuple(reader.number(f"size {dim}", "i", least=0, most=MAX_TENSOR_BYTES) for dim in range(rank))
    order = tuple(reader.number(f"dim order {place}", "B") for place in range(rank))
    try:
        spec = TensorSpec(DTYPES[dtype], sizes, order)
    except ConfigError:
        raise reader.wrong("dim order", order, f"each of 0 to {rank - 1} once") from None
    if spec.nbytes > MAX_TENSOR_BYTES:
        raise reader.wrong("sizes", sizes, f"at most {MAX_TENSOR_BYTES} bytes")
    return spec


def output_spec(reader: PayloadReader, value: Value | None) -> TensorSpec:
    """Parse the description of an output, which must agree with the program.

    `value` is the output in the program as the host parsed it; None if the host did not parse it.
    """
    spec = value_spec(reader)
    if spec is None:
        raise reader.wrong("kind", "none", "an output that holds data")
    if value is not None and spec != value.spec_of(spec.shape):
        bound = "at most " if value.is_dynamic else ""
        raise reader.wrong("output", str(spec), f"{bound}{value.spec}: as in the program")
    return spec


def coverage(reader: PayloadReader) -> dict[str, bytes]:
    """Parse the contents of the region COVERAGE; return the contents of gcov's .gcda files by their names."""
    found: dict[str, bytes] = {}
    while reader.left:
        name = reader.name("file")
        if not _GCDA.fullmatch(name) or name in found:
            raise reader.wrong("file", name, "the name of a .gcda file, each once")
        found[name] = reader.take(reader.number(f"{name}'s size", "I"), name)
    return found


def ticks(reader: PayloadReader) -> int:
    return reader.number("ticks", "Q", 0, MAX_TICKS)


def stepped(reader: PayloadReader, instructions: int) -> Stepped:
    position = reader.number("next", "I")
    done = bool(reader.number("done", "B", 0, 1))
    if position > (0 if done else instructions - 1):
        expected = "0, as the program is done" if done else f"below {instructions}, the number of instructions"
        raise reader.wrong("next", position, expected)
    return Stepped(position, done, ticks(reader))


def event_counts(reader: PayloadReader, events: Sequence[int]) -> EventCounts:
    """Parse the response to COUNTERS; `events` are those that were chosen, and none are told without a PMU."""
    counters = reader.number("counters", "B", 0, MAX_EVENTS)
    is_counting = bool(reader.number("counting", "B", 0, 1 if counters else 0))
    found: dict[int, int | None] = {}
    for event in events if counters else ():
        reader.expect("event", "H", event, "the one that was chosen")
        is_over = reader.number(f"overflow of event {event:#x}", "B", 0, 1)
        count = reader.number(f"count of event {event:#x}", "Q", 0, MAX_TICKS)
        found[event] = None if is_over else count
    return EventCounts(counters, is_counting, found)


def stats(reader: PayloadReader, identity: Identity, program_room: int) -> dict[str, Usage]:
    """Parse the response to STATS.

    `program_room` is the largest program of the board: in flash it may exceed the pool.
    """
    known = {statistic.name: statistic for statistic in STATISTICS}
    found: dict[str, Usage] = {}
    while reader.left:
        name = reader.name("statistic", tuple(known))
        if name in found:
            raise reader.wrong("statistic", name, "each once")
        found[name] = _pool(reader, known[name], identity, program_room if name == "program" else 0)
    if len(found) < len(known):
        raise reader.wrong("statistics", ", ".join(found), ", ".join(known))
    return found


def _pool(reader: PayloadReader, statistic: Statistic, identity: Identity, room: int) -> Usage:
    name = statistic.name
    used, size = reader.number(f"{name} used", "I"), reader.number(f"{name} size", "I")
    announced = statistic.announced(identity) if statistic.announced else None
    if announced is not None and size != announced:
        raise reader.wrong(f"{name} size", size, f"{announced}: so said HELLO")
    bounded, most = size > 0 or announced is not None, max(size, room) + statistic.beyond
    if bounded and used > most:
        beyond = f" and {statistic.beyond} beyond" if statistic.beyond else ""
        raise reader.wrong(f"{name} used", used, f"at most its size, {max(size, room)}{beyond}")
    return Usage(used, size)


def crc(reader: PayloadReader) -> int:
    return reader.number("crc", "I")


def log(reader: PayloadReader) -> Log:
    return Log(LEVELS[reader.number("level", "B", 0, len(LEVELS) - 1)], reader.text("text"))


def progress(reader: PayloadReader, instructions: int) -> int:
    """Parse a PROGRESS event; return the number of the instruction that begins."""
    return reader.number("instruction", "I", 0, instructions - 1)


def ready(reader: PayloadReader) -> str:
    return reader.name("build_id")


def ended(reader: PayloadReader) -> int:
    return reader.number("status", "B")


def waiting(reader: PayloadReader) -> int:
    """Parse the number of the frame that the firmware was given last."""
    return reader.number("frame", "I")
