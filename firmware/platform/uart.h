// The functions that a board with `console: uart` defines in its board.cpp besides those of
// board.h.
#pragma once

#include <cstdint>

namespace hil {

// 8N1 at HIL_UART_BAUD, with Uart_Handler() as the handler of the receiver's interrupt, on.
void uart_open();

// The next byte received, if there is one. Overruns are cleared: what is lost the host sends again.
bool uart_take(uint8_t* byte);

// Waits until the transmitter takes the byte.
void uart_put(uint8_t byte);

}  // namespace hil

// The interrupt handler of console_uart.cpp, for the board's part of the vector table.
extern "C" void Uart_Handler();

namespace hil {

// The vectors of external interrupts, as far as the receiver's, which is number kInterrupt.
template <uint32_t kInterrupt>
struct UartVectors {
  void (*handlers[kInterrupt + 1])() = {};
};

template <uint32_t kInterrupt>
constexpr UartVectors<kInterrupt> uart_vectors() {
  UartVectors<kInterrupt> vectors;
  vectors.handlers[kInterrupt] = Uart_Handler;
  return vectors;
}

}  // namespace hil
