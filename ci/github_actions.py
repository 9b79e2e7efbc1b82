"""Helpers for the scripts of the workflows: GitHub's files and its API. They use only Python's standard library.

https://docs.github.com/en/actions/reference/workflow-commands, https://docs.github.com/en/rest
"""

from __future__ import annotations

import json
import os
import re
import sys
import urllib.error
import urllib.request
from typing import Any, Final, NoReturn

_SECONDS: Final = 60.0  # time limit for one request
_LIMIT: Final = 16 << 20  # bytes of an answer at most
LONGEST: Final = 30_000  # bytes of a comment; GitHub accepts 65,536 characters
_SPAN: Final = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")  # a code span of Markdown, in one line
_HEADING: Final = re.compile(r"^#{1,6} ")
_PLAIN: Final = re.compile(r"[A-Za-z0-9 .,;:()%+→…|*–-]*")  # no @ # / < > [ ] & \ ` ! _ ~ $
_REFERENCE: Final = re.compile(r"www\.|\bGH-", re.IGNORECASE)  # what GitHub makes links of all the same
_PIPE: Final = re.compile(r"(?<!\\)\|")


def fail(what: str, status: int = 2) -> NoReturn:
    print(f"::error::{what}", file=sys.stderr)
    sys.exit(status)


def append(variable: str, line: str) -> None:
    """Append a line to the file that GITHUB_OUTPUT, GITHUB_ENV, GITHUB_PATH or GITHUB_STEP_SUMMARY names."""
    with open(os.environ[variable], "a", encoding="utf-8", errors="backslashreplace") as file:
        file.write(f"{line}\n")


def fenced(text: str) -> str:
    """Return text as a Markdown code block that the text cannot end, so that links and HTML in it have no effect."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text.rstrip()}\n{fence}"


def is_harmless(markdown: str) -> bool:
    """Tell whether Markdown has only headings, lists, tables and code spans: no link, mention, reference or HTML.

    Outside of code spans, which end on their lines, only a few characters are allowed. In a table's row a bare `|` ends
    a code span, so none has one.
    """
    for line in markdown.split("\n"):
        spans = [found[2] for found in _SPAN.finditer(line)]
        outside = _SPAN.sub("", _HEADING.sub("", line))
        if not _PLAIN.fullmatch(outside) or _REFERENCE.search(outside) or any(_PIPE.search(span) for span in spans):
            return False
    return True


def shortened(text: str) -> str:
    """Return as many whole lines of a text as a comment may have."""
    kept = text.encode(errors="backslashreplace")[: LONGEST + 1].decode(errors="ignore")
    return text if len(kept.encode()) <= LONGEST else kept.rpartition("\n")[0]


class NotThere(Exception):
    """GitHub answered with status 404."""


class Api:
    """GitHub's API for the repository of the workflow, with the token in GITHUB_TOKEN."""

    def __init__(self) -> None:
        self.repository = os.environ["GITHUB_REPOSITORY"]
        self._base = f"{os.environ['GITHUB_API_URL']}/repos/{self.repository}"

    def get(self, path: str) -> Any:
        return self._ask("GET", path, None)

    def post(self, path: str, fields: dict[str, Any]) -> Any:
        return self._ask("POST", path, fields)

    def patch(self, path: str, fields: dict[str, Any]) -> Any:
        return self._ask("PATCH", path, fields)

    def _ask(self, method: str, path: str, fields: dict[str, Any] | None) -> Any:
        data = None if fields is None else json.dumps(fields).encode()
        heads = {"Accept": "application/vnd.github+json", "Authorization": f"Bearer {os.environ['GITHUB_TOKEN']}"}
        request = urllib.request.Request(f"{self._base}/{path}", data, heads, method=method)
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
                return json.loads(answer.read(_LIMIT))
        except urllib.error.HTTPError as error:
            if error.code == 404:
                raise NotThere(path) from error
            fail(f"GitHub refuses {method} {path}: {error.code} {error.reason}; has the job the permission?")
        except (OSError, ValueError) as error:
            fail(f"GitHub does not answer {method} {path}: {error}; run the job again")
