"""Replaces private functions of torch and torchao by faster ones that compute the same, for an export or a lowering.

A function that the installed version does not have is not replaced; `lost` reports it.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from operator import attrgetter
from types import FunctionType, SimpleNamespace
from typing import Any, Final
from unittest import mock

from cortex_m_hil.lowering.installed_executorch import load_torch


@dataclass(frozen=True)
class Shortcut:
    """A private function that is replaced; a newer version may have renamed or rewritten it.

    Attributes:
        module: the module of the function.
        name: `FUNCTION`, or `CLASS.FUNCTION`.
        saves: the work that is saved, for a message.
        fits: tells by the function's source whether the replacement does the same; None: the name is enough.
    """

    module: str
    name: str
    saves: str
    fits: Callable[[str], bool] | None = None

    def replaced(self, replacement: Callable[[Any], Any]) -> AbstractContextManager[object]:
        """Return a context in which the function, if it exists, is replaced by `replacement(function)`."""
        found = self._find()
        return nullcontext() if found is None else mock.patch.object(*found[:2], replacement(found[2]))

    def lost(self) -> str:
        """Return a text on the function that the installed version lacks, with the version; "" where it is replaced."""
        package = self.module.partition(".")[0]
        if self._find() is not None:
            return ""
        return f"{package} {version(package)} has another {self.module}.{self.name}: not saved is {self.saves}"

    def _find(self) -> tuple[Any, str, Any] | None:
        """Return the function's owner, its name there, and the function; None where it is missing or rewritten."""
        *owner, name = self.name.split(".")
        try:
            found = importlib.import_module(self.module)
            found = attrgetter(".".join(owner))(found) if owner else found
            original = getattr(found, name)
            fits = self.fits is None or self.fits(inspect.getsource(original))
        except (ImportError, AttributeError, OSError, TypeError):
            return None
        return (found, name, original) if fits else None


_SUMS: Final = ("cSum = torch.cumsum(", "cSum[l] < next_alpha * total", "cSum[r] > next_beta * total")
_GUARDS: Final = Shortcut(
    "torch._dynamo.functional_export", "_suggest_or_raise_constraint_violation", "a quarter of each export"
)
_LOOKUP: Final = Shortcut("torch._export.utils", "_materialize_cpp_cia_ops", "a tenth of each lowering")
_SEARCH: Final = Shortcut(
    "torchao.quantization.pt2e.observer",
    "HistogramObserver._non_linear_param_search",
    "a quarter of the lowering of a small network",
    lambda source: source.count("cSum") == len(_SUMS) and all(line in source for line in _SUMS),
)
SHORTCUTS: Final = (_GUARDS, _LOOKUP, _SEARCH)

_IMPLICIT: Final = "CompositeImplicitAutograd"
_looked_up: Final[list[str]] = []  # operators that were found to decompose themselves


def without_guards() -> AbstractContextManager[object]:
    """Skip the guards that a strict export builds within the block.

    torch.export builds them to find dimensions that are less dynamic than requested. So this shortcut is for exports
    without dynamic dimensions.
    """
    return _GUARDS.replaced(lambda _: lambda *_: None)


def operators_looked_up_once() -> AbstractContextManager[object]:
    """Skip the lookup of operators that decompose themselves within the block, unless new operators were registered.

    `to_edge` looks up each of some hundred operators in each of some thirty namespaces. An operator that was looked up
    stays an attribute of `torch.ops`.
    """

    def once(look_up: Callable[[], None]) -> Callable[[], None]:
        def look_up_others() -> None:
            now = load_torch()._C._dispatch_get_registrations_for_dispatch_key(_IMPLICIT)
            if now != _looked_up:
                look_up()
                _looked_up[:] = now

        return look_up_others

    return _LOOKUP.replaced(once)


def bins_compared_by_numpy() -> AbstractContextManager[object]:
    """Use NumPy instead of torch for torchao's histogram search, which compares single elements, within the block.

    Torch takes 30 times as long for these thousands of comparisons. NumPy rounds the number to float32 as torch does.
    """

    def by_numpy(search: Any) -> Any:
        replaced = SimpleNamespace(**{**vars(load_torch()), "cumsum": _cumulated})
        return FunctionType(search.__code__, {**search.__globals__, "torch": replaced}, search.__name__)

    return _SEARCH.replaced(by_numpy)


def _cumulated(bins: Any, dim: int) -> Any:
    torch = load_torch()
    cumulated = torch.cumsum(bins, dim=dim)
    return cumulated.numpy() if cumulated.dtype == torch.float32 else cumulated
