"""Generated networks: drawn by rule, the same each time; judged, related to changed ones, and shrunk."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from command_line import CANNOT_TELL, OK, environment
from cortex_m_hil import flow, lowering
from cortex_m_hil.api import OpenTarget
from cortex_m_hil.campaigns.store import Run, Store
from cortex_m_hil.errors import LaunchError, LintError, Mismatch
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.lowering.submodules import ModulePart
from cortex_m_hil.maintainers.networks import network_judge as models
from cortex_m_hil.maintainers.networks.compiler_lines import lower_and_trace, reachable_lines
from cortex_m_hil.maintainers.networks.fuzz_models import _row, begun, campaign_answer
from cortex_m_hil.maintainers.networks.generator import EXACT, ROUND, Generator
from cortex_m_hil.maintainers.networks.kernel_lines import KernelLines
from cortex_m_hil.maintainers.networks.network_campaign import NetworkPlan, NetworkWorkers, Programs
from cortex_m_hil.maintainers.networks.network_judge import Checks, ModelJudge, NetworkJudgement, Relation, reason
from cortex_m_hil.maintainers.networks.network_worker import checks_of, fields_of, packed, unpacked
from cortex_m_hil.maintainers.networks.recipe import Recipe, image_size
from cortex_m_hil.maintainers.networks.recipe_part import _EXACT, _KINDS, part_of
from cortex_m_hil.maintainers.networks.shrunk_test import write_shrunk
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve
from planting import BUGS

pytestmark = pytest.mark.usefixtures("programs_preloaded")

SEED = 7
DEADLINE = 900.0  # seconds
PLAN = NetworkPlan(("native",), ("builtin",), 60, SEED)


@pytest.fixture(scope="module")
def native() -> Iterator[Dut]:
    with flow.open_dut(resolve("native", load_targets())) as opened:
        yield opened


def drawn(seed: int, count: int) -> list[Recipe]:
    generator = Generator(seed)
    return [generator.draw(number) for number in range(count)]


def part(module: nn.Module, *inputs: torch.Tensor) -> ModulePart:
    exported = lowering.export(module, inputs, "explicit")  # so that its constants are contiguous
    return ModulePart.from_exported(exported.program, exported.inputs)


# --- drawing -------------------------------------------------------------------------------------------------


def test_a_seed_makes_the_same_programs_and_another_makes_others() -> None:
    assert drawn(SEED, 60) == drawn(SEED, 60)
    assert drawn(SEED, 60) != drawn(SEED + 1, 60)


def test_a_recipe_survives_json() -> None:
    for recipe in drawn(SEED, 60):
        again = Recipe.from_fields(json.loads(json.dumps(dataclasses.asdict(recipe))))
        assert json.dumps(dataclasses.asdict(again)) == json.dumps(dataclasses.asdict(recipe))
        assert all(
            torch.equal(*pair) for pair in zip(part_of(again).arguments(), part_of(recipe).arguments(), strict=True)
        )


@pytest.mark.parametrize("count", [30, pytest.param(400, marks=pytest.mark.slow)])
def test_every_recipe_is_a_module_that_runs(count: int) -> None:
    for recipe in drawn(SEED, count):
        made = part_of(recipe)
        assert len(made.outputs) == 1
        assert torch.equal(made.module()(*made.arguments()), made.values[made.outputs[0]])


def test_what_is_drawn_by_name_is_what_can_be_built() -> None:
    generator = Generator(1)
    drawn = {step.kind for number in range(400) for step in generator.draw(number).steps}
    assert (drawn, set(EXACT)) == (set(_KINDS), set(_EXACT))


def test_all_attributes_are_drawn_before_long() -> None:
    chosen = {choice for recipe in drawn(SEED, 300) for choice in recipe.choices}
    assert {
        ("kind", kind)
        for kind in (
            "conv",
            "transposed",
            "avg_pool",
            "max_pool",
            "mean",
            "join",
            "table",
            "pad",
            "cat",
            "linear",
            "softmax",
            "amax",
            "select",
            "unsqueeze",
            "permute",
            "clamp",
            "function",
            "reduce",
            "move",
            "write",
            "choose",
            "norm",
        )
    } <= chosen
    assert {("conv stride", str(stride)) for stride in ((1, 1), (2, 2), (1, 2), (2, 1), (3, 2))} <= chosen
    assert {("layout", layout) for layout in ("channels_last", "explicit")} <= chosen


def test_programs_that_reached_something_new_are_drawn_again_with_changes() -> None:
    generator = Generator(SEED)
    first = [generator.draw(number) for number in range(ROUND)]
    generator.learn(first, [frozenset({"pass.py:1"})] + [frozenset()] * (ROUND - 1))
    assert generator.discoveries == [first[0].choices]
    generator.learn(first, [frozenset({"pass.py:1"})] * ROUND)
    assert generator.discoveries == [first[0].choices]
    learnt = [generator.draw(number) for number in range(ROUND, 4 * ROUND)]
    assert learnt != drawn(SEED, 4 * ROUND)[ROUND:]


@pytest.mark.parametrize("ceil", (False, True))
def test_sizes_of_windows_are_torchs(ceil: bool) -> None:
    for size in range(1, 9):
        for kernel in range(1, min(4, size + 1)):
            for stride in range(1, 4):
                for padding in range(kernel // 2 + 1):
                    given = torch.zeros(1, 1, size, size)
                    made = nn.functional.max_pool2d(given, kernel, stride, padding, ceil_mode=ceil)
                    assert image_size(size, kernel, stride, padding, ceil=ceil) == made.shape[2]


def runs_of(recipes: list[int], verdict: str = "passed") -> list[Run]:
    nothing = packed(())
    return [Run(str(number), verdict, "told", figures={"reached": nothing}) for number in recipes]


def test_a_round_waits_for_the_one_before(tmp_path: Path) -> None:
    programs = Programs(PLAN, NetworkWorkers(PLAN, tmp_path))
    assert programs.next(runs_of(list(range(3))), ("3", "5")) == "4"
    assert programs.next(runs_of(list(range(ROUND - 1))), (str(ROUND - 1),)) is None
    assert programs.next(runs_of(list(range(ROUND)))) == str(ROUND)
    assert programs.next(runs_of(list(range(60)))) is None


@pytest.mark.slow
def test_a_program_that_ends_its_worker_is_told_and_the_next_is_judged(tmp_path: Path) -> None:
    """As one does at which torch crashes."""
    workers = NetworkWorkers(PLAN, tmp_path)
    programs = Programs(PLAN, workers)
    assert programs.next([]) == "0"
    child = workers._take()
    workers._idle.put(child)
    os.kill(child._child.pid, signal.SIGKILL)
    first = programs.carry_out("0")
    assert (first.verdict, first.figures["recipe"]["number"]) == ("infra", 0) and "has ended" in first.error
    assert programs.next([first]) == "1"
    assert programs.carry_out("1").verdict == "passed"
    programs.stop()
    with pytest.raises(LaunchError):
        programs.carry_out("1")


def test_what_was_reached_is_packed() -> None:
    reached = frozenset({"a.py:1", "a.py:70", "b.py:3", "CortexMDivCheck.check_pattern: False"})
    assert unpacked(json.loads(json.dumps(packed(reached)))) == reached


# --- judging -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_the_compiler_does_is_traced_and_the_same_from_the_cache() -> None:
    torch.manual_seed(1)
    exported = lowering.export(nn.Sequential(nn.Linear(5, 7), nn.ReLU()), (torch.randn(3, 5),))
    first, again = (lower_and_trace(exported, (Isa.DSP, Isa.MVE), lowering.DEFAULT).reached for _ in range(2))
    assert first == again
    assert "CortexMLinearCheck.check_quantization_config: True" in first
    numbers = {int(one.rpartition(":")[2]) for one in first if one.startswith("aten_to_cortex_m_pass.py:")}
    assert numbers and numbers <= reachable_lines()["aten_to_cortex_m_pass.py"]


@pytest.mark.slow
def test_lines_of_kernels_follow_from_the_program_alone() -> None:
    """Whatever ran before, on this boot or another."""
    x, layers = torch.randn(3, 5), {"linear.cpp": nn.Linear(5, 7), "softmax.cpp": nn.Softmax(1)}
    programs = {name: lowering.lower(lowering.export(one, (x,)), isa=Isa.DSP) for name, one in layers.items()}
    with KernelLines(resolve("m4-qemu", load_targets())) as kernels:
        possible = kernels.possible()
        found = {name: kernels.executed(program) for name, program in programs.items()}
        again = {name: kernels.executed(program) for name, program in reversed(programs.items())}
    with KernelLines(resolve("m4-qemu", load_targets())) as kernels:
        assert kernels.executed(programs["softmax.cpp"]) == found["softmax.cpp"]
    assert again == found
    for name, other in (("linear.cpp", "softmax.cpp"), ("softmax.cpp", "linear.cpp")):
        numbers = {int(one.rpartition(":")[2]) for one in found[name] if one.startswith(f"DSP {name}:")}
        assert numbers and numbers <= possible[f"DSP {name}"]
        assert not [one for one in found[name] if one.startswith(f"DSP {other}:")]


IMAGE = torch.linspace(-1, 1, 1 * 3 * 5 * 6).reshape(1, 3, 5, 6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("relation", "module"),
    (
        ("batch", lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())),
        ("permutation", lambda: nn.Sequential(nn.Conv2d(3, 4, 3, bias=True), nn.ReLU())),
        ("padding", lambda: nn.Conv2d(3, 4, 3, padding=(2, 1))),
        ("layout", lambda: nn.MaxPool2d(2)),
    ),
)
def test_a_relation_holds(native: Dut, relation: str, module: Any) -> None:
    """Of eighths, whose sums are exact in whatever order a CPU adds them: so no observer sees another range."""
    torch.manual_seed(3)
    made = module()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.round(parameter * 8) / 8)
    judged = ModelJudge([native]).judge(part(made, torch.round(IMAGE * 8) / 8), Checks(relation=relation))
    assert judged.relation == {"native builtin": "holds"}
    assert judged.failures == []


def test_one_element_that_differs_breaks_a_relation() -> None:
    right, wrong = (IMAGE.numpy().copy() for _ in range(2))
    wrong[0, 1, 2, 3] += 1
    assert models._compared([right], [right]) == "holds"
    assert models._compared([right], [wrong]) == "fails: 1 of 90 elements of output 0 differ"
    assert models._compared([right], [right[0]]).startswith("fails: output 0 has shape [3, 5, 6]")


@pytest.mark.slow
def test_a_relation_sees_a_kernel_that_pads_wrongly(tmp_path: Path) -> None:
    """Without any reference: what the kernel pads differs from what an operator pads."""
    torch.manual_seed(3)
    whole = part(nn.Conv2d(3, 4, 3, padding=1), IMAGE)
    firmware = BUGS["off_by_one_at_the_left_padding"].plant(tmp_path)
    with flow.open_dut(resolve("native", load_targets()), firmware=firmware) as dut:
        program = lowering.lower(whole.module(), whole.arguments(), isa=Isa.SCALAR)
        assert Relation(whole, Checks(relation="padding")).told(dut, program).startswith("fails: ")


@pytest.mark.slow
def test_a_relation_is_not_asked_of_what_is_quantised_otherwise(native: Dut) -> None:
    torch.manual_seed(3)
    small, large = (part(nn.Conv2d(3, 4, 3), IMAGE * factor) for factor in (1, 2))
    one, other = (lowering.lower(each.module(), each.arguments(), isa=Isa.SCALAR) for each in (small, large))
    assert models._quantised_alike(one, one)
    assert not models._quantised_alike(one, other)


@pytest.mark.slow
def test_a_part_that_is_not_lowered_is_refused_with_a_reason(native: Dut) -> None:
    judged = ModelJudge([native]).judge(
        part(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.ReLU()), torch.rand(2, 4)), Checks()
    )
    assert list(judged.refused) == ["native builtin"]
    assert judged.refused["native builtin"].startswith("LintError: ")
    assert judged.failures == []


@pytest.mark.slow
@pytest.mark.parametrize("bug", ("multiplier_of_another_channel", "off_by_one_at_the_left_padding"))
def test_a_planted_bug_is_found_and_shrunk_to_a_test(native: Dut, bug: str, tmp_path: Path) -> None:
    """The test fails with the bug, and passes without."""
    firmware = BUGS[bug].plant(tmp_path)
    with flow.open_dut(resolve("native", load_targets()), firmware=firmware) as dut:
        recipe, failure = _first_failure(dut)
        assert failure.operator.partition("::")[2].partition(".")[0].removesuffix("_nhwc") in BUGS[bug].operators
        found = write_shrunk(
            [dut], recipe, failure, tmp_path / "out", 120.0, "hil dev fuzz --models -t native --seed 7"
        )
        test = _module(Path(found["fails"]))
        assert "hil dev fuzz --models -t native --seed 7" in test.__doc__
        assert f"\npytest --hil-target=native --hil-runtime=builtin {Path(found['fails']).name}\n" in test.__doc__
        assert found["operators"] <= len(recipe.steps) + 2
        with pytest.raises(Mismatch):
            test.test_part(OpenTarget(dut))
    test.test_part(OpenTarget(native))


@pytest.mark.slow
def test_what_several_targets_get_wrong_is_written_as_a_test_of_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    firmware = BUGS["off_by_one_at_the_left_padding"].plant(tmp_path)
    targets = [resolve(name, load_targets()) for name in ("native", "m0-qemu")]
    with ExitStack() as stack:
        duts = [stack.enter_context(flow.open_dut(one, firmware=firmware)) for one in targets]
        recipe, failure = _first_failure(duts[0])
        both = dataclasses.replace(failure, places=("native builtin", "m0-qemu builtin"))
        found = write_shrunk(duts, recipe, both, tmp_path / "out", 120.0, "hil dev fuzz --models -t native,m0-qemu")
    fails, passes = (Path(found[role]) for role in ("fails", "passes"))
    test = _module(fails)
    assert "require_agreement" in fails.read_text() and "m0-qemu" in fails.read_text()
    with monkeypatch.context() as patched:
        patched.setattr(flow, "open_dut", functools.partial(flow.open_dut, firmware=firmware))
        with pytest.raises(Mismatch) as caught:
            test.test_part()
    assert "native builtin" in caught.value.target
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--target=native",
        fails.name,
        passes.name,
    ]
    done = subprocess.run(
        command, cwd=fails.parent, env=environment(), capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert (done.returncode, "2 passed" in done.stdout) == (0, True), done.stdout  # without the bug


def _first_failure(dut: Dut) -> tuple[Recipe, models.Disagreement]:
    """Of one that begins with a convolution, where both bugs are."""
    for recipe in (one for one in drawn(SEED, 60) if one.steps[0].kind == "conv"):
        failures = ModelJudge([dut]).judge(part_of(recipe), checks_of(recipe)).failures
        if failures and failures[0].kind.startswith("Mismatch"):
            return recipe, failures[0]
    raise AssertionError("none of the first 60 programs shows it")


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)  # torch.export looks for it there
    spec.loader.exec_module(module)
    return module


# --- the command ---------------------------------------------------------------------------------------------


def hil(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cortex_m_hil.cli", "dev", "fuzz", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=DEADLINE, check=False
    )


@pytest.mark.slow
def test_a_small_campaign_on_two_targets_and_what_goes_on_is_the_same(tmp_path: Path) -> None:
    arguments = ["--models", "-t", "native,m4-qemu", "--count", "4", "--seed", "3", "--json"]
    first = hil(tmp_path, *arguments, "--store", "one", "-n", "2")
    assert first.returncode == OK, first.stderr
    told = json.loads(first.stdout)
    assert told["programs"] == 4
    assert told["defects"] == []
    assert told["outcomes"]["passed"] >= 3
    assert set(told["runs"]) == {"native builtin", "m4-qemu builtin"}
    for first_of_names in ("aten_to_cortex_m_pass.py", "DSP ", "SCALAR (host) "):
        files = [one for name, one in told["reached"]["files"].items() if name.startswith(first_of_names)]
        assert 100 < sum(one["reached"] for one in files) < sum(one["lines"] for one in files)
    part_of_it = hil(tmp_path, *arguments, "--store", "two", "--seconds", "1")
    rest = hil(tmp_path, *arguments, "--store", "two")
    assert json.loads(part_of_it.stdout)["left"] > 0
    for name in ("programs", "outcomes", "operators", "classes", "reached", "relations", "refusals"):
        assert json.loads(rest.stdout)[name] == told[name]


@pytest.mark.slow
def test_something_else_is_not_gone_on_with(tmp_path: Path) -> None:
    given = ["--models", "-t", "native", "--count", "3", "--store", "s"]
    hil(tmp_path, *given, "--seconds", "1")
    other = hil(tmp_path, *given, "--seed", "5")
    assert other.returncode == 2
    assert "something else is under way in this folder: hil dev fuzz --models -t native" in other.stderr


def test_what_another_generator_has_drawn_is_begun_anew(tmp_path: Path) -> None:
    """Its programs have the same numbers, and are others."""
    with Store(tmp_path / "s") as kept:
        before = begun(kept, PLAN, reset=False)
        kept.record(before.record, Run("0", "passed"))
        assert begun(kept, PLAN, reset=False).record == before.record
        other = begun(kept, dataclasses.replace(PLAN, generator="another"), reset=False)
        assert other.record.number != before.record.number and not other.runs


def _run(outcome: str, refused: str, number: int) -> Run:
    figures = {**fields_of(NetworkJudgement(refused={"native builtin": refused} if refused else {})), "classes": []}
    return Run(str(number), outcome, figures={**figures, "recipe": {"relation": ""}})


def test_refusals_are_counted_by_kind_and_told_by_the_first_of_it() -> None:
    runs = [
        _run("refused", "LintError: a dilation of 3 (cortex_m::pool.out)", 0),
        _run("refused", "LintError: a dilation of [2, 4] (cortex_m::pool.out)", 1),
        _run("refused", "LintError: a stride (cortex_m::pool.out)", 2),
    ]
    told = campaign_answer(PLAN, runs, 0, {})
    assert told.fields["refusals"] == {
        "LintError: a dilation of 3 (cortex_m::pool.out)": 2,
        "LintError: a stride (cortex_m::pool.out)": 1,
    }
    assert told.status == CANNOT_TELL
    assert "none was run, for the reasons above" in told.text
    one_passed = campaign_answer(PLAN, [*runs, _run("passed", "", 3)], 0, {})
    assert one_passed.status == OK
    assert "none was run" not in one_passed.text


def test_one_refusal_by_the_passes_for_several_classes_is_counted_once() -> None:
    refused = {f"{isa}-qemu builtin": f"LoweringError: Cortex-M passes for {isa}: no rank 6" for isa in ("MVE", "DSP")}
    run = _run("refused", "", 0)
    both = dataclasses.replace(run, figures={**run.figures, "refused": refused})
    told = campaign_answer(PLAN, [both], 0, {})
    assert told.fields["refusals"] == {"LoweringError: Cortex-M passes for MVE: no rank 6": 1}


def test_one_refusal_of_several_tensors_is_counted_once_wherever_it_is_cut() -> None:
    """The first is what is told; other words than tensors tell refusals apart."""
    problem, operator = "LintError: operator 2, minimum_default: dim orders differ", "(cortex_m::minimum.out)"
    tensors = (
        "self is int8[3, 2, 3, 3] dim order [0, 2, 3, 1], out is int8[3, 2, 3, 3]",
        "self is int8[1, 5, 7, 12] dim order [0, 2, 3, 1], other is int8[1, 5, 7, …",
        "self is int8[9, 9, 9, 9], other is …",
    )
    runs = [_run("refused", f"{problem}: {one} {operator}", number) for number, one in enumerate(tensors)]
    runs.append(_run("refused", f"LintError: operator 2, minimum_default: {tensors[0]}, no kernel {operator}", 3))
    told = campaign_answer(PLAN, runs, 0, {}).fields["refusals"]
    assert list(told.values()) == [3, 1]
    assert next(iter(told)) == f"{problem}: {tensors[0]} {operator}"


def test_lines_of_kernels_are_told_with_a_column_for_each_class() -> None:
    possible = {
        "aten_to_cortex_m_pass.py": frozenset({1, 2}),
        "MVE dot.cpp": frozenset({1, 2, 3}),
        "SCALAR (host) dot.cpp": frozenset({4}),
        "MVE add.h": frozenset({5}),
    }
    run = _run("passed", "", 0)
    reached = packed(frozenset({"aten_to_cortex_m_pass.py:2", "MVE dot.cpp:1", "MVE dot.cpp:3"}))
    told = campaign_answer(PLAN, [dataclasses.replace(run, figures={**run.figures, "reached": reached})], 0, possible)
    lines = [line.split() for line in told.text.splitlines()]
    assert ["aten_to_cortex_m_pass.py", "1/2"] in lines
    assert ["dot.cpp", "2/3", "0/1"] in lines
    assert ["add.h", "0/1", "-"] in lines


def test_a_network_that_is_refused_on_some_places_only_is_counted_and_told_so() -> None:
    run = _run("passed", "LintError: a stride", 0)
    recipe = {"relation": "", "steps": [{"kind": "conv"}]}
    partly = dataclasses.replace(run, figures={**run.figures, "passed": ["m4-qemu builtin"], "recipe": recipe})
    told = campaign_answer(PLAN, [partly], 0, {})
    assert (told.status, told.fields["partly"]) == (OK, 1)
    assert "1 passed, 1 of these not everywhere" in told.text
    assert "not on native builtin: LintError: a stride" in _row(partly, PLAN, 1)


def test_a_reason_is_cut_between_words() -> None:
    said = reason(LintError(f"{'a word ' * 40}[1, 2, 3]"))
    assert said.endswith(" word …") or said.endswith(" a …")


@pytest.mark.first_only
@pytest.mark.parametrize(
    ("arguments", "said"),
    (
        (["--models", "-t", "native", "x.pte"], "--models generates its programs, and takes none"),
        (["-t", "native", "--seconds", "5"], "--seconds without --models"),
        (["-t", "native", "--reset", "-n", "2"], "--jobs and --reset without --models"),
        (["--models", "-t", "nativ"], "did you mean 'native'"),
        (["--models", "-t", "native", "--runtime", "builtin,fast"], "unknown runtime 'fast'"),
        (["--models", "-t", "vboard-f405"], "vboard-f405 is a board"),
        (["--models", "-t", "native", "--seconds", "nan"], "nan"),
        (["--models", "-t", "native", "--count", "0"], "greater than or equal to 1"),
        (["--models", "-t", "native", "--corpus", "/dev/null/x"], "--corpus '/dev/null/x': /dev/null is no folder"),
    ),
)
def test_invalid_options_of_the_model_fuzzer_are_refused(tmp_path: Path, arguments: list[str], said: str) -> None:
    done = hil(tmp_path, *arguments)
    assert done.returncode == 2
    assert said in done.stderr
