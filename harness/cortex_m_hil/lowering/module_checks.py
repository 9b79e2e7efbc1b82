"""Checks of modules, and of exported and quantised programs: each raises an error with a hint, or returns.

Training mode is no error: `module_export` records it, and `flow.export_and_lower` warns of it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

from cortex_m_hil.errors import ConfigError
from cortex_m_hil.errors.text import shown
from cortex_m_hil.lowering.installed_executorch import load_torch
from cortex_m_hil.lowering.nested_graphs import graphs_of, without_modes
from cortex_m_hil.lowering.options import Inputs
from cortex_m_hil.program.tensor import SIZES, Dimension, misfit

_ORIGINAL: Final = "the program that torch.export.export(module, inputs) gave"
# Operators that run_decompositions leaves in place of operators that the Cortex-M passes need undecomposed.
_DECOMPOSED: Final = frozenset(
    {
        "aten.addmm.default",
        "aten.convolution.default",
        "aten._native_batch_norm_legit_no_training.default",
        "aten._softmax.default",
        "aten.max_pool2d_with_indices.default",
    }
)
_QUANTIZING: Final = ("quantized_decomposed", "torchao")  # namespaces of the operators that convert_pt2e inserts
_OBSERVERS: Final = (
    ("torchao.quantization.pt2e.observer", "ObserverBase"),
    ("torchao.quantization.pt2e.fake_quantize", "FakeQuantizeBase"),
)


def plain_tensor(tensor: Any) -> Any:
    """Return a tensor detached, with a lazy conjugation or negation carried out.

    Raise ConfigError where it is sparse.
    """
    if tensor.layout is not load_torch().strided:
        raise ConfigError(f"an input has {tensor.layout}, which no program takes", hint="x.to_dense()")
    return tensor.detach().resolve_conj().resolve_neg()


def require_module(module: Any) -> None:
    """Raise ConfigError unless `module` is an initialised module on the CPU that is not being calibrated."""
    name = type(module).__name__
    if not isinstance(module, load_torch().nn.Module):
        hint = "an object of it: MyModule()" if isinstance(module, type) else "put it into the forward of a module"
        if type(module).__module__.startswith("executorch."):
            hint = f"{_ORIGINAL}; what is lowered already runs: hil.load_program(bytes of the .pte)"
        what = f"what is lowered is a torch.nn.Module or a torch.export.ExportedProgram, not a {name}"
        raise ConfigError(what, hint=hint)
    elsewhere = {str(one.device) for one in (*module.parameters(), *module.buffers())} - {"cpu"}
    if elsewhere:
        what = f"{title_of(module)}: parameters or buffers are on device {' and '.join(sorted(elsewhere))}"
        without = "give it values: module.to_empty(device='cpu'), then module.load_state_dict(…)"
        raise ConfigError(what, hint=without if "meta" in elsewhere else "module.to('cpu')")
    kind = load_torch().nn.parameter.UninitializedTensorMixin
    if lazy := [name for name, value in module.state_dict(keep_vars=True).items() if isinstance(value, kind)]:
        what = f"{title_of(module)}: {', '.join(lazy)}: parameters of lazy layers, which have no shape yet"
        raise ConfigError(what, hint="call the module once: module(*inputs)")
    if isinstance(module, load_torch().fx.GraphModule) and (found := next(_observers(module), "")):
        raise ConfigError(
            f"{title_of(module)}: the module is prepared for calibration and not converted: it has a {found}",
            hint="calibrate it, then hil.check(convert_pt2e(prepared), inputs, quantize=False)",
        )


def _observers(module: Any) -> Iterator[str]:
    """Return the class names of the observers that prepare_pt2e inserted; none where torchao was never imported."""
    kinds = tuple(getattr(sys.modules[name], kind) for name, kind in _OBSERVERS if name in sys.modules)
    return (type(one).__name__ for one in module.modules() if isinstance(one, kinds))


def module_of(program: Any, inputs: Inputs | list[Any] | None) -> tuple[Any, Inputs | list[Any]]:
    """Return the module of a `torch.export.ExportedProgram`, and the given inputs, or else those of the export.

    Raise ConfigError for keyword arguments, for a program without example inputs, and for one that is partly lowered.
    """
    _require_as_exported(program)
    positional, named = program.example_inputs or (None, {})
    given = positional if inputs is None else inputs
    if named:
        what = f"the exported program takes keyword arguments: {', '.join(named)}"
        raise ConfigError(what, hint="export a module whose inputs are positional")
    if given is None:
        raise ConfigError("the exported program has no example inputs", hint="name them: hil.lower(program, inputs)")
    # Guards are calls that no target can execute.
    return without_modes(program), given


def _require_as_exported(program: Any) -> None:
    """Raise ConfigError for a program of to_edge or to_executorch, and for a decomposed one (torch's IR dialects)."""
    if program.dialect == "EDGE":
        raise ConfigError("the exported program is one of to_edge or to_executorch", hint=f"give {_ORIGINAL}")
    if program.dialect == "ATEN":
        found = sorted({str(node.target) for node in program.graph.nodes} & _DECOMPOSED)
        if found:
            raise ConfigError(
                f"the exported program is decomposed ({', '.join(found)}), and the quantiser and the Cortex-M passes "
                "take whole operators",
                hint=f"give {_ORIGINAL}, before run_decompositions()",
            )


def title_of(module: Any) -> str:
    """Return the class name of the module.

    For a graph, the class name of the exported module, from its nodes' metadata.
    """
    torch = load_torch()
    if isinstance(module, torch.fx.GraphModule):
        for node in module.graph.nodes:
            for path, name in list((node.meta.get("nn_module_stack") or {}).values())[:1]:
                # An export of an exported module has a wrapper of torch at its root.
                if not path and not str(name).startswith(("torch.fx.", "torch.export.")):
                    return str(name).rpartition(".")[2]
    return type(module).__name__


def require_float(title: str, program: Any) -> None:
    """Raise ConfigError where the exported module has quantising operators, since it would be quantised twice."""
    torch = load_torch()
    found = [
        str(node.target)
        for graph in graphs_of(program)
        for node in graph.nodes
        if isinstance(node.target, torch._ops.OpOverload) and node.target.namespace in _QUANTIZING
    ]
    if found:
        what = f"{title}: the module is quantised already ({len(found)} operators such as {found[0]})"
        raise ConfigError(what, hint="quantize=False lowers it as it is")


def require_alike(
    title: str, these: str, given: Inputs, those: str, inputs: Inputs, dimensions: Sequence[Dimension] = ()
) -> None:
    """Raise ConfigError where values differ in structure, dtypes or shapes from the inputs of the export.

    Args:
        title: the module's name, for the message.
        these: the name of the values in the message.
        given: the values.
        those: the name of the inputs in the message.
        inputs: the inputs that the module was exported for.
        dimensions: the dimensions whose sizes may differ within their bounds.
    """
    if _kinds(given, dimensions) != _kinds(inputs, dimensions):
        raise ConfigError(
            f"{title}: {these} {shown(given)}, {those} {shown(inputs)}",
            hint="a tuple like the inputs: as many tensors, of the same shapes and dtypes",
        )
    leaves = load_torch().utils._pytree.tree_leaves(given)
    if problem := misfit(dimensions, [tuple(getattr(leaf, "shape", ())) for leaf in leaves]):
        raise ConfigError(f"{title}: {these} {shown(given)}: {problem}", hint=SIZES)


def _kinds(values: Inputs, dimensions: Sequence[Dimension]) -> tuple[Any, ...]:
    """Return the structure of values, and for each tensor its dtype and fixed sizes (None: not fixed).

    For any other value the type and the value itself are returned, since it is a constant of the program.
    """
    torch = load_torch()
    leaves, structure = torch.utils._pytree.tree_flatten(values)
    free = {(one.input, one.number) for one in dimensions}

    def sizes(number: int, leaf: Any) -> list[int | None]:
        return [None if (number, dim) in free else size for dim, size in enumerate(leaf.shape)]

    kinds = [(x.dtype, sizes(n, x)) if isinstance(x, torch.Tensor) else (type(x), x) for n, x in enumerate(leaves)]
    return structure, kinds
