"""Host references of a program, and conversion of tensors to and from torch.

docs/architecture.md, "Truth and tolerance", explains the three references.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final
from unittest import mock

import numpy as np
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from cortex_m_hil.errors import ConfigError, HarnessError, LoweringError, is_pytests_own
from cortex_m_hil.host.compiler_state.state import compiler_state
from cortex_m_hil.lowering.cache_keys import unchecked_key
from cortex_m_hil.lowering.dialect_differences import exact_form, in_its_layout
from cortex_m_hil.lowering.disk_cache import Entry, disk
from cortex_m_hil.lowering.module_checks import plain_tensor
from cortex_m_hil.lowering.mutable_buffers import state_restored
from cortex_m_hil.lowering.rounding import disturbed, with_disturbed_floats
from cortex_m_hil.lowering.stages import stage_of
from cortex_m_hil.program.dataflow import Quantization
from cortex_m_hil.program.io_quantization import dequantized, input_quantization, quantized
from cortex_m_hil.program.program import DISTURBED, References
from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.schema import ValueKind
from cortex_m_hil.program.tensor import Array, HostTensor

_AS_TENSOR: Final = "torch.from_numpy(array), torch.tensor(values); they may lie in tuples, lists and dicts"


def to_host(value: Any) -> HostTensor:
    """Convert a torch tensor (in the dim order of its strides) or a Python number; raise ConfigError for others."""
    if isinstance(value, (bool, int, float)):
        return HostTensor.from_scalar(value)
    if value is None:
        what = "an input is None; tensors and numbers are supported"
        raise ConfigError(what, hint="wrap the module in one without that input, whose forward passes None")
    if not isinstance(value, torch.Tensor):
        raise ConfigError(f"an input is a {type(value).__name__}; tensors and numbers are supported", hint=_AS_TENSOR)
    tensor = plain_tensor(value).cpu()
    try:
        order = tuple(tensor.dim_order())
        return HostTensor.from_array(tensor.numpy(), order)
    except (RuntimeError, TypeError) as error:
        if isinstance(error, TypeError):
            problem = f"a tensor of {tensor.dtype} cannot be sent: NumPy has no such dtype"
            raise ConfigError(problem, hint="x.to(torch.float32)") from error
        problem = f"a tensor of {tensor.dtype} with strides {tensor.stride()} cannot be sent"
        raise ConfigError(problem, hint="x.contiguous(), where elements overlap") from error


def to_torch(value: HostTensor) -> Any:
    """Return a torch tensor with the strides of the spec's dim order, or a Python number."""
    if value.spec.kind is not ValueKind.TENSOR:
        return value.item()
    order = value.spec.dim_order
    stored = np.frombuffer(bytearray(value.data), dtype=value.spec.dtype)
    tensor = torch.from_numpy(stored.reshape([value.spec.shape[dim] for dim in order]))
    return tensor.permute([order.index(dim) for dim in range(len(order))])


def conform(values: Sequence[HostTensor], file: PteFile) -> tuple[HostTensor, ...]:
    """Return the values with the program's own specs where these describe the same bytes (dimensions of size 1).

    Floats for an input that the program takes as integers are quantised by the program's scale.

    Raises:
        ConfigError: a float to be quantised is NaN.
    """
    if len(values) != len(file.input_specs()):
        return tuple(values)
    values = [_quantised_for_input(file, number, one) for number, one in enumerate(values)]
    specs = [file.values[index].spec_of(value.spec.shape) for index, value in zip(file.inputs, values, strict=True)]
    return tuple(
        HostTensor(spec, value.data) if spec is not None and value.spec.same_memory(spec) else value
        for value, spec in zip(values, specs, strict=True)
    )


def _quantised_for_input(file: PteFile, number: int, given: HostTensor) -> HostTensor:
    by = input_quantization(file, number) if given.spec.dtype == "float32" else None
    if by is None:
        return given
    array = given.array()
    if np.isnan(array).any():
        raise ConfigError(f"input {number} has a NaN, which has no integer", hint="inputs without NaN")
    return HostTensor.from_array(quantized(array, by)[0], given.spec.dim_order)


@contextmanager
def kernel_arithmetic() -> Iterator[None]:
    """Make torch compute the dialect's operators like the target's kernels, within the block.

    Operators of `DIALECT_DIFFERENCES` round as kernels do, and results have the layout of the program. Two calls that
    torch 2.13 refuses are replaced: dilated convolution of int32 is computed in float64, which holds the same sums, and
    max pooling of channels-last int8 images of more than 127 pixels (executorch 1.4.1 calls it) is computed contiguous,
    with the same result.
    """
    functional = torch.nn.functional
    convolve, pool = functional.conv2d, functional.max_pool2d

    def exact(input: Any, weight: Any, bias: Any = None, *args: Any, **kwargs: Any) -> Any:
        if input.dtype != torch.int32:
            return convolve(input, weight, bias, *args, **kwargs)
        wide: list[Any] = [None if item is None else item.double() for item in (input, weight, bias)]
        return convolve(*wide, *args, **kwargs).to(torch.int32)

    def contiguous(input: Any, *args: Any, **kwargs: Any) -> Any:
        return pool(_in_rows(input) if input.dtype == torch.int8 else input, *args, **kwargs)

    patched = mock.patch.multiple(functional, conv2d=exact, max_pool2d=contiguous)
    with patched, _KernelArithmetic():  # type: ignore[no-untyped-call]
        yield


def _in_rows(images: Any) -> Any:
    """Return images in contiguous order, also those of one channel, which `Tensor.contiguous` leaves as they are."""
    return images.to(memory_format=torch.contiguous_format)


@contextmanager
def _dialect() -> Iterator[None]:
    """Run the dialect within the block; raise LoweringError where ExecuTorch cannot run its own lowered graph."""
    with stage_of("reference: dialect"), kernel_arithmetic():
        try:
            yield
        except (HarnessError, MemoryError):
            raise
        except Exception as error:
            if is_pytests_own(error):
                raise
            what = f"ExecuTorch's Python operators cannot run the lowered program: {type(error).__name__}: {error}"
            raise LoweringError(what, hint="hil.run runs it, and compares it with nothing") from error


class _KernelArithmetic(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's class is untyped
    supports_higher_order_operators = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, torch._ops.HigherOrderOperator):  # torch.cond and the like, which call graphs
            return func(*(self._run_within_self(one) if callable(one) else one for one in args), **kwargs)
        _require_numbers(func, args)
        if (exact := exact_form(func)) is not None:
            return in_its_layout(func, args, kwargs, exact(*args, **kwargs))
        if func is not torch.ops.aten.max_pool2d_with_indices.default or args[0].dtype != torch.int8:
            return in_its_layout(func, args, kwargs, func(*args, **kwargs))
        was = torch._prims_common.suggest_memory_format(args[0])
        pooled = func(_in_rows(args[0]), *args[1:], **kwargs)
        return tuple(one.contiguous(memory_format=was) for one in pooled)  # later operators read the layout

    def _run_within_self(self, graph: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            with self:
                return graph(*args)

        return run


def _require_numbers(operator: Any, args: Any) -> None:
    """Raise ConfigError where a NaN is quantised: its conversion is undefined in C, so no output would be right."""
    if not operator._schema.name.partition("::")[2].startswith("quantize_per_"):
        return
    places = args[0].isnan().nonzero()
    if len(places):
        where = f"{len(places)} of {args[0].numel()} elements, the first at {places[0].tolist()}"
        what = f"{operator._schema.name} is given a NaN in {where}: it has no integer, and cores differ in it"
        raise ConfigError(what, hint="inputs without NaN, and with which the module makes none, as 0/0 does")


def as_floats(inputs: tuple[HostTensor, ...], quantised: Mapping[int, Quantization]) -> tuple[HostTensor, ...]:
    """Return a program's inputs for the float models: integers replaced by the numbers that they represent."""
    found = list(inputs)
    for number, by in quantised.items():
        found[number] = HostTensor.from_array(dequantized(inputs[number].array(), by), inputs[number].spec.dim_order)
    return tuple(found)


@dataclass(frozen=True, eq=False)
class HostModels:
    """The models that compute the references of one program; each callable takes the module's own arguments.

    Attributes:
        eager: the float module; None where only the lowered program is known.
        quantized: the fake-quantised module; None for a float program.
        dialect: the lowered program, run by ExecuTorch's Python operators.
        structure: the pytree of the module's arguments.
        states: the buffers that are the program's states, which each model has too.
        quantised_inputs: by number, the quantisation of inputs that are integers for the program and floats for the
            module.
    """

    eager: Any | None
    quantized: Any | None
    dialect: Any
    structure: Any
    states: tuple[str, ...] = ()
    quantised_inputs: Mapping[int, Quantization] = field(default_factory=dict)

    def __call__(self, inputs: tuple[HostTensor, ...]) -> References:
        """Return references for the inputs, from the initial state.

        Raise ConfigError if the number of inputs is wrong.
        """
        found = self.undisturbed(inputs)
        leaves = _leaves(as_floats(inputs, self.quantised_inputs), self.structure)
        with stage_of("reference: disturbed runs"):
            more = self._runs(disturbed(self.quantized), self.quantized, leaves)
        with _dialect():
            leaves = _leaves(inputs, self.structure)
            floats = self._runs(with_disturbed_floats(self.dialect), self.dialect, leaves)
        return replace(found, disturbed=more, disturbed_floats=floats)

    def undisturbed(self, inputs: tuple[HostTensor, ...]) -> References:
        """Return the references of `__call__` without disturbed runs, which take most of the time."""
        leaves = _leaves(inputs, self.structure)
        with _dialect(), state_restored(self.dialect, self.states):
            dialect = _run(self.dialect, leaves, self.structure)
        leaves = _leaves(as_floats(inputs, self.quantised_inputs), self.structure)
        with stage_of("reference: fake-quant"), state_restored(self.quantized, self.states):
            quantized = _run(self.quantized, leaves, self.structure)
        return References(dialect, quantized, _run(self.eager, leaves, self.structure))

    def _runs(
        self, disturbed_models: Sequence[Callable[..., Any]], model: Any, leaves: list[Any]
    ) -> tuple[tuple[Array, ...], ...]:
        """Return the outputs of each disturbed run of a model, from the initial state."""
        found = []
        for run in disturbed_models:
            with state_restored(model, self.states):
                found.append(_run(run, leaves, self.structure) or ())
        return tuple(found)

    def stream(
        self, frames: Sequence[tuple[HostTensor, ...]], state: Sequence[HostTensor], floats: bool
    ) -> tuple[References, ...]:
        """Return references for consecutive frames, each with the outputs followed by the states after the frame.

        Fake-quant is not run with disturbances; the dialect is, if there are floats to disturb.

        Args:
            frames: the inputs of each frame.
            state: the state before the first frame.
            floats: whether the float models are run in addition to the dialect.
        """
        leaves = [_leaves(inputs, self.structure) for inputs in frames]
        with _dialect():
            dialect = self._streamed(self.dialect, leaves, state)
            runs = [self._streamed(self.dialect, leaves, state, run) for run in with_disturbed_floats(self.dialect)]
        leaves = [_leaves(as_floats(inputs, self.quantised_inputs), self.structure) for inputs in frames]
        with stage_of("reference: fake-quant"):
            quantized = self._streamed(self.quantized if floats else None, leaves, state)
        eager = self._streamed(self.eager if floats else None, leaves, state)
        return tuple(
            References(*found, disturbed_floats=tuple(run[number] or () for run in runs))
            for number, found in enumerate(zip(dialect, quantized, eager, strict=True))
        )

    def _streamed(
        self,
        model: Any | None,
        frames: list[list[Any]],
        state: Sequence[HostTensor],
        run: Callable[..., Any] | None = None,
    ) -> list[tuple[Array, ...] | None]:
        """Return a model's outputs and states for each frame, as `run` computes them; None for each without a model."""
        if model is None:
            return [None] * len(frames)
        found: list[tuple[Array, ...] | None] = []
        with torch.no_grad(), state_restored(model, self.states):
            buffers = [model.get_buffer(name) for name in self.states]
            for buffer, tensor in zip(buffers, state, strict=True):
                buffer.copy_(to_torch(tensor))
            for number, leaves in enumerate(frames):
                try:
                    outputs = _run(run or model, leaves, self.structure) or ()
                except ConfigError as error:
                    error.message = f"frame {number}: {error.message}"
                    raise
                found.append((*outputs, *(np.array(buffer.detach().cpu().numpy()) for buffer in buffers)))
        return found


@dataclass(frozen=True, eq=False)
class RememberedReferences:
    """The references of a program, with those of the dialect and of fake-quant cached on disk.

    The float module is always run. Entries on disk come from the unchanged compiler: while the compiler in memory is
    changed, entries are read but not written.

    Attributes:
        key: the key of the program; None: nothing is cached.
        eager: the float module.
        structure: the pytree of the module's arguments.
        models: returns the host models; lowers the program again if needed.
        problem: returns how the compiler in memory was changed, "" if it was not.
        quantised_inputs: as in `HostModels`.
    """

    key: str | None
    eager: Any
    structure: Any
    models: Callable[[], HostModels]
    problem: Callable[[], str] = compiler_state.problem
    quantised_inputs: Mapping[int, Quantization] = field(default_factory=dict)

    def __call__(self, inputs: tuple[HostTensor, ...], floats: tuple[HostTensor, ...] | None = None) -> References:
        """Return references for the inputs; raise ConfigError if their number is wrong.

        `floats` are the inputs for the float module; None: the inputs, or the numbers that they represent.
        """
        _leaves(inputs, self.structure)
        values = [(value.spec.kind.value, value.spec.shape, value.spec.dim_order, value.data) for value in inputs]
        dtypes = [str(value.spec.dtype) for value in inputs]
        key = None if self.key is None else unchecked_key(self.key, dtypes, values)
        entry = disk.get_or_make("references", key, lambda: self._computed(inputs), lambda: not self.problem())
        found = {name: _outputs(entry, name) for name in ("dialect", "quantized")}
        disturbed, disturbed_floats = (
            tuple(_outputs(entry, f"{name} {number}") or () for number in range(entry[name])) for name in DISTURBED
        )
        leaves = _leaves(as_floats(inputs, self.quantised_inputs) if floats is None else floats, self.structure)
        eager = _run(self.eager, leaves, self.structure)
        return References(**found, eager=eager, disturbed=disturbed, disturbed_floats=disturbed_floats)

    def _computed(self, inputs: tuple[HostTensor, ...]) -> Entry:
        models = self.models()
        if self.key is None:
            return _entry(models(inputs))
        with compiler_state.own_work():
            return _entry(models(inputs))


def _entry(found: References) -> dict[str, Any]:
    """Return the part of references that is kept on disk: arrays by name and number, and how many there are."""
    named = {"dialect": found.dialect, "quantized": found.quantized}
    runs = {name: getattr(found, name) for name in DISTURBED}
    named |= {f"{name} {number}": outputs for name in DISTURBED for number, outputs in enumerate(runs[name])}
    arrays = {f"{name}/{i}": one for name, outputs in named.items() for i, one in enumerate(outputs or ())}
    counts = {name: None if outputs is None else len(outputs) for name, outputs in named.items()}
    return {**arrays, "counts": counts, **{name: len(some) for name, some in runs.items()}}


def _outputs(entry: Entry, name: str) -> tuple[Array, ...] | None:
    count = entry["counts"][name]
    return None if count is None else tuple(entry[f"{name}/{number}"] for number in range(count))


def _leaves(inputs: tuple[HostTensor, ...], structure: Any) -> list[Any]:
    """Return the module's arguments as a flat list; raise ConfigError if their number is wrong."""
    if len(inputs) != structure.num_leaves:
        problem = f"the module takes {structure.num_leaves} inputs, {len(inputs)} were given"
        raise ConfigError(problem, hint="give as many as the program was lowered with")
    return [to_torch(item) for item in inputs]


def _run(model: Any | None, leaves: list[Any], structure: Any) -> tuple[Array, ...] | None:
    if model is None:
        return None
    # Modules may write to their inputs, so every run has its own copy, strides kept.
    fresh = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    with torch.no_grad():
        outputs = model(*pytree.tree_unflatten(fresh, structure))
    found = pytree.tree_flatten(outputs)[0]
    return tuple(
        np.array(item.detach().cpu().numpy()) if isinstance(item, torch.Tensor) else np.array(item) for item in found
    )
