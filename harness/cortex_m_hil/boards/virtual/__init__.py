"""Virtual boards: simulators behind a serial port."""

from typing import Final

BAUD: Final = 921_600  # baud rate of their UARTs
