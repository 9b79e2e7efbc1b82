"""The command lines of the docs that no test executes, with reasons, and a check of their words."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pytest
import typer

from cortex_m_hil.boards.virtual.machines import MACHINES
from cortex_m_hil.cli.__main__ import load_commands
from cortex_m_hil.cli.error_output import UsageError
from paths import REPOSITORY

_REASONS: Final[Mapping[str, tuple[str, ...]]] = {
    "changes this machine or this checkout": (
        "sudo apt-get install gcc-arm-none-eabi libnewlib-arm-none-eabi libstdc++-arm-none-eabi-newlib "
        "qemu-system-arm flatbuffers-compiler libflatbuffers-dev cmake ninja-build g++ util-linux",
        "python3 -m venv .venv",
        ". .venv/bin/activate",
        "pip install executorch_cortex_m_hil-*.whl",
        "make install",
        "rm -rf .venv && make install",
        ".venv/bin/pip install -c constraints.txt -e '.[dev,docs,maintainers,upstream]'",
        ".venv/bin/python ci/freeze.py > constraints.new && mv constraints.new constraints.txt",
        ".venv/bin/ruff check --fix && .venv/bin/ruff format",
        ".venv/bin/python ci/readme_outputs.py",
        ".venv/bin/python ci/report_picture.py",
        ".venv/bin/python ci/profile_picture.py",
        ".venv/bin/python ci/known_bugs_table.py",
        ".venv/bin/python ci/accuracy_table.py",
        ".venv/bin/python ci/models_table.py",
        "npm install --prefix .venv rp2040js@1.4.1",
    ),
    "runs this project's own checks, of which this test is one": (
        "make demo",
        "make test",
        "make coverage",
        "make matrix",
        "make versions",
        "make nightly",
        "make docs",
        "make lint",
        "make quick",
        ".venv/bin/pytest tests/harness/runner/links -k framing",
        ".venv/bin/pytest --target=m4-qemu tests/targets",
        ".venv/bin/pytest -n 2 --target='*-qemu' tests/targets",
        ".venv/bin/pytest tests/harness/test_known_bugs.py",
        ".venv/bin/pytest tests/nightly/test_known_bugs.py",
    ),
    "takes half an hour to hours: whole suites, hundreds of mutants or of programs": (
        "hil dev fuzz tests/fuzz_seeds/*.pte harness/cortex_m_hil/program/known_answer/*.pte "
        "--target native --count 10000 --seed 20261121 --corpus build/found",
        "hil dev fuzz --models -t m55-qemu,m4-qemu,m0-qemu --count 500 --seed 1 -n 2",
        "hil dev fuzz --models -t m4-qemu --runtime builtin,executorch --seconds 600",
        "hil dev mutate tests/targets -t native",
        "hil dev mutate tests/targets --upstream -t native",
        "hil dev mutate test_model.py -t m4-qemu,m55-qemu --count 0",
        "hil dev mutate",
        "hil dev upstream --target 'm*-qemu' -- -n 2",
        "hil dev upstream --backend-suite -t m55-qemu,m4-qemu,m0-qemu -- -n 2",
        "hil nightly tests/targets --upstream -t '*-qemu,native' -j 4",
        "python ci/bench.py matrix --upstream -t m55-qemu,m4-qemu,m0-qemu",
    ),
    "fetches ExecuTorch from its public repository; test_executorch_checkout.py does so from a mirror": (
        "hil executorch install -t m4-qemu",
    ),
    "searches the repository of a firmware; tests/harness/campaigns/bisection/test_bisect.py does so": (
        "hil bisect start HEAD v2.3.0 --incremental",
        "hil bisect run -- pytest --target=my-product test_pipeline.py",
    ),
    "needs a physical board": (
        "hil doctor selftest -t nucleo-f446re",
        "pytest --target=nucleo-f446re tests/targets",
        "python ci/goodput.py --target nucleo-f446re",
        "python ci/soak.py --target nucleo-f446re --runs 1000",
    ),
    "needs Arm's models": (
        "hil doctor --verify-fvp m4-fvp",
        "pytest --target=m4-fvp --require-fvp tests/targets",
        "hil doctor selftest -t m4-fvp --require-fvp",
        "hil launch arm_executor_runner -t m55-fvp --timeout 300",
    ),
    "takes hours: builds each step of ExecuTorch's history, or mutates its kernels": (
        "hil dev mutate test_model.py -t m4-qemu --kernels executorch/backends/cortex_m/ops --kernels CMSIS-NN/Source "
        "--kernels CMSIS-NN/Include",
        "hil bisect start NEW OLD --source ~/CMSIS-NN "
        "--build 'hil executorch install --source ~/executorch --cpu cortex-m4 --cmsis-nn . --link prefix'",
        "hil bisect start NEW OLD --source ~/executorch "
        "--build 'hil executorch install --source . --cpu cortex-m4 --cmsis-nn ~/CMSIS-NN --link prefix'",
        "hil bisect run -- env HIL_EXECUTORCH_PREFIX={worktree}/prefix "
        "pytest --target=m4-qemu --runtime=executorch test_head.py",
        "hil bisect start v1.4.0 dbcf6ac7fd --source ~/executorch --python src --exclude examples "
        "--build 'sh ~/hunt/complete.sh' --find-fix --assert-old --deterministic --likely backends/cortex_m",
        "hil bisect run --raises LintError --raises Mismatch -- "
        "pytest -n 2 --target=m4-qemu,m0-qemu,m55-qemu test_founding.py",
    ),
}
# The environment variable for a folder with checkouts of ExecuTorch (`executorch`, with submodules) and CMSIS-NN
# (`CMSIS-NN`). It is optional; if set, tests/nightly/test_documented_commands.py executes these commands too.
CHECKOUTS: Final = os.environ.get("HIL_TEST_CHECKOUTS", "")
WITH_CHECKOUTS: Final = frozenset(
    {
        "hil executorch install --source ~/executorch --cpu cortex-m4 --cmsis-nn ~/CMSIS-NN",
        "hil executorch install --source ~/executorch --cpu cortex-m4 --cmsis-nn ~/CMSIS-NN --coverage",
        "hil compare-runtimes program.pte --target m4-qemu",
        "hil compare-runtimes kept/*.pte --target m4-qemu",
        "hil inspect fit floats.pte -t m4-qemu --runtime executorch",
        "pytest --target=m4-qemu --runtime=executorch tests/targets",
        "pytest --target=m4-qemu --runtime=executorch --hil-coverage=coverage.json tests",
        "hil dev upstream --target m4-qemu --runtime=executorch",
        "hil dev upstream --target m4-qemu -- --keep-programs kept",
        "EXECUTORCH_ROOT=SHIMS PATH=SHIMS:$PATH "
        "pytest --cortex-m-target=cortex-m4 ~/executorch/backends/cortex_m/test/ops",
        "cd firmware",
        "export HIL_SCHEMA_DIR=$HOME/executorch/schema",
        "cmake --preset m4-qemu && cmake --build ../build/m4-qemu",
    }
)
NEVER_EXECUTED: Final = {line: reason for reason, lines in _REASONS.items() for line in lines}
NOT_EXECUTED: Final = {*NEVER_EXECUTED, *(() if CHECKOUTS else WITH_CHECKOUTS)}

# Pages whose commands tests/harness/test_tutorials.py and tests/nightly/test_documented_commands.py execute.
TUTORIALS: Final = (
    "docs/getting-started.md",
    "docs/boards.md#a-memory-map-of-your-own",
    "docs/own-firmware.md#from-an-empty-folder-to-the-first-verdict",
)
IN_A_USERS_FOLDER: Final = (
    "README.md",
    "docs/bisect.md",
    "docs/boards.md",
    "docs/command-line.md",
    "docs/evaluate.md",
    "docs/failures.md",
    "docs/maintainers.md",
    "docs/memory.md",
    "docs/own-firmware.md",
    "docs/runtimes.md",
    "docs/your-program.md",
)
IN_A_CHECKOUT: Final = ("firmware/fuzz/README.md",)  # pages whose commands run in this checkout, with its .venv
# pages checked by tests/harness/test_pages.py
QUICK: Final = ("docs/nightly.md",)

_ASSIGNMENT: Final = re.compile(r"\w+=")
_OPTIONS_OF_EXECUTORCH: Final = ("--cortex-m-target",)  # options that ExecuTorch's conftest.py adds


def problems(line: str, pytest_options: Any) -> list[str]:
    """Return the errors in a line's words for `hil`, pytest, make and this repository's scripts; execute nothing.

    `pytest_options` is pytest's option parser, including the options of plugins.
    """
    return [problem for words in _called(line) for problem in _of_words(words, pytest_options)]


def _called(line: str) -> Iterator[list[str]]:
    """Yield the words of each program that a line calls, without assignments, redirections and shell operators."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    to_file = False
    for word in lexer:
        if set(word) <= set("();<>|&"):
            to_file = set(word) <= set("<>")
            if not to_file:
                yield words
                words = []
        elif to_file:
            to_file = False
        elif words or not _ASSIGNMENT.match(word):
            words.append(word)
    yield words


def _of_words(words: Sequence[str], pytest_options: Any) -> list[str]:
    if not words:
        return []
    program, arguments = words[0].rpartition("/")[2], list(words[1:])
    if program == "hil":
        return _of_hil(arguments, pytest_options)
    if program == "pytest":
        return _of_pytest(arguments, pytest_options)
    if program == "make":
        made = re.findall(r"^(\w+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
        return [f"no target {name!r} in Makefile" for name in arguments if name not in made]
    if program.startswith("python") and arguments[0].startswith(("ci/", "tests/")):
        script = (REPOSITORY / arguments[0]).read_text()
        return [f"no {one} in {arguments[0]}" for one in arguments if one.startswith("--") and f'"{one}"' not in script]
    return []


def _of_hil(words: list[str], pytest_options: Any) -> list[str]:
    command: Any = typer.main.get_command(load_commands(words[0] if words else ""))
    name = ""
    while words[:1] not in ([], ["--help"], ["--version"]) and hasattr(command, "commands"):
        if words[0].startswith("-") and command.invoke_without_command:
            break
        name, *words = words
        if name not in command.commands:
            return [f"no command {name!r}"]
        command = command.commands[name]
    if not name:
        return []
    if name == "virtual":
        return _of_vboard(words, pytest_options)
    own, rest = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    try:
        command.make_context(name, list(words))
    except UsageError as error:
        return [f"hil {name} {' '.join(own)}: {error.format_message()}"]
    if name == "upstream":
        return _of_pytest(rest, pytest_options)
    return _of_words(rest, pytest_options) if name in ("run", "step") else []


def _of_vboard(words: Sequence[str], pytest_options: Any) -> list[str]:
    if not words:
        return ["hil board virtual: Missing argument"]
    machine, *action = words
    wrong = [] if machine in MACHINES else [f"no virtual board {machine!r}"]
    if action and action[0] not in ("run", "flash", "reset", "power", "fault"):
        wrong.append(f"hil board virtual cannot {action[0]!r}")
    return [*wrong, *(_of_words(action[1:], pytest_options) if action[:1] == ["run"] else [])]


def _of_pytest(arguments: Sequence[str], pytest_options: Any) -> list[str]:
    try:
        _, unknown = pytest_options.parse_known_and_unknown_args(list(arguments))
    except pytest.UsageError as error:
        return [str(error)]
    return [
        f"pytest has no {one}" for one in unknown if one.startswith("-") and not one.startswith(_OPTIONS_OF_EXECUTORCH)
    ]
