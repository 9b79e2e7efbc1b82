"""Default time limits in seconds: of a program on a target, of boards, builds and campaigns.

What applies to one kind of launcher, or to the answer of one tool, stands in its file.
"""

from __future__ import annotations

from typing import Final

# Of an engine's CPU time, or of wall time on a board
EXECUTION: Final = 30.0  # for one program; `target_timeout` of a test, `--timeout-multiplier` of a run
SHORTEST_EXECUTION: Final = 0.01  # with less, every program would seem to hang
# A wait in the kernel takes at most 2^31 ms, 24 days, and waits by the wall clock are six times those in CPU time.
LONGEST_EXECUTION: Final = 86400.0
MULTIPLIERS: Final = 0.01, 1000.0  # the least, with which no simulator boots in time, and the largest: 8 hours
# Firmware that sleeps in WFI uses no CPU time, so wall time must bound a wait as well.
WALL_PER_CPU_SECOND: Final = 6.0
HANDSHAKE: Final = 30.0  # for boot and HELLO
REQUEST: Final = 30.0  # for a request that executes no program
LAUNCH: Final = 60.0  # for an ELF of the user's, `hil launch --timeout`
CHANNEL: Final = 1.0  # for a frame of a channel, `timeout` of a call
# Of wall time
PROCESS_END: Final = 5.0  # for a simulator to end after its pipe was closed
LEASE_WAIT: Final = 600.0  # for a board that others use; `wait:` of its target
BOARD_HOLD_WAIT: Final = 60.0  # the same for `hil board hold`, whose caller sits in front of it
BOARD_PROCEDURE: Final = 120.0  # for a flash or power tool; `seconds:` of a procedure
LONGEST_WAIT: Final = 7 * 86400.0  # what targets.yaml can ask for: the system's own waits are limited, too
RUNNER_BUILD: Final = 600.0  # for one configure or one build
OWN_FIRMWARE_BUILD: Final = 1800.0  # for `build:` of the user's firmware
EXECUTORCH_FETCH: Final = 3600.0  # for one command of git
EXECUTORCH_BUILD: Final = 3600.0  # for one command of a build of ExecuTorch
SHRINKING: Final = 600.0  # `hil shrink --budget`
BISECTION_BUILD: Final = 7200.0  # for one commit; `hil bisect --build-timeout`
BISECTION_TEST: Final = 1800.0  # for one run of the test; `hil bisect --timeout`
NIGHTLY_SILENCE: Final = 3600.0  # without the end of a test: tests in Python have no time limit of their own
WORKER_ANSWER: Final = 7200.0  # two builds at their limits, and programs that hang one after the other
