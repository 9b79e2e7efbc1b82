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
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace torch::executor::native {

using Context = ::executorch::runtime::KernelRuntimeContext;
using executorch::aten::ArrayRef;
using executorch::aten::MemoryFormat;
using executorch::aten::Scalar;
using executorch::aten::ScalarType;
using executorch::aten::Tensor;
using Ints = ArrayRef<int64_t>;
using Optional = std::optional<Tensor>;
using Tensors = std::tuple<Tensor&, Tensor&, Tensor&>;

Tensor& _adaptive_avg_pool2d_out(Context&, const Tensor&, Ints, Tensor&);
Tensor& _clone_dim_order_out(Context&, const Tensor&, bool, std::optional<Ints>, Tensor&);
Tensors _native_batch_norm_legit_no_stats_out(Context&, const Tensor&, const Optional&,
                                              const Optional&, bool, double, double, Tensor&,
                                              Tensor&, Tensor&);
Tensors _native_batch_norm_legit_no_training_out(Context&, const Tensor&, const Optional&,
                                                 const Optional&, const Tensor&, const Tensor&,
                                                 double, double, Tensor&, Tensor&, Tensor&);
Tensor& _to_dim_order_copy_out(Context&, const Tensor&, bool, std::optional<Ints>, Tensor&);
Tensor& abs_out(Context&, const Tensor&, Tensor&);
Tensor& add_out(Context&, const Tensor&, const Tensor&, const Scalar&, Tensor&);
Tensor& addmm_out(Context&, const Tensor&, const Tensor&, const Tensor&, const Scalar&,
                  const Scalar&, Tensor&);
Tensor& amax_out(Context&, const Tensor&, Ints, bool, Tensor&);
Tensor& amin_out(Context&, const Tensor&, Ints, bool, Tensor&);
Tensor& any_out(Context&, const Tensor&, int64_t, bool, Tensor&);
Tensor& arange_start_out(Context&, const Scalar&, const Scalar&, const Scalar&, Tensor&);
Tensor& argmax_out(Context&, const Tensor&, std::optional<int64_t>, bool, Tensor&);
Tensor& argmin_out(Context&, const Tensor&, std::optional<int64_t>, bool, Tensor&);
Tensor& as_strided_copy_out(Context&, const Tensor&, Ints, Ints, std::optional<int64_t>, Tensor&);
Tensor& avg_pool2d_out(Context&, const Tensor&, Ints, Ints, Ints, bool, bool,
                       std::optional<int64_t>, Tensor&);
Tensor& bitwise_and_Tensor_out(Context&, const Tensor&, const Tensor&, Tensor&);
Tensor& bitwise_not_out(Context&, const Tensor&, Tensor&);
Tensor& bitwise_or_Tensor_out(Context&, const Tensor&, const Tensor&, Tensor&);
Tensor& bitwise_xor_Tensor_out(Context&, const Tensor&, const Tensor&, Tensor&);
Tensor& bmm_out(Context&, const Tensor&, const Tensor&, Tensor&);
Tensor& cat_out(Context&, ArrayRef<Tensor>, int64_t, Tensor&);
Tensor& ceil_out(Context&, const Tensor&, Tensor&);
Tensor& clamp_out(Context&, const Tensor&, const std::optional<Scalar>&,
                  const std::optional<Scalar>&, Tensor&);
Tensor& constant_pad_nd_out(Context&, const Tensor&, Ints, const Scalar&, Tensor&);
Tensor& convolution_out(Context&, const Tensor&, const Tensor&, const std::optional<Tensor>&, Ints,
                        Ints, Ints, bool, Ints, int64_t, Tensor&);
Tensor& copy_(Context&, Tensor&, const Tensor&, bool);
Tensor& copy_out(Context&, const Tensor&, const Tensor&, bool, Tensor&);
Tensor& cos_out(Context&, const Tensor&, Tensor&);
Tensor& cumsum_out(Context&, const Tensor&, int64_t, std::optional<ScalarType>, Tensor&);
Tensor& div_out(Context&, const Tensor&, const Tensor&, Tensor&);
Tensor& div_out_mode(Context&, const Tensor&, const Tensor&, std::optional<std::string_view>,
                     Tensor&);
Tensor& elu_out(Context&, const Tensor&, const Scalar&, const Scalar&, const Scalar&, Tensor&);
Tensor& embedding_out(Context&, const Tensor&, const Tensor&, int64_t, bool, bool, Tensor&);
Tensor& eq_scalar_out(Context&, const Tensor&, const Scalar&, Tensor&);
Tensor& eq_tensor_out(Context&, const Tensor&, const Tensor&, Tensor&);
Tensor& exp_out(Context&, const Tensor&, Tensor&);
Tensor& expand_copy_out(Context&, const Tensor&, Ints, bool, Tensor&);
Tensor& flip_out(Context&, const Tensor&, Ints, Tensor&);
Tensor& floor_out(Context&, const Tensor&, Tensor&);
Tensor& fmod_Scalar_out(Context&, const Tensor&, const Scalar&, Tensor&);
Tensor& full_like_out(Context&, const Tensor&, const Scalar&, std::optional<MemoryFormat>, Tensor&);
Tensor& full_out(Context&, Ints, const Scalar&, Tensor&);
Tensor& gather_out(Context&, const Tensor&, int64_t, const Tensor&, bool, Tensor&);
Tensor& ge_scalar_out(Context&, const Tensor&, const Scalar&, Tensor&);
Tensor& ge_tensor_out(Context&, const Tensor&, const Tensor&, Tensor&);
Tensor& gelu_out(Context&, const Tensor&, std::string_view, Tensor&);
Tensor& gt_scalar_out(Context&, const Tensor&, const Scalar&, Tensor&);
Tensor& gt_tensor_out(Context&, const Tensor&, const Tensor&, Tensor&);
Tensor& hardtanh_out(Context&, const Tensor&, const Scalar&, const Scalar&, Tensor&);
Tensor& index_Tensor_out(Context&, const Tensor&, ArrayRef<Optional>, Tensor&);
Tensor& index_put_out(Context&, const Tensor&, ArrayRef<Optional>, const Tensor&, bool, Tensor&);
Tensor& index_select_out(Context&, const Tensor&, int64_t, const Tensor&, Tensor&);
Tensor& le_scalar_out(Context&, const Tensor&, const Scalar&, Tensor&);
Tensor& le_tensor_out(Context&, const Tensor&, const Tensor&, Tensor&);
Tensor& leaky_relu_out(Context&, const Tensor&, const Scalar&, Tensor&);
Tensor& log1p_out(Context&, const Tensor&, Tensor&);
Tensor& log_out(Context&, const Tensor&, Tensor&);
Tensor& log_softmax_out(Context&, const Tensor&, int64_t, bool, Tensor&);
Tensor& logical_and_out(Context&, const Tensor&, const Tensor&, Tensor&);
Tensor& logical_not_out(Context&, const Tensor&, Tensor&);
Tensor& logical_or_out(Context&, const Tensor&, const Tensor&, Tensor&);
Tensor& logical_xor_out(Context&, const Tensor&, const Tensor&, Tensor&);
Tensor& lt_scalar_out(Context&, const Tensor&, const Scalar&, Tensor&);
Tensor& lt_tensor_out(Context&, const Tensor&, const Tensor&, Tensor&);
std::tuple<Tensor&, Tensor&> max_out(Context&, const Tensor&, int64_t, bool, Tensor&, Tensor&);
std::tuple<Tensor&, Tensor&> max_pool2d_with_indices_out(Context&, const Tensor&, Ints, Ints, Ints,
                                                         Ints, bool, Tensor&, Tensor&);
Tensor& maximum_out(Context&, const Tensor&, const Tensor&, Tensor&);
Tensor& mean_dim_out(Context&, const Tensor&, std::optional<Ints>, bool, std::optional<ScalarType>,
                     Tensor&);
std::tuple<Tensor&, Tensor&> min_out(Context&, const Tensor&, int64_t, bool, Tensor&, Tensor&);
Tensor& minimum_out(Context&, const Tensor&, const Tensor&, Tensor&);
Tensor& mm_out(Context&, const Tensor&, const Tensor&, Tensor&);
Tensor& mul_out(Context&, const Tensor&, const Tensor&, Tensor&);
Tensors native_group_norm_out(Context&, const Tensor&, const Optional&, const Optional&, int64_t,
                              int64_t, int64_t, int64_t, double, Tensor&, Tensor&, Tensor&);
Tensors native_layer_norm_out(Context&, const Tensor&, Ints, const Optional&, const Optional&,
                              double, Tensor&, Tensor&, Tensor&);
Tensor& ne_scalar_out(Context&, const Tensor&, const Scalar&, Tensor&);
Tensor& ne_tensor_out(Context&, const Tensor&, const Tensor&, Tensor&);
Tensor& neg_out(Context&, const Tensor&, Tensor&);
Tensor& permute_copy_out(Context&, const Tensor&, Ints, Tensor&);
Tensor& pow_Tensor_Scalar_out(Context&, const Tensor&, const Scalar&, Tensor&);
Tensor& reciprocal_out(Context&, const Tensor&, Tensor&);
Tensor& relu_out(Context&, const Tensor&, Tensor&);
Tensor& remainder_Scalar_out(Context&, const Tensor&, const Scalar&, Tensor&);
Tensor& remainder_Tensor_out(Context&, const Tensor&, const Tensor&, Tensor&);
Tensor& repeat_out(Context&, const Tensor&, Ints, Tensor&);
Tensor& round_out(Context&, const Tensor&, Tensor&);
Tensor& rsqrt_out(Context&, const Tensor&, Tensor&);
Tensor& scalar_tensor_out(Context&, const Scalar&, Tensor&);
Tensor& scatter_src_out(Context&, const Tensor&, int64_t, const Tensor&, const Tensor&, Tensor&);
Tensor& scatter_value_out(Context&, const Tensor&, int64_t, const Tensor&, const Scalar&, Tensor&);
Tensor& select_copy_int_out(Context&, const Tensor&, int64_t, int64_t, Tensor&);
Tensor& sigmoid_out(Context&, const Tensor&, Tensor&);
Tensor& sin_out(Context&, const Tensor&, Tensor&);
Tensor& slice_copy_Tensor_out(Context&, const Tensor&, int64_t, std::optional<int64_t>,
                              std::optional<int64_t>, int64_t, Tensor&);
Tensor& slice_scatter_out(Context&, const Tensor&, const Tensor&, int64_t, std::optional<int64_t>,
                          std::optional<int64_t>, int64_t, Tensor&);
Tensor& softmax_out(Context&, const Tensor&, int64_t, bool, Tensor&);
void split_with_sizes_copy_out(Context&, const Tensor&, Ints, int64_t, ArrayRef<Tensor>);
Tensor& sqrt_out(Context&, const Tensor&, Tensor&);
Tensor& squeeze_copy_dims_out(Context&, const Tensor&, Ints, Tensor&);
Tensor& sub_out(Context&, const Tensor&, const Tensor&, const Scalar&, Tensor&);
Tensor& sum_dim_out(Context&, const Tensor&, std::optional<Ints>, bool, std::optional<ScalarType>,
                    Tensor&);
Tensor& tanh_out(Context&, const Tensor&, Tensor&);
Tensor& trunc_out(Context&, const Tensor&, Tensor&);
Tensor& unsqueeze_copy_out(Context&, const Tensor&, int64_t, Tensor&);
Tensor& upsample_bilinear2d_vec_out(Context&, const Tensor&, std::optional<Ints>, bool,
                                    std::optional<ArrayRef<double>>, Tensor&);
Tensor& upsample_nearest2d_vec_out(Context&, const Tensor&, std::optional<Ints>,
                                   std::optional<ArrayRef<double>>, Tensor&);
Tensor& var_correction_out(Context&, const Tensor&, std::optional<Ints>,
                           const std::optional<Scalar>&, bool, Tensor&);
Tensor& view_copy_out(Context&, const Tensor&, Ints, Tensor&);
Tensor& where_out(Context&, const Tensor&, const Tensor&, const Tensor&, Tensor&);

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
#ifdef HIL_PORTABLE
    Kernel("aten::_adaptive_avg_pool2d.out", boxed<native::_adaptive_avg_pool2d_out>),
    Kernel("aten::_log_softmax.out", boxed<native::log_softmax_out>),
    Kernel("aten::_native_batch_norm_legit.no_stats_out",
           boxed<native::_native_batch_norm_legit_no_stats_out>),
    Kernel("aten::_native_batch_norm_legit_no_training.out",
           boxed<native::_native_batch_norm_legit_no_training_out>),
    Kernel("aten::_softmax.out", boxed<native::softmax_out>),
    Kernel("aten::abs.out", boxed<native::abs_out>),
    Kernel("aten::addmm.out", boxed<native::addmm_out>),
    Kernel("aten::amin.out", boxed<native::amin_out>),
    Kernel("aten::any.out", boxed<native::any_out>),
    Kernel("aten::arange.start_out", boxed<native::arange_start_out>),
    Kernel("aten::argmax.out", boxed<native::argmax_out>),
    Kernel("aten::argmin.out", boxed<native::argmin_out>),
    Kernel("aten::as_strided_copy.out", boxed<native::as_strided_copy_out>),
    Kernel("aten::avg_pool2d.out", boxed<native::avg_pool2d_out>),
    Kernel("aten::bitwise_and.Tensor_out", boxed<native::bitwise_and_Tensor_out>),
    Kernel("aten::bitwise_not.out", boxed<native::bitwise_not_out>),
    Kernel("aten::bitwise_or.Tensor_out", boxed<native::bitwise_or_Tensor_out>),
    Kernel("aten::bitwise_xor.Tensor_out", boxed<native::bitwise_xor_Tensor_out>),
    Kernel("aten::bmm.out", boxed<native::bmm_out>),
    Kernel("aten::ceil.out", boxed<native::ceil_out>),
    Kernel("aten::constant_pad_nd.out", boxed<native::constant_pad_nd_out>),
    Kernel("aten::copy.out", boxed<native::copy_out>),
    Kernel("aten::copy_", boxed<native::copy_>),
    Kernel("aten::cos.out", boxed<native::cos_out>),
    Kernel("aten::cumsum.out", boxed<native::cumsum_out>),
    Kernel("aten::div.out", boxed<native::div_out>),
    Kernel("aten::div.out_mode", boxed<native::div_out_mode>),
    Kernel("aten::elu.out", boxed<native::elu_out>),
    Kernel("aten::embedding.out", boxed<native::embedding_out>),
    Kernel("aten::eq.Scalar_out", boxed<native::eq_scalar_out>),
    Kernel("aten::eq.Tensor_out", boxed<native::eq_tensor_out>),
    Kernel("aten::exp.out", boxed<native::exp_out>),
    Kernel("aten::expand_copy.out", boxed<native::expand_copy_out>),
    Kernel("aten::flip.out", boxed<native::flip_out>),
    Kernel("aten::floor.out", boxed<native::floor_out>),
    Kernel("aten::fmod.Scalar_out", boxed<native::fmod_Scalar_out>),
    Kernel("aten::full_like.out", boxed<native::full_like_out>),
    Kernel("aten::gather.out", boxed<native::gather_out>),
    Kernel("aten::ge.Scalar_out", boxed<native::ge_scalar_out>),
    Kernel("aten::gelu.out", boxed<native::gelu_out>),
    Kernel("aten::gt.Scalar_out", boxed<native::gt_scalar_out>),
    Kernel("aten::gt.Tensor_out", boxed<native::gt_tensor_out>),
    Kernel("aten::hardtanh.out", boxed<native::hardtanh_out>),
    Kernel("aten::index.Tensor_out", boxed<native::index_Tensor_out>),
    Kernel("aten::index_put.out", boxed<native::index_put_out>),
    Kernel("aten::index_select.out", boxed<native::index_select_out>),
    Kernel("aten::le.Scalar_out", boxed<native::le_scalar_out>),
    Kernel("aten::le.Tensor_out", boxed<native::le_tensor_out>),
    Kernel("aten::leaky_relu.out", boxed<native::leaky_relu_out>),
    Kernel("aten::log.out", boxed<native::log_out>),
    Kernel("aten::log1p.out", boxed<native::log1p_out>),
    Kernel("aten::logical_and.out", boxed<native::logical_and_out>),
    Kernel("aten::logical_not.out", boxed<native::logical_not_out>),
    Kernel("aten::logical_or.out", boxed<native::logical_or_out>),
    Kernel("aten::logical_xor.out", boxed<native::logical_xor_out>),
    Kernel("aten::lt.Scalar_out", boxed<native::lt_scalar_out>),
    Kernel("aten::lt.Tensor_out", boxed<native::lt_tensor_out>),
    Kernel("aten::max.dim_max", boxed<native::max_out>),
    Kernel("aten::mean.out", boxed<native::mean_dim_out>),
    Kernel("aten::min.dim_min", boxed<native::min_out>),
    Kernel("aten::mm.out", boxed<native::mm_out>),
    Kernel("aten::native_group_norm.out", boxed<native::native_group_norm_out>),
    Kernel("aten::native_layer_norm.out", boxed<native::native_layer_norm_out>),
    Kernel("aten::ne.Scalar_out", boxed<native::ne_scalar_out>),
    Kernel("aten::ne.Tensor_out", boxed<native::ne_tensor_out>),
    Kernel("aten::neg.out", boxed<native::neg_out>),
    Kernel("aten::pow.Tensor_Scalar_out", boxed<native::pow_Tensor_Scalar_out>),
    Kernel("aten::reciprocal.out", boxed<native::reciprocal_out>),
    Kernel("aten::relu.out", boxed<native::relu_out>),
    Kernel("aten::remainder.Scalar_out", boxed<native::remainder_Scalar_out>),
    Kernel("aten::remainder.Tensor_out", boxed<native::remainder_Tensor_out>),
    Kernel("aten::repeat.out", boxed<native::repeat_out>),
    Kernel("aten::round.out", boxed<native::round_out>),
    Kernel("aten::rsqrt.out", boxed<native::rsqrt_out>),
    Kernel("aten::scalar_tensor.out", boxed<native::scalar_tensor_out>),
    Kernel("aten::scatter.src_out", boxed<native::scatter_src_out>),
    Kernel("aten::scatter.value_out", boxed<native::scatter_value_out>),
    Kernel("aten::sigmoid.out", boxed<native::sigmoid_out>),
    Kernel("aten::sin.out", boxed<native::sin_out>),
    Kernel("aten::slice_copy.Tensor_out", boxed<native::slice_copy_Tensor_out>),
    Kernel("aten::slice_scatter.out", boxed<native::slice_scatter_out>),
    Kernel("aten::split_with_sizes_copy.out", boxed<native::split_with_sizes_copy_out>),
    Kernel("aten::sqrt.out", boxed<native::sqrt_out>),
    Kernel("aten::squeeze_copy.dims_out", boxed<native::squeeze_copy_dims_out>),
    Kernel("aten::sum.IntList_out", boxed<native::sum_dim_out>),
    Kernel("aten::tanh.out", boxed<native::tanh_out>),
    Kernel("aten::trunc.out", boxed<native::trunc_out>),
    Kernel("aten::upsample_bilinear2d.vec_out", boxed<native::upsample_bilinear2d_vec_out>),
    Kernel("aten::upsample_nearest2d.vec_out", boxed<native::upsample_nearest2d_vec_out>),
    Kernel("aten::var.correction_out", boxed<native::var_correction_out>),
    Kernel("aten::view_copy.out", boxed<native::view_copy_out>),
    Kernel("aten::where.self_out", boxed<native::where_out>),
    Kernel("dim_order_ops::_to_dim_order_copy.out", boxed<native::_to_dim_order_copy_out>),
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
