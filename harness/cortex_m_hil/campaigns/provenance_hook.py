"""A hook that makes Python processes import a checkout's modules from a worktree, and report the executed files.

This module imports nothing of the harness: `campaigns/provenance.py` copies it, as `hil_provenance`, into a folder on
PYTHONPATH, next to a `sitecustomize` that installs it before any of the user's modules is imported, and to an entry
point that makes it a plugin of pytest. The settings for all processes are in `settings.json` there.
"""

from __future__ import annotations

import atexit
import contextlib
import filecmp
import functools
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from importlib import machinery, util
from types import ModuleType
from typing import Any
from urllib import parse

FOLDER = os.path.dirname(os.path.realpath(__file__))
_IMPORTS = re.compile(r"^<|/importlib/|/runpy\.py$")  # files of Python's import system
WATCHED = frozenset({"exec", "import", "open", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.system"})
_LOADERS: tuple[tuple[Any, list[str]], ...] = (
    (machinery.ExtensionFileLoader, machinery.EXTENSION_SUFFIXES),
    (machinery.SourceFileLoader, machinery.SOURCE_SUFFIXES),
    (machinery.SourcelessFileLoader, machinery.BYTECODE_SUFFIXES),
)


def _settings() -> dict[str, Any]:
    try:
        with open(os.path.join(FOLDER, "settings.json"), encoding="utf-8") as file:
            found: dict[str, Any] = json.load(file)
            return found
    except FileNotFoundError:  # imported without its folder, as in tests of it
        return {}


_SETTINGS = _settings()
TREE: str = _SETTINGS.get("tree", "")
CHECKOUTS: list[str] = _SETTINGS.get("checkouts", [])
PROJECTS: list[str] = _SETTINGS.get("projects", [])
_NAME = re.compile(r"""^\s*name\s*=\s*["']?([\w.-]+)""", re.MULTILINE)


class Tests:
    """The tests' own files, which are not redirected: modules that pytest collects, and conftest.py files."""

    def __init__(self) -> None:
        self.collected: set[str] = set()
        self.named_in_tree = False

    def has(self, path: str) -> bool:
        """Tell whether a real path is one of the tests' own files."""
        return path in self.collected or (not self.named_in_tree and os.path.basename(path) == "conftest.py")


tests = Tests()


# --- places ---------------------------------------------------------------------------------------------------


def below(path: str, top: str) -> str | None:
    """Return a path relative to the folder `top`, or None where it is not below; both are real paths."""
    return os.path.relpath(path, top) if top and (path == top or path.startswith(top.rstrip("/") + "/")) else None


def repository_of(path: str) -> tuple[str, str] | None:
    """Return the top of the other checkout that a real path belongs to, and the path relative to it; or None."""
    if below(path, TREE) is not None or below(path, FOLDER) is not None:
        return None
    folder = os.path.dirname(path)
    known = [top for top in CHECKOUTS if below(path, top) is not None]
    top = max(known, key=len) if known else top_of(folder)
    rest = below(path, top) if top else None
    return None if rest is None or is_installed(folder, top) else (top, rest)


def checkout_of(path: str) -> tuple[str, str] | None:
    """Return the same as `repository_of`, but only for the same repository, by git or by the project's name."""
    found = repository_of(path)
    return found if found and (found[0] in CHECKOUTS or _is_clone(found[0])) else None


@functools.cache
def top_of(folder: str) -> str:
    """Return the top of the repository that a folder is in, or ""."""
    parent = os.path.dirname(folder)
    return folder if os.path.exists(os.path.join(folder, ".git")) else "" if parent == folder else top_of(parent)


@functools.cache
def _is_clone(top: str) -> bool:
    return not projects_in(top).isdisjoint(PROJECTS)


def projects_in(top: str) -> set[str]:
    """Return the names that pyproject.toml, setup.cfg and setup.py of a folder give its project."""
    found = set()
    for name in ("pyproject.toml", "setup.cfg", "setup.py"):
        if os.path.isfile(os.path.join(top, name)):
            with open(os.path.join(top, name), encoding="utf-8", errors="replace") as file:
                found |= set(_NAME.findall(file.read())[:1])
    return found


@functools.cache
def is_installed(folder: str, top: str) -> bool:
    """Tell whether an installer put a folder below a checkout, such as a virtual environment's packages."""
    if below(folder, top) in (None, "."):
        return False
    name = os.path.basename(folder)
    if name in ("site-packages", "dist-packages") or name.endswith(".egg"):
        return True
    try:
        names = os.listdir(folder)
    except OSError:
        names = []
    markers = "pyvenv.cfg" in names or "conda-meta" in names or any(one.endswith(".dist-info") for one in names)
    return markers or is_installed(os.path.dirname(folder), top)


# --- imports --------------------------------------------------------------------------------------------------


class Pair(machinery.FileFinder):
    """A finder of modules in a folder of the worktree; tests and missing files are taken from the checkout."""

    def __init__(self, tree: str, checkout: str) -> None:
        super().__init__(tree, *_LOADERS)
        self._checkout = machinery.FileFinder(checkout, *_LOADERS)

    def find_spec(self, name: str, target: ModuleType | None = None) -> machinery.ModuleSpec | None:
        own = self._checkout.find_spec(name, target)
        if own is not None and own.origin is not None and tests.has(os.path.realpath(own.origin)):
            return own
        return super().find_spec(name, target) or own

    def invalidate_caches(self) -> None:
        super().invalidate_caches()
        self._checkout.invalidate_caches()


def pair_of(entry: str) -> Pair:
    """Return the finder of an entry of sys.path. ImportError for an entry outside of both worktree and checkout."""
    path = os.path.realpath(entry)
    rest = below(path, TREE)
    if rest is not None:
        return Pair(entry, os.path.join(CHECKOUTS[0], rest))
    there = place_in_tree(entry + "/")
    if there is None or not os.path.isdir(path):
        raise ImportError(f"{entry} is not below a checkout")
    return Pair(there, entry)


class Mapper:
    """A finder that redirects to the worktree what others find in a checkout, as for editable installs and links."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> machinery.ModuleSpec | None:
        for finder in sys.meta_path[sys.meta_path.index(Mapper) + 1 :] if Mapper in sys.meta_path else ():
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                return mapped(spec)
        return None


def mapped(spec: machinery.ModuleSpec) -> machinery.ModuleSpec:
    locations = spec.submodule_search_locations
    if not spec.has_location or spec.origin is None:
        if isinstance(locations, list):
            locations[:] = [_in_tree(one, os.path.isdir) or one for one in locations]
        return spec
    there = None if tests.has(os.path.realpath(spec.origin)) else _in_tree(spec.origin, os.path.isfile)
    if there is None:
        return spec
    folder = None if locations is None else [os.path.dirname(there)]
    return util.spec_from_file_location(spec.name, there, submodule_search_locations=folder) or spec


def _in_tree(path: str, exists: Callable[[str], bool]) -> str | None:
    there = place_in_tree(path)
    return there if there is not None and exists(there) else None


def place_in_tree(path: str) -> str | None:
    """Return the path in the worktree that corresponds to a path of a checkout, through the same links."""
    found = checkout_of(os.path.realpath(path) + path[len(path.rstrip("/")) :])
    if found is None:
        return None
    return os.path.normpath(os.path.join(TREE, below(os.path.abspath(path), found[0]) or found[1]))


# --- what is executed -----------------------------------------------------------------------------------------


class Seen:
    """A record of the executed files, of the lines that caused their execution, and of the use of the worktree."""

    def __init__(self) -> None:
        self.used = ""
        self.executed: dict[str, str] = {}
        self._checkouts = tuple(top + "/" for top in CHECKOUTS)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note an event of the interpreter; an exception here would be raised in the watched code."""
        try:
            if event in WATCHED:
                self._note(event, arguments)
        except Exception:
            return

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "exec":
            self._execute(arguments[0].co_filename)
        elif event == "import":
            self._execute(arguments[1] or "<no extension module>")
        elif event == "open":
            if not self.used and isinstance(arguments[0], str):
                self._use(os.path.join(os.getcwd(), arguments[0]))
        else:
            self._start(event, arguments)

    def _execute(self, path: str) -> None:
        if path[:1] == "<":
            return
        path = os.path.join(os.getcwd(), path) if path[:1] != "/" else path
        if path not in self.executed:
            self.executed[path] = _line_at_work() if path.startswith(self._checkouts) else ""

    def _use(self, text: str) -> None:
        if not self.used and (text + "/").find(TREE + "/") >= 0:
            self.used = text

    def _start(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note a process whose arguments name the worktree, and make every started process load this module."""
        self._use(" ".join(_texts(arguments[:3] if event == "subprocess.Popen" else arguments[:2])))
        environment = arguments[-1] if isinstance(arguments[-1], dict) else os.environ
        paths = environment.get("PYTHONPATH", "").split(os.pathsep)
        if FOLDER not in paths:
            environment["PYTHONPATH"] = os.pathsep.join([FOLDER, *filter(None, paths)])


def _texts(values: Iterable[Any]) -> list[str]:
    flat = [one for value in values for one in (value if isinstance(value, (list, tuple)) else [value])]
    return [os.fsdecode(one) for one in flat if isinstance(one, (str, bytes, os.PathLike))]


def _line_at_work() -> str:
    """Return the file and line that caused a file to be executed, leaving out Python's import system."""
    frame = sys._getframe(4)
    while frame is not None and _IMPORTS.search(frame.f_code.co_filename):
        frame = frame.f_back  # type: ignore[assignment]
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""


seen = Seen()


# --- reports ---------------------------------------------------------------------------------------------


def tell() -> None:
    """Write the record so far to a file of this process.

    A file of another repository, which may be a clone under another name, is named only if the worktree has it too.
    """
    names = {os.path.realpath(file): name for name, file in module_files()}
    local, used = [], seen.used
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    for path, line in list(seen.executed.items()):
        real = os.path.realpath(path)
        found = checkout_of(real) or _like_the_trees(real)
        if found is not None and not (tests.has(real) or path == main or _is_package_of_tests(real, found[1])):
            local.append({"top": found[0], "path": found[1], "module": names.get(real, ""), "by": line})
        elif not used and below(real, TREE) is not None:
            used = real
    modules = {name: file for name, file in module_files() if not ("." in name or tests.has(os.path.realpath(file)))}
    report = {"used": used, "local": local, "installed": _installed(), "modules": modules}
    file = os.path.join(FOLDER, "reports", f"{os.getpid()}-{_BEGAN}.json")
    with contextlib.suppress(FileNotFoundError):  # this process has outlived the run
        with open(file + ".new", "w", encoding="utf-8") as out:
            json.dump(report, out)
        os.replace(file + ".new", file)


_BEGAN = time.time_ns()


def _like_the_trees(real: str) -> tuple[str, str] | None:
    found = repository_of(real)
    return found if found and os.path.isfile(os.path.join(TREE, found[1])) else None


def _is_package_of_tests(real: str, rest: str) -> bool:
    """Tell whether a file is an `__init__.py` of the tests' folders that the worktree has too.

    With --import-mode=importlib pytest loads it by its path.
    """
    folder, name = os.path.split(real)
    there = os.path.join(TREE, rest)
    if name != "__init__.py" or not any(below(one, folder) for one in tests.collected):
        return False
    return not os.path.exists(there) or filecmp.cmp(real, there, shallow=False)


def module_files() -> list[tuple[str, str]]:
    """Return names of modules with their files, or with folders for modules without a file."""
    found = []
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        folders = list(getattr(spec, "submodule_search_locations", None) or [])
        file = getattr(module, "__file__", None) or (folders[0] if folders else None)
        if isinstance(file, str):
            found.append((name, file))
    return found


def _installed() -> list[dict[str, Any]]:
    """Return the executed files of a copy of the project that was installed, by distribution."""
    from importlib import metadata

    wanted = [one for one in metadata.distributions() if _is_from_checkout(one.read_text("direct_url.json"))]
    wanted += [one for name in PROJECTS for one in metadata.distributions(name=name)]
    found = {}
    for one in wanted:
        names = {str(one.locate_file(file)): str(file) for file in one.files or ()}
        executed = [[path, name] for path, name in names.items() if path in seen.executed]
        if executed:
            found[one.metadata["Name"]] = {"version": one.version, "files": executed}
    return [{"name": name, **rest} for name, rest in found.items()]


def _is_from_checkout(direct_url: str | None) -> bool:
    """Tell whether a distribution's `direct_url.json` names a checkout, of which it is a copy."""
    said = json.loads(direct_url or "{}")
    kind, _, place = said.get("url", "").partition("file://")
    if kind or not place or said.get("dir_info", {}).get("editable", False):
        return False
    return checkout_of(os.path.realpath(parse.unquote(place)) + "/") is not None


# --- installation of the hook ------------------------------------------------------------------------------------


def begin() -> None:
    """Install the hook: this process imports from the worktree, and reports at its end. `sitecustomize` calls it."""
    sys.path_hooks.insert(0, pair_of)
    sys.path_importer_cache.clear()
    sys.meta_path.insert(0, Mapper)
    sys.addaudithook(seen)
    atexit.register(tell)

    _execute_users("sitecustomize")


def _execute_users(name: str) -> None:
    """Execute the user's own module of this name, which ours hides."""
    others = [one for one in sys.path if os.path.realpath(one) != FOLDER]
    spec = machinery.PathFinder.find_spec(name, others)
    if spec is not None and spec.loader is not None:
        sys.modules[name] = util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])


# --- as a plugin of pytest ------------------------------------------------------------------------------------


def pytest_load_initial_conftests(early_config: Any) -> None:
    """Note whether the command names tests in the worktree of the commit: then its conftest.py belongs to them."""
    given = early_config.known_args_namespace
    named = [os.path.realpath(str(one).partition("::")[0]) for one in given.file_or_dir]
    tests.named_in_tree = given.pyargs or any(below(one, TREE) is not None for one in named)


def pytest_pycollect_makemodule(module_path: Any) -> None:
    if below(os.path.realpath(module_path), TREE) is None:
        tests.collected.add(os.path.realpath(module_path))


def pytest_sessionfinish() -> None:
    """Report at the end of the session, too: a worker of xdist is ended right after it."""
    tell()
