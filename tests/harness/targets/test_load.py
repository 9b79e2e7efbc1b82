"""targets.yaml and board.yaml: what they mean, and what is said where they are wrong."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cortex_m_hil.errors import ConfigError, did_you_mean
from cortex_m_hil.host.paths import package_data
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.runner.launchers.fvp import FvpLauncher
from cortex_m_hil.runner.launchers.native import NativeLauncher
from cortex_m_hil.runner.launchers.qemu import QemuLauncher
from cortex_m_hil.targets.cpu import Isa, cpus
from cortex_m_hil.targets.load import _load_file, load_board, load_targets
from cortex_m_hil.targets.memory import Memory, Placed, Region, parse_size
from cortex_m_hil.targets.target import Target
from limits import at_once

GOOD_BOARD = """\
memory:
  regions:
    flash: {address: 0, size: 1M, holds: code}
    ram: {address: 0x20000000, size: 2M}
    fast: {address: 0x30000000, size: 128K}
  code: flash
  data: ram
  stack: {region: ram, size: 64K}
  program: {region: ram, size: 1M}
  method: {region: ram, size: 65536}
  banks:
    - {region: ram, size: 512K}
"""


GOOD = Memory(
    (
        Region("flash", 0, 1 << 20, "code"),
        Region("ram", 0x20000000, 2 << 20),
        Region("fast", 0x30000000, 128 << 10),
    ),
    Placed("ram", 1 << 20), (Placed("ram", 512 << 10),), Placed("ram", 65536), "flash", "ram", Placed("ram", 64 << 10),
)  # fmt: skip


def write(folder: Path, text: str, name: str = "targets.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def entry(**changes: str) -> str:
    """One target `mine`, each key on its own line: cpu on 3, board 4, launcher 5, then the added ones."""
    keys = {"cpu": "cortex-m4", "board": "mps2", "launcher": "{qemu: mps2-an386}"} | changes
    return "targets:\n  mine:\n" + "".join(f"    {key}: {value}\n" for key, value in keys.items() if value)


def load(folder: Path, text: str) -> Target:
    return load_targets(write(folder, text))["mine"]


def refused(folder: Path, text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_targets(write(folder, text))
    return caught.value


# --- what is right -------------------------------------------------------------------------------------------


def test_the_defaults_load_and_every_fallback_runs_the_same_isa() -> None:
    targets = load_targets()
    assert {"m55-fvp", "m4-fvp", "m0plus-fvp", "m55-qemu", "m4-qemu", "m0-qemu", "native"} <= set(targets)
    for target in targets.values():
        assert target.isa in cpus()[target.cpu].isas
        assert (target.board.directory / "board.cpp").is_file()
        if target.fallback is not None:
            assert targets[target.fallback].isa is target.isa


def test_a_users_file_extends_the_defaults(tmp_path: Path) -> None:
    path = write(tmp_path, entry(fallback="m4-qemu", isa="scalar"))
    targets = load_targets(path)
    assert set(targets) == {*load_targets(), "mine"}
    mine = targets["mine"]
    assert (mine.cpu, mine.isa, mine.fallback) == ("cortex-m4", Isa.SCALAR, "m4-qemu")
    assert mine.config == "cortex-m4/scalar/mps2"
    assert mine.origin == "targets.yaml:2"
    assert re.fullmatch(r"cortex_m_hil/targets\.yaml:\d+", targets["m4-qemu"].origin)


def test_naming_the_default_file_itself_changes_nothing() -> None:
    assert load_targets(package_data("targets.yaml")) == load_targets()


@pytest.mark.parametrize(
    ("text", "launcher"),
    [
        ("native", NativeLauncher()),
        ("{qemu: mps2-an386}", QemuLauncher("mps2-an386")),
        ("{qemu: {machine: microbit, args: [-icount, '1']}}", QemuLauncher("microbit", ("-icount", "1"))),
        ("{qemu: {machine: mps2-an505, core: cortex-m33}}", QemuLauncher("mps2-an505", core="cortex-m33")),
        ("{fvp: FVP_MPS2_Cortex-M4}", FvpLauncher("FVP_MPS2_Cortex-M4")),
        ("{fvp: {model: FVP_X, parameters: {a.b: 1, c: x}}}", FvpLauncher("FVP_X", (("a.b", "1"), ("c", "x")))),
    ],
)
def test_launcher_entries_are_parsed(tmp_path: Path, text: str, launcher: object) -> None:
    assert load(tmp_path, entry(launcher=text)).launcher == launcher


@pytest.mark.parametrize(("cpu", "isas"), [(cpu.name, cpu.isas) for cpu in cpus().values()])
def test_the_isa_is_derived_and_every_legal_override_is_taken(tmp_path: Path, cpu: str, isas: tuple[Isa, ...]) -> None:
    assert load(tmp_path, entry(cpu=cpu)).isa is isas[0]
    for isa in isas:
        assert load(tmp_path, entry(cpu=cpu, isa=isa.value.lower())).isa is isa
        assert load(tmp_path, entry(cpu=cpu, isa=isa.value)).isa is isa


def test_a_board_may_lie_beside_the_users_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board = tmp_path / "boards" / "mine"
    board.mkdir(parents=True)
    write(board, GOOD_BOARD, "board.yaml")
    monkeypatch.chdir("/")  # relative to the file, not to where one stands
    for name in ("./boards/mine", "boards/mine", str(board)):
        found = load(tmp_path, entry(board=name)).board
        assert (found.name, found.directory) == ("mine", board)
        assert found.memory == GOOD and found.portable
    write(board, GOOD_BOARD + "portable: false\n", "board.yaml")
    assert not load(tmp_path, entry(board=str(board))).board.portable


def test_anchors_and_merge_keys_are_yaml_like_any_other(tmp_path: Path) -> None:
    text = entry().replace("mine:", "mine: &base") + "  other:\n    <<: *base\n    isa: scalar\n"
    targets = load_targets(write(tmp_path, text))
    assert (targets["mine"].isa, targets["other"].isa) == (Isa.DSP, Isa.SCALAR)
    merged = "targets:\n  <<: {mine: {cpu: cortex-m4, board: mps2, launcher: native}}\n"
    assert load(tmp_path, merged).launcher == NativeLauncher()


# --- what is wrong: (text, line, part of the message, part of the hint) --------------------------------------

UNKNOWN_KEYS = [
    (entry(bord="x"), 6, "unknown key 'bord'", "did you mean 'board'?"),
    (entry(launcher="{qemu: {machine: a, arg: []}}"), 5, "unknown key 'arg'", "did you mean 'args'?"),
    (entry(launcher="\n      qemuu: mps2-an386"), 6, "unknown key 'qemuu'", "did you mean 'qemu'?"),
    (entry(launcher="{fvp: {model: FVP_X, parameter: {}}}"), 5, "unknown key 'parameter'", "'parameters'"),
    (entry() + "target: {}\n", 6, "unknown key 'target'", "did you mean 'targets'?"),
]
WRONG_VALUES = [
    (entry(cpu="cortex-m5"), 2, "unknown cpu 'cortex-m5'", "'cortex-m55'"),
    (entry(board="mps3"), 2, "unknown board 'mps3'", "mps2"),
    (entry(board="./nowhere"), 2, "nowhere/board.yaml", ""),
    (entry(board="''"), 2, "unknown board ''", "known: "),
    (entry(isa="mve"), 2, "isa 'mve' is not possible on cortex-m4", "possible: dsp, scalar"),
    (entry(isa="''"), 2, "isa '' is not possible", "possible: dsp, scalar"),
    (entry(launcher="qemu"), 2, "launcher 'qemu'", "{qemu: MACHINE}"),
    (entry(launcher="{}"), 2, "exactly one of qemu, fvp", "qemu"),
    (entry(launcher="{qemu: a, fvp: b}"), 2, "exactly one of qemu, fvp", ""),
    (entry(fallback="m4-qemo"), 2, "fallback 'm4-qemo' of 'mine' is not a target", "did you mean 'm4-qemu'"),
]
WRONG_TYPES = [
    (entry(cpu="4"), 3, "mine.cpu", "text"),
    (entry(cpu="[cortex-m4]"), 3, "mine.cpu", "text"),
    (entry(board="{a: b}"), 4, "mine.board", "text"),
    (entry(launcher="5"), 5, "mine.launcher", ""),
    (entry(launcher="[qemu, x]"), 5, "mine.launcher", ""),
    (entry(launcher="{qemu: 7}"), 5, "mine.launcher.qemu", ""),
    (entry(launcher="{qemu: {args: []}}"), 5, "mine.launcher.qemu.machine", "missing"),
    (entry(launcher="{qemu: {machine: a, args: -icount}}"), 5, "mine.launcher.qemu.args", "list"),
    (entry(launcher="{qemu: {machine: a, args: [1]}}"), 5, "mine.launcher.qemu.args.0", "text"),
    (entry(launcher="{fvp: {model: a, parameters: {x: [1]}}}"), 5, "mine.launcher.fvp.parameters.x", ""),
    (entry(isa="true"), 6, "mine.isa", "text"),
    (entry(board=""), 2, "mine.board", "missing"),
    ("targets:\n  mine: 5\n", 2, "targets.mine", ""),
    ("targets:\n  mine:\n", 2, "targets.mine", ""),
    ("targets: null\n", 1, "targets", "mapping"),
    ("targets: [a, b]\n", 1, "targets", "mapping"),
    ("targets:\n  5: {}\n", 2, "targets.5", "text"),
    ("# nothing\n\nother: 1\n", 3, "unknown key 'other'", "known: runtimes, targets"),
    ("{}", 1, "targets", "missing"),
    ("5: {}\n", 1, "", ""),
]
BAD_YAML = [
    ("", 1, "expected a mapping", ""),
    ("# only a comment\n", 1, "expected a mapping", ""),
    ("null\n", 1, "expected a mapping", ""),
    ("- a\n- b\n", 1, "expected a mapping", ""),
    ("just text\n", 1, "expected a mapping", "begins with targets:"),
    ("targets:\n", 1, "targets: has to be a mapping, not nothing", "correct this value"),
    ("targets: []\n", 1, "targets: has to be a mapping, not []", "correct this value"),
    ("targets:\n  mine:\n", 2, "targets.mine: has to be a mapping, not nothing", "correct this value"),
    (
        "targets:\n  mine: {cpu: 4, board: mps2, launcher: native}\n",
        2,
        "cpu: has to be text, not 4",
        "correct this value",
    ),
    ("targets:\n  mine: {cpu: cortex-m4, launcher: native}\n", 2, "targets.mine.board: missing", "add board: "),
    ("targets:\n  mine:\n\tcpu: cortex-m4\n", 3, "a tab in the indentation", "indent with spaces"),
    ("targets:\n  mine:\n    cpu: cortex-m4\n   board: mps2\n", 4, "indented unlike its neighbours", "alike"),
    ("mine: {cpu: cortex-m4}\n", 1, "unknown key 'mine'", "below a line targets:"),
    (entry() + "  mine: {}\n", 6, "duplicate key 'mine'", "rename or delete"),
    (entry(cpu="cortex-m4\n    cpu: cortex-m7"), 4, "duplicate key", ""),
    ("targets:\n  a: [\n", 3, "", "YAML"),
    ("targets:\n\tmine: 1\n", 2, "a tab", "spaces"),
    ("targets: *nobody\n", 1, "undefined alias", ""),
    ("targets: {}\n---\ntargets: {}\n", 2, "", "YAML"),
    ("targets:\n  mine: 2001-13-45\n", 0, "", ""),
    ("targets: !!int x\n", 0, "", ""),
    ("targets: &a {mine: *a}\n", 0, "", ""),
    ("targets: " + "[" * 800, 0, "", ""),
    ("targets: \0\n", 0, "", ""),
    (entry(board='"a/\\0"'), 4, "a NUL", ""),
    (entry(board="a/" + "b" * 5000), 2, "a/", ""),
]


@pytest.mark.parametrize(("text", "line", "message", "hint"), UNKNOWN_KEYS + WRONG_VALUES + WRONG_TYPES + BAD_YAML)
def test_what_is_wrong_is_said_with_file_and_line(
    tmp_path: Path, text: str, line: int, message: str, hint: str
) -> None:
    error = refused(tmp_path, text)
    assert "targets.yaml" in error.message
    if line:
        assert f"targets.yaml:{line}:" in error.message
    assert message in error.message
    assert hint in error.message + error.hint
    assert "_Raw" not in str(error)  # names of this program's insides


def test_a_name_of_the_defaults_is_taken(tmp_path: Path) -> None:
    error = refused(tmp_path, entry(isa="scalar").replace("mine", "m4-qemu"))
    assert re.search(r"targets\.yaml:2: 'm4-qemu' is the name of a target that comes with this package", error.message)


def test_a_target_that_is_repeated_as_it_is_is_no_clash(tmp_path: Path) -> None:
    """The file of a checkout, beside an installed package that has the same."""
    shipped = package_data("targets.yaml").read_text()
    assert load_targets(
        write(tmp_path, shipped + "  " + entry().partition("\n  ")[2])
    ).keys() - load_targets().keys() == {"mine"}
    assert load_targets(write(tmp_path, shipped)) == load_targets()


def test_the_targets_of_another_checkout_are_named_as_that(tmp_path: Path) -> None:
    path = write(tmp_path, package_data("targets.yaml").read_text().replace("{qemu: mps2-an386}", "{qemu: mps2-an385}"))
    with pytest.raises(ConfigError, match="comes with this package") as users:
        load_targets(path)
    assert "another name" in users.value.hint
    (tmp_path / "harness" / "cortex_m_hil").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"'m4-qemu' is not what it is in .*targets of another checkout") as caught:
        load_targets(path)
    assert "another name" not in caught.value.hint
    assert str(tmp_path) in caught.value.hint


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none.yaml", tmp_path, Path("/dev/null/x.yaml")):
        with pytest.raises(ConfigError, match=re.escape(str(path))):
            load_targets(path)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "targets.yaml"
    path.write_bytes(b"targets: \xff\xfe\n")
    with pytest.raises(ConfigError, match=r"targets\.yaml: not UTF-8"):
        load_targets(path)


WRONG_MEMORY = [
    ("size: 512K", "size: 1Q", 12, "'1Q' is not a size", "64K"),
    ("size: 512K", "size: -1", 12, "-1 is not a size", ""),
    ("size: 512K", "size: true", 12, "not a size", ""),
    ("size: 512K", "size: 0", 12, "banks.0.size", "greater than 0"),
    ("size: 512K", "size: 4G", 12, "banks.0.size", "less than 2147483648"),
    ("size: 65536", "siz: 65536", 10, "unknown key 'siz'", "'size'"),
    ("  method: {region: ram, size: 65536}\n", "", 1, "memory.method: missing", "add method"),
    ("  data: ram\n", "", 1, "memory: data: missing", "add data"),
    ("    - {region: ram, size: 512K}\n", "    []\n", 11, "memory.banks", "at least 1"),
    ("address: 0,", "address: fast,", 3, "regions.flash.address", "integer"),
    ("address: 0,", "", 3, "memory.regions.flash: has no address", "0x"),
    ("code}", "cake}", 3, "regions.flash.holds", "'both'"),
    ("0x30000000", "0x20100000", 5, "regions.fast: overlaps ram, which ends at 0x20200000", ""),
    ("0x30000000", "0xfffffff0", 5, "regions.fast: ends beyond the 4G", ""),
    ("    fast:", "    fast-ram:", 5, "no name for a region", "letters"),
    ("    fast:", "    DATA:", 5, "no name for a region", "none of CODE"),
    ("data: ram", "data: rom", 7, "memory.data: no region 'rom'", "did you mean 'ram'?"),
    ("{region: ram, size: 512K}", "{region: flash, size: 512K}", 12, "banks[0]: flash holds code only", "board.yaml:3"),
    ("code: flash", "code: ram", 6, "memory.code: ram holds data only", "holds: both"),
    ("ram, size: 64K}", "ram, size: 1001}", 8, "memory.stack.size: 1001 bytes", "a multiple of 8"),
    ("512K}\n", "512K}\n    - {region: ram, size: 1K}\n", 13, "banks[1]: ram is the region of two banks", ""),
    ("512K}\n", "512K}\n    - {region: fast, size: 129K}\n", 11, "fast has 128K", "1024 bytes too many"),
    ("size: 2M", "size: 1M", 9, "program: ram has 1M", "program 1M, banks 512K, method 64K are to lie there"),
    ("512K}\n", "512K}\n  shared: 600K\n", 13, "memory.shared: smaller than the program", ""),
    ("512K}\n", "512K}\n  resident: ram\n", 13, "memory.resident: ram holds data only", ""),
    ("512K}\n", "512K}\n  resident: flash\n", 13, "memory.resident: more lies in flash", ""),
    ("512K}\n", "512K}\n  temp: {region: flash, size: 1K}\n", 13, "memory.temp: flash holds code only", "board.yaml:3"),
    ("512K}\n", "512K}\n  temp: {region: fast, size: 129K}\n", 13, "fast has 128K", "temp 129K are to lie there"),
    ("512K}\n", "512K}\n  unplanned: fast\n", 13, "memory.unplanned: no bank lies in 'fast'", "known: ram"),
]
"""What is changed in GOOD_BOARD, and what is then wrong."""


@pytest.mark.parametrize(
    ("text", "line", "message", "hint"),
    [
        (GOOD_BOARD + "consol: uart\n", 13, "unknown key 'consol'", "'console'"),
        (GOOD_BOARD + "clock_hz: 25000000\n", 13, "unknown key 'clock_hz'", "known: "),
        (GOOD_BOARD + "portable: none\n", 13, "portable", "boolean"),
        (GOOD_BOARD + "console: telepathy\n", 13, "console", "semihosting"),
        (GOOD_BOARD + GOOD_BOARD, 13, "duplicate key", ""),
        ("", 1, "expected a mapping", ""),
        ("console: uart\n", 1, "memory: missing", ""),
        *((GOOD_BOARD.replace(old, new), *said) for old, new, *said in WRONG_MEMORY),
    ],
)
def test_board_files_are_as_strict(tmp_path: Path, text: str, line: int, message: str, hint: str) -> None:
    board = tmp_path / "board"
    board.mkdir()
    write(board, text, "board.yaml")
    error = refused(tmp_path, entry(board="./board"))
    assert f"board.yaml:{line}:" in error.message
    assert message in error.message
    assert hint in error.message + error.hint


OVERRIDES = """\
targets:
  mine:
    cpu: cortex-m4
    board: ./board
    launcher: {qemu: mps2-an386}
    memory:
      regions: {fast: {size: 256K}}
      method: {size: 16K}
      temp: {region: fast, size: 1K}
      unplanned: ram
      banks:
        - {region: fast, size: 192K}
        - {region: ram, size: 512K}
"""


def test_a_target_overrides_the_memory_of_its_board_key_by_key(tmp_path: Path) -> None:
    (tmp_path / "board").mkdir()
    write(tmp_path / "board", GOOD_BOARD, "board.yaml")
    memory = load(tmp_path, OVERRIDES).board.memory
    assert memory.banks == (Placed("fast", 192 << 10), Placed("ram", 512 << 10))
    assert (memory.method, memory.region("fast").size) == (Placed("ram", 16 << 10), 256 << 10)
    assert (memory.temp, memory.unplanned_bank, GOOD.temp) == (Placed("fast", 1 << 10), 1, None)
    assert (memory.program, memory.stack, memory.code) == (GOOD.program, GOOD.stack, GOOD.code)
    places = {key: Path(place).name for key, place in memory.places.items()}
    assert (places["method"], places["program"], places["regions.fast"]) == (
        "targets.yaml:8", "board.yaml:9", "targets.yaml:7"
    )  # fmt: skip


def test_with_a_small_memory_for_programs_larger_ones_are_executed_from_flash() -> None:
    """As in a product, whose program is part of its image; the self-test's fits."""
    memory = load_board(BOARDS / "stm32f4").memory
    small = memory.resized(program=4 << 10)
    assert not memory.keeps_in_flash(8000, 1000) and small.keeps_in_flash(8000, 1000)
    assert (small.bank_rooms(8000), small.program_room) == ([small.planned], 256 << 10)
    assert all(not small.keeps_in_flash(len(known_answer(isa).program), 0) for isa in Isa)


@pytest.mark.parametrize(
    ("old", "new", "place", "message"),
    [
        ("size: 16K", "size: 16Q", "targets.yaml:8", "'16Q' is not a size"),
        ("size: 16K", "siez: 16K", "targets.yaml:8", "unknown key 'siez'"),
        ("size: 256K", "size: 128K", "targets.yaml:11", "fast has 128K"),
        ("{fast: {size: 256K}}", "{fsat: {size: 256K}}", "targets.yaml:7", "regions.fsat: has no address"),
        ("size: 512K", "size: 1M", "board.yaml:9", "ram has 2M"),
        ("{size: 16K}", "5", "targets.yaml:8", "a mapping"),
        ("region: ram", "region: fast", "targets.yaml:13", "fast is the region of two banks"),  # the board has one
    ],
)
def test_an_override_that_is_wrong_is_told_where_it_stands(
    tmp_path: Path, old: str, new: str, place: str, message: str
) -> None:
    (tmp_path / "board").mkdir()
    write(tmp_path / "board", GOOD_BOARD, "board.yaml")
    error = refused(tmp_path, OVERRIDES.replace(old, new))
    assert f"{place}: " in error.message and message in error.message


OLD_BOARD = """\
console: semihosting
pools: {program: 60K, planned: 52K, method: 12K, shared: 72K}
resident: {address: 0x08040000, size: 256K}
"""
OLD_SCRIPT = """\
MEMORY
{
  flash (rx) : ORIGIN = 0x08000000, LENGTH = 256K
  ram (rwx) : ORIGIN = 0x20000000, LENGTH = 128K
}
REGION_ALIAS("CODE", flash)
REGION_ALIAS("STACK", ram)
REGION_ALIAS("DATA", ram)
REGION_ALIAS("PROGRAM_POOL", ram)
REGION_ALIAS("PLANNED_POOL", ram)
REGION_ALIAS("METHOD_POOL", ram)
HIL_STACK_SIZE = 12K;
INCLUDE sections.ld
"""


def test_a_board_from_before_there_was_memory_is_told_its_new_keys(tmp_path: Path) -> None:
    """The hint was tried: it is the description that the board of the same numbers has."""
    board = tmp_path / "board"
    board.mkdir()
    write(board, OLD_BOARD, "board.yaml")
    write(board, OLD_SCRIPT, "board.ld")
    error = refused(tmp_path, entry(board="./board"))
    assert f"{board / 'board.yaml'}:2: pools: memory: has taken its place" in error.message
    write(board, "console: semihosting\n" + error.hint.partition(":\n")[2] + "\n", "board.yaml")
    error = refused(tmp_path, entry(board="./board"))
    assert f"{board / 'board.ld'}:1: MEMORY: memory: in {board / 'board.yaml'} says it" in error.message
    (board / "board.ld").unlink()
    assert load(tmp_path, entry(board="./board")).board.memory == load_board(BOARDS / "stm32f4").memory


def test_what_memory_says_can_be_read_again(tmp_path: Path) -> None:
    for number, shipped in enumerate(sorted(path for path in BOARDS.iterdir() if path.is_dir())):
        board = tmp_path / str(number)
        board.mkdir()
        memory = load_board(shipped).memory
        console = "native" if memory.stack is None else "uart"
        lines = [f"console: {console}", "memory:", *(f"  {line}" for line in memory.lines()), ""]
        write(board, "\n".join(lines), "board.yaml")
        assert load_board(board).memory == memory


BOARDS = package_data("firmware") / "boards"

# --- arbitrary input -----------------------------------------------------------------------------------------

WORDS = st.sampled_from(
    [
        *["targets", "mine", "cpu", "cortex-m4", "board", "mps2", "launcher", "qemu", "native"],
        *(
            ":",
            ": ",
            "- ",
            "\n",
            "  ",
            "{",
            "}",
            "[",
            "]",
            ",",
            "&a ",
            "*a",
            "<<",
            "!!set",
            "!!int ",
            "!x ",
            "? ",
            "| ",
        ),
        *("> ", "---", "...", "%", "'", '"', "#", "~", "2001-01-99", "0x", "0b", "1_0", ".inf", "1:60", "@", "`", "\t"),
        *("%YAML 1.1\n", "%TAG ! x\n"),
    ]
)


@pytest.mark.slow
@given(st.one_of(st.text(), st.lists(WORDS).map("".join)))
@settings(max_examples=100)
def test_any_text_is_refused_with_a_config_error(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "targets.yaml"
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        try:
            load_targets(path)
        except ConfigError as error:
            assert "targets.yaml" in error.message


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
TREES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner))


@settings(max_examples=50)
@given(st.sampled_from(["cpu", "board", "launcher", "isa", "fallback", "extra"]), TREES)
def test_any_value_of_any_key_is_refused_or_taken(key: str, value: object) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), entry(**{key: json.dumps(value)}))
        try:
            targets = load_targets(path)
        except ConfigError as error:
            assert "targets.yaml:" in error.message
        else:
            assert isinstance(targets["mine"], Target)


# --- sizes ---------------------------------------------------------------------------------------------------


@given(st.integers(0, 1 << 40), st.sampled_from([("", 0), ("K", 10), ("M", 20), ("G", 30)]))
def test_sizes_with_units_are_parsed(number: int, unit: tuple[str, int]) -> None:
    letter, shift = unit
    assert parse_size(f"{number}{letter}") == number << shift
    assert parse_size(f"  {number}{letter}\n") == number << shift
    assert parse_size(number) == number


@given(st.one_of(st.text(), st.floats(), st.booleans(), st.none(), st.integers(max_value=-1)))
def test_texts_that_are_no_size_are_refused(text: object) -> None:
    if re.fullmatch(r"\s*[0-9]+[KMG]?\s*", str(text)):
        return
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


@pytest.mark.parametrize("text", ["٣", "²", "1e3", "1k", "0x10", "1 K", "K", "", "+1", "1_0"])
def test_only_plain_digits_make_a_size(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


def test_did_you_mean_lists_what_is_known_where_nothing_is_near() -> None:
    assert did_you_mean("m4-quem", ["m4-qemu", "native"]) == "did you mean 'm4-qemu'?"
    assert did_you_mean("zzz", ["b", "a"]) == "known: a, b"


def test_a_copied_board_is_found_by_its_own_name(tmp_path: Path) -> None:
    shutil.copytree(package_data("firmware") / "boards" / "mps2", tmp_path / "copy")
    assert load(tmp_path, entry(board="./copy")).config == "cortex-m4/dsp/copy"


@pytest.mark.parametrize("name", ["all", "a,b", "m4*", "m[4]", "-m4", "m 4"])
def test_a_name_that_no_option_can_say_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "targets.yaml"
    path.write_text(f'targets:\n  "{name}": {{cpu: cortex-m4, board: mps2, launcher: {{qemu: mps2-an386}}}}\n')
    with pytest.raises(ConfigError, match=r"targets\.yaml:2: .* cannot name a target"):
        load_targets(path)


# --- what is not to be read at all ---------------------------------------------------------------------------


def bomb(levels: int, width: int) -> str:
    """Aliases of aliases: width ** levels nodes in a few lines."""
    lines = ["a0: &a0 [" + ",".join(["x"] * width) + "]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels)]
    return "\n".join(lines) + "\n" + entry()


def merges(levels: int) -> str:
    lines = ["m0: &m0 {a: 1, b: 2}"]
    lines += [f"m{n}: &m{n} {{x: *m{n - 1}, y: *m{n - 1}, <<: *m{n - 1}}}" for n in range(1, levels)]
    return "\n".join(lines) + "\n" + entry()


@pytest.mark.first_only
@pytest.mark.parametrize(
    ("text", "line"),
    [
        (bomb(9, 9), "4"),
        (bomb(30, 3), "[0-9]+"),
        (merges(40), "[0-9]+"),
        ("targets: " + "[" * 60000, "1"),
        ("targets: " + "{a: " * 30000, "1"),
        ("\n".join(" " * n + "a:" for n in range(300)), "21"),
        ("a: &a [*a]\n" + entry(), "1"),
        ("a: &a\n  b: {c: *a}\n" + entry(), "2"),
        ("x: [" + "1," * 60000 + "]", "1"),
        ("".join(f"k{n}: v\n" for n in range(9000)), "[0-9]+"),
        (entry(cpu='"cortex-m4\\0"'), "3"),
        (entry(cpu='"\\ud800"'), "3"),
    ],
    ids=[
        "bomb", "deep-bomb", "merges", "brackets", "braces", "indents", "cycle", "far-cycle", "list", "keys", "nul",
        "surrogate",
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["targets.yaml", "board.yaml"])
def test_yaml_that_grows_is_refused_at_once(tmp_path: Path, text: str, line: str, name: str) -> None:
    path = write(tmp_path, text, name)
    if name == "board.yaml":
        path = write(tmp_path, entry(board="./."))
    with at_once(), pytest.raises(ConfigError, match=rf"{re.escape(str(tmp_path / name))}:{line}: "):
        load_targets(path)


def test_a_file_of_many_targets_is_read(tmp_path: Path) -> None:
    text = "targets:\n" + "".join(
        f"  t{n}: {{cpu: cortex-m4, board: mps2, launcher: {{qemu: mps2-an386}}, fallback: m4-qemu}}\n"
        for n in range(200)
    )
    assert "t199" in load_targets(write(tmp_path, text))


def test_aliases_that_grow_little_are_read(tmp_path: Path) -> None:
    text = (
        "targets:\n  a: &a {cpu: cortex-m4, board: mps2, launcher: {qemu: mps2-an386}}\n"
        "  b: *a\n  c: {<<: *a, isa: scalar}\n"
    )
    targets = load_targets(write(tmp_path, text))
    assert (targets["b"].cpu, targets["c"].isa) == ("cortex-m4", Isa.SCALAR)


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", 8 << 30)
    (tmp_path / "dangling").symlink_to("nowhere")
    for path, said in (
        (tmp_path / "pipe", "a named pipe"),
        (tmp_path, "Is a directory"),
        (Path("/dev/zero"), "a device"),
        (tmp_path / "sparse", "8589934592 bytes, at most"),
        (tmp_path / "dangling", "No such file"),
        (tmp_path / ("x" * 300), "File name too long"),
    ):
        with at_once(), pytest.raises(ConfigError, match=f"cannot read .*{said}"):
            load_targets(path)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("-1", "address: has to be greater"),
        ("0x1_0000_0000", "address: has to be less"),
        ("0xFFFFFFFF", "ends beyond"),
    ],
)
def test_numbers_of_a_board_are_within_what_the_part_can_have(tmp_path: Path, address: str, said: str) -> None:
    write(tmp_path, GOOD_BOARD.replace("0x30000000", address), "board.yaml")
    assert said in refused(tmp_path, entry(board="./.")).message


@pytest.mark.parametrize(
    "launcher",
    [
        "{serial: {port: p, wait: .inf}}", "{serial: {port: p, wait: .nan}}", "{serial: {port: p, wait: 1e300}}",
        "{serial: {port: p, baud: 99999999999}}", "{serial: {port: p, flash: {command: [x], seconds: .inf}}}",
        "{serial: {port: p, flash: {command: [x], fail: ['a{99999999999}']}}}",
        "{serial: {port: p, flash: {command: [x], seconds: 1e10}}}",
    ],
)  # fmt: skip
def test_numbers_of_a_launcher_are_within_what_a_system_takes(tmp_path: Path, launcher: str) -> None:
    assert "targets.yaml:" in refused(tmp_path, entry(launcher=launcher)).message


YAML_PIECES = st.sampled_from(
    [*"*[]{},'|1é", "a", "&a ", "*a", ": ", "\n", "  ", "- ", "<<", "!x ", '"', "? ", "---", "%Y", "targets", "\\0"]
)


@settings(max_examples=300)
@given(st.one_of(st.lists(YAML_PIECES, max_size=60).map("".join), st.text(max_size=60)).map(str.encode) | st.binary())
def test_any_bytes_are_targets_or_a_config_error(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "targets.yaml"
        path.write_bytes(data)
        try:
            _load_file(path, path.name)
        except ConfigError as error:
            assert str(path) in error.message or "targets.yaml:" in error.message
