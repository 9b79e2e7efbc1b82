"""A check of JUnit files against `junit.xsd`, which says where it is from."""

from __future__ import annotations

from pathlib import Path

import xmlschema

SCHEMA = xmlschema.XMLSchema(Path(__file__).with_name("junit.xsd"))


def invalid(text: str) -> list[str]:
    """Return what a JUnit file has that the schema forbids, or lacks."""
    return [f"{error.path}: {error.reason}" for error in SCHEMA.iter_errors(text)]
