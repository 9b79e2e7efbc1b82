"""Writes bundles to files `NAME.hil.zip`, and reads them, even from untrusted sources.

Specification: docs/failures.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from cortex_m_hil.checks.comparison.tolerance import Tolerance
from cortex_m_hil.checks.input_checks import input_misfits
from cortex_m_hil.diagnose.budgets import Budget
from cortex_m_hil.diagnose.failure_bundle import SINGLE, Bundle, BundleTask
from cortex_m_hil.diagnose.failure_bundle_schema import (
    SCHEMA_VERSION,
    BundleJudgement,
    Description,
    IntermediateEntry,
    ProgramEntry,
    ReferencesEntry,
    TensorEntry,
    Version,
)  # fmt: skip
from cortex_m_hil.errors import ConfigError, HarnessError
from cortex_m_hil.errors.text import printable, printable_lines, shown
from cortex_m_hil.host import archives, arrays, files
from cortex_m_hil.program.program import DISTURBED, Intermediate, Program, References, ScratchNeed
from cortex_m_hil.program.schema import ValueKind
from cortex_m_hil.program.tensor import Array, HostTensor, TensorSpec, npy
from cortex_m_hil.targets.cpu import Isa

SUFFIX: Final = ".hil.zip"
DESCRIPTION, PROGRAM, RUNNER, LOG = "bundle.json", "program.pte", "runner.elf", "log.txt"
_Part = TypeVar("_Part")


def write_bundle(bundle: Bundle, path: Path) -> None:
    """Write a bundle to a file; raise InfraError if the file cannot be written."""
    files.write_atomically(path, pack_bundle(bundle), "another --hil-bundles")


def pack_bundle(bundle: Bundle) -> bytes:
    """Return the bytes of a bundle's file; equal bundles give equal bytes."""
    described = json.dumps(bundle.description.model_dump(mode="json"), indent=1, ensure_ascii=True)
    members = {DESCRIPTION: described.encode(), PROGRAM: bundle.task.program.pte}
    members |= {RUNNER: bundle.elf, LOG: bundle.log.encode(errors="backslashreplace")}
    members |= _tensors("inputs", bundle.task.inputs)
    for name, outputs in _runs(bundle.references):
        members |= {_member(name, number): npy(one) for number, one in enumerate(outputs)}
    members |= _tensors("got", bundle.outputs)
    for number, one in enumerate(bundle.intermediates):
        members |= _tensors(f"intermediates/{number}/dialect", one.dialect)
        floats = {"quantized": one.quantized, "eager": one.eager}
        members |= {
            f"intermediates/{number}/{name}.npy": npy(array) for name, array in floats.items() if array is not None
        }
    return archives.pack(members)


def _runs(references: References) -> Iterator[tuple[str, tuple[Array, ...]]]:
    for name in SINGLE:
        yield f"references/{name}", getattr(references, name) or ()
    for name in DISTURBED:
        for number, run in enumerate(getattr(references, name)):
            yield f"references/{name}/{number}", run


def _tensors(folder: str, tensors: Sequence[HostTensor]) -> dict[str, bytes]:
    return {_member(folder, number): one.npy() for number, one in enumerate(tensors)}


def _member(folder: str, number: int) -> str:
    return f"{folder}/{number}.npy"


# --- from a file -------------------------------------------------------------------------------------------


def read_bundle(path: Path) -> Bundle:
    """Read a bundle from a file, which may be untrusted.

    Raise ConfigError, with the member's name, if anything is wrong.
    """
    return _Reader(path, archives.unpack(path)).bundle()


class _Reader:
    """A reader of one file's members; a member that is never asked for is an error."""

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

    def _error(self, what: str, hint: str = "pytest --hil-bundles FOLDER writes it anew") -> ConfigError:
        return ConfigError(f"{self._path}: {what}", hint=hint)

    def _understood(self, member: str, make: Callable[[], _Part]) -> _Part:
        """Return the result of `make` on a member; an error in it becomes a ConfigError about the file."""
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
            version = Version.model_validate_json(data).schema_version
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
        program = self._understood(PROGRAM, partial(Program.from_bytes, self._take(PROGRAM), PROGRAM, said.method))
        if len(said.nodes) != len(program.file.instructions):
            raise self._error(f"{PROGRAM} has {len(program.file.instructions)} instructions, {len(said.nodes)} named")
        return replace(
            program, isa=said.isa, nodes=said.nodes, name=said.name, size_without_redzones=said.size_without_redzones
        )

    def _task(self, program: Program, judged: BundleJudgement) -> BundleTask:
        problem = self._understood("inputs", lambda: next(input_misfits(program, program.inputs), None))
        if problem is not None:
            raise self._error(f"inputs: {problem[0]}")
        said = judged.tolerance
        tolerance = None if said is None else self._understood(DESCRIPTION, lambda: Tolerance(**said.model_dump()))
        budget = None if judged.budget is None else Budget(**judged.budget.model_dump())
        return BundleTask(
            program, program.inputs, tolerance, judged.linted, judged.redzones, judged.excluded, budget, judged.known,
            judged.expected,
        )  # fmt: skip

    def _scratch(self, program: Program, said: ProgramEntry) -> Callable[[Isa], tuple[ScratchNeed, ...]] | None:
        if said.scratch is None:
            return None
        needs = tuple(ScratchNeed(**_fields_of(one)) for one in said.scratch)
        for need in needs:
            classes = {said.scratch_isa, *(isa for isa, _ in need.elsewhere)}
            if need.instruction >= len(program.file.instructions) or classes != set(Isa):
                raise self._error(f"{DESCRIPTION}: program.scratch is not about this program")
        return lambda isa: tuple(need.on(isa, said.scratch_isa) for need in needs)

    def _tensors(self, folder: str, said: Sequence[TensorEntry]) -> tuple[HostTensor, ...]:
        return tuple(self._tensor(_member(folder, number), one) for number, one in enumerate(said))

    def _tensor(self, member: str, said: TensorEntry) -> HostTensor:
        return self._understood(member, lambda: _host_tensor(self._take(member), member, said.spec()))

    def _array(self, member: str) -> Array:
        return self._understood(member, lambda: arrays.parse_array(self._take(member), member, _numeric))

    def _run(self, folder: str, count: int) -> tuple[Array, ...]:
        return tuple(self._array(_member(folder, number)) for number in range(count))

    def _references(self, said: ReferencesEntry) -> References:
        counts = {name: getattr(said, name) for name in SINGLE}
        single = {name: None if n is None else self._run(f"references/{name}", n) for name, n in counts.items()}
        disturbed = self._runs("disturbed", said.disturbed, single["quantized"] or ())
        floats = self._runs("disturbed_floats", said.disturbed_floats, single["dialect"] or ())
        return References(**single, disturbed=disturbed, disturbed_floats=floats)

    def _runs(self, name: str, counts: Sequence[int], of: Sequence[Array]) -> tuple[tuple[Array, ...], ...]:
        """Return the disturbed runs of a reference, whose outputs must have its shapes."""
        found = tuple(self._run(f"references/{name}/{number}", count) for number, count in enumerate(counts))
        if any(_shapes(run) != _shapes(of) for run in found):
            raise self._error(f"references/{name}: their shapes are not those of the undisturbed run")
        return found

    def _intermediates(self, program: Program, said: Sequence[IntermediateEntry]) -> tuple[Intermediate, ...]:
        if said and len(said) != len(program.file.instructions):
            raise self._error(f"{len(said)} intermediates for {len(program.file.instructions)} instructions")
        return tuple(self._intermediate(program, number, one) for number, one in enumerate(said))

    def _intermediate(self, program: Program, number: int, said: IntermediateEntry) -> Intermediate:
        folder = f"intermediates/{number}"
        dialect = self._tensors(f"{folder}/dialect", said.dialect)
        floats = {
            name: self._array(f"{folder}/{name}.npy") if getattr(said, name) else None
            for name in ("quantized", "eager")
        }
        places = program.file.dataflow.written[number]
        specs = [program.file.values[place].spec for place in places]
        if dialect and [one.spec for one in dialect] != specs:
            raise self._error(f"{folder}: it is not of the types and shapes that operator {number} writes")
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
    """Return an array of a file as a tensor; raise ValueError where the array does not fit the spec."""

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
