"""Make the picture in docs/nightly.md: the report of a real nightly.

    python ci/report_picture.py

Three nightlies of a few tests on three targets; in the third a layer grew, and on one target a program is too large.
Next to the picture are digests of the shown page's template, style and script.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from browser import browser

ROOT: Final = Path(__file__).resolve().parents[1]
PICTURE: Final = ROOT / "docs" / "images" / "report.png"
DIGESTS: Final = PICTURE.with_suffix(".sha256")
PAGE: Final = ROOT / "harness" / "cortex_m_hil" / "campaigns" / "report" / "page"
WIDTH, HEIGHT = 1280, 1320
DEADLINE: Final = 3600.0  # seconds for a nightly, which may have to build runners
_TESTS: Final = """
import pytest, torch

def check(hil, *layers):
    torch.manual_seed(0)
    hil.check(torch.nn.Sequential(*layers), (torch.rand(1, 16),))

def test_classifier(hil):
    check(hil, torch.nn.Linear(16, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, 4))

def test_linear(hil):
    check(hil, torch.nn.Linear(16, 4))

def test_softmax(hil):
    check(hil, torch.nn.Linear(16, 10), torch.nn.Softmax(-1))

def test_has_room(hil):
    program = hil.lower(torch.nn.Linear(16, HIDDEN), (torch.rand(1, 16),))
    assert len(program.pte) < 2700, f"{len(program.pte)} bytes: the program does not fit our flash"
"""
_HIDDEN: Final = (16, 16, 24)  # the width of the hidden layer in each nightly


def digests(folder: Path) -> str:
    """Return the digests of all files of a folder, in the format of sha256sum."""
    files = sorted(folder.iterdir())
    return "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)


def made(folder: Path) -> bytes:
    """Run the nightlies, and return a PNG of the last one's report.

    Raises:
        CalledProcessError: a nightly could not be run at all.
    """
    for hidden in _HIDDEN:
        (folder / "test_model.py").write_text(f"HIDDEN = {hidden}\n{_TESTS}")
        _nightly(folder)
    with browser(folder / "profile") as page:
        page.emulate(WIDTH, HEIGHT, prefers_color_scheme="light")
        page.open(folder / "report" / "index.html")
        return page.picture()


def _nightly(folder: Path) -> None:
    hil = [sys.executable, "-m", "cortex_m_hil.cli", "nightly", "test_model.py", "-t", "m0-qemu,m4-qemu,m55-qemu"]
    done = subprocess.run(
        [*hil, "--store", "store.sqlite", "--report", "report"], cwd=folder,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    if done.returncode not in (0, 1):
        raise subprocess.CalledProcessError(done.returncode, done.args, done.stdout)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        picture = made(Path(place))
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_bytes(picture)
    DIGESTS.write_text(digests(PAGE))
