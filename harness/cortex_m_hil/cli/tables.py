"""Tables and lines for a terminal; for a pipe they are neither wrapped nor cut."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

_STYLES = {"ok": "green", "absent": "yellow", "FAIL": "bold red"}


def table(columns: Sequence[str], rows: Sequence[tuple[str | Text, ...]], right: Collection[str] = ()) -> str:
    """Return a table without a frame. For a pipe lines are not wrapped, so that they can be searched.

    Args:
        columns: the headings.
        rows: the cells of each row.
        right: the headings of columns of numbers, which are flush right.
    """
    drawing = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for column in drawing.columns:
        column.overflow = "fold"
        column.justify = "right" if column.header in right else "left"
    for row in rows:
        drawing.add_row(*(Text(cell, style=_STYLES.get(cell, "")) if isinstance(cell, str) else cell for cell in row))
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = sum(max(map(len, cells)) + 2 for cells in zip(columns, *rows, strict=True))
    with console.capture() as drawn:
        console.print(drawing)
    return "\n".join(line.rstrip() for line in drawn.get().splitlines())


def row_of(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Return one line of a table that is printed row by row.

    Args:
        cells: the texts.
        widths: the widths of the columns; the last columns may have none.
    """
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)] + list(cells[len(widths) :])
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    with console.capture() as drawn:
        console.print(*(Text(cell, style=_STYLES.get(cell.strip(), "")) for cell in padded), sep="  ")
    return drawn.get().rstrip()


def cut(line: str) -> str:
    """Return a line cut to the width of a terminal; for a pipe it is not cut, so that it can be searched."""
    width = shutil.get_terminal_size().columns
    return line if len(line) <= width or not sys.stdout.isatty() else f"{line[: width - 1]}…"
