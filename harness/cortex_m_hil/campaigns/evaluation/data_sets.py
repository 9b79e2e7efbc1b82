"""Labelled samples in files that a user names: a folder in the layout of MLPerf Tiny's runner, or an `.npz`.

The layout, the files' dtypes and the least accuracies are those of benchmark/evaluation/datasets/README.md in
mlcommons/tiny; its runner cuts a file into windows as `_windows` does (benchmark/runner/script.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from cortex_m_hil.checks.input_checks import InputQuantizer, Taken, converted
from cortex_m_hil.errors import ConfigError, did_you_mean
from cortex_m_hil.errors.text import shown
from cortex_m_hil.host import archives, arrays, files
from cortex_m_hil.program.tensor import Array, TensorSpec

LABELS: Final = "y_labels.csv"
RAW: Final = ("uint8", "int8", "float32")
MEMBERS: Final = ("inputs", "labels", "calibration")  # arrays of an .npz; the last one may be missing
CALIBRATION: Final = 100  # samples that are used for calibration at most, if the data has no calibration inputs
CLASSES: Final = 100_000
_LABELS_LIMIT: Final = 16 << 20  # bytes
_FILE_LIMIT: Final = 64 << 20
_INPUTS_LIMIT: Final = 1 << 30  # bytes of all inputs; overlapping windows are counted in full
_FORMAT: Final = "file name,number of classes,class; for windows also their width and stride in bytes"


@dataclass(frozen=True)
class Benchmark:
    """A task of MLPerf Tiny: the dtype of its files, its least accuracy, and its classes that are no event."""

    raw: str
    min_top1: float | None = None
    min_auc: float | None = None
    negative: tuple[int, ...] = ()


# Keys are the runner's names of folders. The last two classes of kws01 are silence and unknown.
BENCHMARKS: Final = {
    "vww01": Benchmark("uint8", min_top1=0.80, negative=(0,)),
    "ic01": Benchmark("uint8", min_top1=0.85),
    "kws01": Benchmark("int8", min_top1=0.90, negative=(10, 11)),
    "ad01": Benchmark("float32", min_auc=0.85),
}


@dataclass(frozen=True)
class Raw:
    """The meaning of numbers in files: an input is ``(number - zero_point) * scale``.

    Attributes:
        dtype: the dtype of raw files; "" for files that name their dtype.
        scale: the step between two numbers.
        zero_point: the number that stands for 0.
        quantizer: converts floats for an integer input, or refuses them where that was not asked for.
    """

    dtype: str = ""
    scale: float = 1.0
    zero_point: int = 0
    quantizer: InputQuantizer = field(default_factory=partial(InputQuantizer, is_asked=False))

    def __post_init__(self) -> None:
        if self.dtype and self.dtype not in RAW:
            raise ConfigError(f"--raw {self.dtype}: files have no such dtype", hint=did_you_mean(self.dtype, RAW))

    @property
    def is_computed(self) -> bool:
        """Tell whether inputs differ from the numbers in the files."""
        return (self.scale, self.zero_point) != (1.0, 0)


@dataclass(frozen=True, eq=False)
class Sample:
    """A labelled sample of one or several windows.

    Attributes:
        label: the number of the sample's class.
        windows: inputs of the model, [number of windows, *shape of the input]; most samples have one.
    """

    label: int
    windows: Array


@dataclass(frozen=True, eq=False)
class DataSet:
    """Samples to evaluate on, and inputs to calibrate with.

    Attributes:
        calibration: inputs of the model.
        own_calibration: whether the data has separate inputs for calibration; if not, samples are used.
        benchmark: the MLPerf Tiny task that the data belongs to; None: another data set.
        classes: the number of classes that the data names; 0 where it names none.
        input_note: a sentence if integers are converted to floats without a scale; else "".
    """

    name: str
    samples: tuple[Sample, ...]
    calibration: tuple[Array, ...] = field(repr=False)
    own_calibration: bool
    benchmark: Benchmark | None = None
    classes: int = 0
    input_note: str = ""

    @property
    def labels(self) -> list[int]:
        return [sample.label for sample in self.samples]

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 of labels, samples and calibration inputs, which determine all results."""
        found = hashlib.sha256()
        for sample in self.samples:
            found.update(f"{sample.label} {sample.windows.dtype} {sample.windows.shape} ".encode())
            found.update(sample.windows.tobytes())
        for one in self.calibration:
            found.update(one.tobytes())
        return found.hexdigest()

    @cached_property
    def differ(self) -> bool:
        """Tell whether the inputs are not all equal."""
        first = self.samples[0].windows[0]
        return any(not np.array_equal(window, first) for sample in self.samples for window in sample.windows)


def check_path(path: Path) -> None:
    """Raise ConfigError unless a path is a folder or an `.npz`; its content is not read."""
    if path.is_dir() or (path.suffix == ".npz" and path.is_file()):
        return
    problem = "there is no such folder or file" if not path.exists() else "no folder, and no .npz"
    raise ConfigError(f"--data {path}: {problem}", hint=f"a folder with a {LABELS}, or an .npz (hil docs evaluate)")


def read_data_set(path: Path, taken: Taken, raw: Raw, limit: int = 0, *, in_order: bool = False) -> DataSet:
    """Read the data in a folder or an `.npz`, as inputs of a model. Numbers are changed only by the formula of `raw`.

    Args:
        path: the folder or the `.npz`.
        taken: the spec of the model's input.
        raw: the meaning of the numbers.
        limit: how many samples are taken, 0 for all: evenly spread, since files are often sorted by class.
        in_order: True takes the first `limit` samples instead.

    Raises:
        ConfigError: something is wrong with the files; the message has file and line.
    """
    found = _of_folder if path.is_dir() else _of_archive
    data = found(path, taken, raw, lambda number: _chosen(number, limit, in_order=in_order))
    if data.calibration:
        return data
    few = [data.samples[number] for number in _chosen(len(data.samples), CALIBRATION, in_order=False)]
    own = tuple(sample.windows[number % len(sample.windows)] for number, sample in enumerate(few))
    return replace(data, calibration=own, own_calibration=False)


def _chosen(number: int, limit: int, *, in_order: bool) -> Sequence[int]:
    if not limit or limit >= number:
        return range(number)
    return range(limit) if in_order else [place * number // limit for place in range(limit)]


# --- data in a folder ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Row:
    """A line of y_labels.csv.

    Attributes:
        place: file and line, for messages.
        width: bytes of a window; 0 where the whole file is the input.
        stride: bytes from the beginning of a window to the next window's; 0 where the whole file is the input.
    """

    place: str
    file: str
    classes: int
    label: int
    width: int = 0
    stride: int = 0


def _of_folder(folder: Path, taken: Taken, raw: Raw, chosen: Any) -> DataSet:
    benchmark = BENCHMARKS.get(folder.resolve().name)
    rows = list(_rows(folder / LABELS))
    if not rows:
        raise ConfigError(f"{folder / LABELS}: there is no sample in it", hint=_FORMAT)
    picked = [rows[number] for number in chosen(len(rows))]
    dtype = _dtype(folder, picked[0], taken.spec, raw.dtype or (benchmark.raw if benchmark else ""))
    samples, total = [], 0
    for row in picked:
        numbers = np.frombuffer(_windows(folder, row, taken.spec.numel * dtype.itemsize, dtype), dtype)
        total += numbers.nbytes
        if total > _INPUTS_LIMIT:
            raise ConfigError(f"{row.place}: more than {_INPUTS_LIMIT} bytes of inputs", hint="--limit takes fewer")
        samples.append(Sample(row.label, _inputs(numbers, taken, raw, f"{row.place}: {row.file}")))
    note = _input_note(taken, raw, {"samples": dtype})
    return DataSet(folder.resolve().name, tuple(samples), (), False, benchmark, rows[0].classes, note)


def _rows(path: Path) -> Iterator[_Row]:
    try:
        lines = files.read(path, _LABELS_LIMIT).decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text", hint=_FORMAT) from error
    classes = 0
    for number, line in enumerate(lines, 1):
        if line.strip():
            row = _row(f"{path}:{number}", [word.strip() for word in line.split(",")])
            classes = classes or row.classes
            if row.classes != classes:
                raise ConfigError(f"{row.place}: {row.classes} classes, lines before have {classes}", hint=_FORMAT)
            yield row


def _row(place: str, words: list[str]) -> _Row:
    if len(words) not in (3, 5):
        raise ConfigError(f"{place}: {len(words)} fields, 3 or 5 are wanted", hint=_FORMAT)
    name, numbers = words[0], [_number(place, word) for word in words[1:]]
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise ConfigError(f"{place}: {shown(name)} is no file of this folder", hint=f"its name beside {LABELS}")
    row = _Row(place, name, *numbers)
    if not 2 <= row.classes <= CLASSES or not row.label < row.classes:
        what = f"{place}: class {row.label} of {row.classes}"
        raise ConfigError(what, hint=f"at least 2 classes, at most {CLASSES}, numbered from 0")
    if len(words) == 5 and not (row.width and row.stride):
        raise ConfigError(f"{place}: windows of {row.width} bytes every {row.stride}", hint="both are 1 or more")
    return row


def _number(place: str, word: str) -> int:
    if not (word.isascii() and word.isdigit() and len(word) <= 9):
        raise ConfigError(f"{place}: {shown(word)} is no number from 0", hint=_FORMAT)
    return int(word)


def _dtype(folder: Path, row: _Row, spec: TensorSpec, said: str) -> np.dtype[Any]:
    """Return the dtype of the files' numbers: as `said`, or float32 if the first file has 4 bytes for each element.

    Raises:
        ConfigError: the dtype cannot be known, since bytes may be signed or unsigned.
    """
    size = row.width or len(_content(folder, row))
    if not said and size == spec.numel * 4:
        said = "float32"
    if not said:
        what = f"{row.place}: {row.file}: is it uint8 or int8? The folder's name is none of {', '.join(BENCHMARKS)}"
        raise ConfigError(what, hint=f"--raw {' or --raw '.join(RAW)}")
    return np.dtype(said).newbyteorder("<")


def _windows(folder: Path, row: _Row, size: int, dtype: np.dtype[Any]) -> bytes:
    """Return the content of a file, or its windows one after the other, each of the `size` bytes that an input takes.

    Raises:
        ConfigError: the file or its windows do not have the size of an input.
    """
    data = _content(folder, row)
    wanted = f"the model's input takes {size} bytes of {dtype.name}"
    hint = "is it the data of this model? --raw says what the numbers are"
    if not row.width:
        if len(data) != size:
            raise ConfigError(f"{row.place}: {row.file} has {len(data)} bytes, {wanted}", hint=hint)
        return data
    if row.width != size or row.stride % dtype.itemsize:
        raise ConfigError(f"{row.place}: windows of {row.width} bytes every {row.stride}, {wanted}", hint=hint)
    if len(data) < size:
        raise ConfigError(f"{row.place}: {row.file} has {len(data)} bytes, a window {size}", hint=hint)
    starts = range(0, len(data) - size + 1, row.stride)
    if len(starts) * size > _INPUTS_LIMIT:
        what = f"{row.place}: {len(starts)} windows of {size} bytes; at most {_INPUTS_LIMIT} bytes are taken"
        raise ConfigError(what, hint="is the stride right?")
    return b"".join(data[at : at + size] for at in starts)


def _content(folder: Path, row: _Row) -> bytes:
    try:
        return files.read(folder / row.file, _FILE_LIMIT)
    except ConfigError as error:
        raise ConfigError(f"{row.place}: {error.message}", hint="the file of each line lies in this folder") from error


def _inputs(numbers: Array, taken: Taken, raw: Raw, place: str) -> Array:
    """Return windows of raw numbers as inputs.

    Inputs of 4 dimensions are stored channels-last in files, like pixels.
    """
    shape = taken.spec.shape
    if len(shape) == 4:
        stored = numbers.reshape(-1, shape[0], shape[2], shape[3], shape[1])
        return _values(stored.transpose(0, 1, 4, 2, 3), taken, raw, place)
    return _values(numbers.reshape(-1, *shape), taken, raw, place)


def _values(numbers: Array, taken: Taken, raw: Raw, place: str) -> Array:
    """Return the model's inputs for numbers of a file, by the formula of `raw`, in the model's dtype.

    Raises:
        ConfigError: a number is not finite, or the model's dtype cannot represent it.
    """
    if raw.is_computed:
        wide = converted(numbers, Taken(TensorSpec.contiguous("float64", numbers.shape)), place)
        numbers = (wide - raw.zero_point) * raw.scale
    if numbers.dtype.kind == "f" and not np.isfinite(numbers).all():
        what = f"{place}: a number is not finite"
        raise ConfigError(what, hint="is --raw right?" if raw.dtype else "leave out samples with NaN or infinity")
    try:
        return converted(numbers, taken, place, is_computed=raw.is_computed, quantizer=raw.quantizer)
    except ConfigError as error:
        if (numbers.dtype.name, taken.spec.dtype) == ("uint8", "int8"):
            error.hint = "--zero-point 128 turns uint8 into int8"
        raise


def _input_note(taken: Taken, raw: Raw, dtypes: dict[str, np.dtype[Any]]) -> str:
    """Return a sentence if integers are converted to floats without a scale; else "".

    Args:
        taken: the spec of the model's input.
        raw: the meaning of the numbers.
        dtypes: dtypes by the name of the kind of numbers; of kinds with the same dtype the first is named.
    """
    if raw.is_computed or np.dtype(taken.spec.dtype).kind != "f":
        return ""
    words = {dtype.name: word for word, dtype in reversed(dtypes.items()) if dtype.kind in "iu"}
    told = " and ".join(f"{dtype} {word}" for dtype, word in reversed(words.items()))
    rest = f"are taken as the {taken.spec.dtype} numbers they are; --scale and --zero-point turn quanta into values"
    return f"{told} {rest}" if told else ""


# --- data in an .npz ----------------------------------------------------------------------------------------------


def _of_archive(path: Path, taken: Taken, raw: Raw, chosen: Any) -> DataSet:
    if raw.dtype:
        raise ConfigError(f"--raw {raw.dtype}: the arrays of an .npz have a dtype", hint=f"{path} without --raw")
    found = {name.removesuffix(".npy"): data for name, data in archives.unpack(path).items()}
    for name in MEMBERS[:2]:
        if name not in found:
            raise ConfigError(f"{path} has no array {name!r}", hint="numpy.savez(file, inputs=…, labels=…)")
    for name in found:
        if name not in MEMBERS:
            raise ConfigError(f"{path} has an array {shown(name)}", hint=did_you_mean(name, MEMBERS))
    inputs, labels = _array(path, "inputs", found), _array(path, "labels", found)
    if not labels.size:
        raise ConfigError(f"{path} has no samples", hint="an input and a label for each in inputs and labels")
    if labels.dtype.kind not in "iu" or labels.shape != inputs.shape[:1]:
        what = f"{path}: labels is {shown(labels)}, inputs {shown(inputs)}"
        raise ConfigError(what, hint="labels are whole numbers, one for each sample")
    wrong = np.flatnonzero((labels < 0) | (labels >= CLASSES))
    if wrong.size:
        what = f"{path}: labels[{wrong[0]}] is {labels[wrong[0]]}"
        raise ConfigError(what, hint=f"classes are numbered from 0, at most {CLASSES}")

    def windows(name: str, numbers: Array, number: int) -> Array:
        return _values(_shaped(path, name, numbers, number, taken.spec), taken, raw, f"{path}: {name}[{number}]")

    samples = [Sample(int(labels[number]), windows("inputs", inputs, number)) for number in chosen(len(labels))]
    more = _array(path, "calibration", found) if "calibration" in found else inputs[:0]
    note = _input_note(taken, raw, {"samples": inputs.dtype, "calibration inputs": more.dtype})
    own = [window for number in range(len(more)) for window in windows("calibration", more, number)]
    return DataSet(path.name, tuple(samples), tuple(own), bool(own), input_note=note)


def _array(path: Path, name: str, found: dict[str, bytes]) -> Array:
    def check(dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        if dtype.kind not in "iuf" or not shape:
            what = f"{path}: {name} is an array of {dtype} and shape {list(shape)}"
            raise ConfigError(what, hint="numbers, the first dimension that of the samples")

    return arrays.parse_array(found[name], f"{path}: {name}", check)


def _shaped(path: Path, name: str, inputs: Array, number: int, spec: TensorSpec) -> Array:
    """Return the windows of one sample, [windows, *shape]. The model's first dimension may be missing if it is 1.

    Raises:
        ConfigError: the shape differs from the model's input, or there are no windows.
    """
    inner = spec.shape[1:] if spec.shape[:1] == (1,) else spec.shape
    if inputs.shape[1:] not in (inner, spec.shape) and inputs.shape[2:] not in (inner, spec.shape):
        what = f"{path}: {name} is {shown(inputs)}, the model takes {spec}"
        raise ConfigError(what, hint="[samples, …] as the model's input is, or [samples, windows, …]")
    windows: Array = inputs[number].reshape(-1, *spec.shape)
    if not len(windows):
        raise ConfigError(f"{path}: {name} is {shown(inputs)}: no windows", hint="at least one for each sample")
    return windows
