"""`hil` in this process, and a program with its files."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from command_line import Files, Hil, call
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.targets.cpu import Isa


@pytest.fixture
def hil(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Hil:
    """Return a function that calls the command in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    return partial(call, capsys)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    known = known_answer(Isa.DSP)
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "small.pte").write_bytes(known.program)
    np.save(folder / "x.npy", known.inputs[0].array())
    return Files(folder / "small.pte", folder / "x.npy", known.expected[0].array())
