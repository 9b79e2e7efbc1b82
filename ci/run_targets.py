"""Runs hil nightly on TARGETS, and writes what it found to hil-results/NAME.jsonl.gz, whatever that is.

TESTS and OPTIONS are words as a shell splits them. The exit status is that of hil nightly.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

from github_actions import append, fail, fenced


def hil(*words: str) -> subprocess.CompletedProcess[str]:
    """Its standard error goes to the job's log."""
    return subprocess.run(["hil", *words], stdout=subprocess.PIPE, text=True, check=False)


def main() -> None:
    name, targets = os.environ["NAME"], os.environ["TARGETS"]
    store = Path(os.environ["RUNNER_TEMP"]) / f"hil-results-{name}.sqlite"
    words = [*shlex.split(os.environ["TESTS"]), "--target", targets, *shlex.split(os.environ["OPTIONS"])]
    done = hil("nightly", *words, "--store", str(store))
    print(done.stdout, flush=True)
    append("GITHUB_STEP_SUMMARY", f"### {name}\n\n{fenced(done.stdout or 'no result; the log says why')}\n")
    nightlies = [
        json.loads(line) for line in hil("results", "list", "--json", "--store", str(store)).stdout.split("\n") if line
    ]
    if not nightlies:
        fail(f"hil nightly found nothing to run on {targets}", done.returncode or 2)
    Path("hil-results").mkdir(exist_ok=True)
    file = f"hil-results/{name}.jsonl.gz"
    kept = hil("results", "export", str(nightlies[-1]["nightly"]), "-o", file, "--store", str(store))
    sys.exit(done.returncode or kept.returncode)


if __name__ == "__main__":
    main()
