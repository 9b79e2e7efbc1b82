"""Explains which memory regions of a board its runner overflows, by how much, and which sizes the user can change."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from cortex_m_hil.errors import BuildError
from cortex_m_hil.host import yaml_files
from cortex_m_hil.targets.load import STACK_SIZE, line_of_pool, parse_size, size_text
from cortex_m_hil.targets.target import POOL_ALIGNMENT, Target

_SAID: Final = (
    re.compile(r"region ['`](?P<region>[^']+)' overflowed by (?P<bytes>\d+) bytes?"),  # GNU ld
    re.compile(r"will not fit in region '(?P<region>[^']+)': overflowed by (?P<bytes>\d+) bytes?"),  # lld, by section
)
_ALIAS: Final = re.compile(r'REGION_ALIAS\s*\(\s*"(\w+)"\s*,\s*(\w+)\s*\)')
_CONTENTS: Final = {"CODE": "code and constants", "DATA": "variables", "STACK": "the stack"}


def overflowed(log: str) -> dict[str, int]:
    """Return the bytes by which each region is too small, from the linker's messages in a log."""
    found: dict[str, int] = {}
    for match in (match for one in _SAID for match in one.finditer(log)):
        found[match["region"]] = max(found.get(match["region"], 0), int(match["bytes"]))
    return found


def does_not_fit(target: Target, runtime: str, regions: Mapping[str, int], log: str) -> BuildError:
    """Return the error that says what lies in each region that overflows, and which sizes to change."""
    script = target.board.directory / "board.ld"
    lines = script.read_text(errors="replace").splitlines()
    aliases: dict[str, str] = dict(_ALIAS.findall("\n".join(lines)))
    pools = _pools(target)
    details, hints = [], []
    for region, nbytes in regions.items():
        inside = {name: size for name, (size, alias) in pools.items() if aliases.get(alias) == region}
        shown = [f"pool {name} {size_text(size)}" for name, size in inside.items()]
        others = [what for alias, what in _CONTENTS.items() if aliases.get(alias) == region]
        details.append((f"in {region}", ", ".join([*shown, *others]) or f"what {script} puts there"))
        if inside:
            hints.append(_smaller_pools(target, inside, nbytes))
        elif aliases.get("CODE") == region:
            hints += _less_code(target, runtime)
        length = rf"^\s*{re.escape(region)}\b.*\bLENGTH\b"
        hints += _place(lines, length, f"LENGTH of {region}, if the part has more", script)
        if aliases.get("STACK") == region and not inside:
            hints += _place(lines, STACK_SIZE, "a smaller HIL_STACK_SIZE", script)
    told = " and ".join(f"region {region} overflows by {nbytes} bytes" for region, nbytes in regions.items())
    return BuildError(
        f"the runner does not fit the memory of {target.config}: {told}",
        target=target.name,
        details=details,
        hint="; or ".join(hints) or f"larger regions in {script}",
        log=log,
    )


def _pools(target: Target) -> dict[str, tuple[int, str]]:
    """Return the size of each pool, by its key in `pools`, and the alias of the region that it lies in."""
    pools = target.board.pools
    if pools.shared:
        return {"shared": (pools.shared, "PROGRAM_POOL"), "method": (pools.method, "METHOD_POOL")}
    sizes = {"program": pools.program, "planned": pools.planned, "method": pools.method}
    return {name: (size, f"{name.upper()}_POOL") for name, size in sizes.items()}


def _smaller_pools(target: Target, inside: Mapping[str, int], nbytes: int) -> str:
    """Return a hint with the largest possible size of each pool, with the others unchanged."""
    tree = yaml_files.parse(target.board.directory / "board.yaml", "")
    if any(parse_size(tree["pools"].get(name, 0)) != size for name, size in inside.items()):
        return "a target of the same CPU with more memory: these are no sizes of the board's, they are being tried"
    fits = {name: (size - nbytes) // POOL_ALIGNMENT * POOL_ALIGNMENT for name, size in inside.items()}
    alone = [f"{name} at most {size_text(fit)}" for name, fit in fits.items() if fit > 0]
    place = line_of_pool(target.board, max(fits, key=lambda name: fits[name]))
    what = " or ".join(alone) or f"{' and '.join(inside)} smaller by {nbytes} bytes together"
    beside = ", the others as they are" if alone and len(inside) > 1 else ""
    return f"pools in {place}: {what}{beside} (hil inspect fit tells what a program needs)"


def _less_code(target: Target, runtime: str) -> Iterator[str]:
    """Yield hints on how to make the runner's code smaller."""
    if runtime != "builtin":
        yield f"--runtime builtin, which is smaller, or a prefix of ExecuTorch built for size ({target.origin})"
    elif target.board.portable:
        file = target.board.directory / "board.yaml"
        yield f"portable: false in {file}, for a runner without the portable operators"


def _place(lines: list[str], pattern: str | re.Pattern[str], what: str, script: Path) -> Iterator[str]:
    """Yield `what` with its line in the linker script, if the pattern is there."""
    for number, line in enumerate(lines, 1):
        if re.search(pattern, line):
            yield f"{what} ({script}:{number})"
            return
