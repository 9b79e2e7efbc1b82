"""A snapshot of a module's state, taken before it is run and restored afterwards, so that the module is not changed.

A deep copy is not enough: after `module.forward = lambda x: module.layer(x)` a copy still calls the original, and a
class can define the content of its copies (`__deepcopy__`, `__getstate__`).
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import MethodType
from typing import Any, Final

from cortex_m_hil.lowering.installed_executorch import load_torch

_CONTAINERS: Final = (dict, list, set, deque)
_FOREIGN: Final = sys.stdlib_module_names | {"torch", "numpy"}
_MEMBERS: Final = ("_modules", "_parameters", "_buffers")  # dictionaries of a module whose items are its attributes
_ABSENT: Final = object()


class Snapshot:
    """The present state of all attributes, containers and tensors that can be reached from a module.

    Objects of the standard library and of torch are left out: a logger's handlers, for instance, are not part of a
    module.
    """

    def __init__(self, module: Any) -> None:
        self._containers: list[tuple[_Path, Any, Any]] = []  # each container with a shallow copy
        self._tensors: list[tuple[_Path, Any, Any, Any]] = []  # each tensor with its memory, and a copy of its content
        self._alive: dict[int, object] = {}
        waiting: list[tuple[_Path, object]] = [(_Path(), module)]
        while waiting:
            path, value = waiting.pop()
            if id(value) not in self._alive:
                self._alive[id(value)] = value
                waiting.extend(self._record(path, value))

    def _record(self, path: _Path, value: Any) -> list[tuple[_Path, Any]]:
        """Record one value, and return the values that can be reached from it, with their paths."""
        torch = load_torch()
        if isinstance(value, torch.Tensor):
            if type(value) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) and value.layout is torch.strided:
                self._tensors.append((path, value, value.data, value.detach().clone()))
            return [(path.to("grad"), value.grad)] if value.is_leaf else []
        if isinstance(value, _CONTAINERS):
            kept = (dict if isinstance(value, dict) else type(value))(value)
            self._containers.append((path, value, kept))
            return [(path.to(key), one) for key, one in _items(kept)]
        if isinstance(value, tuple):
            return [(path.to(number), one) for number, one in enumerate(value)]
        if isinstance(value, MethodType):
            return [(path.to("__self__"), value.__self__)]
        foreign = type(value).__module__.partition(".")[0] in _FOREIGN and not isinstance(value, torch.nn.Module)
        if foreign or isinstance(value, type) or not hasattr(value, "__dict__"):
            return []
        return [(path.attributes(), vars(value))]

    def changed(self) -> list[str]:
        """Return the changes, as Python expressions relative to the module: `cell.hidden`, `states[1]`."""
        names = [name for path, value, kept in self._containers for name in _changed(path, value, kept)]
        names += [str(path) for path, tensor, _, content in self._tensors if not is_equal(tensor.detach(), content)]
        return list(dict.fromkeys(names))

    def restore(self) -> None:
        """Restore everything that has changed."""
        for _, value, kept in self._containers:
            if not _same_items(value, kept):
                value.clear()
                value.update(kept) if isinstance(value, (dict, set)) else value.extend(kept)
        for _, tensor, memory, content in self._tensors:
            if tensor.data_ptr() != memory.data_ptr() or tensor.stride() != memory.stride():
                tensor.data = memory
            if not is_equal(memory, content):
                memory.copy_(content)


@dataclass(frozen=True)
class _Path:
    """The path from the module to a value, as a Python expression."""

    text: str = ""
    is_object: bool = False  # whether the value's items are attributes

    def attributes(self) -> _Path:
        return replace(self, is_object=True)

    def to(self, key: object) -> _Path:
        if self.is_object and key in _MEMBERS:
            return self
        if self.is_object:
            return _Path(f"{self.text}.{key}" if self.text else str(key))
        return _Path(f"{self.text}[{key!r}]" if isinstance(key, (int, str)) else self.text)

    def __str__(self) -> str:
        return self.text


def is_equal(some: Any, others: Any) -> bool:
    """Tell whether two tensors have the same shape, dtype and values; NaN equals NaN."""
    if some.shape != others.shape or some.dtype != others.dtype:
        return False
    torch = load_torch()
    return bool(torch.equal(some, others) or ((some == others) | ((some != some) & (others != others))).all())


def _items(kept: Any) -> list[tuple[Any, Any]]:
    if isinstance(kept, dict):
        return list(kept.items())
    return [(None, one) for one in kept] if isinstance(kept, set) else list(enumerate(kept))


def _changed(path: _Path, value: Any, kept: Any) -> Iterator[str]:
    """Yield the paths of a container's changed items; numbers and strings are compared by value, others by identity."""
    if isinstance(kept, set):
        if value != kept:
            yield str(path)
        return
    before, now = dict(_items(kept)), dict(_items(value))
    for key in {**before, **now}:
        some, others = before.get(key, _ABSENT), now.get(key, _ABSENT)
        plain = isinstance(some, (int, float, str)) and type(some) is type(others)
        if some is not others and not (plain and some == others):
            yield str(path.to(key))


def _same_items(value: Any, kept: Any) -> bool:
    """Tell whether a container still holds the same objects in the same order."""
    some, others = (list(one.items()) if isinstance(one, dict) else [(one,) for one in one] for one in (value, kept))
    return len(some) == len(others) and all(
        all(a is b for a, b in zip(one, other, strict=True)) for one, other in zip(some, others, strict=True)
    )
