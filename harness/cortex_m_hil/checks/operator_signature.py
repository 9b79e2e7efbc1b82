"""The signature of an operator: its operands, and the relations between them. Tables are written with `signature`."""

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
    """Something that an instruction has and its operator does not take.

    Attributes:
        about: dtype, dim order or other arguments.
        problem: in words.
        value: the index of the value; -1 where it is not about one value.
        hint: the next step, in place of that of its rule; "" where that applies.
        bug: the number of the known bug of ExecuTorch that it comes from; None where none is known.
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
        """Return an argument by its number in the schema, from the end if negative; None if the call is too short."""
        arguments = self.instruction.args[:-1]  # the last one is what the operator returns
        return self.file.values[arguments[at]] if -len(arguments) <= at < len(arguments) else None

    def ints(self, at: int) -> tuple[int, ...] | None:
        """Return the numbers of a list argument; None where it is no list of numbers."""
        value = self.value(at)
        return self.file.ints(value.index) if value is not None and value.kind is ValueKind.INT_LIST else None


Relation = Callable[[OperatorCall], str]  # returns what is wrong, "" if nothing; about dim orders by default


@dataclass(frozen=True)
class ArgumentRelation:
    """A relation between arguments, and what is told of a call that violates it.

    Attributes:
        relation: the relation.
        hint: the next step, in place of that of its rule.
        about: what is wrong then.
        bug: the number of the known bug of ExecuTorch that such a call comes from, whose workaround is the hint.
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
    """Return a decorator of a relation that calls violate because of a known bug of ExecuTorch."""
    return lambda relation: ArgumentRelation(relation, about=about, bug=number)


@dataclass(frozen=True)
class Operand:
    """A tensor or list among an operator's arguments.

    Attributes:
        at: its number in the schema, from the end if negative.
        name: its name in the schema.
        dtype: names joined by "|", "any", "=NAME" for that of another operand, or "ints" for a list of numbers.
        form: a key of `FORMS`; "" for any dim order.
        optional: it may be None.
    """

    at: int
    name: str
    dtype: str
    form: str = ""
    optional: bool = False


@dataclass(frozen=True)
class Signature:
    """What an operator takes.

    Attributes:
        operands: its tensors and lists.
        relations: those between them.
        bug: the number of the known bug of ExecuTorch that an operand in another form comes from.
    """

    operands: tuple[Operand, ...]
    relations: tuple[Relation, ...] = ()
    bug: int | None = None


def signature(operands: str, *relations: Relation, bug: int | None = None) -> Signature:
    """Return a signature of `operands`, "number name dtype [form]" separated by commas, and of relations between them.

    An operand whose name ends in "?" may be None. `bug` is as of `Signature`.
    """
    found = []
    for words in (text.split() for text in operands.split(",")):
        at, name, dtype, form = [*words, ""][:4]
        found.append(Operand(int(at), name.rstrip("?"), dtype, form, name.endswith("?")))
    return Signature(tuple(found), relations, bug)


def same_for(operators: str, signature: Signature) -> Mapping[str, Signature]:
    """Return the rows of operators, their names separated by spaces, that have one signature."""
    return dict.fromkeys(operators.split(), signature)
