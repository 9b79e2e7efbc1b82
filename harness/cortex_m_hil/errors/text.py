"""Functions that make text of unknown origin safe for a terminal, a report or a message between processes."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final

_LONGEST: Final = 80  # characters of a value that are shown at most
_ITEMS: Final = 4  # items of a tuple or a list that are shown at most
# The folder in a file's path; between quotes it may have spaces.
_FOLDER: Final = re.compile(
    r"""(?<=['"])/(?:[^/'"\n]+/)+|(?:(?<=file://)|(?<![\w.:/~…$-]))/(?:[^/\s:'"`()\[\]{}<>,;|=]+/)+"""
)
_PLAIN: Final = (str, bytes, int, float, complex, Enum, os.PathLike, type(None))


def printable(text: str) -> str:
    r"""Return one line in which every character is visible or a space; any other is an escape, such as ``\x1b``.

    Visible is what `str.isprintable` accepts: not control and format characters (such as those that change the
    direction of writing), separators other than a space, lone surrogates and unassigned characters.
    """
    return text if text.isprintable() else "".join(one if one.isprintable() else _escape(one) for one in text)


def printable_lines(text: str) -> str:
    """Return text made printable line by line; a tab becomes a space, a carriage return at a line's end is dropped."""
    return "\n".join(printable(line.removesuffix("\r").replace("\t", " ")) for line in text.split("\n"))


def folders_replaced(text: str, by: str | Callable[[re.Match[str]], str]) -> str:
    """Return the text with each absolute folder, which would reveal details of this machine, replaced as `re.sub` does.

    With `…/` as `by`, `-c /home/me/hil.ini` becomes `-c …/hil.ini`; the last part of a path, which no `/` follows, is
    kept.
    """
    return _FOLDER.sub(by, text)


def shown(value: object) -> str:
    """Describe a user's value in a few words: `Tensor float32[1, 8]` for a tensor or an array, never its elements.

    Numbers, text and paths are written out (up to 80 characters), of a tuple or a list the first 4 items; other objects
    are named by their class.
    """
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if isinstance(value, type):
        return value.__name__
    if isinstance(shape, tuple) and dtype is not None:
        return f"{type(value).__name__} {str(dtype).removeprefix('torch.')}{list(shape)}"
    if isinstance(value, (tuple, list)):
        items = ", ".join([*map(shown, value[:_ITEMS]), *(["…"] if len(value) > _ITEMS else [])])
        return f"[{items}]" if isinstance(value, list) else f"({items},)" if len(value) == 1 else f"({items})"
    return printable(f"{value!r:.{_LONGEST}}") if isinstance(value, _PLAIN) else type(value).__name__


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def counted(number: int, what: str) -> str:
    """Return a number with its noun: `1 operator`, `2 operators`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def change_in_percent(before: float, after: float) -> str:
    """Return a change such as `+0.05 %`, or "" where `before` is 0 or the change is not finite.

    The number has two decimals, or as many as its first digit other than 0 needs; trailing zeros are dropped.
    """
    change = 100 * (after - before) / abs(before) if before else math.nan
    if not math.isfinite(change):
        return ""
    digits = max(2, -math.floor(math.log10(abs(change)))) if change else 0
    number = f"{change:+.{digits}f}"
    return f"{number.rstrip('0').rstrip('.') if digits else number} %"


def percent(share: float) -> str:
    """Return a share as `87.18 %`, rounded so that only a share of 1 reads as 100 %."""
    return "100 %" if share == 1 else f"{min(100 * share, 99.99):.4g} %"


def number_text(value: int | None) -> str:
    """Return a whole number with a narrow space between thousands, which no line break divides; `–` for None."""
    return "–" if value is None else f"{value:,}".replace(",", "\u202f")


def in_decibels(ratio: float) -> str:
    """Return a ratio such as `12.3 dB`; one that rounds to zero is `0.0 dB`, never `-0.0 dB`."""
    return f"{round(ratio, 1) + 0.0:.1f} dB"


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a line for each row, its cells in columns that are as wide as their widest cell."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
