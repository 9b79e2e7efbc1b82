"""hil docs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cortex_m_hil.cli.answers import Answer, end
from cortex_m_hil.cli.app import app
from cortex_m_hil.cli.options import Json
from cortex_m_hil.cli.output import table
from cortex_m_hil.errors import ConfigError, did_you_mean
from cortex_m_hil.host.paths import package_data


@app.command("docs")
def docs(
    page: Annotated[str, typer.Argument(metavar="[PAGE]", help="Of those that are listed without it")] = "",
    as_json: Json = False,
) -> None:
    """Show a page of the documentation, or list the pages."""
    pages = {path.stem: path for path in sorted(package_data("docs").glob("*.md"))}
    if page and page not in pages:
        raise ConfigError(f"there is no page {page!r}", hint=did_you_mean(page, pages))
    shown = [page] if page else list(pages)
    fields = [{"page": name, "title": _title(pages[name]), "file": pages[name]} for name in shown]
    listed = table(("page", "title"), [(name, _title(pages[name])) for name in shown])
    end(Answer(pages[page].read_text().rstrip("\n") if page else listed, {"pages": fields}))


def _title(page: Path) -> str:
    """The heading that each page begins with."""
    return page.read_text().partition("\n")[0].removeprefix("# ")
