"""Files with pictures that `hil profile` writes: a page, and single pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Final

import typer

from cortex_m_hil.cli.options import file_to_write
from cortex_m_hil.diagnose.localize import localize
from cortex_m_hil.diagnose.profile import Profile, ProfileChanges
from cortex_m_hil.diagnose.profile_pictures.page import html
from cortex_m_hil.diagnose.profile_pictures.picture_data import Comparison, PictureData
from cortex_m_hil.diagnose.profile_pictures.svg_pictures import Picture, drawn
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.host import files
from cortex_m_hil.program.program import Program
from cortex_m_hil.runner.elf_size import measure_elf

_NAMES: Final = [one.value for one in Picture]
_HINT: Final = "a file in a folder that can be written"
Html = Annotated[
    Path | None,
    typer.Option(
        "--html",
        metavar="FILE.html",
        callback=file_to_write,
        show_default=False,
        help="Write a page of all pictures, for a browser",
    ),
]
Svg = Annotated[
    list[str] | None,
    typer.Option(
        "--svg",
        metavar="PICTURE=FILE.svg",
        help=f"Draw {', '.join(_NAMES[:-1])} or {_NAMES[-1]}, for one model and target; repeatable",
    ),
]


@dataclass(frozen=True)
class PictureOptions:
    """Options about pictures of profiles."""

    html: Html = None
    svg: Svg = None


@dataclass(frozen=True)
class PictureFiles:
    """The files that are asked for.

    Attributes:
        html: the file of the page; None for no page.
        svg: the file of each single picture.
        shown: the profiles so far.
    """

    html: Path | None
    svg: Mapping[Picture, Path]
    shown: list[PictureData] = field(default_factory=list)

    @classmethod
    def of(cls, options: PictureOptions, profiles: int) -> PictureFiles:
        """Return the files that options name.

        Args:
            options: the options.
            profiles: how many profiles there will be.

        Raises:
            ConfigError: there is no such picture, its file cannot be written, or there are several profiles.
        """
        svg = dict(map(_picture_and_file, options.svg or ()))
        if svg and profiles > 1:
            raise ConfigError(f"--svg draws one profile, not {profiles}", hint="one target and MODEL, or --html")
        return cls(options.html, svg)

    def look(self, dut: Dut, program: Program, profile: Profile) -> None:
        """Find out what the pictures of a profile show beside it, while its target is live."""
        if self.html is None and not self.svg:
            return
        has_error = program.intermediates is not None and (self.html is not None or Picture.ERROR in self.svg)
        found = localize(dut, program) if has_error else None
        elf = None if dut.elf.foreign else measure_elf(dut.elf.path)
        self.shown.append(PictureData(profile, program, dut.target.board.memory, found, elf))

    def compare(self, name: str, changes: ProfileChanges) -> None:
        """Show in the page what moved from the profile `name` to the one that was looked at last."""
        if self.shown:
            self.shown[-1] = replace(self.shown[-1], compared=Comparison(name, changes))

    def write(self) -> None:
        """Write the files; none where nothing could be profiled."""
        if not self.shown:
            return
        if self.html is not None:
            files.write_atomically(self.html, html(self.shown).encode(), f"--html takes {_HINT}")
        for picture, path in self.svg.items():
            files.write_atomically(path, drawn(picture, self.shown[0]).encode(), f"--svg takes {_HINT}")


def _picture_and_file(text: str) -> tuple[Picture, Path]:
    name, _, path = text.partition("=")
    if name not in _NAMES or not path:
        known = name if name in _NAMES else "memory"
        raise ConfigError(f"--svg {text} names no picture and file", hint=f"--svg {known}=FILE.svg")
    files.check_new_file(Path(path), "--svg")
    return Picture(name), Path(path)
