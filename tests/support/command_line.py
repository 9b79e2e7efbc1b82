"""Functions that call `hil` like a user, and make the checks that hold for every answer."""

from __future__ import annotations

import contextvars
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import typer.main

from cortex_m_hil.cli import __main__ as cli
from cortex_m_hil.cli.command_output import SCHEMA_VERSION
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.tensor import Array
from hints import check_hints
from paths import IMPORT_ROOT, REPOSITORY

OK, NO, CANNOT_TELL = 0, 1, 2
PAGE = (REPOSITORY / "docs" / "command-line.md").read_text()
FIRST_BUILD = 300.0  # seconds; the shared cache may be cold
# A target that never answers: QEMU's -S starts the machine with a stopped CPU.
FROZEN = "targets: {frozen: {cpu: cortex-m4, board: mps2, launcher: {qemu: {machine: mps2-an386, args: [-S]}}}}\n"


@dataclass(frozen=True)
class Done:
    status: int
    out: str
    err: str


Hil = Callable[..., Done]


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "cortex_m_hil.cli", *map(str, arguments)]


def environment(**changes: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(IMPORT_ROOT), **changes}


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> Done:
    """Call the command in this process."""
    with pytest.raises(SystemExit) as end:
        # In a context of its own, so that `answers.CALL` does not affect the next call.
        contextvars.copy_context().run(cli.main, [str(argument) for argument in arguments])
    assert isinstance(end.value.code, int)
    out, err = capsys.readouterr()
    check_hints(arguments, out, err)
    return Done(end.value.code, out, err)


def spawn(*arguments: object, cwd: Path, **changes: str) -> Done:
    """Call the command in a process of its own."""
    done = subprocess.run(
        command(*arguments),
        cwd=cwd,
        env=environment(**changes),
        capture_output=True,
        text=True,
        timeout=FIRST_BUILD,
        check=False,
    )
    assert "Traceback" not in done.stdout + done.stderr
    check_hints(arguments, done.stdout, done.stderr)
    return Done(done.returncode, done.stdout, done.stderr)


@dataclass(frozen=True)
class Files:
    """The DSP known-answer program as files, with its inputs and its right outputs."""

    pte: Path
    input: Path
    expected: Array

    def moved(self, quanta: int) -> Array:
        """Return the right output with one element changed by `quanta` quanta."""
        quantization = Program.from_bytes(self.pte.read_bytes()).file.dataflow.output_quantizations[0]
        assert quantization is not None
        array = self.expected.copy()
        array[0, 3] += np.float32(quanta * quantization.scale)
        return array


def expect(done: Done, status: int, *texts: str) -> None:
    """Check that standard error has every text and no traceback, and that standard output is empty."""
    assert (done.status, done.out) == (status, "")
    for text in texts:
        assert text in done.err
    assert "Traceback" not in done.err


@contextmanager
def running(*arguments: object, cwd: Path, **changes: str) -> Iterator[subprocess.Popen[str]]:
    """Yield the command in a process group of its own, as a shell starts it, and end it in any case."""
    with subprocess.Popen(
        command(*arguments),
        cwd=cwd,
        env=environment(**changes),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def descendant(process: subprocess.Popen[str], name: str) -> psutil.Process:
    """Return the first process below `process` whose program begins with `name`, as soon as there is one."""
    end = time.monotonic() + FIRST_BUILD
    while time.monotonic() < end and process.poll() is None:
        for child in psutil.Process(process.pid).children(recursive=True):
            try:
                if child.name().startswith(name):
                    return child
            except psutil.NoSuchProcess:
                continue
        time.sleep(0.02)
    raise AssertionError(f"no {name} was started: {process.communicate()}")


def fields_of(command: str) -> set[str]:
    """Return the fields of a command's answers, from the end of its help."""
    called: Any = typer.main.get_command(cli.load_commands(command.partition(" ")[0]))
    for name in command.split():
        called = called.commands[name]
    listed = re.findall(r"^  (\w[\w, ]*): ", (called.epilog or "").partition("\n\n")[0], re.MULTILINE)
    return {name for names in listed for name in names.split(", ")}


def documented(section: str) -> set[str]:
    """Return the fields in the table below a heading of the page."""
    text = PAGE.partition(f"\n### {section}\n")[2].partition("\n### ")[0].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def answers(out: str) -> list[dict[str, Any]]:
    """Return the JSON objects of the lines; check that their fields are exactly those in the docs and in the help."""
    found = [json.loads(line, parse_constant=no_json) for line in out.splitlines()]
    for one in found:
        assert one["schema_version"] == SCHEMA_VERSION
        fields = set(one) - documented("Every line")
        if "error" in one:
            assert set(one["error"]) == documented("An error")
            assert fields <= {"error", "target", "case", "model"}
        else:
            assert fields == fields_of(one["command"])
    return found


def no_json(name: str) -> Any:
    raise AssertionError(f"{name} is no JSON")


def answer(out: str) -> dict[str, Any]:
    [one] = answers(out)
    return one
