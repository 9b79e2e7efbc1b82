"""Red zones: the plan that spaces tensors, and what is found by watching the bytes between them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from cortex_m_hil import flow
from cortex_m_hil.cli import __main__ as cli
from cortex_m_hil.diagnose.lifetime_check import WatchedMemory
from cortex_m_hil.diagnose.redzones import RedZones, Zone, role, zones
from cortex_m_hil.errors import OutOfTargetMemory, RedzoneViolation
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.flow.single_run import COUNTER_POISON, POISON
from cortex_m_hil.host.paths import cache_directory
from cortex_m_hil.lowering import RED_ZONE, Layout, clear_cache
from cortex_m_hil.lowering.redzone_planning import spaced_offsets
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.schema import ValueKind
from cortex_m_hil.program.tensor import TensorSpec
from cortex_m_hil.program.values import Planned, Value
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve
from misbehaving import OPTIONS, ones, with_redzones
from networks import Net

pytest_plugins = ["pytester"]

NAMES = ["native", "m4-qemu", "m0-qemu", "m55-qemu"]
TARGETS = load_targets()
AS_CMSIS_NN = {"HIL_CMSIS_NN_SCRATCH": "ON"}
# Each is one more runner to build, and the kernel that writes too far is the same.
NAMES_AS_CMSIS_NN = ["m4-qemu", "native", *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES[2:])]
LAYOUTS = ["channels_last", pytest.param("explicit", marks=pytest.mark.slow)]
CACHE = cache_directory()  # before anything moves HOME
DEADLINE = 300.0  # seconds, for a run that may have to build runners


@pytest.fixture(scope="module")
def open_dut() -> Iterator[Callable[..., Dut]]:
    """`open_dut(name, **options)`: one Dut for each, booted when first used."""
    opened: dict[tuple[Any, ...], Dut] = {}

    def get(name: str, **options: str) -> Dut:
        key = (name, *options.items())
        if key not in opened:
            opened[key] = flow.open_dut(resolve(name, TARGETS), options=options)
        return opened[key]

    yield get
    for dut in opened.values():
        dut.close()


def violation(dut: Dut, program: Program) -> RedzoneViolation:
    """The verdict; afterwards a good program runs on the same Dut."""
    with pytest.raises(RedzoneViolation) as caught:
        flow.run(dut, program, guards=RedZones)
    assert caught.value.target == dut.target.name
    flow.selftest(dut)
    return caught.value


# --- the plan ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(st.lists(st.integers(0, 5000)), st.sampled_from([1, 2, 16, 64]), st.integers(0, 10000))
def test_a_spread_leaves_room_before_between_and_after(sizes: list[int], alignment: int, start: int) -> None:
    offsets, end = spaced_offsets(sizes, alignment, start)
    free_from = start
    for offset, size in zip(offsets, sizes, strict=True):
        assert offset % alignment == 0
        assert RED_ZONE <= offset - free_from < RED_ZONE + alignment
        free_from = offset + size
    assert end - free_from >= RED_ZONE and end % alignment == 0


LAYERS: dict[str, Callable[[int, int], tuple[nn.Module, int]]] = {
    "conv": lambda channels, width: (nn.Conv2d(channels, width, 3, padding=1), width),
    "depthwise": lambda channels, _: (nn.Conv2d(channels, channels, 3, padding=1, groups=channels), channels),
    "transposed": lambda channels, width: (nn.ConvTranspose2d(channels, width, 2), width),
    "relu": lambda channels, _: (nn.ReLU(), channels),
    "pool": lambda channels, _: (nn.AvgPool2d(2, 1), channels),
}


@st.composite
def nets(draw: st.DrawFn) -> tuple[nn.Module, tuple[int, ...]]:
    """Convolutions, pools and activations in a row, with or without a classifier, on images of odd sizes."""
    channels, side = draw(st.integers(1, 5)), draw(st.integers(7, 12))
    shape = (draw(st.integers(1, 2)), channels, side, side + draw(st.integers(0, 3)))
    layers: list[nn.Module] = []
    for kind in draw(st.lists(st.sampled_from(list(LAYERS)), max_size=3)):
        width = draw(st.integers(1, 9))
        layer, channels = LAYERS[kind](channels, width)
        layers.append(layer)
    if draw(st.booleans()):
        features = nn.Sequential(*layers)(torch.zeros(shape)).flatten(1).shape[1]
        layers += [nn.Flatten(), nn.Linear(features, draw(st.integers(1, 11)))]
    return nn.Sequential(*layers or [nn.ReLU()]), shape


@pytest.mark.slow
@settings(max_examples=6, suppress_health_check=list(HealthCheck))
@given(nets(), st.sampled_from(list(Isa)), st.sampled_from(["channels_last", "explicit"]))
def test_every_tensor_of_a_spaced_net_has_zones_on_both_sides(
    net: tuple[nn.Module, tuple[int, ...]], isa: Isa, layout: Layout
) -> None:
    module, shape = net
    inputs = (torch.randn(shape),)
    program = flow.lower(module, inputs, isa=isa, layout=layout, redzones=True)
    plan = {value.index: value.planned for value in program.file.values if value.planned is not None}
    found = zones(program.file)
    assert {*program.file.inputs, *program.file.outputs} <= {*plan}
    for index, planned in plan.items():
        assert planned.offset % 16 == 0
        (below,) = [zone for zone in found if index in zone.after]
        (above,) = [zone for zone in found if index in zone.before]
        assert below.size >= RED_ZONE and above.size >= RED_ZONE
        assert (below.end, above.begin) == (planned.offset, planned.offset + planned.nbytes)
    assert len(found) == len({(one.offset, one.nbytes) for one in plan.values()}) + 1
    assert (found[0].begin, found[-1].end) == (0, program.file.planned_bytes)


def file_of(sizes: tuple[int, ...], plan: list[Planned]) -> PteFile:
    spec = TensorSpec.contiguous("uint8", (1,))
    values = tuple(Value(index, ValueKind.TENSOR, spec, planned=one) for index, one in enumerate(plan))
    return PteFile(b"", "", "forward", values, (), (), (), (), (), (0, *sizes))


@given(st.lists(st.integers(0, 200), min_size=1, max_size=3), st.data())
def test_zones_are_what_no_tensor_of_any_plan_owns(sizes: list[int], data: st.DataObject) -> None:
    """Tensors may share bytes, touch, be empty, and lie in several buffers, each aligned to 16."""
    plan = []
    for _ in range(data.draw(st.integers(0, 8))):
        memory_id = data.draw(st.integers(1, len(sizes)))
        offset = data.draw(st.integers(0, sizes[memory_id - 1]))
        plan.append(Planned(memory_id, offset, data.draw(st.integers(0, sizes[memory_id - 1] - offset))))
    bases = [sum(-(-size // 16) * 16 for size in sizes[:number]) for number in range(len(sizes))]
    free = {base + at for base, size in zip(bases, sizes, strict=True) for at in range(size)}
    for one in plan:
        free -= set(range(bases[one.memory_id - 1] + one.offset, bases[one.memory_id - 1] + one.offset + one.nbytes))
    found = zones(file_of(tuple(sizes), plan))
    watched = [at for zone in found for at in range(zone.begin, zone.end)]
    assert sorted(watched) == sorted(free)
    assert [zone.number for zone in found] == list(range(len(found)))


def test_patterns_are_complementary_and_differ_from_zone_to_zone() -> None:
    made = [Zone(number, 0, 1, (), ()) for number in range(600)]
    for zone in made:
        assert zone.pattern(POISON) ^ zone.pattern(COUNTER_POISON) == 0xFF
        assert zone.pattern(POISON) != POISON
    assert len({zone.pattern(POISON) for zone in made[40:295]}) == 255


@pytest.mark.slow
def test_the_plan_is_part_of_what_the_cache_knows_a_program_by() -> None:
    module, inputs = nn.Linear(7, 3), (torch.rand(1, 7),)
    lower = functools.partial(flow.lower, module, inputs, isa=Isa.DSP)
    plain, with_zones = lower(), lower(redzones=True)
    assert lower().pte == plain.pte and lower(redzones=True).pte == with_zones.pte
    assert plain.size_without_redzones is None and with_zones.size_without_redzones == plain.file.planned_bytes
    assert with_zones.file.planned_bytes > plain.file.planned_bytes
    assert with_zones.nodes == plain.nodes
    clear_cache()
    assert lower(redzones=True).pte == with_zones.pte


# --- the overflow of executorch 1.5.1 --------------------------------------------------------------------------

TRANSPOSED: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "one row": (lambda: nn.ConvTranspose2d(3, 4, 1, stride=(1, 2), bias=False), 9),
    "two rows, bias": (lambda: nn.ConvTranspose2d(3, 2, 2, stride=(1, 3)), 6),
}


@functools.cache
def transposed(case: str, isa: Isa, layout: Layout) -> Program:
    torch.manual_seed(0)
    make, width = TRANSPOSED[case]
    return flow.lower(make(), (torch.randn(1, 3, 4, width),), isa=isa, layout=layout, redzones=True)


@pytest.mark.first_only
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", TRANSPOSED)
@pytest.mark.parametrize("name", NAMES_AS_CMSIS_NN)
def test_the_scratch_overflow_of_transposed_convolutions_is_found(
    open_dut: Callable[..., Dut], name: str, case: str, layout: Layout
) -> None:
    dut = open_dut(name, **AS_CMSIS_NN)
    error = violation(dut, transposed(case, dut.target.isa, layout))
    suffix = "_nhwc" if layout == "explicit" else ""
    node = f"cortex_m_quantized_transpose_conv2d{suffix}_default"
    assert error.operator == f"cortex_m::quantized_transpose_conv2d{suffix}.out ({node})"
    assert error.message == (
        f"{node} wrote outside its scratch 0, uint8[272]: 288 bytes used of 272 planned: 16 bytes beyond the end"
    )


def test_lint_does_not_see_the_scratch_overflow_of_transposed_convolutions(open_dut: Callable[..., Dut]) -> None:
    """The plan has what CMSIS-NN's size function asks for: the function is wrong, and not the plan."""
    dut = open_dut("m4-qemu", **AS_CMSIS_NN)
    program = transposed("one row", dut.target.isa, "channels_last")
    assert [need.required for need in flow.scratch_needs(program, dut.target.isa)] == [272, 0]
    assert flow.findings(program, dut.target, dut.session().identity.operators, "builtin") == ()


@pytest.mark.first_only
@pytest.mark.parametrize("name", NAMES_AS_CMSIS_NN)
@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.ConvTranspose2d(3, 4, (1, 2), stride=(1, 2)),  # the kernel is as wide as the stride
        lambda: nn.ConvTranspose2d(2, 4, 3, stride=(2, 3)),  # upstream's own asymmetric case
        lambda: nn.ConvTranspose2d(17, 4, 1, stride=(1, 2)),  # becomes a convolution: no ring of sums
    ],
    ids=["as wide", "upstream's", "reversed"],
)
def test_a_transposed_convolution_with_room_enough_passes(
    open_dut: Callable[..., Dut], name: str, make: Callable[[], nn.ConvTranspose2d]
) -> None:
    dut = open_dut(name, **AS_CMSIS_NN)
    module = make()
    program = flow.lower(module, (torch.randn(1, module.in_channels, 4, 9),), isa=dut.target.isa, redzones=True)
    flow.run(dut, program, guards=RedZones)


# --- operators that write too far ------------------------------------------------------------------------------

SIZE = 20  # bytes of a tensor of shape (5,): the plan's alignment leaves 12 more, which nobody owns


class Between(nn.Module):
    """An operator that misbehaves between two that do not."""

    def __init__(self, operator: str, *arguments: int) -> None:
        super().__init__()
        self.operator = getattr(torch.ops.hil_test, operator)
        self.arguments = arguments

    def forward(self, x: Any) -> Any:
        return torch.clone(self.operator(torch.clone(x), *self.arguments))


@functools.cache
def stray(at: int, byte: int = 0) -> Program:
    return with_redzones(Between("stray", at, byte), (5,))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("at", "extent"),
    [
        (SIZE, "21 bytes used of 20 planned: 1 byte beyond the end"),
        (SIZE + 40, "61 bytes used of 20 planned: 41 bytes beyond the end, the nearest 41 bytes away"),
        (-1, "20 bytes planned, and 1 byte used before their start"),
        (-9, "20 bytes planned, and 9 bytes used before their start, the nearest 9 bytes away"),
    ],
)
def test_a_byte_outside_is_found(open_dut: Callable[..., Dut], name: str, at: int, extent: str) -> None:
    program = stray(at)
    error = violation(open_dut(name, **OPTIONS), program)
    assert error.operator == "hil_test::stray.out (hil_test_stray_default)"
    out = program.file.instructions[1].args[-1]
    assert error.message == f"hil_test_stray_default wrote outside its intermediate {out}, float32[5]: {extent}"


@pytest.mark.first_only
@pytest.mark.parametrize("name", NAMES)
def test_the_bytes_inside_are_the_tensors_own(open_dut: Callable[..., Dut], name: str) -> None:
    dut = open_dut(name, **OPTIONS)
    for at in (0, SIZE - 1):
        result = flow.run(dut, stray(at, 0x41), guards=RedZones)
        assert result.outputs[0].data != ones((5,))[0].data
        assert not result.unwritten[0].any()


@pytest.mark.first_only
@pytest.mark.parametrize("poison", [POISON, COUNTER_POISON])
def test_the_pattern_itself_is_no_hiding_place(open_dut: Callable[..., Dut], poison: int) -> None:
    """Written over its own value a byte of the zone is unchanged in one of the passes, and not in the other."""
    program = stray(SIZE)
    out = program.file.instructions[1].args[-1]
    (zone,) = [zone for zone in zones(program.file) if out in zone.before]
    error = violation(open_dut("native", **OPTIONS), stray(SIZE, zone.pattern(poison)))
    assert "21 bytes used of 20 planned" in error.message
    assert error.operator.startswith("hil_test::stray.out")


@pytest.mark.first_only
@pytest.mark.parametrize("name", NAMES)
def test_a_copy_from_zone_to_zone_is_found(open_dut: Callable[..., Dut], name: str) -> None:
    error = violation(open_dut(name, **OPTIONS), with_redzones(Between("overcopy", 16), (5,)))
    assert "hil_test_overcopy_default wrote" in error.message
    assert "36 bytes used of 20 planned: 16 bytes beyond the end" in error.message


def test_a_write_across_a_whole_zone_says_that_it_may_go_on(open_dut: Callable[..., Dut]) -> None:
    error = violation(open_dut("native", **OPTIONS), with_redzones(Between("overcopy", 256), (4,)))
    assert "at least 272 bytes used of 16 planned: at least 256 bytes beyond the end" in error.message


class Twice(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.ops.hil_test.stray(torch.ops.hil_test.stray(x, SIZE + 3, 0), -2, 0)


def test_the_first_operator_is_named_and_the_others_are_in_the_log(open_dut: Callable[..., Dut]) -> None:
    program = with_redzones(Twice(), (5,))
    error = violation(open_dut("m4-qemu", **OPTIONS), program)
    assert error.message.startswith("hil_test_stray_default wrote outside its intermediate")
    assert error.message.endswith("(and 1 more violation)")
    first, second, *_ = error.log.splitlines()
    assert "24 bytes used of 20 planned" in first
    assert second == (
        "hil_test_stray_default_1 wrote outside its output 0, float32[5]: "
        "20 bytes planned, and 2 bytes used before their start, the nearest 2 bytes away"
    )


def test_a_file_from_elsewhere_is_watched_where_its_own_plan_leaves_room(open_dut: Callable[..., Dut]) -> None:
    """The same bytes without what the host knows of them: no names of nodes, but the same verdict."""
    program = Program.from_bytes(stray(-1).pte, "foreign.pte")
    dut = open_dut("native", **OPTIONS)
    with pytest.raises(RedzoneViolation, match=r"operator 1 \(hil_test::stray\.out\) wrote outside its inter"):
        flow.run(dut, program, ones((5,)), guards=RedZones)
    assert RedZones(program).describe().endswith("only what the program's own memory plan leaves free")


# --- programs that are sound -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", NAMES)
def test_outputs_do_not_depend_on_the_plan(open_dut: Callable[..., Dut], name: str, layout: Layout) -> None:
    torch.manual_seed(3)
    dut = open_dut(name)
    module, inputs = Net(), (torch.randn(1, 3, 17, 17),)
    plain, with_zones = (
        flow.lower(module, inputs, isa=dut.target.isa, layout=layout, redzones=redzones) for redzones in (False, True)
    )
    outputs = flow.run(dut, plain).outputs
    assert flow.run(dut, with_zones, guards=RedZones).outputs == outputs
    assert len(set(outputs[0].array().ravel())) > 8


@pytest.mark.slow
def test_every_planned_tensor_has_a_name() -> None:
    torch.manual_seed(3)
    program = flow.lower(Net(), (torch.randn(1, 3, 17, 17),), isa=Isa.DSP, redzones=True)
    roles = [role(program, value.index) for value in program.file.values if value.planned is not None]
    assert "input 0, float32[1, 3, 17, 17] dim order [0, 2, 3, 1]" in roles
    assert "output 0 of cortex_m_dequantize_per_tensor_default, float32[1, 33]" in roles
    assert "scratch 0 of cortex_m_quantized_avg_pool2d_default (pool.1), uint8[76]" in roles
    assert len(roles) == len(set(roles))


@pytest.mark.slow
def test_a_target_too_small_for_the_zones_says_how_much_they_need() -> None:
    target = TARGETS["native"]
    small = replace(target.board, memory=target.board.memory.resized(banks=[1024]))
    resolved = replace(resolve("native", TARGETS), target=replace(target, board=small))
    lower = functools.partial(flow.lower, nn.Linear(16, 4), (torch.rand(1, 16),), isa=target.isa)
    with flow.open_dut(resolved) as dut:
        flow.run(dut, lower())
        program = lower(redzones=True)
        asked = program.file.planned_bytes
        expected = (
            f"the tensors need {asked} bytes and native has 1024: red zones need {asked - 1024} bytes more; "
            f"without them the plan takes {program.size_without_redzones}"
        )
        with pytest.raises(OutOfTargetMemory, match=f"^{expected}"):
            flow.run(dut, program, guards=RedZones)


# --- callers -----------------------------------------------------------------------------------------------------

USER_TESTS = """
import pytest
import torch
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.lowering import RED_ZONE
from cortex_m_hil.targets.cpu import Isa

@pytest.fixture
def runner_elf(target_spec):
    from cortex_m_hil.runner.build import build_runner
    return build_runner(target_spec.target, options={"HIL_CMSIS_NN_SCRATCH": "ON"})

def test_sound(hil):
    assert hil.check(torch.nn.Linear(16, 4), (torch.rand(1, 16),)).ok
    program = hil.lower(torch.nn.Linear(16, 4), (torch.rand(1, 16),))
    assert (program.size_without_redzones is not None) == REDZONES
    hil.run(program)

def test_overflow(hil):
    module = torch.nn.ConvTranspose2d(3, 4, 1, stride=(1, 2))
    known = [] if REDZONES else [1]  # which is not told where the overrun itself is
    hil.run(hil.lower(module, (torch.randn(1, 3, 4, 9),)), known=known)

def test_check_overflow(hil):
    hil.check(torch.nn.ConvTranspose2d(3, 4, 1, stride=(1, 2)), (torch.randn(1, 3, 4, 9),), eager_sqnr=-300)

def test_pte(run_pte, hil_dut):
    known = known_answer(hil_dut.target.isa)
    run_pte(known.program, [known.inputs[0].array()])
"""


def run_user_tests(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> pytest.RunResult:
    monkeypatch.setenv("HIL_CACHE_DIR", str(CACHE))
    pytester.makepyfile(USER_TESTS.replace("REDZONES", str("--redzones" in arguments)))
    return pytester.runpytest_subprocess("--target=native,m4-qemu", *arguments, timeout=DEADLINE)


def test_the_option_watches_every_run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run_user_tests(pytester, monkeypatch, "--redzones")
    result.assert_outcomes(passed=4, failed=4, warnings=2)
    result.stdout.fnmatch_lines(
        [
            f"hil: red zones: every run is watched for writes outside tensors ({RED_ZONE} bytes or more*of dead ones",
            "*RedzoneViolation: *wrote outside its scratch 0, uint8?272?: 288 bytes used of 272 planned*",
            "*HilWarning: *no write outside a tensor was looked for, except behind the plan",
            "*test_overflow *FAIL RedzoneViolation *FAIL RedzoneViolation*",
            "rerun: pytest *--redzones *",
        ]
    )


@pytest.mark.slow
def test_without_the_option_nothing_is_watched(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run_user_tests(pytester, monkeypatch, "-k", "not check")
    result.assert_outcomes(passed=6, deselected=2)
    result.stdout.no_fnmatch_line("*red zones*")


def test_the_command_line_watches_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    known = known_answer(Isa.DSP)
    np.save("x.npy", known.inputs[0].array())
    Path("known_answer.pte").write_bytes(known.program)
    with pytest.raises(SystemExit) as end:
        cli.main(["run", "known_answer.pte", "-t", "m4-qemu", "-i", "x.npy", "--redzones"])
    assert end.value.code == 0
    assert "\nred zones none: its memory plan leaves no byte free" in capsys.readouterr().out


@pytest.mark.slow
def test_a_plan_without_a_free_byte_does_not_read_as_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    program = flow.lower(nn.Softmax(-1), (torch.rand(1, 16),), isa=Isa.SCALAR, quantize=False)
    assert WatchedMemory(program).zones == ()
    Path("softmax.pte").write_bytes(program.pte)
    np.save("x.npy", np.ones((1, 16), np.float32))
    with pytest.raises(SystemExit) as end:
        cli.main(["run", "softmax.pte", "-t", "native", "-i", "x.npy", "--redzones"])
    out = capsys.readouterr().out
    assert end.value.code == 0 and "intact" not in out
    assert "red zones none: its memory plan leaves no byte free, so no write outside a tensor was looked for" in out
