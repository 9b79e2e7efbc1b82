"""The known bugs of ExecuTorch and CMSIS-NN that this project found, by number: the only table of them.

Messages, hints and docs/known_bugs.md are generated from it. Programs that show each bug are in
tests/support/known_bugs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class KnownBug:
    """A bug of ExecuTorch or CMSIS-NN.

    Attributes:
        name: the name of the bug in a few words.
        what: what is wrong, in one line.
        where: file and line of the cause.
        workaround: what to do about it, with code in backticks.
        issues: issues and pull requests about it, as `owner/repository#number`.
        tried: whether a test has tried the workaround; if not, it is derived from the cause.
        isa: the only ISA class on which the bug shows; "": all classes.
        faulty_code: a file of CMSIS-NN and a condition in it, which a CMSIS-NN without the bug does not have; "" where
            no CMSIS-NN without the bug is known.
    """

    name: str
    what: str
    where: str
    workaround: str
    issues: tuple[str, ...] = ()
    tried: bool = True
    isa: str = ""
    faulty_code: tuple[str, str] = ("", "")

    @property
    def hint(self) -> str:
        """Return the workaround as the next step of an error."""
        return self.workaround.replace("`", "") + ("" if self.tried else " (not tried)")

    @property
    def upstream(self) -> str:
        """Return a text with the place of the cause and the issues about it."""
        return ", ".join((self.where.replace("`", ""), *self.issues))


def known_bug(number: int) -> str:
    """Return a reference to a known bug, for a message that describes the bug itself."""
    return f"known bug {number} of ExecuTorch"


_CONTIGUOUS: Final = '`x.contiguous()` before the operator, or the module with `layout="explicit"`'
_FLOAT: Final = "`quantize=False` lowers the module in float"
_TRANSPOSED: Final = (
    "`padding=0`, a kernel of at least the stride's size (zeros at its end) and a slice of `y.contiguous()` compute "
    "the same"
)

KNOWN_BUGS: Final[Mapping[int, KnownBug]] = {
    1: KnownBug(
        "scratch of a transposed convolution overrun",
        "planned for the wrong stride where the width's stride is wider than the kernel and the other stride: "
        "288 bytes used of 272",
        "CMSIS-NN `arm_transpose_conv_get_buffer_sizes_s8.c:73–77`",
        _TRANSPOSED,
        issues=("pytorch/executorch#22720", "ARM-software/CMSIS-NN#243"),
    ),
    2: KnownBug(
        "rows of a transposed convolution never written",
        "where the vertical padding is no multiple of the stride: later rows are off by up to 255 quanta; refused "
        "where the installed CMSIS-NN has it (dbf45dbf, not 4a8f5b5d)",
        "CMSIS-NN `arm_transpose_conv_s8.c:141`",
        _TRANSPOSED,
        issues=("ARM-software/CMSIS-NN#230", "ARM-software/CMSIS-NN#233"),
        faulty_code=("Source/ConvolutionFunctions/arm_transpose_conv_s8.c", "(skip_rows_top == 0)"),
    ),
    3: KnownBug(
        "rounding of quantize_per_tensor on MVE",
        "it multiplies and adds in one rounding: 4 of 576 values go to another quantum",
        "ExecuTorch `op_quantize_per_tensor.cpp:182–185`",
        "none needed",
        isa="MVE",
    ),
    4: KnownBug(
        "large inputs wrap around in quantize_per_tensor on MVE",
        "it narrows to 16 bits before it clamps: beyond 32,767 quanta a large positive value becomes −128",
        "ExecuTorch `op_quantize_per_tensor.cpp:196–204`",
        "calibrate with the inputs' true range, or clamp them",
        tried=False,
        isa="MVE",
    ),
    5: KnownBug(
        "broadcast floats in channels-last order",
        "written in contiguous order by portable operators: 396 of 400 elements wrong",
        "ExecuTorch `kernels/portable/cpu/util/broadcast_indexes_range.h:120–137`",
        "`x.contiguous()` before the operator (`x.reshape(x.shape)` where height and width are 1)",
    ),
    6: KnownBug(
        "max pooling with indices refuses a single channel",
        "it refuses dim order 0, 2, 1, 3, which the exporter derives for one channel",
        "ExecuTorch `tensor_util_portable.cpp:64`",
        "`x.reshape(x.shape)` before the operator, which puts dimensions of size 1 in their order",
    ),
    7: KnownBug(
        "minimum and transpose of channels-last tensors",
        "computed as if they were contiguous",
        "ExecuTorch `op_minimum.cpp`, `op_transpose.cpp`",
        _CONTIGUOUS,
    ),
    8: KnownBug(
        "garbled messages",
        "newlib without C99 formats does not know `%zu`, and `%s` after it takes a number for an address",
        "ExecuTorch's `log.cpp`",
        "the runner has a `vsnprintf` of its own",
    ),
    9: KnownBug(
        "grouped convolution without a bias",
        "the null pointer to the biases is advanced by a group, in programs of 1.4.1; executorch 1.5 puts zeros in",
        "CMSIS-NN `arm_convolve_s8.c:384`",
        "give the convolution a bias, of zeros if need be",
        issues=("pytorch/executorch#21825",),
    ),
    10: KnownBug(
        "scratch of a depthwise convolution that is refused",
        "one input channel and a 1×1 kernel, or 1×n on images of height 1: 64 bytes too many are planned on "
        "MVE, and the operator refuses that. Harmless without `CORTEX_M_ENABLE_RUNTIME_CHECKS`",
        "ExecuTorch `passes/scratch_buffer_sizes.py:149–151`: filter dimensions in another order",
        "a kernel filled up with zeros to 3×3, and `padding=1`, computes the same",
        isa="MVE",
    ),
    11: KnownBug(
        "operators of ATen on int8 behind a table",
        "`minimum`, `maximum` and `permute` in a network with a hardswish; still right",
        "ExecuTorch `decompose_hardswish_pass.py`, `aten_to_cortex_m_pass.py:1224–1262`",
        "none needed",
    ),
    12: KnownBug(
        "convolution on integers without their scales",
        "`aten::convolution` stays on int8 where a clamp comes before an operator whose inputs share one quantisation",
        "ExecuTorch `kernels/portable/cpu/op_convolution.cpp:415`",
        "put the clamp behind the `cat`, or behind each input",
    ),
    13: KnownBug(
        "minimum of int8 and float32",
        "of `torch.minimum(x, constant)` with a constant that `forward` makes",
        "executorch 1.5.1, the quantizer",
        "a constant that `forward` makes (`torch.ones`) stays float: keep it in a registered buffer",
    ),
    14: KnownBug(
        "hard sigmoid that stays below a half",
        "the fused layer would need a zero point beyond the range, and the pass clamps it: off by up to 0.25",
        "executorch 1.5.1 `passes/activation_fusion_pass.py`",
        _FLOAT,
    ),
    15: KnownBug(
        "bias beyond int32",
        "a layer whose inputs are all zero in calibration loses its bias, or has it with the other sign",
        "torchao: the bias's derived scale has no lower bound",
        "calibrate with samples that give the layer a range",
        tried=False,
    ),
    16: KnownBug(
        "clamp of integers without their zero point",
        "a relu, relu6 or hard tanh behind anything but a layer or an addition clamps at 0 or ±1 without a scale",
        "executorch 1.5.1: no pass takes it",
        "`torch.maximum(x, self.zero)`, with a registered buffer of one zero (`torch.minimum` for an upper bound)",
    ),
    17: KnownBug(
        "a pool without a stride does not lower",
        "`F.max_pool2d(x, 3, padding=1)` and `F.avg_pool2d`: `Expected length-2 sequence, got []`",
        "executorch 1.5.1 `backends/cortex_m/ops/operators.py:1752`",
        "name the stride",
    ),
    18: KnownBug(
        "an image of one pixel is padded in another order",
        "planned channels-last and read as contiguous, in the explicit layout; also one row where an average "
        "pool counts its padding, and some pads in channels last",
        "executorch 1.5.1 `backends/cortex_m/ops/operators.py:706`",
        "`x.reshape(x.shape)` before it",
        tried=False,
    ),
    19: KnownBug(
        "an average pool has too many rows",
        "with `ceil_mode` and counted padding it computes windows that torch leaves out",
        "executorch 1.5.1 `passes/aten_to_cortex_m_pass.py:883`",
        "a pool without `ceil_mode`, or with `count_include_pad=False`",
        tried=False,
    ),
    20: KnownBug(
        "a zero point beyond 16 bits, on DSP",
        "a hardswish behind a layer with tiny outputs has a zero point that CMSIS-NN adds in 16 bits: off by "
        "up to 241 quanta",
        "executorch 1.5.1 `passes/decompose_hardswish_pass.py:106`; CMSIS-NN `arm_elementwise_mul_s8.c`",
        "what is multiplied has next to no range: calibrate with samples like the data, or write "
        "`x * torch.nn.functional.relu6(x + 3) / 6` for a hardswish, which is computed in float",
        isa="DSP",
    ),
    21: KnownBug(
        "a transposed convolution writes behind its output",
        "where the kernel has fewer rows than stride and padding together: 70 bytes used of 35",
        "CMSIS-NN `arm_transpose_conv_s8.c:143`",
        _TRANSPOSED,
    ),
    22: KnownBug(
        "channels-last tensors are joined as if they were contiguous",
        "by `cat` along any dimension but the first, floats too: off by up to 185 quanta",
        "ExecuTorch `kernels/portable/cpu/op_cat.cpp:59–60`",
        _CONTIGUOUS,
    ),
    23: KnownBug(
        "bundled inputs in another layout",
        "a `.bpte` has its inputs contiguous, and the runtime copies the bytes whatever the dim order",
        "executorch 1.5.1 `exir/tensor.py`; `runtime/executor/method.cpp`, `set_input`",
        "`hil run` lays them out as the program takes them",
    ),
    24: KnownBug(
        "a view in another order",
        "a view of a channels-last tensor costs no copy, whatever the view: `PixelShuffle` and "
        "`ChannelShuffle` give other numbers",
        "ExecuTorch `exir/passes/replace_view_copy_with_view_pass.py`",
        '`layout="explicit"` lowers some of these rightly; a pixel shuffle can be a `ConvTranspose2d` whose kernel is '
        "its stride, with one 1 in each filter",
    ),
    25: KnownBug(
        "a division that rounds down gives no whole number, and an infinity for 0 / 0",
        "14.999999 for 4.6 // 0.3; wrong for 1.6 % of random pairs",
        "ExecuTorch `kernels/portable/cpu/util/math_util.h`, `floor_divide`",
        "`torch.floor(x / y)`",
        tried=False,
    ),
    26: KnownBug(
        "the largest of a dimension aborts",
        "`torch.max(x, dim)[0]` becomes an `amax` with a number for a list: `In function toIntList(), assert failed`",
        "executorch 1.5.1 `backends/transforms/remove_getitem_op.py`",
        "write `x.amax(dim)` for `x.max(dim)[0]`, of which ExecuTorch makes a call without a list",
    ),
    27: KnownBug(
        "a product of a layer and of anything else does not lower",
        "`linear(x) @ x.T`, and so attention: `expected scalar type torch.int32 but found torch.int8`",
        "executorch 1.5.1, the first pass after `FoldAndAnnotateQParamsPass`",
        f"a layer without a bias; or {_FLOAT}",
    ),
    28: KnownBug(
        "sums of index_put without scales",
        "with `accumulate=True` integers are added without scale and zero point",
        "ExecuTorch `kernels/portable/cpu/op_index_put.cpp`",
        f"add to the whole tensor, as with `torch.where`; or {_FLOAT}",
    ),
    29: KnownBug(
        "normalisations of what is far from zero",
        "layer and group norm take the variance as the mean of squares less the squared mean: around 1,000 "
        "off by 0.3; builtin does the same",
        "ExecuTorch `kernels/portable/cpu/op_native_layer_norm.cpp`, `op_native_group_norm.cpp`",
        "take a constant near the mean away first",
        tried=False,
    ),
    30: KnownBug(
        "a remainder of integers has the dividend's sign",
        "−7 % 4 is −3, and 1 in torch; floats are right",
        "ExecuTorch `kernels/portable/cpu/util/math_util.h`, `remainder_override`",
        "`(n % N + N) % N`",
        tried=False,
    ),
    31: KnownBug(
        "circular padding of integers gives floats",
        '`padding_mode="circular"` copies integers into `torch.empty`, which stays float32: '
        "`cortex_m::quantized_linear` would take the floats' bytes for integers",
        "executorch 1.5.1, the folding of quantisers",
        "`torch.cat((x[..., -1:], x, x[..., :1]), -1)` for a padding of 1",
    ),
    32: KnownBug(
        "quantised kernels that do not resize",
        "with dynamic shapes they are right at the upper bounds only: `linear`, `softmax`, `transpose`, `pad` "
        "and average pools give too many rows, `add`, `mul` and tables abort, max pool and `bmm` refuse",
        "ExecuTorch `backends/cortex_m/ops`: no `resize_tensor`",
        "export with static shapes",
    ),
    33: KnownBug(
        "a dynamic convolution is lowered for the example's size",
        "batch, height and width are fixed at the example's, as its scratch is asked for with a number; so "
        "are height and width of an average pool",
        "ExecuTorch `backends/cortex_m/library/cmsis_nn.py:134`, `passes/scratch_buffer_sizes.py`",
        "export with static shapes",
    ),
    34: KnownBug(
        "a bias that no int32 holds",
        "a layer whose input has next to no range (1e-5): the bias is cut off, and sums may leave int32",
        "ExecuTorch `backends/cortex_m/passes/`; CMSIS-NN `arm_fully_connected_s8`",
        "beside this bias the layer's input has next to no range: scale it up, calibrate anew, or `quantize=False`",
    ),
    35: KnownBug(
        "the largest of no pixel",
        "a dilated max pool with a window in the padding alone gives 0, torch minus infinity; builtin refuses it",
        "ExecuTorch `kernels/portable/cpu/util/kernel_ops_util.h`",
        "pad the image before the pool, with a number of your choice, or pool without dilation",
    ),
    36: KnownBug(
        "channels-last tensors are taken for contiguous ones, or refused",
        "by `flip`, `constant_pad_nd` and `unsqueeze`, and in some layouts by `amax`, `amin`, `any`, "
        "`argmax`, `argmin`, `cumsum`, `gather`, `log_softmax`, `scatter`, `slice_copy`, `slice_scatter`, "
        "`var`, `where`, `copy`, `max_pool2d_with_indices`",
        "ExecuTorch `kernels/portable/cpu/op_flip.cpp`, `op_constant_pad_nd.cpp`, `op_unsqueeze_copy.cpp`, …",
        _CONTIGUOUS,
    ),
    37: KnownBug(
        "a softmax of channels-last images writes outside of them",
        "over height or width, where the file has input and output channels-last; today's exporter makes one "
        "that is refused",
        "ExecuTorch `kernels/portable/cpu/util/reduce_util.h`, `apply_over_dim`",
        _CONTIGUOUS,
    ),
    38: KnownBug(
        "a copy of an image with one channel is refused",
        "`x.clone()` and `x.to(…)` ask for dim order 0, 2, 3, 1, and the output is planned in 0, 2, 1, 3; "
        "builtin takes it",
        "executorch 1.5.1 `exir`; `kernels/portable/cpu/util/copy_ops_util.cpp:797`",
        '`x.reshape(x.shape)` before the copy, or the module with `layout="explicit"`',
    ),
    39: KnownBug(
        "rows that CMSIS-NN convolves wrongly on MVE",
        "images and kernels of one row: a stride that leaves the last column over, wide padding, or padding "
        "above and below; some are refused (`failed with status -3`)",
        "CMSIS-NN dbf45dbfcc51 `arm_convolve_1_x_n_s8.c`",
        "a kernel with a row of zeros above and below, and a row more of padding at both ends, computes the same",
        isa="MVE",
    ),
    40: KnownBug(
        "what is computed without gradients stays in float",
        "under `torch.no_grad()` or a switched-off `torch.autocast` the quantiser annotates nothing",
        "executorch 1.5.1 `backends/cortex_m/quantizer/node_finders.py`",
        "none needed: this project writes such graphs out",
    ),
    41: KnownBug(
        "branches of a quantised module compute on integers",
        "without scales and zero points: −0.07 for −1.16",
        "executorch 1.5.1, the quantizer's shared annotation of `cond`",
        "`torch.where` in place of `torch.cond`",
    ),
    42: KnownBug(
        "tensors of two dim orders in one call are refused",
        "a channels-last image beside a tensor of one item or of fewer dimensions, or one of a single channel in an "
        "order of its own: `minimum` of a hardswish's relu6, sums and products with a row",
        "ExecuTorch `tensor_util_portable.cpp:112–136`",
        "`x.contiguous()` before the operator; for a hardswish `x * (relu6(x + three) * sixth)`, with buffers of shape "
        "(1, channels, 1, 1) for the numbers",
    ),
    43: KnownBug(
        "a float convolution of one channel a group is refused",
        "the exporter plans its weight in dim order 0, 2, 1, 3, and the kernel takes two orders alone; transposed "
        "ones are right",
        "ExecuTorch `kernels/portable/cpu/util/kernel_ops_util.cpp:388–391`",
        "quantise it, or `groups=1` with a kernel that is zero for the other channels",
    ),
    44: KnownBug(
        "a transposed convolution that loses its input",
        "above 16 channels, with strides up to 2 and a padding as large as the kernel: the bias is all",
        "CMSIS-NN `arm_transpose_conv_wrapper_s8.c:87–88`",
        _TRANSPOSED,
    ),
    45: KnownBug(
        "a softmax over the channels of one pixel is refused",
        "or over one channel: contiguous and channels-last at once, and the kernel takes the last dimension",
        "ExecuTorch `op_softmax.cpp:60–67`",
        "`torch.softmax(x.flatten(1), 1)`; over one channel it is 1",
    ),
    46: KnownBug(
        "minimum and maximum of a number for each channel, or of five dimensions",
        "(1, 4, 1, 1) with (1, 4, 3, 3) takes the next channel's number; of (2, 2, 4, 3, 3) half is never written",
        "CMSIS-NN `arm_minimum_s8.c:148–205`; ExecuTorch `op_minimum.cpp`",
        "`torch.minimum(x, y.expand(x.shape))`, or both flattened: `x.flatten(1)`",
    ),
}
