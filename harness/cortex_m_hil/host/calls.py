"""Calls by users: one that does not fit the signature is a mistake of theirs, and is reported at their line.

Warnings are held back until the call has ended. A filter may make an error of one (`filterwarnings = ["error"]`), which
would be raised in place of the verdict that the call is about to give.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from functools import cache, partial, wraps
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from cortex_m_hil.errors import ConfigError, HarnessError, HilWarning, did_you_mean
from cortex_m_hil.errors.text import shown

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
"""Examples of arguments, by the name of the first class that the parameter's annotation permits."""


def checked_call(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that checks the arguments of each call against the function's signature and annotations.

    The decorated function raises ConfigError for unknown, missing and surplus arguments, and for those of a type that
    the annotation excludes. A plain TypeError might be an expected failure of the test.

    Args:
        name: what messages call the function.
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
            with WarningsLast():
                return function(*args, **kwargs)

        return checked

    return decorate


def checked_class(kind: type[R]) -> type[R]:
    """Check the arguments of a class's constructor as `checked_call` does, and return the class."""
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
    """Return the text of the arguments that have to be given, for a hint."""
    needed = [one for one in signature.parameters.values() if one.default is one.empty and one.name != "self"]
    return ", ".join([*(f"{one.name}=…" if one.kind is one.KEYWORD_ONLY else one.name for one in needed), "…"])


def permitted(hint: Any) -> tuple[type, ...]:
    """Return the classes that an annotation permits.

    Empty where it is Any or a number, or names no class: a number's range counts as well, and is checked elsewhere.
    """
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    classes = [get_origin(member) or member for member in members]
    vague = any(not isinstance(one, type) or one in (Any, int, float) for one in classes)
    return () if vague else tuple(classes)


# --- warnings ------------------------------------------------------------------------------------------------

_PACKAGE: Final = __name__.partition(".")[0]
_HARNESS: Final = str(Path(__file__).parents[1])
_MADE_ERROR: Final = "a HilWarning, which this project's filterwarnings (or -W) makes an error"
PERMIT: Final = (
    "this is no verdict on the program: mend what is warned of, or permit it with "
    '"default::cortex_m_hil.HilWarning" behind "error" in filterwarnings'
)


@dataclass(frozen=True)
class _Place:
    """A line of a user's file, as `warnings.warn_explicit` takes it."""

    file: str
    line: int
    module: str
    registry: dict[Any, Any]


@dataclass(frozen=True)
class _Held:
    """A warning to be issued later: at its place, or where that is None at the line of the user's call."""

    warning: Warning
    place: _Place | None = None


_HELD: Final[ContextVar[list[_Held] | None]] = ContextVar("_HELD", default=None)


def warn(text: str) -> None:
    """Issue a HilWarning at the line of the user's call, when that has ended. No other code of the harness warns."""
    held = _HELD.get()
    if held is None:
        _issue(HilWarning(text), _calling_line())
    else:
        held.append(_Held(HilWarning(text)))


@contextmanager
def warnings_of_users_code() -> Iterator[None]:
    """Hold back the warnings of user code within the block, such as a module's forward, until the call has ended.

    Warnings at lines of torch or ExecuTorch are dropped. Outside a user's call nothing is held back.
    """
    held = _HELD.get()
    if held is None:
        yield
        return
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield
    for one in seen:
        if is_users_file(one.filename) and isinstance(one.message, Warning):
            held.append(_Held(one.message, _Place(one.filename, one.lineno, _module_of(one.filename), {})))


class WarningsLast:
    """A context that holds back all warnings within a user's call, and issues those for the user when it has ended.

    An error of the harness goes first: the warnings that filters make errors are then lines of its details. Without one
    such a warning is raised; several HilWarnings are raised as one. Warnings of others, such as torch, are dropped.

    A class, because contextlib's frame would be in the traceback.
    """

    def __init__(self) -> None:
        self._held: list[_Held] = []
        self._token: Token[list[_Held] | None] | None = None
        self._filters = warnings.catch_warnings()

    def __enter__(self) -> None:
        if _HELD.get() is None:  # else the call is part of another one
            self._token = _HELD.set(self._held)
            self._filters.__enter__()
            warnings.simplefilter("ignore")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        __tracebackhide__ = True  # pytest shows no frame that has it
        if self._token is None:
            return
        self._filters.__exit__(None, None, None)
        _HELD.reset(self._token)
        refused = list(_refused(self._held, _calling_line()))
        if isinstance(error, HarnessError):
            error.details = (*error.details, *(("warning", text) for text in dict.fromkeys(map(_text, refused))))
        elif error is None and refused:
            raise _as_error(refused)


def _refused(held: Sequence[_Held], call: _Place) -> Iterator[_Held]:
    """Issue the warnings, and yield those that a filter makes errors."""
    for one in held:
        try:
            _issue(one.warning, one.place or call)
        except Warning:
            yield one


def _text(one: _Held) -> str:
    """Return the text of a warning, with the line where that is not the call's."""
    return f"{one.warning} (at {one.place.file}:{one.place.line})" if one.place else str(one.warning)


def _as_error(refused: Sequence[_Held]) -> Warning:
    """Return all HilWarnings as one warning, or where there are none the first of the others; it names all others.

    Their places go into the text, since no traceback has them any more.
    """
    texts = list(dict.fromkeys(str(one.warning) for one in refused if isinstance(one.warning, HilWarning)))
    theirs = [one for one in refused if not isinstance(one.warning, HilWarning)]
    others = list(dict.fromkeys(f"  {type(one.warning).__name__}: {_text(one)}" for one in theirs))
    if texts:
        headline, *rest = "\n".join(texts).split("\n")
        also = ["  made errors too:", *others] if others else []
        return HilWarning("\n".join([f"{headline} ({_MADE_ERROR})", *rest, *also, f"  → {PERMIT}"]))
    first = theirs[0]
    also = ["  made errors too:", *others[1:]] if others[1:] else []
    first.warning.args = ("\n".join([_text(first), *also]),)
    return first.warning.with_traceback(None)


def _issue(warning: Warning, place: _Place) -> None:
    warnings.warn_explicit(warning, type(warning), place.file, place.line, module=place.module, registry=place.registry)


def _calling_line() -> _Place:
    """Return the line from which the harness was called."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_globals["__name__"].partition(".")[0] == _PACKAGE:
        frame = frame.f_back
    known = frame.f_globals
    return _Place(
        frame.f_code.co_filename, frame.f_lineno, known["__name__"], known.setdefault("__warningregistry__", {})
    )


def _module_of(file: str) -> str:
    """Return the name of the imported module of a file, which filters may ask for; the file itself if none is known."""
    return next((name for name, one in list(sys.modules.items()) if getattr(one, "__file__", None) == file), file)


def is_users_file(path: str) -> bool:
    """Tell whether a file is none of torch's, ExecuTorch's, torchao's or this package's, and no made-up name."""
    return not path.startswith((*_folders_of_others(), f"{_HARNESS}/", "<"))


@cache
def _folders_of_others() -> tuple[str, ...]:
    """Return the folders of torch, ExecuTorch and torchao, without importing these."""
    specs = (importlib.util.find_spec(name) for name in ("torch", "executorch", "torchao"))
    return tuple(f"{folder}/" for spec in specs if spec for folder in spec.submodule_search_locations or ())
