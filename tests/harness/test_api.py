"""The public API: its names against its page, what importing it costs, and a script as a user writes it."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.main import get_command

import cortex_m_hil as hil
from cortex_m_hil import errors
from cortex_m_hil.api import Lowering
from cortex_m_hil.cli.__main__ import load_commands
from paths import REPOSITORY

PAGE = (REPOSITORY / "docs" / "api.md").read_text()
DEADLINE = 300.0  # seconds


@pytest.fixture(scope="module")
def native() -> Iterator[hil.OpenTarget]:
    with hil.open("native") as target:
        yield target


def linear() -> tuple[torch.nn.Module, tuple[torch.Tensor]]:
    torch.manual_seed(0)
    return torch.nn.Linear(8, 4), (torch.rand(2, 8),)


# --- names ----------------------------------------------------------------------------------------------------


def test_every_public_name_is_there_and_on_the_page() -> None:
    assert all(hasattr(hil, name) for name in hil.__all__)
    assert set(hil.__all__) <= set(dir(hil))
    named = set(re.findall(r"`(\w+)[`(]", PAGE))
    assert set(hil.__all__) - named == set()


def test_every_error_is_on_the_page_in_its_branch() -> None:
    def branch(root: type[errors.HarnessError]) -> set[str]:
        return {one.__name__ for one in vars(errors).values() if inspect.isclass(one) and issubclass(one, root)}

    for root in (hil.VerdictError, hil.InfraError):
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{root.__name__}` |"))
        assert set(re.findall(r"`(\w+)`", row)) == branch(root)


def parameters(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters)


def test_every_way_in_takes_method_io_and_quantize_inputs_alike() -> None:
    """In Python what takes a program, or a module; on the command line what takes files of inputs, or a module."""
    functions = [one for name, one in vars(hil.OpenTarget).items() if callable(one) and not name.startswith("_")]
    functions += [hil.lower, vars(Lowering)["__call__"]]
    for one in functions:
        has = parameters(one)
        if has & {"program", "source"}:
            assert "method" in has, one
            assert ("quantize_inputs" in has) == bool(has & {"inputs", "frames"}), one
        assert ("io" in has) == ("module" in has), one
    for name, command in commands(get_command(load_commands())):
        options = {option for one in command.params for option in one.opts}
        assert ("--quantize-inputs" in options) == bool(options & {"--input", "--data"}), name
        takes = {one.name for one in command.params if one.param_type_name == "argument"}
        if name != "size":  # it shows all methods
            assert ("--method" in options) >= bool(takes & PROGRAMS), name
        assert ("--io" in options) == bool(takes & MODELS), name


MODELS = {"model", "models"}
PROGRAMS = {"pte", "ptes", *MODELS}


def test_localize_takes_a_method(native: hil.OpenTarget) -> None:
    program = hil.load_program(REPOSITORY / "tests" / "fuzz_seeds" / "methods.pte")
    with pytest.raises(errors.ConfigError, match="method encode has no references"):
        native.localize(program, method="encode")
    with pytest.raises(errors.ConfigError, match=r"3 methods: .*and not 'enc'"):
        native.localize(program, method="enc")


def commands(group: Any) -> Iterator[tuple[str, Any]]:
    for name, one in group.commands.items():
        yield from commands(one) if hasattr(one, "commands") else [(name, one)]


def signatures(page: str, name: str) -> list[str]:
    """What a page says of a function's parameters, without the ones that are left out by an ellipsis."""
    found = re.findall(rf"`(?:hil\.)?{name}\(([^`]*)\)`", page.replace("\n", " "))
    return [one for one in found if "…" not in one]


@pytest.mark.parametrize(
    ("page", "name", "function"),
    [
        ("api", "load_targets", hil.load_targets),
        ("api", "open", hil.open),
        ("api", "lower", hil.lower),
        ("api", "load_program", hil.load_program),
        ("api", "lower", hil.Lowering.__call__),
        ("api", "lint", hil.OpenTarget.lint),
        ("api", "run", hil.OpenTarget.run),
        ("api", "verify", hil.OpenTarget.verify),
        ("api", "check_program", hil.OpenTarget.check_program),
        ("api", "budget", hil.OpenTarget.budget),
        ("api", "hil_cases", hil.hil_cases),
        ("your-program", "check_program", hil.OpenTarget.check_program),
        ("writing-tests", "check", hil.OpenTarget.check),
        *(
            ("own-firmware", rf"app\.{name}", vars(hil.App)[name])
            for name in ("send", "read", "compare", "record", "attach")
        ),
    ],
)
def test_pages_have_the_parameters_of_functions(page: str, name: str, function: Any) -> None:
    """With their defaults."""
    given = inspect.signature(function)
    parameters = [
        one.replace(annotation=inspect.Parameter.empty) for one in given.parameters.values() if one.name != "self"
    ]
    text = str(inspect.Signature(parameters)).replace("'", '"')
    text = re.sub(r"=Tolerance\(.*?\)", "=Tolerance()", text).replace("atol=0.001, rtol=0.001", "atol=1e-3, rtol=1e-3")
    assert text[1:-1] in signatures((REPOSITORY / "docs" / f"{page}.md").read_text(), name)


def test_public_functions_say_what_they_take_give_and_raise() -> None:
    methods = hil.OpenTarget.run, hil.OpenTarget.check, hil.OpenTarget.check_program, hil.OpenTarget.budget
    for function in (hil.load_targets, hil.load_program, hil.open, hil.lower, *methods):
        text = inspect.getdoc(function) or ""
        assert "Raises:" in text, function
        for name in set(inspect.signature(function).parameters) - {"self", "source"}:
            assert re.search(rf"^ +(\w+, )*{name}(, \w+)*: ", text, re.MULTILINE), (function, name)


def test_importing_the_package_is_cheap() -> None:
    script = (
        "import sys, cortex_m_hil\n"
        "assert not {'numpy', 'pydantic', 'torch'} & set(sys.modules)\n"
        "assert cortex_m_hil.load_targets()['m4-qemu'].isa is cortex_m_hil.Isa.DSP\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=DEADLINE)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'chekc'"):
        hil.chekc  # type: ignore[attr-defined]  # noqa: B018


# --- use ------------------------------------------------------------------------------------------------------


def test_the_script_on_the_page_runs(preloaded: str, tmp_path: Path) -> None:
    script = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert script is not None
    (tmp_path / "on_the_page.py").write_text(script.group(1))
    done = subprocess.run(
        [preloaded, "-m", "on_the_page"],
        cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "0 quanta from the dialect, 0 quanta from fake-quant" in done.stdout


def test_a_program_goes_to_a_file_and_comes_back(native: hil.OpenTarget, tmp_path: Path) -> None:
    module, inputs = linear()
    program = hil.lower(module, inputs, isa=native.isa)
    (tmp_path / "linear.pte").write_bytes(program.pte)
    again = hil.load_program(tmp_path / "linear.pte")
    assert native.lint(again) == ()
    outputs = [
        native.run(program).outputs,
        native.run(program, inputs).outputs,
        native.run(again, [inputs[0].numpy()]).outputs,
    ]
    assert outputs[0] == outputs[1] == outputs[2]
    assert native.verify(program).comparison.ok


def test_arrays_are_laid_out_and_tensors_are_sent_as_they_lie(native: hil.OpenTarget) -> None:
    image = torch.rand(1, 2, 6, 6)
    program = native.lower(torch.nn.Conv2d(2, 3, 3), (image,))
    expected = native.run(program).outputs
    assert native.run(program, (image.numpy(),)).outputs == expected
    assert native.run(program, (image.to(memory_format=torch.channels_last),)).outputs == expected
    with pytest.raises(errors.ConfigError, match="channels_last"):
        native.run(program, (image,))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (torch.rand(1, 8), "inputs takes tuple or list, not Tensor float32"),  # its rows would be taken for the inputs
        (np.zeros((1, 8), np.float32), "inputs takes tuple or list, not ndarray float32"),
        (("a",), "input 0: 'a' is no tensor"),
        ((None,), "input 0: None is no tensor"),
        ((2**70,), "does not fit an Int, which has 64 bits"),
        ((np.zeros((2, 9), np.float32),), r"takes float32\[2, 8\], not float32\[2, 9\]"),
    ],
)
def test_invalid_inputs_raise_config_error(native: hil.OpenTarget, inputs: Any, message: str) -> None:
    program = native.lower(*linear())
    with pytest.raises(errors.ConfigError, match=message):
        native.run(program, inputs)


def test_verdicts_are_raised_with_the_name_that_was_asked_for() -> None:
    module, inputs = linear()
    with hil.open("m4-fvp") as target, pytest.raises(hil.VerdictError) as caught:
        target.check(module, inputs, isa=hil.Isa.MVE)
    assert isinstance(caught.value, errors.LintError) and caught.value.target.startswith("m4-fvp")
    assert not [one for one in caught.traceback if Path(one.path).parent.name in ("flow", "checks", "session")]


@pytest.mark.slow
def test_warnings_have_the_callers_place(native: hil.OpenTarget) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        native.check(torch.nn.ReLU(), (torch.zeros(1, 8),))
        native.verify(native.lower(torch.nn.ReLU(), (torch.zeros(1, 8),)))
    mine = [one for one in seen if issubclass(one.category, hil.HilWarning)]
    assert [one.filename for one in mine] == [__file__, __file__] and "uninformative" in str(mine[0].message)


class Flat(torch.nn.Module):
    """An output that proves nothing, one that is far from the float module at this bound, and a warning of its own."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        return x - x, torch.tanh(x)


@pytest.mark.filterwarnings("error")
def test_a_verdict_is_told_whatever_filters_make_of_warnings(native: hil.OpenTarget) -> None:
    inputs = (torch.linspace(-1, 1, 8).reshape(1, 8),)
    with pytest.raises(errors.Mismatch) as caught:
        native.check(Flat(), inputs, eager_sqnr=1000)
    told = [text for label, text in caught.value.details if label == "warning"]
    line = inspect.getsourcelines(Flat.forward)[1] + 1
    assert told[0] == f"old (at {__file__}:{line})" and told[1].startswith("native: output 0: uninformative: ")
    with pytest.raises(hil.HilWarning, match=r"proves nothing \(a HilWarning, which"):
        native.check(Flat(), inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hil.HilWarning)
        with pytest.raises(DeprecationWarning, match=rf"^old \(at .*:{line}\)$"):
            native.check(Flat(), inputs)


class Added(torch.nn.Module):
    """All MACs are on Cortex-M kernels, and two of three operators are in float."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, x: Any) -> Any:
        return torch.nn.functional.relu6(self.conv(x)) + 3.0


class AddedInInt8(Added):
    """The same, as the hint says."""

    def __init__(self) -> None:
        super().__init__()
        self.activation = torch.nn.ReLU6()
        self.register_buffer("three", torch.full((1, 8, 1, 1), 3.0))

    def forward(self, x: Any) -> Any:
        return self.activation(self.conv(x)) + self.three


ADDED_LINE = inspect.getsourcelines(Added.forward)[1] + 1


@pytest.mark.slow
def test_operators_that_are_left_in_float_are_told_once(native: hil.OpenTarget) -> None:
    torch.manual_seed(0)
    module, image = Added(), (torch.rand(1, 3, 16, 16),)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        native.check(module, image, known=[42])
        native.check(AddedInInt8(), image, min_cortex_m=1)
    (told,) = hil_warnings(seen)
    headline, relu, add, hint = told.split("\n  ")
    shares = "native: Added: 100 % of the multiply-accumulates and 1 of 3 operators are on Cortex-M kernels"
    assert headline == f"{shares}; 2 are left in float: 16384 bytes are planned, about 10240 in int8"
    assert relu.startswith(f"{__file__}:{ADDED_LINE}: aten::hardtanh.out (the quantiser has no pattern for aten.relu6.")
    assert add.startswith(f"{__file__}:{ADDED_LINE}: aten::add.out (the quantiser refuses aten.add.Tensor of ")
    assert "of [1, 8, 16, 16] and 3.0: CortexMAddMulCheck: " in add and "unsupported broadcasting" in add
    assert "torch.nn.ReLU6 for F.relu6" in hint and "torch.full((1, C, 1, 1), 3.0)" in hint
    with pytest.raises(errors.LoweringError, match=r"100 % of the multiply-accumulates and 1 of 3 operators") as caught:
        native.check(module, image, min_cortex_m=1, known=[42])
    assert [one for _, one in caught.value.details] == [relu, add]


class PartlyFloat(torch.nn.Module):
    """ExecuTorch leaves convolutions in one dimension out of the quantisation."""

    def __init__(self) -> None:
        super().__init__()
        self.filter, self.head = torch.nn.Conv1d(4, 8, 3, padding=1), torch.nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return self.head(self.filter(x).transpose(1, 2))


def partly_float() -> PartlyFloat:
    """The same each time, so that it is lowered once."""
    torch.manual_seed(0)
    return PartlyFloat()


FILTER_LINE = inspect.getsourcelines(PartlyFloat.forward)[1] + 1
SIGNAL = (torch.linspace(-1, 1, 64).sin().reshape(1, 4, 16),)
LEFT_OUT = (
    f"filter, {__file__}:{FILTER_LINE}: aten::convolution.out, 1536 MACs (the quantiser has no pattern for aten.conv1d"
)


def hil_warnings(seen: list[warnings.WarningMessage]) -> list[str]:
    return [str(one.message) for one in seen if issubclass(one.category, hil.HilWarning)]


@pytest.mark.slow
def test_a_layer_that_is_left_in_float_is_told(native: hil.OpenTarget) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert native.check(partly_float(), SIGNAL).ok
        assert native.check(partly_float(), SIGNAL, min_cortex_m=0.4).ok  # it was asked for no more
        assert native.check(torch.nn.Conv1d(4, 8, 3), SIGNAL, quantize=False).ok  # and here for none
        assert native.check(partly_float(), SIGNAL, layout="explicit", min_cortex_m=1).ok
        assert native.check(*linear()).ok
    (told,) = hil_warnings(seen)
    shares = "native: PartlyFloat: 40 % of the multiply-accumulates and 2 of 3 operators are on Cortex-M kernels"
    assert told.startswith(f"{shares}; 1 is left in float: ") and LEFT_OUT in told and 'layout="explicit"' in told


def of_another_class() -> hil.Program:
    torch.manual_seed(0)
    layers = torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)
    return hil.lower(torch.nn.Sequential(*layers), (torch.randn(1, 16),), isa=hil.Isa.MVE)


def test_the_layout_of_another_class_is_the_cause(native: hil.OpenTarget) -> None:
    """And not the target, whatever the findings are: here the outputs are no constant."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    with pytest.raises(errors.Mismatch) as caught:
        native.check(module, (torch.randn(1, 16),), isa=hil.Isa.MVE, lint=False)
    assert "collapse" not in caught.value.message
    told = dict(caught.value.details)
    assert re.match("the layout: operator 1, .*: MVE layout on a SCALAR target$", told["cause"]), told
    assert "lower it with isa=Isa.SCALAR" in told["lint"] and "lower the module" in caught.value.hint
    program = of_another_class()
    with pytest.raises(errors.Mismatch) as caught:
        native.stream(program, [program.inputs], lint=False)
    assert dict(caught.value.details)["lint"] == told["lint"]


@pytest.mark.slow
def test_what_lint_would_have_refused_is_told_of_a_run_that_goes_well(native: hil.OpenTarget) -> None:
    """Of one that fails its verdict tells it."""
    told = r"operator 1, .*: MVE layout on a SCALAR target; .*; lint was off \(lint=False\)"
    program = of_another_class()
    with pytest.warns(errors.HilWarning, match=told):
        native.run(program, lint=False)
    loaded = hil.load_program(program.pte)
    with pytest.warns(errors.HilWarning, match=told.replace("1, .*", "1")):
        native.stream(loaded, [program.inputs], lint=False)
    torch.manual_seed(0)
    with pytest.warns(errors.HilWarning, match=told):
        native.check(torch.nn.Linear(16, 4, bias=False), (torch.randn(1, 16),), isa=hil.Isa.MVE, lint=False)
    fitting = hil.lower(*linear(), isa=hil.Isa.SCALAR)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        native.run(fitting, lint=False)


class Quotient(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x / y


@pytest.mark.first_only
@pytest.mark.parametrize("given", [0.0, float("nan")])
def test_a_nan_that_is_quantised_is_no_targets_fault(native: hil.OpenTarget, given: float) -> None:
    """Of an input, or made by the module: broadcast, the division stays in float, and 0/0 has no integer."""
    torch.manual_seed(0)
    x, y = torch.randn(2, 3, 4), torch.tensor([[[1.0], [0.0], [2.0]]])
    calibration = [(torch.randn(2, 3, 4) + 1.3, torch.tensor([[[1.0], [0.5], [2.0]]]))]
    x[0, 1, 1] = given
    told = r"cortex_m::quantize_per_tensor is given a NaN in 1 of 24 elements, the first at \[0, 1, 1\]"
    with pytest.raises(errors.ConfigError, match=told):
        native.check(Quotient(), (x, y), calibration=calibration)


def test_a_share_of_cortex_m_kernels_that_is_not_reached_is_a_verdict(
    native: hil.OpenTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native.dut, "keep", tmp_path)
    with pytest.raises(errors.LoweringError) as caught:
        native.check(partly_float(), SIGNAL, min_cortex_m=0.99)
    text = str(caught.value)
    shares = "PartlyFloat: 40 % of the multiply-accumulates and 2 of 3 operators are on Cortex-M kernels"
    assert f"{shares}, at least 99 % of each was asked for" in text
    assert f"elsewhere: {LEFT_OUT}" in text and 'layout="explicit"' in caught.value.hint
    assert len(list(tmp_path.glob("*.pte"))) == 1  # for hil inspect partition, as the hint says
    with pytest.raises(errors.LoweringError, match=r"^Linear: 0 % of the multi") as caught:
        native.check(*linear(), quantize=False, min_cortex_m=0.01)
    assert "quantize=False" in caught.value.hint and "explicit" not in caught.value.hint
    with pytest.raises(errors.LoweringError) as caught:
        native.check(torch.nn.GRU(4, 8), (torch.randn(1, 1, 4),), layout="explicit", min_cortex_m=0.99)
    assert "try layout" not in caught.value.hint
    assert native.check(*linear(), min_cortex_m=1).ok


@pytest.mark.parametrize("minimum", [1.01, -0.01, float("nan"), float("inf"), "0.5", True])
def test_what_is_no_share_is_a_config_error(native: hil.OpenTarget, minimum: Any) -> None:
    with pytest.raises(errors.ConfigError, match="min_cortex_m: a number from 0 to 1, not "):
        native.check(*linear(), min_cortex_m=minimum)


def test_a_share_of_nothing_is_a_config_error(native: hil.OpenTarget) -> None:
    with pytest.raises(errors.ConfigError, match=r"min_cortex_m says nothing of Flatten: it has no operator that"):
        native.check(torch.nn.Flatten(), (torch.randn(1, 8, 2),), min_cortex_m=0.5)


def test_red_zones_are_watched_where_asked_for() -> None:
    module, inputs = linear()
    with hil.open("native", redzones=True) as target:
        program = target.lower(module, inputs)
        assert program.size_without_redzones is not None
        assert target.run(program).outputs
        with pytest.warns(hil.HilWarning, match="so no write outside a tensor was looked for"):
            target.run(hil.lower(module, inputs, isa=target.isa))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "m4-qmeu"}, "did you mean 'm4-qemu'"),
        ({"name": "native", "runtime": "built-in"}, "did you mean 'builtin'"),
        ({"name": "native", "timeout_multiplier": float("nan")}, "timeout_multiplier: a number from 0.01 to 1000"),
        ({"name": "mine", "targets": {}}, "unknown target 'mine'"),
    ],
)
def test_what_cannot_be_opened_is_a_config_error(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        hil.open(**arguments)
    assert message in str(caught.value)


def test_targets_of_the_folder_and_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = "targets:\n  {}:\n    cpu: cortex-m3\n    board: mps2\n    launcher: {{qemu: mps2-an385}}\n"
    (tmp_path / "targets.yaml").write_text(entry.format("here"))
    (tmp_path / "other.yaml").write_text(entry.format("there"))
    monkeypatch.chdir(tmp_path)
    assert "here" in hil.load_targets() and "there" not in hil.load_targets()
    assert "there" in hil.load_targets("other.yaml") and "here" not in hil.load_targets("other.yaml")


@pytest.mark.slow
def test_one_lowering_is_checked_on_several_inputs() -> None:
    """The figures are the worst of all; a verdict names the inputs that it is of."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 5))
    first, *others = ((torch.randn(1, 3, 8, 8),) for _ in range(3))
    with hil.open("m4-qemu") as target:
        alone = target.lower(module, first)
        figures = target.check(module, first, more_inputs=others).outputs[0]
        each = [target.check(module, given, calibration=[first]).outputs[0] for given in (first, *others)]
        assert figures.sqnr_db == min(one.sqnr_db for one in each if one.sqnr_db is not None)
        assert figures.max_quanta == 0
        ran: list[bytes] = []
        target._ran = lambda program, result: ran.append(program.pte)  # type: ignore[method-assign]
        target.check(hil.export(module, first), more_inputs=[list(others[0])])
        assert ran == [alone.pte] * 2
        far = (others[1][0] * 100,)  # saturates: far from the float module
        with pytest.raises(errors.Mismatch) as caught:
            target.check(module, first, more_inputs=[others[0], far])
        assert caught.value.details[0] == ("inputs", "more_inputs[1], float32[1, 3, 8, 8] dim order [0, 2, 3, 1]")
        mistakes: list[tuple[Any, str]] = [
            ([first[0]], "more_inputs has Tensor"),
            ([(first[0][..., 1:],)], "was exported with"),
        ]
        for wrong, said in mistakes:
            with pytest.raises(errors.ConfigError, match=said):
                target.check(module, first, more_inputs=wrong)


# --- modes ----------------------------------------------------------------------------------------------------


def fresh(**more: torch.nn.Module) -> torch.nn.Sequential:
    """A network as torch makes it: in training mode."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(2, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
    for name, one in more.items():
        net.add_module(name, one)
    return net


IMAGE = (torch.linspace(-1, 1, 2 * 6 * 6).reshape(1, 2, 6, 6),)


@pytest.mark.filterwarnings("error::cortex_m_hil.HilWarning")
def test_a_module_as_torch_makes_it_warns_of_nothing_and_a_bad_verdict_says_its_mode(native: hil.OpenTarget) -> None:
    net = fresh(drop=torch.nn.Dropout(0.5))
    native.check(net, IMAGE)
    assert native.lower(net, IMAGE).training is not None and native.lower(net.eval(), IMAGE).training is None
    for mode, told in ((True, ["1 (BatchNorm2d), drop (Dropout) in training mode: lowered as eval(), "]), (False, [])):
        with pytest.raises(errors.Mismatch) as caught:
            native.check(net.train(mode), IMAGE, eager_sqnr=200)
        said = [text.partition("and so")[0] for label, text in caught.value.details if label == "mode"]
        assert said == told and net.training is mode


@pytest.mark.slow
def test_a_part_in_training_mode_warns_once_behind_the_verdict(native: hil.OpenTarget) -> None:
    """It was lowered in eval mode, without a word, though somebody had it otherwise."""
    net = fresh().eval()
    net.add_module("late", torch.nn.Dropout(0.5))
    exported = hil.export(net, IMAGE)
    for call in (
        lambda: native.check(net, IMAGE), lambda: native.lower(net, IMAGE), lambda: native.check(exported),
        lambda: hil.lower(net, IMAGE, isa=hil.Isa.SCALAR),
    ):  # fmt: skip
        with pytest.warns(
            hil.HilWarning, match=r"Sequential: late \(Dropout\) in training mode: .*module\.eval\(\)"
        ) as seen:
            call()
        assert [one.filename for one in seen] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(errors.Mismatch):
            native.check(net, IMAGE, eager_sqnr=200)
        native.check(net.eval(), IMAGE)


class Asks(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.nn.functional.dropout(x, 0.5, self.training)


@pytest.mark.parametrize(
    ("part", "told"),
    [
        (torch.nn.ReLU(), None),
        (torch.nn.Dropout(0.0), None),
        (torch.nn.BatchNorm2d(4, track_running_stats=False), None),
        (torch.nn.InstanceNorm2d(4, track_running_stats=True), "part (InstanceNorm2d)"),
        (torch.nn.BatchNorm2d(4), "part (BatchNorm2d)"),
        (torch.nn.Dropout2d(), "part (Dropout2d)"),
        (Asks(), "part (Asks)"),
    ],
)
def test_what_computes_otherwise_in_training_mode(part: torch.nn.Module, told: str | None) -> None:
    from cortex_m_hil.lowering.module_export import _training

    net = fresh().eval()
    net.add_module("part", part.train())
    found = _training(net)
    assert (found and found.submodules) == (told and (told,)) and (found is None or found.is_in_part)
