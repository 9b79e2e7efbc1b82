// hil::Runtime over an installed ExecuTorch: its Program, its Method, its kernels.
#include "runtime/runtime.h"

#include <executorch/runtime/core/data_loader.h>
#include <executorch/runtime/core/exec_aten/util/tensor_util.h>
#include <executorch/runtime/core/hierarchical_allocator.h>
#include <executorch/runtime/executor/memory_manager.h>
#include <executorch/runtime/executor/program.h>
#include <executorch/runtime/platform/runtime.h>

#include <cstdint>
#include <cstring>
#include <new>
#include <optional>

#include "runtime/arenas.h"
#include "runtime/executorch/memory.h"
#include "runtime/executorch/method_access.h"
#include "runtime/executorch/pal.h"
#include "runtime/executorch/plan.h"
#include "runtime/failure.h"

namespace hil::executorch_runtime {
namespace {

using executorch::aten::Tensor;
using executorch::runtime::DataLoader;
using executorch::runtime::Error;
using executorch::runtime::FreeableBuffer;
using executorch::runtime::HierarchicalAllocator;
using executorch::runtime::MemoryManager;
using executorch::runtime::Program;
using executorch::runtime::Result;

constexpr size_t kBufferAlignment = 16;

alignas(kBufferAlignment) uint8_t nothing[kBufferAlignment];  // where a tensor without bytes lies

// The program where it lies: an installed prefix need not have ExecuTorch's own loaders.
class InPlaceLoader final : public DataLoader {
 public:
  void place(hil::Span<const uint8_t> bytes) { bytes_ = bytes; }

  Result<FreeableBuffer> load(size_t offset, size_t size, const SegmentInfo&) const override {
    if (offset > bytes_.size || size > bytes_.size - offset) return Error::InvalidArgument;
    return FreeableBuffer(bytes_.data + offset, size, nullptr);
  }
  Error load_into(size_t offset, size_t size, const SegmentInfo&, void* buffer) const override {
    if (offset > bytes_.size || size > bytes_.size - offset) return Error::InvalidArgument;
    std::memcpy(buffer, bytes_.data + offset, size);
    return Error::Ok;
  }
  Result<size_t> size() const override { return bytes_.size; }

 private:
  hil::Span<const uint8_t> bytes_;
};

class ExecutorchRuntime final : public Runtime {
 public:
  void init(hil::Span<const Bank> banks, hil::Span<uint8_t> method,
            hil::Span<uint8_t> temp) override;

  const char* name() const override { return "executorch"; }
  const char* version() const override { return HIL_EXECUTORCH_VERSION; }
  size_t operator_count() const override {
    return executorch::runtime::get_registered_kernels().size();
  }
  const char* operator_name(size_t i) const override {
    const auto kernels = executorch::runtime::get_registered_kernels();
    return i < kernels.size() ? kernels[i].name_ : "";
  }

  bool load(hil::Span<const uint8_t> program, const char* method) override;
  void unload() override;
  bool loaded() const override { return method_.has_value(); }
  ProgramShape shape() const override;

  const Arenas& arenas() const override { return arenas_; }
  bool value(uint32_t index, ValueView* out) override;
  bool input(uint32_t number, ValueView* out) override;
  bool output(uint32_t number, ValueView* out) override;
  bool resize_input(uint32_t number, hil::Span<const int32_t> sizes) override;

  bool step(bool* done) override;
  void rewind() override {
    if (method_) restart(*method_);
  }
  uint32_t program_counter() const override {
    return method_ ? static_cast<uint32_t>(next_instruction(*method_)) : 0;
  }
  const char* instruction_operator(uint32_t instruction) const override {
    return plan_.instruction_operator(instruction);
  }

  size_t method_used() const override { return method_ ? pool_->low_used() : 0; }
  size_t temp_used() const override { return method_ ? temp_->high_peak() : 0; }
  const Failure& failure() const override { return failure_; }

 private:
  bool prepare(hil::Span<const uint8_t> program, const char* method);
  bool load_program();
  bool find_operators();
  bool place_buffers();
  bool load_method();
  bool place_inputs();
  bool set_scalars();
  bool place_unplanned(uint32_t index);
  bool check_input(uint32_t number, const EValue& value);
  int64_t* cell_of(uint32_t index);
  void view_tensor(const Tensor& tensor, ValueView* out);
  void view_scalar(hil_kind kind, uint32_t index, int64_t bits, ValueView* out);
  bool refused() const { return pool_->refused() != 0 || temp_->refused() != 0; }
  bool report_refused(const char* shared);
  bool explain(hil_status code, const char* what, Error error);

  Arenas arenas_;
  std::optional<Pool> pool_;
  std::optional<Pool> own_temp_;
  Pool* temp_ = nullptr;  // own_temp_, or pool_ where the board has none
  std::optional<MethodAllocator> method_allocator_;
  std::optional<TempAllocator> temp_allocator_;
  std::optional<HierarchicalAllocator> planned_memory_;
  std::optional<MemoryManager> memory_;
  InPlaceLoader loader_;
  std::optional<Program> program_;
  std::optional<Method> method_;
  Plan plan_;
  int64_t* cells_ = nullptr;  // one for each input that is a scalar: what the host wrote
  int64_t scalar_ = 0;        // what the last view of another scalar shows
  Failure failure_;
};

int64_t bits_of(const EValue& value) {
  int64_t bits = 0;
  if (value.isInt()) bits = value.toInt();
  if (value.isBool()) bits = value.toBool() ? 1 : 0;
  if (value.isDouble()) {
    const double number = value.toDouble();
    std::memcpy(&bits, &number, sizeof bits);
  }
  return bits;
}

EValue value_of(const EValue& like, int64_t bits) {
  if (like.isBool()) return EValue(bits != 0);
  if (!like.isDouble()) return EValue(bits);
  double number;
  std::memcpy(&number, &bits, sizeof number);
  return EValue(number);
}

bool is_number(const EValue& value) { return value.isInt() || value.isBool() || value.isDouble(); }

// Loading

void ExecutorchRuntime::init(hil::Span<const Bank> banks, hil::Span<uint8_t> method,
                             hil::Span<uint8_t> temp) {
  arenas_.init(banks);
  pool_.emplace(method);
  own_temp_.emplace(temp);
  temp_ = temp.size > 0 ? &*own_temp_ : &*pool_;
  method_allocator_.emplace(&*pool_);
  temp_allocator_.emplace(temp_);
  executorch::runtime::runtime_init();
}

bool ExecutorchRuntime::load(hil::Span<const uint8_t> program, const char* method) {
  unload();
  clear(&failure_);
  forget_error();
  if (prepare(program, method)) return true;
  unload();
  return false;
}

bool ExecutorchRuntime::prepare(hil::Span<const uint8_t> program, const char* method) {
  if (!plan_.open(program, method, &failure_)) return false;
  loader_.place(program);
  return load_program() && find_operators() && place_buffers() && load_method() && place_inputs();
}

void ExecutorchRuntime::unload() {
  method_.reset();  // before what it points to
  program_.reset();
  memory_.reset();
  planned_memory_.reset();
  plan_.close();
  arenas_.clear();
  cells_ = nullptr;
  if (pool_) pool_->reset();
  if (own_temp_) own_temp_->reset();
}

// Its own check of the bytes, as strict as the prefix was built to make it.
bool ExecutorchRuntime::load_program() {
  auto program = Program::load(&loader_, Program::Verification::InternalConsistency);
  if (!program.ok()) return explain(HIL_STATUS_PROGRAM_REJECTED, "Program::load", program.error());
  program_.emplace(std::move(program.get()));
  return true;
}

// All that are missing at once; Method would name them in its log only.
bool ExecutorchRuntime::find_operators() {
  Text text(failure_.message);
  for (uint32_t i = 0; i < plan_.operators(); ++i) {
    const char* name = plan_.operator_name(i);
    if (executorch::runtime::registry_has_op_function(name)) continue;
    if (failure_.code != HIL_STATUS_OK) text.add("\n");
    failure_.code = HIL_STATUS_UNSUPPORTED_OPERATOR;
    text.add(name);
  }
  return failure_.code == HIL_STATUS_OK;
}

bool ExecutorchRuntime::place_buffers() {
  using Buffer = executorch::runtime::Span<uint8_t>;
  const auto meta = program_->method_meta(plan_.method());
  if (!meta.ok()) return explain(HIL_STATUS_PROGRAM_REJECTED, "Program::method_meta", meta.error());
  const size_t count = meta->num_memory_planned_buffers();
  Buffer* buffers = method_allocator_->allocateList<Buffer>(count);
  if (count > 0 && buffers == nullptr) {
    return out_of_memory(&failure_, "method", pool_->refused(), pool_->size());
  }
  for (size_t i = 0; i < count; ++i) {
    const auto size = meta->memory_planned_buffer_size(i);
    if (!size.ok() || size.get() < 0 || size.get() > INT32_MAX) {
      return report(&failure_, HIL_STATUS_PROGRAM_REJECTED, "planned buffer ", i + 1,
                    " has an impossible size");
    }
    const auto number = static_cast<uint32_t>(i + 1);
    const uint32_t start = arenas_.add(number, static_cast<uint64_t>(size.get()));
    // A buffer without room has no address; ExecuTorch aborts at one that has bytes all the same.
    uint8_t* const address = arenas_.at(number, start);
    buffers[i] = Buffer(address, address == nullptr ? 0 : static_cast<size_t>(size.get()));
  }
  if (!arenas_.complete(&failure_)) return false;
  planned_memory_.emplace(executorch::runtime::Span<Buffer>(buffers, count));
  memory_.emplace(&*method_allocator_, &*planned_memory_, &*temp_allocator_);
  return true;
}

bool ExecutorchRuntime::load_method() {
  auto method = program_->load_method(plan_.method(), &*memory_);
  if (method.ok()) {
    method_.emplace(std::move(method.get()));
    return true;
  }
  if (refused()) return report_refused("method");
  return explain(HIL_STATUS_PROGRAM_REJECTED, "Program::load_method", method.error());
}

// What a pool refused; `shared` is the name of one that both allocators have.
bool ExecutorchRuntime::report_refused(const char* shared) {
  const bool is_temp = temp_->refused() != 0;
  const char* name = temp_ == &*pool_ ? shared : is_temp ? "temp" : "method";
  const Pool& pool = is_temp ? *temp_ : *pool_;
  return out_of_memory(&failure_, name, pool.refused(), pool.size());
}

// Every input must be something that the host can write.
bool ExecutorchRuntime::place_inputs() {
  const size_t count = value_count(*method_);
  if (plan_.inputs() > UINT16_MAX || plan_.outputs() > UINT16_MAX) {
    return report(&failure_, HIL_STATUS_PROGRAM_REJECTED,
                  "more inputs or outputs than can be counted");
  }
  for (uint32_t i = 0; i < plan_.outputs(); ++i) {
    if (static_cast<uint32_t>(plan_.output(i)) >= count) {
      return report(&failure_, HIL_STATUS_PROGRAM_REJECTED, "output ", i, " is no value");
    }
  }
  cells_ = method_allocator_->allocateList<int64_t>(plan_.inputs());
  if (plan_.inputs() > 0 && cells_ == nullptr) {
    return out_of_memory(&failure_, "method", pool_->refused(), pool_->size());
  }
  for (uint32_t i = 0; i < plan_.inputs(); ++i) {
    const auto index = static_cast<uint32_t>(plan_.input(i));
    if (index >= count) {
      return report(&failure_, HIL_STATUS_PROGRAM_REJECTED, "input ", i, " is no value");
    }
    const EValue& value = method_values(*method_)[index];
    cells_[i] = bits_of(value);
    if (!place_unplanned(index) || !check_input(i, value)) return false;
  }
  for (uint32_t i = 0; i < plan_.outputs(); ++i) {
    if (!place_unplanned(static_cast<uint32_t>(plan_.output(i)))) return false;
  }
  return true;
}

// Inputs and outputs that the program leaves to its caller (alloc_graph_input, alloc_graph_output).
bool ExecutorchRuntime::place_unplanned(uint32_t index) {
  const EValue& value = method_values(*method_)[index];
  if (!value.isTensor()) return true;
  const Tensor& tensor = value.toTensor();
  const size_t size = tensor.nbytes();
  if (tensor.const_data_ptr() != nullptr || size == 0) return true;
  uint8_t* place = arenas_.add_unplanned(size);
  if (place == nullptr) return arenas_.complete(&failure_);
  const Error error = executorch::runtime::internal::set_tensor_data(tensor, place, size);
  return error == Error::Ok || explain(HIL_STATUS_PROGRAM_REJECTED, "set_tensor_data", error);
}

bool ExecutorchRuntime::check_input(uint32_t number, const EValue& value) {
  if (!value.isTensor()) return true;
  const Tensor& tensor = value.toTensor();
  const auto* data = static_cast<const uint8_t*>(tensor.const_data_ptr());
  const bool planned = arenas_.contains(data);
  if (planned || tensor.nbytes() == 0) return true;
  return report(&failure_, HIL_STATUS_PROGRAM_REJECTED, "input ", number, " is a constant");
}

ProgramShape ExecutorchRuntime::shape() const {
  ProgramShape shape = {};
  if (!method_) return shape;
  shape.inputs = static_cast<uint16_t>(plan_.inputs());
  shape.outputs = static_cast<uint16_t>(plan_.outputs());
  shape.values = static_cast<uint32_t>(value_count(*method_));
  shape.instructions = plan_.instructions();
  return shape;
}

// Values for the host

int64_t* ExecutorchRuntime::cell_of(uint32_t index) {
  for (uint32_t i = 0; i < plan_.inputs(); ++i) {
    if (static_cast<uint32_t>(plan_.input(i)) == index) return &cells_[i];
  }
  return nullptr;
}

void ExecutorchRuntime::view_tensor(const Tensor& tensor, ValueView* out) {
  out->kind = HIL_KIND_TENSOR;
  out->dtype = static_cast<uint8_t>(tensor.scalar_type());
  out->rank = static_cast<uint8_t>(tensor.dim());
  for (size_t i = 0; i < out->rank && i < kMaxRank; ++i) {
    out->sizes[i] = tensor.sizes()[i];
    out->dim_order[i] = tensor.dim_order()[i];
  }
  auto* data = static_cast<uint8_t*>(const_cast<void*>(tensor.const_data_ptr()));
  const bool planned = arenas_.contains(data);
  out->writable = planned;  // what is not lies in the program: constants
  out->data = {data == nullptr ? nothing : data, data == nullptr ? 0 : tensor.nbytes()};
}

void ExecutorchRuntime::view_scalar(hil_kind kind, uint32_t index, int64_t bits, ValueView* out) {
  int64_t* cell = cell_of(index);
  out->kind = kind;
  out->writable = cell != nullptr;
  if (cell == nullptr) {
    scalar_ = bits;
    cell = &scalar_;
  }
  out->data = {reinterpret_cast<uint8_t*>(cell), sizeof *cell};
}

bool ExecutorchRuntime::value(uint32_t index, ValueView* out) {
  *out = {};
  if (!method_) return report(&failure_, HIL_STATUS_BAD_STATE, "no program is loaded");
  if (index >= value_count(*method_)) {
    return report(&failure_, HIL_STATUS_BAD_REQUEST, "value ", index, " does not exist");
  }
  const EValue& value = method_values(*method_)[index];
  if (value.isTensor()) view_tensor(value.toTensor(), out);
  if (value.isInt()) view_scalar(HIL_KIND_INT, index, bits_of(value), out);
  if (value.isDouble()) view_scalar(HIL_KIND_DOUBLE, index, bits_of(value), out);
  if (value.isBool()) view_scalar(HIL_KIND_BOOL, index, bits_of(value), out);
  return true;
}

bool ExecutorchRuntime::input(uint32_t number, ValueView* out) {
  return value(method_ ? static_cast<uint32_t>(plan_.input(number)) : 0, out);
}

bool ExecutorchRuntime::output(uint32_t number, ValueView* out) {
  if (!value(method_ ? static_cast<uint32_t>(plan_.output(number)) : 0, out)) return false;
  out->writable = false;
  return true;
}

// The sizes of all else follow while the kernels run, where these resize what they write.
bool ExecutorchRuntime::resize_input(uint32_t number, hil::Span<const int32_t> sizes) {
  if (!method_) return report(&failure_, HIL_STATUS_BAD_STATE, "no program is loaded");
  if (number >= plan_.inputs() || !method_values(*method_)[plan_.input(number)].isTensor()) {
    return report(&failure_, HIL_STATUS_BAD_REQUEST, "input ", number, " is no tensor");
  }
  forget_error();
  const Tensor& tensor = method_values(*method_)[plan_.input(number)].toTensor();
  const Error error = executorch::runtime::resize_tensor(tensor, {sizes.data, sizes.size});
  return error == Error::Ok || explain(HIL_STATUS_BAD_REQUEST, "resize_tensor", error);
}

// Execution

// Tensors are written where the plan puts them. A number must be the one the program was traced
// with: set_input() says.
bool ExecutorchRuntime::set_scalars() {
  for (uint32_t i = 0; i < plan_.inputs(); ++i) {
    const EValue& value = method_values(*method_)[plan_.input(i)];
    if (!is_number(value)) continue;
    const Error error = method_->set_input(value_of(value, cells_[i]), i);
    if (error != Error::Ok) return explain(HIL_STATUS_KERNEL_FAILED, "Method::set_input", error);
  }
  return true;
}

bool ExecutorchRuntime::step(bool* done) {
  *done = false;
  if (!method_) return report(&failure_, HIL_STATUS_BAD_STATE, "no program is loaded");
  forget_error();
  const uint32_t instruction = program_counter();
  if (instruction == 0 && !set_scalars()) return false;
  const Error error = method_->step();
  if (error != Error::Ok) {
    explain(HIL_STATUS_KERNEL_FAILED, "Method::step", error);
    if (refused()) report_refused("temp");
    failure_.instruction = static_cast<int32_t>(instruction);
    Text(failure_.op).add(plan_.instruction_operator(instruction));
    return false;
  }
  *done = next_chain(*method_) != 0;
  if (*done) restart(*method_);
  return true;
}

// `Method::step: InvalidArgument (0x12): <what ExecuTorch logged first>`
bool ExecutorchRuntime::explain(hil_status code, const char* what, Error error) {
  const char* logged = first_error();
  return report(&failure_, code, what, ": ", executorch::runtime::to_string(error),
                logged[0] == 0 ? "" : ": ", logged);
}

// Never destroyed: firmware without the compiler's start-up files has nothing to register a
// destructor with.
alignas(ExecutorchRuntime) uint8_t the_runtime[sizeof(ExecutorchRuntime)];

}  // namespace
}  // namespace hil::executorch_runtime

hil::Runtime& hil::runtime() {
  using namespace hil::executorch_runtime;
  static ExecutorchRuntime& made = *new (the_runtime) ExecutorchRuntime;
  return made;
}
