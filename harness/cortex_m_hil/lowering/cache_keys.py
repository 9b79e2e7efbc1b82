"""A cache of lowerings in memory, and the keys of lowerings.

A key covers everything the result is computed from: the exported program with its constants, the inputs, the options,
torch's own state where arithmetic and tracing depend on it, and the files of the installed compiler. The module is not
part of a key, since its export has everything that it computes. A lowering without a key is never cached.

There is no key while the compiler is changed in memory (`compiler_state`).
"""

from __future__ import annotations

import logging
import platform
from collections import OrderedDict
from typing import Final, Generic, TypeVar

import numpy as np

from cortex_m_hil.host.compiler_state.state import compiler_state
from cortex_m_hil.lowering.compiler_files import files_digest
from cortex_m_hil.lowering.content_digest import NoContent, digest
from cortex_m_hil.lowering.installed_executorch import load_torch

# Packages whose files are part of keys: packages that people edit in place, and this package's own lowering. For torch
# the version is enough.
_WATCHED: Final = ("executorch", "torchao", "cortex_m_hil.lowering", "cortex_m_hil.program")
_logger = logging.getLogger(__name__)


def key_of(*parts: object) -> str | None:
    """Return the key of a result that is computed from ``parts``, or None if there is none (`key_or_reason`)."""
    return key_or_reason(*parts)[0]


def key_or_reason(*parts: object) -> tuple[str | None, str]:
    """Return the key as `key_of` does and "", or None and the reason why there is no key.

    There is no key where the compiler was changed in memory, or where ``parts`` have a value that cannot be digested.
    """
    if problem := compiler_state.problem():
        return None, problem
    return unchecked_key_or_reason(*parts)


def unchecked_key(*parts: object) -> str | None:
    """Return a key of ``parts`` without checking that the compiler in memory is unchanged.

    It is for callers that know that the compiler is unchanged, or that every process changes it in the same way.
    """
    return unchecked_key_or_reason(*parts)[0]


def unchecked_key_or_reason(*parts: object) -> tuple[str | None, str]:
    """Return the key as `unchecked_key` does and "", or None and the reason why there is no key."""
    try:
        return digest(parts, _ambient(), compiler_digest()), ""
    except NoContent as error:
        _logger.debug("not cached, for lack of a key: %s", error)
        return None, str(error)


def _ambient() -> tuple[object, ...]:
    """Return the state of torch that quantising and lowering depend on.

    Raise NoContent while hooks or modes are active.
    """
    torch = load_torch()
    if torch.nn.modules.module._has_any_global_hook():
        raise NoContent("hooks on all modules")
    if torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack():
        raise NoContent("a mode that overrides torch's functions (a default device is one)")
    return (
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
        torch.backends.mkldnn.enabled,
        torch.get_num_threads(),
    )


def compiler_digest() -> str:
    """Return a digest of the installed compiler.

    The digest covers versions, the kind of machine, and the contents of the files that people edit or rebuild.
    """
    torch = load_torch()
    machine = (platform.machine(), torch.backends.cpu.get_cpu_capability())
    versions = (platform.python_version(), np.__version__, torch.version.__version__, torch.version.git_version)
    return digest(machine, versions, files_digest(*_WATCHED))


Item = TypeVar("Item")


class Lru(Generic[Item]):
    """A cache of the last ``capacity`` items used, by key; not for use from several threads.

    Attributes:
        hits: requests since the last ``clear`` whose item was found.
        misses: requests since the last ``clear`` whose item was not found.
        unkeyed: requests since the last ``clear`` that have no key.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._items: OrderedDict[str, Item] = OrderedDict()
        self.hits = self.misses = self.unkeyed = 0

    def get(self, key: str | None) -> Item | None:
        if key is None:
            self.unkeyed += 1
            return None
        if key not in self._items:
            self.misses += 1
            return None
        self.hits += 1
        self._items.move_to_end(key)
        return self._items[key]

    def put(self, key: str | None, item: Item) -> None:
        """Remember the item, unless it has no key."""
        if key is None:
            return
        self._items[key] = item
        while len(self._items) > self.capacity:
            self._items.popitem(last=False)

    def clear(self) -> None:
        self._items.clear()
        self.hits = self.misses = self.unkeyed = 0

    def __len__(self) -> int:
        return len(self._items)
