"""What targets, programs and file names bring must not reach a terminal, a report or another process as it is."""

from __future__ import annotations

import os
import xml.etree.ElementTree as xml
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cortex_m_hil.errors import HarnessError
from cortex_m_hil.errors.text import printable, printable_lines, shown
from cortex_m_hil.host.paths import cache_directory
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.program.program import Program
from cortex_m_hil.targets.cpu import Isa

pytest_plugins = ["pytester"]
DEADLINE = 300.0  # seconds
CACHE = cache_directory()
HOSTILE = "\x1b]0;mine\x07\x1b[2J\u202e\x00\x9b1m<script>"
HARMLESS = r"\x1b]0;mine\x07\x1b[2J\u202e\x00\x9b1m<script>"
CONTROLS = ("\x1b", "\x07", "\u202e", "\x00", "\x9b")


@given(st.text(st.characters()))
def test_only_what_can_be_printed_and_encoded_is_left(text: str) -> None:
    line = printable(text)
    assert line.isprintable() and printable(line) == line
    assert line.encode().decode() == line and (line == text) == text.isprintable()
    assert printable_lines(text).replace("\n", "").isprintable()


def test_lines_stay_lines() -> None:
    assert printable_lines("a\r\nb\tc\n\x1b\n") == "a\nb c\n\\x1b\n"
    assert printable("m4-fvp → m4-qemu · 2 × ü") == "m4-fvp → m4-qemu · 2 × ü"
    error = HarnessError("one\x1b\ntwo", operator="\n", hint="\x00", log="\udcff\n")
    assert str(error) == "one\\x1b\ntwo [operator \\n]\n  → \\x00" and error.log == "\\udcff\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (torch.rand(1, 64), "Tensor float32[1, 64]"),
        (np.zeros((2, 3), np.int8), "ndarray int8[2, 3]"),
        ((torch.rand(3),), "(Tensor float32[3],)"),
        ([torch.rand(3), 1.5], "[Tensor float32[3], 1.5]"),
        (tuple(range(9)), "(0, 1, 2, 3, …)"),
        ({"x": torch.rand(3)}, "dict"),
        (torch.nn.Linear(2, 3), "Linear"),
        (torch.nn.Linear, "Linear"),
        ("MVE", "'MVE'"),
        (None, "None"),
        ("x" * 1000, "'" + "x" * 79),
        (Path("a.pte"), "PosixPath('a.pte')"),
        (HOSTILE[:4], r"'\x1b]0;'"),
    ],
)
def test_a_value_is_shown_in_a_few_words(value: object, text: str) -> None:
    """Never the elements of a tensor."""
    assert shown(value) == text


def hostile_program() -> bytes:
    """The self-test, with an operator of another name of the same length."""
    name = b"cortex_m::quantized_linear"
    program = known_answer(Isa.SCALAR).program
    assert name in program
    return program.replace(name, HOSTILE.encode()[: len(name)].ljust(len(name), b"x"))


def test_the_names_in_a_program_are_escaped() -> None:
    (name, *_) = (one for one in Program.from_bytes(hostile_program(), "\x1b.pte").file.operators if "mine" in one)
    assert name.startswith(HARMLESS[:20]) and name.isprintable()


# A runner between the harness and the real one: its first words are a LOG event, and its handshake may lie.
RUNNER = """
import os, struct, subprocess, sys, threading
from cortex_m_hil.runner.links.framing import Decoder, ProtocolFrame, encode
HOSTILE = {hostile!r}.encode()
child = subprocess.Popen([{runner!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)

def pass_on():
    while data := os.read(0, 65536):
        child.stdin.write(data)
    child.stdin.close()

def say(data):
    while data:
        data = data[os.write(1, data) :]

def text(value):
    return struct.pack("<H", len(value)) + value

threading.Thread(target=pass_on, daemon=True).start()
sys.stderr.write({hostile!r} + "\\n")
say(encode(ProtocolFrame(0x40, 0, b"\\2" + text(HOSTILE))))
decoder = Decoder()
while data := child.stdout.read(65536):
    for frame in decoder.feed(data):
        if frame.type == 0x81 and {lies}:
            config = 4 + struct.unpack_from("<H", frame.payload, 2)[0]  # behind the status and the build id
            (length,) = struct.unpack_from("<H", frame.payload, config)
            payload = frame.payload[:config] + text(HOSTILE) + frame.payload[config + 2 + length :]
            frame = ProtocolFrame(frame.type, frame.seq, payload)
        say(encode(frame))
"""
CONFTEST = """
import dataclasses
import sys
from pathlib import Path
import pytest
from cortex_m_hil.host import sandbox
from cortex_m_hil.runner.build import build_runner

sandbox.landlock_abi = lambda: 0  # a script needs an interpreter, which a sandbox does not have

@pytest.fixture
def runner_elf(target_spec, tmp_path):
    elf = build_runner(target_spec.target)
    script = tmp_path / "runner"
    text = Path(__file__).with_name("runner.txt").read_text()
    script.write_text(f"#!{sys.executable}\\n" + text.replace("{runner!r}", repr(str(elf.path))))
    script.chmod(0o755)
    return dataclasses.replace(elf, path=script)
"""
SUITE = """
from pathlib import Path
import numpy as np
import pytest
from cortex_m_hil.program.known_answer import known_answer

def test_target(run_pte, hil_dut):
    known = known_answer(hil_dut.target.isa)
    run_pte(known.program, known.inputs)
    assert hil_dut.session().log == "shown"

@pytest.mark.parametrize("name", ["evil.pte", "bad\\udcff.pte"])
def test_program(run_pte, name):
    run_pte(Path(name), [np.zeros((1, 16), np.float32)])
"""


@pytest.mark.parametrize(
    ("lies", "workers"),
    [pytest.param(False, [], id="honest"), pytest.param(True, ["-n1"], id="lying-xdist", marks=pytest.mark.slow)],
)
def test_nothing_of_it_gets_into_a_report(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, lies: bool, workers: Sequence[str]
) -> None:
    monkeypatch.setenv("HIL_CACHE_DIR", str(CACHE))
    runner = RUNNER.replace("{hostile!r}", ascii(HOSTILE)).replace("{lies}", str(lies))
    (pytester.path / "runner.txt").write_text(runner)
    (pytester.path / "evil.pte").write_bytes(hostile_program())
    with open(os.fsencode(pytester.path) + b"/bad\xff.pte", "wb") as file:
        file.write(b"no program")
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(SUITE)
    result = pytester.runpytest_subprocess(
        "--target=native", "--color=no", "--junit-xml=report.xml", *workers, timeout=DEADLINE
    )
    result.assert_outcomes(failed=3)
    said = result.stdout.str() + result.stderr.str() + (pytester.path / "report.xml").read_text()
    assert not any(one in said for one in CONTROLS)
    assert HARMLESS in said.replace(r"\\x", r"\x").replace(r"\\u", r"\u") and "<script>" in said
    verdicts = [one.get("value") for one in xml.parse(pytester.path / "report.xml").iter("property")
                if one.get("name") == "hil_error"]  # fmt: skip
    met = ["ProtocolError", "ProtocolError"] if lies else ["AssertionError", "UnsupportedOperator"]
    assert sorted(map(str, verdicts)) == sorted([*met, "ProgramRejected"])
