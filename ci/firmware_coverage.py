"""Lines and branches of the firmware that an instrumented build (`-DHIL_COVERAGE=ON`) has executed, for each file.

cd firmware && cmake --preset coverage && cmake --build ../build/coverage    # runs the kernels' tests as well
pytest --target=native --keep-programs build/programs tests/targets
python ci/firmware_coverage.py build/coverage build/programs

Runs the kept programs on the instrumented runner first. Exit status 1 if the share of lines or branches has fallen.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import numpy as np

from cortex_m_hil import flow, load_program
from cortex_m_hil.flow.checking import kept_input
from cortex_m_hil.flow.coverage import gcov
from cortex_m_hil.flow.coverage.counts import Files, Share, total
from cortex_m_hil.host import toolchain
from cortex_m_hil.program.pte_reader import read_methods

SECONDS: Final = 60.0  # limit for one program
LEAST: Final = {"lines": 72.0, "branches": 57.0}  # percent: a little below the present values


def count(build: Path) -> Files:
    """Count the lines and branches of the firmware, by file, without its tests."""
    data = sorted(path.resolve() for path in build.rglob("*.gcda"))
    if not data:
        raise SystemExit(f"{build}: no .gcda file: nothing of it was executed, or it is no -DHIL_COVERAGE=ON")
    found = gcov.files(toolchain.locate("gcov"), data, {gcov.SOURCES: ""})
    return {name: counts for name, counts in found.items() if not name.startswith("tests/")}


def run_all(runner: Path, programs: Path) -> None:
    """Run each program once, in a process of its own, with its kept inputs.

    Programs of several methods are left out: a runner with `-m` takes no method.
    """
    found = [pte for pte in sorted(programs.glob("*.pte")) if len(read_methods(pte.read_bytes(), pte.name)) == 1]
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


def show(name: str, lines: Share, branches: Share) -> None:
    print(f"{name:<50} lines {lines!s:>18}   branches {branches!s:>18}")


def main(build: Path, programs: Path) -> int:
    run_all(build / "runner.elf", programs)
    found = count(build)
    for name, one in sorted(found.items()):
        show(name, one.share_of_lines, one.share_of_branches)
    lines, branches = total(found)
    show("all", lines, branches)
    reached = {"lines": lines.percent, "branches": branches.percent}
    fallen = [what for what, least in LEAST.items() if reached[what] < least]
    for what in fallen:
        print(f"{what}: {reached[what]:.1f} % is less than the {LEAST[what]} % of before")
    return bool(fallen)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    raise SystemExit(main(*map(Path, sys.argv[1:])))
