"""The state that a program keeps from one call to the next: set it, read it, digest it, and fill memory around it.

A LOAD sets each state that has an initial value in the file. All else is done by FILL, WRITE, READ and DIGEST
(docs/protocol.md): a runner does not know which memory is state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cortex_m_hil.errors import ConfigError
from cortex_m_hil.errors.text import shown
from cortex_m_hil.program.lifetimes import Extent
from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.runner.links.protocol import MemoryRegion
from cortex_m_hil.runner.session.session import Session

State = tuple[HostTensor, ...]
"""The content of each state, in the order of `PteFile.states`."""


def write_state(session: Session, file: PteFile, state: State) -> None:
    for value, tensor in zip(file.states, state, strict=True):
        session.write(MemoryRegion.VALUE, value, tensor.data)


def read_state(session: Session, file: PteFile) -> State:
    specs = ((value, file.values[value].spec) for value in file.states)
    return tuple(
        HostTensor(spec, session.read(MemoryRegion.VALUE, value, spec.nbytes)) for value, spec in specs if spec
    )


def digest_state(session: Session, file: PteFile) -> tuple[int, ...]:
    """Return the CRC-32 of each state, computed on the target."""
    return tuple(session.digest(MemoryRegion.VALUE, value) for value in file.states)


def fill_around(session: Session, file: PteFile | None, poison: int) -> None:
    """Fill the program's memory in the banks, except for the state, with the poison."""
    if file is None or not file.states:
        session.fill_arenas(poison)
        return
    for value in file.unplanned:
        session.fill(MemoryRegion.VALUE, value, poison)
    for extent in _extents_outside_states(file):
        session.fill_planned(poison, extent.begin, extent.end)


def _extents_outside_states(file: PteFile) -> Iterator[Extent]:
    reached = 0
    planned = [one for value in file.states if (one := file.values[value].planned) is not None]
    for begin, nbytes in sorted((file.planned_bases[one.memory_id] + one.offset, one.nbytes) for one in planned):
        if begin > reached:
            yield Extent(reached, begin)
        reached = max(reached, begin + nbytes)
    if reached < file.planned_bytes:
        yield Extent(reached, file.planned_bytes)


def require_state(file: PteFile, state: Sequence[HostTensor], name: str) -> State:
    """Return a saved state as a tuple; raise ConfigError where it does not fit this program."""
    wanted = [file.values[value].spec for value in file.states]
    strange = next((one for one in state if not isinstance(one, HostTensor)), None)
    if strange is not None:
        raise ConfigError(
            f"{name}: state takes what a stream left, not {shown(strange)}",
            hint="state=streamed.state; Frame.state are digests. A state of your own: buffers of the module, lowered",
        )
    if [one.spec for one in state] != wanted:
        given, own = (", ".join(map(str, specs)) or "nothing" for specs in ([one.spec for one in state], wanted))
        raise ConfigError(
            f"{name}: the state is {given}, and the program's is {own}",
            hint="state=streamed.state, of a stream of the same program",
        )
    return tuple(state)
