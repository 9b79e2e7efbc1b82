"""The page of a profile: answers, pictures and graph in one file, for a browser."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from cortex_m_hil.diagnose.profile_pictures.differences import Differences
from cortex_m_hil.diagnose.profile_pictures.graph_table import Graph
from cortex_m_hil.diagnose.profile_pictures.page_answers import Answer, answers
from cortex_m_hil.diagnose.profile_pictures.picture_data import PictureData, share_text, tensor_text
from cortex_m_hil.diagnose.profile_pictures.svg_pictures import STYLE, Picture, drawn
from cortex_m_hil.errors.text import printable
from cortex_m_hil.host.html_pages import rendered
from cortex_m_hil.program.plan_picture import LEFT, WIDTH, tensors

_UNSAFE: Final = re.compile("[^A-Za-z0-9_.]+")  # in the fragment of an address


def html(profiles: Sequence[PictureData]) -> str:
    """Return the page of profiles, each of another program or on another target; at most 3 MB for 500 operators."""
    views = [View(one) for one in profiles]
    data = [view.fields() for view in views]
    programs = ", ".join(dict.fromkeys(view.program for view in views))
    package = "cortex_m_hil.diagnose.profile_pictures"
    return rendered(package, "profile", data, style=STYLE, views=views, programs=programs, share=share_text)


@dataclass(frozen=True)
class View:
    """The contents of the page for one profile."""

    one: PictureData

    @property
    def program(self) -> str:
        return printable(self.one.profile.program)

    @property
    def name(self) -> str:
        """Return what ran on what."""
        return f"{self.program} on {printable(self.one.profile.ran.label)}"

    @property
    def unit(self) -> str:
        return self.one.profile.figures["ticks"].unit

    @property
    def fragment(self) -> str:
        """Return what leads to this view at the end of the page's address."""
        ran = self.one.profile.ran
        return _UNSAFE.sub("-", f"{self.program} {ran.target} {ran.runtime}")

    @property
    def figures(self) -> dict[str, str]:
        """Return what each figure is, by the name that the page gives it."""
        names = {"ticks": self.unit, "outside": "outside of operators", "macs": "multiply-accumulates",
                 "ticks_per_mac": f"{self.unit} per MAC", "bytes_read": "read", "bytes_written": "written",
                 "alive": "bytes in use"}  # fmt: skip
        return {names.get(name, name): str(figure) for name, figure in self.one.profile.figures.items()}

    @property
    def inputs(self) -> str:
        """Return where the inputs are from, and whether the cost depends on them."""
        depends = {None: "", True: f"; other inputs take another number of {self.unit}",
                   False: f"; zeros take the same number of {self.unit}"}  # fmt: skip
        return printable(self.one.profile.inputs) + depends[self.one.profile.depends_on_inputs]

    @cached_property
    def answers(self) -> tuple[Answer, ...]:
        return answers(self.graph)

    @cached_property
    def graph(self) -> Graph:
        return Graph(self.one)

    @property
    def differences(self) -> Differences | None:
        """Return what moved from the other profile; None where it is compared with none."""
        return Differences(self.graph, self.one.compared) if self.one.compared is not None else None

    @property
    def along(self) -> list[str]:
        """Return the pictures along the program."""
        shown = [Picture.COST, Picture.MEMORY, *([Picture.ERROR] if self.one.errors else [])]
        return [drawn(picture, self.one, style="") for picture in shown]

    @property
    def flash(self) -> str:
        return drawn(Picture.FLASH, self.one, style="")

    def fields(self) -> dict[str, Any]:
        """Return what the script needs, as values for JSON."""
        held = [
            (tensor_text(self.one.program, each.value), each.extent.begin, each.extent.end, each.first, each.last)
            for each in tensors(self.one.program)
        ]
        return {"count": len(self.one.rows), "left": LEFT, "width": WIDTH, "lines": self.graph.fields(),
                "edges": self.one.edges, "tensors": held}  # fmt: skip
