"""Runs of `hil dev upstream` as a user calls it, and the results in its JUnit file."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as xml
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from cortex_m_hil.maintainers import executorch_suites as suite
from paths import IMPORT_ROOT, REPOSITORY

SUITE = suite.find_suite()
DEADLINE = 600.0  # seconds, for a run that may have to build runners


@dataclass(frozen=True)
class Cell:
    """The result of one test on one target, from the JUnit file.

    `outputs` has a digest for each program that ran; `lowering` says where the last one came from.
    """

    target: str
    verdict: str
    error: str
    outputs: tuple[str, ...]
    lowering: str = field(default="", compare=False)


@dataclass(frozen=True)
class Done:
    status: int
    text: str
    cells: dict[str, dict[str, Cell]]  # by test, then by target

    def count(self) -> dict[str, Counter[str]]:
        """Return the number of each verdict by target."""
        counts: dict[str, Counter[str]] = {}
        for by_target in self.cells.values():
            for cell in by_target.values():
                counts.setdefault(cell.target, Counter())[cell.verdict] += 1
        return counts


def environment(**changes: str) -> dict[str, str]:
    path = os.pathsep.join(str(folder) for folder in (IMPORT_ROOT, REPOSITORY / "tests" / "support"))
    return {**os.environ, "PYTHONPATH": path, **changes}


def upstream(
    folder: Path, targets: str, *arguments: str, path: str = "", deadline: float = DEADLINE, backend_suite: bool = False
) -> Done:
    """Run `hil dev upstream` in `folder`; `path` goes before PATH."""
    report = folder / "report.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "cortex_m_hil.cli", "dev", "upstream", "-t", targets]
    command += [*(["--backend-suite"] if backend_suite else []), "--", f"--junit-xml={report}"]
    changes = {"PATH": f"{path}{os.pathsep}{os.environ['PATH']}"} if path else {}
    changes["PYTHONPATH"] = os.pathsep.join([str(folder), environment()["PYTHONPATH"]])
    done = subprocess.run(
        [*command, *arguments], cwd=folder, env=environment(**changes), capture_output=True, text=True,
        timeout=deadline, check=False,
    )  # fmt: skip
    return Done(done.returncode, done.stdout + done.stderr, _cells(report) if report.exists() else {})


def _cells(report: Path) -> dict[str, dict[str, Cell]]:
    cells: dict[str, dict[str, Cell]] = {}
    for case in xml.parse(report).iter("testcase"):
        properties = [(one.get("name") or "", one.get("value") or "") for one in case.iter("property")]
        found = dict(properties)
        if "hil_test" in found:
            outputs = tuple(value for name, value in properties if name == "hil_outputs")
            lowering = found.get("hil_lowering", "")
            cell = Cell(found["hil_requested"], found["hil_verdict"], found["hil_error"], outputs, lowering)
            cells.setdefault(found["hil_test"], {})[cell.target] = cell
    return cells


def files(*names: str) -> list[str]:
    return [str(SUITE / name) for name in names]
