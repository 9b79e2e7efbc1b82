"""`cortex_m_hil.hil_cases`: a test that runs once for each test case of bundled programs."""

from __future__ import annotations

import glob
import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePath

import pytest

from cortex_m_hil.api import CASES
from cortex_m_hil.errors import ConfigError, HarnessError
from cortex_m_hil.errors.text import printable
from cortex_m_hil.host import files
from cortex_m_hil.program.bundled import read_cases
from cortex_m_hil.program.program import Program


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Make a test run once for each case that its decorators name.

    Raises:
        pytest.Collector.CollectError: there are no cases, or a file is broken.
    """
    wanted = [one for test in (metafunc.function, metafunc.cls) for one in getattr(test, CASES, ())]
    for pattern, argument in wanted:
        try:
            found = list(_cases(metafunc.definition.path.parent, pattern))
        except HarnessError as error:
            file, line, name = metafunc.definition.location
            told = f"{file}:{(line or 0) + 1}: {name}: hil_cases({pattern!r}): {error.describe()}"
            raise pytest.Collector.CollectError(told) from None
        metafunc.parametrize(argument, [case for _, case in found], ids=[one for one, _ in found])


def _cases(folder: Path, pattern: str) -> Iterator[tuple[str, Program]]:
    """Yield each case with its id, `file-method-case`, ordered by the files' names.

    Raises:
        ConfigError: no file matches, or a file has no test cases or cannot be read.
        ProgramRejected: a file is no program, or its cases do not fit it.
    """
    names = sorted(glob.glob(pattern, root_dir=folder, recursive=True))
    if not names:
        raise ConfigError(f"no file matches in {folder}", hint="a glob from the folder of the test's file")
    stems = Counter(PurePath(name).stem for name in names)
    for name in names:
        path = folder / name
        found = read_cases(files.read(path, files.PROGRAM_LIMIT), str(path))
        if not found:
            hint = "hil.check_program(file, inputs, expected) for a .pte"
            raise ConfigError(f"{path} has no test cases", hint=hint)
        one = PurePath(name)
        shown = one.stem if stems[one.stem] == 1 else str(one.with_suffix(""))
        numbers: dict[str, Iterator[int]] = {}
        for case in found:
            method = case.file.method
            number = next(numbers.setdefault(method, itertools.count()))
            yield printable(f"{shown}-{method}-{number}"), case
