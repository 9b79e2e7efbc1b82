"""A memory plan with red zones: every tensor has memory of its own, with unused bytes before and after it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from cortex_m_hil.lowering.installed_executorch import feature
from cortex_m_hil.targets.memory import Placed

RED_ZONE: Final = 256
"""Minimum number of bytes between two tensors: more than kernels overrun by, and little in 1M."""


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

    Another algorithm first makes its plan; then every tensor is moved within its planned buffer or, where there are
    several banks, to the next bank that has room for it and its red zones.

    Attributes:
        size_without_redzones: the size of the other algorithm's plan, in bytes.
    """

    def __init__(self, algorithm: Any, banks: Sequence[Placed] = ()) -> None:
        self._algorithm = algorithm
        self._banks = banks
        self.size_without_redzones = 0

    def __call__(
        self, alignment: int, specs: Iterable[Any], graph_module: Any, graph_signature: Any, extra_padding: int
    ) -> list[int]:
        """Set `mem_offset` of each spec, and return the size of each planned buffer in bytes."""
        listed = list(specs)
        sizes: list[int] = self._algorithm(alignment, listed, graph_module, graph_signature, extra_padding)
        self.size_without_redzones = sum(-(-size // 16) * 16 for size in sizes)
        sizes += [0] * (1 + len(self._banks) - len(sizes))
        # The memory planned for a submodule (a branch, a loop's body) lies first in each buffer.
        starts = [*(getattr(graph_module, "input_mem_buffer_sizes", None) or []), *[0] * len(sizes)]
        # A view shows the memory fields of its base, so only one of the two is needed.
        roots = list({id(spec.lifetime): spec for spec in listed if _base(spec) is None}.values())
        self._choose_banks(roots, alignment, starts)
        for memory_id in range(1, len(sizes)):
            mine = [spec for spec in roots if spec.mem_id == memory_id]
            if not mine:
                sizes[memory_id] = starts[memory_id]
                continue
            offsets, sizes[memory_id] = spaced_offsets([spec.nbytes() for spec in mine], alignment, starts[memory_id])
            for spec, offset in zip(mine, offsets, strict=True):
                spec.mem_offset = offset
        for spec in listed:
            if _base(spec) is not None:
                spec.mem_id, spec.mem_offset = _root(spec).mem_id, _resolved(spec)
        return sizes

    def _choose_banks(self, roots: Sequence[Any], alignment: int, starts: Sequence[int]) -> None:
        """Set `mem_id` of each spec to its own bank, or to the first other bank with room.

        Without room it is unchanged.
        """
        ends = {number: starts[number] for number in range(1, len(self._banks) + 1)}
        for spec in (one for one in roots if one.mem_id in ends):
            for number in (spec.mem_id, *(one for one in ends if one != spec.mem_id)):
                (offset,), needed = spaced_offsets([spec.nbytes()], alignment, ends[number])
                if needed <= self._banks[number - 1].size:
                    spec.mem_id, ends[number] = number, offset + spec.nbytes()
                    break


def _base(spec: Any) -> Any:
    """Return the spec whose bytes a view, or an in-place result, uses; None for other specs and with older wheels."""
    return getattr(spec, "storage_base", None)


def _root(spec: Any) -> Any:
    """Return the spec with memory of its own that contains the bytes of a view, or the spec itself."""
    base = _base(spec)
    return spec if base is None else _root(base)


def _resolved(spec: Any) -> int:
    base = _base(spec)
    offset: int = spec.mem_offset if base is None else _resolved(base) + spec.storage_base_offset
    return offset


def planning_pass(algorithm: Any) -> Any:
    """Return a pass for ExecutorchBackendConfig(memory_planning_pass=…); inputs and outputs are planned too."""
    return feature("executorch.exir.passes", "MemoryPlanningPass")(memory_planning_algo=algorithm)
