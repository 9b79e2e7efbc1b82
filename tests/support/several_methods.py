"""Programs of several methods, made by ExecuTorch: an encoder, a decoder and a reset that share weights."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from executorch.exir import to_edge
from executorch.exir._serialize._program import PTEFile, deserialize_pte_binary, serialize_pte_binary

from cortex_m_hil.host.compiler_state.state import compiler_state


class Shared(torch.nn.Module):
    """The weights of all methods, and a state."""

    state: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4, bias=False)
        with torch.no_grad():
            self.linear.weight.copy_(torch.arange(16).reshape(4, 4) / 8 - 1)
        self.register_buffer("state", torch.zeros(1, 4))


class Encoder(torch.nn.Module):
    """Adds each input to the state, and encodes the sum."""

    def __init__(self, shared: Shared) -> None:
        super().__init__()
        self.shared = shared

    def forward(self, x: torch.Tensor) -> Any:
        total = self.shared.state + x
        self.shared.state.copy_(total)
        return self.shared.linear(total)


class Decoder(torch.nn.Module):
    """A module with two inputs and two outputs."""

    def __init__(self, shared: Shared) -> None:
        super().__init__()
        self.shared = shared

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        decoded = torch.relu(self.shared.linear(x))
        return decoded, decoded - y


class Reset(torch.nn.Module):
    """A module without inputs, which resets the state."""

    def __init__(self, shared: Shared) -> None:
        super().__init__()
        self.shared = shared

    def forward(self) -> Any:
        zeros = self.shared.state - self.shared.state
        self.shared.state.copy_(zeros)
        return zeros


ROW = (torch.tensor([[1.0, 2.0, 3.0, 4.0]]),)
PAIR = (torch.tensor([[0.5, -1.0, 2.0, 0.0]]), torch.ones(1, 4))
CONSTANTS: Mapping[str, Any] = {"vocabulary": 49152, "rate": 16000.5, "is_causal": True}


def modules() -> dict[str, tuple[torch.nn.Module, tuple[torch.Tensor, ...]]]:
    """Return new modules for the methods, in their initial state, with inputs."""
    shared = Shared().eval()
    return {"encode": (Encoder(shared), ROW), "decode": (Decoder(shared), PAIR), "reset": (Reset(shared), ())}


def made(
    methods: Mapping[str, tuple[torch.nn.Module, tuple[Any, ...]]], constants: Mapping[str, Any] | None = None
) -> bytes:
    """Return the `.pte` of modules by the names of their methods, and of constant methods, as ExecuTorch makes it."""
    with compiler_state.own_work():  # later lowerings of this process keep their keys
        exported = {name: torch.export.export(module, inputs) for name, (module, inputs) in methods.items()}
        return bytes(to_edge(exported, constant_methods=dict(constants or {})).to_executorch().buffer)


@functools.cache
def three_methods() -> bytes:
    """Return the `.pte` of encode, decode and reset with constants. Their file's order is that of the alphabet."""
    return made(modules(), CONSTANTS)


def edited(pte: bytes, edit: Callable[[Any], object]) -> bytes:
    """Return the `.pte` after a change of its tree of ExecuTorch's schema classes."""
    tree = deserialize_pte_binary(pte).program
    edit(tree)
    return bytes(serialize_pte_binary(PTEFile(program=tree)))
