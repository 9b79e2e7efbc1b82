"""Modules by name: MLPerf Tiny's four networks, which the executorch wheel ships, and a user's own modules."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from typing import Any, Final

from cortex_m_hil.errors import ConfigError, HarnessError, did_you_mean
from cortex_m_hil.errors.text import shown
from cortex_m_hil.lowering.installed_executorch import feature, load_torch, quiet
from cortex_m_hil.lowering.module_export import user_line
from cortex_m_hil.lowering.options import Inputs

_PACKAGE: Final = "executorch.examples.models.mlperf_tiny"
NETWORKS: Final = {
    "deep_autoencoder": "DeepAutoEncoderModel",
    "ds_cnn": "DSCNNKWSModel",
    "mobilenet_v1_025": "MobileNetV1025Model",
    "resnet8": "ResNet8Model",
}
"""Modules of ExecuTorch's examples, each with the name of its network's class."""


def network(name: str) -> tuple[Any, Inputs]:
    """Return one of NETWORKS with its example inputs; its weights depend on the state of torch's random generator."""
    model = feature(f"{_PACKAGE}.{name}", NETWORKS[name])()
    return model.get_eager_model(), model.get_example_inputs()


def check_name(name: str) -> None:
    """Raise ConfigError for a name that `load_named_module` does not know; import nothing."""
    module, _, function = name.partition(":")
    if name not in NETWORKS and not (module and function):
        raise ConfigError(f"no network {name!r}", hint=f"{did_you_mean(name, NETWORKS)}; or package.module:function")


def load_named_module(name: str) -> tuple[Any, Inputs]:
    """Load a module and its inputs: one of NETWORKS, or the result of the function in `package.module:function`.

    The weights are the same each time: torch's random generator is seeded with 0, and restored afterwards.
    """
    check_name(name)
    torch = load_torch()
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return network(name) if name in NETWORKS else _of_user(name)


def _made(name: str, module: str, function: str) -> Any:
    """Return the function's result; raise ConfigError where the function is missing, or fails, with the line."""
    there = False
    try:
        make = getattr(importlib.import_module(module), function)
        there = True
        return make()
    except HarnessError:
        raise
    except (Exception, SystemExit) as error:
        log = traceback.format_exc()
        absent = isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}.")
        if absent or (isinstance(error, AttributeError) and not there):
            raise ConfigError(f"{name}: {error}", hint="package.module:function, from the working folder") from error
        line = user_line(log)
        said = f"{type(error).__name__}: {error}"
        hint = f"call it yourself: python -c 'import {module}; {module}.{function}()'"
        raise ConfigError(f"{name}: {said}" + f", at {line}" * bool(line), hint=hint, log=log) from error


def _of_user(name: str) -> tuple[Any, Inputs]:
    module, _, function = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    made = _made(name, module, function)
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[1], (tuple, list))):
        parts = f" of {' and '.join(map(shown, made))}" if isinstance(made, tuple) else ""
        what = f"{name} returns a {type(made).__name__}{parts}"
        raise ConfigError(what, hint="return module, (input, …): the inputs are a tuple, even one")
    return made[0], tuple(made[1])
