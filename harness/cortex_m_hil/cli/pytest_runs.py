"""Arguments of pytest, for commands that run pytest in a process of its own."""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

from cortex_m_hil.errors import ConfigError
from cortex_m_hil.host.files import similar_path_hint


def named_tests(words: Sequence[str], folders: Sequence[Path] = (Path(),)) -> list[str]:
    """Return the words that name tests for pytest: files, folders, `FILE::TEST`, and in place of a glob its matches.

    With pytest's workers (`-n`) a missing path would otherwise give no error, only no test. pytest itself checks
    whether a file has the named test.

    Args:
        words: arguments of pytest. From the first option on they are unchanged, since only pytest knows which words are
            paths.
        folders: the folders at which relative paths begin.

    Raises:
        ConfigError: a path does not exist; the hint has similar names.
    """
    options = next((number for number, word in enumerate(words) if word[:1] in ("-", "@")), len(words))
    if "--pyargs" in words:
        return [*words]
    return [*(one for word in words[:options] for one in _paths(word, folders)), *words[options:]]


def _paths(word: str, folders: Sequence[Path]) -> Iterator[str]:
    path, colons, test = word.partition("::")
    if any(os.path.exists(folder / path) for folder in folders):
        yield word
        return
    found = [sorted(glob.glob(path, root_dir=folder, recursive=True)) for folder in folders]
    if not any(found):
        raise ConfigError(f"{path}: there is no such file or folder", hint=similar_path_hint(Path(path), folders[-1]))
    yield from (f"{one}{colons}{test}" for one in next(filter(None, found)))


def files_of_tests(command: Sequence[str]) -> list[str]:
    """Return the words of a command that seem to be files of tests."""
    files = ((word, word.partition("::")[0]) for word in command)
    return [word for word, file in files if file.endswith(".py") and not set(file) & set("={")]


def plugin_options(own: str) -> list[str]:
    """Return the options that load the module `own` as a plugin, and this package's plugin if it is not installed."""
    installed = any(point.value == "cortex_m_hil.pytest_plugin.plugin" for point in entry_points(group="pytest11"))
    names = [own] if installed else ["cortex_m_hil.pytest_plugin.plugin", own]
    return [word for name in names for word in ("-p", name)]


def pytest_command(plugin: str, tests: Sequence[str]) -> list[str]:
    """Return the command that runs pytest on tests, named as by a user, with a module as a further plugin."""
    return [sys.executable, "-m", "pytest", *plugin_options(plugin), *named_tests(tests)]


@dataclass(frozen=True)
class Suite:
    """A test suite that an installed package provides: the command that runs pytest on it, and its folder."""

    command: Sequence[str]
    folder: Path


def find_suite(name: str) -> Suite:
    """Return a suite of tests by its name.

    Args:
        name: the name of an entry point in the group `cortex_m_hil.suites`, a function that returns the suite.

    Raises:
        ConfigError: no installed package has such a suite.
        ToolchainError: the suite's tests are not installed.
    """
    for point in entry_points(group="cortex_m_hil.suites", name=name):
        suite: Suite = point.load()()
        return suite
    raise ConfigError(
        f"no suite {name!r} is installed", hint=f"pip install 'executorch-cortex-m-hil[maintainers]' brings {name}"
    )
