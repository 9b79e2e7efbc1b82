"""Calls of the public API: arguments that do not fit the signature are reported at the caller's line.

Warnings are deferred until the call has ended. A filter may turn a warning into an error (`filterwarnings =
["error"]`), which would be raised in place of the call's verdict.
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
"""Example arguments for hints, by the name of the first class in the parameter's annotation."""


def checked_call(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that checks the arguments of each call against the function's signature and annotations.

    The decorated function raises ConfigError for unknown, missing and surplus arguments, and for arguments of a type
    that the annotation excludes. A plain TypeError could be taken for an expected failure of the test.

    Args:
        name: the name of the function in messages.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        # Evaluated on the first call, since an annotation may name the class that is being defined.
        hints = cache(partial(get_type_hints, function))

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
            with DeferredWarnings():
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
    """Return the required arguments as text, for a hint."""
    needed = [one for one in signature.parameters.values() if one.default is one.empty and one.name != "self"]
    return ", ".join([*(f"{one.name}=…" if one.kind is one.KEYWORD_ONLY else one.name for one in needed), "…"])


def permitted(hint: Any) -> tuple[type, ...]:
    """Return the classes that an annotation permits.

    The result is empty for Any and annotations without a class, and for numbers, which are checked elsewhere with their
    range.
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
class _SourceLine:
    """A line of a user's file, in the form that `warnings.warn_explicit` takes."""

    file: str
    line: int
    module: str
    registry: dict[Any, Any]


@dataclass(frozen=True)
class _DeferredWarning:
    """A warning to be issued later, at `line`; None: at the line of the user's call."""

    warning: Warning
    place: _SourceLine | None = None


_DEFERRED: Final[ContextVar[list[_DeferredWarning] | None]] = ContextVar("_DEFERRED", default=None)


def warn(text: str) -> None:
    """Issue a HilWarning at the line of the user's call, after the call has ended.

    All harness warnings use this function.
    """
    deferred = _DEFERRED.get()
    if deferred is None:
        _issue(HilWarning(text), _calling_line())
    else:
        deferred.append(_DeferredWarning(HilWarning(text)))


@contextmanager
def warnings_of_users_code() -> Iterator[None]:
    """Hold back the warnings of user code within the block, such as a module's forward, until the call has ended.

    Warnings at lines of torch or ExecuTorch are dropped. Outside a user's call nothing is deferred.
    """
    deferred = _DEFERRED.get()
    if deferred is None:
        yield
        return
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield
    for one in seen:
        if is_users_file(one.filename) and isinstance(one.message, Warning):
            deferred.append(
                _DeferredWarning(one.message, _SourceLine(one.filename, one.lineno, _module_of(one.filename), {}))
            )


class DeferredWarnings:
    """A context manager for a user's call, which issues the warnings that concern the user when the call has ended.

    If the call raises an error of the harness, warnings that a filter turns into errors become lines of its details.
    Otherwise such a warning is raised, with several HilWarnings as one. Warnings of other packages, such as torch, are
    dropped.

    It is a class because contextlib would add a frame to the traceback.
    """

    def __init__(self) -> None:
        self._deferred: list[_DeferredWarning] = []
        self._token: Token[list[_DeferredWarning] | None] | None = None
        self._filters = warnings.catch_warnings()

    def __enter__(self) -> None:
        if _DEFERRED.get() is None:  # otherwise this call is made within another one
            self._token = _DEFERRED.set(self._deferred)
            self._filters.__enter__()
            warnings.simplefilter("ignore")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        __tracebackhide__ = True  # pytest hides frames that have this variable
        if self._token is None:
            return
        self._filters.__exit__(None, None, None)
        _DEFERRED.reset(self._token)
        errors = list(_issue_all(self._deferred, _calling_line()))
        if isinstance(error, HarnessError):
            error.details = (*error.details, *(("warning", text) for text in dict.fromkeys(map(_text, errors))))
        elif error is None and errors:
            raise _as_error(errors)


def _issue_all(deferred: Sequence[_DeferredWarning], call: _SourceLine) -> Iterator[_DeferredWarning]:
    """Issue the warnings, and yield those that a filter turns into errors."""
    for one in deferred:
        try:
            _issue(one.warning, one.place or call)
        except Warning:
            yield one


def _text(one: _DeferredWarning) -> str:
    """Return the text of a warning, with its line if that is not the line of the call."""
    return f"{one.warning} (at {one.place.file}:{one.place.line})" if one.place else str(one.warning)


def _as_error(refused: Sequence[_DeferredWarning]) -> Warning:
    """Return one warning for several: the HilWarnings as one, or else the first warning, with the others in its text.

    Their source lines are in the text, since no traceback shows them any more.
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


def _issue(warning: Warning, place: _SourceLine) -> None:
    warnings.warn_explicit(warning, type(warning), place.file, place.line, module=place.module, registry=place.registry)


def _calling_line() -> _SourceLine:
    """Return the line from which the harness was called."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_globals["__name__"].partition(".")[0] == _PACKAGE:
        frame = frame.f_back
    known = frame.f_globals
    return _SourceLine(
        frame.f_code.co_filename, frame.f_lineno, known["__name__"], known.setdefault("__warningregistry__", {})
    )


def _module_of(file: str) -> str:
    """Return the name of the module imported from a file, for warning filters; the file itself if there is none."""
    return next((name for name, one in list(sys.modules.items()) if getattr(one, "__file__", None) == file), file)


def is_users_file(path: str) -> bool:
    """Tell whether a file belongs to the user: not to torch, ExecuTorch, torchao or this package, nor `<string>`."""
    return not path.startswith((*_folders_of_others(), f"{_HARNESS}/", "<"))


@cache
def _folders_of_others() -> tuple[str, ...]:
    """Return the folders of torch, ExecuTorch and torchao, without importing these."""
    specs = (importlib.util.find_spec(name) for name in ("torch", "executorch", "torchao"))
    return tuple(f"{folder}/" for spec in specs if spec for folder in spec.submodule_search_locations or ())
