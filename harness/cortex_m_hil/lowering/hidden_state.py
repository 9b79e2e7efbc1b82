"""Detection of state that a module carries from one call to the next, and that its export does not contain.

The state of a program is in registered buffers that forward changes in place. Anything else that a call leaves for the
next call (an assigned attribute, a list of tensors, a counter, a closure, a global) is a constant for torch.export: the
program, and its reference too, would begin anew in every frame. So the module is called several times, with the buffers
as they were before the first call, and with other values in between. Any state that it remembers is found by one of two
rules:

* equal inputs give equal outputs, and equal buffers;
* no tensor made in one call goes into the results of a later call. This finds a delay of many frames, or a state that
is still zero, which change no output of the first calls.

State that is remembered but changes no output is accepted: caches, masks that are built in the first call, counters,
the last attention for someone to look at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from cortex_m_hil.errors import ConfigError
from cortex_m_hil.lowering.options import Inputs
from cortex_m_hil.lowering.snapshot import Snapshot, is_equal

_CALLS: Final = 32
"""Maximum number of calls of a module that keeps changing.

It may use only every eighth frame, or the frame thirty frames ago.
"""
_ROUNDING: Final = 1e-4
"""The largest difference, as a share of the largest value, that is taken for rounding.

Sums of several threads differ so much from call to call, and so may kernels under a `MemoryWatch`.
"""
_CONTROLS: Final = 4
_OUTSIDE: Final = "nothing of the module itself: a closure, a global or an object of a library does"

Memory = Mapping[int, StorageWeakRef]
"""Storages by address; no address is used again as long as there is a weak reference to its storage."""


@dataclass(frozen=True, eq=False)
class Buffers:
    """The registered buffers of a module by name, each with a copy of its content when `snapshot` was called."""

    saved: Mapping[str, tuple[Any, Any]]

    @classmethod
    def snapshot(cls, module: Any) -> Buffers:
        return cls({name: (buffer, buffer.detach().clone()) for name, buffer in module.named_buffers()})

    def changed(self, module: Any) -> list[str]:
        """Return the names of buffers that have been replaced by other tensors, or have other values."""
        found = []
        for name, buffer in module.named_buffers():
            before, content = self.saved.get(name, (None, None))
            if buffer is not before or not is_equal(buffer, content):
                found.append(name)
        return found

    def reset(self) -> None:
        with torch.no_grad():
            for buffer, content in self.saved.values():
                if not is_equal(buffer, content):
                    buffer.copy_(content)

    def outputs_and_contents(self, outputs: Any) -> list[Any]:
        """Return the outputs of a call, followed by copies of the buffers' contents."""
        return [*pytree.tree_leaves(outputs), *(buffer.detach().clone() for buffer, _ in self.saved.values())]


@dataclass(frozen=True, eq=False)
class CalledModule:
    """A module that has been called once.

    Attributes:
        module: the module after that first call.
        run: calls the module with copies of the inputs; raises ConfigError where it fails.
        before: the module's state before the first call.
        buffers: the contents of the module's buffers before the first call.
        random: the state of torch's generator before the first call.
        results: the outputs of the first call, followed by the contents of the buffers after the call.
    """

    module: Any
    run: Callable[[Inputs], Any]
    before: Snapshot
    buffers: Buffers
    random: Any
    results: list[Any]

    def carried_state(self, inputs: Inputs) -> str:
        """Return a text on state that the module carries over to its next call outside of buffers; "" if there is none.

        The calls change the module. `inputs` are the inputs of the first call.
        """
        self._warm_up(inputs)
        made: Memory = {}
        settled: Snapshot | None = None
        for _ in range(_CALLS):
            try:
                watch, given = self._call(inputs, made)
            except ConfigError as error:
                return f"{self._changed_names()}: called again with equal inputs, {error.message}"
            if difference := _difference(self.results, given):
                return self._cause(inputs, given, difference)
            if watch.reaches(given):
                return f"{self._changed_names()}: what one call computes goes into what a later one gives"
            del given
            made = self._still_alive({**made, **watch.made})
            if settled is not None and not made and not settled.changed():
                break
            settled = settled or Snapshot(self.module)
        return ""

    def _warm_up(self, inputs: Inputs) -> None:
        """Call the module once, from its first state, with inputs of other values, or with the same values if it fails.

        The call fills caches; if their contents depend on the inputs' values, the following calls show it.
        """
        for values in (_others(inputs), inputs):
            self.before.restore()
            try:
                self.run(values)
                break
            except ConfigError:
                continue
        self.buffers.reset()

    def _call(self, inputs: Inputs, made: Memory) -> tuple[MemoryWatch, list[Any]]:
        """Call the module with the first call's inputs, buffers and random numbers; restore the buffers afterwards.

        `made` is the memory that earlier calls made. The result is the watch, and the outputs followed by the buffers.
        """
        torch.set_rng_state(self.random)
        watch = MemoryWatch(made)
        try:
            with watch:
                outputs = self.run(inputs)
                given = self.buffers.outputs_and_contents(outputs)
        except ConfigError:
            # Some operations of torch fail under a watch, so the module is called again without it.
            torch.set_rng_state(self.random)
            self.buffers.reset()
            watch = MemoryWatch({})
            given = self.buffers.outputs_and_contents(self.run(inputs))
        self.buffers.reset()
        return watch, given

    def _still_alive(self, made: Memory) -> Memory:
        """Return the storages that still exist and do not belong to buffers."""
        own = set(_addresses(buffer for buffer, _ in self.buffers.saved.values()))
        return {address: one for address, one in made.items() if address not in own and not one.expired()}  # type: ignore[no-untyped-call]

    def _cause(self, inputs: Inputs, given: list[Any], difference: str) -> str:
        """Return the cause of a difference from the first call, or "" if rounding is the cause.

        A difference that rounding causes also occurs when the module is restored to its first state.
        """
        kept = self._changed_names()
        if not _is_far(self.results, given) and (kept == _OUTSIDE or not self._is_repeatable(inputs)):
            return ""
        return f"{kept}: called again with equal inputs, {difference}"

    def _is_repeatable(self, inputs: Inputs) -> bool:
        """Tell whether the module repeats the first call's results whenever it is restored to its first state."""
        for _ in range(_CONTROLS):
            self.before.restore()
            if _difference(self.results, self._call(inputs, {})[1]):
                return False
        return True

    def _changed_names(self) -> str:
        own = {name for name, _ in self.module.named_buffers()}
        names = [name for name in self.before.changed() if name not in own]
        return ", ".join([*names[:4], *(["…"] if len(names) > 4 else [])]) or _OUTSIDE


class MemoryWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's class is untyped
    """A watch over the tensors that are computed within the block, and which of them depend on earlier memory."""

    supports_higher_order_operators = True

    def __init__(self, before: Memory) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.made: dict[int, StorageWeakRef] = {}
        self._reached = dict(before)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = set(_addresses(pytree.tree_leaves((args, kwargs))))
        follows = not _is_of_shape_only(func) and any(address in self._reached for address in given)
        outputs = func(*args, **kwargs)
        written = [one for one in pytree.tree_leaves(outputs) if not given.issuperset(_addresses([one]))]
        for value in (*written, *_written(func, args, kwargs)):
            self._note(value, follows)
        return outputs

    def _note(self, value: Any, follows: bool) -> None:
        for address in _addresses([value]):
            self.made[address] = StorageWeakRef(value.untyped_storage())  # type: ignore[no-untyped-call]
            if follows:
                self._reached[address] = self.made[address]

    def reaches(self, values: list[Any]) -> bool:
        """Tell whether one of the values was computed from memory that earlier calls made."""
        return any(address in self._reached for address in _addresses(values))


def _addresses(values: Iterable[Any]) -> list[int]:
    """Return the storage addresses of the values that are tensors with memory."""
    tensors = (one for one in values if isinstance(one, torch.Tensor) and one.layout is torch.strided)
    return [one.untyped_storage()._cdata for one in tensors]


def _written(func: Any, args: Any, kwargs: Any) -> list[Any]:
    """Return the tensors that an operator writes to, by its schema."""
    schema = getattr(func, "_schema", None)
    arguments = () if schema is None else schema.arguments
    given = {**dict(zip([one.name for one in arguments], args, strict=False)), **kwargs}
    return pytree.tree_leaves([given.get(one.name) for one in arguments if one.alias_info and one.alias_info.is_write])


def _is_of_shape_only(func: Any) -> bool:
    """Tell whether an operator uses only the shape of the input, not the values: `zeros_like(x)`, `x.new_ones(3)`."""
    schema = getattr(func, "_schema", None)
    name = "" if schema is None else schema.name.partition("::")[2]
    return name.startswith("new_") or name.endswith("_like")


def _others(inputs: Inputs) -> Inputs:
    """Return inputs with other values: smaller ones, which the module probably accepts.

    Integers are unchanged, since they may be indices.
    """

    def other(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not (leaf.is_floating_point() or leaf.is_complex()):
            return leaf
        factors = torch.linspace(0.5, 0.9, leaf.numel()).reshape(leaf.shape)
        return leaf.clone().mul_(factors).add_(0.05)

    changed: Inputs = pytree.tree_map(other, inputs)
    return changed


def _difference(wanted: list[Any], given: list[Any]) -> str:
    """Describe how two lists of values differ, compared bit for bit; "" if they are equal."""
    if len(wanted) != len(given):
        return f"it gives {len(given)} values, not {len(wanted)}"
    for one, other in zip(wanted, given, strict=True):
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
            if not is_equal(one, other):
                return f"what it gives differs{_difference_text(one, other)}"
        elif _said(one) != _said(other):
            return f"it gives {other} in place of {one}"
    return ""


def _said(value: Any) -> object:
    """Return a form of a value other than a tensor that can be compared; for a user's object, only its type."""
    return (type(value), repr(value) if isinstance(value, (int, float, str)) else "")


def _difference_text(one: Any, other: Any) -> str:
    if one.shape != other.shape or one.is_complex():
        return ""
    return f" by up to {(one.double() - other.double()).abs().nan_to_num().max().item():.3g}"


def _is_far(wanted: list[Any], given: list[Any]) -> bool:
    """Tell whether two lists of values differ by more than rounding."""
    if list(map(_said, wanted)) != list(map(_said, given)):
        return True
    pairs = [(one, other) for one, other in zip(wanted, given, strict=True) if isinstance(one, torch.Tensor)]
    return any(not is_equal(one, other) and not _is_near(one, other) for one, other in pairs)


def _is_near(one: Any, other: Any) -> bool:
    if one.shape != other.shape or not (one.is_floating_point() or one.is_complex()):
        return False
    bound = _ROUNDING * max(one.abs().max().item(), other.abs().max().item())
    return bool(((one - other).abs() <= bound).all())
