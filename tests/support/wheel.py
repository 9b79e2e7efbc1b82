"""The layouts and operators that the installed executorch has: 1.4.1 and 1.5.1 are both supported, and differ.

Its files are read, not imported: a test whose program is in the cache needs no compiler.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import pytest
import torch
from packaging.version import Version

from paths import REPOSITORY

_NAMESPACE: Final = "cortex_m::"


def require(operators: Iterable[str], *, layout: str = "channels_last", argument: str = "") -> None:
    """Skip the test where executorch has no such layout, no such operator, or no such argument of an operator.

    If it has them but lowers to something else, the test must fail.
    """
    installed = f"executorch {version('executorch')}"
    if layout == "explicit" and not has_explicit_layout():
        pytest.skip(f"{installed} has no explicit layout")
    known = arguments_of_operators()
    for name in (name for name in operators if name.startswith(_NAMESPACE)):
        if name not in known:
            pytest.skip(f"{installed} has no {name}")
        if argument and argument not in known[name]:
            pytest.skip(f"{installed} has no {name} with {argument}")


def needed(module: str, name: str) -> Any:
    """Return a name of one of executorch's modules; skip the test where it has none."""
    found = getattr(importlib.import_module(module), name, None)
    if found is None:
        pytest.skip(f"executorch {version('executorch')} has no {name}")
    return found


def is_older() -> bool:
    """Tell whether executorch is an older release than the one in constraints.txt, by which these tests are written."""
    (pinned,) = re.findall(r"^executorch==(\S+)$", (REPOSITORY / "constraints.txt").read_text(), re.MULTILINE)
    return Version(version("executorch")) < Version(pinned)


@functools.cache
def has_explicit_layout() -> bool:
    files = ("quantizer/quantizer.py", "passes/cortex_m_pass_manager.py")
    return all("use_explicit_layout" in (_backend() / name).read_text() for name in files)


@functools.cache
def arguments_of_operators() -> dict[str, frozenset[str]]:
    """Return the arguments by the operator's full name, from its schema in `lib.define("name.overload(…) -> …")`."""
    found = {}
    for call in ast.walk(ast.parse((_backend() / "ops" / "operators.py").read_text())):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "define":
            schema = torch._C.parse_schema(_NAMESPACE + ast.literal_eval(call.args[0]))
            overload = f".{schema.overload_name}" if schema.overload_name else ""
            found[schema.name + overload] = frozenset(one.name for one in schema.arguments)
    return found


def _backend() -> Path:
    spec = importlib.util.find_spec("executorch.backends.cortex_m")
    assert spec is not None and spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])
