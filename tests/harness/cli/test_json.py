"""`--json`: every command that reports has it, writes nothing else, and says what its help says."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from command_line import CANNOT_TELL, FROZEN, NO, OK, Files, Hil, answer, answers, descendant, fields_of, running
from cortex_m_hil.cli import __main__ as cli
from cortex_m_hil.cli.app import app
from cortex_m_hil.lowering.disk_cache import DiskCache
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.runtimes import RUNTIMES

# What these print is not ours: the output of pytest, or of a command that runs beside a board.
OTHERS = {"dev upstream", "board virtual"}


def commands() -> Iterator[tuple[str, Any]]:
    """Every command, by what is typed after `hil`."""
    cli.load_commands()
    waiting = [("", typer.main.get_command(app))]
    while waiting:
        path, command = waiting.pop()
        below = getattr(command, "commands", None)
        if below is None or getattr(command, "invoke_without_command", False):
            yield path, command
        if below is not None:
            waiting += [(f"{path} {name}".strip(), one) for name, one in below.items()]


def test_every_command_that_reports_has_it() -> None:
    having = {path for path, command in commands() if any("--json" in one.opts for one in command.params)}
    every = {path for path, _ in commands()}
    assert {"run", "board status"} <= every
    assert every - having == OTHERS


def test_every_option_for_a_runtime_names_them_all() -> None:
    options = [(path, one) for path, command in commands() for one in command.params if "--runtime" in one.opts]
    assert len(options) > 5
    assert [path for path, one in options if not all(name in (one.help or "") for name in RUNTIMES)] == []


def test_every_command_is_described() -> None:
    for path, command in commands():
        assert bool(fields_of(path)) == (path not in OTHERS), path
        assert re.match(r"[A-Z][^.?]*[^.?\s][.?](\s|$)", command.help or ""), path


def test_targets_say_whether_they_run_here_and_are_hardware(hil: Hil, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    rows = {row["target"]: row for row in answers(hil("targets", "--json").out)}
    assert list(rows) == list(load_targets())
    memory = {"program": 8 << 20, "banks": {"psram": 4 << 20}, "method": 256 << 10, "temp": 0, "shared": 0}
    assert rows["m4-qemu"]["memory"] == memory
    shown = {name: [row[key] for key in ("runs_as", "runnable", "hardware")] for name, row in rows.items()}
    assert shown["m4-qemu"] == ["m4-qemu", True, False]
    assert shown["m4-fvp"] == ["m4-qemu", True, False]
    assert shown["alif-e8"] == ["alif-e8", False, True]
    assert shown["vboard-f405"][2] is False
    assert rows["m4-qemu"]["reason"] == ""
    assert rows["m4-fvp"]["reason"] == "FVP_MPS2_Cortex-M4 is not on PATH"
    assert rows["alif-e8"]["reason"].startswith("no port /dev/ttyACM0; is the board plugged in?")


@pytest.mark.slow
def test_a_board_is_runnable_where_one_of_its_ports_is_there(hil: Hil, tmp_path: Path) -> None:
    head = "targets: {it: {cpu: cortex-m4, board: stm32f4, launcher: {serial: "
    for ports, runnable in (("[/dev/none, /dev/null]", True), ("[/dev/none]", False), ("['socket://far:1']", True)):
        (tmp_path / "targets.yaml").write_text(f"{head} {{ports: {ports}}}}}}}}}\n")
        rows = {row["target"]: row for row in answers(hil("targets", "--json").out)}
        assert (rows["it"]["runnable"], rows["it"]["hardware"]) == (runnable, True)


@pytest.mark.slow
def test_a_target_without_its_tools_is_not_runnable(hil: Hil, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    rows = {row["target"]: row for row in answers(hil("targets", "--json").out)}
    assert not any(row["runnable"] for row in rows.values())
    assert (rows["m4-fvp"]["runs_as"], rows["m4-fvp"]["engine"]) == ("", "")
    assert "FVP_MPS2_Cortex-M4 is not on PATH" in rows["m4-fvp"]["reason"]
    assert "apt-get install qemu-system-arm" in rows["m4-fvp"]["reason"]
    (tmp_path / "qemu-system-arm").symlink_to("/usr/bin/qemu-system-arm")
    rows = {row["target"]: row for row in answers(hil("targets", "--json").out)}
    assert rows["m4-qemu"]["runs_as"] == "m4-qemu" and not rows["m4-qemu"]["runnable"]
    assert "arm-none-eabi-g++ is not on PATH" in rows["m4-qemu"]["reason"]


def test_lines_of_build_and_selftest(hil: Hil) -> None:
    built = answers(hil("build", "-t", "m4-fvp,native", "--json").out)
    assert [(one["target"], one["runs_as"]) for one in built] == [("m4-fvp", "m4-qemu"), ("native", "native")]
    assert Path(built[0]["runner"]).parent.name == built[0]["build_id"] and built[0]["size"]["text"] > 0
    tested = answer(hil("doctor", "selftest", "-t", "m4-qemu", "--json").out)
    assert (tested["exit_status"], tested["runtime"], tested["engine"][:4]) == (OK, "builtin", "QEMU")


def test_lines_of_lint_and_run(hil: Hil, files: Files, tmp_path: Path) -> None:
    done = hil("run", files.pte, "-t", "m4-qemu,native", "-i", files.input, "--redzones", "--json")
    first, second = answers(done.out)
    assert (done.status, done.err, first["target"], second["target"]) == (OK, "", "m4-qemu", "native")
    assert [(one["dtype"], one["shape"]) for one in first["outputs"]] == [("float32", [1, 8])]
    assert first["peaks"]["planned"] == {"used": 80, "size": 4 << 20, "unit": "bytes"}
    assert first["instructions"] == first["ticks"] > 0 and first["clock"] == first["tick_source"] == "instructions"
    assert second["instructions"] is None and second["ticks"] > 0 and second["clock"] == "host_ticks"
    assert "no write outside a tensor was looked for" in first["redzones"]
    assert answer(hil("lint", files.pte, "-t", "m4-qemu", "--json").out)["fits"] is True
    files.pte.write_bytes(known_answer(Isa.MVE).program)
    done = hil("lint", files.pte, "-t", "m4-qemu,m55-qemu", "--json")
    wrong, right = answers(done.out)
    assert (done.status, wrong["exit_status"], right["exit_status"]) == (NO, NO, OK)
    assert (wrong["fits"], wrong["findings"][0]["rule"], right["findings"]) == (False, "layout", [])


def test_board_commands_answer_with_json(hil: Hil, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HIL_LOCK_DIR", str(tmp_path / "locks"))
    holder = answer(hil("board", "hold", "z:1", "--reason", "why", "--json").out)["holder"]
    assert holder["what"] == "why"
    [status] = answer(hil("board", "status", "--json").out)["boards"]
    assert (status["board"], status["held"]) == ("z:1", True)
    assert answer(hil("board", "release", "z:1", "--json").out)["board"] == "z:1"
    assert answer(hil("board", "clear", "z:1", "--json").out)["board"] == "z:1"


def test_cache_commands_answer_with_json(hil: Hil, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HIL_CACHE_DIR", str(tmp_path))
    DiskCache().get_or_make("program", "ab" * 32, lambda: {"a": 1})
    before = answer(hil("doctor", "cache", "info", "--json").out)
    assert (before["folder"], before["entries"]) == (str(tmp_path / "lowerings"), 1)
    assert 0 < before["bytes"] < before["limit"]
    assert answer(hil("doctor", "cache", "clear", "--json").out)["entries"] == 1
    assert hil("doctor", "cache", "info").out == f"{tmp_path / 'lowerings'}: entries 0, 0.0 MB; at most 2147 MB\n"


def test_lines_of_fuzz_and_shims(hil: Hil, tmp_path: Path) -> None:
    fuzzed = answer(hil("dev", "fuzz", "-t", "m4-qemu", "--count", "5", "--json").out)
    assert (fuzzed["mutants"], sum(fuzzed["outcomes"].values()), fuzzed["bugs"]) == (5, 5, [])
    installed = answer(hil("dev", "fvp-shim", "install", "shims", "--json").out)
    assert all(Path(path).exists() for path in installed["files"]) and installed["commands"] == []


def test_an_error_is_a_line_too(hil: Hil, files: Files) -> None:
    done = hil("run", files.pte, "-t", "m4-qmeu", "--json")
    error = answer(done.out)["error"]
    assert (done.status, done.err) == (CANNOT_TELL, "")
    assert (error["type"], error["kind"], error["message"]) == ("ConfigError", "infra", "unknown target 'm4-qmeu'")
    assert "did you mean 'm4-qemu'" in error["hint"]


def test_a_verdict_is_an_error_of_its_target(hil: Hil, files: Files) -> None:
    files.pte.write_bytes(known_answer(Isa.MVE).program)
    done = hil("run", files.pte, "-t", "m4-qemu,m55-qemu", "-i", files.input, "--json")
    wrong, right = answers(done.out)
    assert (done.status, done.err, right["exit_status"]) == (NO, "", OK)
    assert (wrong["target"], wrong["exit_status"], wrong["command"]) == ("m4-qemu", NO, "run")
    assert (wrong["error"]["type"], wrong["error"]["kind"]) == ("LintError", "verdict")
    assert wrong["error"]["operator"] == "cortex_m::quantized_linear.out"
    assert [one["label"] for one in wrong["error"]["details"]] == ["cause"]


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ("run --bogus --json", "run"),
        ("run --json", "run"),
        ("doctor selftest -t native --timeout-multiplier nan --json", "doctor selftest"),
        ("board hold --json x -m 0", "board hold"),
        ("nothing --json", ""),
    ],
)
def test_wrong_usage_is_a_line_too(hil: Hil, arguments: str, command: str) -> None:
    done = hil(*arguments.split())
    one = answer(done.out)
    assert (done.status, done.err, one["command"]) == (CANNOT_TELL, "", command)
    assert (one["error"]["type"], one["error"]["hint"]) == ("UsageError", f"hil {command} --help".replace("  ", " "))


def test_an_error_of_the_system_is_a_line_too(hil: Hil, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = hil("dev", "fvp-shim", "install", "file/below", "--json")
    assert (done.status, done.err, answer(done.out)["error"]["kind"]) == (CANNOT_TELL, "", "infra")


@pytest.mark.slow
def test_an_interrupt_is_a_line_too(files: Files, tmp_path: Path) -> None:
    (tmp_path / "targets.yaml").write_text(FROZEN)
    with running("run", files.pte, "-t", "frozen", "-i", files.input, "--json", cwd=tmp_path) as process:
        descendant(process, "qemu-system")
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, err, answer(out)["error"]["type"]) == (130, "", "Interrupted")
    assert answer(out)["exit_status"] == 130
