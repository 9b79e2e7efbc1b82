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
from cortex_m_hil.diagnose.profile_pictures.picture_data import GROUPS, SILENT, PictureData, share_text
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
# Measures are in pixels, text is placed by the left end of its baseline.
_MARGIN: Final = 8  # left of a picture
_INDENT: Final = 4  # of text in a box, and of the baseline below the middle of a line
_THIN: Final = 3  # the line around a narrower box would hide it
_LETTER: Final = 7  # width of a letter, with some room
_BAR: Final = 72  # height of a plot of bars
_BAR_TITLE: Final = 20  # height of the title above a plot of bars
_BELOW_BARS: Final = 8
_AXIS_GAP: Final = 6  # between the numbers of an axis and its left end
_LEAST_NOISE: Final = 0.03  # share of _BAR: a lower bar of noise would not be seen
_LEGEND_BOX: Final = 12  # width and height of a legend's box
_LEGEND_GAP: Final = 22  # between two parts of a legend
_LEGEND_LINE: Final = _MARGIN + 10  # from the top, the baseline of a legend
_FLASH_TOP, _FLASH_HEIGHT = 28, 40  # of the boxes of flash
_ROW: Final = 22  # height of a row of the graph
_TOP: Final = 40  # height of the graph's first row
_GUTTER: Final = 92  # width of the part of the graph with its edges
_NODE: Final = _GUTTER - 8  # from the left, the middle of a node's circle
_RADIUS: Final = 6  # of that circle
_DEPTH: Final = 14  # by which a module's children stand to the right of it
_TICKS_END: Final = 720  # from the left, the right end of the column of ticks
_SHARE_BAR, _SHARE_WIDTH, _SHARE_HEIGHT = 732, 240, 10  # left end, greatest width and height of a bar of the share


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
        return _BAR_TITLE + _BAR + _BELOW_BARS

    def elements(self, count: int, top: float) -> Iterator[str]:
        step, y = WIDTH / (count + 1), top + _BAR_TITLE + _BAR
        yield _text(_MARGIN, top + _BAR_TITLE - 8, self.title)
        yield f'<line class="axis" x1="{LEFT}" y1="{y}" x2="{LEFT + WIDTH}" y2="{y}"/>'
        yield _text(LEFT - _AXIS_GAP, top + _BAR_TITLE + 10, self.most, ' text-anchor="end"')
        yield _text(LEFT - _AXIS_GAP, y, self.least, ' text-anchor="end"')
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
            height = min(1.0, max(_LEAST_NOISE, 1 - error.sqnr_db / SILENT))
            noise[index] = height, "noise", f"{named}: SQNR {in_decibels(error.sqnr_db)}"
    departs = any(height for height, _, _ in quanta.values())
    title = "quanta from ExecuTorch's Python operators, on a logarithmic scale"
    kernels = [_Bars(title, "255 or more", "0", quanta)] if departs else []
    title = "noise against the float module: a higher bar is a lower SQNR, no bar one that is not known"
    bars = [*kernels, _Bars(title, "0 dB or less", f"{SILENT:g} dB or more", noise)]
    elements = [element for at, each in enumerate(bars) for element in each.elements(len(one.rows), at * each.height)]
    return sum(each.height for each in bars), "Error along the program", elements


# --- flash -----------------------------------------------------------------------------------------------


def _flash(one: PictureData) -> _Elements:
    whole = sum(part.nbytes for part in one.flash)
    return _FLASH_TOP + _FLASH_HEIGHT + 8, "Flash", _flash_elements(one, whole)


def _flash_elements(one: PictureData, whole: int) -> Iterator[str]:
    x = legend = float(_MARGIN)
    scale = (LEFT + WIDTH - _MARGIN) / max(1, whole)
    for group, nbytes in one.flash_groups.items():
        label = f"{GROUPS[group]}: {number_text(nbytes)} bytes, {share_text(nbytes / max(1, whole))}"
        yield _box(group, legend, _MARGIN, _LEGEND_BOX, _LEGEND_BOX, label)
        legend += _LEGEND_BOX + 6
        yield _text(legend, _LEGEND_LINE, label)
        legend += 6.5 * len(label) + _LEGEND_GAP
    yield _text(legend, _LEGEND_LINE, f"all: {number_text(whole)} bytes, computed from the files")
    for part in one.flash:
        what = printable(part.what)
        width = part.nbytes * scale
        at = f' data-at="{part.instruction}"' if part.instruction >= 0 else ""
        yield _box(
            part.group,
            x,
            _FLASH_TOP,
            width,
            _FLASH_HEIGHT,
            f"{GROUPS[part.group]}, {what}: {number_text(part.nbytes)} bytes",
            at,
        )
        if width > _LETTER * len(what):
            yield _text(x + _INDENT, _FLASH_TOP + _FLASH_HEIGHT / 2 + _INDENT, what)
        x += width


# --- the graph -------------------------------------------------------------------------------------------


def _graph(one: PictureData) -> _Elements:
    graph = Graph(one)
    return _ROW * len(graph.lines) + _TOP, "Graph, coloured by cost", _graph_elements(graph)


def _graph_elements(graph: Graph) -> Iterator[str]:
    one, lines = graph.one, graph.lines
    unit, source = _ticks_unit(one)
    where = f"{printable(one.program.name)} on {printable(one.profile.ran.display_name)}"
    yield _text(_MARGIN, 2 * _MARGIN, f"{where}: {unit}, {source}; dark: the most")
    heights = [_TOP + _ROW * number for number in range(len(lines))]
    at = {line.node.instructions[0]: y for line, y in zip(lines, heights, strict=True) if not line.node.is_module}
    order = {index: number for number, index in enumerate(at)}
    for begin, end in one.edges:
        yield f'<path class="edge" d="{arc(at[begin], at[end], order[end] - order[begin])}"/>'
    for line, y in zip(lines, heights, strict=True):
        yield from _graph_line(line, y, graph, unit)


def _graph_line(line: Line, y: int, graph: Graph, unit: str) -> Iterator[str]:
    x = _GUTTER + 16 + _DEPTH * line.node.depth
    if line.node.is_module:
        yield _text(x, y + _INDENT, line.name, ' class="module"')
        return
    shade = max(0.0, line.ticks / max(1, graph.most_ticks))
    yield f'<circle class="heat" cx="{_NODE}" cy="{y}" r="{_RADIUS}" fill-opacity="{shade:.2f}"/>'
    yield _text(x, y + _INDENT, f"{line.name} {line.operator}".strip())
    if line.rows:
        yield _text(_TICKS_END, y + _INDENT, f"{number_text(line.ticks)} {unit}", ' text-anchor="end"')
        width = _SHARE_WIDTH * shade
        yield _box("heat", _SHARE_BAR, y - _SHARE_HEIGHT / 2, width, _SHARE_HEIGHT, share_text(line.share))
        yield _text(LEFT + WIDTH, y + _INDENT, share_text(line.share), ' text-anchor="end"')


def arc(begin: float, end: float, apart: int) -> str:
    """Return the path of an edge between two lines' heights, `apart` lines from each other; the page draws the same."""
    if apart == 1:
        return f"M{_NODE} {begin:g}V{end:g}"
    out = _NODE - min(_NODE - 4, 8 * math.log2(1 + abs(apart)))  # within the picture, by the logarithm of the distance
    return f"M{_NODE} {begin:g}C{out:.0f} {begin:g} {out:.0f} {end:g} {_NODE} {end:g}"
