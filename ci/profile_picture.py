"""Make the picture in docs/command-line.md: the page of a profile, with its costliest layer chosen.

    python ci/profile_picture.py

Next to the picture are digests of the shown page's template, style and script.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from browser import browser
from report_picture import ROOT, digests

PICTURE: Final = ROOT / "docs" / "images" / "profile.png"
DIGESTS: Final = PICTURE.with_suffix(".sha256")
PAGE: Final = ROOT / "harness" / "cortex_m_hil" / "diagnose" / "profile_pictures" / "page"
WIDTH, HEIGHT, SCALE = 1200, 1120, 0.72
DEADLINE: Final = 1800.0  # seconds for a profile, which may have to build a runner


def made(folder: Path) -> bytes:
    """Return a PNG of the top of a profile's page, made for a network of MLPerf Tiny.

    Raises:
        CalledProcessError: the profile failed.
    """
    page = folder / "profile.html"
    hil = [sys.executable, "-m", "cortex_m_hil.cli", "profile", "resnet8", "-t", "m55-qemu", "--runtime", "builtin"]
    subprocess.run([*hil, "--html", page], cwd=folder, stdout=subprocess.DEVNULL, timeout=DEADLINE, check=True)
    with browser(folder / "browser") as shown:
        shown.emulate(WIDTH, HEIGHT, prefers_color_scheme="light")
        shown.open(page)
        shown.run("document.querySelector('[data-line]').click()")
        shown.run("document.activeElement.blur(), scrollTo(0, 0)")
        return shown.picture({"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT, "scale": SCALE})


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        picture = made(Path(place))
    PICTURE.write_bytes(picture)
    DIGESTS.write_text(digests(PAGE))
