"""A memory plan with red zones: every tensor has memory of its own, and bytes that no tensor owns lie around it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from cortex_m_hil.lowering.capability import feature

RED_ZONE: Final = 256
"""Minimum number of bytes between two tensors: more than the rows by which kernels overrun, and little beside 1M of
arena."""


def spaced_offsets(sizes: Sequence[int], alignment: int, start: int) -> tuple[tuple[int, ...], int]:
    """Return the offsets of tensors of ``sizes`` bytes, and the end of the buffer, all in bytes.

    Every offset is a multiple of ``alignment``, and at least RED_ZONE bytes lie before the first tensor (counted from
    ``start``), between any two, and after the last.
    """
    offsets = []
    end = start
    for size in sizes:
        offset = -(-(end + RED_ZONE) // alignment) * alignment
        offsets.append(offset)
        end = offset + size
    return tuple(offsets), -(-(end + RED_ZONE) // alignment) * alignment


class RedzonePlanner:
    """A planning algorithm for ExecuTorch's MemoryPlanningPass.

    It lets another one make its plan first, and then moves every tensor within its planned buffer.

    Attributes:
        size_without_redzones: what the other plan takes, in bytes.
    """

    def __init__(self, algorithm: Any) -> None:
        self._algorithm = algorithm
        self.size_without_redzones = 0

    def __call__(
        self, alignment: int, specs: Iterable[Any], graph_module: Any, graph_signature: Any, extra_padding: int
    ) -> list[int]:
        """Set `mem_offset` of each spec, and return the size of each planned buffer in bytes."""
        listed = list(specs)
        sizes: list[int] = self._algorithm(alignment, listed, graph_module, graph_signature, extra_padding)
        self.size_without_redzones = sum(-(-size // 16) * 16 for size in sizes)
        # The memory planned for a submodule (a branch, a loop's body) lies first in each buffer.
        starts = [*(getattr(graph_module, "input_mem_buffer_sizes", None) or []), *[0] * len(sizes)]
        # A view has no memory fields of its own, it shows those of its base: one of the two is enough.
        roots = list({id(spec.lifetime): spec for spec in listed if _base(spec) is None}.values())
        for memory_id in range(1, len(sizes)):
            mine = [spec for spec in roots if spec.mem_id == memory_id]
            offsets, sizes[memory_id] = spaced_offsets([spec.nbytes() for spec in mine], alignment, starts[memory_id])
            for spec, offset in zip(mine, offsets, strict=True):
                spec.mem_offset = offset
        for spec in listed:
            if _base(spec) is not None:
                spec.mem_offset = _resolved(spec)
        return sizes


def _base(spec: Any) -> Any:
    """Return the spec whose bytes a view, or an operator working in place, uses; None for others and older wheels."""
    return getattr(spec, "storage_base", None)


def _resolved(spec: Any) -> int:
    base = _base(spec)
    offset: int = spec.mem_offset if base is None else _resolved(base) + spec.storage_base_offset
    return offset


def planning_pass(algorithm: Any) -> Any:
    """Return a pass for ExecutorchBackendConfig(memory_planning_pass=…); inputs and outputs are planned too."""
    return feature("executorch.exir.passes", "MemoryPlanningPass")(memory_planning_algo=algorithm)
