"""`hil inspect fit` of MLPerf Tiny's four networks on all ISA classes: each region passes at its size, and fails below.

By ExecuTorch's runtime too, on targets for whose CPU one is installed (`hil executorch install`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from cortex_m_hil.cli.program_files import program_of
from cortex_m_hil.diagnose.memory_fit import Fitting, Region
from cortex_m_hil.lowering.named_modules import NETWORKS
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve
from installed import installed_executorch

TARGETS = load_targets()


CORES = ("m4-qemu", "m55-qemu", "m0-qemu")


@pytest.fixture(
    scope="module",
    params=[(name, "builtin") for name in (*CORES, "native")] + [(name, "executorch") for name in CORES],
    ids="-".join,
)
def fitting(request: pytest.FixtureRequest) -> Iterator[tuple[str, Fitting]]:
    name, runtime = request.param
    resolved = resolve(name, TARGETS, runtime=runtime)
    found = installed_executorch(resolved.target) if runtime == "executorch" else nullcontext()
    with found, Fitting(resolved) as opened:
        yield name, opened


@pytest.mark.parametrize("network", NETWORKS)
def test_a_step_less_fails_in_each_region(fitting: tuple[str, Fitting], network: str) -> None:
    name, opened = fitting
    program = program_of(network, TARGETS[name], "float")
    found = opened.fit(program)
    print(f"{network} {name}: {', '.join(f'{need.region} {need.size}' for need in found.needs)}, {found.runs} runs")
    regions = [one for one in Region if one is not Region.TEMP]  # none of these has a memory of its own for it
    assert [need.region for need in found.needs] == regions[: 3 if name == "native" else 4]
    assert found.size(Region.PROGRAM) - 16 < len(program.pte) <= found.size(Region.PROGRAM)
    assert found.size(Region.PLANNED) == program.file.planned_bytes
    for need in found.needs:
        assert need.failure_one_step_below.startswith(
            "TargetFault" if _faults(name, need.region) else "OutOfTargetMemory"
        )


def _faults(name: str, region: str) -> bool:
    """A Cortex-M0 has neither an MPU nor a stack limit: there the runner tells of the overflow afterwards."""
    return region == Region.STACK and name != "m0-qemu"
