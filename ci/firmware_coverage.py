"""Lines and branches of the firmware that an instrumented build (`-DHIL_COVERAGE=ON`) has executed, for each file.

cd firmware && cmake --preset coverage && cmake --build ../build/coverage    # runs the kernels' tests as well
pytest --target=native --keep-programs build/programs tests/targets
python ci/firmware_coverage.py build/coverage build/programs

Runs the kept programs on the instrumented runner first. Exit status 1 if the share of lines or branches has fallen.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from cortex_m_hil import flow, load_program
from cortex_m_hil.flow.running import kept_input

SECONDS: Final = 60.0  # for one program
LEAST: Final = {"lines": 72.0, "branches": 57.0}  # percent: a little below what is reached
PREFIX: Final = "firmware/"  # -ffile-prefix-map calls the source tree so


@dataclass(frozen=True)
class Counts:
    """Of one file: line to times executed, and (line, number of the branch) to times taken."""

    lines: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    branches: dict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))


def reports(build: Path) -> Iterator[dict[str, Any]]:
    """gcov's, of each object that was executed."""
    data = sorted(path.resolve() for path in build.rglob("*.gcda"))
    if not data:
        raise SystemExit(f"{build}: no .gcda file: nothing of it was executed, or it is no -DHIL_COVERAGE=ON")
    command = ["gcov", "--json-format", "--stdout", "--branch-probabilities", *map(str, data)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{done.stderr.strip()}\nstale counts of an earlier build? remove the .gcda files of {build}")
    yield from (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))


def count(build: Path) -> dict[str, Counts]:
    """Templates and headers are in many objects: what any of them executed counts."""
    found: dict[str, Counts] = defaultdict(Counts)
    for file in (file for report in reports(build) for file in report["files"]):
        if not file["file"].startswith(PREFIX) or file["file"].startswith(f"{PREFIX}tests/"):
            continue
        counts = found[file["file"].removeprefix(PREFIX)]
        for line in file["lines"]:
            counts.lines[line["line_number"]] += line["count"]
            for number, branch in enumerate(line["branches"]):
                counts.branches[line["line_number"], number] += branch["count"]
    return found


def run_all(runner: Path, programs: Path) -> None:
    """Each program once, in a process of its own, on the inputs that it was kept with."""
    found = sorted(programs.glob("*.pte"))
    if not found:
        raise SystemExit(f"{programs}: no programs; pytest --keep-programs {programs} writes them")
    with tempfile.TemporaryDirectory() as folder:
        failed = [pte.name for pte in found if not ran(runner.resolve(), pte, Path(folder))]
    print(f"{len(found) - len(failed)} of {len(found)} programs ended well", *failed, sep="\n  ")


def ran(runner: Path, pte: Path, folder: Path) -> bool:
    program = load_program(pte)
    arrays = [np.load(kept_input(pte, number)) for number in range(len(program.file.inputs))]
    command = [str(runner), "-m", str(pte.resolve()), "-o", "out"]
    for number, value in enumerate(flow.arrange(program, arrays)):
        (folder / f"input-{number}").write_bytes(value.data)
        command += ["-i", f"input-{number}"]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, timeout=SECONDS, check=False)
    return done.returncode == 0


def percent(counts: Sequence[int]) -> float:
    return 100 * sum(count > 0 for count in counts) / max(len(counts), 1)


def share(counts: Sequence[int]) -> str:
    return f"{sum(count > 0 for count in counts)}/{len(counts)} {percent(counts):.1f} %"


def main(build: Path, programs: Path) -> int:
    run_all(build / "runner.elf", programs)
    found = sorted(count(build).items())
    rows = [(name, [*one.lines.values()], [*one.branches.values()]) for name, one in found]
    lines = [number for _, numbers, _ in rows for number in numbers]
    branches = [number for _, _, numbers in rows for number in numbers]
    for name, of_lines, of_branches in [*rows, ("all", lines, branches)]:
        print(f"{name:<50} lines {share(of_lines):>18}   branches {share(of_branches):>18}")
    reached = {"lines": percent(lines), "branches": percent(branches)}
    fallen = [what for what, least in LEAST.items() if reached[what] < least]
    for what in fallen:
        print(f"{what}: {reached[what]:.1f} % is less than the {LEAST[what]} % of before")
    return bool(fallen)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    raise SystemExit(main(*map(Path, sys.argv[1:])))
