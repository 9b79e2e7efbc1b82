"""Where the checkout is that these tests are from, and what goes on PYTHONPATH for a process of its own."""

from __future__ import annotations

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
IMPORT_ROOT = REPOSITORY / "harness"
