"""From what the user asked for to what runs, and why."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortex_m_hil.errors import ConfigError, ToolchainError
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve, select

TARGETS = load_targets()
NAMES = list(TARGETS)
M4_MODEL = "FVP_MPS2_Cortex-M4"


@pytest.fixture
def no_models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder as PATH; a model put there is found."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def install(folder: Path, model: str) -> None:
    path = folder / model
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (["m4-qemu"], ["m4-qemu"]),
        (["m4-qemu,m0-qemu"], ["m4-qemu", "m0-qemu"]),
        (["m0-qemu", "m4-qemu"], ["m0-qemu", "m4-qemu"]),
        (["m4-qemu", "m4-*", "m4-qemu"], ["m4-qemu", "m4-fvp"]),
        (["m[04]-qemu"], ["m4-qemu", "m0-qemu"]),
        (["m?-qemu"], ["m4-qemu", "m0-qemu"]),
        ([" native , m4-qemu,, "], ["native", "m4-qemu"]),
        (["all"], NAMES),
        (["*"], NAMES),
        (["native,all"], ["native", *(name for name in NAMES if name != "native")]),
        ([], []),
        ([" , "], []),
    ],
)
def test_target_patterns_select_the_matching_targets(patterns: list[str], names: list[str]) -> None:
    chosen = [name for name in select(patterns, TARGETS) if name in NAMES]
    first = [name for name in chosen if name in names]
    assert first == names
    if not any(letter in "*?[" for text in patterns for letter in text):
        assert chosen == names


@given(st.lists(st.sampled_from([*NAMES, "m4-*", "*-qemu", "all"])), st.integers(0))
def test_each_name_comes_once_however_it_is_asked_for(patterns: list[str], at: int) -> None:
    chosen = select(patterns, TARGETS)
    assert len(chosen) == len(set(chosen))
    place = at % (len(patterns) + 1)
    joined = [text for text in (",".join(patterns[:place]), ",".join(patterns[place:])) if text]
    assert select(joined, TARGETS) == chosen


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("m4-quem", "did you mean 'm4-qemu'"),
        ("m9*", "m4-fvp"),
        ("M4-QEMU", "m4-qemu"),
        ("m4-qemu native", "m4-qemu"),
        ("cortex-m55", "a target of this CPU: m55-fvp, m55-qemu, "),
        ("cortex-m33+int8", "a target of this CPU: m33-qemu, "),
        ("cortex-m85", "add one with cpu: cortex-m85 to targets.yaml"),
    ],
)
def test_an_unknown_name_stops_everything(pattern: str, hint: str) -> None:
    with pytest.raises(ConfigError, match="unknown target") as caught:
        select(["native", pattern], TARGETS)
    assert repr(pattern) in caught.value.message
    assert hint in caught.value.hint


def test_what_needs_no_model_runs_as_it_is(no_models: Path) -> None:
    for name in ("native", "m4-qemu"):
        resolved = resolve(name, TARGETS, require_fvp=True)
        assert resolved.target is resolved.requested is TARGETS[name]
        assert (resolved.name, resolved.display_name, resolved.fallback_reason) == (name, name, "")


def test_a_missing_model_is_replaced_and_it_says_so(no_models: Path) -> None:
    resolved = resolve("m4-fvp", TARGETS)
    assert (resolved.requested.name, resolved.target.name) == ("m4-fvp", "m4-qemu")
    assert resolved.fallback_reason == f"{M4_MODEL} is not on PATH"
    assert resolved.display_name == "m4-fvp → m4-qemu"
    assert resolved.label == "m4-fvp → m4-qemu · builtin (no ExecuTorch or CMSIS-NN code executed)"


def test_an_installed_model_is_used(no_models: Path) -> None:
    install(no_models, M4_MODEL)
    resolved = resolve("m4-fvp", TARGETS, require_fvp=True)
    assert resolved.target is TARGETS["m4-fvp"]
    assert (resolved.display_name, resolved.fallback_reason) == ("m4-fvp", "")
    assert resolve("m55-fvp", TARGETS).target.name == "m55-qemu"


def test_a_file_that_cannot_be_executed_is_no_model(no_models: Path) -> None:
    (no_models / M4_MODEL).write_text("#!/bin/sh\n")
    assert resolve("m4-fvp", TARGETS).target.name == "m4-qemu"


def test_require_fvp_accepts_no_replacement(no_models: Path) -> None:
    with pytest.raises(ToolchainError, match=M4_MODEL) as caught:
        resolve("m4-fvp", TARGETS, require_fvp=True)
    assert caught.value.target == "m4-fvp"
    assert "--require-fvp" in caught.value.hint


def test_without_a_fallback_a_missing_model_is_an_error(no_models: Path) -> None:
    lonely = dataclasses.replace(TARGETS["m4-fvp"], name="lonely", fallback=None)
    with pytest.raises(ToolchainError, match=M4_MODEL) as caught:
        resolve("lonely", {**TARGETS, "lonely": lonely})
    assert caught.value.target == "lonely"
    assert "fallback" in caught.value.hint


@pytest.mark.parametrize("fallback", ["m0plus-fvp", "second"])
def test_a_fallback_that_is_missing_too_falls_back_in_its_turn(no_models: Path, fallback: str) -> None:
    second = dataclasses.replace(TARGETS["m4-fvp"], name="second", fallback="m4-qemu")
    first = dataclasses.replace(TARGETS["m4-fvp"], name="first", fallback=fallback)
    resolved = resolve("first", {**TARGETS, "first": first, "second": second})
    assert resolved.requested is first
    assert resolved.target.name in ("m0-qemu", "m4-qemu")
    assert M4_MODEL in resolved.fallback_reason


def test_fallbacks_in_a_circle_end(no_models: Path) -> None:
    first = dataclasses.replace(TARGETS["m4-fvp"], name="first", fallback="second")
    second = dataclasses.replace(TARGETS["m4-fvp"], name="second", fallback="first")
    with pytest.raises(ToolchainError, match=M4_MODEL):
        resolve("first", {**TARGETS, "first": first, "second": second})


@pytest.mark.parametrize(
    ("launcher", "missing"),
    [
        ("{qemu: mps2-an386}", "qemu-system-arm is not on PATH"),
        ("{serial: {port: /dev/ttyNONE, baud: 115200}}", "no port /dev/ttyNONE"),
    ],
)
def test_a_fallback_is_taken_whatever_the_launcher(no_models: Path, launcher: str, missing: str) -> None:
    path = no_models / "targets.yaml"
    path.write_text(f"targets:\n  m: {{cpu: cortex-m4, board: mps2, launcher: {launcher}, fallback: native}}\n")
    resolved = resolve("m", load_targets(path))
    assert (resolved.display_name, resolved.fallback_reason) == ("m → native", missing)


@pytest.mark.parametrize("name", ["m3-qemu,m4-qemu", "m[34]-qemu"])
def test_several_where_one_is_taken(name: str) -> None:
    with pytest.raises(ConfigError, match="one target is taken here") as caught:
        resolve(name, TARGETS)
    assert caught.value.hint in ("one of m3-qemu, m4-qemu", "one of m4-qemu, m3-qemu")


def test_an_unknown_target_is_not_resolved() -> None:
    with pytest.raises(ConfigError, match="unknown target 'm4'"):
        resolve("m4", TARGETS)
