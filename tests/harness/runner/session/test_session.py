"""Live targets, one boot at a time: what the runner says, does, refuses and survives."""

from __future__ import annotations

import dataclasses
import os
import signal
import struct
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cortex_m_hil import flow
from cortex_m_hil.errors import (
    IdentityError,
    LaunchError,
    OutOfTargetMemory,
    ProgramRejected,
    ProtocolError,
    TargetFault,
    UnsupportedOperator,
)
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.host.deadline import Deadline
from cortex_m_hil.program.known_answer import KnownAnswer, known_answer
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.pte_reader import parse_pte
from cortex_m_hil.program.schema import DTYPES, SCALAR_TYPES, ValueKind
from cortex_m_hil.program.tensor import HostTensor, TensorSpec
from cortex_m_hil.runner import launchers
from cortex_m_hil.runner.build import build_runner
from cortex_m_hil.runner.launchers.fvp import FvpLauncher
from cortex_m_hil.runner.launchers.process import Process
from cortex_m_hil.runner.launchers.serial import SerialLauncher
from cortex_m_hil.runner.links.framing import VERSION, Decoder, ProtocolFrame, encode
from cortex_m_hil.runner.links.protocol import RESPONSE, Event, MemoryRegion, Request, ResponseStatus, name
from cortex_m_hil.runner.session.requests import LAST_SEQ, Exchange
from cortex_m_hil.runner.session.session import TO_THE_END, Session
from cortex_m_hil.targets.connection import Elf, LinkClosed
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve
from cortex_m_hil.targets.target import Target
from paths import REPOSITORY

NAMES = ["native", "m4-qemu", "m0-qemu", "m55-qemu"]
# SCB->CPUID, PARTNO at bits 15:4 (Armv6-M ARM B3.2.3, Armv7-M ARM B3.2.3, Armv8-M ARM D1.2.10).
PART_NUMBERS = {
    "cortex-m0": 0xC20, "cortex-m3": 0xC23, "cortex-m4": 0xC24, "cortex-m7": 0xC27, "cortex-m33": 0xD21,
    "cortex-m55": 0xD22, "host": 0,
    "cortex-m23": 0xD21,  # on QEMU's Cortex-M33
}  # fmt: skip
ALIGNMENT = 16  # of planned buffers
FORWARD = name("forward")  # as LOAD has it
SECONDS = 60.0  # of engine time or of wall time; nothing here comes near
TARGETS = load_targets()
SIMULATED = [name for name, one in TARGETS.items() if not isinstance(one.launcher, (FvpLauncher, SerialLauncher))]


def process_of(session: Session) -> Process:
    assert isinstance(session._process, Process)
    return session._process


def target_named(name: str) -> Target:
    return TARGETS[name]


@pytest.fixture(scope="module", params=NAMES)
def dut(request: pytest.FixtureRequest) -> Iterator[Dut]:
    with flow.open_dut(resolve(request.param, TARGETS)) as opened:
        yield opened


@pytest.fixture(scope="module")
def native() -> Iterator[Dut]:
    with flow.open_dut(resolve("native", TARGETS)) as opened:
        yield opened


@pytest.fixture
def session(dut: Dut) -> Session:
    return dut.session()


@pytest.fixture
def known(dut: Dut) -> KnownAnswer:
    return known_answer(dut.target.isa)


@pytest.fixture
def loaded(session: Session, known: KnownAnswer) -> Session:
    """With the self-test loaded and its inputs set."""
    session.load(known.program)
    for number, value in enumerate(known.inputs):
        session.set_input(number, value)
    return session


@contextmanager
def refused(dut: Dut, text: str) -> Iterator[None]:
    """The request is refused with `text`; the next session is a new boot, which is sound."""
    with pytest.raises(ProtocolError, match=text) as caught:
        yield
    assert caught.value.target == dut.target.name


class Wire:
    """Frames to and from a runner, without Session's idea of what is right."""

    def __init__(self, target: Target, elf: Elf, directory: Path) -> None:
        self.process = launchers.start(target, elf, directory)
        self.decoder = Decoder()
        self.waiting: list[ProtocolFrame] = []
        self.events: list[ProtocolFrame] = []

    def close(self) -> None:
        self.process.close()

    def send(self, data: bytes) -> None:
        self.process.write(data, Deadline.after(SECONDS))

    def receive(self) -> ProtocolFrame:
        """The next response; events before it go to `events`."""
        deadline = Deadline.after(SECONDS)
        while True:
            while not self.waiting:
                self.waiting += self.decoder.feed(self.process.read(deadline))
            frame = self.waiting.pop(0)
            if frame.type & 0x80:
                return frame
            self.events.append(frame)

    def ask(self, kind: int, seq: int, payload: bytes = b"", version: int = VERSION) -> tuple[int, bytes]:
        """Status and body."""
        self.send(encode(ProtocolFrame(kind, seq, payload, version)))
        frame = self.receive()
        assert (frame.type, frame.seq) == (kind | 0x80, seq)
        return struct.unpack_from("<H", frame.payload)[0], frame.payload[2:]


@pytest.fixture
def wire(dut: Dut, tmp_path: Path) -> Iterator[Wire]:
    with closing(Wire(dut.target, dut.elf, tmp_path)) as opened:
        yield opened


def load_over(wire: Wire, known: KnownAnswer, first_seq: int = 100) -> None:
    at = range(0, len(known.program), 1024)
    for seq, offset in enumerate(at, first_seq):
        chunk = struct.pack("<BII", MemoryRegion.PROGRAM, 0, offset) + known.program[offset : offset + 1024]
        assert wire.ask(Request.WRITE, seq, chunk) == (ResponseStatus.OK, b"")
    announced = struct.pack("<II", len(known.program), zlib.crc32(known.program)) + FORWARD
    assert wire.ask(Request.LOAD, first_seq + len(at), announced)[0] == ResponseStatus.OK


# --- handshake -----------------------------------------------------------------------------------------------


@pytest.mark.first_only
def test_the_handshake_says_what_this_is(dut: Dut, session: Session) -> None:
    target, identity = dut.target, session.identity
    assert identity.build_id == dut.elf.build_id
    assert identity.config == target.config
    assert identity.cpuid >> 4 & 0xFFF == PART_NUMBERS[target.cpu]
    assert identity.isa == target.isa.value
    assert identity.runtime == "builtin" and identity.runtime_version
    assert identity.max_payload >= 256
    memory = target.board.memory
    assert (identity.program_pool, identity.planned_pool, identity.method_pool) == (
        memory.program.size,
        memory.planned,
        memory.method.size,
    )
    assert (identity.tick_hz == 0) == (identity.tick_source == "none")
    assert "cortex_m::quantized_linear.out" in identity.operators
    assert len(set(identity.operators)) == len(identity.operators)
    assert not any(name.startswith("hil_test::") for name in identity.operators)


def test_ready_comes_before_everything(dut: Dut, wire: Wire) -> None:
    assert wire.ask(Request.HELLO, 1)[0] == ResponseStatus.OK
    first = wire.events[0]
    assert (first.type, first.seq) == (Event.READY, 0)
    build_id = dut.elf.build_id.encode()
    assert first.payload == struct.pack("<H", len(build_id)) + build_id


@pytest.mark.parametrize("wrong", ["build_id", "config"])
def test_a_wrong_elf_never_runs_a_test(native: Dut, tmp_path: Path, wrong: str) -> None:
    good = native.elf
    elf = Elf(good.path, "0123", good.config) if wrong == "build_id" else Elf(good.path, good.build_id, "host/x/y")
    process = launchers.start(native.target, native.elf, tmp_path)
    with closing(process), pytest.raises(IdentityError, match=getattr(elf, wrong)):
        Session(native.target, elf, process)


def test_another_targets_elf_is_found_out(tmp_path: Path) -> None:
    """What ExecuTorch's #20048 was: another target's runner gives silent wrong results."""
    m4 = build_runner(target_named("m4-qemu"))
    m33 = dataclasses.replace(target_named("m4-qemu"), isa=Isa.SCALAR)
    wanted = build_runner(m33)
    process = launchers.start(m33, m4, tmp_path)
    with closing(process), pytest.raises(IdentityError, match=m4.build_id) as caught:
        Session(m33, wanted, process)
    assert wanted.build_id in caught.value.message
    assert str(wanted.path) in caught.value.hint and "reset or flash" not in caught.value.hint


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "flags", "said", "wanted"),
    [
        ("m33-scalar-qemu", "-mcpu=cortex-m3 -mfloat-abi=soft", "armv7-m", "armv8-m.main+fp"),
        (
            "m55-dsp-qemu",
            "-mcpu=cortex-m33 -mfloat-abi=hard -mfpu=fpv5-sp-d16",
            "armv8-m.main+fp+dsp",
            "armv8-m.main+fp.dp+dsp",
        ),
    ],
)
def test_an_elf_of_other_compiler_flags_is_found_out(
    tmp_path: Path, name: str, flags: str, said: str, wanted: str
) -> None:
    """Its build id and config are right, it boots and would compute: only its predefined macros give it away."""
    target = target_named(name)
    lying = build_runner(target, options={f"CMAKE_{language}_FLAGS": f"-mthumb {flags}" for language in ("C", "CXX")})
    process = launchers.start(target, lying, tmp_path)
    with closing(process), pytest.raises(IdentityError, match="architecture") as caught:
        Session(target, lying, process)
    assert f"{said!r}" in caught.value.message and f"{wanted!r}" in caught.value.message


@pytest.mark.first_only
@pytest.mark.parametrize("name", SIMULATED)
def test_every_targets_runner_is_what_it_should_be(name: str) -> None:
    with flow.open_dut(resolve(name, load_targets())) as dut:
        identity = dut.session().identity
    assert identity.cpuid >> 4 & 0xFFF == PART_NUMBERS[dut.target.cpu]
    assert (identity.isa, identity.architecture) == (dut.target.isa.value, dut.target.architecture)


# --- memory --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beyond", [-1, 0, 1])
@pytest.mark.parametrize("chunks", [1, 2])
def test_transfers_around_the_size_of_a_chunk(session: Session, chunks: int, beyond: int) -> None:
    for overhead in (9, 2):  # of a WRITE, of a READ's answer
        size = chunks * (session.identity.max_payload - overhead) + beyond
        data = np.random.default_rng(size).bytes(size)
        session.write(MemoryRegion.PROGRAM, 0, data)
        assert session.read(MemoryRegion.PROGRAM, 0, size) == data
        assert session.read(MemoryRegion.PROGRAM, 0, size - 7, offset=7) == data[7:]
        assert session.digest(MemoryRegion.PROGRAM, 0, length=size) == zlib.crc32(data)


def test_a_read_of_more_chunks_than_there_are_seqs(native: Dut, monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(
        exchange: Exchange, request: Request, payloads: Sequence[bytes], budget: object, again: object
    ) -> list[ProtocolFrame]:
        first, exchange.seq = exchange.seq + 1, exchange.seq + len(payloads)
        assert exchange.seq <= LAST_SEQ
        contents = [b"\0\0" + payload[-12:-11] for payload in payloads]
        return [ProtocolFrame(request | RESPONSE, first + at, content) for at, content in enumerate(contents)]

    session = native.session()
    monkeypatch.setattr(Exchange, "responses", answers)
    monkeypatch.setattr(session, "identity", dataclasses.replace(session.identity, max_payload=3))
    assert len(session.read(MemoryRegion.PROGRAM, 0, LAST_SEQ + 2)) == LAST_SEQ + 2


def test_small_and_empty_transfers(session: Session) -> None:
    session.write(MemoryRegion.PROGRAM, 0, b"")
    assert session.read(MemoryRegion.PROGRAM, 0, 0) == b""
    session.write(MemoryRegion.PROGRAM, 0, b"\0")
    assert session.read(MemoryRegion.PROGRAM, 0, 1) == b"\0"
    assert session.digest(MemoryRegion.PROGRAM, 0, length=0) == zlib.crc32(b"")


def test_the_end_of_a_region_can_be_reached_and_not_passed(dut: Dut, session: Session) -> None:
    size = session.identity.program_pool
    session.fill(MemoryRegion.PROGRAM, 0, 0x11)
    session.fill(MemoryRegion.PROGRAM, 0, 0x22, offset=size - 3)
    session.fill(MemoryRegion.PROGRAM, 0, 0x33, offset=size, length=0)
    assert session.digest(MemoryRegion.PROGRAM, 0, offset=size - 5) == zlib.crc32(b"\x11\x11\x22\x22\x22")
    assert session.digest(MemoryRegion.PROGRAM, 0) == zlib.crc32(b"\x11" * (size - 3) + b"\x22" * 3)
    assert session.read(MemoryRegion.PROGRAM, 0, 4, offset=size - 4) == b"\x11\x22\x22\x22"
    with refused(dut, "outside"):
        session.digest(MemoryRegion.PROGRAM, 0, offset=size + 1)


@pytest.mark.parametrize(("offset", "length"), [(0, 1), (1, 0), (0xFFFFFFFE, 3), (0xFFFFFFFF, 1), (0, 0xFFFFFFFE)])
def test_what_lies_beyond_a_region_is_refused(dut: Dut, offset: int, length: int) -> None:
    """`offset` and `length` count from the end of the planned arena, and wrap round 32 bits or not."""
    session = dut.session()
    end = session.load(known_answer(dut.target.isa).program).planned
    offset = offset if offset > end else end + offset
    for call in (session.fill, session.digest):
        with refused(dut, "outside"):
            call(MemoryRegion.PLANNED, 0, *([0] if call == session.fill else []), offset=offset, length=length)


def test_a_read_beyond_a_region_is_refused(dut: Dut, loaded: Session) -> None:
    end = loaded.load(known_answer(dut.target.isa).program).planned
    assert len(loaded.read(MemoryRegion.PLANNED, 0, 3, offset=end - 3)) == 3
    with refused(dut, "outside"):
        loaded.read(MemoryRegion.PLANNED, 0, 3, offset=end - 2)


def test_a_write_beyond_a_region_writes_nothing(dut: Dut, loaded: Session, known: KnownAnswer) -> None:
    nbytes = known.inputs[0].spec.nbytes
    with refused(dut, "outside"):
        loaded.write(MemoryRegion.INPUT, 0, b"\xee" * (nbytes + 1))
    assert loaded.read(MemoryRegion.INPUT, 0, nbytes) == known.inputs[0].data


def test_fill_reaches_exactly_the_bytes_it_names(loaded: Session, known: KnownAnswer) -> None:
    data = bytearray(known.inputs[0].data)
    loaded.fill(MemoryRegion.INPUT, 0, 0x7E, offset=5, length=7)
    data[5:12] = b"\x7e" * 7
    assert loaded.read(MemoryRegion.INPUT, 0, len(data)) == bytes(data)
    assert loaded.digest(MemoryRegion.INPUT, 0, offset=5, length=7) == zlib.crc32(b"\x7e" * 7)


def test_planned_memory_is_what_the_program_says(session: Session, known: KnownAnswer) -> None:
    file = parse_pte(known.program)
    planned = session.load(known.program).planned
    assert planned % ALIGNMENT == 0 and planned >= file.planned_bytes
    session.fill(MemoryRegion.PLANNED, 0, 0xA5)
    assert session.read(MemoryRegion.PLANNED, 0, planned) == b"\xa5" * planned
    assert session.digest(MemoryRegion.PLANNED, 0, length=TO_THE_END) == zlib.crc32(b"\xa5" * planned)


def test_constants_and_outputs_are_read_only(dut: Dut, known: KnownAnswer) -> None:
    file = parse_pte(known.program)
    constants = [value.index for value in file.values if value.spec is not None and file.constant(value.index)]
    assert constants
    for region, index in ((MemoryRegion.OUTPUT, 0), (MemoryRegion.VALUE, constants[0])):
        session = dut.session()
        session.load(known.program)
        with refused(dut, "read only"):
            session.write(region, index, b"\0")


def test_constants_arrive_as_they_are_in_the_file(loaded: Session, known: KnownAnswer) -> None:
    file = parse_pte(known.program)
    for value in file.values:
        constant = file.constant(value.index) if value.spec is not None else None
        if constant is not None:
            assert loaded.read(MemoryRegion.VALUE, value.index, len(constant.data)) == constant.data


@pytest.mark.parametrize(
    ("region", "index", "text"),
    [
        *(
            (region, 10_000, "no such value")
            for region in (MemoryRegion.INPUT, MemoryRegion.OUTPUT, MemoryRegion.VALUE)
        ),
        (MemoryRegion.PLANNED, 1, "no such bank"),
        (MemoryRegion.BANK, 1, "no such bank"),
        (MemoryRegion.PROGRAM, 1, "index is not 0"),
        (9, 0, "not a region"),
    ],
)
def test_what_does_not_exist_is_refused(dut: Dut, region: MemoryRegion, index: int, text: str) -> None:
    session = dut.session()
    session.load(known_answer(dut.target.isa).program)
    with refused(dut, text):
        session.read(region, index, 1)


@pytest.mark.parametrize("region", [MemoryRegion.PLANNED, MemoryRegion.VALUE, MemoryRegion.INPUT, MemoryRegion.OUTPUT])
def test_without_a_program_there_are_no_values(dut: Dut, region: MemoryRegion) -> None:
    session = dut.session()
    session.reset()
    with refused(dut, "BAD_STATE: no program is loaded"):
        session.read(region, 0, 1)


@pytest.mark.parametrize("step", [True, False], ids=["step", "execute"])
def test_without_a_program_nothing_is_executed(dut: Dut, step: bool) -> None:
    session = dut.session()
    session.reset()
    with refused(dut, "BAD_STATE"):
        session.step(1, SECONDS) if step else session.execute(SECONDS)


# --- programs ------------------------------------------------------------------------------------------------


def test_counts_and_descriptions_are_the_files(session: Session, known: KnownAnswer) -> None:
    file = parse_pte(known.program)
    counts = session.load(known.program)
    assert (counts.inputs, counts.outputs) == (len(file.inputs), len(file.outputs))
    assert (counts.values, counts.instructions) == (len(file.values), len(file.instructions))
    assert session.describe(MemoryRegion.INPUT, 0) == known.inputs[0].spec
    assert session.describe(MemoryRegion.OUTPUT, 0) == known.expected[0].spec
    for value in file.values:
        spec = session.describe(MemoryRegion.VALUE, value.index)
        if value.kind is ValueKind.TENSOR:
            assert spec == value.spec
        elif value.kind in (ValueKind.INT, ValueKind.DOUBLE, ValueKind.BOOL):
            assert spec == TensorSpec.scalar(value.kind)
            assert session.read(MemoryRegion.VALUE, value.index, 8)
        else:
            assert spec is None
    assert set(DTYPES) == set(SCALAR_TYPES.values())


@pytest.mark.first_only
def test_builtin_takes_no_other_size_of_an_input(dut: Dut, session: Session, known: KnownAnswer) -> None:
    shape = known.inputs[0].spec.shape

    def resize(number: int, *sizes: int) -> None:
        session._ask(Request.RESIZE, struct.pack(f"<IB{len(sizes)}i", number, len(sizes), *sizes))

    session.load(known.program)
    resize(0, *shape)
    session.set_input(0, known.inputs[0])
    session.execute(SECONDS)
    assert session.get_output(0) == known.expected[0]
    for number, sizes, said in (
        (0, (shape[0] + 1, *shape[1:]), "input 0 cannot be resized: the runtime builtin"),
        (0, shape[1:], "input 0 cannot be resized"),
        (9, shape, "input 9 does not exist"),
        (0, (-1, *shape[1:]), "a negative size"),
        (0, (1 << 20, 1 << 20), "too many elements"),
        (0, (1,) * 17, "too many dimensions"),
    ):
        session = dut.session()
        session.load(known.program)
        with refused(dut, f"BAD_REQUEST: {said}"):
            session._ask(Request.RESIZE, struct.pack(f"<IB{len(sizes)}i", number, len(sizes), *sizes))
    with refused(dut, "BAD_STATE"):
        dut.session()._ask(Request.RESIZE, struct.pack("<IB", 0, 0))


def test_a_program_gives_the_right_bits_again_and_again(loaded: Session, known: KnownAnswer) -> None:
    for _ in range(3):
        loaded.set_input(0, known.inputs[0])  # planned memory is used again: the output may lie on the input
        loaded.execute(SECONDS)
        assert loaded.get_output(0) == known.expected[0]


def test_stepping_is_executing(loaded: Session, known: KnownAnswer) -> None:
    """Outputs, and every value after the end, are the same by any way there."""
    values = [
        value.index for value in parse_pte(known.program).values if loaded.describe(MemoryRegion.VALUE, value.index)
    ]
    count = len(parse_pte(known.program).instructions)

    def run(*steps: int) -> list[int]:
        loaded.fill(MemoryRegion.PLANNED, 0, 0xA5)
        loaded.set_input(0, known.inputs[0])
        if not steps:
            loaded.execute(SECONDS)
        for number, step in enumerate(steps, 1):
            reached = loaded.step(step, SECONDS)
            assert reached.done == (number == len(steps))
            assert reached.next == (0 if reached.done else sum(steps[:number]))
        assert loaded.get_output(0) == known.expected[0]
        return [loaded.digest(MemoryRegion.VALUE, index) for index in values]

    whole = run()
    assert count > 1
    assert run(*[1] * count) == whole
    assert run(1, count - 1) == whole
    assert run(count) == whole
    assert run(0xFFFFFFFF) == whole


def test_a_step_executes_one_instruction_and_no_more(loaded: Session, known: KnownAnswer) -> None:
    count = len(parse_pte(known.program).instructions)
    for number in range(1, count):
        assert loaded.step(1, SECONDS).next == number
        assert loaded.get_output(0) != known.expected[0]
    assert loaded.step(1, SECONDS).done
    assert loaded.get_output(0) == known.expected[0]
    loaded.execute(SECONDS)  # restarts at instruction 0
    assert loaded.step(1, SECONDS).next == 1


def test_a_step_of_nothing_moves_nothing(loaded: Session) -> None:
    assert loaded.step(0, SECONDS).next == 0
    loaded.step(1, SECONDS)
    reached = loaded.step(0, SECONDS)
    assert (reached.next, reached.done) == (1, False)


def test_many_programs_on_one_boot(dut: Dut, session: Session, known: KnownAnswer) -> None:
    pid = process_of(session).pid
    for isa in (dut.target.isa, *Isa):
        try:
            session.load(known_answer(isa).program)
        except ProgramRejected:
            continue
    flow.selftest(dut)
    session.reset()
    flow.selftest(dut)
    assert dut.session() is session
    assert process_of(session).pid == pid


def test_stats_are_those_of_the_program(loaded: Session, known: KnownAnswer) -> None:
    loaded.execute(SECONDS)
    stats, identity = loaded.stats(), loaded.identity
    assert stats["program"].used == len(known.program)
    assert stats["planned"].used >= parse_pte(known.program).planned_bytes > 0
    assert 0 < stats["method"].used <= stats["method"].size
    assert (stats["program"].size, stats["planned"].size) == (identity.program_pool, identity.planned_pool)
    assert stats["stack"].used <= stats["stack"].size
    loaded.reset()
    assert (loaded.stats()["program"].used, loaded.stats()["planned"].used) == (0, 0)


def test_the_peak_of_the_stack_is_not_that_of_a_program_before(dut: Dut) -> None:
    """Whatever ran since the boot: figures of a test must not depend on the order of tests."""
    dut.restart()
    alone = flow.selftest(dut).stats
    program = Program.from_bytes((REPOSITORY / "tests/fuzz_seeds/floats.pte").read_bytes(), "floats.pte")
    zeros = tuple(HostTensor(spec, bytes(spec.nbytes)) for spec in program.file.input_specs())
    larger = flow.run(dut, program, zeros, linted=False).stats["stack"]
    assert larger.used > alone["stack"].used or not larger.size
    assert flow.selftest(dut).stats == alone


def test_writing_over_a_loaded_program_is_the_end_of_it(dut: Dut, loaded: Session) -> None:
    loaded.fill(MemoryRegion.PROGRAM, 0, 0, offset=64, length=1)
    with refused(dut, "BAD_STATE"):
        loaded.execute(SECONDS)


def test_a_program_larger_than_its_pool_is_not_sent(dut: Dut, session: Session) -> None:
    size = session.identity.program_pool
    with pytest.raises(OutOfTargetMemory, match=f"program pool: {size + 1} bytes requested, {size} available"):
        session.load(bytes(size + 1))
    flow.selftest(dut)
    assert dut.session() is session


def test_a_rejected_program_leaves_the_session_usable(dut: Dut, session: Session, known: KnownAnswer) -> None:
    for rubbish in (b"", b"\0", b"not a program at all", known.program[: len(known.program) // 2]):
        with pytest.raises(ProgramRejected) as caught:
            session.load(rubbish)
        assert caught.value.target == dut.target.name
        flow.selftest(dut)
    assert dut.session() is session


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_mutations_are_rejected_or_run(native: Dut, data: st.DataObject) -> None:
    """The sanitizers see to it that a bad byte does no more than that."""
    session = native.session()
    whole = known_answer(data.draw(st.sampled_from(Isa))).program
    mutated = bytearray(whole[: data.draw(st.integers(0, len(whole)))] if data.draw(st.booleans()) else whole)
    for place, value in data.draw(st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=6)):
        if mutated:
            mutated[place % len(mutated)] = value
    try:
        session.load(bytes(mutated))
        session.execute(SECONDS)
    except (ProgramRejected, UnsupportedOperator, OutOfTargetMemory):
        pass
    assert native.session() is session


# --- the wire ------------------------------------------------------------------------------------------------


def test_a_retransmission_gets_the_same_answer_and_executes_nothing(wire: Wire, known: KnownAnswer) -> None:
    load_over(wire, known)
    one = struct.pack("<I", 1)
    step = encode(ProtocolFrame(Request.STEP, 7, one))
    wire.send(step)
    first = wire.receive()
    progress = len(wire.events)
    for _ in range(3):
        wire.send(step)
        assert wire.receive() == first
    assert len(wire.events) == progress  # no instruction began
    position, _, _ = struct.unpack("<IBQ", wire.ask(Request.STEP, 8, one)[1])
    assert struct.unpack_from("<I", first.payload, 2)[0] == 1
    assert position in (2, 0) and len(wire.events) == progress + 1


def test_the_same_seq_with_another_type_is_another_request(wire: Wire, known: KnownAnswer) -> None:
    load_over(wire, known)
    assert wire.ask(Request.STATS, 7)[0] == ResponseStatus.OK
    assert wire.ask(Request.RESET, 7) == (ResponseStatus.OK, b"")
    assert wire.ask(Request.STATS, 8)[1].startswith(b"\x07\0program" + bytes(4))


def test_data_without_a_stream_is_refused_and_touches_no_program(wire: Wire, known: KnownAnswer) -> None:
    load_over(wire, known)
    for data in (b"", b"x"):
        assert wire.ask(Request.DATA, 7, data)[0] == ResponseStatus.BAD_REQUEST
        assert wire.ask(Request.STEP, 8, struct.pack("<I", 0))[0] == ResponseStatus.OK, "the program is gone"


def test_data_goes_where_its_seq_says_and_never_beyond_its_stream(wire: Wire) -> None:
    stream = struct.pack("<BIIII", MemoryRegion.PROGRAM, 0, 10, 7, 3)  # at 10: chunks of 3, 3 and 1
    assert (
        wire.ask(Request.FILL, 6, struct.pack("<BIIIB", MemoryRegion.PROGRAM, 0, 0, 30, 0x2E))[0] == ResponseStatus.OK
    )
    assert wire.ask(Request.STREAM, 7, stream)[0] == ResponseStatus.OK
    for seq, data in ((10, b"g"), (9, b"xyz"), (8, b"abc"), (9, b"def")):
        assert wire.ask(Request.DATA, seq, data)[0] == ResponseStatus.OK
    for seq, data in ((8, b"four"), (10, b"gh"), (11, b"x"), (7, b"x")):
        assert wire.ask(Request.DATA, seq, data)[0] == ResponseStatus.BAD_REQUEST
    whole = wire.ask(Request.READ, 12, struct.pack("<BIII", MemoryRegion.PROGRAM, 0, 0, 30))[1]
    assert whole == b"." * 10 + b"abcdefg" + b"." * 13


def test_garbage_between_frames_is_survived(dut: Dut, session: Session) -> None:
    good = encode(ProtocolFrame(Request.STATS, 1))
    broken = bytearray(good)
    broken[-3] ^= 1
    for garbage in (b"noise", b"\0\0\0", bytes(range(256)) * 40, bytes(broken), good[:-2], b"\xff" * 300 + b"\0"):
        session._process.write(garbage, Deadline.after(SECONDS))
        assert session.stats()["program"].size == session.identity.program_pool
    flow.selftest(dut)


def test_many_requests_in_one_write_are_all_answered(wire: Wire) -> None:
    wire.send(b"".join(encode(ProtocolFrame(Request.STATS, seq)) for seq in range(1, 51)))
    assert [wire.receive().seq for _ in range(50)] == list(range(1, 51))


def test_requests_that_make_no_sense_are_refused(wire: Wire, known: KnownAnswer) -> None:
    load_over(wire, known)
    assert wire.ask(Request.HELLO, 1, version=1)[0] == ResponseStatus.BAD_VERSION
    assert wire.ask(0x3F, 2)[0] == ResponseStatus.BAD_REQUEST
    assert wire.ask(0x00, 3)[0] == ResponseStatus.BAD_REQUEST
    assert wire.ask(Request.HELLO, 0)[0] == ResponseStatus.BAD_REQUEST
    for seq, kind in enumerate(Request, 10):
        assert wire.ask(kind, seq, b"\x01\x02\x03")[0] == ResponseStatus.BAD_REQUEST
    for seq, kind in enumerate((Request.READ, Request.DIGEST), 30):
        payload = struct.pack("<BIII", MemoryRegion.PROGRAM, 0, 0, 1)
        assert wire.ask(kind, seq, payload)[0] == ResponseStatus.OK
        assert wire.ask(kind, seq + 10, payload + b"\0")[0] == ResponseStatus.BAD_REQUEST
    too_long = struct.pack("<BIII", MemoryRegion.PROGRAM, 0, 0, 1 << 20)
    assert wire.ask(Request.READ, 50, too_long)[0] == ResponseStatus.BAD_REQUEST
    assert wire.ask(Request.STEP, 51, struct.pack("<I", 1))[0] == ResponseStatus.OK  # the program is still there


def test_events_from_the_host_are_ignored(wire: Wire) -> None:
    for kind in (Event.LOG, Event.FAULT, 0x81, 0xFF):
        wire.send(encode(ProtocolFrame(kind, 1, b"??")))
    assert wire.ask(Request.STATS, 2)[0] == ResponseStatus.OK


def test_a_program_that_arrives_damaged_is_not_loaded(wire: Wire, known: KnownAnswer) -> None:
    load_over(wire, known)
    wrong = struct.pack("<II", len(known.program), zlib.crc32(known.program) ^ 1) + FORWARD
    assert wire.ask(Request.LOAD, 1, wrong)[0] == ResponseStatus.BAD_DIGEST
    assert wire.ask(Request.EXECUTE, 2)[0] == ResponseStatus.BAD_STATE
    load_over(wire, known)
    pool = 1 << 31
    status, body = wire.ask(Request.LOAD, 3, struct.pack("<II", pool, 0) + FORWARD)
    assert status == ResponseStatus.OUT_OF_MEMORY
    assert struct.unpack_from("<iQ", body) == (-1, pool)


@pytest.mark.parametrize("text", ["", "forward\0", "x" * 129], ids=["empty", "with a zero", "too long"])
def test_what_is_no_name_of_a_method_is_a_bad_request(wire: Wire, known: KnownAnswer, text: str) -> None:
    """It forgets no program: the request was not understood."""
    load_over(wire, known)
    announced = struct.pack("<II", len(known.program), zlib.crc32(known.program))
    assert wire.ask(Request.LOAD, 1, announced + name(text))[0] == ResponseStatus.BAD_REQUEST
    assert wire.ask(Request.STEP, 2, struct.pack("<I", 1))[0] == ResponseStatus.OK


# --- life and death ------------------------------------------------------------------------------------------


def test_end_of_file_ends_the_runner_with_status_zero(wire: Wire) -> None:
    assert wire.ask(Request.HELLO, 1)[0] == ResponseStatus.OK
    wire.process.end_input()
    with pytest.raises(LinkClosed):
        wire.process.read(Deadline.after(SECONDS))
    assert wire.process.wait(SECONDS) == 0


@pytest.mark.parametrize("half", [b"\0\x05\x01", b"\0"])
def test_end_of_file_in_the_middle_of_a_frame_is_an_end_too(wire: Wire, half: bytes) -> None:
    wire.send(half)
    wire.process.end_input()
    assert wire.process.wait(SECONDS) == 0


def test_a_killed_simulator_is_an_infra_error_and_the_next_session_boots_anew(dut: Dut) -> None:
    session = dut.session()
    pid = process_of(session).pid
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(LaunchError, match=r"killed from outside \(SIGKILL\)") as caught:
        session.stats()
    assert caught.value.target == dut.target.name
    assert session.broken
    flow.selftest(dut)
    assert process_of(dut.session()).pid != pid


def test_killed_in_the_middle_of_a_transfer(dut: Dut) -> None:
    session = dut.session()
    process = process_of(session)
    size = session.identity.program_pool
    killer = threading.Thread(target=os.kill, args=(process.pid, signal.SIGKILL))
    killer.start()
    with pytest.raises(LaunchError, match="killed from outside"):
        for _ in range(1000):
            session.write(MemoryRegion.PROGRAM, 0, bytes(min(size, 1 << 16)))
    killer.join()
    flow.selftest(dut)


def test_a_closed_session_stays_closed(native: Dut) -> None:
    session = native.session()
    session.close()
    session.close()
    assert session.broken
    flow.selftest(native)
    assert native.session() is not session


def test_two_duts_of_one_target_do_not_meet(dut: Dut) -> None:
    with flow.open_dut(dut.resolved) as other:
        first, second = dut.session(), other.session()
        first.write(MemoryRegion.PROGRAM, 0, b"first")
        second.write(MemoryRegion.PROGRAM, 0, b"other")
        assert (first.read(MemoryRegion.PROGRAM, 0, 5), second.read(MemoryRegion.PROGRAM, 0, 5)) == (b"first", b"other")


def test_process_reports_time_of_the_engine_only(native: Dut) -> None:
    process = process_of(native.session())
    budget = process.budget(1000.0)
    assert not budget.expired
    spent = process.cpu_seconds()
    native.close()
    assert process.cpu_seconds() >= spent  # what it last was, though it is gone


def test_a_fault_while_the_host_is_writing_is_still_a_fault(native: Dut, tmp_path: Path) -> None:
    """The pipe to the runner breaks before anybody has read its fault report."""
    body = struct.pack("<iIBIIII8II", -1, 3, 0, *[0] * 13) + struct.pack("<H", 2) + b"op"
    identity = Wire(native.target, native.elf, tmp_path)
    with closing(identity):
        assert identity.ask(Request.HELLO, 1)[0] == ResponseStatus.OK
        hello = ProtocolFrame(Request.HELLO, 1)
        identity.send(encode(hello))
        (tmp_path / "hello").write_bytes(encode(identity.receive()))
    one_name = struct.pack("<HIH", ResponseStatus.OK, 1, len(b"aten::add.out")) + b"aten::add.out"
    (tmp_path / "names").write_bytes(encode(ProtocolFrame(Request.OPERATORS | RESPONSE, 2, one_name)))
    (tmp_path / "last").write_bytes(encode(ProtocolFrame(Event.FAULT, 0, body)))
    # Stops to read only when the second request is there: that one must not meet a broken pipe.
    greet = f"head -c {len(encode(hello))} >/dev/null; cat hello; head -c 1 >/dev/null; cat names"
    script = f"{greet}; exec <&-; cat last; exit 70"
    process = Process(["sh", "-c", script], cwd=tmp_path)
    with closing(process):
        session = Session(native.target, native.elf, process)
        with pytest.raises(TargetFault, match="HardFault") as caught:
            session.write(MemoryRegion.PROGRAM, 0, bytes(1 << 20))
    assert caught.value.operator == "op"
