"""Virtual boards: simulators behind a pseudo-terminal."""

BAUD = 921600  # of a virtual board's UART, where no other rate is given
