"""Programs of contiguous tensors with other dim orders, which in a `.pte` are all that strides can be; and parts of
programs, since what one runtime refuses must not keep the rest from being compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import torch

from cortex_m_hil.program.lifetimes import Lifetimes
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.schema import InstructionKind, ValueKind
from cortex_m_hil.program.tensor import HostTensor, TensorSpec
from cortex_m_hil.program.values import Instruction

Order = tuple[int, ...]
CHANNELS_LAST: Mapping[int, Order] = {4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}
"""For each number of dimensions the dim order that ExecuTorch's kernels accept in addition to the contiguous one."""


class Form(str, Enum):
    """A way to give a program's tensors dim orders."""

    CONTIGUOUS = "contiguous"
    EXPORTED = "exported"  # images are channels-last, and the compiler chooses the orders of other tensors
    CHANNELS_LAST = "channels_last"  # every tensor of four or five dimensions
    MIXED = "mixed"  # every second tensor of four or five dimensions is channels-last
    ANY = "any"  # each tensor has its own order


def order_for(form: Form, index: int, rank: int, draw: int) -> Order:
    """Return the dim order of value `index`.

    For MIXED, by bit `draw` of the index, so that neighbours differ in some draw.
    """
    contiguous = tuple(range(rank))
    if form is Form.ANY:
        return tuple(torch.randperm(rank).tolist())
    if form is Form.CHANNELS_LAST or (form is Form.MIXED and (index >> draw) % 2 != draw % 2):
        return CHANNELS_LAST.get(rank, contiguous)
    return contiguous


def is_in_form(specs: Collection[TensorSpec], form: Form) -> bool:
    """Tell whether the tensors of an operator really have the form, which dimensions of size 1 do not show."""
    orders = {spec.memory_order for spec in specs if len(spec.memory_order) > 1}
    plain = {order for order in orders if list(order) == sorted(order)}
    if form is Form.CONTIGUOUS:
        return orders == plain
    if form is Form.MIXED:
        return bool(plain) and orders > plain
    known = plain | {
        tuple(dim for dim in CHANNELS_LAST.get(len(spec.shape), ()) if spec.shape[dim] != 1) for spec in specs
    }
    return bool(orders - (known if form is Form.ANY else plain))


# --- values of an instruction ------------------------------------------------------------------------------------


def tensors(file: PteFile, arguments: Collection[int]) -> set[int]:
    """Return the arguments that are tensors, also those in lists."""
    found: set[int] = set()
    for value in (file.values[argument] for argument in arguments):
        listed = value.kind in (ValueKind.TENSOR_LIST, ValueKind.OPTIONAL_TENSOR_LIST)
        found.update(int(item) for item in value.items if int(item) >= 0) if listed else found.add(value.index)
    return {one for one in found if file.values[one].kind is ValueKind.TENSOR}


def specs(file: PteFile, instruction: Instruction) -> list[TensorSpec]:
    found = (file.values[value].spec for value in tensors(file, instruction.args))
    return [spec for spec in found if spec is not None]


def kernels(file: PteFile) -> Iterator[Instruction]:
    return (one for one in file.instructions if one.kind is InstructionKind.KERNEL)


# --- other dim orders --------------------------------------------------------------------------------------------


def relaid(program: Program, form: Form, draw: int) -> Program:
    """Return the program with its tensors in dim orders of the form and equal values; `draw` distinguishes tries.

    Constants and states are unchanged, and so are tensors whose layout in memory matters: views, their bases, and the
    input of as_strided_copy.
    """
    kept = _bound(program.file)
    parsed = _parsed(program)
    plan = parsed.program.execution_plan[0]
    for index, value in enumerate(plan.values):
        if index not in kept and program.file.values[index].kind is ValueKind.TENSOR:
            value.val.dim_order = list(order_for(form, index, len(value.val.sizes), draw))
    for instruction in kernels(program.file):
        if instruction.operator.startswith("dim_order_ops::"):
            wanted = plan.values[instruction.args[-1]].val.dim_order
            plan.chains[0].instructions[instruction.index].instr_args.args[2] = _int_list(plan, wanted)
    made = _with(program, parsed)
    arrays = (one.array() for one in program.inputs)
    given = zip(arrays, made.file.input_specs(), strict=True)
    return replace(made, inputs=tuple(HostTensor.from_array(array, spec.dim_order) for array, spec in given))


def _bound(file: PteFile) -> set[int]:
    kept = {value.index for value in file.values if value.planned is None} | set(file.states)
    for view in Lifetimes(file).views:
        kept |= {view.value, view.base}
    for one in kernels(file):
        if one.operator == "executorch_prim::et_view.default":
            kept |= tensors(file, one.args)
        if one.operator == "aten::as_strided_copy.out":
            kept.add(one.args[0])
    return kept


def _int_list(plan: Any, numbers: Collection[int]) -> int:
    """Add a list of integers, and return the number of its value."""
    from executorch.exir.schema import EValue, Int, IntList

    first = len(plan.values)
    plan.values.extend(EValue(Int(number)) for number in numbers)
    plan.values.append(EValue(IntList(list(range(first, first + len(numbers))))))
    return len(plan.values) - 1


def _parsed(program: Program) -> Any:
    from executorch.exir._serialize._program import deserialize_pte_binary

    return deserialize_pte_binary(program.pte)


def _with(program: Program, parsed: Any) -> Program:
    from executorch.exir._serialize._program import serialize_pte_binary

    pte = bytes(serialize_pte_binary(parsed))
    return replace(program, pte=pte, file=Program.from_bytes(pte).file)


# --- parts -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """A part of a program: some instructions, and in ``outputs`` the numbers of the outputs that they compute."""

    program: Program
    instructions: tuple[int, ...]
    outputs: tuple[int, ...]


def without(program: Program, excluded: Collection[int], wrong: Collection[int] = ()) -> Part:
    """Return the program without some instructions or wrong values, and without those that depend on them."""
    file = program.file
    bases = {view.value: view.base for view in Lifetimes(file).views}
    unknown = set(wrong)
    kept = []
    for one in file.instructions:
        outs = tensors(file, file.dataflow.written[one.index]) if one.kind is InstructionKind.KERNEL else set()
        reads = tensors(file, one.args) - outs
        if one.index in excluded or _with_bases(reads, bases) & unknown:
            unknown |= outs
        else:
            kept.append(one.index)
    known = [at for at, value in enumerate(file.outputs) if not _with_bases({value}, bases) & unknown]
    parsed = _parsed(program)
    chain = parsed.program.execution_plan[0].chains[0]
    chain.instructions = [chain.instructions[at] for at in kept]
    return Part(_with(program, parsed), tuple(kept), tuple(known))


def up_to(program: Program, last: int) -> Part:
    """Return an instruction together with the instructions that compute its operands."""
    file = program.file
    bases = {view.value: view.base for view in Lifetimes(file).views}
    needed = {last}
    wanted = _with_bases(tensors(file, file.instructions[last].args), bases)
    for one in reversed(file.instructions[:last]):
        if one.kind is InstructionKind.KERNEL and tensors(file, file.dataflow.written[one.index]) & wanted:
            needed.add(one.index)
            wanted |= _with_bases(tensors(file, one.args), bases)
    return without(program, {one.index for one in file.instructions} - needed)


def _with_bases(values: set[int], bases: Mapping[int, int]) -> set[int]:
    """Return these values, and the bases of views among them."""
    found = set(values)
    while more := {bases[value] for value in found if value in bases} - found:
        found |= more
    return found
