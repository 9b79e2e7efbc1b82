"""`program.partition`: what runs each instruction, its multiply-accumulates, and the float islands.

Multiply-accumulates are compared with those that `torch.utils.flop_counter` counts in the module itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from cortex_m_hil.errors import ProgramRejected
from cortex_m_hil.lowering import LoweringOptions, lower
from cortex_m_hil.lowering.named_modules import NETWORKS, load_named_module
from cortex_m_hil.maintainers.fuzzing.program_mutator import mutants
from cortex_m_hil.program.lifetimes import Lifetimes
from cortex_m_hil.program.partition import Partition, PartitionKind, planned_in_int8
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.pte_reader import read_methods
from cortex_m_hil.targets.cpu import Isa
from paths import REPOSITORY

Inputs = tuple[torch.Tensor, ...]
NO_PATTERN, REFUSED = (
    "the quantiser has no pattern for aten.",
    "the quantiser refuses aten.conv_transpose2d.input of [1, 8, 12, 12] and ",
)


class Mixed(nn.Module):
    """ExecuTorch 1.5.1 leaves `grouped` in float, a transposed convolution in groups, and `norm`."""

    def __init__(self) -> None:
        super().__init__()
        self.entry = nn.Conv2d(3, 8, 3, padding=1)
        self.grouped = nn.ConvTranspose2d(8, 8, 2, 2, groups=2)
        self.exit = nn.Conv2d(8, 4, 1)
        self.norm = nn.LayerNorm(4)

    def forward(self, x: Any) -> Any:
        x = self.entry(x)
        x = self.grouped(x)
        x = self.exit(x)
        return self.norm(x.mean((2, 3)))


GROUPED_LINE = inspect.getsourcelines(Mixed.forward)[1] + 2


class Matmul(nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        return torch.bmm(x, y)


def image(channels: int = 3, size: int = 12) -> Inputs:
    return (torch.randn(1, channels, size, size),)


MODULES: dict[str, Callable[[], tuple[nn.Module, Inputs]]] = {
    "conv": lambda: (nn.Conv2d(3, 5, (3, 2), stride=2, padding=1), image()),
    "conv in groups": lambda: (nn.Conv2d(6, 12, 3, groups=3), image(6)),
    "depthwise": lambda: (nn.Conv2d(6, 12, 3, groups=6, dilation=2), image(6)),
    "transposed": lambda: (nn.ConvTranspose2d(6, 5, 3, stride=2), image(6, 5)),
    "transposed in groups": lambda: (nn.ConvTranspose2d(6, 4, 3, stride=2, groups=2), image(6, 5)),
    "one dimension": lambda: (nn.Conv1d(4, 6, 3), (torch.randn(1, 4, 20),)),
    "linear": lambda: (nn.Linear(16, 5), (torch.randn(3, 16),)),
    "linear of a sequence": lambda: (nn.Linear(16, 5), (torch.randn(1, 7, 16),)),
    "bmm": lambda: (Matmul(), (torch.randn(2, 3, 8), torch.randn(2, 8, 5))),
    "mixed": lambda: (Mixed(), image()),
}


def lowered(module: nn.Module, inputs: Inputs, **options: Any) -> Program:
    return lower(module, inputs, isa=Isa.DSP, options=LoweringOptions(**options))


@cache
def mixed() -> Program:
    torch.manual_seed(0)
    return lowered(*MODULES["mixed"]())


def counted_by_torch(module: nn.Module, inputs: Inputs) -> int:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module.eval()(*inputs)
    return int(counter.get_total_flops()) // 2


# --- multiply-accumulates ------------------------------------------------------------------------------------


@pytest.mark.first_only
@pytest.mark.parametrize("quantize", [True, False], ids=["int8", "float"])
@pytest.mark.parametrize("name", MODULES)
def test_macs_are_those_that_torch_counts(name: str, quantize: bool) -> None:
    torch.manual_seed(0)
    module, inputs = MODULES[name]()
    found = lowered(module, inputs, quantize=quantize).partition
    assert found.macs == counted_by_torch(module, inputs) > 0
    if not quantize:
        assert found.cortex_m_macs == 0 and found.count(PartitionKind.CORTEX_M) == 0


@pytest.mark.slow
def test_macs_of_the_explicit_layout_are_the_same() -> None:
    """Whose operators have names and layouts of their own, and whose quantiser knows one dimension."""
    for name in ("conv", "depthwise", "transposed", "one dimension"):
        module, inputs = MODULES[name]()
        found = lowered(module, inputs, layout="explicit").partition
        assert (found.macs, found.cortex_m_macs) == (counted_by_torch(module, inputs), 1.0), name


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_mlperf_tinys_networks_are_all_on_cortex_m_kernels(name: str) -> None:
    module, inputs = load_named_module(name)
    found = lowered(module, inputs).partition
    assert (found.cortex_m_macs, found.cortex_m_operator_share, found.islands, found.elsewhere) == (1.0, 1.0, (), ())
    assert found.macs == counted_by_torch(module, inputs)


# --- islands -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_islands_have_module_line_and_reason() -> None:
    grouped, norm = mixed().partition.islands
    assert grouped.place == f"grouped, {__file__}:{GROUPED_LINE}"
    assert grouped.operators == ("aten::convolution.out",) and grouped.macs == 24 * 24 * 8 * 4
    assert [one.startswith(REFUSED) for one in grouped.why] == [True]
    assert "CortexMConvTranspose2DCheck" in grouped.why[0] and "Grouped convolutions" in grouped.why[0]
    assert norm.operators == ("aten::native_layer_norm.out",) and norm.macs == 0
    assert norm.why == (f"{NO_PATTERN}layer_norm.default",)


def test_the_share_is_that_of_the_int8_layers() -> None:
    found = mixed().partition
    int8, all_ = 12 * 12 * 8 * 3 * 9 + 24 * 24 * 4 * 8, counted_by_torch(*MODULES["mixed"]())
    assert found.cortex_m_macs == int8 / all_ and found.cortex_m_operator_share == 3 / 5
    assert [one.steps for one in found.elsewhere] == [island.computing for island in found.islands]


def test_what_is_lowered_anew_and_what_is_found_say_the_same() -> None:
    """Lines are those of the module at hand: the cache knows none."""
    first = mixed()
    torch.manual_seed(0)
    again = lowered(*MODULES["mixed"]())
    assert again.remembered and [*map(str, again.partition.islands)] == [*map(str, first.partition.islands)]


def test_a_file_alone_has_islands_without_names() -> None:
    whole = Program.from_bytes(mixed().pte).partition
    assert [one.steps[0].kind for one in whole.islands] == [PartitionKind.FLOAT, PartitionKind.FLOAT]
    assert whole.islands[0].place == f"operator {whole.islands[0].steps[0].instruction}"
    assert whole.cortex_m_macs == mixed().partition.cortex_m_macs and whole.islands[0].why == ()


class Between(nn.Module):
    """Two float convolutions, which are connected by what `join` makes of the first one's output."""

    def __init__(self, join: Callable[[Any], Any]) -> None:
        super().__init__()
        self.first, self.second, self.join = nn.Conv1d(4, 4, 3), nn.Conv1d(4, 4, 3), join

    def forward(self, x: Any) -> Any:
        return self.second(self.join(self.first(x)))


@pytest.mark.first_only
@pytest.mark.parametrize(
    ("join", "quantize", "islands"),
    [
        (lambda x: x * x, True, 2),  # of int8: each convolution is between a dequantise and a quantise
        (lambda x: x * x, False, 1),
        (lambda x: x.flip(2), False, 1),  # what moves floats connects them
        (torch.relu, True, 1),  # not quantised, since nothing beside it is
    ],
)
def test_islands_end_where_integers_begin(join: Callable[[Any], Any], quantize: bool, islands: int) -> None:
    torch.manual_seed(0)
    found = lowered(Between(join), (torch.randn(1, 4, 12),), quantize=quantize).partition
    assert len(found.islands) == islands
    assert sum(one.macs or 0 for one in found.islands) == found.macs


# --- what floats cost ----------------------------------------------------------------------------------------


class Spotter(nn.Module):
    """A keyword spotter's layers; `activation` is in float or not."""

    def __init__(self, activation: Callable[[Any], Any]) -> None:
        super().__init__()
        self.first, self.activation = nn.Conv2d(1, 16, (10, 4), 2, (5, 1)), activation
        self.second, self.head = nn.Conv2d(16, 16, 3, padding=1), nn.Linear(16, 12)

    def forward(self, x: Any) -> Any:
        x = self.activation(self.first(x))
        return self.head(self.activation(self.second(x)).mean((2, 3)))


@pytest.mark.slow
def test_what_floats_cost_is_what_the_int8_network_takes_less() -> None:
    torch.manual_seed(0)
    floats = lowered(Spotter(nn.functional.relu6), (torch.rand(1, 1, 49, 10),))
    int8 = lowered(Spotter(nn.ReLU6()), (torch.rand(1, 1, 49, 10),))
    assert int8.partition.cortex_m_operator_share == 1 and not int8.partition.left_in_float
    assert [one.operator for one in floats.partition.left_in_float] == ["aten::hardtanh.out"] * 2
    assert planned_in_int8(floats.file, floats.partition) == int8.file.planned_bytes < floats.file.planned_bytes / 3
    for one in (floats, int8):
        assert Lifetimes(one.file).peak().nbytes == one.file.planned_bytes
    assert planned_in_int8(int8.file, int8.partition) == int8.file.planned_bytes


class Indices(nn.Module):
    """Index arithmetic, a comparison and an argmax: no Cortex-M kernel could compute them."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Any, at: Any) -> Any:
        y = self.layer(x)
        return y.index_select(1, at + 1), y > 0.5, y.argmax(1)


@pytest.mark.slow
def test_steps_whose_line_nobody_knows_are_one_place_for_each_operator() -> None:
    """ExecuTorch takes a GRU apart, and forgets of what."""
    torch.manual_seed(0)
    found = lowered(nn.GRU(4, 4), (torch.randn(5, 1, 4),)).partition
    places = {(one.steps[0].operator, one.steps[0].module, one.steps[0].source) for one in found.elsewhere}
    assert len(found.elsewhere) == len(places) < len(found.left_in_float) / 2
    assert sum(len(one.steps) for one in found.elsewhere) == len(found.left_in_float)
    assert any(" ×5" in str(one) for one in found.elsewhere)


@pytest.mark.slow
def test_indices_are_not_left_in_float() -> None:
    torch.manual_seed(0)
    found = lowered(Indices(), (torch.randn(2, 8), torch.tensor([0, 2]))).partition
    assert {"aten::argmax.out", "aten::add.out", "aten::gt.Scalar_out"} <= {one.operator for one in found.steps}
    assert (found.cortex_m_operator_share, found.left_in_float, found.elsewhere) == (1.0, (), ())


# --- what is not known ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_without_macs_there_is_no_share() -> None:
    found = lowered(nn.ReLU(), (torch.randn(1, 8),)).partition
    assert (found.macs, found.cortex_m_macs, found.uncounted) == (0, None, ())


@pytest.mark.parametrize("operator", ["cortex_m::lstm.out", "mine::conv.out"])
def test_of_an_operator_that_is_not_known_nothing_is_claimed(operator: str) -> None:
    file = mixed().file
    at = next(one.index for one in file.instructions if one.operator == "cortex_m::quantized_conv2d.out")
    changed = [replace(one, operator=operator) if one.index == at else one for one in file.instructions]
    found = Partition.of(replace(file, instructions=tuple(changed)))
    assert (found.macs, found.cortex_m_macs, found.uncounted) == (None, None, (operator,))


@pytest.mark.first_only
@pytest.mark.parametrize("path", sorted((REPOSITORY / "tests" / "fuzz_seeds").glob("*.pte")), ids=lambda one: one.stem)
def test_damaged_programs_are_parted_too(path: Any) -> None:
    """Arguments may be of any kind and number: nobody has looked at them yet."""
    parted = 0
    for mutant in islice(mutants(path.read_bytes(), 20261124), 400):
        try:
            file = read_methods(mutant.data)[0]
        except ProgramRejected:
            continue
        found = Partition.of(file)
        parted += 1
        assert len(found.steps) == len(file.instructions)
        assert found.cortex_m_macs is None or 0 <= found.cortex_m_macs <= 1
    assert parted > 20
