"""The option --hil-trace of commands: what a command spent its time on, as a trace for Perfetto."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from cortex_m_hil.errors import InfraError
from cortex_m_hil.host.spans import Recorder, recorded_by, span, start_of_process
from cortex_m_hil.host.trace_file import add_spans, check_trace_file


def _record(context: typer.Context, file: Path | None) -> Path | None:
    """Record the spans of this process until the end of the command, as the option's callback."""
    if file is not None and not context.resilient_parsing:
        check_trace_file(file)
        context.with_resource(_recorded(file, f"hil {context.info_name}"))
    return file


@contextmanager
def _recorded(file: Path, process: str) -> Iterator[None]:
    own = Recorder([start_of_process()])
    try:
        with recorded_by(own), span("session", process):
            yield
    finally:
        try:
            add_spans(file, {process: own.spans})
        except InfraError as error:  # behind the answer, and not in its place
            print(error.describe(), file=sys.stderr)


TraceFile = Annotated[
    Path | None,
    typer.Option(
        "--hil-trace",
        metavar="FILE",
        show_default=False,
        callback=_record,
        help="Write a trace: when hil and its pytest lowered, built, booted, ran, waited; adds to one that is there",
    ),
]
