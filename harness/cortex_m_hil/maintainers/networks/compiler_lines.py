"""Records the lines of ExecuTorch's Cortex-M compiler that a lowering executes, and the decisions of its checks.

Only the quantiser and the passes of `executorch.backends.cortex_m` are traced, and only while they run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from cortex_m_hil.errors import LoweringError
from cortex_m_hil.lowering import pipeline
from cortex_m_hil.lowering.cache_keys import key_of
from cortex_m_hil.lowering.disk_cache import Entry, disk
from cortex_m_hil.lowering.module_export import Exported
from cortex_m_hil.lowering.options import LoweringOptions
from cortex_m_hil.lowering.stages import observed_by
from cortex_m_hil.program.program import Program
from cortex_m_hil.targets.cpu import Isa

_FOLDERS: Final = ("passes", "quantizer")
_STAGES: Final = ("prepare_pt2e", "Cortex-M passes")


@dataclass(frozen=True)
class Lowered:
    """The program of a lowering for each ISA class, or the error if there is no program.

    Attributes:
        reached: lines, as `file.py:12`, and decisions, as `CortexMDivCheck.check_pattern: False`.
    """

    programs: Mapping[Isa, Program]
    refused: Mapping[Isa, LoweringError]
    reached: frozenset[str]


def lower_and_trace(exported: Exported, isas: Sequence[Isa], options: LoweringOptions) -> Lowered:
    """Lower for each ISA class, and return the programs with the lines and decisions that were reached.

    The reached lines are cached with the programs, so they are the same if these come from a cache.
    """
    key = key_of("reach", exported.program, exported.inputs, exported.layout, options.quantize,
                 options.redzones, tuple(options.samples(exported.inputs)), [isa.value for isa in isas])  # fmt: skip
    reached = disk.get_or_make("reach", key, partial(_traced, exported, isas, options))["reached"]
    programs, refused = {}, {}
    for isa in isas:
        try:
            programs[isa] = pipeline.lower(exported, isa=isa, options=options)
        except LoweringError as error:
            refused[isa] = error
    return Lowered(programs, refused, frozenset(reached))


def _traced(exported: Exported, isas: Sequence[Isa], options: LoweringOptions) -> Entry:
    """Lower again without the caches, and return the lines and decisions that were reached."""
    reached: set[str] = set()
    was, disk.enabled = disk.enabled, False
    pipeline.clear_cache()
    try:
        with observed_by(lambda stage: _tracing(reached, stage)):
            for isa in isas:
                try:
                    pipeline.lower(exported, isa=isa, options=options)
                except LoweringError:
                    continue  # the same error is raised where the program itself is lowered
    finally:
        disk.enabled = was
    return {"reached": sorted(reached)}


@contextmanager
def _tracing(reached: set[str], stage: str) -> Iterator[None]:
    """Add the lines and decisions of the block to `reached` where the stage is one of the quantiser or the passes.

    Other stages are not traced, since `sys.settrace` doubles their time.
    """
    if not stage.startswith(_STAGES):
        yield
        return
    names = _files()

    def line(frame: FrameType, event: str, value: Any) -> Callable[..., Any]:
        if event == "line":
            reached.add(f"{names[frame.f_code.co_filename]}:{frame.f_lineno}")
        elif event == "return":
            reached.update(_decided(frame, value))
        return line

    def call(frame: FrameType, event: str, value: Any) -> Callable[..., Any] | None:
        return line if frame.f_code.co_filename in names else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        yield
    finally:
        sys.settrace(before)


def _decided(frame: FrameType, value: Any) -> Iterator[str]:
    """Yield the answer of a pattern's check, or whether a pass changed the graph, when its function returns."""
    name, owner = frame.f_code.co_name, frame.f_locals.get("cls", frame.f_locals.get("self"))
    of = owner.__name__ if isinstance(owner, type) else type(owner).__name__
    if name.startswith("check_") and isinstance(value, bool):
        yield f"{of}.{name}: {value}"
    elif name == "call" and hasattr(value, "modified"):
        yield f"{of}: {'changed the graph' if value.modified else 'changed nothing'}"


@cache
def _files() -> Mapping[str, str]:
    """Return the names of the traced files by path."""
    spec = find_spec("executorch.backends.cortex_m")
    assert spec is not None and spec.submodule_search_locations
    root = Path(spec.submodule_search_locations[0])
    return {str(path): path.name for folder in _FOLDERS for path in sorted((root / folder).glob("[!_]*.py"))}


def reachable_lines() -> Mapping[str, frozenset[int]]:
    """Return the lines in functions that can be reached, by the name of their file."""
    return {
        name: frozenset(_lines(compile(Path(path).read_bytes(), path, "exec"), inside=False))
        for path, name in _files().items()
    }


def _lines(code: CodeType, *, inside: bool) -> Iterator[int]:
    if inside:
        yield from (line for _, _, line in code.co_lines() if line and line != code.co_firstlineno)
    for const in code.co_consts:
        if isinstance(const, CodeType):
            # The body of a class runs when it is imported: its `co_flags` lack CO_OPTIMIZED (1).
            yield from _lines(const, inside=bool(const.co_flags & 1))
