"""Writes the figures of a profile as node data of Google's Model Explorer, which colours the nodes of a graph by them.

The format is that of `node_data_builder.py` of ai-edge-model-explorer 0.1.34. Nodes have the names of two adapters:
pte-adapter-model-explorer 0.2.0, for a `.pte`, and Model Explorer's own for an `ExportedProgram`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cortex_m_hil.diagnose.profile import Figure, Profile, ProfileRow
from cortex_m_hil.program.program import Program

_EXPORTED: Final = "graph"  # what Model Explorer's adapter calls the graph of an ExportedProgram
_GRADIENT: Final = [{"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#f2a33a"}]


@dataclass(frozen=True)
class _Overlay:
    """A figure of a profile's rows.

    Attributes:
        name: the name of the file, without its suffix.
        figure: the key in `Profile.figures` of what the figure is.
        value: returns the figure of a row; None where it is not known.
        together: returns the figure of several instructions that were made from one node.
    """

    name: str
    figure: str
    value: Callable[[ProfileRow], int | None]
    together: Callable[[Sequence[int]], int] = sum


_OVERLAYS: Final = (
    _Overlay("ticks", "ticks", lambda row: row.ticks),
    _Overlay("macs", "macs", lambda row: row.macs),
    _Overlay("bytes_read", "bytes_read", lambda row: row.bytes_read),
    _Overlay("bytes_written", "bytes_written", lambda row: row.bytes_written),
    _Overlay("planned_bytes", "alive", lambda row: row.planned_bytes, max),
)


def node_data(profile: Profile, program: Program) -> Mapping[str, str]:
    """Return the text of a file of node data for each figure of a profile, by the file's name.

    Args:
        profile: the profile.
        program: the program that was profiled. Where hil lowered it, the nodes of the exported module get figures too:
            the sums of their instructions, or for planned bytes the most.
    """
    return {f"{one.name}.json": json.dumps(_graphs(one, profile, program), indent=1) for one in _OVERLAYS}


def _graphs(overlay: _Overlay, profile: Profile, program: Program) -> Mapping[str, Any]:
    instructions, nodes = dict[str, int](), defaultdict[str, list[int]](list)
    for row in profile.rows:
        if (value := overlay.value(row)) is not None:
            instructions[f"{profile.method}_0_{row.index}"] = value
            if program.ancestors and (node := program.ancestors[row.index]):
                nodes[node].append(value)
    found = {profile.method: instructions}
    if nodes:
        found[_EXPORTED] = {node: overlay.together(values) for node, values in nodes.items()}
    title = _title(overlay.name, profile.figures[overlay.figure], profile)
    return {graph: _of_graph(title, values, overlay) for graph, values in found.items()}


def _title(name: str, figure: Figure, profile: Profile) -> str:
    what = f"{name.replace('_', ' ')}: {figure.unit}, {figure.source.value}"
    return f"{what}; {profile.program} on {profile.ran.display_name}, {profile.ran.runtime}"


def _of_graph(title: str, values: Mapping[str, int], overlay: _Overlay) -> Mapping[str, Any]:
    results = {node: {"value": value} for node, value in values.items()}
    without = {} if overlay.together is sum else {"hideAggregatedStats": ["sum"]}
    return {"name": title, "results": results, "gradient": _GRADIENT, **without}
