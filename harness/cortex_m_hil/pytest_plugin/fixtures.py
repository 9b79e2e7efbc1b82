"""Fixtures: `hil`, which most tests use, and below it `target_spec`, `runner_elf`, `hil_dut`, `hil_lower`, `run_pte`.

No logic of their own: they bring `flow` the right Dut, and pytest what `flow` found.
"""

from __future__ import annotations

import hashlib
import importlib.util
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from cortex_m_hil import flow
from cortex_m_hil.checks.comparison import Comparison
from cortex_m_hil.checks.tolerance import Tolerance
from cortex_m_hil.diagnose.redzones import RedZones
from cortex_m_hil.errors import ConfigError, HarnessError
from cortex_m_hil.host import files
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.pytest_plugin import markers
from cortex_m_hil.results import STATISTICS, RunResult
from cortex_m_hil.runner.build import Elf, build_runner
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.resolve import Resolved

RESOLVED: pytest.StashKey[list[Resolved]] = pytest.StashKey()
POOL: pytest.StashKey[Pool] = pytest.StashKey()
TEST_ID: pytest.StashKey[str] = pytest.StashKey()  # the node id without its target
LOG: pytest.StashKey[str] = pytest.StashKey()  # what the target said in its last run
LOG_TAIL = 40  # lines of the target's log in a failure's report


def embedded() -> bool:
    """pytest-embedded registers `--target` unconditionally, so where it is installed the name is its own."""
    return importlib.util.find_spec("pytest_embedded") is not None


def no_target() -> str:
    option = "--hil-target" if embedded() else "--target"
    return f"no target given: {option}=m4-fvp (names, comma lists, globs, all), or hil_targets in the ini file"


def not_parametrized() -> str:
    return (
        "a target is a parameter of a test, and pytest gives none to methods of unittest.TestCase, to doctests and to "
        "fixtures that are asked for with getfixturevalue: use a function, or a method of a plain class, that names it"
    )


def resolved_of(item: pytest.Item) -> Resolved | None:
    """The target that this run of a test is for; None if it needs none, or none was given."""
    callspec = getattr(item, "callspec", None)
    resolved: Resolved | None = callspec.params.get("target_spec") if callspec else None
    return resolved


class HilWarning(UserWarning):
    """A test that proves less than it seems to."""


class Pool:
    """Live targets, kept for the whole run. One process's own: nobody waits for another's."""

    def __init__(self) -> None:
        self._duts: dict[tuple[str, str], flow.Dut] = {}

    def get(self, resolved: Resolved, elf: Elf) -> flow.Dut:
        key = (resolved.name, elf.build_id)
        if key not in self._duts:
            self._duts[key] = flow.Dut(resolved, elf)
        return self._duts[key]

    def close(self) -> None:
        for dut in self._duts.values():
            dut.close()
        self._duts.clear()


class _Reporting:
    """Gives an error the name that the user asked for, and a short traceback.

    A class, because contextlib puts the traceback back that is cut here.
    """

    def __init__(self, resolved: Resolved) -> None:
        self._resolved = resolved

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        __tracebackhide__ = True
        if isinstance(error, HarnessError):
            if error.target == self._resolved.target.name:
                error.target = self._resolved.display_name
            raise error.with_traceback(None) from error.__cause__


class Lowering:
    """Lowers modules for one target, as the command line wants it."""

    def __init__(self, resolved: Resolved, redzones: bool) -> None:
        self._resolved = resolved
        self._redzones = redzones

    def __call__(
        self,
        module: Any,
        inputs: tuple[Any, ...],
        *,
        isa: Isa | None = None,
        calibration: Iterable[tuple[Any, ...]] | None = None,
        quantize: bool = True,
        layout: str = "channels_last",
    ) -> Program:
        """The module lowered for the target's ISA class, or for `isa`."""
        __tracebackhide__ = True
        with _Reporting(self._resolved):
            return flow.lower(
                module, inputs, isa=isa or self._resolved.target.isa, calibration=calibration, quantize=quantize,
                layout=layout, redzones=self._redzones,
            )  # fmt: skip


class Hil:
    """One test's hand on one target."""

    def __init__(self, dut: flow.Dut, node: pytest.Item, redzones: bool) -> None:
        self.dut = dut
        self.lower = Lowering(dut.resolved, redzones)
        self._node = node
        self._redzones = redzones

    @property
    def isa(self) -> Isa:
        """The target's ISA class."""
        return self.dut.target.isa

    def run(self, program: Program, inputs: tuple[Any, ...] | None = None, *, lint: bool = True) -> RunResult:
        """The program's outputs on the target. `inputs`: torch tensors or HostTensors; default: its example inputs."""
        __tracebackhide__ = True
        with _Reporting(self.dut.resolved):
            result = flow.run(self.dut, program, _host(inputs), linted=lint, guards=_guards(self._redzones))
        self._record_run(result)
        return result

    def check(
        self,
        module: Any,
        inputs: tuple[Any, ...],
        *,
        qtol: int = 0,
        fake_quant_qtol: int | None = None,
        atol: float = 1e-3,
        rtol: float = 1e-3,
        eager_sqnr: float = 15.0,
        isa: Isa | None = None,
        lint: bool = True,
        calibration: Iterable[tuple[Any, ...]] | None = None,
        quantize: bool = True,
        layout: str = "channels_last",
    ) -> Comparison:
        """Lowers, lints, runs and compares. Raises on a bad verdict.

        `qtol` in quanta against the dialect; `fake_quant_qtol` in quanta against fake-quant, by default as far as
        rounding explains; `atol` and `rtol` for outputs that are not quantised; `eager_sqnr` in dB against the float
        module.
        """
        __tracebackhide__ = True
        with _Reporting(self.dut.resolved):
            checked = flow.check(
                self.dut, module, inputs,
                tolerance=Tolerance(qtol, fake_quant_qtol, atol, rtol, eager_sqnr), isa=isa, linted=lint,
                observe=self._observe,
                calibration=calibration, quantize=quantize, layout=layout,
                redzones=self._redzones, guards=_guards(self._redzones),
            )  # fmt: skip
        return checked.comparison

    def verify(self, program: Program, tolerance: Tolerance, *, excluded: Sequence[str] = ()) -> flow.Checked:
        """Lints and runs a program that is lowered already, and compares it with the references it brings."""
        __tracebackhide__ = True
        with _Reporting(self.dut.resolved):
            return flow.verify(
                self.dut, program,
                tolerance=tolerance, excluded=excluded, observe=self._observe, guards=_guards(self._redzones),
            )  # fmt: skip

    def _observe(self, checked: flow.Checked) -> None:
        self._record_run(checked.result)
        figures = checked.comparison.outputs
        quanta = [figure.max_quanta for figure in figures if figure.max_quanta is not None]
        if quanta:
            self._property("hil_max_quanta", max(quanta))
        fake_quanta = [figure.fake_quant_quanta for figure in figures if figure.fake_quant_quanta is not None]
        if fake_quanta:
            self._property("hil_fake_quant_quanta", max(fake_quanta))
        ratios = [figure.sqnr_db for figure in figures if figure.sqnr_db is not None]
        if ratios:
            self._property("hil_sqnr_db", round(min(ratios), 1))
        for finding in checked.comparison.warnings:
            warnings.warn(
                HilWarning(
                    f"{self.dut.resolved.display_name}: output {finding.output}: "
                    f"{finding.kind.value}: {finding.message}"
                ),
                stacklevel=4,
            )

    def _record_run(self, result: RunResult) -> None:
        self._node.stash[LOG] = "\n".join(result.log.splitlines()[-LOG_TAIL:])
        self._property("hil_engine", result.ran.engine)
        self._property("hil_runtime", f"{result.ran.runtime} {result.ran.runtime_version}")
        self._property("hil_outputs", hashlib.sha256(b"".join(one.data for one in result.outputs)).hexdigest()[:16])
        self._property(f"hil_{result.ran.clock.value}", result.ticks)
        for statistic in STATISTICS:
            self._property(statistic.property_name, result.stats[statistic.name].used)

    def _property(self, name: str, value: object) -> None:
        self._node.user_properties.append((name, value))


def _guards(redzones: bool) -> flow.Guards | None:
    return _watched if redzones else None


def _watched(program: Program) -> RedZones:
    if program.size_without_redzones is None:
        warnings.warn(HilWarning(f"{program.name}: {RedZones(program).describe()}"), stacklevel=5)
    return RedZones(program)


def _host(inputs: tuple[Any, ...] | None) -> tuple[HostTensor, ...] | None:
    if inputs is None or all(isinstance(value, HostTensor) for value in inputs):
        return inputs
    from cortex_m_hil.lowering.reference import to_host

    return tuple(value if isinstance(value, HostTensor) else to_host(value) for value in inputs)


# Parametrised with the scope that the widest fixture below needs which depends on it; "session" is the widest of them.
@pytest.fixture(scope="session")
def target_spec(request: pytest.FixtureRequest) -> Resolved:
    """What was asked for and what really runs; parametrised by `--target`."""
    resolved: Resolved | None = getattr(request, "param", None)
    if resolved is None:
        __tracebackhide__ = True
        raise ConfigError(not_parametrized() if request.config.stash[RESOLVED] else no_target())
    return resolved


@pytest.fixture(scope="session")
def hil_lower(request: pytest.FixtureRequest, target_spec: Resolved) -> Lowering:
    """`hil_lower(module, inputs)` lowers for the target; a fixture of any scope may use it, to lower once for many."""
    return Lowering(target_spec, request.config.getoption("redzones"))


@pytest.fixture
def runner_elf(request: pytest.FixtureRequest, target_spec: Resolved) -> Elf:
    """The runner built for the target, from the cache if it is there."""
    __tracebackhide__ = True
    with _Reporting(target_spec):
        return build_runner(target_spec.target, target_spec.runtime)


@pytest.fixture
def hil_dut(request: pytest.FixtureRequest, target_spec: Resolved, runner_elf: Elf) -> Iterator[flow.Dut]:
    """The live target. It stays up between tests (`--dut-scope=function` ends it), and boots anew when broken."""
    dut = request.config.stash[POOL].get(target_spec, runner_elf)
    multiplier = request.config.getoption("timeout_multiplier")
    dut.seconds = min(markers.seconds(request.node) * multiplier, flow.LONGEST_EXECUTION)
    dut.what = request.node.nodeid
    dut.keep = request.config.getoption("keep_programs")
    yield dut
    if request.config.getoption("dut_scope") == "function":
        dut.close()
    else:
        dut.rest()


@pytest.fixture
def hil(request: pytest.FixtureRequest, hil_dut: flow.Dut) -> Hil:
    """Lower, run and check on the target."""
    return Hil(hil_dut, request.node, request.config.getoption("redzones"))


@pytest.fixture
def run_pte(request: pytest.FixtureRequest, hil_dut: flow.Dut) -> Callable[..., RunResult]:
    """`run_pte(path_or_bytes, inputs=())` runs a `.pte` that exists already; arrays take the program's dim order."""

    def run(pte: Path | str | bytes, inputs: tuple[Any, ...] = (), *, lint: bool = True) -> RunResult:
        __tracebackhide__ = True
        with _Reporting(hil_dut.resolved):
            data = pte if isinstance(pte, bytes) else files.read(Path(pte), files.PROGRAM_LIMIT)
            program = Program.from_bytes(data, "program.pte" if isinstance(pte, bytes) else str(pte))
            guards = _guards(request.config.getoption("redzones"))
            return flow.run(hil_dut, program, flow.arrange(program, inputs), linted=lint, guards=guards)

    return run
