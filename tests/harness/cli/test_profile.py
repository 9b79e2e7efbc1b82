"""`hil profile`; docs/command-line.md is its page."""

from __future__ import annotations

import json
import re
import subprocess
from contextlib import nullcontext
from pathlib import Path
from zipfile import ZipFile

import pytest

from command_line import CANNOT_TELL, OK, Files, Hil, answer, answers, expect
from cortex_m_hil.cli.options import ModelOptions, TargetOptions
from cortex_m_hil.cli.profile_against import Order
from cortex_m_hil.cli.program_files import FORMULA
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.lowering.named_modules import NETWORKS
from cortex_m_hil.program.program import Program
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve
from cortex_m_hil.targets.runtimes import RUNTIMES
from cortex_m_hil.targets.target import Target
from etdumps import read_etdump
from file_texts import TWO_LAYERS
from installed import installed_executorch


def test_the_rows_add_up_to_the_run(hil: Hil, files: Files) -> None:
    """`hil run` of the same file, and so of the same inputs, counts the same; on another clock nothing is told."""
    done = hil("profile", files.pte, "-t", "m4-qemu,native", "--json")
    found, other = answers(done.out)
    assert (done.status, found["exit_status"], other["exit_status"]) == (CANNOT_TELL, OK, CANNOT_TELL)
    assert "counts neither instructions nor cycles" in other["error"]["message"]
    ran = answer(hil("run", files.pte, "-t", "m4-qemu", "--json").out)
    assert found["ticks"] == ran["instructions"] and found["inputs"] == ran["inputs"] == FORMULA
    assert sum(row["ticks"] for row in found["rows"]) == found["ticks"] and found["outside"] == 0
    [linear] = [row for row in found["rows"] if row["operator"] == "cortex_m::quantized_linear.out"]
    assert linear["ticks_per_mac"] == linear["ticks"] / linear["macs"]
    assert (linear["kernel"], linear["calls"]) == (f"{found['runtime']} Cortex-M, DSP", 1)
    shown = hil("profile", files.pte, "-t", "m4-qemu", "--html", "page.html", "--svg", "memory=memory.svg").out
    page, picture = Path("page.html").read_text(), Path("memory.svg").read_text()
    assert "a .pte has none" in page and picture.startswith("<svg ") and "quantized_linear" in page
    assert f"whole run  {found['ticks']} instructions: {found['ticks']} in 3 rows, 0 outside" in shown
    assert "\x1b" not in shown and "█" not in shown and "CPU instructions, counted; without loading" in shown


def test_a_target_that_counts_nothing_is_told_before_the_lowering_and_the_build() -> None:
    def load(target: Target) -> tuple[Program, str]:
        pytest.fail("it was lowered")

    order = Order(TargetOptions(), ModelOptions(), "native", "m:f", load, runs=1)
    with pytest.raises(ConfigError, match="native counts neither instructions nor cycles"):
        order.profile(resolve("native", load_targets(None)))


def test_files_for_other_tools_have_the_same_figures(hil: Hil, tmp_path: Path) -> None:
    (tmp_path / "two_layers.py").write_text(TWO_LAYERS.format(width=2))
    dump, explorer = tmp_path / "a.etdp", tmp_path / "explorer"
    files = ["--etdump", dump, "--debug-buffer", tmp_path / "a.buffer", "--etrecord", tmp_path / "a.etrecord"]
    words = ["profile", "two_layers:make", "-t", "m4-qemu", *files, "--model-explorer", explorer]
    rows = answer(hil(*words, "--json").out)["rows"]
    events = [one["profile_event"] for one in read_etdump(dump)["run_data"][0]["events"] if "profile_event" in one]
    calls = [one["end_time"] - one["start_time"] for one in events if one["name"] == "OPERATOR_CALL"]
    assert calls == [row["ticks"] for row in rows] and events[-1]["end_time"] == sum(calls)
    with ZipFile(tmp_path / "a.etrecord") as record:
        handles = json.loads(record.read("debug_handle_map"))["forward"]
    assert handles == {str(row["index"]): row["index"] + 1 for row in rows}
    assert (tmp_path / "a.buffer").stat().st_size >= sum(row["bytes_written"] for row in rows)
    ticks, planned = (json.loads((explorer / f"{name}.json").read_text()) for name in ("ticks", "planned_bytes"))
    assert ticks["forward"]["results"] == {f"forward_0_{row['index']}": {"value": row["ticks"]} for row in rows}
    assert "CPU instructions, counted" in ticks["forward"]["name"] and "m4-qemu" in ticks["forward"]["name"]
    names = ["quantize_per_tensor", "quantized_linear", "quantized_linear", "dequantize_per_tensor"]
    assert [row["operator"] for row in rows] == [f"cortex_m::{name}.out" for name in names]
    exported = {"linear": rows[1]["ticks"], "linear_1": rows[2]["ticks"] + rows[3]["ticks"]}
    assert ticks["graph"]["results"] == {name: {"value": value} for name, value in exported.items()}
    last = max(row["alive"][bank] for row in rows[2:] for bank in row["alive"])
    assert planned["graph"]["results"]["linear_1"] == {"value": last}


def test_files_for_other_tools_are_of_one_profile(hil: Hil, files: Files) -> None:
    where = ("profile", files.pte, "-t")
    expect(hil(*where, "m4-qemu", "--etrecord", "a"), CANNOT_TELL, "was lowered before")
    expect(hil(*where, "m4-qemu,m0-qemu", "--etdump", "a"), CANNOT_TELL, "for one program on one target")
    expect(hil(*where, "m4-qemu", "--debug-buffer", "a"), CANNOT_TELL, "--etdump FILE as well")


@pytest.mark.slow
def test_a_saved_profile_and_a_program_are_compared(hil: Hil, files: Files, tmp_path: Path) -> None:
    saved = tmp_path / "old.json"
    saved.write_text(hil("profile", files.pte, "-t", "m4-qemu", "--runtime", "builtin", "--json").out)
    where = ("profile", files.pte, "-t", "m4-qemu", "--runtime", "builtin")
    same = answer(hil(*where, "--against", saved, "--json").out)["against"]
    assert (same["ticks"], same["same_inputs"], {row["ticks"] for row in same["rows"]}) == (0, True, {0})
    moved = hil(*where, "-i", files.input, "--against", files.pte).out
    assert "3 operators the same" in moved and "other inputs" not in moved
    moved = hil(*where, "-i", files.input, "--against", saved).out
    assert "other inputs" in moved and re.search(r"quantize_per_tensor.out +\d+ +\d+ +[+-]\d+ ", moved)
    line = json.loads(saved.read_text())
    saved.write_text(json.dumps({**line, "ran": {**line["ran"], "target": "m0-qemu"}}))
    expect(hil(*where, "--against", saved), CANNOT_TELL, "has m0-qemu, and none of m4-qemu")
    for text in ("{}", "3", "[" * 100_000):
        saved.write_text(text)
        expect(hil(*where, "--against", saved), CANNOT_TELL, "is no profile that this version reads")


@pytest.mark.slow
def test_a_commit_is_profiled_in_a_worktree_of_its_own(hil: Hil, tmp_path: Path) -> None:
    """The second layer is twice as wide at the later commit: its row, found by its module path, has grown."""
    git = ("git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@y", "-c", "commit.gpgsign=false")
    subprocess.run([*git, "init", "--quiet"], check=True)
    for width in (16, 32):
        (tmp_path / "of_commits.py").write_text(TWO_LAYERS.format(width=width))
        subprocess.run([*git, "add", "of_commits.py"], check=True)
        subprocess.run([*git, "commit", "--quiet", "-m", f"{width}"], check=True)
    told = hil("profile", "of_commits:make", "-t", "m4-qemu", "--against", "HEAD~1", "--json")
    assert told.status == OK, told.out
    changes = answer(told.out)["against"]
    first = changes["rows"][0]
    assert (first["module"], first["operator"]) == ("second", "cortex_m::quantized_linear.out") and first["ticks"] > 0
    assert first["source"].endswith("of_commits.py:10")
    assert sum(row["ticks"] for row in changes["rows"]) + changes["outside"] == changes["ticks"] > 0
    assert changes["banks"] and subprocess.check_output([*git, "worktree", "list"]).count(b"\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("target", ["m55-qemu", "m4-qemu", "m0-qemu"])
def test_the_rows_of_mlperf_tiny_add_up(hil: Hil, target: str, runtime: str) -> None:
    with nullcontext() if runtime == "builtin" else installed_executorch(load_targets()[target]):
        done = hil("profile", "-t", target, "--runtime", runtime, "--json")
    found = answers(done.out)
    assert [one["model"] for one in found] == [*NETWORKS] and {one["runtime"] for one in found} == {runtime}
    for one in found:
        assert sum(row["ticks"] for row in one["rows"]) == one["ticks"] > 0 == one["outside"]
        assert max(row["ticks_per_mac"] or 0 for row in one["rows"]) > 0


@pytest.mark.slow
def test_the_page_of_a_network_says_where_its_error_begins(hil: Hil) -> None:
    assert (
        hil("profile", "ds_cnn", "-t", "m55-qemu,m4-qemu", "--runtime", "builtin", "--html", "page.html").status == OK
    )
    page = Path("page.html").read_text()
    assert page.count("not in a kernel: all equal ExecuTorch&#39;s Python operators") == 2 and "least SQNR" in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["resnet", "-t", "m4-qemu"], "ConfigError: no network 'resnet'"),
        (["of_user:wrong", "-t", "m4-qemu"], "ConfigError: of_user:wrong returns a Linear"),
        (["nowhere.pte", "-t", "m4-qemu"], "nowhere.pte"),
        (["resnet8", "-t", "m4-qemu", "--svg", "plan.svg"], "--svg plan.svg names no picture and file"),
        (["resnet8", "-t", "m4-qemu,m0-qemu", "--svg", "memory=plan.svg"], "--svg draws one profile, not 2"),
    ],
)
def test_what_cannot_be_measured_is_an_error(hil: Hil, tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "of_user.py").write_text(
        f"{TWO_LAYERS.format(width=4)}\ndef wrong():\n    return torch.nn.Linear(8, 4)\n"
    )
    done = hil("profile", *arguments)
    assert done.status == CANNOT_TELL and message in done.err
