"""Make the tables in tests/nightly/models.md by running the models, and their summary in docs/runtimes.md.

    python ci/models_table.py [NAME...]

The models of ExecuTorch's backend suite and of its Cortex-M tests, MLPerf Tiny's and this repository's own; the
collections of layers among the Cortex-M tests, and the tests of operators of the backend suite. NAME is a glob:
`MLPerf Tiny/resnet8`, `backend suite/*`, `layers/*`, `operators/add`. Other rows are not changed. Without NAME the
script takes hours.

Weights are random even where a test would download trained ones, and batch norms have the inputs' statistics. A model
whose file does not fit a target also runs on `m55-ddr` (ci/models_targets.yaml); a model whose tensors do not fit runs
with smaller inputs.
"""

from __future__ import annotations

import ast
import fnmatch
import functools
import importlib
import importlib.util
import itertools
import re
import sys
import unittest
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock

import pytest

ROOT: Final = Path(__file__).resolve().parents[1]
if str(ROOT / "tests" / "support") not in sys.path:
    sys.path.append(str(ROOT / "tests" / "support"))

from cortex_m_hil import Tolerance, api, flow  # noqa: E402 - tests/ is found by the line above
from cortex_m_hil.campaigns.report.model_table import EXECUTORCH, owner  # noqa: E402
from cortex_m_hil.errors import HarnessError, WouldFailOnExecuTorch  # noqa: E402
from cortex_m_hil.errors.text import percent  # noqa: E402
from cortex_m_hil.lowering import Exported  # noqa: E402
from cortex_m_hil.lowering import named_modules as networks  # noqa: E402
from cortex_m_hil.maintainers import executorch_suites as suite  # noqa: E402
from cortex_m_hil.program.pte_file import PteFile  # noqa: E402
from cortex_m_hil.targets.load import load_targets  # noqa: E402

TABLES: Final = ROOT / "tests" / "nightly" / "models.md"
PAGE: Final = ROOT / "docs" / "runtimes.md"  # the page with the summary
TARGETS: Final = ("m55-qemu", "m4-qemu", "m0-qemu")
LARGER: Final = "m55-ddr"  # runs models that fit none of TARGETS
LONGER: Final = 40.0  # multiplier of the 30 s for a program; MobileNetV2 on a Cortex-M0 needs it
NOT_RUN: Final = "not run"  # stands for an obstacle: the model or operator was added to the table but not run yet
BUILTIN: Final = "builtin"  # stands for "yes" if ExecuTorch would refuse the program, or compute it wrongly
ALL: Final = "all"  # stands for a target if a row does not depend on one
RAN: Final = ("yes", BUILTIN)  # in the column "runs" of a model that is right
OWNERS: Final = ("package", "suite", "model", "exporter", "quantiser", "pass", "kernel", EXECUTORCH, "memory")
COLUMNS: Final = (
    *("model", "of", "target", "lowers", "operators", "MACs", "runs", "quanta", "SQNR", "planned bytes"),
    *("instructions", "input", "first obstacle"),
)
LAYER_COLUMNS: Final = ("collection", "networks", *TARGETS, "first obstacles")
OPERATOR_COLUMNS: Final = ("operator", "tests", *TARGETS, "first obstacles")
SUMMARY_COLUMNS: Final = ("collection", "models or tests", *TARGETS, "obstacles, by owner")
_BLOCK: Final = re.compile(r"(<!-- table: (\w+) -->\n).*?(?=<!-- end -->)", re.DOTALL)
_LAYERS: Final = ("nn_functional", "nn_modules", "torch_functions")  # modules of tests of single layers
_LONGEST: Final = 110  # characters of an obstacle at most

Module = tuple[Any, tuple[Any, ...]]


@dataclass(frozen=True)
class Model:
    """A model: its name, and the collection that it belongs to.

    Attributes:
        load: returns module and inputs; raises any error of the model's package.
    """

    name: str
    of: str
    load: Callable[[], Module]


# --- lists of models -------------------------------------------------------------------------------------------


def models() -> list[Model]:
    """Return all models, found by reading sources, without importing anything."""
    ours = ("mobilenet_v2", "mobilenet_v3_small", "llama")
    found = [
        Model(name, "MLPerf Tiny", functools.partial(networks.load_named_module, name)) for name in networks.NETWORKS
    ]
    found += [Model(name, "tests/support/published_networks.py", functools.partial(_own, name)) for name in ours]
    for path in sorted((suite.find_suite() / "models").glob("test_*.py")):
        name = path.stem.removeprefix("test_")
        if name not in (*_LAYERS, *networks.NETWORKS):
            load = functools.partial(_only_case, _of_cortex_m_tests(name))
            found.append(Model(name, "Cortex-M tests", load))
    for path in sorted((suite.find_backend_suite() / "models").glob("test_*.py")):
        module = f"executorch.backends.test.suite.models.{path.stem}"
        for name in _test_functions(path):
            load = functools.partial(_model_of_test, module, name)
            found.append(Model(name.removeprefix("test_"), "backend suite", load))
    return found


def operators() -> list[str]:
    files = sorted((suite.find_backend_suite() / "operators").glob("test_*.py"))
    return [path.stem.removeprefix("test_") for path in files]


def tests_of(operator: str) -> list[Model]:
    """Return the backend suite's tests of an operator."""
    module = f"executorch.backends.test.suite.operators.test_{operator}"
    tests = [one for one in vars(importlib.import_module(module)) if one.startswith("test_")]
    return [Model(one, operator, functools.partial(_model_of_test, module, one)) for one in tests]


def layers() -> list[str]:
    return list(_LAYERS)


def cases_of(collection: str) -> list[Model]:
    """Return the networks of a few layers in one module of the Cortex-M tests."""
    cases = importlib.import_module(_of_cortex_m_tests(collection)).test_cases
    return [Model(name, collection, functools.partial(_case, case)) for name, case in cases.items()]


def _of_cortex_m_tests(name: str) -> str:
    return f"executorch.backends.cortex_m.test.models.test_{name}"


def _test_functions(path: Path) -> list[str]:
    body = ast.parse(path.read_text()).body
    return [one.name for one in body if isinstance(one, ast.FunctionDef) and one.name.startswith("test_")]


def _own(name: str) -> Module:
    import torch

    networks = importlib.import_module("published_networks")
    torch.manual_seed(0)
    made: Module = getattr(networks, name)()
    return made


def _only_case(module: str) -> Module:
    """Load the only McuTestCase of one of ExecuTorch's test modules."""
    import torch

    torch.manual_seed(0)
    with _untrained():
        [case] = importlib.import_module(module).test_cases.values()
    return _with_statistics(case.model if case.model is not None else _yolo(), case.get_example_inputs())


@contextmanager
def _untrained() -> Iterator[None]:
    """Make torchvision's models keep their random weights in the block, in place of a download of trained ones."""
    if importlib.util.find_spec("torchvision") is None:
        yield
        return
    weights = importlib.import_module("torchvision.models").WeightsEnum
    with mock.patch.object(weights, "verify", lambda _: None):
        yield


def _yolo() -> Any:
    """Build from its configuration the model that a test would load from a file of weights."""
    return importlib.import_module("ultralytics").YOLO("yolo11n.yaml").model.eval()


def _with_statistics(module: Any, inputs: tuple[Any, ...]) -> Module:
    """Return a model of images and its inputs, with the statistics of two images in its batch norms.

    With the statistics of an untrained norm, outputs vanish or overflow.
    """
    import torch

    norms = [one for one in module.modules() if isinstance(one, torch.nn.BatchNorm2d)]
    if all(norm.num_batches_tracked for norm in norms) or any(one.dim() != 4 for one in inputs):
        return module, inputs
    for norm in norms:
        norm.momentum = None  # the mean of all images
        norm.train()
    with torch.no_grad():
        module(*(torch.cat((one, torch.randn_like(one))) for one in inputs))
    return module.eval(), inputs


def _case(case: Any) -> Module:
    return case.model, case.get_example_inputs()


class _TestRunner:
    """A replacement for the runner of the backend suite's tests: it keeps the model that it is given."""

    def __init__(self) -> None:
        self._flow = SimpleNamespace(quantize=True)  # the only attribute that tests read
        self.told: Module | None = None

    def lower_and_run_model(self, model: Any, inputs: Any, **_: Any) -> None:
        self.told = self.told or (model, tuple(inputs))


def _model_of_test(module: str, name: str) -> Module:
    """Return the model and inputs that a test gives to its runner, for the first value of each parameter."""
    import torch

    function = getattr(importlib.import_module(module), name)
    marks = [mark for mark in getattr(function, "pytestmark", ()) if mark.name == "parametrize"]
    runner = _TestRunner()
    torch.manual_seed(0)
    function(runner, **{mark.args[0]: mark.args[1][0] for mark in marks})
    assert runner.told is not None, f"{module}.{name} runs no model"
    return _with_statistics(*runner.told)


# --- the results of a model -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """The results of one model on one target; values that were not reached are empty."""

    target: str
    lowers: str = ""
    nodes: str = ""
    macs: str = ""
    runs: str = ""
    quanta: str = ""
    sqnr: str = ""
    planned: str = ""
    instructions: str = ""
    input: str = ""
    obstacle: str = ""

    def line(self, model: Model) -> str:
        return f"| {model.name} | {model.of} | {' | '.join(vars(self).values())} |"


Open = Mapping[str, api.OpenTarget]


def judged(model: Model, targets: Open) -> Iterator[Row]:
    """Yield a row for each target, or a single one where the model cannot be loaded or exported.

    There is a row for LARGER if the model with its original inputs does not fit the first target.
    """
    try:
        module, inputs = model.load()
    except (ModuleNotFoundError, pytest.skip.Exception) as error:
        missing = f"no {error.name}" if isinstance(error, ModuleNotFoundError) else str(error)
        yield Row(ALL, obstacle=_cell(f"package: {missing}"))
        return
    except unittest.SkipTest as error:
        yield Row(ALL, obstacle=_cell(f"suite: skipped: {error}"))
        return
    sizes, seen, held = _Sizes(module, inputs), 0, False
    for name, target in targets.items():
        if name == LARGER and held:
            continue
        try:
            row = _too_many_weights(name, module, inputs, target) or _on_target(name, sizes, target)
        except HarnessError as error:  # an error of the export, which does not depend on the target
            yield Row(name if seen else ALL, "no", obstacle=obstacle(error))
            return
        yield row
        seen += 1
        held = held or (row.input == _shapes(inputs) and not row.obstacle.startswith("memory"))


def _too_many_weights(name: str, module: Any, inputs: tuple[Any, ...], target: api.OpenTarget) -> Row | None:
    """Return the row of a model that cannot fit a target, however it is lowered; None for any other model.

    Weights of layers take at least a byte each.
    """
    room = target.dut.target.board.memory.program_room
    least = sum(one.numel() for one in module.parameters() if one.dim() > 1)
    if least <= room:
        return None
    told = f"{least:,} weights, a byte each at least, and {name} has {room:,} bytes for a program"
    return Row(name, input=_shapes(inputs), obstacle=f"memory: {told}")


class _Sizes:
    """The exports of a module: for its original inputs, and on demand for smaller ones."""

    def __init__(self, module: Any, inputs: tuple[Any, ...]) -> None:
        self._module = module
        self._next: tuple[Any, ...] | None = inputs
        self._made: list[Exported] = []

    def __iter__(self) -> Iterator[Exported]:
        for number in itertools.count():
            if number == len(self._made):
                if self._next is None:
                    return
                self._made.append(api.export(self._module, self._next))
                self._next = halved(self._next)
            yield self._made[number]


_LEAST_IMAGE: Final = 32  # pixels, of height and width


def halved(inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return inputs with half the batch, or one image with half its height and width; None if they cannot be halved."""
    batch = len(inputs[0])
    if batch > 1 and all(len(one) == batch for one in inputs):
        return tuple(one[: batch // 2] for one in inputs)
    if any(one.dim() != 4 or min(one.shape[2:]) < 2 * _LEAST_IMAGE for one in inputs):
        return None
    return tuple(one[:, :, : one.shape[2] // 2, : one.shape[3] // 2] for one in inputs)


def _shapes(inputs: Sequence[Any]) -> str:
    return ", ".join("×".join(map(str, one.shape)) for one in inputs)


def _on_target(name: str, sizes: _Sizes, target: api.OpenTarget) -> Row:
    """Return the row of the largest inputs whose tensors fit the target; if none fit, the row of the original inputs.

    Raises:
        HarnessError: the model does not export.
    """
    first: Row | None = None
    for exported in sizes:
        row = Row(name, input=_shapes(exported.inputs))
        try:
            program = target.lower(exported)
        except HarnessError as error:
            return first or replace(row, lowers="no", obstacle=obstacle(error))
        row = _ran(row, program, target)
        if not row.obstacle.startswith("memory") or not _tensors_alone_are_too_large(program.file, target):
            return row
        first = first or row
    assert first is not None
    return first


def _tensors_alone_are_too_large(file: PteFile, target: api.OpenTarget) -> bool:
    memory = target.dut.target.board.memory
    return file.size <= memory.program_room and file.planned_bytes > sum(memory.bank_rooms(file.size))


def _ran(row: Row, program: api.Program, target: api.OpenTarget) -> Row:
    part = program.partition
    nodes, macs = ("–" if one is None else percent(one) for one in (part.cortex_m_operator_share, part.cortex_m_macs))
    row = replace(row, lowers="yes", nodes=nodes, macs=macs, planned=f"{program.file.planned_bytes:,}")
    seen: list[api.Checked] = []
    try:
        flow.verify(target.dut, program, tolerance=Tolerance(), observe=seen.append)
    except HarnessError as error:
        told = obstacle(error)
        row = replace(row, runs="wrong" if seen else "no", obstacle=told)
        return _measured(row, seen[0]) if seen else row
    try:
        flow.judge_on_executorch(target.dut, program)
    except WouldFailOnExecuTorch as error:
        return _measured(replace(row, runs=BUILTIN, obstacle=obstacle(error)), seen[0])
    return _measured(replace(row, runs="yes"), seen[0])


def _measured(row: Row, checked: api.Checked) -> Row:
    quanta = [one.max_quanta for one in checked.comparison.outputs if one.max_quanta is not None]
    noise = [one.sqnr_db for one in checked.comparison.outputs if one.sqnr_db is not None]
    count = checked.result.instructions
    return replace(
        row,
        quanta=f"{max(quanta)}" if quanta else "–",
        sqnr=f"{min(noise):.1f} dB" if noise else "–",
        instructions=f"{count:,}" if count is not None else "–",
    )


def obstacle(error: HarnessError) -> str:
    """Return a cell of the table with an error and the component that is responsible for it."""
    name, message = type(error).__name__, error.message.splitlines()[0]
    return _cell(": ".join(filter(None, (owner(name, message), name, message))))


def _cell(text: str) -> str:
    text = re.sub(r"/\S*/", "", text)  # remove folders of this machine
    short = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    return short.replace("|", "/").replace("`", "'").replace("<", "&lt;")


# --- operators, and layers -----------------------------------------------------------------------------------


def judged_together(name: str, tests: Sequence[Model], targets: Open) -> str:
    """Return the line of an operator or a collection: how many tests pass on each target, and what stops the others."""
    passed, stopped = Counter[str](), Counter[str]()
    targets = {target: targets[target] for target in TARGETS}
    for test in tests:
        rows = list(judged(test, targets))
        passed.update(one.target for one in rows if one.runs in RAN)
        stopped.update([one.obstacle for one in rows if one.obstacle][:1])
    cells = [f"{passed[target]}" for target in targets]
    return f"| {name} | {len(tests)} | {' | '.join(cells)} | {_obstacles(stopped)} |"


def _obstacles(stopped: Counter[str]) -> str:
    """Return the number of failing tests by responsible component, with the most frequent obstacle in words."""
    owners = Counter[str]()
    for text, count in stopped.items():
        owners[text.partition(":")[0]] += count
    counted = ", ".join(f"{owner} {count}" for owner, count in owners.most_common())
    return f"{counted}: {stopped.most_common(1)[0][0].partition(': ')[2]}" if stopped else ""


@dataclass(frozen=True)
class GroupedTable:
    """A table with one line for several tests: its columns, the names of its lines, and the tests of each line."""

    columns: tuple[str, ...]
    names: Callable[[], list[str]]
    tests: Callable[[str], list[Model]]


GROUPED_TABLES: Final = {
    "layers": GroupedTable(LAYER_COLUMNS, layers, cases_of),
    "operators": GroupedTable(OPERATOR_COLUMNS, operators, tests_of),
}


# --- the page ------------------------------------------------------------------------------------------------


def table(columns: Sequence[str], lines: Sequence[str]) -> str:
    """Return a table in which neighbouring lines that differ only in their names are one row."""
    head = f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n"
    groups = itertools.groupby((line.split(" | ", 1) for line in lines), lambda parts: parts[1])
    return head + "".join(
        f"| {', '.join(name.removeprefix('| ') for name, _ in group)} | {rest}\n" for rest, group in groups
    )


def lines_of(page: str, name: str) -> list[str]:
    """Return the rows of a table in the page, one for each name."""
    block = next((one for one in _BLOCK.finditer(page) if one[2] == name), None)
    shown = [] if block is None else block[0].splitlines()[3:]
    parts = [line.removeprefix("| ").split(" | ", 1) for line in shown]
    return [f"| {one} | {rest}" for names, rest in parts for one in names.split(", ")]


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def written(page: str, name: str, columns: Sequence[str], lines: Sequence[str]) -> str:
    """Return the page with one of its tables made again."""
    return _BLOCK.sub(
        lambda block: block[1] + (table(columns, lines) if block[2] == name else block[0][len(block[1]) :]), page
    )


def main(patterns: Sequence[str]) -> None:
    """Run the models that match the patterns, and write each row when it is known."""
    wanted = patterns or ["*"]
    with opened() as targets:
        for model in models():
            if not _is_wanted(f"{model.of}/{model.name}", wanted):
                continue
            lines: list[str] = []
            for row in judged(model, targets):  # an interruption leaves the rows so far
                lines.append(row.line(model))
                _replace("models", COLUMNS, model.name, model.of, lines)
        for kind, of in GROUPED_TABLES.items():
            for name in of.names():
                if _is_wanted(f"{kind}/{name}", wanted):
                    _replace(kind, of.columns, name, "", [judged_together(name, of.tests(name), targets)])


@contextmanager
def opened() -> Iterator[dict[str, api.OpenTarget]]:
    """Open TARGETS and LARGER; each target boots on first use."""
    known = load_targets(Path(__file__).with_name("models_targets.yaml"))
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(api.open(name, targets=known, runtime="builtin", timeout_multiplier=LONGER))
            for name in (*TARGETS, LARGER)
        }


def _is_wanted(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _replace(name: str, columns: Sequence[str], row: str, of: str, lines: Sequence[str]) -> None:
    print("\n".join(lines), flush=True)
    page = TABLES.read_text()
    known = {key: list(group) for key, group in itertools.groupby(lines_of(page, name), lambda line: _key(name, line))}
    known[row, of] = list(lines)
    rows = [line for key in _order(name) for line in known.get(key, [_not_run(columns, key)])]
    tables = written(page, name, columns, rows)
    TABLES.write_text(tables)
    PAGE.write_text(summarised(PAGE.read_text(), tables))


def summarised(page: str, tables: str) -> str:
    """Return the page with its summary of the tables made again."""
    models: dict[str, list[list[str]]] = {}
    for cells in map(cells_of, lines_of(tables, "models")):
        models.setdefault(cells[1], []).append(cells)
    rows = [_summary_of_models(of, found) for of, found in models.items()]
    rows += [_summary_of_tests(kind, list(map(cells_of, lines_of(tables, kind)))) for kind in GROUPED_TABLES]
    return written(page, "summary", SUMMARY_COLUMNS, rows)


def _summary_of_models(of: str, rows: Sequence[list[str]]) -> str:
    """Return the line of a collection of models, of which `rows` has one for each target or one for all."""
    ran = Counter(row[2] for row in rows if row[6] in RAN)
    stopped = Counter(owner for owner in {row[0]: row[-1].partition(":")[0] for row in rows}.values() if owner)
    return _summary(of, len({row[0] for row in rows}), ran, stopped)


def _summary_of_tests(kind: str, rows: Sequence[list[str]]) -> str:
    """Return the line of a table that has a row for several tests."""
    ran, stopped = Counter[str](), Counter[str]()
    for row in rows:
        ran.update({target: int(cell or 0) for target, cell in zip(TARGETS, row[2:], strict=False)})
        for name, count in re.findall(r"(\w+) (\d+)", row[-1].partition(":")[0]):
            stopped[name] += int(count)
    return _summary(kind, sum(int(row[1] or 0) for row in rows), ran, stopped)


def _summary(name: str, count: int, ran: Counter[str], stopped: Counter[str]) -> str:
    owners = ", ".join(f"{owner} {number}" for owner, number in stopped.most_common())
    return f"| {name} | {count} | {' | '.join(str(ran[target]) for target in TARGETS)} | {owners} |"


def _not_run(columns: Sequence[str], key: tuple[str, str]) -> str:
    named = [cell for cell in key if cell]
    return f"| {' | '.join([*named, *[''] * (len(columns) - len(named) - 1), NOT_RUN])} |"


def _key(name: str, line: str) -> tuple[str, str]:
    cells = cells_of(line)
    return (cells[0], cells[1]) if name == "models" else (cells[0], "")


def _order(name: str) -> list[tuple[str, str]]:
    if name == "models":
        return [(one.name, one.of) for one in models()]
    return [(one, "") for one in GROUPED_TABLES[name].names()]


if __name__ == "__main__":
    main(sys.argv[1:])
