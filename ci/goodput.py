"""Measure the goodput of a serial line: the bytes of payload per second, divided by the bytes that the line can carry.

    python ci/goodput.py --baud 115200 --corrupt 0.001
    python ci/goodput.py --target nucleo-f446re

Without a target the runner built for the host serves behind a pseudo-terminal, which passes bytes no faster than a UART
of that baud rate, and damages the requested share of bytes, in both directions.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import harmonic_mean

from cortex_m_hil import flow
from cortex_m_hil.boards.virtual import vboard
from cortex_m_hil.runner.launchers.serial import SerialLauncher
from cortex_m_hil.runner.links.protocol import MemoryRegion
from cortex_m_hil.runner.links.uart import BITS
from cortex_m_hil.runner.session.session import Session
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import Resolved

USERS = Path("targets.yaml")


@dataclass(frozen=True)
class Goodput:
    """The goodput of one transfer to the target and one back, each as a share of the line's rate (0 to 1)."""

    write: float
    read: float

    @property
    def mean(self) -> float:
        return harmonic_mean((self.write, self.read))


def measure(baud: int, corrupt: float, nbytes: int, seed: int = 0) -> Goodput:
    """Measure one transfer each way over a virtual line of `baud`; received and sent bytes are compared.

    Args:
        baud: the rate of the line.
        corrupt: the share of bytes that are damaged, 0 to 1.
        nbytes: the payload of each transfer.
        seed: the seed of the choice of damaged bytes.
    """
    name = f"goodput-{os.getpid()}"
    target = dataclasses.replace(
        load_targets()["native"], name="vboard-native", launcher=vboard.launcher("native", name, baud)
    )
    with vboard.running("native", name, baud, seed), flow.open_dut(Resolved(target, target, "builtin")) as dut:
        session = dut.session()
        vboard.send_command(name, "fault", faults={"corrupt": corrupt})
        return _transfer(session, baud, nbytes)


def measure_board(name: str, nbytes: int) -> Goodput:
    """Measure transfers over a real line until `nbytes` were sent in each direction.

    A transfer is at most the board's memory.
    """
    target = load_targets(USERS if USERS.exists() else None)[name]
    assert isinstance(target.launcher, SerialLauncher), f"{name} is on no serial line"
    with flow.open_dut(Resolved(target, target, "builtin")) as dut:
        session = dut.session()
        size = min(nbytes, session.identity.program_pool)
        found = [_transfer(session, target.launcher.baud, size) for _ in range(-(-nbytes // size))]
    return Goodput(harmonic_mean([one.write for one in found]), harmonic_mean([one.read for one in found]))


def _transfer(session: Session, baud: int, nbytes: int) -> Goodput:
    data = bytes((7 * n * n + n // 251) & 0xFF for n in range(nbytes))
    start = time.monotonic()
    session.write(MemoryRegion.PROGRAM, 0, data)
    written = time.monotonic()
    back = session.read(MemoryRegion.PROGRAM, 0, nbytes)
    end = time.monotonic()
    assert back == data
    ideal = nbytes * BITS / baud
    return Goodput(ideal / (written - start), ideal / (end - written))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", help="a board; its line is measured as it is")
    parser.add_argument("--baud", type=int, default=115200)
    parser.add_argument("--corrupt", type=float, default=0.0, help="share of bytes")
    parser.add_argument("--nbytes", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.target:
        found = measure_board(options.target, options.nbytes)
        print(f"{options.target}, {options.nbytes} bytes: ", end="")
    else:
        found = measure(options.baud, options.corrupt, options.nbytes, options.seed)
        print(f"{options.baud} baud, {options.corrupt:.2%} of bytes damaged, {options.nbytes} bytes: ", end="")
    print(f"{found.mean:.1%} of the line's rate (write {found.write:.1%}, read {found.read:.1%})")


if __name__ == "__main__":
    main()
