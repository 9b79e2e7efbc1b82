"""The Python that tests start pytest with, which is forked from one that has imported it all, does as Python does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TELLS = """
import os, signal, sys
print(__name__, sys.argv[1:], os.getcwd(), os.environ["OWN"], sys.stdin.read(), flush=True)
print("error", file=sys.stderr)
os.write(int(sys.argv[1]), b"further")
if sys.argv[2] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[2] == "waits":
    signal.pause()
sys.exit(int(sys.argv[2]))
"""


@pytest.mark.parametrize(("how", "status"), [("0", 0), ("3", 3), ("killed", -signal.SIGKILL)])
def test_a_program_ends_as_it_does_by_python(preloaded: str, tmp_path: Path, how: str, status: int) -> None:
    assert told(preloaded, tmp_path, how) == told(sys.executable, tmp_path, how)
    assert told(preloaded, tmp_path, how)[0] == status


def test_a_signal_reaches_the_program(preloaded: str, tmp_path: Path) -> None:
    assert told(preloaded, tmp_path, "waits")[0] == -signal.SIGTERM


def told(python: str, folder: Path, how: str) -> tuple[int, str, str, bytes]:
    (folder / "tells.py").write_text(TELLS)
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [python, "-m", "tells", str(writer), how], cwd=folder, env={**os.environ, "OWN": "its own"},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, pass_fds=[writer],
    )  # fmt: skip
    os.close(writer)
    assert process.stdin is not None
    process.stdin.write("input")
    process.stdin.close()
    process.stdin = None
    further = os.read(reader, 100)
    if how == "waits":
        process.terminate()
    out, err = process.communicate(timeout=60)
    os.close(reader)
    return process.returncode, out, err, further
