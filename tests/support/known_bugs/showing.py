"""The demonstration of a bug: the program, the target, and the check that catches it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final

from cortex_m_hil import flow
from cortex_m_hil.checks.comparison.comparison_result import Comparison, FindingKind
from cortex_m_hil.checks.comparison.tolerance import Tolerance
from cortex_m_hil.checks.lint import raise_findings
from cortex_m_hil.checks.lint_rules.finding import LintFinding, Rule
from cortex_m_hil.diagnose.localize import localize
from cortex_m_hil.diagnose.redzones import RedZones
from cortex_m_hil.errors import HarnessError, HilWarning, Mismatch, VerdictError
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.program.program import Program
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve
from cortex_m_hil.targets.target import Target
from known_bugs.modules import Sample
from planting import plant
from trust import trust_again

TARGETS: Final = load_targets()
PATCHES: Final = Path(__file__).parent / "patches"


class By(str, Enum):
    """The source of the operator's name."""

    MESSAGE = "the message"
    KERNEL = "localize, as a wrong kernel"
    GRAPH = "localize, as a wrong graph"
    LAYOUT = "localize, as the layout of another class"
    NOT_COMPARED = "localize, as the one that cannot be compared"
    NOBODY = "nobody: it is about the whole program"


@dataclass(frozen=True)
class Caught:
    """A class of our errors (HilWarning and LintFinding where nothing is raised), with its rule where it has several.

    ``operator`` is without namespace and overload.
    """

    error: type
    rule: Rule | FindingKind | None = None
    operator: str = ""
    named_by: By = By.MESSAGE

    def __str__(self) -> str:
        name = "a note of lint" if self.error is LintFinding else self.error.__name__
        return f"{name}: {self.rule.value}" if self.rule is not None else name


@dataclass(frozen=True, eq=False)
class Setup:
    """The run that shows a bug.

    Attributes:
        network: makes the module and its example inputs.
        lowered_for: another ISA class than the target's.
        options: options for `flow.lower`.
        change: changes the program after the lowering.
        compiler: a context in which ExecuTorch is changed.
        patch: a patch of the firmware, a file in `patches/` or a path.
        build: CMake definitions of the runner.
        runtime: the runtime that executes the program, or for which it is linted.
        runs: whether the program is run; if not, it is only linted.
        linted: whether the program is linted before it is run.
    """

    network: Callable[[], Sample]
    lowered_for: Isa | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    change: Callable[[Program], Program] = lambda program: program
    compiler: Callable[[], AbstractContextManager[None]] | None = None
    patch: Path | None = None
    build: Mapping[str, str] = field(default_factory=dict)
    runtime: str = "builtin"
    runs: bool = True
    linted: bool = True
    tolerance: Tolerance = Tolerance()  # noqa: RUF009 - frozen

    def program(self, isa: Isa) -> Program:
        module, inputs = self.network()
        return self.change(flow.lower(module, inputs, isa=self.lowered_for or isa, **self.options))


def judge(name: str, setup: Setup, folder: Path) -> Caught | None:
    """Return the check that catches the bug on the target `name`, None if none does.

    ``folder`` is for changed firmware.
    """
    with _compiler(setup):
        if not setup.runs:
            target = TARGETS[name]
            return _by_lint(flow.findings(setup.program(target.isa), target, None, setup.runtime), target)
        resolved = resolve(name, TARGETS, runtime=setup.runtime)
        firmware = None if setup.patch is None else plant(setup.patch, folder)
        with flow.open_dut(resolved, options=setup.build, firmware=firmware) as dut:
            return _by_running(dut, setup.program(dut.target.isa), setup)


@contextmanager
def _compiler(setup: Setup) -> Iterator[None]:
    with ExitStack() as stack:
        if setup.compiler is not None:
            stack.callback(trust_again)
            stack.enter_context(setup.compiler())
        yield


def _by_lint(findings: tuple[LintFinding, ...], target: Target) -> Caught | None:
    try:
        raise_findings(findings, target.name)
    except VerdictError as error:
        return Caught(type(error), _rule(findings, error), operator_of(error.operator), _namer(error.operator))
    notes = [Caught(LintFinding, one.rule, operator_of(one.operator)) for one in findings]
    return notes[0] if notes else None


def _rule(findings: tuple[LintFinding, ...], error: VerdictError) -> Rule | None:
    """Return the rule of the finding that became the message; None where the runner itself refused the program."""
    return next((one.rule for one in findings if error.message.startswith(one.message)), None)


def _by_running(dut: Dut, program: Program, setup: Setup) -> Caught | None:
    findings: tuple[LintFinding, ...] = ()
    if setup.linted:
        findings = flow.findings(program, dut.target, dut.session().identity.operators, setup.runtime)
    compared: list[Comparison] = []
    guards = RedZones if program.size_without_redzones is not None else None
    try:
        flow.verify(
            dut, program, tolerance=setup.tolerance, linted=setup.linted, guards=guards,
            observe=lambda checked: compared.append(checked.comparison),
        )  # fmt: skip
    except Mismatch as error:
        kind = compared[-1].errors[0].kind
        return Caught(Mismatch, kind, *_localised(dut, program, error))
    except HarnessError as error:
        rule = _rule(findings, error) if isinstance(error, VerdictError) else None
        return Caught(type(error), rule, operator_of(error.operator), _namer(error.operator))
    for comparison in compared:
        for warning in comparison.warnings:
            return Caught(HilWarning, warning.kind, operator_of(comparison.computed_by[warning.output]))
    return _by_lint(findings, dut.target)


def _localised(dut: Dut, program: Program, error: Mismatch) -> tuple[str, By]:
    """Return the operator that localize finds at fault; else one whose node is or may be wrong, else the message's."""
    found = localize(dut, program)
    for named_by, wrong in (
        (By.KERNEL, found.at_fault),
        (By.LAYOUT, found.wrong_layout),
        (By.GRAPH, [row for row in found.rows if row.is_graph_wrong]),
        (By.NOT_COMPARED, found.not_compared),
    ):
        if wrong:
            return " ".join(sorted({operator_of(row.operator) for row in wrong})), named_by
    return operator_of(error.operator), By.MESSAGE


def _namer(operator: str) -> By:
    return By.MESSAGE if operator else By.NOBODY


def operator_of(text: str) -> str:
    """Return `quantized_linear` for `cortex_m::quantized_linear.out (node)`."""
    return text.partition("::")[2].partition(".")[0]
