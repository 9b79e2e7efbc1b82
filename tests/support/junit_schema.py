"""Checks JUnit files against `junit.xsd`, which names its source."""

from __future__ import annotations

from pathlib import Path

import xmlschema

SCHEMA = xmlschema.XMLSchema(Path(__file__).with_name("junit.xsd"))


def invalid(text: str) -> list[str]:
    """Return the violations of the schema in a JUnit file."""
    return [f"{error.path}: {error.reason}" for error in SCHEMA.iter_errors(text)]
