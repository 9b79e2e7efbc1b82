"""Several methods of a program on one boot, by name: each keeps to itself what ExecuTorch's Method objects do."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from cortex_m_hil import flow
from cortex_m_hil.errors import ProgramRejected
from cortex_m_hil.flow import Dut
from cortex_m_hil.program.bpte_file import read_program
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.tensor import Array, HostTensor
from cortex_m_hil.runner.links.protocol import MemoryRegion
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve
from several_methods import PAIR, ROW, edited, modules, three_methods

SECONDS = 60.0


@pytest.fixture(
    scope="module", params=[("native", "builtin"), ("m4-qemu", "builtin"), ("native", "executorch")], ids="-".join
)
def dut(request: pytest.FixtureRequest) -> Iterator[Dut]:
    """The portable operators of ExecuTorch's wheel run on the host."""
    name, runtime = request.param
    with flow.open_dut(resolve(name, load_targets(), runtime=runtime)) as opened:
        yield opened


def method(name: str) -> Program:
    return read_program(three_methods(), "three.pte", name)


def given(*values: torch.Tensor) -> tuple[HostTensor, ...]:
    return tuple(HostTensor.from_array(value.numpy()) for value in values)


def run(dut: Dut, name: str, *values: torch.Tensor) -> list[Array]:
    return [output.array() for output in flow.run(dut, method(name), given(*values)).outputs]


@pytest.mark.first_only
def test_three_methods_are_run_by_name(dut: Dut) -> None:
    for name, (module, inputs) in modules().items():
        outputs = module(*inputs)
        expected = outputs if isinstance(outputs, tuple) else (outputs,)
        for found, wanted in zip(run(dut, name, *inputs), expected, strict=True):
            np.testing.assert_array_equal(found, wanted.detach().numpy())


def test_a_load_of_another_method_forgets_the_first(dut: Dut) -> None:
    """The state is its method's own, as of ExecuTorch's Method objects: `reset` resets none but its own."""
    session = dut.session()
    encode, decode = method("encode").file, method("decode").file
    [state] = encode.states
    [row], pair = given(*ROW), given(*PAIR)

    def encoded(times: int) -> Array:
        for _ in range(times):
            session.set_input(0, row)
            session.execute(SECONDS)
        return session.outputs()[0].array()

    counts = session.load(three_methods(), file=encode)
    assert (counts.inputs, counts.outputs, counts.planned) == (1, 1, encode.planned_bytes)
    session.fill(MemoryRegion.VALUE, state, 0)
    twice = encoded(2)
    kept = session.read(MemoryRegion.VALUE, state, 16)
    assert np.frombuffer(kept, "<f4").tolist() == [2, 4, 6, 8]

    counts = session.load(three_methods(), file=decode)
    assert (counts.inputs, counts.outputs, counts.planned) == (2, 2, decode.planned_bytes)
    session.fill(MemoryRegion.PLANNED, 0, 0xA5)
    for number, value in enumerate(pair):
        session.set_input(number, value)
    session.execute(SECONDS)
    assert session.stats()["planned"].used == decode.planned_bytes

    session.load(three_methods(), file=encode)
    session.write(MemoryRegion.VALUE, state, kept)
    np.testing.assert_array_equal(encoded(1), twice * 1.5)


def test_the_program_is_refused_where_it_has_no_such_method(dut: Dut) -> None:
    """The host knows better, and asks for none: this is the runner's own check."""
    session = dut.session()
    for name in ("forward", "encod", "encoded", "x" * 128):
        with pytest.raises(ProgramRejected, match=f'has no method "{name}" among its 6'):
            session.load(three_methods(), method=name)
    with pytest.raises(ProgramRejected, match="two methods of the program are called"):
        equal = edited(three_methods(), lambda tree: setattr(tree.execution_plan[2], "name", "encode"))
        session.load(equal, method="encode")
    assert session.load(equal, method="decode").inputs == 2


def test_a_constant_method_is_loaded_like_any_other(dut: Dut) -> None:
    """Nobody needs to, but the runner need not tell them apart."""
    counts = dut.session().load(three_methods(), method="rate")
    assert (counts.inputs, counts.outputs, counts.instructions, counts.planned) == (0, 1, 0, 0)
    assert dut.session().get_output(0).item() == 16000.5
