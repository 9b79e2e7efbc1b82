"""What tests of boards share: processes that behave like boards, tools and other people's test runs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

Start = Callable[..., "subprocess.Popen[str]"]
