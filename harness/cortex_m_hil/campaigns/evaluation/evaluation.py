"""Evaluate how accurate a model is on data.

Samples are run on one target after the other, and by the reference models.
"""

from __future__ import annotations

import hashlib
import math
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final

from cortex_m_hil import flow
from cortex_m_hil.campaigns import store
from cortex_m_hil.campaigns.evaluation.accuracy import predicted_class, squared_error
from cortex_m_hil.campaigns.evaluation.data_sets import DataSet, Sample
from cortex_m_hil.campaigns.planner import Planner
from cortex_m_hil.campaigns.store import Run
from cortex_m_hil.checks.comparison.quanta import quanta_apart
from cortex_m_hil.checks.input_checks import InputQuantizer, Taken
from cortex_m_hil.errors import ConfigError, InfraError, VerdictError
from cortex_m_hil.host import files
from cortex_m_hil.lowering import LoweringOptions, export, lower
from cortex_m_hil.lowering.named_modules import load_named_module
from cortex_m_hil.lowering.options import DEFAULT, Io
from cortex_m_hil.program.bpte_file import SUFFIXES, read_program
from cortex_m_hil.program.dataflow import Quantization
from cortex_m_hil.program.io_quantization import dequantized, input_quantization, output_quantization
from cortex_m_hil.program.program import Program, References
from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.schema import ValueKind
from cortex_m_hil.program.tensor import Array, HostTensor
from cortex_m_hil.runner import launchers
from cortex_m_hil.targets.target import Target

WINDOWS: Final = 64  # inputs of one run; more only if a single sample has more
REFERENCES: Final = ("dialect", "quantized", "eager")
TARGET: Final = "target"
DONE, INFRA = "done", "infra"  # verdicts of runs; others are the class of an error, after which the target is left


class ModelTask(str, Enum):
    """The task of a model, by the shape of its output."""

    CLASSES = "classes"  # the largest output is the answer
    ANOMALY = "anomaly"  # the model reconstructs its input: a clip's score is the mean squared error over its windows


@dataclass(frozen=True)
class EvaluationPlan(store.Plan):
    """The plan of an evaluation; thresholds are no part of it.

    Attributes:
        model: the model's name as the user gave it.
        data: the path of the data as the user gave it.
        samples: the number of samples.
        digest: the digest of the samples and the calibration inputs.
        content: by target, a digest of everything else that determines its outputs: program, runner, simulator.
    """

    model: str
    data: str
    samples: int
    digest: str
    content: Mapping[str, str]


class EvaluatedModel:
    """A `.pte` or `.bpte`, or a module by name, which is lowered for each ISA class. It has one input, a tensor."""

    def __init__(self, name: str, layout: str = "", method: str = "", io: Io = DEFAULT.io) -> None:
        """Load a program, or export a module.

        Args:
            name: the name of a file or a module.
            layout: the layout of the module; "": the default one.
            method: the method of the program; "": `forward`, or the only one that computes.
            io: the dtype of a lowered module's inputs and outputs; with int8 the data's floats are quantised by the
                program's scale.

        Raises:
            ConfigError: there is no such file or module, its inputs are not supported, or there is no such layout or
                method.
        """
        self.name, self._io = name, io
        self._programs: dict[object, Program] = {}  # programs by ISA class and banks
        self._file: Program | None = None
        if name.endswith(SUFFIXES):
            if layout:
                raise ConfigError(f"--layout {layout}: {name} is lowered already", hint="leave --layout out")
            self._file = read_program(files.read(Path(name), files.PROGRAM_LIMIT), name, method)
            inputs = [Taken.of_input(self._file.file, number) for number in range(len(self._file.file.inputs))]
        else:
            if method:
                raise ConfigError(f"--method {method}: {name} is lowered to one method", hint="leave --method out")
            chosen: Any = layout or DEFAULT.layout
            self._exported = export(*load_named_module(name), chosen)
            inputs = _taken(self._exported.inputs)
        if len(inputs) != 1 or inputs[0].spec.kind is not ValueKind.TENSOR:
            what = f"{name} takes ({', '.join(map(str, inputs))})"
            raise ConfigError(what, hint="data are for a model with one input, a tensor")
        self.taken = inputs[0]

    @property
    def has_references(self) -> bool:
        return self._file is None

    def program(self, target: Target, data: DataSet) -> Program:
        """Return the program for a target, calibrated with the data's calibration inputs.

        Raises:
            LoweringError: the module cannot be lowered.
        """
        if self._file is not None:
            return self._file
        key = target.isa, target.board.memory.banks
        if key not in self._programs:
            samples = [_as_torch(one) for one in data.calibration]
            layout = self._exported.layout
            options = LoweringOptions(calibration=samples, layout=layout, banks=key[1], io=self._io)
            self._programs[key] = lower(self._exported, isa=target.isa, options=options, name=self.name)
        return self._programs[key]


def count_saturation(program: Program, data: DataSet, quantizer: InputQuantizer) -> None:
    """Let a quantizer count how many of the data's floats saturate, if the program of a module has int8 inputs."""
    asked = replace(quantizer, is_asked=True)
    for sample in data.samples:
        for window in sample.windows:
            flow.arrange(program, (window,), asked)
    quantizer.values, quantizer.saturated = asked.values, asked.saturated


def _taken(inputs: Any) -> list[Taken]:
    from cortex_m_hil.lowering.reference import to_host

    return [Taken(to_host(one).spec) for one in inputs]


def _as_torch(window: Array) -> tuple[Any, ...]:
    from cortex_m_hil.lowering.reference import to_torch

    return (to_torch(HostTensor.from_array(window)),)


def task_of(program: Program, data: DataSet) -> ModelTask:
    """Return the task of a program on data.

    Raises:
        ConfigError: the program's output does not fit the data.
    """
    first = program.file.output_specs()[0]
    windows = max(len(sample.windows) for sample in data.samples)
    if _gives_its_input_back(program.file):
        if max(data.labels) > 1:
            what = f"{data.name} has {max(data.labels) + 1} classes, and {program.name} is an autoencoder"
            raise ConfigError(what, hint="for an autoencoder there are two classes: 0 is normal, 1 is an anomaly")
        return ModelTask.ANOMALY
    if windows > 1:
        what = f"a sample of {data.name} has {windows} windows, and {program.name} is no autoencoder"
        raise ConfigError(what, hint="windows are for autoencoders, whose output has the shape of the input")
    highest = max(*data.labels, data.classes - 1)
    if first.numel < 2 or highest >= first.numel:
        what = f"{program.name} has {first.numel} classes, {data.name} has class {highest}"
        raise ConfigError(what, hint="the first output has an element for each class")
    return ModelTask.CLASSES


def _gives_its_input_back(file: PteFile) -> bool:
    """Tell whether input and first output have the same shape, and each is float or quantised with a known scale."""
    [given], first = file.input_specs(), file.output_specs()[0]
    quantised = (given, input_quantization(file, 0)), (first, output_quantization(file, 0))
    return given.shape == first.shape and all(one.dtype == "float32" or by is not None for one, by in quantised)


def _as_numbers(values: Array, by: Quantization | None) -> Array:
    """Return quanta as the numbers that they represent; floats are unchanged."""
    return values if by is None or values.dtype.kind == "f" else dequantized(values, by)


@dataclass(frozen=True)
class Job:
    """A target, with the program to evaluate on it.

    Attributes:
        dut: the target.
        program: the program.
        linted: whether to lint; False runs a program even if it does not fit.
        is_of_module: whether the program was lowered in this evaluation, from a module whose inputs are the unchanged
            data.
    """

    dut: flow.Dut
    program: Program
    linted: bool
    is_of_module: bool

    @property
    def has_one_answer(self) -> bool:
        """Tell whether all targets must compute the same bits: outputs are quantised, and nothing is in float."""
        data = self.program.file.dataflow
        known = enumerate(data.output_quantizations)
        in_integers = all(quantization or number in data.quantised_outputs for number, quantization in known)
        return in_integers and not self.program.partition.left_in_float

    @property
    def content(self) -> str:
        """Return a digest of everything that determines the outputs, except the inputs."""
        parts = self.dut.elf.build_id, launchers.engine(self.dut.target), str(self.linted)
        return hashlib.sha256(self.program.identity + "\n".join(parts).encode()).hexdigest()


class Evaluation(Planner):
    """The planner of an evaluation, which also carries out the runs; use it in `with`.

    One target at a time is running.
    """

    def __init__(self, jobs: Mapping[str, Job], data: DataSet, task: ModelTask) -> None:
        self._jobs, self._data, self._task = jobs, data, task
        most = max(len(sample.windows) for sample in data.samples)
        step, total = max(1, WINDOWS // most), len(data.samples)
        self._parts = [(first, min(first + step, total)) for first in range(0, total, step)]
        self._unreachable: set[str] = set()  # targets that this process has given up; a later process tries them again
        self._linted: set[str] = set()
        self._up = ""

    def __enter__(self) -> Evaluation:
        return self

    def __exit__(self, *_: object) -> None:
        self._switch_to("")

    def _keys_left(self, runs: Sequence[Run]) -> list[str]:
        """Return the keys of samples that have no result yet."""
        done = {run.key for run in runs if run.verdict == DONE}
        ended = {target_of(run) for run in runs if run.verdict not in (DONE, INFRA)}
        names = [name for name in self._jobs if name not in ended]
        keys = [f"{name} {first}-{last}" for name in names for first, last in self._parts]
        return [key for key in keys if key not in done]

    def left(self, runs: Sequence[Run]) -> int:
        return len(self._keys_left(runs))

    def next(self, runs: Sequence[Run], under_way: Collection[str] = ()) -> str | None:
        return next((key for key in self._keys_left(runs) if key.partition(" ")[0] not in self._unreachable), None)

    def carry_out(self, key: str) -> Run:
        name, _, part = key.partition(" ")
        first, last = map(int, part.split("-"))
        self._switch_to(name)
        began = time.monotonic()
        try:
            figures = self._figures(name, self._data.samples[first:last])
        except VerdictError as error:
            return _ended(key, type(error).__name__, error, began)
        except InfraError as error:
            self._unreachable.add(name)
            return _ended(key, INFRA, error, began)
        return Run(key, DONE, "", time.monotonic() - began, time.time(), {"first": first, **figures})

    def _switch_to(self, name: str) -> None:
        if name != self._up and self._up:
            self._jobs[self._up].dut.close()
        self._up = name

    def _figures(self, name: str, samples: Sequence[Sample]) -> dict[str, Any]:
        """Run samples on a target, and return figures of each by their names in `evaluation_report.Results`."""
        job = self._jobs[name]
        program = job.program
        quantizer = InputQuantizer(job.is_of_module)
        inputs = [flow.arrange(program, (window,), quantizer) for sample in samples for window in sample.windows]
        began = time.monotonic()
        outputs = list(flow.stream(job.dut, program, inputs, linted=job.linted and name not in self._linted))
        seconds = time.monotonic() - began
        self._linted.add(name)
        found = program.undisturbed(inputs) if program.undisturbed is not None else [References()] * len(inputs)
        given = [[one.array() for one in of_one] for of_one in outputs]
        answers = {TARGET: self._answers(program, samples, [of_one[0] for of_one in given])}
        quanta: dict[str, list[int] | None] = {}
        for source in REFERENCES:
            known = [getattr(references, source) for references in found]
            if all(one is not None for one in known):
                answers[source] = self._answers(program, samples, [one[0] for one in known])
                quanta[source] = _quanta(program, samples, given, known)
        crcs = [zlib.crc32(b"".join(one.data for one in of_one)) for of_one in outputs]
        digests = [" ".join(f"{crc:08x}" for crc in group) for group in _by_sample(samples, crcs)]
        return {"answers": answers, "quanta": quanta, "digests": digests, "seconds": seconds}

    def _answers(self, program: Program, samples: Sequence[Sample], outputs: Sequence[Array]) -> list[Any]:
        """Return each sample's class or score; where an output is not finite, `accuracy.NONE` or None."""
        if self._task is ModelTask.CLASSES:
            return [predicted_class(output) for output in outputs]
        taken, given = input_quantization(program.file, 0), output_quantization(program.file, 0)
        inputs = [_as_numbers(window, taken) for sample in samples for window in sample.windows]
        outputs = [_as_numbers(output, given) for output in outputs]
        errors = [squared_error(output, window) for output, window in zip(outputs, inputs, strict=True)]
        means = [sum(group) / len(group) for group in _by_sample(samples, errors)]
        return [one if math.isfinite(one) else None for one in means]


def _ended(key: str, verdict: str, error: VerdictError | InfraError, began: float) -> Run:
    """Return the run of a key that an error ended; its figures are only the error's description."""
    figures = {"told": error.describe()}
    return Run(key, verdict, error.message, time.monotonic() - began, time.time(), figures)


def _quanta(
    program: Program, samples: Sequence[Sample], given: Sequence[Sequence[Array]], known: Sequence[Sequence[Array]]
) -> list[int] | None:
    """Return each sample's largest distance, over its windows and all outputs, in quanta.

    None where nothing is quantised.
    """
    far = [list(_distances(program, *both)) for both in zip(given, known, strict=True)]
    if not all(far):
        return None
    return [max(group) for group in _by_sample(samples, [max(one) for one in far])]


def _distances(program: Program, given: Sequence[Array], known: Sequence[Array]) -> Iterator[int]:
    for number, (output, wanted) in enumerate(zip(given, known, strict=True)):
        apart = quanta_apart(program.file, number, output, wanted)
        if apart is not None:
            yield int(apart.max(initial=0))


def _by_sample(samples: Sequence[Sample], values: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield for each sample the values of its windows."""
    at = 0
    for sample in samples:
        yield list(values[at : at + len(sample.windows)])
        at += len(sample.windows)


def target_of(run: Run) -> str:
    return run.key.partition(" ")[0]


Opened = Callable[[str], flow.Dut]


def jobs_of(
    names: Sequence[str], opened: Opened, model: EvaluatedModel, data: DataSet, *, linted: bool
) -> dict[str, Job]:
    """Open the targets, build their runners, lower the model for each, and return the jobs by target.

    Raises the errors of these steps.
    """
    duts = {name: opened(name) for name in names}
    return {name: Job(dut, model.program(dut.target, data), linted, model.has_references) for name, dut in duts.items()}
