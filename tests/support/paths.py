"""Paths of the checkout that these tests are from, and the PYTHONPATH of processes that tests start."""

from __future__ import annotations

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
IMPORT_ROOT = REPOSITORY / "harness"
