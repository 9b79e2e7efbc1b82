"""All of tests/targets on virtual boards, from a flash that is empty."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

from devices import need_rp2040js
from paths import REPOSITORY


def outcome(case: xml.Element) -> str:
    """Return "passed", "too large" (skipped by its marker, or OutOfTargetMemory), or what went wrong."""
    ends = [one for one in case if one.tag in ("failure", "error", "skipped")]
    messages = " ".join(one.get("message", "") for one in ends)
    too_large = "OutOfTargetMemory" in messages or "for programs; needs" in messages
    return "too large" if too_large else messages or "passed"


@pytest.mark.parametrize(("board", "too_large"), [("f405", 10), ("pico", 9)])
def test_every_sample_test_that_fits_passes(
    board: str, too_large: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if board == "pico":
        need_rp2040js()
    monkeypatch.setenv("HIL_LOCK_DIR", str(tmp_path / "locks"))
    report = tmp_path / "junit.xml"
    tests = [sys.executable, "-m", "pytest", f"--target=vboard-{board}", f"--junit-xml={report}", "tests/targets"]
    command = [sys.executable, "-m", "cortex_m_hil.cli", "board", "virtual", board, "run", *tests]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert report.is_file(), done.stdout + done.stderr
    cases = xml.parse(report).iter("testcase")
    outcomes = {f"{case.get('classname')} {case.get('name')}": outcome(case) for case in cases}
    assert {name: one for name, one in outcomes.items() if one not in ("passed", "too large")} == {}
    assert list(outcomes.values()).count("too large") == too_large < len(outcomes) / 20
    assert done.returncode == 1  # some fail for their size
