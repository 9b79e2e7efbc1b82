"""Mutants of the kernels' sources: one change each, of code and of nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tree_sitter import Parser

from cortex_m_hil.checks.elf import executed_digest
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.host.paths import package_data
from cortex_m_hil.maintainers.mutation.kernel_sources import Kernels
from cortex_m_hil.maintainers.mutation.source_mutants import CPP, SourceEdit, SourceMutant, drawn, mutants_of

KERNELS = Kernels.read(package_data("firmware"))
NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|^[ \t]*#(?:\\\n|[^\n])*', re.DOTALL | re.MULTILINE)

mutants = st.deferred(lambda: st.sampled_from(KERNELS.mutants))


def changes(source: str) -> dict[str, str]:
    """Before and after of each mutant of a function's body."""
    found = mutants_of("x.cpp", f"int f(int a, int b, int* p) {{\n  {source}\n}}\n")
    return {f"{one.kind.value} {one.before}": one.after for one in found}


@pytest.mark.slow
@given(mutants)
def test_a_mutant_differs_in_one_place(mutant: SourceMutant) -> None:
    source = KERNELS.sources[mutant.path]
    data, changed = source.encode(), mutant.applied(source).encode()
    assert changed != data and data[mutant.start :].startswith(mutant.before.encode())
    assert changed == data[: mutant.start] + mutant.text.encode() + data[mutant.end :]
    assert data[mutant.start + len(mutant.before.encode()) : mutant.end].strip() == b""  # the room that it took


@pytest.mark.slow
@given(mutants)
def test_lines_stay_where_they_are(mutant: SourceMutant) -> None:
    source = KERNELS.sources[mutant.path]
    before, after = source.splitlines(), mutant.applied(source).splitlines()
    unequal = [number for number, pair in enumerate(zip(before, after, strict=True), 1) if pair[0] != pair[1]]
    assert unequal and unequal[0] == mutant.line and len(unequal) <= mutant.before.count("\n") + 1
    assert unequal == list(range(unequal[0], unequal[-1] + 1))


@given(mutants)
def test_columns_stay_where_there_is_room(mutant: SourceMutant) -> None:
    if mutant.kind is SourceEdit.COMPARISON:
        source = KERNELS.sources[mutant.path]
        assert len(mutant.applied(source)) == len(source)


@given(mutants)
def test_what_is_no_code_is_left_alone(mutant: SourceMutant) -> None:
    source = KERNELS.sources[mutant.path]
    assert NO_CODE.findall(mutant.applied(source)) == NO_CODE.findall(source) or mutant.kind is SourceEdit.DELETION
    changed = len(source.encode()[: mutant.start].decode())
    assert not any(one.start() <= changed < one.end() for one in NO_CODE.finditer(source))
    assert "static_assert" not in source.splitlines()[mutant.line - 1]


@given(mutants)
def test_a_mutant_can_be_parsed(mutant: SourceMutant) -> None:
    changed = mutant.applied(KERNELS.sources[mutant.path])
    assert not Parser(CPP).parse(changed.encode()).root_node.has_error


@given(st.integers(0, 1 << 32), st.integers(1, 50), st.integers(1, 50))
def test_the_seed_decides_and_fewer_are_the_first_of_more(seed: int, one: int, other: int) -> None:
    first, second = (drawn(KERNELS.mutants, count, seed) for count in (one, other))
    common = min(one, other)
    assert first == drawn(KERNELS.mutants, one, seed) and len(first) == one == len(set(first))
    assert first[:common] == second[:common]


def test_other_seeds_draw_others_and_zero_draws_all() -> None:
    assert drawn(KERNELS.mutants, 20, 1) != drawn(KERNELS.mutants, 20, 2)
    assert set(drawn(KERNELS.mutants, 0, 3)) == set(KERNELS.mutants)


def test_names_tell_mutants_apart() -> None:
    assert len(KERNELS.by_name) == len(KERNELS.mutants) > 1000
    assert {one.kind for one in KERNELS.mutants} == set(SourceEdit)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("return a + b;", {"arithmetic +": "-"}),
        ("return a << 3;", {"arithmetic <<": ">>", "constant 3": "4"}),
        ("return a < 0x1F ? a : b;", {"comparison <": "<=", "constant 0x1F": "0x20"}),
        ("return !a && -b;", {"comparison !": "", "comparison &&": "||", "arithmetic -": ""}),
        ("return -128;", {"constant -128": "-129"}),
        ("return p[a];", {"index a": "a + 1"}),
        ("return p[a * b];", {"index a * b": "(a * b) + 1", "arithmetic *": "+"}),
        ("return p[0];", {"constant 0": "1"}),
        ("a += b;", {"arithmetic +=": "-=", "deletion a += b;": ";"}),
        ("return 1.5f;", {"constant 1.5f": "2.5f"}),
        ("return true;", {"constant true": "false"}),
        ('f(a, "1 + 1");  // 1 + 1', {'deletion f(a, "1 + 1");': ";"}),
        ("static_assert(1 < 2);", {}),
        ("int c[16];", {}),
        ("return static_cast<int>(a);", {}),
        ("/* a < b */;", {}),
        ("\n#define TWO 1 + 1\n", {}),
        ("\n#if TWO + 1 < 3\n return a; \n#elif 3 > 4\n return b;\n#endif\n", {}),
        ("\n#ifdef TWO\n return a - b;\n#endif\n", {"arithmetic -": "+"}),
        ('asm("nop 1");', {'deletion asm("nop 1");': ";"}),
    ],
)
def test_each_kind_of_mutation_changes_the_source_as_expected(source: str, expected: dict[str, str]) -> None:
    found = changes(source)
    if source.startswith("asm"):  # a statement in C, an expression for the parser, or none
        assert found in ({}, expected)
    else:
        assert found == expected


def test_a_longer_text_takes_the_space_behind_it() -> None:
    text = "bool f(int a, int b) { return a < b || 9 > a; }"
    found = {one.before: one.applied(text) for one in mutants_of("x.cpp", text)}
    assert found["<"] == "bool f(int a, int b) { return a <=b || 9 > a; }"
    assert found["9"] == "bool f(int a, int b) { return a < b || 10> a; }"
    assert found["||"] == "bool f(int a, int b) { return a < b && 9 > a; }"


def test_the_diff_shows_the_change_alone() -> None:
    text = "int f(int a) {\n  f(a,\n    a);\n  return a;\n}\n"
    (deleted,) = (one for one in mutants_of("x.cpp", text) if one.kind is SourceEdit.DELETION)
    assert deleted.diff(text, "firmware/").splitlines() == [
        "--- a/firmware/x.cpp", "+++ b/firmware/x.cpp", "@@ -1,5 +1,4 @@",
        " int f(int a) {", "-  f(a,", "-    a);", "+  ;", "   return a;", " }",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "function", "operators"),
    [
        ("linear.cpp", "only_item", {"cortex_m::quantized_linear.out"}),
        ("softmax.cpp", "exp_of_negative", {"cortex_m::softmax.out"}),
        ("pooling.cpp", "rounded_mean", {f"cortex_m::quantized_avg_pool2d{one}.out" for one in ("", "_nhwc")}),
        ("dot.cpp", "add_products", {f"cortex_m::quantized_depthwise_conv2d{one}.out" for one in ("", "_nhwc")}),
    ],
)
def test_the_operators_that_reach_it(path: str, function: str, operators: set[str]) -> None:
    found = [one for one in KERNELS.mutants if one.path.endswith(f"/{path}") and one.function == function]
    assert found and all(KERNELS.operators(one) == operators for one in found)
    assert set(found) <= set(KERNELS.mutants_of(operators))


def test_overloads_are_told_apart_by_what_they_take() -> None:
    mutants = [one for one in KERNELS.mutants if one.path.endswith("linear.cpp") and one.function == "compute"]
    found = {KERNELS.operators(one) for one in mutants}
    assert found == {frozenset({f"cortex_m::quantized_{one}.out"}) for one in ("linear", "batch_matmul")}


def test_kernels_for_tests_have_no_mutants() -> None:
    assert not [one for one in KERNELS.mutants if "testing" in one.path]
    assert not KERNELS.mutants_of(["hil_test::hang.out"])


def test_refusals_are_told_apart() -> None:
    by_function = {(Path(one.path).name, one.function, one.before): one.refuses for one in KERNELS.mutants}
    assert by_function["linear.cpp", "check_batches", "=="] and not by_function["linear.cpp", "compute_block", "+="]


def test_what_is_executed_is_told_without_what_is_for_debuggers(tmp_path: Path) -> None:
    (tmp_path / "none").write_bytes(b"\x7fELF\2\1")
    with pytest.raises(ConfigError, match="cut short"):
        executed_digest(tmp_path / "none")


# --- an ExecuTorch's kernels ---------------------------------------------------------------------------------

TABLE = """
- func: cortex_m::twice.out(Tensor input, *, Tensor(a!) out) -> Tensor(a!)
  variants: function
  kernels:
    - arg_meta: null
      kernel_name: cortex_m::twice_out

- func: cortex_m::thrice.out(Tensor input, *, Tensor(a!) out) -> Tensor(a!)
  kernels:
    - arg_meta: null
      kernel_name: cortex_m::thrice_out
"""
SOURCES = {
    "ops/operators.yaml": TABLE,
    "ops/op_twice.cpp": '#include "sums.h"\nTensor& twice_out(int n, Tensor& out) { out.n = sum(n, n); return out; }\n',
    "ops/op_thrice.cpp": "Tensor &thrice_out(int n, Tensor &out) { out.n = 3 * n; return out; }\n",
    "library/Include/sums.h": "int sum(int one, int other);\n",
    "library/Source/sums.c": "int sum(int one, int other)\n{\n    return one + other;\n}\n",
    "library/Source/unused.c": "int unused(int one)\n{\n    return one - 7;\n}\n",
}


def written(folder: Path) -> Path:
    for name, text in SOURCES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_mutants_of_an_executorchs_kernels_belong_to_the_operators_of_its_table(tmp_path: Path) -> None:
    """Also through a reference that a kernel returns, and a C function that a header declares."""
    kernels = Kernels.of_source(written(tmp_path / "checkouts"), ("ops", "library"))
    found = {
        one.before: (one.path, kernels.operators(one)) for one in kernels.mutants if one.kind is SourceEdit.ARITHMETIC
    }
    assert found == {
        "+": ("library/Source/sums.c", frozenset({"cortex_m::twice.out"})),
        "*": ("ops/op_thrice.cpp", frozenset({"cortex_m::thrice.out"})),
    }
    (sums,) = (one for one in kernels.mutants if one.before == "+")
    assert kernels.diff(sums).startswith("--- a/checkouts/library/Source/sums.c\n")
    assert [*kernels.changed(sums)] == ["library/Source/sums.c"]


def test_folders_without_a_table_of_operators_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no operators\.yaml .*library"):
        Kernels.of_source(written(tmp_path), ("library",))
