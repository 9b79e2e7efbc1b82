"""A digest of an exported program: exports with equal digests are lowered to equal programs.

Printed graphs are no key: contiguous and channels-last inputs print alike, and so do shared and separate parameters.
Only values of known types are digested: tensors, graphs, plain containers, and objects of classes of the installed
compiler, whose files `cache_keys.compiler_digest` watches. Anything else raises NoContent.
"""

from __future__ import annotations

import enum
import hashlib
import operator
import struct
import sys
from collections.abc import Mapping
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Final

from cortex_m_hil.lowering.installed_executorch import load_torch

_COMPILER: Final = frozenset({"torch", "torchao", "executorch"})
_INSTALLED: Final = _COMPILER | {"builtins", "collections", "_operator", "math"}
# Namespaces of operators that the installed compiler implements. Operators of other namespaces are the user's code.
_NAMESPACES: Final = frozenset({"aten", "prims", "quantized_decomposed", "torchao", "dim_order_ops", "cortex_m"})
# Metadata that is not digested: where a node comes from (source lines, ids of earlier graphs, a running count), and the
# quantiser's annotation, which refers to nodes of an earlier graph: after the conversion no stage reads it.
_ORIGIN: Final = frozenset({"stack_trace", "from_node", "seq_nr", "quantization_annotation"})


class NoContent(Exception):
    """An error: a value has no content that can be digested; the message names it."""


def digest(*parts: object) -> str:
    """Return the SHA-256 of the parts' contents; raise NoContent where a part has none."""
    encoder = _Encoder()
    encoder.add(parts)
    return encoder.hash.hexdigest()


class _Encoder:
    """An encoder that feeds values to a hash.

    Each value is fed with a tag and its length, so that different values never feed the same bytes.
    """

    def __init__(self) -> None:
        self.hash = hashlib.sha256()
        self._numbers: dict[object, int] = {}
        self._alive: list[object] = []  # keeps objects alive, so that no id is used twice

    def add(self, value: Any) -> None:
        torch = load_torch()
        kind = type(value)
        if value is None or kind in (bool, int, str):
            self._feed(kind.__name__, str(value).encode("utf-8", "surrogatepass"))
        elif kind in (float, complex):
            number = complex(value)
            self._feed(kind.__name__, struct.pack("<dd", number.real, number.imag))
        elif kind is bytes:
            self._feed("bytes", value)
        elif isinstance(value, torch.Tensor):
            self._tensor(value)
        elif isinstance(value, torch.SymInt):
            raise NoContent("a size that is not fixed")
        elif isinstance(value, torch.fx.Node):
            if value not in self._numbers:
                raise NoContent(f"node {value} of another graph, or of further on")
            self._feed("node", str(self._numbers[value]).encode())
        elif isinstance(value, torch.fx.GraphModule):
            self._graph_module(value)
        elif isinstance(value, torch.export.ExportedProgram):
            self._exported_program(value)
        elif isinstance(value, torch.utils._pytree.TreeSpec):
            self._tree(value)
        else:
            self._container_or_object(value)

    def _container_or_object(self, value: Any) -> None:
        if isinstance(value, (tuple, list)) and _is_plain(type(value)):
            self._feed(_name(type(value)), str(len(value)).encode())
            for item in value:
                self.add(item)
        elif isinstance(value, Mapping) and _is_plain(type(value)):
            self._feed(_name(type(value)), str(len(value)).encode())
            for item in value.items():
                self.add(item)
        elif isinstance(value, (set, frozenset)):
            self._feed("set", "".join(sorted(digest(item) for item in value)).encode())
        elif isinstance(value, slice):
            self._feed("slice", b"")
            self.add((value.start, value.stop, value.step))
        else:
            self._object(value)

    def _object(self, value: Any) -> None:
        torch = load_torch()
        if isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.qscheme)):
            self._feed(type(value).__name__, str(value).encode())
        elif isinstance(value, (torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch._ops.HigherOrderOperator)):
            self._operator(value)
        elif isinstance(value, (type, FunctionType, BuiltinFunctionType)):
            self._feed("named", _name(value).encode())
        elif isinstance(value, MethodType):
            self._feed("method", value.__name__.encode())
            self.add((value.__self__, value.__func__))
        elif isinstance(value, partial):
            self._feed("partial", b"")
            self.add((value.func, value.args, value.keywords))
        elif isinstance(value, enum.Enum) or hasattr(type(value), "__members__"):  # pybind11's enums have `__members__`
            self._feed(_name(type(value)), value.name.encode())
        else:
            self._instance(value)

    def _instance(self, value: Any) -> None:
        """Add an object whose class belongs to the installed compiler: the class and the attributes."""
        if type(value).__module__.partition(".")[0] not in _COMPILER or not hasattr(value, "__dict__"):
            raise NoContent(f"a {type(value).__module__}.{type(value).__qualname__}")
        self._feed("object", _name(type(value)).encode())
        if self._is_new(id(value)):
            self._alive.append(value)
            self.add(vars(value))

    def _operator(self, value: Any) -> None:
        torch = load_torch()
        namespace = value.namespace if isinstance(value, torch._ops.OpOverload) else str(value).partition(".")[0]
        higher = isinstance(value, torch._ops.HigherOrderOperator)
        if not (type(value).__module__.partition(".")[0] in _COMPILER if higher else namespace in _NAMESPACES):
            raise NoContent(f"operator {value}, which is not of the installed compiler")
        self._feed("operator", str(getattr(value, "_schema", value)).encode())

    def _tree(self, value: Any) -> None:
        try:
            self._feed("tree", load_torch().utils._pytree.treespec_dumps(value).encode())
        except (NotImplementedError, TypeError, ValueError) as error:
            raise NoContent(f"arguments or results of the structure {value}") from error

    def _tensor(self, tensor: Any) -> None:
        """Add a tensor: type, device, layout and memory.

        Each storage is numbered, which shows which tensors share memory.
        """
        torch = load_torch()
        fake = isinstance(tensor, torch._subclasses.FakeTensor)
        plain = type(tensor) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
        if not (fake or plain) or tensor.layout is not torch.strided or tensor.is_quantized:
            raise NoContent(f"a {type(tensor).__module__}.{type(tensor).__qualname__} of layout {tensor.layout}")
        flags = (tensor.requires_grad, tensor.is_conj(), tensor.is_neg(), isinstance(tensor, torch.nn.Parameter))
        self._feed("tensor", str(type(tensor)).encode())
        self.add((tensor.dtype, tensor.device, tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), *flags))
        storage = tensor.untyped_storage()
        if self._is_new(("storage", storage._cdata)) and not fake:
            self._alive.append(storage)
            memory = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
            self._feed("memory", memory.cpu().numpy().data)

    def _exported_program(self, program: Any) -> None:
        self._feed("program", b"")
        self.add((program.graph_module, program.graph_signature, program.module_call_graph, program.range_constraints))
        self.add((dict(program.state_dict), dict(program.constants), program.example_inputs))

    def _graph_module(self, module: Any) -> None:
        """Add a graph, and the parameters, constants, branches and loop bodies that it refers to by name."""
        torch = load_torch()
        self._feed("graph", str(module.training).encode())
        if not self._is_new(id(module)):
            return
        self._alive.append(module)
        codegen = module.graph._codegen
        self.add(getattr(codegen, "pytree_info", None) and tuple(codegen.pytree_info))
        for node in module.graph.nodes:
            self._numbers[node] = len(self._numbers)
            self.add((node.op, node.name, node.type, node.args, node.kwargs, _meta(node)))
            if node.op == "call_method":
                raise NoContent(f"the call of method {node.target}")
            if node.op == "call_module" and not isinstance(module.get_submodule(node.target), torch.fx.GraphModule):
                raise NoContent(f"module {node.target} within a graph")
            named = node.op in ("get_attr", "call_module")
            self.add((node.target, operator.attrgetter(node.target)(module)) if named else node.target)
        self.add((dict(module.named_parameters()), dict(module.named_buffers())))

    def _is_new(self, what: object) -> bool:
        """Tell whether an object occurs for the first time, and feed the object's number to the hash."""
        new = what not in self._numbers
        number = self._numbers.setdefault(what, len(self._numbers))
        self._feed("new" if new else "met", str(number).encode())
        return new

    def _feed(self, tag: str, data: bytes | memoryview) -> None:
        self.hash.update(f"{tag}:{len(data)}:".encode())
        self.hash.update(data)


def _meta(node: Any) -> dict[str, Any]:
    """Return the metadata of a node that passes may read; modules and functions in it are replaced by their names."""
    meta = {key: value for key, value in sorted(node.meta.items()) if key not in _ORIGIN}
    if "nn_module_stack" in meta:
        meta["nn_module_stack"] = list((meta["nn_module_stack"] or {}).values())
    if "source_fn_stack" in meta:
        sources = [(name, source, getattr(source, "__qualname__", source)) for name, source in meta["source_fn_stack"]]
        meta["source_fn_stack"] = [(name, getattr(at, "__module__", None), str(label)) for name, at, label in sources]
    return meta


def _is_plain(kind: type) -> bool:
    """Tell whether objects of a container class have no content but their items.

    This holds for Python's own containers, and for the compiler's (immutable lists, named tuples).
    """
    return kind.__module__.partition(".")[0] in _INSTALLED


def _name(value: Any) -> str:
    """Return the full name of an installed class or function, which identifies its code; raise NoContent for others."""
    module, qualified = getattr(value, "__module__", None) or "builtins", value.__qualname__
    try:
        found = operator.attrgetter(qualified)(sys.modules[module])
    except (KeyError, AttributeError):
        found = None
    if found is not value or module.partition(".")[0] not in _INSTALLED:
        raise NoContent(f"{module}.{qualified}, which is not of the installed compiler")
    return f"{module}.{qualified}"
