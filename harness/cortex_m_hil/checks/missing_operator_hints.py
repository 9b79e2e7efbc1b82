"""Hints about an operator that a runner lacks; they depend on whether ExecuTorch has the operator."""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path
from typing import Final

from cortex_m_hil.checks.signatures.refused_arguments import signature_of

_LIST: Final = Path("kernels", "portable", "functions.yaml")
_INSTEAD: Final = {
    "hardswish": "x * torch.nn.functional.relu6(x + 3) / 6",
    "hardsigmoid": "torch.nn.functional.relu6(x + 3) / 6",
    "adaptive_max_pool2d": "max_pool2d, with the sizes of its window and stride",
    "linear": "x @ layer.weight.T + layer.bias, or quantise it",
    "silu": "x * torch.sigmoid(x), or quantise it",
}
"""For names of ATen operators, expressions with supported operators that compute the same result."""
ELSEWHERE: Final = "change the program, or run it on an ExecuTorch that has the operator (hil docs runtimes)"
_IN_BUILTIN: Final = "the runtime builtin has it; so may another ExecuTorch (hil docs runtimes)"
_OTHERS: Final = "the same with other operators of torch"
_ON_SIZES: Final = frozenset({"aten::sym_size.int", "executorch_prim::et_view.default"})
"""Operators that occur only in programs with dynamic shapes."""
_FIXED: Final = "lower the module without dynamic_shapes, or run it on the runtime executorch"


def hint(operator: str, runtime: str = "builtin") -> str:
    """Return the next step for an operator that the runner of a runtime lacks."""
    if operator in _ON_SIZES:
        return _FIXED
    instead = _INSTEAD.get(operator.partition("::")[2].partition(".")[0])
    in_builtin = signature_of(operator, "builtin") is not None
    if runtime != "builtin" and in_builtin:
        return f"write {instead}; {_IN_BUILTIN}" if instead else _IN_BUILTIN
    known = executorch_portable_operators()
    if not operator.startswith("aten::") or not known or operator in known:
        return ELSEWHERE
    lacking = "lack it" if in_builtin else "lack it too, so no runtime runs it"
    return f"ExecuTorch's portable kernels {lacking}: write {instead or _OTHERS}"


def executorch_lacks(operator: str) -> bool:
    """Tell whether the installed ExecuTorch has no portable kernel for an operator of ATen; False if none is installed.

    ExecuTorch's Cortex-M operators, and operators on sizes, are in other libraries.
    """
    known = executorch_portable_operators()
    is_portable = operator.startswith(("aten::", "dim_order_ops::")) and operator not in _ON_SIZES
    return is_portable and bool(known) and operator not in known


@cache
def executorch_portable_operators() -> frozenset[str]:
    """Return the operators that the installed ExecuTorch has portable kernels for; an empty set if none is installed.

    ExecuTorch lists them in a file of its package.
    """
    found = importlib.util.find_spec("executorch")
    for folder in found.submodule_search_locations or () if found is not None else ():
        if (path := Path(folder, _LIST)).is_file():
            names = re.findall(r"^- (?:op|func): ([\w:.]+)", path.read_text(encoding="utf-8"), re.M)
            return frozenset(name if "::" in name else f"aten::{name}" for name in names)
    return frozenset()
