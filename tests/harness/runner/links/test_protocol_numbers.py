"""The protocol's numbers stand in the firmware's header, in the Python module and in the specification: all alike."""

from __future__ import annotations

import re

import pytest

from cortex_m_hil.program.pte_file import MAX_METHOD_NAME
from cortex_m_hil.runner.links import framing, protocol
from paths import REPOSITORY

HEADER = (REPOSITORY / "firmware" / "platform" / "protocol.h").read_text()
PAGE = (REPOSITORY / "docs" / "protocol.md").read_text()
ENUMS = {
    "Request": protocol.Request,
    "Event": protocol.Event,
    "MemoryRegion": protocol.MemoryRegion,
    "Code": protocol.ResponseStatus,
}
TABLES = {"Request": "type", "Event": "type", "MemoryRegion": "region", "Code": "status"}


def in_header(name: str) -> dict[str, int]:
    """`kProgramRejected = 4` as PROGRAM_REJECTED: 4."""
    body = re.search(rf"enum class {name} : \w+ \{{(.*?)\}}", HEADER, re.DOTALL)
    assert body
    entries = re.findall(r"k(\w+) = (\w+)", body[1])
    return {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key).upper(): int(value, 0) for key, value in entries}


def in_page(column: str) -> dict[str, int]:
    """Rows `| 0x01 | HELLO | …` of all tables whose first column is `column`."""
    tables = re.findall(rf"^\| {column} \| name \|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    rows = re.findall(r"^\| (\w+) \| (\w+) \|", "".join(tables), re.MULTILINE)
    return {name: int(number, 0) for number, name in rows}


@pytest.mark.parametrize("name", ENUMS)
def test_header_and_module_have_the_same_numbers(name: str) -> None:
    assert in_header(name) == {entry.name: entry.value for entry in ENUMS[name]}


@pytest.mark.parametrize("name", ENUMS)
def test_the_specification_has_them_too(name: str) -> None:
    found = in_page(TABLES[name])
    assert in_header(name).items() <= found.items()
    everything = {key for other, column in TABLES.items() if column == TABLES[name] for key in in_header(other)}
    assert found.keys() == everything


def test_single_numbers() -> None:
    constants = {name: int(value, 0) for name, value in re.findall(r"constexpr \w+ k(\w+) = (\w+);", HEADER)}
    assert constants == {
        "ProtocolVersion": framing.VERSION,
        "ResponseBit": protocol.RESPONSE,
        "FirstEvent": min(protocol.Event),
        "MaxMethodName": MAX_METHOD_NAME,
        "ExitFault": protocol.EXIT_FAULT,
        "ExitFatal": protocol.EXIT_ASSERT,
    }
    assert list(in_header("LogLevel")) == [level.upper() for level in protocol.LEVELS]
    assert list(in_header("LogLevel").values()) == list(range(len(protocol.LEVELS)))


def test_no_number_of_a_message_stands_anywhere_else_in_the_firmware() -> None:
    for path in (REPOSITORY / "firmware" / "runner").glob("*.cpp"):
        assert not re.search(r"\b0x(0[1-9A-E]|4[0-4]|80)\b", path.read_text()), path.name
