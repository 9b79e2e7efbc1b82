"""Makes the programs beside this file: `python tests/fuzz_seeds/make.py`. Needs torch and executorch.

Small, so that most of a file is fields and not weights. Weights follow a formula, as the self-test's do.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from executorch.exir import to_edge
from executorch.exir.passes import MemoryPlanningPass

from cortex_m_hil.lowering import Layout, LoweringOptions, lower
from cortex_m_hil.lowering.installed_executorch import executorch_api
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.memory import Placed


def _fill(module: torch.nn.Module) -> torch.nn.Module:
    with torch.no_grad():
        for number, parameter in enumerate(module.parameters()):
            values = ((5 * np.arange(parameter.numel()) + number) % 13 - 6) / 16
            parameter.copy_(torch.from_numpy(values.astype(np.float32)).reshape(parameter.shape))
    return module.eval()


def _input(*shape: int) -> tuple[Any, ...]:
    values = (5 * np.arange(int(np.prod(shape))) % 17 - 8) / 8
    return (torch.from_numpy(values.astype(np.float32)).reshape(shape),)


def _autoencoder() -> torch.nn.Module:
    sizes = (16, 8, 3, 8, 16)
    layers: list[torch.nn.Module] = []
    for inner, outer in pairwise(sizes):
        layers += [torch.nn.Linear(inner, outer), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


class _Images(torch.nn.Module):
    """One of each kind of operator on images."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 3, 3, padding=1)
        self.depthwise = torch.nn.Conv2d(3, 3, 3, padding=1, groups=3)

    def forward(self, x: Any) -> Any:
        x = torch.nn.functional.pad(self.conv(x), (1, 0, 0, 1))
        x = (x + self.depthwise(x)) * x
        return torch.max_pool2d(x, 2) + torch.nn.functional.avg_pool2d(x, 2)


class _Rows(torch.nn.Module):
    """One of each kind of operator on rows."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(6, 4)

    def forward(self, x: Any, y: Any) -> Any:
        return torch.softmax(self.linear(torch.maximum(x, y)), dim=-1)


class _Floats(torch.nn.Module):
    """One of each kind of ATen's operators, in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 3, 2)

    def forward(self, x: Any, y: Any) -> Any:
        x = torch.max_pool2d(self.conv(x), 2, 1)
        x = torch.cat((x, x - torch.amax(x, (2, 3), keepdim=True)), 1)
        x = torch.clamp(x / (y * y + torch.full((1,), 2.0)), -1, 1) * torch.full((2,), 0.5)
        x = torch.softmax(x, 1).permute(0, 2, 3, 1)
        row = torch.minimum(x, y.permute(0, 2, 3, 1)).select(1, 0).unsqueeze(1)
        return torch.maximum(x, row), x >= row


class _Rest(torch.nn.Module):
    """What on integers none of the others has."""

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.ConvTranspose2d(1, 2, 2)
        self.linear = torch.nn.Linear(6, 4)

    def forward(self, x: Any, y: Any) -> Any:
        x = torch.sigmoid(torch.nn.functional.hardswish(self.linear(x)))
        x = torch.minimum(x, torch.maximum(x[0], x[1])).reshape(1, 3, 4)
        product = torch.bmm(x.permute(0, 2, 1), torch.cat((x, x), 2))
        return product / (product * product + 1), self.up(y)


class _Kept(torch.nn.Module):
    """State that is shifted and state that is computed, of two initial values."""

    window: torch.Tensor
    hidden: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        self.register_buffer("window", torch.zeros(1, 3, 4))
        self.register_buffer("hidden", torch.full((1, 3), 0.5))

    def forward(self, x: Any) -> Any:
        window = torch.cat((self.window[:, 1:], x), 1)
        self.window.copy_(window)
        hidden = self.linear(window[:, 0]) + self.hidden
        self.hidden.copy_(hidden)
        return hidden


def _methods() -> bytes:
    """Three methods that share weights, and constant ones."""
    shared, (x,) = _fill(torch.nn.Linear(4, 4)), _input(2, 4)
    modules = {"forward": shared, "encode": torch.nn.Sequential(shared, torch.nn.ReLU()), "decode": _Sum()}
    inputs = {"forward": (x,), "encode": (x,), "decode": (x, x)}
    exported = {name: torch.export.export(module.eval(), inputs[name]) for name, module in modules.items()}
    constants = {"scale": 0.5, "zero_point": -3, "sizes": [2, 4], "name": "seed", "table": torch.arange(5)}
    return bytes(to_edge(exported, constant_methods=constants).to_executorch().buffer)


def _int8() -> bytes:
    """Quantised inputs and outputs with their constants, and no memory planned for them."""
    from executorch.exir.passes.quantize_io_pass import QuantizeInputs, QuantizeOutputs

    api, module, inputs = executorch_api(), _fill(torch.nn.Linear(4, 3)), _input(2, 4)
    prepared = api.prepare_pt2e(torch.export.export(module, inputs).module(check_guards=False), api.quantizer())
    prepared(*inputs)
    exported = torch.export.export(api.convert_pt2e(prepared), inputs)
    edge = api.to_edge(exported, compile_config=api.edge_compile_config())
    edge = edge.transform([QuantizeInputs(edge, [0]), QuantizeOutputs(edge, [0])])
    config = api.target_config.from_target_string("cortex-m0plus")
    edge._edge_programs["forward"] = api.pass_manager(edge.exported_program(), target_config=config).transform()
    planning = MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)
    return bytes(edge.to_executorch(api.backend_config(memory_planning_pass=planning)).buffer)


class _Sum(torch.nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        return x + y


def main() -> None:
    folder = Path(__file__).parent
    (folder / "methods.pte").write_bytes(_methods())
    (folder / "int8.pte").write_bytes(_int8())
    conv = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3, padding=1), torch.nn.AvgPool2d(2))
    programs: list[tuple[str, torch.nn.Module, tuple[Any, ...], Layout | None]] = [  # None: not quantised
        ("linear", torch.nn.Linear(9, 5), _input(2, 9), "channels_last"),
        ("autoencoder", _autoencoder(), _input(1, 16), "channels_last"),
        ("rows", _Rows(), (*_input(3, 6), *_input(3, 6)), "channels_last"),
        ("conv", conv, _input(1, 2, 4, 4), "channels_last"),
        ("images", _Images(), _input(1, 2, 5, 5), "channels_last"),
        ("images_nhwc", _Images(), _input(1, 2, 5, 5), "explicit"),
        ("floats", _Floats(), (*_input(1, 2, 5, 4), *_input(1, 6, 1, 1)), None),
        ("kept", _Kept(), _input(1, 1, 4), "channels_last"),
        ("rest", _Rest(), (*_input(3, 6), *_input(1, 1, 3, 3)), "channels_last"),
    ]
    banks = LoweringOptions(quantize=False, banks=(Placed("fast", 64), Placed("large", 4096)))
    banked = lower(_fill(conv), _input(1, 2, 4, 4), isa=Isa.SCALAR, name="banks", options=banks)
    (folder / "banks.pte").write_bytes(banked.pte)
    for name, module, inputs, layout in programs:
        options = LoweringOptions(quantize=False) if layout is None else LoweringOptions(layout=layout)
        program = lower(_fill(module), inputs, isa=Isa.SCALAR, name=name, options=options)
        (folder / f"{name}.pte").write_bytes(program.pte)


if __name__ == "__main__":
    main()
