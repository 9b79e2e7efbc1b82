"""Programs with state: buffers that forward changes, and that keep their contents until the next call.

torchao's convert_pt2e treats every buffer as a constant. It folds a quantised buffer into the graph, so that a program
would read the initial value in every call (pytorch/executorch #4627, #11782); and calibration leaves its last values in
the buffer. So a module is quantised with its state as inputs and outputs (`ExplicitStateProgram`), which are turned
back into buffers afterwards (`ExplicitStateProgram.bind`).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from cortex_m_hil.errors import LoweringError
from cortex_m_hil.lowering.installed_executorch import load_torch

_INITIALISED: Final = "et_init_buffer"
"""The metadata key by which ExecuTorch's emitter writes a buffer's initial value (exir/passes/init_mutable_pass.py)."""
_INPUTS: Final = "of what it is given forward may change nothing: x.clone() first"


@dataclass(frozen=True, eq=False)
class ExplicitStateProgram:
    """An exported program that takes its states as inputs and returns them as outputs.

    Attributes:
        program: the `torch.export.ExportedProgram`; its first inputs are the states of `names`, its first output is a
            tuple of the states of `changed`.
        names: the buffers that forward changes, in the order of the program's inputs.
        changed: the same buffers, in the order in which forward changes them.
        initial: the initial value of each state, by name.
        outputs: the structure of the outputs without the states.
    """

    program: Any
    names: tuple[str, ...]
    changed: tuple[str, ...]
    initial: Mapping[str, Any]
    outputs: Any

    @classmethod
    def of(cls, exported: Any, title: str) -> ExplicitStateProgram:
        """Make the state of an exported program explicit; raise LoweringError where forward also changes an input."""
        # Writes to buffers, and to views of buffers, become values that the program returns.
        program = copy.deepcopy(exported).run_decompositions({})
        kinds, signature = _kinds(), program.graph_signature
        if any(one.kind is kinds.OutputKind.USER_INPUT_MUTATION for one in signature.output_specs):
            raise LoweringError(f"{title}: forward changes a buffer, and one of its inputs", hint=_INPUTS)
        changed = written_buffers(program)
        names = tuple(one.target for one in signature.input_specs if one.target in changed)
        held = {**program.state_dict, **program.constants}
        initial = {name: held[name].detach().clone() for name in names}
        outputs = program.module_call_graph[0].signature.out_spec
        inputs = (*(initial[name] for name in names), *program.example_inputs[0])
        made = _with_signature(
            program,
            [
                kinds.InputSpec(kinds.InputKind.USER_INPUT, one.arg, None) if one.target in initial else one
                for one in signature.input_specs
            ],
            [
                kinds.OutputSpec(kinds.OutputKind.USER_OUTPUT, one.arg, None) if one.target in initial else one
                for one in signature.output_specs
            ],
            {name: value for name, value in held.items() if name not in initial},
            inputs,
            _structure((tuple(changed), _unflattened(outputs))),
        )
        return cls(made, names, changed, initial, outputs)

    @property
    def first(self) -> tuple[Any, ...]:
        """Return the initial states, in the order of `names`."""
        return tuple(self.initial[name] for name in self.names)

    def next(self, given: Any) -> tuple[Any, ...]:
        """Return the states for the next call, taken from the outputs of the last call."""
        by_name = dict(zip(self.changed, given[0], strict=True))
        return tuple(by_name[name].detach() for name in self.names)

    def bind(self, exported: Any, inputs: tuple[Any, ...]) -> Any:
        """Turn the state's inputs and outputs back into buffers, in `exported`, an export of the quantised program.

        `inputs` are the example inputs without the states.
        """
        kinds, signature = _kinds(), exported.graph_signature
        given, left = iter(self.names), iter(self.changed)

        def taken(spec: Any) -> Any:
            name = next(given, None) if spec.kind is kinds.InputKind.USER_INPUT else None
            return spec if name is None else kinds.InputSpec(kinds.InputKind.BUFFER, spec.arg, name, True)

        def returned(spec: Any) -> Any:
            name = next(left, None)
            return spec if name is None else kinds.OutputSpec(kinds.OutputKind.BUFFER_MUTATION, spec.arg, name)

        return _with_signature(
            exported,
            [taken(one) for one in signature.input_specs],
            [returned(one) for one in signature.output_specs],
            {**exported.state_dict, **exported.constants, **self.initial},
            inputs,
            self.outputs,
        )


def written_buffers(program: Any) -> tuple[str, ...]:
    """Return the buffers that the signature of an exported program lists as changed, in that order."""
    mutation = _kinds().OutputKind.BUFFER_MUTATION
    return tuple(one.target for one in program.graph_signature.output_specs if one.kind is mutation)


def keep_initial_values(program: Any) -> None:
    """Make ExecuTorch write the initial values of the buffers that an edge program changes into the `.pte`."""
    written = written_buffers(program)
    names = {one.arg.name for one in program.graph_signature.input_specs if one.target in written}
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in names:
            node.meta[_INITIALISED] = True


@contextmanager
def state_restored(model: Any, names: Sequence[str]) -> Iterator[None]:
    """Restore the state of a host model after the block, which may run it. `model` may be None."""
    buffers = [] if model is None else [model.get_buffer(name) for name in names]
    before = [buffer.clone() for buffer in buffers]
    try:
        yield
    finally:
        with load_torch().no_grad():
            for buffer, content in zip(buffers, before, strict=True):
                buffer.copy_(content)


def _with_signature(
    program: Any, inputs: list[Any], outputs: list[Any], held: Mapping[str, Any], example: tuple[Any, ...], given: Any
) -> Any:
    """Return the same graph with another signature: the list of its inputs, buffers and outputs.

    Args:
        program: the exported program.
        inputs: the input specs of the new signature.
        outputs: the output specs of the new signature.
        held: tensors of parameters, buffers and constants by name.
        example: example inputs.
        given: the structure of the outputs.
    """
    export = load_torch().export
    (call, *_) = copy.deepcopy(program.module_call_graph)
    call.signature.inputs, call.signature.outputs, call.signature.forward_arg_names = [], [], None
    call.signature.in_spec, call.signature.out_spec = _structure((example, {})), given
    constants = {name for name in held if name in program.constants}
    return export.ExportedProgram(
        root=program.graph_module,
        graph=program.graph,
        graph_signature=_kinds().ExportGraphSignature(inputs, outputs),
        state_dict={name: value for name, value in held.items() if name not in constants},
        range_constraints=program.range_constraints,
        module_call_graph=[call],
        example_inputs=(example, {}),
        constants={name: held[name] for name in constants},
        verifiers=program.verifiers,
    )


def _kinds() -> Any:
    return load_torch().export.graph_signature


def _structure(values: Any) -> Any:
    return load_torch().utils._pytree.tree_structure(values)


def _unflattened(structure: Any) -> Any:
    return load_torch().utils._pytree.tree_unflatten([0] * structure.num_leaves, structure)
