"""Twenty failures and more as bundles: each is replayed to the bit in a clean folder, where there is no torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from command_line import NO, command, environment
from cortex_m_hil import flow
from cortex_m_hil.checks.comparison.tolerance import Tolerance
from cortex_m_hil.diagnose.failure_bundle import Bundle, BundleTask
from cortex_m_hil.diagnose.failure_bundle_file import write_bundle
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.lowering import lower
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import Resolved, resolve
from failure_bundles import TEST, failure, wrong_program
from paths import IMPORT_ROOT
from planting import BUGS, network

TARGETS: Final = ("m4-qemu", "m55-qemu", "m0-qemu", "native")
KERNELS: Final = ("bias_dropped", "sum_of_16_bits", "zero_point_ignored_in_padding")
INPUTS: Final = 3  # of the known-answer program, on each target
MISSING: Final = ("torch", "torchao", "executorch")
BUILT: Final = "native"  # whose runner is never a bundle's own, and is built by executorch's schema
DEADLINE: Final = 3600.0  # seconds for one replay, which takes two of CPU time: on a busy machine it waits for those


def on(name: str) -> Resolved:
    return resolve(name, load_targets())


def of_a_reference(dut: Dut, number: int) -> Bundle:
    """The known-answer program on other inputs, whose reference is wrong."""
    inputs = (HostTensor.from_array(np.linspace(-1, number, 16, dtype=np.float32).reshape(1, 16)),)
    program = replace(wrong_program(dut), inputs=inputs)
    return failure(dut, BundleTask(program, inputs, Tolerance(qtol=1))).bundle(f"{TEST}[{number}]", seed=number)


def of_a_kernel(name: str, patch: str, folder: Path) -> Bundle:
    """A network on a runner whose kernel has a bug."""
    resolved, (module, inputs) = on(name), network()
    with flow.open_dut(resolved, firmware=BUGS[patch].plant(folder)) as dut:
        program = lower(module, inputs, isa=dut.target.isa)
        return failure(dut, BundleTask(program, program.inputs, Tolerance())).bundle(f"{TEST}[{patch}]")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("bundles")
    found: dict[str, Bundle] = {}
    for name in TARGETS:
        with flow.open_dut(on(name)) as dut:
            found.update({f"{name}-{number}": of_a_reference(dut, number) for number in range(INPUTS)})
    for name in TARGETS[:3]:
        for patch in KERNELS:
            found[f"{name}-{patch}"] = of_a_kernel(name, patch, tmp_path_factory.mktemp("firmware"))
    for label, bundle in found.items():
        write_bundle(bundle, folder / f"{label}.hil.zip")
    return sorted(folder.iterdir())


def without(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """The environment of a process in which these packages cannot be imported, nor found."""
    for name in names:
        (folder / f"{name}.py").write_text(f"raise ImportError('no {name} here')\n")
    return environment(PYTHONPATH=os.pathsep.join([str(folder), str(IMPORT_ROOT)]))


def replayed(bundle: Path, folder: Path, env: dict[str, str]) -> dict[str, Any]:
    done = subprocess.run(
        command("replay", bundle, "--json"), cwd=folder, env=env, capture_output=True, text=True, timeout=DEADLINE,
        check=False,
    )  # fmt: skip
    assert done.returncode == NO, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_every_bundle_is_replayed_to_the_bit_without_torch(
    written: list[Path], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    bare, with_schema = (without(tmp_path_factory.mktemp("missing"), names) for names in (MISSING, MISSING[:2]))
    for name in MISSING:
        done = subprocess.run([sys.executable, "-c", f"import {name}"], env=bare, capture_output=True, check=False)
        assert f"no {name} here".encode() in done.stderr
    assert len(written) >= 20
    built = {path.name for path in written if path.name.startswith(BUILT)}
    answers = {path.name: replayed(path, tmp_path, with_schema if path.name in built else bare) for path in written}
    assert {name for name, one in answers.items() if one["runner"] != "bundled"} == built
    assert {name: one["differences"] for name, one in answers.items() if not one["reproduced"]} == {}
    assert {name for name, one in answers.items() if not one["outputs_compared"]} == set()
    assert len({(one["recorded"]["message"], one["target"]) for one in answers.values()}) >= 20
