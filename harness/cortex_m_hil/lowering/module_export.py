"""Runs and exports the user's module in its present state; all later stages read only the export.

The module first runs a few times (`hidden_state.CalledModule.carried_state`), and is then exported. The strict export
interprets the module's bytecode; unlike a run on fake tensors it changes neither the module nor other caches.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import logging
import re
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from cortex_m_hil.errors import ConfigError, HarnessError, LoweringError, is_pytests_own
from cortex_m_hil.errors.known_bugs import known_bug
from cortex_m_hil.host.api_calls import is_users_file, warnings_of_users_code
from cortex_m_hil.lowering.dynamic_shapes import check_shapes, dimensions_of
from cortex_m_hil.lowering.installed_executorch import load_torch, mute
from cortex_m_hil.lowering.module_checks import plain_tensor, require_alike, title_of
from cortex_m_hil.lowering.mutable_buffers import state_restored
from cortex_m_hil.lowering.nested_graphs import graphs_of, has_modes, without_modes
from cortex_m_hil.lowering.options import Inputs, Layout
from cortex_m_hil.lowering.snapshot import Snapshot
from cortex_m_hil.lowering.stages import stage_of
from cortex_m_hil.lowering.torch_shortcuts import without_guards
from cortex_m_hil.program.program import Training
from cortex_m_hil.program.tensor import Dimension

T = TypeVar("T")

_EXPLAINED: Final = "torch's explanation is in the report's details (in a script: the error's log)"
_EXPORT: Final = f"the module runs, but torch.export cannot trace it; {_EXPLAINED}"
_DYNAMIC: Final = (
    "dynamic_shapes are those of torch.export; a dimension that the module needs as it is stays out of them; "
    f"{_EXPLAINED}"
)
_NO_NAME: Final = "No registered serialization name"
_PLAIN: Final = (
    "ExecuTorch writes plain tuples, lists and dicts of tensors only: return tuple(torch.topk(x, k)), or its parts"
)
_VALUES: Final = (
    "what depends on values needs torch.where, or in a float program torch.cond, and no shape may follow from values; "
    f"{_EXPLAINED}"
)
_DROPOUT: Final = "F.dropout is active unless it is told: F.dropout(x, p, self.training), or an nn.Dropout"
_COMPUTED: Final = (
    "a layer whose weight is computed, as nn.MultiheadAttention's are parts of one parameter, has none that ExecuTorch "
    "quantises: one nn.Linear each for query, key and value, or quantize=False"
)
_SCRIPTED: Final = (
    "the module itself, as it was before torch.jit.script or torch.jit.trace: torch.export takes no other"
)
_KNOWN: Final = {
    _NO_NAME: _PLAIN,
    "unsupported param type": _COMPUTED,
    "assumes symmetric weight quantization": _COMPUTED,
    "Exporting a ScriptModule": _SCRIPTED,
    "jit.script/freeze modules": _SCRIPTED,
    "Got: torch.bfloat16": "leave torch.autocast out of forward: what is quantised computes in float32",
    "expected scalar type torch.int": (
        f"a matrix product of what a layer with a bias gives and of anything else does not lower ({known_bug(27)}): "
        "such a layer on both sides, or on neither, or quantize=False"
    ),
}
"""Hints by a text that ExecuTorch's message contains."""
_LAYOUT: Final = 'layout="explicit" leaves tensors as they are'
_FAILS: Final = "call the module with these inputs yourself; their number, shapes and dtypes have to fit it"
_NUMPY: Final = "NumPy values in a module are not exported: make them tensors, best with register_buffer"
_GUARDS: Final = "_guards_fn"  # the name of a call in the module of an exported program
_TRAINING: Final = "was it exported for training? module.eval() before torch.export.export(module, inputs)"
_STATE: Final = (
    "state that a program keeps is a registered buffer, changed in place: self.state.copy_(new), self.cache[:, 0] = x"
)
_CARRIED: Final = (
    'a program keeps registered buffers that are changed in place: self.register_buffer("h", torch.zeros(…)) in '
    "__init__, self.h.copy_(new) in forward"
)


@dataclass(frozen=True, eq=False)
class Exported:
    """An exported module, which can be lowered any number of times, for instance for each target.

    Attributes:
        title: the class name of the module that was exported.
        layout: the layout that the module was exported for.
        inputs: the module's arguments, in that layout.
        outputs: the outputs that the module returned for `inputs`.
        program: the `torch.export.ExportedProgram`, with parameters and constants of its own.
        states: names of the buffers that forward changes; `program` has their values before any call.
        dimensions: the dimensions of the inputs that are not fixed.
        training: the submodules that were in training mode and compute differently in it; None if there are none.
    """

    title: str
    layout: Layout
    inputs: Inputs
    outputs: Any
    program: Any
    states: tuple[str, ...] = ()
    dimensions: tuple[Dimension, ...] = ()
    training: Training | None = None

    def __call__(self, *arguments: Any) -> Any:
        """Return the float module's outputs: the recorded outputs for its own inputs, else the exported program's.

        The module itself is not called again, since it may have changed.
        """
        if _equal_inputs(arguments, self.inputs):
            return self.outputs
        module = self.program.module(check_guards=False)
        with state_restored(module, self.states):
            return module(*arguments)

    def on(self, inputs: Inputs) -> Exported:
        """Return the same module with other inputs, which are in the layout already.

        Raise ConfigError if they do not fit. They must have the structure, dtypes and fixed sizes of the inputs of the
        export.
        """
        require_alike(self.title, "the inputs are", inputs, "it was exported with", self.inputs, self.dimensions)
        return replace(self, inputs=inputs, outputs=_run(self.title, self.program.module(check_guards=False), inputs))


def trace(module: Any, inputs: Inputs, layout: Layout, shapes: Any = None) -> Exported:
    """Run the module and export it; its state is restored afterwards.

    Args:
        module: a `torch.nn.Module`.
        inputs: the module's arguments, arranged for the layout already.
        layout: the layout to export for.
        shapes: `dynamic_shapes` of torch.export; None: all sizes are fixed.

    Raises:
        ConfigError: the module fails on its inputs, or `shapes` do not fit.
        LoweringError: the module cannot be exported, changes something that is no buffer, or carries state to its next
            call outside of buffers.
    """
    torch, title = load_torch(), title_of(module)
    if shapes is not None:
        check_shapes(title, module, inputs, shapes)
    before, training = Snapshot(module), _training(module)
    try:
        with contextlib.suppress(NotImplementedError):  # the graph of an export cannot change its mode
            module.eval()
        if layout == "channels_last":
            run_stage(title, "channels_last", _LAYOUT, lambda: _to_channels_last(module))
        arranged = Snapshot(module)
        with stage_of("run"):
            outputs, changed, carried = _run_and_check(title, module, inputs, arranged)
        arranged.restore()
        exported = _exported(title, module, inputs, shapes)
        dimensions = dimensions_of(exported)
        _require_values(title, exported)
        _require_nothing_random(title, exported)
        states = _states(title, exported, changed, _TRAINING if isinstance(module, torch.fx.GraphModule) else _STATE)
        if carried:
            raise LoweringError(
                f"{title}: forward carries something over to its next call, which the program does not: {carried}",
                hint=_CARRIED,
            )
        # This copies the parameters before `restore` gives them back their old layout.
        return Exported(title, layout, inputs, outputs, _with_own_constants(exported), states, dimensions, training)
    finally:
        before.restore()


def _to_channels_last(module: Any) -> None:
    """Change the module's parameters and buffers of four dimensions in place; `Module.to` fails on five."""
    wanted = load_torch().channels_last
    module._apply(lambda tensor: tensor.to(memory_format=wanted) if tensor.dim() == 4 else tensor)


def _training(module: Any) -> Training | None:
    parts = [(name, one) for name, one in module.named_modules() if one.training and _depends_on_mode(one)]
    named = tuple(f"{name} ({type(one).__name__})" if name else type(one).__name__ for name, one in parts)
    return Training(named, is_in_part=not module.training) if named else None


def _depends_on_mode(module: Any) -> bool:
    """Tell whether a module's own forward depends on its mode, as batch norm with statistics and dropout do."""
    if isinstance(module, load_torch().nn.modules.batchnorm._NormBase):
        return module.running_mean is not None
    code = getattr(getattr(type(module), "forward", None), "__code__", None)
    rate = getattr(module, "p", getattr(module, "dropout", None))
    return code is not None and "training" in code.co_names and not (isinstance(rate, (int, float)) and rate == 0)


def _run_and_check(title: str, module: Any, inputs: Inputs, before: Snapshot) -> tuple[Any, list[str], str]:
    """Run the module; return its outputs, the buffers that forward changes, and a text on hidden state.

    The text is "" without hidden state. `before` is the snapshot of the module before the call.
    """
    from cortex_m_hil.lowering.hidden_state import Buffers, CalledModule

    buffers, random = Buffers.snapshot(module), load_torch().get_rng_state()
    with warnings_of_users_code():
        outputs = _run(title, module, inputs)
    _require_tensors(title, outputs)
    changed, results = buffers.changed(module), buffers.outputs_and_contents(outputs)
    called = CalledModule(module, functools.partial(_run, title, module), before, buffers, random, results)
    return outputs, changed, called.carried_state(inputs)


def strict_export(module: Any, inputs: Inputs, shapes: Any = None) -> Any:
    """Return the strict export, which is always the same program for a module, its inputs and `dynamic_shapes`.

    Torch's output and log about a failure are suppressed: they repeat the exception, or print the graph so far.
    """
    guards = without_guards() if shapes is None else contextlib.nullcontext()
    with contextlib.redirect_stderr(io.StringIO()), mute(logging.CRITICAL), guards:
        return load_torch().export.export(module, inputs, dynamic_shapes=shapes, strict=True)


def flat_export(module: Any, inputs: Inputs, shapes: Any = None) -> Any:
    """Return the strict export without inner graphs for torch's modes, such as `torch.no_grad()`.

    Such a mode, and torch's fused operator for multi-head attention without gradients, make no difference on a target,
    but ExecuTorch would leave the operators in float32.
    """
    torch = load_torch()
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad():
            program = strict_export(module, inputs, shapes)
            return strict_export(without_modes(program), inputs, shapes) if has_modes(program) else program
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)


def _exported(title: str, module: Any, inputs: Inputs, shapes: Any) -> Any:
    """Return the export; raise ConfigError where only the caller's `shapes` make it fail."""
    if shapes is None:
        return run_stage(title, "export", _EXPORT, lambda: _without_guards(flat_export(module, inputs)))
    try:
        return run_stage(title, "export", _DYNAMIC, lambda: _without_guards(flat_export(module, inputs, shapes)))
    except LoweringError as error:
        with contextlib.suppress(LoweringError):
            run_stage(title, "export", _EXPORT, lambda: flat_export(module, inputs))
            problem = error.message.partition("export failed")[2].lstrip(": ")
            more = [("torch", line[2:]) for line in map(str.strip, error.log.splitlines()) if line.startswith("- ")]
            raise ConfigError(
                f"{title}: dynamic_shapes: {problem}", details=more[:3], hint=_DYNAMIC, log=error.log
            ) from None
        raise


def _without_guards(exported: Any) -> Any:
    """Remove the call that `ExportedProgram.module()` inserts at the beginning to check shapes."""
    graph = exported.graph
    calls = [node for node in graph.nodes if node.op == "call_module" and node.target == _GUARDS and not node.users]
    for node in calls:
        graph.erase_node(node)
    if calls:
        exported.graph_module.delete_all_unused_submodules()
        exported.graph_module.recompile()
    return exported


def _with_own_constants(exported: Any) -> Any:
    """Return the program with copies of its constants, since the module's constants may change later."""
    state, constants = copy.deepcopy((dict(exported.state_dict), dict(exported.constants)))
    exported.state_dict.update(state)
    exported.constants.update(constants)
    return exported


def arrange(values: Inputs, layout: Layout) -> Inputs:
    """Return copies of the inputs: 4-D tensors in the layout's memory format, lazy conjugations carried out."""
    torch = load_torch()
    wanted = torch.channels_last if layout == "channels_last" else torch.contiguous_format

    def copied(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return plain_tensor(leaf).clone(memory_format=wanted if leaf.dim() == 4 else torch.contiguous_format)

    with torch.inference_mode(False):  # copies made in inference mode cannot be calibrated with
        arranged: Inputs = torch.utils._pytree.tree_map(copied, values)
    return arranged


def run_stage(title: str, name: str, hint: str, work: Callable[[], T]) -> T:
    """Run one stage; turn its exceptions into a LoweringError that names module, stage, graph node and line.

    Args:
        title: the module's name.
        name: the name of the stage.
        hint: the hint for an error whose message is not in `_KNOWN`.
        work: the stage; its result is returned.
    """
    try:
        with stage_of(name):
            return work()
    except HarnessError:
        raise
    except Exception as error:
        if is_pytests_own(error):
            raise
        chain = list(_causes(error))
        text = "\n\n".join(map(_said, chain))
        executing = re.search(r"While executing (%\w+)", text)
        node = None if executing else _node_in_frames(chain[-1])
        name_of_node = executing[1] if executing else f"%{node.name}" if node is not None else ""
        where = f" at node {name_of_node}" if name_of_node else ""
        place = user_line(text) or (_line_of(node) if node is not None else "")
        where += f" at {place}" if place else ""
        on_values = "data-dependent" in text.lower() or "DataDependent" in type(error).__name__
        # ExecuTorch's error names the pass that failed; the error that caused it has the reason.
        told = [f"{type(one).__name__}: {_said(one).splitlines()[0]}" for one in (chain[0], *chain[1:][-1:])]
        raise LoweringError(
            f"{title}: {name} failed{where}: {'; from '.join(told)}",
            hint=_VALUES if on_values else next((known for words, known in _KNOWN.items() if words in text), hint),
            log=text,
        ) from error


def _node_in_frames(error: BaseException) -> Any:
    """Return the graph node that ExecuTorch was working on, or None.

    It is the first graph node among the variables of ExecuTorch's stack frames, searched from the innermost.
    """
    torch = load_torch()
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for frame in reversed(frames):
        if "/executorch/" in frame.f_code.co_filename:
            for value in frame.f_locals.values():
                if isinstance(value, torch.fx.Node):
                    return value
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, then each error that it was raised from."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__


def _said(error: BaseException) -> str:
    return str(error).strip() or type(error).__name__


def _run(title: str, module: Any, inputs: Inputs) -> Any:
    """Return the module's outputs for copies of the inputs; parts under torch.compile run uncompiled."""
    torch = load_torch()
    try:
        with torch.no_grad(), torch.compiler.set_stance("force_eager"):
            return _clone(module(*_clone(inputs)))
    except Exception as error:
        if is_pytests_own(error):
            raise
        frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
        path, line = ([frame for frame in frames if is_users_file(frame[0])] or frames)[-1]
        text = str(error).strip() or type(error).__name__
        raise ConfigError(
            f"{title}: the module itself fails on these inputs, before anything is lowered, at {path}:{line}: "
            f"{type(error).__name__}: {text.splitlines()[0]}",
            hint=_another_dtype(module, inputs, text) or _FAILS,
            log=text,
        ) from error


def _another_dtype(module: Any, inputs: Inputs, said: str) -> str:
    """Return a hint about an input of another dtype than the module's parameters, or "" if there is none.

    Integers may be indices: they are reported only where torch's message says something of types.
    """
    torch = load_torch()
    own = {one.dtype for one in module.parameters() if one.is_floating_point()}
    for number, leaf in enumerate(torch.utils._pytree.tree_leaves(inputs)):
        if not isinstance(leaf, torch.Tensor) or not own or leaf.dtype in own:
            continue
        if leaf.is_floating_point() or "type" in said:
            dtypes = " and ".join(sorted(str(one).removeprefix("torch.") for one in own))
            fix = f"x.to({next(iter(own))})"
            return (
                f"input {number} is {str(leaf.dtype).removeprefix('torch.')}, the module's parameters {dtypes}: {fix}"
            )
    return ""


def _clone(values: Any) -> Any:
    torch = load_torch()
    return torch.utils._pytree.tree_map(
        lambda leaf: leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf, values
    )


def _equal_inputs(some: Inputs, others: Inputs) -> bool:
    """Tell whether two sets of inputs are equal bit for bit, whatever their layout in memory."""
    torch = load_torch()
    (leaves, structure), (leaves_2, structure_2) = map(torch.utils._pytree.tree_flatten, (some, others))

    def bits(leaf: Any) -> tuple[object, ...]:
        array = leaf.detach().cpu().numpy() if isinstance(leaf, torch.Tensor) else None
        return (type(leaf), leaf) if array is None else (array.dtype, array.shape, array.tobytes())

    return bool(structure == structure_2) and list(map(bits, leaves)) == list(map(bits, leaves_2))


def _require_tensors(title: str, outputs: Any) -> None:
    """Raise ConfigError if the module returns no tensor, or returns a None, which no output of a program can be."""
    torch = load_torch()
    with_paths, _ = torch.utils._pytree.tree_flatten_with_path(outputs)
    leaves = [leaf for _, leaf in with_paths]
    if not any(isinstance(leaf, torch.Tensor) for leaf in leaves):
        given = " and ".join(dict.fromkeys(type(leaf).__name__ for leaf in leaves)) or "nothing"
        raise ConfigError(
            f"{title}: forward returns {given}, and the outputs of a program are tensors",
            hint="return a tensor, or several in a tuple, list or dict",
        )
    if empty := [torch.utils._pytree.keystr(path) for path, leaf in with_paths if leaf is None]:
        raise ConfigError(
            f"{title}: forward returns None at {' and '.join(empty)}, and the outputs of a program are tensors",
            hint="wrap the module in one whose forward returns only the tensors",
        )


def _require_values(title: str, exported: Any) -> None:
    """Raise LoweringError if the export lost the values of a constant; torch 2.13 does so for NumPy constants."""
    fake = load_torch()._subclasses.FakeTensor
    lost = [
        spec.arg.name
        for spec in exported.graph_signature.input_specs
        if isinstance(exported.constants.get(spec.target), fake)
    ]
    for node in exported.graph.nodes:
        if any(used.name in lost for used in node.all_input_nodes):
            place = _line_of(node)
            raise LoweringError(f"{title}: torch.export lost the values of a constant, used at {place}", hint=_NUMPY)


def _require_nothing_random(title: str, exported: Any) -> None:
    """Raise LoweringError if the program draws random numbers, since its runs could not be compared."""
    for node in (node for graph in graphs_of(exported) for node in graph.nodes if _is_random(node)):
        place = _line_of(node)
        where = f" at {place}" if place else ""
        drawn = _DROPOUT if "dropout" in str(node.target) else "draw them outside, and make them an input"
        raise LoweringError(f"{title}: forward draws random numbers{where}, with {node.target}", hint=drawn)


def _is_random(node: Any) -> bool:
    """Tell whether a node draws random numbers: by torch's tag of the operator, unless its arguments prevent it."""
    torch = load_torch()
    if not isinstance(node.target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in node.target.tags:
        return False
    given = _arguments(node)
    return given.get("train", given.get("training", True)) is not False and given.get("dropout_p", 1) != 0


def _arguments(node: Any) -> dict[str, Any]:
    """Return a node's arguments by the names in its operator's schema, including the defaults of omitted arguments."""
    schema = node.target._schema.arguments
    defaults = {one.name: one.default_value for one in schema if one.has_default_value()}
    return {**defaults, **dict(zip([one.name for one in schema], node.args, strict=False)), **node.kwargs}


def _states(title: str, exported: Any, changed: list[str], hint: str) -> tuple[str, ...]:
    """Return the buffers that forward writes to, in the export's order.

    Raise LoweringError if it writes to a parameter or a constant, or replaces a buffer.

    Args:
        title: the module's name.
        exported: the export.
        changed: the buffers that the module's own run changed. The export does not show a buffer that is replaced, and
            the schema of batch norm does not show that it writes.
        hint: the hint of the error.
    """
    torch = load_torch()
    specs = {spec.arg.name: spec for spec in exported.graph_signature.input_specs if spec.target}
    memory: dict[int, Any] = {}
    found = set()
    for node in exported.graph.nodes:
        if node.op == "placeholder" and node.name in specs and not _is_copied(node):
            memory[_storage(node)] = specs[node.name]
        for spec in (memory[_storage(value)] for value in _written(node) if _storage(value) in memory):
            if spec.kind is not torch.export.graph_signature.InputKind.BUFFER:
                place = _line_of(node)
                where = f" at {place}" if place else ""
                raise LoweringError(f"{title}: forward changes {spec.target}{where}, which is no buffer", hint=hint)
            found.add(spec.target)
    if unseen := [name for name in changed if name not in found]:
        what = f"{title}: forward changes {', '.join(unseen)} in a way that torch.export does not see"
        raise LoweringError(what, hint=hint)
    return tuple(spec.target for spec in exported.graph_signature.input_specs if spec.target in found)


def _storage(node: Any) -> int:
    """Return the address of the memory of a node's value, which all its views share; 0 if the value is no tensor."""
    value = node.meta.get("val")
    return int(value.untyped_storage()._cdata) if isinstance(value, load_torch().Tensor) else 0


def _is_copied(node: Any) -> bool:
    """Tell whether forward makes a tensor anew in each call, as `torch.tensor([1, 2])` does: it may write to it.

    In the export the copy has the same memory as the constant.
    """
    copied = load_torch().ops.aten.lift_fresh_copy.default
    return all(user.target is copied for user in node.users)


def _written(node: Any) -> list[Any]:
    """Return the arguments that a node's operator writes to, by its schema; `x.detach_()` changes no value."""
    torch = load_torch()
    if not isinstance(node.target, torch._ops.OpOverload) or node.target is torch.ops.aten.detach_.default:
        return []
    given = _arguments(node)
    arguments = node.target._schema.arguments
    written = [given.get(one.name) for one in arguments if one.alias_info is not None and one.alias_info.is_write]
    return [value for value in written if isinstance(value, torch.fx.Node)]


def user_line(text: str) -> str:
    """Return ``file:line`` of the innermost stack frame in the user's code that a stack trace names, or ""."""
    found = [place for place in re.findall(r'File "([^"]+)", line (\d+)', text) if is_users_file(place[0])]
    return ":".join(found[-1]) if found else ""


def _line_of(node: Any) -> str:
    """Return the user's ``file:line`` that a graph node comes from, or ""."""
    return user_line(node.meta.get("stack_trace") or "")
