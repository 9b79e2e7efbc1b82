"""The lowering from a module to a `.pte` for one ISA class.

The module is run and exported on every call (`module_export.trace`), unless it is given as an `Exported`. All later
results are a function of the exported program, the calibration samples and the options, and are cached under a key of
their content. On disk: programs and the outputs of their references, so that ExecuTorch is not even imported for a
program that was lowered before. In memory: the quantised module, its export and the result of to_edge, once per module;
the results of the Cortex-M passes and to_executorch, once per ISA class.
"""

from __future__ import annotations

import copy
import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cortex_m_hil.errors import ConfigError, LoweringError, ToolchainError
from cortex_m_hil.errors.text import shown
from cortex_m_hil.host.compiler_state.state import compiler_state
from cortex_m_hil.lowering import node_origins
from cortex_m_hil.lowering.bank_planning import planning_algorithm
from cortex_m_hil.lowering.cache_keys import Lru, key_or_reason
from cortex_m_hil.lowering.content_digest import digest
from cortex_m_hil.lowering.disk_cache import Entry, disk
from cortex_m_hil.lowering.dynamic_shapes import SizeWatch, dimensions_of, expanded_shapes, shapes_for
from cortex_m_hil.lowering.installed_executorch import executorch_api, isolated, lacking, load_torch
from cortex_m_hil.lowering.module_checks import module_of, require_alike, require_float, require_module, title_of
from cortex_m_hil.lowering.module_export import Exported, arrange, flat_export, run_stage, trace
from cortex_m_hil.lowering.mutable_buffers import ExplicitStateProgram, keep_initial_values
from cortex_m_hil.lowering.options import DEFAULT, Inputs, Layout, LoweringOptions
from cortex_m_hil.lowering.quantised_io import FloatReferences, quantised_inputs, with_quantised_io
from cortex_m_hil.lowering.redzone_planning import RedzonePlanner, planning_pass
from cortex_m_hil.lowering.stages import stage_of
from cortex_m_hil.lowering.torch_shortcuts import bins_compared_by_numpy, operators_looked_up_once
from cortex_m_hil.program.program import Intermediate, Program, References
from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.pte_reader import parse_pte
from cortex_m_hil.program.tensor import Dimension, HostTensor
from cortex_m_hil.targets.cpu import Isa

if TYPE_CHECKING:
    from cortex_m_hil.lowering.etrecord import RecordedProgram
    from cortex_m_hil.lowering.reference import HostModels

# For each ISA class a CPU that has it as its most capable class. Source: backends/cortex_m/target_config.py.
CPU_OF: Final = {Isa.MVE: "cortex-m55", Isa.DSP: "cortex-m4", Isa.SCALAR: "cortex-m0plus"}
NOT_REPEATABLE: Final = "hil doctor cache clear, and report it: a lowering that is not repeatable"
_INPUTS: Final = "hil.check(module, (x,)), where x is the argument of the module's forward"


@dataclass(frozen=True, eq=False)
class _Source:
    """All inputs of a lowering except the ISA class, with their key.

    Attributes:
        exported: the exported module.
        samples: the calibration samples.
        options: the options of the lowering.
        key: the key of these inputs; None: there is no key, and nothing is cached.
        no_key: why there is no key, else "".
    """

    exported: Exported
    samples: Sequence[Inputs]
    options: LoweringOptions
    key: str | None
    no_key: str

    @property
    def title(self) -> str:
        return self.exported.title

    @property
    def inputs(self) -> Inputs:
        return self.exported.inputs


@dataclass(eq=False)
class _Shared:
    """The target-independent part of a lowering: fake-quantised graph and edge program; and the programs made of it."""

    quantized: Any | None
    float_reasons: Mapping[str, str]  # why nodes of the export are not quantised, by name
    edge: Any
    hint: str
    lowered: dict[tuple[object, ...], _Lowered] = field(default_factory=dict)  # by ISA class and `options.plan`


@dataclass(frozen=True, eq=False)
class _Lowered:
    """A program with the graphs that compute its references."""

    pte: bytes
    nodes: tuple[str, ...]
    ancestors: tuple[str, ...]
    float_reasons: tuple[str, ...]
    size_without_redzones: int | None
    models: HostModels
    recorded: RecordedProgram

    def entry(self) -> dict[str, Any]:
        """Return the fields that the cache on disk keeps."""
        lists = {name: list(getattr(self, name)) for name in ("nodes", "ancestors", "float_reasons")}
        pte = np.frombuffer(self.pte, np.uint8)
        return {"pte": pte, **lists, "size_without_redzones": self.size_without_redzones}


cache: Final[Lru[_Shared]] = Lru(16)


def export(
    module: Any,
    inputs: Inputs | list[Any] | None = None,
    layout: Layout = DEFAULT.layout,
    dynamic_shapes: Any = None,
) -> Exported:
    """Export a module in its present state, for any number of calls of `lower`; module and inputs are unchanged.

    Arguments and errors are those of `flow.export`, which describes them.
    """
    if isinstance(module, Exported):
        raise ConfigError(f"{module.title}: it is exported already", hint="lower it, as often as you like")
    dimensions: tuple[Dimension, ...] = ()
    if isinstance(module, load_torch().export.ExportedProgram):
        _require_no_shapes(dynamic_shapes, "the exported program")
        program = module
        module, inputs = module_of(program, inputs)
        dimensions = dimensions_of(program)
    require_module(module)
    if inputs is None:
        raise ConfigError("inputs are missing: a module is lowered with example inputs", hint=_INPUTS)
    dynamic_shapes = expanded_shapes(title_of(module), module, inputs, dynamic_shapes)
    given = _laid_out(inputs, LoweringOptions(layout=layout).layout)
    shapes = shapes_for(dimensions, given) if dimensions else dynamic_shapes
    with isolated():
        return trace(module, given, layout, shapes)


def _require_no_shapes(dynamic_shapes: Any, what: str) -> None:
    """Raise ConfigError where dynamic shapes are given with an exported module, whose shapes cannot change any more."""
    if dynamic_shapes is not None:
        raise ConfigError(f"dynamic_shapes: {what} has its own", hint="give them to its export")


def lower(
    module: Any,
    inputs: Inputs | list[Any] | None = None,
    *,
    isa: Isa,
    options: LoweringOptions = DEFAULT,
    name: str = "",
    dynamic_shapes: Any = None,
) -> Program:
    """Lower a torch module for an ISA class; leave it, the inputs and the state of torch's generator unchanged.

    The module is run and exported on every call, unless it is an `Exported`. Equal exports give the same program, from
    a cache. `name` is the name of the program; "": the name of the module's class. The other arguments, some of them in
    `options`, and the errors are described at `flow.lower`. For an `Exported`, other inputs of the same form may be
    given.
    """
    began = time.monotonic()
    exported = exported_once(module, inputs, options.layout, dynamic_shapes)
    options = replace(options, layout=exported.layout)
    if options.quantize:
        require_float(exported.title, exported.program)
    # Copies of the inputs: calibration runs the module, which may change its inputs in place.
    samples = [arrange(sample, options.layout) for sample in options.samples(exported.inputs)]
    for number, sample in enumerate(samples):
        what = f"calibration sample {number} is"
        require_alike(exported.title, what, sample, "the inputs are", exported.inputs, exported.dimensions)
    with stage_of("key"):
        key, no_key = key_or_reason(exported.program, exported.inputs, samples, *_keyed_options(options))
    source = _Source(exported, samples, options, key, no_key)
    own_key = None if key is None else digest(key, isa.value, options.redzones, *_bank_keys(options))
    made: _Lowered | None = None

    def make() -> Entry:
        nonlocal made
        made = _lowered(source, isa)
        return made.entry()

    with isolated():
        entry = disk.get_or_make("program", own_key, make)
    program = _program(source, isa, entry, made, own_key)
    seconds = time.monotonic() - began
    return replace(program, name=name or source.title, lowering_seconds=seconds, remembered=made is None)


def exported_once(
    module: Any, inputs: Inputs | list[Any] | None, layout: Layout, dynamic_shapes: Any = None
) -> Exported:
    """Export the module, unless it is an `Exported` already.

    Raise ConfigError for an `Exported` of another layout, and for inputs of other shapes.
    """
    if not isinstance(module, Exported):
        return export(module, inputs, layout, dynamic_shapes)
    _require_no_shapes(dynamic_shapes, "what is exported")
    if layout not in (DEFAULT.layout, module.layout):
        problem = f'layout="{layout}": the module was exported for {module.layout}'
        raise ConfigError(problem, hint=f'export(module, inputs, layout="{layout}")')
    if inputs is None:
        return module
    with isolated():
        return module.on(_laid_out(inputs, module.layout))


def on_inputs(program: Program, exported: Exported) -> Program:
    """Return a program with the inputs of `exported`, an export of the module that the program was lowered from."""
    from cortex_m_hil.lowering.reference import conform, to_host

    leaves = load_torch().utils._pytree.tree_leaves(exported.inputs)
    given = tuple(to_host(leaf) for leaf in leaves)
    inputs, reference = conform(given, program.file), program.reference
    if isinstance(reference, FloatReferences):
        reference = replace(reference, inputs=inputs, floats=given)
    return replace(program, inputs=inputs, reference=reference, lowering_seconds=0.0, remembered=True)


def _program(source: _Source, isa: Isa, entry: Entry, made: _Lowered | None, key: str | None) -> Program:
    """Return the program with the bytes, names and sizes of a cache entry; everything else comes from `source`.

    Args:
        source: the inputs of the lowering.
        isa: the ISA class.
        entry: the fields of `_Lowered.entry`.
        made: the lowering, if it was done in this call; None: the entry was found on disk.
        key: the key of the program; None: its references are not cached.
    """
    from cortex_m_hil.lowering.reference import RememberedReferences, conform, to_host

    pte = entry["pte"].tobytes()
    file = parse_pte(pte, source.title)
    leaves, structure = load_torch().utils._pytree.tree_flatten(source.inputs)
    given = tuple(to_host(leaf) for leaf in leaves)
    inputs, quantised = conform(given, file), quantised_inputs(given, file)
    lowered = functools.partial(_with_graphs, source, isa, pte, made)

    def models() -> HostModels:
        return lowered().models

    @functools.cache
    def host_models() -> HostModels:
        return replace(models(), eager=source.exported.program.module(check_guards=False))

    def undisturbed(samples: Sequence[tuple[HostTensor, ...]]) -> list[References]:
        host = host_models()
        with compiler_state.work(source.no_key):  # once for all samples, since it is slow
            return [host.undisturbed(one) for one in samples]

    def at_instructions(inputs: tuple[HostTensor, ...]) -> tuple[Intermediate, ...]:
        from cortex_m_hil.lowering.intermediates import intermediates

        host = models()
        with compiler_state.work(source.no_key):
            return intermediates(file, nodes, sources, host, source.exported.program, inputs)

    def stream(
        frames: Sequence[tuple[HostTensor, ...]], state: Sequence[HostTensor], floats: bool
    ) -> tuple[References, ...]:
        host = host_models()
        with compiler_state.work(source.no_key):
            return host.stream(frames, state, floats)

    nodes, size = tuple(entry["nodes"]), entry["size_without_redzones"]
    sources = node_origins.source_lines(entry["ancestors"], source.exported.program.graph)  # no key covers lines
    references = RememberedReferences(key, source.exported, structure, models, quantised_inputs=quantised)
    return Program(
        pte, file, isa, nodes, source.title, inputs,
        FloatReferences(references, inputs, given) if quantised else references, at_instructions,
        functools.partial(_origin, source), size,
        no_key=source.no_key, undisturbed=undisturbed, sources=sources, ancestors=tuple(entry["ancestors"]),
        float_reasons=tuple(entry["float_reasons"]), state_names=_state_names(source, file), stream=stream,
        dimensions=source.exported.dimensions,
        training=source.exported.training,
        etrecord=lambda inputs: lowered().recorded.etrecord(inputs, source.exported.program.graph),
    )  # fmt: skip


def _with_graphs(source: _Source, isa: Isa, pte: bytes, made: _Lowered | None) -> _Lowered:
    """Return `made`, or lower again; raise ToolchainError where that gives another program than `pte`."""
    found = made or _lowered(source, isa)
    if found.pte != pte:
        what = f"{source.title}: lowered again, it gives another program than the one in the cache"
        changed = compiler_state.problem()
        raise ToolchainError(what, hint=f"lower it again: {changed}" if changed else NOT_REPEATABLE)
    return found


def _origin(source: _Source) -> Any:
    """Return the origin of a program, from which parts can be cut.

    Raise ConfigError where parts would compute differently.
    """
    if source.exported.states:
        what = f"{source.title} has state ({_few(source.exported.states)}), which a part of it would not have"
        raise ConfigError(what, hint="hil localize names the operator")
    if source.exported.dimensions:
        what = f"{source.title} has dynamic shapes, which a part of it would not have"
        raise ConfigError(what, hint="lower it for the size that fails, without dynamic_shapes")
    from cortex_m_hil.lowering.submodules import ModulePart, Origin

    options = replace(source.options, calibration=None, io=DEFAULT.io)
    calibrated = source.options.calibration is not None
    part = ModulePart.from_exported(source.exported.program, source.inputs)
    return Origin(part, options, calibrated, source.options.io != DEFAULT.io)


def _state_names(source: _Source, file: PteFile) -> tuple[str, ...]:
    """Return the buffer of each state, assuming that ExecuTorch's emitter writes states in the order of the graph.

    Raise ToolchainError where the initial values contradict that.
    """
    names, program = source.exported.states, source.exported.program
    held = {**program.state_dict, **program.constants}
    wanted = [held[name].detach().cpu().numpy() for name in names]
    if [one.tobytes() for one in wanted] != [one.array().tobytes() for one in file.initial_state()]:
        what = f"{source.title}: the program's state is not what its buffers ({_few(names)}) hold"
        raise ToolchainError(what, hint="a defect of the lowering: report it with the module")
    return names


def _lowered(source: _Source, isa: Isa) -> _Lowered:
    """Lower for an ISA class; if it fails and the module has floats other than float32, name these in the error."""
    try:
        return _cached(source, isa)
    except LoweringError as error:
        others = dict(_non_float32_tensors(source)) if source.options.quantize else {}
        if not others:
            raise
        dtypes = " and ".join(dict.fromkeys(str(dtype).removeprefix("torch.") for dtype in others.values()))
        raise LoweringError(
            f"{source.title}: {dtypes} is not supported ({_few(list(others))}): only float32 is quantised",
            hint="module.float(), and x.float() for each input",
            details=[("stage", error.message)],
            log=error.log,
        ) from error.__cause__


def _few(names: Sequence[str]) -> str:
    return ", ".join([*names[:4], *(["…"] if len(names) > 4 else [])])


def _cached(source: _Source, isa: Isa) -> _Lowered:
    """Lower for an ISA class, or return the result from the cache in memory of the last few lowerings.

    A lowering without a key may run the user's code, such as a custom operator during calibration.
    """
    torch = executorch_api().torch
    with (
        isolated(),
        compiler_state.work(source.no_key),
        operators_looked_up_once(),
        bins_compared_by_numpy(),
    ):
        torch.default_generator.manual_seed(0)  # so that the result depends only on the key
        shared = cache.get(source.key)
        if shared is None:
            shared = _prepare(source)
            cache.put(source.key, shared)
        which = (isa, *source.options.plan)
        if which not in shared.lowered:
            shared.lowered[which] = _lower_for_isa(source, shared, isa)
        return shared.lowered[which]


def clear_cache() -> None:
    """Empty the cache in memory."""
    cache.clear()


def _laid_out(inputs: Inputs | list[Any], layout: Layout) -> Inputs:
    """Return the inputs in the layout; raise ConfigError for a wrong call or values that cannot be sent to a target."""
    from cortex_m_hil.lowering.reference import to_host

    inputs = tuple(inputs) if isinstance(inputs, list) else inputs
    if not isinstance(inputs, tuple):
        raise ConfigError(f"inputs is a tuple of tensors, not {shown(inputs)}", hint="a tuple: (x,) for one input x")
    given = arrange(inputs, layout)
    for leaf in load_torch().utils._pytree.tree_leaves(given):
        to_host(leaf)
    return given


def _keyed_options(options: LoweringOptions) -> Iterator[tuple[str, object]]:
    """Yield names and values of the options that affect `_Shared`: all but the samples and the memory plan.

    The samples are part of the key as values.
    """
    for one in fields(options):
        if one.name not in ("calibration", "redzones", "banks"):
            yield one.name, getattr(options, one.name)


def _bank_keys(options: LoweringOptions) -> Iterator[tuple[str, int]]:
    """Yield the banks of the memory plan, for a key; nothing for a plan of one memory."""
    yield from ((bank.region, bank.size) for bank in options.plan[1])


def _hint(options: LoweringOptions) -> str:
    """Return the hint for a failure after the export."""
    more = "the module runs and exports: ExecuTorch's traceback says more"
    if options.layout == "explicit":
        return f'{more}; layout="channels_last" is what it calls the legacy layout, and lowers more operators'
    return f"{more}, quantize=False whether quantising is to blame" if options.quantize else more


def _non_float32_tensors(source: _Source) -> Iterator[tuple[str, Any]]:
    """Yield names and dtypes of floating tensors other than float32, among inputs and parameters."""
    torch = load_torch()
    named = {f"input {number}": leaf for number, leaf in enumerate(torch.utils._pytree.tree_leaves(source.inputs))}
    for name, value in {**named, **source.exported.program.state_dict}.items():
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype != torch.float32:
            yield name, value.dtype


def _prepare(source: _Source) -> _Shared:
    """Run the lowering up to the edge program."""
    api = executorch_api()
    if source.options.layout == "explicit" and not api.explicit_layout:
        raise lacking("explicit layout", "1.5.1")
    hint = _hint(source.options)
    # A copy, since the export may be lowered again, and is the float reference.
    exported = copy.deepcopy(source.exported.program)
    quantized: Any = None
    float_reasons: Mapping[str, str] = {}
    if source.options.quantize:
        quantized, exported, float_reasons = _quantized(source, exported, hint)
    config = api.edge_compile_config()
    edge = run_stage(source.title, "to_edge", hint, lambda: api.to_edge(exported, compile_config=config))
    made = run_stage(source.title, "io", hint, lambda: with_quantised_io(edge, source.options.io, source.title))
    return _Shared(quantized, float_reasons, made, hint)


def _quantized(source: _Source, exported: Any, hint: str) -> tuple[Any, Any, Mapping[str, str]]:
    """Return the fake-quantised module, its export, and for each node that stays in float the quantiser's reason."""
    title, what = source.title, "export of the quantised module"
    shapes = shapes_for(source.exported.dimensions, source.inputs)
    if not source.exported.states:
        module, float_reasons = _quantize(source, None, exported, hint)
        return module, run_stage(title, what, hint, lambda: flat_export(module, source.inputs, shapes)), float_reasons
    stateful: ExplicitStateProgram = run_stage(
        title, "state as inputs", hint, lambda: ExplicitStateProgram.from_exported(exported, title)
    )
    module, float_reasons = _quantize(source, stateful, stateful.program, hint)
    shapes = None if shapes is None else (*(None for _ in stateful.first), *shapes)
    again = run_stage(title, what, hint, lambda: flat_export(module, (*stateful.first, *source.inputs), shapes))
    bound = run_stage(title, "inputs as state", hint, lambda: stateful.bind(again, source.inputs))
    return bound.module(check_guards=False), bound, float_reasons


def _quantize(
    source: _Source, stateful: ExplicitStateProgram | None, exported: Any, hint: str
) -> tuple[Any, Mapping[str, str]]:
    """Return the fake-quantised module (PT2E), and for each node that stays in float the quantiser's reason.

    `stateful` is a program with state, else None; then `exported` is `stateful.program`. The user's quantiser is copied
    before use, since it may keep data of one graph for the next. The default is ExecuTorch's quantiser for Cortex-M.
    """
    api, title = executorch_api(), source.title
    explicit = {"use_explicit_layout": True} if source.options.layout == "explicit" else {}
    own = source.options.quantizer
    # The quantiser does not understand the graph of an exported module with guards.
    graph = exported.module(check_guards=False)
    made = functools.partial(api.quantizer, **explicit) if own is None else functools.partial(copy.deepcopy, own)
    quantizer = run_stage(title, "making the quantiser", hint, made)
    prepared = run_stage(title, "prepare_pt2e", hint, lambda: api.prepare_pt2e(graph, quantizer))
    state = () if stateful is None else stateful.first
    # Samples are frames of one stream. So that the state after the last sample is observed too, the last sample runs
    # twice.
    for number, sample in enumerate([*source.samples, *(source.samples[-1:] if stateful is not None else ())]):
        try:
            call = functools.partial(prepared, *state, *sample)
            given = run_stage(title, f"calibration with sample {number}", hint, call)
        except LoweringError as error:
            raise (_sample_error(source, number, error) or error) from error.__cause__
        state = () if stateful is None else stateful.next(given)
    float_reasons = node_origins.float_reasons(quantizer, exported.graph)
    return run_stage(title, "convert_pt2e", hint, lambda: api.convert_pt2e(prepared)), float_reasons


def _sample_error(source: _Source, number: int, error: LoweringError) -> ConfigError | None:
    """Return a ConfigError where a sample's values explain why the module fails on it (not finite), or None."""
    torch = load_torch()
    leaves = torch.utils._pytree.tree_leaves(source.samples[number])
    name = "the inputs have" if source.options.calibration is None else f"calibration sample {number} has"
    if any(isinstance(leaf, torch.Tensor) and not leaf.isfinite().all() for leaf in leaves):
        return ConfigError(
            f"{source.title}: {name} values that are not finite, and so no range to quantise by",
            hint="calibration=[(x,), …] with finite values",
            details=[("stage", error.message)],
            log=error.log,
        )
    return None


def _lower_for_isa(source: _Source, shared: _Shared, isa: Isa) -> _Lowered:
    """Run the Cortex-M passes and to_executorch for an ISA class."""
    from cortex_m_hil.lowering.etrecord import RecordedProgram
    from cortex_m_hil.lowering.reference import HostModels, to_host

    api, title, hint = executorch_api(), source.title, shared.hint
    # A copy, since the passes add constants to the program that they are given.
    edge, sizes = copy.deepcopy(shared.edge), SizeWatch(title, source.exported.dimensions)
    with sizes.passes(edge.exported_program()):
        edge._edge_programs["forward"] = run_stage(
            title, f"Cortex-M passes for {isa.value}", hint, lambda: _passes(edge, source.options, isa)
        )
    keep_initial_values(edge.exported_program())
    # A copy for the reference, since after to_executorch only ExecuTorch's runtime can run the graph.
    dialect = copy.deepcopy(edge.exported_program())
    planner, plan = _planning(source.options, title)
    config = api.backend_config(extract_delegate_segments=False, **plan)
    made = run_stage(title, f"to_executorch for {isa.value}", hint, lambda: edge.to_executorch(config))
    pte = bytes(made.buffer)
    file = parse_pte(pte, title)
    sizes.require_planned(file)
    leaves, structure = load_torch().utils._pytree.tree_flatten(source.inputs)
    quantised = quantised_inputs([to_host(leaf) for leaf in leaves], file)
    run = dialect.module(check_guards=False)
    models = HostModels(None, shared.quantized, run, structure, source.exported.states, quantised)
    size_without_redzones = None if planner is None else planner.size_without_redzones
    nodes = graph_nodes(made, file)
    ancestors = node_origins.ancestors(nodes, dialect.graph, source.exported.program.graph)
    float_reasons = tuple(shared.float_reasons.get(name, "") for name in ancestors)
    recorded = RecordedProgram(title, dialect, nodes, ancestors)
    return _Lowered(pte, nodes, ancestors, float_reasons, size_without_redzones, models, recorded)


def _planning(options: LoweringOptions, title: str) -> tuple[RedzonePlanner | None, dict[str, Any]]:
    """Return (the planner for red zones or None, the arguments of ExecutorchBackendConfig for the memory plan)."""
    if not any(options.plan):
        return None, {}
    algorithm = planning_algorithm(options.plan[1], title)
    planner = RedzonePlanner(algorithm, options.plan[1]) if options.redzones else None
    return planner, {"memory_planning_pass": planning_pass(planner or algorithm)}


def _passes(edge: Any, options: LoweringOptions, isa: Isa) -> Any:
    api = executorch_api()
    explicit = {"use_explicit_layout": True} if options.layout == "explicit" else {}
    config = api.target_config.from_target_string(CPU_OF[isa])
    return api.pass_manager(edge.exported_program(), target_config=config, **explicit).transform()


def graph_nodes(made: Any, file: PteFile) -> tuple[str, ...]:
    """Return ``node name (module path)`` for each instruction of an ExecutorchProgramManager's program.

    The emitter writes one instruction per operator node, in graph order; allocations and static views have none. If
    names and instructions do not match one to one, all are "" rather than some of them wrong.
    """
    nodes = [node for node in made.exported_program().graph.nodes if _operator_of(node)]
    if [_operator_of(node) for node in nodes] != [instruction.operator for instruction in file.instructions]:
        return ("",) * len(file.instructions)
    return tuple(_describe(node) for node in nodes)


def _operator_of(node: Any) -> str:
    """Return ``ns::name.overload`` of a call node, or "" for anything that is no operator."""
    schema = getattr(node.target, "_schema", None) if node.op == "call_function" else None
    if schema is None:
        return ""
    return str(schema.name) + (f".{schema.overload_name}" if schema.overload_name else "")


_NO_MODULE: Final = "_empty_nn_module_stack_from_metadata_hook"  # torch's path for a node outside any module's call


def _describe(node: Any) -> str:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = stack[-1][0] if stack and stack[-1][0] != _NO_MODULE else ""
    return f"{node.name} ({path})" if path else str(node.name)
