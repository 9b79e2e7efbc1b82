"""Try this project with the releases of ExecuTorch, torch and Python that people have (docs/runtimes.md#versions).

    make versions                                # all of COMBINATIONS whose Python is on PATH: hours
    make versions VERSIONS='1.5.1-2.14.1-3.11'   # names, or globs of names
    make versions VERSIONS=newest                # what pip installs today

Each combination gets a temporary virtual environment of some gigabytes, in which these run: `hil doctor`, the README's
first test, the quick tests, a sample of tests/targets on three targets, and `ci/lowered_programs.py`, whose programs
are compared with those of the versions in constraints.txt, and its times with ExecuTorch's own tester. Each row is
written into the docs when it is known; logs and programs are kept in build/versions. A row takes 7 minutes of a core,
and its installation. The exit status is 1 if anything failed.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.pte_reader import parse_pte

ROOT: Final = Path(__file__).resolve().parents[1]
BUILD: Final = ROOT / "build" / "versions"
PAGE: Final = ROOT / "docs" / "runtimes.md"
TARGETS: Final = "m55-qemu,m4-qemu,m0-qemu"
SAMPLE: Final = (  # kinds of layers and of lowering, each once
    "test_linear or test_mixed or deep_autoencoder or frames or test_channels_last or squeeze_excite"
    " or pools or products or states or indices"
)
DEADLINE: Final = 3600.0  # seconds for one step
COLUMNS: Final = (
    *("executorch", "torch", "Python", "`hil doctor`", "first test", "quick tests", "`tests/targets`"),
    *("same programs", "lowering"),
)
_BLOCK: Final = re.compile(r"(<!-- table: versions -->\n).*?(?=<!-- end -->)", re.DOTALL)
_FIRST_TEST: Final = re.compile(r"<!-- file: test_head.py -->\n```python\n(.*?)```", re.DOTALL)
_COUNT: Final = re.compile(r"(\d+) (passed|failed|errors?|skipped)")


@dataclass(frozen=True)
class Versions:
    """Releases of ExecuTorch and torch, and a Python. "" means pip's choice, or for Python the running one."""

    executorch: str = ""
    torch: str = ""
    python: str = f"{sys.version_info.major}.{sys.version_info.minor}"

    @property
    def name(self) -> str:
        return f"{self.executorch}-{self.torch}-{self.python}" if self.executorch else "newest"

    @property
    def requirements(self) -> list[str]:
        """Return the requirements for pip, including the tools of this project's tests."""
        if not self.executorch:
            return ["--editable", f"{ROOT}[dev,maintainers]"]
        releases = [f"executorch[ethos-u]=={self.executorch}", f"torch=={self.torch}"]
        return ["--editable", f"{ROOT}[dev,maintainers]", *releases]


PINNED: Final = Versions(*(version(name).partition("+")[0] for name in ("executorch", "torch")))
"""The versions in the running environment, which are those in constraints.txt."""

_RELEASES: Final = ("1.5.1", "1.4.1")
_TORCHES: Final = ("2.12.1", "2.13.0", "2.14.1", "2.15.0")
_CONFLICT: Final = ("1.4.1", "2.12.1")  # executorch 1.4.1 requires torch 2.13 or newer
# A new Python is first admitted in pyproject.toml: requires-python, the classifiers, and tox's env_list.
COMBINATIONS: Final = tuple(
    dict.fromkeys(
        (
            PINNED,
            *(Versions(one, torch, "3.11") for one in _RELEASES for torch in _TORCHES if (one, torch) != _CONFLICT),
            *(
                Versions("1.5.1", torch, python)
                for python in ("3.10", "3.12", "3.13")
                for torch in ("2.13.0", "2.14.1")
            ),
        )
    )
)


# --- trials -------------------------------------------------------------------------------------------


class NotInstalled(Exception):
    """An environment that pip does not make; the message has its last line."""


@dataclass(frozen=True)
class Result:
    """A cell of the table."""

    said: str
    fine: bool


class Trial:
    """The steps of one row, in an environment that is installed on first use."""

    def __init__(self, versions: Versions, jobs: int, quick: Sequence[str], sample: str) -> None:
        self.versions = versions
        self._workers = ("-n", str(jobs)) if jobs > 1 else ()
        self._quick, self._sample = quick, sample
        self.folder = BUILD / versions.name
        self._environment = self.folder / "environment"
        self.folder.mkdir(parents=True, exist_ok=True)

    @cached_property
    def python(self) -> str:
        """Return the interpreter of the environment."""
        if self.versions == PINNED:
            return sys.executable
        python = self._environment / "bin" / "python"
        if not python.exists():
            self._succeed("venv", f"python{self.versions.python}", "-m", "venv", str(self._environment))
            self._succeed("pip", str(python), "-m", "pip", "install", "--quiet", *self.versions.requirements)
        return str(python)

    def end(self) -> None:
        shutil.rmtree(self._environment, ignore_errors=True)

    def row(self) -> Iterator[Result]:
        """Yield the cells: the installed versions, and the result of each step."""
        for package in ("executorch", "torch"):
            yield Result(self._installed(package), fine=True)
        yield Result(self.versions.python, fine=True)
        yield self._doctor()
        head = _FIRST_TEST.search((ROOT / "README.md").read_text())
        assert head is not None
        (self.folder / "test_head.py").write_text(head[1])
        yield self._tests("first", f"--target={TARGETS}", str(self.folder / "test_head.py"))
        yield self._tests("quick", *self._workers, *self._quick)
        yield self._tests("targets", *self._workers, f"--target={TARGETS}", "tests/targets", "-k", self._sample)
        yield from self.lowered()

    def _installed(self, package: str) -> str:
        tell = f"from importlib.metadata import version; print(version({package!r}).partition('+')[0])"
        return _last(self._run(f"version-{package}", self.python, "-c", tell)[0])

    def _doctor(self) -> Result:
        said, _ = self._run("doctor", self.python, "-m", "cortex_m_hil.cli", "doctor", "--json")
        try:
            checks = json.loads(said)["checks"]
        except (ValueError, KeyError):
            return Result(_last(said), fine=False)
        wrong = [f"{one['name']}: {one['found']}" for one in checks if one["state"] == "FAIL"]
        lost = [one["found"] for one in checks if one["name"] == "shortcuts" and one["state"] != "ok"]
        return Result("; ".join([*wrong, *lost]) or "works", fine=not wrong)

    def _tests(self, step: str, *arguments: str) -> Result:
        said, status = self._run(step, self.python, "-m", "pytest", "-q", "--disable-warnings", *arguments)
        return counted(_last(said), status)

    def lowered(self) -> Iterator[Result]:
        """Yield how programs differ from those of the pinned versions, and the time of a lowering."""
        folder, made = self.folder / "lowered", self.folder / "lowered.new"
        for one in (folder, made):
            shutil.rmtree(one, ignore_errors=True)
        said, _ = self._run("lowered", self.python, str(ROOT / "ci" / "lowered_programs.py"), str(made))
        try:
            cost = json.loads(said)
        except ValueError:
            yield from (Result(_last(said), fine=False), Result("-", fine=False))
            return
        made.rename(folder)
        yield compared(folder, BUILD / PINNED.name / "lowered")
        yield Result(f"{cost['here'] / cost['upstream']:.2f}", fine=True)

    def _run(self, step: str, *command: str) -> tuple[str, int]:
        """Return a command's output and exit status; output and errors are kept in a log."""
        log = self.folder / f"{step}.log"
        try:
            done = subprocess.run(
                command, cwd=ROOT, capture_output=True, text=True, errors="replace", timeout=DEADLINE, check=False
            )
        except subprocess.TimeoutExpired:
            return f"does not end within {DEADLINE:g} s", 1
        log.write_text(done.stdout + done.stderr)
        return done.stdout or done.stderr, done.returncode

    def _succeed(self, step: str, *command: str) -> None:
        """Run a command; raise NotInstalled if it fails."""
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        (self.folder / f"{step}.log").write_text(done.stdout + done.stderr)
        if done.returncode:
            raise NotInstalled(f"{step}: {_last(done.stderr or done.stdout)}")


def _last(said: str) -> str:
    return next(reversed(said.strip().splitlines()), "it said nothing")


def counted(line: str, status: int) -> Result:
    """Return the content of pytest's last line, in short; and its exit status, if the tests that ran passed."""
    found = {kind.rstrip("s"): int(number) for number, kind in _COUNT.findall(line)}
    failed, passed = found.get("failed", 0) + found.get("error", 0), found.get("passed", 0)
    if failed or not passed:
        return Result(f"{failed} of {failed + passed} fail" if failed else line.strip("= "), fine=False)
    skipped = f", {found['skipped']} skipped" if "skipped" in found else ""
    ended = f", then exit status {status}" if status else ""
    return Result(f"{passed} pass{skipped}{ended}", fine=not status)


# --- programs ------------------------------------------------------------------------------------------------


def compared(folder: Path, pinned: Path) -> Result:
    """Return how many programs equal those of the pinned versions, and how the others differ, by kind."""
    found = Counter[str]()
    for path in sorted(pinned.glob("*.pte")):
        other = folder / path.name
        found[difference(other.read_bytes(), path.read_bytes()) if other.exists() else "refused"] += 1
    count, same = found.total(), found.pop("", 0)
    others = "".join(f"; {number} {what}" for what, number in found.most_common())
    return Result(f"{same} of {count}{others}", fine=count > 0)


def difference(one: bytes, other: bytes) -> str:
    """Return the first difference of two programs: operators, their arguments, values, memory plan; "" if equal."""
    if one == other:
        return ""
    files = parse_pte(one, "one"), parse_pte(other, "other")
    for what, part in _PARTS.items():
        mine, theirs = map(part, files)
        if mine != theirs:
            return what
    return "in the file's layout"


def _constants(file: PteFile) -> list[Any]:
    found = (file.constant(index) for index in range(len(file.values)))
    return [(one.spec, one.data) for one in found if one is not None]


_PARTS: Final[dict[str, Callable[[PteFile], Any]]] = {
    "in operators": lambda file: [one.operator for one in file.instructions],
    "in arguments": lambda file: [len(one.args) for one in file.instructions],
    "in numbers": lambda file: [value.scalar for value in file.values],
    "in constants": _constants,
    "in the memory plan": lambda file: file.planned_sizes,
}


# --- the table -----------------------------------------------------------------------------------------------


def written(page: str, cells: Sequence[str]) -> str:
    """Return the page with a row of the table replaced or added."""
    block = _BLOCK.search(page)
    assert block is not None
    lines = [line for line in block[0].splitlines()[3:] if not line.startswith(_row(cells[:3]))]
    order = [_row((one.executorch, one.torch, one.python)) for one in COMBINATIONS]
    lines = sorted(
        [*lines, _row(cells)],
        key=lambda line: next((number for number, start in enumerate(order) if line.startswith(start)), len(order)),
    )
    table = "\n".join([_row(COLUMNS), "|" + "---|" * len(COLUMNS), *lines])
    return f"{page[: block.end(1)]}{table}\n{page[block.end() :]}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Try the named versions, after lowering with the pinned ones if their programs are missing or outdated."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1, help="pytest workers")
    parser.add_argument("--quick", default="tests/harness/program", help="the quick tests")
    parser.add_argument("--sample", default=SAMPLE, help="pytest's -k for tests/targets")
    parser.add_argument("names", nargs="*", default=["*-*"])
    options = parser.parse_args()
    every = [*COMBINATIONS, Versions()]
    chosen = [one for one in every if any(fnmatch.fnmatchcase(one.name, name) for name in options.names)]
    if not chosen:
        raise SystemExit(f"no such versions; there are {', '.join(one.name for one in every)}")
    if PINNED not in chosen and outdated(BUILD / PINNED.name / "lowered", ROOT / "harness"):
        list(Trial(PINNED, 1, (), "").lowered())
    fine = [_try(one, options) for one in chosen]
    sys.exit(not all(fine))


def outdated(programs: Path, sources: Path) -> bool:
    """Return whether there are no programs, or a source has changed since."""
    made = [path.stat().st_mtime for path in programs.glob("*.pte")]
    return not made or max(path.stat().st_mtime for path in sources.rglob("*.py")) > min(made)


def _try(versions: Versions, options: argparse.Namespace) -> bool:
    if shutil.which(f"python{versions.python}") is None:
        print(f"{versions.name}: no python{versions.python} on PATH", flush=True)
        return False
    trial, began = Trial(versions, options.jobs, options.quick.split(), options.sample), time.monotonic()
    try:
        results = list(trial.row())
    except NotInstalled as error:
        print(f"{versions.name}: {error}", flush=True)
        return False
    finally:
        trial.end()
    cells = [one.said.replace("|", "\\|") for one in results]
    print(f"{_row(cells)} {(time.monotonic() - began) / 60:.0f} min", flush=True)
    if versions.executorch:
        PAGE.write_text(written(PAGE.read_text(), cells))
    return all(one.fine for one in results)


if __name__ == "__main__":
    main()
