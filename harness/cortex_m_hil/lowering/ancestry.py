"""What the nodes of a program come from: nodes of the user's export, their lines, and what the quantiser said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from cortex_m_hil.lowering.live import user_line

# What ExecuTorch's quantiser says of a node that another of its quantisers has taken: no reason to be in float.
_TAKEN: Final = "already quantized"


def names(node: Any) -> Iterator[str]:
    """The names that a node had in the graphs it came from, the latest first."""
    waiting = list(node.meta.get("from_node") or ())
    while waiting:
        source = waiting.pop(0)
        yield source.name
        waiting += source.from_node or ()


def ancestors(nodes: Sequence[str], dialect: Any, exported: Any) -> tuple[str, ...]:
    """For each of a program's nodes the name of the exported module's that it was made of; "" where it is not known.

    `nodes` are as `Program.nodes` has them, `dialect` and `exported` are the graphs.
    """
    known = {node.name for node in exported.nodes if node.op == "call_function"}
    by_name = {node.name: node for node in dialect.nodes}
    found = (by_name.get(name.partition(" ")[0]) for name in nodes)
    return tuple("" if node is None else next((one for one in names(node) if one in known), "") for node in found)


def lines(ancestors: Sequence[str], exported: Any) -> tuple[str, ...]:
    """The user's `file:line` of each, "" where it is not known."""
    by_name = {node.name: user_line(node.meta.get("stack_trace") or "") for node in exported.nodes}
    return tuple(by_name.get(name, "") for name in ancestors)


def left_out(quantizer: Any, exported: Any) -> Mapping[str, str]:
    """By nodes of the exported module that were not quantised: what the quantiser says of it.

    ExecuTorch 1.4.1 keeps no reports: then none.
    """
    accepted: set[str] = set()
    rejected: dict[str, str] = {}
    reports = list(_reports(quantizer))
    for report in reports:
        accepted.update(node.name for pattern in report.accepted_patterns for node in pattern.nodes)
        for pattern in report.rejected_patterns:
            if _TAKEN not in pattern.rejection_reason:
                rejected.update(dict.fromkeys(pattern.node_names, pattern.rejection_reason))
    if not reports:
        return {}
    calls = {node.name: str(node.target) for node in exported.nodes if node.op == "call_function"}
    return {name: _reason(rejected.get(name), operator) for name, operator in calls.items() if name not in accepted}


def _reports(quantizer: Any) -> Iterator[Any]:
    """Of each quantiser that it is composed of, once: `backends/cortex_m/quantizer_reporter.py`."""
    for one in getattr(quantizer, "quantizers", ()):
        reporter = getattr(one, "reporter", None)
        if reporter is not None and one in reporter.quantizers:
            yield reporter.quantizers[one]


def _reason(rejection: str | None, operator: str) -> str:
    if rejection is None:
        return f"the quantiser has no pattern for {operator}"
    return f"the quantiser refuses this {operator}: {rejection.rstrip('.')}"
