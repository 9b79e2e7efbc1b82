"""ExecuTorch's whole suite on six targets: about half an hour of CPU time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from upstream_runs import upstream

TARGETS = ("m55-qemu", "m4-qemu", "m0-qemu", "m3-qemu", "m7-qemu", "m33-qemu")
DEADLINE = 3 * 3600.0  # seconds
# executorch 1.5.1 without torchvision.
EXPECTED = {"PASS": 265, "XFAIL": 8, "SKIP": 1}
# Upstream's strict expected failures, by what they fail with; the Python ones come from its own lowering.
XFAILS = {
    "ops/test_conv.py": Counter({"TorchRuntimeError": 1, "ProgramRejected": 1}),
    "ops/test_div.py": Counter({"UnsupportedOperator": 4}),
    "ops/test_max_pool2d.py": Counter({"Exception": 1}),
    "ops/test_softmax.py": Counter({"UnsupportedOperator": 1}),
}


def test_every_test_gives_what_upstream_expects_and_all_targets_the_same_bits(tmp_path: Path) -> None:
    done = upstream(tmp_path, ",".join(TARGETS), "-n2", deadline=DEADLINE)
    print(done.text)
    assert done.status == 0
    assert done.count() == dict.fromkeys(TARGETS, EXPECTED)
    assert "2 modules that cannot be imported" in done.text  # MobileNetV2 and V3
    for name in TARGETS:
        found: dict[str, Counter[str]] = {}
        for test, cells in done.cells.items():
            if cells[name].verdict == "XFAIL":
                found.setdefault(test.partition("::")[0], Counter())[cells[name].error] += 1
        assert found == XFAILS
    bits = {test: {cell.outputs for cell in cells.values()} for test, cells in done.cells.items()}
    assert [test for test, outputs in bits.items() if len(outputs) > 1] == []
    assert sum(outputs != {()} for outputs in bits.values()) == EXPECTED["PASS"]


@pytest.mark.parametrize("name", TARGETS[:3])
def test_no_program_reads_what_is_dead_by_its_plan(name: str, tmp_path: Path) -> None:
    """Each is run twice more, with complementary poisons in the memory of tensors whose lifetime is over."""
    done = upstream(tmp_path, name, "-n2", "--redzones", deadline=DEADLINE)
    print(done.text)
    assert (done.status, done.count()) == (0, {name: EXPECTED})
