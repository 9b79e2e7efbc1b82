"""ETDump and ETRecord: read by ExecuTorch's flatc and Inspector, and compared with what ran and with host models."""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from cortex_m_hil import flow
from cortex_m_hil.diagnose.etdump import TracedRun, etdump, traced_run
from cortex_m_hil.errors import ConfigError, ToolchainError
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.lowering.etrecord import RecordedProgram
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.runner.run_results import RunResult
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve
from etdumps import read_etdump
from planting import network


@functools.cache
def program() -> Program:
    module, inputs = network()
    return flow.lower(module, inputs, isa=Isa.SCALAR)


@pytest.fixture(scope="module")
def native() -> Iterator[Dut]:
    with flow.open_dut(resolve("native", load_targets())) as dut:
        yield dut


@pytest.fixture(scope="module")
def result(native: Dut) -> RunResult:
    return flow.run(native, program())


@pytest.fixture(scope="module")
def traced(native: Dut, result: RunResult) -> TracedRun:
    return traced_run(native, program(), program().inputs, result.ticks, outputs=True)


def read(dump: bytes, folder: Path) -> Any:
    file = folder / "dump.etdp"
    file.write_bytes(dump)
    return read_etdump(file)


def test_events_are_those_of_executorch(traced: TracedRun, tmp_path: Path) -> None:
    file = program().file
    (block,) = read(etdump(program(), [replace(traced, outputs=())])[0], tmp_path)["run_data"]
    found = [event["profile_event"] for event in block["events"] if "profile_event" in event]
    begin, expected = 0, []
    for call in traced.calls:
        names = f"native_call_{file.instructions[call.index].operator.partition('::')[2]}", "OPERATOR_CALL"
        expected += [(name, 0, call.index, begin, begin + call.ticks) for name in names]
        begin += call.ticks
    expected.append(("Method::execute", -1, 0, 0, traced.ticks))
    fields = "name", "chain_index", "instruction_id", "start_time", "end_time"
    assert [tuple(one[field] for field in fields) for one in found] == expected
    assert block["name"] == "Execute" and len(traced.calls) == len(file.instructions)


def test_tensors_are_those_of_the_dialect_and_of_a_run(traced: TracedRun, result: RunResult, tmp_path: Path) -> None:
    dump, buffer = etdump(program(), [traced])
    (block,) = read(dump, tmp_path)["run_data"]
    logged = [event["debug_event"] for event in block["events"] if "debug_event" in event]
    assert program().intermediates is not None
    expected = [one.dialect for one in program().intermediates(program().inputs)]  # type: ignore[misc]
    wanted = [(index, one.array()) for index, many in enumerate(expected) for one in many]
    wanted += [(0, one.array()) for one in result.outputs]
    assert len(logged) == len(wanted) and any(array.ndim == 4 for _, array in wanted)
    for event, (index, array) in zip(logged, wanted, strict=True):
        tensor = event["debug_entry"]["tensor"]
        there = np.frombuffer(buffer, array.dtype, array.size, tensor["offset"]).reshape(tensor["sizes"])
        assert event["instruction_id"] == index and np.array_equal(there, array)
        assert tensor["scalar_type"] == {"int8": "CHAR", "float32": "FLOAT"}[array.dtype.name]
    last = [event["debug_entry"].get("output") for event in logged]
    assert [one is not None for one in last] == [False] * (len(logged) - 1) + [True]


class Halves(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        first, second = torch.split(x, 2, 1)
        return first * second


def test_a_list_of_tensors_is_one_event(native: Dut, tmp_path: Path) -> None:
    x = torch.rand(3, 4)
    split = flow.lower(Halves(), (x,), isa=Isa.SCALAR, quantize=False)
    dump, buffer = etdump(split, [traced_run(native, split, split.inputs, 0, outputs=True)])
    (tmp_path / "a.etdp").write_bytes(dump)
    events = read_etdump(tmp_path / "a.etdp")["run_data"][0]["events"]
    first, product, output = (one["debug_event"]["debug_entry"] for one in events if "debug_event" in one)
    tensors = first["tensor_list"]["tensors"]
    there = [np.frombuffer(buffer, np.float32, 6, one["offset"]).reshape(one["sizes"]) for one in tensors]
    assert np.array_equal(np.concatenate(there, 1), x.numpy())
    assert (first["val"], product["val"], "output" in output) == ("TensorList", "Tensor", True)


def test_a_buffer_is_read_at_any_alignment(traced: TracedRun, tmp_path: Path) -> None:
    """Names of any length before 8-byte numbers: flatc refuses a buffer that is not aligned."""
    for many in range(1, 5):
        part = replace(traced, calls=traced.calls[:many], outputs=())
        dump, _ = etdump(program(), [part, part])
        assert struct.unpack_from("<I", dump)[0] == len(dump) - 4
        assert len(read(dump, tmp_path)["run_data"]) == 2


def inspector(folder: Path, *runs: TracedRun) -> Any:
    from executorch.devtools import Inspector
    from executorch.devtools.inspector import TimeScale

    dump, buffer = etdump(program(), runs)
    made = program().etrecord
    assert made is not None
    files = {"a.etdp": dump, "a.buffer": buffer, "a.etrecord": made(program().inputs)}
    for name, data in files.items():
        (folder / name).write_bytes(data)
    cycles = {"source_time_scale": TimeScale.CYCLES, "target_time_scale": TimeScale.CYCLES}
    where = {"etdump_path": str(folder / "a.etdp"), "debug_buffer_path": str(folder / "a.buffer")}
    return Inspector(**where, etrecord=str(folder / "a.etrecord"), **cycles)


@pytest.mark.filterwarnings("ignore")  # ExecuTorch's
def test_the_inspector_gives_the_same_figures(traced: TracedRun, tmp_path: Path) -> None:
    slower = replace(traced, calls=tuple(replace(call, ticks=call.ticks + 2) for call in traced.calls))
    opened = inspector(tmp_path, traced, slower)
    events = [one for one in opened.event_blocks[0].events if one.name.startswith("native_call_")]
    nodes = [name.partition(" ")[0] for name in program().nodes]
    assert [one.perf_data.raw for one in events] == [[call.ticks, call.ticks + 2] for call in traced.calls]
    assert [list(one.stack_traces) for one in events] == [[f"{name}_"] for name in nodes]
    lines = [source for source in program().sources if source]
    for event, source in zip(events, program().sources, strict=True):
        file, _, line = source.rpartition(":")
        (trace,) = event.stack_traces.values()
        assert not source or (Path(file).name in trace and f"line {line}" in trace)
    assert lines and torch.equal(opened.event_blocks[0].run_output[0], torch.from_numpy(traced.outputs[0].array()))
    gaps = opened.calculate_numeric_gap("L1")
    assert [(list(row.aot_ops), row.gap) for row in gaps.itertuples()] == [([name], [0.0]) for name in nodes]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # ExecuTorch's
def test_the_inspector_finds_a_wrong_tensor(traced: TracedRun, tmp_path: Path) -> None:
    where = next(index for index, call in enumerate(traced.calls) if call.outputs[0].spec.dtype == "int8")
    call = traced.calls[where]
    values = call.outputs[0].array().copy()
    values.flat[-1] += 3 if values.flat[-1] < 0 else -3
    wrong = replace(call, outputs=(HostTensor.from_array(values, call.outputs[0].spec.dim_order),))
    run = replace(traced, calls=(*traced.calls[:where], wrong, *traced.calls[where + 1 :]))
    gaps = inspector(tmp_path, run).calculate_numeric_gap("L1")
    expected = [3.0 if index == where else 0.0 for index in range(len(traced.calls))]
    assert [row.gap[0] for row in gaps.itertuples()] == expected


def test_a_graph_that_cannot_be_recorded_is_no_verdict() -> None:
    exported = torch.export.export(torch.nn.Linear(2, 2), (torch.rand(1, 2),))
    with pytest.raises(ConfigError, match="it: its instructions have no known nodes"):
        RecordedProgram("it", exported, ("",), ("",)).etrecord((), exported.graph)
    broken = RecordedProgram("it", SimpleNamespace(graph=exported.graph), ("linear (l)",), ("",))
    with pytest.raises(ToolchainError, match="it: ExecuTorch cannot write its own graph"):
        broken.etrecord((), exported.graph)
