"""ExecuTorch's own test suites: finds them, and makes their tests run programs on this project's targets.

One suite has ExecuTorch's Cortex-M tests; of the other, the backend suite, the Cortex-M flow is run. The installed
files are not changed. While a test runs, some methods of ExecuTorch are replaced in memory: the pass manager's
constructor (it lowers for the target's configuration), `to_executorch` (it keeps the graph that Python can still run,
the reference), `run_artifact` of the serialised program (it would start an FVP), and the tester's methods that run a
stage or compare outputs. Stages that do not depend on the target run once for all targets, and results in the disk
cache are reused.
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
from cortex_m_hil.lowering.cache_keys import Lru, unchecked_key, unchecked_key_or_reason
from cortex_m_hil.lowering.content_digest import NoContent, digest
from cortex_m_hil.lowering.disk_cache import DiskCache, Entry, disk
from cortex_m_hil.lowering.installed_executorch import INSTALL, executorch_api, feature
from cortex_m_hil.lowering.module_export import strict_export
from cortex_m_hil.lowering.pipeline import CPU_OF, NOT_REPEATABLE, graph_nodes
from cortex_m_hil.lowering.torch_shortcuts import operators_looked_up_once
from cortex_m_hil.program.program import Intermediate, Program
from cortex_m_hil.program.pte_reader import parse_pte
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.targets.target import Target

_PACKAGE: Final = "executorch.backends.cortex_m"
# A test function that mentions one of these runs a program on the target; other tests run only on the host.
_RUNS: Final = frozenset({"run_artifact", "run_on_fvp", "serialize", "test_implementation", "test_runner", "_test_op"})
# The last stage that does not depend on the target; the next one is the Cortex-M passes, which do.
_SHARED: Final = frozenset({"QUANTIZE", "EXPORT", "TO_EDGE"})
# A small number is enough: a test's targets run one after the other, and a test seldom lowers several modules.
stages: Final[Lru[dict[str, Any]]] = Lru(8)


def find_suite() -> Path:
    """Return the folder of the Cortex-M tests, in a wheel or in an editable checkout.

    This imports neither torch nor ExecuTorch.

    Raises:
        ToolchainError: ExecuTorch, or its test suite, is not installed.
    """
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
    """Return the folder of the backend suite. Raise ToolchainError where it has no Cortex-M flow."""
    folder = find_suite().parents[1] / "test" / "suite"
    if not (folder / "flows" / "cortex_m.py").is_file():
        raise ToolchainError("no backend suite with a Cortex-M flow: this ExecuTorch is older than 1.5", hint=INSTALL)
    return folder


def only_cortex_m_flow() -> None:
    """Restrict the backend suite, in this process, to its Cortex-M flow: it no longer looks for Arm's FVP."""
    known = feature("executorch.backends.test.suite.flow")
    flow = feature("executorch.backends.test.suite.flows.cortex_m", "CORTEX_M_TEST_FLOW")
    known.all_flows = lambda: {flow.name: flow}


def implementation_tests(module: Path) -> frozenset[str]:
    """Return the names of a test module's functions that run a program on a target; the module is read, not imported.

    `test_dialect_*` only run the Python operators, though by methods of the same names.
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
    """Return ExecuTorch's CortexMTargetConfig of a target, with the target's own ISA class where that is overridden."""
    cpu = CPU_OF[target.isa] if target.cpu == "host" else target.cpu
    config = executorch_api().target_config
    backend = feature(f"{_PACKAGE}.library.cmsis_nn", "Backend")
    return config(cpu=config.from_target_string(cpu).cpu, isa=getattr(backend, target.isa.value))


def clear_cache() -> None:
    """Forget all stages in the cache."""
    stages.clear()


RunStage = Callable[..., Any]
Execute = Callable[[Program], Sequence[HostTensor]]


@contextmanager
def taken_over(test: str, target: Target, execute: Execute, *, remembered: bool = False) -> Iterator[None]:
    """Make ExecuTorch's tester, within the block, lower for `target` and pass programs to `execute` instead of an FVP.

    Args:
        test: the test's name without the target. Results of the same test for another target are reused, since a test
            that changes the compiler does so for all targets.
        target: the target that programs are lowered for.
        execute: runs a program and returns its outputs.
        remembered: whether results of earlier processes are reused too. This is for tests of the suite, whose files are
            part of the compiler's digest.
    """
    with ExitStack() as stack:
        for owner, name, replacement in _Takeover(test, target, execute, remembered).replacements():
            stack.enter_context(mock.patch.object(owner, name, replacement))
        stack.enter_context(operators_looked_up_once())
        yield


class _Takeover:
    """The replacements of ExecuTorch's methods for one target."""

    def __init__(self, test: str, target: Target, execute: Execute, remembered: bool) -> None:
        self.test = test
        self.target = target
        self.disk = disk if remembered else DiskCache(enabled=False)
        self.config = configuration(target)
        self._execute = execute
        self._dialects: dict[int, tuple[Any, Any]] = {}  # by the id of the result, which is kept alive

    def replacements(self) -> Iterator[tuple[Any, str, Any]]:
        """Yield classes of ExecuTorch, each with the name of a method and its replacement."""
        manager: Any = executorch_api().pass_manager
        edge = feature("executorch.exir", "EdgeProgramManager")
        serialize = feature(f"{_PACKAGE}.test.tester", "CortexMSerialize")
        construct, to_executorch = manager.__init__, edge.to_executorch

        def construct_for_target(manager: Any, *args: Any, **kwargs: Any) -> None:
            construct(manager, *args, **kwargs)
            manager.target_config = self.config

        def to_executorch_with_dialect(edge: Any, *args: Any, **kwargs: Any) -> Any:
            dialect = copy.deepcopy(edge.exported_program())  # Python cannot run the graph after to_executorch
            made = to_executorch(edge, *args, **kwargs)
            self._dialects[id(made)] = (made, dialect)
            return made

        def run_artifact(stage: Any, inputs: Any) -> list[Any]:
            alone = _Made(lambda: stage.executorch_program_manager, None, "a stage that no tester of ExecuTorch's ran")
            return self.executed(alone, inputs)

        yield manager, "__init__", construct_for_target
        yield edge, "to_executorch", to_executorch_with_dialect
        yield serialize, "run_artifact", run_artifact
        yield from self._patches_of_tester()

    def _patches_of_tester(self) -> Iterator[tuple[Any, str, Any]]:
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
        """Run the program on the target and return its outputs as torch tensors."""
        from cortex_m_hil.lowering.reference import to_torch

        return [to_torch(output) for output in self._execute(self._program(made, inputs))]

    def _program(self, made: _Made, inputs: Any) -> Program:
        """Return the program with its inputs, and with the dialect as its only reference."""
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
                raise ToolchainError(what, hint=NOT_REPEATABLE)
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
    """The result of `to_executorch`, which may not have run yet.

    Attributes:
        get: runs the stages, if need be, and returns the result.
        key: the key of the result in the cache; None for none.
        no_key: why there is no key.
        seconds: returns how long the test's stages have taken until now.
    """

    get: Callable[[], Any]
    key: str | None
    no_key: str
    seconds: Callable[[], float | None] = lambda: None


def _entry(made: Any) -> dict[str, Any]:
    """Return the disk cache's entry for a result of `to_executorch`."""
    pte = bytes(made.buffer)
    return {"pte": np.frombuffer(pte, np.uint8), "nodes": list(graph_nodes(made, parse_pte(pte, "program")))}


class _Stages:
    """The stages of one of ExecuTorch's testers, in order.

    A stage that has succeeded before with the same input, in this or another process, is deferred: it runs as soon as
    its result is accessed, for example by a check in the test. The final results of most tests, the program and the
    outputs of its reference, are in the disk cache; if nothing else is accessed, nothing is lowered.
    """

    def __init__(self, takeover: _Takeover, tester: Any, run_stage: RunStage) -> None:
        self.takeover = takeover
        self.tester: Any = weakref.proxy(tester)
        self.key: str | None = None  # key of the last stage's result; None: only the content identifies it
        self.no_key = ""  # why a stage has no key; it and all later stages have to be run
        self.seconds = 0.0
        self.is_inside = self.is_comparing = False
        self._run_stage = run_stage
        self._late: list[_Stage] = []

    def run(self, stage: Any, inputs: Any, *args: Any, **kwargs: Any) -> None:
        """Run a stage as `Tester._run_stage` does, or defer it."""
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
        """Run the deferred stages, as if each had been run in its turn."""
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
        """Run a stage, and tell whether it does the same each time.

        It does not if it changes its inputs, as calibrating in place does.
        """
        if one.key is None or not one.is_shared:
            self._run_stage(self._after_its_own(one), one.stage, *one.args, **one.kwargs)
            return one.key is not None
        torch = executorch_api().torch
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)  # the result then depends on nothing but the key
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
        """Return the tester, whose last stage now has its own copy of its result for `one` to start from."""
        if one.after is not None:
            self.tester.stages[one.after].copy_remembered()
        return self.tester

    @contextmanager
    def _inside(self) -> Iterator[None]:
        """Mark the block as the harness's own, in which access to a stage does not run it; count its time."""
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
        """Mark the block as one in which a stage's result is accessed as the reference only."""
        self.is_comparing = True
        try:
            yield
        finally:
            self.is_comparing = False


class _Stage:
    """A substitute for a stage in ExecuTorch's tester, which runs the stage only when its result is accessed.

    ``key`` covers what the stage starts from, its inputs, class and configuration; where one has no content it is None,
    and ``no_key`` says what.
    """

    def __init__(self, stages: _Stages, stage: Any, inputs: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.stages, self.stage = stages, stage
        self.after = stages.tester.cur
        self.args, self.kwargs = (inputs, *args), kwargs
        self.start = _Start(stages, stage, inputs)
        self.is_shared = self.stage_type().name in _SHARED
        self.remembered: dict[str, Any] | None = None  # the shared result, until it is copied for this target
        self.key: str | None = None
        self.no_key = "what ExecuTorch's first stage starts from is not known by an export"
        if self.start.content is not None:
            config = stages.takeover.config
            which = None if self.is_shared else (config.cpu.name, config.backend.name)
            what = (self.start.content, type(stage), self._settings(), which, self.args, kwargs)
            self.key, self.no_key = unchecked_key_or_reason(stages.takeover.test, *what)

    def _settings(self) -> dict[str, Any]:
        """Return the stage's settings that differ from ExecuTorch's defaults.

        Defaults are left out because some sets in them have another order in each process. So are all settings of
        SERIALIZE: they are about giving the program to an FVP, which is not done.
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
        """Run the stage if need be, and return it."""
        self.stages.catch_up()
        self.copy_remembered()
        return self.stage

    def copy_remembered(self) -> None:
        """Copy the result that is shared by all targets into this stage, once.

        Each target has its copy, since comparing changes the exported program; and a copy has other names of nodes.
        """
        if self.remembered is not None:
            vars(self.stage).update(copy.deepcopy(self.remembered))
            self.remembered = None

    def _looked_at(self) -> Any:
        """Return the stage after it has run, for code outside of the harness.

        The accessing code may change the result: after that only its content says what the next stage starts from.
        """
        if self.stages.is_inside:
            return self.stage
        self.stages.key = None
        return self.made()


def _alike(one: Any, other: Any) -> bool:
    """Tell whether both objects have a content digest, and the same one."""
    with suppress(NoContent):
        return digest(one) == digest(other)
    return False


class _Reference:
    """A stage's result as it is passed to `Tester._calculate_reference_output` while outputs are compared."""

    def __init__(self, stage: _Stage) -> None:
        self._stage = stage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stage.made().artifact, name)

    def outputs(self, inputs: Any, calculate: Callable[[Any, Any], Any]) -> Any:
        """Return the reference outputs and the scale of their quantisation, from the disk cache if it has them."""
        torch = executorch_api().torch
        known = self._stage.stages.takeover.disk
        key = unchecked_key(self._stage.key, inputs)
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
    """The start of a stage: the artifact of the one before, or the export of the tested module.

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
        """Return the Python module whose `export` the stage calls first; None for other stages."""
        kinds = "executorch.backends.test.harness.stages"
        for kind in (feature(kinds, "Quantize"), feature(kinds, "Export")):
            if isinstance(stage, kind) and not getattr(stage, "is_qat", False):
                return sys.modules[kind.__module__]
        return None

    def in_place_of_export(self) -> Any:
        """Return a context in which the stage's own export of the same module gives `content`."""
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
