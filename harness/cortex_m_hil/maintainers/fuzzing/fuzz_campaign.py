"""A campaign of mutated programs: their outcomes are counted, and mutants that show a bug are kept."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.maintainers.fuzzing.mutant_judge import Fuzzer, FuzzOutcome, MutantJudgement
from cortex_m_hil.maintainers.fuzzing.program_mutator import BLIND, FieldEdit
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.program.program import Program

# --- a campaign ----------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """The numbers of mutants by kind and outcome, and the judgements that are bugs."""

    counts: Counter[tuple[FieldEdit, FuzzOutcome]] = field(default_factory=Counter)
    bugs: list[MutantJudgement] = field(default_factory=list)

    def add(self, judgement: MutantJudgement) -> None:
        self.counts[judgement.mutant.kind, judgement.outcome] += 1
        if judgement.outcome is FuzzOutcome.BUG:
            self.bugs.append(judgement)

    @property
    def total(self) -> int:
        return self.counts.total()

    @property
    def field_aware(self) -> float:
        """Return the share of the mutants that edit fields."""
        aware = sum(number for (kind, _), number in self.counts.items() if kind not in BLIND)
        return aware / self.total if self.total else 0.0

    def of(self, outcome: FuzzOutcome) -> int:
        return sum(number for (_, found), number in self.counts.items() if found is outcome)

    def of_kind(self, kind: FieldEdit) -> int:
        return sum(number for (found, _), number in self.counts.items() if found is kind)


def campaign(
    fuzzers: Sequence[Fuzzer], total: int, seed: int, tell: Callable[[Fuzzer, MutantJudgement], None]
) -> Tally:
    """Judge mutants of several programs in turn, and return the tally.

    Args:
        fuzzers: a fuzzer for each program.
        total: how many mutants are judged.
        seed: the seed of the mutants.
        tell: called after each mutant.
    """
    tally = Tally()
    for turn in range(total):
        fuzzer = fuzzers[turn % len(fuzzers)]
        judgement = fuzzer.judge(fuzzer.mutator.mutant(seed, turn // len(fuzzers)))
        tally.add(judgement)
        tell(fuzzer, judgement)
    return tally


def save(folder: Path, fuzzer: Fuzzer, judgement: MutantJudgement) -> Path:
    """Write a mutant as a `.pte`, and next to it a `.json` with the way to make it again.

    Return the path of the `.pte`.
    """
    mutant = judgement.mutant
    path = folder / f"{fuzzer.program.name}-{mutant.seed}-{mutant.number}.pte"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(mutant.data)
    told = {
        "program": fuzzer.program.name,
        "sha256": hashlib.sha256(fuzzer.program.pte).hexdigest(),
        "seed": mutant.seed,
        "number": mutant.number,
        "kind": mutant.kind.value,
        "edits": mutant.edits,
        "target": fuzzer.dut.target.name,
        "outcome": judgement.outcome.value,
        "detail": judgement.detail,
    }
    path.with_suffix(".json").write_text(json.dumps(told, indent=1) + "\n")
    return path


def known_answer_fuzzer(dut: Dut) -> Fuzzer:
    """Return a fuzzer of the target's own known-answer program, with its inputs."""
    known = known_answer(dut.target.isa)
    return Fuzzer(dut, Program.from_bytes(known.program, "known_answer.pte"), known.inputs)
