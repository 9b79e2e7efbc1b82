"""ExecuTorch's own Cortex-M test suite: where it is, which of its tests run programs, and the taking over of these.

The suite stays as it is installed. While a test runs, four methods of ExecuTorch are replaced in memory: the pass
manager's constructor (it lowers for the target's configuration), `to_executorch` (it keeps the graph that Python can
still run, the reference), the tester's `run_artifact` (it would start an FVP) and its `_run_stage` (what does not
depend on the target is done once for all targets).
"""

from __future__ import annotations

import ast
import copy
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from unittest import mock

from cortex_m_hil.errors import ToolchainError
from cortex_m_hil.lowering.cache import Lru, key_of
from cortex_m_hil.lowering.capability import INSTALL, executorch_api, feature
from cortex_m_hil.lowering.content import digest
from cortex_m_hil.lowering.live import export
from cortex_m_hil.lowering.pipeline import CPU_OF, graph_nodes
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.pte import parse_pte
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.targets.model import Target

_PACKAGE: Final = "executorch.backends.cortex_m"
# A test function that mentions one of these runs a program on the target; the others stay on the host.
_RUNS: Final = frozenset({"run_artifact", "run_on_fvp", "serialize", "test_implementation"})
# No stage up to here knows the target; the Cortex-M passes, which do, are the next.
_SHARED: Final = frozenset({"QUANTIZE", "EXPORT", "TO_EDGE"})
# Few: the targets of one test run one after the other, and a test seldom lowers more than one module.
stages: Final[Lru[dict[str, Any]]] = Lru(8)


def find() -> Path:
    """The suite's folder, in an installed wheel or in an editable checkout. Imports neither torch nor ExecuTorch."""
    try:
        spec = importlib.util.find_spec(_PACKAGE)
    except ModuleNotFoundError:
        spec = None
    for place in (spec.submodule_search_locations or []) if spec is not None else []:
        folder = Path(place).resolve() / "test"
        if (folder / "tester.py").is_file():
            return folder
    raise ToolchainError(f"no test suite: {_PACKAGE} has no test/tester.py, or is not installed", hint=INSTALL)


def implementation_tests(module: Path) -> frozenset[str]:
    """Names of a test module's functions that run a program on a target; the module is read, not imported.

    `test_dialect_*` run the Python operators, by methods of the same names.
    """
    tree = ast.parse(module.read_bytes(), str(module))
    tests = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    return frozenset(
        test.name for test in tests if not test.name.startswith("test_dialect") and _mentioned(test) & _RUNS
    )


def _mentioned(function: ast.FunctionDef) -> frozenset[str]:
    nodes = list(ast.walk(function))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return frozenset(names | {node.attr for node in nodes if isinstance(node, ast.Attribute)})


def configuration(target: Target) -> Any:
    """ExecuTorch's CortexMTargetConfig of a target: its CPU with its ISA class, so an override of the class counts."""
    cpu = CPU_OF[target.isa] if target.cpu == "host" else target.cpu
    config = executorch_api().target_config
    backend = feature(f"{_PACKAGE}.library.cmsis_nn", "Backend")
    return config(cpu=config.from_target_string(cpu).cpu, isa=getattr(backend, target.isa.value))


def clear_cache() -> None:
    """Forget every stage."""
    stages.clear()


@contextmanager
def taken_over(target: Target, run: Callable[[Program], Sequence[HostTensor]]) -> Iterator[None]:
    """Within the block, what upstream's tester lowers is for `target`, and what it executes is given to `run`."""
    config = configuration(target)
    references: dict[int, tuple[Any, Any]] = {}  # by identity of the result, which is kept alive
    manager: Any = executorch_api().pass_manager
    edge = feature("executorch.exir", "EdgeProgramManager")
    stage = feature(f"{_PACKAGE}.test.tester", "CortexMSerialize")
    tester = feature("executorch.backends.test.harness", "Tester")
    construct: Callable[..., None] = manager.__init__
    to_executorch: Callable[..., Any] = edge.to_executorch

    def construct_for_target(self: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        self.target_config = config

    def to_executorch_with_reference(self: Any, *args: Any, **kwargs: Any) -> Any:
        dialect = copy.deepcopy(self.exported_program())  # to_executorch leaves nothing that Python can run
        made = to_executorch(self, *args, **kwargs)
        references[id(made)] = (made, dialect)
        return made

    def run_artifact(self: Any, inputs: Any) -> list[Any]:
        from cortex_m_hil.lowering.reference import to_torch

        made = self.executorch_program_manager
        return [to_torch(output) for output in run(_program(made, references[id(made)][1], inputs, target))]

    with ExitStack() as stack:
        for owner, name, replacement in (
            (manager, "__init__", construct_for_target),
            (edge, "to_executorch", to_executorch_with_reference),
            (stage, "run_artifact", run_artifact),
            (tester, "_run_stage", _sharing(tester._run_stage)),
        ):
            stack.enter_context(mock.patch.object(owner, name, replacement))
        yield


def _sharing(run_stage: Callable[..., Any]) -> Callable[..., Any]:
    """`Tester._run_stage` that remembers the stages before the Cortex-M passes, by content.

    The key covers what the stage starts from, its inputs, class and configuration; what has no such key is run, and so
    is a stage that changes its inputs (calibrating a module that works in place does), which has to happen for every
    target. Every use gets a copy of its own, since comparing changes the exported program.
    """

    def run(self: Any, stage: Any, inputs: Any = None, *args: Any, **kwargs: Any) -> Any:
        if stage.stage_type().name not in _SHARED:
            return run_stage(self, stage, inputs, *args, **kwargs)
        start = _Start(self, stage, inputs)
        key = None if start.content is None else key_of(start.content, type(stage), vars(stage), inputs, args, kwargs)
        found = stages.get(key)
        if key is None:
            return run_stage(self, stage, inputs, *args, **kwargs)
        torch = executorch_api().torch
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)  # what the stage makes depends on nothing but the key
            if found is None:
                before, given = dict(vars(stage)), digest(inputs)
                with start.in_place_of_export():
                    run_stage(self, stage, inputs, *args, **kwargs)
                found = {name: value for name, value in vars(stage).items() if value is not before.get(name)}
                if given != digest(inputs) or not start.used:
                    return self
                stages.put(key, found)
                vars(stage).update(copy.deepcopy(found))  # as all further uses: a copy may have other names of nodes
                return self
        self._pre(stage)
        vars(stage).update(copy.deepcopy(found))
        self._post(stage)
        return self

    return run


class _Start:
    """What a stage starts from: the artifact of the one before, or, for quantising, the export of the tested module.

    Quantising begins with that export. It is made here, for the key, and handed over, so that what is quantised is
    what the key is of. ``content`` is None where the stage starts from a module in another way.
    """

    def __init__(self, tester: Any, stage: Any, inputs: Any) -> None:
        torch = executorch_api().torch
        self.quantising = feature("executorch.backends.test.harness.stages", "Quantize")
        self.module = tester.original_module if tester.cur is None else None
        self.inputs = inputs
        self.content: Any = None
        self.used = self.module is None
        if self.module is None:
            self.content = tester.get_artifact()
        elif isinstance(stage, self.quantising) and not stage.is_qat and isinstance(self.module, torch.nn.Module):
            with suppress(Exception):  # without a key the stage itself meets the error, and says it to upstream's test
                self.content = export(self.module, inputs)

    def in_place_of_export(self) -> Any:
        """Within the block the stage's own export of the same module is the one that `content` is."""
        home = sys.modules[self.quantising.__module__]
        exported = home.export

        def known(module: Any, *args: Any, **kwargs: Any) -> Any:
            same = module is self.module and len(args) == 1 and args[0] is self.inputs and kwargs == {"strict": True}
            if not same:
                return exported(module, *args, **kwargs)
            self.used = True
            return self.content

        return mock.patch.object(home, "export", known)


def _program(made: Any, dialect: Any, inputs: Any, target: Target) -> Program:
    """What upstream's tester serialised, with the inputs it is to run on and the dialect as the only reference."""
    from cortex_m_hil.lowering.reference import HostModels, conform, to_host

    pte = bytes(made.buffer)
    file = parse_pte(pte, "program")
    leaves, structure = executorch_api().torch.utils._pytree.tree_flatten(inputs)
    models = HostModels(None, None, dialect.module(check_guards=False), structure)
    given = conform([to_host(leaf) for leaf in leaves], file.input_specs())
    return Program(pte, file, target.isa, graph_nodes(made, file), "program", given, models)
