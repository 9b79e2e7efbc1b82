"""Download Arm's Corstone FVP from FVP_URL, check that its SHA-256 is FVP_SHA256, install it, and put it on PATH.

    python3 ci/install_fvp.py --accept-arms-licence

This script has never been run with Arm's archive. Its assumptions (the installer's name and options, models/Linux64_…)
are from ExecuTorch's backends/arm/scripts. The option means that the user accepts Arm's licence.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
import urllib.request
from pathlib import Path

from github_actions import append, fail

LIMIT = 2 << 30  # bytes of the archive at most
SECONDS = 300.0  # of silence during the download, and for the installer
MODEL = "FVP_Corstone_SSE-3*_Ethos-U*"


def download(url: str, wanted: str, file: Path) -> None:
    if not re.match(r"https?://", url) or not re.fullmatch(r"[0-9a-f]{64}", wanted):
        fail("HIL_FVP_URL is the address of Arm's archive, HIL_FVP_SHA256 its SHA-256 in lower case")
    digest, size = hashlib.sha256(), 0
    with urllib.request.urlopen(url, timeout=SECONDS) as answer, file.open("wb") as out:
        while data := answer.read(1 << 20):
            size += len(data)
            if size > LIMIT:
                fail(f"{url} has more than {LIMIT} bytes")
            digest.update(data)
            out.write(data)
    if digest.hexdigest() != wanted:
        fail(f"{url} has the SHA-256 {digest.hexdigest()}, and not {wanted}: is it another release?")


def install(archive: Path, folder: Path) -> Path:
    """Install the model from Arm's archive, and return the folder with its executable."""
    folder.mkdir()
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    scripts = sorted(folder.glob("FVP_Corstone_SSE-3*.sh"))
    if len(scripts) != 1:
        fail(f"the archive has {len(scripts)} installers FVP_Corstone_SSE-3*.sh, and not one")
    accepted = [
        "--i-agree-to-the-contained-eula",
        "--force",
        "--destination",
        str(folder),
        "--quiet",
        "--no-interactive",
    ]
    subprocess.run(
        ["sh", str(scripts[0]), *accepted], cwd=folder, stdin=subprocess.DEVNULL, timeout=SECONDS, check=True
    )
    models = sorted(folder.glob(f"models/Linux64*/{MODEL}"))
    if not models:
        fail(f"the installer left no models/Linux64…/{MODEL}")
    return models[0].parent


def main() -> None:
    if sys.argv[1:] != ["--accept-arms-licence"]:
        fail("Arm's licence is accepted by --accept-arms-licence, and by nothing else")
    temporary = Path(os.environ["RUNNER_TEMP"])
    archive = temporary / "fvp.tgz"
    try:
        download(os.environ["FVP_URL"], os.environ["FVP_SHA256"], archive)
        append("GITHUB_PATH", str(install(archive, temporary / "fvp")))
    except (OSError, tarfile.TarError, subprocess.SubprocessError) as error:
        fail(f"Arm's FVP of {os.environ['FVP_URL']} cannot be installed: {error}")


if __name__ == "__main__":
    main()
