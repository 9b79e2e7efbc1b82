"""Finds the ExecuTorch that is named or installed for a target's CPU, and checks that it fits, without a build."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
from pathlib import Path
from typing import Any, Final

from cortex_m_hil.errors import ConfigError, ToolchainError
from cortex_m_hil.host import toolchain
from cortex_m_hil.host.paths import cache_directory
from cortex_m_hil.targets.connection import NOTES
from cortex_m_hil.targets.cpu import HOST
from cortex_m_hil.targets.elf_architecture import built_for
from cortex_m_hil.targets.target import ExecutorchInstall, Target

VARIABLE: Final = "HIL_EXECUTORCH_PREFIX"
"""The environment variable that names a prefix, and overrides all other settings.

If it is empty, no ExecuTorch is used.
"""
INSTALL: Final = "hil executorch install"
DOCS: Final = "hil docs runtimes says how one is built, and where to say where it is"
DESCRIPTION: Final = "hil.json"  # in a prefix that hil installed: its version, and the sources and options of its build
MENDED: Final = "mended"  # the field of that file with the known bugs that its CMSIS-NN does not have
VERSION_FILE: Final = "version.py"  # in the package of the executorch wheel
CORE: Final = "libexecutorch_core.a"
_REGISTRY: Final = "libcortex_m_ops_lib.a"
_OPERATORS: Final = Path("backends", "cortex_m", "ops", "operators.yaml")  # of the wheel: what its release has
# An ARMv6-M library runs on both, and ExecuTorch builds for the M0+.
STANDS_IN: Final = {"cortex-m0": "cortex-m0plus"}


# --- where ExecuTorch is ---------------------------------------------------------------------------------------------


def selected_link(cache: Path, cpu: str, counts: bool = False) -> Path:
    """Return the link to the prefix that `hil executorch install` selected for a CPU; `cpu` may be `{cpu}`."""
    return cache / "executorch" / (f"{cpu}-coverage" if counts else cpu)


def install_command(cpu: str, counts: bool = False) -> str:
    """Return the command that installs an ExecuTorch for a CPU."""
    return f"{INSTALL} --cpu {STANDS_IN.get(cpu, cpu)}{' --coverage' if counts else ''}"


def is_unwanted() -> bool:
    """Tell whether the user has switched ExecuTorch off by an empty environment variable."""
    return os.environ.get(VARIABLE) == ""


def find_install(target: Target, counts: bool = False, cache: Path | None = None) -> ExecutorchInstall | None:
    """Return the ExecuTorch that is named for a target or installed for its CPU; None where there is none.

    Args:
        target: the target.
        counts: whether the kernels have to count coverage.
        cache: the harness's cache folder; None: the user's.
    """
    named = os.environ.get(VARIABLE)
    if named is not None:
        return ExecutorchInstall(prefix=named, origin=VARIABLE) if named else None
    if target.executorch is not None:
        return target.executorch
    link = str(selected_link(cache or cache_directory(), "{cpu}", counts))
    ours = ExecutorchInstall(prefix=link, origin=INSTALL)
    return ours if os.path.lexists(directory_of(ours, target.cpu)) else None


def not_found(target: Target, counts: bool = False) -> ConfigError:
    """Return the error for a target that `find_install` found nothing for."""
    if is_unwanted():
        what = f"{VARIABLE} is empty, so no ExecuTorch is taken"
        return ConfigError(what, target=target.name, hint=f"unset {VARIABLE}, or name one")
    kind = "ExecuTorch that counts coverage" if counts else "ExecuTorch"
    return ConfigError(
        f"no {kind} is installed for {target.cpu}",
        target=target.name,
        hint=f"{install_command(target.cpu, counts)}; or runtimes: {{executorch: {{prefix: …/{{cpu}}}}}} in "
        f"targets.yaml, or {VARIABLE}; {DOCS}",
    )


def directory_of(install: ExecutorchInstall, cpu: str) -> Path:
    """Return the prefix with `{cpu}` replaced by the CPU, or by another CPU whose libraries run on it."""
    own, other = (Path(install.prefix.replace("{cpu}", name)) for name in (cpu, STANDS_IN.get(cpu, cpu)))
    return other if os.path.lexists(other) and not own.is_dir() else own


def is_for_other_cpus(install: ExecutorchInstall, cpu: str) -> bool:
    """Tell whether a prefix has folders by CPU, but none for this CPU."""
    return "{cpu}" in install.prefix and not os.path.lexists(directory_of(install, cpu))


# --- whether ExecuTorch fits the target
# -----------------------------------------------------------------------------------------


def check(install: ExecutorchInstall, target: Target, counts: bool = False) -> None:
    """Check that a prefix fits a target: its architecture, the schema of its programs, its operators.

    Args:
        install: the installation to check.
        target: the target.
        counts: whether its kernels have to count coverage.

    Raises:
        ConfigError: the installation does not fit the target, or its folder has none.
    """
    directory = directory_of(install, target.cpu)
    _check_content(directory, target, install.origin == INSTALL)
    _check_counting(directory, target, counts)
    _check_libraries(install, directory)


def _check_content(directory: Path, target: Target, is_ours: bool) -> None:
    def refuse(why: str, hint: str) -> ConfigError:
        return ConfigError(f"{directory}: {why}", target=target.name, hint=f"{hint}; {DOCS}")

    library = directory / "lib"
    if not (library / "cmake" / "ExecuTorch" / "executorch-config.cmake").is_file():
        build = "build with -DEXECUTORCH_BAREMETAL_SKIP_INSTALL=OFF, install"
        raise refuse("no ExecuTorch is installed there", install_command(target.cpu) if is_ours else build)
    if not (library / _REGISTRY).is_file():
        raise refuse(f"no {_REGISTRY}: it was built without the Cortex-M operators", "-DEXECUTORCH_BUILD_CORTEX_M=ON")
    built = architecture(library / CORE)
    if built != target.architecture:
        raise refuse(
            f"its libraries are for {built}, {target.config} needs {target.architecture}",
            f"build it with -DTARGET_CPU={target.cpu}",
        )
    identifier = _identifier()
    try:
        content = (library / CORE).read_bytes()
    except OSError as error:
        raise refuse(f"cannot read {CORE}: {error.strerror}", "make it readable, or build it again") from error
    if identifier not in content:
        raise refuse(
            f"it reads programs of another schema than {identifier.decode()}, which the installed executorch writes",
            "install the executorch package and the prefix from versions that share a schema",
        )


def _check_counting(directory: Path, target: Target, counts: bool) -> None:
    """Check that the libraries count coverage if, and only if, `counts` asks for it. Raises ConfigError."""
    if (directory / NOTES).is_dir() == counts:
        return
    raise ConfigError(
        f"{directory}: its kernels count {'no coverage' if counts else 'coverage, which only --hil-coverage reads'}",
        target=target.name,
        hint=f"{install_command(target.cpu, counts)}; what targets.yaml or {VARIABLE} names goes before that; {DOCS}",
    )


def _check_libraries(install: ExecutorchInstall, directory: Path) -> None:
    there = sorted(path.name[3:-2] for path in (directory / "lib").glob("lib*_ops_lib.a"))
    for name in install.libraries:
        if not (directory / "lib" / f"lib{name}.a").is_file():
            raise ConfigError(
                f"{install.origin}: {directory} has no lib{name}.a", hint=f"registries there: {', '.join(there)}"
            )


def check_release(install: ExecutorchInstall, target: Target) -> None:
    """Check that a prefix is of the release (`1.5` of 1.5.1) of the installed executorch, where both are known.

    Raises:
        ConfigError: the prefix is of another release.
    """
    directory = directory_of(install, target.cpu)
    wheel, prefix = _version_of_wheel(), _version_of_source(install.source) or installed_version(directory)
    if (ours := _release(wheel)) and (theirs := _release(prefix)) and ours != theirs:
        raise ConfigError(
            f"{directory}: it is ExecuTorch {prefix}, and the installed executorch is {wheel}",
            target=target.name,
            hint=f"{install_command(target.cpu)} builds the wheel's release; --runtime=executorch runs this one",
        )


def lacking_operators(target: Target, counts: bool = False) -> tuple[str, ...]:
    """Return the Cortex-M operators of the wheel's release that the ExecuTorch found for a target does not have.

    Its registry has the name of each that it has. None where no ExecuTorch is found, and for the host and the user's
    own firmware, whose ExecuTorch may have a selection.
    """
    install = find_install(target, counts)
    if install is None or target.cpu == HOST.name or target.firmware is not None:
        return ()
    try:
        content = (directory_of(install, target.cpu) / "lib" / _REGISTRY).read_bytes()
    except OSError:  # `check` tells it
        return ()
    return tuple(name for name in operators_of_wheel() if name.encode() + b"\0" not in content)


def mended_bugs(target: Target) -> frozenset[int]:
    """Return the known bugs that the ExecuTorch found for a target does not have; none where that is not known."""
    install = find_install(target)
    if install is None or target.cpu == HOST.name or target.firmware is not None:
        return frozenset()
    return frozenset(recorded_as_mended(directory_of(install, target.cpu)) or ())


def recorded_as_mended(directory: Path) -> list[int] | None:
    """Return the known bugs that a prefix that hil built does not have; None for any other, or if built before 0.2."""
    found = _description(directory).get(MENDED)
    return [one for one in found if isinstance(one, int)] if isinstance(found, list) else None


def lacking_operator(name: str) -> str:
    """Return what is wrong where an ExecuTorch lacks operators that the installed executorch lowers to."""
    return f"this ExecuTorch has no {name}, which executorch {_version_of_wheel()} lowers to"


def remedy(target: Target, counts: bool = False) -> str:
    """Return the next step where the ExecuTorch found for a target lacks operators of the wheel's release."""
    install = find_install(target, counts)
    named = "" if install is None or install.origin == INSTALL else f"; {install.origin} goes before that"
    return f"{install_command(target.cpu, counts)} builds the wheel's release{named}"


@functools.cache
def operators_of_wheel() -> tuple[str, ...]:
    """Return the Cortex-M operators of the installed executorch's release; none where it is not installed."""
    with contextlib.suppress(ToolchainError, OSError):
        text = (toolchain.executorch_package() / _OPERATORS).read_text(encoding="utf-8")
        return tuple(re.findall(r"^- func: ([\w:.]+)", text, re.MULTILINE))
    return ()


def _release(version: str) -> str:
    found = re.match(r"\d+\.\d+", version)
    return found[0] if found else ""


def _version_of_wheel() -> str:
    path = toolchain.executorch_package() / VERSION_FILE
    return next(iter(version_fields(path)), "") if path.is_file() else ""


def _version_of_source(source: Path | None) -> str:
    """Return the version of a checkout, without its commit; "" where the checkout has no version file."""
    path = source and source / "version.txt"
    return path.read_text().strip() if path is not None and path.is_file() else ""


def installed_version(directory: Path) -> str:
    """Return version and commit of a prefix that hil built, `1.5.0 cff6f4dd32e6`; "" for any other prefix."""
    return str(_description(directory).get("version", ""))


def _description(directory: Path) -> dict[str, Any]:
    """Return the description of a prefix that hil built; empty for any other prefix."""
    with contextlib.suppress(OSError, ValueError):
        found = json.loads((directory / DESCRIPTION).read_text())
        return found if isinstance(found, dict) else {}
    return {}


def version_fields(path: Path) -> list[str]:
    """Return the version and the commit in a wheel's `version.py`, as far as the file has them."""
    return re.findall(r"""^(?:__version__|git_version)\b[^=]*= ['"]([^'"]+)""", path.read_text(), re.MULTILINE)


def _identifier() -> bytes:
    """Return the file identifier with which a .pte of the installed executorch begins, such as `ET12`."""
    text = (toolchain.schema_directory() / "program.fbs").read_text()
    match = re.search(r'file_identifier\s+"(\w{4})"', text)
    if match is None:
        raise ConfigError("the installed executorch's program.fbs has no file_identifier", hint="reinstall executorch")
    return match[1].encode()


@functools.cache
def architecture(archive: Path) -> str:
    """Return the architecture that an archive was compiled for; cached, as archives do not change during a run."""
    return built_for(archive)
