"""`--hil-coverage` by ExecuTorch's runtime, where one that counts is installed: `hil executorch install --coverage`."""

from __future__ import annotations

import json

import pytest

from cortex_m_hil.host.paths import cache_directory
from cortex_m_hil.targets.load import load_targets
from installed import installed_executorch

pytest_plugins = ["pytester"]

TARGETS = load_targets()
CACHE = cache_directory()  # before pytester moves HOME
DEADLINE = 1200.0  # seconds: runners are built
TESTS = """
import torch
from torch import nn

IMAGE = (torch.rand(1, 4, 8, 8),)

def test_max(hil): hil.check(nn.MaxPool2d(2), IMAGE)
def test_average(hil): hil.check(nn.AvgPool2d(2), IMAGE, qtol=1)
"""
MAX, AVERAGE = "cortex_m/ops/op_quantized_max_pool2d.cpp", "cortex_m/ops/op_quantized_avg_pool2d.cpp"
BELOW = {
    MAX: "CMSIS-NN/Source/PoolingFunctions/arm_max_pool_s8.c",
    AVERAGE: "CMSIS-NN/Source/PoolingFunctions/arm_avgpool_s8.c",
}


@pytest.mark.parametrize(("target", "isa"), [("m4-qemu", "DSP"), ("m55-qemu", "MVE"), ("m0-qemu", "SCALAR")])
def test_a_kernel_is_uncovered_until_a_test_executes_it(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, target: str, isa: str
) -> None:
    """An operator of ExecuTorch's, and the function of CMSIS-NN that it calls."""
    monkeypatch.setenv("HIL_CACHE_DIR", str(CACHE))
    pytester.makepyfile(test_it=TESTS)
    options = (f"--target={target}", "--runtime=executorch", "--hil-coverage=out.json")
    executed: list[dict[str, int]] = []
    for chosen in ("test_max", "test_max or test_average"):
        with installed_executorch(TARGETS[target], counts=True):
            result = pytester.runpytest_subprocess(*options, "-k", chosen, timeout=DEADLINE)
        assert result.ret == pytest.ExitCode.OK
        found = json.loads((pytester.path / "out.json").read_text())
        assert list(found["classes"]) == [f"{isa} (executorch)"] and found["lost"] == found["uncounted"] == []
        files = found["classes"][f"{isa} (executorch)"]["files"]
        assert all(name.startswith(("cortex_m/", "CMSIS-NN/")) for name in files)
        executed.append({name: sum(count > 0 for count in one["lines"].values()) for name, one in files.items()})
    first, both = executed
    assert first[MAX] and first[BELOW[MAX]] and not first[AVERAGE] and not first[BELOW[AVERAGE]]
    assert both[AVERAGE] and both[BELOW[AVERAGE]] and both[MAX] >= first[MAX]
