// ATen's operators at edges that no program reaches: what they refuse, and integers' and NaN's
// ends.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "tests/call.h"

namespace hil::builtin {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();

bool says(Call& call, const char* part) { return call.run().find(part) != std::string::npos; }

Call embedding(const std::vector<int64_t>& indices, const Sizes& out) {
  return Call("aten::embedding.out")
      .int8({3, 2}, {1, 2, 3, 4, 5, 6})
      .int64({static_cast<int32_t>(indices.size())}, indices)
      .integer(-1)
      .boolean(false)
      .boolean(false)
      .out(out);
}

TEST_CASE("a row that a table has not is refused") {
  Call right = embedding({2, 0}, {2, 2});
  REQUIRE(right.run() == "");
  CHECK(right.result() == std::vector<int8_t>{5, 6, 1, 2});
  for (const int64_t index : {int64_t{3}, int64_t{-1}, kLeast}) {
    Call call = embedding({0, index}, {2, 2});
    CHECK(says(call, "of 3 items of the dimension"));
  }
  Call shape = embedding({0, 1}, {2, 3});
  CHECK(says(shape, "not a row of weight for each index"));
}

Call indexed(const std::vector<std::vector<int64_t>>& indices, const Sizes& out) {
  return Call("aten::index.Tensor_out").int8({2, 3}, {1, 2, 3, 4, 5, 6}).indices(indices).out(out);
}

TEST_CASE("indices count from the end if negative, and must be inside") {
  Call right = indexed({{}, {-1, 0}}, {2, 2});
  REQUIRE(right.run() == "");
  CHECK(right.result() == std::vector<int8_t>{3, 1, 6, 4});
  Call beyond = indexed({{}, {3}}, {2, 1});
  CHECK(says(beyond, "index 3 of 3 items"));
  Call before = indexed({{}, {-4}}, {2, 1});
  CHECK(says(before, "index -4 of 3 items"));
  Call none = indexed({{}, {}}, {2, 3});
  CHECK(says(none, "indices has 0 tensors"));
  Call many = indexed({{}, {}, {0}}, {2, 3});
  CHECK(says(many, "indices has 3 items"));
  Call shape = indexed({{0}, {0}}, {2});
  CHECK(says(shape, "not what the indices choose"));
}

TEST_CASE("indices of dimensions that are not neighbours are refused") {
  Call call("aten::index.Tensor_out");
  call.int8({1, 2, 1}, {1, 2}).indices({{0}, {}, {0}}).out({1, 2});
  CHECK(says(call, "not neighbours"));
}

Call put(const std::vector<std::vector<int64_t>>& indices, const Sizes& sizes,
         const std::vector<int8_t>& values, bool accumulate = false, const Sizes& out = {2, 3}) {
  Call call("aten::index_put.out");
  call.int8({2, 3}, {1, 2, 3, 4, 5, 6}).indices(indices).int8(sizes, values);
  return call.boolean(accumulate).out(out);
}

TEST_CASE("index_put writes what broadcasts to the places that indices name") {
  Call right = put({{}, {-1, 0}}, {2, 1}, {7, 8});
  REQUIRE(right.run() == "");
  CHECK(right.result() == std::vector<int8_t>{7, 2, 7, 8, 5, 8});
  Call last = put({{1, 1}}, {2, 3}, {1, 1, 1, 9, 8, 7});  // the last of those at one place stays
  REQUIRE(last.run() == "");
  CHECK(last.result() == std::vector<int8_t>{1, 2, 3, 9, 8, 7});
  Call beyond = put({{}, {3}}, {}, {7});
  CHECK(says(beyond, "index 3 of 3 items"));
  Call before = put({{-3}}, {}, {7});
  CHECK(says(before, "index -3 of 2 items"));
  Call values = put({{0}}, {2}, {7, 8});
  CHECK(says(values, "values are int8[2], and the indices choose int8[1, 3]"));
  Call indices = put({{0, 1}, {0, 1, 2}}, {}, {7});
  CHECK(says(indices, "do not broadcast to each other"));
  Call none = put({{}, {}}, {}, {7});
  CHECK(says(none, "indices has 0 tensors"));
  Call shape = put({{0}}, {}, {7}, false, {3, 2});
  CHECK(says(shape, "the shapes differ"));
  Call many("aten::index_put.out");
  many.int8({1, 1, 1}, {1});
  std::vector<int64_t> zeros(2048);
  many.indices({zeros, zeros, zeros}).int8({}, {2}).boolean(false).out({1, 1, 1});
  CHECK(many.run() == "");
  Call sum = put({{0}}, {}, {7}, true);
  CHECK(says(sum, "the operator takes float32 or int32 or int64"));
}

TEST_CASE("sums at one place add up, and wrap") {
  Call call("aten::index_put.out");
  call.int64({2}, {kLeast, 1}).indices({{0, 0, 1}}).int64({3}, {-1, -1, 5}).boolean(true);
  call.out({2}, DType::kInt64);
  REQUIRE(call.run() == "");
  CHECK(call.result<int64_t>() == std::vector<int64_t>{INT64_MAX - 1, 6});
}

TEST_CASE(
    "gather and scatter refuse indices outside, negative ones, and shapes that reach further") {
  const auto gather = [](const Sizes& sizes, const std::vector<int64_t>& index, int64_t dim = 1) {
    return Call("aten::gather.out")
        .int8({2, 3}, {1, 2, 3, 4, 5, 6})
        .integer(dim)
        .int64(sizes, index)
        .boolean(false)
        .out(sizes);
  };
  Call right = gather({2, 2}, {2, 0, 0, 1}, -1);
  REQUIRE(right.run() == "");
  CHECK(right.result() == std::vector<int8_t>{3, 1, 4, 5});
  Call beyond = gather({1, 1}, {3});
  CHECK(says(beyond, "index 3 of 3 items"));
  Call before = gather({1, 1}, {-1});
  CHECK(says(before, "index -1 of 3 items"));
  Call long_index = gather({3, 1}, {0, 0, 0});
  CHECK(says(long_index, "not an item of dimension 1 for each index"));
  const auto scatter = [](const Sizes& sizes, const std::vector<int64_t>& index,
                          const Sizes& from) {
    return Call("aten::scatter.src_out")
        .int8({2, 3}, {1, 2, 3, 4, 5, 6})
        .integer(1)
        .int64(sizes, index)
        .int8(from, std::vector<int8_t>(static_cast<size_t>(from[0] * from[1]), 9))
        .out({2, 3});
  };
  Call placed = scatter({2, 1}, {2, 0}, {2, 2});
  REQUIRE(placed.run() == "");
  CHECK(placed.result() == std::vector<int8_t>{1, 2, 9, 9, 5, 6});
  Call outside = scatter({1, 1}, {3}, {1, 1});
  CHECK(says(outside, "index 3 of 3 items"));
  Call source = scatter({2, 1}, {0, 0}, {1, 1});
  CHECK(says(source, "not an item for each index"));
  Call reach = scatter({3, 1}, {0, 0, 0}, {3, 1});
  CHECK(says(reach, "longer in another dimension than 1"));
  Call single("aten::scatter.value_out");
  single.floats({}, {1}).integer(0).int64({}, {0}).real(1).out({}, DType::kFloat32);
  CHECK(says(single, "no dimension to scatter along"));
  Call truth("aten::scatter.value_out");
  truth.tensor(DType::kBool, {2}, std::vector<uint8_t>{0, 0}).integer(0).int64({1}, {1});
  truth.boolean(true).out({2}, DType::kBool);
  REQUIRE(truth.run() == "");
  CHECK(truth.result<uint8_t>() == std::vector<uint8_t>{0, 1});
  Call quantised("aten::scatter.value_out");
  quantised.int8({1}, {1}).integer(0).int64({1}, {0}).integer(1).out({1});
  CHECK(says(quantised, "self is int8[1], the operator takes float32 or int32 or int64 or bool"));
}

TEST_CASE("a part that is written must have the slice's shape") {
  const auto scatter = [](const Sizes& sizes, int64_t end) {
    return Call("aten::slice_scatter.out")
        .int8({4}, {1, 2, 3, 4})
        .int8(sizes, std::vector<int8_t>(static_cast<size_t>(sizes[0]), 9))
        .integers({0, -3, end, 2})
        .out({4});
  };
  Call right = scatter({2}, INT64_MAX);
  REQUIRE(right.run() == "");
  CHECK(right.result() == std::vector<int8_t>{1, 9, 3, 9});
  Call nothing = scatter({0}, 1);
  REQUIRE(nothing.run() == "");
  CHECK(nothing.result() == std::vector<int8_t>{1, 2, 3, 4});
  Call shape = scatter({3}, INT64_MAX);
  CHECK(says(shape, "the slice has 2 items of dimension 0"));
  Call copied("aten::copy.out");
  copied.int8({2, 2}, {1, 2, 3, 4}).int8({3}, {1, 2, 3}).boolean(false).out({2, 2});
  CHECK(says(copied, "src does not broadcast to self"));
}

Call strided(const std::vector<int64_t>& stride, int64_t offset, const Sizes& out = {2, 2}) {
  Call call("aten::as_strided_copy.out");
  call.int8({5}, {1, 2, 3, 4, 5}).list({2, 2}).list(stride).integer(offset).out(out);
  return call;
}

TEST_CASE("strides that leave the tensor are refused") {
  Call right = strided({2, 1}, 1);
  REQUIRE(right.run() == "");
  CHECK(right.result() == std::vector<int8_t>{2, 3, 4, 5});
  Call beyond = strided({2, 2}, 1);
  CHECK(says(beyond, "the strides reach beyond it"));
  Call huge = strided({INT32_MAX, INT32_MAX}, INT32_MAX);
  CHECK(says(huge, "the strides reach beyond it"));
  Call negative = strided({-1, 1}, 2);
  CHECK(says(negative, "stride item 0 is -1"));
  Call shape = strided({2, 1}, 1, {4});
  CHECK(says(shape, "not of the size asked for"));
}

Call slice(int64_t start, int64_t end, int64_t step, int32_t out) {
  return Call("aten::slice_copy.Tensor_out")
      .int8({4}, {1, 2, 3, 4})
      .integers({0, start, end, step})
      .out({out});
}

TEST_CASE("a slice's ends are those of Python") {
  Call back = slice(-3, INT64_MAX, 2, 2);
  REQUIRE(back.run() == "");
  CHECK(back.result() == std::vector<int8_t>{2, 4});
  CHECK(slice(kLeast, -1, 1, 3).run() == "");
  CHECK(slice(3, 1, 1, 0).run() == "");
  Call shape = slice(0, 4, 2, 3);
  CHECK(says(shape, "the slice has 2 items of dimension 0"));
  Call still = slice(0, 4, 0, 4);
  CHECK(says(still, "step (argument 4) is 0"));
}

TEST_CASE("parts that do not make the whole are refused") {
  const auto split = [](const std::vector<int64_t>& sizes, const std::vector<Sizes>& outs) {
    return Call("aten::split_with_sizes_copy.out")
        .int8({3}, {1, 2, 3})
        .list(sizes)
        .integer(0)
        .outs(outs);
  };
  CHECK(split({1, 2}, {{1}, {2}}).run() == "");
  Call number = split({1, 2}, {{1}});
  CHECK(says(number, "split_sizes has 2 items, out 1"));
  Call beyond = split({2, 2}, {{2}, {2}});
  CHECK(says(beyond, "out item 1 is int8[2]: not its part"));
  Call other = split({1, 2}, {{1}, {1}});
  CHECK(says(other, "not its part of 2"));
}

TEST_CASE("views that change the number of items, or name a dimension twice, are refused") {
  Call view("aten::view_copy.out");
  view.int8({3}, {1, 2, 3}).list({4}).out({4});
  CHECK(says(view, "the number of items differs"));
  Call squeezed("aten::squeeze_copy.dims_out");
  squeezed.int8({1, 2}, {1, 2}).list({0, 1}).out({1, 2});
  CHECK(says(squeezed, "not self without those of its dimensions that have size 1"));
  Call twice("aten::flip.out");
  twice.int8({2}, {1, 2}).list({0, -1}).out({2});
  CHECK(says(twice, "one twice"));
  Call expanded("aten::expand_copy.out");
  expanded.int8({2}, {1, 2}).list({3}).boolean(false).out({3});
  CHECK(says(expanded, "the shape does not broadcast"));
  Call repeated("aten::repeat.out");
  repeated.int8({2}, {1, 2}).list({2}).out({3});
  CHECK(says(repeated, "not self as often as repeats says"));
}

TEST_CASE("padding that cuts, and a padding of int8, are refused") {
  Call cut("aten::constant_pad_nd.out");
  cut.floats({3}, {1, 2, 3}).list({-1, 0}).real(0).out({2}, DType::kFloat32);
  CHECK(says(cut, "dimension 0 is padded by -1 and 0"));
  Call quantised("aten::constant_pad_nd.out");
  quantised.int8({1}, {1}).list({1, 0}).integer(0).out({2});
  CHECK(says(quantised, "self is int8[1], the operator takes float32 or int32 or int64 or bool"));
}

TEST_CASE("the smallest integer is its own opposite, and remainders have no trap") {
  for (const char* op : {"aten::abs.out", "aten::neg.out"}) {
    Call call(op);
    call.int64({2}, {kLeast, -3}).out({2}, DType::kInt64);
    REQUIRE(call.run() == "");
    CHECK(call.result<int64_t>() == std::vector<int64_t>{kLeast, 3});
  }
  Call trap("aten::fmod.Scalar_out");
  trap.int64({2}, {kLeast, -7}).integer(-1).out({2}, DType::kInt64);
  REQUIRE(trap.run() == "");
  CHECK(trap.result<int64_t>() == std::vector<int64_t>{0, 0});
  Call zero("aten::fmod.Scalar_out");
  zero.int64({1}, {1}).integer(0).out({1}, DType::kInt64);
  CHECK(says(zero, "other is 0"));
  Call product("aten::mul.out");
  product.int64({1}, {kLeast}).int64({1}, {-1}).out({1}, DType::kInt64);
  REQUIRE(product.run() == "");
  CHECK(product.result<int64_t>() == std::vector<int64_t>{kLeast});
}

TEST_CASE("a remainder of integers has the divisor's sign, no trap, and no zero to divide by") {
  Call call("aten::remainder.Tensor_out");
  call.int64({6}, {kLeast, -7, 7, -8, 7, kLeast}).int64({6}, {-1, 4, -4, 4, 4, 3});
  call.out({6}, DType::kInt64);
  REQUIRE(call.run() == "");
  CHECK(call.result<int64_t>() == std::vector<int64_t>{0, 1, -1, 0, 3, 1});
  Call number("aten::remainder.Scalar_out");
  number.int32({3}, {INT32_MIN, -1, 9}).integer(-5).out({3}, DType::kInt32);
  REQUIRE(number.run() == "");
  CHECK(number.result<int32_t>() == std::vector<int32_t>{-3, -1, -1});
  Call zero("aten::remainder.Scalar_out");
  zero.int64({1}, {1}).integer(0).out({1}, DType::kInt64);
  CHECK(says(zero, "other is 0"));
  Call zeros("aten::remainder.Tensor_out");
  zeros.int32({2}, {1, 1}).int32({2}, {1, 0}).out({2}, DType::kInt32);
  CHECK(says(zeros, "an item of other is 0"));
  Call quantised("aten::remainder.Scalar_out");
  quantised.int8({1}, {1}).integer(2).out({1});
  CHECK(says(quantised, "the operator takes float32 or int32 or int64"));
}

TEST_CASE("a remainder of floats has the divisor's sign, and is the dividend's zero") {
  Call call("aten::remainder.Tensor_out");
  call.floats({8}, {-7, 7, -1, 1, -0.0f, kInfinity, 1, 6});
  call.floats({8}, {4, -4, kInfinity, -kInfinity, 3, 2, 0, -3});
  call.out({8}, DType::kFloat32);
  REQUIRE(call.run() == "");
  const std::vector<float> found = call.result<float>();
  CHECK(std::vector<float>(found.begin(), found.begin() + 4) ==
        std::vector<float>{1, -1, kInfinity, -kInfinity});
  CHECK((found[4] == 0 && std::signbit(found[4])));
  CHECK(std::isnan(found[5]));
  CHECK(std::isnan(found[6]));
  CHECK((found[7] == 0 && !std::signbit(found[7])));
  Call number("aten::remainder.Scalar_out");
  number.floats({2}, {-0.5f, 0.75f}).real(0.5).out({2}, DType::kFloat32);
  REQUIRE(number.run() == "");
  CHECK(number.result<float>() == std::vector<float>{-0.0f, 0.25f});
}

TEST_CASE("a division that rounds has no trap, and refuses zero where there is no infinity") {
  const auto quotients = [](const char* mode) {
    Call call("aten::div.out_mode");
    call.int64({4}, {kLeast, -7, 7, -8}).int64({4}, {-1, 2, -2, 2}).text(mode);
    call.out({4}, DType::kInt64);
    REQUIRE(call.run() == "");
    return call.result<int64_t>();
  };
  CHECK(quotients("floor") == std::vector<int64_t>{kLeast, -4, -4, -4});
  CHECK(quotients("trunc") == std::vector<int64_t>{kLeast, -3, -3, -4});
  Call zero("aten::div.out_mode");
  zero.int32({1}, {1}).int32({1}, {0}).text("floor").out({1}, DType::kInt32);
  CHECK(says(zero, "an item of other is 0"));
  Call mode("aten::div.out_mode");
  mode.floats({1}, {1}).floats({1}, {1}).text("up").out({1}, DType::kFloat32);
  CHECK(says(mode, "rounding_mode is neither"));
  Call infinite("aten::div.out_mode");
  infinite.floats({4}, {-1, -1, 0, kNan}).floats({4}, {0, -0.0f, 0, 1}).text("floor");
  infinite.out({4}, DType::kFloat32);
  REQUIRE(infinite.run() == "");
  const std::vector<float> found = infinite.result<float>();
  CHECK(found[0] == -kInfinity);
  CHECK(found[1] == kInfinity);
  CHECK(std::isnan(found[2]));
  CHECK(std::isnan(found[3]));
}

TEST_CASE("a quotient that rounds down is a whole number, also where the remainder is not exact") {
  Call call("aten::div.out_mode");
  call.floats({4}, {4.6f, 9.1f, 9.1f, -1.3f}).floats({4}, {0.3f, 0.3f, 0.7f, 0.1f}).text("floor");
  call.out({4}, DType::kFloat32);
  REQUIRE(call.run() == "");
  CHECK(call.result<float>() == std::vector<float>{15, 30, 13, -13});
  Call plain("aten::div.out_mode");
  plain.floats({1}, {1}).floats({1}, {4}).none().out({1}, DType::kFloat32);
  REQUIRE(plain.run() == "");
  CHECK(plain.result<float>() == std::vector<float>{0.25f});
}

TEST_CASE("bits of a bool that is neither 0 nor 1 are those of a truth") {
  Call both("aten::bitwise_and.Tensor_out");
  both.tensor(DType::kBool, {2}, std::vector<uint8_t>{2, 2});
  both.tensor(DType::kBool, {2}, std::vector<uint8_t>{1, 0}).out({2}, DType::kBool);
  REQUIRE(both.run() == "");
  CHECK(both.result<uint8_t>() == std::vector<uint8_t>{1, 0});
  Call other("aten::bitwise_not.out");
  other.tensor(DType::kBool, {2}, std::vector<uint8_t>{0, 255}).out({2}, DType::kBool);
  REQUIRE(other.run() == "");
  CHECK(other.result<uint8_t>() == std::vector<uint8_t>{1, 0});
}

TEST_CASE("NaN wins over the largest and the smallest, and the first of equals counts") {
  const auto at = [](const char* op, const std::vector<float>& items) {
    Call call(op);
    call.floats({static_cast<int32_t>(items.size())}, items)
        .integer(0)
        .boolean(false)
        .out({}, DType::kInt64);
    REQUIRE(call.run() == "");
    return call.result<int64_t>()[0];
  };
  CHECK(at("aten::argmax.out", {1, 5, 5}) == 1);
  CHECK(at("aten::argmin.out", {3, 1, 1}) == 1);
  CHECK(at("aten::argmax.out", {1, kNan, kInfinity, kNan}) == 1);
  CHECK(at("aten::argmin.out", {kNan, -kInfinity}) == 0);
}

TEST_CASE("there is a sum of nothing, and no largest") {
  Call sum("aten::sum.IntList_out");
  sum.floats({0, 2}, {}).list({0}).boolean(false).none().out({2}, DType::kFloat32);
  REQUIRE(sum.run() == "");
  CHECK(sum.result<float>() == std::vector<float>{0, 0});
  Call largest("aten::amax.out");
  largest.floats({0, 2}, {}).list({0}).boolean(false).out({2}, DType::kFloat32);
  CHECK(says(largest, "no item to choose"));
  Call variance("aten::var.correction_out");
  variance.floats({1}, {3}).list({0}).integer(1).boolean(false).out({}, DType::kFloat32);
  REQUIRE(variance.run() == "");
  CHECK(std::isnan(variance.result<float>()[0]));
}

TEST_CASE("floats become the nearest integer that there is, and NaN zero") {
  Call call("dim_order_ops::_to_dim_order_copy.out");
  call.floats({5}, {kNan, kInfinity, -kInfinity, -2.9f, 3e9f})
      .boolean(false)
      .none()
      .out({5}, DType::kInt32);
  REQUIRE(call.run() == "");
  CHECK(call.result<int32_t>() == std::vector<int32_t>{0, INT32_MAX, INT32_MIN, -2, INT32_MAX});
}

TEST_CASE("pixels and samples of sound become floats") {
  const auto to_float = [](DType dtype, const auto& items) {
    Call call("dim_order_ops::_to_dim_order_copy.out");
    call.tensor(dtype, {2}, items).boolean(false).none().out({2}, DType::kFloat32);
    REQUIRE(call.run() == "");
    return call.result<float>();
  };
  CHECK(to_float(DType::kUint8, std::vector<uint8_t>{255, 3}) == std::vector<float>{255, 3});
  CHECK(to_float(DType::kInt16, std::vector<int16_t>{-32768, 7}) == std::vector<float>{-32768, 7});
}

Call copied(const Sizes& sizes, const std::vector<int64_t>& order) {
  return Call("dim_order_ops::_clone_dim_order.out")
      .int8(sizes, {1, 2, 3, 4})
      .boolean(false)
      .list(order)
      .out(sizes);
}

TEST_CASE("a copy is in the dim order that it names, or in one of the same bytes") {
  for (const std::vector<int64_t>& same : {std::vector<int64_t>{0, 1, 2}, {0, 2, 1}, {1, 0, 2}}) {
    Call call = copied({2, 1, 2}, same);
    REQUIRE(call.run() == "");
    CHECK(call.result() == std::vector<int8_t>{1, 2, 3, 4});
  }
  Call other = copied({2, 1, 2}, {2, 0, 1});
  CHECK(says(other, "not in the dim order asked for"));
  for (const std::vector<int64_t>& none : {std::vector<int64_t>{0, 1, 3}, {0, 1, -1}, {0, 1, 1}}) {
    Call call = copied({2, 1, 2}, none);
    CHECK(says(call, "dim_order item 2 is"));
  }
  Call few = copied({2, 1, 2}, {0, 1});
  CHECK(says(few, "dim_order has 2 items"));
}

TEST_CASE("a bool that is neither 0 nor 1 is true") {
  Call call("aten::logical_not.out");
  call.tensor(DType::kBool, {3}, std::vector<uint8_t>{0, 1, 255}).out({3}, DType::kBool);
  REQUIRE(call.run() == "");
  CHECK(call.result<uint8_t>() == std::vector<uint8_t>{1, 0, 0});
}

TEST_CASE("matrices that do not fit are refused") {
  Call product("aten::mm.out");
  product.floats({2, 3}, std::vector<float>(6)).floats({2, 3}, std::vector<float>(6));
  product.out({2, 3}, DType::kFloat32);
  CHECK(says(product, "not their product"));
  Call layer("aten::linear.out");
  layer.floats({1, 2}, {1, 2}).floats({1, 2}, {3, 4}).floats({2}, {0, 0});
  layer.out({1, 1}, DType::kFloat32);
  CHECK(says(layer, "bias has not an item for each"));
}

Call layer_norm(const std::vector<int64_t>& shape, const Sizes& weight, const Sizes& statistics) {
  Call call("aten::native_layer_norm.out");
  call.floats({2, 2}, {1, 3, 5, 5})
      .list(shape)
      .floats(weight, std::vector<float>(static_cast<size_t>(weight[0]), 1.0f))
      .none()
      .real(0)
      .out({2, 2}, DType::kFloat32)
      .out(statistics, DType::kFloat32)
      .out(statistics, DType::kFloat32);
  return call;
}

TEST_CASE("normalisations check the tensors beside their input") {
  CHECK(layer_norm({2}, {2}, {2, 1}).run() == "");
  Call shape = layer_norm({3}, {3}, {2, 1});
  CHECK(says(shape, "its last dimensions are not normalized_shape"));
  Call weight = layer_norm({2}, {1}, {2, 1});
  CHECK(says(weight, "weight is float32[1]: 2 contiguous items needed"));
  Call statistics = layer_norm({2}, {2}, {1, 1});
  CHECK(says(statistics, "2 items needed"));
  Call groups("aten::native_group_norm.out");
  groups.floats({1, 3}, {1, 2, 3}).none().none().integers({1, 3, 1, 2}).real(0);
  groups.out({1, 3}, DType::kFloat32).out({1, 2}, DType::kFloat32).out({1, 2}, DType::kFloat32);
  CHECK(says(groups, "do not make 2 groups"));
}

Call enlarged(double factor, const Sizes& out) {
  Call call("aten::upsample_nearest2d.vec_out");
  call.floats({1, 1, 1, 2}, {1, 2}).none().doubles({1.0, factor}).out(out, DType::kFloat32);
  return call;
}

TEST_CASE("factors that do not give the size of out are refused") {
  CHECK(enlarged(2, {1, 1, 1, 4}).run() == "");
  for (const double factor : {0.0, -1.0, 1e300, 1e-300, double{kNan}, 2.6}) {
    Call call = enlarged(factor, {1, 1, 1, 4});
    CHECK(says(call, "scale_factors give another size"));
  }
  Call size("aten::_adaptive_avg_pool2d.out");
  size.floats({1, 1, 2, 2}, {1, 2, 3, 4}).list({1, 2}).out({1, 1, 1, 1}, DType::kFloat32);
  CHECK(says(size, "output_size is not the size of out"));
}

TEST_CASE("words and numbers that an operator does not know are refused") {
  Call word("aten::gelu.out");
  word.floats({1}, {1}).text("quick").out({1}, DType::kFloat32);
  CHECK(says(word, "approximate is neither"));
  Call number("aten::gt.Scalar_out");
  number.int8({1}, {1}).integer(0).out({1}, DType::kBool);
  CHECK(says(number, "self is int8[1], the operator takes float32 or int32 or int64 or bool"));
  Call steps("aten::arange.start_out");
  steps.real(0).real(3).real(0).out({3}, DType::kFloat32);
  CHECK(says(steps, "not of as many items as there are steps"));
}

// One channel of 2 x 2 x 2 items, 1 to 8 but for what is given in place of the first.
Call volume(const char* op, float first = 1) {
  return Call(op).floats({1, 1, 2, 2, 2}, {first, 2, 3, 4, 5, 6, 7, 8});
}

Call average(const std::vector<int64_t>& kernel, int64_t padding, bool counts_padding,
             int64_t divisor, const Sizes& out) {
  Call call = volume("aten::avg_pool3d.out");
  call.list(kernel).list({}).list({padding}).boolean(false).boolean(counts_padding);
  return (divisor == 0 ? call.none() : call.integer(divisor)).out(out, DType::kFloat32);
}

TEST_CASE("an average of volumes counts padding, or not, or divides by what is given") {
  Call whole = average({2, 2, 2}, 0, true, 0, {1, 1, 1, 1, 1});
  REQUIRE(whole.run() == "");
  CHECK(whole.result<float>() == std::vector<float>{4.5});
  Call oblong = average({1, 2, 1}, 0, true, 0, {1, 1, 2, 1, 2});
  REQUIRE(oblong.run() == "");
  CHECK(oblong.result<float>() == std::vector<float>{2, 3, 6, 7});
  const std::vector<float> items = {1, 2, 3, 4, 5, 6, 7, 8};
  for (const auto& [counts, divisor, by] :
       {std::tuple{true, 0, 8.0f}, {false, 0, 1.0f}, {true, 2, 2.0f}}) {
    Call corners = average({2}, 1, counts, divisor, {1, 1, 2, 2, 2});
    REQUIRE(corners.run() == "");
    std::vector<float> expected = items;
    for (float& item : expected) item /= by;
    CHECK(corners.result<float>() == expected);
  }
  Call padding = average({1}, 1, true, 0, {1, 1, 4, 4, 4});
  CHECK(says(padding, "padding is more than half of kernel_size"));
  Call list = average({2, 2}, 0, true, 0, {1, 1, 1, 1, 1});
  CHECK(says(list, "kernel_size has 2 items, 3 needed"));
  Call depth = average({2}, 0, true, 0, {1, 1, 2, 1, 1});
  CHECK(says(depth, "depth: out is 2"));
  Call rank("aten::avg_pool3d.out");
  rank.floats({2, 2, 2}, items).list({2}).list({}).list({0}).boolean(false).boolean(true).none();
  CHECK(says(rank.out({1, 1, 1}, DType::kFloat32), "4 or 5 dimensions needed"));
}

Call largest(float first, int64_t kernel, int64_t padding, int64_t dilation, const Sizes& out) {
  Call call = volume("aten::max_pool3d_with_indices.out", first);
  call.list({kernel}).list({1}).list({padding}).list({dilation}).boolean(false);
  return call.out(out, DType::kFloat32).out(out, DType::kInt64);
}

TEST_CASE("the largest of a volume is told by its index in the channel") {
  Call last = largest(1, 2, 0, 1, {1, 1, 1, 1, 1});
  REQUIRE(last.run() == "");
  CHECK(last.result<int64_t>() == std::vector<int64_t>{7});
  for (const float first : {kNan, kInfinity}) {
    Call beyond = largest(first, 2, 0, 1, {1, 1, 1, 1, 1});
    REQUIRE(beyond.run() == "");
    CHECK(beyond.result<int64_t>() == std::vector<int64_t>{0});
  }
  Call corners = largest(1, 2, 1, 2, {1, 1, 2, 2, 2});  // each sees the opposite item alone
  REQUIRE(corners.run() == "");
  CHECK(corners.result<int64_t>() == std::vector<int64_t>{7, 6, 5, 4, 3, 2, 1, 0});
  Call alone = largest(1, 2, 1, 3, {1, 1, 1, 1, 1});
  CHECK(says(alone, "a window lies in the padding alone"));
  Call shape = volume("aten::max_pool3d_with_indices.out");
  shape.list({2}).list({}).list({0}).list({1}).boolean(false);
  shape.out({1, 1, 1, 1, 1}, DType::kFloat32).out({1, 1, 1, 1}, DType::kInt64);
  CHECK(says(shape, "the shapes differ"));
}

TEST_CASE("parts of an adaptive pool overlap where sizes do not divide") {
  const auto pool = [](const char* op) {
    return Call(op).floats({1, 2, 3}, {1, 2, 3, 6, 5, 4}).list({1, 2});
  };
  Call mean = pool("aten::_adaptive_avg_pool2d.out").out({1, 1, 2}, DType::kFloat32);
  REQUIRE(mean.run() == "");
  CHECK(mean.result<float>() == std::vector<float>{3.5, 3.5});
  const Sizes sizes = {1, 1, 2};
  Call most =
      pool("aten::adaptive_max_pool2d.out").out(sizes, DType::kFloat32).out(sizes, DType::kInt64);
  REQUIRE(most.run() == "");
  CHECK(most.result<int64_t>() == std::vector<int64_t>{3, 4});
  Call size = volume("aten::adaptive_max_pool3d.out").list({1, 1});
  size.out({1, 1, 1, 1, 1}, DType::kFloat32).out({1, 1, 1, 1, 1}, DType::kInt64);
  CHECK(says(size, "output_size is not the size of out"));
  Call volumes = volume("aten::_adaptive_avg_pool3d.out").list({1, 2, 1});
  volumes.out({1, 1, 1, 2, 1}, DType::kFloat32);
  REQUIRE(volumes.run() == "");
  CHECK(volumes.result<float>() == std::vector<float>{3.5, 5.5});
}

// A table of rows (1, 8), (2, 7), (3, 6), (4, 5), in bags of the indices 0, 3, 2 and 1 from
// `offsets`.
Call bags(const std::vector<int64_t>& offsets, int64_t mode, bool has_last, int64_t padding,
          const std::vector<float>& factors = {}, int64_t index = 1) {
  const auto count = static_cast<int32_t>(offsets.size()) - (has_last ? 1 : 0);
  Call call("aten::_embedding_bag.out");
  call.floats({4, 2}, {1, 8, 2, 7, 3, 6, 4, 5}).int64({4}, {0, 3, 2, index});
  call.int64({static_cast<int32_t>(offsets.size())}, offsets);
  call.boolean(false).integer(mode).boolean(false);
  if (factors.empty()) {
    call.none();
  } else {
    call.floats({static_cast<int32_t>(factors.size())}, factors);
  }
  call.boolean(has_last).integer(padding).out({count, 2}, DType::kFloat32);
  call.out({4}, DType::kInt64).out({count}, DType::kInt64);
  return call.out(mode == 2 ? Sizes{count, 2} : Sizes{count}, DType::kInt64);
}

TEST_CASE("rows of a table in bags: their sum, mean or largest") {
  const auto rows = [](Call call) {
    REQUIRE(call.run() == "");
    return call.result<float>(3);
  };
  constexpr int64_t kNoPadding = -1;
  CHECK(rows(bags({0, 3}, 0, false, kNoPadding)) == std::vector<float>{8, 19, 2, 7});
  CHECK(rows(bags({0, 2, 4}, 0, true, kNoPadding)) == std::vector<float>{5, 13, 5, 13});
  CHECK(rows(bags({0, 2, 2}, 1, false, kNoPadding)) ==
        std::vector<float>{2.5, 6.5, 0, 0, 2.5, 6.5});
  CHECK(rows(bags({0, 2}, 1, false, 3)) == std::vector<float>{1, 8, 2.5, 6.5});
  CHECK(rows(bags({0}, 0, false, kNoPadding, {1, 0, 2, 0.5})) == std::vector<float>{8, 23.5});
  Call most = bags({0, 3}, 2, false, kNoPadding);
  CHECK(rows(most) == std::vector<float>{4, 8, 2, 7});
  CHECK(most.result<int64_t>() == std::vector<int64_t>{3, 0, 1, 1});
  CHECK(most.result<int64_t>(1) == std::vector<int64_t>{3, 1});
  CHECK(most.result<int64_t>(2) == std::vector<int64_t>{0, 0, 0, 1});
}

TEST_CASE("bags of what is not there are refused") {
  Call row = bags({0}, 0, false, -1, {}, 4);
  CHECK(says(row, "index 4 of 4 items"));
  for (const std::vector<int64_t>& offsets :
       {std::vector<int64_t>{1}, {0, 5}, {0, 3, 2}, {0, -1}}) {
    Call call = bags(offsets, 0, false, -1);
    CHECK(says(call, "of 4 indices"));
  }
  Call fewer = bags({0, 2, 3}, 1, true, -1);
  CHECK(says(fewer, "the last of the offsets is 3, and there are 4 indices"));
  Call none = bags({}, 0, false, -1);
  CHECK(says(none, "not a row for each bag"));
  Call factors = bags({0}, 1, false, -1, {1, 1, 1, 1});
  CHECK(says(factors, "per_sample_weights: one for each index needed, of a sum"));
}

TEST_CASE("a hard sigmoid is 0 below -3 and 1 above 3") {
  const auto computed = [](const char* op) {
    Call call = Call(op).floats({5}, {-4, -3, 0, 3, 4}).out({5}, DType::kFloat32);
    REQUIRE(call.run() == "");
    return call.result<float>();
  };
  CHECK(computed("aten::hardsigmoid.out") == std::vector<float>{0, 0, 0.5, 1, 1});
  CHECK(computed("aten::hardswish.out") == std::vector<float>{-0.0f, -0.0f, 0, 3, 4});
}

}  // namespace
}  // namespace hil::builtin
