// hil::Runtime over the loader and the kernels.
#include "runtime/runtime.h"

#include "runtime/builtin/kernel.h"
#include "runtime/builtin/loader.h"

namespace hil::builtin {
namespace {

// Raise it whenever the same program may give other bytes or another verdict: results are keyed by
// it.
constexpr char kBuiltinVersion[] = "7";

class BuiltinRuntime final : public Runtime {
 public:
  // No kernel here takes memory for itself.
  void init(Span<const Bank> banks, Span<uint8_t> method, Span<uint8_t>) override {
    arenas_.init(banks);
    arena_ = BumpAllocator(method);
    unload();
  }

  const char* name() const override { return "builtin"; }
  const char* version() const override { return kBuiltinVersion; }
  size_t operator_count() const override { return operators().size; }
  const char* operator_name(size_t i) const override {
    return i < operators().size ? operators().data[i].name : "";
  }

  bool load(Span<const uint8_t> program, const char* method) override;
  void unload() override;
  bool loaded() const override { return loaded_; }
  ProgramShape shape() const override;

  const Arenas& arenas() const override { return arenas_; }
  bool value(uint32_t index, ValueView* out) override;
  bool input(uint32_t number, ValueView* out) override;
  bool output(uint32_t number, ValueView* out) override;
  bool resize_input(uint32_t number, Span<const int32_t> sizes) override;

  bool step(bool* done) override;
  void rewind() override { program_counter_ = 0; }
  uint32_t program_counter() const override { return program_counter_; }
  const char* instruction_operator(uint32_t instruction) const override;

  size_t method_used() const override {
    return loaded_ ? static_cast<size_t>(arena_.requested()) : 0;
  }
  size_t temp_used() const override { return 0; }
  const Failure& failure() const override { return failure_; }

 private:
  bool execute(const Instruction& instruction);
  bool call(const Instruction& instruction);
  void move(const Instruction& instruction);
  bool jump_if_false(const Instruction& instruction);
  bool report_no_value(const char* region, uint32_t index, size_t count);

  Arenas arenas_;
  BumpAllocator arena_;
  Method method_;
  Failure failure_;
  uint32_t program_counter_ = 0;
  bool loaded_ = false;
};

bool BuiltinRuntime::load(Span<const uint8_t> program, const char* method) {
  unload();
  clear(&failure_);
  ProgramFile file;
  loaded_ = open_program(program, &file, &failure_) &&
            Loader(file, &arenas_, &arena_, &method_, &failure_).load(method);
  if (!loaded_) unload();
  return loaded_;
}

void BuiltinRuntime::unload() {
  loaded_ = false;
  method_ = {};
  arenas_.clear();
  arena_.reset();
  program_counter_ = 0;
}

ProgramShape BuiltinRuntime::shape() const {
  ProgramShape shape = {};
  shape.inputs = static_cast<uint16_t>(method_.inputs.size);
  shape.outputs = static_cast<uint16_t>(method_.outputs.size);
  shape.values = static_cast<uint32_t>(method_.values.size);
  shape.instructions = static_cast<uint32_t>(method_.instructions.size);
  return shape;
}

// Values for the host

void view_tensor(const Tensor& tensor, ValueView* out) {
  out->kind = HIL_KIND_TENSOR;
  out->dtype = static_cast<uint8_t>(tensor.dtype);
  out->rank = tensor.rank;
  out->writable = tensor.writable;
  for (int i = 0; i < tensor.rank; ++i) {
    out->sizes[i] = tensor.sizes[i];
    out->dim_order[i] = tensor.dim_order[i];
  }
  out->data = {tensor.data, tensor.nbytes};
}

// Scalars that are no inputs are the operators' attributes: read only.
void view_scalar(hil_kind kind, Value& value, ValueView* out) {
  out->kind = kind;
  out->writable = value.is_input;
  out->data = {reinterpret_cast<uint8_t*>(&value.integer), sizeof(value.integer)};
}

void view_value(Value& value, ValueView* out) {
  *out = {};
  switch (value.type) {
    case ValueType::kTensor:
      return view_tensor(*value.tensor, out);
    case ValueType::kInt:
      return view_scalar(HIL_KIND_INT, value, out);
    case ValueType::kDouble:
      return view_scalar(HIL_KIND_DOUBLE, value, out);
    case ValueType::kBool:
      return view_scalar(HIL_KIND_BOOL, value, out);
    default:
      return;
  }
}

bool BuiltinRuntime::report_no_value(const char* region, uint32_t index, size_t count) {
  if (!loaded_) return report(&failure_, HIL_STATUS_BAD_STATE, "no program is loaded");
  return report(&failure_, HIL_STATUS_BAD_REQUEST, region, " ", index,
                " does not exist, the program has ", count);
}

bool BuiltinRuntime::value(uint32_t index, ValueView* out) {
  if (index >= method_.values.size) return report_no_value("value", index, method_.values.size);
  view_value(method_.values.data[index], out);
  return true;
}

bool BuiltinRuntime::input(uint32_t number, ValueView* out) {
  if (number >= method_.inputs.size) return report_no_value("input", number, method_.inputs.size);
  return value(static_cast<uint32_t>(method_.inputs.data[number]), out);
}

bool BuiltinRuntime::output(uint32_t number, ValueView* out) {
  if (number >= method_.outputs.size) {
    return report_no_value("output", number, method_.outputs.size);
  }
  if (!value(static_cast<uint32_t>(method_.outputs.data[number]), out)) return false;
  out->writable = false;
  return true;
}

// Kernels and views take the sizes of a value for fixed, so nothing but what there is fits.
bool BuiltinRuntime::resize_input(uint32_t number, Span<const int32_t> sizes) {
  ValueView view;
  if (!input(number, &view)) return false;
  bool same = view.kind == HIL_KIND_TENSOR && sizes.size == view.rank;
  for (size_t i = 0; same && i < sizes.size; ++i) same = sizes.data[i] == view.sizes[i];
  if (same) return true;
  return report(&failure_, HIL_STATUS_BAD_REQUEST, "input ", number,
                " cannot be resized: the runtime builtin executes a program at its upper bounds");
}

const char* BuiltinRuntime::instruction_operator(uint32_t instruction) const {
  if (instruction >= method_.instructions.size) return "";
  const Operator* op = method_.instructions.data[instruction].op;
  return op == nullptr ? "" : op->name;
}

// Execution

bool BuiltinRuntime::step(bool* done) {
  *done = false;
  if (!loaded_) return report(&failure_, HIL_STATUS_BAD_STATE, "no program is loaded");
  const size_t count = method_.instructions.size;
  if (program_counter_ < count && !execute(method_.instructions.data[program_counter_])) {
    return false;
  }
  if (program_counter_ >= count) {
    *done = true;
    program_counter_ = 0;
  }
  return true;
}

bool BuiltinRuntime::execute(const Instruction& instruction) {
  switch (instruction.opcode) {
    case Opcode::kKernel:
      if (!call(instruction)) return false;
      break;
    case Opcode::kMove:
      move(instruction);
      break;
    case Opcode::kJumpFalse:
      return jump_if_false(instruction);
    case Opcode::kFree:  // planned memory has no owner
      break;
  }
  ++program_counter_;
  return true;
}

bool BuiltinRuntime::call(const Instruction& instruction) {
  KernelContext context(method_, program_counter_, &failure_);
  instruction.op->kernel(context);
  return context.ok();
}

void BuiltinRuntime::move(const Instruction& instruction) {
  Value& to = method_.values.data[instruction.to];
  to = method_.values.data[instruction.from];
  to.is_input = false;  // the loader lets nothing move into an input
}

bool BuiltinRuntime::jump_if_false(const Instruction& instruction) {
  const Value& condition = method_.values.data[instruction.from];
  bool holds = condition.integer != 0;
  if (condition.type == ValueType::kTensor) {
    const Tensor& tensor = *condition.tensor;
    if (tensor.dtype != DType::kBool || tensor.numel != 1) {
      report(&failure_, HIL_STATUS_KERNEL_FAILED, "JumpFalseCall: its condition, value ",
             instruction.from, ", is ", tensor, ", not one bool");
      failure_.instruction = static_cast<int32_t>(program_counter_);
      return false;
    }
    holds = tensor.data[0] != 0;
  }
  program_counter_ = holds ? program_counter_ + 1 : instruction.to;
  return true;
}

BuiltinRuntime the_runtime;

}  // namespace
}  // namespace hil::builtin

hil::Runtime& hil::runtime() { return hil::builtin::the_runtime; }
