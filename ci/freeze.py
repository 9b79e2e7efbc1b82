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
OLDEST = Version(SUPPORTED[0])

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
    lowest = max((Version(bound.version) for bound in needs if bound.operator == ">="), default=OLDEST)
    if lowest <= OLDEST:
        return line
    # Of a bound such as >=3.11.5 a marker with python_version would keep 3.11.2 from resolving anything.
    return f'{line} ; {"python_full_version" if lowest.micro else "python_version"} >= "{lowest}"'


def main() -> None:
    found = {canonical(d.metadata["Name"]): d for d in distributions()}
    print(HEADER + "\n".join(pin(found[name]) for name in sorted(found) if name not in UNPINNED))


if __name__ == "__main__":
    main()
