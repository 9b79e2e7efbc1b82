"""The signature of an operator: its operands, and the relations between them.

The tables of signatures use `signature`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.schema import ValueKind
from cortex_m_hil.program.tensor import TensorSpec
from cortex_m_hil.program.values import Instruction, Value

About = Literal["dtype", "dim-order", "arguments"]


@dataclass(frozen=True, slots=True)
class Misfit:
    """An argument of an instruction that its operator does not accept.

    Attributes:
        about: whether the dtype, the dim order or other arguments are wrong.
        problem: the problem in words.
        value: the index of the value; -1 where the misfit is not about one value.
        hint: the next step; "": the general one for findings of lint.
        bug: the number of the known bug of ExecuTorch that is the cause; None: no known bug.
    """

    about: About
    problem: str
    value: int = -1
    hint: str = ""
    bug: int | None = None


@dataclass(frozen=True)
class OperatorCall:
    """An instruction with its tensors by their names in the schema."""

    file: PteFile
    instruction: Instruction
    tensors: Mapping[str, TensorSpec]

    def __getitem__(self, name: str) -> TensorSpec:
        return self.tensors[name]

    def value(self, at: int) -> Value | None:
        """Return an argument by its number in the schema, counted from the end if negative.

        None if the call has fewer.
        """
        arguments = self.instruction.args[:-1]  # the last argument is the value that the operator returns
        return self.file.values[arguments[at]] if -len(arguments) <= at < len(arguments) else None

    def ints(self, at: int) -> tuple[int, ...] | None:
        """Return the numbers of a list argument; None where the argument is no list of numbers."""
        value = self.value(at)
        return self.file.ints(value.index) if value is not None and value.kind is ValueKind.INT_LIST else None


Relation = Callable[[OperatorCall], str]  # returns a violation in words, or ""; about dim orders by default


@dataclass(frozen=True)
class ArgumentRelation:
    """A relation between arguments, and the report on a call that violates it.

    Attributes:
        relation: the function that checks a call.
        hint: the next step; "": the general one for findings of lint.
        about: whether dtypes, dim orders or other arguments are wrong in a violation.
        bug: the number of the known bug of ExecuTorch that causes violations; its workaround is the hint.
    """

    relation: Relation
    hint: str = ""
    about: About = "arguments"
    bug: int | None = None

    def __call__(self, call: OperatorCall) -> str:
        return self.relation(call)


def of_arguments(hint: str, about: About = "arguments") -> Callable[[Relation], Relation]:
    return lambda relation: ArgumentRelation(relation, hint, about)


def of_bug(number: int, about: About = "arguments") -> Callable[[Relation], Relation]:
    """Return a decorator for a relation whose violations come from a known bug of ExecuTorch."""
    return lambda relation: ArgumentRelation(relation, about=about, bug=number)


@dataclass(frozen=True)
class Operand:
    """A tensor or list among an operator's arguments.

    Attributes:
        at: the argument's number in the schema, counted from the end if negative.
        name: the argument's name in the schema.
        dtype: names of dtypes joined by "|", or "any", or "=NAME" for the dtype of operand NAME, or "ints" for a list
            of numbers.
        form: the required dim order, a key of `FORMS`; "" for any dim order.
        optional: whether the argument may be None.
    """

    at: int
    name: str
    dtype: str
    form: str = ""
    optional: bool = False


@dataclass(frozen=True)
class Signature:
    """The arguments that an operator accepts.

    Attributes:
        operands: the tensors and lists among the arguments.
        relations: the relations between arguments that must hold.
        bug: the number of the known bug of ExecuTorch that is the cause if an operand has another form.
    """

    operands: tuple[Operand, ...]
    relations: tuple[Relation, ...] = ()
    bug: int | None = None


def signature(operands: str, *relations: Relation, bug: int | None = None) -> Signature:
    """Return a signature of `operands`, "number name dtype [form]" separated by commas, and of relations between them.

    An operand whose name ends in "?" may be None. `bug` is the attribute of `Signature`.
    """
    found = []
    for words in (text.split() for text in operands.split(",")):
        at, name, dtype, form = [*words, ""][:4]
        found.append(Operand(int(at), name.rstrip("?"), dtype, form, name.endswith("?")))
    return Signature(tuple(found), relations, bug)


def same_for(operators: str, signature: Signature) -> Mapping[str, Signature]:
    """Return a table with one signature for several operators, whose names are separated by spaces."""
    return dict.fromkeys(operators.split(), signature)
