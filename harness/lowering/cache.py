"""Memory of what was lowered, by content.

A key covers everything a module's export can read: weights and their strides and sharing, attributes, the identity
and the attributes of its classes, the code of its methods with the globals and closures they name. What
cannot be pickled has no key and is lowered anew: a miss costs seconds, a wrong hit costs trust.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import sys
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, Final, Generic, TypeVar

from harness.lowering.capability import tools

# Code that does not change under a running session: identity is content.
_INSTALLED: Final = frozenset(
    {"torch", "torchvision", "torchaudio", "torchao", "executorch", "numpy"} | set(sys.stdlib_module_names)
) - {"__main__", "test"}
_NOT_CONTENT: Final = frozenset({"__dict__", "__weakref__", "__doc__", "__module__", "_abc_impl"})


@dataclass(frozen=True)
class Key:
    """A digest, and the objects whose identity is part of it: kept alive so that no id is used twice."""

    digest: str
    alive: tuple[object, ...] = field(compare=False)


def key_of(*parts: object) -> Key | None:
    """The content key of ``parts``, None if something in there has no content that could be compared."""
    out = io.BytesIO()
    pickler = _ContentPickler(out)
    try:
        pickler.dump((str(tools().torch.get_default_dtype()), parts))
    except Exception:
        # Pickling runs code of the user's classes, which may raise anything; all of it means "no key".
        return None
    return Key(hashlib.sha256(out.getvalue()).hexdigest(), tuple(pickler.alive))


class _ContentPickler(pickle.Pickler):
    """Pickles contents; classes, functions and tensors, which pickle would name or store with addresses, by hand."""

    def __init__(self, out: io.BytesIO) -> None:
        super().__init__(out, protocol=5)
        self.alive: list[object] = []
        self.ordinals: dict[int, int] = {}

    def persistent_id(self, obj: Any) -> Any:
        """A description to pickle in the object's place, or None to pickle it as it is."""
        if isinstance(obj, ModuleType):
            return ("module", self._identity(obj))
        if isinstance(obj, type):
            return self._once("class", obj, self._class_parts)
        if isinstance(obj, FunctionType):
            return self._once("function", obj, self._function_parts)
        if isinstance(obj, BuiltinFunctionType) and isinstance(obj.__self__, (ModuleType, type(None))):
            return ("builtin", self._identity(obj))
        if isinstance(obj, CodeType):
            return ("code", obj.co_code, obj.co_names, obj.co_varnames, obj.co_freevars, obj.co_consts)
        if isinstance(obj, property):
            return ("property", obj.fget, obj.fset)
        if isinstance(obj, (staticmethod, classmethod)):
            return (type(obj).__name__, obj.__func__)
        torch = tools().torch
        if isinstance(obj, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
            return ("operator", self._identity(obj))
        if isinstance(obj, torch.Tensor):
            return self._tensor(obj)
        return None

    def _identity(self, obj: object) -> int:
        self.alive.append(obj)
        return id(obj)

    def _once(self, what: str, obj: Any, parts: Any) -> tuple[object, ...]:
        """Identity, and on the first meeting the contents: classes and functions refer to each other in circles."""
        if id(obj) in self.ordinals or _is_installed(obj):
            return (what, self._identity(obj))
        self.ordinals[id(obj)] = len(self.ordinals)
        return (what, self._identity(obj), parts(obj))

    def _class_parts(self, cls: type) -> object:
        return (cls.__bases__, sorted((name, item) for name, item in vars(cls).items() if name not in _NOT_CONTENT))

    def _function_parts(self, function: FunctionType) -> object:
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        names = sorted(set(_names(function.__code__)))
        named = [(name, function.__globals__[name]) for name in names if name in function.__globals__]
        modules = [item for _, item in named if isinstance(item, ModuleType) and not _is_installed(item)]
        read = [(name, vars(module)[name]) for module in modules for name in names if name in vars(module)]
        return (function.__code__, function.__defaults__, function.__kwdefaults__, cells, named, read)

    def _tensor(self, tensor: Any) -> tuple[object, ...]:
        torch = tools().torch
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
            raise pickle.PicklingError(f"the content of a {type(tensor).__name__} is not plain memory")
        storage = tensor.untyped_storage()
        shared = self.ordinals.setdefault(storage.data_ptr(), len(self.ordinals)) if storage.nbytes() else -1
        self.alive.append(storage)
        memory = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
        digest = hashlib.sha256(memory.cpu().numpy()).digest()
        layout = (tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), str(tensor.device))
        return ("tensor", type(tensor).__name__, str(tensor.dtype), layout, tensor.requires_grad, shared, digest)


def _is_installed(obj: Any) -> bool:
    name = obj.__name__ if isinstance(obj, ModuleType) else getattr(obj, "__module__", None) or ""
    return str(name).partition(".")[0] in _INSTALLED


def _names(code: CodeType) -> Iterator[str]:
    """Global and attribute names a function's code mentions, inner functions included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


Item = TypeVar("Item")


class Lru(Generic[Item]):
    """The last ``capacity`` items used, by key. Not for use from several threads."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._items: OrderedDict[str, tuple[Key, Item]] = OrderedDict()

    def get(self, key: Key) -> Item | None:
        entry = self._items.get(key.digest)
        if entry is None:
            return None
        self._items.move_to_end(key.digest)
        return entry[1]

    def put(self, key: Key, item: Item) -> None:
        self._items[key.digest] = (key, item)
        while len(self._items) > self.capacity:
            self._items.popitem(last=False)

    def clear(self) -> None:
        self._items.clear()

    def __len__(self) -> int:
        return len(self._items)
