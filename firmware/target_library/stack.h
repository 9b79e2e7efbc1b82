// How much of the granted stack has been used since it was last filled, by its fill pattern.
#ifndef HIL_STACK_H
#define HIL_STACK_H

#include <stdbool.h>
#include <stddef.h>

// Fills the free part and, before the first program, the guard. An earlier overflow stays visible.
void hil_fill_stack(bool with_guard);
// Bytes; above the size of the stack after an overflow that nothing caught.
size_t hil_stack_used(void);

#endif
