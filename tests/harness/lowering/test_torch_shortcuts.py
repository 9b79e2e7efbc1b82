"""What is left out of torch's work changes nothing of what comes out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torchao.quantization.pt2e.observer import HistogramObserver

from cortex_m_hil.lowering.content_digest import digest
from cortex_m_hil.lowering.module_export import strict_export
from cortex_m_hil.lowering.torch_shortcuts import (
    SHORTCUTS,
    Shortcut,
    bins_compared_by_numpy,
    operators_looked_up_once,
    without_guards,
)
from networks import Net

IMAGE = (torch.linspace(-1, 1, 3 * 17 * 17).reshape(1, 3, 17, 17),)


class Chosen(nn.Module):
    """Whose branch is chosen by a shape, which is what guards are about."""

    def forward(self, x: Any) -> Any:
        return torch.relu(x) if x.shape[2] > 5 else x


MODULES: dict[str, Callable[[], nn.Module]] = {"network": Net, "chosen": Chosen}


@pytest.mark.parametrize("name", MODULES)
def test_export_without_guards_equals_the_ordinary_export(name: str) -> None:
    module = MODULES[name]().eval()
    without, plain = strict_export(module, IMAGE), torch.export.export(module, IMAGE, strict=True)
    assert digest(without) == digest(plain) and str(without) == str(plain)


def test_guards_refuse_impossible_dynamic_shapes_after_the_block() -> None:
    """They are what tells of a dimension that cannot be as dynamic as was asked."""
    shapes = ({2: torch.export.Dim("height", min=6, max=40), 3: torch.export.Dim("width", min=17, max=18)},)

    class Square(nn.Module):
        def forward(self, x: Any) -> Any:
            return x + x.transpose(2, 3)

    with without_guards():
        pass
    with pytest.raises(Exception, match="height"):
        torch.export.export(Square(), IMAGE, dynamic_shapes=shapes, strict=True)


def test_an_operator_that_is_registered_later_is_looked_up() -> None:
    from torch._export import utils

    with operators_looked_up_once():
        utils._collect_all_valid_cia_ops()
        library: Any = torch.library.Library("hil_late", "DEF")  # type: ignore[no-untyped-call]
        library.define("late(Tensor x) -> Tensor")
        library.impl("late", lambda x: x + 1, "CompositeImplicitAutograd")
        found = utils._collect_all_valid_cia_ops()
    assert "hil_late.late.default" in map(str, found)
    assert found == utils._collect_all_valid_cia_ops()


@pytest.mark.first_only
@pytest.mark.parametrize("seed", range(20))
def test_numpy_finds_the_same_range(seed: int) -> None:
    """Of one value, of few and of many, with outliers, in several steps."""
    random = torch.Generator().manual_seed(seed)
    samples = [torch.randn(int(10 ** (seed % 5)), generator=random) ** (1 + seed % 3) for _ in range(1 + seed % 4)]
    observer = HistogramObserver()
    for sample in samples:
        observer(sample)
    search, expected = HistogramObserver._non_linear_param_search, observer._non_linear_param_search()
    with bins_compared_by_numpy():
        assert HistogramObserver._non_linear_param_search is not search
        found = observer._non_linear_param_search()
    assert HistogramObserver._non_linear_param_search is search
    assert [one.numpy().tobytes() for one in found] == [one.numpy().tobytes() for one in expected]


@pytest.mark.parametrize("shortcut", SHORTCUTS, ids=lambda one: one.name)
def test_the_installed_versions_have_what_is_replaced(shortcut: Shortcut) -> None:
    """Else a lowering takes longer, and only this and hil doctor tell."""
    assert shortcut.lost() == ""


def test_a_function_that_a_version_does_not_have_is_named_and_not_replaced() -> None:
    renamed = replace(SHORTCUTS[1], name="_no_such_function")
    rewritten = replace(SHORTCUTS[2], fits=lambda source: False)
    for one in (renamed, rewritten):
        assert re.match(rf"torch(ao)? \d\S+ has another {one.module}\.{one.name}: not saved is ", one.lost())
    before = HistogramObserver._non_linear_param_search
    with rewritten.replaced(lambda _: None), renamed.replaced(lambda _: None):
        assert HistogramObserver._non_linear_param_search is before


def test_what_is_replaced_is_called() -> None:
    """By an export, by to_edge and by a calibration: replacing what nothing calls any more saves nothing."""
    from torch._export import utils

    called = Counter[str]()

    def counting(name: str) -> Callable[[Any], Any]:
        def count(original: Any) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                called[name] += 1
                return original(*args, **kwargs)

            return call

        return count

    with ExitStack() as stack:
        for one in SHORTCUTS:
            stack.enter_context(one.replaced(counting(one.name)))
        torch.export.export(nn.ReLU(), (torch.ones(2),), strict=True)
        utils._collect_all_valid_cia_ops()
        observer = HistogramObserver()
        observer(torch.linspace(-1, 1, 100))
        observer.calculate_qparams()
    assert {*called} == {one.name for one in SHORTCUTS}
