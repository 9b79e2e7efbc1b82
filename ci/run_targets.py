"""Run hil nightly on TARGETS, and write its results to hil-results/NAME.jsonl.gz, whatever its exit status.

TESTS and OPTIONS are split into words like by a shell. With BUNDLES=true, bundles of failures, with their models, are
in hil-bundles. The exit status is hil nightly's.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from cortex_m_hil.campaigns.nightly import stored_nightlies as nights
from cortex_m_hil.campaigns.nightly.nightly import KIND
from cortex_m_hil.campaigns.store import Store
from github_actions import append, fail, fenced


def main() -> None:
    name, targets = os.environ["NAME"], os.environ["TARGETS"]
    file = Path(os.environ["RUNNER_TEMP"]) / f"hil-results-{name}.sqlite"
    words = [*shlex.split(os.environ["TESTS"]), "--target", targets, *shlex.split(os.environ["OPTIONS"])]
    asked = ["--report", "hil-bundles", "--bundles"] if os.environ["BUNDLES"] == "true" else []
    call = ["hil", "nightly", *words, "--store", str(file), *asked]
    done = subprocess.run(call, stdout=subprocess.PIPE, text=True, check=False)  # the report goes to the job's log
    print(done.stdout, flush=True)
    append("GITHUB_STEP_SUMMARY", f"### {name}\n\n{fenced(done.stdout or 'no result; the log says why')}\n")
    with Store(file) as kept:
        nightlies = kept.campaigns(KIND)
        if not nightlies:
            fail(f"hil nightly found nothing to run on {targets}", done.returncode or 2)
        Path("hil-results").mkdir(exist_ok=True)
        nights.export_nightly(kept, nightlies[-1], Path("hil-results") / f"{name}.jsonl.gz")
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
