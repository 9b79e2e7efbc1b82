"""Parts of a float program: what they compute, and what they look like as a test."""

from __future__ import annotations

import dataclasses
import math
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from cortex_m_hil.lowering.submodules import ModulePart, write_test


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.head = nn.Linear(4 * 9, 5)

    def forward(self, x: Any, scale: Any) -> Any:
        one, two = torch.split(nn.functional.max_pool2d(self.convolution(x), 2), 2, dim=1)
        x = torch.flatten(torch.cat([two, one], dim=1), 1)
        return self.head(x) * scale, one


@pytest.fixture(scope="module")
def whole() -> ModulePart:
    torch.manual_seed(0)
    inputs = (torch.rand(1, 3, 8, 8), torch.rand(5))
    return ModulePart.from_exported(torch.export.export(Net().eval(), inputs, strict=True), inputs)


def test_every_part_gives_what_the_whole_has_there(whole: ModulePart) -> None:
    count = len(whole.steps)
    assert count >= 9
    parts = [whole.step_range(first, last) for first in range(count) for last in range(first + 1, count + 1)]
    parts += [whole.without_step(number) for number in range(count)]
    assert sum(part is not None for part in parts) > 30
    for part in filter(None, parts):
        assert all(isinstance(one, torch.Tensor) for one in part.arguments())
        outputs = part.module()(*part.arguments())
        for name, output in zip(part.outputs, outputs if isinstance(outputs, tuple) else (outputs,), strict=True):
            torch.testing.assert_close(output, whole.values[name], rtol=0, atol=0)
        assert part.constants.keys() == {name for step in part.steps for name in step.reads} & whole.constants.keys()


def test_smaller_parts_are_smaller_and_many_of_them_run(whole: ModulePart) -> None:
    part = whole.step_range(0, 1)
    assert part is not None
    smaller = list(part.with_smaller_tensors())
    assert len({one.key for one in smaller}) > 8 and all(one.elements < part.elements for one in smaller)
    assert sum(runs(one) for one in smaller) >= len(smaller) // 2
    shorter = [next(one for one in part.with_fewer_digits() if one.digits == digits) for digits in (1, 2, 3)]
    for digits, one in enumerate(shorter, 1):
        weight = one.constants["convolution_0_weight"]
        largest = float(part.constants["convolution_0_weight"].abs().max())
        assert float((weight - part.constants["convolution_0_weight"]).abs().max()) <= largest * 10.0 ** (1 - digits)
        assert [next_one.digits for next_one in one.with_fewer_digits()] == list(range(1, digits))


def test_parts_of_equal_shapes_and_other_values_have_other_keys(whole: ModulePart) -> None:
    """A smaller input gives an intermediate value of the same shape; without what gave it, a part has it as input."""
    part, again = whole.step_range(0, 1), whole.step_range(0, 1)
    assert part is not None and again is not None and part.key == again.key
    changed = {name: value + 1 for name, value in part.inputs.items()}
    assert dataclasses.replace(part, inputs=changed).key != part.key


def runs(part: ModulePart) -> bool:
    try:
        part.module()(*part.arguments())
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize("last", [1, 12])
def test_a_written_test_is_the_part(whole: ModulePart, tmp_path: Path, last: int) -> None:
    part = whole.step_range(0, min(last, len(whole.steps)))
    assert part is not None
    path = tmp_path / "test_it.py"
    write_test(part, path, 'a "docstring" with a \\ in it', [], "hil.check({module}, {inputs})")
    assert path.with_suffix(".pt").exists() is (part.elements > 256)
    space = runpy.run_path(str(path))
    given: list[Any] = []

    class Hil:
        check = staticmethod(lambda *arguments: given.extend(arguments))

    space["test_part"](Hil)
    module, inputs = given
    outputs, expected = module(*inputs), part.module()(*part.arguments())
    torch.testing.assert_close(outputs, expected, rtol=0, atol=0)


def test_a_written_test_has_numbers_that_are_not_finite(tmp_path: Path) -> None:
    class Masked(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.masked_fill(x, x == math.inf, -math.inf)

    inputs = (torch.tensor([1.0, math.inf, -math.inf, math.nan]),)
    part = ModulePart.from_exported(torch.export.export(Masked(), inputs), inputs)
    write_test(part, tmp_path / "test_it.py", "It is read back.", [], "hil.check({module}, {inputs})")
    space = runpy.run_path(str(tmp_path / "test_it.py"))
    torch.testing.assert_close(space["INPUTS"], inputs, rtol=0, atol=0, equal_nan=True)
    expected = torch.tensor([1.0, -math.inf, -math.inf, math.nan])
    torch.testing.assert_close(space["Part"]()(*inputs), expected, rtol=0, atol=0, equal_nan=True)
