"""What `auto` chooses: ExecuTorch where one is there for the CPU and fits, else builtin, and why."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from cortex_m_hil.errors import ConfigError
from cortex_m_hil.targets.executorch_prefix import VARIABLE, selected_link
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import Resolved, resolve
from cortex_m_hil.targets.runtimes import AUTO, select_runtimes
from cortex_m_hil.targets.target import ExecutorchInstall
from prefixes import FLAGS, make_prefix

TARGETS = load_targets()


@pytest.fixture(autouse=True)
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("HIL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("cortex_m_hil.targets.executorch_prefix._version_of_wheel", lambda: "1.5.1+cpu")


def auto(name: str = "m4-qemu", **settings: Any) -> Resolved:
    """What a target runs as; `settings` are those of `runtimes: {executorch: …}`."""
    install = ExecutorchInstall(origin="targets.yaml:3", **settings) if settings else None
    return resolve(name, {**TARGETS, name: dataclasses.replace(TARGETS[name], executorch=install)})


def test_without_an_executorch_it_is_builtin_and_says_how_to_get_one() -> None:
    found = auto()
    assert (found.runtime, found.has_misfit) == ("builtin", False)
    assert found.runtime_reason == "no ExecuTorch is installed for cortex-m4: hil executorch install --cpu cortex-m4"
    assert found.reasons == found.runtime_reason


def test_the_host_is_builtin_and_has_no_reason() -> None:
    assert (auto("native").runtime, auto("native").reasons) == ("builtin", "")


def test_what_is_named_or_installed_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = make_prefix(tmp_path / "cortex-m4", FLAGS["m4-qemu"])  # of no known version: the schema decides
    assert auto(prefix=str(prefix)).runtime == "executorch"
    assert auto().runtime == "builtin"
    link = selected_link(tmp_path / "cache", "cortex-m4")
    link.parent.mkdir(parents=True)
    link.symlink_to(prefix)
    found = auto()
    assert (found.runtime, found.runtime_reason, found.has_misfit) == ("executorch", "", False)
    assert auto("m4-fvp").runtime == "executorch"  # by its fallback
    counting = resolve("m4-qemu", TARGETS, counts=True)
    assert (counting.runtime, counting.has_misfit) == ("builtin", False)
    assert "hil executorch install --cpu cortex-m4 --coverage" in counting.runtime_reason
    monkeypatch.setenv(VARIABLE, f"{tmp_path}/{{cpu}}")
    assert auto(prefix="/nowhere").runtime == "executorch"
    other = auto("m55-qemu")
    assert (other.runtime, other.has_misfit) == ("builtin", False)  # a folder for each CPU, and none for this one
    assert other.runtime_reason.startswith(f"{VARIABLE}: {tmp_path}/cortex-m55: no ExecuTorch is installed there")
    monkeypatch.setenv(VARIABLE, "")
    assert (auto().runtime, auto().reasons) == ("builtin", "")
    with pytest.raises(ConfigError, match="unknown runtime 'tflm'"):
        resolve("m4-qemu", TARGETS, runtime="tflm")


def test_an_installation_that_does_not_fit_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def misfit(found: Resolved) -> str:
        assert (found.runtime, found.has_misfit) == ("builtin", True)
        return found.runtime_reason

    prefix = make_prefix(tmp_path / "prefix", FLAGS["m4-qemu"], version="1.5.0 cff6f4dd32e6, CMSIS-NN dbf45dbfcc51")
    assert auto(prefix=str(prefix)).runtime == "executorch"  # another patch of the same release
    (prefix / "hil.json").write_text('{"version": "1.4.1 0123456789ab"}')
    told = f"targets.yaml:3: {prefix}: it is ExecuTorch 1.4.1 0123456789ab, and the installed executorch is 1.5.1+cpu"
    assert misfit(auto(prefix=str(prefix))).startswith(f"{told}; hil executorch install --cpu cortex-m4 builds")
    source = tmp_path / "source"
    source.mkdir()
    (source / "version.txt").write_text("1.5.0\n")
    assert auto(prefix=str(prefix), source=source).runtime == "executorch"  # what the prefix is built from
    assert resolve("m4-qemu", TARGETS, runtime="executorch").runtime == "executorch"  # judged when a runner is built
    assert "its libraries are for armv7e-m+fp+dsp, cortex-m55" in misfit(auto("m55-qemu", prefix=str(prefix)))
    other = make_prefix(tmp_path / "other", FLAGS["m4-qemu"], identifier="ET11")
    assert "it reads programs of another schema than ET12" in misfit(auto(prefix=str(other)))
    monkeypatch.setenv(VARIABLE, str(tmp_path / "gone"))
    assert misfit(auto()).startswith(f"{VARIABLE}: {tmp_path}/gone: no ExecuTorch is installed there; build with")
    monkeypatch.delenv(VARIABLE)
    link = selected_link(tmp_path / "cache", "cortex-m4")
    link.parent.mkdir(parents=True)
    link.symlink_to("deleted")
    assert misfit(auto()) == (
        f"hil executorch install: {link}: no ExecuTorch is installed there; hil executorch install --cpu cortex-m4"
    )


def test_operators_that_the_wheels_release_has_alone_are_told(tmp_path: Path) -> None:
    lacking = "cortex_m::quantized_conv2d.out"  # and not quantized_depthwise_conv2d.out, nor quantized_conv2d_nhwc.out
    found = auto(prefix=str(make_prefix(tmp_path / "older", FLAGS["m4-qemu"], without=lacking)))
    assert (found.runtime, found.has_misfit) == ("executorch", False)
    assert (
        found.reasons
        == found.lacks
        == (
            "this ExecuTorch has no quantized_conv2d, which executorch 1.5.1+cpu lowers to; "
            "hil executorch install --cpu cortex-m4 builds the wheel's release; targets.yaml:3 goes before that"
        )
    )
    assert auto(prefix=str(make_prefix(tmp_path / "whole", FLAGS["m4-qemu"]))).lacks == ""


def test_an_option_goes_before_the_entry_and_that_before_the_default_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "targets.yaml"
    entry = "{cpu: cortex-m4, board: mps2-an386, launcher: {qemu: mps2-an386}, runtime: executorch}"
    file.write_text(f"targets:\n  mine: {entry}\nruntimes: {{default: builtin}}\n")
    known = load_targets(file)
    assert (known["mine"].runtime, known["m4-qemu"].runtime, TARGETS["m4-qemu"].runtime) == (
        "executorch",
        "builtin",
        AUTO,
    )
    mine, shipped = (resolve(name, known) for name in ("mine", "m4-qemu"))
    assert (mine.runtime, shipped.runtime, shipped.reasons) == ("executorch", "builtin", "")
    assert resolve("mine", known, runtime="builtin").runtime == "builtin"
    file.write_text(f"targets:\n  mine: {entry.replace('executorch', 'executroch')}\n")
    with pytest.raises(ConfigError, match=r"targets\.yaml:2: mine: unknown runtime 'executroch'") as caught:
        load_targets(file)
    assert "did you mean 'executorch'" in caught.value.hint
    file.write_text("runtimes:\n  default: [builtin]\n")
    with pytest.raises(ConfigError, match=r"targets\.yaml:2"):
        load_targets(file)


def test_lists_of_runtimes_are_for_tests() -> None:
    assert select_runtimes(["builtin, executorch", "builtin"]) == ["builtin", "executorch"]
    with pytest.raises(ConfigError, match="unknown runtime 'x'"):
        select_runtimes(["builtin,x"])
    with pytest.raises(ConfigError, match="is a list") as caught:
        resolve("m4-qemu", TARGETS, runtime="builtin,executorch")
    assert "hil nightly" in caught.value.hint
