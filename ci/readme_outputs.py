"""Make the outputs in README.md by running its commands: `python ci/readme_outputs.py`.

A fenced block after `<!-- file: NAME -->` is a file; a block after `<!-- output: COMMAND -->` is the command's output
in a folder with the files above it. Times, addresses and other differences between machines are masked.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).resolve().parents[1] / "README.md"
WIDTH: Final = 118
# The only environment variables of a command, since CI, TERM, PY_COLORS, PYTEST_ADDOPTS … change pytest's output.
KEPT: Final = ("HOME", "PATH", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME")
DEADLINE: Final = 900.0  # seconds, for a command that may have to build runners
_BLOCK: Final = re.compile(r"(<!-- (file|output): (.+?) -->\n```\w*\n)(.*?)(?=^```$)", re.DOTALL | re.MULTILINE)
_OF_THIS_MACHINE: Final = ("platform ", "rootdir: ", "configfile: ", "plugins: ", "cachedir: ")


def rendered(page: str) -> str:
    """Return the page with all outputs made again.

    Raises:
        CalledProcessError: a command could not be run at all.
    """
    with tempfile.TemporaryDirectory() as folder:

        def made(block: re.Match[str]) -> str:
            head, kind, what, text = block.groups()
            if kind == "file":
                Path(folder, what).write_text(text)
                return block[0]
            return f"{head}{masked(_output(what, Path(folder)))}"

        return _BLOCK.sub(made, page)


def _output(command: str, folder: Path) -> str:
    """Return the output of a command; exit status 1, pytest's for a failed test, is no error."""
    program, *arguments = shlex.split(command)
    environment = {name: value for name, value in os.environ.items() if name in KEPT}
    environment |= {"LC_ALL": "C.UTF-8", "COLUMNS": str(WIDTH), "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    environment["HIL_EXECUTORCH_PREFIX"] = ""  # ignore an ExecuTorch that is installed here
    done = subprocess.run(
        [str(Path(sys.executable).parent / program), *arguments], cwd=folder, env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    if done.returncode not in (0, 1):
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout)
    return done.stdout


def masked(text: str) -> str:
    """Return text with values that differ between machines and runs masked; horizontal rules keep their width."""
    lines = [line.rstrip() for line in text.splitlines() if not line.startswith(_OF_THIS_MACHINE)]
    return "".join(f"{_ruled(_plain(line))}\n" for line in lines)


def _plain(line: str) -> str:
    line = re.sub(r"\bin [\d.]+ ?s\b( \(\d+:\d\d:\d\d\))?", "in … s", line)
    return re.sub(r"\b0x[0-9a-f]{8,}\b", "0x…", line)


def _ruled(line: str) -> str:
    rule = re.fullmatch(r"([=_-])\1+ (.+) \1+", line)
    return f" {rule[2]} ".center(WIDTH - 2, rule[1]) if rule else line


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text()))
