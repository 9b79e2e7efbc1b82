"""The paths of the user's cache folder, and of this package's data."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def cache_directory() -> Path:
    """Return the folder of the cache: `$HIL_CACHE_DIR`, or hil's folder in the user's cache directory."""
    override = os.environ.get("HIL_CACHE_DIR")
    return Path(override).absolute() if override else platformdirs.user_cache_path("hil")


def cache_advice() -> str:
    """Return the hint for a cache directory that cannot be written to."""
    if os.environ.get("HIL_CACHE_DIR"):
        return "is HIL_CACHE_DIR right, and writable?"
    return f"make {cache_directory()} writable, or set HIL_CACHE_DIR to a folder that is"


def package_data(name: str) -> Path:
    """Return the path of `firmware`, `docs`, `examples/own_firmware` or `targets.yaml`.

    In a wheel these are inside this package, in a checkout at its top.
    """
    package = Path(__file__).resolve().parents[1]
    installed = package / (name if name == "targets.yaml" else f"_{name}")
    return installed if installed.exists() else package.parents[1] / name
