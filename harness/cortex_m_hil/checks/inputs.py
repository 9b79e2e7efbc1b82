"""Do these inputs fit this program? Where they do not, the call is wrong, and nothing is learnt about the program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cortex_m_hil.errors import ConfigError
from cortex_m_hil.program.dimensions import SIZES, misfit
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.tensor import HostTensor, TensorSpec


def misfits(program: Program, inputs: Sequence[HostTensor]) -> Iterator[tuple[str, str]]:
    """What does not fit in number, kind, dtype, shape, dim order, each with what to do about it."""
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
        taken = value.spec_of(given.spec.shape)
        if taken is None or not taken.same_memory(given.spec):
            most = "at most " if value.is_dynamic else ""
            yield f"input {number}: the program takes {most}{spec}, not {given.spec}", _fix(taken or spec, given.spec)
            alike = False
    if alike and (problem := misfit(program.dimensions, [given.spec.shape for given in inputs])):
        yield problem, SIZES


def require_fit(program: Program, inputs: Sequence[HostTensor], target: str, runtime: str) -> None:
    """ConfigError for the first misfit, and for inputs below their upper bounds, which `builtin` cannot run."""
    for problem, fix in misfits(program, inputs):
        raise ConfigError(problem, target=target, hint=fix)
    for number, (spec, given) in enumerate(zip(program.file.input_specs(), inputs, strict=True)):
        if runtime == "builtin" and given.spec.shape != spec.shape:
            what = f"input {number} is {given.spec}, and the runtime builtin runs the program at its upper bounds only"
            hint = f"an input of shape {list(spec.shape)}, or the runtime executorch, which takes every size"
            raise ConfigError(what, target=target, hint=hint)


def _fix(spec: TensorSpec, given: TensorSpec) -> str:
    if spec.kind is not given.kind:
        return "numbers are for scalars, tensors and arrays for tensors; each as the program was lowered with"
    if spec.dtype != given.dtype:
        return f'x.to(torch.{spec.dtype}), or array.astype("{spec.dtype}")'
    if spec.shape != given.shape:
        return "a program has the shapes that it was lowered with: lower the module with inputs like these for others"
    return f"the bytes would mean another tensor: {_relayout(spec)}"


def _relayout(spec: TensorSpec) -> str:
    """The torch expression that gives a tensor the spec's dim order."""
    order = spec.dim_order
    if order == tuple(range(len(order))):
        return "x.contiguous()"
    if order == (0, 2, 3, 1):
        return "x.to(memory_format=torch.channels_last)"
    if order == (0, 2, 3, 4, 1):
        return "x.to(memory_format=torch.channels_last_3d)"
    back = tuple(order.index(dim) for dim in range(len(order)))
    return f"x.permute({order}).contiguous().permute({back})"
