"""`program.size`: every byte of a `.pte` belongs to one part, and sizes to the byte.

The sizes are those of one version of executorch. With another, `test_sizes_are_of_the_installed_version` says what to
do.
"""

from __future__ import annotations

from importlib.metadata import version
from itertools import islice

import pytest
import torch

from cortex_m_hil.errors import ProgramRejected
from cortex_m_hil.lowering import lower
from cortex_m_hil.lowering.named_modules import NETWORKS, load_named_module
from cortex_m_hil.maintainers.fuzzing.program_mutator import mutants
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.pte_reader import parse_pte, read_all_methods, read_methods
from cortex_m_hil.program.size import PtePart, PteSection, PteSize, measure_pte
from cortex_m_hil.targets.cpu import Isa
from paths import REPOSITORY
from several_methods import made, modules

EXECUTORCH = "1.5.1"
SIZES = {
    "linear": {Isa.MVE: 7384, Isa.DSP: 7336, Isa.SCALAR: 7336},
    "deep_autoencoder": {Isa.MVE: 285376, Isa.DSP: 278048, Isa.SCALAR: 278048},
    "ds_cnn": {Isa.MVE: 51168, Isa.DSP: 50992, Isa.SCALAR: 50992},
    "mobilenet_v1_025": {Isa.MVE: 299672, Isa.DSP: 299528, Isa.SCALAR: 299528},
    "resnet8": {Isa.MVE: 97864, Isa.DSP: 97688, Isa.SCALAR: 97688},
}
LINEAR = {
    Isa.MVE: {"header": 40, "tables": 529, "values": 971, "instructions": 244, "operators": 177,
              "vtables": 142, "constants": 5160, "unused": 40, "padding": 81},
    Isa.DSP: {"header": 40, "tables": 521, "values": 917, "instructions": 244, "operators": 177,
              "vtables": 142, "constants": 5160, "padding": 135},
}  # fmt: skip
LINEAR[Isa.SCALAR] = LINEAR[Isa.DSP]
# For MVE, and for the others: parameters of batch norms, weights before they were laid out anew, biases within sums.
UNUSED = {
    "deep_autoencoder": (6688, 0),
    "ds_cnn": (10032, 9984),
    "mobilenet_v1_025": (35104, 35096),
    "resnet8": (2856, 2816),
}
BIAS, KERNEL_SUM = 2, 3  # arguments of cortex_m::quantized_linear
FILES = {
    **{path.stem: path.read_bytes() for path in sorted((REPOSITORY / "tests" / "fuzz_seeds").glob("*.pte"))},
    **{isa.value: known_answer(isa).program for isa in Isa},
}


def lowered(name: str, isa: Isa) -> Program:
    if name in NETWORKS:
        return lower(*load_named_module(name), isa=isa, name=name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return lower(torch.nn.Linear(512, 10), (torch.rand(1, 512),), isa=isa, name=name)


def constants(size: PteSize) -> list[PtePart]:
    return [part for part in size.parts if part.value >= 0]


@pytest.mark.parametrize("isa", Isa)
def test_there_is_no_part_of_what_a_program_has_none_of(isa: Isa) -> None:
    """A list without items belongs to the table that has it."""
    size = measure_pte(parse_pte(known_answer(isa).program))
    assert PteSection.DELEGATES not in {part.section for part in size.parts}


# --- every byte ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_every_byte_belongs_to_one_part(name: str) -> None:
    file = parse_pte(FILES[name])
    size = measure_pte(file)
    assert size.nbytes == sum(size.sections.values()) == len(FILES[name])
    assert PteSection.UNKNOWN not in size.sections
    values = [value for method, _ in read_all_methods(FILES[name], name) for value in method.values]
    held = {value.constant for value in values if value.constant is not None}
    assert sorted(part.nbytes for part in constants(size)) == sorted(nbytes for _, nbytes in held)
    kinds = [value.kind.value for value in values]
    tables = {part.what: part.count for part in size.parts if part.section is PteSection.VALUES}
    assert tables["EValue"] == len(kinds) and tables["Tensor"] == kinds.count("Tensor")


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_so_it_is_in_damaged_files(name: str) -> None:
    """Whatever the parser lets pass: fields may refer to what others refer to as well, or to nothing."""
    measured = 0
    for mutant in islice(mutants(FILES[name], 20261122), 400):
        try:
            size = measure_pte(read_methods(mutant.data)[0])
        except ProgramRejected:
            continue
        measured += 1
        assert size.nbytes == len(mutant.data)
        assert all(part.nbytes >= 0 for part in size.parts)
    assert measured > 20


def test_what_nothing_refers_to_is_padding_or_unknown() -> None:
    before = measure_pte(parse_pte(FILES["linear"])).sections
    after = measure_pte(parse_pte(FILES["linear"] + bytes(7) + b"\1\0\2")).sections
    assert after == {**before, PteSection.PADDING: before[PteSection.PADDING] + 8, PteSection.UNKNOWN: 2}


@pytest.mark.slow
def test_constants_of_all_methods_are_counted_once() -> None:
    """The encoder and the decoder share their weights, and a constant method has a tensor."""
    methods = {name: one for name, one in modules().items() if name != "reset"}
    pte = made(methods, {"table": torch.arange(100)})
    weight = measure_pte(parse_pte(pte, method="encode"))
    assert weight.nbytes == len(pte)
    unused = [(part.method, part.what) for part in weight.parts if part.section is PteSection.UNUSED]
    assert unused == [("decode", "value 1, float32[1, 4], method decode")]  # the state, which only encode takes
    found = {(part.method, part.nbytes): part for part in constants(weight)}
    weights, table = found["decode", 64], found["table", 800]
    assert (weights.operator, weights.count) == ("aten::permute_copy.out", 2)
    assert weights.what == f"value {weights.value}, float32[4, 4], method decode"
    assert (table.operator, table.section) == ("", PteSection.CONSTANTS)


# --- sizes ---------------------------------------------------------------------------------------------------


def test_sizes_are_of_the_installed_version() -> None:
    installed = version("executorch")
    assert installed == EXECUTORCH, (
        f"the sizes here are of executorch {EXECUTORCH}, and {installed} is installed. If the version was changed on "
        "purpose: take the sizes that the tests below tell into SIZES, LINEAR and UNUSED, look at what grew "
        "(`hil inspect size` of both files), and set EXECUTORCH. Else: pip install -c constraints.txt executorch"
    )


@pytest.mark.first_only
@pytest.mark.parametrize("isa", Isa)
def test_a_linear_layer_has_a_bias_or_a_kernel_sum(isa: Isa) -> None:
    """MVE's kernel takes sums with the bias in them. The bias stays in the file all the same, and nobody takes it."""
    program = lowered("linear", isa)
    size = measure_pte(program.file)
    assert len(program.pte) == size.nbytes == SIZES["linear"][isa]
    assert {section.value: nbytes for section, nbytes in size.sections.items()} == LINEAR[isa]
    taken = {part.argument: part for part in constants(size) if part.operator}
    assert {part.operator for part in taken.values()} == {"cortex_m::quantized_linear.out"}
    assert set(taken) == {1, KERNEL_SUM if isa is Isa.MVE else BIAS}
    assert [taken[argument].nbytes for argument in sorted(taken)] == [512 * 10, 4 * 10]
    left = [(part.section, part.nbytes) for part in constants(size) if not part.operator]
    assert left == ([(PteSection.UNUSED, 4 * 10)] if isa is Isa.MVE else [])


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_mlperf_tinys_networks(name: str) -> None:
    found = {isa: lowered(name, isa) for isa in Isa}
    assert {isa: len(program.pte) for isa, program in found.items()} == SIZES[name]
    for isa, program in found.items():
        size = measure_pte(program.file)
        assert size.nbytes == len(program.pte) and PteSection.UNKNOWN not in size.sections
        assert all(bool(part.operator) == (part.section is PteSection.CONSTANTS) for part in constants(size))
        assert size.section_bytes(PteSection.UNUSED) == UNUSED[name][isa is not Isa.MVE]
