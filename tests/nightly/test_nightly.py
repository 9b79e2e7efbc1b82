"""hil nightly over many interruptions, and many times over: the same results, and nothing that changed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
import xml.etree.ElementTree as xml
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from command_line import OK, answers, running, spawn
from cortex_m_hil.campaigns.nightly.nightly import KIND, is_result, run_of
from cortex_m_hil.campaigns.report.nightly_results import RUNNER, Result
from cortex_m_hil.campaigns.store import Run, Store
from cortex_m_hil.host.paths import package_data
from cortex_m_hil.program import known_answer

KILLS, NIGHTLIES, SEED = 50, 30, 15
PROGRAM = Path(known_answer.__file__).parent / "scalar.pte"
TESTS = f"""
import numpy, pytest

@pytest.mark.parametrize("number", range(20))
def test_runs(run_pte, number):
    run_pte({str(PROGRAM)!r}, [numpy.full((1, 16), number / 20, "float32")])
"""
# The firmware in the folder, if there is one.
RUNNERS = """
import pathlib, pytest
from cortex_m_hil.runner.build import build_runner

@pytest.fixture
def runner_elf(target_spec):
    changed = pathlib.Path("firmware").absolute()
    return build_runner(target_spec.target, firmware=changed if changed.exists() else None)
"""
LINEAR = "cortex_m::quantized_linear.out"
HEAD = "void quantized_linear(KernelContext& ctx) {\n"
HISTORY, SLOWER, LARGER = 12, 1.03, 2048
TARGETS = "native,m0-qemu,m4-qemu"
CALL = ("nightly", "test_it.py", "-t", TARGETS)


# Times; and an interrupt may be at the peak of the stack, or not.
VOLATILE = frozenset(
    {"began", "ended", "seconds", "cpu_seconds", "run_seconds", "host_ticks", "stack_bytes", "time", "timestamp"}
)


def results(folder: Path, store: str) -> Any:
    """Without what differs from run to run."""
    return without_times(answers(spawn("results", "show", "--json", "--store", store, cwd=folder).out))


def report(folder: Path, store: str) -> tuple[Any, list[tuple[str, str, dict[str, str]]]]:
    """What the report's files for machines have, without what differs from run to run."""
    target = folder / f"report of {store}"
    assert spawn("results", "report", "last", "-o", target, "--store", store, cwd=folder).status == OK
    cases = []
    for case in xml.parse(target / "junit.xml").getroot().iter("testcase"):
        found = {one.get("name", ""): one.get("value", "") for one in case.iter("property")}
        steady = {name: value for name, value in found.items() if not VOLATILE & {name, name.removeprefix("hil_")}}
        cases.append((case.get("classname", ""), case.get("name", ""), steady))
    assert (target / "index.html").stat().st_size
    return without_times(json.loads((target / "results.json").read_text())), sorted(cases, key=str)


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_times(one) for name, one in value.items() if name not in VOLATILE}
    return [without_times(one) for one in value] if isinstance(value, list) else value


def kill(folder: Path, store: str, seconds: float) -> None:
    with running(*CALL, "--store", store, cwd=folder) as process:
        time.sleep(seconds)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()


def ended(folder: Path, store: str) -> bool:
    with Store(folder / store) as kept:
        return any(one.ended is not None for one in kept.campaigns(KIND))


def test_killed_again_and_again_it_ends_as_one_that_was_not(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    began = time.monotonic()
    assert spawn(*CALL, "--store", "whole.sqlite", cwd=tmp_path).status == OK
    longest = time.monotonic() - began
    whole, reported = results(tmp_path, "whole.sqlite"), report(tmp_path, "whole.sqlite")
    chance, kills, number = random.Random(SEED), 0, 0
    while kills < KILLS:
        number += 1
        store = f"{number}.sqlite"
        while kills < KILLS and not ended(tmp_path, store):
            kill(tmp_path, store, chance.uniform(0, longest))
            kills += not ended(tmp_path, store)
        assert ended(tmp_path, store) or spawn(*CALL, "--store", store, cwd=tmp_path).status == OK
        assert results(tmp_path, store) == whole
        assert report(tmp_path, store) == reported
    print(f"{kills} kills of {number} nightlies, seed {SEED}")


def test_nothing_changes_from_nightly_to_nightly(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    for number in range(NIGHTLIES):
        done = spawn(*CALL, "--json", "--store", "s.sqlite", cwd=tmp_path)
        assert done.status == OK, done
        told = json.loads(done.out)
        assert told["changes"] == [] and (told["compared_with"] is None) == (number == 0)


def test_four_shards_are_the_whole(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    assert spawn(*CALL, "--store", "whole.sqlite", cwd=tmp_path).status == OK
    for number in (1, 2, 3, 4):
        store = ("--store", f"{number}.sqlite")
        assert spawn(*CALL, "--shard", f"{number}/4", *store, cwd=tmp_path).status == OK
        assert spawn("results", "export", "-o", f"{number}.jsonl.gz", *store, cwd=tmp_path).status == OK
    files = [f"{number}.jsonl.gz" for number in (1, 2, 3, 4)]
    assert spawn("results", "merge", *files, "--store", "merged.sqlite", cwd=tmp_path).status == OK
    assert results(tmp_path, "merged.sqlite") == results(tmp_path, "whole.sqlite")
    assert report(tmp_path, "merged.sqlite") == report(tmp_path, "whole.sqlite")


def compared(folder: Path, store: str) -> list[dict[str, Any]]:
    done = spawn("results", "compare", "--json", "--store", store, cwd=folder)
    found: list[dict[str, Any]] = json.loads(done.out)["changes"]
    return found


def test_an_instruction_more_in_a_kernel_is_told_with_its_operator(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS.replace("range(20)", "range(2)"))
    (tmp_path / "conftest.py").write_text(RUNNERS)
    call = ("nightly", "test_it.py", "-t", "m0-qemu,m4-qemu", "--store", "s.sqlite")
    assert spawn(*call, cwd=tmp_path).status == OK
    shutil.copytree(package_data("firmware"), tmp_path / "firmware")
    kernel = tmp_path / "firmware" / "runtime" / "builtin" / "kernels" / "linear.cpp"
    text = kernel.read_text()
    assert text.count(HEAD) == 1
    kernel.write_text(text.replace(HEAD, f'{HEAD}  __asm__ volatile("nop");\n'))
    assert spawn(*call, cwd=tmp_path).status == OK
    found = compared(tmp_path, "s.sqlite")
    slower = [one for one in found if one["kind"] == "slower"]
    assert len(slower) == 4  # 2 tests on 2 targets
    for one in slower:
        [part] = one["parts"]
        assert int(one["after"]) - int(one["before"]) == part["after"] - part["before"] == 1
        assert (one["figure"], part["name"]) == ("instructions", LINEAR)
    # Between functions there may be room for an instruction, or not.
    assert {one["figure"] for one in found} <= {"instructions", "elf_bytes", "elf_stored_bytes"}
    told = spawn("results", "compare", "--store", "s.sqlite", cwd=tmp_path).out
    [line] = [line for line in told.splitlines() if line.startswith("  slower")]
    assert (
        ": +1, +" in line and f"({LINEAR} +1; most by {LINEAR} in operator 1: +1) test_it.py::" in line
    )  # one entry, with all tests and targets
    assert told.count("[m0-qemu") + told.count("[m4-qemu") >= 4 or told.count("m0-qemu, m4-qemu") == 2


def with_a_board(result: Result, random: np.random.Generator, by: float) -> Iterator[Result]:
    """What an M0 gave, and what a board would have."""
    yield result
    if result.key.target == "m0-qemu" and result.key.test != RUNNER:
        slower = by * random.normal(1, 0.002)
        cycles = round(float(result.figures["instructions"][0]) * slower)
        parts = {"cycles": {name: round(of * slower) for name, of in result.parts["instructions"].items()}}
        key = replace(result.key, target="board")
        yield replace(result, key=key, ran="board", engine="board", figures={"cycles": (cycles,)}, parts=parts)


def grown(result: Result) -> Result:
    """A byte more in an operator of a runner, and in its flash, and a larger model of one test."""
    if result.key.test == RUNNER:
        return more(more(result, "elf_bytes", LINEAR, 1), "elf_stored_bytes", ".text", 1)
    return more(result, "pte_bytes", "constants", LARGER) if result.key.test.endswith("[7]") else result


def more(result: Result, figure: str, part: str, by: int) -> Result:
    parts = {**result.parts[figure], part: result.parts[figure][part] + by}
    figures = {**result.figures, figure: (result.total(figure) + by,)}  # type: ignore[operator]
    return replace(result, figures=figures, parts={**result.parts, figure: parts})


def test_what_is_injected_into_the_store_is_told_and_nothing_else(tmp_path: Path) -> None:
    """A byte more in an operator, a board 3 % slower, and a model 2 KB larger, after quiet nights."""
    (tmp_path / "test_it.py").write_text(TESTS)
    assert spawn("nightly", "test_it.py", "-t", "m0-qemu", "--store", "s.sqlite", cwd=tmp_path).status == OK
    random = np.random.default_rng(3)
    with Store(tmp_path / "s.sqlite") as kept:
        [first] = kept.campaigns(KIND)
        results = [Result.of_fields(run.figures) for run in kept.runs(first) if is_result(run)]

        def add(number: int, by: float, results: list[Result]) -> None:
            campaign = kept.begin(KIND, first.folder, first.plan, first.began + number)
            runs: list[Run] = [run_of(one) for result in results for one in with_a_board(result, random, by)]
            kept.record(campaign, *runs)
            kept.end(campaign)

        for number in range(HISTORY):
            add(number, 1.0, results)
    assert compared(tmp_path, "s.sqlite") == []
    with Store(tmp_path / "s.sqlite") as kept:
        add(HISTORY, SLOWER, [grown(one) for one in results])
    found = {(one["kind"], one["figure"], one["test"], one["target"]): one for one in compared(tmp_path, "s.sqlite")}
    assert found.keys() == {
        ("slower", "cycles", "", "board"),
        ("larger", "elf_bytes", RUNNER, "m0-qemu"),
        ("larger", "elf_stored_bytes", RUNNER, "m0-qemu"),
        ("larger", "pte_bytes", "test_it.py::test_runs[7]", "m0-qemu"),
    }
    assert 2.8 <= float(found["slower", "cycles", "", "board"]["after"].removesuffix(" %")) <= 3.2
    assert [part["name"] for part in found["slower", "cycles", "", "board"]["parts"]] == ["all operators"]
    [byte] = found["larger", "elf_bytes", RUNNER, "m0-qemu"]["parts"]
    assert (byte["name"], byte["after"] - byte["before"]) == (LINEAR, 1)
    [model] = found["larger", "pte_bytes", "test_it.py::test_runs[7]", "m0-qemu"]["parts"]
    assert (model["name"], model["after"] - model["before"]) == ("constants", LARGER)
