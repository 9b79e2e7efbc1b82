"""Print the targets that get a job in nightly.yml: of the given names, simulators that run here without a fallback.

hil targets --json | python ci/nightly_targets.py '*-qemu'
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from github_actions import append, fail


def chosen(lines: Iterable[str], names: Sequence[str]) -> list[str]:
    found = [json.loads(line) for line in lines]
    here = [one for one in found if one["runnable"] and not one["hardware"] and one["runs_as"] == one["target"]]
    return [one["target"] for one in here if any(fnmatchcase(one["target"], name) for name in names)]


def main() -> None:
    if not (targets := chosen(sys.stdin, sys.argv[1:])):
        fail(f"no simulator of {' '.join(sys.argv[1:])} runs here; hil doctor says what is missing")
    append("GITHUB_OUTPUT", f"targets={json.dumps(targets)}")
    print(*targets)


if __name__ == "__main__":
    main()
