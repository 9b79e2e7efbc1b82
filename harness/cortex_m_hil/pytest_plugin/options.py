"""What a run is told: options, the ini key, and the targets that follow from them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from cortex_m_hil.numbers import MULTIPLIERS, argument
from cortex_m_hil.pytest_plugin import seeding
from cortex_m_hil.pytest_plugin.fixtures import embedded
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import Resolved, resolve, select

# Options that may change a verdict: a rerun has to have them too.
DEFAULTS: Final[Mapping[str, Any]] = {
    "--runtime": "builtin",
    "--require-fvp": False,
    "--dut-scope": "session",
    "--timeout-multiplier": 1.0,
    "--hil-seed": 0,
    "--redzones": False,
    "--hil-no-cache": False,
    "--hil-self-test": False,
}
_SHOWING: Final = ("collectonly", "showfixtures", "show_fixtures_per_test", "setupplan")


def add(parser: pytest.Parser) -> None:
    group = parser.getgroup("hil", "hardware-in-the-loop tests on Cortex-M")
    names = ("--hil-target",) if embedded() else ("--target", "--hil-target")
    group.addoption(
        *names,
        dest="hil_target",
        action="append",
        default=[],
        metavar="NAME",
        help="target to run on: a name, comma list, glob or 'all' of targets.yaml; repeatable",
    )
    group.addoption("--targets-file", type=Path, metavar="FILE", help="extends the default targets (./targets.yaml)")

    def decisive(option: str, **attributes: Any) -> None:
        group.addoption(option, default=DEFAULTS[option], **attributes)

    flag = {"action": "store_true"}
    decisive("--runtime", dest="hil_runtime", help="what executes programs: builtin, executorch")
    decisive("--require-fvp", **flag, help="an FVP that is not installed is an error, no fallback")
    decisive("--dut-scope", choices=("function", "session"), help="how long a simulator lives (default: session)")
    multiplier, seed = argument(float, *MULTIPLIERS), argument(int, 0, seeding.HIGHEST)
    decisive("--timeout-multiplier", type=multiplier, metavar="X", help="stretches every program's time limit")
    decisive("--hil-seed", type=seed, metavar="N", help="what all random numbers of tests on a target follow from")
    decisive("--redzones", **flag, help="plan memory that no tensor owns around every tensor, and watch it")
    decisive("--hil-no-cache", **flag, help="lower everything anew, and keep nothing on the disk")
    decisive("--hil-self-test", **flag, help="the known-answer self-test before and after each test: INFRA if it fails")
    group.addoption(
        "--hil-localize", **flag, help="say of outputs that are wrong which operator is the first to depart"
    )
    group.addoption(
        "--hil-bundles", type=Path, metavar="DIR", help="write all of a failure into DIR, for hil replay: a file a test"
    )
    group.addoption(
        "--hil-coverage", type=Path, metavar="FILE", help="write into FILE which lines of the kernels the tests execute"
    )
    group.addoption(
        "--hil-quarantine", type=Path, metavar="FILE", help="tests that are known to fail: reasons, and until when"
    )
    group.addoption(
        "--keep-programs", type=Path, metavar="DIR", help="write every program that is run into DIR, with its inputs"
    )
    parser.addini("hil_targets", "default targets, as in --target", type="args", default=[])


def patterns(config: pytest.Config, given: argparse.Namespace) -> list[str]:
    """Names of targets, as they were given; none if there are none."""
    found: list[str] = given.hil_target or config.getini("hil_targets")
    return found


def targets(config: pytest.Config) -> list[Resolved]:
    """What is asked for, and what really runs. Raises infra errors."""
    asked_for = patterns(config, config.option)
    if not asked_for:
        return []
    known = load_targets(_targets_file(config))
    runtime = config.getoption("hil_runtime")
    require_fvp = config.getoption("require_fvp")
    return [resolve(name, known, runtime=runtime, require_fvp=require_fvp) for name in select(asked_for, known)]


def _targets_file(config: pytest.Config) -> Path | None:
    """What the option names, else the `targets.yaml` of the folder pytest was called in or of its root."""
    given: Path | None = config.getoption("targets_file")
    if given is not None:
        return given
    for folder in (config.invocation_params.dir, config.rootpath):
        if os.path.lexists(folder / "targets.yaml"):
            return folder / "targets.yaml"
    return None


def only_shows(config: pytest.Config) -> bool:
    """Whether tests are listed or planned, and none is run."""
    return any(config.getoption(name) for name in _SHOWING)


def decisive(config: pytest.Config) -> Iterator[str]:
    """Options that may change a verdict, where they are not the default."""
    for option, default in DEFAULTS.items():
        value = config.getoption(option)
        if value != default:
            yield option if value is True else f"{option}={value}"
