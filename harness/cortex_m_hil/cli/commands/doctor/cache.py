"""The commands of `hil doctor cache`, the cache of lowered programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cortex_m_hil.cli.app import group
from cortex_m_hil.cli.command_output import Answer, json_fields, write_answer
from cortex_m_hil.cli.commands.doctor.doctor_group import doctor

if TYPE_CHECKING:
    from cortex_m_hil.lowering.disk_cache import DiskCacheInfo

cache = group()
doctor.add_typer(cache, name="cache")


@cache.callback()
def _cache() -> None:
    """Show and empty the cache of lowered programs."""


@cache.command(
    "info",
    epilog=json_fields(
        {
            "folder": "where the cache is",
            "entries": "how many entries it has",
            "bytes": "how many bytes it has",
            "limit": "how many bytes it may have at most",
        }
    ),
)
def cache_info() -> None:
    """Show where the cache is, and how large."""
    from cortex_m_hil.lowering.disk_cache import disk

    found = disk.info()
    write_answer(Answer(f"{_size(found)}; at most {found.limit / 1e6:.0f} MB", _fields(found)))


@cache.command(
    "clear",
    epilog=json_fields(
        {
            "folder": "where the cache is",
            "entries": "how many entries it had before",
            "bytes": "how many bytes it had before",
            "limit": "how many bytes it may have at most",
        }
    ),
)
def cache_clear() -> None:
    """Remove all lowered programs from the cache.

    Runners stay: each is found by the content that it was built from.
    """
    from cortex_m_hil.lowering.disk_cache import disk

    found = disk.info()
    disk.clear()
    write_answer(Answer(f"{_size(found)} removed", _fields(found)))


def _size(found: DiskCacheInfo) -> str:
    return f"{found.folder}: entries {found.entries}, {found.bytes / 1e6:.1f} MB"


def _fields(found: DiskCacheInfo) -> dict[str, object]:
    return {"folder": found.folder, "entries": found.entries, "bytes": found.bytes, "limit": found.limit}
