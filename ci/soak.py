"""Run programs on a board over a bad line, many times, and count wrong verdicts and lost results.

    python ci/soak.py --runs 1000 --corrupt 0.001 --vanish-every 100
    python ci/soak.py --runs 1000 --target nucleo-f446re

Each run is the self-test, whose outputs are known bit for bit. Without a target the board is a virtual one, and at
intervals its port vanishes while the self-test runs. After an infra error the run is repeated, as a person would do; a
result is lost only if no attempt gives one.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cortex_m_hil import flow
from cortex_m_hil.boards.virtual import vboard
from cortex_m_hil.errors import InfraError, VerdictError
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import Resolved

BASES = {"f405": "vboard-f405", "pico": "vboard-pico", "native": "native"}
USERS = Path("targets.yaml")
GONE = 0.5  # seconds for which the port vanishes
ATTEMPTS = 5
SLOW = 120.0  # seconds; a run that takes longer counts as a hang


@dataclass
class Tally:
    good: int = 0
    wrong: int = 0  # wrong verdicts: the program is right
    lost: int = 0  # runs without a result
    hangs: int = 0
    longest: float = 0.0  # seconds of the longest run
    infra: collections.Counter[str] = field(default_factory=collections.Counter)

    def __str__(self) -> str:
        errors = ", ".join(f"{count} {name}" for name, count in self.infra.most_common()) or "none"
        return (
            f"{self.good} good, {self.wrong} wrong verdicts, {self.lost} lost results, {self.hangs} hangs; "
            f"longest run {self.longest:.1f} s; infra errors, each run again: {errors}"
        )


def soak(machine: str, runs: int, corrupt: float, vanish_every: int, seed: int = 0) -> Tally:
    """Run the self-test on a virtual board over a bad wire.

    Args:
        machine: a key of `BASES`.
        runs: how many runs.
        corrupt: the share of bytes that are damaged, 0 to 1.
        vanish_every: the number of runs from one loss of the port to the next; 0: the port is never lost.
        seed: the seed of the choice of damaged bytes.
    """
    name = f"soak-{os.getpid()}"
    target = dataclasses.replace(
        load_targets()[BASES[machine]], name=f"vboard-{machine}", launcher=vboard.launcher(machine, name)
    )

    def inject(vanish: float) -> None:
        vboard.send_command(name, "fault", faults={"corrupt": corrupt, "vanish": vanish})

    with vboard.running(machine, name, seed=seed), flow.open_dut(Resolved(target, target, "builtin")) as dut:
        return _soak(dut, runs, vanish_every, inject)


def soak_board(name: str, runs: int) -> Tally:
    """Run the self-test on a real board, to whose cable anything may happen."""
    target = load_targets(USERS if USERS.exists() else None)[name]
    with flow.open_dut(Resolved(target, target, "builtin")) as dut:
        return _soak(dut, runs, 0, lambda vanish: None)


def _soak(dut: flow.Dut, runs: int, vanish_every: int, inject: Callable[[float], None]) -> Tally:
    tally = Tally()
    dut.session()
    for number in range(1, runs + 1):
        vanish = vanish_every and number % vanish_every == 0
        start = time.monotonic()
        _run(dut, tally, inject, GONE if vanish else 0.0)
        took = time.monotonic() - start
        tally.longest = max(tally.longest, took)
        tally.hangs += took > SLOW
        if number % 50 == 0:
            print(f"{number}: {tally}", flush=True)
    return tally


def _run(dut: flow.Dut, tally: Tally, inject: Callable[[float], None], vanish: float) -> None:
    inject(0.0)
    puller = threading.Timer(0.02, inject, (vanish,))
    if vanish:
        puller.start()
    for _ in range(ATTEMPTS):
        try:
            flow.selftest(dut)
            tally.good += 1
            break
        except InfraError as error:
            tally.infra[type(error).__name__] += 1
            if "the self-test's output" in error.message:
                tally.wrong += 1
            dut.close()
        except VerdictError:
            tally.wrong += 1
            dut.close()
        if vanish:
            puller.join()
            time.sleep(vanish)  # as long as a person needs to plug the board in again
    else:
        tally.lost += 1
    if vanish:
        puller.join()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", help="a board, as it is")
    parser.add_argument("--machine", choices=sorted(BASES), default="f405", help="a virtual board")
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--corrupt", type=float, default=0.001, help="share of bytes")
    parser.add_argument("--vanish-every", type=int, default=100, metavar="RUNS")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start = time.monotonic()
    if options.target:
        tally = soak_board(options.target, options.runs)
        print(f"{options.runs} runs on {options.target}, ", end="")
    else:
        tally = soak(options.machine, options.runs, options.corrupt, options.vanish_every, options.seed)
        print(f"{options.runs} runs on {options.machine}, {options.corrupt:.2%} of bytes damaged, ", end="")
        print(f"the port gone every {options.vanish_every}, ", end="")
    print(f"{time.monotonic() - start:.0f} s: {tally}")
    return 1 if tally.wrong or tally.lost or tally.hangs else 0


if __name__ == "__main__":
    raise SystemExit(main())
