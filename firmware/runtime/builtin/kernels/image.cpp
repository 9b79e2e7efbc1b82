#include "runtime/builtin/kernels/image.h"

namespace hil::builtin {
namespace {

constexpr int kImageRank = 4;
constexpr int kChannelsLastAxes[kImageRank] = {0, 2, 3, 1};
constexpr int kNhwcAxes[kImageRank] = {0, 1, 2, 3};
constexpr int32_t kMaxStep =
    UINT16_MAX;  // of strides, paddings and dilations; products fit in int64

// Do the dimensions lie in memory in the order of `axes`? Those of size 1 may stand anywhere.
bool lies_in_order(const Tensor& tensor, const int (&axes)[kImageRank]) {
  uint32_t strides[kMaxRank] = {};
  strides_of(tensor, strides);
  uint32_t stride = 1;
  for (int i = kImageRank - 1; i >= 0; --i) {
    const uint32_t size = tensor.size(axes[i]);
    if (size != 1 && strides[axes[i]] != stride) return false;
    stride *= size;
  }
  return true;
}

int64_t output_size(int64_t input, int64_t kernel, int64_t stride, int64_t padding,
                    int64_t dilation, bool ceil_mode) {
  const int64_t room = input + 2 * padding - dilation * (kernel - 1) - 1;
  if (room < 0) return -1;
  int64_t size = room / stride + 1;
  if (!ceil_mode) return size;
  if (room % stride != 0) ++size;
  // The last window starts in the image or in the padding before it.
  if ((size - 1) * stride >= input + padding) --size;
  return size;
}

}  // namespace

Image image_of(KernelContext& ctx, const Tensor& tensor, const char* name, Layout layout) {
  if (!ctx.require(tensor.rank == kImageRank, name, " is ", tensor,
                   ", an image has 4 dimensions")) {
    return {};
  }
  const auto& axes = layout == Layout::kNhwc ? kNhwcAxes : kChannelsLastAxes;
  if (!ctx.require(lies_in_order(tensor, axes), name, " is ", tensor,
                   layout == Layout::kNhwc ? ", and not contiguous"
                                           : ", and not in channels-last dim order")) {
    return {};
  }
  return {&tensor, tensor.sizes[axes[0]], tensor.sizes[axes[1]], tensor.sizes[axes[2]],
          tensor.sizes[axes[3]]};
}

Pair pair_of(KernelContext& ctx, const char* name, int32_t low, const Pair* empty) {
  const IntList list = ctx.int_list(name);
  if (!ctx.ok()) return {};
  if (empty != nullptr && list.size() == 0) return *empty;
  if (!ctx.require(list.size() == 2, name, " has ", list.size(), " items, two needed")) return {};
  return pair_of(ctx, list, name, low);
}

Pair pair_of(KernelContext& ctx, const IntList& list, const char* name, int32_t low) {
  if (!check_steps(ctx, list, name, low)) return {};
  return {static_cast<int32_t>(list[0]), static_cast<int32_t>(list[list.size() - 1])};
}

bool check_steps(KernelContext& ctx, const IntList& list, const char* name, int32_t low) {
  for (uint32_t item = 0; item < list.size(); ++item) {
    if (!ctx.require(list[item] >= low && list[item] <= kMaxStep, name, " item ", item, " is ",
                     list[item], ", the operator takes ", low, " to ", kMaxStep)) {
      return false;
    }
  }
  return true;
}

bool check_axis(KernelContext& ctx, const char* axis, int32_t input, int32_t kernel, int32_t stride,
                int32_t padding, int32_t dilation, int32_t out, bool ceil_mode) {
  const int64_t expected = output_size(input, kernel, stride, padding, dilation, ceil_mode);
  return ctx.require(input >= 1 && kernel >= 1, axis, ": input of ", input, ", kernel of ", kernel,
                     ": neither can be empty") &&
         ctx.require(int64_t{input} + 2 * int64_t{padding} + stride <= INT32_MAX, axis,
                     ": input of ", input, " with padding ", padding, " does not fit in int32") &&
         ctx.require(expected >= 0, axis, ": a kernel of ", kernel, " with dilation ", dilation,
                     " is larger than the input of ", input, " with padding ", padding) &&
         ctx.require(expected == out, axis, ": out is ", out, ", an input of ", input,
                     " with kernel ", kernel, ", stride ", stride, ", padding ", padding,
                     " and dilation ", dilation, " gives ", expected);
}

bool check_window(KernelContext& ctx, const Window& window, const Image& input, const Image& out,
                  bool ceil_mode) {
  return check_axis(ctx, "height", input.height, window.kernel.y, window.stride.y, window.padding.y,
                    window.dilation.y, out.height, ceil_mode) &&
         check_axis(ctx, "width", input.width, window.kernel.x, window.stride.x, window.padding.x,
                    window.dilation.x, out.width, ceil_mode);
}

bool each_has_a_pixel(int32_t windows, int32_t kernel, int32_t stride, int32_t padding,
                      int32_t dilation, int32_t size) {
  for (int32_t at = 0; at < windows; ++at) {
    const Steps steps = steps_inside(at * stride - padding, kernel, dilation, size);
    if (steps.begin == steps.end) return false;
  }
  return true;
}

}  // namespace hil::builtin
