"""Work of torch's in an export or a lowering that does not change the result, skipped to save time.

It is done by functions that are private to torch (2.13); where one has another name, nothing is skipped.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final
from unittest import mock

from cortex_m_hil.lowering.capability import load_torch

_IMPLICIT: Final = "CompositeImplicitAutograd"
_looked_up: Final[list[str]] = []  # operators that decompose themselves


def without_guards() -> AbstractContextManager[object]:
    """Skip the guards that a strict export builds within the block, a quarter of its time.

    Exporting builds them to find dimensions that are less dynamic than was asked for. So this is for exports without
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


def _replaced(module: str, name: str, replacement: Callable[[Any], Any]) -> AbstractContextManager[object]:
    try:
        found = importlib.import_module(module)
    except ImportError:
        return nullcontext()
    original = getattr(found, name, None)
    return nullcontext() if original is None else mock.patch.object(found, name, replacement(original))
