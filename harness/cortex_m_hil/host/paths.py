"""The paths of the user's cache folder, of this package's data, and of files of a commit that is bisected."""

from __future__ import annotations

import json
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


# Environment variables of the commands that a bisection runs: the commit's worktree, the repository's checkouts (JSON).
BISECT_WORKTREE, BISECT_CHECKOUTS = "HIL_BISECT_WORKTREE", "HIL_BISECT_CHECKOUTS"


def path_under_test(path: Path) -> Path:
    """Return the path itself, or in a bisection its counterpart in the commit's worktree.

    Only paths in a checkout of the repository that is bisected have a counterpart, which need not exist.
    """
    worktree = os.environ.get(BISECT_WORKTREE, "")
    real = Path(os.path.realpath(path))
    if not worktree or real.is_relative_to(worktree):
        return path
    tops = [Path(top) for top in json.loads(os.environ.get(BISECT_CHECKOUTS, "[]")) if real.is_relative_to(top)]
    return Path(worktree) / real.relative_to(max(tops, key=lambda top: len(top.parts))) if tops else path
