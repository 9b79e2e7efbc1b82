"""JUnit files against `junit.xsd`, which says whose form that is."""

from __future__ import annotations

from pathlib import Path

import xmlschema

SCHEMA = xmlschema.XMLSchema(Path(__file__).with_name("junit.xsd"))


def invalid(text: str) -> list[str]:
    """What a JUnit file has that it may not have, or lacks."""
    return [f"{error.path}: {error.reason}" for error in SCHEMA.iter_errors(text)]
