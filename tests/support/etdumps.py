"""ETDumps, read by ExecuTorch's own flatc and schema, which check them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Final

import executorch

EXECUTORCH: Final = Path(executorch.__path__[0])
FLATC: Final = EXECUTORCH / "data" / "bin" / "flatc"
SCHEMA: Final = EXECUTORCH / "devtools" / "etdump" / "etdump_schema_flatcc.fbs"


def read_etdump(file: Path) -> Any:
    """Return an ETDump as JSON has it. A file `.json` is written beside it."""
    words = [str(FLATC), "--json", "--strict-json", "--defaults-json", "--raw-binary", "--size-prefixed"]
    subprocess.run([*words, "-o", str(file.parent), str(SCHEMA), "--", str(file)], check=True, timeout=60)
    return json.loads(file.with_suffix(".json").read_text())
