"""The public Python API, for scripts, notebooks and the fixture `hil`; its names are exported by `cortex_m_hil`.

docs/api.md describes it. This module has no logic of its own: it passes the right target to `flow`, and the results of
`flow` to the caller.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

from cortex_m_hil import errors as errors
from cortex_m_hil import flow, lowering
from cortex_m_hil.checks.comparison.comparison_result import Comparison as Comparison
from cortex_m_hil.checks.comparison.comparison_result import Figures as Figures
from cortex_m_hil.checks.comparison.comparison_result import Finding as Finding
from cortex_m_hil.checks.comparison.comparison_result import worst
from cortex_m_hil.checks.comparison.tolerance import Tolerance as Tolerance
from cortex_m_hil.checks.executorch_verdict import accepted_causes
from cortex_m_hil.checks.expected_outputs import expected_outputs, expecting, in_quanta
from cortex_m_hil.checks.left_in_float import checked_share, left_in_float, require_share
from cortex_m_hil.checks.lint_rules.finding import LintFinding as LintFinding
from cortex_m_hil.diagnose.budgets import Budget, require_budget
from cortex_m_hil.diagnose.failure_bundle import BundleTask
from cortex_m_hil.diagnose.lifetime_check import WatchedMemory
from cortex_m_hil.diagnose.localize import Departure as Departure
from cortex_m_hil.diagnose.localize import Localization as Localization
from cortex_m_hil.diagnose.localize import Row as Row
from cortex_m_hil.diagnose.localize import localize
from cortex_m_hil.diagnose.profile import Profile as Profile
from cortex_m_hil.diagnose.profile import ProfileChanges as ProfileChanges
from cortex_m_hil.diagnose.profile import ProfileRow as ProfileRow
from cortex_m_hil.diagnose.profile import RowChange as RowChange
from cortex_m_hil.diagnose.profile_measurement import RUNS, operator_costs, profile
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.errors import HarnessError as HarnessError
from cortex_m_hil.errors import HilWarning as HilWarning
from cortex_m_hil.errors import InfraError as InfraError
from cortex_m_hil.errors import VerdictError as VerdictError
from cortex_m_hil.errors.known_bugs import known_bug
from cortex_m_hil.errors.text import shown
from cortex_m_hil.flow import App as App
from cortex_m_hil.flow import Checked as Checked
from cortex_m_hil.flow import Launched as Launched
from cortex_m_hil.flow import Recording as Recording
from cortex_m_hil.flow import export as export
from cortex_m_hil.flow import lower as lower
from cortex_m_hil.host import files, timeouts
from cortex_m_hil.host.api_calls import checked_call, warn
from cortex_m_hil.host.numbers import in_range
from cortex_m_hil.lowering import Exported as Exported
from cortex_m_hil.lowering import Inputs, LoweringOptions
from cortex_m_hil.lowering import Io as Io
from cortex_m_hil.lowering import Layout as Layout
from cortex_m_hil.program.bpte_file import read_program
from cortex_m_hil.program.operator_costs import CountOperators
from cortex_m_hil.program.operator_costs import OperatorCost as OperatorCost
from cortex_m_hil.program.partition import Island as Island
from cortex_m_hil.program.partition import Partition as Partition
from cortex_m_hil.program.program import Program as Program
from cortex_m_hil.program.program import References as References
from cortex_m_hil.program.tensor import HostTensor as HostTensor
from cortex_m_hil.runner.run_results import Frame as Frame
from cortex_m_hil.runner.run_results import RunResult as RunResult
from cortex_m_hil.runner.run_results import Streamed as Streamed
from cortex_m_hil.targets.cpu import Isa as Isa
from cortex_m_hil.targets.load import load_user_targets
from cortex_m_hil.targets.resolve import Resolved, resolve
from cortex_m_hil.targets.target import Target as Target

_DEFAULT: Final = Tolerance()
_Test = TypeVar("_Test", bound=Callable[..., Any])
CASES: Final = "_hil_cases"
"""The attribute of a test with the patterns and arguments of `hil_cases`, which the pytest plugin reads."""


@checked_call("hil.load_targets")
def load_targets(file: Path | str | None = None) -> dict[str, Target]:
    """Return the known targets by name.

    Args:
        file: a `targets.yaml` whose targets are added to the default ones. None: the `targets.yaml` of the current
            folder, if any.

    Raises:
        ConfigError: the file cannot be read, or has a mistake; the message has file, line and field.
    """
    return load_user_targets(None if file is None else Path(file))


@checked_call("hil.load_program")
def load_program(source: Path | str | bytes, *, method: str = "") -> Program:
    """Load a program from a `.pte` or `.bpte` file, or from its bytes.

    A program from a `.pte` has no example inputs and no references. A program from a `.bpte` has those of its method's
    first test case; the tuple `cases` has a program for each test case of the method. `verify` runs such a program and
    compares its outputs with the expected outputs in the file.

    Args:
        source: the path of the file, or the bytes of a program.
        method: the name of the method; "" for `forward`, or the only one that computes.

    Raises:
        ProgramRejected: the bytes are not a valid program.
        ConfigError: the file cannot be read; there is no such method, or there are several and `method` is "".
    """
    if isinstance(source, bytes):
        return read_program(source, "program.pte", method)
    return read_program(files.read(Path(source), files.PROGRAM_LIMIT), str(source), method)


@checked_call("hil_cases")
def hil_cases(pattern: str, *, argument: str = "case") -> Callable[[_Test], _Test]:
    """Return a decorator that runs a test once for each test case of bundled programs (`.bpte`), on each target.

    The test gets a `Program` with the inputs and expected outputs of its case, for `check_program`. It is an error of
    the collection if no file matches, or a file is broken or has no test cases.

    Args:
        pattern: a glob, relative to the folder of the test's file.
        argument: the name of the test's argument.
    """

    def decorate(test: _Test) -> _Test:
        setattr(test, CASES, (*getattr(test, CASES, ()), (pattern, argument)))
        return test

    return decorate


@checked_call("hil.open")
def open(
    name: str,
    *,
    targets: Mapping[str, Target] | None = None,
    runtime: str = "auto",
    require_fvp: bool = False,
    timeout_multiplier: float = 1.0,
    redzones: bool = False,
) -> OpenTarget:
    """Open a target with its runner, to be used in a `with` statement; the target boots on first use.

    The first call for a target compiles its runner, which takes half a minute or so; later calls find it in a cache.

    Args:
        name: the name of a target, such as `m4-qemu`.
        targets: the targets to choose from, by name; None: `load_targets()`.
        runtime: the runtime that executes programs: `builtin`, `executorch` (installed for the CPU), or `auto`: the one
            in the target's entry, else `executorch` where an ExecuTorch is installed and fits, else `builtin`.
        require_fvp: True: an FVP that is not installed raises a ToolchainError; False: the target's fallback runs
            instead.
        timeout_multiplier: a factor, 0.01 to 1000, on the 30 s of simulator CPU time that a program may take.
        redzones: whether to plan unused bytes (red zones) around every tensor, and to detect writes to them in every
            run.

    Raises:
        ConfigError: there is no such target or runtime, or the multiplier is out of range.
        ToolchainError: a compiler or simulator is missing or too old.
        BuildError: the runner does not compile.
    """
    try:
        in_range(timeout_multiplier, *timeouts.MULTIPLIERS)
    except ValueError as error:
        raise ConfigError(f"timeout_multiplier: {error}", hint="1.0 is a limit as it is, 2.0 twice that") from None
    known = load_targets() if targets is None else targets
    resolved = resolve(name, known, runtime=runtime, require_fvp=require_fvp)
    return OpenTarget(flow.open_dut(resolved, multiplier=timeout_multiplier), redzones=redzones)


class Reporting:
    """A context manager that adds the target's display name to errors, and cuts their tracebacks at the user's call.

    It is a class because contextlib would restore the full traceback.
    """

    def __init__(self, resolved: Resolved) -> None:
        self._resolved = resolved

    def __enter__(self) -> None:
        """Return nothing; there is nothing to prepare."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        __tracebackhide__ = True  # pytest hides frames that have this variable
        if isinstance(error, HarnessError):
            if error.target == self._resolved.target.name:
                error.target = self._resolved.display_name
            raise error.with_traceback(None) from error.__cause__


class Lowering:
    """A callable that lowers modules for one target."""

    def __init__(self, resolved: Resolved, redzones: bool) -> None:
        self._resolved = resolved
        self._redzones = redzones

    @checked_call("hil.lower")
    def __call__(
        self,
        module: Any,
        inputs: Inputs | list[Any] | None = None,
        *,
        isa: Isa | None = None,
        calibration: Iterable[Sequence[Any]] | None = LoweringOptions.calibration,
        quantize: bool = LoweringOptions.quantize,
        quantizer: Any = LoweringOptions.quantizer,
        layout: Layout = LoweringOptions.layout,
        dynamic_shapes: Any = None,
        io: Io = LoweringOptions.io,
    ) -> Program:
        """Lower a module for the target's ISA class, or for `isa`.

        Arguments, result and errors are those of `cortex_m_hil.lower`.
        """
        __tracebackhide__ = True
        with Reporting(self._resolved):
            return flow.lower(
                module, inputs, isa=isa or self._resolved.target.isa, calibration=calibration, quantize=quantize,
                quantizer=quantizer, layout=layout, redzones=self._redzones, dynamic_shapes=dynamic_shapes,
                io=io, banks=self._resolved.target.board.memory.banks,
            )  # fmt: skip


class OpenTarget:
    """A target that is ready to run programs: the result of `open`, and the fixture `hil`.

    All methods raise VerdictError where something is wrong with the program, its lowering or the code that ran it, and
    InfraError where a target or tool failed, which says nothing about the program. The target can be used again after
    both.

    Attributes:
        lower: `lower(module, inputs=None, *, isa=None, calibration=None, quantize=True, quantizer=None,
            layout="channels_last", dynamic_shapes=None, io="float")` lowers a module for this target (`Lowering`).
        dut: the underlying device under test, for the harness's own tests; it is no part of the public API.
    """

    def __init__(self, dut: flow.Dut, *, redzones: bool = False) -> None:
        self.dut = dut
        self.lower = Lowering(dut.resolved, redzones)
        self._redzones = redzones
        self._budget: Budget | None = None
        self._unjudged = False  # no program has run since the budget was set
        self._banks = dut.target.board.memory.banks
        self._known: frozenset[int | str] = frozenset()  # causes that are accepted in any program

    @property
    def target(self) -> Target:
        """Return the target that runs: the requested one, or its fallback."""
        return self.dut.target

    @property
    def isa(self) -> Isa:
        """Return the target's ISA class."""
        return self.target.isa

    @property
    def label(self) -> str:
        """Return what runs, as text: `m4-fvp → m4-qemu · builtin (no ExecuTorch or CMSIS-NN code executed)`."""
        return self.dut.resolved.label

    @checked_call("hil.lint")
    def lint(self, program: Program, *, method: str = "") -> tuple[LintFinding, ...]:
        """Check that a program fits the target and its runner, without running it.

        Boots the target for the runner's list of operators. `run` and `check` lint too, and raise errors.

        Args:
            program: a program from `lower` or `load_program`.
            method: the name of another method of the program; "": the one that it was loaded with.

        Returns:
            The findings, none where everything fits. Findings with `is_note` do not prevent a run. Findings whose
            `runtime` is "executorch" fail a program that is right on builtin.
        """
        __tracebackhide__ = True
        with Reporting(self.dut.resolved):
            return flow.ProgramLint(self.dut, _chosen(program, method)).everywhere()

    @checked_call("hil.run")
    def run(
        self,
        program: Program,
        inputs: tuple[Any, ...] | list[Any] | None = None,
        *,
        method: str = "",
        lint: bool = True,
        known: Sequence[int | str] = (),
        quantize_inputs: bool = False,
    ) -> RunResult:
        """Run a program once, and compare its outputs with nothing.

        Args:
            program: a program from `lower` or `load_program`.
            inputs: a tuple with an item of the right shape and dtype for each input of the program. A torch tensor is
                sent as it is in memory, and must have the program's dim order; a NumPy array of the logical shape is
                converted to the dim order; a number is for a scalar input. None: the program's example inputs.
            method: the name of another method of the program; "": the one that it was loaded with.
            lint: False runs a program even if it does not fit the target; a HilWarning tells why it does not.
            known: accepted reasons why the program would fail on ExecuTorch: numbers of known bugs (hil docs
                known_bugs), or names of operators that ExecuTorch lacks. Each has to occur.
            quantize_inputs: True quantises floats for int8 inputs, by the program's scale, zero point and range
                (`Program.input_quantization`); integers of the input's dtype are unchanged.

        Returns:
            `outputs`, each with `array()` of logical shape; `stats`, peaks of memory in bytes; `instructions`, the
            exact number, or None where the target cannot count it (QEMU can); `ticks` in units of the target's counter;
            `ran`, the target, engine and runtime; `log`; `saturated`, the share of quantised inputs that saturated;
            `operators`, the cost of each operator, for which the program runs once more on first use.

        Raises:
            LintError, UnsupportedOperator, OutOfTargetMemory: the program does not fit the target; nothing was run.
            ProgramRejected, TargetFault, TargetHang: the runner refused the program, or the program crashed or did not
                end.
            Mismatch: an element of an output was never written.
            WouldFailOnExecuTorch: the program is right on `builtin`, but ExecuTorch refuses it or computes it wrongly.
            KnownBugAbsent: a cause in `known` does not occur.
            RedzoneViolation, LifetimeViolation: an operator wrote outside its tensor, or read a tensor whose lifetime
                was over (with `redzones`).
            BudgetExceeded: the run took more than `budget` permits.
            ConfigError: there are no inputs, or they do not fit the program in number, dtype, shape or dim order, or a
                NaN would be quantised, or there is no such method.
        """
        __tracebackhide__ = True
        with Reporting(self.dut.resolved):
            program, quantizer = _chosen(program, method), flow.InputQuantizer(quantize_inputs)
            given = program.inputs if inputs is None else _host(program, inputs, quantizer)
            task = self._task(program, given, lint=lint, known=known)
            with _Attempt(self, task):
                result = flow.run(self.dut, program, given, linted=lint, guards=self._guards())
                self._ran(program, result)
                self._judge(task, result)
            return replace(result, saturated=quantizer.share, count=self._counting(task, result))

    @checked_call("hil.check")
    def check(
        self,
        module: Any,
        inputs: Inputs | list[Any] | None = None,
        *,
        more_inputs: Sequence[Sequence[Any]] = (),
        qtol: int = Tolerance.qtol,
        fake_quant_qtol: int | None = Tolerance.fake_quant_qtol,
        atol: float = Tolerance.atol,
        rtol: float = Tolerance.rtol,
        eager_sqnr: float = Tolerance.eager_sqnr,
        min_cortex_m: float | None = None,
        isa: Isa | None = None,
        lint: bool = True,
        known: Sequence[int | str] = (),
        calibration: Iterable[Sequence[Any]] | None = LoweringOptions.calibration,
        quantize: bool = LoweringOptions.quantize,
        quantizer: Any = LoweringOptions.quantizer,
        layout: Layout = LoweringOptions.layout,
        dynamic_shapes: Any = None,
        io: Io = LoweringOptions.io,
    ) -> Comparison:
        """Lower a module for the target, lint it, run it, and compare each output with three references.

        The references are computed on this machine: the *dialect* (ExecuTorch's Python Cortex-M operators run the
        lowered program), *fake-quant* (the quantised module, in float) and *eager* (the module itself).

        Args:
            module: a `torch.nn.Module`, used in `eval()` mode; it is not changed. Or a `torch.export.ExportedProgram`,
                or the result of `export`, which has its own layout, and its own inputs if none are given.
            inputs: a tuple or list of tensors and numbers, the arguments of `module.forward`. Their shapes and dtypes
                become the program's.
            more_inputs: further tuples like `inputs`: the same program runs on each, and is compared with references
                for them. They are not used for calibration.
            qtol: quanta (steps of the output's quantisation) that an element may differ from the dialect.
            fake_quant_qtol: quanta that an element may differ from fake-quant; None: the deviation that rounding
                through this network explains, plus `qtol`.
            atol: for outputs that are not quantised, in units of the output: an element may differ by `atol +
                rtol·|expected|` from fake-quant, or from eager where nothing is quantised.
            rtol: for outputs that are not quantised: the relative part of that bound.
            eager_sqnr: minimum signal-to-quantisation-noise ratio against eager, in dB.
            min_cortex_m: the least share of multiply-accumulates and of operators on Cortex-M kernels
                (`Program.partition`), 0 to 1. None: no minimum, but a HilWarning lists the operators that are left in
                float, where and why.
            isa: another ISA class than the target's to lower for, to test that this error is detected.
            lint: False runs a program even if it does not fit the target; a HilWarning tells why it does not.
            known: as in `run`.
            calibration: input tuples (at least one), like the inputs, for the quantiser's observers; None: the inputs.
            quantize: True quantises to int8; False lowers the float module.
            quantizer: a quantiser for `prepare_pt2e`, such as a `CortexMQuantizer`; it is not changed. None:
                ExecuTorch's quantiser for Cortex-M.
            layout: `channels_last` turns 4-D tensors channels-last; `explicit` keeps them contiguous and lets the
                compiler insert transposes (ExecuTorch 1.5 or newer).
            dynamic_shapes: as `torch.export.export` takes them, with an upper bound for each dimension: `inputs` and
                `more_inputs` may have any size within. The runtime `builtin` runs the upper bounds only. None: the
                shapes of `inputs` are fixed.
            io: `int8`: all inputs and outputs of the program are int8; {"inputs": (0,), "outputs": (0,)}: only those
                with these numbers. The module's inputs are quantised by the program's scale; int8 outputs are compared
                in quanta with the dialect, and as dequantised numbers with fake-quant and eager.

        Returns:
            The comparison, with the worst figures of each output (`Comparison.outputs`) over all inputs, and
            `operators` as in `run`, for `inputs`. Findings that do not prove an error are issued as HilWarning.

        Raises:
            LoweringError: the module cannot be exported, quantised or lowered, or `min_cortex_m` is not reached.
            Mismatch: an output differs from a reference; the message has the distances from all three, and with
                `more_inputs` which inputs they belong to.
            ConfigError: an argument is wrong, or the module itself fails on these inputs.
            HarnessError: the errors of `run` too.
        """
        __tracebackhide__ = True
        with Reporting(self.dut.resolved):
            tolerance = Tolerance(qtol, fake_quant_qtol, atol, rtol, eager_sqnr)
            options = LoweringOptions(calibration, quantize, layout, self._redzones, quantizer, io, self._banks)
            minimum = checked_share(min_cortex_m)
            others = []
            if more_inputs:
                module, inputs = lowering.exported_once(module, inputs, layout, dynamic_shapes), None
                dynamic_shapes = None  # the export has its own dynamic shapes
                others = [lowering.exported_once(module, given, module.layout) for given in map(_inputs, more_inputs)]
            program = lowering.lower(
                module, inputs, isa=isa or self.isa, options=options, dynamic_shapes=dynamic_shapes
            )
            self._require_cortex_m(program, minimum, layout, quantize)
            if not others:
                found = self._verify(program, tolerance, linted=lint, known=known).comparison
            else:
                programs = [program, *(lowering.on_inputs(program, other) for other in others)]
                sets = enumerate(programs)
                found = worst([self._verify_set(number, one, tolerance, lint, known) for number, one in sets])
            flow.warn_of_training(program)
            return found

    @checked_call("hil.verify")
    def verify(
        self,
        program: Program,
        tolerance: Tolerance = _DEFAULT,
        *,
        method: str = "",
        excluded: Sequence[str] = (),
        known: Sequence[int | str] = (),
    ) -> Checked:
        """Check a lowered program: lint it, run it on its example inputs, and compare its outputs with its references.

        Args:
            program: a program from `lower`. A program from `load_program` has no references, so its outputs are not
                compared.
            tolerance: how far outputs may be from each reference.
            method: the name of another method of the program; "": the one that it was loaded with.
            excluded: patterns of operators that lint treats as missing, though the runner has them.
            known: as in `run`.

        Returns:
            The program, the result of the run and the comparison.

        Raises:
            HarnessError: the errors of `check`, except LoweringError.
        """
        __tracebackhide__ = True
        with Reporting(self.dut.resolved):
            return self._verify(_chosen(program, method), tolerance, excluded=tuple(excluded), known=known)

    @checked_call("hil.check_program")
    def check_program(
        self,
        source: Program | Path | str | bytes,
        inputs: tuple[Any, ...] | list[Any] | None = None,
        expected: tuple[Any, ...] | list[Any] | None = None,
        *,
        qtol: int | None = None,
        atol: float = Tolerance.atol,
        rtol: float = Tolerance.rtol,
        eager_sqnr: float | None = None,
        method: str = "",
        lint: bool = True,
        known: Sequence[int | str] = (),
        quantize_inputs: bool = False,
    ) -> Comparison:
        """Lint an existing `.pte`, run it, and compare each output with the expected one.

        Args:
            source: the path of a `.pte` or `.bpte`, its bytes, or a program. In a test, a relative path begins at the
                folder of the test's file, elsewhere at the current folder.
            inputs: as in `run`. None: the inputs in the file.
            expected: a tuple with an array or tensor for each output, of the output's logical shape and dtype; none is
                converted. None: the expected outputs in the file; each test case of a `.bpte` is run and compared.
            qtol: quanta (steps of the output's quantisation) that an element may differ. None: 0, or `eager_sqnr`.
            atol: for outputs that are not quantised, in units of the output: an element may differ by `atol +
                rtol·|expected|`.
            rtol: the relative part of that bound.
            eager_sqnr: minimum signal-to-noise ratio in dB, used in place of quanta if other arithmetic, such as the
                float module, computed the expected outputs. None: 15 for the cases of a `.bpte`, else quanta are used.
            method: the name of the method; "": `forward`, or the only one that computes.
            lint: False runs a program even if it does not fit the target; a HilWarning tells why it does not.
            known: as in `run`.
            quantize_inputs: as in `run`.

        Returns:
            The comparison, as from `check`; for several cases the worst figures, and `operators` of the first case.
            `saturated` is as in `run`.

        Raises:
            Mismatch: an output differs from the expected one; the message names the program and the case.
            ConfigError: there are no expected outputs, inputs or outputs do not fit the program, or an argument is
                wrong.
            HarnessError: the errors of `load_program` and `run` too.
        """
        __tracebackhide__ = True
        with Reporting(self.dut.resolved):
            if qtol is not None and eager_sqnr is not None:
                what = "qtol and eager_sqnr are two ways to judge a quantised output"
                raise ConfigError(what, hint="qtol for exact arithmetic, eager_sqnr for what was computed in float")
            least = Tolerance.eager_sqnr if eager_sqnr is None else eager_sqnr
            tolerance = Tolerance(qtol=0 if qtol is None else qtol, atol=atol, rtol=rtol, eager_sqnr=least)
            quantizer = flow.InputQuantizer(quantize_inputs)
            program = self._loaded(source, method)
            with _about(program, quantizer):
                cases = _cases(program, inputs, expected, quantizer, by_sqnr=eager_sqnr is not None)
            found = []
            for case in cases if qtol is None else map(in_quanta, cases):
                with _about(case, quantizer):
                    found.append(self._verify(case, tolerance, linted=lint, known=known).comparison)
            return replace(worst(found), saturated=quantizer.share)

    def _loaded(self, source: Program | Path | str | bytes, method: str) -> Program:
        if isinstance(source, Program):
            return _chosen(source, method)
        return load_program(source if isinstance(source, bytes) else self._located(Path(source)), method=method)

    def _located(self, path: Path) -> Path:
        """Return the path of a file named in a call; a hook for subclasses."""
        return path

    @checked_call("hil.budget")
    def budget(
        self,
        *,
        instructions: int | None = None,
        flash: int | str | None = None,
        ram: int | str | None = None,
        bank: Mapping[str, int | str] | None = None,
    ) -> None:
        """Limit the instructions and memory of each program that runs on this target from now on, except by `localize`.

        It replaces an earlier budget. A budget under which no program runs is an error at the end of the test or
        `with`.

        Args:
            instructions: CPU instructions of one run, or of one frame of a stream: an exact number, on QEMU.
            flash: bytes of the `.pte`, as a number or as `"256K"`.
            ram: bytes of the memory plan, in the same form, without red zones.
            bank: bytes of the memory plan in single banks, by the names of their regions: `{"dtcm": "64K"}`.

        Raises:
            ConfigError: a limit is malformed, or nothing ran under the previous budget. A run raises it if instructions
                are limited but the target does not count them, and BudgetExceeded if the program takes more.
        """
        __tracebackhide__ = True
        self.require_judged()
        try:
            self._set_budget(Budget.parse(instructions, flash, ram, bank))
        except ValueError as error:
            hint = 'such as hil.budget(instructions=12_000, ram="4K")'
            raise ConfigError(f"hil.budget: {error}", hint=hint) from None

    def _set_budget(self, budget: Budget) -> None:
        self._budget, self._unjudged = budget, True

    def require_judged(self) -> None:
        """Raise ConfigError if there is a budget under which no program ran."""
        __tracebackhide__ = True
        if self._unjudged:
            self._unjudged = False
            what = f"no program ran under the budget {self._budget}, so nothing was judged"
            raise ConfigError(what, hint="the budget first, and then hil.check or hil.run")

    def _task(
        self, program: Program, inputs: tuple[HostTensor, ...], *, lint: bool = True, known: Sequence[int | str] = ()
    ) -> BundleTask:
        """Return the task to run a program with this target's present budget and settings."""
        expected = accepted_causes(known)
        if expected and not lint:
            hint = "leave out lint=False, or known"
            raise ConfigError("known=… is for what lint finds, and lint=False leaves it out", hint=hint)
        self._begins(program)
        return BundleTask(
            program, inputs, linted=lint, redzones=self._redzones, budget=self._budget, expected=expected,
            known=(*expected, *sorted(self._known - {*expected}, key=str)),
        )  # fmt: skip

    def _judge(self, task: BundleTask, result: RunResult) -> None:
        """Judge a program that has passed by its budget, and by whether it would fail on ExecuTorch."""
        self._judge_budget(task, result)
        if task.linted:
            self._occurred(flow.judge_on_executorch(self.dut, task.program, task.known, task.expected))

    def _note_acceptance(self, task: BundleTask, error: VerdictError) -> None:
        """Mark a verdict as expected if the caller accepts all of its causes."""
        if error.causes and {*error.causes} <= {*task.known}:
            names = ", ".join(known_bug(one) if isinstance(one, int) else one for one in error.causes)
            error.accepted = f"accepted: {names}"
            self._occurred(frozenset(error.causes))

    def _judge_budget(self, task: BundleTask, result: RunResult, what: str = "") -> None:
        self._unjudged = False
        if task.budget is not None:
            require_budget(task.budget, self.dut, task.program, task.inputs, result, what)

    def _counting(self, task: BundleTask, result: RunResult) -> CountOperators:
        """Return a function that counts the cost of each operator, once."""
        program, inputs, ticks, clock = task.program, task.inputs, result.ticks, result.ran.clock

        @cache
        def count() -> tuple[OperatorCost, ...]:
            with Reporting(self.dut.resolved):
                return operator_costs(self.dut, program, inputs, ticks, clock)

        return count

    def _verify_set(
        self, number: int, program: Program, tolerance: Tolerance, linted: bool, known: Sequence[int | str]
    ) -> Comparison:
        """Verify a program on one set of inputs, and name the set in the details of a verdict.

        `number` is 0 for `inputs`, and n for `more_inputs[n - 1]`.
        """
        try:
            return self._verify(program, tolerance, linted=linted, known=known).comparison
        except VerdictError as error:
            name = f"more_inputs[{number - 1}]" if number else "inputs"
            error.details = (
                ("inputs", f"{name}, {', '.join(str(one.spec) for one in program.inputs)}"),
                *error.details,
            )
            raise

    def _require_cortex_m(self, program: Program, minimum: float | None, layout: Layout, quantize: bool) -> None:
        if minimum is not None:
            where = self.dut.resolved.display_name
            flow.keep(self.dut, program, program.inputs)
            require_share(program, minimum, where, layout=layout, quantize=quantize)
        elif quantize and (told := left_in_float(program, layout)):
            warn(f"{self.dut.resolved.display_name}: {told}")

    def _verify(
        self,
        program: Program,
        tolerance: Tolerance,
        *,
        linted: bool = True,
        excluded: tuple[str, ...] = (),
        known: Sequence[int | str] = (),
    ) -> Checked:
        task = replace(
            self._task(program, program.inputs, lint=linted, known=known), tolerance=tolerance, excluded=excluded
        )
        with _Attempt(self, task) as attempt:
            checked = flow.verify(
                self.dut, program,
                tolerance=tolerance, linted=linted, excluded=excluded, observe=attempt.observe, guards=self._guards(),
            )  # fmt: skip
            self._judge(task, checked.result)
        count = self._counting(task, checked.result)
        comparison, result = replace(checked.comparison, count=count), replace(checked.result, count=count)
        return replace(checked, comparison=comparison, result=result)

    @checked_call("hil.stream")
    def stream(
        self,
        program: Program,
        frames: Iterable[Sequence[Any]],
        *,
        method: str = "",
        state: Sequence[HostTensor] | None = None,
        tolerance: Tolerance = _DEFAULT,
        lint: bool = True,
        known: Sequence[int | str] = (),
        quantize_inputs: bool = False,
    ) -> Streamed:
        """Run a program that keeps state once for each frame.

        The program is loaded once, and each frame begins with the state that the last frame left. Each call of `stream`
        begins with the program's initial state, as `run` and `check` do.

        Args:
            program: a program from `lower` or `load_program`.
            frames: the inputs of each frame, as in `run`.
            method: the name of another method of the program; "": the one that it was loaded with.
            state: the state before the first frame, such as `Streamed.state` of an earlier stream; None: the initial
                state.
            tolerance: how far outputs and state of each frame may be from the dialect, which runs the same frames on
                this machine. If nothing is quantised, `atol`, `rtol` and `eager_sqnr` are used against the float
                module. A program from `load_program` is not compared.
            lint: False runs a program even if it does not fit the target; a HilWarning tells why it does not.
            known: as in `run`.
            quantize_inputs: as in `run`.

        Returns:
            `frames`, each with its `outputs`, a digest of its `state` and its `ticks`; `state` after the last frame;
            `stats`, `ran`, `log`; `warnings`, also issued as HilWarning: an output or a state that is NaN or wholly
            infinite, like the reference, proves nothing.

        Raises:
            Mismatch: an output or a state differs from the dialect's; the message names the frame.
            ConfigError: there are no frames, the inputs or the state do not fit the program, or a NaN would be
                quantised.
            HarnessError: the errors of `run` too.
        """
        __tracebackhide__ = True
        with Reporting(self.dut.resolved):
            program, quantizer = _chosen(program, method), flow.InputQuantizer(quantize_inputs)
            given = [_host(program, _frame(number, inputs), quantizer) for number, inputs in enumerate(frames)]
            task = self._task(program, program.inputs, lint=lint, known=known)
            try:
                streamed = flow.stream_frames(
                    self.dut, program, given, state=state, tolerance=tolerance, linted=lint, guards=self._guards()
                )
            except VerdictError as error:
                self._note_acceptance(task, error)
                raise
            streamed = replace(streamed, saturated=quantizer.share)
            self._ran(program, streamed.as_run())
            self._judge_stream(task, given, streamed)
        if not lint:
            self._tell_what_lint_refuses(program)
        for text in streamed.warnings:
            warn(f"{self.dut.resolved.display_name}: {text}")
        return streamed

    def _judge_stream(self, task: BundleTask, given: Sequence[tuple[HostTensor, ...]], streamed: Streamed) -> None:
        """Judge the frame with the most ticks by the budget, and the program by whether it would fail on ExecuTorch."""
        number = max(range(len(given)), key=lambda one: streamed.frames[one].ticks)
        result = replace(streamed.as_run(), ticks=streamed.frames[number].ticks)
        self._judge_budget(replace(task, inputs=given[number]), result, f"frame {number}")
        if task.linted:
            self._occurred(flow.judge_on_executorch(self.dut, task.program, task.known, task.expected))

    @checked_call("hil.localize")
    def localize(
        self,
        program: Program,
        inputs: tuple[Any, ...] | list[Any] | None = None,
        *,
        method: str = "",
        quantize_inputs: bool = False,
    ) -> Localization:
        """Step a program on the target to find the first operator that differs from the references, and faulty ones.

        Args:
            program: a program from `lower`; if it came from the cache it is lowered once more, for its graph.
            inputs: as in `run`. None: the program's example inputs.
            method: as in `run`; a program from `lower` has one method.
            quantize_inputs: as in `run`.

        Returns:
            A row for each value that is written, and conclusions: "this kernel is wrong", "a pass built the wrong
            graph" or "quantisation is coarse here". `lines()` returns both as text.

        Raises:
            ConfigError: the program has no references, the inputs do not fit it, or there is no such method.
            HarnessError: the errors of `run` too; a fault or a hang names the operator.
        """
        __tracebackhide__ = True
        with Reporting(self.dut.resolved):
            program, quantizer = _chosen(program, method), flow.InputQuantizer(quantize_inputs)
            found = localize(self.dut, program, None if inputs is None else _host(program, inputs, quantizer))
            return replace(found, saturated=quantizer.share)

    @checked_call("hil.profile")
    def profile(
        self,
        program: Program,
        inputs: tuple[Any, ...] | list[Any] | None = None,
        *,
        method: str = "",
        lint: bool = True,
        quantize_inputs: bool = False,
        runs: int = RUNS,
        counters: Sequence[str] = (),
    ) -> Profile:
        """Measure what each instruction of a program costs: run it as a whole and by single steps.

        Args:
            program: a program from `lower`, whose rows have the user's modules and lines, or from `load_program`.
            inputs: as in `run`. None: the program's example inputs.
            method: as in `run`.
            lint: False runs a program even if it does not fit the target.
            quantize_inputs: as in `run`.
            runs: how often a board, whose cycles vary, runs it in each way; counted instructions need one run.
            counters: groups of events that the PMU of a Cortex-M55 or M85 counts in further runs: mve, cache, stalls.

        Returns:
            `rows`, one for each instruction; their `ticks` and `outside` add up to the `ticks` of the whole run, which
            are those of `run`. `against(other)` compares with another profile, and `figures` describes each figure.

        Raises:
            ConfigError: the target counts neither instructions nor cycles, it has no PMU for `counters`, `runs` is
                below 1, or as in `run`.
            HarnessError: the errors of `run` too.
        """
        __tracebackhide__ = True
        with Reporting(self.dut.resolved):
            if runs < 1:
                raise ConfigError(f"runs={shown(runs)}: nothing would be measured", hint=f"runs={RUNS}")
            program, quantizer = _chosen(program, method), flow.InputQuantizer(quantize_inputs)
            given = program.inputs if inputs is None else _host(program, inputs, quantizer)
            described = "the program's example inputs" if inputs is None else "those of the call"
            return profile(self.dut, program, given, described, runs=runs, linted=lint, counters=counters)

    def close(self) -> None:
        """Stop the simulator, or release the board; the next use boots the target again."""
        self.dut.close()

    def __enter__(self) -> OpenTarget:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()
        if kind is None:
            self.require_judged()

    def _guards(self) -> flow.Guards | None:
        return self._watched if self._redzones else None

    def _watched(self, program: Program) -> WatchedMemory:
        memory = WatchedMemory(program)
        if program.size_without_redzones is None:
            warn(f"{program.name}: {memory.describe()}")
        return memory

    def _tell_what_lint_refuses(self, program: Program) -> None:
        """Issue a HilWarning about a program that passed without lint, though it does not fit the target."""
        if told := flow.refused_by_lint(self.dut, program):
            warn(f"{self.dut.resolved.display_name}: {program.name}: {told}")

    def _begins(self, program: Program) -> None:
        """Observe each program before it runs; a hook for subclasses."""

    def _ran(self, program: Program, result: RunResult) -> None:
        """Observe each run and its program; a hook for subclasses."""

    def _failed(self, task: BundleTask, error: VerdictError, checked: Checked | None) -> None:
        """Observe each verdict before it is raised, with the program's comparison or None; a hook for subclasses."""

    def _occurred(self, causes: frozenset[int | str]) -> None:
        """Observe which accepted causes occur in a program; a hook for subclasses."""

    def _passed(self, task: BundleTask, checked: Checked | None) -> None:
        """Observe each program that passes, with its comparison or None; a hook for subclasses."""

    def _compared(self, checked: Checked) -> None:
        """Observe each comparison before its verdict is raised: pass its run to `_ran`, and issue its warnings."""
        self._ran(checked.program, checked.result)
        for finding in checked.comparison.warnings:
            name = self.dut.resolved.display_name
            warn(f"{name}: output {finding.output}: {finding.kind.value}: {finding.message}")


class _Attempt:
    """A context manager around one task on an open target; it passes the comparison and the verdict to that target."""

    def __init__(self, target: OpenTarget, task: BundleTask) -> None:
        self._target = target
        self._task = task
        self._checked: Checked | None = None

    def observe(self, checked: Checked) -> None:
        self._checked = checked
        self._target._compared(checked)

    def __enter__(self) -> _Attempt:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, VerdictError):
            self._target._note_acceptance(self._task, error)
            self._target._failed(self._task, error, self._checked)
        elif error is None:
            self._target._passed(self._task, self._checked)
            if not self._task.linted:
                self._target._tell_what_lint_refuses(self._task.program)


def _chosen(program: Program, method: str) -> Program:
    return program.method(method) if method else program


def _cases(
    program: Program, inputs: Sequence[Any] | None, expected: Sequence[Any] | None, quantizer: flow.InputQuantizer,
    *, by_sqnr: bool,
) -> Sequence[Program]:  # fmt: skip
    """Return programs with inputs and expected outputs, from the arguments or from the file.

    Raises:
        ConfigError: there are no expected outputs, or the arrays do not fit the program.
    """
    if expected is not None and not program.cases:
        given = program.inputs if inputs is None else _host(program, inputs, quantizer)
        return [expecting(program, given, expected_outputs(program, _sent(expected)), by_sqnr=by_sqnr)]
    if expected is not None or (inputs is not None and program.cases):
        name = "inputs" if expected is None else "expected outputs"
        hint = "hil.load_program(file).pte are the bytes of its .pte"
        raise ConfigError(f"{name} are given for a bundled program, which brings its own", hint=hint)
    cases = program.cases or (program,)
    silent = [program] if inputs is not None else [one for one in cases if one.reference is None]
    if silent:
        what = f"nothing is expected of {silent[0].name}, so nothing would be checked"
        hint = "expected=(array,), one for each output; hil.run(program, inputs) compares nothing"
        raise ConfigError(what, hint=hint)
    return cases


@contextmanager
def _about(program: Program, quantizer: flow.InputQuantizer) -> Iterator[None]:
    """Add to an error the name of the program, and how many of its quantised inputs saturated."""
    try:
        yield
    except HarnessError as error:
        source = f" ({program.file.source})" if program.file.source else ""
        told = [("program", f"{program.name}{source}"), ("method", program.file.method)]
        told += [("inputs", str(quantizer))] if quantizer.saturated else []
        error.details = (*error.details, *told)
        raise


def _inputs(given: Any) -> Inputs:
    """Return a set of inputs as a tuple; reject a bare tensor: iterating it would treat its rows as inputs."""
    if not isinstance(given, (tuple, list)):
        raise ConfigError(f"more_inputs has {shown(given)}", hint="a tuple for each: more_inputs=[(x,), (y,)]")
    return tuple(given)


def _frame(number: int, given: Any) -> Inputs:
    """Return a frame's inputs as a tuple; reject a bare tensor: iterating it would treat its rows as inputs."""
    if not isinstance(given, (tuple, list)):
        what = f"frame {number} is {shown(given)}, and has to be a tuple of inputs"
        raise ConfigError(what, hint="[(x,) for x in …], even for one input")
    return tuple(given)


def _host(
    program: Program, inputs: Sequence[Any], quantizer: flow.InputQuantizer | None = None
) -> tuple[HostTensor, ...]:
    """Return inputs as host tensors, in the program's dim orders, and quantised if the user asked for it."""
    return flow.arrange(program, _sent(inputs), quantizer)


def _sent(values: Sequence[Any]) -> list[Any]:
    """Return the values, with torch tensors converted to host tensors in their own dim order."""
    torch = sys.modules.get("torch")  # if torch was never imported, no value is a tensor
    if torch is None:
        return list(values)
    from cortex_m_hil.lowering.reference import to_host

    return [to_host(value) if isinstance(value, torch.Tensor) else value for value in values]
