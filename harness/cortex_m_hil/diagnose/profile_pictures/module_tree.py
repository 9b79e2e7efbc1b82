"""The operators of a program as a tree of the user's modules, in the order of the program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

Path = tuple[str, ...]


@dataclass(frozen=True)
class Node:
    """A line of the tree: a module, an operator, or an input or output of the program.

    Attributes:
        name: the path below the parent; of an operator that is in no module of its own "".
        path: the whole path.
        depth: the number of modules around it.
        parent: the position of the module around it; -1 where there is none.
        instructions: the instructions of a module or operator; of input k of the program -1 - k, of output k the number
            of instructions + k.
        is_module: whether it is a module, and so has lines below it.
    """

    name: str
    path: str
    depth: int
    parent: int
    instructions: tuple[int, ...]
    is_module: bool = False


def tree(modules: Sequence[str], inputs: int, outputs: int) -> tuple[Node, ...]:
    """Return the lines of the tree, each module before what is in it.

    Args:
        modules: the module's path of each instruction; "" where it is not known.
        inputs: the number of the program's inputs.
        outputs: the number of its outputs.
    """
    nodes = [Node(f"input {number}", "", 0, -1, (-1 - number,)) for number in range(inputs)]
    items = [(tuple(filter(None, path.split("."))), index) for index, path in enumerate(modules)]
    return (
        *nodes,
        *_lines(items, (), -1, inputs),
        *(Node(f"output {number}", "", 0, -1, (len(modules) + number,)) for number in range(outputs)),
    )


def _lines(items: Sequence[tuple[Path, int]], above: Path, parent: int, at: int, depth: int = 0) -> Iterator[Node]:
    """Yield the lines of instructions.

    Args:
        items: the instructions, each with its path below the parent.
        above: the parent's path.
        parent: the parent's position; -1 for none.
        at: the position of the first line.
        depth: the number of modules around it.
    """
    groups: dict[str | int, list[tuple[Path, int]]] = {}
    for path, index in items:
        groups.setdefault(path[0] if path else index, []).append((path, index))
    for group in groups.values():
        if len(group) == 1:
            [(path, index)] = group
            yield Node(".".join(path), ".".join((*above, *path)), depth, parent, (index,))
            at += 1
        else:
            columns = zip(*(path for path, _ in group), strict=False)
            common = tuple(column[0] for column in takewhile(lambda one: len(set(one)) == 1, columns))
            yield Node(
                ".".join(common),
                ".".join((*above, *common)),
                depth,
                parent,
                tuple(index for _, index in group),
                is_module=True,
            )
            below = [(path[len(common) :], index) for path, index in group]
            inside = list(_lines(below, (*above, *common), at, at + 1, depth + 1))
            yield from inside
            at += 1 + len(inside)


def opened_to(nodes: Sequence[Node], most: int) -> int:
    """Return the largest depth whose lines, with all above them, are at most `most`; at least 0."""
    deepest = max((one.depth for one in nodes), default=0)
    fits = (depth for depth in range(deepest, 0, -1) if sum(one.depth <= depth for one in nodes) <= most)
    return next(fits, 0)
