"""hil evaluate: the tasks of examples/evaluate, whole, and what is planted, killed and asked wrongly."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from sklearn.metrics import roc_auc_score

import tasks
from command_line import CANNOT_TELL, NO, OK, Done, answer, answers, call, descendant, running
from cortex_m_hil.campaigns.evaluation.accuracy import detections_in_stream
from cortex_m_hil.cli.campaigns import CampaignOptions
from cortex_m_hil.lowering import LoweringOptions, lower
from cortex_m_hil.lowering.named_modules import load_named_module
from cortex_m_hil.targets.cpu import Isa
from quantised_io import int8_io

Evaluate = Callable[..., Done]
ALL = "m55-qemu,m4-qemu,m0-qemu"
SAMPLES = len(tasks.data()["digits"]["labels"])
# A model of two classes by itself, for processes of their own: nothing is trained.
SIGN = """
import numpy as np, torch

def sign():
    layer = torch.nn.Linear(4, 2)
    layer.weight.data = torch.tensor([[-1.0] * 4, [1.0] * 4])
    layer.bias.data = torch.tensor([0.1, 0.0])
    return layer, (torch.ones(1, 4),)

def constant():
    layer, inputs = sign()
    layer.weight.data *= 1e-6
    return layer, inputs

def shifted():
    layer, inputs = sign()
    layer.bias.data = torch.tensor([40.0, -40.0])
    return layer, (10 * inputs[0],)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, arrays in tasks.data().items():
        np.savez(tmp_path / f"{name}.npz", **arrays)
    (tmp_path / "signs.py").write_text(SIGN)
    inputs = np.random.default_rng(0).normal(0, 1, (400, 4)).astype(np.float32)
    np.savez(tmp_path / "signs.npz", inputs=inputs, labels=(inputs.sum(axis=1) > 0).astype(int))
    return tmp_path


@pytest.fixture
def evaluate(capsys: pytest.CaptureFixture[str], folder: Path) -> Evaluate:
    """Calls `hil evaluate` in this process, with a store of its own."""
    return lambda *arguments: call(capsys, "evaluate", *arguments, "--store", folder / "store.sqlite")


def runs(folder: Path, campaign: int = 1) -> list[tuple[str, str]]:
    try:
        with sqlite3.connect(folder / "store.sqlite") as store:
            return store.execute(
                "SELECT key, verdict FROM run WHERE campaign = ? ORDER BY number", (campaign,)
            ).fetchall()
    except sqlite3.OperationalError:  # not made yet
        return []


def without_times(told: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in told.items() if name != "samples_per_second"}


@pytest.mark.slow
def test_features_for_an_int8_input_are_quantised_where_that_is_asked_for(evaluate: Evaluate, folder: Path) -> None:
    """A cast in place of it tells 93.75 %: one of 16 samples loses its sign."""
    module, inputs = load_named_module("signs:sign")
    calibration = [(torch.full((1, 4), value),) for value in (-3.9, 3.9)]
    (folder / "sign.pte").write_bytes(int8_io(module, inputs, calibration))
    features = np.array([2, 3] * 7 + [2, 0.5], np.float32) * np.resize([1, 1, -1], 16)
    samples = np.repeat(features[:, None], 4, axis=1).astype(np.float32)
    labels = (features > 0).astype(int)
    for name, array in (("float", samples), ("cast", samples.astype(np.int8)), ("wide", samples * np.float32(1.5))):
        np.savez(f"{name}.npz", inputs=array, labels=labels)
    words = "sign.pte", "-t", "native", "--json", "--data"

    refused = evaluate(*words, "float.npz")
    told = answer(refused.out)["error"]
    assert refused.status == CANNOT_TELL and told["type"] == "ConfigError", refused.out
    assert "float32, and the model's input takes int8[1, 4] (scale 0.0305733" in told["message"]
    assert "zero point 0)" in told["message"]
    assert "--quantize-inputs" in told["hint"]

    assert answer(evaluate(*words, "cast.npz").out)["top1"]["target"] == 0.9375
    right = answer(evaluate(*words, "float.npz", "--quantize-inputs").out)
    assert right["top1"]["target"] == 1 and right["saturated"] == 0
    wide = evaluate(*words, "wide.npz", "--quantize-inputs")
    assert answer(wide.out)["saturated"] == 7 / 16
    told_in_text = evaluate("sign.pte", "-t", "native", "--data", "wide.npz", "--quantize-inputs").out
    assert "\nquantised: 28 of 64 values of its inputs saturate\n" in told_in_text


@pytest.mark.slow
def test_a_module_is_lowered_to_int8_inputs_where_that_is_asked_for(evaluate: Evaluate, folder: Path) -> None:
    """Its data are floats, which its program's own scale quantises; the references are on the same samples."""
    words = "signs:sign", "-t", "native", "--data", "signs.npz", "--limit", 40
    told, floats = (answer(evaluate(*words, *more, "--json").out) for more in (("--io", "int8"), ()))
    assert told["saturated"] is not None and 0 <= told["saturated"] < 0.05 and floats["saturated"] is None
    assert told["top1"]["target"] == told["top1"]["dialect"] >= 0.95 and told["max_quanta"]["dialect"] == 0
    assert told["top1"]["eager"] >= 0.95
    assert "quantised: " in evaluate(*words, "--io", "int8").out
    module, inputs = load_named_module("signs:sign")
    (folder / "sign.pte").write_bytes(lower(module, inputs, isa=Isa.SCALAR).pte)
    refused = evaluate("sign.pte", *words[1:], "--io", "int8")
    assert refused.status == CANNOT_TELL and "--io int8: sign.pte is lowered" in refused.err


@pytest.mark.slow
def test_an_autoencoder_of_int8_is_scored_by_the_numbers_that_its_integers_stand_for(
    evaluate: Evaluate, folder: Path
) -> None:
    """Integers of input and output have scales of their own."""

    class Mean(torch.nn.Linear):
        def __init__(self) -> None:
            super().__init__(4, 4, bias=False)
            self.weight.data = torch.full((4, 4), 0.25)

    calibration = [(torch.tensor([[4.0, -4.0, 4.0, -4.0]]),), (torch.full((1, 4), 2.0),), (torch.full((1, 4), -1.0),)]
    (folder / "mean.pte").write_bytes(int8_io(Mean(), (torch.ones(1, 4),), calibration))
    normal = np.repeat(np.linspace(-1, 2, 8, dtype=np.float32)[:, None], 4, axis=1)
    odd = normal + np.resize(np.array([1, -1], np.float32), 4)
    labels = np.repeat([0, 1], 8)
    np.savez("mean.npz", inputs=np.concatenate([normal, odd]), labels=labels)
    told = answer(evaluate("mean.pte", "-t", "native", "--json", "--data", "mean.npz", "--quantize-inputs").out)
    assert told["task"] == "anomaly" and told["top1"] is None and told["saturated"] == 0
    assert told["auc"]["target"] == 1


@pytest.mark.slow
def test_top1_of_digits_is_equal_on_mve_dsp_and_scalar(evaluate: Evaluate) -> None:
    done = evaluate("tasks:digits", "--data", "digits.npz", "-t", ALL, "--min-top1", 0.93, "--json")
    told = answers(done.out)
    assert done.status == OK and [one["target"] for one in told] == ALL.split(","), done.err
    labels = tasks.data()["digits"]["labels"]
    for one in told:
        assert (one["task"], one["outcome"], one["samples"], one["left"]) == ("classes", "complete", SAMPLES, 0)
        assert one["same_answers"]["dialect"] == SAMPLES and one["max_quanta"]["dialect"] == 0
        assert one["top1"]["target"] == one["top1"]["dialect"] >= 0.93 and one["top1"]["eager"] >= 0.93
        assert one["same_answers"]["eager"] >= 0.97 * SAMPLES and one["max_quanta"]["eager"] > 0
        assert [row["count"] for row in one["classes"]] == np.bincount(labels).tolist()
        assert sum(row["right"] for row in one["classes"]) == round(one["top1"]["target"] * SAMPLES)
        assert sum(row["predicted"] for row in one["classes"]) == SAMPLES
        assert not one["collapse"] and not one["constant"] and not one["problems"]
        assert one["events"] is one["auc"] is None and one["samples_per_second"] > 0
    assert [one["same_outputs"] for one in told] == [None, SAMPLES, SAMPLES]  # kernels give the same bits


def test_a_layout_of_another_class_is_a_collapse(evaluate: Evaluate, folder: Path) -> None:
    """The bias that is folded away for MVE is dropped elsewhere. The lint says so; run all the same, the data does."""
    signs = np.load("signs.npz")
    np.savez("shifted.npz", inputs=signs["inputs"][:100] + 10, labels=signs["labels"][:100])
    module, inputs = load_named_module("signs:shifted")
    calibration = [(torch.tensor(one[None], dtype=torch.float32),) for one in signs["inputs"][100:200] + 10]
    made = lower(module, inputs, isa=Isa.MVE, options=LoweringOptions(calibration=calibration))
    (folder / "mve.pte").write_bytes(made.pte)
    words = ("mve.pte", "--data", "shifted.npz", "--json", "-t")
    refused = evaluate(*words, "m4-qemu")
    ended = answer(refused.out)["ended"]
    assert refused.status == NO and "LintError: " in ended, refused.out
    assert "; --no-lint runs this program as it is" in ended and "lint=False" not in evaluate(*words, "m4-qemu").out

    done = evaluate(*words, "m55-qemu,m4-qemu,m0-qemu", "--no-lint", "--min-top1", 0.9)
    right, *wrong = answers(done.out)
    assert right["lint"] is None
    assert done.status == NO and right["exit_status"] == OK and right["top1"].keys() == {"target"}, done.out
    for one in wrong:
        assert one["exit_status"] == NO and one["top1"]["target"] < 0.6 and one["same_outputs"] < 100
        assert one["lint"].endswith("; lint was off (--no-lint)") and "MVE layout on a" in one["lint"]
        [differ, *_, collapse, low] = one["problems"]
        assert differ.startswith("outputs of ") and differ.endswith(
            ", though integers are computed alike on all targets"
        )
        assert collapse.startswith("collapse: class 1 for ") and low.startswith("top-1 is 0.")


@pytest.mark.slow
def test_outputs_that_say_nothing_are_a_collapse(evaluate: Evaluate) -> None:
    done = evaluate("signs:constant", "--data", "signs.npz", "-t", "native", "--json")
    told = answer(done.out)
    assert done.status == NO and told["constant"]
    assert set(told["collapse"]) >= {"target", "dialect"} and told["collapse"]["target"]["answer"] == 0
    same, told_all = told["problems"]
    assert same == "collapse: the same outputs for all 400 samples" and "dialect" in told_all


@pytest.mark.slow
def test_anomalies_are_scored_by_clip(evaluate: Evaluate, folder: Path) -> None:
    arrays, few = tasks.data()["machine"], [number * 60 // 16 for number in range(16)]
    clips, labels = arrays["inputs"][few], arrays["labels"][few]
    words = ("tasks:machine", "--data", "machine.npz", "--limit", len(few), "-t", "m4-qemu,m0-qemu")
    done = evaluate(*words, "--min-auc", 0.85, "--json")
    for one in answers(done.out):
        assert done.status == OK and one["task"] == "anomaly" and one["samples"] == len(clips), done.err
        assert one["auc"]["target"] == one["auc"]["dialect"] >= 0.85
        assert one["same_answers"]["dialect"] == len(clips) and one["same_answers"]["eager"] is not None
        assert one["top1"] is None and one["classes"] == []

    module = tasks.machine()[0]
    rebuilt = module(torch.from_numpy(clips)).detach().numpy()
    assert one["auc"]["eager"] == pytest.approx(roc_auc_score(labels, np.square(rebuilt - clips).mean(axis=(1, 2))))

    wrong = evaluate("tasks:machine", "--data", "machine.npz", "-t", "native", "--min-top1", 1)
    assert wrong.status == CANNOT_TELL and "--min-top1: the model is an autoencoder" in wrong.err
    of_one = evaluate("tasks:machine", "--data", "machine.npz", "-t", "native", "--min-auc", 0.5, "--limit", 1)
    assert of_one.status == CANNOT_TELL and "no AUC" in of_one.out


@pytest.mark.slow
def test_the_layout_of_the_benchmark_and_its_threshold(evaluate: Evaluate, folder: Path) -> None:
    """Clips as raw frames, cut by the widths and strides of the labels' file: the same score as of windows."""
    (folder / "ad01").mkdir()
    lines = []
    for label, anomalies in enumerate((False, True)):
        for number, frames in enumerate(tasks.sounds(30, 3 + label, anomalies=anomalies)[:6]):
            (folder / "ad01" / f"{label}-{number}.bin").write_bytes(frames.astype("<f4").tobytes())
            lines.append(f"{label}-{number}.bin,2,{label},{4 * tasks.WINDOW * tasks.BINS},{4 * tasks.BINS}\n")
    (folder / "ad01" / "y_labels.csv").write_text("".join(lines))
    told = answer(evaluate("tasks:machine", "--data", "ad01", "-t", "native", "--json").out)

    arrays = tasks.data()["machine"]
    chosen = [*range(6), *range(30, 36)]
    np.savez("few.npz", inputs=arrays["inputs"][chosen], labels=arrays["labels"][chosen])
    assert told["samples"] == 12 and 0.5 < told["auc"]["target"] <= 1
    few = answer(evaluate("tasks:machine", "--data", "few.npz", "-t", "native", "--json").out)
    assert told["auc"] == few["auc"] and told["max_quanta"] == few["max_quanta"]

    swapped = "".join(
        line.replace(",2,0,", ",2,9,").replace(",2,1,", ",2,0,").replace(",2,9,", ",2,1,") for line in lines
    )
    (folder / "ad01" / "y_labels.csv").write_text(swapped)
    low = evaluate("tasks:machine", "--data", "ad01", "-t", "native", "--json")
    assert low.status == NO
    assert [re.sub(r"\d\.\d+ ?,", "x,", one) for one in answer(low.out)["problems"]] == [
        "AUC is x, at least 0.85 is asked"
    ]


@pytest.mark.slow
def test_keyword_detections_in_a_stream_equal_the_float_modules(evaluate: Evaluate) -> None:
    """As many occurrences are detected as the float module detects, whose answers the target gives."""
    arrays, count = tasks.data()["keywords"], 400
    labels = arrays["labels"][:count].tolist()
    eager = tasks.keywords()[0](torch.from_numpy(arrays["inputs"][:count])).argmax(dim=1).tolist()
    wanted = detections_in_stream(eager, labels, (0,))
    assert wanted.events > 5 and wanted.false_accepts > 0

    words = ("tasks:keywords", "--data", "keywords.npz", "-t", "m4-qemu", "--negative", 0, "--json")
    most = ("--max-false-rejects", wanted.false_rejects, "--max-false-accepts", wanted.false_accepts)
    done = evaluate(*words, "--stream", "--limit", count, *most)
    told = answer(done.out)
    assert done.status == OK, done.out
    assert told["same_answers"] == {"dialect": count, "quantized": count, "eager": count}
    assert {name: told[name] for name in ("events", "false_rejects", "false_accepts")} == asdict(wanted)

    strict = answer(evaluate(*words, "--limit", 100, "--max-false-rejects", 0, "--max-false-accepts", 0).out)
    asked = [f"{strict[f'false_{kind}']} false {kind}, at most 0 are asked" for kind in ("accepts", "rejects")]
    assert strict["false_accepts"] > 0 and strict["false_rejects"] > 0 and strict["problems"] == asked


@pytest.mark.slow
def test_what_was_killed_goes_on_and_tells_the_same(evaluate: Evaluate, folder: Path) -> None:
    words = ("signs:sign", "--data", "signs.npz", "-t", "native", "--json")
    with running("evaluate", *words, "--store", folder / "store.sqlite", cwd=folder) as process:
        while len(runs(folder)) < 2:
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        below = psutil.Process(process.pid).children(recursive=True)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
    assert not psutil.wait_procs(below, timeout=10)[1]
    before = runs(folder)
    assert 2 <= len(before) < 7

    spent = evaluate(*words, "--budget", 0)
    told = answer(spent.out)
    assert spent.status == CANNOT_TELL and told["outcome"] == "under way" and told["samples"] == 64 * len(before)
    other = evaluate(*words, "--limit", 10)  # is no part of it
    assert answer(other.out)["samples"] == 10
    done = evaluate(*words)
    kept = runs(folder)
    assert kept[: len(before)] == before and len(set(kept)) == len(kept)
    assert [one for one in folder.iterdir() if one.is_dir() and one.name.startswith("store-")] == []
    whole = evaluate(*words)  # all of it again, in one go
    assert done.status == whole.status == OK
    assert without_times(answer(done.out)) == without_times(answer(whole.out))
    assert answer(whole.out)["samples"] == 400 and runs(folder, 3) == kept == runs(folder)


def test_an_interrupt_says_how_to_go_on_whatever_the_campaign_is_at(folder: Path) -> None:
    """Be it lowering, before any run, or the report behind the last one."""
    options = CampaignOptions(store_file=folder / "store.sqlite")
    with pytest.raises(KeyboardInterrupt, match="the same command in this folder goes on"), options.store():
        raise KeyboardInterrupt


@pytest.mark.slow
def test_an_interrupt_leaves_no_child(folder: Path) -> None:
    words = ("evaluate", "signs:sign", "--data", "signs.npz", "-t", "m4-qemu", "--store", folder / "store.sqlite")
    with running(*words, cwd=folder) as process:
        simulator = descendant(process, "qemu")
        os.kill(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 130 and "Traceback" not in said
        assert "interrupted: what has ended is kept: the same command in this folder goes on\n" in said
    assert not psutil.wait_procs([simulator], timeout=10)[1]


@pytest.mark.slow
def test_integers_for_an_input_of_floats_are_told(evaluate: Evaluate, folder: Path) -> None:
    inputs = np.random.default_rng(0).integers(-128, 128, (40, 4), dtype=np.int8)
    np.savez("quanta.npz", inputs=inputs, labels=(inputs.sum(axis=1) > 0).astype(int))
    asked = ("signs:sign", "--data", "quanta.npz", "-t", "native")
    told = "int8 samples are taken as the float32 numbers they are; --scale and --zero-point turn quanta into values"
    shown = evaluate(*asked).out
    assert shown.splitlines().count(told) == 1
    assert re.search(r"^  class +samples +right +recall +predicted +precision$", shown, re.M)
    assert answer(evaluate(*asked, "--json").out)["input_note"] == told
    assert answer(evaluate(*asked, "--scale", 0.5, "--json").out)["input_note"] == ""


@pytest.mark.slow
def test_invalid_arguments_of_evaluate_are_refused_with_their_reason(evaluate: Evaluate, folder: Path) -> None:
    signs = ("signs:sign", "--data", "signs.npz", "-t", "native")
    assert "no network 'signs'" in evaluate("signs", "--data", "signs.npz", "-t", "native").err
    for data, said in (("nothing.npz", "there is no such folder or file"), ("signs.py", "no folder, and no .npz")):
        assert f"--data {data}: {said}" in evaluate("signs:sign", "--data", data, "-t", "native").err
    assert "'ten,1'" in evaluate(*signs, "--negative", "ten,1").err
    assert "the model has 2 classes" in evaluate(*signs, "--negative", 2).err
    assert "--min-auc: the model is a classifier" in evaluate(*signs, "--min-auc", 0.5).err
    assert "a number from 0 to 1" in evaluate(*signs, "--min-top1", "nan").err
    assert (
        "it is not known which classes are none"
        in evaluate("tasks:keywords", "--data", "keywords.npz", "-t", "native", "--stream").err
    )
    np.savez("three.npz", inputs=np.zeros((3, 4)), labels=[0, 1, 2])
    assert (
        "signs:sign has 2 classes, three.npz has class 2"
        in evaluate("signs:sign", "--data", "three.npz", "-t", "native").err
    )
    Path("five").mkdir()
    Path("five/a.bin").write_bytes(np.zeros(4, "<f4").tobytes())
    Path("five/y_labels.csv").write_text("a.bin,5,1\na.bin,5,0\n")
    five = evaluate("signs:sign", "--data", "five", "--raw", "float32", "-t", "native").err
    assert "signs:sign has 2 classes, five has class 4" in five
    assert "layout" in evaluate(*signs, "--layout", "nchw").err
    np.savez("windows.npz", inputs=np.zeros((3, 2, 4)), labels=[0, 1, 1])
    assert "has 2 windows" in evaluate("signs:sign", "--data", "windows.npz", "-t", "native").err
