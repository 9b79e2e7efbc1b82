// Copies that may change the order of dimensions in memory.
#include <cstring>

#include "runtime/builtin/kernels/kernels.h"

namespace hil::builtin {
namespace {

bool check_dim_order(KernelContext& ctx, const IntList& wanted, const Tensor& out) {
  if (!ctx.require(wanted.size() == out.rank, "dim_order has ", wanted.size(), " items, out is ",
                   out)) {
    return false;
  }
  for (uint32_t i = 0; i < wanted.size(); ++i) {
    if (!ctx.require(wanted[i] == out.dim_order[i], "dim_order item ", i, " is ", wanted[i],
                     ", that of out is ", int{out.dim_order[i]})) {
      return false;
    }
  }
  return true;
}

// Counts through the items of a tensor in its own memory order, and tells where the same item lies
// in a tensor of the same shape and another order.
class Walk {
 public:
  Walk(const Tensor& along, const Tensor& other) : along_(along) { strides_of(other, strides_); }

  uint32_t other() const { return other_; }

  void next() {
    for (int i = along_.rank - 1; i >= 0; --i) {
      const int dim = along_.dim_order[i];
      other_ += strides_[dim];
      if (++position_[dim] < along_.size(dim)) return;
      other_ -= strides_[dim] * along_.size(dim);
      position_[dim] = 0;
    }
  }

 private:
  const Tensor& along_;
  uint32_t strides_[kMaxRank] = {};
  uint32_t position_[kMaxRank] = {};
  uint32_t other_ = 0;
};

void copy_reordered(const Tensor& from, const Tensor& to) {
  const uint32_t size = item_size(from.dtype);
  Walk walk(to, from);
  for (uint32_t i = 0; i < to.numel; ++i, walk.next()) {
    std::memcpy(to.data + i * size, from.data + walk.other() * size, size);
  }
}

}  // namespace

// dim_order_ops::_clone_dim_order.out(Tensor self, *, bool non_blocking=False,
//     int[]? dim_order=None, Tensor(a!) out)
void clone_dim_order(KernelContext& ctx) {
  const Tensor& self = ctx.tensor(0, "self");
  const bool non_blocking = ctx.boolean(1, "non_blocking");
  const bool has_dim_order = !ctx.is_none(2);
  const IntList dim_order = has_dim_order ? ctx.int_list(2, "dim_order") : IntList();
  const Tensor& out = ctx.out(3, self.dtype);
  if (!ctx.ok()) return;
  if (!ctx.require(!non_blocking, "non_blocking is True: only blocking copies exist here") ||
      !ctx.require(same_shape(self, out), "self is ", self, ", out is ", out,
                   ": the shapes differ") ||
      !ctx.require_disjoint(out, self, "self")) {
    return;
  }
  if (has_dim_order && !check_dim_order(ctx, dim_order, out)) return;
  if (same_dim_order(self, out)) {
    std::memcpy(out.data, self.data, self.nbytes);
  } else {
    copy_reordered(self, out);
  }
}

}  // namespace hil::builtin
