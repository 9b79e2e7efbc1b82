"""Communication with a runner: frames, the window of frames in flight, the messages in them, and UARTs."""
