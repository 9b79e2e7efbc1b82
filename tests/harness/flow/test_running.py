"""One program on a target: what `run` answers for."""

from __future__ import annotations

from typing import Any

import pytest

from cortex_m_hil import flow
from cortex_m_hil.errors import Mismatch
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.runner.session.session import Session
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve
from misbehaving import OPTIONS, Misbehaving, with_redzones


@pytest.mark.slow
def test_an_output_that_is_written_in_part_is_no_result() -> None:
    """Whoever asks for it: a fixture, a script, the command line."""
    program = with_redzones(Misbehaving("overcopy", -8))
    with flow.open_dut(resolve("native", load_targets()), options=OPTIONS) as dut:
        with pytest.raises(Mismatch, match="2 of 4 elements of output 0 were never written") as caught:
            flow.run(dut, program, linted=False)
        result = flow.run(dut, program, linted=False, complete=False)
    assert caught.value.operator and "hil compare-runtimes" in caught.value.hint
    assert result.unwritten[0].tolist() == [False, False, True, True]


def test_a_stream_loads_its_program_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs are those of single runs, in any order of the samples."""
    known = known_answer(Isa.SCALAR)
    program = Program.from_bytes(known.program, "known_answer.pte")
    zeros = tuple(HostTensor(value.spec, bytes(len(value.data))) for value in known.inputs)
    with flow.open_dut(resolve("native", load_targets())) as dut:
        alone = [flow.run(dut, program, inputs).outputs for inputs in (known.inputs, zeros)]
        loads = []
        load = Session.load

        def counted(session: Session, *given: Any, **named: Any) -> Any:
            loads.append(session)
            return load(session, *given, **named)

        monkeypatch.setattr(Session, "load", counted)
        streamed = list(flow.stream(dut, program, [known.inputs, zeros, known.inputs]))
    assert len(loads) == 1
    assert streamed == [alone[0], alone[1], alone[0]] and alone[0] == known.expected != alone[1]


def test_a_stream_ends_where_an_output_is_not_written() -> None:
    program = with_redzones(Misbehaving("overcopy", -8))
    with flow.open_dut(resolve("native", load_targets()), options=OPTIONS) as dut:
        samples = flow.stream(dut, program, [program.inputs, program.inputs], linted=False)
        with pytest.raises(Mismatch, match="2 of 4 elements of output 0 were never written"):
            next(samples)
