"""Finds arguments that an operator does not accept, by its signature for each runtime; for lint.

Sources of the tables: for `builtin`, the kernels in `firmware/runtime/builtin/kernels/`;
`tests/harness/checks/test_lint.py` holds its table against them. For `executorch`, its commit cff6f4dd: the checks of
`backends/cortex_m/ops/op_*.cpp` and of `cortex_m_ops_common.h` there, `kernels/portable/cpu/op_*.cpp`,
`runtime/core/exec_aten/util/tensor_util_portable.cpp`. Where ExecuTorch computes wrongly without an error, the tables
allow only calls that it computes correctly (the bugs in docs/known_bugs.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from cortex_m_hil.checks.signatures.builtin_signatures import BUILTIN
from cortex_m_hil.checks.signatures.cortex_m_signatures import CORTEX_M, DEFECTS, DEFECTS_ON_MVE, ON_DSP
from cortex_m_hil.checks.signatures.dim_order_predicates import FORMS
from cortex_m_hil.checks.signatures.executorch_signatures import BLIND_TO_SCALES, EXECUTORCH
from cortex_m_hil.checks.signatures.operator_signature import ArgumentRelation, Misfit, Operand, OperatorCall, Signature
from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.schema import InstructionKind, ValueKind
from cortex_m_hil.program.values import Instruction, Value
from cortex_m_hil.targets.cpu import Isa


def signature_of(operator: str, runtime: str, isa: Isa | None = None) -> Signature | None:
    """Return an operator's signature; None where it is not known.

    Args:
        operator: the operator's name.
        runtime: the runtime that would execute the operator.
        isa: the target's ISA class; None: the signature that holds for all classes.
    """
    shared = CORTEX_M.get(operator)
    if shared is None:
        return (BUILTIN if runtime == "builtin" else EXECUTORCH).get(operator)
    relations = (*shared.relations, *(ON_DSP.get(operator, ()) if isa is Isa.DSP else ()))
    if runtime != "builtin":
        of_class = DEFECTS_ON_MVE.get(operator, ()) if isa is Isa.MVE else ()
        relations = (*relations, *DEFECTS.get(operator, ()), *of_class)
    return replace(shared, relations=relations)


_NUMBER_FOR_A_LIST: Final = 26  # a known bug


def operator_misfits(file: PteFile, instruction: Instruction, runtime: str, isa: Isa | None = None) -> Iterator[Misfit]:
    """Yield the misfits of an instruction's dtypes; if the dtypes are right, those of dim orders and other arguments.

    Args:
        file: the program.
        instruction: one of the program's instructions.
        runtime: the runtime that would execute the instruction.
        isa: the target's ISA class; None: only rules for all classes are checked.
    """
    signature = signature_of(instruction.operator, runtime, isa)
    if instruction.kind is not InstructionKind.KERNEL or signature is None:
        return
    arguments = OperatorCall(file, instruction, {})
    found = [named for operand in signature.operands for named in _named(arguments, operand)]
    call = OperatorCall(file, instruction, {name: value.spec for name, _, value in found if value.spec is not None})
    wrong = [misfit for name, operand, value in found for misfit in _wrong_dtype(name, operand, value, call)]
    yield from wrong
    is_whole = all(one.optional or arguments.value(one.at) is not None for one in signature.operands)
    if is_whole and not wrong:
        yield from _wrong_orders(signature, found, call)


def blind_to_scales(file: PteFile, instruction: Instruction, quantised: frozenset[int]) -> Iterator[Misfit]:
    """Yield a misfit for each quantised argument of an operator that ignores scales; `quantised` has their values."""
    if instruction.operator not in BLIND_TO_SCALES:
        return
    call = OperatorCall(file, instruction, {})
    for operand in EXECUTORCH[instruction.operator].operands:
        for name, _, value in _named(call, operand):
            if operand.at >= 0 and value.index in quantised:
                yield Misfit("dtype", f"{name} is {value.spec}, quantised", value.index)


def takes(file: PteFile, instruction: Instruction, runtime: str, isa: Isa) -> bool:
    """Tell whether the runtime is known to accept an instruction as it stands, on a target of the ISA class."""
    known = signature_of(instruction.operator, runtime, isa) is not None
    return known and not any(operator_misfits(file, instruction, runtime, isa))


_Named = tuple[str, Operand, Value]


def _named(call: OperatorCall, operand: Operand) -> Iterator[_Named]:
    """Yield name and value of an argument, or of each item of a list; nothing if it is None or missing."""
    value = call.value(operand.at)
    if value is None or (operand.optional and value.kind is ValueKind.NULL):
        return
    if value.kind is ValueKind.TENSOR_LIST:
        for number, item in enumerate(value.items):
            yield f"{operand.name}[{number}]", operand, call.file.values[int(item)]
    else:
        yield operand.name, operand, value


def _wrong_dtype(name: str, operand: Operand, value: Value, call: OperatorCall) -> Iterator[Misfit]:
    if operand.dtype == "ints":
        if value.kind is not ValueKind.INT_LIST:
            problem = f"{name} is {value.kind.value}, the operator takes IntList"
            yield Misfit("dtype", problem, value.index, bug=_NUMBER_FOR_A_LIST if value.kind is ValueKind.INT else None)
        return
    if value.kind is not ValueKind.TENSOR or value.spec is None:
        yield Misfit("dtype", f"{name} is a {value.kind.value}, the operator takes a Tensor", value.index)
        return
    wanted = operand.dtype
    if wanted.startswith("="):
        other = call.tensors.get(wanted[1:])
        wanted = other.dtype if other is not None else "any"
    if wanted != "any" and value.spec.dtype not in wanted.split("|"):
        dtypes = wanted.replace("|", " or ")
        yield Misfit("dtype", f"{name} is {value.spec}, the operator takes {dtypes}", value.index)


def _wrong_orders(signature: Signature, found: list[_Named], call: OperatorCall) -> Iterator[Misfit]:
    for name, operand, value in found:
        if operand.form and value.spec is not None:
            fits, words = FORMS[operand.form]
            if not fits(value.spec):
                problem = f"{name} is {value.spec}, the operator takes it {words}"
                yield Misfit("dim-order", problem, value.index, bug=signature.bug)
    for relation in signature.relations:
        problem = relation(call)
        if problem:
            told = f"{problem}: {', '.join(f'{name} is {spec}' for name, spec in call.tensors.items())}"
            if isinstance(relation, ArgumentRelation):
                yield Misfit(relation.about, told, hint=relation.hint, bug=relation.bug)
            else:
                yield Misfit("dim-order", told)
