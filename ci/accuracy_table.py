"""Make the table in docs/evaluate.md: `python ci/accuracy_table.py` evaluates the models of examples/evaluate.

Digits after the third may differ on another machine, since the models are trained again.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "evaluate.md"
EXAMPLE: Final = ROOT / "examples" / "evaluate"
TARGETS: Final = "m55-qemu,m4-qemu,m0-qemu"
MODELS: Final = {"digits": (), "machine": (), "keywords": ("--negative", "0", "--stream")}
_BLOCK: Final = re.compile(r"(<!-- table -->\n).*?(?=<!-- end -->)", re.DOTALL)
_HEAD: Final = (
    "| model | targets | | eager | fake-quant | dialect | target | as the dialect | quanta from fake-quant |\n"
    "|---|---|---|---|---|---|---|---|---|\n"
)


def rendered(page: str, answers: Iterator[Mapping[str, Any]]) -> str:
    """Return the page with its table made again; targets of a model with equal figures share a row."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for one in answers:
        rows.setdefault((one["model"].partition(":")[2], *_figures(one)), []).append(one["target"])
    lines = (f"| {' | '.join((model, ', '.join(targets), *cells))} |\n" for (model, *cells), targets in rows.items())
    return _BLOCK.sub(lambda block: block[1] + _HEAD + "".join(lines), page)


def _figures(one: Mapping[str, Any]) -> Iterator[str]:
    figure = "auc" if one["top1"] is None else "top1"
    yield {"auc": "AUC", "top1": "top-1"}[figure]
    yield from (f"{one[figure][source]:.4f}" for source in ("eager", "quantized", "dialect", "target"))
    yield f"{one['same_answers']['dialect']} of {one['samples']}"
    yield str(one["max_quanta"]["quantized"])


def evaluated() -> Iterator[Mapping[str, Any]]:
    """Yield the answers of `hil evaluate` for each model, on each target."""
    environment = {**os.environ, "PYTHONPATH": f"{EXAMPLE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, str(EXAMPLE / "tasks.py")], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        for name, more in MODELS.items():
            words = [
                f"tasks:{name}",
                "--data",
                f"{name}.npz",
                "-t",
                TARGETS,
                *more,
                "--json",
                "--store",
                "store.sqlite",
            ]
            command = [sys.executable, "-m", "cortex_m_hil.cli", "evaluate", *words]
            done = subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True)
            yield from map(json.loads, done.stdout.splitlines())


def main() -> None:
    PAGE.write_text(rendered(PAGE.read_text(), evaluated()))


if __name__ == "__main__":
    main()
