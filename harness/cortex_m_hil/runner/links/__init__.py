"""Communication with a runner: frames, their window of retransmission, the messages in them, and UARTs."""
