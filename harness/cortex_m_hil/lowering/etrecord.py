"""Makes ExecuTorch's ETRecord of a lowered program: what its Inspector needs to name and check what ran on a target."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cortex_m_hil.errors import ConfigError, ToolchainError
from cortex_m_hil.host.compiler_state.state import compiler_state
from cortex_m_hil.lowering.installed_executorch import feature, isolated
from cortex_m_hil.lowering.reference import to_torch
from cortex_m_hil.program.tensor import HostTensor

_METHOD: Final = "forward"
_HINT: Final = "an ETDump alone: Inspector opens it without an ETRecord"


@dataclass(frozen=True, eq=False)
class RecordedProgram:
    """The parts of a lowering that an ETRecord is made from.

    Attributes:
        title: the name of the module.
        dialect: the `ExportedProgram` after the Cortex-M passes.
        nodes: the graph node of each instruction, as in `Program.nodes`.
        ancestors: the node of the exported module that each of them was made from; "" where it is unknown.
    """

    title: str
    dialect: Any
    nodes: tuple[str, ...]
    ancestors: tuple[str, ...]

    def etrecord(self, inputs: Sequence[HostTensor], exported: Any) -> bytes:
        """Return the bytes of an ETRecord, with these inputs as its representative inputs.

        Its edge program is the graph after the Cortex-M passes, with a debug handle for each instruction: Inspector's
        `calculate_numeric_gap` compares the tensors of the target with those of the Python Cortex-M operators, in
        quanta. ExecuTorch's own handles are those of the graph before the passes, whose tensors are floats; one of them
        may be that of several instructions, and of views that the memory plan removes.

        Args:
            inputs: the program's inputs.
            exported: the graph of the exported module, whose stack traces the nodes get.

        Raises:
            ConfigError: the nodes of the instructions are not known, as with `torch.cond`.
            ToolchainError: the installed ExecuTorch has no ETRecord, or cannot write its own graph.
        """
        with isolated(), compiler_state.own_work():
            record = feature("executorch.devtools.etrecord", "ETRecord")()
            record.edge_dialect_program = self.dialect
            record._debug_handle_map = {_METHOD: self._with_handles(exported)}
            record._delegate_map = {_METHOD: {}}
            record._instruction_id_to_num_outs_map = {_METHOD: {}}
            record.update_representative_inputs([to_torch(one) for one in inputs])
            file = io.BytesIO()
            try:
                record.save(file)
            except Exception as error:
                what = f"{self.title}: ExecuTorch cannot write its own graph: {type(error).__name__}: {error}"
                raise ToolchainError(what, hint=_HINT) from error
        return file.getvalue()

    def _with_handles(self, exported: Any) -> Mapping[int, int]:
        """Give each instruction's node a handle of its own and the user's stack trace, and other nodes no handle.

        Return the handles by instruction.
        """
        traces = {node.name: node.meta.get("stack_trace") for node in exported.nodes}
        places = {name.partition(" ")[0]: index for index, name in enumerate(self.nodes) if name}
        handles: dict[int, int] = {}
        for node in self.dialect.graph.nodes:
            node.meta.pop("debug_handle", None)
            if (index := places.get(node.name)) is not None:
                handles[index] = node.meta["debug_handle"] = index + 1
                if trace := traces.get(self.ancestors[index]):
                    node.meta["stack_trace"] = trace
        if not handles:
            raise ConfigError(f"{self.title}: its instructions have no known nodes in its graph", hint=_HINT)
        return handles
