"""Shrinks a failing generated program, and writes the rest as a test."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cortex_m_hil import lowering
from cortex_m_hil.diagnose.shrink import Symptom, own_check, shrink
from cortex_m_hil.errors import Mismatch
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.host import files
from cortex_m_hil.host.pytest_options import pytest_options
from cortex_m_hil.maintainers.networks.network_judge import Checks, Disagreement, ModelJudge
from cortex_m_hil.maintainers.networks.recipe import Recipe


def write_shrunk(
    duts: Sequence[Dut], recipe: Recipe, failure: Disagreement, out: Path, budget: float, asked: str
) -> dict[str, Any]:
    """Write the smallest part of a program that fails in the same way as a test, and the largest that passes.

    Args:
        duts: the Duts of the failure's places.
        recipe: the program.
        failure: the failure that a smaller part must still have.
        out: the folder of the tests.
        budget: seconds for shrinking.
        asked: the command that generated the program.

    Returns:
        The paths (`fails`, and `passes` or None if no part passed), and the size of the failing part.
    """
    from cortex_m_hil.lowering.submodules import write_test
    from cortex_m_hil.maintainers.networks.recipe_part import part_of

    checks = _only(recipe, failure)
    found = shrink(part_of(recipe), _symptoms(duts, checks), budget=budget, told=lambda line: None)
    out.mkdir(parents=True, exist_ok=True)
    name = (
        files.file_name_for(f"{failure.operator.partition('::')[2]} {failure.kind}").replace(".", "_").replace("-", "_")
    )
    imports, body = _test(duts, checks, failure)
    written: dict[str, str | None] = {"fails": None, "passes": None}
    for role, part in (("fails", found.part), ("passes", found.passing)):
        if part is not None:
            path = out / f"test_{name}_{role}.py"
            said = f"{found.symptom}, on {' and '.join(failure.places)}: a part of program {recipe.number} {role}.\n\n"
            write_test(part, path, f"{said}{asked}\n{_run(failure, checks, path)}\n", imports, body)
            written[role] = str(path)
    return {**written, "operators": len(found.part.steps), "elements": found.part.elements, "ended": found.ended}


def _only(recipe: Recipe, failure: Disagreement) -> Checks:
    """Return the checks of a recipe, without its relation if something else failed."""
    layout: Any = recipe.layout
    relation = recipe.relation if failure.kind.startswith("relation") else ""
    return Checks(layout, recipe.quantize, recipe.redzones, relation)


def _symptoms(duts: Sequence[Dut], checks: Checks) -> Callable[[Any], Sequence[Symptom]]:
    judge = ModelJudge(duts)

    def symptoms(part: Any) -> list[Symptom]:
        return [Symptom(one.kind, one.operator) for one in judge.judge(part, checks).failures]

    return symptoms


def _run(failure: Disagreement, checks: Checks, path: Path) -> str:
    """Return the command that runs the test."""
    target, runtime = failure.places[0].split(" ")
    options = pytest_options(target=target, runtime=runtime, redzones=checks.redzones)
    return shlex.join(["pytest", *options, path.name])


def _test(duts: Sequence[Dut], checks: Checks, failure: Disagreement) -> tuple[list[str], str]:
    """Return imports and body of the test: `hil.check` if only one target is wrong, else `require_agreement`."""
    if len(duts) == 1 and not checks.relation:
        return own_check(checks.tolerance, checks.options)
    places = [(dut.resolved.name, dut.resolved.runtime) for dut in duts]
    imports = [
        "from cortex_m_hil.maintainers.networks.network_judge import Checks",
        "from cortex_m_hil.maintainers.networks.shrunk_test import require_agreement",
    ]
    return imports, f"require_agreement({{module}}, {{inputs}}, {places!r}, {checks!r})"


def require_agreement(module: Any, inputs: Any, places: Sequence[tuple[str, str]], checks: Checks) -> None:
    """Raise Mismatch where targets or runtimes differ, or a relation does not hold: the written tests call this.

    Args:
        module: the float module.
        inputs: its example inputs.
        places: names of targets, each with its runtime.
        checks: how the module is lowered and what is checked.
    """
    from contextlib import ExitStack

    from cortex_m_hil import flow
    from cortex_m_hil.lowering.submodules import ModulePart
    from cortex_m_hil.targets.load import load_user_targets
    from cortex_m_hil.targets.resolve import resolve

    exported = lowering.export(module, inputs, "explicit")  # keeps the numbers; the part is lowered for a layout
    known = load_user_targets(None)
    with ExitStack() as stack:
        duts = [stack.enter_context(flow.open_dut(resolve(name, known, runtime=runtime))) for name, runtime in places]
        judged = ModelJudge(duts).judge(ModulePart.of(exported.program, exported.inputs), checks)
    for one in judged.failures:
        raise Mismatch(f"{one.kind}: {one.message}", target=", ".join(one.places), operator=one.operator)
