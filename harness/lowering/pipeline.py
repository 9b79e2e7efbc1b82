"""From a module to a `.pte` for one ISA class.

Quantise, export and to_edge do not depend on the target and run once per module; Cortex-M passes and to_executorch
run once per ISA class. Measured on executorch 1.5.1 (deep autoencoder, ds_cnn): 80–90 % of the time is shared.
"""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeVar

import numpy as np

from harness.errors import ConfigError, HarnessError, LoweringError, ToolchainError
from harness.lowering.cache import Lru, key_of
from harness.lowering.capability import INSTALL, quiet, tools
from harness.lowering.spacing import Spacing, planning_pass
from harness.program import Program, PteFile, parse_pte
from harness.targets import Isa

Layout = Literal["channels_last", "explicit"]
Inputs = tuple[Any, ...]
T = TypeVar("T")

# A CPU whose strongest class it is. Source: backends/cortex_m/target_config.py.
CPU_OF: Final = {Isa.MVE: "cortex-m55", Isa.DSP: "cortex-m4", Isa.SCALAR: "cortex-m0plus"}


@dataclass(frozen=True)
class _Options:
    """What, besides module and inputs, decides the result of the shared part."""

    quantize: bool
    layout: Layout


@dataclass(eq=False)
class _Shared:
    """The target-independent part: modules for the references, the edge program, and programs made from it."""

    title: str
    options: _Options
    inputs: Inputs
    eager: Any
    quantized: Any | None
    edge: Any
    programs: dict[tuple[Isa, bool], Program] = field(default_factory=dict)  # by ISA class and `redzones`


_cache: Final[Lru[_Shared]] = Lru(16)


def lower(
    module: Any,
    inputs: Inputs,
    *,
    isa: Isa,
    calibration: Iterable[Inputs] | None = None,
    quantize: bool = True,
    layout: Layout = "channels_last",
    redzones: bool = False,
    name: str = "",
) -> Program:
    """Lower a torch module for an ISA class; neither it nor the inputs are changed.

    ``calibration`` are input tuples for the quantiser's observers (default: ``inputs``). ``channels_last`` turns
    4-D tensors channels-last; ``explicit`` keeps them contiguous and lets the compiler insert transposes.
    ``redzones`` plans memory that no tensor owns around every tensor.
    Same contents give the same program, from a cache.

    Raises LoweringError (the module's fault), ToolchainError (ExecuTorch's), ConfigError (the call's).
    """
    if layout not in ("channels_last", "explicit"):
        raise ConfigError(f"layout is 'channels_last' or 'explicit', not {layout!r}")
    if not isinstance(inputs, tuple):
        raise ConfigError(f"inputs is a tuple of tensors, not a {type(inputs).__name__}")
    options = _Options(quantize, layout)
    samples = None if calibration is None else [tuple(sample) for sample in calibration]
    with quiet():
        shared = _shared(module, inputs, samples, options)
        if (isa, redzones) not in shared.programs:
            shared.programs[isa, redzones] = _specialise(shared, isa, redzones)
    program = shared.programs[isa, redzones]
    return replace(program, name=name) if name else program


def clear_cache() -> None:
    """Forget everything lowered so far."""
    _cache.clear()


def seed(number: int) -> None:
    """Seed torch, numpy and random, so that a test's data does not depend on what ran before it."""
    random.seed(number)
    np.random.seed(number % 2**32)
    tools().torch.manual_seed(number)


def _shared(module: Any, inputs: Inputs, samples: list[Inputs] | None, options: _Options) -> _Shared:
    key = key_of(module, inputs, samples, options.quantize, options.layout)
    found = _cache.get(key) if key is not None else None
    if found is None:
        found = _prepare(module, inputs, samples, options)
        if key is not None:
            _cache.put(key, found)
    return found


def _prepare(module: Any, inputs: Inputs, samples: list[Inputs] | None, options: _Options) -> _Shared:
    """Everything up to the edge program."""
    kit = tools()
    title = type(module).__name__
    if options.layout == "explicit" and not kit.explicit_layout:
        raise ToolchainError("this executorch has no explicit-layout mode", hint=INSTALL + ", at least 1.5")
    eager = _stage(title, "copy", lambda: copy.deepcopy(module).eval())
    if options.layout == "channels_last":
        eager = eager.to(memory_format=kit.torch.channels_last)
    arranged = _arrange(inputs, options.layout)
    # Copies: calibrating runs the module, which may work in place.
    calibration = [_arrange(sample, options.layout) for sample in ([inputs] if samples is None else samples)]
    quantized = _quantize(title, eager, arranged, calibration, options) if options.quantize else None
    exported = _stage(title, "export", lambda: _export(quantized or eager, arranged))
    edge = _stage(title, "to_edge", lambda: kit.to_edge(exported, compile_config=kit.edge_compile_config()))
    return _Shared(title, options, arranged, eager, quantized, edge)


def _arrange(values: Inputs, layout: Layout) -> Inputs:
    """Copies of the inputs, 4-D tensors in the memory format of the layout."""
    torch = tools().torch
    wanted = torch.channels_last if layout == "channels_last" else torch.contiguous_format

    def arrange(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return leaf.detach().clone(memory_format=wanted if leaf.dim() == 4 else torch.contiguous_format)

    arranged: Inputs = torch.utils._pytree.tree_map(arrange, values)
    return arranged


def _export(module: Any, inputs: Inputs) -> Any:
    return tools().torch.export.export(module, inputs, strict=True)


def _quantize(title: str, module: Any, inputs: Inputs, calibration: list[Inputs], options: _Options) -> Any:
    """The fake-quantised module (PT2E with upstream's Cortex-M quantiser)."""
    kit = tools()
    explicit = {"use_explicit_layout": True} if options.layout == "explicit" else {}

    def observe() -> Any:
        # With guards in it the exported module is no graph the quantiser understands.
        graph = _export(module, inputs).module(check_guards=False)
        prepared = kit.prepare_pt2e(graph, kit.quantizer(**explicit))
        for sample in calibration:
            prepared(*sample)
        return kit.convert_pt2e(prepared)

    return _stage(title, "quantise", observe)


def _specialise(shared: _Shared, isa: Isa, redzones: bool) -> Program:
    """Cortex-M passes and to_executorch."""
    from harness.reference import HostModels, conform, to_host

    kit = tools()
    # The passes add constants to the program they are given: work on a copy.
    edge = copy.deepcopy(shared.edge)
    edge._edge_programs["forward"] = _stage(
        shared.title, f"Cortex-M passes for {isa.value}", lambda: _passes(edge, shared.options, isa)
    )
    # to_executorch turns this graph into one that only its runtime can run: the reference keeps its own.
    dialect = copy.deepcopy(edge.exported_program())
    spacing = Spacing() if redzones else None
    plan = {} if spacing is None else {"memory_planning_pass": planning_pass(spacing)}
    config = kit.backend_config(extract_delegate_segments=False, **plan)
    made = _stage(shared.title, f"to_executorch for {isa.value}", lambda: edge.to_executorch(config))
    pte = bytes(made.buffer)
    file = parse_pte(pte, shared.title)
    leaves, structure = kit.torch.utils._pytree.tree_flatten(shared.inputs)
    models = HostModels(shared.eager, shared.quantized, dialect.module(check_guards=False), structure)
    inputs = conform([to_host(leaf) for leaf in leaves], file.input_specs())
    unspaced = None if spacing is None else spacing.unspaced
    return Program(pte, file, isa, graph_nodes(made, file), shared.title, inputs, models, unspaced)


def _passes(edge: Any, options: _Options, isa: Isa) -> Any:
    kit = tools()
    explicit = {"use_explicit_layout": True} if options.layout == "explicit" else {}
    config = kit.target_config.from_target_string(CPU_OF[isa])
    return kit.pass_manager(edge.exported_program(), target_config=config, **explicit).transform()


def graph_nodes(made: Any, file: PteFile) -> tuple[str, ...]:
    """``node name (module path)`` per instruction of an ExecutorchProgramManager's program.

    The emitter writes one instruction per operator node, in graph order; allocations and static views give none.
    Should names and instructions not match one to one, all are "" rather than some of them wrong.
    """
    nodes = [node for node in made.exported_program().graph.nodes if _operator_of(node)]
    if [_operator_of(node) for node in nodes] != [instruction.operator for instruction in file.instructions]:
        return ("",) * len(file.instructions)
    return tuple(_describe(node) for node in nodes)


def _operator_of(node: Any) -> str:
    """``ns::name.overload`` of a call node, "" for anything that is no operator."""
    schema = getattr(node.target, "_schema", None) if node.op == "call_function" else None
    if schema is None:
        return ""
    return str(schema.name) + (f".{schema.overload_name}" if schema.overload_name else "")


def _describe(node: Any) -> str:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = stack[-1][0] if stack else ""
    return f"{node.name} ({path})" if path else str(node.name)


def _stage(title: str, stage: str, work: Callable[[], T]) -> T:
    """Run one stage; what it raises becomes a LoweringError naming module, stage and graph node."""
    try:
        return work()
    except HarnessError:
        raise
    except Exception as error:
        text = str(error).strip() or type(error).__name__
        node = re.search(r"While executing (%\w+)", text)
        where = f" at node {node.group(1)}" if node else ""
        raise LoweringError(
            f"{title}: {stage} failed{where}: {type(error).__name__}: {text.splitlines()[0]}",
            hint="the traceback of the original error follows; quantize=False shows whether quantisation is to blame",
            log=text,
        ) from error
