"""Mutants: made by rule, the same each time; and what hosts and targets make of them."""

from __future__ import annotations

import json
import struct
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from cortex_m_hil import flow
from cortex_m_hil.cli import __main__ as cli
from cortex_m_hil.errors import ProgramRejected, TargetHang
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.host import timeouts
from cortex_m_hil.lowering.scratch import required_scratch
from cortex_m_hil.maintainers.fuzzing import fuzz_campaign as campaign
from cortex_m_hil.maintainers.fuzzing.mutant_judge import Fuzzer, FuzzOutcome, MutantJudgement
from cortex_m_hil.maintainers.fuzzing.program_mutator import BLIND, FieldEdit, Mutator, ProgramMutant, mutants, sites
from cortex_m_hil.program.example_inputs import example_inputs
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.pte_reader import parse_pte, read_all_methods
from cortex_m_hil.program.schema import InstructionKind
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve
from paths import REPOSITORY

HERE = REPOSITORY / "tests"
SEEDS = {path.stem: path.read_bytes() for path in sorted((HERE / "fuzz_seeds").glob("*.pte"))}
KNOWN_ANSWERS = {f"self-test-{isa.value}": known_answer(isa).program for isa in Isa}
PROGRAMS = {**SEEDS, **KNOWN_ANSWERS}
REGRESSIONS = sorted((HERE / "fuzz_regressions").glob("*.pte"))
SEED = 20261121
MANY = 2000
TARGETS = load_targets()


@pytest.fixture(scope="module", params=["native", "m4-qemu"])
def dut(request: pytest.FixtureRequest) -> Iterator[Dut]:
    with flow.open_dut(resolve(request.param, TARGETS)) as opened:
        yield opened


@pytest.fixture(scope="module")
def native() -> Iterator[Dut]:
    with flow.open_dut(resolve("native", TARGETS)) as opened:
        yield opened


def program(name: str) -> Program:
    return Program.from_bytes(PROGRAMS[name], f"{name}.pte")


def regression(name: str) -> Program:
    return Program.from_bytes((HERE / "fuzz_regressions" / f"{name}.pte").read_bytes(), f"{name}.pte")


# --- the mutator ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_kind_occurs_and_most_know_the_fields(name: str) -> None:
    kinds = Counter(mutant.kind for mutant in islice(mutants(PROGRAMS[name], SEED), MANY))
    assert set(kinds) == set(FieldEdit)
    assert sum(number for kind, number in kinds.items() if kind not in BLIND) >= 0.6 * MANY


def test_a_mutant_follows_from_program_seed_and_number() -> None:
    first = list(islice(mutants(SEEDS["linear"], SEED), 200))
    assert first == list(islice(mutants(SEEDS["linear"], SEED), 200))
    assert first[123] == Mutator(SEEDS["linear"]).mutant(SEED, 123)
    assert [mutant.data for mutant in first] != [mutant.data for mutant in islice(mutants(SEEDS["linear"], 2), 200)]
    assert all(mutant.data != SEEDS["linear"] for mutant in first)


def test_a_field_edit_changes_the_fields_it_names() -> None:
    pte = SEEDS["autoencoder"]
    for mutant in islice(mutants(pte, SEED), 500):
        if mutant.field_aware and FieldEdit.MORPH is not mutant.kind and len(mutant.edits) == 1:
            changed = sum(a != b for a, b in zip(pte, mutant.data, strict=True))
            assert 1 <= changed <= 16, mutant.edits


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_walk_finds_what_the_parser_finds(name: str) -> None:
    methods = [method for method, _ in read_all_methods(PROGRAMS[name], name)]
    found = Counter(site.name for site in sites(PROGRAMS[name]))
    assert found["EValue.val_type"] == sum(len(one.values) for one in methods)
    assert found["Instruction.instr_args_type"] == sum(len(one.instructions) for one in methods)
    # Equal strings are stored once.
    assert found["Operator.name.length"] <= sum(len(one.operators) for one in methods)
    assert found["ExecutionPlan.inputs[0]"] == sum(bool(one.inputs) for one in methods)


# --- the judge -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fuzzer(native: Dut) -> Fuzzer:
    return Fuzzer(native, program("linear"))


def judge(fuzzer: Fuzzer, data: bytes) -> MutantJudgement:
    return fuzzer.judge(ProgramMutant(0, 0, FieldEdit.FLIP, ("by hand",), data))


def test_the_program_itself_passes(fuzzer: Fuzzer) -> None:
    assert judge(fuzzer, SEEDS["linear"]).outcome is FuzzOutcome.PASS
    assert judge(fuzzer, SEEDS["linear"] + b"tail").outcome is FuzzOutcome.PASS


def test_a_changed_weight_is_no_pass(fuzzer: Fuzzer) -> None:
    file = parse_pte(SEEDS["linear"])
    place = file.values[file.instructions[1].args[1]].constant
    assert place is not None
    data = bytearray(SEEDS["linear"])
    data[place[0]] ^= 0x40
    assert judge(fuzzer, bytes(data)).outcome is FuzzOutcome.DIFFERS


def test_constants_that_contradict_an_input_are_a_refusal_and_no_bug(native: Dut) -> None:
    """The host reads the scale of an int8 input when it checks the values for it."""
    fuzzer = Fuzzer(native, program("int8"))
    for number, said in ((51, r"input0_dtype is 1 \(int8\), and the tensor is int16"), (855, "no input0_quant_min")):
        mutant = fuzzer.mutator.mutant(20261127, number)
        with pytest.raises(ProgramRejected, match=said):
            Program.from_bytes(mutant.data, "mutant.pte").input_quantization(0)
        assert fuzzer.judge(mutant).outcome is FuzzOutcome.REFUSED  # by the kernel, as what the host refuses runs too


def test_nothing_passes_that_the_host_rejects(fuzzer: Fuzzer, monkeypatch: pytest.MonkeyPatch) -> None:
    def reject(data: bytes, source: str, method: str) -> Program:
        raise ProgramRejected("no")

    monkeypatch.setattr(Program, "from_bytes", reject)
    found = judge(fuzzer, SEEDS["linear"])
    assert (found.outcome, found.detail) == (FuzzOutcome.REJECTED, "by the host alone: no")


def test_an_exception_on_the_host_is_a_bug(fuzzer: Fuzzer, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(data: bytes, source: str, method: str) -> Program:
        raise IndexError("list index out of range")

    monkeypatch.setattr(Program, "from_bytes", crash)
    found = judge(fuzzer, SEEDS["linear"])
    assert (found.outcome, found.detail) == (FuzzOutcome.BUG, "host: IndexError: list index out of range")


def test_a_program_the_target_lacks_operators_for_lets_nothing_pass(fuzzer: Fuzzer) -> None:
    name = SEEDS["linear"].index(b"cortex_m::quantized_linear")
    data = SEEDS["linear"][:name] + b"cortex_m::quantized_lineal" + SEEDS["linear"][name + 26 :]
    other = Fuzzer(fuzzer.dut, Program.from_bytes(data, "lineal.pte"))
    assert "lineal" in other.unsuited
    assert judge(other, SEEDS["linear"]).outcome is FuzzOutcome.DIFFERS


# --- campaigns -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("target", "total"), [("native", 300), ("m4-qemu", 24)])
def test_a_small_campaign_finds_nothing(target: str, total: int) -> None:
    with flow.open_dut(resolve(target, TARGETS)) as opened:
        fuzzers = [Fuzzer(opened, program(name)) for name in PROGRAMS]
        tally = campaign.campaign(fuzzers, total, SEED, lambda *_: None)
    assert [(bug.mutant.kind, bug.mutant.edits, bug.detail) for bug in tally.bugs] == []
    assert tally.total == total


@pytest.mark.first_only
@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: path.stem)
def test_what_was_found_stays_mended(dut: Dut, path: Path) -> None:
    told = json.loads(path.with_suffix(".json").read_text())
    found = judge(Fuzzer(dut, program(told["program"])), path.read_bytes())
    assert found.outcome not in (FuzzOutcome.BUG, FuzzOutcome.PASS), found.detail


def test_a_bug_is_saved_with_what_makes_it_again(fuzzer: Fuzzer, tmp_path: Path) -> None:
    mutant = Mutator(SEEDS["linear"]).mutant(3, 14)
    path = campaign.save(tmp_path / "corpus", fuzzer, MutantJudgement(mutant, FuzzOutcome.BUG, "it broke"))
    told = json.loads(path.with_suffix(".json").read_text())
    assert path.read_bytes() == mutant.data == Mutator(SEEDS["linear"]).mutant(told["seed"], told["number"]).data
    assert told["detail"] == "it broke" and told["edits"] == list(mutant.edits)


def test_hil_dev_fuzz_finds_no_bug_in_20_mutants(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["fuzz", "--target", "native", "--count", "20", "--seed", "5", "--corpus", str(tmp_path)])
    out = capsys.readouterr().out
    assert end.value.code == 0 and "20 mutants" in out and "0 bugs" in out
    assert list(tmp_path.iterdir()) == []


# --- what was found ------------------------------------------------------------------------------------------


@pytest.mark.first_only
def test_a_program_that_jumps_in_circles_ends(dut: Dut) -> None:
    """It sends an event per instruction; the host once waited for the silence that never came."""
    endless = regression("endless-jump")
    quick = Dut(dut.resolved, dut.elf, multiplier=0.3 / timeouts.EXECUTION)
    began = time.monotonic()
    with quick, pytest.raises(TargetHang):
        flow.run(quick, endless, example_inputs(endless), linted=False)
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("name", ["scratch-argument", "scratch-cast"])  # TypeError, and pybind11's RuntimeError
def test_scratch_arguments_that_the_binding_cannot_take_are_a_verdict(name: str) -> None:
    with pytest.raises(ProgramRejected, match="cannot take"):
        required_scratch(regression(name).file, Isa.SCALAR)


@pytest.mark.slow
def test_a_constant_is_no_input(dut: Dut) -> None:
    mutated = regression("constant-input")
    with pytest.raises(ProgramRejected, match="a constant"):
        mutated.file.input_specs()
    with pytest.raises(ProgramRejected, match="a constant"):
        dut.session().load(mutated.pte)


def test_nothing_moves_into_an_input(dut: Dut) -> None:
    pte = bytearray(SEEDS["linear"])
    file, places = parse_pte(bytes(pte)), {site.name: site.at for site in reversed(sites(bytes(pte)))}
    kinds = [site.at for site in sites(bytes(pte)) if site.name == "Instruction.instr_args_type"]
    calls = [site.at for site in sites(bytes(pte)) if site.name == "KernelCall.args"]
    operators = [site.at for site in sites(bytes(pte)) if site.name == "KernelCall.op_index"]
    assert "ExecutionPlan.inputs[0]" in places and operators
    pte[kinds[-1]] = 1 + list(InstructionKind).index(InstructionKind.MOVE)
    struct.pack_into("<i", pte, operators[-1], file.instructions[1].args[0])
    struct.pack_into("<i", pte, calls[-1], file.inputs[0])
    assert parse_pte(bytes(pte)).instructions[-1].kind is InstructionKind.MOVE
    with pytest.raises(ProgramRejected, match="moves into an input"):
        dut.session().load(bytes(pte))
