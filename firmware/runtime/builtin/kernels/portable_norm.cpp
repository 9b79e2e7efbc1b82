// ATen's normalisations in float32: the arithmetic of ExecuTorch's portable kernels, which take the
// variance as the mean of the squares less the square of the mean, in whatever dim order.
#include <cmath>

#include "runtime/builtin/kernel.h"
#include "runtime/builtin/kernels/portable.h"

namespace hil::builtin {
namespace {

// The optional weight and bias, with one item for each channel or place.
struct Factors {
  const Tensor* weight;
  const Tensor* bias;

  float scale(uint32_t at) const { return weight == nullptr ? 1.0f : weight->as<float>()[at]; }
  float offset(uint32_t at) const { return bias == nullptr ? 0.0f : bias->as<float>()[at]; }
};

bool check_factor(KernelContext& ctx, const Tensor* factor, const char* name, uint32_t count,
                  const Tensor& out) {
  return factor == nullptr ||
         (ctx.require(factor->numel == count && is_row_major(*factor), name, " is ", *factor, ": ",
                      count, " contiguous items needed") &&
          ctx.require_disjoint(out, *factor, name));
}

bool check_factors(KernelContext& ctx, const Factors& factors, uint32_t count, const Tensor& out) {
  return check_factor(ctx, factors.weight, "weight", count, out) &&
         check_factor(ctx, factors.bias, "bias", count, out);
}

// The tensors that an operator writes.
struct Outs {
  const Tensor& out;
  const Tensor& mean;
  const Tensor& deviation;  // 1 / standard deviation
};

Outs read_outs(KernelContext& ctx) {
  const Tensor& out = ctx.out(DType::kFloat32);
  const Tensor& mean = ctx.out(DType::kFloat32, "mean");
  return {out, mean, ctx.out(DType::kFloat32, "rstd")};
}

// Statistics have `count` items.
bool check_outs(KernelContext& ctx, const Tensor& input, const Outs& outs, uint32_t count) {
  return ctx.require(same_layout(input, outs.out), "input is ", input, ", out is ", outs.out,
                     ": shape or dim order differ") &&
         ctx.require(outs.mean.numel == count && outs.deviation.numel == count, "mean is ",
                     outs.mean, ", rstd is ", outs.deviation, ": ", count, " items needed") &&
         ctx.require_disjoint(outs.out, input, "input") &&
         ctx.require_disjoint(outs.mean, input, "input") &&
         ctx.require_disjoint(outs.deviation, input, "input") &&
         ctx.require_disjoint(outs.out, outs.mean, "mean") &&
         ctx.require_disjoint(outs.out, outs.deviation, "rstd") &&
         ctx.require_disjoint(outs.mean, outs.deviation, "rstd");
}

// In float, one item after the other.
struct Sums {
  float sum = 0;
  float squares = 0;

  void add(float x) {
    sum += x;
    squares += x * x;
  }
};

// Layers

struct Layer {
  Factors factors;
  float epsilon;
  uint32_t size;
};

void normalise_row(const Layer& layer, const float* from, float* to, float* mean,
                   float* deviation) {
  const float count = static_cast<float>(layer.size);
  Sums sums;
  for (uint32_t i = 0; i < layer.size; ++i) sums.add(from[i]);
  const float middle = sums.sum / count;
  const float variance = sums.squares / count - middle * middle;
  const float width = std::sqrt(variance + layer.epsilon);
  for (uint32_t i = 0; i < layer.size; ++i) {
    const float normal = (from[i] - middle) / width;
    to[i] = canonical_nan(normal * layer.factors.scale(i) + layer.factors.offset(i));
  }
  *mean = canonical_nan(middle);
  *deviation = canonical_nan(static_cast<float>(1.0 / width));
}

// The number of items in the last dimensions, which `shape` has the sizes of; 0 after a failure.
uint32_t size_of_layer(KernelContext& ctx, const Tensor& input, const IntList& shape) {
  bool fits = shape.size() >= 1 && shape.size() <= input.rank;
  uint32_t size = 1;
  for (uint32_t i = 0; fits && i < shape.size(); ++i) {
    const uint32_t have = input.size(static_cast<int>(i) - static_cast<int>(shape.size()));
    fits = shape[i] == have;
    size *= have;
  }
  return ctx.require(fits, "input is ", input, ": its last dimensions are not normalized_shape")
             ? size
             : 0;
}

// Batches, whose channels are dimension 1

struct Channel {
  float mean;
  float deviation;
  float scale;
  float offset;

  float apply(float x) const { return canonical_nan((x - mean) * deviation * scale + offset); }
};

// visit(channel, the place of its first item), for each batch
template <typename Visit>
void for_each_channel(const Tensor& input, const Visit& visit) {
  Strides strides = {};
  strides_of(input, strides);
  for (uint32_t batch = 0; batch < input.size(0); ++batch) {
    for (uint32_t channel = 0; channel < input.size(1); ++channel) {
      visit(channel, batch * strides[0] + channel * strides[1]);
    }
  }
}

// The dimensions after batches and channels.
Axes inner_axes(const Tensor& input) { return all_axes(input.rank) & ~Axes{3}; }

bool check_channels(KernelContext& ctx, const Tensor& input) {
  return ctx.require(input.rank >= 2, "input is ", input, ": no dimension of channels");
}

float inverse_deviation(float variance, double epsilon) {
  return static_cast<float>(1.0 / std::sqrt(variance + epsilon));
}

// deviation(channel)
template <typename Deviation>
void apply_channels(const Tensor& input, const Tensor& out, const Factors& factors,
                    const float* means, const Deviation& deviation) {
  const Rows rows(input, inner_axes(input));
  for_each_channel(input, [&](uint32_t channel, uint32_t first) {
    const Channel with = {means[channel], deviation(channel), factors.scale(channel),
                          factors.offset(channel)};
    rows.for_each([&](uint32_t at) {
      out.as<float>()[first + at] = with.apply(input.as<float>()[first + at]);
    });
  });
}

// Groups of channels

struct Groups {
  const Tensor& input;
  const Outs& outs;
  const Factors& factors;
  double epsilon;
  uint32_t channels;  // of a group
};

// `number` of a group of all batches, `first` of its channels, `start` of its items.
void normalise_group(const Groups& groups, uint32_t number, uint32_t first, uint32_t start) {
  const Rows rows(groups.input, inner_axes(groups.input));
  Strides strides = {};
  strides_of(groups.input, strides);
  const float* from = groups.input.as<float>() + start;
  float* to = groups.outs.out.as<float>() + start;
  float sum = 0;
  float squares = 0;
  for (uint32_t i = 0; i < groups.channels; ++i) {
    rows.for_each([&](uint32_t at) {
      const float x = from[i * strides[1] + at];
      sum += x;
      squares += x * x;
    });
  }
  const double count = double{1} * groups.channels * rows.count();
  const double mean = sum / count;
  const double variance = squares / count - mean * mean;
  const double deviation = 1.0 / std::sqrt(variance + groups.epsilon);
  const bool plain = groups.factors.weight == nullptr && groups.factors.bias == nullptr;
  for (uint32_t i = 0; i < groups.channels; ++i) {
    const double scale = deviation * groups.factors.scale(first + i);
    const double offset = -scale * mean + groups.factors.offset(first + i);
    rows.for_each([&](uint32_t at) {
      const double x = from[i * strides[1] + at];
      to[i * strides[1] + at] =
          canonical_nan(static_cast<float>(plain ? (x - mean) * deviation : scale * x + offset));
    });
  }
  groups.outs.mean.as<float>()[number] = canonical_nan(static_cast<float>(mean));
  groups.outs.deviation.as<float>()[number] = canonical_nan(static_cast<float>(deviation));
}

}  // namespace

// aten::native_layer_norm.out(Tensor input, SymInt[] normalized_shape, Tensor? weight,
//     Tensor? bias, float eps, *, Tensor(a!) out, Tensor(b!) mean_out, Tensor(c!) rstd_out)
void native_layer_norm(KernelContext& ctx) {
  const Tensor& input = ctx.tensor("input", DType::kFloat32);
  const IntList shape = ctx.int_list("normalized_shape");
  const Tensor* weight = ctx.optional_tensor("weight", DType::kFloat32);
  const Tensor* bias = ctx.optional_tensor("bias", DType::kFloat32);
  const float epsilon = static_cast<float>(ctx.number("eps"));
  const Outs outs = read_outs(ctx);
  if (!ctx.done()) return;
  const Layer layer = {{weight, bias}, epsilon, size_of_layer(ctx, input, shape)};
  if (!ctx.ok() || !ctx.require(layer.size != 0, "input is ", input, ": nothing to normalise") ||
      !check_outs(ctx, input, outs, input.numel / layer.size) ||
      !check_factors(ctx, layer.factors, layer.size, outs.out) ||
      !ctx.require(is_row_major(input), "input is ", input, ": not contiguous")) {
    return;
  }
  for (uint32_t i = 0; i < outs.mean.numel; ++i) {
    normalise_row(layer, input.as<float>() + i * layer.size, outs.out.as<float>() + i * layer.size,
                  outs.mean.as<float>() + i, outs.deviation.as<float>() + i);
  }
}

// aten::native_group_norm.out(Tensor input, Tensor? weight, Tensor? bias, SymInt N, SymInt C,
//     SymInt HxW, int group, float eps, *, Tensor(a!) out, Tensor(b!) mean_out,
//     Tensor(c!) rstd_out)
void native_group_norm(KernelContext& ctx) {
  const Tensor& input = ctx.tensor("input", DType::kFloat32);
  const Tensor* weight = ctx.optional_tensor("weight", DType::kFloat32);
  const Tensor* bias = ctx.optional_tensor("bias", DType::kFloat32);
  ctx.integer("N");  // as the next two: what the shape of input says
  ctx.integer("C");
  ctx.integer("HxW");
  const int32_t groups = ctx.integer("group", 1, INT32_MAX);
  const double epsilon = ctx.number("eps");
  const Outs outs = read_outs(ctx);
  const Factors factors = {weight, bias};
  if (!ctx.done() || !check_channels(ctx, input)) return;
  const uint32_t number = static_cast<uint32_t>(groups);
  const uint32_t channels = input.size(1) / number;
  if (!ctx.require(input.numel != 0 && channels * number == input.size(1), "input is ", input,
                   ", its channels do not make ", groups, " groups") ||
      !check_outs(ctx, input, outs, input.size(0) * number) ||
      !check_factors(ctx, factors, input.size(1), outs.out)) {
    return;
  }
  Strides strides = {};
  strides_of(input, strides);
  const Groups all = {input, outs, factors, epsilon, channels};
  for (uint32_t i = 0; i < input.size(0) * number; ++i) {
    const uint32_t first = i % number * channels;
    normalise_group(all, i, first, i / number * strides[0] + first * strides[1]);
  }
}

// aten::_native_batch_norm_legit_no_training.out(Tensor input, Tensor? weight, Tensor? bias,
//     Tensor running_mean, Tensor running_var, float momentum, float eps, *, Tensor(a!) out,
//     Tensor(b!) save_mean, Tensor(c!) save_invstd)
void native_batch_norm(KernelContext& ctx) {
  const Tensor& input = ctx.tensor("input", DType::kFloat32);
  const Tensor* weight = ctx.optional_tensor("weight", DType::kFloat32);
  const Tensor* bias = ctx.optional_tensor("bias", DType::kFloat32);
  const Tensor& means = ctx.tensor("running_mean", DType::kFloat32);
  const Tensor& variances = ctx.tensor("running_var", DType::kFloat32);
  ctx.number("momentum");
  const double epsilon = ctx.number("eps");
  const Outs outs = read_outs(ctx);
  const Factors factors = {weight, bias};
  if (!ctx.done() || !check_channels(ctx, input) || !check_outs(ctx, input, outs, 0) ||
      !check_factors(ctx, factors, input.size(1), outs.out) ||
      !check_factor(ctx, &means, "running_mean", input.size(1), outs.out) ||
      !check_factor(ctx, &variances, "running_var", input.size(1), outs.out)) {
    return;
  }
  apply_channels(input, outs.out, factors, means.as<float>(), [&](uint32_t channel) {
    return inverse_deviation(variances.as<float>()[channel], epsilon);
  });
}

// aten::_native_batch_norm_legit.no_stats_out(Tensor input, Tensor? weight, Tensor? bias,
//     bool training, float momentum, float eps, *, Tensor(a!) out, Tensor(b!) save_mean,
//     Tensor(c!) save_invstd)
void native_batch_norm_no_stats(KernelContext& ctx) {
  const Tensor& input = ctx.tensor("input", DType::kFloat32);
  const Tensor* weight = ctx.optional_tensor("weight", DType::kFloat32);
  const Tensor* bias = ctx.optional_tensor("bias", DType::kFloat32);
  ctx.boolean("training");
  ctx.number("momentum");
  const double epsilon = ctx.number("eps");
  const Outs outs = read_outs(ctx);
  const Factors factors = {weight, bias};
  if (!ctx.done() || !check_channels(ctx, input) || !check_outs(ctx, input, outs, input.size(1)) ||
      !check_factors(ctx, factors, input.size(1), outs.out)) {
    return;
  }
  float* means = outs.mean.as<float>();
  float* deviations = outs.deviation.as<float>();
  fill(outs.mean, 0.0f);
  fill(outs.deviation, 0.0f);
  const Rows rows(input, inner_axes(input));
  for_each_channel(input, [&](uint32_t channel, uint32_t first) {
    Sums sums;
    rows.for_each([&](uint32_t at) { sums.add(input.as<float>()[first + at]); });
    means[channel] += sums.sum;
    deviations[channel] += sums.squares;
  });
  const float count = static_cast<float>(input.size(0) * rows.count());
  for (uint32_t channel = 0; channel < input.size(1); ++channel) {
    const float mean = means[channel] / count;
    const float variance = deviations[channel] / count - mean * mean;
    means[channel] = canonical_nan(mean);
    deviations[channel] = canonical_nan(inverse_deviation(variance, epsilon));
  }
  apply_channels(input, outs.out, factors, means,
                 [=](uint32_t channel) { return deviations[channel]; });
}

}  // namespace hil::builtin
