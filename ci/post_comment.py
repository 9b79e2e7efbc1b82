"""Comment with the findings of another workflow's run, on its pull request or on the issue of the nightlies.

    python3 ci/post_comment.py FOLDER      # with comment.json of that run, which compare_and_report.py wrote

That run may have executed untrusted code. So its file is treated as data: its size is limited, its Markdown may have no
more than headings, lists, tables and code spans, else it is shown as a block of text, and the number of the pull
request is used only if GitHub confirms that the run's commit is the head of it.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from github_actions import Api, NotThere, fail, fenced, is_harmless, shortened

LIMIT: Final = 1 << 16  # bytes of comment.json
MARK: Final = "<!-- cortex-m-hil -->"
BOT: Final = "github-actions[bot]"
LABEL: Final = "hil-nightly"


@dataclass(frozen=True)
class Findings:
    number: int | None
    text: str
    news: bool


def read(folder: Path) -> Findings:
    with (folder / "comment.json").open("rb") as file:
        data = file.read(LIMIT + 1)
    if len(data) > LIMIT:
        fail(f"comment.json has more than {LIMIT} bytes")
    try:
        fields = json.loads(data)
        number, text, news = fields["pull_request"], fields["text"], fields["news"]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        fail(f"comment.json makes no sense: {error!r}")
    whole = number is None or (type(number) is int and 0 < number < 1 << 31)
    if not (whole and isinstance(text, str) and isinstance(news, bool)):
        fail("comment.json makes no sense: a number or null, a text and a truth value are expected")
    lines = ["".join(one if one.isprintable() else "?" for one in line) for line in text.split("\n")]
    return Findings(number, shortened("\n".join(lines)), news)


def body(told: Findings, run: dict[str, Any], repository: str) -> str:
    where = f"{os.environ['GITHUB_SERVER_URL']}/{repository}/actions/runs/{int(run['id'])}"
    text = told.text if is_harmless(told.text) else fenced(told.text)
    return f"{MARK}\n**On Cortex-M targets** ([report and log]({where}))\n\n{text}\n"


def on_pull_request(api: Api, run: dict[str, Any], told: Findings) -> None:
    if told.number is None:
        fail("comment.json of a pull request's run names none")
    try:
        pull = api.get(f"pulls/{told.number}")
    except NotThere:
        fail(f"there is no pull request {told.number}")
    head = pull["head"]
    origin = (head["repo"] or {}).get("full_name")  # null once a fork is deleted
    if head["sha"] != run["head_sha"] or origin != run["head_repository"]["full_name"]:
        print(f"pull request {told.number} has moved on, or is another's: no comment")
        return
    comments = api.get(f"issues/{told.number}/comments?per_page=100")
    ours = [one for one in comments if one["user"]["login"] == BOT and one["body"].startswith(MARK)]
    text = {"body": body(told, run, api.repository)}
    if ours:
        api.patch(f"issues/comments/{int(ours[0]['id'])}", text)
    else:
        api.post(f"issues/{told.number}/comments", text)


def on_nightly(api: Api, run: dict[str, Any], told: Findings) -> None:
    """Write a comment on the open issue with the label, which is created if necessary; nothing without new findings."""
    if not told.news:
        print("nothing changed: no comment")
        return
    found = [one for one in api.get(f"issues?state=open&labels={LABEL}&per_page=100") if one["user"]["login"] == BOT]
    if found:
        issue = found[0]
    else:
        text = "What changed from nightly to nightly. Close it to have another."
        issue = api.post("issues", {"title": "Nightly", "body": text, "labels": [LABEL]})
    api.post(f"issues/{int(issue['number'])}/comments", {"body": body(told, run, api.repository)})


def main() -> None:
    event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text())
    run, told, api = event["workflow_run"], read(Path(sys.argv[1])), Api()
    if run["event"] == "pull_request":
        on_pull_request(api, run, told)
    elif run["event"] == "schedule":
        on_nightly(api, run, told)
    else:
        print(f"a run by {run['event']}: no comment")


if __name__ == "__main__":
    main()
