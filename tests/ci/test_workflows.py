"""The workflows: each command is executed here, with GitHub's files and API stood in for (support/github_runner.py)."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import install_action
import nightly_targets
from file_texts import TEST_OF_KNOWN_ANSWER
from github_actions import fenced, is_harmless
from github_runner import APART, WORKFLOWS, Api, Runner, api, commands, load, steps
from paths import REPOSITORY

FILES = sorted(WORKFLOWS.glob("*.yml"))
ACTION = REPOSITORY / "action.yml"
CI, GETTING_STARTED = (REPOSITORY / "docs" / f"{name}.md" for name in ("nightly", "getting-started"))
BOT = {"login": "github-actions[bot]"}
HEAD = {"sha": "a" * 40, "repo": {"full_name": "stranger/r"}}


@pytest.fixture
def github() -> Iterator[Api]:
    with api() as found:
        yield found


@pytest.fixture
def run(tmp_path: Path, github: Api) -> Callable[..., Runner]:
    """A run of a workflow in a checkout with one small test; artifacts of all runs are in one place."""

    def begin(number: int, event: str, payload: dict[str, Any] | None = None, **variables: str) -> Runner:
        workspace, temporary = tmp_path / f"workspace{number}", tmp_path / f"temp{number}"
        shutil.copytree(REPOSITORY / "ci", workspace / "ci")
        shutil.copy(REPOSITORY / "constraints.txt", workspace)
        (workspace / "pyproject.toml").write_text("")
        (workspace / "tests" / "targets").mkdir(parents=True)
        (workspace / "tests" / "targets" / "test_it.py").write_text(TEST_OF_KNOWN_ANSWER)
        (workspace / "ci" / "nightly.yaml").write_text("tests: [tests/targets]\n")
        temporary.mkdir()
        (tmp_path / "artifacts" / str(number)).mkdir(parents=True)
        return Runner(workspace, temporary, tmp_path / "artifacts", github.url, number, event, payload or {}, variables)

    return begin


def night(number: int, event: str = "schedule", repository: str = "o/r") -> dict[str, Any]:
    return {"id": number, "event": event, "head_repository": {"full_name": repository}}


def finished(number: int, event: str) -> dict[str, Any]:
    """What `workflow_run` tells of a run."""
    told = {
        "id": number,
        "event": event,
        "conclusion": "failure",
        "head_sha": HEAD["sha"],
        "head_repository": HEAD["repo"],
    }
    return {"workflow_run": told}


# --- what is executed ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_nightly_then_a_pull_request_that_breaks_a_test(run: Callable[..., Runner], github: Api) -> None:
    github.answers["GET actions/workflows/nightly.yml/runs"] = {"workflow_runs": []}
    nightly = run(1, "schedule")
    status, planned = nightly.job("nightly.yml", "plan")
    assert status == 0 and {"m4-qemu", "m0-qemu", "m55-qemu"} <= set(json.loads(planned["targets"]))
    assert not {"native", "m4-fvp"} & set(json.loads(planned["targets"]))
    for target in ("m4-qemu", "m0-qemu"):
        assert nightly.job("nightly.yml", "target", target=target)[0] == 0
    needs = {"plan": {"outputs": {"targets": '["m4-qemu", "m0-qemu"]'}, "result": "success"}}
    assert nightly.job("nightly.yml", "report", needs)[0] == 0
    assert "There is no nightly to compare with." in nightly.summary and "\n| `m0-qemu` | " in nightly.summary
    kept = nightly.artifacts / "1"
    assert {"index.html", "results.json", "junit.xml"} == {one.name for one in (kept / "hil-report").iterdir()}
    assert len(list((kept / "hil-nightlies").iterdir())) == 1
    assert nightly.executed == (commands(WORKFLOWS / "nightly.yml") | commands(ACTION)) - set(APART)

    stranger = night(9, "pull_request", "stranger/r")
    github.answers["GET actions/workflows/nightly.yml/runs"] = {"workflow_runs": [stranger, night(1)]}
    github.answers["GET actions/runs/1/artifacts"] = {"artifacts": [{"name": "hil-nightlies", "expired": False}]}
    change = run(2, "pull_request", {"pull_request": {"number": 7}})
    (change.workspace / "tests" / "targets" / "test_it.py").write_text(
        TEST_OF_KNOWN_ANSWER + "    assert not '@everyone ```'\n"
    )
    assert change.job("pull-request.yml", "target", target="m4-qemu")[0] == 1
    assert change.job("pull-request.yml", "report")[0] == 1
    told = change.summary
    assert "**No results of `m55-qemu`, `m0-qemu`**" in told and "#### New failures" in told
    assert "no longer there" not in told
    assert not (change.artifacts / "2" / "hil-nightlies").exists()
    assert change.executed | {"make quick"} >= commands(WORKFLOWS / "pull-request.yml")

    github.answers |= {"GET pulls/7": {"head": HEAD}, "GET issues/7/comments": [], "POST issues/7/comments": {}}
    comment = run(3, "workflow_run", finished(2, "pull_request"))
    assert comment.job("comment.yml", "comment")[0] == 0
    [(what, body)] = github.asked
    assert what == "POST issues/7/comments" and "https://github.example/o/r/actions/runs/2" in body["body"]
    assert "\n#### New failures\n" in body["body"]  # and what the stranger's test said is code, not a mention
    assert re.search(r"^  (````+)[^`].*@everyone ```.*[^`]\1  $", body["body"], re.MULTILINE)
    assert comment.executed == commands(WORKFLOWS / "comment.yml")


WRONG = """
import numpy

from cortex_m_hil import load_program
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.program.program import References
from cortex_m_hil.program.tensor import HostTensor
from dataclasses import replace

def test_is_off(hil):
    inputs = (HostTensor.from_array(numpy.ones((1, 16), "float32")),)
    program, _ = load_program(known_answer(hil.isa).program), None
    off = References(dialect=(hil.run(program, inputs).outputs[0].array() + numpy.float32(0.5),))
    hil.verify(replace(program, inputs=inputs, reference=lambda _: off))
"""


@pytest.mark.slow
@pytest.mark.parametrize("asked", [None, "true"])
def test_bundles_which_hold_models_are_kept_if_that_is_asked(run: Callable[..., Runner], asked: str | None) -> None:
    job = run(1, "push")
    (job.workspace / "tests" / "targets" / "test_it.py").write_text(WRONG)
    given = {"targets": "m0-qemu", "tests": "tests/targets", "name": "m0"} | ({"bundles": asked} if asked else {})
    assert job.action(given) == 1
    assert "Mismatch" in job.summary
    kept = sorted(one.relative_to(job.artifacts / "1") for one in (job.artifacts / "1").rglob("*.hil.zip"))
    assert [one.parts[:2] for one in kept] == ([("hil-bundles-m0", "bundles")] if asked else [])
    assert {one.name for one in (job.artifacts / "1").iterdir()} == {"hil-results-m0"} | (
        {"hil-bundles-m0"} if asked else set()
    )


def test_no_workflow_of_this_repository_keeps_bundles() -> None:
    asked = [step.get("with", {}) for file in FILES for step in steps(file)]
    assert (
        asked and not any("bundles" in one for one in asked) and load(ACTION)["inputs"]["bundles"]["default"] == "false"
    )


@pytest.mark.slow
def test_boards_run_and_report_in_one_job_where_a_limit_is_not_kept(run: Callable[..., Runner], github: Api) -> None:
    github.answers["GET actions/workflows/boards.yml/runs"] = {"workflow_runs": []}
    boards = run(1, "schedule", HIL_BOARDS="native")
    limit = "fail_if: [{figure: pte_bytes, above: 1}]\n"
    (boards.workspace / "nightly.yaml").write_text(limit)
    assert boards.job("boards.yml", "boards")[0] == 1
    told = boards.summary
    assert "### Failed: 1 passed\n" in told and "- **beyond limit** `pte_bytes " in told
    assert commands(WORKFLOWS / "boards.yml") == set()


@pytest.mark.slow
@pytest.mark.parametrize(("against", "said"), [("0123456", "no nightly '0123456'"), ("1", "Compared with nightly 1")])
def test_what_to_compare_with_may_be_named(run: Callable[..., Runner], against: str, said: str) -> None:
    first, second = run(1, "schedule"), run(2, "schedule")
    given = {"targets": "native", "tests": "tests/targets", "report": "true"}
    assert first.action(given) == 0
    shutil.copytree(first.artifacts / "1" / "hil-nightlies", second.workspace / "hil-nightlies")
    assert (second.action({**given, "against": against}) == 0) == (against == "1")
    assert said in second.summary


@pytest.fixture
def workflow_to_copy(tmp_path: Path) -> Path:
    """The one of docs/nightly.md for a project that has the wheel."""
    [block] = re.findall(r"^```yaml\n(name: Tests on .*?)^```$", CI.read_text(), re.MULTILINE | re.DOTALL)
    file = tmp_path / ".github" / "workflows" / "targets.yml"
    file.parent.mkdir(parents=True)
    file.write_text(block)
    return file


def test_the_workflow_to_copy_is_one(workflow_to_copy: Path) -> None:
    """As `make lint` asks of this repository's."""
    tools = Path(sys.executable).parent
    for words in (
        ["zizmor", "--offline", "--quiet"],
        ["check-jsonschema", "--builtin-schema", "vendor.github-workflows"],
    ):
        done = subprocess.run(
            [tools / words[0], *words[1:], workflow_to_copy], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    ours = {step["uses"] for file in [*FILES, ACTION] for step in steps(file) if "uses" in step}
    assert {step["uses"] for step in steps(workflow_to_copy) if "uses" in step} <= ours
    packages = set(
        re.findall(
            r"(?<= )[a-z][a-z0-9+-]+", GETTING_STARTED.read_text().split("apt-get install")[1].split("\npython3")[0]
        )
    )
    [install] = [text for text in commands(workflow_to_copy) if "apt-get install" in text]
    assert packages and packages <= set(install.split())


@pytest.mark.slow
def test_the_workflow_to_copy_runs_tests_and_tells_what_changed(
    run: Callable[..., Runner], workflow_to_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = run(1, "push")
    text = workflow_to_copy.read_text().replace("m55-qemu,m4-qemu,m0-qemu", "m0-qemu,native")
    text = text.replace("hil nightly tests ", "hil nightly tests/targets ")
    workflow_to_copy.write_text(text.replace("/tmp/hil-", f"{job.temporary}/hil-"))
    installs = {
        step["run"]
        for step in steps(workflow_to_copy)
        if step.get("name") in ("Compilers and simulators", "Python packages", "ExecuTorch")
    }
    for command in installs:
        subprocess.run(["bash", "-n", "-c", command], check=True)
        monkeypatch.setitem(APART, command, "installs packages")
    assert job.job(str(workflow_to_copy), "targets")[0] == 0
    assert job.summary.startswith(
        "### Passed: 2 passed\n\nNightly 1, 2 results. There is no nightly to compare with.\n"
    )
    assert "| `m0-qemu` | `builtin` | `m0-qemu · QEMU" in job.summary
    assert (job.artifacts / "1" / "hil-report" / "index.html").is_file()
    (job.workspace / "tests" / "targets" / "test_it.py").write_text(
        TEST_OF_KNOWN_ANSWER + "    assert not '@everyone `|<b>'\n"
    )
    job.run, job.summary = 2, ""
    (job.artifacts / "2").mkdir()
    assert job.job(str(workflow_to_copy), "targets")[0] == 1
    assert job.summary.startswith("### Failed: 2 failed\n\nNightly 2, 2 results. Compared with nightly 1.\n")
    wanted = (
        "#### New failures\n\n- **`FAIL AssertionError`** `tests/targets/test_it.py::test_runs [m0-qemu, native]`",
        "again: `pytest --hil-target=m0-qemu --hil-runtime=builtin 'tests/targets/test_it.py::test_runs[m0-qemu]'`",
    )
    assert [text for text in wanted if text not in job.summary] == []
    assert job.executed == commands(workflow_to_copy) - installs


@pytest.mark.slow
def test_the_fvp_workflow_with_a_shim_in_place_of_arms_model(run: Callable[..., Runner], tmp_path: Path) -> None:
    """Of Arm's, nothing is known here but the manners of its installer."""
    hil = f"{sys.executable} -m cortex_m_hil.cli"
    folder = "models/Linux64_GCC-9.3"
    installer = (
        f'[ "$1" = --i-agree-to-the-contained-eula ] && mkdir -p "$4" && cd "$4" && {hil} fvp-shim install {folder}\n'
    )
    archive = tmp_path / "fvp.tgz"
    with tarfile.open(archive, "w:gz") as tar:
        info = tarfile.TarInfo("FVP_Corstone_SSE-300.sh")
        info.size = len(installer)
        tar.addfile(info, io.BytesIO(installer.encode()))
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    with api() as files:
        files.answers["GET fvp.tgz"] = archive.read_bytes()
        fvp = run(1, "workflow_dispatch", HIL_FVP_URL=f"{files.url}/repos/o/r/fvp.tgz", HIL_FVP_SHA256=digest)
        assert fvp.job("fvp.yml", "fvp", inputs={"accept-arms-licence": True})[0] == 0
    assert commands(WORKFLOWS / "fvp.yml") <= fvp.executed


def test_every_workflow_is_among_those_above() -> None:
    names = ("boards", "comment", "fvp", "nightly", "pull-request", "versions")
    assert [one.name for one in FILES] == [f"{one}.yml" for one in names]


def test_the_install_action_installs_the_package_with_its_constraints() -> None:
    words = install_action.command(Path("python"), "upstream", "-r 'my file.txt'")
    assert words[-3:] == [f"{REPOSITORY}[upstream]", "-r", "my file.txt"]
    assert words[words.index("--constraint") + 1] == str(REPOSITORY / "constraints.txt")
    subprocess.run(["sh", "-n", REPOSITORY / "ci" / "install.sh"], check=True)
    subprocess.run(["make", "-n", "test"], cwd=REPOSITORY, check=True, capture_output=True)


# --- what strangers may send ---------------------------------------------------------------------------------


def comment(folder: Path, github: Api, run: dict[str, Any], content: bytes) -> subprocess.CompletedProcess[str]:
    (folder / "comment.json").write_bytes(content)
    (folder / "event.json").write_text(json.dumps(run))
    given = {"GITHUB_EVENT_PATH": str(folder / "event.json"), "GITHUB_API_URL": github.url, "GITHUB_REPOSITORY": "o/r"}
    given |= {"GITHUB_SERVER_URL": "https://github.example", "GITHUB_TOKEN": "t"}
    call = [sys.executable, str(REPOSITORY / "ci" / "post_comment.py"), str(folder)]
    return subprocess.run(call, env=os.environ | given, capture_output=True, text=True, timeout=60, check=False)


def told(number: object = 7, text: object = "t", news: object = True) -> bytes:
    return json.dumps({"pull_request": number, "text": text, "news": news}).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"\xff",
        b"[" * 60_000,
        told("7"),
        told(True),
        told(-1),
        told("7/../8"),
        told(7.0),
        told(text=1),
        told(news="no"),
        b" " * (1 << 17),
    ],
    ids=lambda content: repr(content[:20]),
)
def test_a_file_that_makes_no_sense_is_not_commented(tmp_path: Path, github: Api, content: bytes) -> None:
    github.answers |= {"GET pulls/7": {"head": HEAD}, "GET issues/7/comments": [], "POST issues/7/comments": {}}
    done = comment(tmp_path, github, finished(2, "pull_request"), content)
    assert done.returncode == 2 and "comment.json" in done.stderr and "Traceback" not in done.stderr
    assert github.asked == []


@pytest.mark.parametrize(
    "head", [HEAD | {"sha": "b" * 40}, HEAD | {"repo": {"full_name": "o/r"}}, HEAD | {"repo": None}]
)
def test_a_number_of_another_pull_request_is_not_commented(tmp_path: Path, github: Api, head: dict[str, Any]) -> None:
    github.answers |= {"GET pulls/7": {"head": head}, "GET issues/7/comments": [], "POST issues/7/comments": {}}
    done = comment(tmp_path, github, finished(2, "pull_request"), told())
    assert done.returncode == 0 and "is another's" in done.stdout and github.asked == []


def test_a_second_comment_replaces_the_first_and_nobody_elses(tmp_path: Path, github: Api) -> None:
    mark = "<!-- cortex-m-hil -->"
    known = [{"id": 1, "user": {"login": "stranger"}, "body": mark}, {"id": 2, "user": BOT, "body": mark}]
    github.answers |= {"GET pulls/7": {"head": HEAD}, "GET issues/7/comments": known, "PATCH issues/comments/2": {}}
    done = comment(tmp_path, github, finished(2, "pull_request"), told())
    assert done.returncode == 0 and [what for what, _ in github.asked] == ["PATCH issues/comments/2"], done


def test_what_changed_at_night_is_commented_on_one_issue(tmp_path: Path, github: Api) -> None:
    run = finished(1, "schedule")
    github.answers |= {"GET issues": [], "POST issues": {"number": 4}, "POST issues/4/comments": {}}
    assert comment(tmp_path, github, run, told(None, news=False)).returncode == 0 and github.asked == []
    assert comment(tmp_path, github, run, told(None)).returncode == 0
    github.answers["GET issues"] = [{"number": 4, "user": BOT}]
    assert comment(tmp_path, github, run, told(None)).returncode == 0
    assert [what for what, _ in github.asked] == ["POST issues", "POST issues/4/comments", "POST issues/4/comments"]


@pytest.mark.parametrize("text", ["", "```", "a\n`````\n<script>", "~~~"])
def test_text_cannot_leave_its_block(text: str) -> None:
    first, *_, last = fenced(text).split("\n")
    assert first == f"{last}text" and set(last) == {"`"} and last not in text


@pytest.mark.parametrize(
    ("text", "fine"),
    [
        ("### Failed\n\n- **`@a`** `http://b`\n  - `<c>`: +1.5 %\n\n| a |\n|---|\n| `x\\|y` |", True),
        *((one, False) for one in ("@a", "[a](b)", "<b>", "a.b/c", "# 1\n#1", "GH-1", "www.a.b", "&#64;a", "\\`@a\\`")),
        *((one, False) for one in ("`a", "`a\n@b`", "```\n@a\n```", "| `x | @a` |", "a\u202eb", "![a]", "~~~")),
    ],
)
def test_only_harmless_markdown_is_shown_as_such(text: str, fine: bool) -> None:
    assert is_harmless(text) == fine


def test_other_text_is_commented_as_a_block(tmp_path: Path, github: Api) -> None:
    github.answers |= {"GET pulls/7": {"head": HEAD}, "GET issues/7/comments": [], "POST issues/7/comments": {}}
    for text, shown in (("`@a` is new", "\n\n`@a` is new\n"), ("@a is new", "\n\n```text\n@a is new\n```\n")):
        assert comment(tmp_path, github, finished(2, "pull_request"), told(text=text)).returncode == 0
        assert github.asked[-1][1]["body"].endswith(shown)


def test_no_simulator_gets_a_job_in_the_name_of_another() -> None:
    fields = {"hardware": False, "runnable": True, "runs_as": "a-qemu"}
    lines = [
        json.dumps(fields | one)
        for one in (
            {"target": "a-qemu"},
            {"target": "a-fvp"},
            {"target": "b-qemu", "runs_as": "b-qemu", "runnable": False},
        )
    ]
    assert nightly_targets.chosen(lines, ["*"]) == ["a-qemu"]


# --- what is written -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", [*FILES, ACTION], ids=lambda file: file.name)
def test_actions_are_pinned_and_checkouts_keep_no_token(file: Path) -> None:
    for step in steps(file):
        used = step.get("uses", "./")
        assert used == "./" or re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", used), used
        if used.startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False
    pins = set(re.findall(r"uses: (\S+@\S+) # (v\S+)", file.read_text()))
    assert len({pin.partition("@")[0] for pin, _ in pins}) == len(pins), "one digest of each action"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_pull_requests_get_no_write_token_and_no_own_runner(file: Path) -> None:
    """Only what executes no code of a pull request may write; only what no pull request starts has our runners."""
    loaded = load(file)
    events = {loaded["on"]} if isinstance(loaded["on"], str) else set(loaded["on"])
    assert loaded["permissions"] == {} and "pull_request_target" not in events
    for job in loaded["jobs"].values():
        assert "timeout-minutes" in job
        if "write" in job["permissions"].values():
            assert events == {"workflow_run"}
            checkouts = [step["with"] for step in job["steps"] if step.get("uses", "").startswith("actions/checkout@")]
            assert [one["ref"] for one in checkouts] == ["${{ github.event.repository.default_branch }}"]
        if "self-hosted" in job["runs-on"]:
            assert events <= {"schedule", "workflow_dispatch"}
