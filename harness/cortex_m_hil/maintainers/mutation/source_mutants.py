"""Mutants of C++ kernels: each has one small change, such as `<` to `<=`, in code.

A mutant has as many lines as the original and, if there is room, the same columns. So a change of code that is not
compiled for a target gives the same ELF, even though the compiler writes source positions into it.
"""

from __future__ import annotations

import difflib
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import tree_sitter_cpp
from tree_sitter import Language, Node, Parser

CPP: Final = Language(tree_sitter_cpp.language())


class SourceEdit(str, Enum):
    ARITHMETIC = "arithmetic"
    COMPARISON = "comparison"
    CONSTANT = "constant"
    INDEX = "index"
    DELETION = "deletion"


_OPERATORS: Final = {
    **dict.fromkeys(("+", "++", "+=", "-", "--", "-=", "*", "*=", "/", "/=", "%", "%="), SourceEdit.ARITHMETIC),
    **dict.fromkeys(("<<", "<<=", ">>", ">>=", "&", "&=", "|", "|=", "^", "^="), SourceEdit.ARITHMETIC),
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!=", "&&", "||", "!"), SourceEdit.COMPARISON),
}
_PAIRS: Final = (
    ("+", "-"), ("++", "--"), ("+=", "-="), ("<<", ">>"), ("<<=", ">>="), ("&", "|"), ("&=", "|="),
    ("<", "<="), (">", ">="), ("==", "!="), ("&&", "||"), ("*", "/"), ("*=", "/="),
)  # fmt: skip
_REPLACED: Final = {
    **{one: other for pair in _PAIRS for one, other in (pair, pair[::-1])},
    **{"*": "+", "*=": "+=", "%": "*", "%=": "*=", "^": "&", "^=": "&="},
}
_WITH_OPERATOR: Final = ("binary_expression", "assignment_expression", "update_expression")
# Nodes that are not mutated: no code, or checked by the compiler. No test can notice that an array became larger.
_LEFT_OUT: Final = frozenset({
    "array_declarator", "attribute_declaration", "attribute_specifier", "comment", "ERROR", "preproc_call",
    "preproc_def", "preproc_function_def", "preproc_include", "raw_string_literal", "static_assert_declaration",
    "string_literal", "template_argument_list", "template_parameter_list",
})  # fmt: skip
_CONDITIONAL: Final = ("preproc_if", "preproc_elif")
_REFUSING: Final = re.compile(r"(require|check|integer$|fail$)\w*")
_INTEGER: Final = re.compile(r"(-?)(0[xX][0-9a-fA-F]+|0|[1-9][0-9]*)([uUlL]*)")
_FLOAT: Final = re.compile(r"(-?)([0-9]+)(\.[0-9]*)([fF]?)")


@dataclass(frozen=True)
class SourceMutant:
    """A change of one place in a source file: `after` instead of `before`.

    Attributes:
        line, column: the place of the change, from 1.
        function: the function that contains it, "" if none.
        refuses: whether it is in code that refuses arguments, which only a program that should be refused can test.
        start, end, text: the bytes of the original that are replaced, and their replacement, which has as many lines.
    """

    path: str
    line: int
    column: int
    kind: SourceEdit
    before: str
    after: str
    function: str
    refuses: bool
    start: int = field(repr=False)
    end: int = field(repr=False)
    text: str = field(repr=False)

    @property
    def name(self) -> str:
        """Return a name that is unique among the mutants of the same sources: `kernels/linear.cpp:88:20 arithmetic`."""
        return f"{self.path}:{self.line}:{self.column} {self.kind.value}"

    @property
    def change(self) -> str:
        """Return the change in one line, for people."""
        return f"{_short(self.before)} → {_short(self.after) or 'nothing'}"

    def applied(self, source: str) -> str:
        data = source.encode()
        return (data[: self.start] + self.text.encode() + data[self.end :]).decode()

    def diff(self, source: str, folder: str = "") -> str:
        """Return the change as a unified diff, without the spaces that keep lines and columns."""
        data = source.encode()
        changed = data[: self.start] + self.after.encode() + data[self.start + len(self.before.encode()) :]
        names = f"a/{folder}{self.path}", f"b/{folder}{self.path}"
        lines = source.splitlines(keepends=True), changed.decode().splitlines(keepends=True)
        return "".join(difflib.unified_diff(*lines, *names))


def _short(text: str) -> str:
    return " ".join(text.split())


def mutants_of(path: str, source: str) -> list[SourceMutant]:
    """Return all mutants of a file, in the order of the file. Code that cannot be parsed has none."""
    data = source.encode()
    return list(_SourceWalk(path, data).mutants(Parser(CPP).parse(data).root_node, ""))


def drawn(mutants: Sequence[SourceMutant], count: int, seed: int) -> list[SourceMutant]:
    """Return `count` of the mutants (0: all) in an order that the seed determines; a smaller count gives a prefix."""
    shuffled = list(mutants)
    random.Random(seed).shuffle(shuffled)
    return shuffled[:count] if count else shuffled


class _SourceWalk:
    def __init__(self, path: str, data: bytes) -> None:
        self._path, self._data = path, data
        self._refuses = False

    def mutants(self, node: Node, function: str) -> Iterator[SourceMutant]:
        if node.type in _LEFT_OUT:
            return
        outside = self._refuses
        if node.type == "function_definition":
            function = function_name(node) or function
            self._refuses |= bool(_REFUSING.match(function))
        elif node.type == "call_expression":
            self._refuses |= bool(_REFUSING.match(self._called(node)))
        yield from self._of(node, function)
        condition = node.child_by_field_name("condition") if node.type in _CONDITIONAL else None
        for child in node.children:
            if child != condition:
                yield from self.mutants(child, function)
        self._refuses = outside

    def _called(self, call: Node) -> str:
        """Return the name of the called function, without its object."""
        function = call.child_by_field_name("function")
        field_name = function.child_by_field_name("field") if function is not None else None
        named = field_name or function
        return self._text(named) if named is not None else ""

    def _of(self, node: Node, function: str) -> Iterator[SourceMutant]:
        if node.type in _WITH_OPERATOR or node.type == "unary_expression":
            yield from self._operator(node, function)
        elif node.type in ("number_literal", "true", "false"):
            yield from self._constant(node, function)
        elif node.type == "subscript_expression":
            yield from self._index(node, function)
        elif node.type == "expression_statement" and self._text(node) != ";":
            blank = re.sub(r"[^\n]", " ", self._text(node))
            yield self._mutant(node, SourceEdit.DELETION, ";" + blank[1:], ";", function)

    def _operator(self, node: Node, function: str) -> Iterator[SourceMutant]:
        token = node.child_by_field_name("operator")
        if token is None or (text := self._text(token)) not in _OPERATORS:
            return
        if node.type == "unary_expression":
            argument = node.child_by_field_name("argument")
            negated = argument is not None and (text == "!" or (text == "-" and argument.type != "number_literal"))
            after = " " if negated else None
        else:
            after = _REPLACED.get(text)
        if after is not None:
            yield self._mutant(token, _OPERATORS[text], after, after.strip(), function)

    def _constant(self, node: Node, function: str) -> Iterator[SourceMutant]:
        text = self._text(node)
        if text in ("true", "false"):
            after = "false" if text == "true" else "true"
        elif whole := _INTEGER.fullmatch(text):
            sign, digits, suffix = whole.groups()
            value = int(digits, 0) + 1
            after = sign + (f"0x{value:0{len(digits) - 2}X}" if digits[:2] in ("0x", "0X") else str(value)) + suffix
        elif real := _FLOAT.fullmatch(text):
            after = f"{real[1]}{int(real[2]) + 1}{real[3]}{real[4]}"
        else:
            return
        yield self._mutant(node, SourceEdit.CONSTANT, after, after, function)

    def _index(self, node: Node, function: str) -> Iterator[SourceMutant]:
        indices = node.child_by_field_name("indices")
        items = [one for one in indices.named_children if one.type != "comment"] if indices is not None else []
        if len(items) == 1 and items[0].type != "number_literal":
            text = self._text(items[0])
            after = f"{text} + 1" if re.fullmatch(r"\w+", text) else f"({text}) + 1"
            yield self._mutant(items[0], SourceEdit.INDEX, after, after, function)

    def _text(self, node: Node) -> str:
        return self._data[node.start_byte : node.end_byte].decode()

    def _mutant(self, node: Node, kind: SourceEdit, text: str, after: str, function: str) -> SourceMutant:
        row, column = node.start_point
        end, fitted = self._fitted(node, text)
        return SourceMutant(
            self._path, row + 1, column + 1, kind, self._text(node), after, function, self._refuses,
            node.start_byte, end, fitted,
        )  # fmt: skip

    def _fitted(self, node: Node, text: str) -> tuple[int, str]:
        """Return the end of the bytes that a text replaces, and the text, fitted to the room of the original.

        A shorter text is padded with spaces; a longer text replaces spaces after the original, if there are any.
        """
        end, size = node.end_byte, len(text.encode())
        if size <= end - node.start_byte:
            return end, text + " " * (end - node.start_byte - size)
        room = re.compile(rb" *").match(self._data, end)
        assert room is not None
        missing = min(size - (end - node.start_byte), room.end() - end)
        following = self._data[end + missing : end + missing + 1]
        joins = missing and text[-1].isalnum() and following.isalnum()
        return end + missing - (1 if joins else 0), text


def function_name(definition: Node) -> str:
    """Return a function's name without its namespace or class; "" where it has none, such as a conversion."""
    declarator = definition.child_by_field_name("declarator")
    while declarator is not None and declarator.type not in ("identifier", "field_identifier"):
        named = declarator.child_by_field_name("declarator") or declarator.child_by_field_name("name")
        # A function that returns a reference has its declarator as a child without a field.
        declarator = named or (declarator.named_child(0) if declarator.type == "reference_declarator" else None)
    return declarator.text.decode() if declarator is not None and declarator.text is not None else ""
