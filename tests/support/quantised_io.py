"""Programs whose inputs and outputs are int8, made by ExecuTorch's own passes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

SHAPE = (1, 4)
TAKEN = (0.5, 3, -128, 127)  # scale, zero point and range of the input
GIVEN = (0.25, -4, -127, 126)  # and of the output


class Doubles(torch.nn.Module):
    """Doubles a tensor whose quantisation is given: quantise, dequantise, add, quantise, dequantise."""

    def forward(self, x: torch.Tensor) -> Any:
        operators = torch.ops.quantized_decomposed
        quantized = operators.quantize_per_tensor.default(x, *TAKEN, torch.int8)
        x = operators.dequantize_per_tensor.default(quantized, *TAKEN, torch.int8)
        doubled = operators.quantize_per_tensor.default(x + x, *GIVEN, torch.int8)
        return operators.dequantize_per_tensor.default(doubled, *GIVEN, torch.int8)


@functools.cache
def doubles(method_name: str | None = None) -> bytes:
    """Return the `.pte` of `Doubles` without its conversions; names of its constants begin with `method_name`."""
    import torchao.quantization.pt2e.quantize_pt2e  # noqa: F401  registers the operators

    return _without_conversions(torch.export.export(Doubles(), (torch.zeros(SHAPE),)), method_name)


def int8_io(module: torch.nn.Module, inputs: tuple[Any, ...], calibration: Sequence[tuple[Any, ...]]) -> bytes:
    """Return the `.pte` of a quantised module whose first input and output are int8."""
    from cortex_m_hil.lowering.installed_executorch import executorch_api

    api = executorch_api()
    prepared = api.prepare_pt2e(torch.export.export(module.eval(), inputs).module(check_guards=False), api.quantizer())
    for sample in calibration:
        prepared(*sample)
    return _without_conversions(torch.export.export(api.convert_pt2e(prepared), inputs), None)


def _without_conversions(exported: Any, method_name: str | None) -> bytes:
    from executorch.exir.passes.quantize_io_pass import QuantizeInputs, QuantizeOutputs

    from cortex_m_hil.lowering.installed_executorch import executorch_api

    api = executorch_api()
    edge = api.to_edge(exported, compile_config=api.edge_compile_config())
    edge = edge.transform([QuantizeInputs(edge, [0], method_name), QuantizeOutputs(edge, [0], method_name)])
    config = api.target_config.from_target_string("cortex-m4")
    passes = api.pass_manager(edge.exported_program(), target_config=config)
    edge._edge_programs["forward"] = passes.transform()
    return bytes(edge.to_executorch().buffer)
