// Operators that move int8 items and compute nothing: what CMSIS-NN's arm_transpose_s8 and
// arm_pad_s8 do.
#include <cstring>

#include "runtime/builtin/kernel.h"

namespace hil::builtin {
namespace {

constexpr int kMaxDims = 4;  // CMSIS-NN's

bool check_rank(KernelContext& ctx, const Tensor& input, const Tensor& out) {
  return ctx.require(input.rank >= 1 && input.rank <= kMaxDims && out.rank == input.rank,
                     "input is ", input, ", out is ", out, ": 1 to ", kMaxDims,
                     " dimensions in both needed") &&
         ctx.require_disjoint(out, input, "input");
}

// Transpose

bool check_permutation(KernelContext& ctx, const IntList& perm, const Tensor& input,
                       const Tensor& out) {
  if (!ctx.require(perm.size() == input.rank, "perm has ", perm.size(), " items, input is ",
                   input)) {
    return false;
  }
  uint32_t seen = 0;
  for (uint32_t axis = 0; axis < perm.size(); ++axis) {
    const int64_t from = perm[axis];
    if (!ctx.require(from >= 0 && from < input.rank && (seen >> from & 1) == 0, "perm item ", axis,
                     " is ", from, ": perm is no permutation of the dimensions of ", input)) {
      return false;
    }
    seen |= 1u << from;
    if (!ctx.require(out.size(static_cast<int>(axis)) == input.size(static_cast<int>(from)),
                     "input is ", input, ", out is ", out, ": dimension ", axis,
                     " of out is not dimension ", from, " of input")) {
      return false;
    }
  }
  return true;
}

void permute(const Tensor& input, const IntList& perm, const Tensor& out) {
  uint32_t input_strides[kMaxRank] = {};
  strides_of(input, input_strides);
  uint32_t strides[kMaxDims] = {};
  for (uint32_t axis = 0; axis < perm.size(); ++axis) strides[axis] = input_strides[perm[axis]];

  const int8_t* from = input.as<int8_t>();
  int8_t* to = out.as<int8_t>();
  uint32_t position[kMaxDims] = {};
  uint32_t at = 0;
  for (uint32_t i = 0; i < out.numel; ++i) {
    to[i] = from[at];
    for (int axis = out.rank - 1; axis >= 0; --axis) {
      at += strides[axis];
      if (++position[axis] < out.size(axis)) break;
      at -= strides[axis] * out.size(axis);
      position[axis] = 0;
    }
  }
}

// Pad

// Arguments and sizes are in the order of memory, and right-aligned if there are fewer dimensions.
struct Padding {
  uint32_t input[kMaxDims] = {1, 1, 1, 1};
  uint32_t before[kMaxDims] = {};
  uint32_t out[kMaxDims] = {1, 1, 1, 1};
};

// ExecuTorch's rule, of its compiler as of its runtime: where channels-last and contiguous are the
// same, it is channels-last.
bool counts_as_channels_last(const Tensor& tensor) {
  constexpr uint8_t kOrder[kMaxDims] = {0, 2, 3, 1};
  if (tensor.rank != kMaxDims) return false;
  if (tensor.size(1) == 1 || (tensor.size(2) == 1 && tensor.size(3) == 1)) return true;
  return std::memcmp(tensor.dim_order, kOrder, kMaxDims) == 0;
}

// Do the dimensions of `tensor` lie in memory in the order of `axes`, if those of size 1 may stand
// anywhere?
bool lies_in_order(const Tensor& tensor, const int* axes) {
  uint32_t strides[kMaxRank] = {};
  strides_of(tensor, strides);
  uint32_t stride = 1;
  for (int i = tensor.rank - 1; i >= 0; --i) {
    const uint32_t size = tensor.size(axes[i]);
    if (size != 1 && strides[axes[i]] != stride) return false;
    stride *= size;
  }
  return true;
}

bool read_padding(KernelContext& ctx, const Tensor& input, const Tensor& out, const IntList& pre,
                  const IntList& post, Padding* padding) {
  constexpr int kLogical[kMaxDims] = {0, 1, 2, 3};
  constexpr int kChannelsLast[kMaxDims] = {0, 2, 3, 1};
  const int* axes = counts_as_channels_last(input) ? kChannelsLast : kLogical;
  if (!ctx.require(pre.size() == kMaxDims && post.size() == kMaxDims, "pre_pad has ", pre.size(),
                   " items, post_pad ", post.size(), ", both need ", kMaxDims) ||
      !ctx.require(lies_in_order(input, axes) && lies_in_order(out, axes),
                   "input and out differ in dim order")) {
    return false;
  }
  const int missing = kMaxDims - input.rank;
  for (int i = 0; i < kMaxDims; ++i) {
    const int64_t before = pre[static_cast<uint32_t>(i)];
    const int64_t after = post[static_cast<uint32_t>(i)];
    if (!ctx.require(before >= 0 && before <= INT32_MAX && after >= 0 && after <= INT32_MAX,
                     "pre_pad item ", i, " is ", before, ", post_pad ", after,
                     ": not a number of items")) {
      return false;
    }
    if (i >= missing) {
      padding->input[i] = input.size(axes[i - missing]);
      padding->out[i] = out.size(axes[i - missing]);
    }
    padding->before[i] = static_cast<uint32_t>(before);
    if (!ctx.require(padding->input[i] + before + after == padding->out[i], "input is ", input,
                     ", out is ", out, ": pre_pad item ", i, " is ", before, ", post_pad ", after,
                     ", which gives another size")) {
      return false;
    }
  }
  return true;
}

void copy_inside(const Padding& padding, const int8_t* from, int8_t* to) {
  const uint32_t* size = padding.input;
  const uint32_t* before = padding.before;
  for (uint32_t n = 0; n < size[0]; ++n) {
    for (uint32_t y = 0; y < size[1]; ++y) {
      for (uint32_t x = 0; x < size[2]; ++x, from += size[3]) {
        const uint32_t row = (n + before[0]) * padding.out[1] + y + before[1];
        const uint32_t place = (row * padding.out[2] + x + before[2]) * padding.out[3] + before[3];
        std::memcpy(to + place, from, size[3]);
      }
    }
  }
}

}  // namespace

// cortex_m::transpose.out(Tensor input, int[] perm, *, Tensor(a!) out)
void transpose(KernelContext& ctx) {
  const Tensor& input = ctx.tensor("input", DType::kInt8);
  const IntList perm = ctx.int_list("perm");
  const Tensor& out = ctx.out(DType::kInt8);
  if (!ctx.done() || !check_rank(ctx, input, out) || !check_permutation(ctx, perm, input, out))
    return;
  if (!ctx.require(is_row_major(input) && is_row_major(out), "input or out is not contiguous")) {
    return;
  }
  permute(input, perm, out);
}

// cortex_m::pad.out(Tensor input, int[] pre_pad, int[] post_pad, int pad_value, *, Tensor(a!) out)
void pad(KernelContext& ctx) {
  const Tensor& input = ctx.tensor("input", DType::kInt8);
  const IntList pre = ctx.int_list("pre_pad");
  const IntList post = ctx.int_list("post_pad");
  const int32_t value = ctx.integer("pad_value", INT8_MIN, INT8_MAX);
  const Tensor& out = ctx.out(DType::kInt8);
  Padding padding;
  if (!ctx.done() || !check_rank(ctx, input, out) ||
      !read_padding(ctx, input, out, pre, post, &padding)) {
    return;
  }
  std::memset(out.data, value, out.nbytes);
  if (input.numel != 0) copy_inside(padding, input.as<int8_t>(), out.as<int8_t>());
}

}  // namespace hil::builtin
