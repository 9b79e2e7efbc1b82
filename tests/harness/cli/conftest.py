"""`hil` in this process, and a program with its files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from command_line import Done, Files, Hil
from cortex_m_hil.cli import __main__ as cli
from cortex_m_hil.known_answer import known_answer
from cortex_m_hil.targets.cpu import Isa


@pytest.fixture
def hil(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Hil:
    """Calls the command in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> Done:
        with pytest.raises(SystemExit) as end:
            cli.main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert isinstance(end.value.code, int)
        return Done(end.value.code, out, err)

    return call


@pytest.fixture
def files(tmp_path: Path) -> Files:
    known = known_answer(Isa.DSP)
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "small.pte").write_bytes(known.program)
    np.save(folder / "x.npy", known.inputs[0].array())
    return Files(folder / "small.pte", folder / "x.npy", known.expected[0].array())
