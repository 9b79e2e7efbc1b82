"""Checks that inputs fit a program: a misfit is an error of the call, and no verdict on the program.

No value of a user is changed before it reaches a program, unless the user asks for it (`InputQuantizer`). These checks
serve every source of inputs: the API, files, data sets and bundles.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from cortex_m_hil.errors import ConfigError
from cortex_m_hil.errors.text import shown
from cortex_m_hil.program.dataflow import InputQuantization, Quantization
from cortex_m_hil.program.io_quantization import QUANTA, input_quantization, output_quantization, quantized
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.schema import ValueKind
from cortex_m_hil.program.tensor import SIZES, Array, HostTensor, TensorSpec, misfit

_WHOLE: Final = {ValueKind.INT: "1", ValueKind.BOOL: "True", ValueKind.DOUBLE: "1.0"}


@dataclass(frozen=True)
class Taken:
    """The spec of an input or output, and its quantisation as far as it is known.

    Attributes:
        spec: dtype, shape and layout.
        quantization: scale and zero point of an integer tensor, complete or as far as they are known; None: unknown,
            or it is a float tensor.
        of_floats: scale and zero point of the quantize operator next to a float input, or of the dequantize operator
            next to a float output; None: the program has no such operator.
        is_bound: whether the shape is an upper bound.
    """

    spec: TensorSpec
    quantization: Quantization | InputQuantization | None = None
    of_floats: InputQuantization | None = None
    is_bound: bool = False

    @classmethod
    def of_input(cls, file: PteFile, number: int) -> Taken:
        """Return the spec and quantisation of an input. Raise ProgramRejected as `input_quantization` does."""
        data = file.dataflow
        known = input_quantization(file, number) or data.input_quantizations[number]
        is_bound = file.values[file.inputs[number]].is_dynamic
        return cls(file.input_specs()[number], known, data.float_input_quantizations[number], is_bound)

    @classmethod
    def of_output(cls, file: PteFile, number: int) -> Taken:
        """Return the spec and quantisation of an output."""
        known = output_quantization(file, number), file.dataflow.output_quantizations[number]
        own, behind = (one and InputQuantization(one.scale, one.zero_point) for one in known)
        return cls(file.output_specs()[number], own, behind, file.values[file.outputs[number]].is_dynamic)

    def __str__(self) -> str:
        known = self.quantization
        if known is None:
            return str(self.spec)
        scale = f"scale {known.scale:.9g}, " if known.scale is not None else ""
        return f"{self.spec} ({scale}zero point {known.zero_point})"

    @property
    def described(self) -> str:
        """Return dtype, logical shape and quantisation as text.

        The dim order is left out, as arrays have logical shapes.
        """
        spec = self.spec
        if spec.kind is not ValueKind.TENSOR:
            return f"a single {spec.kind.value}"
        logical = replace(self, spec=TensorSpec.contiguous(spec.dtype, spec.shape))
        return f"{'at most ' if self.is_bound else ''}{logical}"


# --- values --------------------------------------------------------------------------------------------------


def changed(values: Array, dtype: str) -> Array:
    """Return a mask of the values, including NaN and infinities, that a cast to the dtype would change."""
    wanted = np.dtype(dtype)
    if values.dtype.name == wanted.name:
        return np.zeros(values.shape, np.bool_)
    if wanted.kind == "b":
        return np.asarray((values != 0) & (values != 1))
    if values.dtype.kind == "b":
        return np.zeros(values.shape, np.bool_)
    with np.errstate(all="ignore"):
        cast = values.astype(wanted)
        if values.dtype.kind == wanted.kind == "f":
            return np.asarray((cast.astype(values.dtype) != values) & ~np.isnan(values))
        if values.dtype.kind == "f":
            wide, bounds = values.astype(np.float64), np.iinfo(wanted)
            return np.asarray(~((wide == np.rint(wide)) & (wide >= bounds.min) & (wide < float(bounds.max) + 1)))
        if wanted.kind == "f":
            bounds = np.iinfo(values.dtype)
            wide = cast.astype(np.float64)
            inside = (wide >= bounds.min) & (wide < float(bounds.max) + 1)
            return np.asarray(~inside | (np.where(inside, wide, 0).astype(values.dtype) != values))
        return np.asarray((cast.astype(values.dtype) != values) | ((cast < 0) != (values < 0)))


@dataclass
class InputQuantizer:
    """Quantises floats that are given for integer inputs, if the user asks for it, and counts values that saturate.

    Attributes:
        is_asked: whether to quantise; if not, values are never changed.
        values: the number of values that were quantised.
        saturated: the number of values beyond the quantised range.
    """

    is_asked: bool = True
    values: int = 0
    saturated: int = 0

    @property
    def share(self) -> float | None:
        """Return the share of the quantised values that saturated; None where no value was quantised."""
        return self.saturated / self.values if self.values else None

    def __str__(self) -> str:
        return f"{self.saturated} of {self.values} values of its inputs saturate" if self.values else ""

    def quantize(self, values: Array, taken: Taken, place: str) -> Array:
        """Return values as quanta by the program's own scale, if they are floats and the input takes quanta.

        All other values are returned unchanged.

        Raises:
            ConfigError: the program does not tell the scale; a value is NaN; or the values are integers of another
                dtype than the input's, so that it is unclear whether they are quantised already.
        """
        is_other = values.dtype.name != taken.spec.dtype and values.dtype.kind in "iuf"
        if not (self.is_asked and is_other and taken.spec.dtype in QUANTA):
            return values
        what = f"{place}: {values.dtype.name}, to be quantised for {taken}"
        if values.dtype.kind != "f":
            hint = (
                f"floats for numbers, which are quantised; {taken.spec.dtype} for quanta, which are taken as they are"
            )
            raise ConfigError(f"{what}: are these numbers, or quanta?", hint=hint)
        if not isinstance(taken.quantization, Quantization):
            raise ConfigError(what, hint=_quantise(taken))
        if count := int(np.isnan(values).sum()):
            raise ConfigError(f"{what}: {count} of {values.size} are NaN", hint="inputs without NaN")
        found, saturated = quantized(values, taken.quantization)
        self.values += values.size
        self.saturated += saturated
        return found


def converted(
    values: Array, taken: Taken, place: str, *, is_computed: bool = False, quantizer: InputQuantizer | None = None
) -> Array:
    """Return the values in the dtype of an input, each of them unchanged.

    Args:
        values: numbers of any dtype.
        taken: the spec of the input.
        place: the name of the values in messages.
        is_computed: whether the values come from a computation that the caller asked for. Then they are rounded for a
            float input, and whole floats are accepted for an integer input.
        quantizer: quantises floats for an input of quanta; None: floats are not to be quantised.

    Raises:
        ConfigError: the conversion would change a value, or floats are given for an integer input.
    """
    values = values if quantizer is None else quantizer.quantize(values, taken, place)
    wanted = np.dtype(taken.spec.dtype)
    wrong = changed(values, taken.spec.dtype)
    if is_computed and wanted.kind == "f":
        with np.errstate(over="ignore"):
            wrong = np.isfinite(values) & ~np.isfinite(values.astype(wanted))
    if wrong.any() or (values.dtype.kind == "f" and wanted.kind in "iu" and not is_computed):
        found = f"{place}: {values.dtype.name}, and the model's input takes {taken}{_wrong_text(values, wrong, wanted)}"
        raise ConfigError(found, hint=_COMPUTED if is_computed else dtype_advice(taken, values))
    return np.ascontiguousarray(values.astype(wanted))


_COMPUTED: Final = (
    "a scale and a zero point with which every number is one of the input's; nothing is rounded or clipped"
)


def lost(taken: Taken, values: Array) -> str:
    """Return a clause for a message: how many values the input's dtype cannot represent, with an example."""
    return _wrong_text(values, changed(values, taken.spec.dtype), np.dtype(taken.spec.dtype))


def _wrong_text(values: Array, wrong: Array, wanted: np.dtype[np.generic]) -> str:
    if not wrong.any():
        return ""
    return f"; {int(wrong.sum())} of {values.size} values are no {wanted.name}, such as {values[wrong][0].item()!r}"


# --- advice --------------------------------------------------------------------------------------------------


def dtype_advice(taken: Taken, values: Array) -> str:
    """Return advice about values of another dtype than an input's; it never suggests a silent change of values."""
    dtype = taken.spec.dtype
    if values.dtype.kind == "f" and dtype in QUANTA:
        return _quantise(taken)
    wrong = changed(values, dtype)
    cast = f'x.to(torch.{dtype}), or array.astype("{dtype}")'
    if not wrong.any():
        if values.dtype.name in QUANTA and taken.of_floats is not None:
            return f"for quantised values {_dequantised(taken.of_floats)}; for values as they are {cast}"
        return f"{cast}, which changes none of these values"
    if np.dtype(dtype).kind == "f":
        with np.errstate(all="ignore"):
            if np.isinf(values[wrong].astype(dtype)).any():
                return f"{dtype} ends at {np.finfo(dtype).max:.3g}: scale the values as the model was trained"
        return f"round the values where they are made, so that references get the same ones: {cast}"
    if values.dtype.name == "uint8" and dtype == "int8":
        return 'pixels of a model that takes them less 128 are (x.astype("int16") - 128).astype("int8")'
    return f"{dtype} has no place for them: give what the model was trained on"


def _dequantised(known: InputQuantization) -> str:
    scale = f"{known.scale:.9g}" if known.scale is not None else "scale"
    return f'(array.astype("float32") {-known.zero_point:+d}) * {scale}'.replace(" +", " + ").replace(" -", " - ")


def _quantise(taken: Taken) -> str:
    bounds, known = np.iinfo(taken.spec.dtype), taken.quantization
    scale = f"{known.scale:.9g}" if known is not None and known.scale is not None else "scale"
    zero_point = f"{known.zero_point:+d}".replace("+", "+ ").replace("-", "- ") if known is not None else "+ zero_point"
    call = f"numpy.clip(numpy.rint(x / {scale}) {zero_point}, {bounds.min}, {bounds.max})"
    formula = f'{call}.astype("{taken.spec.dtype}")'
    if isinstance(known, Quantization):
        return "quantize_inputs=True, or --quantize-inputs, quantises them by that scale; it says how many saturate"
    if known is None:
        return f"the program does not say its scale and zero point, the tool that quantised it does: {formula}"
    if known.scale is None:
        return f"the program does not say its scale, the tool that quantised it does: {formula}"
    return f"quantise the values: {formula}"


# --- inputs of a program -------------------------------------------------------------------------------------


def arrange(program: Program, arrays: Sequence[Any], quantizer: InputQuantizer | None = None) -> tuple[HostTensor, ...]:
    """Return arrays of logical shape (numbers for scalars), laid out in the program's dim orders.

    Only `quantizer` changes values; `require_fit` checks dtypes and shapes.
    """
    specs = program.file.input_specs()
    orders = [specs[number].dim_order if number < len(specs) else () for number in range(len(arrays))]
    found = tuple(_sent(number, *both) for number, both in enumerate(zip(arrays, orders, strict=True)))
    if quantizer is None:
        return found
    return tuple(
        _quantized(quantizer, program.file, number, one) if number < len(specs) else one
        for number, one in enumerate(found)
    )


def _quantized(quantizer: InputQuantizer, file: PteFile, number: int, given: HostTensor) -> HostTensor:
    if given.spec.kind is not ValueKind.TENSOR:
        return given
    found = quantizer.quantize(given.array(), Taken.of_input(file, number), f"input {number}")
    return HostTensor.from_array(found, given.spec.dim_order)


def _sent(number: int, value: Any, order: tuple[int, ...]) -> HostTensor:
    try:
        if isinstance(value, HostTensor):
            return value
        if isinstance(value, (bool, int, float)):
            return HostTensor.from_scalar(value)
        array = as_array(value)
        return HostTensor.from_array(array, order if len(order) == array.ndim else None)
    except ConfigError as error:
        error.message = f"input {number}: {error.message}"
        raise


def as_array(value: Any) -> Array:
    """Return an array, tensor or NumPy scalar as an array; raise ConfigError for a value without a dtype.

    For a list NumPy would choose a dtype, which may not represent its values.
    """
    if isinstance(value, (list, tuple)):
        raise ConfigError(f"{shown(value)} has no dtype", hint="an array: numpy.array(values), or torch.tensor(values)")
    try:
        array: Array = np.asanyarray(value)
    except (RuntimeError, TypeError, ValueError) as error:
        first = (str(error).splitlines() or [""])[0]
        raise ConfigError(f"{shown(value)} is no array: {first}", hint="x.detach().numpy()") from error
    if array.dtype.kind not in "biufc":
        raise ConfigError(f"{shown(value)} is no tensor, array or number", hint="an array of numbers: numpy.array(…)")
    return array


def input_misfits(program: Program, inputs: Sequence[HostTensor]) -> Iterator[tuple[str, str]]:
    """Yield each misfit of the inputs, and the advice for it.

    A misfit is a wrong number of inputs, a wrong kind, dtype, shape or dim order, another value than the number that is
    built into the program, or a NaN that would be quantised.
    """
    specs = program.file.input_specs()
    if len(specs) != len(inputs):
        wanted = (
            f"the program takes ({''.join(f'{spec}, ' for spec in specs).rstrip(' ' if len(specs) == 1 else ', ')})"
        )
        yield f"the program has {len(specs)} input{'' if len(specs) == 1 else 's'}, {len(inputs)} given", wanted
        return
    alike = True
    for number, (index, given) in enumerate(zip(program.file.inputs, inputs, strict=True)):
        value, spec = program.file.values[index], specs[number]
        fitting = value.spec_of(given.spec.shape)
        built_in = None if isinstance(value.scalar, str | None) else HostTensor.from_scalar(value.scalar)
        if fitting is None or not fitting.same_memory(given.spec):
            array, taken = given.array(), Taken.of_input(program.file, number)
            most = "at most " if taken.is_bound else ""
            shown = taken if given.spec.dtype != spec.dtype else spec
            what = f"input {number}: the program takes {most}{shown}, not {given.spec}"
            of_one_kind = given.spec.kind is spec.kind is ValueKind.TENSOR
            yield what + (lost(taken, array) if of_one_kind else ""), _fix(fitting, taken, given, array)
            alike = False
        elif built_in is not None and built_in != given:
            what = f"input {number} is {given.item()}, and the program was lowered with {built_in.item()}"
            fix = "ExecuTorch takes no other number: lower the module with this one, or make it a tensor"
            yield f"{what}, which is built into it", fix
            alike = False
        elif what := _quantised_nan(program.file, number, given):
            yield what, "inputs without NaN"
    if alike and (problem := misfit(program.dimensions, [given.spec.shape for given in inputs])):
        yield problem, SIZES


def _quantised_nan(file: PteFile, number: int, given: HostTensor) -> str:
    """Return an error text for an input that has a NaN and is quantised by the program; else "".

    The conversion of NaN to an integer is undefined in C, so no output would be right.
    """
    if given.spec.kind is not ValueKind.TENSOR or not given.spec.dtype.startswith("float"):
        return ""
    places = np.argwhere(np.isnan(given.array()))
    if not len(places) or (quantize := file.dataflow.input_quantizes[number]) is None:
        return ""
    where = f"{len(places)} of {given.spec.numel} elements, the first at {places[0].tolist()}"
    name = quantize.operator.removesuffix(".out")
    return f"input {number}: {name} is given a NaN in {where}: it has no integer, and cores differ in it"


def require_fit(program: Program, inputs: Sequence[HostTensor], target: str, runtime: str) -> None:
    """Raise ConfigError for the first misfit, and for inputs below their upper bounds, which `builtin` cannot run."""
    for problem, fix in input_misfits(program, inputs):
        raise ConfigError(problem, target=target, hint=fix)
    for number, (spec, given) in enumerate(zip(program.file.input_specs(), inputs, strict=True)):
        if runtime == "builtin" and given.spec.shape != spec.shape:
            what = f"input {number} is {given.spec}, and the runtime builtin runs the program at its upper bounds only"
            hint = f"an input of shape {list(spec.shape)}, or the runtime executorch, which takes every size"
            raise ConfigError(what, target=target, hint=hint)


def _fix(fitting: TensorSpec | None, taken: Taken, given: HostTensor, array: Array) -> str:
    spec = fitting or taken.spec
    if spec.kind is not given.spec.kind:
        if ValueKind.TENSOR not in (spec.kind, given.spec.kind):
            return f"a number as the program was lowered with: {scalar_example(spec.kind)} for one"
        return "numbers are for scalars, tensors and arrays for tensors; each as the program was lowered with"
    if spec.dtype != given.spec.dtype:
        return dtype_advice(taken, array)
    if spec.shape != given.spec.shape:
        return "a program has the shapes that it was lowered with: lower the module with inputs like these for others"
    return f"the bytes would mean another tensor: {_relayout(spec)}"


def scalar_example(kind: ValueKind) -> str:
    """Return an example of a Python number of that kind."""
    return _WHOLE[kind]


def _relayout(spec: TensorSpec) -> str:
    """Return the torch expression that gives a tensor the spec's dim order."""
    order = spec.dim_order
    if order == tuple(range(len(order))):
        return "x.contiguous()"
    if order == (0, 2, 3, 1):
        return "x.to(memory_format=torch.channels_last)"
    if order == (0, 2, 3, 4, 1):
        return "x.to(memory_format=torch.channels_last_3d)"
    back = tuple(order.index(dim) for dim in range(len(order)))
    return f"x.permute({order}).contiguous().permute({back})"
