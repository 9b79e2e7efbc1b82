"""Streams: a program that keeps state is loaded once, run for one frame after another, and compared frame by frame."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cortex_m_hil.checks.comparison.compare_outputs import compare
from cortex_m_hil.checks.comparison.comparison_result import Comparison
from cortex_m_hil.checks.comparison.tolerance import Tolerance
from cortex_m_hil.checks.input_checks import require_fit
from cortex_m_hil.errors import ConfigError, Mismatch
from cortex_m_hil.errors.text import counted
from cortex_m_hil.flow.checking import ProgramLint
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.flow.hang_diagnosis import hang_diagnosed
from cortex_m_hil.flow.program_state import State, digest_state, read_state, require_state, write_state
from cortex_m_hil.flow.single_run import COUNTER_POISON, POISON, Guard, Guards, load, one_pass
from cortex_m_hil.program.io_quantization import output_quantization
from cortex_m_hil.program.program import Program, References
from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.tensor import Array, HostTensor
from cortex_m_hil.runner.run_results import Frame, Streamed
from cortex_m_hil.runner.session.session import Session

Inputs = tuple[HostTensor, ...]


def stream_frames(
    dut: Dut,
    program: Program,
    frames: Sequence[Inputs],
    *,
    state: Sequence[HostTensor] | None = None,
    tolerance: Tolerance,
    linted: bool = True,
    guards: Guards | None = None,
) -> Streamed:
    """Run a program once for each frame; it is loaded before the first frame, and keeps its state between frames.

    If the program has references, outputs and state of each frame are compared with those that the dialect computes for
    the same frames. Between two frames all of the arena but the state is filled with poison.

    Args:
        dut: the target.
        program: the program.
        frames: the inputs of each frame, at least one frame.
        state: the state before the first frame; None: the program's initial state.
        tolerance: the tolerance of the comparison.
        linted: False skips the lint.
        guards: makes the guard that watches memory; None: memory is not watched.

    Raises:
        ConfigError: there are no frames, or inputs or state do not fit the program.
        Mismatch: a frame's outputs or state are wrong; the message names the frame.
        HarnessError: `run` would raise it.
    """
    if not frames:
        raise ConfigError(f"{program.name}: a stream of no frames", hint="a list of input tuples: [(x0,), (x1,), …]")
    for number, inputs in enumerate(frames):
        try:
            require_fit(program, inputs, dut.target.name, dut.resolved.runtime)
        except ConfigError as error:
            error.message = f"frame {number}: {error.message}"
            raise
    first = program.file.initial_state() if state is None else require_state(program.file, state, program.name)
    lint = ProgramLint(dut, program, linted)
    lint.require()
    with lint.explaining_verdicts():
        stepped = program.stream(frames, first, not _is_quantised(program.file)) if program.stream is not None else ()
        guard = guards(program) if guards else None
        one = _Stream(dut, dut.session(), program, stepped, tolerance, guard)
        return one.run(frames, None if state is None and program.file.state_is_loaded else first)


@dataclass(frozen=True)
class _Stream:
    """A program that is loaded once on a target, and its references by frame."""

    dut: Dut
    session: Session
    program: Program
    references: Sequence[References]
    tolerance: Tolerance
    guard: Guard | None

    def run(self, frames: Sequence[Inputs], state: State | None) -> Streamed:
        """Run all frames; `state` is written before the first one. None: the state is as the load leaves it."""
        began = time.monotonic()
        session, file = self.session, self.program.file
        load(session, self.program)
        if state is not None:
            write_state(session, file, state)
        found = tuple(self._frame(number, inputs) for number, inputs in enumerate(frames))
        left = read_state(session, file)
        if self.guard:
            self.guard.judge(self.dut, session, frames[-1])
        seconds = time.monotonic() - began
        told = tuple(self._uninformative())
        return Streamed(found, left, session.stats(), seconds, self.dut.ran(), session.log, told)

    def _frame(self, number: int, inputs: Inputs) -> Frame:
        poison = COUNTER_POISON if number % 2 else POISON
        session, program = self.session, self.program
        with hang_diagnosed(self.dut, program, inputs):
            outputs, ticks = one_pass(self.dut, session, inputs, poison, self.guard, keep_state=True)
        frame = Frame(tuple(outputs), digest_state(session, program.file), ticks)
        if self.references:
            self._compare(number, frame, self.references[number])
        return frame

    def _compare(self, number: int, frame: Frame, references: References) -> None:
        """Raise Mismatch where a frame's outputs or state differ from the dialect's by more than the tolerance."""
        file = self.program.file
        if references.dialect is None or _is_equal(file, frame, references.dialect):
            return
        outputs = (*frame.outputs, *read_state(self.session, file))
        everything = _with_states_as_outputs(file)
        comparison = compare(everything, outputs, _judged_by(everything, references), self.tolerance)
        try:
            comparison.raise_for_verdict(self.dut.resolved.display_name)
        except Mismatch as wrong:
            wrong.message = f"frame {number}: {self._named(comparison, wrong.message)}"
            raise

    def _uninformative(self) -> Iterator[str]:
        """Yield a line for each output and state with NaN or only infinities in the reference, and the first frame."""
        dialects = [one.dialect for one in self.references if one.dialect is not None]
        for at, arrays in enumerate(zip(*dialects, strict=True)):
            lost = [(number, array) for number, array in enumerate(arrays) if _is_no_number(array)]
            if lost:
                number, array = lost[0]
                count = f"{int((~np.isfinite(array)).sum())} of {array.size} elements are NaN or infinite"
                more = f", and in {counted(len(lost) - 1, 'more frame')}" if len(lost) > 1 else ""
                name = self._name(at)
                yield f"frame {number}: {name}: uninformative: {count}, as in the reference{more}: proves nothing"

    def _name(self, at: int) -> str:
        """Return the name of a compared tensor: in the comparison, states come after the outputs."""
        state = at - len(self.program.file.outputs)
        if state < 0:
            return f"output {at}"
        return f"state {state}" + (f" ({self.program.state_names[state]})" if self.program.state_names else "")

    def _named(self, comparison: Comparison, message: str) -> str:
        at = comparison.errors[0].output
        return message.replace(f"output {at}:", f"{self._name(at)}:", 1)


def _is_equal(file: PteFile, frame: Frame, dialect: tuple[Array, ...]) -> bool:
    """Tell whether a frame's outputs and state equal the dialect's, bit for bit."""
    outputs = dialect[: len(frame.outputs)]
    if not all(np.array_equal(one.array(), other) for one, other in zip(frame.outputs, outputs, strict=True)):
        return False
    specs = [spec for value in file.states if (spec := file.values[value].spec) is not None]
    states = dialect[len(frame.outputs) :]
    wanted = [HostTensor.from_array(array, spec.dim_order) for array, spec in zip(states, specs, strict=True)]
    return frame.state == tuple(zlib.crc32(one.data) for one in wanted)


def _is_no_number(array: Array) -> bool:
    """Tell whether an array has a NaN, or no finite element. Some infinities are allowed, as in a mask."""
    return array.dtype.kind == "f" and array.size > 0 and bool(np.isnan(array).any() or not np.isfinite(array).any())


def _is_quantised(file: PteFile) -> bool:
    """Tell whether all outputs and states are quantised, so that any difference from the dialect's bits is wrong."""
    return all(_quantised_outputs(_with_states_as_outputs(file)))


def _quantised_outputs(file: PteFile) -> list[bool]:
    """Return for each output whether it has integers of a known scale, or was dequantised from such integers."""
    behind = enumerate(file.dataflow.output_quantizations)
    return [known is not None or output_quantization(file, number) is not None for number, known in behind]


def _with_states_as_outputs(file: PteFile) -> PteFile:
    return replace(file, outputs=(*file.outputs, *file.states))


def _judged_by(file: PteFile, references: References) -> References:
    """Return the references that a frame is judged by: fake-quant for tensors in float, the dialect for quantised ones.

    If nothing is quantised, fake-quant is the float module. How far rounding may take a stream of integers from
    fake-quant is not known, so integers are compared only with the dialect.
    """
    if references.dialect is None or references.quantized is None:
        return references
    found = zip(references.dialect, references.quantized, _quantised_outputs(file), strict=True)
    kept = (exact if is_quantised else fake for exact, fake, is_quantised in found)
    return References(references.dialect, tuple(kept), disturbed_floats=references.disturbed_floats)
