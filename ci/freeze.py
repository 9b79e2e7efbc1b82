"""Print constraints.txt for the running virtual environment.

    .venv/bin/python ci/freeze.py > constraints.new && mv constraints.new constraints.txt

Run it where exactly the project and its extras `dev`, `docs` and `upstream` are installed. A release that needs a newer
Python than the project's oldest gets a marker, so that older interpreters resolve it freely.
"""

from __future__ import annotations

import re
from importlib.metadata import Distribution, distributions

from packaging.specifiers import SpecifierSet
from packaging.version import Version

OWN = "executorch-cortex-m-hil"
UNPINNED = {OWN, "pip"}
SUPPORTED = ("3.10", "3.11", "3.12", "3.13")

HEADER = """\
# The versions this project is tested with; the lower bounds are in pyproject.toml.
# Written by ci/freeze.py. torch must stay pinned to one exact version without a local suffix.
"""


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pin(distribution: Distribution) -> str:
    """Return `name==version`, without a local suffix such as `+cpu`, with a marker where Python limits it."""
    metadata = distribution.metadata
    name = canonical(metadata["Name"])
    line = f"{name}=={Version(distribution.version).public}"
    needs = SpecifierSet(str(metadata.json.get("requires_python", "")))
    # The latest patch release: a bound such as >=3.11.2 does not exclude 3.11.
    fits = [minor for minor in SUPPORTED if f"{minor}.99" in needs]
    return line if fits == list(SUPPORTED) else f'{line} ; python_version >= "{fits[0]}"'


def main() -> None:
    found = {canonical(d.metadata["Name"]): d for d in distributions()}
    print(HEADER + "\n".join(pin(found[name]) for name in sorted(found) if name not in UNPINNED))


if __name__ == "__main__":
    main()
