"""A bundle: one file with a program that failed, what it was given, what it gave, and the runner that ran it.

`NAME.hil.zip` replays without torch and ExecuTorch (`diagnose.replay`). docs/bundles.md is its specification. It may
come from a stranger: whatever is wrong with one is a ConfigError.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, ValidationError

from cortex_m_hil import flow
from cortex_m_hil.checks.inputs import misfits
from cortex_m_hil.checks.tolerance import Tolerance
from cortex_m_hil.errors import ConfigError, HarnessError, InfraError, VerdictError
from cortex_m_hil.flow.dut import LONGEST_EXECUTION, Dut
from cortex_m_hil.host import archives, arrays, files
from cortex_m_hil.program.dataflow import written
from cortex_m_hil.program.model import MAX_RANK
from cortex_m_hil.program.program import Intermediate, Program, References, ScratchNeed
from cortex_m_hil.program.schema import ValueKind
from cortex_m_hil.program.tensor import Array, HostTensor, TensorSpec
from cortex_m_hil.results import Ran
from cortex_m_hil.runner.build import ELF_LIMIT
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.model import Target
from cortex_m_hil.text import printable, printable_lines, shown

SCHEMA_VERSION: Final = 1  # of bundle.json: higher when an older reader would not understand it
SUFFIX: Final = ".hil.zip"
DESCRIPTION, PROGRAM, RUNNER, LOG = "bundle.json", "program.pte", "runner.elf", "log.txt"
_PACKAGES: Final = ("executorch-cortex-m-hil", "torch", "executorch")
_LOG_LIMIT: Final = 1 << 20  # characters, the newest
_SINGLE: Final = ("dialect", "quantized", "eager", "expected")  # references of which there is one run
_Part = TypeVar("_Part")


@dataclass(frozen=True)
class Task:
    """What a target is asked: to run a program on inputs, and how that is judged.

    `tolerance` is None where outputs are compared with nothing. `linted`, `excluded`: as `flow.run` takes them.
    """

    program: Program
    inputs: tuple[HostTensor, ...]
    tolerance: Tolerance | None = None
    linted: bool = True
    redzones: bool = False
    excluded: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Bundle:
    """What a file holds. `outputs` and `intermediates` are empty where they are not known.

    The program of `task` brings its references, its intermediates and its scratch needs, as `lower` would give it them.
    """

    description: Description
    task: Task
    references: References
    outputs: tuple[HostTensor, ...]
    intermediates: tuple[Intermediate, ...]
    elf: bytes = field(repr=False)
    log: str = field(repr=False)

    @property
    def judges(self) -> bool:
        """Whether outputs that a replay gives are compared with something, if they were to be."""
        return self.task.tolerance is None or any(getattr(self.references, name) is not None for name in _SINGLE)


# --- bundle.json -----------------------------------------------------------------------------------------

Line = Annotated[str, AfterValidator(printable)]
Lines = Annotated[str, AfterValidator(printable_lines)]
_Count = Annotated[int, Field(ge=0, lt=1 << 31)]
_Number = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Entry(_Strict):
    """A target's name, and what `targets.yaml` says of it: as data, nothing of it is ever executed."""

    name: Line
    entry: dict[str, JsonValue]

    @classmethod
    def of(cls, target: Target) -> Entry:
        return cls(name=target.name, entry=dict(target.entry))


class Machine(_Strict):
    """What ran, and with what. `engine` and `runtime_version` are empty where no runner has answered."""

    requested: Entry
    target: Entry
    fallback_reason: Line = ""
    shim: Line = ""
    engine: Line = ""
    runtime: Line
    runtime_version: Line = ""
    build_id: Line
    config: Line
    versions: dict[str, Line]


class Recorded(_Strict):
    """An error as values."""

    type: Line
    message: Lines
    operator: Line = ""
    details: tuple[tuple[Line, Lines], ...] = ()
    hint: Lines = ""

    @classmethod
    def of(cls, error: VerdictError) -> Recorded:
        return cls(
            type=type(error).__name__, message=error.message, operator=error.operator, details=error.details,
            hint=error.hint,
        )  # fmt: skip

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" + (f" [operator {self.operator}]" if self.operator else "")


class _Tensor(_Strict):
    """What a .npy file does not say of a tensor, and what it has to say."""

    dtype: str
    shape: Annotated[tuple[_Count, ...], Field(max_length=MAX_RANK)]
    dim_order: tuple[_Count, ...]
    kind: ValueKind = ValueKind.TENSOR

    @classmethod
    def of(cls, tensor: HostTensor) -> _Tensor:
        spec = tensor.spec
        return cls(dtype=spec.dtype, shape=spec.shape, dim_order=spec.dim_order, kind=spec.kind)

    def spec(self) -> TensorSpec:
        return TensorSpec(self.dtype, self.shape, self.dim_order, self.kind)


class _Tolerance(_Strict):
    qtol: int
    fake_quant_qtol: int | None
    atol: float
    rtol: float
    eager_sqnr: float

    @classmethod
    def of(cls, one: Tolerance) -> _Tolerance:
        """Its numbers may be NumPy's."""
        most = None if one.fake_quant_qtol is None else int(one.fake_quant_qtol)
        rest = {name: float(getattr(one, name)) for name in ("atol", "rtol", "eager_sqnr")}
        return cls(qtol=int(one.qtol), fake_quant_qtol=most, **rest)


class _Scratch(_Strict):
    instruction: _Count
    operator: Line
    value: _Count
    required: _Number
    planned: _Number
    elsewhere: tuple[tuple[Isa, _Number], ...]


class _Intermediate(_Strict):
    dialect: tuple[_Tensor, ...]
    quantized: bool
    eager: bool
    scale: float
    zero_point: _Number
    graph_quanta: _Number | None
    source: Line


class _References(_Strict):
    """How many outputs each reference has; None: there is no such reference."""

    dialect: _Count | None = None
    quantized: _Count | None = None
    eager: _Count | None = None
    expected: _Count | None = None
    disturbed: tuple[_Count, ...] = ()


class _Program(_Strict):
    name: Line
    isa: Isa | None
    nodes: tuple[Line, ...]
    size_without_redzones: _Count | None
    inputs: tuple[_Tensor, ...]
    scratch_isa: Isa
    scratch: tuple[_Scratch, ...] | None


class Judgement(_Strict):
    """How the program was judged; `seconds` are its limit."""

    tolerance: _Tolerance | None
    linted: bool
    redzones: bool
    excluded: tuple[Line, ...]
    seconds: Annotated[float, Field(gt=0, le=LONGEST_EXECUTION)]


class Description(_Strict):
    """bundle.json. The arrays are members of their own; here is which there are."""

    schema_version: int
    test: Line
    seed: Annotated[int, Field(ge=0)] | None
    rerun: Line
    machine: Machine
    verdict: Recorded
    judgement: Judgement
    program: _Program
    references: _References
    outputs: tuple[_Tensor, ...]
    intermediates: tuple[_Intermediate, ...]


class _Version(BaseModel):
    """Of a description, whatever else it says."""

    schema_version: int


# --- from a failure ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Failure:
    """A task that ended in a verdict, with what there was of the target; `bundle` makes a bundle of it.

    `references` is None where the task did not come so far.
    """

    task: Task
    error: VerdictError
    dut: Dut
    ran: Ran | None
    seconds: float
    log: str
    references: References | None = None
    outputs: tuple[HostTensor, ...] = ()
    intermediates: tuple[Intermediate, ...] = ()

    @classmethod
    def of(cls, dut: Dut, task: Task, error: VerdictError, checked: flow.Checked | None) -> Failure:
        ran, seconds = dut.last_ran(), dut.seconds
        if checked is None:
            return cls(task, error, dut, ran, seconds, error.log)
        result = checked.result
        return cls(task, error, dut, ran, seconds, result.log, checked.references, result.outputs)

    def bundle(self, test: str, *, seed: int | None = None, rerun: str = "") -> Bundle:
        """`test` names what failed, `rerun` is the command that runs it again. ConfigError if the ELF is gone."""
        scratch, references = _scratch(self.task.program, self.dut.target.isa), self._references()
        description = Description(
            schema_version=SCHEMA_VERSION,
            test=test,
            seed=seed,
            rerun=rerun,
            machine=self._machine(),
            verdict=Recorded.of(self.error),
            judgement=_judgement(self.task, self.seconds),
            program=_described(self.task, self.dut.target.isa, scratch),
            references=_counted(references),
            outputs=tuple(map(_Tensor.of, self.outputs)),
            intermediates=tuple(map(_of_intermediate, self.intermediates)),
        )
        elf, log = files.read(self.dut.elf.path, ELF_LIMIT), self.log[-_LOG_LIMIT:]
        return Bundle(description, self.task, references, self.outputs, self.intermediates, elf, log)

    def _references(self) -> References:
        """Also those that nothing was compared with yet: else a replay that gives outputs would pass whatever they are.

        None are known where they cannot be computed: this is the report of another error.
        """
        if self.references is not None:
            return self.references
        if self.task.tolerance is not None and self.task.program.reference is not None:
            with contextlib.suppress(Exception):
                return self.task.program.reference(self.task.inputs)
        return References()

    def _machine(self) -> Machine:
        resolved, elf, ran = self.dut.resolved, self.dut.elf, self.ran
        return Machine(
            requested=Entry.of(resolved.requested),
            target=Entry.of(resolved.target),
            fallback_reason=resolved.fallback_reason,
            shim=resolved.shim,
            engine=ran.engine if ran is not None else "",
            runtime=resolved.runtime,
            runtime_version=ran.runtime_version if ran is not None else "",
            build_id=elf.build_id,
            config=elf.config,
            versions=versions(),
        )


def versions() -> dict[str, str]:
    """Of Python and of the packages that are installed; nothing is imported for it."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _scratch(program: Program, isa: Isa) -> tuple[ScratchNeed, ...] | None:
    """None where the program's arguments are none: then lint refused it, and will again."""
    try:
        return flow.scratch_needs(program, isa)
    except HarnessError:
        return None


def _judgement(task: Task, seconds: float) -> Judgement:
    tolerance = None if task.tolerance is None else _Tolerance.of(task.tolerance)
    return Judgement(
        tolerance=tolerance, linted=task.linted, redzones=task.redzones, excluded=task.excluded, seconds=seconds
    )


def _described(task: Task, isa: Isa, scratch: Sequence[ScratchNeed] | None) -> _Program:
    return _Program(
        name=task.program.name,
        isa=task.program.isa,
        nodes=task.program.nodes,
        size_without_redzones=task.program.size_without_redzones,
        inputs=tuple(map(_Tensor.of, task.inputs)),
        scratch_isa=isa,
        scratch=None if scratch is None else tuple(_Scratch(**_shallow(one)) for one in scratch),
    )


def _of_intermediate(one: Intermediate) -> _Intermediate:
    has = {"quantized": one.quantized is not None, "eager": one.eager is not None}
    return _Intermediate(**{**_shallow(one), **has, "dialect": tuple(map(_Tensor.of, one.dialect))})


def _counted(references: References) -> _References:
    counts = {name: None if (one := getattr(references, name)) is None else len(one) for name in _SINGLE}
    return _References(**counts, disturbed=tuple(map(len, references.disturbed)))


def _shallow(value: Any) -> dict[str, Any]:
    return {one.name: getattr(value, one.name) for one in fields(value)}


# --- to a file ---------------------------------------------------------------------------------------------


def write(bundle: Bundle, path: Path) -> None:
    """Beside its place, then renamed: a reader sees the whole file, or the one before. InfraError if it cannot be."""
    data = pack(bundle)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            unfinished.write_bytes(data)
            unfinished.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                unfinished.unlink()
            raise
    except OSError as error:
        raise InfraError(f"cannot write {path}: {error.strerror}", hint="another --hil-bundles") from error


def pack(bundle: Bundle) -> bytes:
    """The bytes of the file; equal bundles give equal bytes."""
    described = json.dumps(bundle.description.model_dump(mode="json"), indent=1, ensure_ascii=True)
    members = {DESCRIPTION: described.encode(), PROGRAM: bundle.task.program.pte}
    members |= {RUNNER: bundle.elf, LOG: bundle.log.encode(errors="backslashreplace")}
    members |= _tensors("inputs", bundle.task.inputs)
    for name, outputs in _runs(bundle.references):
        members |= {_member(name, number): arrays.npy(one) for number, one in enumerate(outputs)}
    members |= _tensors("got", bundle.outputs)
    for number, one in enumerate(bundle.intermediates):
        members |= _tensors(f"intermediates/{number}/dialect", one.dialect)
        floats = {"quantized": one.quantized, "eager": one.eager}
        members |= {
            f"intermediates/{number}/{name}.npy": arrays.npy(array)
            for name, array in floats.items()
            if array is not None
        }
    return archives.pack(members)


def _runs(references: References) -> Iterator[tuple[str, tuple[Array, ...]]]:
    for name in _SINGLE:
        yield f"references/{name}", getattr(references, name) or ()
    for number, run in enumerate(references.disturbed):
        yield f"references/disturbed/{number}", run


def _tensors(folder: str, tensors: Sequence[HostTensor]) -> dict[str, bytes]:
    return {_member(folder, number): one.npy() for number, one in enumerate(tensors)}


def _member(folder: str, number: int) -> str:
    return f"{folder}/{number}.npy"


# --- from a file -------------------------------------------------------------------------------------------


def read(path: Path) -> Bundle:
    """The bundle in a file, whoever wrote it. ConfigError, with the member, for whatever is wrong."""
    return _Reader(path, archives.unpack(path)).bundle()


class _Reader:
    """The members of one file, each of which must be asked for."""

    def __init__(self, path: Path, members: Mapping[str, bytes]) -> None:
        self._path = path
        self._members = dict(members)

    def bundle(self) -> Bundle:
        description = self._describe(self._take(DESCRIPTION))
        program = self._program(description)
        references = self._references(description.references)
        intermediates = self._intermediates(program, description.intermediates)
        scratch = self._scratch(program, description.program)
        program = replace(
            program,
            inputs=self._tensors("inputs", description.program.inputs),
            reference=lambda _: references,
            intermediates=(lambda _: intermediates) if intermediates else None,
            scratch=scratch,
        )
        task = self._task(program, description.judgement)
        outputs = self._tensors("got", description.outputs)
        elf, log = self._take(RUNNER), self._take(LOG).decode(errors="replace")
        if self._members:
            raise self._error(f"{shown(min(self._members))} is no member of a bundle, or {DESCRIPTION} lacks it")
        return Bundle(description, task, references, outputs, intermediates, elf, printable_lines(log))

    def _error(self, what: str, hint: str = "pytest --hil-bundles DIR writes it anew") -> ConfigError:
        return ConfigError(f"{self._path}: {what}", hint=hint)

    def _understood(self, member: str, make: Callable[[], _Part]) -> _Part:
        """What `make` gives of a member; what it cannot be made of is an error of the file."""
        try:
            return make()
        except HarnessError as error:
            raise self._error(f"{member}: {error.message}") from None
        except (ValueError, OverflowError, TypeError, MemoryError, RecursionError) as error:
            raise self._error(f"{member}: {printable(str(error))[:300]}") from None

    def _take(self, name: str) -> bytes:
        if name not in self._members:
            raise self._error(f"it has no {name}", hint="is it a bundle, NAME.hil.zip?")
        return self._members.pop(name)

    def _describe(self, data: bytes) -> Description:
        try:
            version = _Version.model_validate_json(data).schema_version
            if version > SCHEMA_VERSION:
                what = f"its format is {version}, and this version of cortex_m_hil reads up to {SCHEMA_VERSION}"
                raise self._error(what, hint="a newer cortex_m_hil")
            return Description.model_validate_json(data)
        except ValidationError as error:
            worst = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, worst["loc"]))
            raise self._error(f"{DESCRIPTION}: {shown(place)}: {printable(worst['msg'])}") from None

    def _program(self, description: Description) -> Program:
        said = description.program
        program = self._understood(PROGRAM, partial(Program.from_bytes, self._take(PROGRAM), PROGRAM))
        if len(said.nodes) != len(program.file.instructions):
            raise self._error(f"{PROGRAM} has {len(program.file.instructions)} instructions, {len(said.nodes)} named")
        return replace(
            program, isa=said.isa, nodes=said.nodes, name=said.name, size_without_redzones=said.size_without_redzones
        )

    def _task(self, program: Program, judged: Judgement) -> Task:
        problem = self._understood("inputs", lambda: next(misfits(program, program.inputs), None))
        if problem is not None:
            raise self._error(f"inputs: {problem[0]}")
        said = judged.tolerance
        tolerance = None if said is None else self._understood(DESCRIPTION, lambda: Tolerance(**said.model_dump()))
        return Task(program, program.inputs, tolerance, judged.linted, judged.redzones, judged.excluded)

    def _scratch(self, program: Program, said: _Program) -> Callable[[Isa], tuple[ScratchNeed, ...]] | None:
        if said.scratch is None:
            return None
        needs = tuple(ScratchNeed(**_fields_of(one)) for one in said.scratch)
        for need in needs:
            classes = {said.scratch_isa, *(isa for isa, _ in need.elsewhere)}
            if need.instruction >= len(program.file.instructions) or classes != set(Isa):
                raise self._error(f"{DESCRIPTION}: program.scratch is not about this program")
        return lambda isa: tuple(need.on(isa, said.scratch_isa) for need in needs)

    def _tensors(self, folder: str, said: Sequence[_Tensor]) -> tuple[HostTensor, ...]:
        return tuple(self._tensor(_member(folder, number), one) for number, one in enumerate(said))

    def _tensor(self, member: str, said: _Tensor) -> HostTensor:
        return self._understood(member, lambda: _host_tensor(self._take(member), member, said.spec()))

    def _array(self, member: str) -> Array:
        return self._understood(member, lambda: arrays.parse_array(self._take(member), member, _numeric))

    def _run(self, folder: str, count: int) -> tuple[Array, ...]:
        return tuple(self._array(_member(folder, number)) for number in range(count))

    def _references(self, said: _References) -> References:
        counts = {name: getattr(said, name) for name in _SINGLE}
        single = {name: None if n is None else self._run(f"references/{name}", n) for name, n in counts.items()}
        disturbed = [self._run(f"references/disturbed/{number}", n) for number, n in enumerate(said.disturbed)]
        wanted = _shapes(single["quantized"] or ())
        if any(_shapes(run) != wanted for run in disturbed):
            raise self._error("references/disturbed: their shapes are not those of references/quantized")
        return References(**single, disturbed=tuple(disturbed))

    def _intermediates(self, program: Program, said: Sequence[_Intermediate]) -> tuple[Intermediate, ...]:
        if said and len(said) != len(program.file.instructions):
            raise self._error(f"{len(said)} intermediates for {len(program.file.instructions)} instructions")
        return tuple(self._intermediate(program, number, one) for number, one in enumerate(said))

    def _intermediate(self, program: Program, number: int, said: _Intermediate) -> Intermediate:
        folder = f"intermediates/{number}"
        dialect = self._tensors(f"{folder}/dialect", said.dialect)
        floats = {
            name: self._array(f"{folder}/{name}.npy") if getattr(said, name) else None
            for name in ("quantized", "eager")
        }
        places = written(program.file, program.file.instructions[number])
        specs = [program.file.values[place].spec for place in places]
        if dialect and [one.spec for one in dialect] != specs:
            raise self._error(f"{folder}: it is not what instruction {number} writes")
        if any(one is not None and (not dialect or one.shape != dialect[0].spec.shape) for one in floats.values()):
            raise self._error(f"{folder}: arrays of other shapes than the value's")
        return Intermediate(**{**_fields_of(said), "dialect": dialect, **floats})


def _fields_of(said: BaseModel) -> dict[str, Any]:
    return {name: getattr(said, name) for name in type(said).model_fields}


def _shapes(outputs: Sequence[Array]) -> list[tuple[int, ...]]:
    return [one.shape for one in outputs]


def _numeric(dtype: Any, shape: tuple[int, ...]) -> None:
    if dtype.kind not in "biuf":
        raise ValueError(f"dtype {dtype} is no number")


def _host_tensor(data: bytes, member: str, spec: TensorSpec) -> HostTensor:
    """ValueError where the array is none of that spec."""

    def check(dtype: Any, shape: tuple[int, ...]) -> None:
        _numeric(dtype, shape)
        if shape != spec.shape or (dtype.name != spec.dtype and spec.kind is ValueKind.TENSOR):
            raise ValueError(f"{dtype}{list(shape)}, and {DESCRIPTION} says {spec}")

    array = arrays.parse_array(data, member, check)
    if spec.kind is ValueKind.TENSOR:
        return HostTensor(spec, HostTensor.from_array(array, spec.dim_order).data)
    found = HostTensor.from_scalar(array.item())
    if found.spec != spec:
        raise ValueError(f"{array.dtype}, and {DESCRIPTION} says {spec}")
    return found
