// The bytes in and out that the firmware grants, and the events that are sent without a request.
#ifndef HIL_LINK_H
#define HIL_LINK_H

#include "target_library/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HIL_FOREVER UINT32_MAX

// The target in use; NULL before hil_use_target().
const hil_target* hil_used_target(void);

// What hil_target_start() begins with: from here on hil_target_fatal() and hil_target_fault() work.
void hil_use_target(const hil_target* target);

// What is printed for people instead of events, by a firmware that does not serve now.
typedef struct hil_fault_record hil_fault_record;
typedef struct hil_texts {
  void (*log)(hil_log_level level, const char* text);
  void (*fault)(const hil_fault_record* fault);
} hil_texts;
void hil_use_texts(const hil_texts* texts);

// Like `read`, whichever way bytes come.
int hil_receive(uint8_t* bytes, size_t room, uint32_t milliseconds);
// Writes a frame in one piece.
void hil_send(const uint8_t* frame, size_t size);
// Whether a write failed.
bool hil_host_is_gone(void);

// Registers at the fault. All but `exception`, `sp` and the status words are 0 if the processor
// could not save them, as after a stack overflow.
struct hil_fault_record {
  uint32_t exception;  // IPSR
  bool has_status;
  uint32_t cfsr;
  uint32_t hfsr;
  uint32_t mmfar;
  uint32_t bfar;
  uint32_t frame[8];  // r0 r1 r2 r3 r12 lr pc xpsr
  uint32_t sp;        // before the exception
};

void hil_send_ready(void);
void hil_send_progress(uint32_t instruction);
void hil_send_waiting(uint32_t frame);
HIL_NORETURN void hil_end_with_fault(const hil_fault_record* fault);

#ifdef __cplusplus
}
#endif

#endif
