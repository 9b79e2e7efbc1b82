#include "runtime/executorch/plan.h"

#include "runtime/builtin/program_file.h"
#include "runtime/failure.h"

namespace hil::executorch_runtime {
namespace {

namespace schema = builtin::schema;
using builtin::count_of;
using builtin::text_of;

const schema::ExecutionPlan* as_plan(const void* plan) {
  return static_cast<const schema::ExecutionPlan*>(plan);
}

const auto* instructions_of(const void* plan) {
  return as_plan(plan)->chains()->Get(0)->instructions();
}

bool refuse_delegates(const schema::ExecutionPlan& plan, Failure* failure) {
  const uint32_t count = count_of(plan.delegates());
  if (count == 0) return true;
  const char* id = text_of(plan.delegates()->Get(0)->id());
  report(failure, HIL_STATUS_UNSUPPORTED_DELEGATE, "the program has ", count,
         " delegated parts, the first for \"", id,
         "\"; this runner has no delegates: lower the program without a partitioner");
  Text(failure->op).add(id);
  return false;
}

int32_t end_of(const flatbuffers::Vector<int32_t>* ends, uint32_t number) {
  return number < count_of(ends) ? builtin::item_of(ends, number) : -1;
}

}  // namespace

bool Plan::open(Span<const uint8_t> program, const char* method, Failure* failure) {
  close();
  builtin::ProgramFile file;
  if (!builtin::open_program(program, &file, failure)) return false;
  const schema::ExecutionPlan* plan = builtin::find_method(file, method, failure);
  if (plan == nullptr) return false;
  if (plan->name() == nullptr) return reject(failure, "the program's method has no name");
  if (count_of(plan->chains()) != 1) {
    return reject(failure, "the method has ", count_of(plan->chains()), " chains, not one");
  }
  if (!refuse_delegates(*plan, failure)) return false;
  plan_ = plan;
  return true;
}

const char* Plan::method() const { return text_of(as_plan(plan_)->name()); }

uint32_t Plan::inputs() const { return count_of(as_plan(plan_)->inputs()); }

uint32_t Plan::outputs() const { return count_of(as_plan(plan_)->outputs()); }

uint32_t Plan::instructions() const { return count_of(instructions_of(plan_)); }

uint32_t Plan::operators() const { return count_of(as_plan(plan_)->operators()); }

int32_t Plan::input(uint32_t number) const { return end_of(as_plan(plan_)->inputs(), number); }

int32_t Plan::output(uint32_t number) const { return end_of(as_plan(plan_)->outputs(), number); }

const char* Plan::operator_name(uint32_t op) const {
  static char name[sizeof(Failure::op)];
  const auto* all = as_plan(plan_)->operators();
  if (op >= count_of(all)) return "";
  const char* overload = text_of(all->Get(op)->overload());
  Text(name).add(text_of(all->Get(op)->name()), overload[0] == 0 ? "" : ".", overload);
  return name;
}

const char* Plan::instruction_operator(uint32_t instruction) const {
  if (plan_ == nullptr || instruction >= instructions()) return "";
  const schema::KernelCall* call =
      instructions_of(plan_)->Get(instruction)->instr_args_as_KernelCall();
  return call == nullptr ? "" : operator_name(static_cast<uint32_t>(call->op_index()));
}

}  // namespace hil::executorch_runtime
