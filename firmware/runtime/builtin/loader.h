// Loads verified FlatBuffers into a Method. The meaning of the fields is checked here, once, so
// that no later code has to.
#pragma once

#include "runtime/arenas.h"
#include "runtime/builtin/bump_allocator.h"
#include "runtime/builtin/method.h"
#include "runtime/builtin/program_file.h"

namespace hil::builtin {

class Loader {
 public:
  // `arenas` is where activations go, `arena` where the method's tables go.
  Loader(const ProgramFile& file, Arenas* arenas, BumpAllocator* arena, Method* method,
         Failure* failure)
      : file_(file), arenas_(arenas), arena_(arena), method_(method), failure_(failure) {}

  // The method of that name, of "" the first.
  bool load(const char* method);

 private:
  bool choose_plan(const char* method);
  bool refuse_delegates();
  bool plan_memory();

  bool load_values();
  bool load_value(uint32_t index);
  template <typename T>
  bool load_list(uint32_t index, ValueType type, const flatbuffers::Vector<T>* items);
  bool check_lists();
  bool check_list(uint32_t index);
  bool may_hold(ValueType list, int64_t item) const;

  bool load_tensor(uint32_t index, const schema::Tensor& source);
  bool refuse_unsupported(uint32_t index, const schema::Tensor& source);
  bool load_shape(uint32_t index, const schema::Tensor& source, Tensor* tensor);
  bool check_dim_order(uint32_t index, const Tensor& tensor);
  bool count_bytes(uint32_t index, Tensor* tensor);
  bool find_data(uint32_t index, const schema::Tensor& source, Tensor* tensor);
  bool find_planned(uint32_t index, const schema::AllocationDetails& place, Tensor* tensor);
  bool set_state(uint32_t number, const Tensor& tensor);

  bool load_ends();
  bool place_unplanned();
  bool load_end(const char* what, const flatbuffers::Vector<int32_t>* source,
                Span<const int32_t>* indices);

  bool find_operators();
  bool load_instructions();
  bool load_instruction(uint32_t index);
  bool load_call(uint32_t index, const schema::KernelCall& source, Instruction* instruction);
  bool load_move(uint32_t index, const schema::MoveCall& source, Instruction* instruction);
  bool load_jump(uint32_t index, const schema::JumpFalseCall& source, Instruction* instruction);

  template <typename T>
  bool allocate(size_t count, Span<T>* span);
  template <typename... Parts>
  bool reject_value(uint32_t index, const Parts&... parts);
  template <typename... Parts>
  bool reject_instruction(uint32_t index, const Parts&... parts);
  bool is_value(int64_t index) const {
    return index >= 0 && static_cast<uint64_t>(index) < method_->values.size;
  }
  ValueType type_of(int64_t index) const { return method_->values.data[index].type; }

  const ProgramFile& file_;
  Arenas* arenas_;
  BumpAllocator* arena_;
  Method* method_;
  Failure* failure_;

  const schema::ExecutionPlan* plan_ = nullptr;
  Span<uint32_t> buffer_starts_;     // in their banks; [0] is not a buffer
  Span<const Operator*> operators_;  // as the plan numbers them
};

}  // namespace hil::builtin
