"""Rules on memory: views, scratch, the memory plan and the target's pools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cortex_m_hil.checks.lint_rules.finding import LintFinding, LintSubject, Rule, with_bug
from cortex_m_hil.errors.text import counted
from cortex_m_hil.program.memory_shortage import Shortage
from cortex_m_hil.program.pte_file import PteFile

_VIEW_IN_ANOTHER_ORDER: Final = 24  # known bugs
_DEPTHWISE_SCRATCH: Final = 10


def views(subject: LintSubject) -> Iterator[LintFinding]:
    """Yield findings about views whose elements are in another order than in the tensor that they view.

    ExecuTorch makes a view without a copy, whatever the dim orders.
    """
    values, bug = subject.file.values, _VIEW_IN_ANOTHER_ORDER
    for view in dict.fromkeys(subject.program.lifetimes.views):
        of, base = values[view.value].spec, values[view.base].spec
        if of is None or base is None or (of.numel, of.dtype) != (base.numel, base.dtype) or base.reads_as(of):
            continue
        what = f"value {view.value}, {of}, is a view of value {view.base}, {base}"
        text = f"{what}, without a copy: its elements are in another order"
        if view.written >= 0:
            written = subject.file.instructions[view.written]
            yield subject.finding(Rule.DIM_ORDER, text, written, view.value, bug=bug)
        else:
            yield LintFinding(Rule.DIM_ORDER, with_bug(text, bug), value=view.value, bug=bug)


def scratch(subject: LintSubject) -> Iterator[LintFinding]:
    for need in subject.scratch:
        if need.planned == need.required:
            continue
        fits = [isa.value for isa, size in need.elsewhere if size == need.planned]
        whose = f", which is what {' or '.join(fits)} needs" if fits else ""
        needs = f"{subject.target.isa.value} needs {need.required}"
        sizes = f"{need.planned} bytes of scratch are planned{whose}; {needs}"
        instruction, bug = subject.file.instructions[need.instruction], None
        if need.planned < need.required:
            rule, text = Rule.SCRATCH, "the kernel would write past its buffer"
        elif subject.runtime == "executorch":
            rule, text = Rule.SCRATCH, "ExecuTorch's operators refuse any other size"
            bug = None if fits or "depthwise" not in instruction.operator else _DEPTHWISE_SCRATCH
        else:
            rule, text = Rule.SCRATCH_NOTE, "lowered for another ISA class?" if fits else "harmless"
        yield subject.finding(rule, f"{sizes}: {text}", instruction, need.value, bug=bug)


def overlaps(subject: LintSubject) -> Iterator[LintFinding]:
    file = subject.file
    for overlap in subject.program.lifetimes.overlaps():
        laid, victim = (file.values[value] for value in (overlap.value, overlap.victim))
        text = f"the memory plan lays value {laid.index}, {laid.spec}, over value {victim.index}, {victim.spec}"
        cause = "the lifetime of the second ends too early in the plan: it is read after the first is written"
        if overlap.value in file.dataflow.scratch:
            cause = "the first is scratch, and the second is still needed while or after the operator works in it"
        instruction = file.instructions[overlap.instruction]
        yield subject.finding(Rule.OVERLAP, text, instruction, overlap.value, cause=cause)


def program_room(subject: LintSubject) -> Iterator[LintFinding]:
    file, target = subject.file, subject.target
    room = target.board.memory.program_room
    if file.size > room:
        shortage = Shortage("program", file.size, room, target, file, subject.program.named)
        text = f"the program needs {file.size} bytes and {target.name} has {room}: {file.size - room} too many"
        yield LintFinding(Rule.PROGRAM_POOL, text, hint=shortage.hint(), details=tuple(shortage.details()))


def banks(subject: LintSubject) -> Iterator[LintFinding]:
    """Yield findings about banks that are too small for the memory plan, and about planned buffers without a bank."""
    file, target, memory = subject.file, subject.target, subject.target.board.memory
    names, rooms = [bank.region for bank in memory.banks], memory.bank_rooms(file.size)
    for number, nbytes in enumerate(file.bytes_in_banks(memory)):
        if number >= len(names):
            if nbytes:
                yield _without_bank(subject, number + 1, nbytes)
            continue
        room, several = rooms[number], len(names) > 1
        if nbytes <= room:
            continue
        bank = names[number] if several else ""
        more = " with inputs and outputs" if file.unplanned and number == memory.unplanned_bank else ""
        what = f"{_named(file)}: planned buffer {number + 1}{more} needs" if several else "the tensors need"
        there = f"bank {bank} of {target.name}" if several else target.name
        shortage = Shortage("planned", nbytes, room, target, file, subject.program.named, bank)
        problem, hint = f"{nbytes - room} too many", shortage.hint()
        if (plain := subject.program.size_without_redzones) is not None:
            problem = f"red zones need {nbytes - room} bytes more; without them the plan takes {plain}"
            hint = f"leave the red zones out (--redzones); {hint}" if plain <= sum(rooms) else hint
        text = f"{what} {nbytes} bytes and {there} has {room}: {problem}"
        yield LintFinding(Rule.PLANNED_POOL, text, hint=hint, details=tuple(shortage.details()))


def _without_bank(subject: LintSubject, number: int, nbytes: int) -> LintFinding:
    file, target = subject.file, subject.target
    banks = target.board.memory.banks
    names = ", ".join(bank.region for bank in banks)
    text = (
        f"{_named(file)}: planned buffer {number} of {nbytes} bytes has no bank: {target.name} has "
        f"{counted(len(banks), 'bank')} ({names})"
    )
    shortage = Shortage("planned", nbytes, 0, target, file, subject.program.named)
    return LintFinding(Rule.PLANNED_POOL, text, hint=shortage.hint(), details=tuple(shortage.details()))


def _named(file: PteFile) -> str:
    return f"{file.source or 'the program'}, method {file.method}"
