"""Memory of what was lowered, by content.

A key covers everything the result is computed from: the exported program, constants and all, the inputs, the
options, torch's own state where arithmetic and tracing depend on it, and the files of the installed compiler. No key
looks at the module: what Python code computes is known from its export alone. What has no key is lowered anew.

**What a key cannot see:** code of torch, torchao or executorch that is replaced in memory (its files are watched).
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import os
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Generic, TypeVar

from cortex_m_hil.lowering.capability import executorch_api
from cortex_m_hil.lowering.content import NoContent, digest

# Of torch the version is enough; these are what people edit in place, and this package's own lowering.
_WATCHED: Final = ("executorch", "torchao", "cortex_m_hil.lowering")
_logger = logging.getLogger(__name__)


def key_of(*parts: object) -> str | None:
    """The key of what is computed from ``parts`` here and now; None where that has no content to compare."""
    try:
        return digest(parts, _ambient(), installed())
    except NoContent as error:
        _logger.debug("not remembered, for lack of a key: %s", error)
        return None


def _ambient() -> tuple[object, ...]:
    """State of torch that quantising and lowering a graph depend on. Raises NoContent under hooks and modes."""
    torch = executorch_api().torch
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


@functools.cache
def installed() -> str:
    """A digest of the compiler that is installed: torch's version, and the state of each file people edit or rebuild.

    Once a process, since what is imported does not change with its file.
    """
    version = executorch_api().torch.version
    entries = [entry for package in _WATCHED for entry in _files(package)]
    return digest(version.__version__, version.git_version, entries)


def _files(package: str) -> Iterator[tuple[str, int, int]]:
    """Path, size and time of change (nanoseconds) of a package's Python files and libraries, in the paths' order."""
    spec = importlib.util.find_spec(package)
    for place in (spec.submodule_search_locations or []) if spec is not None else []:
        for folder, folders, names in os.walk(place):
            folders.sort()
            for name in sorted(names):
                if name.endswith((".py", ".so")):
                    state = Path(folder, name).stat()
                    yield (os.path.join(folder, name), state.st_size, state.st_mtime_ns)


Item = TypeVar("Item")


class Lru(Generic[Item]):
    """The last ``capacity`` items used, by key. Not for use from several threads.

    ``hits``, ``misses`` and ``unkeyed`` count what was asked for since the last ``clear``: what was found, what was
    not, and what has no key.
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
        """Remembers the item, unless it has no key."""
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
