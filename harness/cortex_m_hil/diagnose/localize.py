"""Localises an error: finds the first operator of a program that differs from the references, and all faulty operators.

The unchanged program is stepped on the target. Each result is compared by its digest, and fetched only if the digest
differs. In a second pass the dialect's values replace wrong ones, so that every operator gets right inputs and all
faulty operators are found.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from cortex_m_hil.checks.argument_layout import WrongLayout, wrong_layout
from cortex_m_hil.checks.comparison.advice_texts import CALIBRATE
from cortex_m_hil.checks.comparison.sqnr import decibels
from cortex_m_hil.checks.comparison.tolerance import FULL_SQNR, GOOD_SQNR, Tolerance
from cortex_m_hil.checks.input_checks import require_fit
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.errors.text import align, in_decibels
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.flow.stepping import steps
from cortex_m_hil.program.dataflow import Memory
from cortex_m_hil.program.program import Intermediate, Program
from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.schema import ValueKind
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.runner.links.protocol import MemoryRegion
from cortex_m_hil.runner.session.session import Session

ROUNDING: Final = 2  # quanta by which a right node may differ from fake-quant on equal inputs; most differ by 0 or 1
COARSE: Final = 6.0  # dB: an operator that loses more than this, one bit of its inputs' precision, is coarse
UNUSED: Final = 4  # a quantised range so many times as wide as the range of the values wastes two bits


class Cause(str, Enum):
    """The reasons for naming an operator, gravest first; the last two are used only if no other applies."""

    LAYOUT = "layout"
    KERNEL = "kernel"
    GRAPH = "graph"
    QUANTISATION = "quantisation"
    NOT_COMPARED = "not_compared"

    @property
    def meaning(self) -> str:
        return {
            Cause.LAYOUT: "its arguments are in the layout of another ISA class",
            Cause.KERNEL: "its kernel is wrong",
            Cause.GRAPH: "a pass built the wrong graph",
            Cause.QUANTISATION: "its quantisation is coarse",
            Cause.NOT_COMPARED: "whether a pass built the right graph is not known",
        }[self]


@dataclass(frozen=True)
class Departure:
    """The difference of a value on the target from the dialect's value.

    Attributes:
        elements: how many elements differ.
        numel: the number of all elements.
        distance: the largest difference, in quanta for integers, else in units of the value.
        first: the index of the first element that differs, in the logical shape.
    """

    elements: int
    numel: int
    distance: float
    first: tuple[int, ...]


@dataclass(frozen=True)
class Row:
    """A value that an instruction writes, in the order of the program.

    Attributes:
        instruction: the number of the instruction.
        operator: the operator's name.
        node: the operator's graph node, with the module's path.
        source: the user's source line.
        spec: dtype and shape of the value.
        known: whether the dialect's value is known; if not, the value cannot be judged.
        inputs_right: whether all inputs of the instruction equalled the dialect's, in the unchanged program.
        departure: the difference from the dialect in the unchanged program; None where the bytes are equal.
        kernel_error: the difference when the instruction got right inputs; None where it is within the tolerance.
        damaged: instructions whose results this instruction overwrote, though they are not its outputs.
        graph_quanta: the distance of the dialect's node from fake-quant, in quanta, both on fake-quant's inputs.
        sqnr_db: the signal-to-quantisation-noise ratio of the target's values against the float module.
        dialect_db: the same ratio for the dialect's values.
        inputs_db: the least such ratio of the dialect's values that the instruction reads; infinite for the program's
            inputs.
        holds: the least and the largest number that the integers can represent.
        spans: the least and the largest number in the float module's value.
        distinct: the number of different elements in the value.
        layout: the error in the layout of the arguments for this ISA class, if any; then the value says nothing about
            the kernel.
    """

    instruction: int
    operator: str
    node: str
    source: str
    spec: str
    known: bool
    inputs_right: bool = True
    departure: Departure | None = None
    kernel_error: Departure | None = None
    damaged: tuple[int, ...] = ()
    graph_quanta: int | None = None
    sqnr_db: float | None = None
    dialect_db: float | None = None
    inputs_db: float | None = None
    holds: tuple[float, float] | None = None
    spans: tuple[float, float] | None = None
    distinct: int = 0
    layout: WrongLayout | None = None

    @property
    def module(self) -> str:
        """Return the path of the module that the node is of; "" where it is not known."""
        return self.node.partition(" (")[2].removesuffix(")")

    @property
    def place(self) -> str:
        """Return the place where the value is computed, if known: operator, node, module, instruction and source line.

        For example `cortex_m::quantized_conv2d.out (node, module), operator 3, model.py:12`.
        """
        where = f" ({self.node})" if self.node else ""
        line = f", {self.source}" if self.source else ""
        return f"{self.operator}{where}, operator {self.instruction}{line}"

    @property
    def is_kernel_wrong(self) -> bool:
        """Tell whether the kernel computes wrong values from right inputs and layout, or overwrites other tensors."""
        return (self.kernel_error is not None and self.layout is None) or bool(self.damaged)

    @property
    def is_graph_wrong(self) -> bool:
        """Tell whether the dialect's node differs from fake-quant on equal inputs by more than rounding."""
        return self.graph_quanta is not None and self.graph_quanta > ROUNDING


@dataclass(frozen=True)
class Localization:
    """The result of `localize`; `lines()` returns it as text, with the rows as a table in the order of the graph.

    Attributes:
        rows: a row for each value that is written.
        conclusions: the conclusions in words, the gravest first.
        saturated: with `quantize_inputs`, the share of input values that saturated; else None.
    """

    rows: tuple[Row, ...]
    conclusions: tuple[str, ...]
    saturated: float | None = None

    @cached_property
    def causes(self) -> tuple[tuple[Cause, Row], ...]:
        """Return the operators that the conclusions name as the cause, with the reason.

        `hil shrink` follows the first.
        """
        return tuple(_causes(self.rows))

    @property
    def at_fault(self) -> tuple[Row, ...]:
        """Return the operators with a wrong kernel: wrong values from right inputs, or writes to other tensors."""
        return tuple(row for row in self.rows if row.is_kernel_wrong)

    @property
    def wrong_layout(self) -> tuple[Row, ...]:
        """Return the operators with the layout of another ISA class, for which a pass built the wrong graph."""
        return tuple(row for row in self.rows if row.layout is not None)

    @property
    def is_wrong(self) -> bool:
        """Tell whether an operator is wrong on right inputs: its kernel, or the layout of its arguments."""
        return bool(self.at_fault or self.wrong_layout)

    @property
    def not_compared(self) -> tuple[Row, ...]:
        """Return the integer operators without a counterpart in the fake-quantised module: their graph may be wrong."""
        return tuple(row for row in self.rows if _is_not_compared(row))

    @property
    def first(self) -> Row | None:
        """Return the first value that differs from the dialect in the unchanged program; None if none does."""
        return next((row for row in self.rows if row.departure is not None), None)

    def lines(self) -> list[str]:
        cells = [[str(row.instruction), *_cells(row)] for row in self.rows]
        return [*self.conclusions, "", *align([_COLUMNS, *cells])]

    def plot(self) -> list[str]:
        """Return lines with bars, one for each value in graph order: the kernels' error, and the total error."""
        return align([_AXES, *([str(row.instruction), *_bars(row)] for row in self.rows)])

    def fields(self) -> dict[str, Any]:
        """Return conclusions, causes and rows as values for JSON."""
        causes = [
            {"cause": cause, "instruction": row.instruction, "operator": row.operator} for cause, row in self.causes
        ]
        return {"conclusions": self.conclusions, "causes": causes, "rows": [_fields(row) for row in self.rows]}


_COLUMNS: Final = ("", "operator", "module", "line", "value", "inputs", "from reference", "graph", "SQNR", "", "values")
_REFERENCE: Final = "ExecuTorch's Python operators, on the host"
_BAR: Final = 60, 5  # dB of SQNR from which on there is no bar, and dB of one block


_AXES: Final = ("", "operator", "quanta from reference", "", "noise against the float module", "")


def _bars(row: Row) -> Iterator[str]:
    """Yield the cells of a row of the plot: a block for each doubling of quanta, and each 5 dB of noise above -60."""
    yield _short(row)
    distance = 0.0 if row.departure is None else row.departure.distance
    yield "█" * (math.ceil(math.log2(min(distance, 1 << 32) + 1)) if distance > 0 else 0)
    yield f"{distance:g}" if row.known else "-"
    yield _noise(row)
    yield "-" if row.sqnr_db is None else in_decibels(row.sqnr_db)


def _short(row: Row) -> str:
    return row.operator.partition("::")[2].removesuffix(".out") or row.operator


def _noise(row: Row) -> str:
    none, step = _BAR
    return "" if row.sqnr_db is None else "█" * max(0, math.ceil((none - max(row.sqnr_db, -none)) / step))


def _fields(row: Row) -> dict[str, Any]:
    departure = row.departure
    return {
        "instruction": row.instruction,
        "operator": row.operator,
        "node": row.node.partition(" (")[0],
        "module": row.module,
        "source": row.source,
        "value": row.spec,
        "known": row.known,
        "inputs_right": row.inputs_right,
        "distance": None if not row.known else 0.0 if departure is None else departure.distance,
        "elements": None if not row.known else 0 if departure is None else departure.elements,
        "at_fault": row.is_kernel_wrong,
        "wrong_layout": None if row.layout is None else row.layout.problem,
        "damaged": row.damaged,
        "graph_quanta": row.graph_quanta,
        "sqnr_db": row.sqnr_db,
        "distinct": row.distinct if row.known else None,
    }


def _cells(row: Row) -> Iterator[str]:
    """Yield the cells of a row of the table: distances in quanta, or in units for floats, and a bar for the noise."""
    yield _short(row)
    yield row.module
    yield "/".join(Path(row.source).parts[-2:])
    yield row.spec.partition(" dim order")[0]
    yield "right" if row.inputs_right else "wrong"
    if not row.known:
        yield "not known"
    elif row.departure is None:
        yield "0"
    else:
        one = row.departure
        wrong = "AT FAULT" if row.layout is None else "WRONG LAYOUT"
        fault = f", {wrong}" if row.kernel_error is not None else ""
        yield f"{one.distance:g} in {one.elements} of {one.numel}{fault}"
    yield "-" if row.graph_quanta is None else str(row.graph_quanta)
    yield "-" if row.sqnr_db is None else in_decibels(row.sqnr_db)
    yield _noise(row)
    yield str(row.distinct) if row.known else "-"


def localize(
    dut: Dut, program: Program, inputs: Sequence[HostTensor] | None = None, tolerance: Tolerance | None = None
) -> Localization:
    """Step a program on a target, and find where it differs from the host's references.

    Args:
        dut: the target; it can be used afterwards as after a run.
        program: a program from `lower`, with the graphs of its references. A program from the cache is lowered once
            more, and must have the same bytes.
        inputs: the inputs; None: the program's own.
        tolerance: the tolerance, of which `qtol`, `atol` and `rtol` are used; None: the default.

    Raises:
        ConfigError: the program has no references, or the inputs do not fit it.
        HarnessError: running the program fails; a fault or a hang names the operator.
    """
    if program.intermediates is None:
        raise ConfigError(f"{program.name} has no references to compare with", hint="lower the module: hil.lower(…)")
    given = program.inputs if inputs is None else tuple(inputs)
    require_fit(program, given, dut.target.name, dut.resolved.runtime)
    stepper = _Stepper(dut, program, given, program.intermediates(given), tolerance or Tolerance())
    as_it_ran = list(stepper.rows(repair=False))
    rows = [replace(row, kernel_error=None) for row in as_it_ran]
    if not stepper.outputs_right or any(row.departure or not row.inputs_right for row in as_it_ran):
        right = stepper.rows(repair=True)
        rows = [
            replace(ran, kernel_error=one.kernel_error, damaged=one.damaged)
            for ran, one in zip(rows, right, strict=True)
        ]
    return Localization(tuple(rows), tuple(_conclusions(rows)))


@dataclass(frozen=True)
class _Live:
    """The dialect's value of a tensor that a later instruction reads."""

    value: int
    instruction: int
    tensor: HostTensor
    expected_crc: int
    db: float | None = None


class _Stepper:
    """A program on a target; each call of `rows` steps it from its beginning."""

    def __init__(
        self,
        dut: Dut,
        program: Program,
        inputs: Sequence[HostTensor],
        expected: Sequence[Intermediate],
        tolerance: Tolerance,
    ) -> None:
        self._dut = dut
        self._program = program
        self._file = program.file
        self._inputs = inputs
        self._expected = expected
        self._tolerance = tolerance
        self._data = program.file.dataflow
        self.outputs_right = True  # whether the outputs of the last pass were the dialect's, as far as these are known

    def rows(self, repair: bool) -> Iterator[Row]:
        """Step the program, and yield a row for each value that is written.

        With `repair`, wrong values are replaced by the dialect's after each instruction.
        """
        live = self._live_inputs()
        read: list[_Live] = []
        right = True

        def look_at_inputs(session: Session, position: int) -> None:
            nonlocal read, right
            read = self._known_inputs(position, live)
            right = all(_digest(session, one) == one.expected_crc for one in read)

        for done in steps(self._dut, self._program, self._inputs, before=look_at_inputs):
            if done.is_kernel:
                worst = _worst_input_db(read, len(set(self._read_only(done.index))))
                for row in self._rows_at(done.session, done.index, live, repair):
                    yield replace(row, inputs_right=right, inputs_db=worst)
        outputs = [live[memory] for memory in {self._data.memory[one] for one in self._file.outputs} & live.keys()]
        session = self._dut.session()
        self.outputs_right = all(_digest(session, one) == one.expected_crc for one in outputs)

    def _live_inputs(self) -> dict[Memory, _Live]:
        pairs = zip(self._file.inputs, self._inputs, strict=True)
        return {self._data.memory[value]: _live_value(value, -1, tensor, math.inf) for value, tensor in pairs}

    def _known_inputs(self, position: int, live: Mapping[Memory, _Live]) -> list[_Live]:
        places = [self._data.memory[value] for value in self._read_only(position)]
        return [live[memory] for memory in places if memory in live]

    def _read_only(self, position: int) -> list[int]:
        own = self._data.written[position]
        return [value for value in _tensors_read(self._file, position) if value not in own]

    def _rows_at(self, session: Session, position: int, live: dict[Memory, _Live], repair: bool) -> Iterator[Row]:
        places = self._data.written[position]
        expected = self._expected[position]
        needed = self._program.lifetimes.live(position)
        for memory in [memory for memory, one in live.items() if one.value not in needed]:
            del live[memory]
        damaged = self._damaged(session, places, live) if repair else ()
        for number, value in enumerate(places):
            live.pop(self._data.memory[value], None)
            tensor = expected.dialect[number] if expected.dialect else None
            row, got = self._row(session, position, value, tensor)
            if tensor is not None:
                row = self._judged(row, expected, tensor, got)
                live[self._data.memory[value]] = _live_value(value, position, tensor, row.dialect_db)
                if repair and got is not None:
                    session.write(MemoryRegion.VALUE, value, tensor.data)
            yield replace(row, damaged=damaged)

    def _damaged(self, session: Session, places: Sequence[int], live: Mapping[Memory, _Live]) -> tuple[int, ...]:
        """Restore the values that an instruction overwrote by mistake.

        Return the instructions that had written them.
        """
        own = {self._data.memory[value] for value in places}
        wrong = [one for memory, one in live.items() if memory not in own and _digest(session, one) != one.expected_crc]
        for one in wrong:
            session.write(MemoryRegion.VALUE, one.value, one.tensor.data)
        return tuple(one.instruction for one in wrong)

    def _row(
        self, session: Session, position: int, value: int, expected: HostTensor | None
    ) -> tuple[Row, HostTensor | None]:
        """Return the row without its judgement, and the value on the target if it differs from the dialect's."""
        spec = self._file.values[value].spec if expected is None else expected.spec
        instruction = self._file.instructions[position]
        row = Row(
            position,
            instruction.operator,
            self._program.nodes[position],
            self._expected[position].source,
            str(spec) if spec is not None else "",
            expected is not None,
            layout=wrong_layout(self._file, instruction, self._dut.target.isa),
        )
        if expected is None or session.digest(MemoryRegion.VALUE, value) == zlib.crc32(expected.data):
            return row, None
        return row, HostTensor(expected.spec, session.read(MemoryRegion.VALUE, value, expected.spec.nbytes))

    def _judged(self, row: Row, expected: Intermediate, tensor: HostTensor, got: HostTensor | None) -> Row:
        """Return a row with its judgement; `got` is None where the target has the dialect's bytes."""
        departure = _departure(got, tensor) if got is not None else None
        wrong = got is not None and departure is not None and self._exceeds_tolerance(tensor, got, departure)
        held = tensor if got is None else got
        return replace(
            row,
            departure=departure,
            kernel_error=departure if wrong else None,
            graph_quanta=expected.graph_quanta,
            sqnr_db=_sqnr(held, expected),
            dialect_db=_sqnr(tensor, expected),
            distinct=len(np.unique(held.array())),
            holds=_representable(tensor, expected),
            spans=_eager_range(expected),
        )

    def _exceeds_tolerance(self, expected: HostTensor, got: HostTensor, departure: Departure) -> bool:
        if _is_integer(expected):
            return departure.distance > self._tolerance.qtol
        bounds = self._tolerance.rtol, self._tolerance.atol
        return not np.allclose(got.array(), expected.array(), *bounds, equal_nan=True)


def _live_value(value: int, instruction: int, tensor: HostTensor, db: float | None = None) -> _Live:
    return _Live(value, instruction, tensor, zlib.crc32(tensor.data), db)


def _worst_input_db(read: Sequence[_Live], many: int) -> float | None:
    """Return the worst figure of the `many` values that an instruction reads; None where it is not known.

    If all known values are exact but another one is not known, the worst figure is not known.
    """
    known = [one.db for one in read if one.db is not None]
    worst = min(known, default=None)
    return None if worst is not None and math.isinf(worst) and len(known) < many else worst


def _digest(session: Session, one: _Live) -> int:
    return session.digest(MemoryRegion.VALUE, one.value)


def _tensors_read(file: PteFile, position: int) -> Iterator[int]:
    """Yield the tensors that an instruction reads, except for constants."""
    for value in file.dataflow.arguments[position]:
        spec = file.values[value].spec
        if spec is not None and spec.kind is ValueKind.TENSOR and file.values[value].constant is None:
            yield value


def _is_integer(tensor: HostTensor) -> bool:
    return tensor.spec.dtype.startswith(("int", "uint", "bool"))


def _departure(got: HostTensor, expected: HostTensor) -> Departure | None:
    mine, theirs = got.array(), expected.array()
    unequal = mine != theirs
    if not _is_integer(expected):
        unequal &= ~(np.isnan(mine) & np.isnan(theirs))
    if not unequal.any():
        return None
    with np.errstate(all="ignore"):  # inf - inf
        distance = np.abs(mine.astype(np.float64) - theirs.astype(np.float64))[unequal]
    first = tuple(int(place) for place in np.argwhere(unequal)[0])
    return Departure(int(unequal.sum()), int(unequal.size), float(np.max(distance)), first)


def _sqnr(tensor: HostTensor, expected: Intermediate) -> float | None:
    """Return the signal-to-noise ratio in dB against the float module; None where that has no value here."""
    if expected.eager is None or not expected.scale or not expected.eager.any():
        return None
    values = (tensor.array().astype(np.float64) - expected.zero_point) * expected.scale
    eager = expected.eager.astype(np.float64)
    return decibels(eager, values - eager)


def _representable(tensor: HostTensor, expected: Intermediate) -> tuple[float, float] | None:
    if not expected.scale or tensor.array().dtype.kind != "i":
        return None
    limits = np.iinfo(tensor.array().dtype)
    least, most = ((limit - expected.zero_point) * expected.scale for limit in (limits.min, limits.max))
    return least, most


def _eager_range(expected: Intermediate) -> tuple[float, float] | None:
    if expected.eager is None or not expected.eager.size:
        return None
    return float(expected.eager.min()), float(expected.eager.max())


# --- conclusions -----------------------------------------------------------------------------------------


_GRAVE: Final[Mapping[Cause, Callable[[Row], bool]]] = {
    Cause.LAYOUT: lambda row: row.layout is not None,
    Cause.KERNEL: lambda row: row.is_kernel_wrong,
    Cause.GRAPH: lambda row: row.is_graph_wrong,
}


def _causes(rows: Sequence[Row]) -> Iterator[tuple[Cause, Row]]:
    grave = [(cause, row) for cause, applies in _GRAVE.items() for row in rows if applies(row)]
    yield from grave
    if not grave:
        if (coarsest := _coarsest(_losses(rows))) is not None:
            yield Cause.QUANTISATION, coarsest
        yield from ((Cause.NOT_COMPARED, row) for row in rows if _is_not_compared(row))


def _conclusions(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the conclusions from the rows about kernels, graph and quantisation; the gravest first."""
    grave = [(cause, row) for cause, row in _causes(rows) if cause in _GRAVE]
    for cause, row in grave:
        yield {Cause.LAYOUT: _of_layout, Cause.KERNEL: _of_kernel, Cause.GRAPH: _of_graph}[cause](row)
    if not grave:
        yield from _of_quantisation(rows)
    unknown = sum(not row.known for row in rows)
    if unknown:
        yield f"{unknown} of {len(rows)} values have no reference from the host, and were not compared"


_NOT_JUDGED: Final = (
    *("quantize_per_tensor", "dequantize_per_tensor"),
    *("cat", "copy_", "full", "pad", "permute_copy", "select_copy", "slice_copy", "transpose", "unsqueeze_copy"),
    "_clone_dim_order",
)
"""Operators whose column for the graph is empty even in a right graph: they convert, or compute nothing."""


def _computes(row: Row) -> bool:
    return row.operator.partition("::")[2].partition(".")[0] not in _NOT_JUDGED


def _is_not_compared(row: Row) -> bool:
    return row.graph_quanta is None and row.spec.startswith("int8") and _computes(row)


def _of_layout(row: Row) -> str:
    assert row.layout is not None
    return (
        f"a pass built the wrong graph for this class: {row.place} has the {row.layout.problem}: {row.layout.cause}; "
        "its kernel was not judged"
    )


def _of_kernel(row: Row) -> str:
    parts = []
    if row.kernel_error is not None and row.layout is None:
        unit = "" if row.spec.startswith("float") else " quanta"
        many = f"{row.kernel_error.elements} of {row.kernel_error.numel} elements"
        parts.append(
            f"gives other values than the reference ({_REFERENCE}) on right inputs: {many}, "
            f"by up to {row.kernel_error.distance:g}{unit}"
        )
    if row.damaged:
        whose = ", ".join("an input" if one < 0 else f"operator {one}" for one in row.damaged)
        parts.append(f"writes outside its output: over what {whose} gave")
    return f"this kernel is wrong: {row.place} {' and '.join(parts)}"


def _of_graph(row: Row) -> str:
    return (
        f"a pass built the wrong graph: {row.place}, computed on the host, is {row.graph_quanta} quanta from the "
        "fake-quantised module on equal inputs"
    )


def _of_quantisation(rows: Sequence[Row]) -> Iterator[str]:
    """Yield conclusions about quantisation, for a program whose kernels and nodes are right as far as known."""
    if (first := next((row for row in rows if row.departure is not None), None)) is not None:
        yield f"no kernel is wrong on right inputs; {first.place} is the first that differs, as it is known to"
    not_compared = [row for row in rows if _is_not_compared(row)]
    for row in not_compared:
        yield (
            f"whether a pass built the right graph is not known of {row.place}: the fake-quantised module has no value "
            "of its scale and zero point"
        )
    right = "kernels are right" if not_compared else "kernels and graph are right"
    losses = _losses(rows)
    if (coarse := _coarsest(losses)) is not None:
        precision = _remaining_precision(coarse)
        yield f"quantisation is coarse here: {coarse.place} has {precision}{_advice(coarse)}; {right}"
    elif not any(_computes(row) for *_, row in losses):
        yield f"{right}; what an operator loses to quantisation is not known"
    elif (least := min(row.dialect_db for row in rows if row.dialect_db is not None)) < GOOD_SQNR:
        most = max(losses, key=lambda one: one[0])[-1]
        yield (
            f"{right}; no operator is known to lose much to quantisation, and all together leave as little as "
            f"{in_decibels(least)}: {most.place} loses most, and has {_remaining_precision(most)}{_advice(most)}"
        )
    else:
        yield f"{right}, and no operator loses much to quantisation"


def _remaining_precision(row: Row) -> str:
    assert row.dialect_db is not None and row.inputs_db is not None
    before = "exact" if math.isinf(row.inputs_db) else in_decibels(row.inputs_db)
    return f"{in_decibels(row.dialect_db)} against the float module, its inputs {before}"


def _advice(row: Row) -> str:
    """Return advice for an operator whose quantised range does not fit its values, "" where it fits."""
    if row.holds is None or row.spans is None:
        return ""
    (low, high), (least, most) = row.holds, row.spans
    width = high - low
    is_narrow = max(low - least, most - high) > width / UNUSED
    if not is_narrow and width <= UNUSED * (most - least):
        return ""
    return f"; it holds {low:.3g} to {high:.3g}, the values are {least:.3g} to {most:.3g}: {CALIBRATE}"


def _losses(rows: Sequence[Row]) -> list[tuple[float, float, Row]]:
    """Return for each operator with known figures the dB that it loses, the dB that remain, and its row.

    For an operator that reads exact values, the loss is counted from the best ratio of an int8 tensor.
    """
    return [
        (min(row.inputs_db, FULL_SQNR) - row.dialect_db, row.dialect_db, row)
        for row in rows
        if row.inputs_db is not None and row.dialect_db is not None
    ]


def _coarsest(losses: Sequence[tuple[float, float, Row]]) -> Row | None:
    """Return the operator that loses most precision, if the loss is large; None otherwise."""
    coarse = [one for one in losses if one[0] > COARSE and one[1] < GOOD_SQNR]
    return max(coarse, key=lambda one: one[0])[-1] if coarse else None
