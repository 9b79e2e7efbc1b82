"""Bytes on the way to a runner: frames, their window of retransmission, the messages in them, and UARTs."""
