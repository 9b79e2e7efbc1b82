"""ExecuTorch's whole suites: its Cortex-M tests on six targets, its backend suite on three. Hours of CPU time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from upstream_runs import Done, upstream

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
# Of the backend suite, by its Cortex-M flow: as docs/maintainers.md tells.
OF_FLOW = {"PASS": 307, "FAIL": 63, "SKIP": 97}
FAILURES = {
    "operators/test_adaptive_avgpool3d.py": Counter({"UnsupportedOperator": 4}),
    "operators/test_adaptive_maxpool3d.py": Counter({"UnsupportedOperator": 5}),
    "operators/test_avgpool3d.py": Counter({"UnsupportedOperator": 9}),
    "operators/test_conv1d.py": Counter({"LintError": 1}),
    "operators/test_conv2d.py": Counter({"LintError": 1}),
    "operators/test_hardsigmoid.py": Counter({"UnsupportedOperator": 4}),
    "operators/test_hardswish.py": Counter({"UnsupportedOperator": 4}),
    "operators/test_index_put.py": Counter({"LintError": 8}),
    "operators/test_lstm.py": Counter({"Exception": 10}),
    "operators/test_maxpool3d.py": Counter({"UnsupportedOperator": 10}),
    "operators/test_mean.py": Counter({"LintError": 1}),
    "operators/test_permute.py": Counter({"LintError": 3}),
    "operators/test_transpose.py": Counter({"LintError": 2, "UnsupportedOperator": 1}),
}


def errors(done: Done, target: str, verdict: str) -> dict[str, Counter[str]]:
    """By module what the tests of this verdict ended with."""
    found: dict[str, Counter[str]] = {}
    for test, cells in done.cells.items():
        if cells[target].verdict == verdict:
            found.setdefault(test.partition("::")[0], Counter())[cells[target].error] += 1
    return found


def differing(done: Done) -> list[str]:
    """The tests whose programs did not give the same bits on all targets."""
    return [test for test, cells in done.cells.items() if len({cell.outputs for cell in cells.values()}) > 1]


def test_every_test_gives_what_upstream_expects_and_all_targets_the_same_bits(tmp_path: Path) -> None:
    done = upstream(tmp_path, ",".join(TARGETS), "-n2", deadline=DEADLINE)
    print(done.text)
    assert done.status == 0
    assert done.count() == dict.fromkeys(TARGETS, EXPECTED)
    assert "2 modules that cannot be imported" in done.text  # MobileNetV2 and V3
    assert [errors(done, name, "XFAIL") for name in TARGETS] == [XFAILS] * len(TARGETS)
    assert differing(done) == []
    assert sum(cells[TARGETS[0]].outputs != () for cells in done.cells.values()) == EXPECTED["PASS"]


def test_the_cortex_m_flow_of_the_backend_suite_does_as_the_page_says(tmp_path: Path) -> None:
    targets = TARGETS[:3]
    done = upstream(tmp_path, ",".join(targets), "-n2", deadline=DEADLINE, backend_suite=True)
    print(done.text)
    assert done.status == 1
    assert done.count() == dict.fromkeys(targets, OF_FLOW)
    assert "2 modules that cannot be imported" in done.text  # torchvision's models and torchaudio's
    assert [errors(done, name, "FAIL") for name in targets] == [FAILURES] * len(targets)
    assert differing(done) == []


@pytest.mark.parametrize("name", TARGETS[:3])
def test_no_program_reads_what_is_dead_by_its_plan(name: str, tmp_path: Path) -> None:
    """Each is run twice more, with complementary poisons in the memory of tensors whose lifetime is over."""
    done = upstream(tmp_path, name, "-n2", "--redzones", deadline=DEADLINE)
    print(done.text)
    assert (done.status, done.count()) == (0, {name: EXPECTED})
