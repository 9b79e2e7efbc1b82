"""Programs with int8 inputs and outputs, made by ExecuTorch's QuantizeInputs and QuantizeOutputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cortex_m_hil.errors import ConfigError, LoweringError
from cortex_m_hil.lowering.installed_executorch import feature
from cortex_m_hil.lowering.options import Io
from cortex_m_hil.program.dataflow import Quantization
from cortex_m_hil.program.io_quantization import KEYS, input_quantization
from cortex_m_hil.program.program import References
from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.tensor import HostTensor

if TYPE_CHECKING:
    from cortex_m_hil.lowering.reference import RememberedReferences

_PASSES: Final = "executorch.exir.passes.quantize_io_pass"


def with_quantised_io(edge: Any, io: Io, title: str) -> Any:
    """Return an edge program without the quantize of its inputs and the dequantize of its outputs.

    Scale, zero point, range and dtype of each become constant methods.

    Args:
        edge: the result of ExecuTorch's `to_edge`.
        io: which inputs and outputs are int8, as in `LoweringOptions`.
        title: the module's name, for messages.

    Raises:
        LoweringError: an input is not quantised first, or an output is not dequantised last.
        ConfigError: a chosen input or output does not exist, or is not of floats.
    """
    if io == "float":
        return edge
    program = edge.exported_program()
    places = _user_outputs(program)
    outputs = [program.graph.output_node().args[0][place] for place in places]
    chosen = {}
    for role, nodes in (("inputs", _inputs(program)), ("outputs", outputs)):
        chosen[role] = _chosen(io, role, nodes, title)
        for number in chosen[role]:
            if told := _obstacle(nodes[number], role):
                what = f"{title}: io: {role[:-1]} {number} is not {'' if role == 'inputs' else 'de'}quantised: {told}"
                raise LoweringError(what, hint='io={"inputs": (0,), "outputs": ()} names those that are to be int8')
    taken, given = feature(_PASSES, "QuantizeInputs"), feature(_PASSES, "QuantizeOutputs")
    numbers = [places[number] for number in chosen["outputs"]]
    made = edge.transform([taken(edge, chosen["inputs"]), given(edge, numbers)])
    _number_constants(made, dict(zip(numbers, chosen["outputs"], strict=True)))
    return made


def _inputs(program: Any) -> list[Any]:
    """Return the node of each input of the module that is a tensor."""
    named = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    return [named.get(name) if isinstance(name, str) else None for name in program.graph_signature.user_inputs]


def _user_outputs(program: Any) -> list[int]:
    """Return the position of each output of the module among the graph's results, which begin with the states."""
    signature = program.graph_signature
    kind = type(signature.output_specs[0].kind).USER_OUTPUT if signature.output_specs else None
    return [place for place, one in enumerate(signature.output_specs) if one.kind is kind]


def _number_constants(edge: Any, numbers: Mapping[int, int]) -> None:
    """Rename the constants with the outputs' scales and zero points: their names get the module's output numbers.

    ExecuTorch's pass names them by the position among the graph's results, which begin with the states.

    Args:
        edge: the program, whose constants are renamed.
        numbers: the module's output number by that position, in ascending order.
    """
    held = edge._config_methods or {}
    for place, number in numbers.items():
        for key in KEYS:
            held[f"output{number}_{key}"] = held.pop(f"output{place}_{key}")


def _chosen(io: Io, role: str, nodes: Sequence[Any], title: str) -> list[int]:
    """Return the numbers of the inputs or outputs that are to be int8: the chosen ones, or all that are floats."""
    floats = [number for number, node in enumerate(nodes) if _is_float(node)]
    if not isinstance(io, Mapping):
        return floats
    for number in io.get(role, ()):
        if number not in floats:
            what = f"{title}: io: {role[:-1]} {number} is no tensor of floats; {len(nodes)} {role}"
            raise ConfigError(what, hint=f"of floats are: {', '.join(map(str, floats)) or 'none'}")
    return [*io.get(role, ())]


def _is_float(node: Any) -> bool:
    value: Any = getattr(node, "meta", {}).get("val")
    return hasattr(value, "is_floating_point") and bool(value.is_floating_point())


def _obstacle(node: Any, role: str) -> str:
    """Return why a float input or output has no quantize or dequantize operator of its own; "" where it has one."""
    if role == "outputs":
        name = str(getattr(node, "target", ""))
        return "" if "dequantize_per_tensor" in name else f"{name} gives it"
    readers = [str(user.target) for user in node.users]
    if len(readers) == 1 and "quantize_per_tensor" in readers[0] and "dequantize" not in readers[0]:
        return ""
    return f"{' and '.join(readers) or 'nothing'} {'reads' if len(readers) < 2 else 'read'} it"


def quantised_inputs(given: Sequence[HostTensor], file: PteFile) -> dict[int, Quantization]:
    """Return quantisations by input number, for inputs that are floats of the module and integers of the program.

    `given` are the module's inputs.
    """
    floats = (number for number, one in enumerate(given) if one.spec.dtype == "float32")
    return {number: by for number in floats if (by := input_quantization(file, number)) is not None}


@dataclass(frozen=True, eq=False)
class FloatReferences:
    """The references of a program for quantised inputs; the float module gets the floats before quantisation.

    So the SQNR includes the error of quantising the inputs. For any other inputs the float module gets the numbers that
    the integers represent.

    Attributes:
        references: the references of the program.
        inputs: the program's quantised inputs.
        floats: the module's inputs from which `inputs` were quantised.
    """

    references: RememberedReferences
    inputs: tuple[HostTensor, ...]
    floats: tuple[HostTensor, ...]

    def __call__(self, inputs: tuple[HostTensor, ...]) -> References:
        """Return references for the program's inputs."""
        return self.references(inputs, self.floats if inputs == self.inputs else None)
