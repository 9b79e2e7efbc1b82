"""Lines and branches of the firmware that an instrumented build (`-DHIL_COVERAGE=ON`) has executed, for each file.

cd firmware && cmake --preset coverage && cmake --build ../build/coverage    # runs the kernels' tests as well
python ci/firmware_coverage.py build/coverage
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

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


def share(counts: Iterable[int]) -> str:
    hit = [count > 0 for count in counts]
    return f"{sum(hit)}/{len(hit)} {100 * sum(hit) / max(len(hit), 1):.1f} %"


def main(build: Path) -> None:
    found = sorted(count(build).items())
    rows = [(name, [*one.lines.values()], [*one.branches.values()]) for name, one in found]
    rows.append(("all", [n for _, lines, _ in rows for n in lines], [n for _, _, branches in rows for n in branches]))
    for name, lines, branches in rows:
        print(f"{name:<50} lines {share(lines):>18}   branches {share(branches):>18}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]))
