"""The methods of a `.pte`: those that compute are run by name, those that return constants are read on the host.

`constant_methods=` of ExecuTorch's `to_edge`, and its passes for quantised inputs and outputs, make constant methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cortex_m_hil.errors import ConfigError, did_you_mean
from cortex_m_hil.errors.text import counted
from cortex_m_hil.program.pte_file import Constant, Plain, PteFile
from cortex_m_hil.program.schema import ValueKind
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.program.values import Value

DEFAULT_METHOD: Final = "forward"
_SHOWN: Final = 8


def constant_value(file: PteFile, *, is_list: bool) -> Constant | None:
    """Return the value of a constant method; None for a method that computes.

    A constant method has neither inputs nor instructions, and the file holds all that it returns. `forward` is never
    treated as a constant method.

    Args:
        file: the method.
        is_list: whether the method returns a list, tuple or dict, of any number of items.
    """
    if file.inputs or file.instructions or file.method == DEFAULT_METHOD:
        return None
    found: list[Plain] = []
    for index in file.outputs:
        value = _plain(file, file.values[index])
        if value is None:
            return None
        found.append(value)
    return found[0] if len(found) == 1 and not is_list else tuple(found)


def _plain(file: PteFile, value: Value) -> Plain | None:
    if value.kind is not ValueKind.TENSOR:
        return value.scalar
    if value.planned is not None or value.spec is None:
        return None
    return file.constant(value.index) if value.spec.nbytes else HostTensor(value.spec, b"")


def choose_method(methods: Sequence[PteFile], source: str, name: str) -> PteFile:
    """Return the method of that name; for "" `forward`, or the only method.

    Args:
        methods: all methods that compute; at least one.
        source: the file's name, for messages.
        name: the method's name, or "".

    Raises:
        ConfigError: there is no such method, or there are several and `name` is "".
    """
    known = {file.method: file for file in methods}
    wanted = name or (methods[0].method if len(methods) == 1 else DEFAULT_METHOD)
    if wanted in known:
        return known[wanted]
    what = f"{source or 'program'}: the program has {counted(len(known), 'method')}: {listed([*known])}"
    if not name:
        raise ConfigError(
            what, hint=f"name the one that is meant: method={methods[0].method!r}, --method on a command line"
        )
    if name in methods[0].constants:
        raise ConfigError(f"{what}; {name} is a constant", hint="constants are not run: hil.load_program(…).constants")
    raise ConfigError(f"{what}, and not {name!r}", hint=did_you_mean(name, known))


def listed(names: Sequence[str]) -> str:
    """Return the names of methods for a message; of many only the first few."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {counted(more, 'more method')}" if more > 0 else "")
