"""A stand-in for a GitHub runner, which executes the `run` steps of this repository's workflows, and for GitHub's API.

Other actions are replaced: artifacts are folders, the cache is the user's own, all others do nothing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from cortex_m_hil.host import subprocesses
from cortex_m_hil.host.paths import cache_directory
from paths import REPOSITORY

Fields = dict[str, Any]
WORKFLOWS = REPOSITORY / ".github" / "workflows"
SECONDS = 600.0  # time limit for one step; the cache of runners may be cold, and the machine busy
NOTHING_HERE = {"actions/checkout", "actions/setup-python"}
# Commands that are not executed, because their packages are installed already.
APART = {
    '"$GITHUB_ACTION_PATH/ci/install.sh" system': "installs Debian packages as root",
    'python "$GITHUB_ACTION_PATH/ci/install_action.py"': "downloads PyTorch; its command is tested apart",
    'hil executorch install --target "$TARGETS"': "fetches it; test_executorch_checkout.py does so from a mirror",
    "make quick": "it installs, and runs tests that are run anyway",
    "make versions VERSIONS=newest": "it installs gigabytes, and runs tests that are run anyway",
    "make test": "this test is part of it",
}


def load(path: Path) -> Fields:
    loaded: Fields = YAML(typ="safe").load(path)
    return loaded


def steps(file: Path) -> list[Fields]:
    loaded = load(file)
    jobs = [loaded["runs"]] if "runs" in loaded else loaded["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


def commands(file: Path) -> set[str]:
    return {step["run"] for step in steps(file) if "run" in step}


# --- expressions ---------------------------------------------------------------------------------------------


def value(text: str, contexts: Fields) -> Any:
    """Return the value of a GitHub expression in one of the supported forms.

    Otherwise raise NameError or SyntaxError.
    """

    def look_up(match: re.Match[str]) -> str:
        if (string := match[1]) is not None:
            return string
        word = match[0]
        if word in ("fromJSON", "contains", "hashFiles", "cancelled"):
            return word
        found: Any = contexts
        for name in word.split("."):
            found = found.get(name) if isinstance(found, Mapping) else None
        return repr("" if found is None else found)

    known = {"fromJSON": json.loads, "contains": lambda many, one: one in many, "hashFiles": lambda *_: "0"}
    python = re.sub(r"('[^']*')|[A-Za-z_][\w.-]*", look_up, text.strip())
    python = python.replace("&&", " and ").replace("||", " or ").replace("!=", "≠").replace("!", " not ")
    return eval(python.replace("≠", "!=").strip(), {"__builtins__": {}, "cancelled": lambda: False, **known})


def filled(text: Any, contexts: Fields) -> str:
    """Return a text of a step's `with` or `env` with its expressions evaluated."""
    return re.sub(r"\$\{\{(.*?)\}\}", lambda match: _text(value(match[1], contexts)), str(text))


def _text(found: Any) -> str:
    return str(found).lower() if isinstance(found, bool) else str(found)


# --- jobs ----------------------------------------------------------------------------------------------------


@dataclass
class Runner:
    """One run of a workflow in `workspace`. `artifacts` has a folder for each run, and in that one for each name."""

    workspace: Path
    temporary: Path
    artifacts: Path
    api: str
    run: int
    event: str
    payload: Fields
    variables: Fields = field(default_factory=dict)
    executed: set[str] = field(default_factory=set)
    summary: str = ""

    def job(
        self, workflow: str, name: str, needs: Fields | None = None, inputs: Fields | None = None, **matrix: str
    ) -> tuple[int, Fields]:
        """Run a job, and return the exit status of the first step that failed, or 0, and the job's outputs.

        `workflow` is a file of this repository's, or the path of another.
        """
        loaded = load(WORKFLOWS / workflow)
        job = loaded["jobs"][name]
        contexts = self._contexts() | {"matrix": matrix, "needs": needs or {}, "inputs": inputs or {}}
        condition = str(job.get("if", "True")).replace("${{", "").replace("}}", "")
        assert condition == "True" or value(condition, contexts), f"{name} would not run: {condition}"
        env = self._environment()
        env |= {name: filled(text, contexts) for name, text in loaded.get("env", {}).items()}
        status = self._steps(job["steps"], contexts, env)
        outputs = {name: filled(text, contexts) for name, text in job.get("outputs", {}).items()}
        return status, outputs

    def action(self, given: Fields) -> int:
        """Run the action alone, as another repository's workflow calls it, and return the exit status."""
        return self._steps([{"uses": "./", "with": given}], self._contexts(), self._environment())

    def _contexts(self) -> Fields:
        repository = {"default_branch": "main"}
        github = {
            "event": {"repository": repository, **self.payload},
            "event_name": self.event,
            "token": "t",
            "run_id": self.run,
        }
        return {
            "github": github,
            "vars": self.variables,
            "runner": {"temp": str(self.temporary), "os": "Linux"},
            "steps": {},
        }

    def _environment(self) -> dict[str, str]:
        event = self.temporary / "event.json"
        event.write_text(json.dumps(self.payload))
        return {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "RUNNER_TEMP": str(self.temporary),
            "RUNNER_OS": "Linux",
            "XDG_STATE_HOME": str(self.temporary / "state"),
            "GITHUB_ACTION_PATH": str(self.workspace),
            "GITHUB_API_URL": self.api,
            "GITHUB_SERVER_URL": "https://github.example",
            "GITHUB_REPOSITORY": "o/r",
            "GITHUB_EVENT_PATH": str(event),
        }

    def _steps(self, wanted: list[Fields], contexts: Fields, env: dict[str, str]) -> int:
        failed = 0
        for step in wanted:
            condition = str(step.get("if", "True"))
            if (failed and "cancelled()" not in condition) or not (condition == "True" or value(condition, contexts)):
                continue
            done = self._command(step, contexts, env) if "run" in step else self._action(step, contexts, env)
            failed = failed or done
        return failed

    def _command(self, step: Fields, contexts: Fields, env: dict[str, str]) -> int:
        if step["run"] in APART:
            return 0
        assert "${{" not in step["run"], "an expression in a command is how strangers' text becomes code"
        files = {
            name: self.temporary / name
            for name in ("GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_PATH", "GITHUB_STEP_SUMMARY")
        }
        for file in files.values():
            file.write_text("")
        own = {name: filled(text, contexts) for name, text in step.get("env", {}).items()}
        shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        given = env | own | {name: str(file) for name, file in files.items()}
        log = self.temporary / "log"
        status = subprocesses.run(shell, log, SECONDS, cwd=self.workspace, env=given)
        print(f"$ {step['run']}\n{log.read_text()}")
        log.unlink()
        assert status is not None, f"no end within {SECONDS:g} s: {step['run']}"
        self.executed.add(step["run"])
        env |= dict(line.split("=", 1) for line in files["GITHUB_ENV"].read_text().splitlines())
        env["PATH"] = os.pathsep.join([*reversed(files["GITHUB_PATH"].read_text().splitlines()), env["PATH"]])
        if "id" in step:
            lines = files["GITHUB_OUTPUT"].read_text().splitlines()
            contexts["steps"][step["id"]] = {"outputs": dict(line.split("=", 1) for line in lines)}
        self.summary += files["GITHUB_STEP_SUMMARY"].read_text()
        return status

    def _action(self, step: Fields, contexts: Fields, env: dict[str, str]) -> int:
        given = {name: filled(text, contexts) for name, text in step.get("with", {}).items()}
        name = step["uses"].partition("@")[0]
        if name == "./":
            action = load(REPOSITORY / "action.yml")
            assert set(given) <= set(action["inputs"]), f"the action has no input {set(given) - set(action['inputs'])}"
            inputs = {name: filled(one.get("default", ""), contexts) for name, one in action["inputs"].items()} | given
            return self._steps(action["runs"]["steps"], contexts | {"inputs": inputs, "steps": {}}, env)
        if name in NOTHING_HERE:
            return 0
        stand_in: Callable[[Fields], int] = {
            "actions/cache": self._cache,
            "actions/upload-artifact": self._upload,
            "actions/download-artifact": self._download,
        }[name]
        return stand_in(given)

    def _cache(self, given: Fields) -> int:
        assert re.fullmatch(r"[\w.-]{1,512}", given["key"]), given
        for folder in map(Path, given["path"].split()):
            if folder.parent == self.temporary and folder.name.endswith("cache") and not folder.exists():
                folder.symlink_to(cache_directory())
        return 0

    def _upload(self, given: Fields) -> int:
        assert re.fullmatch(r"[\w.-]+", given["name"]), given
        source, place = self.workspace / given["path"], self.artifacts / str(self.run) / given["name"]
        if not source.is_dir() or not any(source.iterdir()):
            return int(given.get("if-no-files-found") == "error")
        shutil.copytree(source, place)
        return 0

    def _download(self, given: Fields) -> int:
        place = self.artifacts / str(given.get("run-id", self.run))
        names = [one for one in place.iterdir() if fnmatchcase(one.name, given.get("name") or given["pattern"])]
        for one in names:
            shutil.copytree(one, self.workspace / given["path"], dirs_exist_ok=True)
        return int(not names and "name" in given)


# --- the API -------------------------------------------------------------------------------------------------


@dataclass
class Api:
    """A part of GitHub's API: `answers` by method and path, without query; `asked` has the bodies that were sent."""

    answers: dict[str, Any] = field(default_factory=dict)
    asked: list[tuple[str, Any]] = field(default_factory=list)
    url: str = ""


@contextmanager
def api() -> Iterator[Api]:
    """Serve the API on the loopback interface."""
    found = Api()

    class Handler(BaseHTTPRequestHandler):
        def handle_one(self) -> None:
            what = f"{self.command} {self.path.partition('?')[0].removeprefix('/repos/o/r/')}"
            if size := int(self.headers.get("Content-Length") or 0):
                found.asked.append((what, json.loads(self.rfile.read(size))))
            answer = found.answers.get(what)
            token = None if isinstance(answer, bytes) else "Bearer t"  # no token for another server's file
            known = answer is not None and self.headers["Authorization"] == token
            answer = answer if known else {"message": "Not Found"}
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(200 if known else 404)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = handle_one

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        found.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()
