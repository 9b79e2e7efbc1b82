"""The protocol's numbers stand in the firmware's header, in the Python module and in the specification: all alike."""

from __future__ import annotations

import re

import pytest

from cortex_m_hil.program.pte_file import MAX_METHOD_NAME
from cortex_m_hil.runner.links import framing, protocol
from paths import REPOSITORY

HEADER = (REPOSITORY / "firmware" / "target_library" / "protocol.h").read_text()
PAGE = (REPOSITORY / "docs" / "protocol.md").read_text()
ENUMS = {
    "request": protocol.Request,
    "event": protocol.Event,
    "memory_region": protocol.MemoryRegion,
    "status": protocol.ResponseStatus,
}
PREFIXES = {"memory_region": "MEMORY", "log_level": "LOG"}  # of the others the name itself
TABLES = {"request": "type", "event": "type", "memory_region": "region", "status": "status"}


def in_header(name: str) -> dict[str, int]:
    """`HIL_STATUS_BAD_STATE = 3` as BAD_STATE: 3."""
    body = re.search(rf"enum hil_{name} \{{(.*?)\}}", HEADER, re.DOTALL)
    assert body
    entries = re.findall(rf"HIL_{PREFIXES.get(name, name.upper())}_(\w+) = (\w+)", body[1])
    return {key: int(value, 0) for key, value in entries}


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
    body = re.search(r"enum \{(.*?)\}", HEADER, re.DOTALL)
    assert body
    assert {name: int(value, 0) for name, value in re.findall(r"HIL_(\w+) = (\w+)", body[1])} == {
        "PROTOCOL_VERSION": framing.VERSION,
        "RESPONSE_BIT": protocol.RESPONSE,
        "FIRST_EVENT": min(protocol.Event),
        "MAX_METHOD_NAME": MAX_METHOD_NAME,
        "EXIT_FAULT": protocol.EXIT_FAULT,
        "EXIT_FATAL": protocol.EXIT_ASSERT,
    }
    assert list(in_header("log_level")) == [level.upper() for level in protocol.LEVELS]
    assert list(in_header("log_level").values()) == list(range(len(protocol.LEVELS)))


def test_no_number_of_a_message_stands_anywhere_else_in_the_firmware() -> None:
    for path in (REPOSITORY / "firmware" / "target_library").glob("*.c"):
        assert not re.search(r"\b0x(0[1-9A-E]|4[0-4]|80)\b", path.read_text()), path.name
