"""Measure how long the harness itself takes: the stages of a lowering, and whole pytest runs (docs/maintainers.md).

python ci/bench.py lowering ds_cnn --runs 5
python ci/bench.py matrix tests/targets -t m55-qemu,m4-qemu,m0-qemu
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import bench_lowering as lowering
import bench_matrix as matrix
from cortex_m_hil.cli.app import App, Commands
from cortex_m_hil.cli.command_output import Answer, end, json_fields
from cortex_m_hil.cli.options import SeveralTargets, TargetOptions, Targets
from cortex_m_hil.cli.program_files import NETWORKS_HELP
from cortex_m_hil.cli.pytest_runs import named_tests
from cortex_m_hil.cli.tables import table
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.host.folders import TemporaryFolder
from cortex_m_hil.lowering.named_modules import NETWORKS, check_name

app = App(
    cls=Commands, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False
)
Runs = Annotated[int, typer.Option("--runs", "-n", min=1, help="How often; medians are shown")]


# --- lowering ------------------------------------------------------------------------------------------------


@app.command(
    "lowering",
    log=True,
    epilog=json_fields(
        {
            "runs": "how many processes; seconds are medians of theirs",
            "imports": "seconds of torch and executorch",
            "modules": (
                "a list of module, cpu and upstream_cpu (CPU seconds of a second lowering, here and by ExecuTorch's "
                "tester), stages: a list of stage, first, again, seconds"
            ),
        }
    ),
)
def bench_lowering(
    models: Annotated[
        list[str] | None, typer.Argument(metavar="MODEL...", help=f"{NETWORKS_HELP} [default: all networks]")
    ] = None,
    runs: Runs = 3,
) -> None:
    """Measure the seconds of each stage of the lowering, and those of ExecuTorch's own way to the same programs.

    Each run is a process of its own.
    """
    chosen = models or list(NETWORKS)
    for model in chosen:
        check_name(model)
    found = lowering.measure(chosen, _with_progress(runs))
    blocks = [table(("import", "seconds"), [(name, f"{value:.2f}") for name, value in found.imports.items()])]
    for one in found.modules:
        stages = [(row.stage, f"{row.first:.3f}", f"{row.again:.3f}") for row in one.stages]
        sums = ("all", *(f"{sum(getattr(row, which) for row in one.stages):.3f}" for which in ("first", "again")))
        blocks.append(table((one.module, "first", "again"), [*stages, sums]))
        ratio = one.cpu / one.upstream_cpu
        blocks.append(f"CPU seconds: {one.cpu:.2f}; by ExecuTorch's tester {one.upstream_cpu:.2f}, ratio {ratio:.2f}")
    end(Answer("\n\n".join(blocks), {"runs": runs, "imports": found.imports, "modules": found.modules}))


def _with_progress(runs: int) -> Iterable[int]:
    """Yield the numbers of the runs; a terminal shows the current one."""
    with Console(stderr=True, markup=False).status("") as status:
        for run in range(runs):
            status.update(f"run {run + 1} of {runs}")
            yield run


# --- matrix --------------------------------------------------------------------------------------------------


@app.command(
    "matrix",
    log=True,
    epilog=json_fields(
        {
            "targets": "the targets that were measured",
            "runs": "how often each was measured",
            "here": "command, cold and warm (seconds of each run), cold_seconds and warm_seconds (medians)",
            "against": (
                "likewise of --against or --upstream, null without them; with --upstream its warm is its cold, one run "
                "for both"
            ),
            "cold_ratio": "the median cold_seconds of here divided by against; null without against",
            "warm_ratio": "the median warm_seconds of here divided by against; null without against",
        }
    ),
)
def bench_matrix(
    target: SeveralTargets,
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="PATH...", help="What pytest is to run [default: tests/targets]")
    ] = None,
    against: Annotated[
        str, typer.Option("--against", metavar="CMD", help="A command for the shell, to compare with")
    ] = "",
    upstream: Annotated[
        bool, typer.Option("--upstream", help="ExecuTorch's own ops/ tests, here and by its own command on QEMU")
    ] = False,
    keyword: Annotated[str, typer.Option("-k", metavar="EXPR", help="Of --upstream's tests")] = "test_implementation",
    runs: Runs = 3,
    targets_file: Targets = None,
) -> None:
    """Measure the seconds of whole pytest runs, cold and warm. A run that fails is an error.

    Cold: the runners are built, and nothing is lowered yet. Each command has a cache folder of its own, named by
    HIL_CACHE_DIR; the two take turns.
    """
    if upstream and (paths or against):
        raise ConfigError(
            "--upstream has its own tests, and its own command to compare with", hint="leave the rest out"
        )
    names = TargetOptions(targets_file=targets_file).choose(target).names
    options = ["--runtime=builtin", *([] if targets_file is None else [f"--targets-file={targets_file}"])]
    theirs: matrix.Command | None = None
    with TemporaryFolder() as folder:
        if upstream:
            ours, theirs = _upstream_sides(names, options, keyword, folder)
        else:
            files = [Path(one) for one in named_tests([str(one) for one in paths or [Path("tests/targets")]])]
            ours = matrix.Command.building((*matrix.pytest_command(names, files), *options))
            if against:
                theirs = matrix.Command.building(("sh", "-c", against))
        found = matrix.measure(ours, theirs, _with_progress(runs))
    rows = [_side("here", found.ours), *([_side("against", found.theirs)] if found.theirs else [])]
    rows += [("ratio", _ratio(found.cold_ratio), _ratio(found.warm_ratio))] if found.theirs else []
    ratios = {"cold_ratio": found.cold_ratio, "warm_ratio": found.warm_ratio}
    sides = {"here": _fields_of(found.ours), "against": _fields_of(found.theirs) if found.theirs else None}
    fields = {"targets": names, "runs": runs, **sides, **ratios}
    end(Answer(table(("seconds", "cold", "warm"), rows), fields))


def _upstream_sides(
    names: Sequence[str], options: Sequence[str], keyword: str, folder: Path
) -> tuple[matrix.Command, matrix.Command]:
    """Return the commands that run ExecuTorch's tests by hil and by ExecuTorch's own command; build its runners."""
    ours = (*matrix.upstream_command(names, options), "-k", keyword)
    theirs = ("sh", "-c", matrix.upstreams_own(names, options, keyword, folder))
    return matrix.Command(ours, matrix.build_command(names, options)), matrix.Command(theirs, None, caches=False)


def _side(name: str, found: matrix.Seconds) -> tuple[str, str, str]:
    cold, warm = found.medians.values()
    return (name, f"{cold:.2f}", f"{warm:.2f}")


def _fields_of(found: matrix.Seconds) -> dict[str, Any]:
    return {"command": found.command, **found.medians, "cold": found.cold, "warm": found.warm}


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


if __name__ == "__main__":
    app(prog_name="bench.py")
