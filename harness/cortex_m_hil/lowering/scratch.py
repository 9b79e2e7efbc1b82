"""The scratch memory that CMSIS-NN needs for each instruction of a `.pte`, computed by the wheel's Python binding.

Each size function gets the same dimensions as in ExecuTorch's `backends/cortex_m/passes/scratch_buffer_sizes.py`; here
they are read from the arguments in the file, in the order of the schema (`backends/cortex_m/ops/operators.yaml`). Needs
executorch, not torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from cortex_m_hil.errors import ProgramRejected, ToolchainError
from cortex_m_hil.lowering.installed_executorch import feature, require_sizes
from cortex_m_hil.program.program import Program, ScratchNeed
from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.values import Instruction
from cortex_m_hil.targets.cpu import Isa

__all__ = ["ScratchNeed", "required_scratch", "scratch_needs"]


@dataclass(frozen=True)
class _Call:
    """The arguments of one instruction, read by their number in the schema."""

    file: PteFile
    instruction: Instruction

    def arg(self, number: int) -> int:
        """Return the value index of an argument; raise ProgramRejected if the call is too short."""
        args = self.instruction.args
        if not -len(args) <= number < len(args):
            raise ProgramRejected(
                f"operator {self.instruction.index} has {len(args)} arguments, its schema more",
                operator=self.instruction.operator,
            )
        return args[number]

    def shape(self, number: int, rank: int) -> tuple[int, ...]:
        spec = self.file.values[self.arg(number)].spec
        if spec is None or len(spec.shape) != rank:
            raise ProgramRejected(
                f"operator {self.instruction.index}: argument {number} is {spec}, not a tensor of rank {rank}",
                operator=self.instruction.operator,
            )
        return spec.shape

    def nhwc(self, number: int) -> list[int]:
        """Return a 4-D shape as NHWC, as CMSIS-NN expects it; plain operators have NCHW shapes with NHWC memory."""
        shape = self.shape(number, 4)
        if self.instruction.operator.endswith("_nhwc.out"):
            return list(shape)
        return [shape[0], shape[2], shape[3], shape[1]]

    def number(self, number: int) -> int:
        return int(self.file.values[self.arg(number)].scalar or 0)

    def pair(self, number: int) -> list[int]:
        return list(self.file.ints(self.arg(number)))


Sizes = Callable[[Any, Any, _Call], list[int]]


def _convolution(cmsis_nn: Any, backend: Any, call: _Call) -> list[int]:
    weight = call.shape(1, 4)  # OHWI
    return [cmsis_nn.convolve_wrapper_buffer_size(
        backend, cmsis_nn.DataType.A8W8, filter_nhwc=list(weight), **_geometry(call, dilation=5), **_range(call, 6, 10)
    )]  # fmt: skip


def _depthwise(cmsis_nn: Any, backend: Any, call: _Call) -> list[int]:
    """Return the size of a depthwise convolution's scratch, for the filter dimensions that the runtime passes.

    The runtime does so in `op_quantized_depthwise_conv2d.cpp:187`. ExecuTorch's pass gives the output channels as the
    first dimension and 1 as the last. On MVE, where CMSIS-NN turns one input channel into a convolution, a 1x1 or 1xn
    kernel is then not recognised, and the plan has 64 bytes or so too many (known bug 10 in docs/known_bugs.md).
    """
    weight = call.shape(1, 4)  # IHWO
    return [cmsis_nn.depthwise_conv_wrapper_buffer_size(
        backend, cmsis_nn.DataType.A8W8, filter_nhwc=list(weight), ch_mult=call.number(6),
        **_geometry(call, dilation=5), **_range(call, 7, 11),
    )]  # fmt: skip


def _transposed(cmsis_nn: Any, backend: Any, call: _Call) -> list[int]:
    """Return the sizes of two buffers: for the transposed convolution, and for the convolution that may replace it."""
    geometry = _geometry(call, dilation=6) | _range(call, 7, 11)
    geometry |= {"filter_nhwc": list(call.shape(1, 4)), "padding_offsets_hw": call.pair(5)}
    without_output = {name: value for name, value in geometry.items() if name != "output_nhwc"}
    return [
        cmsis_nn.transpose_conv_buffer_size(backend, cmsis_nn.DataType.A8W8, **geometry),
        cmsis_nn.transpose_conv_reverse_conv_buffer_size(backend, cmsis_nn.DataType.A8W8, **without_output),
    ]


def _matmul(cmsis_nn: Any, backend: Any, call: _Call) -> list[int]:
    _, columns, inner = call.shape(2, 3)
    # Height and width do not affect the size; ExecuTorch passes -1 too.
    shape = [inner, -1, -1, columns]
    return [cmsis_nn.fully_connected_buffer_size(backend, cmsis_nn.DataType.A8W8, filter_nhwc=shape)]


def _average_pool(cmsis_nn: Any, backend: Any, call: _Call) -> list[int]:
    width, channels = call.nhwc(-1)[2], call.nhwc(0)[3]
    return [cmsis_nn.avgpool_buffer_size(backend, cmsis_nn.DataType.A8W8, dim_dst_width=width, ch_src=channels)]


def _geometry(call: _Call, *, dilation: int) -> dict[str, list[int]]:
    return {
        "input_nhwc": call.nhwc(0),
        "output_nhwc": call.nhwc(-1),
        "stride_hw": call.pair(3),
        "padding_hw": call.pair(4),
        "dilation_hw": call.pair(dilation),
    }


def _range(call: _Call, offsets: int, activation: int) -> dict[str, int]:
    return {
        "input_offset": call.number(offsets),
        "output_offset": call.number(offsets + 1),
        "activation_min": call.number(activation),
        "activation_max": call.number(activation + 1),
    }


# The size function of each operator, and the numbers of its scratch arguments.
_SCRATCH: Final[Mapping[str, tuple[Sizes, tuple[int, ...]]]] = {
    "cortex_m::quantized_conv2d.out": (_convolution, (12,)),
    "cortex_m::quantized_conv2d_nhwc.out": (_convolution, (12,)),
    "cortex_m::quantized_depthwise_conv2d.out": (_depthwise, (13,)),
    "cortex_m::quantized_depthwise_conv2d_nhwc.out": (_depthwise, (13,)),
    "cortex_m::quantized_transpose_conv2d.out": (_transposed, (13, 14)),
    "cortex_m::quantized_transpose_conv2d_nhwc.out": (_transposed, (13, 14)),
    "cortex_m::quantized_batch_matmul.out": (_matmul, (7,)),
    # Counted from the end, because executorch 1.5 added the argument ceil_mode; the out argument is last, twice.
    "cortex_m::quantized_avg_pool2d.out": (_average_pool, (-3,)),
    "cortex_m::quantized_avg_pool2d_nhwc.out": (_average_pool, (-3,)),
}


def scratch_needs(program: Program, isa: Isa) -> tuple[ScratchNeed, ...]:
    """Return the scratch sizes that a program has, else those of `required_scratch`.

    Return an empty tuple without the wheel.
    """
    if program.scratch is not None:
        return program.scratch(isa)
    with suppress(ToolchainError):
        return required_scratch(program.file, isa)
    return ()


def required_scratch(file: PteFile, isa: Isa) -> tuple[ScratchNeed, ...]:
    """Return the scratch needed on ``isa`` and planned in the file, in instruction order.

    Raise ToolchainError without the cmsis_nn binding, ProgramRejected where arguments do not fit the schema.
    """
    cmsis_nn = feature("executorch.backends.cortex_m.library.cmsis_nn")
    require_sizes(cmsis_nn)
    needs: list[ScratchNeed] = []
    for instruction in file.instructions:
        if instruction.operator in _SCRATCH:
            needs.extend(_needs(cmsis_nn, _Call(file, instruction), isa))
    return tuple(needs)


def _ask(sizes: Sizes, cmsis_nn: Any, isa: Isa, call: _Call) -> list[int]:
    """Return the sizes for a call; raise ProgramRejected for arguments that the binding does not accept.

    The binding takes 32-bit integers and lists of two; any other argument is an error in the file. Where it casts an
    argument itself, pybind11 raises RuntimeError.
    """
    try:
        return sizes(cmsis_nn, getattr(cmsis_nn.Backend, isa.value), call)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise ProgramRejected(
            f"operator {call.instruction.index} has arguments that CMSIS-NN cannot take",
            operator=call.instruction.operator,
        ) from error


def _needs(cmsis_nn: Any, call: _Call, isa: Isa) -> list[ScratchNeed]:
    sizes, places = _SCRATCH[call.instruction.operator]
    wanted = {each: _ask(sizes, cmsis_nn, each, call) for each in Isa}
    needs = []
    for number, place in enumerate(places):
        value = call.file.values[call.arg(place)]
        elsewhere = tuple((each, int(wanted[each][number])) for each in Isa if each is not isa)
        planned = value.spec.nbytes if value.spec is not None else 0
        needs.append(
            ScratchNeed(
                call.instruction.index,
                call.instruction.operator,
                value.index,
                int(wanted[isa][number]),
                planned,
                elsewhere,
            )
        )
    return needs
