"""Replacements of private functions of torch (2.13) and torchao (0.18) that save time in an export or a lowering.

The results are the same. A function that the installed version does not have is not replaced.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from operator import attrgetter
from types import FunctionType, SimpleNamespace
from typing import Any, Final
from unittest import mock

from cortex_m_hil.lowering.capability import load_torch

_IMPLICIT: Final = "CompositeImplicitAutograd"
_looked_up: Final[list[str]] = []  # operators that decompose themselves
_SEARCH: Final = ("cSum = torch.cumsum(", "cSum[l] < next_alpha * total", "cSum[r] > next_beta * total")


def without_guards() -> AbstractContextManager[object]:
    """Skip the guards that a strict export builds within the block, a quarter of its time.

    torch.export builds them to find dimensions that are less dynamic than requested. So this is for exports without
    dynamic dimensions.
    """
    return _replaced(
        "torch._dynamo.functional_export", "_suggest_or_raise_constraint_violation", lambda _: lambda *_: None
    )


def operators_looked_up_once() -> AbstractContextManager[object]:
    """Skip the lookup of operators that decompose themselves within the block, unless there are new ones.

    `to_edge` has each of some hundred operators looked up for each of some thirty namespaces, a tenth of a lowering. An
    operator that was looked up stays an attribute of `torch.ops`.
    """

    def once(look_up: Callable[[], None]) -> Callable[[], None]:
        def look_up_others() -> None:
            now = load_torch()._C._dispatch_get_registrations_for_dispatch_key(_IMPLICIT)
            if now != _looked_up:
                look_up()
                _looked_up[:] = now

        return look_up_others

    return _replaced("torch._export.utils", "_materialize_cpp_cia_ops", once)


def bins_compared_by_numpy() -> AbstractContextManager[object]:
    """Use NumPy instead of torch for torchao's histogram search within the block: it compares elements one by one.

    Torch takes 30 times as long for these thousands of comparisons, a quarter of the lowering of a small network. NumPy
    rounds the number to float32 as torch does.
    """

    def by_numpy(search: Any) -> Any:
        source = inspect.getsource(search)
        if source.count("cSum") != len(_SEARCH) or not all(line in source for line in _SEARCH):
            return search
        replaced = SimpleNamespace(**{**vars(load_torch()), "cumsum": _cumulated})
        return FunctionType(search.__code__, {**search.__globals__, "torch": replaced}, search.__name__)

    return _replaced("torchao.quantization.pt2e.observer", "HistogramObserver._non_linear_param_search", by_numpy)


def _cumulated(bins: Any, dim: int) -> Any:
    torch = load_torch()
    cumulated = torch.cumsum(bins, dim=dim)
    return cumulated.numpy() if cumulated.dtype == torch.float32 else cumulated


def _replaced(module: str, name: str, replacement: Callable[[Any], Any]) -> AbstractContextManager[object]:
    """Return the context in which the function of a module, or `CLASS.FUNCTION`, is replaced."""
    *owner, name = name.split(".")
    try:
        found = importlib.import_module(module)
        found = attrgetter(".".join(owner))(found) if owner else found
        original = getattr(found, name)
    except (ImportError, AttributeError):
        return nullcontext()
    return mock.patch.object(found, name, replacement(original))
