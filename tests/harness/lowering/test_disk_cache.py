"""The cache on disk: what is found is what was made, whoever made it, and whatever became of the file since."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cortex_m_hil.errors import ToolchainError
from cortex_m_hil.lowering import LoweringOptions, clear_cache, executorch_api, lower
from cortex_m_hil.lowering import cache_keys as keys
from cortex_m_hil.lowering.disk_cache import FORMAT, DiskCache, Entry, disk
from cortex_m_hil.lowering.pipeline import cache
from cortex_m_hil.program.program import Program
from cortex_m_hil.targets.cpu import Isa
from kill_writers import kill_writers, wrong_entries
from paths import IMPORT_ROOT

KEY = hashlib.sha256(b"a").hexdigest()
X = torch.linspace(-2, 2, 8).reshape(2, 4)
DEADLINE = 300.0


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HIL_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(disk, "enabled", True)
    return tmp_path / "lowerings"


def refuse() -> Entry:
    raise AssertionError("it is in the cache")


def entry_files(folder: Path) -> list[Path]:
    return [path for path in folder.glob("??/*") if path.is_file()]


# --- entries -------------------------------------------------------------------------------------------------

names = st.text(st.characters(codec="ascii", categories=("Ll", "Lu", "Nd")) | st.sampled_from(" /:"), max_size=8)
arrays = st.builds(
    lambda dtype, shape, seed: np.asarray(np.random.default_rng(seed).integers(0, 2, shape), dtype),
    st.sampled_from(["int8", "uint8", "int64", "float32", "float64", "bool"]),
    st.lists(st.integers(0, 3), max_size=3),
    st.integers(0, 9),
)
values = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.lists(st.integers(), max_size=3)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(names.map(lambda name: f"a{name}"), arrays | values, max_size=4))
def test_what_is_found_is_what_was_made(entry: dict[str, Any]) -> None:
    cache = DiskCache()
    cache.clear()
    made = cache.get_or_make("program", KEY, lambda: entry)
    found = cache.get_or_make("program", KEY, refuse)
    for one in (made, found):
        assert one.keys() == entry.keys()
        for name, value in entry.items():
            if isinstance(value, np.ndarray):
                assert (one[name].dtype, one[name].shape) == (value.dtype, value.shape)
                np.testing.assert_array_equal(one[name], value)
            else:
                assert one[name] == value and type(one[name]) is type(value)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_entry_is_made_again(folder: Path, data: st.DataObject) -> None:
    cache = DiskCache()
    cache.clear()
    entry = {"pte": np.arange(100, dtype=np.uint8), "nodes": ["a", "b"]}
    cache.get_or_make("program", KEY, lambda: entry)
    [path] = entry_files(folder)
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[at] ^= data.draw(st.integers(1, 255))
    else:
        content = content[:at]
    path.write_bytes(content)
    again = cache.get_or_make("program", KEY, lambda: {"pte": np.zeros(1, np.uint8)})
    assert again["pte"].size == 1 and cache.counts["program", "damaged"] == 1
    assert cache.get_or_make("program", KEY, refuse)["pte"].size == 1


def test_no_entry_stands_for_another(folder: Path) -> None:
    cache = DiskCache()
    cache.get_or_make("program", KEY, lambda: {"a": 1})
    [path] = entry_files(folder)
    (folder / "bb").mkdir()
    other = "bb" + KEY[2:]
    path.rename(folder / "bb" / f"{other}.program")
    assert cache.get_or_make("program", other, lambda: {"a": 2}) == {"a": 2}


def test_an_older_format_is_made_again(folder: Path) -> None:
    cache = DiskCache()
    cache.get_or_make("program", KEY, lambda: {"a": 1})
    [path] = entry_files(folder)
    path.write_bytes(path.read_bytes().replace(FORMAT, b"hil lowering 0\n"))
    assert cache.get_or_make("program", KEY, lambda: {"a": 2}) == {"a": 2}


def test_what_was_not_used_for_longest_makes_room(folder: Path) -> None:
    cache = DiskCache()
    numbers = [hashlib.sha256(bytes([number])).hexdigest() for number in range(60)]
    for age, key in enumerate(numbers):
        cache.get_or_make("program", key, lambda: {"pte": np.zeros(1000, np.uint8)})
        os.utime(folder / key[:2] / f"{key}.program", (age, age))
    cache.get_or_make("program", numbers[0], refuse)
    cache.limit = cache.info().bytes // 2
    cache._make_room()
    left = {path.stem for path in entry_files(folder)}
    assert left == {numbers[0], *numbers[-len(left) + 1 :]}
    assert 0.4 * 60 < len(left) <= 0.45 * 60  # a tenth of the limit is free
    assert DiskCache(limit=1).get_or_make("program", KEY, lambda: {"a": 1}) == {"a": 1}
    assert DiskCache(limit=1).get_or_make("program", KEY, refuse)  # the last one stays, however large


def test_what_a_killed_process_left_is_removed_later(folder: Path) -> None:
    cache = DiskCache()
    cache.get_or_make("program", KEY, lambda: {"a": 1})
    left = folder / KEY[:2] / ".unfinished-x"
    left.write_bytes(b"half")
    cache._make_room()
    assert left.exists() and cache.info().entries == 1  # its writer may be alive
    os.utime(left, (0, 0))
    cache._make_room()
    assert not left.exists() and cache.get_or_make("program", KEY, refuse)


@pytest.mark.parametrize("kind", ["a file in its place", "no key", "switched off"])
def test_without_a_cache_everything_is_made(folder: Path, kind: str) -> None:
    cache = DiskCache()
    if kind == "a file in its place":
        folder.write_text("")
    cache.enabled = kind != "switched off"
    key = None if kind == "no key" else KEY
    for number in range(2):
        assert cache.get_or_make("program", key, lambda number=number: {"a": number}) == {"a": number}  # type: ignore[misc]
    assert cache.counts["program", "made"] == 2 and cache.info().entries == 0


# --- several processes ---------------------------------------------------------------------------------------

WAITS = """
import sys, time
from pathlib import Path
from cortex_m_hil.lowering.disk_cache import DiskCache
cache, here = DiskCache(), Path(sys.argv[1])
def make():
    (here / sys.argv[2]).touch()
    while len(list(here.glob("asked-*"))) < 4: time.sleep(0.01)
    return {"by": sys.argv[2]}
(here / f"asked-{sys.argv[2]}").touch()
print(cache.get_or_make("program", "ab" * 32, make)["by"])
"""


def test_of_processes_that_need_the_same_one_makes_it_and_the_others_wait(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WAITS, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(IMPORT_ROOT)}
    asking = [
        subprocess.Popen([*command, str(number)], env=environment, stdout=subprocess.PIPE, text=True)
        for number in range(4)
    ]
    said = [process.communicate(timeout=DEADLINE)[0].strip() for process in asking]
    makers = [path.name for path in tmp_path.iterdir() if path.name.isdigit()]
    assert len(makers) == 1 and said == makers * 4


@pytest.mark.slow
def test_killed_writers_leave_no_wrong_entry(tmp_path: Path) -> None:
    """tests/nightly kills more."""
    kill_writers(tmp_path, kills=20, workers=4, seed=1)
    assert wrong_entries(tmp_path) == []


# --- lowering ------------------------------------------------------------------------------------------------

PROCESS = """
import json, sys, hashlib
BEGIN
import torch
from cortex_m_hil.lowering import lower
from cortex_m_hil.lowering.disk_cache import disk
from cortex_m_hil.targets.cpu import Isa
torch.manual_seed(0)
module = torch.nn.Sequential(torch.nn.Conv2d(2, 4, 3), torch.nn.ReLU())
program = lower(module, (torch.rand(1, 2, 5, 5),), isa=Isa.MVE)
found = program.reference(program.inputs)
arrays = [*found.dialect, *found.quantized, *found.eager, *(one for some in found.disturbed for one in some)]
compiler = sorted({name.partition(".")[0] for name in sys.modules} & {"executorch", "torchao"})
print(json.dumps({
    "remembered": program.remembered, "compiler": compiler, "made": [k for (k, how) in disk.counts if how == "made"],
    "digest": hashlib.sha256(program.pte + b"".join(one.tobytes() for one in arrays)).hexdigest(),
    "nodes": program.nodes, "no_key": program.no_key,
}))
"""


def in_process(folder: Path, hash_seed: int = 0, *, begin: str = "") -> dict[str, Any]:
    """What a process made and found, which does `begin` first."""
    folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(IMPORT_ROOT), "PYTHONHASHSEED": str(hash_seed)}
    command = [sys.executable, "-c", PROCESS.replace("BEGIN", begin)]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=DEADLINE, check=True
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.slow
def test_another_process_elsewhere_finds_it_and_imports_no_compiler(tmp_path: Path) -> None:
    first, second = in_process(tmp_path / "one", 1), in_process(tmp_path / "two", 2)
    assert (first["remembered"], first["compiler"]) == (False, ["executorch", "torchao"])
    assert (second["remembered"], second["compiler"], second["made"]) == (True, [], [])
    assert (first["digest"], first["nodes"]) == (second["digest"], second["nodes"])


IMPORTED = "import executorch.exir, executorch.backends.cortex_m.passes.cortex_m_pass_manager"


@pytest.mark.slow
def test_who_imports_the_compiler_finds_it_too_if_it_was_seen_and_is_unchanged(folder: Path, tmp_path: Path) -> None:
    first = in_process(tmp_path / "one")
    entries = {path: path.read_bytes() for path in entry_files(folder)}
    seen = in_process(tmp_path / "two", begin=f"import cortex_m_hil\n{IMPORTED}")
    assert (seen["remembered"], seen["no_key"], seen["made"]) == (True, "", [])
    unseen = in_process(tmp_path / "three", begin=f"{IMPORTED}\nimport cortex_m_hil")
    assert not unseen["remembered"] and "ExecuTorch was imported before cortex_m_hil" in unseen["no_key"]
    other = "exact = math.frexp\nmath.frexp = lambda value: (0.75 * exact(value)[0], exact(value)[1])"
    changed = in_process(tmp_path / "four", begin=f"import cortex_m_hil, math\n{other}")
    assert not changed["remembered"] and changed["no_key"] == "math.frexp was changed in memory"
    assert first["digest"] == seen["digest"] == unseen["digest"] != changed["digest"]
    assert {path: path.read_bytes() for path in entry_files(folder)} == entries


def linear(seed: int = 0, **changed: Any) -> Callable[[], Program]:
    """A small module lowered; `changed` are its inputs, and what lowering takes."""

    def lowered() -> Program:
        torch.manual_seed(seed)
        inputs = changed.get("inputs", (X,))
        options = LoweringOptions(**{name: value for name, value in changed.items() if name not in ("isa", "inputs")})
        return lower(torch.nn.Linear(4, 4), inputs, isa=changed.get("isa", Isa.DSP), options=options)

    return lowered


INGREDIENTS: dict[str, Callable[[], Program]] = {
    "weights": linear(seed=1),
    "the values of the inputs": linear(inputs=(X + 1,)),
    "the shape of the inputs": linear(inputs=(X[:1],)),
    "calibration": linear(calibration=[(3 * X,)]),
    "quantize": linear(quantize=False),
    "red zones": linear(redzones=True),
    "the ISA class": linear(isa=Isa.MVE),
    "the layout": linear(layout="explicit") if executorch_api().explicit_layout else linear(seed=2),
}


def is_remembered(make: Callable[[], Program]) -> bool:
    program = make()
    assert program.no_key == ""
    return program.remembered


@pytest.mark.first_only
@pytest.mark.parametrize("name", INGREDIENTS)
def test_each_ingredient_is_in_the_key(name: str) -> None:
    assert not is_remembered(linear()) and is_remembered(linear())
    assert not is_remembered(INGREDIENTS[name])
    assert is_remembered(INGREDIENTS[name]) and is_remembered(linear())


@pytest.mark.slow
def test_what_is_around_is_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_remembered(linear()) and is_remembered(linear())
    around: tuple[tuple[Any, str, Any], ...] = (
        (np, "__version__", "0"),
        (torch.backends.mkldnn, "enabled", not torch.backends.mkldnn.enabled),
        (keys, "files_digest", lambda *_: "edited"),
    )
    for holder, name, other in around:
        with monkeypatch.context() as patched:
            patched.setattr(holder, name, other)
            program = linear()()
        assert not program.remembered, name
    # The last one is a function of the lowering, replaced: from then on nothing has a key.
    assert program.no_key == "cortex_m_hil.lowering.cache_keys.files_digest was changed in memory"


def test_references_are_remembered_for_each_inputs_and_the_float_module_runs_each_time() -> None:
    program = linear()()
    other = tuple(type(one)(one.spec, one.data[::-1]) for one in program.inputs)
    assert program.reference is not None
    before = [program.reference(inputs) for inputs in (program.inputs, other)]
    made = disk.counts["references", "made"]
    clear_cache()
    program = linear()()
    assert program.remembered and program.reference is not None
    for inputs, one in zip((program.inputs, other), before, strict=True):
        found = program.reference(inputs)
        for some, others in zip(
            (found.dialect, found.quantized, found.eager), (one.dialect, one.quantized, one.eager), strict=True
        ):
            assert some is not None and others is not None
            np.testing.assert_array_equal(some[0], others[0])
        assert len(found.disturbed) == len(one.disturbed) > 0
    assert disk.counts["references", "made"] == made


@pytest.mark.slow
def test_what_has_no_key_is_lowered_once_for_program_and_references() -> None:
    with torch.device("cpu"):
        program = linear()()
        misses = cache.unkeyed
        assert program.no_key and program.reference is not None
        program.reference(program.inputs)
    assert cache.unkeyed == misses


@pytest.mark.slow
def test_a_lowering_that_is_not_repeatable_is_found_out(folder: Path) -> None:
    """For the references of a program that was found, it is lowered again."""
    pte = linear()().pte
    [path] = folder.glob("??/*.program")
    path.unlink()
    lists: dict[str, list[str]] = {"nodes": [], "ancestors": [], "float_reasons": []}
    other = {"pte": np.frombuffer(linear(seed=1)().pte, np.uint8), **lists, "size_without_redzones": None}
    disk.get_or_make("program", path.stem, lambda: other)
    clear_cache()
    program = linear()()
    assert program.remembered and program.pte != pte and program.reference is not None
    with pytest.raises(ToolchainError, match="another program than the one in the cache"):
        program.reference(program.inputs)
