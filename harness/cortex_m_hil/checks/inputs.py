"""Do these inputs fit this program? Where they do not, the call is wrong, and nothing is learnt about the program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cortex_m_hil.errors import ConfigError
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
    for number, (spec, given) in enumerate(zip(specs, inputs, strict=True)):
        if not spec.same_memory(given.spec):
            yield f"input {number}: the program takes {spec}, not {given.spec}", _fix(spec, given.spec)


def require_fit(program: Program, inputs: Sequence[HostTensor], target: str) -> None:
    """ConfigError for the first misfit."""
    for problem, fix in misfits(program, inputs):
        raise ConfigError(problem, target=target, hint=fix)


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
