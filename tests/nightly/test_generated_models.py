"""2,000 generated networks, none of which may fail; and 300 of them on kernels with a bug each, which they find.

Three hours of CPU time.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from cortex_m_hil import flow, lowering
from cortex_m_hil.errors import LoweringError, VerdictError
from cortex_m_hil.maintainers.networks.compiler_lines import lower_and_trace
from cortex_m_hil.maintainers.networks.generator import ROUND, Generator
from cortex_m_hil.maintainers.networks.kernel_lines import KernelLines, counting
from cortex_m_hil.maintainers.networks.network_judge import REFUSALS, Checks, attempt
from cortex_m_hil.maintainers.networks.network_worker import checks_of
from cortex_m_hil.maintainers.networks.recipe import Recipe
from cortex_m_hil.maintainers.networks.recipe_part import part_of
from cortex_m_hil.program.program import Program
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve
from installed import executorch_of_this_machine, has_executorch
from planting import BUGS, Bug

TARGETS = {Isa.MVE: "m55-qemu", Isa.DSP: "m4-qemu", Isa.SCALAR: "m0-qemu"}
SEED = 1
NETWORKS = 2000
WITH_BUGS = 300
DEADLINE = 6 * 3600.0  # seconds
NEVER_DRAWN = {"aten::copy_": "writes state, which no generated network has"}
_GENERATOR = Generator(SEED)
_NETWORKS: list[Network] = []


def test_no_generated_network_fails(tmp_path: Path) -> None:
    known = load_targets()
    on_both = all(has_executorch(known[name]) for name in TARGETS.values())
    runtimes = "builtin,executorch" if on_both else "builtin"
    arguments = ["dev", "fuzz", "--models", "-t", ",".join(TARGETS.values()), "--runtime", runtimes, "-n", "2"]
    arguments += ["--json", "--count", str(NETWORKS), "--seed", str(SEED), "--store", str(tmp_path / "store")]
    command = [sys.executable, "-m", "cortex_m_hil.cli", *arguments]
    with executorch_of_this_machine():
        done = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, timeout=DEADLINE, check=False)
    told = json.loads(done.stdout)
    print(json.dumps(told, indent=1))
    assert [one for one in told["defects"] if not one["known"]] == []
    assert told["outcomes"]["infra"] == 0
    assert operators() - set(told["operators"]) == NEVER_DRAWN.keys()
    assert done.returncode == 0


def operators() -> set[str]:
    """Those of the runtime builtin, without those that are for tests."""
    with flow.open_dut(resolve(TARGETS[Isa.DSP], load_targets())) as dut:
        return {name for name in dut.session().identity.operators if not name.startswith("hil_test::")}


@dataclass(frozen=True)
class Network:
    number: int
    checks: Checks
    programs: Mapping[Isa, Program]


@pytest.fixture(scope="module")
def kernels() -> Iterator[Mapping[str, KernelLines]]:
    known = load_targets()
    with ExitStack() as stack:
        yield counting([resolve(name, known) for name in TARGETS.values()], stack)


def networks(kernels: Mapping[str, KernelLines]) -> Iterator[Network]:
    """The first ones of the campaign; each is lowered when it is needed first, a round at a time."""
    for number in range(WITH_BUGS):
        if number == len(_NETWORKS):
            recipes = [_GENERATOR.draw(one) for one in range(number, number + ROUND)]
            made = [lowered(recipe, kernels) for recipe in recipes]
            _NETWORKS.extend(network for network, _ in made)
            _GENERATOR.learn(recipes, [reached for _, reached in made])
        yield _NETWORKS[number]


def lowered(recipe: Recipe, kernels: Mapping[str, KernelLines]) -> tuple[Network, frozenset[str]]:
    part, checks = part_of(recipe), checks_of(recipe)
    try:
        exported = lowering.export(part.module(), part.arguments(), checks.layout)
    except LoweringError:
        return Network(recipe.number, checks, {}), frozenset()
    made = lower_and_trace(exported, tuple(TARGETS), checks.options)
    reached, run = made.reached, dict[Isa, Program]()
    for isa, program in made.programs.items():
        with suppress(VerdictError):  # what is refused or fails without a planted bug shows none
            reached |= kernels[TARGETS[isa]].executed(program)
            run[isa] = program
    return Network(recipe.number, checks, run), reached


@pytest.mark.parametrize("isa", TARGETS)
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str, isa: Isa, kernels: Mapping[str, KernelLines], tmp_path: Path) -> None:
    bug: Bug = BUGS[name]
    if isa not in bug.classes:
        pytest.skip(f"no {isa.value} core shows it")
    with flow.open_dut(resolve(TARGETS[isa], load_targets()), firmware=bug.plant(tmp_path)) as dut:
        for network in networks(kernels):
            if isa in network.programs:
                error = attempt(dut, network.programs[isa], network.checks).error
                if error is not None and not isinstance(error, REFUSALS):
                    print(f"{name} on {isa.value}: network {network.number}: {error.describe()}", flush=True)
                    return
    pytest.fail(f"none of {WITH_BUGS} networks shows it")
