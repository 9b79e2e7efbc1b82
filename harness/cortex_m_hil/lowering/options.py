"""The options of a lowering, with their defaults, as one checked value; works without torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from cortex_m_hil.errors import ConfigError, did_you_mean
from cortex_m_hil.errors.text import shown
from cortex_m_hil.targets.memory import Placed

Layout = Literal["channels_last", "explicit"]
Io = Literal["float", "int8"] | Mapping[str, Sequence[int]]
Inputs = tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class LoweringOptions:
    """The choices that decide a program besides its module, inputs and ISA class; ConfigError for an invalid one.

    The fields are arguments of `flow.lower`, which describes them.
    """

    calibration: Iterable[Sequence[Any]] | None = None
    quantize: bool = True
    layout: Layout = "channels_last"
    redzones: bool = False
    quantizer: Any = None
    io: Io = "float"
    banks: tuple[Placed, ...] = ()

    def __post_init__(self) -> None:
        for name in ("quantize", "redzones"):
            if not isinstance(getattr(self, name), bool):
                problem = f"{name}={shown(getattr(self, name))}: it takes True or False"
                raise ConfigError(problem, hint=f"{name}=True or {name}=False")
        layouts = get_args(Layout)
        if not isinstance(self.layout, str) or self.layout not in layouts:
            raise ConfigError(
                f"layout={shown(self.layout)}: there is no such layout", hint=did_you_mean(shown(self.layout), layouts)
            )
        if self.calibration is not None:
            object.__setattr__(self, "calibration", _samples(self.calibration))
            if not self.quantize:
                problem = "calibration with quantize=False: what is not quantised is not calibrated"
                raise ConfigError(problem, hint="leave one of them out")

        self._check_quantizer()
        self._check_io()

    @property
    def plan(self) -> tuple[bool, tuple[Placed, ...]]:
        """Return the options that affect only the memory plan: red zones, and several banks."""
        return self.redzones, self.banks if len(self.banks) > 1 else ()

    def _check_io(self) -> None:
        """Check which inputs and outputs are to be int8, and convert their numbers to tuples."""
        io = self.io
        if io in ("float", "int8"):
            return
        roles = ("inputs", "outputs")
        if not isinstance(io, Mapping) or not set(io) <= set(roles) or not all(map(_are_numbers, io.values())):
            hint = 'io="int8", or by numbers: io={"inputs": (0,), "outputs": (0,)}'
            raise ConfigError(f"io={shown(io)}: there is no such choice", hint=hint)
        object.__setattr__(self, "io", {role: tuple(sorted(set(io.get(role, ())))) for role in roles})

    def _check_quantizer(self) -> None:
        """Check the quantiser by its methods; importing torchao's base class would take a second."""
        if self.quantizer is None:
            return
        if isinstance(self.quantizer, type) or not all(
            hasattr(self.quantizer, one) for one in ("annotate", "validate")
        ):
            problem = f"quantizer={shown(self.quantizer)}: it takes a quantiser, as prepare_pt2e does"
            raise ConfigError(problem, hint="an object of it: quantizer=CortexMQuantizer()")
        if not self.quantize:
            raise ConfigError("quantizer with quantize=False: nothing is quantised", hint="leave one of them out")

    def samples(self, inputs: Inputs) -> tuple[Inputs, ...]:
        """Return the input tuples to calibrate with, for a module that is lowered with ``inputs``."""
        return (inputs,) if self.calibration is None else tuple(map(tuple, self.calibration))


def _are_numbers(values: Any) -> bool:
    return isinstance(values, tuple | list) and all(type(one) is int and one >= 0 for one in values)


DEFAULT: Final = LoweringOptions()


_SAMPLES: Final = "for modules with one input: calibration=[(x,) for x in …]"


def _samples(calibration: Any) -> tuple[Inputs, ...]:
    """Return the calibration samples as tuples; raise ConfigError for a sample that is no tuple of inputs.

    A tensor is refused, too: it is iterable, and its rows would be taken for inputs.
    """
    if not isinstance(calibration, Iterable):
        problem = f"calibration is an iterable of input tuples, not {type(calibration).__name__}"
        raise ConfigError(problem, hint=_SAMPLES)
    samples = []
    for number, sample in enumerate(calibration):
        if not isinstance(sample, (tuple, list)):
            raise ConfigError(
                f"calibration sample {number} is a {type(sample).__name__}, and has to be a tuple like the inputs",
                hint=_SAMPLES,
            )
        samples.append(tuple(sample))
    if not samples:
        raise ConfigError("calibration has no samples", hint="leave it out to calibrate with the inputs")
    return tuple(samples)
