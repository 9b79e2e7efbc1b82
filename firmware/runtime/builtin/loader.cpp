#include "runtime/builtin/loader.h"

#include "runtime/failure.h"

namespace hil::builtin {
namespace {

constexpr uint32_t kBufferAlignment = 16;
constexpr uint64_t kMaxTensorBytes = INT32_MAX;  // so that 32-bit arithmetic on sizes cannot wrap
constexpr size_t kMaxEnds = UINT16_MAX;          // the protocol counts inputs in 16 bits

// The address of data without bytes.
alignas(kBufferAlignment) uint8_t nothing[kBufferAlignment];

Span<const int32_t> span_of(const flatbuffers::Vector<int32_t>* vector) {
  if (vector == nullptr) return {};
  // int32 items are aligned by the verifier, which aligns the length before them.
  return {reinterpret_cast<const int32_t*>(vector->Data()), vector->size()};
}

}  // namespace

bool Loader::load(const char* method) {
  return choose_plan(method) && refuse_delegates() && find_operators() && plan_memory() &&
         load_values() && check_lists() && load_ends() && place_unplanned() && load_instructions();
}

template <typename T>
bool Loader::allocate(size_t count, Span<T>* span) {
  *span = {arena_->allocate<T>(count), count};
  if (span->data != nullptr) return true;
  return out_of_memory(failure_, "method", arena_->requested(), arena_->size());
}

template <typename... Parts>
bool Loader::reject_value(uint32_t index, const Parts&... parts) {
  return reject(failure_, "value ", index, ": ", parts...);
}

template <typename... Parts>
bool Loader::reject_instruction(uint32_t index, const Parts&... parts) {
  reject(failure_, "instruction ", index, ": ", parts...);
  failure_->instruction = static_cast<int32_t>(index);
  return false;
}

bool Loader::choose_plan(const char* method) {
  plan_ = find_method(file_, method, failure_);
  if (plan_ == nullptr) return false;
  if (count_of(plan_->chains()) != 1) {
    return reject(failure_, "the method has ", count_of(plan_->chains()), " chains, not one");
  }
  return true;
}

bool Loader::refuse_delegates() {
  const uint32_t count = count_of(plan_->delegates());
  if (count == 0) return true;
  const char* id = text_of(plan_->delegates()->Get(0)->id());
  report(failure_, HIL_STATUS_UNSUPPORTED_DELEGATE, "the program has ", count,
         " delegated parts, the first for \"", id,
         "\"; this runner has no delegates: lower the program without a partitioner");
  Text(failure_->op).add(id);
  return false;
}

// Planned memory

bool Loader::plan_memory() {
  const auto* sizes = plan_->non_const_buffer_sizes();
  const auto* devices = plan_->non_const_buffer_device();
  for (uint32_t i = 0; i < count_of(devices); ++i) {
    if (devices->Get(i)->device_type() != schema::DeviceType_CPU) {
      return reject(failure_, "planned buffer ", devices->Get(i)->buffer_idx(),
                    " is on a device that is not the CPU");
    }
  }
  for (size_t i = 0; i < arenas_->banks(); ++i) {
    if (reinterpret_cast<uintptr_t>(arenas_->bank(i).data) % kBufferAlignment == 0) continue;
    return reject(failure_, "bank ", i, " is not aligned to ", kBufferAlignment,
                  " bytes: a bug of the runner");
  }
  if (!allocate(count_of(sizes), &buffer_starts_)) return false;

  for (uint32_t i = 1; i < count_of(sizes); ++i) {
    const int64_t size = item_of(sizes, i);
    if (size < 0) return reject(failure_, "planned buffer ", i, " has ", size, " bytes");
    buffer_starts_.data[i] = arenas_->add(i, static_cast<uint64_t>(size));
  }
  return arenas_->complete(failure_);
}

// Values

bool Loader::load_values() {
  const uint32_t count = count_of(plan_->values());
  if (!allocate(count, &method_->values)) return false;
  for (uint32_t i = 0; i < count; ++i) {
    if (!load_value(i)) return false;
  }
  return true;
}

bool Loader::load_value(uint32_t index) {
  const schema::EValue* source = plan_->values()->Get(index);
  Value& value = method_->values.data[index];
  if (source->val_type() == schema::KernelTypes_Null) return true;
  if (source->val() == nullptr) return reject_value(index, "has no content");
  switch (source->val_type()) {
    case schema::KernelTypes_Int:
      value.type = ValueType::kInt;
      value.integer = source->val_as_Int()->int_val();
      return true;
    case schema::KernelTypes_Bool:
      value.type = ValueType::kBool;
      value.integer = source->val_as_Bool()->bool_val();
      return true;
    case schema::KernelTypes_Double:
      value.type = ValueType::kDouble;
      value.real = source->val_as_Double()->double_val();
      return true;
    case schema::KernelTypes_Tensor:
      return load_tensor(index, *source->val_as_Tensor());
    case schema::KernelTypes_String:
      value.type = ValueType::kString;
      value.string = text_of(source->val_as_String()->string_val());
      return true;
    case schema::KernelTypes_IntList:
      return load_list(index, ValueType::kIntList, source->val_as_IntList()->items());
    case schema::KernelTypes_DoubleList:
      return load_list(index, ValueType::kDoubleList, source->val_as_DoubleList()->items());
    case schema::KernelTypes_BoolList:
      return load_list(index, ValueType::kBoolList, source->val_as_BoolList()->items());
    case schema::KernelTypes_TensorList:
      return load_list(index, ValueType::kTensorList, source->val_as_TensorList()->items());
    case schema::KernelTypes_OptionalTensorList:
      return load_list(index, ValueType::kOptionalTensorList,
                       source->val_as_OptionalTensorList()->items());
    default:
      return reject_value(index, "is of an unknown type (", int{source->val_type()}, ")");
  }
}

template <typename T>
bool Loader::load_list(uint32_t index, ValueType type, const flatbuffers::Vector<T>* items) {
  Value& value = method_->values.data[index];
  value.type = type;
  value.count = count_of(items);
  value.items = items == nullptr ? nothing : items->Data();
  return true;
}

// After all values are known, for a list may come before its items.
bool Loader::check_lists() {
  for (uint32_t i = 0; i < method_->values.size; ++i) {
    if (!check_list(i)) return false;
  }
  return true;
}

bool Loader::check_list(uint32_t index) {
  const Value& list = method_->values.data[index];
  for (uint32_t i = 0; i < list.count; ++i) {
    int64_t item = 0;
    if (list.type == ValueType::kIntList) {
      item = list.item<int64_t>(i);
    } else if (list.type == ValueType::kTensorList || list.type == ValueType::kOptionalTensorList) {
      item = list.item<int32_t>(i);
    } else {
      return true;  // the items are themselves, not indices
    }
    if (!may_hold(list.type, item)) {
      return reject_value(index, "item ", i, " of the ", name(list.type), " is value ", item,
                          is_value(item) ? ", of another type" : ", which does not exist");
    }
  }
  return true;
}

bool Loader::may_hold(ValueType list, int64_t item) const {
  constexpr int64_t kAbsent = -1;
  const bool optional = list == ValueType::kOptionalTensorList;
  if (optional && item == kAbsent) return true;
  if (!is_value(item)) return false;
  if (optional && type_of(item) == ValueType::kNone) return true;
  return type_of(item) == (list == ValueType::kIntList ? ValueType::kInt : ValueType::kTensor);
}

// Tensors

bool Loader::load_tensor(uint32_t index, const schema::Tensor& source) {
  Span<Tensor> tensor;
  if (!allocate(1, &tensor)) return false;
  method_->values.data[index].type = ValueType::kTensor;
  method_->values.data[index].tensor = tensor.data;
  return refuse_unsupported(index, source) && load_shape(index, source, tensor.data) &&
         check_dim_order(index, *tensor.data) && count_bytes(index, tensor.data) &&
         find_data(index, source, tensor.data);
}

bool Loader::refuse_unsupported(uint32_t index, const schema::Tensor& source) {
  if (source.storage_offset() != 0) {
    return reject_value(index, "storage offset ", source.storage_offset(), ", only 0 is possible");
  }
  // A bound is as good as a shape: inputs have the size the program was lowered for.
  if (source.shape_dynamism() != schema::TensorShapeDynamism_STATIC &&
      source.shape_dynamism() != schema::TensorShapeDynamism_DYNAMIC_BOUND) {
    return reject_value(index, "a tensor of dynamic, unbounded shape");
  }
  const schema::ExtraTensorInfo* extra = source.extra_tensor_info();
  if (extra == nullptr) return true;
  if (extra->location() != schema::TensorDataLocation_SEGMENT) {
    return reject_value(index, "the data of tensor \"", text_of(extra->fully_qualified_name()),
                        "\" are outside the .pte; this runtime has no data files");
  }
  if (extra->device_type() != schema::DeviceType_CPU) {
    return reject_value(index, "a tensor on a device that is not the CPU");
  }
  return true;
}

bool Loader::load_shape(uint32_t index, const schema::Tensor& source, Tensor* tensor) {
  tensor->dtype = static_cast<DType>(source.scalar_type());
  if (item_size(tensor->dtype) == 0) {
    return reject_value(index, "a tensor of unknown dtype (", int{source.scalar_type()}, ")");
  }
  const Span<const int32_t> sizes = span_of(source.sizes());
  if (sizes.size > kMaxRank) {
    return reject_value(index, "a tensor of rank ", sizes.size, ", at most ", kMaxRank);
  }
  if (count_of(source.dim_order()) != sizes.size) {
    return reject_value(index, "a tensor of rank ", sizes.size, " has a dim order of ",
                        count_of(source.dim_order()));
  }
  tensor->rank = static_cast<uint8_t>(sizes.size);
  tensor->sizes = sizes.data;
  tensor->dim_order = source.dim_order() == nullptr ? nullptr : source.dim_order()->Data();
  return true;
}

bool Loader::check_dim_order(uint32_t index, const Tensor& tensor) {
  uint32_t seen = 0;
  for (int i = 0; i < tensor.rank; ++i) {
    if (tensor.dim_order[i] < tensor.rank) seen |= 1u << tensor.dim_order[i];
  }
  if (seen == (1u << tensor.rank) - 1) return true;
  return reject_value(index, "its dim order is no permutation of its ", tensor.rank, " dimensions");
}

bool Loader::count_bytes(uint32_t index, Tensor* tensor) {
  uint64_t numel = 1;
  uint64_t bytes = item_size(tensor->dtype);  // as if no size were 0, so that no product can wrap
  for (int axis = 0; axis < tensor->rank; ++axis) {
    const int32_t size = tensor->sizes[axis];
    if (size < 0) return reject_value(index, "size ", size, " of dimension ", axis);
    numel *= static_cast<uint32_t>(size);
    bytes *= size == 0 ? 1 : static_cast<uint32_t>(size);
    if (bytes > kMaxTensorBytes) return reject_value(index, "a tensor of over 2 GiB");
  }
  tensor->numel = static_cast<uint32_t>(numel);
  tensor->nbytes = tensor->numel * item_size(tensor->dtype);
  return true;
}

bool Loader::find_data(uint32_t index, const schema::Tensor& source, Tensor* tensor) {
  const schema::AllocationDetails* place = source.allocation_info();
  const uint32_t constant = source.data_buffer_idx();
  if (place != nullptr) {
    return find_planned(index, *place, tensor) && (constant == 0 || set_state(constant, *tensor));
  }
  if (constant != 0) {
    const uint8_t* data = nullptr;
    if (!find_constant(file_, constant, tensor->nbytes, item_size(tensor->dtype), &data,
                       failure_)) {
      return false;
    }
    tensor->data = const_cast<uint8_t*>(data);  // `writable` stays false
    return true;
  }
  tensor->data = tensor->nbytes == 0 ? nothing : nullptr;  // see place_unplanned()
  tensor->writable = true;
  return true;
}

bool Loader::find_planned(uint32_t index, const schema::AllocationDetails& place, Tensor* tensor) {
  const uint32_t buffer = place.memory_id();
  if (buffer == 0 || buffer >= buffer_starts_.size) {
    return reject_value(index, "planned buffer ", buffer, " does not exist");
  }
  const uint64_t offset =
      uint64_t{place.memory_offset_high()} << 32 | uint64_t{place.memory_offset_low()};
  const uint64_t size = static_cast<uint64_t>(item_of(plan_->non_const_buffer_sizes(), buffer));
  if (offset > size || tensor->nbytes > size - offset) {
    return reject_value(index, tensor->nbytes, " bytes at offset ", offset, " of planned buffer ",
                        buffer, ", which has ", size);
  }
  if (offset % item_size(tensor->dtype) != 0) {
    return reject_value(index, "offset ", offset, " is not aligned for ", name(tensor->dtype));
  }
  tensor->data = arenas_->at(buffer, uint64_t{buffer_starts_.data[buffer]} + offset);
  if (tensor->data == nullptr) tensor->data = nothing;
  tensor->writable = true;
  return true;
}

// A mutable tensor begins with what the program says. Nothing sets it again until the next load.
bool Loader::set_state(uint32_t number, const Tensor& tensor) {
  const uint8_t* data = nullptr;
  if (!find_state(file_, number, tensor.nbytes, &data, failure_)) return false;
  std::memcpy(tensor.data, data, tensor.nbytes);
  return true;
}

// Inputs and outputs

bool Loader::load_ends() {
  if (!load_end("input", plan_->inputs(), &method_->inputs)) return false;
  if (!load_end("output", plan_->outputs(), &method_->outputs)) return false;
  for (size_t i = 0; i < method_->inputs.size; ++i) {
    Value& value = method_->values.data[method_->inputs.data[i]];
    if (value.type == ValueType::kTensor && !value.tensor->writable) {
      return reject(failure_, "input ", i, " is value ", method_->inputs.data[i], ", a constant");
    }
    value.is_input = true;
  }
  return true;
}

// Inputs and outputs that the program leaves to its caller (alloc_graph_input, alloc_graph_output).
bool Loader::place_unplanned() {
  for (const Span<const int32_t>& ends : {method_->inputs, method_->outputs}) {
    for (size_t i = 0; i < ends.size; ++i) {
      const Value& value = method_->values.data[ends.data[i]];
      if (value.type != ValueType::kTensor || value.tensor->data != nullptr) continue;
      value.tensor->data = arenas_->add_unplanned(value.tensor->nbytes);
    }
  }
  if (!arenas_->complete(failure_)) return false;
  for (uint32_t i = 0; i < method_->values.size; ++i) {
    const Value& value = method_->values.data[i];
    if (value.type != ValueType::kTensor || value.tensor->data != nullptr) continue;
    return reject_value(i, "tensor ", *value.tensor, " has neither constant data nor memory");
  }
  return true;
}

bool Loader::load_end(const char* what, const flatbuffers::Vector<int32_t>* source,
                      Span<const int32_t>* indices) {
  *indices = span_of(source);
  if (indices->size > kMaxEnds) {
    return reject(failure_, indices->size, " ", what, "s, at most ", kMaxEnds);
  }
  for (size_t i = 0; i < indices->size; ++i) {
    if (!is_value(indices->data[i])) {
      return reject(failure_, what, " ", i, " is value ", indices->data[i],
                    ", which does not exist");
    }
  }
  return true;
}

// Instructions

namespace {

// Names them all, or as many as fit: a user should not learn of them one by one.
class MissingOperators {
 public:
  explicit MissingOperators(Failure* failure) : failure_(failure), message_(failure->message) {}

  void add(const char* op_name, const char* overload) {
    constexpr size_t kRoomForTheRest = sizeof("\nand further operators: 4294967295");
    if (count_++ == 0) {
      clear(failure_);
      failure_->code = HIL_STATUS_UNSUPPORTED_OPERATOR;
      Text op(failure_->op);
      append_name(op, op_name, overload);
    }
    const size_t needed = std::strlen(op_name) + std::strlen(overload) + sizeof("\n(no name).");
    if (named_ + 1 == count_ && message_.room() >= needed + kRoomForTheRest) {
      if (named_++ != 0) message_.add("\n");
      append_name(message_, op_name, overload);
    }
  }

  bool none() {
    if (named_ < count_)
      message_.add(named_ == 0 ? "" : "\nand ", "further operators: ", count_ - named_);
    return count_ == 0;
  }

 private:
  static void append_name(Text& text, const char* op_name, const char* overload) {
    text.add(op_name[0] == 0 ? "(no name)" : op_name, overload[0] == 0 ? "" : ".", overload);
  }

  Failure* failure_;
  Text message_;
  uint32_t count_ = 0;
  uint32_t named_ = 0;
};

}  // namespace

bool Loader::find_operators() {
  const auto* sources = plan_->operators();
  if (!allocate(count_of(sources), &operators_)) return false;
  MissingOperators missing(failure_);
  for (uint32_t i = 0; i < count_of(sources); ++i) {
    const char* op_name = text_of(sources->Get(i)->name());
    const char* overload = text_of(sources->Get(i)->overload());
    operators_.data[i] = find_operator(op_name, overload);
    if (operators_.data[i] == nullptr) missing.add(op_name, overload);
  }
  return missing.none();
}

bool Loader::load_instructions() {
  const uint32_t count = count_of(plan_->chains()->Get(0)->instructions());
  if (!allocate(count, &method_->instructions)) return false;
  for (uint32_t i = 0; i < count; ++i) {
    if (!load_instruction(i)) return false;
  }
  return true;
}

bool Loader::load_instruction(uint32_t index) {
  const schema::Instruction* source = plan_->chains()->Get(0)->instructions()->Get(index);
  Instruction* instruction = &method_->instructions.data[index];
  if (source->instr_args() == nullptr) return reject_instruction(index, "has no content");
  switch (source->instr_args_type()) {
    case schema::InstructionArguments_KernelCall:
      return load_call(index, *source->instr_args_as_KernelCall(), instruction);
    case schema::InstructionArguments_MoveCall:
      return load_move(index, *source->instr_args_as_MoveCall(), instruction);
    case schema::InstructionArguments_JumpFalseCall:
      return load_jump(index, *source->instr_args_as_JumpFalseCall(), instruction);
    case schema::InstructionArguments_FreeCall:
      if (is_value(source->instr_args_as_FreeCall()->value_index())) return true;
      return reject_instruction(index, "frees a value that does not exist");
    case schema::InstructionArguments_DelegateCall:
      return reject_instruction(index, "calls a delegate, and the program has none");
    default:
      return reject_instruction(index, "is of an unknown type (", int{source->instr_args_type()},
                                ")");
  }
}

// The arguments are the schema's, then the return value, which for these operators is `out` again.
bool Loader::load_call(uint32_t index, const schema::KernelCall& source, Instruction* instruction) {
  if (source.op_index() < 0 || static_cast<uint32_t>(source.op_index()) >= operators_.size) {
    return reject_instruction(index, "operator ", source.op_index(), " does not exist");
  }
  const Operator* op = operators_.data[source.op_index()];
  const Span<const int32_t> args = span_of(source.args());
  const Arity arity = arity_of(*op);
  if (args.size < arity.least + 1 || args.size > arity.most + 1) {
    return reject_instruction(index, op->name, " is called with ", args.size,
                              " arguments, its schema and the return value make ", arity.most + 1);
  }
  for (size_t i = 0; i < args.size; ++i) {
    if (!is_value(args.data[i])) {
      return reject_instruction(index, "argument ", i, " of ", op->name, " is value ", args.data[i],
                                ", which does not exist");
    }
  }
  instruction->opcode = Opcode::kKernel;
  instruction->op = op;
  instruction->args = args;
  return true;
}

// Moves between types are refused: lists have been checked by the types of their items.
bool Loader::load_move(uint32_t index, const schema::MoveCall& source, Instruction* instruction) {
  if (!is_value(source.move_from()) || !is_value(source.move_to())) {
    return reject_instruction(index, "moves a value that does not exist");
  }
  if (type_of(source.move_from()) != type_of(source.move_to())) {
    return reject_instruction(index, "moves a ", name(type_of(source.move_from())), " into a ",
                              name(type_of(source.move_to())));
  }
  // A constant moved into an input would make the input read only for the next execution.
  if (method_->values.data[source.move_to()].is_input) {
    return reject_instruction(index, "moves into an input");
  }
  instruction->opcode = Opcode::kMove;
  instruction->from = static_cast<uint32_t>(source.move_from());
  instruction->to = static_cast<uint32_t>(source.move_to());
  return true;
}

bool Loader::load_jump(uint32_t index, const schema::JumpFalseCall& source,
                       Instruction* instruction) {
  const int32_t condition = source.cond_value_index();
  const int32_t destination = source.destination_instruction();
  if (!is_value(condition)) {
    return reject_instruction(index, "jumps by a value that does not exist");
  }
  if (type_of(condition) != ValueType::kBool && type_of(condition) != ValueType::kTensor) {
    return reject_instruction(index, "jumps by a ", name(type_of(condition)), ", not a Bool");
  }
  if (destination < 0 || static_cast<uint32_t>(destination) > method_->instructions.size) {
    return reject_instruction(index, "jumps to instruction ", destination,
                              ", which does not exist");
  }
  instruction->opcode = Opcode::kJumpFalse;
  instruction->from = static_cast<uint32_t>(condition);
  instruction->to = static_cast<uint32_t>(destination);
  return true;
}

}  // namespace hil::builtin
