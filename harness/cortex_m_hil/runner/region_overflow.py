"""Explains which memory regions of a board are too small for its runner, and which sizes the user can change."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from cortex_m_hil.errors import BuildError
from cortex_m_hil.targets.memory import ALIGNMENT, STACK_GUARD, Memory, size_text
from cortex_m_hil.targets.target import Target

_SAID: Final = (
    re.compile(r"region ['`](?P<region>[^']+)' overflowed by (?P<bytes>\d+) bytes?"),  # GNU ld
    re.compile(r"will not fit in region '(?P<region>[^']+)': overflowed by (?P<bytes>\d+) bytes?"),  # lld, by section
)


def overflowed(log: str) -> dict[str, int]:
    """Return the bytes by which each region is too small, from the linker's messages in a log."""
    found: dict[str, int] = {}
    for match in (match for one in _SAID for match in one.finditer(log)):
        found[match["region"]] = max(found.get(match["region"], 0), int(match["bytes"]))
    return found


def does_not_fit(target: Target, runtime: str, regions: Mapping[str, int], log: str) -> BuildError:
    """Return the error that says what lies in each region that overflows, and which sizes to change."""
    memory = target.board.memory
    details, hints = [], []
    for region, nbytes in regions.items():
        sized = list(memory.contents(region))
        shown = [f"{name} {size_text(size)}" for name, size in sized]
        others = [
            what for name, what in ((memory.code, "code and constants"), (memory.data, "variables")) if name == region
        ]
        details.append((f"in {region}", ", ".join([*shown, *others]) or "what the board's board.ld puts there"))
        if sized:
            hints.append(_smaller(memory, sized, nbytes))
        elif memory.code == region:
            hints += _less_code(target, runtime)
        if place := memory.places.get(f"regions.{region}"):
            hints.append(f"a larger {region}, if the part has more ({place})")
    told = " and ".join(f"region {region} overflows by {nbytes} bytes" for region, nbytes in regions.items())
    return BuildError(
        f"the runner does not fit the memory of {target.config}: {told}",
        target=target.name,
        details=details,
        hint="; or ".join(hints),
        log=log,
    )


def _smaller(memory: Memory, sized: Sequence[tuple[str, int]], nbytes: int) -> str:
    """Return a hint with the largest possible size of each thing in a region, with the others unchanged."""
    if not memory.places:
        return "a target of the same CPU with more memory: these are no sizes of the board's, they are being tried"
    fits = [
        (name, (size - nbytes) // ALIGNMENT * ALIGNMENT - (STACK_GUARD if name == "stack" else 0))
        for name, size in sized
    ]
    alone = [f"{name} at most {size_text(fit)} ({memory.places[name]})" for name, fit in fits if fit > 0]
    what = " or ".join(alone) or f"{' and '.join(name for name, _ in sized)} smaller by {nbytes} bytes together"
    beside = ", the others as they are" if alone and len(sized) > 1 else ""
    return f"{what}{beside} (hil inspect fit tells what a program needs)"


def _less_code(target: Target, runtime: str) -> Iterator[str]:
    """Yield hints on how to make the runner's code smaller."""
    if runtime != "builtin":
        ours = f"--runtime builtin (or runtime: builtin in {target.origin}), which is smaller"
        yield f"{ours}, or a prefix of ExecuTorch built for size"
    elif target.board.portable:
        file = target.board.directory / "board.yaml"
        yield f"portable: false in {file}, for a runner without the portable operators"
