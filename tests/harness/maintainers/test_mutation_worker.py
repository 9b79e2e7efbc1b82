"""Mutants of `native`'s runner, judged by the known-answer program: no test is run, no torch is needed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from cortex_m_hil import flow
from cortex_m_hil.campaigns.worker_processes import Worker
from cortex_m_hil.checks.comparison.tolerance import Tolerance
from cortex_m_hil.diagnose.failure_bundle import Attempt, BundleTask
from cortex_m_hil.diagnose.failure_bundle_file import write_bundle
from cortex_m_hil.diagnose.failure_bundle_schema import PASSED
from cortex_m_hil.errors import LaunchError
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.host.paths import package_data
from cortex_m_hil.maintainers.mutation import kept_programs as ready
from cortex_m_hil.maintainers.mutation import mutation_worker
from cortex_m_hil.maintainers.mutation.kernel_sources import Kernels
from cortex_m_hil.maintainers.mutation.mutation_worker import MutantOutcome, MutatedTarget, MutationWorkerSettings
from cortex_m_hil.maintainers.mutation.source_mutants import SourceMutant, mutants_of
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.program.program import Program, References
from cortex_m_hil.runner.links.protocol import Request
from cortex_m_hil.runner.session.session import ResponseTimeout
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve

OPERATORS = "dequantize_per_tensor", "quantize_per_tensor", "quantized_linear"
KERNELS = Kernels.read(package_data("firmware"))
RESOLVED = resolve("native", load_targets())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Has the known-answer program as a test that passed would leave it."""
    path = tmp_path_factory.mktemp("kept")
    known = known_answer(RESOLVED.target.isa)
    references = References(dialect=tuple(one.array() for one in known.expected))
    program = replace(
        Program.from_bytes(known.program, "known.pte"), inputs=known.inputs, reference=lambda _: references,
        isa=RESOLVED.target.isa,
    )  # fmt: skip
    with flow.open_dut(RESOLVED) as dut:
        task = BundleTask(program, program.inputs, Tolerance(qtol=0))
        seen: list[flow.Checked] = []
        flow.verify(dut, program, tolerance=Tolerance(qtol=0), observe=seen.append)
        ended = Attempt.from_task(dut, task, None, seen[0])
        write_bundle(ended.bundle("test_it.py::test_it", with_runner=False), path / "native" / "known.hil.zip")
    return path


@pytest.fixture(scope="module")
def mutated(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MutatedTarget]:
    target = MutatedTarget(RESOLVED, ready.kept_in(folder / "native"), KERNELS, tmp_path_factory.mktemp("built"))
    yield target
    target.unmutated.close()


def mutant(path: str, function: str, before: str, after: str) -> SourceMutant:
    """Return the first mutant of this description."""
    (file,) = (file for file in KERNELS.sources if Path(file).name == path)
    return next(
        one
        for one in mutants_of(file, KERNELS.sources[file])
        if (one.function, one.before, one.after) == (function, before, after)
    )


LINEAR = "linear.cpp"
FIRST = mutant(LINEAR, "compute_block", "multipliers[i] = linear.multiplier;", ";")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("one", "outcome", "why"),
    [
        (FIRST, MutantOutcome.KILLED, "Mismatch in test_it.py::test_it"),
        (replace(FIRST, text="while (true) {}".ljust(len(FIRST.text))), MutantOutcome.KILLED, "TargetHang in test_it"),
        (replace(FIRST, text="(".ljust(len(FIRST.text))), MutantOutcome.NOT_BUILT, "error"),
        (replace(FIRST, text=FIRST.before), MutantOutcome.UNCHANGED, ""),
        (mutant(LINEAR, "only_item", "==", "!="), MutantOutcome.KILLED, "TargetFault in test_it"),
        (mutant(LINEAR, "quantized_linear", "-128", "-129"), MutantOutcome.SURVIVED, ""),
    ],
    ids=["mismatch", "hang", "not built", "no change", "fault", "survived"],
)  # fmt: skip
def test_what_becomes_of_a_mutant(mutated: MutatedTarget, one: SourceMutant, outcome: MutantOutcome, why: str) -> None:
    assert mutated.operators() == sorted(f"cortex_m::{name}.out" for name in OPERATORS)
    run = mutated.judge(one, {"known.hil.zip": 0.01}, localized=False)
    assert (run.verdict, why in run.error) == (outcome.value, True), run
    assert ("diff" in run.figures) == (outcome is MutantOutcome.SURVIVED)
    assert "cortex_m::quantized_linear.out" in run.figures["operators"] and run.figures["isa"] == "SCALAR"


@pytest.mark.slow
def test_a_hang_of_a_busy_machine_is_no_verdict(mutated: MutatedTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the unmutated kernels do not end either."""

    def stuck(dut: Dut, program: ready.ReadyProgram) -> None:
        raise ResponseTimeout(Request.EXECUTE, "", "")

    monkeypatch.setattr(ready, "judge_kept_program", stuck)
    run = mutated.judge(FIRST, {"known.hil.zip": 0.01}, localized=False)
    assert run.verdict == MutantOutcome.INFRA.value and "the unmutated runner does not answer either" in run.error


@pytest.mark.slow
def test_programs_are_timed_without_a_mutant(mutated: MutatedTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 < (mutated.time()["known.hil.zip"] or 0) < 60
    monkeypatch.setattr(ready.ReadyProgram, "expected", "Mismatch")
    assert mutated.time() == {"known.hil.zip": None}


def test_a_worker_that_ends_says_why(folder: Path, tmp_path: Path) -> None:
    settings = json.dumps(asdict(MutationWorkerSettings(str(folder), ("native",))))
    worker = Worker("hil dev mutate", [mutation_worker.__name__, settings], tmp_path / "log")
    with pytest.raises(LaunchError, match="nothing"):
        worker.ask({"target": "nothing"})
    with pytest.raises(LaunchError, match="has ended: KeyError"):
        worker.ask({})
    with pytest.raises(LaunchError, match="has ended"):
        worker.ask({"target": "native"})
    worker.end()


def test_programs_of_the_operator_come_first(folder: Path) -> None:
    (one,) = ready.kept_in(folder / "native")
    quick, slow = (replace_seconds(one, seconds) for seconds in (0.1, 0.2))
    assert ready.ordered([slow, quick], frozenset()) == [quick, slow]
    assert one.expected == PASSED and one.test == "test_it.py::test_it"
    assert replace_seconds(one, 5.0).limit == 30.0 and quick.limit == ready.LEAST_SECONDS


def replace_seconds(program: ready.ReadyProgram, seconds: float) -> ready.ReadyProgram:
    return ready.ReadyProgram(program.path, seconds)
