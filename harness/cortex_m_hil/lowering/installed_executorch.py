"""Imports the installed ExecuTorch, and checks its features rather than its version number.

Every import of executorch and torchao goes through `feature()`, here or in a module that calls it. A program that is
found in the cache needs only `load_torch()`. Tested with executorch 1.4.1 (without explicit layout) and 1.5.1, each
with the extra ``ethos-u``.
"""

from __future__ import annotations

import functools
import inspect
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import Any, Final

from cortex_m_hil.errors import ToolchainError
from cortex_m_hil.host.compiler_state.state import compiler_state
from cortex_m_hil.host.garbage_collection import garbage_collection_paused
from cortex_m_hil.host.spans import span

INSTALL: Final = "pip install 'executorch[ethos-u]>=1.4.1'"
# Loggers whose level is set. Children are listed if they have a level of their own, so that their parent's does not
# apply.
_NOISY_LOGGERS: Final = (
    "torch.__trace",
    "executorch",
    "executorch.exir.pass_manager",
    "torch",
    "torch.utils._pytree",
    "torchao",
)
_RAISED_TOO: Final = ("torch._subclasses.fake_tensor",)


@dataclass(frozen=True)
class LoweringTools:
    """The functions and classes of executorch and torchao that lowering uses; untyped, as executorch ships no types."""

    torch: Any
    prepare_pt2e: Callable[..., Any]
    convert_pt2e: Callable[..., Any]
    to_edge: Callable[..., Any]
    backend_config: Callable[..., Any]
    quantizer: Callable[..., Any]
    pass_manager: Callable[..., Any]
    target_config: Any
    edge_compile_config: Callable[[], Any]
    explicit_layout: bool


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress warnings and warning-level log lines of torch, torchao and executorch, within the block only.

    Errors that torch both logs and raises are not logged either.
    """
    with mute(logging.ERROR), _at_log_level(logging.CRITICAL, _RAISED_TOO), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def isolated() -> Iterator[None]:
    """Run the block without the caller's torch modes and random state, and suppress warnings as `quiet` does.

    The caller's random generator is not advanced. In `torch.inference_mode` the block's tensors could not be used
    later, and `torch.autocast` would change dtypes.
    """
    torch = load_torch()
    with (
        quiet(),
        torch.random.fork_rng(devices=[]),
        torch.inference_mode(False),
        torch.autocast("cpu", enabled=False),
    ):
        yield


@contextmanager
def mute(below: int) -> Iterator[None]:
    """Suppress log lines of torch, torchao and executorch below a level, within the block only."""
    with _at_log_level(below, _NOISY_LOGGERS):
        yield


@contextmanager
def _at_log_level(level: int, names: Sequence[str]) -> Iterator[None]:
    before = [(logger, logger.level) for logger in map(logging.getLogger, names)]
    for logger, _ in before:
        logger.setLevel(level)
    try:
        yield
    finally:
        for logger, own in before:
            logger.setLevel(own)


@functools.cache
def load_torch() -> Any:
    """Import torch without ExecuTorch, and return it; raise ToolchainError where it is missing."""
    with span("start", "import of torch"), quiet():
        return feature("torch")


@functools.cache
def executorch_api() -> LoweringTools:
    """Import and check everything that lowering needs; raise ToolchainError that names what is missing."""
    importing = span("start", "import of ExecuTorch")
    with importing, quiet(), garbage_collection_paused(), compiler_state.own_work():
        torch = load_torch()
        # ExecuTorch's pass manager imports TOSA's serializer even for Cortex-M, so the extra `ethos-u` is needed.
        feature("tosa_serializer")
        cmsis_nn = feature("executorch.backends.cortex_m.library.cmsis_nn")
        require_sizes(cmsis_nn)
        exir = feature("executorch.exir")
        pt2e = feature("torchao.quantization.pt2e.quantize_pt2e")
        cortex_m = "executorch.backends.cortex_m"
        quantizer = feature(f"{cortex_m}.quantizer.quantizer", "CortexMQuantizer")
        pass_manager = feature(f"{cortex_m}.passes.cortex_m_pass_manager", "CortexMPassManager")
        return LoweringTools(
            torch=torch,
            prepare_pt2e=pt2e.prepare_pt2e,
            convert_pt2e=pt2e.convert_pt2e,
            to_edge=exir.to_edge,
            backend_config=exir.ExecutorchBackendConfig,
            quantizer=quantizer,
            pass_manager=pass_manager,
            target_config=feature(f"{cortex_m}.target_config", "CortexMTargetConfig"),
            edge_compile_config=_edge_compile_config(torch, exir),
            explicit_layout=all(
                "use_explicit_layout" in inspect.signature(item).parameters for item in (quantizer, pass_manager)
            ),
        )


def feature(module: str, attribute: str = "") -> Any:
    """Return a module, or one of its attributes; raise ToolchainError with an install command where it is missing."""
    try:
        found = import_module(module)
        return getattr(found, attribute) if attribute else found
    except (ImportError, AttributeError, OSError) as error:
        lacking = error.name if isinstance(error, ImportError) and error.name else module
        wanted = f"{module}.{attribute}" if attribute else module
        raise ToolchainError(
            f"lowering needs {wanted}, and {lacking} is missing or too old: {str(error).splitlines()[0]}",
            hint=INSTALL,
        ) from error


def lacking(what: str, since: str, details: Iterable[tuple[str, str]] = ()) -> ToolchainError:
    """Return the error for a feature that the installed ExecuTorch lacks; it names the release that has the feature."""
    hint = f"pip install 'executorch[ethos-u]>={since}'"
    return ToolchainError(f"executorch {version('executorch')} has no {what}", hint=hint, details=details)


def require_sizes(cmsis_nn: Any) -> None:
    """Raise ToolchainError unless CMSIS-NN's compiled size functions are there.

    The Python module can be imported without these functions.
    """
    try:
        cmsis_nn.resolve_backend(cmsis_nn.CortexM.M4)
    except (ImportError, AttributeError, TypeError) as error:
        raise ToolchainError(
            "this executorch was built without cmsis_nn's Python binding, which sizes scratch buffers",
            hint=f"{INSTALL}, or rebuild ExecuTorch with its install_executorch.sh",
        ) from error


def _edge_compile_config(torch: Any, exir: Any) -> Callable[[], Any]:
    """Return a function that makes ExecuTorch's edge configuration.

    For 1.4.1, which has no such function, its tests' values.
    """
    try:
        module = import_module("executorch.backends.cortex_m.edge_compile_config")
    except ImportError:
        aten = torch.ops.aten
        kept = [aten.linear, aten.hardsigmoid, aten.hardsigmoid_, aten.hardswish, aten.hardswish_, aten.silu]
        return lambda: exir.EdgeCompileConfig(
            preserve_ops=[operator.default for operator in kept], _check_ir_validity=False
        )
    factory: Callable[[], Any] = module.cortex_m_edge_compile_config
    return factory
