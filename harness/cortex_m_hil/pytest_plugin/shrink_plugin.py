"""A pytest plugin for `hil shrink`: shrinks the module of each test that fails by a verdict."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cortex_m_hil.checks.comparison.compare_outputs import compare
from cortex_m_hil.diagnose.failure_bundle import Attempt
from cortex_m_hil.diagnose.lifetime_check import WatchedMemory
from cortex_m_hil.diagnose.shrink import SO_FAR, Judge, Shrunk, own_check, shrink
from cortex_m_hil.errors import (
    ConfigError,
    HarnessError,
    HilWarning,
    InfraError,
    KnownBugAbsent,
    Mismatch,
    ProgramRejected,
    TargetFault,
    TargetHang,
    UnsupportedOperator,
    VerdictError,
)
from cortex_m_hil.host import files
from cortex_m_hil.host.api_calls import PERMIT
from cortex_m_hil.lowering import CPU_OF, LoweringOptions
from cortex_m_hil.lowering.submodules import write_test
from cortex_m_hil.pytest_plugin.fixtures import FAILURE
from cortex_m_hil.targets.cpu import cpus

HIL, EXECUTORCH = "pytest", "executorch"
_ANSWERED = pytest.StashKey[bool]()  # set on a test that was shrunk, or cannot be


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("hil")
    group.addoption("--hil-shrink-into", type=Path, metavar="FOLDER", help="for hil shrink")
    group.addoption("--hil-shrink-format", default=HIL, help="for hil shrink")
    group.addoption("--hil-shrink-budget", type=float, help="for hil shrink")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Shrink a failure while its target is still live, and before the failure is forgotten.

    If a plugin such as pytest-rerunfailures repeats a test, its first failing attempt is used.
    """
    failure = item.stash.get(FAILURE, None)
    error = call.excinfo.value if call.excinfo else None
    if _ANSWERED in item.stash:
        pass
    elif failure is not None and isinstance(error, VerdictError) and failure.error is error and not error.accepted:
        item.stash[_ANSWERED] = True
        try:
            _shrunk(item, failure)
        except HarnessError as problem:
            _tell(item, {"test": item.nodeid, "problem": problem.message, "hint": problem.hint})
    elif isinstance(error, HilWarning):
        item.stash[_ANSWERED] = True
        _tell(item, {"test": item.nodeid, "problem": str(error).splitlines()[0], "hint": PERMIT})
    return (yield)


def _shrunk(item: pytest.Item, failure: Attempt) -> None:
    task, config = failure.task, item.config
    if task.program.origin is None or task.tolerance is None:
        what = "its program was not lowered from a module, or is compared with nothing"
        raise ConfigError(
            what, hint="hil shrink cuts modules that a test gives to hil.check, or to hil.lower and hil.verify"
        )
    if isinstance(failure.error, KnownBugAbsent):
        raise ConfigError(failure.error.message, hint=failure.error.hint)
    origin = task.program.origin()
    if config.getoption("hil_shrink_format") == EXECUTORCH:
        _require_shown_by_upstream(failure, origin.options)
    guards = WatchedMemory if task.redzones else None
    isa = task.program.isa or failure.dut.target.isa  # the ISA class that the test lowered for
    judge = Judge(failure.dut, isa, origin.options, task.tolerance, task.linted, guards, task.known)
    budget = config.getoption("hil_shrink_budget")
    written: dict[str, str] = {}
    try:
        found = shrink(
            origin.part, judge, budget=budget, calibrated=origin.calibrated, had_io=origin.had_io,
            told=lambda line: _tell(item, {"test": item.nodeid, "progress": line, **written}),
            kept=lambda found: written.update(_write(item, failure, judge, found)),
        )  # fmt: skip
    except InfraError as error:
        if written:
            error.hint = "; ".join(filter(None, (error.hint, f"{SO_FAR}: {written['fails']}")))
        raise
    _tell_shrunk(item, failure, found, _write(item, failure, judge, found))


def _write(item: pytest.Item, failure: Attempt, judge: Judge, found: Shrunk) -> dict[str, str]:
    """Write test files for the failing and the passing part, and return their paths by name."""
    folder: Path = item.config.getoption("hil_shrink_into")
    kind, name = item.config.getoption("hil_shrink_format"), _module_name(item.nodeid)
    where = failure.dut.resolved.label
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for role, part in (("fails", found.part), ("passes", found.passing)):
        if part is not None:
            imports, body = _executorch_test(failure) if kind == EXECUTORCH else _ours(failure, judge, part)
            path = folder / f"test_{name}_{role}.py"
            write_test(part, path, f"{found.symptom}, on {where}: this part of {item.nodeid} {role}.", imports, body)
            written[role] = str(path)
    return written


def _tell_shrunk(item: pytest.Item, failure: Attempt, found: Shrunk, written: Mapping[str, str]) -> None:
    part = found.part
    size = {"operators": len(part.steps), "elements": part.elements, "tried": found.tried, "ended": found.ended}
    symptom = {"verdict": found.symptom.verdict, "operator": found.symptom.operator, "cause": found.symptom.cause}
    files_of = {"fails": written["fails"], "passes": written.get("passes")}
    _tell(item, {"test": item.nodeid, "target": failure.dut.resolved.name, **files_of, **symptom, **size})


def _module_name(node_id: str) -> str:
    """Return a module name for the test file, without dots, which Python could not import."""
    return files.file_name_for(node_id.replace(".py::", "-")).replace(".", "_").removeprefix("test_")


def _ours(failure: Attempt, judge: Judge, part: Any) -> tuple[list[str], str]:
    isa = None if judge.isa is failure.dut.target.isa else judge.isa
    return own_check(judge.tolerance, judge.options, linted=judge.linted, isa=isa, known=judge.occurring(part))


def _require_shown_by_upstream(failure: Attempt, options: LoweringOptions) -> None:
    """Raise ConfigError where ExecuTorch's own tester cannot ask for this check, or does not see the failure."""
    why = ""
    if type(failure.error) not in (Mismatch, TargetFault, TargetHang, UnsupportedOperator, ProgramRejected):
        why = f"it has no check that ends in {type(failure.error).__name__}"
    elif isinstance(failure.error, Mismatch) and not _differs_in_integers(failure):
        why = "it compares integers with the quantised module, and these agree; it has no bound of SQNR"
    elif not options.quantize:
        why = "it quantises always"
    elif options.layout is not LoweringOptions.layout:
        why = f"it does not lower for the layout {options.layout}"
    elif failure.task.program.isa not in (None, failure.dut.target.isa):
        why = "it runs what is lowered for the target's own ISA class"
    if why:
        raise ConfigError(f"ExecuTorch's tester cannot show it: {why}", hint="leave out --format executorch")


def _differs_in_integers(failure: Attempt) -> bool:
    """Tell whether the outputs would fail even with no bound on their distance from the float module."""
    task = failure.task
    if failure.references is None or task.tolerance is None or not failure.outputs:
        return True
    tolerance = replace(task.tolerance, eager_sqnr=-sys.float_info.max)
    return not compare(task.program.file, failure.outputs, failure.references, tolerance).ok


def _executorch_test(failure: Attempt) -> tuple[list[str], str]:
    """Return imports and body of a test by ExecuTorch's CortexMTester, which has only these two tolerances."""
    tolerance = failure.task.tolerance
    assert tolerance is not None
    target, home = failure.dut.target, "executorch.backends.cortex_m"
    imports = [
        f"from {home}.target_config import CortexMTargetConfig",
        f"from {home}.test.tester import CortexMTester",
    ]
    cpu = CPU_OF[target.isa] if target.cpu == "host" else target.cpu
    config = f'CortexMTargetConfig.from_target_string("{cpu}")'
    if target.isa is not cpus()[cpu].isas[0]:
        imports.insert(0, f"from {home}.library.cmsis_nn import Backend")
        config = f"CortexMTargetConfig(cpu={config}.cpu, isa=Backend.{target.isa.name})"
    tester = f"CortexMTester({{module}}, {{inputs}}, target_config={config})"
    return imports, f"{tester}.test_implementation(qtol={tolerance.qtol}, atol={tolerance.atol})"


def _tell(item: pytest.Item, line: dict[str, Any]) -> None:
    """Print a JSON line for `hil shrink` on standard output, even if pytest has begun a line there."""
    with item.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\nhil-shrink {json.dumps(line)}", flush=True)
