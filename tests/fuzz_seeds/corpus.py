"""Seed corpora for the libFuzzer targets of firmware/fuzz: `python tests/fuzz_seeds/corpus.py FOLDER`.

FOLDER/program gets the seed programs and some mutants of each, FOLDER/frames sequences of requests.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import cortex_m_hil
from cortex_m_hil.maintainers.fuzzing.program_mutator import mutants
from cortex_m_hil.program.methods import DEFAULT_METHOD
from cortex_m_hil.runner.links.protocol import Action, MemoryRegion, Request, name
from cortex_m_hil.runner.session.requests import CHUNK

MUTANTS = 50  # of each seed program
PASS = 0x20  # kPass of firmware/fuzz/frames.cpp
SEEDS = [
    *sorted(Path(__file__).parent.glob("*.pte")),
    *sorted((Path(cortex_m_hil.__file__).parent / "program" / "known_answer").glob("*.pte")),
    *sorted((Path(__file__).parents[1] / "fuzz_regressions").glob("*.pte")),
]


def record(request: Request, payload: bytes = b"", seq: int = 1) -> bytes:
    return struct.pack("<BBH", request, seq, len(payload)) + payload


def written(region: MemoryRegion, data: bytes) -> list[bytes]:
    """Return the requests that write data over a pipe."""
    return [
        record(Request.WRITE, struct.pack("<BII", region, 0, at) + data[at : at + 4000])
        for at in range(0, len(data), 4000)
    ]


def streamed(region: MemoryRegion, data: bytes) -> list[bytes]:
    """Return the requests that write data over a UART which loses every third chunk; these come again at the end."""
    chunk = max(CHUNK, -(-len(data) // 200))  # seqs of a record have eight bits
    chunks = [
        record(Request.DATA, data[at : at + chunk], 2 + number) for number, at in enumerate(range(0, len(data), chunk))
    ]
    late = chunks[::3]
    header = struct.pack("<BIIII", region, 0, 0, len(data), chunk)
    return [record(Request.STREAM, header), *(one for one in chunks if one not in late), *late]


def session(pte: bytes, send: Callable[[MemoryRegion, bytes], list[bytes]]) -> bytes:
    """Return the records of a whole session, as frames.cpp reads them."""
    parts = [record(Request.HELLO), record(Request.OPERATORS, struct.pack("<II", 1, 100)), record(Request.RESET)]
    parts += send(MemoryRegion.PROGRAM, pte)
    parts.append(record(Request.LOAD, struct.pack("<II", len(pte), 0) + name(DEFAULT_METHOD)))
    parts.append(record(Request.FILL, struct.pack("<BIIIB", MemoryRegion.PLANNED, 0, 0, 0xFFFFFFFF, 0xA5)))
    parts.append(record(Request.RESIZE, struct.pack("<IB2i", 0, 2, 1, 16)))
    parts += send(MemoryRegion.INPUT, bytes(16))
    parts += [record(Request.STEP, struct.pack("<I", 1))] * 4
    parts.append(record(Request.READ, struct.pack("<BIII", MemoryRegion.BANK, 0, 0, 16)))
    for region in (MemoryRegion.VALUE, MemoryRegion.INPUT, MemoryRegion.OUTPUT):
        parts.append(record(Request.DESCRIBE, struct.pack("<BI", region, 0)))
        parts.append(record(Request.READ, struct.pack("<BIII", region, 0, 0, 16)))
        parts.append(record(Request.DIGEST, struct.pack("<BIII", region, 0, 0, 0xFFFFFFFF)))
    return b"".join([*parts, record(Request.STATS)])


def channels() -> bytes:
    """Return the records of a session that drives the channels of frames.cpp, which it passes at PASS."""
    parts = [record(Request.HELLO), record(Request.CHANNELS, struct.pack("<II", 0, 1000))]
    parts += [record(Request.CHANNEL, struct.pack("<IBI", number, Action.ATTACH, 0)) for number in range(4)]
    for frame in (1, 2):
        parts.append(record(Request.WRITE, struct.pack("<BII", MemoryRegion.CHANNEL, 0, 0) + bytes(24)))
        parts.append(record(Request.CHANNEL, struct.pack("<IBI", 0, Action.GIVE, frame)))
        parts.append(record(Request.CHANNEL, struct.pack("<IBIB", 2, Action.GIVE, frame, 7)))
        parts.append(struct.pack("<BBH", PASS, 0, 0))
        for number in (1, 3):
            parts.append(record(Request.CHANNEL, struct.pack("<IBI", number, Action.FETCH, 24)))
            parts.append(record(Request.READ, struct.pack("<BIII", MemoryRegion.CHANNEL, number, 0, 1)))
    parts += [record(Request.CHANNEL, struct.pack("<IBI", number, Action.DETACH, 0)) for number in range(4)]
    return b"".join(parts)


def main(folder: Path) -> None:
    for kind in ("program", "frames"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    (folder / "frames" / "channels").write_bytes(channels())
    for path in SEEDS:
        pte = path.read_bytes()
        (folder / "program" / path.name).write_bytes(pte)
        (folder / "frames" / path.stem).write_bytes(session(pte, written))
        (folder / "frames" / f"{path.stem}-streamed").write_bytes(session(pte, streamed))
    for path in SEEDS:
        if path.parent.name == "fuzz_regressions":
            continue  # mutants are made of sound programs
        for mutant in islice(mutants(path.read_bytes(), seed=0), MUTANTS):
            (folder / "program" / f"{path.stem}-{mutant.number}").write_bytes(mutant.data)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
