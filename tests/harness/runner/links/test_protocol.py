"""What a runner may say, field by field; and peers that say anything else, for ever, or by halves."""

from __future__ import annotations

import resource
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cortex_m_hil.errors import (
    IdentityError,
    LaunchError,
    LinkError,
    NotOffered,
    OutOfTargetMemory,
    ProgramRejected,
    ProtocolError,
    TargetFault,
    UnsupportedOperator,
)
from cortex_m_hil.host import timeouts
from cortex_m_hil.host.deadline import Deadline
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.program.pte_reader import parse_pte
from cortex_m_hil.program.schema import SCALAR_TYPES
from cortex_m_hil.program.tensor import TensorSpec
from cortex_m_hil.runner.launchers import process as process_module
from cortex_m_hil.runner.launchers.process import Process
from cortex_m_hil.runner.links.framing import Decoder, ProtocolFrame, encode
from cortex_m_hil.runner.links.protocol import (
    MAX_OPERATORS,
    RESPONSE,
    Channel,
    Direction,
    Event,
    MemoryRegion,
    Request,
    ResponseStatus,
)
from cortex_m_hil.runner.session.events import LOG_LIMIT
from cortex_m_hil.runner.session.session import ResponseTimeout, Session
from cortex_m_hil.targets.connection import Elf, LinkClosed
from cortex_m_hil.targets.load import load_targets
from paths import IMPORT_ROOT

TARGET = load_targets()["native"]
ELF = Elf(Path("runner.elf"), "0123456789abcdef", TARGET.config)
MEMORY = TARGET.board.memory
KNOWN = known_answer(TARGET.isa)
FILE = parse_pte(KNOWN.program)
DYNAMIC = replace(FILE, values=tuple(replace(value, is_dynamic=True) for value in FILE.values))
OUTPUT = FILE.output_specs()[0]
COUNT = len(FILE.instructions)
CHANNEL = Channel(0, "scores", Direction.OUTPUT, 1, 4)
OK = struct.pack("<H", ResponseStatus.OK)
SECONDS = 60.0


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<H", len(raw)) + raw


def u32(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def hello(**changes: bytes) -> bytes:
    fields = {
        "build_id": text(ELF.build_id), "config": text(ELF.config), "cpuid": u32(0), "isa": text(TARGET.isa.value),
        "architecture": text(TARGET.architecture), "runtime": text("builtin"), "runtime_version": text("3"),
        "max_payload": u32(4096), "program_pool": u32(MEMORY.program.size), "method_pool": u32(MEMORY.method.size),
        "temp_pool": u32(0), "banks": b"\1", "bank 0": u32(MEMORY.planned),
        "tick_source": text("CLOCK_MONOTONIC"), "tick_hz": u32(1000000000),
    }  # fmt: skip
    assert set(changes) <= set(fields)
    return b"".join((fields | changes).values())


def loaded(**changes: int) -> bytes:
    fields = {
        "inputs": len(FILE.inputs), "outputs": len(FILE.outputs), "values": len(FILE.values), "instructions": COUNT,
        "address": 0x1000, "planned bytes in bank 0": FILE.planned_bytes,
    }  # fmt: skip
    return struct.pack("<HHIIQI", *(fields | changes).values())


def described(spec: TensorSpec = OUTPUT, **changes: int) -> bytes:
    numbers = {name.lower(): number for name, number in SCALAR_TYPES.items()}
    dtype = numbers[{"int8": "char", "float32": "float"}[spec.dtype]]
    head = {"kind": 1, "dtype": dtype, "rank": len(spec.shape), "nbytes": spec.nbytes} | changes
    return struct.pack("<BBBI", *head.values()) + struct.pack(
        f"<{len(spec.shape)}i{len(spec.shape)}B", *spec.shape, *spec.dim_order
    )


def stats(**changes: int) -> bytes:
    """`program=5` changes what is used, `program_size=5` what there is."""
    sizes = {
        "program": MEMORY.program.size,
        "planned": MEMORY.planned,
        "method": MEMORY.method.size,
        "stack": 4096,
        "temp": MEMORY.method.size,
    }
    assert set(changes) <= {*sizes, *(f"{name}_size" for name in sizes)}
    return b"".join(
        text(name) + u32(changes.get(name, number), changes.get(f"{name}_size", size))
        for number, (name, size) in enumerate(sizes.items())
    )


def failure(status: int, *, instruction: int = -1, message: bytes = b"why") -> bytes:
    return struct.pack("<HiQQ", status, instruction, 7, 5) + text("") + text(message)


def fault(**changes: int) -> bytes:
    head = {"instruction": 0, "exception": 3, "has_status": 0} | changes
    return struct.pack("<iIB", *head.values()) + bytes(52) + text("aten::x.out")


def sound(request: ProtocolFrame) -> bytes:
    """The payload with which a runner that is in order answers."""
    match Request(request.type):
        case Request.HELLO:
            return OK + hello()
        case Request.OPERATORS:
            return OK + u32(1) + text("aten::add.out")
        case Request.LOAD:
            return OK + loaded()
        case Request.DESCRIBE:
            return OK + described()
        case Request.READ:
            return OK + bytes(struct.unpack_from("<I", request.payload, 9)[0])
        case Request.DIGEST:
            return OK + u32(1)
        case Request.EXECUTE:
            return OK + struct.pack("<Q", 9)
        case Request.STEP:
            return OK + struct.pack("<IBQ", 1, 0, 9)
        case Request.STATS:
            return OK + stats()
        case Request.COUNTERS:
            return OK + counted()
        case Request.CHANNELS:
            return OK + channels()
        case Request.CHANNEL:
            return OK + fetched()
        case _:
            return OK


def counted(counters: int = 4, counting: int = 1, event: int = 8, over: int = 0, count: int = 3) -> bytes:
    return struct.pack("<BBHBQ", counters, counting, event, over, count)


def channels(total: int = 1, direction: int = 1, element: int = 1, nbytes: int = 4, name: str = "scores") -> bytes:
    return u32(total) + struct.pack("<BBI", direction, element, nbytes) + text(name)


def fetched(done: int = 1, waiting: int = 0, latency: int = 0, frame: bytes = bytes(4)) -> bytes:
    return struct.pack("<BBIIIIIQQ", done, waiting, 9, 1, 0, 9, 3, 100, latency) + frame


class Peer:
    """A runner in this process: sound, but for the answers it is told to give."""

    def __init__(self, *, lossless: bool = True) -> None:
        self.lossless = lossless
        self.log = bytearray()
        self.answers: dict[int, bytes] = {}
        self.before: dict[int, bytes] = {}  # what it says before it answers
        self._decoder = Decoder()
        self._said = bytearray()
        self.asked: list[tuple[int, bytes]] = []

    def write(self, data: bytes, deadline: Deadline) -> None:
        for frame in self._decoder.feed(data):
            self.asked.append((frame.type, frame.payload))
            payload = self.answers.get(frame.type, None)
            self._said += self.before.get(frame.type, b"")
            self._said += encode(
                ProtocolFrame(frame.type | RESPONSE, frame.seq, sound(frame) if payload is None else payload)
            )

    def read(self, deadline: Deadline) -> bytes:
        if not self._said:
            time.sleep(min(0.01, deadline.remaining))
            raise TimeoutError
        data = bytes(self._said)
        self._said.clear()
        return data

    def budget(self, seconds: float, nbytes: int = 0) -> Deadline:
        return Deadline.after(seconds)

    def wait(self, seconds: float) -> int | None:
        return None

    def store(self, data: bytes) -> None:
        raise LinkClosed

    def close(self) -> None:
        pass


def opened(peer: Peer) -> Session:
    return Session(TARGET, ELF, peer)


def use(session: Session, request: Request) -> object:
    """Makes `request`, on a loaded program where it is about one."""
    if request not in (Request.HELLO, Request.OPERATORS, Request.CHANNELS, Request.CHANNEL):
        session.load(KNOWN.program, file=DYNAMIC if request is Request.RESIZE else FILE)
    uses: dict[Request, Callable[[], object]] = {
        Request.WRITE: lambda: session.write(MemoryRegion.INPUT, 0, b"x"),
        Request.READ: lambda: session.read(MemoryRegion.VALUE, 0, 8),
        Request.FILL: lambda: session.fill(MemoryRegion.PLANNED, 0, 0),
        Request.DIGEST: lambda: session.digest(MemoryRegion.VALUE, 0),
        Request.DESCRIBE: lambda: session.get_output(0),
        Request.EXECUTE: lambda: session.execute(SECONDS),
        Request.STEP: lambda: session.step(1, SECONDS),
        Request.STATS: session.stats,
        Request.RESET: session.reset,
        Request.STREAM: lambda: session.write(MemoryRegion.INPUT, 0, bytes(1000)),
        Request.DATA: lambda: session.write(MemoryRegion.INPUT, 0, bytes(1000)),
        Request.RESIZE: lambda: session.set_input(0, KNOWN.inputs[0]),
        Request.COUNTERS: lambda: session.choose_events([8]),
        Request.CHANNELS: lambda: session.channels(SECONDS),
        Request.CHANNEL: lambda: session.fetch_frame(CHANNEL, SECONDS),
    }
    return uses.get(request, lambda: None)()


def ask(request: Request, payload: bytes) -> object:
    """What `request` ends in, if `payload` answers it."""
    peer = Peer(lossless=request not in (Request.STREAM, Request.DATA))
    peer.answers[request] = payload
    return use(opened(peer), request)


@pytest.mark.parametrize("request_", Request, ids=lambda request: request.name)
def test_a_sound_answer_is_taken(request_: Request) -> None:
    peer = Peer(lossless=request_ not in (Request.STREAM, Request.DATA))
    session = opened(peer)
    use(session, request_)
    assert not session.broken and session.identity.operators == ("aten::add.out",)


# --- responses -----------------------------------------------------------------------------------------------

LONG = text("x" * 256)
GOOD_SHAPE = struct.pack("<BBBI", 1, 6, 2, 16)
FIELDS = [
    *((Request.HELLO, hello(max_payload=u32(size)), f"max_payload is {size}, expected 256 to 65536")
      for size in (0, 1, 8, 9, 255, 65537, 0xFFFFFFFF)),
    *((Request.HELLO, hello(**{name: LONG}), f"{name}'s length is 256")
      for name in ("build_id", "config", "isa", "architecture", "runtime", "runtime_version", "tick_source")),
    *((Request.HELLO, hello(**{name: text(b"\xff\xfe")}), f"{name} is .* expected UTF-8")
      for name in ("build_id", "config", "isa", "architecture", "runtime", "runtime_version", "tick_source")),
    (Request.HELLO, hello(runtime_version=text("\x1b[2J")), "runtime_version is .* expected printable"),
    (Request.HELLO, hello(isa=text("AVX")), "isa is 'AVX', expected one of MVE, DSP, SCALAR"),
    (Request.HELLO, hello(tick_source=text("sundial")), "tick_source is 'sundial'"),
    (Request.HELLO, hello(tick_source=text("none")), "tick_hz is 1000000000"),
    (Request.HELLO, hello(tick_hz=u32(0)), "tick_hz is 0"),
    *((Request.HELLO, hello(**{name: u32(size)}), f"{name} is {size}")
      for name in ("program_pool", "bank 0", "method_pool") for size in (0, 0xFFFFFFFF)),
    (Request.HELLO, hello(temp_pool=u32(64)), "temp_pool is 64, expected 0, which the board has"),
    (Request.HELLO, hello(banks=b"\0"), "banks is 0, expected 1 to 8"),
    (Request.HELLO, hello(banks=b"\2", **{"bank 0": u32(16, 16)}), "banks is 2, expected 1, which the board has"),
    (Request.HELLO, hello() + b"x", "firmware's length is cut short"),
    (Request.HELLO, hello() + text("product 2.3.1"), "without is cut short"),
    (Request.HELLO, hello() + text("product 2.3.1") + u32(0) + b"x", "1 bytes too many"),
    *((Request.HELLO, hello() + text("product 2.3.1") + u32(bits), rf"without is {bits}, expected bits of 0x")
      for bits in (1 << Request.HELLO, 1 << 19, 1)),
    (Request.HELLO, hello()[:-1], "tick_hz is cut short"),
    (Request.OPERATORS, u32(0xFFFFFFFF), "total is 4294967295, expected 0 to 8192"),
    (Request.OPERATORS, u32(MAX_OPERATORS + 1), "total is 8193"),
    (Request.OPERATORS, u32(3), "number of names is 0"),
    (Request.OPERATORS, u32(1) + text("a::b") + text("a::c"), "number of names is 2"),
    (Request.OPERATORS, u32(1) + text("add"), "operator 0 is 'add', expected namespace::name.overload"),
    (Request.OPERATORS, u32(1) + text(""), "operator 0 is ''"),
    (Request.OPERATORS, u32(1) + text("a b::c"), "operator 0 is 'a b::c'"),
    (Request.OPERATORS, u32(1) + text("aten::x")[:-1], "operator 0 is cut short"),
    *((Request.LOAD, loaded(**{name: number}), f"{name} is {number}, expected .*: as in the program")
      for name in ("inputs", "outputs", "values", "instructions", "planned bytes in bank 0") for number in (0, 999)),
    (Request.LOAD, loaded() + b"x", "1 bytes too many"),
    (Request.LOAD, loaded()[:-1], "planned bytes in bank 0 is cut short"),
    (Request.DESCRIBE, described(kind=5), "kind is 5, expected 0 to 4"),
    (Request.DESCRIBE, described(kind=0, rank=0, nbytes=0)[:7], "kind is 'none'"),
    (Request.DESCRIBE, described(dtype=15), "dtype is 15"),
    (Request.DESCRIBE, described(rank=17), "rank is 17, expected 0 to 16"),
    (Request.DESCRIBE, described(kind=2), "rank is"),
    (Request.DESCRIBE, described(nbytes=OUTPUT.nbytes + 1), "nbytes is"),
    (Request.DESCRIBE, described() + b"\0", "1 bytes too many"),
    (Request.DESCRIBE, described()[:-1], "dim order 1 is cut short"),
    (Request.DESCRIBE, GOOD_SHAPE + struct.pack("<2i2B", -1, 4, 0, 1), "size 0 is -1"),
    (Request.DESCRIBE, GOOD_SHAPE + struct.pack("<2i2B", 1, 4, 1, 1), r"dim order is \(1, 1\), expected each"),
    (Request.DESCRIBE, GOOD_SHAPE + struct.pack("<2i2B", 1, 4, 0, 2), r"dim order is \(0, 2\)"),
    (Request.DESCRIBE, GOOD_SHAPE + struct.pack("<2i2B", 1 << 30, 1 << 30, 0, 1), "at most 2147483648 bytes"),
    (Request.DESCRIBE, struct.pack("<BBBI16i16B", 1, 6, 16, 0, *[(1 << 31) - 1] * 16, *range(16)), "sizes is"),
    (Request.DESCRIBE, described(TensorSpec.contiguous("float32", (7, 7))), r"output is 'float32\[7, 7\]', expected"),
    (Request.DESCRIBE, struct.pack("<BBBI", 3, 0, 0, 8), "output is 'Double'"),
    (Request.READ, bytes(7), "READ of 8 bytes gave 7"),
    (Request.READ, bytes(9), "READ of 8 bytes gave 9"),
    (Request.DIGEST, bytes(3), "crc is cut short"),
    (Request.DIGEST, bytes(5), "1 bytes too many"),
    (Request.EXECUTE, bytes(7), "ticks is cut short"),
    (Request.EXECUTE, bytes(9), "1 bytes too many"),
    (Request.EXECUTE, b"\xff" * 8, "ticks is 18446744073709551615"),
    (Request.STEP, struct.pack("<IBQ", COUNT, 0, 1), f"next is {COUNT}, expected below {COUNT}"),
    (Request.STEP, struct.pack("<IBQ", 1, 1, 1), "next is 1, expected 0, as the program is done"),
    (Request.STEP, struct.pack("<IBQ", 1, 2, 1), "done is 2"),
    (Request.STEP, struct.pack("<IBQ", 1, 0, 1 << 63), "ticks is"),
    *((Request.STATS, stats(**{f"{name}_size": 77}), f"{name} size is 77, expected .*: so said HELLO")
      for name in ("program", "planned", "method", "temp")),
    *((Request.STATS, stats(**{name: 0xFFFFFFFF}), f"{name} used is 4294967295, expected at most its size")
      for name in ("program", "planned", "method", "stack", "temp")),
    (Request.STATS, stats()[:-1], "temp size is cut short"),
    (Request.STATS, stats() + b"x", "statistic's length is cut short"),
    (Request.STATS, stats() + text("heap") + u32(1, 2), "statistic is 'heap', expected one of program"),
    (Request.STATS, stats() + text("stack") + u32(1, 2), "statistic is 'stack', expected each once"),
    (Request.STATS, text("stack") + u32(1, 2), "statistics is 'stack', expected program, planned"),
    (Request.COUNTERS, counted(counters=9), "counters is 9, expected 0 to 8"),
    (Request.COUNTERS, counted(counting=2), "counting is 2, expected 0 to 1"),
    (Request.COUNTERS, b"\0\1", "counting is 1, expected 0 to 0"),
    (Request.COUNTERS, counted(event=9), "event is 9, expected 8: the one that was chosen"),
    (Request.COUNTERS, counted(over=2), "overflow of event 0x8 is 2"),
    (Request.COUNTERS, counted(count=1 << 63), "count of event 0x8 is"),
    (Request.COUNTERS, counted()[:-1], "count of event 0x8 is cut short"),
    (Request.COUNTERS, counted() + b"x", "1 bytes too many"),
    (Request.COUNTERS, b"\0\0" + counted()[2:], "11 bytes too many"),
    (Request.CHANNELS, channels(total=1025), "total is 1025, expected 0 to 1024"),
    (Request.CHANNELS, u32(3), "number of channels is 0, expected 1 to 3"),
    (Request.CHANNELS, channels() + channels()[4:], "number of channels is 2"),
    (Request.CHANNELS, channels(direction=2), "direction of channel 0 is 2, expected 0 to 1"),
    (Request.CHANNELS, channels(element=9), "element of channel 0 is 9, expected 0 to 8"),
    (Request.CHANNELS, channels(nbytes=0), "bytes of channel 0 is 0, expected 1 to"),
    (Request.CHANNELS, channels(name="\n"), "channel 0 is "),
    (Request.CHANNELS, channels()[:-1], "channel 0 is cut short"),
    (Request.CHANNEL, fetched(done=2), "done is 2, expected 0 to 1"),
    (Request.CHANNEL, fetched(waiting=2), "waiting is 2"),
    (Request.CHANNEL, fetched(latency=1 << 63), "latency is"),
    (Request.CHANNEL, fetched()[:-6], "latency is cut short"),
    (Request.CHANNEL, fetched(frame=bytes(5)), "bytes of the frame is 5, expected 4"),
    (Request.CHANNEL, fetched(frame=bytes(4000)), "bytes of the frame is 4000, expected 4"),
    *((request, b"x", "1 bytes too many")
      for request in (Request.WRITE, Request.FILL, Request.RESET, Request.STREAM, Request.DATA)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("request_", "body", "said"), FIELDS, ids=[f"{one.name}-{number}" for number, (one, _, _) in enumerate(FIELDS)]
)
def test_a_field_that_is_wrong_is_named(request_: Request, body: bytes, said: str) -> None:
    with pytest.raises(ProtocolError, match=said) as caught:
        ask(request_, OK + body)
    assert caught.value.message.startswith(request_.name)
    assert caught.value.target == TARGET.name


def test_after_a_wrong_answer_a_session_is_broken() -> None:
    peer = Peer()
    session = opened(peer)
    peer.answers[Request.STATS] = OK + stats(stack=0xFFFFFFFF)
    with pytest.raises(ProtocolError):
        session.stats()
    assert session.broken


def test_a_stack_that_ran_over_into_the_page_below_is_out_of_memory() -> None:
    peer = Peer()
    session = opened(peer)
    peer.answers[Request.STATS] = OK + stats(stack=4096 + 8)
    with pytest.raises(OutOfTargetMemory, match="stack: 4104 bytes requested, 4096 available") as caught:
        session.stats()
    assert session.broken and "stack of at least 4104 bytes" in caught.value.hint
    peer = Peer()
    session = opened(peer)
    peer.answers[Request.STATS] = OK + stats(stack=4096 + 4097)
    with pytest.raises(ProtocolError, match="stack used is 8193, expected at most its size, 4096 and 4096 beyond"):
        session.stats()


@pytest.mark.parametrize(
    ("request_", "payload", "said"),
    [
        (Request.STATS, failure(10), "status is 10, expected 0 to 9"),
        (Request.STATS, failure(0xFFFF), "status is 65535"),
        (Request.STATS, b"", "status is cut short"),
        (Request.STATS, b"\1", "status is cut short"),
        (Request.STATS, failure(ResponseStatus.BAD_REQUEST)[:5], "instruction is cut short"),
        (Request.STATS, failure(ResponseStatus.BAD_REQUEST)[:-1], "message is cut short"),
        (Request.STATS, failure(ResponseStatus.BAD_REQUEST) + b"x", "1 bytes too many"),
        (Request.EXECUTE, failure(ResponseStatus.KERNEL_FAILED, instruction=COUNT), f"instruction is {COUNT}"),
        (Request.EXECUTE, failure(ResponseStatus.KERNEL_FAILED, instruction=-2), "instruction is -2"),
        *(
            (request, failure(status), "expected none that is about a program")
            for request in (Request.HELLO, Request.STATS, Request.WRITE, Request.RESET, Request.RESIZE)
            for status in range(ResponseStatus.PROGRAM_REJECTED, ResponseStatus.BAD_DIGEST + 1)
        ),
    ],
)
def test_a_refusal_is_checked_as_an_answer_is(request_: Request, payload: bytes, said: str) -> None:
    """A verdict on a program above all: nothing else may lead to one."""
    with pytest.raises(ProtocolError, match=said):
        ask(request_, payload)


def test_a_refusal_of_a_program_is_a_verdict_on_it() -> None:
    with pytest.raises(ProgramRejected, match="why"):
        ask(Request.LOAD, failure(ResponseStatus.PROGRAM_REJECTED))
    with pytest.raises(UnsupportedOperator, match="a::b, c::d \\["):  # ExecuTorch's runner names one a line
        ask(Request.LOAD, failure(ResponseStatus.UNSUPPORTED_OPERATOR, message=b"a::b\nc::d\n"))
    with pytest.raises(ProgramRejected, match=r"why \(operator 0\)"):
        ask(Request.EXECUTE, failure(ResponseStatus.KERNEL_FAILED, instruction=0))


def test_an_output_may_be_smaller_where_its_shape_is_dynamic() -> None:
    smaller = replace(OUTPUT, shape=tuple(max(0, size - 1) for size in OUTPUT.shape))
    peer = Peer()
    peer.answers[Request.DESCRIBE] = OK + described(smaller)
    session = opened(peer)
    session.load(KNOWN.program, file=DYNAMIC)
    assert session.get_output(0).spec == smaller


@pytest.mark.parametrize("is_dynamic", [True, False])
def test_the_size_of_an_input_is_sent_where_it_is_not_fixed(is_dynamic: bool) -> None:
    peer = Peer()
    session = opened(peer)
    session.load(KNOWN.program, file=DYNAMIC if is_dynamic else FILE)
    peer.asked.clear()
    session.set_input(0, KNOWN.inputs[0])
    shape = KNOWN.inputs[0].spec.shape
    resized = [(Request.RESIZE, struct.pack(f"<IB{len(shape)}i", 0, len(shape), *shape))]
    assert peer.asked[:-1] == (resized if is_dynamic else []) and peer.asked[-1][0] == Request.WRITE


def test_a_runner_of_another_build_is_no_protocol_error() -> None:
    with pytest.raises(IdentityError):
        ask(Request.HELLO, OK + hello(build_id=text("another")))


NUMBERS = st.one_of(st.integers(0, 3), st.integers(0, 0xFFFFFFFF))
BODIES = st.one_of(
    st.binary(max_size=300),
    st.lists(st.one_of(NUMBERS.map(u32), st.binary(max_size=20).map(text), st.binary(max_size=9)), max_size=14).map(
        b"".join
    ),
)
PAYLOADS = st.one_of(BODIES, BODIES.map(lambda body: OK + body), st.builds(failure, st.integers(0, 12)))
TYPED = (ProtocolError, IdentityError, LinkError, ProgramRejected, UnsupportedOperator, OutOfTargetMemory)


@settings(max_examples=600)
@given(st.sampled_from(Request), PAYLOADS, st.data())
def test_any_answer_is_a_value_or_a_typed_error(request: Request, payload: bytes, data: st.DataObject) -> None:
    """Also what is sound but for one byte."""
    if data.draw(st.booleans()):
        mutated = bytearray(sound(ProtocolFrame(request, 1, bytes(17))))
        mutated[data.draw(st.integers(0, len(mutated) - 1))] = data.draw(st.integers(0, 255))
        payload = bytes(mutated)
    began = time.process_time()
    try:
        ask(request, payload)
    except TYPED as error:
        if isinstance(error, (ProgramRejected, UnsupportedOperator, OutOfTargetMemory)):
            stack = request is Request.STATS and isinstance(error, OutOfTargetMemory)  # its peak is beyond its end
            assert stack or request in (Request.LOAD, Request.EXECUTE, Request.STEP)
    assert time.process_time() - began < 10


# --- firmware of the user's ----------------------------------------------------------------------------------


def own(folder: Path, *, content: str = ELF.build_id) -> Elf:
    path = folder / "product.elf"
    path.write_text(content)
    return Elf(path, "0123456789abcdef", "")


def of_product(without: int = 0, **fields: bytes) -> Peer:
    peer = Peer()
    said = hello(config=text("anything"), **fields)
    peer.answers[Request.HELLO] = OK + said + text("product 2.3.1") + u32(without)
    return peer


def test_firmware_of_ones_own_is_held_against_its_elf(tmp_path: Path) -> None:
    session = Session(TARGET, own(tmp_path), of_product())
    assert session.identity.firmware == "product 2.3.1" and session.execute(SECONDS) == 9
    with pytest.raises(IdentityError, match=r"build id of .* does not occur in .*product\.elf"):
        Session(TARGET, own(tmp_path, content="another build"), of_product())


def test_a_runner_and_firmware_of_ones_own_are_not_taken_for_each_other(tmp_path: Path) -> None:
    with pytest.raises(IdentityError, match="a runner answers, and not firmware of your own"):
        Session(TARGET, own(tmp_path), Peer())
    peer = Peer()
    peer.answers[Request.HELLO] = OK + hello() + text("product 2.3.1") + u32(0)
    with pytest.raises(IdentityError, match="firmware of your own answers, 'product"):
        opened(peer)


def test_firmware_that_grants_other_memory_than_its_board_yaml_says_is_told(tmp_path: Path) -> None:
    peer = of_product(program_pool=u32(4096))
    with pytest.raises(ProtocolError, match=r"program_pool is 4096, expected .* which the board has") as caught:
        Session(TARGET, own(tmp_path), peer)
    assert "the firmware's hil_target and memory: in its board.yaml" in caught.value.hint


@pytest.mark.parametrize("lossless", [True, False])
def test_a_late_answer_to_hello_is_taken_and_that_of_a_second_firmware_told(lossless: bool) -> None:
    for build_id, said in (
        (ELF.build_id, ""),
        ("another", "two firmwares answer, with the build ids .* and 'another'"),
    ):
        peer = Peer(lossless=lossless)
        answer = OK + hello(build_id=text(build_id))
        peer.before[Request.OPERATORS] = encode(ProtocolFrame(Request.HELLO | RESPONSE, 1, answer))
        with pytest.raises(ProtocolError, match=said) if said else nullcontext():
            opened(peer)


def test_what_firmware_does_not_answer_is_not_asked(tmp_path: Path) -> None:
    """And what needs it is refused with the reason, on a session that goes on."""
    peer = of_product(1 << Request.STEP | 1 << Request.DIGEST)
    session = Session(TARGET, own(tmp_path), peer)
    session.load(KNOWN.program, file=FILE)
    for call in (lambda: session.step(1, SECONDS), lambda: session.digest(MemoryRegion.VALUE, 0)):
        with pytest.raises(NotOffered, match=r"the firmware product 2\.3\.1 does not answer (STEP|DIGEST)"):
            call()
    assert not session.broken and session.execute(SECONDS) == 9
    assert not {kind for kind, _ in peer.asked} & {Request.STEP, Request.DIGEST}


# --- events and frames ---------------------------------------------------------------------------------------


def event(kind: int, payload: bytes, *, seq: int = 0) -> bytes:
    return encode(ProtocolFrame(kind, seq, payload))


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        (event(Event.PROGRESS, u32(COUNT)), f"PROGRESS: instruction is {COUNT}"),
        (event(Event.PROGRESS, u32(0xFFFFFFFF)), "PROGRESS: instruction is 4294967295"),
        (event(Event.PROGRESS, b"\0"), "PROGRESS: instruction is cut short"),
        (event(Event.PROGRESS, bytes(5)), "PROGRESS: 1 bytes too many"),
        (event(Event.PROGRESS, bytes(4), seq=3), "PROGRESS: seq is 3"),
        (event(Event.LOG, b""), "LOG: level is cut short"),
        (event(Event.LOG, b"\3" + text("x")), "LOG: level is 3"),
        (event(Event.LOG, b"\0\xff\xffx"), "LOG: text is cut short"),
        (event(Event.LOG, b"\0" + text("x") + b"y"), "LOG: 1 bytes too many"),
        (event(Event.FAULT, fault()[:-1]), "FAULT: operator is cut short"),
        (event(Event.FAULT, fault()[:9]), "FAULT: cfsr is cut short"),
        (event(Event.FAULT, fault() + b"x"), "FAULT: 1 bytes too many"),
        (event(Event.FAULT, fault(instruction=COUNT)), f"FAULT: instruction is {COUNT}"),
        (event(Event.FAULT, fault(instruction=-2)), "FAULT: instruction is -2"),
        (event(Event.FAULT, fault(exception=512)), "FAULT: exception is 512"),
        (event(Event.FAULT, fault(exception=0)), "FAULT: exception is 0"),
        (event(Event.FAULT, fault(has_status=2)), "FAULT: has_status is 2"),
        (event(Event.READY, text("x")[:-1]), "READY: build_id is cut short"),
        (event(Event.READY, LONG), "READY: build_id's length is 256"),
        (event(Event.ENDED, b""), "ENDED: status is cut short"),
        (event(Event.ENDED, b"\0\0"), "ENDED: 1 bytes too many"),
        (event(Event.WAITING, bytes(3)), "WAITING: frame is cut short"),
        (event(0x46, b""), "an event of unknown type 0x46"),
        (event(0x7F, b""), "an event of unknown type 0x7f"),
        (encode(ProtocolFrame(Event.LOG, 0, b"", version=4)), "a frame of version 4 .* version 3"),
        (
            encode(ProtocolFrame(Request.EXECUTE | RESPONSE, 1, OK + bytes(8), version=0)),
            "a frame of version 0 .* version 3",
        ),
        (event(Event.LOG, b"\0" + text("x" * 5000)), "has 5003 bytes, at most 4096"),
        (event(Request.EXECUTE | RESPONSE, OK, seq=999), "seq 999, which nothing asked for"),
        (event(Request.STEP | RESPONSE, OK, seq=1), "type 0x89 and seq 1, which nothing asked for"),
        (event(0x90, OK, seq=1), "type 0x90"),
    ],
)  # fmt: skip
def test_an_event_or_a_frame_that_is_wrong_is_named(said: bytes, wrong: str) -> None:
    peer = Peer()
    peer.before[Request.EXECUTE] = said
    session = opened(peer)
    with pytest.raises(ProtocolError, match=wrong) as caught:
        use(session, Request.EXECUTE)
    assert caught.value.target == TARGET.name and session.broken


def test_sound_events_are_taken() -> None:
    peer = Peer()
    peer.before[Request.EXECUTE] = event(Event.PROGRESS, u32(COUNT - 1)) + event(Event.LOG, b"\2" + text("hear"))
    session = opened(peer)
    assert use(session, Request.EXECUTE) == 9
    assert session.log == "[error] hear"


def test_a_target_that_is_reset_in_the_middle_is_noticed_on_any_link() -> None:
    for lossless in (True, False):
        peer = Peer(lossless=lossless)
        peer.before[Request.EXECUTE] = event(Event.READY, text(ELF.build_id))
        with pytest.raises(LaunchError, match="reset in the middle"):
            use(opened(peer), Request.EXECUTE)


def test_an_echo_of_what_is_sent_is_not_taken_for_an_event() -> None:
    peer = Peer(lossless=False)
    peer.before[Request.EXECUTE] = event(Request.EXECUTE, b"", seq=5)
    assert use(opened(peer), Request.EXECUTE) == 9


@settings(max_examples=300)
@given(st.integers(0, 255), BODIES, st.integers(0, 2), st.integers(0, 2), st.booleans())
def test_any_frame_in_between_is_taken_or_a_typed_error(
    kind: int, payload: bytes, seq: int, version: int, lossless: bool
) -> None:
    peer = Peer(lossless=lossless)
    peer.before[Request.EXECUTE] = encode(ProtocolFrame(kind, seq, payload, version))
    try:
        assert use(opened(peer), Request.EXECUTE) == 9
    except (*TYPED, LaunchError, TargetFault):
        pass


def test_a_log_without_end_takes_no_more_memory_than_its_limit() -> None:
    peer = Peer()
    peer.before[Request.EXECUTE] = event(Event.LOG, b"\0" + text("x" * 4000)) * 1000
    session = opened(peer)
    use(session, Request.EXECUTE)
    assert len(session.log) <= LOG_LIMIT
    assert sum(map(len, session._events._lines)) <= LOG_LIMIT


# --- peers in processes of their own -------------------------------------------------------------------------

_PEER = f"""
import itertools, os, struct, sys, time
sys.path.insert(0, {str(IMPORT_ROOT)!r})
from cortex_m_hil.runner.links.framing import Decoder, ProtocolFrame, encode
def say(data):
    os.write(1, data)
def asked():
    decoder = Decoder()
    while data := os.read(0, 4096):
        yield from decoder.feed(data)
def flood(data):
    while True:
        say(data)
LOG = encode(ProtocolFrame(0x40, 0, bytes([0]) + struct.pack("<H", 4000) + bytes(4000)))
REPLY = lambda frame, seq, payload: encode(ProtocolFrame(frame.type | 0x80, seq, payload))
"""
PEERS = {
    "drips": "for _ in itertools.count(): say(b'x'); time.sleep(0.001)",
    "drips-boundaries": "for _ in itertools.count(): say(bytes(1)); time.sleep(0.001)",
    "noise": "flood(b'noise' * 1000)",
    "boundaries": "flood(bytes(4096))",
    "logs": "flood(LOG * 10)",
    "logs-and-reads-nothing": "flood(LOG * 100)",
    "errors-beside": "while True: os.write(2, b'x' * 65536)",
    "endless-frame": "say(bytes(1)); flood(b'\\x01' * 65536)",
    "wrong-seq": "for frame in asked(): say(REPLY(frame, frame.seq + 1, b'')); time.sleep(60)",
    "wrong-type": "for frame in asked(): say(encode(ProtocolFrame(0xFF, frame.seq, b''))); time.sleep(60)",
    "twice": "for frame in asked(): say(REPLY(frame, frame.seq, bytes(2)) * 2)",
    "half-a-frame": "for frame in asked(): say(REPLY(frame, frame.seq, bytes(40))[:20]); time.sleep(60)",
    "half-a-frame-and-ends": "for frame in asked(): say(REPLY(frame, frame.seq, bytes(40))[:20]); sys.exit(3)",
    "version-2": "for frame in asked(): say(encode(ProtocolFrame(0x81, frame.seq, b'', 2))); time.sleep(60)",
    "version-0-event": "say(encode(ProtocolFrame(0x43, 0, b'', 0))); time.sleep(60)",
    "never-anything": "time.sleep(60)",
    "ends-at-once": "",
}
BOUND = 20.0  # seconds for what takes about two: the machine may be busy


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Deadlines of about a second; what is bounded by them is bounded by the real ones."""
    monkeypatch.setattr(timeouts, "HANDSHAKE", 1.0)
    monkeypatch.setattr(timeouts, "REQUEST", 1.0)
    monkeypatch.setattr(timeouts, "PROCESS_END", 1.0)
    monkeypatch.setattr(timeouts, "WALL_PER_CPU_SECOND", 1.5)
    yield


@pytest.mark.first_only
@pytest.mark.parametrize("body", PEERS.values(), ids=PEERS)
@pytest.mark.usefixtures("brief")
def test_a_peer_in_a_process_is_bounded_in_time_and_memory(body: str, tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    process = Process([sys.executable, "-S", "-c", _PEER + body], cwd=tmp_path)
    with closing(process), pytest.raises((ProtocolError, LaunchError, ResponseTimeout)):
        Session(TARGET, ELF, process)
    assert time.monotonic() - began < BOUND
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB


def test_a_simulator_that_waits_for_a_cpu_is_not_out_of_time_by_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It shares one with another process, so it has half a second of each second."""
    monkeypatch.setattr(timeouts, "WALL_PER_CPU_SECOND", 1.0)
    spin = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); print('up', flush=True)\nwhile 1: pass"
    command = [sys.executable, "-S", "-c", spin]
    with closing(Process(command, cwd=tmp_path)) as process, closing(Process(command, cwd=tmp_path)) as other:
        for one in (process, other):
            one.read(Deadline.after(BOUND))
        budget = process.budget(0.5)
        time.sleep(0.6)
        assert process.cpu_seconds() < budget.cpu_limit and budget.wall.expired
        polls = 0
        while not budget.expired:
            polls += 1
            time.sleep(0.05)
        assert polls
        assert process.cpu_seconds() > budget.cpu_limit - 0.2


@pytest.mark.usefixtures("brief")
def test_a_peer_that_floods_while_we_are_writing_takes_no_more_memory(tmp_path: Path) -> None:
    """It never reads, so our write waits, and what it says must go somewhere."""
    process = Process([sys.executable, "-S", "-c", _PEER + "flood(bytes(65536))"], cwd=tmp_path)
    with closing(process):
        with pytest.raises(TimeoutError):
            process.write(bytes(1 << 20), Deadline.after(2.0))
        assert len(process._received) <= process_module.RECEIVED_LIMIT
