"""Bundles: what is written is read, equal bundles are equal files, and a damaged one is a ConfigError."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cortex_m_hil as hil
from cortex_m_hil import flow
from cortex_m_hil.checks.comparison.compare_outputs import compare
from cortex_m_hil.checks.comparison.tolerance import Tolerance
from cortex_m_hil.diagnose.failure_bundle import Attempt, Bundle, BundleTask
from cortex_m_hil.diagnose.failure_bundle_file import DESCRIPTION, PROGRAM, pack_bundle, read_bundle, write_bundle
from cortex_m_hil.diagnose.failure_bundle_schema import Recorded
from cortex_m_hil.diagnose.replay import replay
from cortex_m_hil.errors import ConfigError, InfraError, Mismatch
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.host import archives
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.program.program import Intermediate, Program, References, ScratchNeed
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve
from failure_bundles import TEST, failure, mismatch
from several_methods import PAIR, modules, three_methods


@pytest.fixture(scope="module")
def native() -> Iterator[Dut]:
    with flow.open_dut(resolve("native", load_targets())) as dut:
        yield dut


@pytest.fixture(scope="module")
def bundle(native: Dut) -> Bundle:
    """With a small file in the place of the runner."""
    return replace(mismatch(native), elf=b"\x7fELF")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bundles")


def of_bytes(folder: Path, data: bytes) -> Bundle:
    path = folder / "x.hil.zip"
    path.write_bytes(data)
    return read_bundle(path)


def test_a_failure_is_all_there(native: Dut, bundle: Bundle, folder: Path) -> None:
    found = of_bytes(folder, pack_bundle(bundle))
    said = found.description
    assert (said.test, said.seed, said.rerun) == (TEST, 7, "pytest test_it.py")
    assert (said.verdict.type, said.verdict.operator) == ("Mismatch", "cortex_m::quantized_linear.out")
    assert said.machine.target.name == said.machine.requested.name == "native"
    assert said.machine.target.entry == {"cpu": "host", "isa": "scalar", "board": "native", "launcher": "native"}
    assert (said.machine.engine[:5], said.machine.runtime, said.machine.build_id) == (
        "host ", "builtin", native.elf.build_id,
    )  # fmt: skip
    assert {"python", "torch", "executorch"} <= set(said.machine.versions)
    assert said.judgement.seconds == native.seconds and found.task.tolerance == Tolerance(qtol=1)
    assert found.task.program.pte == known_answer(Isa.SCALAR).program and found.task.linted
    assert found.task.inputs == known_answer(Isa.SCALAR).inputs
    assert found.outputs == known_answer(Isa.SCALAR).expected
    assert found.task.program.scratch is not None and found.task.program.scratch(Isa.MVE) == ()
    assert found.task.program.reference is not None
    assert found.task.program.reference(()) is found.references


def data_with(data: bytes, edit: Callable[[Any], object]) -> bytes:
    """The bytes of a bundle after a change of its description."""
    with zipfile.ZipFile(io.BytesIO(data)) as opened:
        members = {name: opened.read(name) for name in opened.namelist()}
    said = json.loads(members[DESCRIPTION])
    edit(said)
    return archives.pack({**members, DESCRIPTION: json.dumps(said).encode()})


def test_a_bundle_names_its_method(native: Dut, folder: Path) -> None:
    """And replays that one."""
    program = hil.load_program(three_methods(), method="decode")
    inputs = tuple(HostTensor.from_array(one.numpy()) for one in PAIR)
    expected = References(expected=tuple(-one.detach().numpy() for one in modules()["decode"][0](*PAIR)))
    program = replace(program, inputs=inputs, reference=lambda _: expected)
    data = pack_bundle(failure(native, BundleTask(program, inputs, Tolerance())).bundle(TEST))
    found = of_bytes(folder, data)
    assert (found.description.program.method, found.task.program.file.method) == ("decode", "decode")
    assert len(found.outputs) == 2 and replay(found, native).reproduced
    other = data_with(data, lambda said: said["program"].update(method="reset"))
    with pytest.raises(ConfigError, match=r"program\.pte has 2 instructions, 4 named"):
        of_bytes(folder, other)
    missing = data_with(data, lambda said: said["program"].update(method="no"))
    with pytest.raises(ConfigError, match=r"the program has 3 methods: decode, encode, reset, and not 'no'"):
        of_bytes(folder, missing)


def test_a_bundle_of_format_1_has_a_program_of_one_method(bundle: Bundle, folder: Path) -> None:
    def older(said: Any) -> None:
        said["schema_version"] = 1
        del said["program"]["method"]

    assert of_bytes(folder, data_with(pack_bundle(bundle), older)).task.program.file.method == "forward"


def test_a_verdict_before_any_output(native: Dut, folder: Path) -> None:
    """Of the lint: the program is for another class."""
    program = Program.from_bytes(known_answer(Isa.MVE).program, "x.pte")
    program = replace(program, inputs=known_answer(Isa.MVE).inputs, isa=Isa.MVE)
    found = of_bytes(folder, pack_bundle(failure(native, BundleTask(program, program.inputs)).bundle(TEST)))
    assert (found.description.verdict.type, found.outputs, found.task.tolerance) == ("LintError", (), None)


def test_a_bundle_is_written_whole_or_not_at_all(bundle: Bundle, tmp_path: Path) -> None:
    path = tmp_path / "new" / "x.hil.zip"
    write_bundle(bundle, path)
    assert path.read_bytes() == pack_bundle(bundle)
    write_bundle(replace(bundle, log="other"), path)
    assert read_bundle(path).log == "other"
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    (tmp_path / "file").touch()
    with pytest.raises(InfraError, match="cannot write"):
        write_bundle(bundle, tmp_path / "file" / "x.hil.zip")


def test_scratch_is_known_on_each_class() -> None:
    need = ScratchNeed(1, "conv", 4, 10, 20, ((Isa.DSP, 30), (Isa.SCALAR, 0)))
    assert need.on(Isa.MVE, Isa.MVE) is need
    assert need.on(Isa.DSP, Isa.MVE) == ScratchNeed(1, "conv", 4, 30, 20, ((Isa.MVE, 10), (Isa.SCALAR, 0)))


# --- what is written is read -----------------------------------------------------------------------------

DTYPES = ("float32", "float64", "int8", "uint8", "int64", "bool", "float16")


@st.composite
def host_tensors(draw: st.DrawFn) -> HostTensor:
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=4)))
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    count = int(np.prod(shape)) * dtype.itemsize
    data = bytes(draw(st.lists(st.integers(0, 1 if dtype.kind == "b" else 255), min_size=count, max_size=count)))
    order = tuple(draw(st.permutations(range(len(shape)))))
    return HostTensor.from_array(np.frombuffer(data, dtype).reshape(shape), order)


def of_scalars() -> st.SearchStrategy[HostTensor]:
    return st.one_of(st.booleans(), st.integers(-(1 << 63), (1 << 63) - 1), st.floats()).map(HostTensor.from_scalar)


def arrays() -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(host_tensors().map(HostTensor.array), max_size=2).map(tuple)


@st.composite
def references(draw: st.DrawFn) -> References:
    dialect, quantized = draw(arrays()), draw(arrays())
    disturbed, floats = ((one,) * draw(st.integers(0, 2)) for one in (quantized, dialect))
    return References(dialect, quantized, draw(st.none() | arrays()), disturbed, draw(st.none() | arrays()), floats)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    outputs=st.lists(host_tensors() | of_scalars(), max_size=3).map(tuple),
    known=references(),
    text=st.text(max_size=30),
    detail=st.lists(st.tuples(st.text(max_size=5), st.text(max_size=30)), max_size=2).map(tuple),
    qtol=st.integers(0, 1 << 70),
    isa=st.sampled_from([*Isa, None]),
)
def test_what_is_written_is_read(
    native: Dut,
    bundle: Bundle,
    folder: Path,
    outputs: Any,
    known: References,
    text: str,
    detail: Any,
    qtol: int,
    isa: Isa | None,
) -> None:
    """Texts, classes, amounts, and every bit of an array: the same bundle gives the same file."""
    task = replace(bundle.task, tolerance=Tolerance(qtol=qtol), program=replace(bundle.task.program, isa=isa))
    error = Mismatch(text, operator=text, details=detail)
    again = Attempt(task, error, native, None, 3.5, text, known, outputs)
    whole = replace(again.bundle(text, rerun=text), elf=b"\x7fELF")
    data = pack_bundle(whole)
    found = of_bytes(folder, data)
    assert found.description == whole.description and found.description.verdict == Recorded.of(error)
    assert found.outputs == outputs and found.task.tolerance == task.tolerance and found.task.program.isa is isa
    assert archives.unpack(folder / "x.hil.zip").keys() == archives_of(data).keys()
    assert archives_of(pack_bundle(replace(found, log=whole.log))) == archives_of(data)


def archives_of(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_intermediates_come_back(native: Dut, bundle: Bundle, folder: Path) -> None:
    file = bundle.task.program.file
    known = tuple(intermediates(bundle.task.program))
    said = Attempt(bundle.task, Mismatch("x"), native, None, 1.0, "", bundle.references, bundle.outputs, known).bundle(
        TEST
    )
    found = of_bytes(folder, pack_bundle(said))
    assert found.task.program.intermediates is not None
    again = found.task.program.intermediates(())
    assert len(again) == len(file.instructions)
    for one, other in zip(again, known, strict=True):
        assert (one.dialect, one.scale, one.graph_quanta, one.source) == (
            other.dialect, other.scale, other.graph_quanta, other.source,
        )  # fmt: skip
        assert one.eager is not None and other.eager is not None and (one.eager == other.eager).all()


def intermediates(program: Program) -> Iterator[Intermediate]:

    for instruction in program.file.instructions:
        specs = [program.file.values[place].spec for place in program.file.dataflow.written[instruction.index]]
        values = tuple(HostTensor(spec, bytes(spec.nbytes)) for spec in specs if spec is not None)
        floats = np.ones(values[0].spec.shape, np.float32)
        yield Intermediate(values, floats, floats, 0.5, -3, 1, "model.py:3")


# --- what somebody else wrote ----------------------------------------------------------------------------


def judged(found: Bundle) -> None:
    """What replaying does with it on this machine."""
    task = found.task
    if task.tolerance is not None and len(found.outputs) == len(task.program.file.outputs):
        compare(task.program.file, found.outputs, found.references, task.tolerance)


def read_or_refused(folder: Path, data: bytes) -> None:
    try:
        judged(of_bytes(folder, data))
    except ConfigError as error:
        assert str(folder) in error.message and error.hint


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 1 << 20), what=st.binary(max_size=8), cut=st.booleans())
def test_a_bundle_with_damaged_bytes_is_read_or_refused(
    bundle: Bundle, folder: Path, place: int, what: bytes, cut: bool
) -> None:
    data = pack_bundle(bundle)
    place %= len(data) + 1
    read_or_refused(folder, data[:place] + what + (b"" if cut else data[place + len(what) :]))


LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.just(1 << 80), st.floats(allow_nan=False), st.text(max_size=5),
    st.just([]), st.just([1, -1]), st.just({}), st.sampled_from(["MVE", "Int", "float32", "object", "\x1b[2J"]),
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in items:
        yield from places(one, (*path, key))


def changed(value: Any, path: tuple[Any, ...], leaf: Any) -> Any:
    if not path:
        return leaf
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(value[path[0]], path[1:], leaf)
    return copy


@settings(max_examples=250, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(number=st.integers(0, 10_000), leaf=LEAVES)
def test_a_description_that_is_another(bundle: Bundle, folder: Path, number: int, leaf: Any) -> None:
    members = archives_of(pack_bundle(bundle))
    said = json.loads(members[DESCRIPTION])
    every = list(places(said))
    members[DESCRIPTION] = json.dumps(changed(said, every[number % len(every)], leaf)).encode()
    read_or_refused(folder, archives.pack(members))


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(number=st.integers(0, 100), other=st.integers(0, 100), cut=st.integers(0, 500))
def test_a_bundle_with_swapped_members_is_read_or_refused(
    bundle: Bundle, folder: Path, number: int, other: int, cut: int
) -> None:
    members = archives_of(pack_bundle(bundle))
    names = list(members)
    members[names[number % len(names)]] = members[names[other % len(names)]][cut:]
    read_or_refused(folder, archives.pack(members))


def with_member(name: str, data: bytes) -> Callable[[dict[str, bytes]], None]:
    return lambda members: members.update({name: data})


def npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (with_member("../../etc/passwd", b"x"), "'../../etc/passwd' is no member of a bundle"),
        (lambda members: members.pop("inputs/0.npy"), "it has no inputs/0.npy"),
        (lambda members: members.pop(DESCRIPTION), "it has no bundle.json"),
        (with_member(DESCRIPTION, b'{"schema_version": 4, "new": 1}'), "its format is 4"),
        (with_member(DESCRIPTION, b'{"schema_version": "1"}'), "bundle.json: 'schema_version'"),
        (with_member(DESCRIPTION, b"[" * 100_000), "bundle.json"),
        (with_member(PROGRAM, b"no program"), "program.pte: "),
        (with_member("inputs/0.npy", npy(np.zeros((1, 3), np.float32))), "inputs/0.npy: float32[1, 3], and"),
        (with_member("got/0.npy", npy(np.array([{}]))), "got/0.npy: "),
        (with_member("references/dialect/0.npy", npy(np.array(["text"]))), "dtype <U4 is no number"),
    ],
)
def test_what_is_wrong_is_said(bundle: Bundle, folder: Path, change: Any, text: str) -> None:
    members = archives_of(pack_bundle(bundle))
    change(members)
    with pytest.raises(ConfigError) as error:
        of_bytes(folder, archives.pack(members))
    assert text in error.value.message, error.value.message


@pytest.mark.slow
def test_a_bomb_is_not_inflated(tmp_path: Path) -> None:
    """By what its members claim; and what is there beyond the claim is not read."""
    path = tmp_path / "bomb.hil.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(9):
            archive.writestr(f"{number}", bytes(1 << 27))
    with pytest.raises(ConfigError, match=r"its members claim \d+ bytes"):
        read_bundle(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("0", bytes(1 << 27))
    size = (1 << 27).to_bytes(4, "little")
    path.write_bytes(path.read_bytes().replace(size, (5).to_bytes(4, "little")))
    with pytest.raises(ConfigError, match="it is damaged"):
        read_bundle(path)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "it is no zip file"),
        (b"PK\5\6" + b"\0" * 4 + b"\xff\xff" * 2 + b"\xff" * 8 + b"\0\0", "it claims 65535 members"),
        (b"PK\6\7" + bytes(16) + b"PK\5\6" + bytes(18), "it claims 0 members"),
        (b"PK\5\6" + bytes(18), "it has no bundle.json"),
    ],
)
def test_an_invalid_bundle_is_a_config_error(folder: Path, data: bytes, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        of_bytes(folder, data)


def test_two_members_of_one_name(folder: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("a", b"1")
        archive.writestr("a", b"2")
    with pytest.raises(ConfigError, match="two members are called 'a'"):
        of_bytes(folder, buffer.getvalue())
