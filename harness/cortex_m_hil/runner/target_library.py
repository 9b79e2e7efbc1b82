"""Writes the target library with its runtimes and a sample into a folder, for the user's own firmware."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from cortex_m_hil.errors import ConfigError, ToolchainError
from cortex_m_hil.host import file_trees, toolchain
from cortex_m_hil.host.paths import package_data

SAMPLE: Final = "sample"  # the folder of a firmware that links the library
MAKEFILE: Final = "target_library/hil_target.mk"  # the file by which a folder of an earlier call is recognised
_PARTS: Final = ("target_library", "runtime")
_GENERATED: Final = "generated"  # the folder of the C++ that flatc generates from ExecuTorch's schema
# Files that only the runner needs: its lists of sources, kernels that misbehave on purpose.
_OF_RUNNER: Final = frozenset(
    {
        *(f"{folder}/CMakeLists.txt" for folder in ("target_library", "runtime/builtin", "runtime/executorch")),
        *(f"runtime/builtin/kernels/{name}.cpp" for name in ("testing", "testing_blocks", "cmsis_nn_scratch")),
        *("runtime/executorch/method_access_check.cpp", "runtime/schema.cmake"),
    }
)
_FLATC_TIMEOUT: Final = 60.0  # seconds


def write_target_library(folder: Path) -> None:
    """Write the library, the generated files of `builtin`, and a sample into a folder; earlier files are replaced.

    Raises:
        ConfigError: the folder has files that no earlier call wrote, or a file cannot be written.
        ToolchainError: flatc is missing, or the ExecuTorch whose schema it compiles.
    """
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MAKEFILE).is_file():
        raise ConfigError(f"{folder} has other files in it", hint="name an empty folder, or one that does not exist")
    try:
        for part in (*_PARTS, _GENERATED, SAMPLE):
            shutil.rmtree(folder / part, ignore_errors=True)
        _generate(folder / _GENERATED)
        firmware = package_data("firmware")
        for path in (path for part in _PARTS for path in file_trees.files(firmware / part)):
            name = path.relative_to(firmware).as_posix()
            if name not in _OF_RUNNER:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, folder / name)
        unbuilt = shutil.ignore_patterns("build", "__pycache__")
        shutil.copytree(package_data("examples/own_firmware"), folder / SAMPLE, ignore=unbuilt)
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {error.strerror}", hint="name another folder") from error


def _generate(folder: Path) -> None:
    """Generate C++ from ExecuTorch's schema, and copy FlatBuffers' headers next to it."""
    schema, flatbuffers = toolchain.schema_directory(), toolchain.flatbuffers()
    folder.mkdir(parents=True)
    files = [str(schema / name) for name in ("program.fbs", "scalar_type.fbs")]
    command = [str(flatbuffers.flatc.path), "--cpp", "-I", str(schema), "-o", str(folder), *files]
    said = toolchain.run_tool(command, _FLATC_TIMEOUT)
    if said.status != 0:
        raise ToolchainError(f"flatc fails: {said.err.strip() or said.out.strip()}", hint="hil doctor tries it")
    shutil.copytree(flatbuffers.include / "flatbuffers", folder / "flatbuffers")
