// ATen's products of matrices in float32. Sums are those of ExecuTorch's portable kernels: from the
// first item to the last, and what is added after them.
#include "runtime/builtin/kernel.h"
#include "runtime/builtin/kernels/broadcast.h"
#include "runtime/builtin/kernels/canonical_nan.h"

namespace hil::builtin {
namespace {

struct Matrix {
  const float* data;
  uint32_t row;     // items from one row to the next
  uint32_t column;  // and from one column
};

float dot(const float* a, uint32_t a_step, const float* b, uint32_t b_step, uint32_t count) {
  float sum = 0;
  for (uint32_t i = 0; i < count; ++i) sum += a[i * a_step] * b[i * b_step];
  return sum;
}

// finish(the sum, its place in `out`)
template <typename Finish>
void multiply(const Matrix& a, const Matrix& b, uint32_t rows, uint32_t inner, uint32_t columns,
              float* out, const Finish& finish) {
  for (uint32_t y = 0; y < rows; ++y) {
    for (uint32_t x = 0; x < columns; ++x, ++out) {
      const float sum = dot(a.data + y * a.row, a.column, b.data + x * b.column, b.row, inner);
      *out = canonical_nan(finish(sum, x));
    }
  }
}

bool check_contiguous(KernelContext& ctx, const Tensor& a, const Tensor& b, const Tensor& out) {
  return ctx.require(is_row_major(a) && is_row_major(b) && is_row_major(out), "a factor is ", a,
                     ", the other ", b, ", out is ", out, ": not contiguous") &&
         ctx.require_disjoint(out, a, "a factor") && ctx.require_disjoint(out, b, "a factor");
}

// Checks the product of [.., rows, inner] and [.., inner, columns], of `rank` dimensions.
bool check_product(KernelContext& ctx, const Tensor& a, const Tensor& b, const Tensor& out,
                   int rank) {
  bool fits = a.rank == rank && b.rank == rank && out.rank == rank;
  fits =
      fits && a.size(-1) == b.size(-2) && out.size(-2) == a.size(-2) && out.size(-1) == b.size(-1);
  fits = fits && (rank == 2 || (a.size(0) == b.size(0) && out.size(0) == a.size(0)));
  return ctx.require(fits, "the factors are ", a, " and ", b, ", out is ", out,
                     ": not their product") &&
         check_contiguous(ctx, a, b, out);
}

template <typename Finish>
void multiply_all(const Tensor& a, const Tensor& b, const Tensor& out, const Finish& finish) {
  const uint32_t rows = a.size(-2);
  const uint32_t inner = a.size(-1);
  const uint32_t columns = b.size(-1);
  const uint32_t batches = a.rank == 3 ? a.size(0) : 1;
  for (uint32_t batch = 0; batch < batches; ++batch) {
    multiply({a.as<float>() + batch * rows * inner, inner, 1},
             {b.as<float>() + batch * inner * columns, columns, 1}, rows, inner, columns,
             out.as<float>() + batch * rows * columns, finish);
  }
}

void read_product(KernelContext& ctx, int rank) {
  const Tensor& a = ctx.tensor("self", DType::kFloat32);
  const Tensor& b = ctx.tensor("mat2", DType::kFloat32);
  const Tensor& out = ctx.out(DType::kFloat32);
  if (!ctx.done() || !check_product(ctx, a, b, out, rank)) return;
  multiply_all(a, b, out, [](float sum, uint32_t) { return sum; });
}

bool check_linear(KernelContext& ctx, const Tensor& input, const Tensor& weight, const Tensor* bias,
                  const Tensor& out) {
  bool fits = input.rank >= 1 && input.rank == out.rank && weight.rank == 2 &&
              weight.size(1) == input.size(-1) && weight.size(0) == out.size(-1);
  for (int axis = 0; fits && axis + 1 < input.rank; ++axis) {
    fits = input.size(axis) == out.size(axis);
  }
  return ctx.require(fits, "input is ", input, ", weight is ", weight, ", out is ", out,
                     ": not a fully connected layer") &&
         ctx.require(bias == nullptr || (bias->rank == 1 && bias->size(0) == weight.size(0)),
                     "bias has not an item for each of the rows of weight, which is ", weight) &&
         check_contiguous(ctx, input, weight, out) &&
         (bias == nullptr || ctx.require_disjoint(out, *bias, "bias"));
}

}  // namespace

// aten::mm.out(Tensor self, Tensor mat2, *, Tensor(a!) out), and bmm, of batches
void mm(KernelContext& ctx) { read_product(ctx, 2); }
void bmm(KernelContext& ctx) { read_product(ctx, 3); }

// aten::addmm.out(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1,
//     Tensor(a!) out)
void addmm(KernelContext& ctx) {
  const Tensor& self = ctx.tensor("self", DType::kFloat32);
  const Tensor& a = ctx.tensor("mat1", DType::kFloat32);
  const Tensor& b = ctx.tensor("mat2", DType::kFloat32);
  const float beta = static_cast<float>(ctx.number("beta"));
  const float alpha = static_cast<float>(ctx.number("alpha"));
  const Tensor& out = ctx.out(DType::kFloat32);
  if (!ctx.done() || !check_product(ctx, a, b, out, 2)) return;
  Walk<1> walk(out);
  if (!ctx.require(broadcast_strides(self, out, walk.strides(0)), "self is ", self, ", out is ",
                   out, ": the shape does not broadcast") ||
      !ctx.require_disjoint(out, self, "self")) {
    return;
  }
  multiply_all(a, b, out, [&](float sum, uint32_t) {
    const float added = self.as<float>()[walk.at(0)];
    walk.next();
    return sum * alpha + added * beta;
  });
}

// aten::linear.out(Tensor input, Tensor weight, Tensor? bias=None, *, Tensor(a!) out)
void linear_float(KernelContext& ctx) {
  const Tensor& input = ctx.tensor("input", DType::kFloat32);
  const Tensor& weight = ctx.tensor("weight", DType::kFloat32);
  const Tensor* bias = ctx.optional_tensor("bias", DType::kFloat32);
  const Tensor& out = ctx.out(DType::kFloat32);
  if (!ctx.done() || !check_linear(ctx, input, weight, bias, out) || out.numel == 0) return;
  const uint32_t inner = weight.size(1);
  const uint32_t columns = weight.size(0);
  multiply({input.as<float>(), inner, 1}, {weight.as<float>(), 1, inner}, out.numel / columns,
           inner, columns, out.as<float>(), [&](float sum, uint32_t column) {
             return bias == nullptr ? sum : sum + bias->as<float>()[column];
           });
}

}  // namespace hil::builtin
