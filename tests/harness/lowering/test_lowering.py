"""Real lowerings with the installed ExecuTorch. What is lowered once is shared through the cache."""

from __future__ import annotations

import dataclasses
import logging
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cortex_m_hil.checks.comparison.compare_outputs import compare
from cortex_m_hil.checks.comparison.tolerance import Tolerance
from cortex_m_hil.checks.input_checks import input_misfits
from cortex_m_hil.errors import ConfigError, HarnessError, LoweringError, ToolchainError
from cortex_m_hil.host.random_generators import seed
from cortex_m_hil.lowering import Layout, LoweringOptions, clear_cache, export, lower, quiet, required_scratch
from cortex_m_hil.lowering import known_answer_generator as builder
from cortex_m_hil.lowering.cache_keys import Lru
from cortex_m_hil.lowering.installed_executorch import feature, require_sizes
from cortex_m_hil.lowering.module_export import run_stage
from cortex_m_hil.lowering.pipeline import cache as remembered
from cortex_m_hil.lowering.reference import HostModels, to_host, to_torch
from cortex_m_hil.program.known_answer import file_name, known_answer
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.pte_reader import parse_pte
from cortex_m_hil.program.schema import HEADER_AT, HEADER_MAGIC, ValueKind
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.targets.cpu import Isa
from networks import Apply
from paths import REPOSITORY

nn = torch.nn


def references(program: Program) -> Any:
    assert program.reference is not None
    return program.reference(program.inputs)


def dialect_outputs(program: Program) -> tuple[HostTensor, ...]:
    """What a faultless runtime would send back: the dialect's values in the program's own layout."""
    specs = program.file.output_specs()
    arrays = references(program).dialect
    return tuple(HostTensor.from_array(a, spec.dim_order) for a, spec in zip(arrays, specs, strict=True))


def autoencoder() -> tuple[Any, tuple[Any, ...]]:
    from executorch.examples.models.mlperf_tiny.deep_autoencoder import DeepAutoEncoderModel

    seed(0)
    model = DeepAutoEncoderModel()
    return model.get_eager_model(), model.get_example_inputs()


def ds_cnn() -> tuple[Any, tuple[Any, ...]]:
    from executorch.examples.models.mlperf_tiny.ds_cnn import DSCNNKWSModel

    seed(0)
    model = DSCNNKWSModel()
    return model.get_eager_model(), model.get_example_inputs()


def small_net() -> tuple[Any, tuple[Any, ...]]:
    """Every operator with scratch but batch_matmul."""
    seed(1)
    layers = (
        nn.Conv2d(3, 16, 3, stride=2, padding=1),
        nn.Conv2d(16, 16, 3, padding=1, groups=16),
        nn.ConvTranspose2d(16, 8, 2, stride=2),
        nn.AvgPool2d(2),
    )
    return nn.Sequential(*layers), (torch.randn(1, 3, 16, 16),)


class Matmul(nn.Module):  # type: ignore[misc, unused-ignore]
    def forward(self, left: Any, right: Any) -> Any:
        return torch.bmm(left, right)


@pytest.mark.slow
@pytest.mark.parametrize("isa", Isa)
def test_the_deep_autoencoder_lowers_for_every_class(isa: Isa) -> None:
    module, inputs = autoencoder()
    program = lower(module, inputs, isa=isa, name="autoencoder")
    assert (program.name, program.isa) == ("autoencoder", isa)
    linears = [i for i in program.file.instructions if i.operator == "cortex_m::quantized_linear.out"]
    assert len(linears) == 10
    has_sums = {program.file.values[i.args[3]].kind is not ValueKind.NULL for i in linears}
    assert has_sums == {isa is Isa.MVE}
    assert program.nodes[-2] == "cortex_m_quantized_linear_default_9 (output_layer)"
    assert len(program.nodes) == len(program.file.instructions) and all(program.nodes)
    assert not list(input_misfits(program, program.inputs))
    found = references(program)
    comparison = compare(program.file, dialect_outputs(program), found, Tolerance())
    assert comparison.ok and comparison.outputs[0].max_quanta == 0
    assert comparison.outputs[0].sqnr_db is not None and comparison.outputs[0].sqnr_db > 20


@pytest.mark.slow
def test_ds_cnn_lowers_in_the_explicit_layout() -> None:
    """The one large conv net here, at some 6 s of CPU; the scratch tests cover both layouts for every class."""
    module, inputs = ds_cnn()
    program = lower(module, inputs, isa=Isa.DSP, options=LoweringOptions(layout="explicit"))
    convolutions = [i for i in program.file.instructions if "conv2d" in i.operator]
    assert len(convolutions) == 9 and all(i.operator.endswith("_nhwc.out") for i in convolutions)
    assert all(program.nodes)
    assert compare(program.file, dialect_outputs(program), references(program), Tolerance(qtol=1)).ok


@pytest.mark.first_only
@pytest.mark.parametrize("layout", ["channels_last", "explicit"])
def test_scratch_is_what_the_class_needs_and_no_other(layout: Layout) -> None:
    module, inputs = small_net()
    for isa in Isa:
        program = lower(module, inputs, isa=isa, options=LoweringOptions(layout=layout))
        file = program.file
        assert program.inputs[0].spec.dim_order == ((0, 1, 2, 3) if layout == "explicit" else (0, 2, 3, 1))
        needs = required_scratch(file, isa)
        assert [need.required for need in needs] == [need.planned for need in needs]
        assert len(needs) == 5  # one each, and two for the transposed convolution
        other = Isa.DSP if isa is Isa.MVE else Isa.MVE
        differing = {n.operator.rpartition("::")[2] for n in required_scratch(file, other) if n.required != n.planned}
        suffix = "_nhwc.out" if layout == "explicit" else ".out"
        assert {f"quantized_conv2d{suffix}", f"quantized_depthwise_conv2d{suffix}"} <= differing
        assert all(dict(n.elsewhere)[other] == m.required
                   for n, m in zip(needs, required_scratch(file, other), strict=True))  # fmt: skip


@pytest.mark.first_only
@pytest.mark.parametrize("isa", Isa)
def test_scratch_of_batch_matmul(isa: Isa) -> None:
    seed(2)
    file = lower(Matmul(), (torch.randn(2, 3, 8), torch.randn(2, 8, 5)), isa=isa).file
    (need,) = required_scratch(file, isa)
    assert need.required == need.planned and "batch_matmul" in need.operator


@pytest.mark.slow
def test_the_scratch_of_an_average_pool_is_found_in_executorch_1_4_too() -> None:
    """There the operator has no ceil_mode, so that its other arguments stand one place earlier."""
    file = lower(nn.AvgPool2d(2), (torch.randn(1, 8, 6, 6),), isa=Isa.DSP).file
    (pool,) = (one for one in file.instructions if one.operator == "cortex_m::quantized_avg_pool2d.out")
    older = dataclasses.replace(pool, args=pool.args[:4] + pool.args[5:])
    before = dataclasses.replace(file, instructions=tuple(older if one is pool else one for one in file.instructions))
    (need,) = required_scratch(file, Isa.DSP)
    assert need.required == need.planned == 32
    assert required_scratch(before, Isa.DSP) == (need,)


def test_lowering_without_quantisation_matches_the_float_module() -> None:
    seed(3)
    program = lower(
        nn.Conv2d(2, 3, 3), (torch.randn(1, 2, 6, 6),), isa=Isa.SCALAR, options=LoweringOptions(quantize=False)
    )
    found = references(program)
    assert found.quantized is None and program.file.dataflow.output_quantizations[0] is None
    np.testing.assert_allclose(found.dialect[0], found.eager[0], atol=1e-5)
    assert "aten::convolution.out" in program.file.operators


@pytest.mark.slow
def test_a_program_without_constants_has_no_extended_header() -> None:
    program = lower(Matmul(), (torch.randn(2, 3, 8), torch.randn(2, 8, 5)), isa=Isa.DSP)
    assert program.pte[HEADER_AT : HEADER_AT + 4] != HEADER_MAGIC
    assert parse_pte(program.pte).output_specs()[0].shape == (2, 3, 5)


@pytest.mark.slow
@pytest.mark.parametrize("last", [nn.Unflatten(1, (2, 4))])
def test_output_quantisation_through_a_final_view(last: Any) -> None:
    seed(4)
    program = lower(nn.Sequential(nn.Linear(16, 8), last), (torch.randn(1, 16),), isa=Isa.DSP)
    found = program.file.dataflow.output_quantizations[0]
    assert found is not None and found.dtype == "int8"
    comparison = compare(program.file, dialect_outputs(program), references(program), Tolerance())
    assert comparison.ok and comparison.outputs[0].max_quanta == 0


def test_calibration_decides_the_scale() -> None:
    seed(5)
    module, inputs, samples = nn.Linear(4, 4), (torch.rand(1, 4),), torch.rand(3, 1, 4)
    scales = []
    for factor in (1.0, 10.0):
        options = LoweringOptions(calibration=[(factor * sample,) for sample in samples])
        program = lower(module, inputs, isa=Isa.DSP, options=options)
        quantize = program.file.instructions[0]
        scales.append(program.file.values[quantize.args[1]].scalar)
    assert scales[1] == pytest.approx(10 * float(scales[0] or 0), rel=1e-3)


def test_module_and_inputs_are_left_alone() -> None:
    module, inputs = small_net()
    module.train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    lower(module, inputs, isa=Isa.DSP)
    assert module.training and inputs[0].is_contiguous()
    assert all(value.is_contiguous() for value in module.state_dict().values())
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


# --- failures --------------------------------------------------------------------------------------------


class Branches(nn.Module):  # type: ignore[misc, unused-ignore]
    def forward(self, x: Any) -> Any:
        return x + 1 if x.sum() > 0 else x - 1


@pytest.mark.slow
def test_calibrating_changes_no_inputs() -> None:
    """A module that works in place would be calibrated with other inputs than it is run with."""

    class InPlace(nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            x -= y
            return x

    x, y = torch.rand(4, 8), torch.rand(4, 8)
    program = lower(InPlace(), (x, y), isa=Isa.DSP)
    assert [given.data for given in program.inputs] == [to_host(x).data, to_host(y).data]


def test_what_cannot_be_exported_is_a_lowering_error() -> None:
    with pytest.raises(LoweringError, match=rf"Branches: export failed at {__file__}:\d+: ") as caught:
        lower(Branches(), (torch.ones(2),), isa=Isa.DSP)
    assert caught.value.__cause__ is not None and caught.value.log
    assert "torch.cond" in caught.value.hint and "quantize=False" not in caught.value.hint
    assert "in the report's details" in caught.value.hint


def test_the_end_of_a_run_is_no_failed_export() -> None:
    """A signal may come while the module runs or is exported: pytest raises from its handler."""

    class Interrupted(nn.Module):
        def forward(self, x: Any) -> Any:
            pytest.exit("ended by SIGTERM")

    with pytest.raises(pytest.exit.Exception):
        lower(Interrupted(), (torch.rand(1),), isa=Isa.DSP)


def test_wrong_calls_are_config_errors() -> None:
    with pytest.raises(ConfigError, match="tuple of tensors"):
        lower(nn.ReLU(), torch.ones(2), isa=Isa.DSP)  # type: ignore[arg-type, unused-ignore]


def test_a_missing_part_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tosa_serializer", None)
    with pytest.raises(ToolchainError, match=r"tosa_serializer(.|\n)*pip install 'executorch\[ethos-u\]"):
        feature("tosa_serializer")
    with pytest.raises(ToolchainError, match="NoSuchName"):
        feature("executorch.backends.cortex_m.target_config", "NoSuchName")
    with pytest.raises(ToolchainError, match="Python binding"):
        require_sizes(object())


def test_only_lowering_loads_torch() -> None:
    code = (
        "import sys, cortex_m_hil.lowering, cortex_m_hil.checks.lint, cortex_m_hil.checks.comparison.compare_outputs\n"
        "from cortex_m_hil.program.known_answer import known_answer\n"
        "from cortex_m_hil.program.program import parse_pte\n"
        "from cortex_m_hil.targets.cpu import Isa\n"
        "cortex_m_hil.lowering.required_scratch(parse_pte(known_answer(Isa.MVE).program), Isa.MVE)\n"
        "assert 'torch' not in sys.modules, 'torch was imported'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=REPOSITORY)


def test_quiet_is_over_when_it_is_over() -> None:
    logger = logging.getLogger("executorch")
    level, filters = logger.level, list(warnings.filters)
    with quiet():
        assert logger.level == logging.ERROR
    assert (logger.level, warnings.filters) == (level, filters)


# --- the cache -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_equal_contents_are_lowered_once() -> None:
    module, inputs = small_net()
    first = lower(module, inputs, isa=Isa.DSP)
    hits = remembered.hits
    again, same_inputs = small_net()
    assert again is not module
    second = lower(again, same_inputs, isa=Isa.DSP, name="renamed")
    assert second.pte == first.pte and second.name == "renamed" and remembered.hits > hits
    clear_cache()
    third = lower(again, same_inputs, isa=Isa.DSP)
    assert third.pte == first.pte and remembered.misses == 1


def test_the_least_recently_used_goes_first() -> None:
    cache: Lru[int] = Lru(2)
    cache.put("a", 0)
    cache.put("b", 1)
    cache.put(None, 9)
    assert cache.get("a") == 0
    cache.put("c", 2)
    assert [cache.get(key) for key in ("a", "b", "c", None)] == [0, None, 2, None] and len(cache) == 2
    assert (cache.hits, cache.misses, cache.unkeyed) == (3, 1, 1)


# --- references ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [1, 2])
def test_the_dialect_may_pool_images_of_any_size(channels: int) -> None:
    """As the operator of executorch 1.4.1 asks of torch within its kernel, and a program with torch's own operator."""
    image = (torch.arange(channels * 16 * 16) % 127).to(torch.int8).reshape(1, channels, 16, 16)
    image = image.to(memory_format=torch.channels_last)
    structure = torch.utils._pytree.tree_flatten((image,))[1]
    with torch.library._scoped_library("pools", "DEF") as library:
        library.define("pool(Tensor images) -> Tensor")
        library.impl("pool", lambda images: nn.functional.max_pool2d(images, 2), "CompositeExplicitAutograd")
        for dialect in (torch.ops.pools.pool, lambda images: nn.functional.max_pool2d(images, 2)):
            with pytest.raises(RuntimeError):
                dialect(image)
            found = HostModels(None, None, dialect, structure)((to_host(image),)).dialect
            assert found is not None and np.array_equal(found[0], dialect(image.float()).numpy())


def test_the_dialect_may_dilate_a_convolution_of_integers() -> None:
    def dialect(x: Any) -> Any:
        return nn.functional.conv2d(x, torch.ones(1, 2, 3, 3, dtype=x.dtype), dilation=2)

    image = torch.arange(2 * 8 * 8, dtype=torch.int32).reshape(1, 2, 8, 8)
    with pytest.raises(RuntimeError):
        dialect(image)
    structure = torch.utils._pytree.tree_flatten((image,))[1]
    found = HostModels(None, None, dialect, structure)((to_host(image),)).dialect
    assert found is not None and np.array_equal(found[0], dialect(image.double()).numpy())


def test_a_dialect_that_cannot_run_the_program_is_a_verdict_on_the_lowering() -> None:
    """And no exception of torch's: ExecuTorch has lowered what its own operators cannot run."""
    structure = torch.utils._pytree.tree_flatten((torch.zeros(1),))[1]
    models = HostModels(None, None, lambda x: x.reshape(5), structure)
    with pytest.raises(LoweringError, match="cannot run the lowered program: RuntimeError: shape") as caught:
        models((to_host(torch.zeros(1)),))
    assert "hil.run" in caught.value.hint


# --- tensors, seeds, known-answer programs ----------------------------------------------------------------------------


@given(st.permutations(range(4)), st.sampled_from([torch.float32, torch.int8, torch.int64, torch.bool]))
def test_tensors_keep_their_layout(order: list[int], dtype: Any) -> None:
    back = [order.index(dim) for dim in range(4)]
    tensor = torch.arange(120).reshape(2, 3, 4, 5).permute(order).to(dtype).contiguous().permute(back)
    host = to_host(tensor)
    assert host.spec.dim_order == tuple(tensor.dim_order())
    again = to_torch(host)
    assert again.stride() == tensor.stride() and torch.equal(again, tensor)


def test_numbers_and_what_is_no_input() -> None:
    assert to_torch(to_host(2.5)) == 2.5 and to_torch(to_host(True)) is True
    with pytest.raises(ConfigError, match="str"):
        to_host("x")
    with pytest.raises(ConfigError, match="bfloat16"):
        to_host(torch.zeros(2, dtype=torch.bfloat16))


@pytest.mark.first_only
@pytest.mark.parametrize("isa", Isa)
def test_known_answers_can_be_made_again(isa: Isa) -> None:
    made, kept = builder.known_answer_program(isa), known_answer(isa)
    file = parse_pte(kept.program, file_name(isa))
    assert dialect_outputs(made) == kept.expected and made.inputs == kept.inputs
    assert made.file.instructions == file.instructions
    for value in file.values:
        assert made.file.constant(value.index) == file.constant(value.index)
        assert made.file.values[value.index].scalar == value.scalar


def test_known_answers_tell_something() -> None:
    outputs = {known_answer(isa).expected for isa in Isa}
    assert len(outputs) == 1
    values = next(iter(outputs))[0].array()
    assert len(np.unique(values)) == values.size and np.ptp(values) > 3


# --- hints: right in each case where they appear -------------------------------------------------------------


class Gives(nn.Module):
    """Applies a function."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


class Rows(nn.Module):
    def forward(self, x: Any) -> Any:
        return x[: int(x[0].item())]


class Reads(nn.Module):
    def forward(self, x: Any) -> Any:
        return x + len(open(__file__).read())


def hint_of(module: Any, x: Any, error: type[HarnessError], **options: Any) -> str:
    with pytest.raises(error) as caught:
        lower(module, x if isinstance(x, tuple) else (x,), isa=Isa.DSP, options=LoweringOptions(**options))
    return caught.value.hint


@pytest.mark.slow
def test_another_float_than_float32_is_named() -> None:
    x = torch.randn(1, 4)
    for module, value, said in (
        (nn.ReLU(), x.double(), "ReLU: float64 is not supported (input 0): only float32 is quantised"),
        (
            nn.Linear(4, 3).double(),
            x.double(),
            "Linear: float64 is not supported (input 0, weight, bias): only float32",
        ),
        (nn.Linear(4, 3).half(), x.half(), "Linear: float16 is not supported (input 0, weight, bias): only float32"),
    ):
        with pytest.raises(LoweringError) as caught:
            lower(module, (value,), isa=Isa.DSP)
        assert str(caught.value).startswith(said) and "x.float()" in caught.value.hint
        assert [label for label, _ in caught.value.details] == ["stage"]
    mixed = hint_of(nn.Linear(4, 3), x.double(), ConfigError)
    assert mixed == "input 0 is float64, the module's parameters float32: x.to(torch.float32)"
    assert "to(torch.float32)" in hint_of(nn.ReLU(), x.bfloat16(), ConfigError)
    for own in (nn.Linear(4, 3), nn.Conv1d(1, 1, 2)):
        integers = hint_of(own, torch.ones(1, 4, dtype=torch.int64), ConfigError)
        assert integers == "input 0 is int64, the module's parameters float32: x.to(torch.float32)"
    assert "call the module" in hint_of(nn.Embedding(3, 2), torch.tensor([7]), ConfigError)


@pytest.mark.slow
@pytest.mark.parametrize("module", [Branches(), Rows()])
def test_what_depends_on_values_is_not_blamed_on_the_quantisation(module: nn.Module) -> None:
    hint = hint_of(module, torch.tensor([2.0, 1.0]), LoweringError)
    assert "torch.cond" in hint and "quantize=False" not in hint


def test_an_export_that_fails_otherwise_is_not_blamed_on_values() -> None:
    hint = hint_of(Reads(), torch.ones(2), LoweringError)
    assert "torch.export cannot trace it" in hint and "torch.cond" not in hint


@pytest.mark.parametrize(("result", "named"), [("text", "str"), (None, "NoneType"), ((), "nothing"), (3, "int")])
def test_a_module_without_tensors_as_outputs(result: object, named: str) -> None:
    with pytest.raises(ConfigError, match=f"Gives: forward returns {named}, and the outputs") as caught:
        lower(Gives(lambda x: result), (torch.ones(2),), isa=Isa.DSP)
    assert caught.value.hint.startswith("return a tensor")


@pytest.mark.parametrize(
    ("result", "where"),
    [
        (lambda x: (x, None), "[1]"),
        (lambda x: {"logits": x, "losses": [None, x, None]}, "['losses'][0] and ['losses'][2]"),
    ],
)
def test_none_among_the_outputs_of_forward_is_a_config_error(result: Any, where: str) -> None:
    with pytest.raises(ConfigError) as caught:
        lower(Gives(result), (torch.ones(2),), isa=Isa.DSP)
    assert caught.value.message == f"Gives: forward returns None at {where}, and the outputs of a program are tensors"
    assert "returns only the tensors" in caught.value.hint


def test_inputs_that_no_program_takes() -> None:
    x = torch.ones(1, 4)
    assert "without that input" in hint_of(Apply(lambda x, y: x), (x, None), ConfigError)
    assert hint_of(Gives(lambda x: x), x.bfloat16(), ConfigError) == "x.to(torch.float32)"


@pytest.mark.parametrize(
    ("draws", "operator"),
    [
        (lambda x: nn.functional.dropout(x, 0.5), "aten.dropout.default"),
        (lambda x: x + torch.randn(4), "aten.randn.default"),
        (lambda x: torch.bernoulli(torch.sigmoid(x)), "aten.bernoulli.default"),
    ],
)
def test_a_module_that_draws_random_numbers(draws: Any, operator: str) -> None:
    with pytest.raises(LoweringError) as caught:
        lower(Gives(draws), (torch.ones(1, 4),), isa=Isa.DSP)
    line = rf"{re.escape(__file__)}:\d+"
    assert re.fullmatch(f"Gives: forward draws random numbers at {line}, with {operator}", caught.value.message)
    assert ("self.training" in caught.value.hint) == ("dropout" in operator)


def test_a_dropout_that_is_not_active_draws_nothing() -> None:
    x = torch.ones(1, 4)
    attention = Gives(lambda x: nn.functional.scaled_dot_product_attention(x, x, x))
    for module, inputs in ((nn.Dropout(), x), (nn.RReLU(), x), (attention, torch.ones(1, 2, 3, 4))):
        export(module, (inputs,))


def test_a_module_on_the_meta_device_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="Linear: parameters or buffers are on device meta") as caught:
        lower(nn.Linear(4, 3, device="meta"), (torch.ones(1, 4),), isa=Isa.DSP)
    assert "load_state_dict" in caught.value.hint


def test_a_layer_without_a_shape() -> None:
    with pytest.raises(ConfigError, match=r"Sequential: 0.weight, 0.bias: parameters of lazy layers") as caught:
        lower(nn.Sequential(nn.LazyLinear(3)), (torch.ones(1, 4),), isa=Isa.DSP)
    assert caught.value.hint == "call the module once: module(*inputs)"


def in_bfloat16(layer: Any, x: Any) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return layer(x)


def test_what_has_no_graph_of_float32() -> None:
    x = torch.ones(1, 4)
    scripted = torch.jit.script(nn.Linear(4, 4))
    for module in (scripted, nn.Sequential(scripted, nn.ReLU())):
        assert "before torch.jit.script" in hint_of(module, x, LoweringError)
    cast = Apply(lambda layer, x: in_bfloat16(layer, x).float(), nn.Linear(4, 4))
    assert "torch.autocast" in hint_of(cast, x, LoweringError)


@pytest.mark.slow
def test_what_executorch_is_known_to_refuse_has_a_next_step_of_its_own() -> None:
    x = torch.rand(2, 3, 8)
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    assert "one nn.Linear each for query, key and value" in hint_of(attention, (x, x, x), LoweringError)
    product = Apply(lambda layer, x: layer(x) @ x.transpose(1, 2), nn.Linear(8, 8))
    assert "known bug 27" in hint_of(product, x, LoweringError)


@pytest.mark.slow
def test_a_node_that_a_pass_failed_at_is_named_with_the_users_line() -> None:
    attention = Apply(lambda layer, x: layer(x, x, x)[0], nn.MultiheadAttention(8, 2, batch_first=True))
    with pytest.raises(LoweringError, match=r"failed at node %\w+ at .*test_lowering.py:\d+: "):
        lower(attention, (torch.rand(2, 3, 8),), isa=Isa.DSP)


@pytest.mark.slow
def test_calibration_that_fails_is_a_mistake_of_the_call_and_says_why() -> None:
    x = torch.randn(1, 4)
    linear = nn.Linear(4, 3)
    assert "finite values" in hint_of(linear, x * float("nan"), ConfigError)
    assert "finite values" in hint_of(linear, x, ConfigError, calibration=[(x,), (x * float("nan"),)])
    # Of four rows the module would take a sample; its program takes one, and so does ExecuTorch's compiler.
    for sample in ((x[:, :3],), (x.double(),), (x, x), ("text",), (x.repeat(4, 1),)):
        assert "like the inputs" in hint_of(linear, x, ConfigError, calibration=[sample])
    with pytest.raises(ConfigError, match=r"sample 0 is \(Tensor float32\[1, 3\],\), the inputs are \(Tensor float32"):
        lower(linear, (x,), isa=Isa.DSP, options=LoweringOptions(calibration=[(x[:, :3],)]))


def test_a_module_that_cannot_be_calibrated_is_no_mistake_of_the_call() -> None:
    """Its own values are not finite; the inputs are."""
    assert "quantising" in hint_of(Gives(lambda x: torch.log(x - 5)), torch.ones(1, 4), LoweringError)


def test_inputs_that_are_no_dense_tensors_get_a_hint() -> None:
    assert "torch.from_numpy" in hint_of(nn.ReLU(), np.zeros(3), ConfigError)
    assert hint_of(nn.ReLU(), torch.eye(3).to_sparse(), ConfigError) == "x.to_dense()"
    assert "MyModule()" in hint_of(nn.ReLU, torch.ones(2), ConfigError)


@pytest.mark.slow
def test_tensors_of_five_dimensions_stay_as_they_are_in_channels_last() -> None:
    """`Module.to(memory_format=torch.channels_last)` fails on them."""
    program = lower(nn.Conv3d(1, 2, 2), (torch.randn(1, 1, 4, 4, 4),), isa=Isa.DSP)
    assert program.inputs[0].spec.dim_order == (0, 1, 2, 3, 4)


def test_a_pass_that_fails_is_told_with_the_reason_its_node_and_the_users_line() -> None:
    """ExecuTorch's own exception has the pass's name; why is in what that was raised from."""
    library = str(next(iter(feature("executorch", "__path__"))))
    trace = f'File "{__file__}", line 12, in forward\nFile "{library}/backends/cortex_m/passes/a_pass.py", line 70'

    def work() -> None:
        try:
            raise RuntimeError(f"no stride\n\nWhile executing %pool : [num_users=1]\n{trace}")
        except RuntimeError as reason:
            raise Exception("An error occurred when running the 'APass' pass") from reason

    with pytest.raises(LoweringError) as raised:
        run_stage("Net", "Cortex-M passes for DSP", "read on", work)
    assert raised.value.message == (
        f"Net: Cortex-M passes for DSP failed at node %pool at {__file__}:12: "
        "Exception: An error occurred when running the 'APass' pass; from RuntimeError: no stride"
    )
    assert "While executing %pool" in raised.value.log


@pytest.mark.first_only
@pytest.mark.parametrize("pool", [torch.nn.functional.avg_pool2d, torch.nn.functional.max_pool2d])
def test_a_pool_with_padding_and_without_a_stride_is_refused_by_executorch(pool: Callable[..., Any]) -> None:
    """Known bug 17 of docs/known_bugs.md: where this fails, ExecuTorch has mended it."""

    class Pool(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return pool(x, 3, padding=1)

    with pytest.raises(LoweringError, match="Expected length-2 sequence") as raised:
        lower(Pool(), (torch.rand(1, 4, 9, 9),), isa=Isa.DSP)
    assert f"at node %cortex_m_quantized_{pool.__name__}_default" in raised.value.message


@pytest.mark.slow
def test_what_names_its_parts_is_returned_as_a_tuple() -> None:
    class Largest(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return torch.topk(x, 2)

    with pytest.raises(LoweringError, match="No registered serialization name") as raised:
        lower(Largest(), (torch.randn(2, 6),), isa=Isa.SCALAR)
    assert "return tuple(torch.topk(x, k))" in raised.value.hint
