"""Calls that do not fit: what is said, and that it shows how the argument is written."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable
from types import NoneType
from typing import Any, get_type_hints

import pytest
import torch

import cortex_m_hil as hil
from cortex_m_hil.errors import ConfigError, HilWarning, Mismatch
from cortex_m_hil.host.api_calls import EXAMPLES, checked_call, permitted, warn, warnings_of_users_code
from paths import IMPORT_ROOT

FUNCTIONS: tuple[Callable[..., Any], ...] = (
    hil.load_targets,
    hil.load_program,
    hil.open,
    hil.lower,
    hil.Lowering.__call__,
    hil.OpenTarget.lint,
    hil.OpenTarget.run,
    hil.OpenTarget.check,
    hil.OpenTarget.verify,
)
LINEAR = torch.nn.Linear(8, 4)
X = torch.rand(1, 8)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: str(function.__qualname__))
def test_every_class_that_an_argument_may_have_has_an_example(function: Callable[..., Any]) -> None:
    wanted = [permitted(hint) for name, hint in get_type_hints(function).items() if name != "return"]
    first = {next(one.__name__ for one in classes if one is not NoneType) for classes in wanted if classes}
    assert first <= set(EXAMPLES)
    assert hasattr(function, "__wrapped__") and inspect.getdoc(function)


def call(function: Callable[[], object]) -> str:
    with pytest.raises(ConfigError) as caught:
        function()
    return str(caught.value)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (
            lambda: hil.lower(LINEAR, X, isa=hil.Isa.DSP),  # type: ignore[arg-type]
            "hil.lower: inputs takes tuple or list, not Tensor float32[1, 8]\n"
            "  → a tuple: (x,) for one input x, (x, y) for two",
        ),
        (
            lambda: hil.lower(LINEAR, (X,), isa="MVE"),  # type: ignore[arg-type]
            "hil.lower: isa takes Isa, not 'MVE'\n"
            "  → isa=Isa.MVE, Isa.DSP or Isa.SCALAR, after: from cortex_m_hil import Isa",
        ),
        (
            lambda: hil.lower((X,), LINEAR, isa=hil.Isa.DSP),  # type: ignore[arg-type]
            "hil.lower: module and inputs are swapped\n  → hil.lower(module, inputs, …)",
        ),
        (
            lambda: hil.lower(LINEAR, (X,)),  # type: ignore[call-arg]
            "hil.lower: missing a required argument: 'isa'\n  → hil.lower(module, isa=…, …)",
        ),
        (
            lambda: hil.Tolerance(foo=2),  # type: ignore[call-arg]
            "Tolerance: got an unexpected keyword argument 'foo'\n"
            "  → known: atol, eager_sqnr, fake_quant_qtol, qtol, rtol",
        ),
        (
            lambda: hil.load_program(3),  # type: ignore[arg-type]
            'hil.load_program: source takes Path or str or bytes, not 3\n  → source="FILE", with the name of a file',
        ),
        (
            lambda: hil.open(hil.Isa),  # type: ignore[arg-type]
            'hil.open: name takes str, not Isa\n  → text: name="…"',
        ),
    ],
)
def test_a_call_that_does_not_fit(function: Callable[[], object], said: str) -> None:
    # Python 3.12 says "keyword-only", and 3.11 does not.
    assert call(function).replace("required keyword-only argument", "required argument") == said


def test_inputs_are_a_tuple_or_a_list_as_of_a_run() -> None:
    one, other = (hil.lower(LINEAR, inputs, isa=hil.Isa.DSP) for inputs in ((X,), [X]))
    assert one.pte == other.pte


# --- warnings ------------------------------------------------------------------------------------------------


@checked_call("outer")
def outer(texts: tuple[str, ...], problem: Exception | None = None) -> str:
    return inner(texts, problem)


@checked_call("inner")
def inner(texts: tuple[str, ...], problem: Exception | None) -> str:
    for text in texts:
        warn(text)
    with warnings_of_users_code():
        forward(problem is None)
    warnings.warn("of torch's", stacklevel=1)
    if problem is not None:
        raise problem
    return "done"


def forward(silent: bool) -> None:
    if not silent:
        warnings.warn("of the user's", DeprecationWarning, stacklevel=1)


def test_warnings_are_issued_at_the_users_line_when_the_call_has_ended() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert outer(("a", "b", "b")) == "done"
    assert [str(one.message) for one in seen] == ["a", "b", "b"]
    assert {(one.filename, one.category) for one in seen} == {(__file__, HilWarning)}


def test_a_verdict_goes_before_warnings_that_are_errors() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(Mismatch) as caught:
            outer(("a", "a", "b"), Mismatch("far off", details=[("cause", "a bug")]))
    line = inspect.getsourcelines(forward)[1] + 2
    assert caught.value.details == (
        ("cause", "a bug"), ("warning", "a"), ("warning", "b"), ("warning", f"of the user's (at {__file__}:{line})"),
    )  # fmt: skip


def test_what_may_be_issued_beside_a_verdict_is() -> None:
    with warnings.catch_warnings(record=True) as seen, pytest.raises(Mismatch) as caught:
        warnings.simplefilter("always")
        outer(("a",), Mismatch("far off"))
    assert [str(one.message) for one in seen] == ["a", "of the user's"] and caught.value.details == ()


def test_warnings_that_are_errors_are_raised_as_one_where_nothing_is_wrong() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(HilWarning) as caught:
            outer(("a\n  at a line", "b"))
        first, *rest, hint = str(caught.value).splitlines()
        assert re.fullmatch(r"a \(a HilWarning, which .* makes an error\)", first) and rest == ["  at a line", "b"]
        assert '"default::cortex_m_hil.HilWarning" behind "error"' in hint
        warnings.simplefilter("ignore", HilWarning)
        assert outer(("a", "b")) == "done"


def twice() -> None:
    forward(False)
    warnings.warn("of the user's too", UserWarning, stacklevel=1)


@checked_call("warns")
def warns(texts: tuple[str, ...]) -> None:
    for text in texts:
        warn(text)
    with warnings_of_users_code():
        twice()


@pytest.mark.parametrize("texts", [("a", "b"), ()])
def test_a_warning_that_is_an_error_names_those_of_the_users_code(texts: tuple[str, ...]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(HilWarning if texts else DeprecationWarning) as caught:
            warns(texts)
    said = str(caught.value)
    first, second = (inspect.getsourcelines(one)[1] + 2 for one in (forward, twice))
    assert said.splitlines()[0].startswith("a (a HilWarning" if texts else f"of the user's (at {__file__}:{first})")
    assert f"  UserWarning: of the user's too (at {__file__}:{second})" in said.splitlines()
    assert said.count("of the user's (at") == 1 and said.count("made errors too") == 1


def test_only_api_calls_py_issues_warnings() -> None:
    """A warning that is issued at once may be raised in place of a verdict."""
    files = [path for path in (IMPORT_ROOT / "cortex_m_hil").rglob("*.py") if "warnings.warn" in path.read_text()]
    assert [path.name for path in files] == ["api_calls.py"]
