"""Budgets: limits on a program's instructions and memory, checked after each run.

An error lists the operators or tensors with the largest part in the figure.

A budget that cannot be judged is a ConfigError, never a pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from cortex_m_hil.diagnose.profile_measurement import operator_costs
from cortex_m_hil.errors import BudgetExceeded, ConfigError, HarnessError
from cortex_m_hil.errors.text import percent, shown
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.host.api_calls import warn
from cortex_m_hil.program.memory_shortage import peak_details
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.size import measure_pte
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.runner.run_results import RunResult
from cortex_m_hil.targets.memory import parse_size
from cortex_m_hil.targets.target import Clock

_BANK: Final = "bank "  # comes before the name of a bank's region, in the name of a limit
_SHOWN: Final = 4  # operators, or parts of a file, that a message lists at most
_HINT: Final = "where the growth is meant, raise the limit"
_MORE: Final = {
    "instructions": "result.operators has what each operator takes",
    "flash": "hil inspect size FILE lists all its bytes (pytest --keep-programs FOLDER writes the file)",
    "ram": "hil inspect partition FILE tells what floats take of it (pytest --keep-programs FOLDER writes the file)",
}


@dataclass(frozen=True)
class Budget:
    """Limits on what a program may take; None is no limit.

    Attributes:
        instructions: CPU instructions of one run, counted exactly.
        flash: bytes of the `.pte`.
        ram: bytes of the memory plan, without red zones.
        bank: bytes of the memory plan in single banks, by the names of their regions.
    """

    instructions: int | None = None
    flash: int | None = None
    ram: int | None = None
    bank: Mapping[str, int] | None = None

    @classmethod
    def parse(cls, instructions: Any = None, flash: Any = None, ram: Any = None, bank: Any = None) -> Budget:
        """Make a budget from a user's values: numbers of 1 or more, sizes also as `"256K"`.

        Raises:
            ValueError: a value is no such number, or there is no value at all.
        """
        if bank is not None and not (isinstance(bank, Mapping) and {type(name) for name in bank} == {str}):
            raise ValueError(f"bank={shown(bank)}: sizes by the names of regions, such as {{'dtcm': '64K'}}")
        banks = None if bank is None else {name: parse_size(size) for name, size in bank.items()}
        if instructions is not None and (not isinstance(instructions, int) or isinstance(instructions, bool)):
            raise ValueError(f"instructions={shown(instructions)}: a whole number")
        limits = {"instructions": instructions}
        limits |= {name: None if size is None else parse_size(size) for name, size in (("flash", flash), ("ram", ram))}
        for name, limit in (*limits.items(), *(banks or {}).items()):
            if limit is not None and not 1 <= limit < 1 << 63:
                raise ValueError(f"{name}={shown(limit)}: 1 or more, in 64 bits")
        if banks is None and all(limit is None for limit in limits.values()):
            raise ValueError("no limit: instructions=, flash=, ram= or bank=")
        return cls(**limits, bank=banks)

    @property
    def limits(self) -> dict[str, int]:
        """Return the limits by the names of their figures, such as `flash` and `bank dtcm`."""
        known = {"instructions": self.instructions, "flash": self.flash, "ram": self.ram}
        banks = {f"{_BANK}{name}": limit for name, limit in (self.bank or {}).items()}
        return {name: limit for name, limit in known.items() if limit is not None} | banks

    def __str__(self) -> str:
        return ", ".join(f"{name}={limit}" for name, limit in self.limits.items())


def require_budget(
    budget: Budget, dut: Dut, program: Program, inputs: Sequence[HostTensor], result: RunResult, what: str = ""
) -> None:
    """Require that a run has kept to a budget.

    Args:
        budget: the limits.
        dut: the target that ran the program.
        program: the program.
        inputs: the inputs of the run.
        result: the result of the run.
        what: the name of the run, if there are several, for the message.

    Raises:
        BudgetExceeded: a limit is exceeded; the message has each figure, its limit and the parts that take the most.
        ConfigError: instructions are limited, but the target counts none; or the target lacks a bank.
    """
    found = {"instructions": result.instructions, "flash": len(program.pte), "ram": _planned_bytes(program)}
    found |= _bytes_in_banks(budget, dut, program)
    over = [
        (name, figure, limit)
        for name, limit in budget.limits.items()
        if (figure := found[name]) is not None and figure > limit
    ]
    if over:
        names = [name for name, _, _ in over]
        raise BudgetExceeded(
            f"{program.name}{what and f', {what}'}: {'; '.join(_excess(*one) for one in over)}",
            target=dut.resolved.display_name,
            details=[detail for name in names for detail in _heaviest(name, dut, program, inputs, result)],
            hint="; ".join([*dict.fromkeys(_MORE.get(name, _MORE["ram"]) for name in names), _HINT]),
        )
    if budget.instructions is not None and result.instructions is None:
        _tell_not_judged(budget.instructions, dut, result.ran.clock)


def _planned_bytes(program: Program) -> int:
    """Return the bytes of a program's memory plan, without red zones."""
    without = program.size_without_redzones
    return program.file.planned_bytes if without is None else without


def _bytes_in_banks(budget: Budget, dut: Dut, program: Program) -> dict[str, int]:
    """Return the bytes of a program's memory plan in each bank that is limited, by the name of the limit.

    Raises:
        ConfigError: the target has no such bank, or red zones spread the program's tensors.
    """
    memory = dut.target.board.memory
    names = [bank.region for bank in memory.banks]
    found = dict(zip(names, program.file.bytes_in_banks(memory), strict=False))
    where = dut.resolved.display_name
    for name in budget.bank or ():
        if name not in found:
            what = f"a budget of the bank {shown(name)} cannot be judged: the target has {', '.join(names)}"
            raise ConfigError(what, target=where, hint="memory: {banks: …} of the target names them")
        if program.size_without_redzones is not None:
            what = f"a budget of the bank {shown(name)} cannot be judged of a plan with red zones"
            raise ConfigError(what, target=where, hint="leave out --redzones, or limit ram")
    return {f"{_BANK}{name}": found[name] for name in budget.bank or ()}


def _excess(name: str, figure: int, limit: int) -> str:
    unit = "instructions" if name == "instructions" else f"bytes of {name}"
    return f"{figure} {unit}, {limit} allowed: {100 * (figure - limit) / limit:.1f} % more"


def _tell_not_judged(limit: int, dut: Dut, clock: Clock) -> None:
    where = dut.resolved.display_name
    if clock is Clock.INSTRUMENTED:  # the tests are run to count coverage
        warn(f"{where}: the budget of {limit} instructions is not judged: its clock counts {clock.value}")
        return
    raise ConfigError(
        f"a budget of {limit} instructions cannot be judged: the target does not count them, it has {clock.value}",
        target=where,
        hint=f'@pytest.mark.hil_budget("*-qemu", instructions={limit}) judges it on targets that match; QEMU counts',
    )


def _heaviest(
    name: str, dut: Dut, program: Program, inputs: Sequence[HostTensor], result: RunResult
) -> list[tuple[str, str]]:
    """Return the parts that take the most of a figure, as details; or why these are not known, without an error."""
    try:
        if name not in ("instructions", "flash"):
            regions = [bank.region for bank in dut.target.board.memory.banks]
            bank = name.removeprefix(_BANK)
            several = len(regions) > 1 and bank in regions
            return list(peak_details(program.file, program.named, regions.index(bank) + 1 if several else 0))
        if name == "flash":
            return list(_largest_parts(program))
        rows = operator_costs(dut, program, inputs, result.ticks, result.ran.clock)
    except HarnessError as error:
        return [(name, f"what takes the most is not known: {error.message}")]
    rows = tuple(sorted(rows, key=attrgetter("ticks"), reverse=True))
    return [("takes", f"{percent(min(1.0, row.ticks / result.ticks))}: {row}") for row in rows[:_SHOWN]]


def _largest_parts(program: Program) -> Iterator[tuple[str, str]]:
    parts = sorted(measure_pte(program.file).parts, key=attrgetter("nbytes"), reverse=True)
    for part in parts[:_SHOWN]:
        of_method = part.instruction >= 0 and part.method == program.file.method
        by = program.named(part.instruction) if of_method else part.operator
        taken = f", taken by {by}" if by else ""
        yield "flash", f"{part.nbytes} bytes: {part.section.value}: {part.what}{taken}"
