// The target library on Zephyr: fills what the UART chosen as `hil,uart`, the kernel's clock and
// Kconfig say. Set build_id, configuration and firmware, then start and serve in a thread of its
// own. Where that thread passes HIL_INPUT itself, set `yield` to NULL again.
#ifndef HIL_TARGET_ZEPHYR_H
#define HIL_TARGET_ZEPHYR_H

#include "hil_target.h"

#ifdef __cplusplus
extern "C" {
#endif

// Returns 0, or the error of the UART.
int hil_target_zephyr(hil_target* target);

#ifdef __cplusplus
}
#endif

#endif
