"""Bugs of ExecuTorch's Cortex-M backend and of CMSIS-NN, and how this harness catches each.

Add a row to `THREADS` (bugs known from issues of ExecuTorch or CMSIS-NN) or to `FOUND_HERE` (bugs that this project
found, with a number of `cortex_m_hil.errors.known_bugs`). Then `python ci/known_bugs_table.py` makes the tables of
docs/known_bugs.md again. tests/nightly/test_known_bugs.py runs all programs here, tests/harness/test_known_bugs.py the
quickest.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from cortex_m_hil.checks.comparison.comparison_result import FindingKind
from cortex_m_hil.checks.comparison.tolerance import Tolerance
from cortex_m_hil.checks.lint_rules.finding import LintFinding, Rule
from cortex_m_hil.errors import (
    ConfigError,
    HilWarning,
    LintError,
    Mismatch,
    OutOfTargetMemory,
    ProgramRejected,
    ProtocolError,
    TargetFault,
    UnsupportedOperator,
)
from cortex_m_hil.errors.known_bugs import KNOWN_BUGS
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.targets.cpu import Isa
from known_bugs.modules import (
    behind_a_sigmoid,
    biased_layer,
    clamped,
    doubled,
    far_outside,
    gate,
    grouped,
    hard_sigmoid,
    nearly_all_bias,
    ordinary,
    ramp,
    sample,
    softmax_after,
    transposed,
)
from known_bugs.showing import PATCHES, By, Caught, Setup
from networks import Apply
from planting import BUGS as PLANTED
from planting import network


class How(str, Enum):
    """Where the bug of a test comes from: from ExecuTorch itself, or planted."""

    REAL = "real"  # ExecuTorch itself, the installed one
    FORESEEN = "foreseen"  # ExecuTorch itself, which need not be installed: lint refuses the file for it
    PLANTED = "planted"  # planted into our kernels, into ExecuTorch's passes or into a file


@dataclass(frozen=True)
class Shown:
    """A bug as shown by programs: ``right`` passes on all targets, without a warning; ``wrong`` only on ``hidden``."""

    how: How
    words: str
    right: Setup
    wrong: Setup
    shows: tuple[str, ...]
    caught: Caught
    hidden: tuple[str, ...] = ()


@dataclass(frozen=True)
class KnownBug:
    """A bug of ExecuTorch or CMSIS-NN, and the ways in which it is shown to be caught.

    Attributes:
        upstream: issues and pull requests, and `known bug N` with the number in `cortex_m_hil.errors.known_bugs`.
        symptom: what a user sees; docs/known_bugs.md has it of bugs without a number only, since
            `KNOWN_BUGS` describes the others at greater length.
        shown: programs that show the bug.
        shown_by: ids of other tests that show the bug.
        why_not: why no program or test shows it.
    """

    name: str
    upstream: tuple[str, ...]
    symptom: str
    shown: tuple[Shown, ...] = ()
    shown_by: tuple[str, ...] = ()
    why_not: str = ""


def numbered(number: int) -> tuple[str, tuple[str, ...]]:
    """Return name and references of a bug in the package's table of known bugs."""
    known = KNOWN_BUGS[number]
    return known.name, (*known.issues, f"known bug {number}")


# --- changes of programs and of ExecuTorch -------------------------------------------------------------------


def from_elsewhere(program: Program) -> Program:
    """Return the program as if read from a file, without the ISA class that it was lowered for."""
    return replace(program, isa=None)


def without_bias(program: Program) -> Program:
    """Return the program with a convolution without bias, as executorch 1.4 made it."""
    from executorch.exir._serialize._program import PTEFile, deserialize_pte_binary, serialize_pte_binary
    from executorch.exir.schema import EValue, Null

    parsed = deserialize_pte_binary(program.pte)
    plan = parsed.program.execution_plan[0]
    (call,) = [one for one in program.file.instructions if "conv2d" in one.operator]
    plan.values.append(EValue(Null()))
    plan.chains[0].instructions[call.index].instr_args.args[2] = len(plan.values) - 1
    pte = bytes(serialize_pte_binary(PTEFile(program=parsed.program)))
    return replace(program, pte=pte, file=Program.from_bytes(pte).file)


def contiguous_inputs(program: Program) -> Program:
    """Return the program with inputs of the same numbers, laid out as contiguous tensors."""
    return replace(program, inputs=tuple(HostTensor.from_array(one.array()) for one in program.inputs))


def halfway_inputs(program: Program) -> Program:
    """Return the program with inputs halfway between two quanta of its first instruction, as near as float32 comes."""
    (given,), first = program.inputs, program.file.instructions[0]
    scale = np.float32(program.file.values[first.args[1]].scalar or 0)
    steps = np.arange(given.spec.numel, dtype=np.float32) % 255 + np.float32(0.5)
    return replace(program, inputs=(HostTensor.from_array((steps * scale).reshape(given.spec.shape)),))


@contextmanager
def alpha_is_dropped() -> Iterator[None]:
    """Make the pass that creates a `quantized_add` ignore `alpha`, as before #22153."""
    from executorch.backends.cortex_m.passes.aten_to_cortex_m_pass import AtenToCortexMPass
    from executorch.exir.dialects._ops import ops as exir_ops

    substitutions, add = AtenToCortexMPass._DIALECT_SUBSTITUTIONS, exir_ops.edge.aten.add.Tensor
    original = substitutions[add]

    def plain(node: Any, dialect_pass: Any) -> Any:
        node.kwargs = {}
        return original(node, dialect_pass)

    substitutions[add] = plain
    try:
        yield
    finally:
        substitutions[add] = original


# --- runs ---------------------------------------------------------------------------------------------------

LINEAR: Final = Setup(biased_layer)
MVE_LAYOUT: Final = replace(LINEAR, lowered_for=Isa.MVE, change=from_elsewhere)
UPSTREAMS_BOUND: Final = Tolerance(atol=5.0, rtol=1.0)
POOLED: Final = Setup(sample(lambda: nn.AvgPool2d(2), (1, 4, 8, 8)), runtime="executorch", runs=False)
GROUPED: Final = Setup(grouped, change=without_bias)
SCALED_SUM: Final = Setup(
    sample(lambda: Apply(lambda x, y: torch.add(x, y, alpha=2)), (3, 7), (3, 7)), change=from_elsewhere
)
IMAGE: Final = Setup(sample(lambda: nn.Conv2d(3, 4, 3), (1, 3, 8, 8)))
FILE_ONLY: Final = Setup(biased_layer, runtime="executorch", runs=False)
"""Lint for the runtime `executorch`, which needs an installed ExecuTorch to run."""
HOST_EXECUTORCH: Final = Setup(biased_layer, runtime="executorch", linted=False)
"""The wheel's own runtime and portable kernels, on the host."""


def module(make: Any, *shapes: tuple[int, ...], setup: Setup = FILE_ONLY, **options: Any) -> Setup:
    return replace(setup, network=sample(make, *shapes), options=options)


def of_calibration(setup: Setup, *samples: tuple[torch.Tensor, ...]) -> Setup:
    return replace(setup, options={"calibration": samples})


def mismatch(operator: str, rule: FindingKind | None = None, by: By = By.KERNEL) -> Caught:
    return Caught(Mismatch, rule, operator, by)


def hardswish(weight: float) -> nn.Module:
    layer = nn.Linear(8, 8, bias=False)
    with torch.no_grad():
        layer.weight *= weight
    return nn.Sequential(layer, nn.Hardswish())


CORES: Final = ("m4-qemu", "m0-qemu", "m55-qemu")

THREADS: Final = (
    KnownBug(
        "bias lost outside MVE",
        ("pytorch/executorch#19676", "pytorch/executorch#20045"),
        "outputs of a classifier near zero: its bias was lowered into kernel_sum, which DSP and scalar code ignores",
        (
            Shown(
                How.REAL, "the MVE layout on DSP and scalar targets", LINEAR, MVE_LAYOUT, ("m4-qemu", "m0-qemu"),
                Caught(LintError, Rule.LAYOUT, "quantized_linear"), hidden=("m55-qemu",),
            ),
            Shown(
                How.REAL, "the same, run without lint", LINEAR, replace(MVE_LAYOUT, linted=False),
                ("m4-qemu", "m0-qemu"), mismatch("quantized_linear", FindingKind.COLLAPSE, By.LAYOUT),
                hidden=("m55-qemu",),
            ),
        ),
    ),
    KnownBug(
        "end-to-end check that proved nothing",
        ("pytorch/executorch#18424", "pytorch/executorch#18739"),
        "absolute tolerance 5, relative tolerance 1: anything passed",
        (
            Shown(
                How.REAL, "a lost bias, compared with these tolerances: quantised outputs are compared in quanta",
                replace(LINEAR, tolerance=UPSTREAMS_BOUND),
                replace(MVE_LAYOUT, linted=False, tolerance=UPSTREAMS_BOUND), ("m4-qemu",),
                mismatch("quantized_linear", FindingKind.COLLAPSE, By.LAYOUT),
            ),
            Shown(
                How.REAL, "a float layer, compared with these tolerances",
                module(lambda: nn.Conv2d(3, 4, 3), (1, 3, 8, 8), setup=Setup(biased_layer), quantize=False),
                replace(
                    module(lambda: nn.Conv2d(3, 4, 3), (1, 3, 8, 8), setup=Setup(biased_layer), quantize=False),
                    tolerance=UPSTREAMS_BOUND,
                ),
                ("native",), Caught(HilWarning, FindingKind.UNINFORMATIVE, "convolution"),
            ),
        ),
        ("tests/harness/maintainers/test_upstream.py"
         "::test_one_quantum_off_the_dialect_is_a_mismatch_though_upstream_tolerates_it",),
    ),
    KnownBug(
        "missing kernel",
        ("pytorch/executorch#17075",),
        "the target does not exit, and the job ends by its time limit",
        (
            Shown(
                How.REAL, "a hyperbolic sine, for which the runner has no kernel",
                Setup(softmax_after(nn.Tanh)), Setup(softmax_after(lambda: Apply(torch.sinh))), ("native",),
                Caught(UnsupportedOperator, Rule.OPERATOR, "sinh"),
            ),
            Shown(
                How.REAL, "the same, run without lint: the runner says it at once",
                Setup(softmax_after(nn.Tanh), linted=False),
                Setup(softmax_after(lambda: Apply(torch.sinh)), linted=False), ("native",),
                Caught(UnsupportedOperator, None, "sinh"),
            ),
        ),
        ("tests/harness/flow/test_verdicts.py::test_all_missing_operators_are_named",),
    ),
    KnownBug(
        "older ISAs run as subsets of an M55",
        ("pytorch/executorch#19520", "pytorch/executorch#19731"),
        "code for DSP and scalar cores only ever ran on a Cortex-M55",
        shown_by=(
            "tests/harness/runner/test_build.py::test_the_smallest_cores_get_armv6m_code_only",
            "tests/harness/runner/test_build.py::test_dsp_and_scalar_runners_have_no_mve_instructions",
            "tests/harness/runner/session/test_session.py::test_an_elf_of_other_compiler_flags_is_found_out",
        ),
    ),
    KnownBug(
        "HardFault that the M55 model does not have",
        ("pytorch/executorch#9356", "pytorch/executorch#7651"),
        "the same program passes there",
        (
            Shown(
                How.PLANTED, "a fully connected layer loads an unaligned word, which ARMv6-M cannot",
                Setup(network), Setup(network, patch=PLANTED["unaligned_load"].patch), ("m0-qemu",),
                Caught(TargetFault, None, "quantized_linear"), hidden=("m55-qemu",),
            ),
        ),
        ("tests/harness/flow/test_verdicts.py::test_a_fault_names_exception_cause_function_and_line",),
    ),
    KnownBug(
        "another target's runner",
        ("pytorch/executorch#20048",),
        "the results were wrong, and nothing was said",
        shown_by=(
            "tests/harness/runner/session/test_session.py::test_another_targets_elf_is_found_out",
            "tests/harness/runner/session/test_session.py::test_a_wrong_elf_never_runs_a_test",
        ),
    ),
    KnownBug(
        *numbered(1),
        "272 bytes are planned and 288 used, as CMSIS-NN's size function takes the wrong stride; in the 1.5.1 wheel",
        (
            Shown(
                How.FORESEEN, "the program that the wheel makes",
                replace(FILE_ONLY, network=transposed(2, 2)), replace(FILE_ONLY, network=transposed(1, (1, 2))),
                CORES, Caught(LintError, Rule.ARGUMENTS, "quantized_transpose_conv2d"),
            ),
        ),
        ("tests/harness/diagnose/test_redzones.py"
         "::test_the_scratch_overflow_of_transposed_convolutions_is_found",),
    ),
    KnownBug(
        *numbered(2),
        "a vertical padding that is no multiple of the stride: rows are left out, and those after them are wrong",
        (
            Shown(
                How.FORESEEN, "the program that the wheel makes",
                replace(FILE_ONLY, network=transposed(3, 2)), replace(FILE_ONLY, network=transposed(3, 2, 1)),
                CORES, Caught(LintError, Rule.ARGUMENTS, "quantized_transpose_conv2d"),
            ),
            Shown(
                How.PLANTED, "our kernel does not write the last row, which the next operator reads",
                Setup(transposed(3, 2, 1)),
                Setup(transposed(3, 2, 1), patch=PATCHES / "last_row_skipped.patch"), ("native",),
                mismatch("quantized_transpose_conv2d", FindingKind.QUANTA),
            ),
        ),
        ("tests/harness/checks/comparison/test_compare_outputs.py::test_elements_that_were_never_written_are_errors",),
    ),
    KnownBug(
        "average pool that failed on DSP only",
        ("pytorch/executorch#19825",),
        "CMSIS-NN's DSP form wants scratch, and got none; its MVE form needs none",
        (
            Shown(
                How.FORESEEN, "the plan without scratch, which is right for MVE, on each class",
                POOLED, replace(POOLED, lowered_for=Isa.MVE, change=from_elsewhere), ("m4-qemu",),
                Caught(LintError, Rule.SCRATCH, "quantized_avg_pool2d"), hidden=("m0-qemu", "m55-qemu"),
            ),
        ),
    ),
    KnownBug(
        *numbered(9),
        "CMSIS-NN advances the null pointer to the biases by a group: channels are pinned at the largest value",
        (
            Shown(
                How.PLANTED, "the bias of zeros that executorch 1.5 puts in is taken out of the file",
                replace(FILE_ONLY, network=grouped), replace(FILE_ONLY, network=grouped, change=without_bias),
                CORES, Caught(LintError, Rule.ARGUMENTS, "quantized_conv2d"),
            ),
            Shown(
                How.PLANTED, "the same file; our kernel advances the null pointer",
                GROUPED, replace(GROUPED, patch=PATCHES / "null_bias_advanced.patch"), ("native",),
                mismatch("quantized_conv2d", FindingKind.SATURATION),
            ),
        ),
    ),
    KnownBug(
        "test that could not see the grouped convolution's bug",
        ("pytorch/executorch#21825",),
        "its input was a ramp of positive numbers: right and wrong outputs were both the largest value",
        (
            Shown(
                How.REAL, "positive weights and a ramp: all outputs of the reference are one value",
                Setup(grouped), of_calibration(Setup(ramp, tolerance=Tolerance(eager_sqnr=-300.0)), grouped()[1]),
                ("native",),
                Caught(HilWarning, FindingKind.UNINFORMATIVE, "quantized_conv2d"),
            ),
        ),
    ),
    KnownBug(
        "contiguous data for an NHWC program",
        ("pytorch/executorch#22150", "pytorch/executorch#21485"),
        "the numbers of a contiguous tensor are read as channels-last; it looks like a bad accuracy",
        (
            Shown(
                How.REAL, "contiguous inputs for a program that was lowered with channels-last ones",
                IMAGE, replace(IMAGE, change=contiguous_inputs), ("native",),
                Caught(ConfigError, None, "", By.NOBODY),
            ),
        ),
        ("tests/harness/checks/test_lint.py::test_inputs_that_do_not_fit",),
    ),
    KnownBug(
        "add with alpha computed x + y",
        ("pytorch/executorch#22153",),
        "torch.add(x, y, alpha=2) was lowered without its factor",
        (
            Shown(
                How.PLANTED, "the pass of executorch 1.5.1, made blind to alpha",
                SCALED_SUM, replace(SCALED_SUM, compiler=alpha_is_dropped), ("native",),
                mismatch("quantized_add", FindingKind.QUANTIZED, By.GRAPH),
            ),
        ),
    ),
    KnownBug(
        "layers left in float without a word",
        ("pytorch/executorch#21943", "pytorch/executorch#21904"),
        "the quantiser leaves operators out; they are right, and slow",
        (
            Shown(
                How.REAL, "a convolution in one dimension, which executorch 1.5.1 leaves out",
                IMAGE, Setup(sample(lambda: nn.Conv1d(4, 6, 3), (1, 4, 9))), ("native",),
                Caught(LintFinding, Rule.FLOAT_NOTE, "convolution"),
            ),
        ),
    ),
    KnownBug(
        "expected failures that hid passes and broken set-ups",
        ("pytorch/executorch#21754",),
        "xfail was not strict, and an error of the infrastructure counted as expected",
        shown_by=(
            "tests/harness/pytest_plugin/test_plugin.py::test_markers_skip_and_xfail_by_target_and_verdict",
            "tests/harness/maintainers/test_upstream.py::test_an_infra_error_is_no_expected_failure",
        ),
    ),
    KnownBug(
        "inputs that depended on the order of imports",
        ("pytorch/executorch#20623", "pytorch/executorch#21794"),
        "one seed for the whole run: which numbers a test drew depended on what was imported before",
        shown_by=(
            "tests/harness/pytest_plugin/test_seeding.py"
            "::test_what_a_test_draws_depends_on_nothing_but_the_seed",
        ),
    ),
    KnownBug(
        "command line of an FVP cut at 256 characters",
        ("pytorch/executorch#17759",),
        "what follows is lost",
        shown_by=(
            "tests/harness/runner/launchers/test_launchers.py::test_a_model_keeps_256_characters_of_the_command_line",
            "tests/harness/diagnose/test_verify_fvp.py::test_a_long_command_line_is_refused",
            "tests/harness/maintainers/fvp_shim/test_shim.py::test_the_command_line_is_cut",
        ),
    ),
    KnownBug(
        "pools of 60 MiB",
        ("pytorch/executorch#21854",),
        "the model of the core has memory for anything; the part does not",
        (
            Shown(
                How.REAL, "a layer too large for a board of 128 KB, by the board's figures alone: none is needed",
                module(lambda: nn.Conv2d(3, 16, 3), (1, 3, 8, 8), setup=Setup(biased_layer, runs=False)),
                module(lambda: nn.Conv2d(3, 16, 3), (1, 3, 96, 96), setup=Setup(biased_layer, runs=False)),
                ("nucleo-f446re",), Caught(OutOfTargetMemory, Rule.PLANNED_POOL, "", By.NOBODY),
                hidden=("m4-qemu",),
            ),
        ),
        ("tests/harness/flow/test_verdicts.py::test_too_much_planned_memory_says_how_much",),
    ),
    KnownBug(
        "size thresholds of programs raised by hand",
        ("pytorch/executorch#17075", "pytorch/executorch#16134", "pytorch/executorch#16400"),
        "without knowing which operator grew",
        shown_by=(
            "tests/harness/campaigns/report/test_changes.py::test_each_kind_of_change_between_two_results_is_reported",
            "tests/nightly/test_nightly.py::test_what_is_injected_into_the_store_is_told_and_nothing_else",
        ),
    ),
    KnownBug(
        "cycles of the M55 always 0",
        ("pytorch/executorch#21833",),
        "and nobody was told",
        (
            Shown(
                How.PLANTED, "the runner says 0 on MVE",
                LINEAR, replace(LINEAR, patch=PATCHES / "no_ticks.patch"), ("m55-qemu",),
                Caught(ProtocolError, None, "", By.NOBODY), hidden=("m4-qemu",),
            ),
        ),
    ),
)  # fmt: skip

HALVES: Final = Setup(clamped, change=halfway_inputs)

FOUND_HERE: Final = (
    KnownBug(
        *numbered(3),
        "its MVE form multiplies and adds in one rounding: another quantum for values in the middle",
        (
            Shown(
                How.PLANTED, "our kernel does so on MVE",
                HALVES, replace(HALVES, patch=PATCHES / "quantize_in_one_rounding.patch"), ("m55-qemu",),
                mismatch("quantize_per_tensor", FindingKind.QUANTA), hidden=("m4-qemu",),
            ),
        ),
    ),
    KnownBug(
        *numbered(4),
        "its MVE form narrows to 16 bits before it clamps: a large positive input becomes the smallest value",
        (
            Shown(
                How.PLANTED, "our kernel does so on MVE; the inputs are far outside what was calibrated",
                of_calibration(Setup(far_outside, tolerance=Tolerance(eager_sqnr=-300.0)), ordinary()),
                of_calibration(
                    Setup(
                        far_outside, tolerance=Tolerance(eager_sqnr=-300.0),
                        patch=PATCHES / "quantize_narrowed_first.patch",
                    ),
                    ordinary(),
                ),
                ("m55-qemu",), mismatch("quantize_per_tensor", FindingKind.QUANTA), hidden=("m4-qemu",),
            ),
        ),
    ),
    KnownBug(
        *numbered(5),
        "portable operators that broadcast write a channels-last output in contiguous order",
        (
            Shown(
                How.REAL, "the wheel's portable kernels, on the host",
                module(
                    lambda: Apply(torch.mul), (2, 8, 5, 5), (2, 8, 5, 5), setup=HOST_EXECUTORCH, quantize=False
                ),
                module(
                    lambda: Apply(torch.mul), (2, 8, 5, 5), (1, 8, 1, 1), setup=HOST_EXECUTORCH, quantize=False
                ),
                ("native",), mismatch("mul", FindingKind.QUANTIZED),
            ),
            Shown(
                How.FORESEEN, "the same program",
                module(lambda: Apply(torch.mul), (2, 8, 5, 5), (2, 8, 5, 5), quantize=False),
                module(lambda: Apply(torch.mul), (2, 8, 5, 5), (1, 8, 1, 1), quantize=False),
                CORES, Caught(LintError, Rule.DIM_ORDER, "mul"),
            ),
        ),
    ),
    KnownBug(
        *numbered(6),
        "its exporter derives dim order 0, 2, 1, 3 for a single channel, and its kernel refuses that",
        (
            Shown(
                How.REAL, "the wheel's portable kernel, on the host",
                module(
                    lambda: nn.MaxPool2d(3, 2, 1, ceil_mode=True), (1, 2, 4, 4), setup=HOST_EXECUTORCH,
                    quantize=False,
                ),
                module(
                    lambda: nn.MaxPool2d(3, 2, 1, ceil_mode=True), (1, 1, 4, 4), setup=HOST_EXECUTORCH,
                    quantize=False,
                ),
                ("native",), Caught(ProgramRejected, None, "max_pool2d_with_indices"),
            ),
            Shown(
                How.FORESEEN, "the quantised program",
                module(lambda: nn.MaxPool2d(3, 2, 1, ceil_mode=True), (1, 2, 4, 4)),
                module(lambda: nn.MaxPool2d(3, 2, 1, ceil_mode=True), (1, 1, 4, 4)),
                CORES, Caught(LintError, Rule.DIM_ORDER, "max_pool2d_with_indices"),
            ),
        ),
    ),
    KnownBug(
        *numbered(7),
        "they compute as if their tensors were contiguous",
        (
            Shown(
                How.FORESEEN, "minimum of two images, in each layout",
                module(lambda: Apply(torch.minimum), (1, 2, 3, 4), (1, 2, 3, 4), layout="explicit"),
                module(lambda: Apply(torch.minimum), (1, 2, 3, 4), (1, 2, 3, 4)),
                CORES, Caught(LintError, Rule.DIM_ORDER, "minimum"),
            ),
            Shown(
                How.FORESEEN, "a permutation of an image, in each layout",
                module(
                    lambda: Apply(lambda x: x.permute(0, 3, 1, 2)), (2, 3, 4, 5), layout="explicit"
                ),
                module(lambda: Apply(lambda x: x.permute(0, 3, 1, 2)), (2, 3, 4, 5)),
                CORES, Caught(LintError, Rule.DIM_ORDER, "transpose"),
            ),
        ),
        ("tests/targets/test_operators.py::test_not_contiguous_is_caught_without_lint",),
    ),
    KnownBug(
        *numbered(8),
        "%zu is not formatted by Debian's newlib, and %s after it takes a number for an address",
        shown_by=("tests/harness/runner/test_linked_executorch.py"
                  "::test_log_lines_are_formatted_as_the_hosts_library_would",),
    ),
    KnownBug(
        *numbered(10),
        "80 bytes are planned, and the operator wants 16: one input channel and a 1×1 kernel, on MVE",
        (
            Shown(
                How.FORESEEN, "the program that the wheel makes",
                module(lambda: nn.Conv2d(1, 16, 3), (1, 1, 8, 8)), module(lambda: nn.Conv2d(1, 16, 1), (1, 1, 8, 8)),
                ("m55-qemu",), Caught(LintError, Rule.SCRATCH, "quantized_depthwise_conv2d"),
                hidden=("m4-qemu", "m0-qemu"),
            ),
        ),
    ),
    KnownBug(
        *numbered(11),
        "minimum, maximum and permute are not replaced in a network with a hardswish; they are right all the same",
        shown_by=("tests/targets/test_operators.py::test_other",),
    ),
    KnownBug(
        *numbered(12),
        "aten::convolution stays on int8 where a clamp comes before a concatenation, and computes without scales",
        (
            Shown(
                How.FORESEEN, "a clamped convolution and another, joined",
                module(
                    lambda: Apply(lambda a, b, x: torch.cat((a(x), b(x)), 0), nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 1)),
                    (1, 3, 5, 5),
                ),
                module(
                    lambda: Apply(
                        lambda a, b, x: torch.cat((nn.functional.hardtanh(a(x)), b(x)), 0),
                        nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 1),
                    ),
                    (1, 3, 5, 5),
                ),
                CORES, Caught(LintError, Rule.DTYPE, "convolution"),
            ),
        ),
    ),
    KnownBug(
        *numbered(13),
        "torch.minimum(x, constant) becomes a cortex_m::minimum whose second operand is float",
        (
            Shown(
                How.FORESEEN, "a constant made by torch.full",
                module(lambda: Apply(torch.minimum), (2, 3), (2, 3)),
                module(lambda: Apply(lambda x: torch.minimum(x, torch.full((3,), 0.5))), (2, 3)),
                CORES, Caught(LintError, Rule.DTYPE, "minimum"),
            ),
        ),
    ),
    KnownBug(
        *numbered(14),
        "the fused layer would need a zero point beyond the range; the pass clamps it",
        (
            Shown(
                How.REAL, "behind a layer with a bias of 1, and of -1",
                Setup(hard_sigmoid(1.0)), Setup(hard_sigmoid(-1.0)), ("native",),
                mismatch("quantized_depthwise_conv2d", FindingKind.QUANTIZED, By.NOT_COMPARED),
            ),
        ),
        ("tests/harness/lowering/test_rounding.py"
         "::test_a_hard_sigmoid_of_less_than_a_half_is_lowered_wrongly_and_caught",),
    ),
    KnownBug(
        *numbered(15),
        "a layer that got nothing but zeros in calibration loses its bias",
        (
            Shown(
                How.REAL, "behind a relu that lets nothing through",
                Setup(gate(1.0)), Setup(gate(-9.0)), ("native",),
                Caught(LintError, Rule.ARGUMENTS, "quantized_linear"),
            ),
        ),
        ("tests/harness/lowering/test_rounding.py::test_a_bias_beyond_int32_is_caught",),
    ),
    KnownBug(
        *numbered(16),
        "a relu behind another relu stays aten::relu on int8",
        (
            Shown(
                How.FORESEEN, "a fully connected layer with one relu, and with two",
                module(lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU()), (3, 8)),
                module(lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.ReLU()), (3, 8)),
                CORES, Caught(LintError, Rule.DTYPE, "relu"),
            ),
            Shown(
                How.REAL, "the same on the runtime builtin",
                module(lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU()), (3, 8), setup=Setup(biased_layer)),
                module(lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.ReLU()), (3, 8), setup=Setup(biased_layer)),
                ("native",), Caught(LintError, Rule.DTYPE, "relu"),
            ),
        ),
    ),
    KnownBug(
        *numbered(17),
        "functional pools with padding, whose stride is left out",
        (),
        ("tests/harness/lowering/test_lowering.py::test_a_pool_with_padding_and_without_a_stride_is_refused_by_executorch",),
    ),
    KnownBug(
        *numbered(18),
        "in the explicit layout it is planned channels-last, and read as contiguous",
        (),
        ("tests/harness/maintainers/test_known_defects.py"
         "::test_an_image_of_one_pixel_is_padded_in_another_order_in_the_explicit_layout",),
    ),
    KnownBug(
        *numbered(19),
        "where it rounds its size up and counts its padding",
        (),
        ("tests/harness/maintainers/test_known_defects.py::test_a_pool_that_rounds_up_and_counts_its_padding_has_too_many_rows",),
    ),
    KnownBug(
        *numbered(20),
        "of a hardswish behind a layer with tiny outputs",
        (
            Shown(
                How.FORESEEN, "behind a linear layer, and one with weights of a thousandth",
                module(lambda: hardswish(1.0), (3, 8)), module(lambda: hardswish(1e-3), (3, 8)),
                ("m4-qemu",), Caught(LintError, Rule.ARGUMENTS, "quantized_mul"), hidden=("m55-qemu", "m0-qemu"),
            ),
        ),
        ("tests/harness/maintainers/test_known_defects.py::test_a_hardswish_of_tiny_values_is_refused_on_dsp_alone",),
    ),
    KnownBug(
        *numbered(21),
        "as many rows as its stride and padding have more than its kernel",
        (
            Shown(
                How.FORESEEN, "the program that the wheel makes, with a kernel of two rows and of one",
                replace(FILE_ONLY, network=transposed(2, 2)), replace(FILE_ONLY, network=transposed(1, (2, 1))),
                CORES, Caught(LintError, Rule.ARGUMENTS, "quantized_transpose_conv2d"),
            ),
        ),
    ),
    KnownBug(
        *numbered(22),
        "by cat, along any dimension but the first",
        (
            Shown(
                How.FORESEEN, "two images, joined along the first dimension and along the channels",
                module(lambda: Apply(lambda x, y: torch.cat((x, y), 0)), (2, 3, 4, 5), (2, 3, 4, 5)),
                module(lambda: Apply(lambda x, y: torch.cat((x, y), 1)), (2, 3, 4, 5), (2, 3, 4, 5)),
                CORES, Caught(LintError, Rule.DIM_ORDER, "cat"),
            ),
        ),
    ),
    KnownBug(
        *numbered(24),
        "a view of a channels-last tensor is made without a copy: pixel and channel shuffles give other numbers",
        (
            Shown(
                How.REAL, "a pixel shuffle behind a convolution, on the wheel's own runtime; and a relu",
                module(lambda: nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU()), (2, 3, 4, 5), setup=HOST_EXECUTORCH,
                       quantize=False),
                module(lambda: nn.Sequential(nn.Conv2d(3, 8, 1), nn.PixelShuffle(2)), (2, 3, 4, 5),
                       setup=HOST_EXECUTORCH, quantize=False),
                ("native",), mismatch("permute_copy", FindingKind.QUANTIZED),
            ),
            Shown(
                How.FORESEEN, "the same, quantised, in the layout channels_last and in the explicit one",
                module(lambda: nn.Sequential(nn.Conv2d(3, 8, 1), nn.ChannelShuffle(2)), (2, 3, 4, 5),
                       layout="explicit"),
                module(lambda: nn.Sequential(nn.Conv2d(3, 8, 1), nn.ChannelShuffle(2)), (2, 3, 4, 5)),
                CORES, Caught(LintError, Rule.DIM_ORDER, "dequantize_per_tensor"),
            ),
        ),
    ),
    KnownBug(
        *numbered(25),
        "its kernel does not round the quotient (4.6 // 0.3 is below 15); by zero it takes the dividend's sign",
        (
            Shown(
                How.REAL, "the wheel's portable kernels, on the host",
                module(lambda: Apply(lambda x, y: torch.div(x.relu(), y.relu() + 1, rounding_mode="floor")),
                       (4, 9), (4, 9), setup=HOST_EXECUTORCH, quantize=False),
                module(lambda: Apply(lambda x, y: torch.div(x.relu(), y.relu(), rounding_mode="floor")),
                       (4, 9), (4, 9), setup=HOST_EXECUTORCH, quantize=False),
                ("native",), mismatch("div", FindingKind.NAN),
            ),
        ),
    ),
    KnownBug(
        *numbered(30),
        "its kernel takes C's `%`: -7 % 4 is -3, and 1 in torch; of floats it is right",
        (
            Shown(
                How.REAL, "the wheel's portable kernels, on the host",
                module(lambda: Apply(lambda x: (x * 9).to(torch.int32).abs() % 4), (4, 9), setup=HOST_EXECUTORCH,
                       quantize=False),
                module(lambda: Apply(lambda x: (x * 9).to(torch.int32) % 4), (4, 9), setup=HOST_EXECUTORCH,
                       quantize=False),
                ("native",), mismatch("remainder", FindingKind.EXACT),
            ),
        ),
    ),
    KnownBug(
        *numbered(34),
        "of a layer whose input has next to no range: it is cut off, and sums leave int32",
        (
            Shown(
                How.FORESEEN, "a layer with a bias, on ordinary inputs and on a millionth of them",
                replace(FILE_ONLY, network=sample(nearly_all_bias, (3, 8))),
                replace(FILE_ONLY, network=sample(nearly_all_bias, (3, 8), scale=1e-6)),
                CORES, Caught(LintError, Rule.ARGUMENTS, "quantized_linear"),
            ),
        ),
        ("tests/harness/maintainers/test_known_defects.py::test_a_bias_that_is_cut_off_makes_sums_leave_int32",),
    ),
    KnownBug(
        *numbered(35),
        "a dilated max pool with a window in the padding alone gives 0 there",
        (
            Shown(
                How.FORESEEN, "a pool whose window has a pixel, and one without",
                module(lambda: nn.MaxPool2d(2, 1, 1, dilation=3), (1, 2, 5, 5)),
                module(lambda: nn.MaxPool2d(2, 1, 1, dilation=6), (1, 2, 5, 5)),
                CORES, Caught(LintError, Rule.ARGUMENTS, "max_pool2d_with_indices"),
            ),
        ),
        ("tests/harness/checks/test_lint.py::test_a_pool_with_a_window_in_the_padding_alone_is_refused",),
    ),
    KnownBug(
        *numbered(36),
        "by flip, pads, unsqueeze and others, also of floats: their kernels go by the sizes alone",
        (
            Shown(
                How.REAL, "an image mirrored, by the wheel's portable kernels, on the host; and its negative",
                module(lambda: Apply(torch.neg), (2, 3, 4, 5), setup=HOST_EXECUTORCH, quantize=False),
                module(lambda: Apply(lambda x: x.flip(2)), (2, 3, 4, 5), setup=HOST_EXECUTORCH, quantize=False),
                ("native",), mismatch("flip", FindingKind.QUANTIZED),
            ),
            Shown(
                How.FORESEEN, "the same program",
                module(lambda: Apply(torch.neg), (2, 3, 4, 5), quantize=False),
                module(lambda: Apply(lambda x: x.flip(2)), (2, 3, 4, 5), quantize=False),
                CORES, Caught(LintError, Rule.DIM_ORDER, "flip"),
            ),
        ),
        ("tests/harness/checks/test_lint.py::test_what_a_runtime_gets_wrong",),
    ),
    KnownBug(
        *numbered(37),
        "over height or width its kernel takes the channels for a part of what lies outside the dimension",
        (
            Shown(
                How.FORESEEN, "over the width of an image, in each layout",
                module(lambda: nn.Softmax(3), (2, 3, 4, 5), quantize=False, layout="explicit"),
                module(lambda: nn.Softmax(3), (2, 3, 4, 5), quantize=False),
                CORES, Caught(LintError, Rule.DIM_ORDER, "_softmax"),
            ),
        ),
        (
            "tests/harness/runner/test_linked_executorch.py"
            "::test_a_softmax_of_channels_last_images_writes_outside_of_them",
        ),
    ),
    KnownBug(
        *numbered(38),
        "the compiler asks for channels-last, and plans the tensor in another dim order of the same bytes",
        (
            Shown(
                How.REAL, "a clone, by the wheel's portable kernels, on the host: of two channels, and of one",
                module(lambda: Apply(torch.clone), (2, 2, 4, 5), setup=HOST_EXECUTORCH, quantize=False),
                module(lambda: Apply(torch.clone), (2, 1, 4, 5), setup=HOST_EXECUTORCH, quantize=False),
                ("native",), Caught(ProgramRejected, None, "_clone_dim_order"),
            ),
            Shown(
                How.FORESEEN, "the same program",
                module(lambda: Apply(torch.clone), (2, 2, 4, 5), quantize=False),
                module(lambda: Apply(torch.clone), (2, 1, 4, 5), quantize=False),
                CORES, Caught(LintError, Rule.DIM_ORDER, "_clone_dim_order"),
            ),
        ),
    ),
    KnownBug(
        *numbered(39),
        "images of one row: a column that no window reaches, a padding wider than the stride, or one above and below",
        (
            Shown(
                How.FORESEEN, "every second window of nine columns, and of eight",
                module(lambda: nn.Conv2d(4, 3, (1, 3), stride=(1, 2)), (1, 4, 1, 9)),
                module(lambda: nn.Conv2d(4, 3, (1, 3), stride=(1, 2)), (1, 4, 1, 8)),
                ("m55-qemu",), Caught(LintError, Rule.ARGUMENTS, "quantized_conv2d"), hidden=("m4-qemu", "m0-qemu"),
            ),
        ),
        ("tests/nightly/test_foreseen_convolutions.py::test_lint_foresees_the_rows_that_a_target_gets_wrong",),
    ),
    KnownBug(
        *numbered(26),
        "a pass makes `amax` of `torch.max(x, dim)[0]`, with a number where the kernel takes a list",
        (
            Shown(
                How.REAL, "the wheel's own runtime, on the host",
                module(lambda: Apply(lambda x: x.amax(1)), (2, 3, 4), setup=HOST_EXECUTORCH, quantize=False),
                module(lambda: Apply(lambda x: torch.max(x, 1)[0]), (2, 3, 4), setup=HOST_EXECUTORCH, quantize=False),
                ("native",), Caught(TargetFault, None, "amax"),
            ),
            Shown(
                How.FORESEEN, "the same program, quantised",
                module(lambda: Apply(lambda x: x.amax(1)), (2, 3, 4)),
                module(lambda: Apply(lambda x: torch.max(x, 1)[0]), (2, 3, 4)),
                CORES, Caught(LintError, Rule.DTYPE, "amax"),
            ),
        ),
    ),
    KnownBug(
        *numbered(29),
        "layer and group norm take the variance as a difference of squares: far from zero nothing is left of it",
        (
            Shown(
                How.REAL, "the wheel's portable kernels, on the host: around 0, and around 1000",
                module(lambda: nn.LayerNorm(64), (4, 64), setup=HOST_EXECUTORCH, quantize=False),
                module(lambda: nn.Sequential(Apply(lambda x: x + 1000), nn.LayerNorm(64)), (4, 64),
                       setup=HOST_EXECUTORCH, quantize=False),
                ("native",), mismatch("native_layer_norm", FindingKind.QUANTIZED),
            ),
        ),
    ),
    KnownBug(
        *numbered(28),
        "with accumulate=True it adds quantised integers as they are",
        (),
        ("tests/harness/checks/test_lint.py::test_calls_that_a_runtime_does_not_take",),
    ),
    KnownBug(
        *numbered(27),
        "a layer with a bias counts as int32 until it is replaced, the other side of `bmm` as int8",
        (),
        ("tests/nightly/test_portable_operators.py::test_ordinary_models",),
    ),
    KnownBug(
        *numbered(31),
        "quantised values are copied into a float tensor, of which the operator behind it takes the bytes",
        (
            Shown(
                How.FORESEEN, "a fully connected layer behind a padding with zeros, and behind a circular one",
                module(
                    lambda: Apply(lambda layer, x: layer(nn.functional.pad(x, (1, 1))), nn.Linear(12, 4)), (4, 3, 10)
                ),
                module(
                    lambda: Apply(lambda layer, x: layer(nn.functional.pad(x, (1, 1), "circular")), nn.Linear(12, 4)),
                    (4, 3, 10),
                ),
                CORES, Caught(LintError, Rule.DTYPE, "copy"),
            ),
        ),
    ),
    KnownBug(
        *numbered(32),
        "inputs smaller than a dynamic shape's upper bounds: outputs keep the bounds, with what was there in the rest",
        (),
        ("tests/nightly/test_dynamic_shapes.py::test_a_quantised_kernel_that_does_not_resize_is_named",),
    ),
    KnownBug(
        *numbered(33),
        "asking for the bytes of its scratch fixes the dimension; the file says all the same that its input is dynamic",
        (),
        ("tests/harness/lowering/test_dynamic_shapes.py::test_the_scratch_of_a_convolution_fixes_the_batch",),
    ),
    KnownBug(
        *numbered(41),
        "what goes into `torch.cond` is quantised, and in its branches ATen's operators take it without scales",
        (
            Shown(
                How.FORESEEN, "a fully connected layer behind an addition, and behind one in a branch",
                replace(FILE_ONLY, network=doubled(False)), replace(FILE_ONLY, network=doubled(True)),
                CORES, Caught(LintError, Rule.DTYPE, "add"),
            ),
        ),
    ),
    KnownBug(
        *numbered(40),
        "a `forward` under `torch.no_grad()` is a graph inside the export's: the quantiser sees the outer one alone",
        (),
        ("tests/harness/lowering/test_modes.py::test_what_executorchs_quantiser_does_not_see",),
    ),
    KnownBug(
        *numbered(42),
        "a hardswish behind a sigmoid leaves aten::minimum of an image and of one number, whose dim orders differ",
        (
            Shown(
                How.FORESEEN, "a convolution with a relu6 there, and with a hardswish",
                module(lambda: behind_a_sigmoid(nn.ReLU6), (1, 3, 8, 8)),
                module(lambda: behind_a_sigmoid(nn.Hardswish), (1, 3, 8, 8)),
                CORES, Caught(LintError, Rule.DIM_ORDER, "minimum"),
            ),
        ),
    ),
    KnownBug(
        *numbered(43),
        "its weight has one channel, whose dim order the exporter derives as 0, 2, 1, 3",
        (
            Shown(
                How.FORESEEN, "of one group, and of one for each channel",
                module(lambda: nn.Conv2d(2, 4, 2), (2, 2, 4, 6), quantize=False),
                module(lambda: nn.Conv2d(2, 4, 2, groups=2), (2, 2, 4, 6), quantize=False),
                CORES, Caught(LintError, Rule.DIM_ORDER, "convolution"),
            ),
        ),
    ),
    KnownBug(
        *numbered(44),
        "the convolution by which it is computed has a negative padding, for which CMSIS-NN reads no input",
        (
            Shown(
                How.FORESEEN, "of 20 channels with a kernel of one, without padding and with",
                replace(FILE_ONLY, network=transposed(1, 1, 0, 20)),
                replace(FILE_ONLY, network=transposed(1, 1, 1, 20)),
                CORES, Caught(LintError, Rule.ARGUMENTS, "quantized_transpose_conv2d"),
            ),
        ),
        ("tests/nightly/test_foreseen_convolutions.py"
         "::test_lint_foresees_the_transposed_convolutions_that_lose_their_input",),
    ),
    KnownBug(
        *numbered(45),
        "an image of one pixel or channel is contiguous and channels-last, and the quantiser takes it for the latter",
        (
            Shown(
                How.FORESEEN, "over rows, and over the channels of images of one pixel",
                module(lambda: nn.Softmax(1), (2, 8)), module(lambda: nn.Softmax(1), (2, 8, 1, 1)),
                CORES, Caught(LintError, Rule.ARGUMENTS, "softmax"),
            ),
        ),
    ),
    KnownBug(
        *numbered(46),
        "its loops over rows and over widths share one correction of the address; the kernel passes on four sizes",
        (
            Shown(
                How.FORESEEN, "with a number for each row, and with one for each channel",
                module(lambda: Apply(torch.minimum), (1, 4, 3, 3), (1, 4, 3, 1), layout="explicit"),
                module(lambda: Apply(torch.minimum), (1, 4, 3, 3), (1, 4, 1, 1), layout="explicit"),
                CORES, Caught(LintError, Rule.ARGUMENTS, "minimum"),
            ),
            Shown(
                How.FORESEEN, "of four dimensions, and of five",
                module(lambda: Apply(torch.maximum), (2, 4, 3, 3), (2, 4, 3, 3), layout="explicit"),
                module(lambda: Apply(torch.maximum), (2, 2, 4, 3, 3), (2, 2, 4, 3, 3), layout="explicit"),
                CORES, Caught(LintError, Rule.ARGUMENTS, "maximum"),
            ),
        ),
        ("tests/nightly/test_foreseen_minima.py::test_lint_foresees_the_minima_that_a_target_gets_wrong",),
    ),
    KnownBug(
        *numbered(23),
        "inputs of a `.bpte` are written contiguous, and the runtime copies their bytes into channels-last inputs",
        (),
        ("tests/harness/program/test_bpte_file.py::test_an_input_is_laid_out_as_the_program_takes_it",),
    ),
)  # fmt: skip

BUGS: Final = THREADS + FOUND_HERE
