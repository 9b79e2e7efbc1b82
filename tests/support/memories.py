"""Memory of boards that only tests have."""

from __future__ import annotations

from cortex_m_hil.targets.memory import Memory, Placed, Region


def host_memory(program: int, planned: int, method: int) -> Memory:
    """Return memory without addresses, with one bank."""
    room = program + planned + method + 64
    return Memory(
        (Region("host", None, room),), Placed("host", program), (Placed("host", planned),), Placed("host", method)
    )
