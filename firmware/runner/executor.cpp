#include "runner/executor.h"

#include "platform/stack.h"
#include "platform/ticks.h"
#include "runner/pools.h"

namespace {

size_t loaded_size = 0;

// Read by the fault handler.
volatile int32_t running_instruction = -1;
const char* volatile running_operator = "";

void enter(uint32_t instruction, const char* op) {
  running_operator = op;
  running_instruction = static_cast<int32_t>(instruction);
}

void leave() {
  running_instruction = -1;
  running_operator = "";
}

bool step(hil::Execution* execution) {
  hil::Runtime& runtime = hil::runtime();
  const hil::TickSpan span;
  const bool good = runtime.step(&execution->done);
  execution->ticks += span.ticks();
  return good;
}

}  // namespace

namespace hil {

void init_runtime() { runtime().init(banks(), method_pool(), temp_pool()); }

bool load_program(Span<const uint8_t> program, const char* method) {
  unload_program();
  refill_stack();  // its peak is the program's own, whatever ran before
  const bool in_pool = program.data == program_pool().data;
  runtime().init(banks(in_pool ? program.size : 0), method_pool(), temp_pool());
  if (!runtime().load(program, method)) return false;
  loaded_size = program.size;
  return true;
}

void unload_program() {
  loaded_size = 0;
  runtime().unload();
}

size_t program_used() { return loaded_size; }

bool execute(uint32_t count, BeforeInstruction before, Execution* execution) {
  execution->done = runtime().shape().instructions == 0;
  for (uint32_t i = 0; i < count && !execution->done; ++i) {
    const uint32_t instruction = runtime().program_counter();
    before(instruction);
    enter(instruction, runtime().instruction_operator(instruction));
    const bool good = step(execution);
    leave();
    if (!good) {
      runtime().rewind();
      return false;
    }
  }
  return true;
}

int32_t current_instruction() { return running_instruction; }

const char* current_operator() { return running_operator; }

}  // namespace hil
