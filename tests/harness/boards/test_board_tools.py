"""Flash, reset and power: what the templates become, and real tools that fail in every way they can."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from cortex_m_hil.boards.board_tools import CommandTools, run
from cortex_m_hil.errors import ConfigError, FlashError, LaunchError, ToolchainError
from cortex_m_hil.host.deadline import Deadline
from cortex_m_hil.runner.launchers.serial import SerialLauncher
from cortex_m_hil.targets.board_tool_commands import RawProcedure, parse_procedure
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.target import Port
from devices import Start

SERVERS = ["-c", "gdb_port disabled; tcl_port disabled; telnet_port disabled"]
Words = dict[str, Any]


def flash_tool(command: str, **more: Any) -> Any:
    """A Python program as a flash tool."""
    return parse_procedure(
        RawProcedure(command=["{python}", "-c", command, "{elf}"], **more), "flash", "targets.yaml:1: b"
    )


# --- templates -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "raw", "wanted"),
    [
        (
            "flash",
            {"preset": "openocd", "config": "board/st_nucleo_f4.cfg"},
            [["openocd", "-f", "board/st_nucleo_f4.cfg", *SERVERS, "-c", "program {/b c/r.elf} verify reset exit"]],
        ),
        (
            "flash",
            {"preset": "openocd", "config": ["interface/cmsis-dap.cfg", "target/rp2040.cfg"], "serial_number": "E66",
             "speed": 5000},
            [["openocd", "-f", "interface/cmsis-dap.cfg", "-f", "target/rp2040.cfg", "-c", "adapter serial E66", "-c",
              "adapter speed 5000", *SERVERS, "-c", "program {/b c/r.elf} verify reset exit"]],
        ),
        ("reset", {"preset": "openocd", "config": "x.cfg"},
         [["openocd", "-f", "x.cfg", *SERVERS, "-c", "init; reset run; shutdown"]]),
        ("flash", {"preset": "pyocd", "chip": "stm32f446retx", "serial_number": "066A"},
         [["pyocd", "load", "-W", "--target", "stm32f446retx", "--uid", "066A", "/b c/r.elf"]]),
        ("reset", {"preset": "pyocd", "chip": "rp2040"}, [["pyocd", "reset", "-W", "--target", "rp2040"]]),
        (
            "flash",
            {"preset": "probe-rs", "chip": "STM32F446RETx"},
            [["probe-rs", "download", "--non-interactive", "--chip", "STM32F446RETx", "--verify", "/b c/r.elf"],
             ["probe-rs", "reset", "--non-interactive", "--chip", "STM32F446RETx"]],
        ),
        ("flash", {"preset": "picotool", "serial_number": "E66"},
         [["picotool", "load", "-v", "-x", "/b c/r.elf", "-t", "elf", "--ser", "E66", "-f"]]),
        (
            "flash",
            {"preset": "jlink", "chip": "AE822FA0E5597LS0_M55_HP", "serial_number": "801012345"},
            [["JLinkExe", "-NoGui", "1", "-ExitOnError", "1", "-AutoConnect", "1", "-Device",
              "AE822FA0E5597LS0_M55_HP", "-If", "SWD", "-Speed", "4000", "-USB", "801012345", "-CommandFile", "/s"]],
        ),
        ("power", "labgrid", [["labgrid-client", "-x", "lab:20408", "-p", "+TOK", "power", "cycle"]]),
        ("power", ["usbhub", "{port}"], [["usbhub", "/dev/ttyACM0"]]),
    ],
)  # fmt: skip
def test_a_preset_becomes_the_words_of_the_tools_manual(kind: str, raw: Any, wanted: list[list[str]]) -> None:
    procedure = parse_procedure(RawProcedure(**raw) if isinstance(raw, dict) else raw, kind, "targets.yaml:1: b")
    given = {"elf": "/b c/r.elf", "script": "/s", "place": "+TOK", "coordinator": "lab:20408", "port": "/dev/ttyACM0"}
    assert procedure.bind(given) == wanted


def test_the_jlink_script_loads_the_elf() -> None:
    procedure = parse_procedure(RawProcedure(preset="jlink", chip="X"), "flash", "t")
    assert [procedure.fill(line, {"elf": "/b c/r.elf"}) for line in procedure.script] == [
        "r", "h", 'loadfile "/b c/r.elf"', "r", "g", "qc",
    ]  # fmt: skip


def test_a_boards_own_serial_number_goes_before_the_targets() -> None:
    procedure = parse_procedure(RawProcedure(preset="pyocd", chip="c", serial_number="all"), "flash", "t")
    assert "mine" in procedure.bind({"elf": "e", "serial_number": "mine"})[0]


@pytest.mark.parametrize(
    ("kind", "raw", "message"),
    [
        ("flash", "opencd", r"no preset 'opencd'.*\n.*did you mean 'openocd'"),
        ("power", "openocd", r"no preset 'openocd'.*\n.*labgrid"),
        ("flash", "openocd", r"openocd needs config\n.*\{preset: openocd, config: board/st_nucleo_f4.cfg\}"),
        ("flash", "pyocd", r"pyocd needs chip\n.*\{preset: pyocd, chip: stm32f446retx\}"),
        ("flash", {"preset": "probe-rs", "serial_number": "1"}, "probe-rs needs chip"),
        ("flash", {"preset": "picotool", "chip": "rp2040"}, "picotool has no use for chip"),
        ("flash", "setools", r"setools needs address\n.*address: 0x80008000, chip: M55_HP\}"),
        ("flash", {"preset": "setools", "address": 1}, "setools needs chip"),
        ("flash", ["tool", "{home}"], r"unknown placeholder \{home\}"),
        ("flash", ["tool", "{efl}"], r"unknown placeholder \{efl\}.*\n.*did you mean 'elf'"),
        ("flash", ["tool", "{chip}"], r"tool needs chip\n.*\{command: \[tool, …\], chip: STM32F446RE\}"),
        ("flash", ["tool", "{script}"], r"\{script\} without a script"),
        ("flash", {"command": ["t"], "talk": [{"expect": "x", "send": "{nobody}"}]}, r"unknown placeholder \{nobody\}"),
        ("flash", [], "names no tool"),
        ("flash", {"preset": "pyocd", "chip": "c", "command": ["x"]}, "has a command of its own"),
        ("flash", {"command": ["t"], "fail": ["("]}, "no regular expression"),
    ],
)
def test_what_is_wrong_in_targets_yaml_is_said_with_its_place(kind: str, raw: Any, message: str) -> None:
    if isinstance(raw, dict):
        raw = RawProcedure.model_validate(raw)
    with pytest.raises(ConfigError, match=rf"targets.yaml:1: b: {kind}: .*{message}"):
        parse_procedure(raw, kind, "targets.yaml:1: b")


def test_a_tool_that_is_not_configured_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"names no tool for reset.*\n.*reset: a preset or a command"):
        CommandTools(target="b").reset()


# --- tools ---------------------------------------------------------------------------------------------------


def test_a_tool_gets_its_words_as_they_are_and_never_a_shell(tmp_path: Path) -> None:
    elf = tmp_path / "a b; touch pwned $(touch pwned).elf"
    output = CommandTools(flash_tool("import sys; print(sys.argv[1:])")).flash(elf)
    assert output.strip() == repr([str(elf)])


def test_a_script_is_a_file_with_its_lines_filled_in() -> None:
    raw = RawProcedure(command=["cat", "{script}"], script=["load {elf}", "go"])
    assert CommandTools(parse_procedure(raw, "flash", "t")).flash(Path("/r.elf")) == "load /r.elf\ngo\n"


def test_a_missing_tool_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ToolchainError, match=r"openocd is not on PATH.*\n.*apt-get install openocd"):
        CommandTools(parse_procedure(RawProcedure(preset="openocd", config="x"), "flash", "t")).flash(Path("/r.elf"))


def failing(command: str, **more: Any) -> FlashError:
    with pytest.raises(FlashError) as caught:
        CommandTools(flash_tool(command, **more), target="nucleo").flash(Path("/r.elf"))
    return caught.value


def test_a_tool_that_fails_is_quoted_and_its_output_kept() -> None:
    error = failing("import sys; print('erasing'); print('Error: no probe', file=sys.stderr); sys.exit(3)")
    assert "flash: " in error.message
    assert "ended with status 3: Error: no probe" in error.message
    assert error.target == "nucleo"
    assert {"erasing", "Error: no probe"} <= set(error.log.splitlines())
    assert "by hand: " in error.hint
    assert "/r.elf" in error.hint


def test_a_tool_that_is_killed_half_way_says_so() -> None:
    error = failing("import os; print('writing 40 %', flush=True); os.kill(os.getpid(), 9)")
    assert "was killed (SIGKILL)" in error.message
    assert "writing 40 %" in error.log


def test_a_tool_that_does_not_end_is_ended() -> None:
    began = time.monotonic()
    error = failing("import time; print('waiting for a probe', flush=True); time.sleep(60)", seconds=5.0)
    assert "has not ended after 5 s" in error.message
    assert "waiting for a probe" in error.log
    assert time.monotonic() - began < 50


def test_a_tool_that_asks_is_not_waited_for() -> None:
    assert "EOFError" in failing("input('sure? ')").log


def test_a_tool_whose_status_is_always_0_is_judged_by_what_it_says() -> None:
    assert "said 'Cannot connect'" in failing("print('Cannot connect to target.')", fail=["Cannot connect"]).message


def test_a_reset_that_fails_is_no_flash_error() -> None:
    procedure = parse_procedure(["{python}", "-c", "raise SystemExit('boom')"], "reset", "t")
    with pytest.raises(LaunchError, match=r"reset: .* ended with status 1: boom"):
        CommandTools(resetting=procedure).reset()


def test_a_tool_dies_with_who_uses_it(start: Start, tmp_path: Path) -> None:
    """A flash tool that lived on would write to a board that is another's by now."""
    pid = tmp_path / "pid"
    user = start(f"""
from pathlib import Path
from cortex_m_hil.boards.board_tools import CommandTools
from cortex_m_hil.targets.board_tool_commands import parse_procedure
code = "import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
CommandTools(parse_procedure(["{{python}}", "-c", code, "{{elf}}"], "flash", "t")).flash(Path("x"))
""")
    deadline = Deadline.after(30)
    while not (pid.exists() and pid.read_text()):
        assert not deadline.expired
        time.sleep(0.02)
    tool = psutil.Process(int(pid.read_text()))
    os.kill(user.pid, signal.SIGKILL)
    assert not psutil.wait_procs([tool], timeout=10)[1]


COMMANDER = """
import sys
for prompt in sys.argv[2:] or ["J-Link>"]:
    said = input(prompt)
    print("got", said)
    if said == "bad":
        print("Unknown command")
"""


def commander(talk: list[dict[str, str]], *prompts: str, **more: Any) -> Any:
    raw = {"command": ["{python}", "-c", COMMANDER, "-", *prompts], "talk": talk, **more}
    return parse_procedure(RawProcedure.model_validate(raw), "flash", "t")


def test_a_tool_that_must_be_talked_to() -> None:
    talk = [{"expect": "J-Link>", "send": "loadfile {elf}"}, {"expect": r"sure\?", "send": "y"}]
    output = CommandTools(commander(talk, "J-Link>", "sure?")).flash(Path("/r.elf"))
    assert "got loadfile /r.elf" in output
    assert "got y" in output


@pytest.mark.parametrize(
    ("talk", "prompts", "more", "message"),
    [
        ([{"expect": "SETOOLS>", "send": "x"}], ["J-Link>"], {"seconds": 5.0},
         "went on for 5 s without saying 'SETOOLS>'"),
        ([{"expect": "J-Link>", "send": "a"}, {"expect": "J-Link>", "send": "b"}], ["J-Link>"], {},
         "ended without saying 'J-Link>'"),
        ([{"expect": "J-Link>", "send": "bad"}, {"expect": "done", "send": ""}], ["J-Link>"],
         {"fail": ["Unknown command"]}, "said 'Unknown command'"),
        ([{"expect": "J-Link>", "send": "a"}], ["J-Link>", "more>"], {"seconds": 5.0}, "has not ended after 5 s"),
    ],
)  # fmt: skip
def test_a_talk_that_goes_wrong(talk: list[Words], prompts: list[str], more: Words, message: str) -> None:
    with pytest.raises(FlashError) as caught:
        CommandTools(commander(talk, *prompts, **more)).flash(Path("/r.elf"))
    assert message in caught.value.message
    assert "J-Link>" in caught.value.log


def test_a_talk_with_a_tool_that_fails_in_the_end() -> None:
    raw = {"command": ["{python}", "-c", "input('>'); raise SystemExit(4)"], "talk": [{"expect": ">", "send": "x"}]}
    with pytest.raises(LaunchError, match="ended with status 4"):
        run(parse_procedure(RawProcedure.model_validate(raw), "reset", "t"), {}, what="reset")


def test_openocd_itself_takes_what_the_preset_says(tmp_path: Path) -> None:
    """Up to the adapter, which is not there: OpenOCD's words, and its exit status."""
    elf = tmp_path / "a runner.elf"
    elf.write_bytes(Path(sys.executable).read_bytes()[:64])
    raw = RawProcedure(preset="openocd", config="board/st_nucleo_f4.cfg", serial_number="066A")
    with pytest.raises(FlashError, match="openocd ended with status 1: Error: open failed") as caught:
        CommandTools(parse_procedure(raw, "flash", "t")).flash(elf)
    assert "OpenOCD init failed" in caught.value.log
    with pytest.raises(LaunchError, match="Error: open failed"):
        CommandTools(resetting=parse_procedure(raw, "reset", "t")).reset()


# --- tools that no test machine has: in their place programs that take nothing but what the manuals have ------

STRICT = """#!{python}
import pathlib, re, sys
words, here = sys.argv[1:], pathlib.Path(__file__).parent
with (here / "calls").open("a") as calls:
    print(pathlib.Path(sys.argv[0]).name, *words, file=calls)
{body}
print((here / "says").read_text() if (here / "says").exists() else "done")
"""
CUBE = """
line = re.sub(r"sn=066A|freq=4000", "", " ".join(words))
line = " ".join(line.split())
options = "-c port=SWD mode=UR reset=HWrst"
if re.fullmatch(options + r" -w /\\S+\\.elf -v -rst", line):
    assert pathlib.Path(words[-3]).read_bytes()[:4] == b"\\x7fELF"
elif line != options + " -rst":
    sys.exit(f"Error: Wrong command line: {line}")
"""
GENERATE = """
import json
if words[0] not in ("-f", "--filename") or len(words) != 2 or pathlib.Path.cwd() != here.resolve():
    sys.exit("usage: app-gen-toc -f FILENAME, in its own folder")
for name, entry in json.loads(pathlib.Path(words[1]).read_text()).items():
    if not set(entry) <= {"disabled", "binary", "version", "signed", "cpu_id", "mramAddress", "loadAddress", "flags"}:
        sys.exit("[ERROR] unknown attribute")
    if name != "DEVICE":
        image = pathlib.Path("build/images", entry["binary"]).read_bytes()
        assert entry["cpu_id"] in ("M55_HP", "M55_HE") and entry["flags"] == ["boot"] and entry["signed"] is False
        pathlib.Path("build/AppTocPackage.bin").write_text(f"{entry['mramAddress']} {len(image)}")
"""
WRITE = """
if words != ["-p"] or not pathlib.Path("build/AppTocPackage.bin").exists():
    sys.exit("[ERROR] nothing to write")
"""
COMMANDER_ARGUMENTS = """
wanted = ["-NoGui", "1", "-ExitOnError", "0", "-AutoConnect", "1", "-Device", "AE822FA0E5597LS0_M55_HP", "-If", "SWD",
          "-Speed", "4000", "-CommandFile"]
assert words[:-1] == wanted, words
assert pathlib.Path(words[-1]).read_text().split("\\n") == ["RSetType 2", "r", "g", "qc", ""]
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A folder on PATH, and what puts tools there."""
    folder = tmp_path / "SE tools"
    (folder / "build" / "images").mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def put(name: str, body: str) -> Path:
        (folder / name).write_text(STRICT.replace("{python}", sys.executable).replace("{body}", body))
        (folder / name).chmod(0o755)
        return folder

    return put


def arm_elf(folder: Path) -> Path:
    """An image of 8 bytes at 0x80008000."""
    (folder / "image.s").write_text(".text\n.word 0x20001000, 0x80008009\n")
    run = ["arm-none-eabi-gcc", "-nostdlib", "-Wl,-Ttext=0x80008000,-e0", str(folder / "image.s")]
    subprocess.run([*run, "-o", str(folder / "image.elf")], check=True, timeout=60)
    return folder / "image.elf"


def test_stm32cubeprogrammer_gets_what_its_manual_has(fake: Any, tmp_path: Path) -> None:
    fake("STM32_Programmer_CLI", CUBE)
    tool = RawProcedure(preset="stm32cubeprogrammer", serial_number="066A", speed=4000)
    assert "done" in CommandTools(parse_procedure(tool, "flash", "t")).flash(arm_elf(tmp_path))
    assert "done" in CommandTools(resetting=parse_procedure(tool, "reset", "t")).reset()
    assert "done" in CommandTools(parse_procedure("stm32cubeprogrammer", "flash", "t")).flash(arm_elf(tmp_path))


def test_what_stm32cubeprogrammer_says_is_an_error_whatever_its_status(fake: Any, tmp_path: Path) -> None:
    folder = fake("STM32_Programmer_CLI", CUBE)
    for said in (
        "Error: No debug probe detected.",
        "Error: Failed to download data! If it's a Flash memory, it may be not erased or protected",
        "Error: failed to erase memory",
    ):
        (folder / "says").write_text(f"ST-LINK SN : 066A\n\x1b[31m{said}\x1b[0m\nDownload verified successfully\n")
        with pytest.raises(FlashError, match="flash: STM32_Programmer_CLI said ") as caught:
            CommandTools(parse_procedure("stm32cubeprogrammer", "flash", "t")).flash(arm_elf(tmp_path))
        assert said in caught.value.message
        assert "Download verified" in caught.value.log
        assert "try it by hand: " in caught.value.hint
        with pytest.raises(LaunchError, match="reset: STM32_Programmer_CLI said "):
            CommandTools(resetting=parse_procedure("stm32cubeprogrammer", "reset", "t")).reset()


def test_setools_make_a_package_of_the_image_in_their_own_folder(fake: Any, tmp_path: Path) -> None:
    folder = fake("app-gen-toc", GENERATE)
    fake("app-write-mram", WRITE)
    tools = load_targets()["alif-e8"].launcher
    assert isinstance(tools, SerialLauncher)
    assert tools.flash is not None
    assert tools.flash.replaces
    CommandTools(tools.flash).flash(arm_elf(tmp_path))
    assert (folder / "build" / "images" / "hil.bin").read_bytes() == bytes.fromhex("0010002009800080")
    assert (folder / "build" / "AppTocPackage.bin").read_text() == "0x80008000 8"
    calls = (folder / "calls").read_text().splitlines()
    assert [call.split()[0] for call in calls] == ["app-gen-toc", "app-write-mram"]


def test_what_goes_wrong_in_setools(fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flash = parse_procedure(RawProcedure(preset="setools", chip="M55_HP", address="0x80008000"), "flash", "t")
    elf = arm_elf(tmp_path)
    with monkeypatch.context() as bare:
        bare.setenv("PATH", "/usr/bin:/bin")
        with pytest.raises(ToolchainError, match=r"app-gen-toc is not on PATH.*\n.*SETOOLS from Alif"):
            CommandTools(flash).flash(elf)
    folder = fake("app-gen-toc", 'print("[ERROR] Image not found"); sys.exit(1)')
    with pytest.raises(FlashError, match=r"flash: app-gen-toc said '\[ERROR\] Image not found'"):
        CommandTools(flash).flash(elf)
    assert not (folder / "build" / "AppTocPackage.bin").exists()
    fake("app-gen-toc", GENERATE)
    fake("app-write-mram", 'print("[ERROR] cannot open the port")')
    with pytest.raises(FlashError, match=r"flash: app-write-mram said '\[ERROR\] cannot open the port'"):
        CommandTools(flash).flash(elf)


def test_an_alif_board_is_reset_by_its_pin(fake: Any) -> None:
    folder = fake("JLinkExe", COMMANDER_ARGUMENTS)
    launcher = load_targets()["alif-e8"].launcher
    assert isinstance(launcher, SerialLauncher)
    (folder / "says").write_text("Connecting to J-Link via USB...O.K.\nAttach to CPU failed")
    CommandTools(resetting=launcher.reset).reset()
    (folder / "says").write_text("Connecting to J-Link via USB...FAILED: Cannot connect to J-Link.")
    with pytest.raises(LaunchError, match=r"reset: JLinkExe said .Connecting to J-Link via USB\.\.\.FAILED"):
        CommandTools(resetting=launcher.reset).reset()


# --- targets.yaml --------------------------------------------------------------------------------------------

ENTRY = "targets:\n  mine:\n    cpu: cortex-m4\n    board: stm32f4\n    launcher:\n      serial:\n"


def load(folder: Path, *lines: str) -> SerialLauncher:
    path = folder / "targets.yaml"
    path.write_text(ENTRY + "".join(f"        {line}\n" for line in lines))
    launcher = load_targets(path)["mine"].launcher
    assert isinstance(launcher, SerialLauncher)
    return launcher


def test_a_pool_with_its_tools(tmp_path: Path) -> None:
    launcher = load(
        tmp_path,
        "ports: [{port: /dev/a, serial_number: '066A'}, {port: /dev/b, serial_number: '066B'}]",
        "wait: 5",
        "flash: {preset: openocd, config: [interface/x.cfg, target/y.cfg]}",
        "reset: [tool, '{serial_number}']",
    )
    assert launcher.port == "/dev/a"
    assert launcher.ports == (Port("/dev/a", "066A"), Port("/dev/b", "066B"))
    assert launcher.wait == 5
    assert launcher.power is None
    assert launcher.flash
    assert launcher.flash.variables["config"] == ("interface/x.cfg", "target/y.cfg")
    assert launcher.reset
    assert launcher.reset.bind({"serial_number": "066B"}) == [["tool", "066B"]]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["baud: 9600"], r"targets.yaml:2: mine: serial needs one of port, ports"),
        (["port: /dev/a", "ports: [/dev/b]"], "needs one of port, ports"),
        (["ports: [/dev/a, /dev/a]"], "ports names /dev/a twice"),
        (["ports: [/dev/a, 'labgrid://lab/?x=y']"], "stands for several boards already"),
        (["port: /dev/a", "flash: {preset: openocd, confg: x}"],
         r"targets.yaml:8: unknown key 'confg'\n.*did you mean 'config'"),
        (["port: /dev/a", "flash: {preset: pyocd, chip: x, serial_number: 0669}"], r"targets.yaml:8: .* text, not 669"),
        (["port: /dev/a", "flash: {preset: pyocd, chip: x, seconds: 0}"], "targets.yaml:8: .*greater than 0"),
        (["port: /dev/a", "reset: [tool, '{serial_number}']"], "mine: reset: tool needs serial_number"),
        (["ports: [{port: /dev/a, serial: x}]"], r"unknown key 'serial'\n.*serial_number"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_board_in_targets_yaml(tmp_path: Path, lines: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, *lines)
