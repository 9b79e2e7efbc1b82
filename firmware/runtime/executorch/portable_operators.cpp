// The portable operators that Cortex-M programs use, registered one by one: the whole library is 6
// MB of text.
//
// ExecuTorch makes such a file with a generator that neither its wheel nor an installed prefix
// holds. Here a template takes the arguments off by the kernel's own signature. Names are those of
// the kernels' definitions in ExecuTorch's kernels/portable/cpu; a signature that is not the
// library's does not link.
#include <executorch/runtime/core/evalue.h>
#include <executorch/runtime/core/exec_aten/exec_aten.h>
#include <executorch/runtime/kernel/kernel_runtime_context.h>
#include <executorch/runtime/kernel/operator_registry.h>
#include <executorch/runtime/platform/assert.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace torch::executor::native {

using Context = ::executorch::runtime::KernelRuntimeContext;
using executorch::aten::ArrayRef;
using executorch::aten::Scalar;
using executorch::aten::Tensor;
using Ints = ArrayRef<int64_t>;

Tensor& _clone_dim_order_out(Context&, const Tensor&, bool, std::optional<Ints>, Tensor&);
Tensor& add_out(Context&, const Tensor&, const Tensor&, const Scalar&, Tensor&);
Tensor& amax_out(Context&, const Tensor&, Ints, bool, Tensor&);
Tensor& cat_out(Context&, ArrayRef<Tensor>, int64_t, Tensor&);
Tensor& clamp_out(Context&, const Tensor&, const std::optional<Scalar>&,
                  const std::optional<Scalar>&, Tensor&);
Tensor& convolution_out(Context&, const Tensor&, const Tensor&, const std::optional<Tensor>&, Ints,
                        Ints, Ints, bool, Ints, int64_t, Tensor&);
Tensor& div_out(Context&, const Tensor&, const Tensor&, Tensor&);
Tensor& full_out(Context&, Ints, const Scalar&, Tensor&);
Tensor& ge_tensor_out(Context&, const Tensor&, const Tensor&, Tensor&);
std::tuple<Tensor&, Tensor&> max_pool2d_with_indices_out(Context&, const Tensor&, Ints, Ints, Ints,
                                                         Ints, bool, Tensor&, Tensor&);
Tensor& maximum_out(Context&, const Tensor&, const Tensor&, Tensor&);
Tensor& minimum_out(Context&, const Tensor&, const Tensor&, Tensor&);
Tensor& mul_out(Context&, const Tensor&, const Tensor&, Tensor&);
Tensor& permute_copy_out(Context&, const Tensor&, Ints, Tensor&);
Tensor& select_copy_int_out(Context&, const Tensor&, int64_t, int64_t, Tensor&);
Tensor& softmax_out(Context&, const Tensor&, int64_t, bool, Tensor&);
Tensor& sub_out(Context&, const Tensor&, const Tensor&, const Scalar&, Tensor&);
Tensor& unsqueeze_copy_out(Context&, const Tensor&, int64_t, Tensor&);

}  // namespace torch::executor::native

namespace {

using executorch::aten::Tensor;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::Kernel;
using executorch::runtime::KernelRuntimeContext;
using executorch::runtime::Span;

template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};

// The argument as the kernel takes it; a tensor stays where it is.
template <typename Parameter>
decltype(auto) argument(EValue& value) {
  using Plain = std::remove_cv_t<std::remove_reference_t<Parameter>>;
  if constexpr (std::is_same_v<Plain, Tensor>) {
    return value.toTensor();
  } else if constexpr (IsOptional<Plain>::value) {
    return value.toOptional<typename Plain::value_type>();
  } else {
    return Plain(value.to<Plain>());
  }
}

template <typename... Parameters, typename Function, size_t... kIndices>
void call(Function* kernel, KernelRuntimeContext& context, Span<EValue*> stack,
          std::index_sequence<kIndices...>) {
  kernel(context, argument<Parameters>(*stack[kIndices])...);
}

// A program gives the schema's arguments, and after them what the operator returns once more.
template <typename Result, typename... Parameters>
void unbox(Result (*kernel)(KernelRuntimeContext&, Parameters...), KernelRuntimeContext& context,
           Span<EValue*> stack) {
  if (stack.size() < sizeof...(Parameters)) {
    ET_LOG(Error, "%zu arguments, the operator takes %zu", stack.size(), sizeof...(Parameters));
    return context.fail(Error::InvalidProgram);
  }
  call<Parameters...>(kernel, context, stack, std::index_sequence_for<Parameters...>());
}

template <auto kKernel>
void boxed(KernelRuntimeContext& context, Span<EValue*> stack) {
  unbox(kKernel, context, stack);
}

namespace native = torch::executor::native;

const Kernel kernels[] = {
#ifndef HIL_UPSTREAM_OPERATORS
    Kernel("aten::_softmax.out", boxed<native::softmax_out>),
    Kernel("aten::div.out", boxed<native::div_out>),
#endif
    Kernel("aten::add.out", boxed<native::add_out>),
    Kernel("aten::amax.out", boxed<native::amax_out>),
    Kernel("aten::cat.out", boxed<native::cat_out>),
    Kernel("aten::clamp.out", boxed<native::clamp_out>),
    Kernel("aten::convolution.out", boxed<native::convolution_out>),
    Kernel("aten::full.out", boxed<native::full_out>),
    Kernel("aten::ge.Tensor_out", boxed<native::ge_tensor_out>),
    Kernel("aten::max_pool2d_with_indices.out", boxed<native::max_pool2d_with_indices_out>),
    Kernel("aten::maximum.out", boxed<native::maximum_out>),
    Kernel("aten::minimum.out", boxed<native::minimum_out>),
    Kernel("aten::mul.out", boxed<native::mul_out>),
    Kernel("aten::permute_copy.out", boxed<native::permute_copy_out>),
    Kernel("aten::select_copy.int_out", boxed<native::select_copy_int_out>),
    Kernel("aten::sub.out", boxed<native::sub_out>),
    Kernel("aten::unsqueeze_copy.out", boxed<native::unsqueeze_copy_out>),
    Kernel("dim_order_ops::_clone_dim_order.out", boxed<native::_clone_dim_order_out>),
};

[[maybe_unused]] const Error registered =
    executorch::runtime::register_kernels({kernels, sizeof(kernels) / sizeof(Kernel)});

}  // namespace
