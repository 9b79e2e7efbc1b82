// Common parts of the operators on images: batches of height x width x channels, channels innermost
// in memory, and windows that move over them.
//
// Such a tensor comes in two forms: with logical sizes N, C, H, W in channels-last dim order, or
// (operators named *_nhwc) with logical sizes N, H, W, C in row-major order. The bytes are the
// same.
#pragma once

#include "runtime/builtin/kernel.h"

namespace hil::builtin {

enum class Layout : uint8_t { kChannelsLast, kNhwc };

struct Image {
  const Tensor* tensor = nullptr;
  int32_t batches = 0;
  int32_t height = 0;
  int32_t width = 0;
  int32_t channels = 0;

  int8_t* pixel(int32_t batch, int32_t y, int32_t x) const {
    return tensor->as<int8_t>() + ((batch * height + y) * width + x) * channels;
  }
};

// Records a failure if the tensor is no such image.
Image image_of(KernelContext& ctx, const Tensor& tensor, const char* name, Layout layout);

struct Pair {
  int32_t y = 0;
  int32_t x = 0;
};

// An int[2] argument; where `empty` is given, an empty list stands for it.
Pair pair_of(KernelContext& ctx, const char* name, int32_t low, const Pair* empty = nullptr);
// The pair in a list of one or two items; a single item stands for both.
Pair pair_of(KernelContext& ctx, const IntList& list, const char* name, int32_t low);
// Are all items numbers of a window, from `low` up?
bool check_steps(KernelContext& ctx, const IntList& list, const char* name, int32_t low);

struct Window {
  Pair kernel;
  Pair stride;
  Pair padding;
  Pair dilation;
};

// As check_window, of one dimension, which messages call `axis`.
bool check_axis(KernelContext& ctx, const char* axis, int32_t input, int32_t kernel, int32_t stride,
                int32_t padding, int32_t dilation, int32_t out, bool ceil_mode);

// Does the window, moved over `input`, give an image of the size of `out`? If so, every coordinate
// it visits fits in int32.
bool check_window(KernelContext& ctx, const Window& window, const Image& input, const Image& out,
                  bool ceil_mode);

// The steps of a kernel that lie within 0 to `size` - 1; its `origin` may lie outside.
struct Steps {
  int32_t begin;
  int32_t end;

  bool operator==(const Steps& other) const { return begin == other.begin && end == other.end; }
};

inline int32_t divide_up(int32_t dividend, int32_t divisor) {
  return divisor == 1 ? dividend : (dividend - 1) / divisor + 1;
}

inline Steps steps_inside(int32_t origin, int32_t kernel, int32_t dilation, int32_t size) {
  const int32_t begin = origin < 0 ? divide_up(-origin, dilation) : 0;
  const int32_t room = size > origin ? divide_up(size - origin, dilation) : 0;
  const int32_t end = room < kernel ? room : kernel;
  return {begin, begin < end ? end : begin};
}

// Between dilated steps a window may miss all of a small image. Of one dimension, after check_axis.
bool each_has_a_pixel(int32_t windows, int32_t kernel, int32_t stride, int32_t padding,
                      int32_t dilation, int32_t size);

// Visits the pixels of `out` in memory order: visit(batch, the window's first row, its first
// column, the pixel to write).
template <typename Visit>
void for_each_pixel(const Image& out, const Window& window, const Visit& visit) {
  int8_t* to = out.tensor->as<int8_t>();
  for (int32_t batch = 0; batch < out.batches; ++batch) {
    for (int32_t y = 0; y < out.height; ++y) {
      for (int32_t x = 0; x < out.width; ++x, to += out.channels) {
        visit(batch, y * window.stride.y - window.padding.y, x * window.stride.x - window.padding.x,
              to);
      }
    }
  }
}

}  // namespace hil::builtin
