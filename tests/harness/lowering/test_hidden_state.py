"""What a module carries over to its next call is a registered buffer, or is refused: a program would not have it."""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from cortex_m_hil.errors import LoweringError
from cortex_m_hil.lowering import LoweringOptions, export, lower
from cortex_m_hil.lowering import hidden_state as carried
from cortex_m_hil.targets.cpu import Isa

X = torch.linspace(-1, 1, 8).reshape(1, 8) + 0.1
COUNT = itertools.count(1)
GLOBAL: dict[str, Any] = {"h": torch.zeros(1, 8)}


class Own(nn.Module):
    """A function of the module and its inputs, attributes that it begins with, and a layer."""

    def __init__(self, function: Callable[..., Any], **attributes: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        self.layer = nn.Linear(8, 4)
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, *inputs: Any) -> Any:
        return self.function(self, *inputs)


class Cell:
    """An object that is no module."""

    def __init__(self) -> None:
        self.h = torch.zeros(1, 8)


def assigned(self: Any, x: Any) -> Any:
    self.h = 0.9 * self.h + x
    return self.layer(self.h)


def of_an_object(self: Any, x: Any) -> Any:
    self.cell.h = 0.9 * self.cell.h + x
    return self.layer(self.cell.h)


def in_a_list(self: Any, x: Any) -> Any:
    self.states[1] = 0.9 * self.states[1] + x
    return self.layer(self.states[1])


def in_a_dict(self: Any, x: Any) -> Any:
    self.states["h"] = 0.9 * self.states["h"] + x
    return self.layer(self.states["h"])


def in_a_tuple(self: Any, x: Any) -> Any:
    self.states = (self.states[0] + x, self.states[1])
    return self.layer(self.states[0])


def none_at_first(self: Any, x: Any) -> Any:
    self.h = x if self.h is None else 0.9 * self.h + x
    return self.layer(self.h)


def differences(self: Any, x: Any) -> Any:
    """Nothing at first, and nothing again for equal inputs."""
    step = torch.zeros_like(x) if self.h is None else x - self.h
    self.h = x
    return self.layer(step)


def counted(self: Any, x: Any) -> Any:
    self.n += 1
    return self.layer(x * self.n)


def every_eighth(self: Any, x: Any) -> Any:
    self.n += 1
    return self.layer(x if self.n % 8 else -x)


def at_a_place(self: Any, x: Any) -> Any:
    """The window is a buffer, changed in place. Where to, a program does not count."""
    self.window[:, self.n % 4] = x
    self.n += 1
    return self.layer(self.window.sum(1))


def delayed(self: Any, x: Any) -> Any:
    """What five frames before gave: zeros, in the first calls."""
    self.queue.append(x)
    return self.layer(self.queue.popleft())


def delayed_in_a_tensor(self: Any, x: Any) -> Any:
    self.h = torch.cat([self.h[1:], x])
    return self.layer(self.h[:1])


def begun_with_the_first(self: Any, x: Any) -> Any:
    """A scale from the data of the first call, which the program would take from those of each."""
    if self.scale is None:
        self.scale = x.abs().max()
    return self.layer(x / self.scale)


def of_the_world(self: Any, x: Any) -> Any:
    GLOBAL["h"] = 0.9 * GLOBAL["h"] + x
    return self.layer(GLOBAL["h"])


def of_a_closure() -> nn.Module:
    h = torch.zeros(1, 8)

    def function(self: Any, x: Any) -> Any:
        nonlocal h
        h = 0.9 * h + x
        return self.layer(h)

    return Own(function)


def within() -> nn.Module:
    return nn.Sequential(nn.ReLU(), Own(assigned, h=torch.zeros(1, 8)))


def windowed() -> nn.Module:
    module = Own(at_a_place, n=0)
    module.register_buffer("window", torch.zeros(1, 4, 8))
    return module


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "assigned": (lambda: Own(assigned, h=torch.zeros(1, 8)), r"h: called again with equal inputs, what it gives dif"),
    "within": (within, r"1\.h: "),
    "of an object": (lambda: Own(of_an_object, cell=Cell()), r"cell\.h: "),
    "in a list": (lambda: Own(in_a_list, states=[None, torch.zeros(1, 8)]), r"states\[1\]: "),
    "in a dict": (lambda: Own(in_a_dict, states={"h": torch.zeros(1, 8)}), r"states\['h'\]: "),
    "in a tuple": (lambda: Own(in_a_tuple, states=(torch.zeros(1, 8), None)), "states: "),
    "None at first": (lambda: Own(none_at_first, h=None), "h: "),
    "differences": (lambda: Own(differences, h=None), "h: "),
    "counted": (lambda: Own(counted, n=0), "n: called again with equal inputs, what it gives differs by up to"),
    "every eighth": (lambda: Own(every_eighth, n=0), "n: "),
    "at a place": (windowed, "n: "),
    "delayed": (lambda: Own(delayed, queue=deque([torch.zeros(1, 8)] * 5)), r"queue\["),
    "delayed in a tensor": (lambda: Own(delayed_in_a_tensor, h=torch.zeros(50, 8)), "h: what one call computes goes"),
    "begun with the first": (lambda: Own(begun_with_the_first, scale=None), "scale: "),
    "of the world": (lambda: Own(of_the_world), "a closure, a global"),
    "of a closure": (of_a_closure, "a closure, a global"),
}


@pytest.mark.parametrize("form", REFUSED)
def test_what_is_carried_over_in_no_buffer_is_refused(form: str) -> None:
    make, said = REFUSED[form]
    module = make()
    with pytest.raises(LoweringError, match=f"carries something over to its next call.*: {said}") as caught:
        export(module, (X,))
    assert "register_buffer" in caught.value.hint and "copy_" in caught.value.hint


def test_it_is_seen_where_it_changes_nothing_yet() -> None:
    """Zeros are remembered of zeros, and no output tells: what is read does."""
    torch.manual_seed(0)
    module = Own(assigned, h=torch.zeros(1, 8))
    with pytest.raises(LoweringError, match="h: "):
        export(module, (torch.zeros(1, 8, dtype=torch.int32),))
    assert not vars(module)["h"].any()


# --- what is no state ---------------------------------------------------------------------------------------------


def lazily_cached(self: Any, x: Any) -> Any:
    if self.mask is None:
        self.mask = torch.ones(8, 8).triu()[3]
    return self.layer(x * self.mask)


def cut(self: Any, x: Any) -> Any:
    """A table for the longest sequence, cut and converted in each call."""
    self.table = self.table[:, : x.shape[1]].to(x.dtype)
    return self.layer(x + self.table)


@functools.lru_cache
def table(size: int) -> Any:
    return torch.arange(float(size))


def kept_for_someone(self: Any, x: Any) -> Any:
    """A counter, the last and all activations, a mean of them: none is in the output."""
    self.calls += 1
    self.last = self.layer(x)
    self.all.append(self.last)
    self.mean = 0.9 * self.mean + 0.1 * self.last
    GLOBAL["last"] = self.last
    return torch.relu(self.last) + table(4)


def shaped_like_the_last(self: Any, x: Any) -> Any:
    zeros = torch.zeros_like(x if self.last is None else self.last)
    self.last = x + 1
    return self.layer(x + zeros)


def random_numbers(self: Any, x: Any) -> Any:
    return self.layer(functional.dropout(x, 0.5, training=True) + torch.rand(8))


def particular(self: Any, x: Any) -> Any:
    """It takes its own inputs only."""
    if not torch.equal(x, X):
        raise ValueError("other inputs")
    self.mask = torch.ones(8) if self.mask is None else self.mask
    return self.layer(x * self.mask)


def chosen(self: Any, x: Any) -> Any:
    return torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (self.layer(x),))


class Averages(nn.Module):
    mean: torch.Tensor
    unknown: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(1, 8))
        self.register_buffer("unknown", torch.full((1, 8), float("nan")))

    def forward(self, x: Any) -> Any:
        self.mean.mul_(0.5).add_(x)
        return self.mean + torch.nan_to_num(self.unknown)


TAKEN: dict[str, tuple[Callable[[], nn.Module], tuple[Any, ...]]] = {
    "lazily cached": (lambda: Own(lazily_cached, mask=None), (X,)),
    "cut": (lambda: Own(cut, table=torch.rand(1, 20)), (X,)),
    "kept for someone": (lambda: Own(kept_for_someone, calls=0, last=None, all=[], mean=torch.zeros(1, 4)), (X,)),
    "shaped like the last": (lambda: Own(shaped_like_the_last, last=None), (X,)),
    "chosen": (lambda: Own(chosen), (X,)),
    "a buffer": (Averages, (X,)),
    "normalised weights": (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(8, 4)), (X,)),
    "recurrent": (lambda: nn.GRU(8, 4), (torch.rand(5, 1, 8),)),
    "transformer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (torch.rand(1, 5, 8),)),
    "embedding": (lambda: nn.EmbeddingBag(9, 4), (torch.tensor([[1, 8, 3]]),)),
    "images": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), (torch.rand(1, 3, 9, 9),)),
}


@pytest.mark.first_only
@pytest.mark.parametrize("form", TAKEN)
def test_what_changes_no_output_is_nobodys_business(form: str) -> None:
    make, inputs = TAKEN[form]
    module = make()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    exported = export(module, inputs)
    assert exported.states == (("mean",) if isinstance(module, Averages) else ())
    for name, value in module.state_dict().items():
        assert torch.equal(value.nan_to_num(), before[name].nan_to_num())


def test_a_module_need_not_take_other_inputs() -> None:
    module = Own(particular, mask=None)
    calls = carried_of(module)
    assert calls == "" and module.mask is not None


def carried_of(module: Any) -> str:
    """By hand, for what torch.export does not take."""
    from cortex_m_hil.lowering.module_export import _run_and_check
    from cortex_m_hil.lowering.snapshot import Snapshot

    return _run_and_check("Own", module.eval(), (X,), Snapshot(module))[2]


def test_random_numbers_are_no_state() -> None:
    """They differ from call to call without anything that is carried over: they are refused as what they are."""
    with pytest.raises(
        LoweringError, match=r"^Own: forward draws random numbers at .*test_hidden_state\.py:\d+, with "
    ):
        export(Own(random_numbers), (X,))


def test_sums_in_another_order_are_no_state() -> None:
    """As of kernels with several threads: it differs from call to call, and by rounding only."""

    def shaken(self: Any, x: Any) -> Any:
        return self.layer(x) * (1 + 1e-6 * (next(COUNT) % 2))

    def shaken_more(self: Any, x: Any) -> Any:
        return self.layer(x) * (1 + 1e-2 * (next(COUNT) % 2))

    def little(self: Any, x: Any) -> Any:
        self.n += 1
        return self.layer(x) * (1 + 1e-6 * self.n)

    def shaken_while_it_counts(self: Any, x: Any) -> Any:
        self.n += 1
        return shaken(self, x)

    assert carried_of(Own(shaken)) == carried_of(Own(shaken_while_it_counts, n=0)) == ""
    assert carried_of(Own(little, n=0)).startswith("n: ")
    assert "a closure, a global" in carried_of(Own(shaken_more))


def test_operators_that_cannot_be_watched_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("not this one")

    monkeypatch.setattr(carried.MemoryWatch, "__torch_dispatch__", fails)
    assert carried_of(Own(lazily_cached, mask=None)) == ""
    assert carried_of(Own(counted, n=0)).startswith("n: ")


def test_a_module_that_does_not_settle_is_called_no_more_than_so_often() -> None:
    module = Own(kept_for_someone, calls=0, last=None, all=[], mean=torch.zeros(1, 4))
    assert carried_of(module) == "" and module.calls == carried._CALLS + 1
    settled = Own(lazily_cached, mask=None)
    calls = []
    settled.register_forward_hook(lambda *_: calls.append(1))
    assert carried_of(settled) == "" and len(calls) == 4


@pytest.mark.slow
def test_an_exported_program_is_taken_as_it_is() -> None:
    """torch's own export has lost it already, and no module is there to be asked."""
    program = torch.export.export(Own(assigned, h=torch.zeros(1, 8)).eval(), (X,), strict=True)
    assert lower(program, isa=Isa.DSP, options=LoweringOptions(quantize=False)).state_names == ()
