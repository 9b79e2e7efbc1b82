"""Find the run of the workflow HISTORY whose artifact has the nightlies to compare with.

The step's output `run` is its id, or empty. Only runs on the default branch that no pull request started are
considered, the last one first.
"""

from __future__ import annotations

import os
from urllib.parse import quote, urlencode

from github_actions import Api, NotThere, append

ARTIFACT = "hil-nightlies"
EVENTS = ("schedule", "workflow_dispatch")


def find(api: Api, workflow: str, branch: str) -> int | None:
    which = urlencode({"branch": branch, "status": "completed", "per_page": 20})
    try:
        runs = api.get(f"actions/workflows/{quote(workflow, safe='')}/runs?{which}")["workflow_runs"]
    except NotThere:  # the workflow is not on the default branch yet
        return None
    own = [one for one in runs if one["event"] in EVENTS and one["head_repository"]["full_name"] == api.repository]
    for run in own:
        kept = api.get(f"actions/runs/{int(run['id'])}/artifacts?name={ARTIFACT}")["artifacts"]
        if any(one["name"] == ARTIFACT and not one["expired"] for one in kept):
            return int(run["id"])
    return None


def main() -> None:
    run = find(Api(), os.environ["HISTORY"], os.environ["DEFAULT_BRANCH"])
    append("GITHUB_OUTPUT", f"run={run or ''}")
    print(f"run {run}" if run else "no nightly yet")


if __name__ == "__main__":
    main()
