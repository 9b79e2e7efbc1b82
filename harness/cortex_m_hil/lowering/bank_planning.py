"""A memory plan for the banks of a target, by ExecuTorch's banked planning (1.5.1 or newer)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from cortex_m_hil.errors import OutOfTargetMemory, ToolchainError
from cortex_m_hil.lowering.installed_executorch import feature, lacking
from cortex_m_hil.targets.memory import Placed

_MODULE: Final = "executorch.exir.banked_memory_planning"
_SUITE: Final = ("executorch.exir.memory_planning", "MemoryPlanningAlgorithmSuite")
_NEEDED: Final = re.compile(r"(?:hold a|A) (\d+)-byte buffer")
_FREE: Final = re.compile(r"(\w+) (\d+) of \d+ free")  # in the planner's message, for each bank


def planning_algorithm(banks: Sequence[Placed], title: str) -> Any:
    """Return the algorithm for ExecuTorch's MemoryPlanningPass: for one memory or for several banks.

    Args:
        banks: the target's banks, in order of preference: the i-th, counted from 1, has the `mem_id` i.
        title: the module's name.

    Raises:
        ToolchainError: there are several banks, and this ExecuTorch plans for one memory only.
    """
    if len(banks) < 2:
        return feature(*_SUITE)()
    return _BankedPlanner(banks, title)


class _BankedPlanner:
    """ExecuTorch's banked planner, whose error becomes an OutOfTargetMemory that says how much each bank lacks."""

    def __init__(self, banks: Sequence[Placed], title: str) -> None:
        try:
            self._module = feature(_MODULE)
        except ToolchainError as error:
            names = ", ".join(bank.region for bank in banks)
            where = [("module", title), ("banks", f"{names}: one in memory: of the target needs no such planning")]
            raise lacking("planning for several banks", "1.5.1", where) from error
        rows = [self._module.Bank(bank.region, bank.size, number) for number, bank in enumerate(banks, 1)]
        planner = self._module.BankedGreedy(self._module.TargetMemoryMap(rows))
        self._suite = feature(*_SUITE)(algo_list=[planner])
        self._banks, self._title = banks, title

    def __call__(self, *given: Any) -> Any:
        """Plan the memory, with the arguments and the result of ExecuTorch's planning algorithms."""
        try:
            return self._suite(*given)
        except self._module.BankPlacementError as error:
            raise self._refusal(str(error)) from error

    def _refusal(self, said: str) -> OutOfTargetMemory:
        needed, free = _NEEDED.search(said), _FREE.findall(said)
        sizes = ", ".join(f"{bank.region} of {bank.size}" for bank in self._banks)
        problem = f"no bank holds all that the plan puts there ({sizes} bytes)"
        if needed and free:
            lacking = ", ".join(f"{name} lacks {int(needed[1]) - int(left)} bytes" for name, left in free)
            problem = f"no bank has room for a tensor of {needed[1]} bytes: {lacking}"
        return OutOfTargetMemory(
            f"{self._title}: {problem}",
            details=[("ExecuTorch", said)],
            hint="larger banks, or one more, in memory: of the target, if the part has them",
        )
