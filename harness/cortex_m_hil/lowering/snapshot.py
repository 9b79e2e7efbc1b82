"""A module's state before it is run, to be put back after: the module itself runs, and yet is not changed.

A deep copy would not do. In `module.forward = lambda x: module.layer(x)` the copy still calls the original, and a class
may have ideas of its own about what a copy holds (`__deepcopy__`, `__getstate__`).
"""

from __future__ import annotations

import sys
from collections import deque
from types import MethodType
from typing import Any, Final

from cortex_m_hil.lowering.capability import load_torch

_CONTAINERS: Final = (dict, list, set, deque)
_FOREIGN: Final = sys.stdlib_module_names | {"torch", "numpy"}


class Snapshot:
    """Attributes, containers and tensors that can be reached from a module, as they are now.

    Objects of the standard library and of torch are left out: a logger's handlers are not the module's.
    """

    def __init__(self, module: Any) -> None:
        self._containers: list[tuple[Any, Any]] = []  # each with a shallow copy
        self._tensors: list[tuple[Any, Any, Any]] = []  # each with its memory, and a copy of that
        self._alive: dict[int, object] = {}
        waiting: list[object] = [module]
        while waiting:
            value = waiting.pop()
            if id(value) not in self._alive:
                self._alive[id(value)] = value
                waiting.extend(self._take(value))

    def _take(self, value: Any) -> list[Any]:
        """Notes one value; what can be reached from it."""
        torch = load_torch()
        if isinstance(value, torch.Tensor):
            if type(value) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) and value.layout is torch.strided:
                self._tensors.append((value, value.data, value.detach().clone()))
            return [value.grad] if value.is_leaf else []
        if isinstance(value, _CONTAINERS):
            kept = (dict if isinstance(value, dict) else type(value))(value)
            self._containers.append((value, kept))
            return list(kept.values()) if isinstance(kept, dict) else list(kept)
        if isinstance(value, tuple):
            return list(value)
        if isinstance(value, MethodType):
            return [value.__self__]
        foreign = type(value).__module__.partition(".")[0] in _FOREIGN and not isinstance(value, torch.nn.Module)
        return [] if foreign or isinstance(value, type) or not hasattr(value, "__dict__") else [vars(value)]

    def restore(self) -> None:
        """Puts back what has changed."""
        torch = load_torch()
        for value, kept in self._containers:
            if not _same_items(value, kept):
                value.clear()
                value.update(kept) if isinstance(value, (dict, set)) else value.extend(kept)
        for tensor, memory, content in self._tensors:
            if tensor.data_ptr() != memory.data_ptr() or tensor.stride() != memory.stride():
                tensor.data = memory
            if not torch.equal(memory, content):
                memory.copy_(content)


def _same_items(value: Any, kept: Any) -> bool:
    """Nothing was added, removed, exchanged or put into another order."""
    some, others = (list(one.items()) if isinstance(one, dict) else [(one,) for one in one] for one in (value, kept))
    return len(some) == len(others) and all(
        all(a is b for a, b in zip(one, other, strict=True)) for one, other in zip(some, others, strict=True)
    )
