"""The bugs of ExecuTorch and CMSIS-NN that this project found, by number, as docs/known_bugs.md describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

UNTRIED: Final = frozenset({4, 15, 18, 19, 25, 29, 30, 34, 35, 36, 37, 38})
"""Numbers of bugs whose workaround follows from what is wrong, and which no test has tried."""


class FoundBug(NamedTuple):
    """A bug that this project found: what is wrong in one line, file and line of the cause, and what to do about it."""

    what: str
    where: str
    workaround: str


_CONTIGUOUS: Final = '`x.contiguous()` before it, or `layout="explicit"`'
_FLOAT: Final = "`quantize=False`"
_REQUANTISE: Final = "calibrate with samples that give the layer a range"

FOUND_BUGS: Final[Mapping[int, FoundBug]] = {
    1: FoundBug(
        "planned for the wrong stride where the width's stride is wider than the kernel and the other stride: 288 "
        "bytes used of 272",
        "CMSIS-NN `arm_transpose_conv_get_buffer_sizes_s8.c:73–77`",
        "a kernel of at least the stride's size",
    ),
    2: FoundBug(
        "where the vertical padding is no multiple of the stride: later rows are off by up to 255 quanta; mended after "
        "the commit that ExecuTorch pins",
        "CMSIS-NN `arm_transpose_conv_s8.c:141`",
        "`padding=0`, and cut the edges off",
    ),
    3: FoundBug(
        "it multiplies and adds in one rounding: 4 of 576 values go to another quantum",
        "ExecuTorch `op_quantize_per_tensor.cpp:182–185`",
        "none needed",
    ),
    4: FoundBug(
        "it narrows to 16 bits before it clamps: beyond 32,767 quanta a large positive value becomes −128",
        "ExecuTorch `op_quantize_per_tensor.cpp:196–204`",
        "calibrate with the inputs' true range, or clamp them",
    ),
    5: FoundBug(
        "written in contiguous order by portable operators: 396 of 400 elements wrong",
        "ExecuTorch `kernels/portable/cpu/util/broadcast_indexes_range.h:120–137`",
        "`x.contiguous()`, and `x.reshape(x.shape)` where height and width are 1",
    ),
    6: FoundBug(
        "it refuses dim order 0, 2, 1, 3, which the exporter derives for one channel",
        "ExecuTorch `tensor_util_portable.cpp:64`",
        "`x.reshape(x.shape)` before it",
    ),
    7: FoundBug("computed as if they were contiguous", "ExecuTorch `op_minimum.cpp`, `op_transpose.cpp`", _CONTIGUOUS),
    8: FoundBug(
        "newlib without C99 formats does not know `%zu`, and `%s` after it takes a number for an address",
        "ExecuTorch's `log.cpp`",
        "the runner has a `vsnprintf` of its own",
    ),
    9: FoundBug(
        "the null pointer to the biases is advanced by a group, in programs of 1.4.1; executorch 1.5 puts zeros in",
        "CMSIS-NN `arm_convolve_s8.c:384`",
        "give the convolution a bias",
    ),
    10: FoundBug(
        "one input channel and a 1×1 kernel, or 1×n on images of height 1: 64 bytes too many are planned on MVE, and "
        "the operator refuses that. Harmless without `CORTEX_M_ENABLE_RUNTIME_CHECKS`",
        "ExecuTorch `passes/scratch_buffer_sizes.py:149–151`: filter dimensions in another order",
        "fill the kernel up with zeros to 3×3, `padding=1`",
    ),
    11: FoundBug(
        "`minimum`, `maximum` and `permute` in a network with a hardswish; still right",
        "ExecuTorch `decompose_hardswish_pass.py`, `aten_to_cortex_m_pass.py:1224–1262`",
        "none needed",
    ),
    12: FoundBug(
        "`aten::convolution` stays on int8 where a clamp comes before an operator whose inputs share one quantisation",
        "ExecuTorch `kernels/portable/cpu/op_convolution.cpp:415`",
        "put the clamp behind the `cat`, or behind each input",
    ),
    13: FoundBug(
        "of `torch.minimum(x, constant)` with a constant that `forward` makes",
        "executorch 1.5.1, the quantizer",
        "keep the constant in a registered buffer",
    ),
    14: FoundBug(
        "the fused layer would need a zero point beyond the range, and the pass clamps it: off by up to 0.25",
        "executorch 1.5.1 `passes/activation_fusion_pass.py`",
        _FLOAT,
    ),
    15: FoundBug(
        "a layer whose inputs are all zero in calibration loses its bias, or has it with the other sign",
        "torchao: the bias's derived scale has no lower bound",
        _REQUANTISE,
    ),
    16: FoundBug(
        "a relu, relu6 or hard tanh behind anything but a layer or an addition clamps at 0 or ±1 without a scale",
        "executorch 1.5.1: no pass takes it",
        _FLOAT,
    ),
    17: FoundBug(
        "`F.max_pool2d(x, 3, padding=1)` and `F.avg_pool2d`: `Expected length-2 sequence, got []`",
        "executorch 1.5.1 `backends/cortex_m/ops/operators.py:1752`",
        "name the stride",
    ),
    18: FoundBug(
        "planned channels-last and read as contiguous, in the explicit layout; also one row where an average pool "
        "counts its padding, and some pads in channels last",
        "executorch 1.5.1 `backends/cortex_m/ops/operators.py:706`",
        "`x.reshape(x.shape)` before it",
    ),
    19: FoundBug(
        "with `ceil_mode` and counted padding it computes windows that torch leaves out",
        "executorch 1.5.1 `passes/aten_to_cortex_m_pass.py:883`",
        "a pool without `ceil_mode`, or with `count_include_pad=False`",
    ),
    20: FoundBug(
        "a hardswish behind a layer with tiny outputs has a zero point that CMSIS-NN adds in 16 bits: off by up to 241 "
        "quanta",
        "executorch 1.5.1 `passes/decompose_hardswish_pass.py:106`; CMSIS-NN `arm_elementwise_mul_s8.c`",
        "`x * torch.nn.functional.relu6(x + 3) / 6`",
    ),
    21: FoundBug(
        "where the kernel has fewer rows than stride and padding together: 70 bytes used of 35",
        "CMSIS-NN `arm_transpose_conv_s8.c:143`",
        "a kernel of at least the stride's size",
    ),
    22: FoundBug(
        "by `cat` along any dimension but the first, floats too: off by up to 185 quanta",
        "ExecuTorch `kernels/portable/cpu/op_cat.cpp:59–60`",
        _CONTIGUOUS,
    ),
    23: FoundBug(
        "a `.bpte` has its inputs contiguous, and the runtime copies the bytes whatever the dim order",
        "executorch 1.5.1 `exir/tensor.py`; `runtime/executor/method.cpp`, `set_input`",
        "`hil run` lays them out as the program takes them",
    ),
    24: FoundBug(
        "a view of a channels-last tensor costs no copy, whatever the view: `PixelShuffle` and `ChannelShuffle` give "
        "other numbers",
        "ExecuTorch `exir/passes/replace_view_copy_with_view_pass.py`",
        '`layout="explicit"`; for a pixel shuffle a `ConvTranspose2d`',
    ),
    25: FoundBug(
        "14.999999 for 4.6 // 0.3; wrong for 1.6 % of random pairs",
        "ExecuTorch `kernels/portable/cpu/util/math_util.h`, `floor_divide`",
        "`torch.floor(x / y)`",
    ),
    26: FoundBug(
        "`torch.max(x, dim)[0]` becomes an `amax` with a number for a list: `In function toIntList(), assert failed`",
        "executorch 1.5.1 `backends/transforms/remove_getitem_op.py`",
        "`x.amax(dim)`",
    ),
    27: FoundBug(
        "`linear(x) @ x.T`, and so attention: `expected scalar type torch.int32 but found torch.int8`; two layers, or "
        "a layer without a bias, lower",
        "executorch 1.5.1, the first pass after `FoldAndAnnotateQParamsPass`",
        f"a layer without a bias, or {_FLOAT}",
    ),
    28: FoundBug(
        "with `accumulate=True` integers are added without scale and zero point",
        "ExecuTorch `kernels/portable/cpu/op_index_put.cpp`",
        _FLOAT,
    ),
    29: FoundBug(
        "layer and group norm take the variance as the mean of squares less the squared mean: around 1,000 off by 0.3; "
        "builtin does the same",
        "ExecuTorch `kernels/portable/cpu/op_native_layer_norm.cpp`, `op_native_group_norm.cpp`",
        "take a constant near the mean away first",
    ),
    30: FoundBug(
        "−7 % 4 is −3, and 1 in torch; floats are right",
        "ExecuTorch `kernels/portable/cpu/util/math_util.h`, `remainder_override`",
        "`(n % N + N) % N`",
    ),
    31: FoundBug(
        '`padding_mode="circular"` copies integers into `torch.empty`, which stays float32: '
        "`cortex_m::quantized_linear` would take the floats' bytes for integers",
        "executorch 1.5.1, the folding of quantisers",
        _FLOAT,
    ),
    32: FoundBug(
        "with dynamic shapes they are right at the upper bounds only: `linear`, `softmax`, `transpose`, `pad` and "
        "average pools give too many rows, `add`, `mul` and tables abort, max pool and `bmm` refuse",
        "ExecuTorch `backends/cortex_m/ops`: no `resize_tensor`",
        "export with static shapes",
    ),
    33: FoundBug(
        "batch, height and width are fixed at the example's, as its scratch is asked for with a number; so are height "
        "and width of an average pool",
        "ExecuTorch `backends/cortex_m/library/cmsis_nn.py:134`, `passes/scratch_buffer_sizes.py`",
        "export with static shapes",
    ),
    34: FoundBug(
        "a layer whose input has next to no range (1e-5): the bias is cut off, and sums may leave int32",
        "ExecuTorch `backends/cortex_m/passes/`; CMSIS-NN `arm_fully_connected_s8`",
        _REQUANTISE,
    ),
    35: FoundBug(
        "a dilated max pool with a window in the padding alone gives 0, torch minus infinity; builtin refuses it",
        "ExecuTorch `kernels/portable/cpu/util/kernel_ops_util.h`",
        "less padding, so that each window covers a pixel",
    ),
    36: FoundBug(
        "by `flip`, `constant_pad_nd` and `unsqueeze`, and in some layouts by `amax`, `amin`, `any`, `argmax`, "
        "`argmin`, `cumsum`, `gather`, `log_softmax`, `scatter`, `slice_copy`, `slice_scatter`, `var`, `where`, "
        "`copy`, `max_pool2d_with_indices`",
        "ExecuTorch `kernels/portable/cpu/op_flip.cpp`, `op_constant_pad_nd.cpp`, `op_unsqueeze_copy.cpp`, …",
        _CONTIGUOUS,
    ),
    37: FoundBug(
        "over height or width, where the file has input and output channels-last; today's exporter makes one that is "
        "refused",
        "ExecuTorch `kernels/portable/cpu/util/reduce_util.h`, `apply_over_dim`",
        _CONTIGUOUS,
    ),
    38: FoundBug(
        "`x.clone()` and `x.to(…)` ask for dim order 0, 2, 3, 1, and the output is planned in 0, 2, 1, 3; "
        "builtin takes it",
        "executorch 1.5.1 `exir`; `kernels/portable/cpu/util/copy_ops_util.cpp:797`",
        "the runtime builtin",
    ),
    39: FoundBug(
        "images and kernels of one row: a stride that leaves the last column over, wide padding, or padding above and "
        "below; some are refused (`failed with status -3`)",
        "CMSIS-NN dbf45dbfcc51 `arm_convolve_1_x_n_s8.c`",
        "a kernel with a row of zeros above and below",
    ),
    40: FoundBug(
        "under `torch.no_grad()` or a switched-off `torch.autocast` the quantiser annotates nothing",
        "executorch 1.5.1 `backends/cortex_m/quantizer/node_finders.py`",
        "none needed: this project writes such graphs out",
    ),
    41: FoundBug(
        "without scales and zero points: −0.07 for −1.16",
        "executorch 1.5.1, the quantizer's shared annotation of `cond`",
        _FLOAT,
    ),
}
