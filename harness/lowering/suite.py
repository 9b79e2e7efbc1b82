"""ExecuTorch's own Cortex-M test suite: where it is, which of its tests run programs, and the taking over of these.

The suite stays as it is installed. While a test runs, three methods of ExecuTorch are replaced in memory: the pass
manager's constructor (it lowers for the target's configuration), `to_executorch` (it keeps the graph that Python can
still run, the reference) and the tester's `run_artifact` (it would start an FVP).
"""

from __future__ import annotations

import ast
import copy
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final
from unittest import mock

from harness.errors import ToolchainError
from harness.lowering.capability import INSTALL, feature, tools
from harness.lowering.pipeline import CPU_OF, graph_nodes
from harness.program import HostTensor, Program, parse_pte
from harness.targets import Target

_PACKAGE: Final = "executorch.backends.cortex_m"
# A test function that mentions one of these runs a program on the target; the others stay on the host.
_RUNS: Final = frozenset({"run_artifact", "run_on_fvp", "serialize", "test_implementation"})


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
    config = tools().target_config
    backend = feature(f"{_PACKAGE}.library.cmsis_nn", "Backend")
    return config(cpu=config.from_target_string(cpu).cpu, isa=backend[target.isa.value])


@contextmanager
def taken_over(target: Target, run: Callable[[Program], Sequence[HostTensor]]) -> Iterator[None]:
    """Within the block, what upstream's tester lowers is for `target`, and what it executes is given to `run`."""
    config = configuration(target)
    references: dict[int, tuple[Any, Any]] = {}  # by identity of the result, which is kept alive
    manager = tools().pass_manager
    edge = feature("executorch.exir", "EdgeProgramManager")
    stage = feature(f"{_PACKAGE}.test.tester", "CortexMSerialize")
    construct, to_executorch = manager.__init__, edge.to_executorch

    def construct_for_target(self: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        self.target_config = config

    def to_executorch_with_reference(self: Any, *args: Any, **kwargs: Any) -> Any:
        dialect = copy.deepcopy(self.exported_program())  # to_executorch leaves nothing that Python can run
        made = to_executorch(self, *args, **kwargs)
        references[id(made)] = (made, dialect)
        return made

    def run_artifact(self: Any, inputs: Any) -> list[Any]:
        from harness.reference import to_torch

        made = self.executorch_program_manager
        return [to_torch(output) for output in run(_program(made, references[id(made)][1], inputs, target))]

    with ExitStack() as stack:
        for owner, name, replacement in (
            (manager, "__init__", construct_for_target),
            (edge, "to_executorch", to_executorch_with_reference),
            (stage, "run_artifact", run_artifact),
        ):
            stack.enter_context(mock.patch.object(owner, name, replacement))
        yield


def _program(made: Any, dialect: Any, inputs: Any, target: Target) -> Program:
    """What upstream's tester serialised, with the inputs it is to run on and the dialect as the only reference."""
    from harness.reference import HostModels, conform, to_host

    pte = bytes(made.buffer)
    file = parse_pte(pte, "program")
    leaves, structure = tools().torch.utils._pytree.tree_flatten(inputs)
    models = HostModels(None, None, dialect.module(check_guards=False), structure)
    given = conform([to_host(leaf) for leaf in leaves], file.input_specs())
    return Program(pte, file, target.isa, graph_nodes(made, file), "program", given, models)
