"""`hil bench`: what it measures is in docs/performance.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import Files, Hil, answer, answers
from cortex_m_hil.bench.kernels import Count, OperatorCount
from cortex_m_hil.bench.matrix import Compared, Seconds
from cortex_m_hil.cli.answers import CANNOT_TELL, OK
from cortex_m_hil.cli.commands.bench import Row
from cortex_m_hil.cli.files import FORMULA
from cortex_m_hil.host.paths import cache_directory
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.launcher import Clock

MODULE = """
import torch

def make():
    return torch.nn.Linear(8, 4), (torch.rand(1, 8),)

def wrong():
    return torch.nn.Linear(8, 4)
"""
# Says in which cache it runs, and whether anything was lowered before; then it pretends to lower.
TEST = """
import os
from pathlib import Path

def test_itself():
    cache = Path(os.environ["HIL_CACHE_DIR"])
    with open("seen", "a") as seen:
        seen.write(f"{cache.name} {'warm' if (cache / 'lowerings').exists() else 'cold'}\\n")
    (cache / "lowerings").mkdir(exist_ok=True)
"""


@pytest.fixture
def no_executorch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cache with the runners of the user's, and without what `hil executorch install` may have left in it."""
    monkeypatch.delenv("HIL_EXECUTORCH_PREFIX", raising=False)
    cache = tmp_path / "cache"
    cache.mkdir()
    for name in ("objects", "runners"):
        shared = cache_directory() / name
        shared.mkdir(parents=True, exist_ok=True)
        (cache / name).symlink_to(shared)
    monkeypatch.setenv("HIL_CACHE_DIR", str(cache))


@pytest.mark.usefixtures("no_executorch")
def test_kernels_counts_instructions_by_operator(hil: Hil, files: Files) -> None:
    done = hil("bench", "kernels", files.pte, "-t", "m4-qemu,native", "--json")
    counted, other = answers(done.out)
    assert (done.status, counted["exit_status"], other["exit_status"]) == (CANNOT_TELL, OK, CANNOT_TELL)
    assert "counts neither instructions nor cycles" in other["error"]["message"]
    [row] = counted["rows"]
    assert (row["model"], row["target"], row["isa"]) == (str(files.pte), "m4-qemu", "DSP")
    assert sum(one["instructions"] for one in row["operators"]) == row["instructions"] > 0
    assert sum(one["share"] for one in row["operators"]) == pytest.approx(1)
    assert (row["reference_instructions"], row["ratio"], row["cycles"]) == (None, None, None)
    assert {(one["reference_instructions"], one["ratio"]) for one in row["operators"]} == {(None, None)}
    assert "no ExecuTorch is installed for it" in counted["no_reference"] and counted["reference_version"] == ""
    shown = hil("bench", "kernels", files.pte, "-t", "m4-qemu").out
    assert f" {row['instructions']} " in shown and "no reference: no ExecuTorch is installed" in shown


@pytest.mark.usefixtures("no_executorch")
def test_what_runs_a_program_does_so_on_the_same_inputs_and_says_which(hil: Hil, files: Files) -> None:
    """Instructions depend on values: a run and a count of one file were of other inputs, and did not say so."""
    counts = set()
    for more, source in (((), FORMULA), (("-i", files.input), f"those of {files.input}")):
        where = (files.pte, "-t", "m4-qemu", *more)
        ran = answer(hil("run", *where, "--json").out)
        [row] = answer(hil("bench", "kernels", *where, "--json").out)["rows"]
        assert (
            ran["instructions"] == row["instructions"] == answer(hil("partition", *where, "--json").out)["instructions"]
        )
        assert ran["inputs"] == row["inputs"] == source
        assert f"inputs: {source}" in hil("bench", "kernels", *where).out and source in hil("partition", *where).out
        counts.add(ran["instructions"])
    done = hil("bench", "kernels", files.pte, files.pte, "-t", "m4-qemu", "-i", files.input)
    assert (len(counts), done.status) == (2, CANNOT_TELL) and "--input is for one model" in done.err
    assert "--input without --target" in hil("partition", files.pte, "-i", files.input).err


def test_each_operator_is_compared_with_the_same_of_the_reference() -> None:
    ours = Count(120, (OperatorCount("a", 1, 90, 0.75), OperatorCount("move", 2, 30, 0.25)))
    theirs = Count(60, (OperatorCount("move", 2, 0, 0.0), OperatorCount("a", 1, 60, 1.0)))
    row = Row("net", "its own", ours, theirs)
    found = row.fields("m4-qemu", Isa.DSP)
    assert (found["instructions"], found["reference_instructions"], found["ratio"]) == (120, 60, 2.0)
    assert [(one["operator"], one["reference_instructions"], one["ratio"]) for one in found["operators"]] == [
        ("a", 60, 1.5),
        ("move", 0, None),
    ]
    lines = [line.split() for line in row.operators.splitlines()]
    assert lines[1:] == [["a", "1", "90", "75.0%", "60", "1.500"], ["move", "2", "30", "25.0%", "0", "-"]]


def test_cycles_of_a_board_have_a_column_of_their_own() -> None:
    row = Row("net", "its own", Count(120, (OperatorCount("a", 1, 90, 1.0),), Clock.CORE), None)
    found = row.fields("board", Isa.DSP)
    assert (found["instructions"], found["cycles"], found["operators"][0]["cycles"]) == (None, 120, 90)
    assert row.operators.splitlines()[0].split() == ["operator", "calls", "cycles", "share", "reference", "ratio"]


def test_lowering_measures_the_stages_of_the_pipeline(hil: Hil, tmp_path: Path) -> None:
    (tmp_path / "of_user.py").write_text(MODULE)
    found = answer(hil("bench", "lowering", "of_user:make", "--runs", "1", "--json").out)
    assert found["imports"].keys() == {"torch", "executorch"} and min(found["imports"].values()) > 0
    [module] = found["modules"]
    stages = {row["stage"]: row for row in module["stages"]}
    classes = {f"{stage} for {isa.value}" for stage in ("Cortex-M passes", "to_executorch") for isa in Isa}
    assert classes | {"export", "prepare_pt2e", "convert_pt2e", "to_edge", "reference: dialect"} < stages.keys()
    assert all(row["first"] > 0 and row["again"] > 0 for row in stages.values())


def test_matrix_takes_turns_and_each_side_has_its_own_cache(hil: Hil, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TEST)
    other = "echo against >> seen"
    found = answer(
        hil("bench", "matrix", "test_it.py", "-t", "native", "--runs", "2", "--against", other, "--json").out
    )
    turns = ["0 cold", "against", "0 warm", "against"]
    assert (tmp_path / "seen").read_text().splitlines() == ["0 cold", "against", *turns, *turns]
    assert len(found["here"]["cold"]) == len(found["against"]["warm"]) == 2
    assert found["cold_ratio"] > 1 and found["against"]["command"] == ["sh", "-c", other]


def test_ratios_are_medians_of_pairs() -> None:
    ours, theirs = Seconds((), (2.0, 9.0, 4.0), (1.0,)), Seconds((), (4.0, 3.0, 4.0), (2.0,))
    assert (Compared(ours, theirs).cold_ratio, Compared(ours, theirs).warm_ratio) == (1.0, 0.5)
    assert Compared(ours, None).cold_ratio is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["kernels", "resnet", "-t", "m4-qemu"], "ConfigError: no network 'resnet'"),
        (["kernels", "of_user:wrong", "-t", "m4-qemu"], "ConfigError: of_user:wrong returns a Linear"),
        (["kernels", "nowhere.pte", "-t", "m4-qemu"], "nowhere.pte"),
        (["lowering", "a.pte"], "ConfigError: no network 'a.pte'"),
        (["lowering", "no_such_module:make", "-n", "1"], "ToolchainError: the lowering ended with status 1"),
        (["matrix", "nowhere.py", "-t", "native"], "ConfigError: nowhere.py: there is no such file or folder"),
        (["matrix", "--upstream", "-t", "native"], "not on QEMU"),
        (["matrix", "--upstream", "test_it.py", "-t", "m4-qemu"], "--upstream has its own tests"),
    ],
)
def test_what_cannot_be_measured_is_an_error(hil: Hil, tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "of_user.py").write_text(MODULE)
    done = hil("bench", *arguments)
    assert done.status == CANNOT_TELL and message in done.err
