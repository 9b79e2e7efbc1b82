"""What the installed executorch can lower to: 1.4.1 and 1.5.1 are both supported, and differ in that."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import version

import pytest
import torch

from cortex_m_hil.lowering.capability import executorch_api


def require(operators: Iterable[str], *, layout: str = "channels_last", argument: str = "") -> None:
    """Skips the test where executorch has no such layout, no such operator, or none with that argument.

    If it has them and lowers to something else, that is for the test to find.
    """
    installed = f"executorch {version('executorch')}"
    explicit = (
        executorch_api().explicit_layout
    )  # this imports the passes too, without which the operators do not import
    if layout == "explicit" and not explicit:
        pytest.skip(f"{installed} has no explicit layout")
    import_module("executorch.backends.cortex_m.ops.operators")
    for name in operators:
        namespace, _, overloaded = name.partition("::")
        operator = getattr(getattr(torch.ops, namespace), overloaded.partition(".")[0], None)
        if operator is None:
            pytest.skip(f"{installed} has no {name}")
        if argument and argument not in [one.name for one in operator.default._schema.arguments]:
            pytest.skip(f"{installed} has no {name} with {argument}")
