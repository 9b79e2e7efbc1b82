"""`--hil-coverage`: builds runners that count coverage, collects the counts, and writes one report for all workers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from cortex_m_hil.errors.text import counted, printable
from cortex_m_hil.flow import Dut
from cortex_m_hil.flow.coverage.counting import Counting, check
from cortex_m_hil.flow.coverage.counts import Coverage, LostCounts, Share, total
from cortex_m_hil.host.files import check_new_file
from cortex_m_hil.runner.build import COUNTING
from cortex_m_hil.targets.resolve import Resolved

SCHEMA_VERSION: Final = 1
_WORKER_OUTPUT: Final = "hil_coverage"
_SHOWN: Final = 10  # lost counts that the summary names at most; the report file names all
_RUN: pytest.StashKey[_CoverageOfRun] = pytest.StashKey()


class _CoverageOfRun:
    """The coverage counts of this process; in xdist's controller, of its workers."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.found = Coverage()
        self.counting: list[Counting] = []
        self.workers: set[str] = set()  # workers that have not sent their counts yet


def prepare(config: pytest.Config, targets: list[Resolved]) -> None:
    """Prepare the run for coverage, if the options ask for it.

    Raises:
        ConfigError: a target cannot count coverage, or the report file cannot be written.
        ToolchainError: gcov is missing.
    """
    file: Path | None = config.getoption("hil_coverage")
    if file is None:
        return
    for resolved in targets:
        check(resolved)
    check_new_file(file, "--hil-coverage")
    config.stash[_RUN] = _CoverageOfRun(file)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Report(config.stash[_RUN], config.get_verbosity() > 0), "hil-coverage")


def build_options(config: pytest.Config) -> Mapping[str, str] | None:
    """Return the build options of a runner that counts coverage; None without `--hil-coverage`."""
    return COUNTING if _RUN in config.stash else None


def count(item: pytest.Item, dut: Dut) -> None:
    """Count coverage on a target from now on; note a test that uses another runner, built without counters."""
    if _RUN not in item.config.stash:
        return
    run = item.config.stash[_RUN]
    if not dut.elf.counts:
        run.found.uncounted.append(item.nodeid)
    elif dut.counting is None:
        dut.counting = Counting(dut.resolved.target, dut.elf, dut.resolved.runtime)
        run.counting.append(dut.counting)


def attribute_counts(test: str, dut: Dut) -> None:
    """Assign the lines that the target executed since the last reading to a test that has ended.

    Args:
        test: the test's id without its target.
        dut: the target.
    """
    dut.read_coverage()
    if dut.counting is not None:
        dut.counting.end_test(f"{test}@{dut.resolved.name}")


def finish(config: pytest.Config) -> None:
    """Collect the counts once all targets of this process are closed, and hand them to xdist's controller."""
    if _RUN not in config.stash:
        return
    run = config.stash[_RUN]
    for counting in run.counting:
        counting.tell(run.found)
    run.counting.clear()
    if hasattr(config, "workeroutput"):
        config.workeroutput[_WORKER_OUTPUT] = run.found.fields()


class _Report:
    """A plugin of the only process, or of xdist's controller, that collects all counts and writes the report."""

    def __init__(self, run: _CoverageOfRun, verbose: bool) -> None:
        self._run = run
        self._verbose = verbose

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        self._run.workers.add(node.gateway.id)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        told = getattr(node, "workeroutput", {}).get(_WORKER_OUTPUT)
        if told is not None:
            self._run.workers.discard(node.gateway.id)
            self._run.found.add(Coverage.from_fields(told))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        found = self._run.found
        found.lost += [
            LostCounts(f"worker {name}", "", "it ended and told nothing") for name in sorted(self._run.workers)
        ]
        self._run.workers.clear()
        terminalreporter.section("coverage of the kernels")
        for line in [*_lines(found, self._verbose), self._write()]:
            terminalreporter.write_line(printable(line))

    def _write(self) -> str:
        content = {"schema_version": SCHEMA_VERSION, **self._run.found.fields()}
        try:
            self._run.file.parent.mkdir(parents=True, exist_ok=True)
            self._run.file.write_text(json.dumps(content, indent=1) + "\n")
        except OSError as error:
            return f"cannot write {self._run.file}: {error.strerror}"
        return f"by file and line: {self._run.file}"


def _lines(found: Coverage, verbose: bool) -> Iterator[str]:
    if not found.classes:
        yield "nothing was counted"
    for name, one in sorted(found.classes.items()):
        yield f"{_shares(name, *total(one.files))}   {', '.join(sorted(one.targets))}"
        for file, counts in sorted(one.files.items()) if verbose else ():
            missing = f"   not {counts.uncovered}" if counts.uncovered else ""
            yield _shares(f"  {file}", counts.share_of_lines, counts.share_of_branches) + missing
    yield from _named("lost, and not in these figures", [str(one) for one in found.lost])
    yield from _named("not counted, on a runner of its test's own", sorted(set(found.uncounted)))


def _shares(what: str, lines: Share, branches: Share) -> str:
    return f"{what:<27} lines {lines!s:>17}   branches {branches!s:>17}"


def _named(what: str, names: list[str]) -> Iterator[str]:
    if names:
        yield f"{what}: {len(names)}"
        yield from (f"  {name}" for name in names[:_SHOWN])
        yield from (
            [f"  and {counted(len(names) - _SHOWN, 'more line')}, in the file of coverage"]
            if len(names) > _SHOWN
            else []
        )
