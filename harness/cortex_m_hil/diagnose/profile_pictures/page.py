"""The page of a profile: answers, pictures and graph in one file, for a browser."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cortex_m_hil.diagnose.profile_pictures.answers import Answer, answers
from cortex_m_hil.diagnose.profile_pictures.graph_lines import Graph
from cortex_m_hil.diagnose.profile_pictures.pictured import Pictured, tensor_text
from cortex_m_hil.diagnose.profile_pictures.pictures import STYLE, Picture, drawn
from cortex_m_hil.errors.text import printable
from cortex_m_hil.host.html_pages import rendered
from cortex_m_hil.program.plan_picture import LEFT, WIDTH, tensors


def html(profiles: Sequence[Pictured]) -> str:
    """Return the page of profiles, each of another program or on another target; at most 3 MB for 500 operators."""
    views = [View(one) for one in profiles]
    data = [view.fields() for view in views]
    programs = ", ".join(dict.fromkeys(view.program for view in views))
    package = "cortex_m_hil.diagnose.profile_pictures"
    return rendered(package, "profile", data, style=STYLE, views=views, programs=programs)


@dataclass(frozen=True)
class View:
    """The contents of the page for one profile."""

    one: Pictured

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
    def clock(self) -> str:
        """Return the unit of the cost and its source: figures of boards and simulators have columns of their own."""
        return f"{self.unit}, {self.one.profile.figures['ticks'].source.value}"

    @property
    def inputs(self) -> str:
        """Return where the inputs are from, and whether the cost depends on them."""
        depends = {None: "", True: "; other inputs cost other ticks", False: "; zeros cost the same"}
        return printable(self.one.profile.inputs) + depends[self.one.profile.depends_on_inputs]

    @cached_property
    def answers(self) -> tuple[Answer, ...]:
        return answers(self.one)

    @cached_property
    def graph(self) -> Graph:
        return Graph(self.one)

    @property
    def along(self) -> list[str]:
        """Return the pictures along the program."""
        shown = [Picture.TIME, Picture.MEMORY, *([Picture.ERROR] if self.one.errors else [])]
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
