"""Finds the exported nodes that a program's nodes come from, with source lines, and the quantiser's reports on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from cortex_m_hil.lowering.module_export import user_line

# The rejection reason for a node that another part of a composed quantiser has quantised, so it is not in float.
_TAKEN: Final = "already quantized"


def names(node: Any) -> Iterator[str]:
    """Yield the names that a node had in earlier graphs, the latest first."""
    waiting = list(node.meta.get("from_node") or ())
    while waiting:
        source = waiting.pop(0)
        yield source.name
        waiting += source.from_node or ()


def ancestors(nodes: Sequence[str], dialect: Any, exported: Any) -> tuple[str, ...]:
    """Return for each node of a program the name of the exported node that it was made from, or "" if unknown.

    Args:
        nodes: the nodes, as in `Program.nodes`.
        dialect: the graph of the lowered program.
        exported: the graph of the exported module.
    """
    known = {node.name for node in exported.nodes if node.op == "call_function"}
    by_name = {node.name: node for node in dialect.nodes}
    found = (by_name.get(name.partition(" ")[0]) for name in nodes)
    return tuple("" if node is None else next((one for one in names(node) if one in known), "") for node in found)


def source_lines(ancestors: Sequence[str], exported: Any) -> tuple[str, ...]:
    """Return the user's `file:line` of each ancestor, or "" where it is unknown."""
    by_name = {node.name: user_line(node.meta.get("stack_trace") or "") for node in exported.nodes}
    return tuple(by_name.get(name, "") for name in ancestors)


def float_reasons(quantizer: Any, exported: Any) -> Mapping[str, str]:
    """Return why the quantiser left nodes of the exported module in float: the reasons by the names of the nodes.

    The result is empty for ExecuTorch 1.4.1, which keeps no reports.
    """
    accepted: set[str] = set()
    rejected: dict[str, str] = {}
    calls = {node.name: node for node in exported.nodes if node.op == "call_function"}
    reports = list(_reports(quantizer))
    for one, report in reports:
        accepted.update(node.name for pattern in report.accepted_patterns for node in pattern.nodes)
        for pattern in report.rejected_patterns:
            if _TAKEN not in pattern.rejection_reason:
                rejected.update(dict.fromkeys(pattern.node_names, _rejection(one, pattern, calls)))
    if not reports:
        return {}
    return {name: _reason(rejected.get(name), node) for name, node in calls.items() if name not in accepted}


def _reports(quantizer: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each part of a composed quantiser with its report (`backends/cortex_m/quantizer_reporter.py`)."""
    for one in getattr(quantizer, "quantizers", ()):
        reporter = getattr(one, "reporter", None)
        if reporter is not None and one in reporter.quantizers:
            yield one, reporter.quantizers[one]


def _rejection(quantizer: Any, pattern: Any, calls: Mapping[str, Any]) -> str:
    """Return the quantiser's reason for rejecting a pattern.

    If a check of the quantiser rejected it, the reason is the name of the check and the docstring of its method.
    """
    matcher, told = getattr(quantizer, "pattern_matcher", None), str(pattern.rejection_reason).rstrip(".")
    targets = tuple(calls[name].target if name in calls else None for name in pattern.node_names)
    check = getattr(matcher, "support_dict", {}).get(targets)
    if check is None or pattern.rejection_reason != getattr(matcher, "REJECT_UNSUPPORTED_PATTERN", None):
        return told
    purpose = " ".join((check.check_pattern.__doc__ or told).split("\n\n")[0].split()).rstrip(".")
    return f"{check.__name__}: {purpose}"


def _reason(rejection: str | None, node: Any) -> str:
    if rejection is None:
        return f"the quantiser has no pattern for {node.target}"
    return f"the quantiser refuses {node.target} of {_operands(node)}: {rejection}"


def _operands(node: Any) -> str:
    """Return the shapes of a node's tensors and its numbers, such as `[1, 8, 16, 16] and 3.0`."""
    shown = []
    for one in node.args:
        value = one.meta.get("val") if hasattr(one, "meta") else one
        if hasattr(value, "shape"):
            shown.append(str(list(value.shape)))
        elif isinstance(value, (int, float)):
            shown.append(str(value))
    return " and ".join([*shown, *(f"{name} {value}" for name, value in node.kwargs.items())])
