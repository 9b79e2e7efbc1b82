"""The options and ini keys of the plugin, and the targets and runtimes that they select."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest

from cortex_m_hil.checks.executorch_verdict import ALL, accepted_words
from cortex_m_hil.host import timeouts
from cortex_m_hil.host.numbers import ranged_number
from cortex_m_hil.host.pytest_options import pytest_options
from cortex_m_hil.pytest_plugin import option_names, seeding
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import Resolved, resolve, select
from cortex_m_hil.targets.runtimes import AUTO, SEVERAL, select_runtimes

_FLAG: Final = {"action": "store_true", "default": False}
# The options by their `--hil-` names. `decisive` options may change a verdict, so a rerun needs them too.
_DECISIVE: Final[Mapping[str, Mapping[str, Any]]] = {
    "--hil-runtime": {"metavar": "RUNTIME", "help": f"runtime of programs: {SEVERAL} (default: auto)"},
    "--hil-require-fvp": {**_FLAG, "help": "fail if an FVP is not installed, instead of using QEMU"},
    "--hil-dut-scope": {
        "default": "session", "choices": ("function", "session"),
        "help": "how long a simulator lives (default: session)",
    },
    "--hil-timeout-multiplier": {
        "default": 1.0, "type": ranged_number(float, *timeouts.MULTIPLIERS), "metavar": "FACTOR",
        "help": "multiply every program's time limit by this",
    },
    "--hil-seed": {
        "default": 0, "type": ranged_number(int, 0, seeding.HIGHEST), "metavar": "N",
        "help": "the seed of all random numbers in tests on a target",
    },
    "--hil-redzones": {**_FLAG, "help": "detect writes outside tensors: plan red zones around every tensor"},
    "--hil-no-cache": {**_FLAG, "help": "do not read or write the cache of lowered programs on disk"},
    "--hil-self-test": {
        **_FLAG, "help": "run the known-answer self-test before and after each test: INFRA if it fails",
    },
}  # fmt: skip
_OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "--hil-target": {
        "action": "append", "default": [], "metavar": "NAME",
        "help": "target to run on: a name, comma list, glob or 'all' of targets.yaml; repeatable",
    },
    "--hil-targets-file": {"type": Path, "metavar": "FILE", "help": "file with more targets (default: ./targets.yaml)"},
    **_DECISIVE,
    "--hil-localize": {**_FLAG, "help": "for wrong outputs, name the first operator that departs from the references"},
    "--hil-bundles": {
        "type": Path, "metavar": "FOLDER", "help": "write a bundle of each failure into FOLDER, for hil replay",
    },
    "--hil-coverage": {
        "type": Path, "metavar": "FILE", "help": "write the line coverage of the kernels into FILE",
    },
    "--hil-trace": {
        "type": Path, "metavar": "FILE", "help": "write a trace: when each worker lowered, built, booted, ran, waited",
    },
    "--hil-quarantine": {
        "type": Path, "metavar": "FILE", "help": "list of tests that are known to fail, with reasons and end dates",
    },
    "--hil-keep-programs": {
        "type": Path, "metavar": "FOLDER", "help": "write every program that is run into FOLDER, with its inputs",
    },
}  # fmt: skip
_CHOSEN: Final = "hil_chosen"  # stored among the options, which xdist passes to its workers
_SHOWING: Final = ("collectonly", "showfixtures", "show_fixtures_per_test", "setupplan")


def add(parser: pytest.Parser, config: pytest.Config) -> None:
    group = _group(parser)
    for name, attributes in _OPTIONS.items():
        group.addoption(name, **attributes)
    parser.addini("hil_targets", "default targets, as in --hil-target", type="args", default=[])
    parser.addini("hil_runtime", "default runtimes, as in --hil-runtime", type="args", default=[AUTO])
    parser.addini("hil_known", "what hil_known accepts in all tests, or all", type="args", default=[])
    if option_names.are_conftests_loading(config):
        add_short(parser, config)


def add_short(parser: pytest.Parser, config: pytest.Config) -> None:
    option_names.register_short(config, parser, _group(parser), _OPTIONS)


def _group(parser: pytest.Parser) -> Any:
    return parser.getgroup("hil", "hardware-in-the-loop tests on Cortex-M")


# --- targets -------------------------------------------------------------------------------------------------


class _TargetOption(argparse.ArgumentParser):
    """A parser that finds the values of `--target` among the words of a command line."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(add_help=False, allow_abbrev=False, fromfile_prefix_chars="@")
        self.add_argument(*names, dest="found", action="append", default=[])

    def values(self, words: Sequence[str]) -> list[str]:
        try:
            found: list[str] = self.parse_known_args(words)[0].found
        except ValueError:
            return []
        return found

    def error(self, message: str) -> NoReturn:
        """Raise ValueError; pytest's own parser reports what is wrong."""
        raise ValueError(message)


def _sources(config: pytest.Config) -> list[tuple[str, list[str]]]:
    """Return each place that names targets, with the names; a later place replaces those before it."""
    option = _TargetOption(["--hil-target", *({"--target"} - config.stash.get(option_names.TAKEN, {}).keys())])
    words = {
        "addopts": config.getini("addopts"),
        "PYTEST_ADDOPTS": shlex.split(os.environ.get("PYTEST_ADDOPTS", "")),
        "the command line": list(map(str, config.invocation_params.args)),
    }
    given = ((source, option.values(found)) for source, found in words.items())
    return [(source, values) for source, values in given if values]


def patterns(config: pytest.Config) -> list[str]:
    """Return the names of targets as given by the command line or addopts, else by the ini file."""
    if given := _sources(config):
        return given[-1][1]
    found: list[str] = config.option.hil_target or config.getini("hil_targets")
    return found


def replaced(config: pytest.Config) -> Iterator[str]:
    """Yield a line for each place whose targets are ignored, because a later place names others."""
    *before, (last, values) = _sources(config) or [("", [])]
    for source, others in before:
        if others != values:
            name = option_names.spelled(config, "--hil-target")
            yield f"{name} of {source} ({', '.join(others)}) is replaced by that of {last}"


def runtimes(config: pytest.Config) -> list[str]:
    """Return the runtimes, or `auto`, as given by the option, else by the ini file.

    Raises:
        ConfigError: there is no such runtime.
    """
    given: str | None = config.getoption("hil_runtime")
    return select_runtimes(config.getini("hil_runtime") if given is None else [given])


def targets(config: pytest.Config) -> list[Resolved]:
    """Return the requested targets for each runtime, each with the target that really runs.

    Raises:
        ConfigError: there is no such target or runtime, or the targets file is wrong.
        InfraError: a target cannot run here.
    """
    asked_for = config.option.hil_target = patterns(config)
    if not asked_for:
        return []
    known = load_targets(_targets_file(config))
    require_fvp = config.getoption("hil_require_fvp")
    counts = config.getoption("hil_coverage") is not None
    found: dict[tuple[str, str], Resolved] = {}
    for name, runtime in itertools.product(select(asked_for, known), runtimes(config)):
        one = resolve(name, known, runtime=runtime, require_fvp=require_fvp, counts=counts)
        found.setdefault((name, one.runtime), one)  # `auto` may be the same as another runtime in the list
    return _as_in_controller(config, list(found.values()))


def _as_in_controller(config: pytest.Config, found: list[Resolved]) -> list[Resolved]:
    """Return the targets as xdist's controller resolved them, in workers too: an ExecuTorch may be installed since."""
    chosen = [(one.name, one.runtime, one.runtime_reason, one.has_misfit, one.lacks) for one in found]
    if not hasattr(config, "workerinput"):
        setattr(config.option, _CHOSEN, chosen)
    by_name = {one.name: one for one in found}
    return [
        dataclasses.replace(by_name[name], runtime=runtime, runtime_reason=reason, has_misfit=misfit, lacks=lacks)
        for name, runtime, reason, misfit, lacks in getattr(config.option, _CHOSEN, chosen)
    ]


def id_of(config: pytest.Config, resolved: Resolved) -> str:
    """Return the target's name in a test's id, with the runtime if tests run on several."""
    return resolved.name_with_runtime if len(runtimes(config)) > 1 else resolved.name


def known(config: pytest.Config) -> frozenset[int | str]:
    """Return what `hil_known` of the ini file accepts as causes of WouldFailOnExecuTorch, in all tests.

    These are numbers of known bugs, names of operators, or ALL.

    Raises:
        ConfigError: a word is no such cause.
    """
    words: list[str] = config.getini("hil_known")
    return frozenset([ALL] if words == [ALL] else accepted_words(words))


def _targets_file(config: pytest.Config) -> Path | None:
    """Return the targets file: from the option, else `targets.yaml` in the current folder or in the root folder."""
    given: Path | None = config.getoption("hil_targets_file")
    if given is not None:
        return given
    for folder in (config.invocation_params.dir, config.rootpath):
        if os.path.lexists(folder / "targets.yaml"):
            return folder / "targets.yaml"
    return None


def only_shows(config: pytest.Config) -> bool:
    """Tell whether pytest only lists or plans tests, and runs none."""
    return any(config.getoption(name) for name in _SHOWING)


def decisive(config: pytest.Config) -> list[str]:
    """Return the options that may change a verdict and do not have their default values."""
    values = {name.removeprefix("--hil-"): config.getoption(name) for name in _DECISIVE}
    usual = {name.removeprefix("--hil-"): attributes.get("default") for name, attributes in _DECISIVE.items()}
    return pytest_options(**{name: value for name, value in values.items() if value != usual[name]})
