"""The pydantic models of bundle.json, which describes the files (members) of a bundle; `failure_bundle` fills them in.

The fields are listed in docs/failures.md.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue

from cortex_m_hil.checks.comparison.tolerance import Tolerance
from cortex_m_hil.errors import VerdictError
from cortex_m_hil.errors.text import printable, printable_lines
from cortex_m_hil.host import timeouts
from cortex_m_hil.program.pte_file import MAX_RANK
from cortex_m_hil.program.schema import ValueKind
from cortex_m_hil.program.tensor import HostTensor, TensorSpec
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.target import Target

SCHEMA_VERSION: Final = 3  # version of bundle.json: raised when an older reader would not understand it
PASSED: Final = "pass"  # stands for the class of a verdict if the program passed

Line = Annotated[str, AfterValidator(printable)]
Lines = Annotated[str, AfterValidator(printable_lines)]
_Count = Annotated[int, Field(ge=0, lt=1 << 31)]
_Number = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]
_Limit = Annotated[int, Field(ge=1, lt=1 << 63)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class TargetEntry(_Strict):
    """A target's name, and its entry of `targets.yaml`, as data: nothing in it is ever executed."""

    name: Line
    entry: dict[str, JsonValue]

    @classmethod
    def of(cls, target: Target) -> TargetEntry:
        return cls(name=target.name, entry=dict(target.entry))


class BundleMachine(_Strict):
    """The machine of a run; `engine` and `runtime_version` are empty where no runner has answered."""

    requested: TargetEntry
    target: TargetEntry
    fallback_reason: Line = ""
    shim: Line = ""
    engine: Line = ""
    runtime: Line
    runtime_version: Line = ""
    build_id: Line
    config: Line
    versions: dict[str, Line]


class Recorded(_Strict):
    """A recorded error: its class, message and details."""

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

    @classmethod
    def passed(cls) -> Recorded:
        """Return the record of a program that passed, for a bundle that is kept to be judged again."""
        return cls(type=PASSED, message="")

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" + (f" [operator {self.operator}]" if self.operator else "")


class TensorEntry(_Strict):
    """The specification of a tensor. Its .npy file must agree with it, and has no dim order."""

    dtype: str
    shape: Annotated[tuple[_Count, ...], Field(max_length=MAX_RANK)]
    dim_order: tuple[_Count, ...]
    kind: ValueKind = ValueKind.TENSOR

    @classmethod
    def of(cls, tensor: HostTensor) -> TensorEntry:
        spec = tensor.spec
        return cls(dtype=spec.dtype, shape=spec.shape, dim_order=spec.dim_order, kind=spec.kind)

    def spec(self) -> TensorSpec:
        return TensorSpec(self.dtype, self.shape, self.dim_order, self.kind)


class ToleranceEntry(_Strict):
    qtol: int
    fake_quant_qtol: int | None
    atol: float
    rtol: float
    eager_sqnr: float

    @classmethod
    def of(cls, one: Tolerance) -> ToleranceEntry:
        """Convert a tolerance, whose numbers may be NumPy's."""
        most = None if one.fake_quant_qtol is None else int(one.fake_quant_qtol)
        rest = {name: float(getattr(one, name)) for name in ("atol", "rtol", "eager_sqnr")}
        return cls(qtol=int(one.qtol), fake_quant_qtol=most, **rest)


class ScratchEntry(_Strict):
    instruction: _Count
    operator: Line
    value: _Count
    required: _Number
    planned: _Number
    elsewhere: tuple[tuple[Isa, _Number], ...]


class IntermediateEntry(_Strict):
    dialect: tuple[TensorEntry, ...]
    quantized: bool
    eager: bool
    scale: float
    zero_point: _Number
    graph_quanta: _Number | None
    source: Line


class ReferencesEntry(_Strict):
    """The number of outputs of each reference; None: the reference is missing."""

    dialect: _Count | None = None
    quantized: _Count | None = None
    eager: _Count | None = None
    expected: _Count | None = None
    disturbed: tuple[_Count, ...] = ()
    disturbed_floats: tuple[_Count, ...] = ()


class ProgramEntry(_Strict):
    name: Line
    method: Line = ""  # "" in a bundle of format 1, whose program has one method
    isa: Isa | None
    nodes: tuple[Line, ...]
    size_without_redzones: _Count | None
    inputs: tuple[TensorEntry, ...]
    scratch_isa: Isa
    scratch: tuple[ScratchEntry, ...] | None


class BudgetEntry(_Strict):
    instructions: _Limit | None = None
    flash: _Limit | None = None
    ram: _Limit | None = None
    bank: dict[str, _Limit] | None = None


class BundleJudgement(_Strict):
    """The settings by which the program was judged; `seconds` is the time limit."""

    tolerance: ToleranceEntry | None
    linted: bool
    redzones: bool
    excluded: tuple[Line, ...]
    seconds: Annotated[float, Field(gt=0, le=timeouts.LONGEST_EXECUTION)]
    budget: BudgetEntry | None = None
    known: tuple[int | Line, ...] = ()
    expected: tuple[int | Line, ...] = ()


class Description(_Strict):
    """The content of bundle.json. Arrays are separate members of the bundle; it lists which of them exist."""

    schema_version: int
    test: Line
    seed: Annotated[int, Field(ge=0)] | None
    rerun: Line
    machine: BundleMachine
    verdict: Recorded
    judgement: BundleJudgement
    program: ProgramEntry
    references: ReferencesEntry
    outputs: tuple[TensorEntry, ...]
    intermediates: tuple[IntermediateEntry, ...]


class Version(BaseModel):
    """The version of a bundle.json, read before anything else in it."""

    schema_version: int
