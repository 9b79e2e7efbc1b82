"""Samples of files: both layouts, and what is wrong with files of anybody's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cortex_m_hil.campaigns.evaluation.data_sets import BENCHMARKS, Raw, read_data_set
from cortex_m_hil.checks.input_checks import Taken
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.program.tensor import TensorSpec

IMAGE = Taken(TensorSpec.contiguous("float32", (1, 3, 2, 2)))
BYTES = Taken(TensorSpec.contiguous("int8", (1, 4)))
FRAMES = Taken(TensorSpec.contiguous("float32", (1, 4)))


def folder(path: Path, lines: str, **content: bytes) -> Path:
    path.mkdir()
    (path / "y_labels.csv").write_text(lines)
    for name, data in content.items():
        (path / f"{name}.bin").write_bytes(data)
    return path


def archive(path: Path, **named: Any) -> Path:
    np.savez(path, **named)
    return path


def test_pixels_lie_channels_last(tmp_path: Path) -> None:
    pixels = bytes([0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 255])
    data = read_data_set(
        folder(tmp_path / "vww01", "a.bin,2,1\n\nb.bin, 2 ,0\n", a=pixels, b=bytes(12)), IMAGE, Raw(scale=0.5)
    )
    assert data.labels == [1, 0] and data.name == "vww01"
    assert data.benchmark is BENCHMARKS["vww01"] and data.benchmark.min_top1 == 0.80
    [window] = data.samples[0].windows
    assert window.dtype == np.float32 and window.shape == (1, 3, 2, 2)
    assert window[0, :, 1, 1].tolist() == [15, 15.5, 127.5] and window[0, 1].ravel().tolist() == [0.5, 5.5, 10.5, 15.5]
    assert not data.own_calibration and len(data.calibration) == 2


def test_bytes_are_signed_or_not_as_the_task_or_the_user_says(tmp_path: Path) -> None:
    keywords = folder(tmp_path / "kws01", "a.bin,12,3\n", a=b"\x80\x7f\x00\xff")
    assert read_data_set(keywords, BYTES, Raw()).samples[0].windows.tolist() == [[[-128, 127, 0, -1]]]
    other = folder(tmp_path / "other", "a.bin,12,3\n", a=b"\x80\x7f\x00\xff")
    assert read_data_set(other, BYTES, Raw("uint8", zero_point=128)).samples[0].windows.tolist() == [
        [[0, -1, -128, 127]]
    ]
    with pytest.raises(ConfigError, match=r"y_labels.csv:1: a.bin: is it uint8 or int8\?"):
        read_data_set(other, BYTES, Raw())
    with pytest.raises(ConfigError, match=r"takes int8\[1, 4\]; 2 of 4 values are no int8, such as 128\D*--zero-point"):
        read_data_set(other, BYTES, Raw("uint8"))


def test_a_clip_is_cut_into_windows(tmp_path: Path) -> None:
    clip = np.arange(10, dtype="<f4")
    data = read_data_set(folder(tmp_path / "ad01", "a.bin,2,1,16,8\n", a=clip.tobytes()), FRAMES, Raw())
    assert data.samples[0].windows[:, 0].tolist() == [[0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 6, 7], [6, 7, 8, 9]]
    assert data.benchmark is not None and data.benchmark.min_auc == 0.85


def test_the_limit_is_spread_evenly_and_in_a_stream_the_beginning(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.npz", inputs=np.arange(40.0).reshape(10, 4), labels=np.repeat([0, 1], 5))
    assert [int(one.windows[0, 0, 0]) // 4 for one in read_data_set(path, FRAMES, Raw(), 4).samples] == [0, 2, 5, 7]
    assert [int(one.windows[0, 0, 0]) // 4 for one in read_data_set(path, FRAMES, Raw(), 4, in_order=True).samples] == [
        0,
        1,
        2,
        3,
    ]
    assert len(read_data_set(path, FRAMES, Raw(), 99).samples) == 10
    whole, part = read_data_set(path, FRAMES, Raw()), read_data_set(path, FRAMES, Raw(), 9)
    assert whole.digest == read_data_set(path, FRAMES, Raw()).digest != part.digest
    assert whole.differ and not read_data_set(path, FRAMES, Raw(), 1).differ


def test_an_archive_brings_windows_and_calibration(tmp_path: Path) -> None:
    inputs = np.zeros((2, 3, 4), np.float32)
    path = archive(tmp_path / "x.npz", inputs=inputs, labels=[0, 1], calibration=np.ones((5, 4)))
    data = read_data_set(path, FRAMES, Raw())
    assert data.own_calibration and [one.shape for one in data.calibration] == [(1, 4)] * 5
    assert [one.windows.shape for one in data.samples] == [(3, 1, 4)] * 2
    np.savez_compressed(path, inputs=np.zeros((2, 1, 4), np.int8), labels=np.array([0, 1], np.uint8))
    assert [one.windows.shape for one in read_data_set(path, FRAMES, Raw()).samples] == [(1, 1, 4)] * 2


def test_integers_that_are_taken_as_floats_are_told(tmp_path: Path) -> None:
    """Unless they are computed with: then the user has said what they mean."""
    rest = "are taken as the float32 numbers they are; --scale and --zero-point turn quanta into values"
    quanta, values = np.full((2, 4), -128, np.int8), np.ones((2, 4), np.float32)
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (quanta, {}, f"int8 samples {rest}"),
        (quanta, {"calibration": quanta}, f"int8 samples {rest}"),
        (values, {"calibration": quanta}, f"int8 calibration inputs {rest}"),
        (quanta, {"calibration": quanta.astype(np.int16)}, f"int8 samples and int16 calibration inputs {rest}"),
        (values, {"calibration": values}, ""),
    ]
    for inputs, more, told in cases:
        path = archive(tmp_path / "x.npz", inputs=inputs, labels=[0, 1], **more)
        data = read_data_set(path, FRAMES, Raw())
        assert data.input_note == told and data.samples[0].windows.dtype == np.float32
        assert data.samples[0].windows.ravel().tolist() == inputs[0].tolist()
        assert (
            read_data_set(path, FRAMES, Raw(scale=0.5)).input_note
            == read_data_set(path, FRAMES, Raw(zero_point=-128)).input_note
            == ""
        )
    assert read_data_set(archive(tmp_path / "x.npz", inputs=quanta, labels=[0, 1]), BYTES, Raw()).input_note == ""
    other = folder(tmp_path / "other", "a.bin,2,1\n", a=b"\x80\x7f\x00\xff")
    assert read_data_set(other, FRAMES, Raw("uint8")).input_note == f"uint8 samples {rest}"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("", "y_labels.csv: there is no sample in it"),
        ("a.bin,2\n", "y_labels.csv:1: 2 fields, 3 or 5 are wanted"),
        ("a.bin,2,1\na.bin,2,one\n", "y_labels.csv:2: 'one' is no number from 0"),
        ("a.bin,2,-1\n", "y_labels.csv:1: '-1' is no number from 0"),
        ("a.bin,2,\u0661\n", "y_labels.csv:1: '\u0661' is no number from 0"),
        ("a.bin,2,2\n", "y_labels.csv:1: class 2 of 2"),
        ("a.bin,1,0\n", "y_labels.csv:1: class 0 of 1"),
        ("a.bin,2,1\na.bin,3,1\n", "y_labels.csv:2: 3 classes, lines before have 2"),
        ("a.bin,2,1\ngone.bin,2,1\n", "y_labels.csv:2: cannot read .*gone.bin: No such file"),
        ("../a.bin,2,1\n", "y_labels.csv:1: '../a.bin' is no file of this folder"),
        ("..,2,1\n", "y_labels.csv:1: '..' is no file of this folder"),
        ("a.bin,2,1,16,0\n", "y_labels.csv:1: windows of 16 bytes every 0"),
        ("a.bin,2,1,8,4\n", "y_labels.csv:1: windows of 8 bytes every 4, the model's input takes 16 bytes of float32"),
        ("a.bin,2,1,16,6\n", "y_labels.csv:1: windows of 16 bytes every 6, "),
        ("short.bin,2,1,16,4\n", "y_labels.csv:1: short.bin has 15 bytes, a window 16"),
        ("a.bin,2,1\nshort.bin,2,1\n", "y_labels.csv:2: short.bin has 15 bytes, the model's input takes 16 bytes"),
        ("a.bin,2,1\nnan.bin,2,1\n", "y_labels.csv:2: nan.bin: a number is not finite"),
    ],
)
def test_what_is_wrong_with_a_folder_is_told_with_its_line(lines: str, said: str, tmp_path: Path) -> None:
    nan = np.array([0, 0, np.nan, 0], "<f4").tobytes()
    path = folder(tmp_path / "ad01", lines, a=bytes(16), short=bytes(15), nan=nan)
    with pytest.raises(ConfigError, match=said):
        read_data_set(path, FRAMES, Raw())


def test_windows_have_a_limit_together(tmp_path: Path) -> None:
    path = folder(tmp_path / "ad01", "big.bin,2,1,1048576,4\n", big=bytes(4 << 20))
    with pytest.raises(ConfigError, match=r"y_labels\.csv:1: 786433 windows of 1048576 bytes"):
        read_data_set(path, Taken(TensorSpec.contiguous("float32", (1, 1 << 18))), Raw())


def test_a_folder_without_labels_or_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*y_labels\.csv: No such file"):
        read_data_set(tmp_path, FRAMES, Raw())
    (tmp_path / "y_labels.csv").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8 text"):
        read_data_set(tmp_path, FRAMES, Raw())
    with pytest.raises(ConfigError, match=re.escape("--raw uint9: files have no such dtype")):
        Raw("uint9")


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({"inputs": np.zeros((2, 4))}, "has no array 'labels'"),
        ({"inputs": np.zeros((2, 4)), "labels": [0, 1], "lables": [0]}, "has an array 'lables'"),
        ({"inputs": np.zeros((2, 4)), "labels": [0.0, 1.0]}, "labels is .*float64"),
        ({"inputs": np.zeros((2, 4)), "labels": [0, 1, 1]}, "labels is .*inputs .*2, 4"),
        ({"inputs": np.zeros((0, 4)), "labels": np.zeros(0, int)}, "has no samples"),
        ({"inputs": np.zeros((2, 4)), "labels": [0, -3]}, r"labels\[1\] is -3"),
        ({"inputs": np.zeros((2, 5)), "labels": [0, 1]}, r"inputs is ndarray float64\[2, 5\], the model takes float32"),
        ({"inputs": np.zeros((2, 0, 4)), "labels": [0, 1]}, "no windows"),
        ({"inputs": np.full((2, 4), np.inf), "labels": [0, 1]}, "a number is not finite"),
        ({"inputs": np.zeros((2, 4)), "labels": [0, 1], "calibration": np.zeros((2, 3))}, "calibration is .*2, 3"),
        ({"inputs": np.array([["a"] * 4]), "labels": [0]}, "inputs is an array of <U1"),
        ({"inputs": np.array([[None] * 4]), "labels": [0]}, "holds Python objects"),
    ],
)
def test_what_is_wrong_with_an_archive(named: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        read_data_set(archive(tmp_path / "x.npz", **named), FRAMES, Raw())


def test_a_file_that_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(b"nothing of the kind, and long enough for an end")
    with pytest.raises(ConfigError, match="it is no zip file"):
        read_data_set(tmp_path / "x.npz", FRAMES, Raw())
    with pytest.raises(ConfigError, match=r"the arrays of an .npz have a dtype"):
        read_data_set(tmp_path / "x.npz", FRAMES, Raw("int8"))
