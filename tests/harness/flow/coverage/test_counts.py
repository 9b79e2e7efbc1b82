"""Counts are merged in any order, and come back from JSON as they were; what a runner tells is checked."""

from __future__ import annotations

import copy
import json
import os
import shutil
import struct
import time
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortex_m_hil import flow
from cortex_m_hil.errors import ConfigError, ProtocolError, ToolchainError
from cortex_m_hil.flow.coverage import gcov
from cortex_m_hil.flow.coverage.counting import Counting, check
from cortex_m_hil.flow.coverage.counts import ClassCoverage, Counts, Coverage, LostCounts, Share, total
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.program.program import Program
from cortex_m_hil.runner.build import COUNTING, build_runner
from cortex_m_hil.runner.links import protocol
from cortex_m_hil.runner.links.protocol import PayloadReader
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import Resolved, resolve
from cortex_m_hil.targets.target import Clock
from paths import REPOSITORY

TARGETS = load_targets()
SIMULATED = ["native", "m4-qemu", "m55-qemu", "m0-qemu"]

times = st.integers(0, 1 << 40)
counts = st.builds(
    Counts,
    st.dictionaries(st.integers(1, 50), times, max_size=5),
).flatmap(
    lambda one: st.builds(
        Counts,
        st.just(one.lines),
        st.dictionaries(
            st.sampled_from(sorted(one.lines)), st.lists(times, min_size=1, max_size=4)
        ) if one.lines else st.just({}),
    )
)  # fmt: skip
classes = st.builds(
    ClassCoverage,
    st.sets(st.sampled_from(SIMULATED)),
    st.integers(0, 9),
    st.dictionaries(st.sampled_from(["dot.h", "linear.cpp"]), counts),
    st.dictionaries(st.text(), st.dictionaries(st.sampled_from(["dot.h", "linear.cpp"]), st.integers(1, 99))),
)
losses = st.builds(LostCounts, st.text(), st.text(), st.text())
coverages = st.builds(
    Coverage, st.dictionaries(st.sampled_from(["DSP", "MVE"]), classes), st.lists(losses), st.lists(st.text())
)


def merged(*parts: Coverage) -> Coverage:
    together = Coverage()
    for part in copy.deepcopy(parts):
        together.add(part)
    return together


@given(coverages)
def test_it_comes_back_from_json(coverage: Coverage) -> None:
    assert Coverage.from_fields(json.loads(json.dumps(coverage.fields()))) == coverage


@pytest.mark.slow
@given(coverages, coverages)
def test_the_order_of_merging_makes_no_difference(a: Coverage, b: Coverage) -> None:
    assert merged(a, b).classes == merged(b, a).classes
    for name, one in merged(a, b).classes.items():
        parts = [part.classes[name] for part in (a, b) if name in part.classes]
        assert one.boots == sum(part.boots for part in parts)
        for kind, share in enumerate(total(one.files)):
            assert max(total(part.files)[kind].covered for part in parts) <= share.covered <= share.all


def test_what_one_instance_of_a_template_executed_counts() -> None:
    found = Counts()
    found.add_line(7, 0, [0, 0])
    found.add_line(7, 3, [3, 0, 1])
    found.add_line(9, 0, [])
    assert (found.lines, found.branches) == ({7: 3, 9: 0}, {7: [3, 0, 1]})
    assert (found.share_of_lines, found.share_of_branches) == (Share(1, 2), Share(2, 3))
    fields = Coverage({"DSP": ClassCoverage(files={"a.cpp": found})}).fields()["classes"]["DSP"]
    assert fields["files"]["a.cpp"]["uncovered_lines"] == [9]
    assert fields["files"]["a.cpp"]["uncovered_branches"] == [7]
    assert (fields["lines"], fields["branches"]) == ({"covered": 1, "all": 2}, {"covered": 2, "all": 3})


def lines_of(text: str) -> set[int]:
    spans = [span.partition("-") for span in text.split(", ") if span]
    return {number for first, _, last in spans for number in range(int(first), int(last or first) + 1)}


@given(counts)
def test_the_lines_that_are_named_are_those_not_executed(one: Counts) -> None:
    assert lines_of(one.uncovered) & one.lines.keys() == {line for line, count in one.lines.items() if count == 0}


def test_neighbours_are_a_range() -> None:
    assert Counts({3: 0, 4: 0, 9: 0, 10: 1, 12: 0}).uncovered == "3-9, 12"


# --- what a runner tells -------------------------------------------------------------------------------------


def told(files: Mapping[str, bytes]) -> bytes:
    parts = [(name.encode(), content) for name, content in files.items()]
    return b"".join(
        struct.pack("<H", len(name)) + name + struct.pack("<I", len(content)) + content for name, content in parts
    )


@given(st.dictionaries(st.from_regex(r"[a-z][a-z.]{0,9}\.gcda", fullmatch=True), st.binary(max_size=20)), st.data())
def test_files_are_read_whole_or_not_at_all(files: dict[str, bytes], data: st.DataObject) -> None:
    raw = told(files)
    assert protocol.coverage(PayloadReader("COVERAGE", raw)) == files
    if raw:
        cut = raw[: data.draw(st.integers(1, len(raw) - 1))]
        try:
            part = protocol.coverage(PayloadReader("COVERAGE", cut))
        except ProtocolError:
            return
        assert part.items() < files.items()  # cut between two files


@pytest.mark.parametrize("name", ["../a.gcda", "a.gcno", "", ".gcda", "a/b.gcda"])
def test_a_name_that_is_no_plain_file_is_refused(name: str) -> None:
    with pytest.raises(ProtocolError, match="the name of a"):
        protocol.coverage(PayloadReader("COVERAGE", told({name: b""})))


def test_a_file_that_is_told_twice_is_refused() -> None:
    with pytest.raises(ProtocolError, match="each once"):
        protocol.coverage(PayloadReader("COVERAGE", 2 * told({"a.gcda": b"x"})))


# --- on targets ----------------------------------------------------------------------------------------------


def opened(name: str) -> flow.Dut:
    return flow.open_dut(resolve(name, TARGETS), options=COUNTING)


def run_known_answer(dut: flow.Dut) -> None:
    known = known_answer(dut.target.isa)
    assert flow.run(dut, Program.from_bytes(known.program, "known.pte"), known.inputs).ran.clock is Clock.INSTRUMENTED


@pytest.mark.slow
@pytest.mark.parametrize("name", SIMULATED)
def test_what_a_program_executes_is_counted_and_nothing_else(name: str) -> None:
    with opened(name) as dut:
        before = gcov.kernels(dut.target, dut.elf, dut.session().coverage())
        run_known_answer(dut)
        session = dut.session()
        once = gcov.kernels(dut.target, dut.elf, session.coverage())
        assert gcov.kernels(dut.target, dut.elf, session.coverage()) == once  # reading executes no kernel
        run_known_answer(dut)
        twice = gcov.kernels(dut.target, dut.elf, session.coverage())
    assert total(before)[0].covered == 0 and before.keys() == once.keys()
    assert {"linear.cpp", "softmax.cpp", "dot.h"} <= once.keys()
    assert once["linear.cpp"].share_of_lines.covered and once["linear.cpp"].share_of_branches.covered
    assert not once["softmax.cpp"].share_of_lines.covered
    for file, counts in once.items():
        assert twice[file].lines == {line: 2 * count for line, count in counts.lines.items()}


@pytest.mark.slow
def test_sources_newer_than_the_runner_that_was_built_of_the_same_content_are_no_complaint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a checkout: a runner of the same content is not built anew."""
    sources = tmp_path / "firmware" / "runtime" / "builtin"
    shutil.copytree(REPOSITORY / "firmware" / "runtime" / "builtin", sources)
    later = time.time() + 3600
    for path in sources.rglob("*"):
        os.utime(path, (later, later))
    monkeypatch.chdir(tmp_path)
    with opened("native") as dut:
        assert gcov.kernels(dut.target, dut.elf, dut.session().coverage())


@pytest.mark.slow
def test_what_gcov_cannot_read_is_said_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """However often a run reads it."""
    with opened("native") as dut:
        dut.counting = Counting(dut.target, dut.elf, "builtin")
        monkeypatch.setenv("PATH", str(tmp_path))
        for _ in range(2):
            run_known_answer(dut)
            dut.read_coverage()
    found = Coverage()
    dut.counting.tell(found)
    (lost,) = found.lost
    assert "gcov" in lost.why


@pytest.mark.slow
def test_a_session_that_dies_is_said_and_what_was_read_before_is_kept() -> None:
    with opened("native") as dut:
        dut.counting, dut.what = Counting(dut.target, dut.elf, "builtin"), "the first"
        run_known_answer(dut)
        dut.read_coverage()
        dut.what = "the second"
        run_known_answer(dut)
        (simulator,) = psutil.Process(dut.session()._process.pid).children()  # type: ignore[attr-defined]
        simulator.kill()
        dut.read_coverage()
        dut.what = "the third"
        run_known_answer(dut)
    found = Coverage()
    dut.counting.tell(found)
    (lost,) = found.lost
    assert (lost.where, lost.during) == ("native", "the second") and lost.why
    assert found.classes["SCALAR (host)"].boots == 2
    alone = Coverage()
    with opened("native") as dut:
        dut.counting = Counting(dut.target, dut.elf, "builtin")
        run_known_answer(dut)
        run_known_answer(dut)
    dut.counting.tell(alone)
    assert alone.classes["SCALAR (host)"].files == found.classes["SCALAR (host)"].files


def test_a_runner_that_does_not_count_says_so() -> None:
    with flow.open_dut(resolve("native", TARGETS)) as dut, pytest.raises(ProtocolError, match="counts nothing"):
        dut.session().coverage()


@pytest.mark.slow
def test_notes_of_another_build_are_an_error_and_no_coverage() -> None:
    with opened("native") as dut:
        counted = dut.session().coverage()
    other = build_runner(TARGETS["m4-qemu"], options=COUNTING)
    with pytest.raises(ToolchainError, match="gcov"):
        gcov.kernels(dut.target, other, counted)
    with pytest.raises(ToolchainError, match="other files than were compiled: dot"):
        gcov.kernels(dut.target, dut.elf, {name: data for name, data in counted.items() if name != "dot.cpp.gcda"})


@pytest.mark.slow
def test_a_runner_whose_notes_are_damaged_is_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a cache of its own: notes of another build than the ELF's are of no use to who runs it."""
    monkeypatch.setenv("HIL_CACHE_DIR", str(tmp_path))
    elf = build_runner(TARGETS["native"], options=COUNTING)
    note = elf.notes / "dot.cpp.gcno"
    whole = note.read_bytes()
    note.write_bytes(whole[:100])
    assert build_runner(TARGETS["native"], options=COUNTING) == elf and elf.counts
    assert len(note.read_bytes()) == len(whole)


@pytest.mark.slow
def test_a_runner_that_counts_coverage_is_another_build() -> None:
    elf, plain = build_runner(TARGETS["native"], options=COUNTING), build_runner(TARGETS["native"])
    assert elf.build_id != plain.build_id and elf.path != plain.path
    assert list(elf.notes.iterdir()) and not plain.notes.exists() and not plain.counts


@pytest.mark.parametrize("name", ["m4-fvp", "nucleo-f446re", "vboard-f405"])
def test_boards_and_fvps_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="on QEMU and native only") as caught:
        check(Resolved(TARGETS[name], TARGETS[name], "builtin"))
    assert "a QEMU target of its ISA class" in caught.value.hint


def test_executorch_needs_a_prefix_that_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIL_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("HIL_EXECUTORCH_PREFIX", raising=False)
    with pytest.raises(ConfigError, match="no ExecuTorch that counts coverage is installed for cortex-m4") as caught:
        check(Resolved(TARGETS["m4-qemu"], TARGETS["m4-qemu"], "executorch"))
    assert "hil executorch install --cpu cortex-m4 --coverage" in caught.value.hint
    with pytest.raises(ConfigError, match="on the host count no coverage"):
        check(Resolved(TARGETS["native"], TARGETS["native"], "executorch"))
