"""Check whether linear layers in MVE's layout explain flaky tests of MobileNets, with weights and inputs of many seeds.

    python ci/layout_seeds.py mobilenet_v3_small --seeds 20 --side 96

Each network is lowered with the target's layout and with MVE's, and runs on a target of each ISA class. Its outputs are
judged as in ExecuTorch's own test (`backends/cortex_m/test/models/test_mobilenet_v3.py`): at most 20 quanta from
fake-quant, and the same class as fake-quant; and by this harness.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch

import cortex_m_hil as hil
from cortex_m_hil import flow
from cortex_m_hil.checks.comparison.tolerance import NO_SQNR

TARGETS: Final = ("m55-qemu", "m4-qemu", "m0-qemu")
QTOL: Final = 20
SAMPLES: Final = 8  # inputs for calibration
DEADLINE: Final = 20.0  # factor on the time limit of a run


@dataclass(frozen=True)
class Outcome:
    """The outcome of one network on one target.

    Attributes:
        quanta: the largest distance from fake-quant.
        same_class: whether the predicted class equals fake-quant's.
        mismatch: whether this harness's default tolerances are violated, except eager's, which depends on the random
            weights.
    """

    quanta: float
    same_class: bool
    mismatch: bool

    @property
    def passes_upstream(self) -> bool:
        return self.same_class and self.quanta <= QTOL


def network(name: str, seed: int, side: int) -> tuple[hil.Exported, list[tuple[torch.Tensor, ...]]]:
    """Return an exported network, and samples for its calibration."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
    import published_networks

    torch.manual_seed(seed)
    shape = (1, 3, side, side)
    module, inputs = getattr(published_networks, name)(shape)
    return hil.export(module, inputs), [*((torch.randn(shape),) for _ in range(SAMPLES)), inputs]


def outcome(target: hil.OpenTarget, program: hil.Program) -> Outcome:
    """Run the program, whatever its layout, and compare its first output with fake-quant."""
    seen: list[hil.Checked] = []
    with contextlib.suppress(hil.errors.Mismatch):
        tolerance = hil.Tolerance(eager_sqnr=NO_SQNR)
        flow.verify(target.dut, program, tolerance=tolerance, linted=False, observe=seen.append)
    (checked,) = seen
    assert checked.references.quantized is not None
    got, wanted = checked.result.outputs[0].array().ravel(), checked.references.quantized[0].ravel()
    step = np.diff(np.unique(wanted)).min()  # fake-quant's outputs are whole quanta
    same_class = bool(got.argmax() == wanted.argmax())
    return Outcome(float(np.abs(got - wanted).max() / step), same_class, not checked.comparison.ok)


def measure(name: str, seeds: Sequence[int], side: int) -> dict[tuple[str, str], list[Outcome]]:
    """Run a network for many seeds, and return by target and layout an outcome for each seed."""
    found: dict[tuple[str, str], list[Outcome]] = {}
    opened = {target: hil.open(target, runtime="builtin", timeout_multiplier=DEADLINE) for target in TARGETS}
    try:
        for seed in seeds:
            exported, samples = network(name, seed, side)
            for target, dut in opened.items():
                for layout, isa in (("its own", None), ("MVE's", hil.Isa.MVE)):
                    program = dut.lower(exported, isa=isa, calibration=samples)
                    found.setdefault((target, layout), []).append(outcome(dut, program))
    finally:
        for dut in opened.values():
            dut.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", help="a function of tests/support/published_networks.py")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--side", type=int, default=96, help="of the image, in pixels")
    given = parser.parse_args()
    warnings.simplefilter("ignore", hil.HilWarning)
    head = ("target", "layout", "quanta from fake-quant", "its class", "passes upstream's test", "a Mismatch here")
    print(f"| {' | '.join(head)} |")
    print(f"|{'---|' * len(head)}")
    for (target, layout), every in measure(given.network, range(given.seeds), given.side).items():
        quanta = sorted(one.quanta for one in every)
        counts = (
            sum(one.same_class for one in every),
            sum(one.passes_upstream for one in every),
            sum(one.mismatch for one in every),
        )
        shares = " | ".join(f"{count} of {len(every)}" for count in counts)
        print(f"| {target} | {layout} | {quanta[0]:.0f} to {quanta[-1]:.0f} | {shares} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
