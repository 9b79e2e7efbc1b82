"""Finds the operators to which a place in the kernels' sources belongs; by names only, so it may find too many."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tree_sitter import Node, Parser

from cortex_m_hil.maintainers.mutation.source_mutants import CPP, SourceMutant, function_name

_ROW: Final = re.compile(r'^HIL_OPERATOR\("([^"]+)", (\w+)\)', re.M)
_TYPES: Final = ("struct_specifier", "class_specifier", "enum_specifier")
_NAMES: Final = ("identifier", "field_identifier", "type_identifier", "namespace_identifier")


@dataclass(frozen=True, eq=False)
class _Definition:
    """A function, a type, or a variable outside of both.

    Attributes:
        first, last: lines, from 1.
        names, calls: the names that occur in the definition, and the names that it calls.
        takes: the names, including types, in a function's parameters.
    """

    path: str
    name: str
    function: bool
    type: bool
    first: int
    last: int
    names: frozenset[str]
    calls: frozenset[str]
    takes: frozenset[str]


class KernelCalls:
    """The operators that reach each definition in the kernels' sources.

    `sources` are the contents of files by path, `rows` is the text of operators.inc. Operators for tests are left out.
    """

    def __init__(self, sources: Mapping[str, str], rows: str) -> None:
        kernels = {operator: kernel for operator, kernel in _ROW.findall(rows) if not operator.startswith("hil_test::")}
        self._kernels = frozenset(kernels.values())
        roots = {path: Parser(CPP).parse(text.encode()).root_node for path, text in sources.items()}
        self._definitions = [one for path, root in roots.items() for one in _definitions(path, root)]
        self._public = {name for path, root in roots.items() if path.endswith(".h") for name in _declared(root)}
        self._own = {path: {one.name for one in self._in(path)} for path in sources}
        self._types = {path: {one.name for one in self._in(path) if one.type} for path in sources}
        self._functions = {path: [one for one in self._in(path) if one.function] for path in sources}
        self._operators: dict[_Definition, set[str]] = {one: set() for one in self._definitions}
        for operator, kernel in kernels.items():
            for one in self._definitions:
                if one.name == kernel and one.function and one.path.endswith(".cpp"):
                    self._reach(one, operator)

    def operators(self, mutant: SourceMutant) -> frozenset[str]:
        """Return the registered names of the operators that reach a mutant.

        For a mutant outside of all definitions these are all operators of the file.
        """
        here = self._in(mutant.path)
        around = [one for one in here if one.first <= mutant.line <= one.last] or here
        return frozenset().union(*(self._operators[one] for one in around))

    def _in(self, path: str) -> list[_Definition]:
        return [one for one in self._definitions if one.path == path]

    def _reach(self, definition: _Definition, operator: str) -> None:
        waiting = [definition]
        while waiting:
            one = waiting.pop()
            if operator not in self._operators[one]:
                self._operators[one].add(operator)
                waiting += self._used_by(one)

    def _used_by(self, user: _Definition) -> Iterator[_Definition]:
        """Yield the definitions that a definition uses, found by their names.

        A kernel is used by no other definition. A function of another file is found only if a header declares it.
        """
        own = self._own[user.path] - self._kernels
        for one in self._definitions:
            if one.path == user.path:
                known = one.name not in self._kernels
            else:
                known = one.name not in own and (one.path.endswith(".h") or one.name in self._public - self._kernels)
            by_name = not one.function or one.path == user.path
            if known and one.name in (user.names if by_name else user.calls) and self._may_be_given(user, one):
                yield one

    def _may_be_given(self, user: _Definition, function: _Definition) -> bool:
        """Tell whether a definition that uses a name may mean this overload.

        Of overloads in one file, it means those with parameter types of that file that it names, if there are any.
        """
        types = self._types[function.path]
        overloads = [one for one in self._functions[function.path] if one.name == function.name]
        if len(overloads) < 2 or not any(one.takes & types & user.names for one in overloads):
            return True
        return bool(function.takes & types & user.names)


def _definitions(path: str, node: Node) -> Iterator[_Definition]:
    """Yield the definitions of a file; of a struct both itself and its functions."""
    for child in node.children:
        name = _name(child)
        if name:
            function = child.type == "function_definition"
            lines = child.start_point[0] + 1, child.end_point[0] + 1
            names, calls, takes = frozenset(_names(child)), frozenset(_calls(child)), frozenset(_takes(child))
            yield _Definition(path, name, function, child.type in _TYPES, *lines, names, calls, takes)
        if child.type != "function_definition":
            yield from _definitions(path, child)


def _name(node: Node) -> str:
    if node.type in _TYPES:
        return _text(node.child_by_field_name("name"))
    return function_name(node) if node.type in ("function_definition", "init_declarator") else ""


def _all_nodes(node: Node) -> Iterator[Node]:
    """Yield a node and all its descendants, in the order of the source."""
    yield node
    for child in node.children:
        yield from _all_nodes(child)


def _names(node: Node) -> Iterator[str]:
    return (_text(one) for one in _all_nodes(node) if one.type in _NAMES)


def _calls(node: Node) -> Iterator[str]:
    for one in _all_nodes(node):
        if one.type == "call_expression":
            called = one.child_by_field_name("function")
            while called is not None and called.type not in _NAMES:
                called = called.child_by_field_name("field") or called.child_by_field_name("name")
            yield _text(called)


def _declared(node: Node) -> Iterator[str]:
    """Return the names of functions that are declared or defined."""
    declarators = (one for one in _all_nodes(node) if one.type == "function_declarator")
    return (_text(one.child_by_field_name("declarator")) for one in declarators)


def _takes(function: Node) -> Iterator[str]:
    """Yield the names, including types, in a function's parameters."""
    declarator = function.child_by_field_name("declarator")
    while declarator is not None and declarator.type != "function_declarator":
        declarator = declarator.child_by_field_name("declarator")
    parameters = declarator.child_by_field_name("parameters") if declarator is not None else None
    if parameters is not None:
        yield from _names(parameters)


def _text(node: Node | None) -> str:
    return node.text.decode() if node is not None and node.text is not None else ""
