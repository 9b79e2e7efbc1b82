"""`hil bisect` on real repositories: the culprit, what is left behind, and what happens when something is wrong."""

from __future__ import annotations

import os
import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from command_line import CANNOT_TELL, NO, OK, Done, answer, call, command, environment, running, spawn
from cortex_m_hil.campaigns.bisection.bisect import BisectionPlan, CommitLine, Source
from cortex_m_hil.campaigns.bisection.suspects import file_name_words
from cortex_m_hil.campaigns.store import Run
from cortex_m_hil.runner.own_firmware import LIBRARY_TEXT
from paths import REPOSITORY
from repositories import Repository, history

SAMPLE = REPOSITORY / "examples" / "own_firmware"
COMMITS, CULPRIT = 16, 11
CHECK = 'grep -q "^0" "$HIL_BISECT_WORKTREE/value"'
PYTEST = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
Bisect = Callable[..., Done]


def value(number: int) -> dict[str, str]:
    return {"value": f"{int(number >= CULPRIT)} {number}\n", f"src/p{number}.py": "", "README": f"{number}\n"}


@pytest.fixture
def made(tmp_path: Path) -> Repository:
    return history(tmp_path / "source", COMMITS, value)


@pytest.fixture
def bisect(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bisect:
    """Calls `hil bisect` in this process, in a folder of its own, with a store of its own."""
    (tmp_path / "tests").mkdir()
    monkeypatch.chdir(tmp_path / "tests")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    return partial(call, capsys, "bisect")


def begin(bisect: Bisect, made: Repository, *options: object) -> None:
    done = bisect("start", made.commits[-1], made.commits[0], "--source", made.path, *options)
    assert done.status == OK, done.err


def found(done: Done) -> tuple[int, str, int]:
    """The exit status, the culprit and the number of runs."""
    one = answer(done.out)
    return done.status, one["culprit"]["sha"], one["runs"]


def test_a_culprit_is_found_and_the_checkout_is_as_it_was(bisect: Bisect, made: Repository, tmp_path: Path) -> None:
    (made.path / "value").write_text("the user's own change\n")
    before = made.touched()
    begin(bisect, made, "--deterministic")
    done = bisect("run", "--", "sh", "-c", CHECK)
    assert (done.status, done.err) == (OK, "")
    assert f"{made.commits[CULPRIT]} is the first bad commit (probability 1.000, 6 runs)" in done.out
    assert "commit 11\nA, 20" in done.out and "3 files changed" in done.out
    assert made.touched() == before
    assert [one.name for one in (tmp_path / "state" / "hil").iterdir() if one.is_dir()] == []
    again = bisect("run", "--json")
    assert found(again) == (OK, made.commits[CULPRIT], 6)


def test_a_test_that_may_be_flaky_is_run_again_before_it_is_believed(bisect: Bisect, made: Repository) -> None:
    begin(bisect, made)
    done = bisect("run", "--json", "--", "sh", "-c", CHECK)
    status, culprit, runs = found(done)
    assert (status, culprit) == (OK, made.commits[CULPRIT]) and runs <= 16
    counts = {one["position"]: one["old"] + one["new"] for one in answer(done.out)["evidence"]}
    assert counts[CULPRIT] >= 2 and counts[CULPRIT - 1] >= 2


def test_a_fix_is_found_with_its_terms(bisect: Bisect, made: Repository) -> None:
    begin(bisect, made, "--deterministic", "--find-fix", "--term-new", "mended")
    done = bisect("run", "--", "sh", "-c", f"! {CHECK}")
    assert done.status == OK and f"{made.commits[CULPRIT]} is the first mended commit" in done.out
    assert "broken" in done.out


def test_python_is_imported_from_the_worktree(bisect: Bisect, tmp_path: Path) -> None:
    """Edits of equal size within a second, which bytecode of another commit would hide."""
    made = history(tmp_path / "python", 8, lambda number: {"lib/thing.py": f"VALUE = {int(number >= 5)}\n#{number}"})
    begin(bisect, made, "--deterministic", "--python", "lib")
    script = "import os, thing; assert thing.__file__.startswith(os.environ['HIL_BISECT_WORKTREE']); exit(thing.VALUE)"
    done = bisect("run", "--json", "--", sys.executable, "-c", script)
    assert found(done) == (OK, made.commits[5], 5)


def test_bisect_finds_the_culprit_with_a_build_command_in_the_worktree(bisect: Bisect, made: Repository) -> None:
    begin(bisect, made, "--deterministic", "--build", "cut -c1 value >built")
    done = bisect("run", "--json", "--", "grep", "-q", "^0", "{worktree}/built")
    assert found(done)[:2] == (OK, made.commits[CULPRIT])


def test_commits_that_do_not_build_widen_the_answer(bisect: Bisect, made: Repository) -> None:
    begin(bisect, made, "--deterministic", "--build", "! grep -q -e ' 10$' -e ' 11$' value")
    done = bisect("run", "--json", "--", "sh", "-c", CHECK)
    one = answer(done.out)
    assert (done.status, one["outcome"], one["culprit"]) == (CANNOT_TELL, "found", None)
    assert [each["sha"] for each in one["candidates"]] == made.commits[10:13]
    text = bisect("run").out
    assert "the first bad commit is one of 3, what lies between them cannot be tested" in text
    assert "the build ends with 1" in text


@pytest.mark.slow
def test_a_build_that_fails_everywhere_is_an_error(bisect: Bisect, made: Repository) -> None:
    begin(bisect, made, "--build", "echo no compiler; false")
    done = bisect("run", "--verbose", "--", "true")
    assert done.status == CANNOT_TELL and "BuildError: the end" in done.err and "no compiler" in done.err
    assert "--assert-new" in done.err
    bisect("reset")
    begin(bisect, made, "--build", "false", "--assert-new", "--assert-old", "--deterministic")
    done = bisect("run", "--json", "--", "true")
    assert (done.status, len(answer(done.out)["candidates"])) == (CANNOT_TELL, COMMITS)


def test_ends_that_are_asserted_are_not_run(bisect: Bisect, made: Repository) -> None:
    begin(bisect, made, "--assert-old", "--assert-new", "--deterministic")
    done = bisect("run", "--json", "--", "sh", "-c", CHECK)
    assert found(done) == (OK, made.commits[CULPRIT], 4)
    assert {one["position"] for one in answer(done.out)["evidence"]}.isdisjoint({0, COMMITS})


@pytest.mark.first_only
@pytest.mark.parametrize(
    ("options", "test", "message", "runs"),
    [
        ([], "true", "the bad end {new} passes (15 runs): is it the right test and commit?", 16),
        ([], "false", "the good end {old} fails (15 runs): is it the right test and commit?", 16),
        (["--deterministic"], "true", "the bad end {new} passes (1 run): is it the right test and commit?", 2),
        (["--deterministic", "--assert-old"], "true", "the bad end {new} passes (1 run): is it the right test", 1),
        (["--deterministic", "--find-fix"], "false", "the fixed end {new} fails (1 run): is it the right test", 2),
        ([], f"! {CHECK}", "{new} passes (3 runs) and the good end {old} fails (3 runs): are they swapped?", 6),
        (["--deterministic"], f"! {CHECK}", "{new} passes (1 run) and the good end {old} fails (1 run): are they", 2),
    ],
)
def test_ends_that_are_not_as_said_are_told(
    options: list[str], test: str, message: str, runs: int, bisect: Bisect, made: Repository
) -> None:
    begin(bisect, made, *options)
    done = bisect("run", "--", "sh", "-c", test)
    ends = {"new": made.commits[-1][:10], "old": made.commits[0][:10]}
    assert done.status == NO and message.format(**ends) in done.out, done
    assert "alike" not in done.out and "no commit changed it" not in done.out
    again = answer(bisect("run", "--json").out)
    assert (again["outcome"], again["runs"], again["culprit"]) == ("stated outcome wrong", runs, None)
    more = done.out.partition("?")[2].partition("\n")[0]
    if "15 runs" in message:
        assert more == f" If it {'passes' if test == 'false' else 'fails'} more rarely: hil bisect start " + (
            "--assert-old" if test == "false" else "--assert-new"
        )


@pytest.mark.slow
def test_what_pytest_says_of_a_call_that_it_does_not_take_is_told(bisect: Bisect, made: Repository) -> None:
    """As where it runs in an environment without this package."""
    begin(bisect, made, "--deterministic")
    done = bisect("run", "--", sys.executable, "-m", "pytest", "--no-such-option")
    assert done.status == CANNOT_TELL
    assert "pytest wrote no JUnit file (exit status 4): " in done.err
    assert "error: unrecognized arguments: --no-such-option" in done.err


def test_infra_is_no_evidence_and_ends_the_search_when_it_goes_on(bisect: Bisect, made: Repository) -> None:
    begin(bisect, made)
    done = bisect("run", "--", "/no/such/program")
    assert done.status == CANNOT_TELL and "LaunchError: nothing was learnt in 4 runs" in done.err
    done = bisect("run", "--", "sh", "-c", "kill -9 $$")
    assert done.status == CANNOT_TELL and "runs another test" in done.err
    bisect("reset")
    begin(bisect, made, "--deterministic")
    done = bisect("run", "--timeout", "0.3", "--", "sleep", "60")
    assert done.status == CANNOT_TELL and "it did not end in time" in done.err


def test_a_budget_ends_it_and_it_goes_on(bisect: Bisect, made: Repository) -> None:
    begin(bisect, made, "--deterministic")
    done = bisect("run", "--budget", "0", "--json", "--", "sh", "-c", CHECK)
    one = answer(done.out)
    assert (done.status, one["outcome"], one["runs"], one["culprit"]) == (CANNOT_TELL, "under way", 0, None)
    assert found(bisect("run", "--json"))[:2] == (OK, made.commits[CULPRIT])


@pytest.mark.slow
def test_runs_of_earlier_searches_count_where_that_is_asked_for(
    bisect: Bisect, made: Repository, tmp_path: Path
) -> None:
    """Of the same test on the same source: another command begins anew."""
    ran = tmp_path / "ran"
    check = f"echo >> {ran}; {CHECK}"
    begin(bisect, made, "--deterministic")
    first = found(bisect("run", "--json", "--", "sh", "-c", check))
    runs = len(ran.read_text())
    log = bisect("log").out
    assert " commits left" in log and "\n# 1 commit left\n" in log and " bits " not in log and "probable" not in log
    for _ in range(2):
        begin(bisect, made, "--deterministic", "--reuse")
        assert f"{runs} runs of earlier searches taken over" in bisect("run", "--", "sh", "-c", check).out
    assert found(bisect("run", "--json")) == first and len(ran.read_text()) == runs == first[2]
    begin(bisect, made, "--deterministic", "--reuse")
    assert found(bisect("run", "--json", "--", "sh", "-c", f"{check} ;")) == first
    assert len(ran.read_text()) == 2 * runs
    assert bisect("reset").status == OK
    assert bisect("log").status == CANNOT_TELL  # the earlier ones are forgotten too


def test_a_log_is_replayed_without_a_run(bisect: Bisect, made: Repository, tmp_path: Path) -> None:
    begin(bisect, made, "--likely", "value")
    done = bisect("run", "--run-log", "run.log", "--", "sh", "-c", CHECK)
    log = bisect("log")
    assert log.out == Path("run.log").read_text() and "bits more certain" in log.out
    assert len(answer(bisect("log", "--json").out)["runs"]) == log.out.count("\n# ") // 2
    made.path.rename(tmp_path / "moved")
    again = bisect("replay", "run.log", "--source", tmp_path / "moved", "--store", "other.sqlite")
    first = next(line for line in done.out.splitlines() if "is the first bad commit" in line)
    assert (again.status, again.out.splitlines()[0]) == (OK, first)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# nothing\n", "no line 'start'"),
        ("start {}\n", "line 1 of the log makes no sense"),
        ("start {\n", "line 1 of the log makes no sense"),
    ],
)
def test_a_log_that_makes_no_sense_is_told(text: str, message: str, bisect: Bisect) -> None:
    Path("log").write_text(text)
    done = bisect("replay", "log")
    assert done.status == CANNOT_TELL and message in done.err


def test_a_log_of_other_commits_is_told(bisect: Bisect, made: Repository) -> None:
    begin(bisect, made, "--deterministic")
    bisect("run", "--run-log", "run.log", "--", "sh", "-c", CHECK)
    text = Path("run.log").read_text()
    Path("run.log").write_text(text.replace(f'"key": "{made.commits[-1]}"', f'"key": "{"0" * 40}"'))
    done = bisect("replay", "run.log")
    assert done.status == CANNOT_TELL and "not in the range" in done.err
    Path("run.log").write_text(text.replace('"verdict": "fail"', '"verdict": "odd"'))
    assert "makes no sense" in bisect("replay", "run.log").err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--source", "/"), "no git repository"),
        (("--python", "nothing"), "has no folder 'nothing'"),
        (("--python", "../x"), "not within the source"),
        (("--python", "/x"), "not within the source"),
        (("--likely", "nothing"), "no commit of the range touches"),
        (("--term-new", "good"), "two terms have to differ"),
        (("--confidence", "nan"), "a number from 0.5 to 0.9999"),
    ],
)
def test_what_cannot_be_searched_is_told(
    options: Sequence[str], message: str, bisect: Bisect, made: Repository
) -> None:
    done = bisect("start", made.commits[-1], made.commits[0], "--source", made.path, *options)
    assert done.status == CANNOT_TELL and message in done.err


def test_verbs_out_of_place_are_told(bisect: Bisect, made: Repository) -> None:
    for verb in ("run", "log", "reset"):
        done = bisect(verb)
        assert done.status == CANNOT_TELL and "hil bisect start" in done.err
    begin(bisect, made)
    assert "no test is named" in bisect("run").err
    assert "under way in this folder" in bisect("start", "HEAD", "HEAD~2", "--source", made.path).err
    assert "one JUnit file" in bisect("run", "--", "pytest", "--junit-xml=x").err
    assert bisect("reset").status == OK
    begin(bisect, made)


def test_commits_without_the_python_folder_are_skipped(bisect: Bisect, tmp_path: Path) -> None:
    made = Repository(tmp_path / "r")
    for number in range(9):
        made.commit({"a": f"{number}", **({"lib/x.py": ""} if number >= 3 else {})})
    begin(bisect, made, "--python", "lib", "--deterministic", "--assert-old")
    done = bisect("run", "--json", "--", "false")
    assert [one["sha"] for one in answer(done.out)["candidates"]] == made.commits[1:4]


# --- killed and interrupted ----------------------------------------------------------------------------------


def flaky(folder: Path) -> list[str]:
    """A test whose bad commits fail four times of five, by a counter in a file: the same numbers in every search."""
    text = f"echo >>{folder}/count; n=$(wc -l <{folder}/count); {CHECK} || [ $((n * 7 % 5)) = 0 ]"
    return ["sh", "-c", text]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_what_was_killed_goes_on_with_the_same_answer(number: int, made: Repository, tmp_path: Path) -> None:
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    before = made.touched()
    ends = (made.commits[-1], made.commits[0], "--source", made.path)
    assert spawn("bisect", "start", *ends, cwd=tmp_path, **state).status == OK
    count = tmp_path / "count"
    slow = [*flaky(tmp_path)[:2], f"sleep 0.3; {flaky(tmp_path)[2]}"]
    with running("bisect", "run", "--", *slow, cwd=tmp_path, **state) as process:
        while not (count.exists() and count.read_text().count("\n") >= 3):
            time.sleep(0.02)
        os.kill(process.pid, number)
        out, err = process.communicate(timeout=60)
    assert ("the same command in this folder goes on" in err) == (number == signal.SIGINT)
    assert process.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL)
    assert len(out.splitlines()) >= 4
    done = spawn("bisect", "run", "--json", cwd=tmp_path, **state)
    assert found(done)[:2] == (OK, made.commits[CULPRIT])
    assert found(done)[2] <= count.read_text().count("\n") <= found(done)[2] + 1
    assert made.touched() == before


@pytest.mark.slow
def test_one_process_leads_a_search(made: Repository, tmp_path: Path) -> None:
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    spawn("bisect", "start", made.commits[-1], made.commits[0], "--source", made.path, cwd=tmp_path, **state)
    with running(
        "bisect", "run", "--", "sh", "-c", f"touch {tmp_path}/began; sleep 60", cwd=tmp_path, **state
    ) as process:
        while not (tmp_path / "began").exists():
            assert process.poll() is None
            time.sleep(0.02)
        done = spawn("bisect", "run", cwd=tmp_path, **state)
        assert done.status == CANNOT_TELL and "another process is at work on this campaign (bisect)" in done.err
    assert spawn("bisect", "reset", cwd=tmp_path, **state).status == OK
    assert "tree" not in made.git("worktree", "list")


# --- step ----------------------------------------------------------------------------------------------------


@pytest.mark.first_only
@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("-- true", 0),
        ("-- false", 1),
        ("-- sh -c 'exit 125'", 125),
        ("-- sh -c 'exit 130'", 125),
        ("-- hil no-such-command", 125),
        ("--timeout 0.3 -- sleep 60", 125),
        ("", 128),
        ("--no-such-option -- true", 128),
        ("--timeout nan -- true", 128),
    ],
)
def test_a_step_has_the_exit_statuses_of_git_bisect_run(line: str, status: int, tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    assert spawn("bisect", "step", *shlex.split(line), cwd=tmp_path, PATH=path).status == status


TEST = """
import os, pathlib, pytest
from cortex_m_hil.errors import LinkError

def test_it(hil_dut):
    text = pathlib.Path(os.environ["VALUE"]).read_text()
    if " 6" in text:
        raise LinkError("the cable fell out")
    from cortex_m_hil import flow
    flow.selftest(hil_dut)
    assert text.startswith("0")
"""


@pytest.mark.slow
def test_git_bisect_run_is_led_by_steps_past_a_broken_link(tmp_path: Path) -> None:
    """On the target `native`. The exit status of pytest alone would call the commit bad."""
    made = history(tmp_path / "r", 8, lambda number: {"value": f"{int(number >= 5)} {number}\n"})
    (tmp_path / "test_it.py").write_text(TEST)
    made.git("bisect", "start", made.commits[8], made.commits[4])
    test = [*PYTEST, "--target=native", f"{tmp_path}/test_it.py"]
    done = subprocess.run(
        ["git", "bisect", "run", *command("bisect", "step", "--", *test)],
        cwd=made.path, env=environment(VALUE=str(made.path / "value")), capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    log = made.git("bisect", "log")
    assert f"skip: [{made.commits[6]}]" in log or "first bad commit" in done.stdout
    assert f"first bad commit: [{made.commits[5]}]" in log


@pytest.mark.slow
def test_targets_and_outputs_are_in_the_answer(bisect: Bisect, tmp_path: Path) -> None:
    """A firmware of eight commits would take minutes: here the tests' own records differ, by what a commit says."""
    made = history(tmp_path / "r", 2, lambda number: {"value": f"{int(number >= 2)}\n"})
    Path("test_it.py").write_text(TEST.replace('environ["VALUE"]', 'environ["HIL_BISECT_WORKTREE"] + "/value"'))
    begin(bisect, made, "--deterministic")
    test = [*PYTEST, "--target=native", "test_it.py"]
    done = bisect("run", "--json", "--", *test)
    assert found(done)[:2] == (OK, made.commits[2])
    [one] = answer(done.out)["targets"]
    expected: dict[str, Any] = {"test": "test_it.py::test_it", "target": "native", "isa": "SCALAR", "old": "PASS"}
    assert expected.items() <= one.items() and one["new"] == "FAIL AssertionError"


HEAD = """
import os, pathlib, torch
from torch import nn

def test_head(hil):
    text = pathlib.Path(os.environ["HIL_BISECT_WORKTREE"], "value").read_text()
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    if text.startswith("1"):
        with torch.no_grad():
            model[2].bias += 1
    hil.check(model, (torch.rand(1, 8),), eager_sqnr=300 if text.startswith("1") else 15)
"""


@pytest.mark.slow
def test_the_operators_whose_outputs_changed_are_told_and_the_failure_is_kept(bisect: Bisect, tmp_path: Path) -> None:
    """Both ends are run once more for that; the second layer's bias differs between them."""
    made = history(tmp_path / "r", 2, lambda number: {"value": f"{int(number >= 1)} {number}\n"})
    Path("test_head.py").write_text(HEAD)
    begin(bisect, made, "--deterministic")
    test = [*PYTEST, "--target=native", "test_head.py"]
    done = bisect("run", "--json", "--", *test)
    assert found(done)[:2] == (OK, made.commits[1]), done
    [one] = answer(done.out)["targets"]
    assert one["operators"][0].startswith("cortex_m::quantized_linear.out (") and "#" not in one["operators"][0]
    assert [name.partition(" ")[0] for name in one["operators"]] == [
        "cortex_m::quantized_linear.out", "cortex_m::dequantize_per_tensor.out",
    ]  # fmt: skip
    shown = bisect("run").out
    assert shown.count("outputs that changed: cortex_m::quantized_linear.out") == 1
    assert f"again: hil replay {one['bundle']}" in shown and Path(one["bundle"]).is_file()
    log = tmp_path / "log"
    log.write_text(bisect("log").out)
    assert bisect("reset").status == OK
    assert not Path(one["bundle"]).exists()
    assert "outputs that changed: cortex_m" in bisect("replay", log).out


NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        self.layer.weight.data, self.layer.bias.data = torch.ones(2, 4), torch.tensor([BIAS, 0.5])

    def forward(self, x):
        return self.layer(x)
"""
TEST_NET = """
import torch
from net import Net

def test_net(hil):
    x = (torch.rand(1, 4),)
    assert hil.run(hil.lower(Net(), x), x).outputs[0].array().argmax() == 1
"""
INI = '[tool.pytest.ini_options]\npythonpath = ["src"]\n'


@pytest.mark.slow
def test_a_network_of_the_users_in_a_folder_that_pytest_puts_on_sys_path(
    bisect: Bisect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program that each commit's module is lowered to; the checkout's own would be bad at both ends."""
    files = {"pyproject.toml": INI, "test_net.py": TEST_NET}
    made = history(tmp_path / "r", 3, lambda at: {**files, "src/net.py": NET.replace("BIAS", str(2.0 * (at >= 2)))})
    before = made.touched()
    monkeypatch.chdir(made.path)
    assert bisect("start", "HEAD", "HEAD~3", "--deterministic").status == OK
    done = bisect("run", "--json", "--", *PYTEST, "--target=native", "test_net.py")
    assert found(done)[:2] == (OK, made.commits[2]), done
    assert made.touched() == before


def test_each_commits_own_modules_are_tested_and_what_tests_another_ends_the_search(
    bisect: Bisect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second: a module that is loaded by the name of its file is the checkout's at each commit."""
    made = history(tmp_path / "r", 1, lambda at: {"src/net.py": f"RIGHT = {at < 1}\n"})
    monkeypatch.chdir(made.path)
    assert bisect("start", "HEAD", "HEAD~1", "--deterministic").status == OK
    script = "import sys; sys.path.insert(0, 'src'); import net; exit(not net.RIGHT)"
    assert found(bisect("run", "--json", "--", sys.executable, "-c", script)) == (OK, made.commits[1], 2)
    assert bisect("reset").status == OK
    loads = "import runpy, types\n\nnet = types.SimpleNamespace(**runpy.run_path('src/net.py'))\n"
    (made.path / "test_net.py").write_text(f"{loads}\ndef test_net():\n    assert net.RIGHT\n")
    assert bisect("start", "HEAD", "HEAD~1", "--deterministic").status == OK
    done = bisect("run", "--", *PYTEST, "test_net.py")
    assert done.status == CANNOT_TELL
    assert f"ConfigError: the end {made.commits[1][:10]} cannot be tested: src/net.py was executed from" in done.err
    assert f"{made.path}/test_net.py:3 loads it by its path" in done.err and "import it by its name" in done.err


@pytest.mark.slow
def test_a_step_tests_its_folder_where_another_checkout_is_on_the_path(tmp_path: Path) -> None:
    made = history(tmp_path / "r", 1, lambda at: {"src/net.py": f"RIGHT = {at < 1}\n"})
    made.git("worktree", "add", "--quiet", str(tmp_path / "old"), "HEAD~1")
    script = f"import sys; sys.path.insert(0, {str(made.path / 'src')!r}); import net; exit(not net.RIGHT)"
    for folder, status in ((tmp_path / "old", OK), (made.path, NO)):
        assert spawn("bisect", "step", "--", sys.executable, "-c", script, cwd=folder).status == status


FIRMWARE = """
targets:
  product:
    cpu: cortex-m4
    board: ./board
    firmware: {elf: build/firmware.elf, build: mkdir -p build && cp source build/firmware.elf}
    launcher: {qemu: mps2-an386}
"""
READ = """
from pathlib import Path
from cortex_m_hil.runner.own_firmware import own_firmware
from cortex_m_hil.targets.load import load_targets
target = load_targets(Path(TARGETS))["product"]
assert target.board.memory.program.size == 1 << 20
exit(not own_firmware(target, {}).path.read_text().startswith("right"))
"""
BOARD = (SAMPLE / "board" / "board.yaml").read_text()


@pytest.mark.first_only
@pytest.mark.parametrize("place", ["source", "tests"])
def test_each_commits_firmware_and_board_are_tested(
    place: str, bisect: Bisect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With targets.yaml in the repository, whose own board and ELF would be bad everywhere, or outside of it."""
    board = BOARD.replace("program: {region: psram, size: 4M}", "program: {region: psram, size: 1M}")
    linked = f", links {LIBRARY_TEXT.decode()}"
    elves = ["right" + linked, "wrong" + linked]
    made = history(tmp_path / "source", 1, lambda at: {"source": elves[at], "board/board.yaml": board})
    (made.path / "board" / "board.yaml").write_text(BOARD)
    (made.path / "build").mkdir()
    (made.path / "build" / "firmware.elf").write_text("the checkout's" + linked)
    above = "" if place == "source" else "../source/"
    text = FIRMWARE.replace("./board", f"./{above}board").replace("build/firmware.elf,", f"{above}build/firmware.elf,")
    targets = tmp_path / place / "targets.yaml"
    targets.write_text(text)
    monkeypatch.chdir(targets.parent)
    build = () if place == "source" else ("--build", "mkdir -p build && cp source build/firmware.elf")
    begin(bisect, made, "--deterministic", *build)
    done = bisect("run", "--json", "--", sys.executable, "-c", READ.replace("TARGETS", repr(str(targets))))
    assert found(done)[:2] == (OK, made.commits[1]), done


@pytest.mark.slow
def test_the_commit_that_broke_a_stage_of_the_users_firmware_is_found_with_the_stages_name(
    bisect: Bisect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the sample's repository, by its own test; one commit after the culprit and some before it change nothing."""
    files = [one for one in SAMPLE.rglob("*") if one.is_file() and not {"build", "__pycache__"} & set(one.parts)]
    sample = {str(one.relative_to(SAMPLE)): one.read_text() for one in files}

    def product(at: int) -> dict[str, str]:
        right = sample["pipeline.c"]
        planted = right.replace("(mean * 8u >> bits) - 8u", "(mean * 8u >> bits) - 7u")
        assert planted != right
        return {**sample, "README.md": f"{at}\n", "pipeline.c": planted if at >= 3 else right}

    made = history(tmp_path / "product", 4, product)
    before = made.touched()
    monkeypatch.chdir(made.path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")  # make calls hil
    assert bisect("start", "HEAD", "HEAD~4", "--deterministic", "--incremental", "--build", "make").status == OK
    test = "test_pipeline.py::test_each_stage_is_the_references"
    done = bisect("run", "--json", "--", *PYTEST, "--target=bare-metal", test)
    assert found(done)[:2] == (OK, made.commits[3]), done
    [one] = answer(done.out)["targets"]
    assert (one["test"], one["old"], one["new"], one["at_fault"]) == (test, "PASS", "FAIL Mismatch", "stage features")
    assert made.touched() == before


@pytest.mark.parametrize(
    ("operators", "expected"),
    [
        (["quantized_conv2d"], ("conv",)),
        (["quantized_linear"], ("fully_connected", "linear")),
        (["quantized_depthwise_conv2d", "quantize_per_tensor"], ("conv", "depthwise", "quantize")),
        (["quantized_avg_pool2d_nhwc"], ("avg", "pool")),
        (["permute_copy"], ("permute",)),
        (["to"], ()),
    ],
)
def test_the_names_of_files_that_an_operator_may_lie_in(operators: list[str], expected: tuple[str, ...]) -> None:
    assert file_name_words(operators) == expected


def test_commits_that_touch_files_of_the_operator_at_fault_are_more_probable(tmp_path: Path) -> None:
    """Unless the user says which are, or that one run of a commit tells all."""
    kernel, other = {"Source/Arm_Fully_Connected_s8.c": ""}, {"README": ""}
    made = history(tmp_path / "r", 8, lambda number: dict.fromkeys(kernel if number == 3 else other, f"{number}"))
    plan = BisectionPlan(Source(str(made.path)), made.commits[0], made.commits[8])
    case = {"test": "t", "verdict": "FAIL", "at_fault": "cortex_m::quantized_linear.out (node), operator 1"}
    runs = [Run(made.commits[8], "fail", "", 1, 1, {"cases": [case]}), Run(made.commits[0], "pass")]
    after = CommitLine.from_plan(plan).state(runs).posterior
    assert after[3] == max(after[1:9]) > 2 * after[4] and after[4] == pytest.approx(after[5])
    silent = [Run(made.commits[8], "fail"), runs[1]]
    for same, seen in (
        (plan, silent),
        (replace(plan, deterministic=True), runs),
        (replace(plan, likely=("README",)), runs),
    ):
        found = CommitLine.from_plan(same).state(seen).posterior
        assert found[3] <= found[4] * 1.001


def test_a_random_culprit_of_64_commits_takes_8_runs(bisect: Bisect, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    culprit = random.Random(seed).randint(1, 64)
    made = history(tmp_path / "r", 64, lambda number: {"value": f"{int(number >= culprit)} {number}\n"})
    begin(bisect, made, "--deterministic")
    assert found(bisect("run", "--json", "--", "sh", "-c", CHECK)) == (OK, made.commits[culprit], 8)
