"""The runtimes `builtin` and `executorch`: their names, and the code that each executes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from cortex_m_hil.errors import ConfigError, did_you_mean

AUTO: Final = "auto"
"""The name that lets `targets.resolve` choose the runtime."""
# The code that a runtime executes, for headers: a result must never look like more than it is.
RUNTIMES: Final = {
    "builtin": "no ExecuTorch or CMSIS-NN code executed",
    "executorch": "ExecuTorch's runtime and kernels, CMSIS-NN",
}
_ON_HOST: Final = {"executorch": "the wheel's ExecuTorch, no Cortex-M operators or CMSIS-NN"}

ONE: Final = "builtin, executorch, or auto: executorch where one is installed that fits"
"""Help text for an option that takes one runtime."""
SEVERAL: Final = f"{ONE}; a comma list runs each test on each"
"""Help text for an option that takes one or several runtimes."""


def executes(runtime: str, cpu: str) -> str:
    """Return a description of the code that a runtime executes on a CPU, or on the host."""
    return (_ON_HOST if cpu == "host" else RUNTIMES).get(runtime, RUNTIMES[runtime])


def missing_on_the_other(runtime: str, operator: str) -> str:
    """Return that the other runtime than `runtime` does not have an operator, as text."""
    return f"{'ExecuTorch' if runtime == 'builtin' else 'builtin'} has no {operator}"


def check_runtime(name: str) -> None:
    """Raise ConfigError where there is no such runtime."""
    if name not in RUNTIMES:
        raise ConfigError(f"unknown runtime {name!r}", hint=did_you_mean(name, RUNTIMES))


def check_choice(name: str) -> None:
    """Raise ConfigError for a name that is neither a runtime nor `auto`."""
    if "," in name:
        hint = "one of them here; pytest and hil nightly take several"
        raise ConfigError(f"one runtime is taken here, and {name!r} is a list", hint=hint)
    if name not in (AUTO, *RUNTIMES):
        raise ConfigError(f"unknown runtime {name!r}", hint=did_you_mean(name, (AUTO, *RUNTIMES)))


def select_runtimes(given: Iterable[str]) -> list[str]:
    """Return the runtimes in a list of names and comma lists, each once and in order; they may include `auto`.

    Raises:
        ConfigError: there is no such runtime.
    """
    found = list(dict.fromkeys(part.strip() for text in given for part in text.split(",")))
    for name in found:
        check_choice(name)
    return found
