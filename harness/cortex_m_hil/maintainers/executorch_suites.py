"""ExecuTorch's own suites of tests: where they are, which tests run programs, and the taking over of these.

One has its Cortex-M tests; the other is its backend suite, of which the Cortex-M flow is run. They stay as they are
installed. While a test runs, some methods of ExecuTorch are replaced in memory: the pass
manager's constructor (it lowers for the target's configuration), `to_executorch` (it keeps the graph that Python can
still run, the reference), the `run_artifact` of what was serialised (it would start an FVP), and of the tester what
runs a stage and what compares: what does not depend on the target is done once for all targets, and what the disk
remembers is not done again.
"""

from __future__ import annotations

import ast
import copy
import importlib.util
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np

from cortex_m_hil.errors import ToolchainError
from cortex_m_hil.lowering.cache import Lru, passing_key, passing_key_or_reason
from cortex_m_hil.lowering.capability import INSTALL, executorch_api, feature
from cortex_m_hil.lowering.content_digest import NoContent, digest
from cortex_m_hil.lowering.disk_cache import DiskCache, Entry, disk
from cortex_m_hil.lowering.module_export import strict_export
from cortex_m_hil.lowering.pipeline import CPU_OF, graph_nodes
from cortex_m_hil.lowering.torch_shortcuts import operators_looked_up_once
from cortex_m_hil.program.program import Intermediate, Program
from cortex_m_hil.program.pte import parse_pte
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.targets.model import Target

_PACKAGE: Final = "executorch.backends.cortex_m"
# A test function that mentions one of these runs a program on the target; the others stay on the host.
_RUNS: Final = frozenset({"run_artifact", "run_on_fvp", "serialize", "test_implementation", "test_runner", "_test_op"})
# No stage up to here knows the target; the Cortex-M passes, which do, are the next.
_SHARED: Final = frozenset({"QUANTIZE", "EXPORT", "TO_EDGE"})
# Few: the targets of one test run one after the other, and a test seldom lowers more than one module.
stages: Final[Lru[dict[str, Any]]] = Lru(8)


def find() -> Path:
    """The folder of the Cortex-M tests, in a wheel or in an editable checkout. Imports neither torch nor ExecuTorch."""
    try:
        spec = importlib.util.find_spec(_PACKAGE)
    except ModuleNotFoundError:
        spec = None
    for place in (spec.submodule_search_locations or []) if spec is not None else []:
        folder = Path(place).resolve() / "test"
        if (folder / "tester.py").is_file():
            return folder
    raise ToolchainError(f"no test suite: {_PACKAGE} has no test/tester.py, or is not installed", hint=INSTALL)


def find_backend_suite() -> Path:
    """The same of the backend suite; ToolchainError where it has no Cortex-M flow."""
    folder = find().parents[1] / "test" / "suite"
    if not (folder / "flows" / "cortex_m.py").is_file():
        raise ToolchainError("no backend suite with a Cortex-M flow: this ExecuTorch is older than 1.5", hint=INSTALL)
    return folder


def only_cortex_m_flow() -> None:
    """From now on the backend suite knows its Cortex-M flow only: whether Arm's FVP is there is asked no more."""
    known = feature("executorch.backends.test.suite.flow")
    flow = feature("executorch.backends.test.suite.flows.cortex_m", "CORTEX_M_TEST_FLOW")
    known.all_flows = lambda: {flow.name: flow}


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


RunStage = Callable[..., Any]
Execute = Callable[[Program], Sequence[HostTensor]]


@contextmanager
def taken_over(test: str, target: Target, execute: Execute, *, remembered: bool = False) -> Iterator[None]:
    """Within the block, what upstream's tester lowers is for `target`, and what it executes is given to `execute`.

    `test` is a name without the target: what the same test did for another target is not done again, since a test that
    changes the compiler does it for all alike. With `remembered` neither is what it did in an earlier process: that is
    for tests of the suite, whose files are among the compiler's.
    """
    with ExitStack() as stack:
        for owner, name, replacement in _Takeover(test, target, execute, remembered).replacements():
            stack.enter_context(mock.patch.object(owner, name, replacement))
        stack.enter_context(operators_looked_up_once())
        yield


class _Takeover:
    """What upstream's methods are replaced by, for one target."""

    def __init__(self, test: str, target: Target, execute: Execute, remembered: bool) -> None:
        self.test = test
        self.target = target
        self.disk = disk if remembered else DiskCache(enabled=False)
        self.config = configuration(target)
        self._execute = execute
        self._dialects: dict[int, tuple[Any, Any]] = {}  # by identity of the result, which is kept alive

    def replacements(self) -> Iterator[tuple[Any, str, Any]]:
        """Classes of ExecuTorch, and a method of each with what stands in its place."""
        manager: Any = executorch_api().pass_manager
        edge = feature("executorch.exir", "EdgeProgramManager")
        serialize = feature(f"{_PACKAGE}.test.tester", "CortexMSerialize")
        construct, to_executorch = manager.__init__, edge.to_executorch

        def construct_for_target(manager: Any, *args: Any, **kwargs: Any) -> None:
            construct(manager, *args, **kwargs)
            manager.target_config = self.config

        def to_executorch_with_dialect(edge: Any, *args: Any, **kwargs: Any) -> Any:
            dialect = copy.deepcopy(edge.exported_program())  # to_executorch leaves nothing that Python can run
            made = to_executorch(edge, *args, **kwargs)
            self._dialects[id(made)] = (made, dialect)
            return made

        def run_artifact(stage: Any, inputs: Any) -> list[Any]:
            alone = _Made(lambda: stage.executorch_program_manager, None, "a stage that no tester of ExecuTorch's ran")
            return self.executed(alone, inputs)

        yield manager, "__init__", construct_for_target
        yield edge, "to_executorch", to_executorch_with_dialect
        yield serialize, "run_artifact", run_artifact
        yield from self._of_the_tester()

    def _of_the_tester(self) -> Iterator[tuple[Any, str, Any]]:
        tester = feature("executorch.backends.test.harness", "Tester")
        run_stage, compare = tester._run_stage, tester.run_method_and_compare_outputs
        calculate = tester._calculate_reference_output
        known: weakref.WeakKeyDictionary[Any, _Stages] = weakref.WeakKeyDictionary()

        def run_late(tester: Any, stage: Any, inputs: Any = None, *args: Any, **kwargs: Any) -> Any:
            known.setdefault(tester, _Stages(self, tester, run_stage)).run(stage, inputs, *args, **kwargs)
            return tester

        def compare_outputs(tester: Any, *args: Any, **kwargs: Any) -> Any:
            with known[tester].comparing() if tester in known else nullcontext():
                return compare(tester, *args, **kwargs)

        def calculate_reference(program: Any, inputs: Any) -> Any:
            return program.outputs(inputs, calculate) if isinstance(program, _Reference) else calculate(program, inputs)

        yield tester, "_run_stage", run_late
        yield tester, "run_method_and_compare_outputs", compare_outputs
        yield tester, "_calculate_reference_output", staticmethod(calculate_reference)

    def executed(self, made: _Made, inputs: Any) -> list[Any]:
        """The outputs on the target."""
        from cortex_m_hil.lowering.reference import to_torch

        return [to_torch(output) for output in self._execute(self._program(made, inputs))]

    def _program(self, made: _Made, inputs: Any) -> Program:
        """With its inputs, and the dialect as the only reference."""
        from cortex_m_hil.lowering.intermediates import intermediates
        from cortex_m_hil.lowering.reference import HostModels, RememberedReferences, conform, to_host

        leaves, structure = executorch_api().torch.utils._pytree.tree_flatten(inputs)
        key = made.key if self.disk.enabled else None
        found = True

        def make() -> Entry:
            nonlocal found
            found = False
            return _entry(made.get())

        entry = self.disk.get_or_make("program", key, make)
        pte = entry["pte"].tobytes()
        file = parse_pte(pte, "program")

        def models() -> HostModels:
            again = made.get()
            if bytes(again.buffer) != pte:
                what = "lowered again, a test of ExecuTorch's gives another program than the one in the cache"
                raise ToolchainError(
                    what, hint="hil doctor cache clear, and report it: a lowering that is not repeatable"
                )
            return HostModels(None, None, self._dialects[id(again)][1].module(check_guards=False), structure)

        def at_instructions(inputs: tuple[HostTensor, ...]) -> tuple[Intermediate, ...]:
            return intermediates(file, nodes, ("",) * len(nodes), models(), None, inputs)

        given = conform([to_host(leaf) for leaf in leaves], file)
        nodes = tuple(entry["nodes"])
        references = RememberedReferences(key, None, structure, models, lambda: "")
        return Program(
            pte, file, self.target.isa, nodes, "program", given, references, at_instructions,
            lowering_seconds=made.seconds(), remembered=found and not made.no_key, no_key=made.no_key,
        )  # fmt: skip


@dataclass(frozen=True)
class _Made:
    """What to_executorch made, or would: `get` runs the stages. `no_key` says why there is no `key`.

    `seconds` is what the test's stages have taken until now.
    """

    get: Callable[[], Any]
    key: str | None
    no_key: str
    seconds: Callable[[], float | None] = lambda: None


def _entry(made: Any) -> dict[str, Any]:
    """What the disk remembers of what to_executorch made."""
    pte = bytes(made.buffer)
    return {"pte": np.frombuffer(pte, np.uint8), "nodes": list(graph_nodes(made, parse_pte(pte, "program")))}


class _Stages:
    """The stages of one of upstream's testers, in order.

    A stage that has succeeded before on what this one starts from, here or in another process, is put off: it is run as
    soon as something of it is looked at, by a check of upstream's say. What most tests end with, the outputs of
    the reference and the program, is remembered on disk; where nothing else is looked at, nothing is lowered.
    """

    def __init__(self, takeover: _Takeover, tester: Any, run_stage: RunStage) -> None:
        self.takeover = takeover
        self.tester: Any = weakref.proxy(tester)
        self.key: str | None = None  # of what the last stage makes; None: known by its content only
        self.no_key = ""  # of the first stage without: the later ones have to be run for what it makes
        self.seconds = 0.0
        self.is_inside = self.is_comparing = False
        self._run_stage = run_stage
        self._late: list[_Stage] = []

    def run(self, stage: Any, inputs: Any, *args: Any, **kwargs: Any) -> None:
        """As `Tester._run_stage` does."""
        with self._inside():
            one = _Stage(self, stage, inputs, args, kwargs)
            if one.key is not None and self.takeover.disk.get("stage", one.key) is not None:
                self.tester._pre(stage)
                self._late.append(one)
            else:
                self.catch_up()
                if self._run(one) and one.key is not None:
                    self.takeover.disk.get_or_make("stage", one.key, dict)
            self.tester._post(one)
            self.key = one.key
            self.no_key = self.no_key or one.no_key

    def catch_up(self) -> None:
        """Runs what was put off, as if it had been run in its turn."""
        late, self._late = self._late, []
        if not late:
            return
        with self._inside():
            now = self.tester.cur
            for one in late:
                self.tester.stages[one.stage_type()] = None
            self.tester.cur = late[0].after
            for one in late:
                self._run(one)
                self.tester._post(one)
            self.tester.cur = now

    def _run(self, one: _Stage) -> bool:
        """Whether the stage does the same each time: not if it changes its inputs, as calibrating in place does."""
        if one.key is None or not one.is_shared:
            self._run_stage(self._after_its_own(one), one.stage, *one.args, **one.kwargs)
            return one.key is not None
        torch = executorch_api().torch
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)  # what the stage makes depends on nothing but the key
            found = stages.get(one.key)
            if found is None:
                before, given = dict(vars(one.stage)), digest(one.args)
                with one.start.in_place_of_export():
                    self._run_stage(self._after_its_own(one), one.stage, *one.args, **one.kwargs)
                found = {name: value for name, value in vars(one.stage).items() if value is not before.get(name)}
                if given != digest(one.args) or not one.start.used:
                    return False
                stages.put(one.key, found)
            else:
                self.tester._pre(one.stage)
            one.remembered = found
        return True

    def _after_its_own(self, one: _Stage) -> Any:
        """The tester, whose last stage has a copy of its own of what it made for `one` to start from."""
        if one.after is not None:
            self.tester.stages[one.after].copy_remembered()
        return self.tester

    @contextmanager
    def _inside(self) -> Iterator[None]:
        """Within the block it is we who look at stages."""
        before, self.is_inside = self.is_inside, True
        began = time.monotonic()
        try:
            yield
        finally:
            self.is_inside = before
            if not before:
                self.seconds += time.monotonic() - began

    @contextmanager
    def comparing(self) -> Iterator[None]:
        """Within the block what a stage made is looked at as the reference only."""
        self.is_comparing = True
        try:
            yield
        finally:
            self.is_comparing = False


class _Stage:
    """What upstream's tester has in the place of a stage: runs it, if need be, when something of it is looked at.

    ``key`` covers what the stage starts from, its inputs, class and configuration; where one has no content it is None,
    and ``no_key`` says what.
    """

    def __init__(self, stages: _Stages, stage: Any, inputs: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.stages, self.stage = stages, stage
        self.after = stages.tester.cur
        self.args, self.kwargs = (inputs, *args), kwargs
        self.start = _Start(stages, stage, inputs)
        self.is_shared = self.stage_type().name in _SHARED
        self.remembered: dict[str, Any] | None = None  # what it made for all targets, if not copied for this one yet
        self.key: str | None = None
        self.no_key = "what ExecuTorch's first stage starts from is not known by an export"
        if self.start.content is not None:
            config = stages.takeover.config
            which = None if self.is_shared else (config.cpu.name, config.backend.name)
            what = (self.start.content, type(stage), self._settings(), which, self.args, kwargs)
            self.key, self.no_key = passing_key_or_reason(stages.takeover.test, *what)

    def _settings(self) -> dict[str, Any]:
        """What of the stage differs from upstream's default: of that, some sets have another order in each process.

        What is serialised is not given to an FVP, which is what the settings of that stage are about.
        """
        if self.stage_type().name == "SERIALIZE":
            return {}
        usual = self.stages.tester._get_default_stage(self.stage_type())
        if type(usual) is not type(self.stage):
            return dict(vars(self.stage))
        found = vars(self.stage).items()
        return {name: value for name, value in found if not _alike(value, vars(usual).get(name))}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._looked_at(), name)

    def stage_type(self) -> Any:
        return self.stage.stage_type()

    @property
    def artifact(self) -> Any:
        if self.stages.is_comparing and not self.stages.is_inside and self.key is not None:
            return _Reference(self)
        return self._looked_at().artifact

    def run_artifact(self, inputs: Any) -> Any:
        if self.stage_type().name != "SERIALIZE":
            return self._looked_at().run_artifact(inputs)
        stages = self.stages
        made = _Made(lambda: self.made().executorch_program_manager, self.key, stages.no_key, lambda: stages.seconds)
        return stages.takeover.executed(made, inputs)

    def made(self) -> Any:
        """The stage, run."""
        self.stages.catch_up()
        self.copy_remembered()
        return self.stage

    def copy_remembered(self) -> None:
        """Copied for every use, since comparing changes the exported program; and a copy has other names of nodes."""
        if self.remembered is not None:
            vars(self.stage).update(copy.deepcopy(self.remembered))
            self.remembered = None

    def _looked_at(self) -> Any:
        """The same. Who has it may change what it made: then only the content says what the next stage starts from."""
        if self.stages.is_inside:
            return self.stage
        self.stages.key = None
        return self.made()


def _alike(one: Any, other: Any) -> bool:
    """Whether both have a content, and the same."""
    with suppress(NoContent):
        return digest(one) == digest(other)
    return False


class _Reference:
    """What a stage makes, as `Tester._calculate_reference_output` is given it while outputs are compared."""

    def __init__(self, stage: _Stage) -> None:
        self._stage = stage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stage.made().artifact, name)

    def outputs(self, inputs: Any, calculate: Callable[[Any, Any], Any]) -> Any:
        """The outputs, and the scale of their quantisation."""
        torch = executorch_api().torch
        known = self._stage.stages.takeover.disk
        key = passing_key(self._stage.key, inputs)
        found = None if key is None else known.get("reference", key)
        if found is not None:
            leaves = [torch.from_numpy(found[str(number)]) for number in range(found["count"])]
            structure = torch.utils._pytree.treespec_loads(found["structure"])
            return torch.utils._pytree.tree_unflatten(leaves, structure), found["scale"]
        outputs, scale = calculate(self._stage.made().artifact, inputs)
        leaves, structure = torch.utils._pytree.tree_flatten(outputs)
        if key is not None and all(isinstance(leaf, torch.Tensor) for leaf in leaves):
            with suppress(TypeError):  # a dtype that NumPy does not have
                entry = {str(number): leaf.detach().numpy() for number, leaf in enumerate(leaves)}
                told = torch.utils._pytree.treespec_dumps(structure)
                known.get_or_make(
                    "reference", key, lambda: {**entry, "count": len(leaves), "structure": told, "scale": scale}
                )
        return outputs, scale


class _Start:
    """What a stage starts from: the artifact of the one before, or the export of the tested module.

    The first stage begins with that export. It is made here, for the key, and handed over, so that what is lowered is
    what the key is of. ``content`` is None where the stage starts from a module in another way.
    """

    def __init__(self, stages: _Stages, stage: Any, inputs: Any) -> None:
        torch, tester = executorch_api().torch, stages.tester
        self.module = tester.original_module if tester.cur is None else None
        self.inputs = inputs
        self.content: Any = None
        self.used = self.module is None
        self._home = self._exporting(stage)
        if self.module is None:
            self.content = tester.get_artifact() if stages.key is None else ("after", stages.key)
        elif self._home is not None and isinstance(self.module, torch.nn.Module):
            with suppress(Exception):  # without a key the stage itself meets the error, and says it to upstream's test
                self.content = strict_export(self.module, inputs)

    def _exporting(self, stage: Any) -> Any:
        """The module whose `export` the stage calls first."""
        kinds = "executorch.backends.test.harness.stages"
        for kind in (feature(kinds, "Quantize"), feature(kinds, "Export")):
            if isinstance(stage, kind) and not getattr(stage, "is_qat", False):
                return sys.modules[kind.__module__]
        return None

    def in_place_of_export(self) -> Any:
        """Within the block the stage's own export of the same module is the one that `content` is."""
        if self.module is None:
            return nullcontext()
        exported = self._home.export

        def known(module: Any, *args: Any, **kwargs: Any) -> Any:
            plain = kwargs.get("strict") is True and not any(kwargs[name] for name in kwargs if name != "strict")
            if not (module is self.module and len(args) == 1 and args[0] is self.inputs and plain):
                return exported(module, *args, **kwargs)
            self.used = True
            return self.content

        return mock.patch.object(self._home, "export", known)
