"""Calls by users: one that does not fit the signature is a mistake of theirs, and said at their line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache, partial, wraps
from types import NoneType, UnionType
from typing import Any, Final, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from cortex_m_hil.errors import ConfigError, did_you_mean
from cortex_m_hil.text import shown

P = ParamSpec("P")
R = TypeVar("R")

EXAMPLES: Final[Mapping[str, str]] = {
    "Isa": "{name}=Isa.MVE, Isa.DSP or Isa.SCALAR, after: from cortex_m_hil import Isa",
    "Iterable": "{name}=[(x,), (y,)]: a tuple like the inputs for each sample",
    "Mapping": "{name}=load_targets(), after: from cortex_m_hil import load_targets",
    "Path": '{name}="FILE", with the name of a file',
    "Program": 'a program: hil.lower(module, inputs), or cortex_m_hil.load_program("FILE.pte")',
    "Sequence": "a list, such as {name}=[…]",
    "Tolerance": "Tolerance(qtol=1), after: from cortex_m_hil import Tolerance",
    "bool": "{name}=True or {name}=False",
    "str": 'text: {name}="…"',
    "tuple": "a tuple: (x,) for one input x, (x, y) for two",
}
"""How an argument of a class is written, by the name of the first class that its annotation permits."""


def checked_call(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """ConfigError for unknown, missing and surplus arguments, and for those of a type that the annotation excludes.

    A plain TypeError might be an expected failure of the test.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        hints = cache(partial(get_type_hints, function))  # late, for a class is not known before its end

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            __tracebackhide__ = True
            bound = _bound(name, function, args, kwargs)
            for parameter, value in bound.items():
                wanted = permitted(hints().get(parameter, Any))
                if wanted and not isinstance(value, wanted):
                    if parameter == "inputs" and isinstance(bound.get("module"), (tuple, list)):
                        raise ConfigError(f"{name}: module and inputs are swapped", hint=f"{name}(module, inputs, …)")
                    names = [one.__name__ for one in wanted if one is not NoneType]
                    problem = f"{name}: {parameter} takes {' or '.join(names)}, not {shown(value)}"
                    raise ConfigError(problem, hint=EXAMPLES[names[0]].format(name=parameter))
            return function(*args, **kwargs)

        return checked

    return decorate


def checked_class(kind: type[R]) -> type[R]:
    """A class whose constructor is such a call."""
    kind.__init__ = checked_call(kind.__name__)(kind.__init__)  # type: ignore[method-assign]
    return kind


def _bound(name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> dict[str, Any]:
    __tracebackhide__ = True
    signature = inspect.signature(function)
    try:
        return signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        known = [one for one in signature.parameters if one != "self"]
        unknown = next((one for one in kwargs if one not in known), None)
        hint = did_you_mean(unknown, known) if unknown is not None else f"{name}({_usage(signature)})"
        raise ConfigError(f"{name}: {error}", hint=hint) from None


def _usage(signature: inspect.Signature) -> str:
    """The arguments that have to be given."""
    needed = [one for one in signature.parameters.values() if one.default is one.empty and one.name != "self"]
    return ", ".join([*(f"{one.name}=…" if one.kind is one.KEYWORD_ONLY else one.name for one in needed), "…"])


def permitted(hint: Any) -> tuple[type, ...]:
    """The classes that an annotation permits; none where it says nothing, or a number, whose range counts as well."""
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    classes = [get_origin(member) or member for member in members]
    vague = any(not isinstance(one, type) or one in (Any, int, float) for one in classes)
    return () if vague else tuple(classes)
