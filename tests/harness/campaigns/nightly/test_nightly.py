"""hil nightly, on `native` and QEMU, with a program that needs no lowering: interrupted, in shards, in its errors."""

from __future__ import annotations

import getpass
import gzip
import json
import os
import random
import re
import signal
import socket
import sqlite3
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from command_line import CANNOT_TELL, FIRST_BUILD, NO, OK, Done, answer, answers, call, expect, running
from cortex_m_hil.campaigns.nightly import stored_nightlies as nights
from cortex_m_hil.campaigns.nightly.nightly import ENDED, BudgetSpent, Nightly, NightlyPlan, run_of, state_of_folder
from cortex_m_hil.campaigns.nightly.stored_nightlies import ExportedNightly
from cortex_m_hil.campaigns.report.changes import ChangeKind
from cortex_m_hil.campaigns.report.nightly_results import FIGURES, RUNNER, Key, Result
from cortex_m_hil.campaigns.report.results_json import SCHEMA
from cortex_m_hil.campaigns.store import Run, Store, StoredCampaign
from cortex_m_hil.cli.commands.nightly import Options, _settings
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.flow.coverage.counts import ClassCoverage, Counts, Coverage
from cortex_m_hil.program import known_answer
from cortex_m_hil.pytest_plugin.nightly_plugin import TELLING
from cortex_m_hil.runner.run_results import Verdict
from cortex_m_hil.runner.target_library import write_target_library
from cortex_m_hil.targets.executorch_prefix import VARIABLE
from file_texts import TWO_LAYERS
from junit_schema import invalid
from paths import IMPORT_ROOT, REPOSITORY
from prefixes import FLAGS, make_prefix
from repositories import history
from reruns import WITH_TEARDOWN, WITHOUT_TEARDOWN

pytestmark = pytest.mark.usefixtures("programs_preloaded")

Hil = Callable[..., Done]
SAMPLE = REPOSITORY / "examples" / "own_firmware"
COMPARES = "test_pipeline.py::test_each_stage_is_the_references"
MEASURES_LATENCY = "test_pipeline.py::test_a_decision_takes_less_than_a_millisecond"
PROGRAM = Path(known_answer.__file__).parent / "scalar.pte"
PASSES = f"""
import pytest

@pytest.mark.parametrize("number", range(3))
def test_runs(run_pte, number):
    run_pte({str(PROGRAM)!r}, [__import__("numpy").zeros((1, 16), "float32")])

def test_uses_no_target():
    pass
"""
FAILS = """
import os, pytest

def test_raises(hil):
    raise AssertionError("of its own")

def test_ends_the_worker(hil):
    os._exit(3)
"""
TELLS = """
import getpass, os, pathlib, socket

def test_tells(hil):
    print(dict(os.environ), flush=True)
    said = [os.environ["SOME_TOKEN"], getpass.getuser(), socket.gethostname(), pathlib.Path.home(), os.getcwd()]
    raise AssertionError(" ".join(map(str, said)))
"""
MISMATCH = f"""
import dataclasses, numpy, pytest
from cortex_m_hil import load_program
from cortex_m_hil.program.program import References
from cortex_m_hil.program.tensor import HostTensor

@pytest.mark.parametrize("off", [0, 1])
def test_is_off(hil, off):
    program, inputs = load_program({str(PROGRAM)!r}), (HostTensor.from_array(numpy.ones((1, 16), "float32")),)
    given = hil.run(program, inputs).outputs[0].array()
    known = References(dialect=(given + numpy.float32(off / 2),))
    hil.verify(dataclasses.replace(program, inputs=inputs, reference=lambda _: known))
"""


CHECKS = """
import nets_16

def test_two_layers(hil):
    module, inputs = nets_16.make()
    hil.check(module, inputs)

def test_its_first_layer(hil):
    module, inputs = nets_16.make()
    hil.check(module.first, inputs)
"""
MEASURES = """
import pytest
from cortex_m_hil import load_program
from cortex_m_hil.errors import LaunchError
from cortex_m_hil.maintainers.fuzzing.mutant_judge import example_inputs

def instructions(hil):
    program = load_program("program.pte")
    return hil.run(program, example_inputs(program)).instructions

@pytest.fixture
def ends_badly(hil):
    yield
    if BUDGET:
        raise LaunchError("gone")

def test_fails(hil):
    assert instructions(hil) > 0 and not BUDGET
@pytest.mark.xfail(strict=False)
def test_xfails(hil):
    assert instructions(hil) > 0 and not BUDGET
def test_is_quarantined(hil):
    assert instructions(hil) > 0 and not BUDGET
def test_ends_badly(hil, ends_badly):
    instructions(hil)
def test_skips(hil):
    if instructions(hil) and BUDGET:
        pytest.skip("measured")
"""
FLAKY = """
import pytest
from pathlib import Path
from cortex_m_hil.errors import LaunchError, Mismatch

tried = {}

def is_first(name):
    tried[name] = tried.get(name, 0) + 1
    return tried[name] == 1

@pytest.fixture
def flaky_board():
    if is_first("board"):
        raise LaunchError("gone")

@pytest.fixture
def fails_at_its_end():
    yield
    raise LaunchError("gone")

def test_flaky(hil_dut):
    if is_first("test"):
        raise Mismatch("far off")
def test_flaky_setup(hil_dut, flaky_board): pass
def test_wrong(hil_dut): raise Mismatch("far off")
def test_wrong_twice(hil_dut, fails_at_its_end): raise Mismatch("far off")
def test_right(hil_dut): pass
def test_uses_no_target(): assert not is_first("none")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "test_it.py").write_text(PASSES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def hil(capsys: pytest.CaptureFixture[str], folder: Path) -> Hil:
    """Calls a command in this process, with a store of its own."""

    return lambda *arguments: call(capsys, *arguments, "--store", folder / "store.sqlite")


def recorded(folder: Path) -> int:
    try:
        with sqlite3.connect(folder / "store.sqlite") as store:
            found = store.execute(
                "SELECT count(*) FROM run WHERE key NOT LIKE 'part|%' AND key NOT LIKE '%(runner)%'"
            ).fetchone()
        return int(found[0])
    except sqlite3.OperationalError:  # not made yet
        return 0


def comparable(done: Done) -> list[dict[str, Any]]:
    """What `hil results show` tells, without what differs from run to run."""
    timed = ("seconds", "cpu_seconds", "exit_status")
    rows = [{name: value for name, value in row.items() if name not in timed} for row in answers(done.out)]
    for row in rows:
        row["figures"] = {name: value for name, value in row["figures"].items() if name != "host_ticks"}
        row["about"] = {name: value for name, value in row["about"].items() if not name.endswith("_seconds")}
    return rows


def test_results_are_remembered_and_nothing_changed(hil: Hil, folder: Path) -> None:
    call = ("nightly", "test_it.py", "-t", "native,m0-qemu", "--json")
    first, second = answer(hil(*call).out), answer(hil(*call).out)
    assert (first["outcome"], first["compared_with"], first["changes"]) == ("complete", None, [])
    assert (second["compared_with"], second["changes"]) == (first["nightly"], [])
    assert {word: number for word, number in second["verdicts"].items() if number} == {"passed": 7}
    rows = answers(hil("results", "show", "--json").out)
    assert [(row["test"], row["target"]) for row in rows if row["target"] == "m0-qemu"] == [
        (RUNNER, "m0-qemu"),
        *((f"test_it.py::test_runs[{number}]", "m0-qemu") for number in range(3)),
    ]
    counted = next(row for row in rows if row["test"] == "test_it.py::test_runs[0]" and row["target"] == "m0-qemu")
    assert sum(counted["parts"]["instructions"].values()) == counted["figures"]["instructions"][0] > 0
    assert sum(counted["parts"]["layers"].values()) == sum(counted["parts"]["instructions"].values())
    assert any(name.startswith("cortex_m::quantized_linear.out in ") for name in counted["parts"]["layers"])
    assert sum(counted["parts"]["planned_bytes"].values()) == counted["figures"]["planned_bytes"][0] > 0
    [(at_peak, nbytes)] = counted["parts"]["planned_peak"].items()
    assert at_peak.startswith(f"{next(iter(counted['parts']['planned_bytes']))}: cortex_m::") and nbytes > 0
    assert counted["engine"].startswith("QEMU ")
    assert sum(counted["parts"]["pte_bytes"].values()) == counted["figures"]["pte_bytes"][0] == PROGRAM.stat().st_size
    [runner] = [row for row in rows if (row["test"], row["target"]) == (RUNNER, "m0-qemu")]
    assert runner["parts"]["elf_bytes"]["cortex_m::quantized_linear.out"] > 0
    assert sum(runner["parts"]["elf_stored_bytes"].values()) == runner["figures"]["elf_stored_bytes"][0] > 50_000
    np.save(folder / "x.npy", np.zeros((1, 16), "float32"))
    zeros = ("profile", PROGRAM, "-i", folder / "x.npy", "-t", "m0-qemu", "--against")
    profiled = answer(hil(*zeros, "last", "--json").out)
    same = profiled["against"]
    assert (same["ticks"], same["same_inputs"], {row["ticks"] for row in same["rows"]}) == (0, True, {0})
    assert profiled["ticks"] == counted["figures"]["instructions"][0]
    assert same["before"]["program"].startswith("nightly 2, test_it.py::test_runs[0]: ")
    assert "nightly 1, test_it.py::test_runs[2]: " in hil(*zeros, "1::runs[2]").out
    with sqlite3.connect(folder / "store.sqlite") as store:
        store.execute("DELETE FROM run WHERE key LIKE 'part|profiles|%'")  # as of an earlier hil
    expect(hil(*zeros, "last"), CANNOT_TELL, "nightly 2 keeps no figures of single calls", "hil results compare")
    listed = answers(hil("results", "list", "--json").out)
    assert [row["complete"] for row in listed] == [True, True]
    assert "libc of arm-none-eabi-g++" in listed[0]["tools"] and listed[0]["tools"]["executorch"]


@pytest.mark.first_only
@pytest.mark.parametrize("repeats", [WITHOUT_TEARDOWN, WITH_TEARDOWN], ids=["without teardown", "with teardown"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_test_that_was_run_again_has_one_result(hil: Hil, folder: Path, repeats: str, workers: int) -> None:
    """Where the attempt that failed has a teardown, it had a result of its own: a pass without a target."""
    (folder / "conftest.py").write_text(repeats)
    (folder / "test_it.py").write_text(FLAKY)
    done = answer(hil("nightly", "test_it.py", "-t", "native", f"--pytest=-n{workers}", "--json").out)
    assert {word: number for word, number in done["verdicts"].items() if number} == {
        "passed": 4,
        "failed": 1,
        "infra": 1,
    }
    rows = answers(hil("results", "show", "--json").out)
    assert {(row["test"].partition("::test_")[2], row["target"]): (row["verdict"], row["earlier"]) for row in rows} == {
        ("flaky", "native"): ("PASS", ["FAIL Mismatch"]),
        ("flaky_setup", "native"): ("PASS", ["INFRA LaunchError"]),
        ("wrong", "native"): ("FAIL", ["FAIL Mismatch"]),
        ("wrong_twice", "native"): (
            "INFRA",
            ["INFRA LaunchError" if repeats == WITH_TEARDOWN else "FAIL Mismatch"],
        ),
        ("right", "native"): ("PASS", []),
        ("uses_no_target", ""): ("PASS", []),
    }
    assert len(rows) == 6


@pytest.mark.first_only
@pytest.mark.parametrize("repeats", [WITHOUT_TEARDOWN, WITH_TEARDOWN], ids=["without teardown", "with teardown"])
def test_what_was_measured_is_told_whatever_became_of_the_test(hil: Hil, folder: Path, repeats: str) -> None:
    """A test that fails its own budget kept the old figure as the one of now, and was not told to be slower."""
    (folder / "conftest.py").write_text(repeats)
    (folder / "quarantine.yaml").write_text("quarantine: [{test: '*quarantined*', reason: known, until: 9999-01-01}]\n")
    call = ("nightly", "test_it.py", "-t", "m0-qemu", "--pytest=--hil-quarantine=quarantine.yaml", "--report", "out")
    for program, budget in ((PROGRAM, False), (REPOSITORY / "tests" / "fuzz_seeds" / "linear.pte", True)):
        (folder / "test_it.py").write_text(f"BUDGET = {budget}\n{MEASURES}")
        (folder / "program.pte").write_bytes(program.read_bytes())
        hil(*call)
    rows = {row["test"].partition("::test_")[2]: row for row in answers(hil("results", "show", "--json").out)}
    runner = rows.pop("")
    assert (
        runner["target"] == "m0-qemu" and runner["parts"]["elf_bytes"]
    )  # though the attempt that told of it was repeated
    assert {name: row["verdict"] for name, row in rows.items()} == {
        "fails": "FAIL",
        "xfails": "XFAIL",
        "is_quarantined": "XFAIL",
        "ends_badly": "INFRA",
        "skips": "SKIP",
    }
    assert rows["fails"]["earlier"] == ["FAIL AssertionError"]
    told = json.loads((folder / "out" / "results.json").read_text())["changes"]
    counts = {one["test"].partition("::test_")[2]: one for one in told if one["figure"] == "instructions"}
    assert counts.keys() == rows.keys()
    for name, row in rows.items():
        assert [counts[name]["after"]] == list(map(str, row["figures"]["instructions"]))
        assert counts[name]["before"] != counts[name]["after"] and counts[name]["parts"]


@pytest.mark.slow
def test_one_killed_again_and_again_ends_as_one_that_was_not(hil: Hil, folder: Path) -> None:
    assert hil("nightly", "test_it.py", "-t", "native", "--shard", "1/1").status == OK
    whole = comparable(hil("results", "show", "--json"))
    (folder / "store.sqlite").unlink()
    where = ("--store", folder / "store.sqlite")
    for wanted in (1, 2, 3):
        with running("nightly", "test_it.py", "-t", "native", *where, cwd=folder) as process:
            end = time.monotonic() + FIRST_BUILD
            while recorded(folder) < wanted and process.poll() is None and time.monotonic() < end:
                time.sleep(0.005)
            time.sleep(random.random() * 0.02)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
    done = answer(hil("nightly", "test_it.py", "-t", "native", "--json").out)
    assert done["nightly"] == 1 and done["outcome"] == "complete"
    assert comparable(hil("results", "show", "--json")) == whole
    assert recorded(folder) == sum(row["test"] != RUNNER for row in whole)  # nothing ran twice


@pytest.mark.slow
def test_shards_put_together_are_the_whole(hil: Hil, folder: Path) -> None:
    assert hil("nightly", "test_it.py", "-t", "native").status == OK
    whole = comparable(hil("results", "show", "--json"))
    files = []
    for number in (1, 2, 3):
        hil("nightly", "test_it.py", "-t", "native", "--shard", f"{number}/3")
        hil("results", "export", str(number + 1), "-o", f"{number}.jsonl.gz")
        files.append(f"{number}.jsonl.gz")
    (folder / "store.sqlite").unlink()
    part = answer(hil("results", "merge", *files[:2], "--json").out)
    assert part["complete"] is False
    (folder / "store.sqlite").unlink()
    assert answer(hil("results", "merge", *files, "--json").out)["complete"] is True
    assert comparable(hil("results", "show", "--json")) == whole
    twice = hil("results", "merge", files[0], files[0])
    assert twice.status == CANNOT_TELL and "1/3, 1/3" in twice.err


@pytest.mark.slow
def test_targets_put_together_are_the_whole(hil: Hil, folder: Path) -> None:
    """A job for each target: the tools of both are those of the whole."""
    assert hil("nightly", "test_it.py", "-t", "native,m4-qemu").status == OK
    whole, tools = comparable(hil("results", "show", "--json")), answers(hil("results", "list", "--json").out)[0]
    for number, target in enumerate(("native", "m4-qemu"), 2):
        assert hil("nightly", "test_it.py", "-t", target).status == OK
        hil("results", "export", str(number), "-o", f"{target}.jsonl.gz")
    hil("results", "export", "1", "-o", "both.jsonl.gz")
    (folder / "store.sqlite").unlink()
    files = ("native.jsonl.gz", "m4-qemu.jsonl.gz")
    assert answer(hil("results", "merge", *files, "--json").out)["complete"] is True
    assert comparable(hil("results", "show", "--json")) == whole
    merged = answers(hil("results", "list", "--json").out)[0]
    assert (merged["tools"], sorted(merged["targets"])) == (tools["tools"], ["m4-qemu", "native"])
    twice = hil("results", "merge", "both.jsonl.gz", "native.jsonl.gz")
    assert twice.status == CANNOT_TELL and "native: in nightlies of different targets" in twice.err


def exported(targets: str, verdict: Verdict, version: str = "1") -> nights.ExportedNightly:
    plan = NightlyPlan(
        ("t",),
        None,
        (targets,),
        ("builtin",),
        "",
        (),
        "1/1",
        (),
        {"builtin": (targets,)},
        (),
        "",
        "",
        {"gcc": version},
    )
    result = Result(Key("tests", "builtin", "t::test", ""), "", "", verdict)
    return nights.ExportedNightly(plan, 1.0, 2.0, "", (run_of(result),))


@pytest.mark.parametrize("order", [1, -1])
def test_a_test_without_target_that_fails_beside_one_target_has_failed(order: int) -> None:
    parts = [exported("a", Verdict.PASS), exported("b", Verdict.FAIL), exported("c", Verdict.INFRA)][::order]
    [run] = nights.merge(parts).runs
    assert run.verdict == Verdict.FAIL.value


def test_parts_of_other_tools_are_of_no_nightly() -> None:
    with pytest.raises(ConfigError, match="gcc is 1 and 2"):
        nights.merge([exported("a", Verdict.PASS), exported("b", Verdict.PASS, "2")])


@pytest.mark.slow
def test_a_stage_of_the_users_firmware_that_departs_and_is_mended_is_told_with_its_name(hil: Hil, folder: Path) -> None:
    files = [one for one in SAMPLE.rglob("*") if one.is_file() and not {"build", "__pycache__"} & set(one.parts)]
    for file in files:
        (folder / file.relative_to(SAMPLE)).parent.mkdir(exist_ok=True)
        (folder / file.relative_to(SAMPLE)).write_text(file.read_text())
    write_target_library(folder / "build" / "hil_target")
    right = (folder / "pipeline.c").read_text()
    (folder / "pipeline.c").write_text(right.replace("- 8u;", "- 7u;"))
    call = ("nightly", "test_pipeline.py", "-t", "bare-metal", "--json")
    assert hil(*call).status == NO
    rows = {row["test"]: row for row in answers(hil("results", "show", "--json").out)}
    assert "the stage features departs first" in rows[COMPARES]["headline"]
    assert (rows[COMPARES]["verdict"], rows[COMPARES]["about"]["stage"]) == ("FAIL", ["features"])
    assert rows[MEASURES_LATENCY]["figures"]["latency_ticks"][0] > 0
    (folder / "pipeline.c").write_text(right)
    mended = hil(*call)
    assert mended.status == OK, mended
    changes = {(one["kind"], one["test"]) for one in answer(mended.out)["changes"]}
    assert ("fixed", COMPARES) in changes


def test_what_fails_is_told_with_its_log_and_without_this_machine(hil: Hil, folder: Path) -> None:
    (folder / "test_it.py").write_text(FAILS)
    (folder / "test_broken.py").write_text("import of\n")
    done = answer((told := hil("nightly", ".", "-t", "native", "-j", "1", "--json")).out)
    assert told.status == NO
    assert {word: number for word, number in done["verdicts"].items() if number} == {
        "failed": 1,
        "infra": 1,
        "error": 1,
    }
    rows = {row["test"]: row for row in answers(hil("results", "show", "--json").out)}
    assert RUNNER not in rows
    assert {test: (row["verdict"], row["error_type"], row["target"]) for test, row in rows.items()} == {
        "test_it.py::test_raises": ("FAIL", "AssertionError", "native"),
        "test_it.py::test_ends_the_worker": ("INFRA", "WorkerCrashed", "native"),
        "test_broken.py": ("ERROR", "CollectError", ""),
    }
    assert "of its own" in rows["test_it.py::test_raises"]["log"]
    text = str(rows)
    assert str(folder) not in text and str(Path.home()) not in text


def test_a_report_has_nothing_of_this_machine(hil: Hil, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "tok-0123456789")
    monkeypatch.setenv("LOGNAME", "zaphod-beeblebrox")
    (folder / "test_it.py").write_text(TELLS)
    options = (f"--pytest=--rootdir={folder}", f"--pytest=--basetemp={folder.parent / 'of' / 'tests'}")
    assert hil("nightly", folder / "test_it.py", "-t", "native", "--report", "out", *options).status == NO
    own = {name: value for name, value in os.environ.items() if len(value) >= TELLING}
    secrets = {*own.values(), str(folder), str(folder.parent), str(Path.home()), getpass.getuser()}
    assert {"tok-0123456789", "zaphod-beeblebrox"} <= secrets
    (folder / "targets.yaml").write_text("targets: {}\n")
    more = ("--targets-file", folder / "targets.yaml", "--store", folder / "other.sqlite")
    hil("nightly", folder / "test_it.py", "-t", "native", *more, *options)
    hil("results", "export", "-o", folder / "out" / "night.gz", "--store", folder / "other.sqlite")
    assert hil("results", "import", folder / "out" / "night.gz", "--store", folder / "other.sqlite").status == OK
    (folder / "out" / "night").write_bytes(gzip.decompress((folder / "out" / "night.gz").read_bytes()))
    for name in ("index.html", "results.json", "junit.xml", "night"):
        text = (folder / "out" / name).read_text()
        assert "$SOME_TOKEN" in text  # it was said, and taken out
        assert [one for one in sorted(secrets) if one in text] == []
        assert re.search(rf"\b{re.escape(socket.gethostname())}\b", text) is None


def test_a_report_is_of_a_nightly_and_those_before_it(hil: Hil, folder: Path) -> None:
    for _ in range(3):
        told = hil("nightly", "test_it.py", "-t", "native", "--report", "out", "--hil-trace", "t.json").out
    assert re.search(r"(?m)^ +\d+\.\d s +\d+%  booting targets$", told) and "each span: t.json" in told
    assert "s by the clock; 2 processes, together" in told and "longest: " in told  # not of the nightlies before
    events = json.loads((folder / "t.json").read_text())["traceEvents"]
    processes = [one["args"]["name"] for one in events if one["name"] == "process_name"]
    assert processes[:3] == ["pytest", "hil nightly", "pytest, session 3"] and len(processes) == 6
    assert sum(one["name"] == "part|tests|builtin" for one in events) == 3
    written = json.loads((folder / "out" / "results.json").read_text())
    assert (written["nightly"], written["compared_with"]["nightly"], len(written["results"])) == ("3", "2", 5)
    assert "Trends of 3 nights" in (folder / "out" / "index.html").read_text()
    text = (folder / "out" / "junit.xml").read_text()
    assert invalid(text) == []
    for name in ("build_id", "isa", "seed", "run_seconds", "outputs"):
        assert text.count(f'name="hil_{name}"') == 3, name  # of the tests that use the target
    assert text.count('name="hil_runtime" value="builtin ') == 3  # with its version
    hil("results", "name", "2", "v1.4")
    done = answer(hil("results", "report", "last~1", "-o", "again", "--json").out)
    assert (done["nightly"], done["compared_with"]) == (2, 1)
    again = json.loads((folder / "again" / "results.json").read_text())
    assert (again["name"], again["compared_with"]["name"]) == ("v1.4", "")
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(again)
    assert [Path(name).name for name in done["files"]] == ["index.html", "results.json", "junit.xml"]
    assert "Trends of 2 nights" in (folder / "again" / "index.html").read_text()
    against = answer(hil("results", "report", "--against", "1", "-o", "again", "--json").out)
    assert (against["nightly"], against["compared_with"]) == (3, 1)


@pytest.mark.slow
def test_what_another_checkout_gave_is_no_result_of_this_one(
    hil: Hil, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with an editable install of the first one; imported with the test file, or not before the test runs."""
    late = "def test_late(tmp_path):\n    import net\n    assert net.WEIGHT == 1\n"
    early = "import net\n\ndef test_early(hil): ...\n"
    files = {"src/net.py": "WEIGHT = 0\n", "test_net.py": late, "test_other.py": early}
    made = history(folder / "first", 0, lambda number: files)
    made.git("worktree", "add", "--quiet", str(folder / "second"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(made.path / "src"), str(IMPORT_ROOT)]))
    monkeypatch.chdir(folder / "second")
    done = hil("nightly", "-t", "native", "test_net.py", "test_other.py")
    assert done.status == CANNOT_TELL
    rows = [one for one in answers(hil("results", "show", "--json").out) if "verdict" in one]
    assert [(one["verdict"], one["error_type"]) for one in rows] == [("INFRA", "IdentityError")] * 2
    assert all("net is imported from" in one["headline"] for one in rows), rows
    src = ("--pytest=-o", "--pytest=pythonpath=src")
    assert hil("nightly", "-t", "native", *src, "test_net.py").status == NO  # this one's, whose weight is wrong


@pytest.mark.slow
def test_a_program_is_compared_with_what_a_nightly_kept_of_it(hil: Hil, folder: Path) -> None:
    """The second layer is wider than in the nightly: it is found by its module, and what moved most comes first."""
    for width in (16, 32):
        (folder / f"nets_{width}.py").write_text(TWO_LAYERS.format(width=width))
    (folder / "test_it.py").write_text(CHECKS)
    assert hil("nightly", "test_it.py", "-t", "m4-qemu", "--runtime", "builtin").status == OK
    words = ("profile", "-t", "m4-qemu", "--runtime", "builtin", "--json", "--against")
    same = answer(hil(*words, "last", "nets_16:make").out)["against"]
    assert "test_it.py::test_two_layers" in same["before"]["program"] and same["ticks"] == 0
    changes = answer(hil(*words, "last", "nets_32:make").out)["against"]
    first = changes["rows"][0]
    assert (first["module"], first["operator"]) == ("second", "cortex_m::quantized_linear.out") and first["ticks"] > 0
    assert sum(row["ticks"] for row in changes["rows"]) + changes["outside"] == changes["ticks"] > 0
    assert changes["banks"]
    unlike = ("profile", PROGRAM.with_name("dsp.pte"), "-t", "m4-qemu", "--against", "last")
    expect(hil(*unlike, "--runtime", "builtin"), CANNOT_TELL, "no program on m4-qemu with builtin", "last::TEST")


def test_a_mistyped_path_leaves_no_nightly(hil: Hil) -> None:
    wrong = hil("nightly", "test_of_nothing.py", "-t", "native")
    assert wrong.status == CANNOT_TELL and "test_of_nothing.py" in wrong.err
    assert "no nightly yet" in hil("results", "list").out


def test_where_nothing_ran_nothing_is_said_to_be_unchanged(hil: Hil) -> None:
    assert hil("nightly", "test_it.py", "-t", "native").status == OK
    done = hil("nightly", "test_it.py", "-t", "native", "--budget", "0.1")
    assert done.status == CANNOT_TELL and "nothing changed" not in done.out
    assert "nightly 2, 0 results; tests are left" in done.out


def test_the_closing_line_says_that_files_differ_from_the_commit(
    hil: Hil, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = history(folder / "source", 1, lambda number: {"test_it.py": f"{PASSES}# {number}\n"}).path
    (source / "test_it.py").write_text(PASSES)
    monkeypatch.chdir(source)
    done = hil("nightly", "test_it.py", "-t", "native", "--pytest=-k", "--pytest=no_target")
    assert re.search(r"nightly 1, 1 result, commit [0-9a-f]{10} and changes\n$", done.out)


@pytest.mark.slow
def test_progress_is_a_line_now_and_then_where_there_is_no_terminal(
    hil: Hil, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = hil("nightly", "test_it.py", "-t", "native")
    assert quiet.err == ""  # it took less than a minute
    monkeypatch.setattr("cortex_m_hil.cli.commands.nightly.EVERY", 0.0)
    monkeypatch.setattr("cortex_m_hil.campaigns.nightly.nightly.EVERY", 0.3)
    (folder / "test_it.py").write_text("import time\n\ndef test_waits():\n    time.sleep(1)\n")
    done = hil("nightly", "test_it.py", "-t", "native", "--json")
    assert "tests, builtin: 0 done, 0 running, 1 left\n" in done.err
    assert done.err.count("tests, builtin: 0 done, 1 running, 0 left\n") > 1  # while nothing happens, too
    assert "tests, builtin: 1 done, 0 running, 0 left\n" in done.err


def test_a_quarantine_that_ended_is_told_by_the_nightly(hil: Hil, folder: Path) -> None:
    (folder / "quarantine.yaml").write_text(
        "quarantine: [{test: '*runs*0*', reason: known since long, until: 2020-02-01}]\n"
    )
    call = ("nightly", "test_it.py", "-t", "native", "--pytest=--hil-quarantine=quarantine.yaml")
    wanted = "quarantine ended 2020-02-01: known since long → pass test_it.py::test_runs[0] [native]"
    assert wanted in hil(*call, "--report", "out").out
    [one] = json.loads((folder / "out" / "results.json").read_text())["changes"]
    assert (one["kind"], one["test"]) == ("quarantine ended", "test_it.py::test_runs[0]")


PLACES = """
import pytest

@pytest.mark.parametrize("model", ["/srv/customer/bob/kws.pte", "/srv/customer/ann/kws.pte"])
def test_opens(model):
    raise AssertionError(f"cannot open {model}, nor '/opt/secret stuff/x' or file:///data/team/y.bin")
"""


@pytest.mark.slow
def test_places_that_nobody_knew_are_in_no_report(hil: Hil, folder: Path) -> None:
    """Also in parameters: two of them stay two tests, and what runs them again names none."""
    (folder / "sub").mkdir()
    (folder / "sub" / "test_it.py").write_text(PLACES)
    assert hil("nightly", "sub/test_it.py", "-t", "native", "--report", "out").status == NO
    hil("results", "export", "-o", "night.gz")
    texts = [(folder / "out" / name).read_text() for name in ("index.html", "results.json", "junit.xml")]
    for text in (*texts, gzip.decompress((folder / "night.gz").read_bytes()).decode()):
        assert "kws.pte" in text
        assert not re.search("srv|customer|bob|ann/|secret|team", text)
    results = json.loads(texts[1])["results"]
    assert len({one["test"] for one in results}) == 2
    assert {one["command"] for one in results} == {"pytest sub/test_it.py::test_opens"}
    again = hil("nightly", "sub/test_it.py", "-t", "native", "--budget", "3600")
    assert "nightly 2, 2 results" in again.out


def test_what_runs_a_test_again_is_for_the_folder_of_the_nightly(
    hil: Hil, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "sub" / "tests").mkdir(parents=True)
    (folder / "test_it.py").rename(folder / "sub" / "tests" / "test_it.py")
    monkeypatch.chdir(folder / "sub")
    assert hil("nightly", "tests", "-t", "native", "--report", "out").status == OK
    results = json.loads((folder / "sub" / "out" / "results.json").read_text())["results"]
    commands = {one["test"]: one["command"] for one in results}
    assert commands["sub/tests/test_it.py::test_uses_no_target"] == "pytest tests/test_it.py::test_uses_no_target"
    assert commands[RUNNER] == ""


def test_what_git_does_not_know_is_a_change_where_tests_may_be_made_of_it(
    hil: Hil, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test that fails since it was edited is no flaky one; what a nightly writes is no edit."""
    source = history(folder / "source", 1, lambda number: {"value": f"{number}\n"}).path
    monkeypatch.chdir(source)
    call = ("nightly", "test_new.py", "-t", "native", "--report", "report", "--json")
    (source / "test_new.py").write_text("def test_one(): pass\n")
    assert answer(hil(*call).out)["dirty"] is True
    (source / "test_new.py").write_text("def test_one(): assert 0\n")
    assert [one["kind"] for one in answer(hil(*call).out)["changes"]] == ["new failure"]
    (source / "test_new.py").unlink()
    (source / "env").mkdir()
    (source / "env" / "pyvenv.cfg").touch()
    (source / "env" / "module.py").touch()
    assert (source / "report" / "index.html").exists() and state_of_folder()[1] == ""


@pytest.mark.slow
def test_each_nightly_of_a_folder_goes_on_whatever_began_after_it(hil: Hil) -> None:
    def shard(number: int, budget: float) -> dict[str, Any]:
        call = ("nightly", "test_it.py", "-t", "native", f"--shard={number}/2", f"--budget={budget}", "--json")
        return answer(hil(*call).out)

    begun = [shard(number, 0.1)["nightly"] for number in (1, 2)]
    assert begun == [1, 2]
    assert [(one["nightly"], one["outcome"]) for one in (shard(1, 600), shard(2, 600))] == [
        (1, "complete"),
        (2, "complete"),
    ]


def test_the_last_is_that_of_the_folder_complete_or_not(
    hil: Hil, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(folder / "store.sqlite") as kept:
        for number in range(3):
            kept_night(kept, float(number), ("a",), counted("a", number + 1))
        kept.begin("nightly", str(folder), {**nights.find(kept, "1").plan, "commit": "c9"})
    other = folder / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    with Store(folder / "store.sqlite") as kept:
        assert nights.find(kept, "last").number == 4  # none is of this folder
        kept_night(kept, 9.0, ("a",), counted("a", 1))
        assert nights.find(kept, "last").number == 5
        with pytest.raises(ConfigError, match="no nightly 'last~1'"):
            nights.find(kept, "last~1")
    table = hil("results", "list").out
    assert "folder" in table and str(other) in table
    monkeypatch.chdir(folder)
    with Store(folder / "store.sqlite") as kept:
        assert [nights.find(kept, word).number for word in ("last", "last~1")] == [4, 3]
        assert nights.find(kept, "last", complete=True).number == 3
    shown = hil("results", "show")
    assert "nightly 4 is incomplete" in shown.out
    assert answer(hil("results", "prune", "--keep", "1", "--json").out)["removed"] == [1, 2, 3]


def test_numbers_and_names_are_those_of_the_folder(hil: Hil, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else is in the store; of another folder's where the current one has none."""
    places = [folder / name for name in ("one", "other", "third")]
    began = iter(range(9))
    for place in places:
        place.mkdir()
        monkeypatch.chdir(place)
        with Store(folder / "store.sqlite") as kept:
            kept.begin("bisect", str(place), {})
            made = [kept_night(kept, float(next(began)), ("a",), counted("a", 1)) for _ in range(2)]
            assert [one.ordinal for one in made] == [1, 2]
            kept.call(made[0], "v1")
            assert [nights.find(kept, word).folder for word in ("1", "2", "v1")] == [str(place)] * 3
    monkeypatch.chdir(folder)
    done = hil("results", "show", "1")
    assert done.status == CANNOT_TELL and f"nightly 1 is there in several folders: {places[0]}, " in done.err
    monkeypatch.chdir(places[0])
    assert hil("results", "export", "2", "-o", "night.gz").status == OK
    with Store(folder / "new.sqlite") as kept:
        imported = nights.add_nightly(kept, os.getcwd(), nights.read_nightly(places[0] / "night.gz"))
        assert imported is not None and imported.ordinal == 2  # as where it was made
        assert kept_night(kept, 9.0, ("a",)).ordinal == 3


@pytest.mark.slow
def test_counting_that_was_interrupted_goes_on_where_it_was(hil: Hil, monkeypatch: pytest.MonkeyPatch) -> None:
    """By slices of the tests: each is counted once."""
    whole = answer(hil("nightly", "test_it.py", "-t", "native", "--coverage", "--json").out)["coverage"]
    parts: list[str] = []
    carry_out = Nightly.carry_out

    def interrupted(self: Nightly, key: str) -> Run:
        parts.append(key)
        if key.endswith("|3/4|coverage") and parts.count(key) == 1:
            raise BudgetSpent
        return carry_out(self, key)

    monkeypatch.setattr(Nightly, "carry_out", interrupted)
    call = ("nightly", "test_it.py", "-t", "native", "--coverage", "--json")
    assert answer(hil(*call).out)["outcome"] == "under way"
    again = answer(hil(*call).out)
    assert (again["outcome"], again["coverage"]) == ("complete", whole)
    counting = [key.removeprefix("part|tests|builtin|") for key in parts if key.endswith("coverage")]
    assert counting == [f"{number}/4|coverage" for number in (1, 2, 3, 3, 4)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE campaign SET plan = '{'", "is damaged"),
        ("UPDATE campaign SET plan = '{}'", "the plan of nightly 1 makes no sense"),
        ("UPDATE run SET figures = '['", "is damaged"),
        ("UPDATE run SET figures = '{}'", "a result of nightly 1 makes no sense"),
    ],
)
def test_a_store_that_makes_no_sense_is_told(hil: Hil, folder: Path, change: str, said: str) -> None:
    with Store(folder / "store.sqlite") as kept:
        kept_night(kept, 1.0, ("a",), counted("a", 1))
    with sqlite3.connect(folder / "store.sqlite") as store:
        store.execute(change)
    for command in ("list", "show"):
        done = hil("results", command)
        assert done.status == CANNOT_TELL and said in done.err


def test_this_repositorys_plan_is_one() -> None:
    """With what docs/nightly.md promises of it."""
    plan = _settings(Options(file=REPOSITORY / "ci" / "nightly.yaml"))
    assert (
        plan.fit == ["*test_mlperf_tiny.py::*", "*/models/*"]
        and plan.models == ["*test_mlperf_tiny.py::*", "*models/test_*.py::*"]  # upstream's are named from its folder
        and plan.coverage
        and plan.pytest == ["--hil-localize"]
        and plan.upstream is True
        and plan.runtimes == ["builtin", "auto"]
    )


@pytest.mark.slow
def test_a_name_that_was_anothers_is_said_to_be_moved(hil: Hil) -> None:
    for _ in range(2):
        hil("nightly", "test_it.py", "-t", "native", "--pytest=-k", "--pytest=no_target")
    assert hil("results", "name", "1", "v1.4").out == "nightly 1 is 'v1.4'\n"
    assert hil("results", "name", "1", "v1.4").out == "nightly 1 is 'v1.4'\n"
    assert answer(hil("results", "name", "2", "v1.4", "--json").out)["was"] == 1
    assert hil("results", "name", "1", "v1.4").out == "nightly 1 is 'v1.4'; nightly 2, which was, has no name now\n"
    assert hil("results", "name", "1", "").out == "nightly 1 has no name\n"


def test_a_file_that_is_not_compressed_is_no_nightly(hil: Hil, folder: Path) -> None:
    (folder / "night.gz").write_text("{}\n")
    done = hil("results", "import", "night.gz")
    assert done.status == CANNOT_TELL and "night.gz is not compressed by gzip, so no exported nightly" in done.err


def test_a_shells_folders_are_left_out_and_not_named(hil: Hil, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLDPWD", "/srv/of/somebody")
    (folder / "test_it.py").write_text("def test_tells(hil): raise AssertionError('in /srv/of/somebody/file.txt')\n")
    assert hil("nightly", "test_it.py", "-t", "native").status == NO
    [row] = [row for row in answers(hil("results", "show", "--json").out) if row["test"] != RUNNER]
    assert "in …/file.txt" in row["headline"] and "$OLDPWD" not in str(row)


@pytest.mark.slow
def test_bundles_are_beside_the_report_if_that_is_asked(hil: Hil, folder: Path) -> None:
    (folder / "test_it.py").write_text(MISMATCH)
    assert hil("nightly", "test_it.py", "-t", "native", "--report", "plain").status == NO
    assert not (folder / "plain" / "bundles").exists()
    options = ("--report", "out", "--bundles", "--pytest=--hil-localize")
    assert hil("nightly", "test_it.py", "-t", "native", *options).status == NO
    every = json.loads((folder / "out" / "results.json").read_text())["results"]
    right, wrong = (one for one in every if one["test"] != RUNNER)
    assert right["parts"]["max_quanta"] == {"0": 8} and right["bundle"] == ""
    assert sum(wrong["parts"]["max_quanta"].values()) == 8 and "0" not in wrong["parts"]["max_quanta"]
    assert (folder / "out" / wrong["bundle"]).is_file() and wrong["bundle"].startswith("bundles/")
    assert right["localized"] == ""  # and the program has no values of its operators to compare with
    reason = "not localised: ConfigError: scalar has no references to compare with\n  → lower the module: hil.lower(…)"
    assert wrong["localized"] == reason and "not localised" not in wrong["log"]
    assert " --hil-localize " in wrong["command"]
    alone = hil("nightly", "test_it.py", "-t", "native", "--bundles")
    assert alone.status == CANNOT_TELL and "--report" in alone.err


@pytest.mark.slow
def test_the_least_memory_is_among_the_figures_if_that_is_asked(hil: Hil, folder: Path) -> None:
    assert hil("nightly", "test_it.py", "-t", "native", "--fit", "--pytest=-k", "--pytest=runs and 0").status == OK
    [row] = [row for row in answers(hil("results", "show", "--json").out) if row["test"] != RUNNER]
    found = {name: values for name, values in row["figures"].items() if name.startswith("fit_")}
    assert found.keys() == {"fit_program_bytes", "fit_planned_bytes", "fit_method_bytes"}  # no stack on native
    assert found["fit_program_bytes"] == [-(-PROGRAM.stat().st_size // 16) * 16]
    assert "not_fitted" not in row["figures"]


@pytest.mark.slow
def test_the_least_memory_is_found_for_the_tests_that_are_named(hil: Hil, folder: Path) -> None:
    (folder / "nightly.yaml").write_text("tests: [test_it.py]\ntargets: [native]\nfit: ['*runs[0]', '*nobody*']\n")
    done = hil("nightly", "--pytest=-k", "--pytest=runs")
    assert done.status == NO and "missing figure fit, no test has such a name *nobody*\n" in done.out
    rows = [row for row in answers(hil("results", "show", "--json").out) if row["test"] != RUNNER]
    assert [row["test"][-2] for row in rows if "fit_program_bytes" in row["figures"]] == ["0"] and len(rows) > 1


@pytest.mark.slow
def test_coverage_is_counted_beside_the_figures(hil: Hil, folder: Path) -> None:
    done = answer(hil("nightly", "test_it.py", "-t", "native", "--coverage", "--report", "out", "--json").out)
    assert done["verdicts"]["passed"] == 4 and done["changes"] == []
    whole = json.loads((folder / "out" / "results.json").read_text())
    [(name, one)] = whole["coverage"]["classes"].items()
    assert name == "SCALAR (host)" and one["lines"] == done["coverage"][name]["lines"]
    assert 0 < one["lines"]["covered"] < one["lines"]["all"] and whole["coverage"]["lost"] == []
    assert any("host_ticks" in row["figures"] for row in whole["results"])  # of the runner that does not count
    assert "Coverage of the kernels" in (folder / "out" / "index.html").read_text()
    executed = one["tests"]["test_it.py::test_runs[1]@native"]
    assert 0 < executed["linear.cpp"] <= len(one["files"]["linear.cpp"]["lines"]) and "softmax.cpp" not in executed


def test_what_auto_chose_is_part_of_the_plan_and_the_reason_of_the_report(
    hil: Hil, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here one that does not fit: `make_prefix` is that of a Cortex-M0."""
    monkeypatch.setenv(VARIABLE, str(make_prefix(folder / "prefix", FLAGS["m0-qemu"])))
    done = hil("nightly", "test_it.py", "-t", "m4-qemu", "--pytest=-k", "--pytest=runs and 0", "--report", "report")
    why = "its libraries are for armv6-m, cortex-m4/dsp/mps2-an386 needs armv7e-m+fp+dsp"
    assert done.status == OK and f"m4-qemu runs on builtin: {VARIABLE}: {folder}/prefix: {why}" in done.out
    page = (folder / "report" / "index.html").read_text()
    assert f"{VARIABLE}: prefix: {why}" in page and str(folder) not in page
    [row] = [one for one in answers(hil("results", "show", "--json").out) if one["test"] != RUNNER]
    assert (row["runtime"], row["verdict"]) == ("builtin", "PASS")


def test_auto_is_a_part_for_each_runtime_that_it_chooses() -> None:
    one = replace(
        exported("m4-qemu", Verdict.PASS).plan,
        runtimes=("builtin", "auto"),
        targets=("m4-qemu", "m0-qemu"),
        automatic={"executorch": ("m4-qemu",), "builtin": ("m0-qemu",)},
    )
    assert one.places == {"builtin": ("m4-qemu", "m0-qemu"), "executorch": ("m4-qemu",)}
    assert [part.runtime for part in one.parts if not part.counts] == ["builtin", "executorch"]
    assert NightlyPlan.from_fields(json.loads(json.dumps(one.as_fields()))) == one
    assert not one.is_same_work(replace(one, automatic={"builtin": one.targets}))
    assert one.is_same_work(replace(one, runtime_reasons={"m0-qemu": "told otherwise"}))
    parts = [
        nights.ExportedNightly(replace(one, targets=(name,), automatic={runtime: (name,)}), 1.0, 2.0, "", ())
        for name, runtime in (("m4-qemu", "executorch"), ("m0-qemu", "builtin"))
    ]
    assert nights.merge(parts).plan.automatic == one.automatic


@pytest.mark.slow
def test_a_runtime_that_counts_nothing_is_told_and_the_other_counts(hil: Hil) -> None:
    asked = ("-t", "native", "--runtime", "builtin,executorch", "--coverage", "--pytest=-k", "--pytest=runs and 0")
    done = hil("nightly", "test_it.py", *asked, "--json")
    found = answer(done.out)
    assert found["uncounted"] == {"native, executorch": "ExecuTorch's libraries on the host count no coverage"}
    assert list(found["coverage"]) == ["SCALAR (host)"]


def kept_night(
    kept: Store, began: float, targets: tuple[str, ...], *results: Result, commit: str = ""
) -> StoredCampaign:
    """A nightly in the store that was run to its end."""
    plan = NightlyPlan(("t",), None, targets, ("builtin",), "", (), "1/1", (), {}, (), commit, "", {"gcc": "1"})
    campaign = nights.add_nightly(
        kept, os.getcwd(), ExportedNightly(plan, began, began + 1, "", tuple(map(run_of, results)))
    )
    assert campaign is not None
    return campaign


def counted(target: str, instructions: int, verdict: Verdict = Verdict.PASS) -> Result:
    figures = {"instructions": (instructions,)} if verdict is Verdict.PASS else {}
    return Result(Key("t", "builtin", "t::test", target), target, "QEMU 7.2", verdict, figures=figures)


def test_a_nightly_of_fewer_targets_between_two_is_not_what_the_second_is_compared_with(folder: Path) -> None:
    with Store(folder / "store.sqlite") as kept:
        first = kept_night(kept, 1.0, ("a", "b"), counted("a", 1), counted("b", 1))
        few = kept_night(kept, 2.0, ("a",), counted("a", 1))
        second = kept_night(kept, 3.0, ("a", "b"), counted("a", 1), counted("b", 2))
        assert nights.previous(kept, few) == first == nights.previous(kept, second)
        assert nights.what_changed(kept, few, nights.night(kept, first), nights.night(kept, few)) == []


def test_a_branch_or_a_tag_is_the_nightly_of_its_commit_or_of_the_nearest_before_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = history(tmp_path / "source", 4, lambda number: {"value": f"{number}\n"})
    made.git("branch", "side", made.commits[3])
    made.git("tag", "v1", made.commits[1])
    made.git("tag", "v0", made.commits[0])
    monkeypatch.chdir(made.path)
    with Store(folder / "store.sqlite") as kept:
        for number, began in ((1, 1.0), (2, 2.0), (2, 3.0), (4, 4.0)):
            kept_night(kept, began, ("a",), commit=made.commits[number])
        found = {word: nights.find(kept, word).began for word in ("v1", "side", "HEAD", "HEAD~2", made.commits[2][:8])}
        assert found == {"v1": 1.0, "side": 3.0, "HEAD": 4.0, "HEAD~2": 3.0, made.commits[2][:8]: 3.0}
        changed = replace(
            NightlyPlan.from_fields(nights.find(kept, "side").plan), difference="d1"
        )  # beside the same commit
        nights.add_nightly(kept, "here", ExportedNightly(changed, 5.0, 6.0, "", ()))
        assert nights.find(kept, "side").began == 3.0
        for word in ("v0", "no-such", "--all"):
            with pytest.raises(ConfigError, match=f"no nightly '{word}' in {kept.file}") as caught:
                nights.find(kept, word)
            assert "; a commit, a branch or a tag names one, too; hil results list" in caught.value.hint


def test_what_grew_while_a_test_failed_is_told(folder: Path) -> None:
    with Store(folder / "store.sqlite") as kept:
        kept_night(kept, 1.0, ("a",), counted("a", 100))
        bad = kept_night(kept, 2.0, ("a",), counted("a", 0, Verdict.FAIL))
        now = kept_night(kept, 3.0, ("a",), counted("a", 101))
        found = nights.what_changed(kept, now, nights.night(kept, bad), nights.night(kept, now))
    assert [(one.kind, one.before, one.after) for one in found if one.figure] == [(ChangeKind.SLOWER, "100", "101")]


def test_what_shards_counted_is_put_together(folder: Path) -> None:
    plan = NightlyPlan(
        ("t",), None, ("native",), ("builtin",), "", (), "1/2", (), {"builtin": ("native",)}, (), "", "", {}
    )
    shards = []
    for number, lines in enumerate(({1: 0, 2: 3}, {1: 4, 2: 0}), 1):
        counted = Coverage({"DSP": ClassCoverage({"m4-qemu"}, 1, {"add.h": Counts(lines)})})
        part = next(part for part in plan.parts if part.counts)
        run = Run(str(part), ENDED, figures=counted.fields())
        shards.append(ExportedNightly(replace(plan, shard=f"{number}/2"), 0.0, 1.0, "", (run,)))
    with Store(folder / "store.sqlite") as kept:
        campaign = nights.add_nightly(kept, "here", nights.merge(shards))
        assert campaign is not None
        nights.export_nightly(kept, campaign, folder / "it.jsonl.gz")
        found = nights.night(kept, campaign)
    [again] = nights.read_nightly(folder / "it.jsonl.gz").runs
    assert found.coverage == Coverage.from_fields(again.figures)
    assert found.coverage.classes["DSP"] == ClassCoverage({"m4-qemu"}, 2, {"add.h": Counts({1: 4, 2: 3})})


def test_a_budget_that_is_spent_leaves_tests(hil: Hil) -> None:
    done = hil("nightly", "test_it.py", "-t", "native", "--budget", "0", "--json")
    assert done.status == CANNOT_TELL and answer(done.out)["outcome"] == "under way"
    again = answer(hil("nightly", "test_it.py", "-t", "native", "--json").out)
    assert (again["outcome"], again["nightly"]) == ("complete", 1)


def test_a_file_says_what_options_do_not(hil: Hil, folder: Path) -> None:
    (folder / "nightly.yaml").write_text("tests: [test_it.py]\ntargets: [native]\npytest: ['-k', 'uses_no']\n")
    done = answer(hil("nightly", "--json").out)
    assert done["verdicts"]["passed"] == 1
    (folder / "nightly.yaml").write_text("tests: [test_it.py]\ntarget: [native]\n")
    wrong = hil("nightly")
    assert wrong.status == CANNOT_TELL and "nightly.yaml:2: unknown key 'target'" in wrong.err
    assert "targets" in wrong.err


def test_a_figure_beyond_its_limit_fails_the_nightly(hil: Hil, folder: Path) -> None:
    plan = "tests: [test_it.py]\ntargets: [m0-qemu]\nfail_if:\n  - {figure: instructions, target: 'm0-*', above: %s}\n"
    (folder / "nightly.yaml").write_text(plan % 100)
    first = hil("nightly", "--report", "out")
    assert first.status == NO and "limits that were not kept:\n" in first.out
    [count] = {
        int(one) for one in re.findall(r"beyond limit instructions - → (\d+), at most 100 test_it\.py", first.out)
    }
    assert "beyond limit" in (folder / "out" / "index.html").read_text()
    told = json.loads((folder / "out" / "results.json").read_text())["changes"]
    assert {(one["kind"], one["after"], one["limit"]) for one in told} == {("beyond limit", str(count), "at most 100")}
    (folder / "nightly.yaml").write_text(plan % "'+1 %'")
    assert (
        hil("nightly").status == OK
    )  # it is compared with the first, whose figures are in the store whatever they were
    with sqlite3.connect(folder / "store.sqlite") as store:
        store.execute("UPDATE run SET figures = replace(figures, ?, ?) WHERE campaign = 1", (f"[{count}]", "[1000]"))
    compared = hil("results", "compare", "1", "2")
    [line] = [line for line in compared.out.splitlines() if "beyond limit" in line]
    assert compared.status == NO and line.startswith(f"  beyond limit instructions 1000 → {count}: +{count - 1000}, +")
    assert line.endswith(" %, at most 1010 (+1 %) test_it.py::test_runs[0] [m0-qemu]")
    # The three tests run the same program: one entry.
    assert [f"    and test_it.py::test_runs[{number}] [m0-qemu]" in compared.out for number in (1, 2)] == [True, True]


def test_every_number_that_is_recorded_can_have_a_limit(hil: Hil, folder: Path) -> None:
    """The names are those of the page and of the results, both ways."""
    documented = set(re.findall(r"^\| `hil_(\w+)` \|", (REPOSITORY / "docs" / "writing-tests.md").read_text(), re.M))
    assert documented >= FIGURES - {"elf_bytes", "elf_stored_bytes"}  # of runners, not of tests
    assert hil("nightly", "test_it.py", "-t", "native", "--pytest=-k", "--pytest=runs and 0").status == OK
    for row in answers(hil("results", "show", "--json").out):
        found = {name for name, values in row["figures"].items() if not isinstance(values[0], str)}
        assert found and found <= FIGURES


@pytest.mark.parametrize(
    ("rule", "line", "said"),
    [
        ("{figure: instructions}", 3, "says one of above: and below:"),
        ("{figure: instructions, above: 1, below: 2}", 3, "says one of above: and below:"),
        ("{figure: instructions, above: -1 %}", 3, "has to be a number, or a change such as '+1 %', not '-1 %'"),
        ("{figure: instructions, above: many}", 3, "has to be a number, or a change such as '+1 %', not 'many'"),
        ("{figure: instructions, above: true}", 3, "has to be a number, or a change such as '+1 %', not True"),
        ("{figure: instructions, above: .nan}", 3, "has to be a number, or a change such as '+1 %', not nan"),
        ("{above: 1}", 3, "fail_if.0.figure: missing"),
        ("{figure: instruction, above: 1}", 3, "no figure 'instruction': did you mean 'instructions'"),
        ("{figure: outputs, above: 1}", 3, "no figure 'outputs': "),
        ("{figure: instructions, abov: 1}", 3, "unknown key 'abov'"),
    ],
)
def test_a_wrong_limit_is_told_with_its_line(hil: Hil, folder: Path, rule: str, line: int, said: str) -> None:
    (folder / "nightly.yaml").write_text(f"targets: [native]\nfail_if:\n  - {rule}\n")
    done = hil("nightly", "test_it.py")
    assert done.status == CANNOT_TELL and f"nightly.yaml:{line}: " in done.err and said in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-t", "native"), "no test is named"),
        (("test_it.py",), "no target is named"),
        (("test_it.py", "-t", "native", "--shard", "0/3"), "no part of a whole"),
        (("test_it.py", "-t", "native", "--shard", "4/3"), "no part of a whole"),
        (("test_it.py", "-t", "native", "--shard", "one"), "no part of a whole"),
        (("test_it.py", "-t", "nativ"), "native"),
        (("test_it.py", "-t", "native", "--pytest=--hil-coverage=x.json"), "--coverage"),
        (("test_it.py", "-t", "native", "--coverage", "--runtime", "executorch"), "count no coverage"),
        (("test_it.py", "-t", "native", "--against", "v9"), "no nightly 'v9'"),
        (("no_such.py", "-t", "native"), "no_such.py"),
        (("test_it.py", "-t", "native", "--pytest=--no-such-option"), "--no-such-option"),
        (("test_it.py", "-t", "native", "--pytest=-k", "--pytest=nothing_of_it"), "no test of tests, builtin is run"),
    ],
)
def test_a_wrong_call_is_told(hil: Hil, arguments: tuple[str, ...], said: str) -> None:
    done = hil("nightly", *arguments)
    assert done.status == CANNOT_TELL and said in done.err and "→" in done.err
