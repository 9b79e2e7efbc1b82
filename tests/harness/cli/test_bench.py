"""`hil inspect instructions`; docs/command-line.md is its page."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import Files, Hil, answer, answers
from cortex_m_hil.cli.commands.inspect.instructions import ModelCounts
from cortex_m_hil.cli.exit_codes import CANNOT_TELL, OK
from cortex_m_hil.cli.program_files import FORMULA
from cortex_m_hil.diagnose.instruction_counts import Count, OperatorCount
from cortex_m_hil.host.paths import cache_directory
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.target import Clock

MODULE = """
import torch

def make():
    return torch.nn.Linear(8, 4), (torch.rand(1, 8),)

def wrong():
    return torch.nn.Linear(8, 4)
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
    done = hil("inspect", "instructions", files.pte, "-t", "m4-qemu,native", "--json")
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
    shown = hil("inspect", "instructions", files.pte, "-t", "m4-qemu").out
    assert f" {row['instructions']} " in shown and "no reference: no ExecuTorch is installed" in shown


@pytest.mark.slow
@pytest.mark.usefixtures("no_executorch")
def test_what_runs_a_program_does_so_on_the_same_inputs_and_says_which(hil: Hil, files: Files) -> None:
    """Instructions depend on values: a run and a count of one file were of other inputs, and did not say so."""
    counts = set()
    for more, source in (((), FORMULA), (("-i", files.input), f"those of {files.input}")):
        where = (files.pte, "-t", "m4-qemu", *more)
        ran = answer(hil("run", *where, "--json").out)
        [row] = answer(hil("inspect", "instructions", *where, "--json").out)["rows"]
        told = answer(hil("inspect", "partition", *where, "--json").out)
        assert ran["instructions"] == row["instructions"] == told["instructions"]
        assert ran["inputs"] == row["inputs"] == source
        assert (
            f"inputs: {source}" in hil("inspect", "instructions", *where).out
            and source in hil("inspect", "partition", *where).out
        )
        counts.add(ran["instructions"])
    done = hil("inspect", "instructions", files.pte, files.pte, "-t", "m4-qemu", "-i", files.input)
    assert (len(counts), done.status) == (2, CANNOT_TELL) and "--input is for one model" in done.err
    assert "--input without --target" in hil("inspect", "partition", files.pte, "-i", files.input).err


def test_each_operator_is_compared_with_the_same_of_the_reference() -> None:
    ours = Count(120, (OperatorCount("a", 1, 90, 0.75), OperatorCount("move", 2, 30, 0.25)))
    theirs = Count(60, (OperatorCount("move", 2, 0, 0.0), OperatorCount("a", 1, 60, 1.0)))
    row = ModelCounts("net", "its own", ours, theirs)
    found = row.fields("m4-qemu", Isa.DSP)
    assert (found["instructions"], found["reference_instructions"], found["ratio"]) == (120, 60, 2.0)
    assert [(one["operator"], one["reference_instructions"], one["ratio"]) for one in found["operators"]] == [
        ("a", 60, 1.5),
        ("move", 0, None),
    ]
    lines = [line.split() for line in row.operators.splitlines()]
    assert lines[1:] == [["a", "1", "90", "75.0%", "60", "1.500"], ["move", "2", "30", "25.0%", "0", "-"]]


def test_cycles_of_a_board_have_a_column_of_their_own() -> None:
    row = ModelCounts("net", "its own", Count(120, (OperatorCount("a", 1, 90, 1.0),), Clock.CORE), None)
    found = row.fields("board", Isa.DSP)
    assert (found["instructions"], found["cycles"], found["operators"][0]["cycles"]) == (None, 120, 90)
    assert row.operators.splitlines()[0].split() == ["operator", "calls", "cycles", "share", "reference", "ratio"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["resnet", "-t", "m4-qemu"], "ConfigError: no network 'resnet'"),
        (["of_user:wrong", "-t", "m4-qemu"], "ConfigError: of_user:wrong returns a Linear"),
        (["nowhere.pte", "-t", "m4-qemu"], "nowhere.pte"),
    ],
)
def test_what_cannot_be_measured_is_an_error(hil: Hil, tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "of_user.py").write_text(MODULE)
    done = hil("inspect", "instructions", *arguments)
    assert done.status == CANNOT_TELL and message in done.err
