"""`package.module:function` as a network: found, called, and what is said where it fails."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cortex_m_hil.errors import ConfigError
from cortex_m_hil.lowering.named_modules import load_named_module

SOURCE = """\
import torch


def made():
    return torch.nn.Linear(4, 2), (torch.rand(1, 4),)


def wants(path):
    return made()


def attribute():
    return made()[0].load_weigths(), ()


def opens():
    open("/nowhere/at/all")


def imports():
    import no_such_package


def ends():
    raise SystemExit(3)


def gives_list():
    return torch.nn.Linear(4, 2), [torch.rand(1, 4)]
"""


@pytest.fixture(autouse=True)
def _source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "networks_of_mine.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("networks_of_mine", None)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("wants", "TypeError: wants() missing 1 required positional argument: 'path'"),
        ("attribute", "AttributeError: 'Linear' object has no attribute 'load_weigths', at {file}:13"),
        ("opens", "FileNotFoundError: [Errno 2] No such file or directory: '/nowhere/at/all', at {file}:17"),
        ("imports", "ModuleNotFoundError: No module named 'no_such_package', at {file}:21"),
        ("ends", "SystemExit: 3, at {file}:25"),
    ],
)
def test_a_function_that_fails_is_told_with_its_line(tmp_path: Path, function: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_named_module(f"networks_of_mine:{function}")
    told = said.format(file=tmp_path / "networks_of_mine.py")
    assert raised.value.message == f"networks_of_mine:{function}: {told}"
    assert "call it yourself" in raised.value.hint and "Traceback" in raised.value.log


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("networks_of_min:made", "No module named 'networks_of_min'"),
        ("networks_of_mine.inner:made", "No module named 'networks_of_mine.inner'"),
        ("networks_of_mine:mad", "has no attribute 'mad'"),
    ],
)
def test_a_function_that_is_not_found(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as raised:
        load_named_module(name)
    assert raised.value.hint == "package.module:function, from the working folder"


def test_inputs_may_be_a_list() -> None:
    """As those of `hil.check`."""
    module, inputs = load_named_module("networks_of_mine:gives_list")
    assert module(*inputs).shape == (1, 2)
