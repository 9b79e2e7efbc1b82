"""Text of unknown origin, made fit for a terminal, a report and a wire between processes."""

from __future__ import annotations


def printable(text: str) -> str:
    """One line in which every character is visible or a space; any other is an escape, such as ``\\x1b``.

    What counts is `str.isprintable`: control and format characters (such as those that turn the direction of
    writing), separators other than a space, lone surrogates and unassigned characters do not.
    """
    return text if text.isprintable() else "".join(one if one.isprintable() else _escape(one) for one in text)


def printable_lines(text: str) -> str:
    """The same line by line; a tab is a space, a carriage return before a line's end is dropped."""
    return "\n".join(printable(line.removesuffix("\r").replace("\t", " ")) for line in text.split("\n"))


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()
