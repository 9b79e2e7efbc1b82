"""The names of options, some of which other plugins and users' conftest.py files may have as well.

Every option has a name that begins with `--hil-`, which is registered at once. Some options also have a short name,
such as `--target`. It is registered after the options of all plugins and initial conftest.py files, and only if none of
these has the same name.
"""

from __future__ import annotations

import argparse
import copy
import inspect
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

SHORT: Final[Mapping[str, str]] = {
    f"--{name}": f"--hil-{name}"
    for name in (
        *("target", "targets-file", "runtime", "require-fvp"),
        *("dut-scope", "timeout-multiplier", "redzones", "keep-programs"),
    )
}
"""The `--hil-` names by the short names that stand for them."""
TAKEN: Final[pytest.StashKey[dict[str, str]]] = pytest.StashKey()  # short names that others registered, with the owners


def destination(name: str) -> str:
    """Return the attribute in which pytest keeps the value of an option, given its `--hil-` name."""
    return name.removeprefix("--").replace("-", "_")


def spelled(config: pytest.Config, name: str) -> str:
    """Return the name of an option for users of this run: the short name, unless another plugin has taken it.

    Args:
        config: pytest's configuration.
        name: the option's `--hil-` name.
    """
    short = next((one for one, always in SHORT.items() if always == name), name)
    return name if short in config.stash.get(TAKEN, {}) else short


def as_called(config: pytest.Config, word: str) -> str:
    """Return a word of a command with the option's short name, if the user wrote the short name and it is ours.

    Args:
        config: pytest's configuration.
        word: an option's `--hil-` name with its value; any other word is returned unchanged.
    """
    name, equals, value = word.partition("=")
    short = spelled(config, name)
    words = [*config.getini("addopts"), *shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))]
    words += map(str, config.invocation_params.args)
    return short + equals + value if any(one.partition("=")[0] == short for one in words) else word


def others(config: pytest.Config) -> Iterator[str]:
    """Yield a line for each short name that belongs to another plugin or a conftest.py."""
    for name, owner in config.stash.get(TAKEN, {}).items():
        yield f"{name} is that of {owner}; that of this package is {SHORT[name]}"


def understood(early_config: pytest.Config, parser: pytest.Parser, args: Sequence[str]) -> None:
    """Parse the short names early: pytest must not take their values for files when it looks for conftest.py files."""
    config, names = early_config, [name for name in SHORT if _is_free(parser, name)]
    words = [*args[: args.index("--")]] if "--" in args else [*args]
    for number, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in names:
            words[number] = SHORT[name] + equals + value
    try:
        known = parser.parse_known_args([*words, *args[len(words) :]], namespace=copy.copy(config.option))
    except pytest.UsageError:  # reported later, when all options are parsed
        return
    config.known_args_namespace.file_or_dir[:] = known.file_or_dir
    for name in SHORT.values():
        setattr(config.known_args_namespace, destination(name), getattr(known, destination(name)))


def register_short(
    config: pytest.Config, parser: pytest.Parser, group: Any, attributes: Mapping[str, Mapping[str, Any]]
) -> None:
    """Register the short names that are free, and note the owners of the others.

    Args:
        config: pytest's configuration.
        parser: pytest's parser, which knows the options that are registered.
        group: the option group to add them to.
        attributes: argparse attributes of each option, by its `--hil-` name.
    """
    free = [name for name in SHORT if _is_free(parser, name)]
    config.stash[TAKEN] = {name: _owner(config, name) for name in SHORT if name not in free}
    for name in free:
        always = SHORT[name]
        given = {**attributes[always], "dest": destination(always), "help": f"short for {always}"}
        group.addoption(name, **given)


def _is_free(parser: pytest.Parser, name: str) -> bool:
    """Return whether no plugin has registered the name.

    The name is tried by parsing, since pytest may notice a clash only when it parses the next time.
    """
    try:
        return bool(parser.parse_known_and_unknown_args([f"{name}=x"])[1])
    except pytest.UsageError:  # raised by an option of another plugin, which takes no such value
        return False


def are_conftests_loading(config: pytest.Config) -> bool:
    """Tell whether this plugin is loaded by a conftest.py.

    Hooks that pytest calls before it reads conftest.py files are not called for such a plugin.
    """
    files = (getattr(plugin, "__file__", None) or "" for plugin in config.pluginmanager.get_plugins())
    return any(Path(file).name == "conftest.py" for file in files)


def too_late(report: pytest.CollectReport, config: pytest.Config) -> str:
    """Return the error text for a conftest.py that registers a short name after this package; "" for any other failure.

    Such a conftest.py is below the folders that pytest was called with, and is imported when these are collected.
    """
    excinfo = report.call.excinfo if report.failed and report.call else None
    if excinfo is None or not isinstance(excinfo.value, argparse.ArgumentError):
        return ""
    name = str(excinfo.value).rpartition(": ")[2]
    entry = next((one for one in excinfo.traceback if Path(one.path).name == "conftest.py"), None)
    if name not in SHORT or entry is None:
        return ""
    file = os.path.relpath(entry.path, config.invocation_params.dir)
    return (
        f"{file}:{entry.lineno + 1} registers {name}, which {__package__} has registered already ({SHORT[name]} is the "
        "same). pytest knows in time of options of the root folder's conftest.py, and of the folders that it is called "
        f"with: move pytest_addoption there, or pytest {os.path.dirname(file)}"
    )


def _owner(config: pytest.Config, name: str) -> str:
    """Return who registered an option: file and line where its name is found, with the plugin's name."""
    for plugin in config.pluginmanager.get_plugins():
        with suppress(OSError, TypeError):
            hook = getattr(plugin, "pytest_addoption", None)
            lines, first = inspect.getsourcelines(hook)  # type: ignore[arg-type]
            found = next((at for at, line in enumerate(lines) if re.search(f"[\"']{name}[\"']", line)), None)
            if found is not None:
                file = inspect.getsourcefile(hook) or ""  # type: ignore[arg-type]
                return _place(config, plugin, file, first + found)
    return "another plugin"


def _place(config: pytest.Config, plugin: object, file: str, line: int) -> str:
    if Path(file).name == "conftest.py":
        return f"{os.path.relpath(file, config.invocation_params.dir)}:{line}"
    return f"the plugin {config.pluginmanager.get_name(plugin)} ({file}:{line})"
