"""Modules whose inputs have dimensions that are not fixed: what ExecuTorch lowers, and what is refused and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

import cortex_m_hil as hil
from cortex_m_hil import lowering
from cortex_m_hil.errors import ConfigError, LoweringError, UnsupportedOperator
from cortex_m_hil.host.compiler_state.state import compiler_state
from cortex_m_hil.lowering import Exported, LoweringOptions, export, lower
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.tensor import Dimension, misfit
from cortex_m_hil.targets.cpu import Isa
from networks import Apply
from trust import trust_again

BATCH = Dim("batch", min=1, max=8)
ROWS = ({0: BATCH},)
FLOAT = LoweringOptions(quantize=False)


class Sums(nn.Module):
    def forward(self, first: Any, others: Any) -> Any:
        return first + others["a"]


class Plus(nn.Module):
    def forward(self, x: Any) -> Any:
        return x + x * 0.5


class Turned(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.permute(1, 0)


def rows(count: int, *rest: int) -> tuple[torch.Tensor]:
    made = torch.rand(count, *(rest or (16,)))
    return (made.to(memory_format=torch.channels_last) if made.dim() == 4 else made,)


@pytest.fixture(scope="module", autouse=True)
def trusted_compiler() -> Iterator[None]:
    """Once at the end: torch's symbols of sizes change the compiler in most of these tests, and none asks a cache."""
    yield
    if compiler_state.problem():
        trust_again()


@pytest.fixture(autouse=True)
def trusted_from_the_start() -> None:
    """Nothing, for the same reason."""


@pytest.fixture(scope="module", params=["builtin", "executorch"])
def target(request: pytest.FixtureRequest) -> Iterator[hil.api.OpenTarget]:
    with hil.open("native", runtime=request.param) as opened:
        yield opened


@pytest.fixture(scope="module")
def executorch() -> Iterator[hil.api.OpenTarget]:
    """With the wheel's portable kernels: it has no Cortex-M ones."""
    with hil.open("native", runtime="executorch") as opened:
        yield opened


# --- what is lowered -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("isa", Isa)
@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)),
        nn.Softmax(-1),
        nn.GELU(),
        Plus(),
        Turned(),
    ],
    ids=["linear", "softmax", "gelu", "add", "permute"],
)
def test_what_executorch_lowers_for_any_batch_is_planned_for_the_largest(module: nn.Module, isa: Isa) -> None:
    trust_again()  # the reason is another once an earlier lowering has changed the compiler
    program = lower(module, rows(4), isa=isa, dynamic_shapes=ROWS)
    [value] = [program.file.values[index] for index in program.file.inputs]
    assert value.is_dynamic and value.spec is not None and value.spec.shape == (8, 16)
    assert all(program.file.values[index].is_dynamic for index in program.file.outputs)
    assert [(str(one), one.range) for one in program.dimensions] == [
        (f"dimension 0 of {program.dimensions[0].name}", "1 to 8")
    ]
    assert program.inputs[0].spec.shape == (4, 16) and program.no_key == "a size that is not fixed"


@pytest.mark.slow
def test_references_are_those_of_the_size() -> None:
    module, (largest,) = nn.Linear(16, 8), rows(8)
    program = lower(module, (largest,), isa=Isa.DSP, dynamic_shapes=ROWS)
    for count in (1, 3, 8):
        given = (largest[:count],)  # within the ranges that are calibrated
        here = lowering.on_inputs(program, export(module, given))
        assert program.reference is not None
        found = program.reference(here.inputs)
        assert found.eager is not None and found.dialect is not None and found.quantized is not None
        np.testing.assert_array_equal(found.eager[0], module(*given).detach().numpy())
        assert found.dialect[0].shape == found.quantized[0].shape == (count, 8)
        assert np.abs(found.dialect[0] - found.eager[0]).max() < 0.05


@pytest.mark.slow
def test_an_exported_program_brings_its_dynamic_shapes() -> None:
    module = nn.Linear(16, 8)
    exported = torch.export.export(module, rows(4), dynamic_shapes=ROWS)
    one = lower(exported, isa=Isa.DSP)
    other = lower(module, rows(4), isa=Isa.DSP, dynamic_shapes=ROWS)
    assert one.file.input_specs() == other.file.input_specs() and one.file.input_specs()[0].shape == (8, 16)
    assert [(call.operator, call.args) for call in one.file.instructions] == [
        (call.operator, call.args) for call in other.file.instructions
    ]
    assert one.dimensions[0].range == other.dimensions[0].range == "1 to 8"


@pytest.mark.parametrize(
    "shapes", [{"first": {0: BATCH}, "others": {"a": {0: BATCH}}}, ({0: BATCH}, {"a": {0: BATCH}})]
)
def test_dimensions_of_one_name_must_have_equal_sizes(shapes: Any) -> None:
    """Two inputs of the same number of rows, one of them in a dict."""
    inputs = (torch.rand(3, 4), {"a": torch.rand(3, 4)})
    exported = export(Sums(), inputs, dynamic_shapes=shapes)
    assert [str(one) for one in exported.dimensions] == ["dimension 0 of first", "dimension 0 of others_a"]
    exported.on((torch.rand(8, 4), {"a": torch.rand(8, 4)}))
    with pytest.raises(
        ConfigError, match="dimension 0 of others_a is 5, which does not go with dimension 0 of first, "
    ):
        exported.on((torch.rand(6, 4), {"a": torch.rand(5, 4)}))
    again = export(torch.export.export(Sums(), inputs, dynamic_shapes=shapes))
    assert again.dimensions == exported.dimensions


@pytest.mark.slow
def test_a_multiple_of_a_size() -> None:
    half = Dim("half", min=2, max=9)
    given = (torch.rand(1, 3, 8, 8),)
    first = export(nn.AvgPool2d(2), given, dynamic_shapes=({2: half * 2},))
    for exported in (first, export(torch.export.export(nn.AvgPool2d(2), given, dynamic_shapes=({2: half * 2},)))):
        [one] = exported.dimensions
        assert (one.factor, one.offset, one.least, one.most, one.range) == (2, 0, 4, 18, "4 to 18, by 2")
        with pytest.raises(ConfigError, match="dimension 2 of input is 7, and takes 4 to 18, by 2"):
            exported.on((torch.rand(1, 3, 7, 8),))
    assert lower(first, isa=Isa.DSP, options=FLOAT).file.input_specs()[0].shape == (1, 3, 18, 8)


@pytest.mark.slow
def test_samples_may_have_any_size_within() -> None:
    options = LoweringOptions(calibration=[rows(1), rows(8)])
    lower(nn.Linear(16, 8), rows(4), isa=Isa.DSP, options=options, dynamic_shapes=ROWS)
    with pytest.raises(ConfigError, match=r"calibration sample 1 is .*: dimension 0 of input is 9, and takes 1 to 8"):
        options = LoweringOptions(calibration=[rows(1), rows(9)])
        lower(nn.Linear(16, 8), rows(4), isa=Isa.DSP, options=options, dynamic_shapes=ROWS)


class Mean(nn.Module):
    """With state: the mean of what it was given."""

    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(16))

    def forward(self, x: Any) -> Any:
        self.mean.mul_(0.5).add_(x.mean(0) * 0.5)
        return x + self.mean


@pytest.mark.slow
def test_state_of_a_dynamic_module_is_kept_between_frames_of_other_sizes(executorch: hil.api.OpenTarget) -> None:
    program = executorch.lower(Mean(), rows(4), quantize=False, dynamic_shapes=ROWS)
    assert program.state_names == ("mean",)
    streamed = executorch.stream(program, [rows(count) for count in (8, 1, 5)])
    assert [frame.outputs[0].spec.shape for frame in streamed.frames] == [(8, 16), (1, 16), (5, 16)]
    assert lower(Mean(), rows(4), isa=Isa.DSP, dynamic_shapes=ROWS).file.input_specs()[0].shape == (8, 16)


# --- what is refused -----------------------------------------------------------------------------------------

IMAGE = (4, 16, 16)
HEIGHT = ({2: Dim("height", min=8, max=32)},)


@pytest.mark.slow
@pytest.mark.parametrize("isa", Isa)
@pytest.mark.parametrize("size", [4, 8], ids=["below", "largest"])
def test_the_scratch_of_a_convolution_fixes_the_batch(isa: Isa, size: int) -> None:
    """Asked for its bytes, CMSIS-NN is given numbers: the example's. The program would be for these alone."""
    module = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU())
    with pytest.raises(LoweringError) as raised:
        lower(module, rows(size, *IMAGE), isa=isa, dynamic_shapes=ROWS)
    message = f"dimension 0 of input was to be 1 to 8, and ExecuTorch's Cortex-M passes fix it at {size}, its size in"
    assert message in raised.value.message and "cmsis_nn.py:" in raised.value.message
    assert raised.value.operator.startswith("cortex_m::quantized_conv2d (")
    assert "without dynamic_shapes" in raised.value.hint
    fixed = torch.export.export(module, rows(size, *IMAGE), dynamic_shapes=ROWS)
    for _ in range(2):  # and the user's own program stays as it was
        with pytest.raises(LoweringError, match=rf"was to be 1 to 8, .*fix it at {size}"):
            lower(fixed, isa=isa)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "operator"),
    [(nn.Conv2d(4, 8, 3), "quantized_conv2d"), (nn.Conv2d(4, 4, 3, groups=4), "quantized_")],
    ids=["convolution", "depthwise"],
)
def test_a_dynamic_height_of_quantised_images_is_refused(module: nn.Module, operator: str) -> None:
    with pytest.raises(LoweringError, match=r"dimension 2 of input was to be 8 to 32, .*fix it at 16") as raised:
        lower(module, rows(1, *IMAGE), isa=Isa.MVE, dynamic_shapes=HEIGHT)
    assert operator in raised.value.operator
    assert lower(module, rows(1, *IMAGE), isa=Isa.MVE, options=FLOAT, dynamic_shapes=HEIGHT).dimensions


def exported(**arguments: Any) -> Any:
    return torch.export.export(nn.Linear(4, 2), (torch.rand(3, 4),), **arguments)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: export(exported(dynamic_shapes=({0: Dim.AUTO},))),
            "dimension 0 of input has no upper bound: 2 or more",
        ),
        (
            lambda: export(nn.Linear(4, 2), (torch.rand(3, 4),), dynamic_shapes=({0: Dim("n", min=2)},)),
            "no upper bound",
        ),
        (lambda: export(exported(), dynamic_shapes=ROWS), "dynamic_shapes: the exported program has its own"),
        (
            lambda: lower(export(exported()), isa=Isa.DSP, dynamic_shapes=ROWS),
            "dynamic_shapes: what is exported has its own",
        ),
    ],
)
def test_invalid_calls_of_export_are_config_errors(make: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make()


@pytest.mark.parametrize(
    ("inputs", "shapes", "said"),
    [
        (rows(4), ({0: BATCH}, {0: BATCH}), "2 are given, and 1 inputs: input"),
        (rows(4), 8, "int is given, and what is wanted is one of each input, or by name"),
        (rows(4), (8,), "int is given of input, and what is wanted is a dict of its dimensions"),
        (rows(4), ((BATCH,),), "input has 2 dimensions, and 1 are given"),
        (rows(4), {"x": {0: BATCH}}, "no input is called 'x': there is input"),
        (rows(4), ({5: BATCH},), "input has no dimension 5: its shape is [4, 16]"),
        (rows(4), ({-1: BATCH},), "input has no dimension -1: its shape is [4, 16]"),
        (rows(9), ROWS, "dimension 0 of input is 9 in the example, and batch is 1 to 8"),
        (rows(9), ({0: Dim.AUTO(min=2, max=8)},), "dimension 0 of input is 9 in the example, and is to be 2 to 8"),
        (rows(1), ROWS, "dimension 0 of input is 1 in the example, which torch.export makes a fixed size"),
        (rows(4), ({0: BATCH, 1: BATCH},), "dimension 1 of input is 16 in the example, and batch is 1 to 8"),
        (
            (torch.rand(4, 8),),
            ({0: BATCH, 1: BATCH},),
            "dimension 1 of input is 8 in the example, and dimension 0 of input is 4: both are batch",
        ),
    ],
)
def test_dynamic_shapes_that_do_not_fit_the_example(inputs: Any, shapes: Any, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        export(nn.Linear(inputs[0].shape[1], 8), inputs, dynamic_shapes=shapes)
    assert raised.value.message == f"Linear: dynamic_shapes: {said}"
    assert "a dict of dimensions for each input" in raised.value.hint


def test_dimensions_within_lists_and_dicts_are_checked() -> None:
    class Within(nn.Module):
        def forward(self, pair: Any, named: Any) -> Any:
            return pair[0] + pair[1] + named["a"]

    pair = [torch.rand(4, 2), torch.rand(4, 2)]
    with pytest.raises(
        ConfigError, match=r"dimension 0 of pair\[1\] is 3 in the example, and dimension 0 of pair\[0\]"
    ):
        inputs = [pair[0], torch.rand(3, 2)], {"a": torch.rand(4, 2)}
        export(Within(), inputs, dynamic_shapes=([{0: BATCH}, {0: BATCH}], None))
    with pytest.raises(ConfigError, match=r"named\['a'\] has no dimension 2"):
        export(Within(), (pair, {"a": torch.rand(4, 2)}), dynamic_shapes={"named": {"a": {2: BATCH}}})
    shapes = [{0: BATCH}, {0: BATCH}], {"a": {0: BATCH}}
    assert len(export(Within(), (pair, {"a": torch.rand(4, 2)}), dynamic_shapes=shapes).dimensions) == 3


def test_arguments_without_names_are_one_tuple() -> None:
    """As torch.export.export has them."""

    class Sums(nn.Module):
        def forward(self, first: Any, *others: Any) -> Any:
            return sum(others, first)

    given = tuple(torch.rand(4, 2) for _ in range(4))
    rest = tuple({0: BATCH} for _ in given[1:])
    for shapes in (({0: BATCH}, rest), {"first": {0: BATCH}, "others": rest}):
        assert len(export(Sums(), given, dynamic_shapes=shapes).dimensions) == 4
    with pytest.raises(ConfigError, match=r"Sums: dynamic_shapes: others\[1\] has no dimension 7"):
        export(Sums(), given, dynamic_shapes=({0: BATCH}, ({0: BATCH}, {7: BATCH}, {0: BATCH})))
    with pytest.raises(ConfigError, match="4 are given, and 2 inputs: first, others"):
        export(Sums(), given, dynamic_shapes=({0: BATCH},) * 4)


def collected(dimensions: Any, *tensors: torch.Tensor) -> Any:
    collection: Any = torch.export.ShapesCollection()  # type: ignore[no-untyped-call]
    for tensor in tensors:
        collection[tensor] = dimensions
    return collection


def test_shapes_that_are_told_of_tensors() -> None:
    """By torch.export's ShapesCollection, which knows the caller's tensors: here the layout makes copies of them."""
    module = Apply(lambda x, pair: x + pair[0] * pair[1])
    x, one, other = (torch.rand(4, 3, 5, 5) for _ in range(3))
    shapes, strange = collected({0: BATCH}, x, one, other), collected({7: BATCH}, other)
    assert [one.range for one in export(module, (x, [one, other]), dynamic_shapes=shapes).dimensions] == ["1 to 8"] * 3
    with pytest.raises(ConfigError, match="Apply: dynamic_shapes: ShapesCollection: ") as raised:
        export(module, (x.clone(), [one, other]), dynamic_shapes=shapes)
    assert "the very tensors" in raised.value.hint
    with pytest.raises(ConfigError, match=r"inputs\[1\]\[1\] has no dimension 7"):
        export(module, (x, [one, other]), dynamic_shapes=strange)


def test_shapes_that_further_inputs_have() -> None:
    """Of torch.export's AdditionalInputs follows what is dynamic, and no upper bound."""
    more: Any = torch.export.AdditionalInputs()  # type: ignore[no-untyped-call]
    for count in (2, 8):
        more.add(rows(count))
    with pytest.raises(ConfigError, match="dimension 0 of input has no upper bound"):
        export(nn.Linear(16, 8), rows(4), dynamic_shapes=more)


@pytest.mark.parametrize(
    ("inputs", "shapes"),
    [
        (rows(4), ({0: "batch"},)),
        (rows(4), ({0: np.int64(8)},)),
        ((torch.rand(7, 16),), ({0: 2 * BATCH},)),
        (rows(4), ({1: Dim("columns", min=2, max=20)},)),
    ],
    ids=["a word", "another kind of number", "a size that is no multiple", "a size that the weights fix"],
)
def test_dynamic_shapes_that_torch_refuses(inputs: Any, shapes: Any) -> None:
    """torch's own words; without dynamic_shapes the module is exported."""
    with pytest.raises(ConfigError, match=r"Linear: dynamic_shapes: \w+Error: .") as raised:
        export(nn.Linear(16, 8), inputs, dynamic_shapes=shapes)
    assert raised.value.hint.startswith("dynamic_shapes are those of torch.export")
    assert export(nn.Linear(16, 8), inputs).dimensions == ()


def test_a_module_that_no_shapes_export_is_told_as_such() -> None:
    module = Apply(lambda x: x * 2 if bool(x.sum() > 0) else x)
    with pytest.raises(LoweringError, match="Apply: export failed"):
        export(module, rows(4), dynamic_shapes=ROWS)


# --- what runs -----------------------------------------------------------------------------------------------


def test_the_upper_bounds_run_on_both_runtimes(target: hil.api.OpenTarget) -> None:
    torch.manual_seed(0)
    target.check(nn.Conv2d(4, 8, 3), rows(8, *IMAGE), quantize=False, dynamic_shapes=ROWS)


def test_builtin_quantised_at_the_upper_bounds() -> None:
    torch.manual_seed(0)
    with hil.open("native") as opened:
        module, sizes = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)), [rows(8), rows(8)]
        opened.check(module, rows(8), more_inputs=sizes, calibration=sizes, dynamic_shapes=ROWS)
        program = opened.lower(module, rows(3), dynamic_shapes=ROWS)
        assert opened.run(program, rows(8)).outputs[0].spec.shape == (8, 4)
        for run in (lambda: opened.run(program), lambda: opened.stream(program, [rows(8), rows(3)])):
            with pytest.raises(
                ConfigError, match=r"input 0 is float32\[3, 16\], and the runtime builtin runs"
            ) as raised:
                run()
            assert "[8, 16], or the runtime executorch" in raised.value.hint
        assert opened.run(program, rows(8)).outputs[0].spec.shape == (8, 4)


@pytest.mark.slow
def test_builtin_has_no_operators_on_sizes() -> None:
    with hil.open("native") as opened, pytest.raises(UnsupportedOperator, match=r"no aten::sym_size.int") as raised:
        opened.check(nn.Flatten(), rows(8, 4, 4), dynamic_shapes=ROWS)
    assert raised.value.hint == "lower the module without dynamic_shapes, or run it on the runtime executorch"


@pytest.mark.slow
@pytest.mark.parametrize("redzones", [True, False])
@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Softmax(1)),
        nn.Conv2d(4, 8, 3),
    ],
    ids=["network", "convolution"],
)
def test_every_size_runs_by_executorchs_portable_kernels(module: nn.Module, redzones: bool) -> None:
    """Larger after smaller, too."""
    torch.manual_seed(0)
    with hil.open("native", runtime="executorch", redzones=redzones) as opened:
        more = [rows(count, *IMAGE) for count in (1, 8, 3)]
        given = rows(4, *IMAGE)
        compared = opened.check(module, given, more_inputs=more, quantize=False, dynamic_shapes=ROWS)
        assert (
            compared.ok and compared.outputs[0].max_abs_error is not None and compared.outputs[0].max_abs_error < 1e-5
        )


@pytest.mark.slow
def test_two_dimensions_at_once(executorch: hil.api.OpenTarget) -> None:
    shapes = ({0: BATCH, 2: Dim("height", min=4, max=20)},)
    more = [rows(2, 4, 20, 16), rows(8, 4, 5, 16)]
    executorch.check(
        nn.Conv2d(4, 8, 3, padding=1), rows(2, *IMAGE), more_inputs=more, quantize=False, dynamic_shapes=shapes
    )


def test_inputs_beyond_the_dynamic_bounds_are_config_errors(executorch: hil.api.OpenTarget) -> None:
    module = export(nn.ReLU(), rows(4), dynamic_shapes=ROWS)
    program = executorch.lower(module, quantize=False)
    for count in (0, 9, 99):
        said = rf"dimension 0 of input is {count}, and takes 1 to 8"
        with pytest.raises(ConfigError, match=rf"{said}|program takes at most float32\[8, 16\]"):
            executorch.run(program, rows(count))
        with pytest.raises(ConfigError, match=said):
            executorch.check(module, more_inputs=[rows(count)], quantize=False)
        assert executorch.run(program, rows(1)).outputs[0].spec.shape == (1, 16)


def test_a_program_from_elsewhere_runs_at_every_size(executorch: hil.api.OpenTarget) -> None:
    """Nothing is known of it but its upper bounds."""
    program = hil.load_program(executorch.lower(nn.Softmax(-1), rows(4), quantize=False, dynamic_shapes=ROWS).pte)
    for count in (3, 8, 1):
        given = rows(count)
        found = executorch.run(program, given).outputs[0].array()
        np.testing.assert_allclose(found, torch.softmax(given[0], -1).numpy(), rtol=1e-5)
    with pytest.raises(ConfigError, match=r"input 0: the program takes at most float32\[8, 16\], not float32\[9, 16\]"):
        executorch.run(program, rows(9))


def test_localize_judges_the_size_that_it_is_given(executorch: hil.api.OpenTarget) -> None:
    module = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU())
    program = executorch.lower(module, rows(4, *IMAGE), quantize=False, dynamic_shapes=ROWS)
    found = executorch.localize(program, rows(3, *IMAGE))
    assert [row.spec.partition(" dim")[0] for row in found.rows] == ["float32[3, 8, 14, 14]"] * 2
    assert not found.at_fault  # sums in another order differ in the last bit


# --- dimensions ----------------------------------------------------------------------------------------------


def dimension(number: int, symbol: str, factor: int = 1, offset: int = 0) -> Dimension:
    return Dimension(0, number, "x", symbol, factor, offset, 2, 20)


@pytest.mark.parametrize(
    ("dimensions", "shape", "said"),
    [
        ([dimension(0, "s")], (2, 7), ""),
        ([dimension(0, "s")], (1, 7), "dimension 0 of x is 1, and takes 2 to 20"),
        ([dimension(0, "s")], (21, 7), "dimension 0 of x is 21, and takes 2 to 20"),
        (
            [dimension(0, "s"), dimension(1, "s")],
            (4, 5),
            "dimension 1 of x is 5, which does not go with dimension 0 of x",
        ),
        ([dimension(0, "s"), dimension(1, "t")], (4, 5), ""),
        ([dimension(0, "s"), dimension(1, "s", 2, 1)], (4, 9), ""),
        ([dimension(0, "s"), dimension(1, "s", 2, 1)], (4, 7), "dimension 1 of x is 7, which does not go with"),
        ([dimension(1, "s", 3)], (4, 8), "dimension 1 of x is 8, and takes 2 to 20, by 3"),
    ],
)
def test_shapes_are_judged_by_range_step_and_symbol(dimensions: Sequence[Dimension], shape: Any, said: str) -> None:
    found = misfit(dimensions, [shape])
    assert found.startswith(said) and bool(found) == bool(said)


@pytest.mark.slow
def test_the_key_of_a_lowering_knows_no_size_that_is_not_fixed() -> None:
    """It would need the example's, the bounds and torch's symbols: there is none, and each is lowered anew."""
    one: Exported = export(nn.Linear(16, 8), rows(4), dynamic_shapes=ROWS)
    found: list[Program] = [lower(one, isa=Isa.DSP) for _ in range(2)]
    assert not any(program.remembered for program in found) and found[0].pte == found[1].pte
