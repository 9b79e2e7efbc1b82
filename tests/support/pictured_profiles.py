"""Profiles with made-up figures of programs in files, for tests of their pictures."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from cortex_m_hil.diagnose.localize import Departure, Localization, Row
from cortex_m_hil.diagnose.profile import Profile, ProfileRow
from cortex_m_hil.diagnose.profile_pictures.picture_data import PictureData
from cortex_m_hil.program.partition import PartitionStep
from cortex_m_hil.program.program import Program
from cortex_m_hil.runner.elf_size import ElfSection, ElfSize, SymbolSize
from cortex_m_hil.runner.run_results import Ran
from cortex_m_hil.targets.memory import Memory, Placed, Region
from cortex_m_hil.targets.target import Clock
from paths import REPOSITORY

SEEDS: Final = sorted((REPOSITORY / "tests" / "fuzz_seeds").glob("*.pte"))
MEMORY: Final = Memory(
    (Region("itcm", 0, 1 << 20, "code"), Region("dtcm", 1 << 28, 1 << 16), Region("sram", 1 << 29, 1 << 20)),
    Placed("sram", 1 << 18), (Placed("dtcm", 1 << 15), Placed("sram", 1 << 19)), Placed("sram", 1 << 14),
)  # fmt: skip


def seed(name: str, modules: Sequence[str] = (), times: int = 1) -> Program:
    """Return a program of these tests' files.

    Args:
        name: the file's name without its suffix.
        modules: the module of each instruction, in turn; empty: not known.
        times: how often its instructions follow each other: a program as long as one likes.
    """
    [path] = (one for one in SEEDS if one.stem == name)
    program = Program.from_bytes(path.read_bytes(), path.name, "encode" if name == "methods" else "")
    once = program.file.instructions
    many = tuple(replace(one, index=number * len(once) + one.index) for number in range(times) for one in once)
    nodes = [f"node_{index} ({modules[index % len(modules)]})" if modules else "" for index in range(len(many))]
    return replace(program, file=replace(program.file, instructions=many), nodes=tuple(nodes))


def pictured(
    program: Program, *, wrong: int = -1, clock: Clock = Clock.INSTRUCTIONS, target: str = "m4-qemu"
) -> PictureData:
    """Return a profile of a program, with the errors of a localisation.

    Args:
        program: the program.
        wrong: the instruction whose kernel is at fault; -1: none.
        clock: the clock.
        target: the target's name.
    """
    chance = random.Random(len(program.file.instructions))
    steps = program.partition.steps
    ticks = [chance.randrange(100, 100_000) for _ in steps]
    total = sum(ticks) + 7
    rows = tuple(_row(program, step, took, total) for step, took in zip(steps, ticks, strict=True))
    ran = Ran(target, target, "QEMU 8.2", "builtin", "0.2", clock)
    profile = Profile(
        program.name, program.file.method, "DSP", ran, "", "made up", "", total, total, total, 1, 7, None,
        {"dtcm": program.lifetimes.size}, rows,
    )  # fmt: skip
    errors = tuple(_error(step, wrong, 50 - 30 * step.instruction / len(steps)) for step in steps)
    localization = Localization(errors, ("this is made up",))
    return PictureData(profile, program, MEMORY, localization, _elf(program))


def _row(program: Program, step: PartitionStep, ticks: int, total: int) -> ProfileRow:
    extents = {program.lifetimes.extent(value) for value in program.lifetimes.in_use(step.instruction)}
    alive = sum(one.end - one.begin for one in extents if one is not None)
    return ProfileRow(
        step.instruction, step.operator, step.kind, step.node.partition(" (")[0], step.module, "model.py:12", "builtin",
        1, ticks, ticks, ticks, ticks / total, step.macs, step.nbytes, step.nbytes, {"dtcm": alive},
    )  # fmt: skip


def _error(step: PartitionStep, wrong: int, ratio: float) -> Row:
    departure = Departure(3, 16, 12.0, (0,)) if 0 <= wrong <= step.instruction else None
    kernel_error = departure if step.instruction == wrong else None
    return Row(
        step.instruction, step.operator, step.node, step.source, "int8[16]", True, departure=departure,
        kernel_error=kernel_error, graph_quanta=1, sqnr_db=ratio, inputs_db=ratio + 1,
    )  # fmt: skip


def _elf(program: Program) -> ElfSize:
    """Return a runner in which each operator has 100 bytes, 50 are all operators', and 1000 the runner's."""
    names = tuple(sorted({one.name for one in program.file.instructions}))
    parts = [SymbolSize(".text", name, 100, (name,)) for name in names]
    parts += [SymbolSize(".text", "shared", 50, names), SymbolSize(".text", "main", 1000, ("",))]
    parts += [SymbolSize(".bss", "zeros", 70, names)]
    size = sum(one.nbytes for one in parts[:-1])
    return ElfSize((ElfSection(".text", 0, size, size), ElfSection(".bss", 1 << 29, 70, 0)), tuple(parts))
