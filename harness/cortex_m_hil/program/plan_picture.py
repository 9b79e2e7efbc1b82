"""A picture of a program's memory plan: the bytes of the arena that each tensor takes, and while which instructions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from cortex_m_hil.errors.text import counted, number_text, printable
from cortex_m_hil.program.lifetimes import Extent, Lifetimes
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.targets.memory import Memory

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 960, 420, 96, 48, 40  # of the picture's plot and margins, in pixels
_CHARACTER: Final = 7  # pixels of a character in a label
_LINE: Final = 14  # pixels of a line of text
_COLOURS: Final = 3  # they mean nothing: they tell neighbours apart
PICTURE_STYLE: Final = """
.picture { font: 11px sans-serif; fill: #222; background: #fff; } .picture text { pointer-events: none; }
.picture .axis { stroke: #888; } .picture .limit { stroke: #888; stroke-dasharray: 4; }
.picture rect { stroke: #fff; stroke-width: .5; } .picture .peak { fill: none; stroke: #c00; stroke-width: 1; }
.picture .c0 { fill: #dadaeb; } .picture .c1 { fill: #bcbddc; } .picture .c2 { fill: #ead3ea; }
.picture .state { fill: #bdbdbd; }
@media screen and (prefers-color-scheme: dark) {
.picture { fill: #eee; background: #1c1c1c; } .picture rect { stroke: #1c1c1c; } .picture .peak { stroke: #f66; }
.picture .c0 { fill: #5e548e; } .picture .c1 { fill: #45457f; } .picture .c2 { fill: #71497a; }
.picture .state { fill: #555; } }
"""
"""The style of this picture, and of others that are drawn with the same classes in an element of class `picture`."""


@dataclass(frozen=True)
class Tensor:
    """A tensor in the arena: `extent` are its bytes, held while instructions `first` to `last` run (-1: the inputs)."""

    value: int
    extent: Extent
    first: int
    last: int


def tensors(program: Program) -> tuple[Tensor, ...]:
    """Return the tensors of a plan, ordered by their first instruction.

    A tensor that is live several times is several items; one written in place of another begins there.
    """
    found: list[Tensor] = []
    open_: dict[Extent, tuple[int, int]] = {}  # value and first instruction
    for position in range(-1, len(program.file.instructions) + 1):
        held: dict[Extent, int] = {}
        for extent, value in _held(program, position):
            held.setdefault(extent, value)  # what is live afterwards comes first
        for extent in [one for one, (value, _) in open_.items() if held.get(one) != value]:
            value, first = open_.pop(extent)
            found.append(Tensor(value, extent, first, position - 1))
        for extent, value in held.items():
            open_.setdefault(extent, (value, position))
    return tuple(sorted(found, key=lambda one: (one.first, one.extent)))


def _held(program: Program, position: int) -> Iterator[tuple[Extent, int]]:
    """Yield the bytes that are in use while an instruction runs, each range with its value.

    After the last instruction nothing is in use.
    """
    if position < len(program.file.instructions):
        for value in program.lifetimes.in_use(position):
            if (extent := program.lifetimes.extent(value)) is not None:
                yield extent, value


def plan_svg(program: Program, memory: Memory | None = None, style: str = PICTURE_STYLE) -> str:
    """Return the picture as SVG: time from left to right, the arena's bytes from bottom to top, its peak marked.

    Each tensor has its dtype, shape, bytes, offset and lifetime as a label that a browser shows. Each planned buffer is
    a band of its own.

    Args:
        program: the program.
        memory: the target's memory, whose banks give the bands their names; None: a band is named by its `mem_id`.
        style: CSS in the picture; "" in a page that has PICTURE_STYLE.
    """
    picture = _Picture(program, memory)
    return framed(TOP + HEIGHT + BOTTOM, "Memory plan", picture.elements(), style)


def framed(height: int, label: str, elements: Iterable[str], style: str = PICTURE_STYLE) -> str:
    """Return the SVG of elements that lie in the width of the memory plan's picture.

    Args:
        height: the picture's height in pixels.
        label: what the picture shows, in words, for those who do not see it.
        elements: the SVG of the elements.
        style: as for `plan_svg`.
    """
    width = LEFT + WIDTH + 8
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" role="img" aria-label={quoteattr(label)} {size}>'
    return "\n".join([head, *([f"<style>{style}</style>"] if style else []), *elements, "</svg>"])


@dataclass(frozen=True)
class _Picture:
    program: Program
    memory: Memory | None

    @property
    def file(self) -> PteFile:
        return self.program.file

    @property
    def lifetimes(self) -> Lifetimes:
        return self.program.lifetimes

    def elements(self) -> Iterator[str]:
        peak = self.lifetimes.peak()
        name = escape(printable(self.program.name))
        operators = counted(len(self.file.instructions), "operator")
        size, most = number_text(self.lifetimes.size), number_text(peak.nbytes)
        board = "; left: the board's memory" if self.memory is not None else ""
        yield f'<text x="8" y="16">{name}: {size} bytes planned, {operators}; a box for each tensor{board}</text>'
        until = f" to {self._instruction(peak.last)}" if peak.last > peak.instruction else ""
        where = escape(printable(f"{self._instruction(peak.instruction)}{until}"))
        yield f'<text x="8" y="32">peak (red): {most} bytes are held at {where}</text>'
        yield from self._bands()
        shown = tensors(self.program)
        for number, one in enumerate(shown):
            yield self._box(number, one)
        x, width = self._x(peak.instruction), self._x(peak.last + 1) - self._x(peak.instruction)
        yield f'<rect class="peak" x="{x:.1f}" y="{TOP}" width="{width:.1f}" height="{HEIGHT}"/>'
        for one in shown:
            yield from self._label(one)
        yield f'<text x="{LEFT}" y="{TOP + HEIGHT + 16}">inputs</text>'
        yield f'<text x="{LEFT + WIDTH}" y="{TOP + HEIGHT + 16}" text-anchor="end">last operator</text>'

    @property
    def _steps(self) -> int:
        return len(self.file.instructions) + 1  # the first column is the time before all instructions

    def _x(self, position: int) -> float:
        return LEFT + (position + 1) * WIDTH / self._steps

    def _y(self, offset: int) -> float:
        return TOP + HEIGHT * (1 - offset / max(1, self.lifetimes.size))

    def _bands(self) -> Iterator[str]:
        """Yield the SVG of the frame, and of the line at which each planned buffer begins."""
        bases = self.file.planned_bases
        for number, size in enumerate(self.file.planned_sizes[1:], 1):
            y = self._y(bases[number])
            yield f'<line class="limit" x1="{LEFT}" y1="{y:.1f}" x2="{LEFT + WIDTH}" y2="{y:.1f}"/>'
            yield f'<text x="8" y="{y - 4 - _LINE:.1f}">{escape(printable(self._band(number)))}</text>'
            yield f'<text x="8" y="{y - 4:.1f}">{number_text(size)} bytes</text>'
        yield f'<line class="axis" x1="{LEFT}" y1="{TOP}" x2="{LEFT}" y2="{TOP + HEIGHT}"/>'

    def _band(self, number: int) -> str:
        banks = () if self.memory is None else self.memory.banks
        place = number - 1 if len(banks) > 1 else 0
        return banks[place].region if place < len(banks) else f"mem_id {number}"

    def _place(self, one: Tensor) -> tuple[float, float, float, float]:
        """Return x, y, width and height of a tensor's box."""
        x, y = self._x(one.first), self._y(one.extent.end)
        return x, y, self._x(one.last + 1) - x, self._y(one.extent.begin) - y

    def _box(self, number: int, one: Tensor) -> str:
        x, y, width, height = self._place(one)
        spec, nbytes = str(self.file.values[one.value].spec), number_text(one.extent.end - one.extent.begin)
        kind = "state" if one.value in self.file.states else f"c{number % _COLOURS}"
        made, until = self._instruction(one.first), self._instruction(one.last)
        title = escape(printable(f"{spec}: {nbytes} bytes at {number_text(one.extent.begin)}, from {made} to {until}"))
        box = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
        return f'<rect class="{kind}" {box}><title>{title}</title></rect>'

    def _label(self, one: Tensor) -> Iterator[str]:
        """Yield what fits into a tensor's box: as much of the end of its module's path as does, and its shape."""
        x, y, width, height = self._place(one)
        names = self._owner(one.first).split(".")
        ends = (".".join(names[number:]) for number in range(len(names)))
        shape = str(self.file.values[one.value].spec).partition(" dim order")[0]
        fitting = (next((each for each in of if width >= _CHARACTER * len(each)), "") for of in (ends, (shape,)))
        for number, text in enumerate(filter(None, fitting), 1):
            if height >= number * _LINE:
                yield f'<text x="{x + 3:.1f}" y="{y + number * _LINE - 3:.1f}">{escape(printable(text))}</text>'

    def _instruction(self, position: int) -> str:
        return "the inputs" if position < 0 else f"operator {position}, {self.program.named(position)}"

    def _owner(self, position: int) -> str:
        """Return the module that writes at a position, else the operator."""
        if position < 0:
            return "inputs"
        step = self.program.partition.steps[position]
        return step.module or step.operator.rpartition("::")[2].removesuffix(".out")
