"""Judges mutated programs: runs a `.pte` that `program_mutator` has changed on host and target.

A mutant is determined by the program, a seed and a number, so every finding is reproducible. `Fuzzer.judge` passes it
to the host's parser and lint, and to a live target even if lint would refuse it. Anything but a typed refusal, the seed
program's outputs bit for bit, or other outputs (a Mismatch in a test) is a bug.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from cortex_m_hil import flow
from cortex_m_hil.checks.input_checks import input_misfits
from cortex_m_hil.errors import ConfigError, HarnessError, OutOfTargetMemory, ProgramRejected, UnsupportedOperator
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.flow.program_state import write_state
from cortex_m_hil.flow.single_run import COUNTER_POISON, POISON
from cortex_m_hil.maintainers.fuzzing.program_mutator import MOST_ITEMS, Mutator, ProgramMutant
from cortex_m_hil.program.example_inputs import example_inputs
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.schema import (
    InstructionKind,
)
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.runner.links.protocol import Loaded, MemoryRegion, Request
from cortex_m_hil.runner.session.session import ResponseTimeout, Session

EXECUTION_SECONDS: Final = 0.5  # seconds of the simulator's CPU time; the unchanged programs need a hundredth of it
HOST_LIMIT: Final = 5.0  # seconds for the host's parser and lint, which normally need milliseconds


# --- the judge -----------------------------------------------------------------------------------------------


class FuzzOutcome(str, Enum):
    """The outcome of a mutant; only BUG is a bug of this project."""

    REJECTED = "rejected"
    UNSUPPORTED = "unsupported"
    TOO_LARGE = "out of target memory"
    REFUSED = "kernel refused"
    UNFIT = "inputs do not fit"
    DIFFERS = "outputs differ"
    PASS = "pass, bit-equal"
    HANG = "hang (bounded)"
    BUG = "BUG"


@dataclass(frozen=True)
class MutantJudgement:
    mutant: ProgramMutant
    outcome: FuzzOutcome
    detail: str


_REFUSALS: Final[tuple[tuple[type[HarnessError], FuzzOutcome], ...]] = (
    (ProgramRejected, FuzzOutcome.REJECTED),
    (UnsupportedOperator, FuzzOutcome.UNSUPPORTED),
    (OutOfTargetMemory, FuzzOutcome.TOO_LARGE),
)


class _Refused(Exception):
    """A typed refusal by host or target."""

    def __init__(self, outcome: FuzzOutcome, error: HarnessError | str) -> None:
        super().__init__(error.message if isinstance(error, HarnessError) else error)
        self.outcome = outcome


class _Bug(Exception):
    """A failure that no program may cause."""


class Fuzzer:
    """A judge of mutants of one program on one target.

    After a mutant that breaks the target, the target is booted again, so that the next verdict is not affected.
    """

    def __init__(self, dut: Dut, program: Program, inputs: Sequence[HostTensor] | None = None) -> None:
        self.dut = dut
        self.program = program
        self.inputs = tuple(inputs) if inputs is not None else example_inputs(program)
        self.mutator = Mutator(program.pte)
        self.unsuited = ""
        """The reason for which the target refuses even the unchanged program; "" if it accepts it."""
        self.expected = self._expect()

    def _expect(self) -> tuple[HostTensor, ...]:
        try:
            return flow.run(self.dut, self.program, self.inputs, linted=False).outputs
        except (ProgramRejected, UnsupportedOperator, OutOfTargetMemory) as error:
            self.unsuited = error.describe()
            return ()

    def judge(self, mutant: ProgramMutant) -> MutantJudgement:
        """Judge a mutant on host and target. Raise nothing that the mutant can cause."""
        try:
            outcome, detail = self._judge(mutant.data)
        except _Bug as bug:
            outcome, detail = FuzzOutcome.BUG, str(bug)
        if outcome in (FuzzOutcome.BUG, FuzzOutcome.HANG):
            self.dut.close()
        return MutantJudgement(mutant, outcome, detail)

    def _judge(self, data: bytes) -> tuple[FuzzOutcome, str]:
        program, refusal = self._on_host(data)
        try:
            outcome, detail = self._on_target(data, program)
        except _Refused as refused:
            outcome, detail = refused.outcome, str(refused)
        if refusal and outcome in (FuzzOutcome.PASS, FuzzOutcome.DIFFERS):
            return FuzzOutcome.REJECTED, f"by the host alone: {refusal}"
        return outcome, detail

    # --- on the host ------------------------------------------------------------------------------------------

    def _on_host(self, data: bytes) -> tuple[Program | None, str]:
        """Return the parsed program, or None and the reason of the refusal. Raise _Bug for any other failure.

        This calls all host code that `hil run` and a test call on a file before and after a run.
        """
        began = time.process_time()
        try:
            try:
                program = Program.from_bytes(data, "mutant.pte", self.program.file.method)
            except ConfigError as error:  # the method has another name
                return None, error.message
            _ = flow.ProgramLint(self.dut, program).findings
            for number in range(len(program.file.input_specs())):
                program.input_quantization(number)
            for number in range(len(program.file.output_specs())):
                program.output_quantization(number)
            _ = program.file.dataflow.output_quantizations
        except ProgramRejected as error:
            return None, error.message
        except Exception as error:
            raise _Bug(f"host: {type(error).__name__}: {error}") from error
        finally:
            self._bounded(time.process_time() - began)
        return program, ""

    @staticmethod
    def _bounded(seconds: float) -> None:
        if seconds > HOST_LIMIT:
            raise _Bug(f"host: {seconds:.1f} s for the parser and lint")

    # --- on the target ----------------------------------------------------------------------------------------

    def _on_target(self, data: bytes, program: Program | None) -> tuple[FuzzOutcome, str]:
        try:
            session = self.dut.session()
            loaded = self._typed(lambda: session.load(data, method=self.program.file.method), FuzzOutcome.REJECTED)
            if program is None:
                return self._blindly(session, loaded)
            self._agree(session, loaded, program)
            misfit = next(input_misfits(program, self.inputs), None)
            if misfit:
                self._run(session, program.file, example_inputs(program), POISON)
                return FuzzOutcome.UNFIT, misfit[0]
            return self._compare(session, program.file)
        except ResponseTimeout as stuck:
            if stuck.request in (Request.EXECUTE, Request.STEP) and program is not None and _may_loop(program):
                return FuzzOutcome.HANG, f"no end after {EXECUTION_SECONDS:g} s of the target's time"
            raise _Bug(f"no answer to {stuck.request.name}") from stuck
        except HarnessError as error:
            raise _Bug(error.describe()) from error

    @staticmethod
    def _typed(ask: Callable[[], Any], rejected: FuzzOutcome) -> Any:
        try:
            return ask()
        except (ProgramRejected, UnsupportedOperator, OutOfTargetMemory) as error:
            outcome = next(outcome for kind, outcome in _REFUSALS if isinstance(error, kind))
            raise _Refused(rejected if outcome is FuzzOutcome.REJECTED else outcome, error) from error

    def _agree(self, session: Session, loaded: Loaded, program: Program) -> None:
        """Raise _Bug where host and target have read different programs from the file."""
        file = program.file
        nbytes = file.planned_bytes + file.unplanned_bytes
        counts = (len(file.inputs), len(file.outputs), len(file.values), len(file.instructions), nbytes)
        told = (loaded.inputs, loaded.outputs, loaded.values, loaded.instructions, loaded.planned)
        if counts != told:
            raise _Bug(f"host and target disagree: inputs, outputs, values, instructions, planned: {counts}, {told}")
        for region, specs in ((MemoryRegion.INPUT, file.input_specs()), (MemoryRegion.OUTPUT, file.output_specs())):
            for number, spec in enumerate(specs[:MOST_ITEMS]):
                seen = session.describe(region, number)
                if seen != spec:
                    raise _Bug(f"host and target disagree: {region.name} {number} is {spec}, {seen}")

    def _blindly(self, session: Session, loaded: Loaded) -> tuple[FuzzOutcome, str]:
        """Run a program that the host refuses, to check that the target survives it; outputs are only digested."""
        session.fill_arenas(POISON)
        self._typed(lambda: session.execute(EXECUTION_SECONDS), FuzzOutcome.REFUSED)
        for number in range(min(loaded.outputs, MOST_ITEMS)):
            session.digest(MemoryRegion.OUTPUT, number)
        return FuzzOutcome.DIFFERS, "ran"

    def _compare(self, session: Session, file: PteFile) -> tuple[FuzzOutcome, str]:
        """Run with each of two poisons, and compare the outputs with the unchanged program's.

        The outputs of both runs must be bit-equal, since they may not depend on the previous content of memory.
        """
        for poison in (POISON, COUNTER_POISON):
            got = self._run(session, file, self.inputs, poison)
            difference = _difference(got, self.expected)
            if difference:
                return FuzzOutcome.DIFFERS, difference
        return FuzzOutcome.PASS, ""

    def _run(self, session: Session, file: PteFile, inputs: Sequence[HostTensor], poison: int) -> list[HostTensor]:
        session.fill_arenas(poison)
        write_state(session, file, file.initial_state())
        for number, value in enumerate(inputs):
            session.set_input(number, value)
        self._typed(lambda: session.execute(EXECUTION_SECONDS), FuzzOutcome.REFUSED)
        return [session.get_output(number) for number in range(len(file.outputs))]


def _may_loop(program: Program) -> bool:
    return any(
        instruction.kind is InstructionKind.JUMP_FALSE and instruction.destination <= instruction.index
        for instruction in program.file.instructions
    )


def _difference(got: Sequence[HostTensor], expected: Sequence[HostTensor]) -> str:
    if len(got) != len(expected) or not expected:
        return f"{len(got)} outputs, {len(expected)} expected"
    for number, (one, other) in enumerate(zip(got, expected, strict=True)):
        if one.spec != other.spec:
            return f"output {number} is {one.spec}, expected {other.spec}"
        if one.data != other.data:
            return f"output {number} has other bytes"
    return ""
