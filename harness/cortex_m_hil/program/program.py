"""A program: a `.pte`, and what the host knows about it: references, sources, lifetimes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import PurePath
from typing import Any, Final

from cortex_m_hil.errors.text import counted, printable
from cortex_m_hil.program.dataflow import Quantization
from cortex_m_hil.program.io_quantization import input_quantization, output_quantization
from cortex_m_hil.program.lifetimes import Lifetimes
from cortex_m_hil.program.partition import Partition
from cortex_m_hil.program.pte_file import Constant, PteFile
from cortex_m_hil.program.pte_reader import parse_pte
from cortex_m_hil.program.tensor import Array, Dimension, HostTensor
from cortex_m_hil.targets.cpu import Isa

DISTURBED: Final = ("disturbed", "disturbed_floats")  # the fields of References that have several runs
_SHOWN: Final = 4  # submodules


@dataclass(frozen=True, slots=True)
class References:
    """The expected outputs, computed on the host, as logical arrays in output order.

    None where there is no such reference.

    Attributes:
        dialect: the outputs of the Python Cortex-M operators.
        quantized: the outputs of the fake-quantised module.
        eager: the outputs of the float module.
        disturbed: the outputs of several more runs of the fake-quantised module, each disturbed within the bounds of
            rounding (`lowering.rounding`).
        disturbed_floats: the outputs of several more runs of the Python Cortex-M operators, with float results
            disturbed by what libraries differ in; empty if no quantised value depends on one.
        expected: the outputs that a user expects, in place of `dialect` and `quantized`. If `eager` is there as well,
            they come from other arithmetic, and quantised outputs are judged by their SQNR, not in quanta.
    """

    dialect: tuple[Array, ...] | None = None
    quantized: tuple[Array, ...] | None = None
    eager: tuple[Array, ...] | None = None
    disturbed: tuple[tuple[Array, ...], ...] = ()
    expected: tuple[Array, ...] | None = None
    disturbed_floats: tuple[tuple[Array, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Training:
    """The submodules that were in training mode and compute differently in it; the module is lowered as eval().

    Attributes:
        submodules: their paths and classes.
        is_in_part: whether only submodules are in training mode, while the module itself is in eval mode: somebody set
            them so. A module that is in training mode as a whole may only be in the state in which torch creates it.
    """

    submodules: tuple[str, ...]
    is_in_part: bool

    def __str__(self) -> str:
        left = len(self.submodules) - _SHOWN
        more = f" and {counted(left, 'more submodule')}" if left > 0 else ""
        return f"{', '.join(self.submodules[:_SHOWN])}{more} in training mode: lowered as eval(), and so are references"


@dataclass(frozen=True, eq=False)
class Intermediate:
    """The host's values of the tensors that one instruction writes; unknown values are empty or None.

    Where the instruction writes one value, quantised with ``scale`` and ``zero_point``, the float values are known too.

    Attributes:
        dialect: the values that the Python Cortex-M operators compute.
        quantized: the value of the fake-quantised module, as floats of the same shape.
        eager: the value of the float module, as floats of the same shape.
        graph_quanta: how far the dialect's node is from fake-quant on fake-quant's own inputs, in quanta.
        source: the user's `file:line`.
    """

    dialect: tuple[HostTensor, ...] = ()
    quantized: Array | None = None
    eager: Array | None = None
    scale: float = 0.0
    zero_point: int = 0
    graph_quanta: int | None = None
    source: str = ""


Reference = Callable[[tuple[HostTensor, ...]], References]
ManyReferences = Callable[[Sequence[tuple[HostTensor, ...]]], list[References]]
StreamReference = Callable[[Sequence[tuple[HostTensor, ...]], Sequence[HostTensor], bool], tuple[References, ...]]


@dataclass(frozen=True, eq=False)
class Program:
    """A `.pte` and what the host knows about it.

    Facts that only the lowering knows are None or empty for a file that hil did not lower.

    Attributes:
        isa: the ISA class that the program was lowered for.
        nodes: the graph node of each instruction; "" where it is unknown.
        inputs: example inputs, in the layout that the program expects.
        reference: returns the references for inputs.
        intermediates: returns the host's values at each instruction; lowers the module again if the program was cached.
        origin: returns the module that it was lowered from, and how (`lowering.submodules.Origin`).
        size_without_redzones: the bytes that the memory plan would take without its red zones; None unless it has any.
        lowering_seconds: how long its lowering took.
        remembered: whether it was found in the cache of lowerings.
        no_key: why it cannot be cached; "" where it can.
        undisturbed: returns references for many inputs, without `References.disturbed`, and caches nothing on disk.
        cases: the test cases of its method in a bundled program: the same program, each with inputs and a reference of
            its own.
        bundled: the test cases of all methods.
        scratch: returns the scratch memory that CMSIS-NN needs on an ISA class; None: an installed ExecuTorch is asked.
        state_names: the buffers of the states that the program keeps, in the order of `PteFile.states`.
        stream: returns references for consecutive frames from a given state: the outputs and then the states, computed
            by the dialect alone, or also by the float models.
        sources: the user's `file:line` of each instruction.
        ancestors: the node of the exported module that each instruction was made from; "" where it is unknown.
        float_reasons: why the quantiser left each instruction in float; "" where it did not.
        dimensions: the dimensions of inputs whose sizes are not fixed.
        training: the parts that were in training mode and compute differently in it; None where there are none.
        etrecord: returns ExecuTorch's ETRecord with these inputs; lowers the module again if the program was cached.
    """

    pte: bytes = field(repr=False)
    file: PteFile
    isa: Isa | None
    nodes: tuple[str, ...] = field(repr=False)
    name: str
    inputs: tuple[HostTensor, ...] = field(default=(), repr=False)
    reference: Reference | None = field(default=None, repr=False)
    intermediates: Callable[[tuple[HostTensor, ...]], tuple[Intermediate, ...]] | None = field(default=None, repr=False)
    origin: Callable[[], Any] | None = field(default=None, repr=False)
    size_without_redzones: int | None = None
    lowering_seconds: float | None = None
    remembered: bool = False
    no_key: str = ""
    undisturbed: ManyReferences | None = field(default=None, repr=False)
    cases: tuple[Program, ...] = field(default=(), repr=False)
    bundled: tuple[Program, ...] = field(default=(), repr=False)
    scratch: Callable[[Isa], tuple[ScratchNeed, ...]] | None = field(default=None, repr=False)
    state_names: tuple[str, ...] = ()
    stream: StreamReference | None = field(default=None, repr=False)
    sources: tuple[str, ...] = field(default=(), repr=False)
    ancestors: tuple[str, ...] = field(default=(), repr=False)
    float_reasons: tuple[str, ...] = field(default=(), repr=False)
    dimensions: tuple[Dimension, ...] = ()
    training: Training | None = None
    etrecord: Callable[[tuple[HostTensor, ...]], bytes] | None = field(default=None, repr=False)

    @cached_property
    def partition(self) -> Partition:
        """Return the partition: what runs each instruction, on Cortex-M kernels, on portable ones or in float."""
        return Partition.of(self.file, self.nodes, self.sources, self.float_reasons)

    @cached_property
    def lifetimes(self) -> Lifetimes:
        """Return the lifetimes of the planned values."""
        return Lifetimes(self.file)

    def named(self, instruction: int) -> str:
        """Return the name of an instruction, as far as known: `aten::add.out, aten_add_tensor (block), model.py:12`."""
        known = (names[instruction] for names in (self.nodes, self.sources) if instruction < len(names))
        return ", ".join(filter(None, (self.file.instructions[instruction].name, *known)))

    @classmethod
    def from_bytes(cls, data: bytes, source: str = "", method: str = "") -> Program:
        """Make a program from the bytes of a `.pte`.

        Args:
            data: the content of a `.pte`.
            source: the file's name, for messages.
            method: the name of the method that is run; "" for `forward`, or the only one that computes.

        Raises:
            ProgramRejected: the bytes are no program that is supported.
            ConfigError: there is no such method, or there are several and `method` is "".
        """
        return cls.from_file(parse_pte(data, printable(source), method))

    @classmethod
    def from_file(cls, file: PteFile) -> Program:
        """Make a program from a parsed `.pte`, without references or anything else that only a lowering knows."""
        name = PurePath(file.source).stem or file.method
        if len(file.methods) > 1:
            name = f"{name}, method {file.method}"
        return cls(file.data, file, None, ("",) * len(file.instructions), name)

    @property
    def constants(self) -> Mapping[str, Constant]:
        """Return the values of the file's constant methods by name: numbers, text, `HostTensor`s or tuples."""
        return self.file.constants

    def input_quantization(self, number: int) -> Quantization | None:
        """Return the scale, zero point and range of a quantised integer input; None where the program does not tell.

        Raises:
            ProgramRejected: the program's constants of that input (`input0_scale` and so on) are no quantisation.
        """
        return input_quantization(self.file, number)

    def output_quantization(self, number: int) -> Quantization | None:
        """Return the scale, zero point and range of a quantised integer output.

        None where the program does not tell.
        """
        return output_quantization(self.file, number)

    @property
    def methods(self) -> tuple[str, ...]:
        """Return the names of the methods that compute, in the file's order."""
        return self.file.methods

    @property
    def identity(self) -> bytes:
        """Return bytes that identify the program: the file, and the method's name where it has several."""
        return self.pte if len(self.methods) < 2 else self.pte + self.file.method.encode()

    def method(self, name: str) -> Program:
        """Return the program with another of its methods selected, and the test cases of that method.

        Args:
            name: the name of a method that computes.

        Raises:
            ConfigError: there is no such method.
        """
        if name == self.file.method:
            return self
        return Program.from_bytes(self.pte, self.file.source, name).with_cases(self.bundled)

    def with_cases(self, cases: Sequence[Program]) -> Program:
        """Return the program with the test cases of a bundled file, which may be of several methods.

        Those of the program's method become `cases`; the first of them gives the program its inputs and reference.
        """
        own = tuple(case for case in cases if case.file.method == self.file.method)
        program = replace(self, cases=own, bundled=tuple(cases))
        return replace(program, inputs=own[0].inputs, reference=own[0].reference) if own else program


@dataclass(frozen=True, slots=True)
class ScratchNeed:
    """The scratch of one instruction in bytes: what CMSIS-NN asks for and what the memory plan gives.

    ``elsewhere`` is what CMSIS-NN would ask for on the other ISA classes.
    """

    instruction: int
    operator: str
    value: int
    required: int
    planned: int
    elsewhere: tuple[tuple[Isa, int], ...] = ()

    def on(self, isa: Isa, known_for: Isa) -> ScratchNeed:
        """Return the scratch need of the same instruction on ISA class ``isa``.

        This object has the need on class ``known_for``.
        """
        if isa is known_for:
            return self
        sizes = {known_for: self.required, **dict(self.elsewhere)}
        elsewhere = tuple((one, size) for one, size in sizes.items() if one is not isa)
        return replace(self, required=sizes[isa], elsewhere=elsewhere)
