"""Write the keys of the action's caches as outputs of a step, and HIL_CACHE_DIR for the steps after it.

Entries are found by their content, so an old cache is never wrong; the key only chooses the cache to start from.
"""

from __future__ import annotations

import hashlib
import os
from datetime import datetime, timezone
from pathlib import Path

from github_actions import append

ROOT = Path(__file__).resolve().parents[1]


def digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def main() -> None:
    versions = (ROOT / "constraints.txt").read_bytes()
    python, targets = os.environ["PYTHON_VERSION"].encode(), os.environ["TARGETS"].encode()
    folder = Path(os.environ["RUNNER_TEMP"]) / "hil-cache"
    system = os.environ["RUNNER_OS"]
    append("GITHUB_ENV", f"HIL_CACHE_DIR={folder}")
    append("GITHUB_OUTPUT", f"folder={folder}")
    append("GITHUB_OUTPUT", f"pip=hil-pip-{system}-{digest(versions, python, (ROOT / 'pyproject.toml').read_bytes())}")
    append("GITHUB_OUTPUT", f"hil=hil-{system}-{digest(versions)}-{digest(targets)}")
    append("GITHUB_OUTPUT", f"today={datetime.now(timezone.utc):%Y-%m-%d}")


if __name__ == "__main__":
    main()
