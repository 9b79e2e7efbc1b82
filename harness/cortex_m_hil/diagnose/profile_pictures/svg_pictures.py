"""The pictures of a profile as SVG: graph, cost, memory, error and flash.

Those along the program have one axis: a column for each instruction, the first for the inputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final
from xml.sax.saxutils import escape

from cortex_m_hil.diagnose.profile_pictures.graph_table import Graph, Line, shade_of_quanta
from cortex_m_hil.diagnose.profile_pictures.picture_data import SILENT, PictureData, share_text
from cortex_m_hil.errors.text import in_decibels, number_text, printable
from cortex_m_hil.program.plan_picture import LEFT, PICTURE_STYLE, WIDTH, framed, plan_svg

STYLE: Final = f"""{PICTURE_STYLE}
.picture .heat {{ fill: #0b5fbf; stroke: #0b5fbf; }} .picture .edge {{ fill: none; stroke: #888; }}
.picture .fault {{ fill: #c00; }} .picture .noise {{ fill: #b35900; }} .picture .module {{ font-weight: bold; }}
.picture .weights {{ fill: #9ecae1; }} .picture .program {{ fill: #fdd0a2; }} .picture .kernels {{ fill: #a1d99b; }}
.picture .thin {{ stroke: none; }}
@media screen and (prefers-color-scheme: dark) {{
.picture .heat {{ fill: #79c0ff; stroke: #79c0ff; }} .picture .fault {{ fill: #f66; }}
.picture .noise {{ fill: #f0883e; }} .picture .weights {{ fill: #31688e; }} .picture .program {{ fill: #9a6324; }}
.picture .kernels {{ fill: #35784a; }} }}
"""
_THIN: Final = 3  # pixels: the line around a narrower box would hide it
_BAR: Final = 72  # height of a plot of bars, in pixels
_LEAST: Final = 0.03  # height of a bar of known noise, where it would not be seen
_ROW: Final = 22  # height of a row of the graph
_TOP: Final = 40  # height of the graph's first row
_GUTTER: Final = 92  # width of the part of the graph with its edges


class Picture(str, Enum):
    """The pictures that can be drawn alone."""

    GRAPH = "graph"
    COST = "cost"
    MEMORY = "memory"
    ERROR = "error"
    FLASH = "flash"


def drawn(picture: Picture, one: PictureData, style: str = STYLE) -> str:
    """Return a picture as SVG.

    Args:
        picture: which.
        one: what it is drawn from.
        style: CSS in the picture; "" in a page that has STYLE.
    """
    if picture is Picture.MEMORY:
        return plan_svg(one.program, one.memory, style)
    height, label, elements = {
        Picture.GRAPH: _graph, Picture.COST: _cost, Picture.ERROR: _error, Picture.FLASH: _flash
    }[picture](one)  # fmt: skip
    return framed(height, label, elements, style)


_Elements = tuple[int, str, Iterable[str]]


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{escape(text)}</text>'


def _box(kind: str, x: float, y: float, width: float, height: float, title: str, more: str = "") -> str:
    box = f'x="{x:.1f}" y="{y:.1f}" width="{max(0.5, width):.1f}" height="{height:.1f}"'
    kind += " thin" * (width < _THIN)
    return f'<rect class="{kind}" {box}{more}><title>{escape(title)}</title></rect>'


# --- along the program -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Bars:
    """Bars over the instructions.

    Attributes:
        title: what they show, with its unit.
        most: the text at the top of the axis.
        least: the text at its bottom.
        heights: for each instruction with a bar its height, 0 to 1, its class and its title.
    """

    title: str
    most: str
    least: str
    heights: Mapping[int, tuple[float, str, str]]

    @property
    def height(self) -> int:
        return _BAR + 28

    def elements(self, count: int, top: float) -> Iterator[str]:
        step, y = WIDTH / (count + 1), top + 20 + _BAR
        yield _text(8, top + 12, self.title)
        yield f'<line class="axis" x1="{LEFT}" y1="{y}" x2="{LEFT + WIDTH}" y2="{y}"/>'
        yield _text(LEFT - 6, top + 30, self.most, ' text-anchor="end"')
        yield _text(LEFT - 6, y, self.least, ' text-anchor="end"')
        for index, (share, kind, title) in self.heights.items():
            height = _BAR * share
            if height > 0:
                yield _box(kind, LEFT + (index + 1) * step, y - height, step, height, title)


def _cost(one: PictureData) -> _Elements:
    unit, source = _ticks_unit(one)
    most = max((row.ticks for row in one.rows), default=0)
    heights = {
        row.index: (max(0.0, row.ticks / max(1, most)), "heat", f"{printable(one.program.named(row.index))}: {cost}")
        for row in one.rows
        for cost in (f"{number_text(row.ticks)} {unit}, {share_text(row.share)} of the run",)
    }
    bars = _Bars(f"{unit} of each operator, {source}", number_text(most), "0", heights)
    return bars.height, bars.title, bars.elements(len(one.rows), 0)


def _ticks_unit(one: PictureData) -> tuple[str, str]:
    figure = one.profile.figures["ticks"]
    return figure.unit, figure.source.value


def _error(one: PictureData) -> _Elements:
    quanta, noise = {}, {}
    for index, error in one.errors.items():
        named = printable(one.program.named(index))
        if error.quanta is not None:
            kind, height = "fault" if error.is_at_fault else "heat", shade_of_quanta(error.quanta)
            quanta[index] = height, kind, f"{named}: {error.quanta:g} quanta from ExecuTorch's Python operators"
        if error.sqnr_db is not None:
            height = min(1.0, max(_LEAST, 1 - error.sqnr_db / SILENT))
            noise[index] = height, "noise", f"{named}: SQNR {in_decibels(error.sqnr_db)}"
    departs = any(height for height, _, _ in quanta.values())
    title = "quanta from ExecuTorch's Python operators, on a logarithmic scale"
    kernels = [_Bars(title, "255 or more", "0", quanta)] if departs else []
    title = "noise against the float module, as SQNR: the higher, the more noise; no bar: not known"
    bars = [*kernels, _Bars(title, "0 dB or less", f"{SILENT:g} dB or more", noise)]
    elements = [element for at, each in enumerate(bars) for element in each.elements(len(one.rows), at * each.height)]
    return sum(each.height for each in bars), "Error along the program", elements


# --- flash -----------------------------------------------------------------------------------------------


def _flash(one: PictureData) -> _Elements:
    whole = sum(part.nbytes for part in one.flash)
    return 76, "Flash", _flash_elements(one, whole)


def _flash_elements(one: PictureData, whole: int) -> Iterator[str]:
    x = 8.0
    scale = (LEFT + WIDTH - 8) / max(1, whole)
    legend = 8.0
    for group, nbytes in one.flash_groups.items():
        label = f"{group}: {number_text(nbytes)} bytes, {share_text(nbytes / max(1, whole))}"
        yield _box(group, legend, 8, 12, 12, label)
        yield _text(legend + 18, 18, label)
        legend += 40 + 6.5 * len(label)
    yield _text(legend, 18, f"all: {number_text(whole)} bytes, computed from the files")
    for part in one.flash:
        what = printable(part.what)
        width = part.nbytes * scale
        at = f' data-at="{part.instruction}"' if part.instruction >= 0 else ""
        yield _box(part.group, x, 28, width, 40, f"{part.group}, {what}: {number_text(part.nbytes)} bytes", at)
        if width > 7 * len(what):
            yield _text(x + 4, 52, what)
        x += width


# --- the graph -------------------------------------------------------------------------------------------


def _graph(one: PictureData) -> _Elements:
    graph = Graph(one)
    return _ROW * len(graph.lines) + _TOP, "Graph, coloured by cost", _graph_elements(graph)


def _graph_elements(graph: Graph) -> Iterator[str]:
    one, lines = graph.one, graph.lines
    unit, source = _ticks_unit(one)
    where = f"{printable(one.program.name)} on {printable(one.profile.ran.display_name)}"
    yield _text(8, 16, f"{where}: {unit}, {source}; dark: the most")
    heights = [_TOP + _ROW * number for number in range(len(lines))]
    at = {line.node.instructions[0]: y for line, y in zip(lines, heights, strict=True) if not line.node.is_module}
    order = {index: number for number, index in enumerate(at)}
    for begin, end in one.edges:
        yield f'<path class="edge" d="{arc(at[begin], at[end], order[end] - order[begin])}"/>'
    for line, y in zip(lines, heights, strict=True):
        yield from _graph_line(line, y, graph, unit)


def _graph_line(line: Line, y: int, graph: Graph, unit: str) -> Iterator[str]:
    x = _GUTTER + 16 + 14 * line.node.depth
    if line.node.is_module:
        yield _text(x, y + 4, line.name, ' class="module"')
        return
    shade = max(0.0, line.ticks / max(1, graph.most_ticks))
    yield f'<circle class="heat" cx="{_GUTTER - 8}" cy="{y}" r="6" fill-opacity="{shade:.2f}"/>'
    yield _text(x, y + 4, f"{line.name} {line.operator}".strip())
    if line.rows:
        yield _text(720, y + 4, f"{number_text(line.ticks)} {unit}", ' text-anchor="end"')
        width = 240 * max(0.0, line.ticks / max(1, graph.most_ticks))
        yield _box("heat", 732, y - 5, width, 10, share_text(line.share))
        yield _text(LEFT + WIDTH, y + 4, share_text(line.share), ' text-anchor="end"')


def arc(begin: float, end: float, apart: int) -> str:
    """Return the path of an edge between two lines' heights, `apart` lines from each other; the page draws the same."""
    x = _GUTTER - 8
    if apart == 1:
        return f"M{x} {begin:g}V{end:g}"
    out = x - min(x - 4, 8 * math.log2(1 + abs(apart)))
    return f"M{x} {begin:g}C{out:.0f} {begin:g} {out:.0f} {end:g} {x} {end:g}"
