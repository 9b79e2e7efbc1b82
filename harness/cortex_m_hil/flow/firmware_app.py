"""The firmware's own path from sensor to decision, driven through its channels (docs/own-firmware.md)."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from cortex_m_hil.checks.input_checks import as_array
from cortex_m_hil.errors import (
    ChannelError,
    ConfigError,
    HarnessError,
    LaunchError,
    Mismatch,
    NotOffered,
    did_you_mean,
)
from cortex_m_hil.errors.text import align, counted, shown
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.flow.hang_diagnosis import explained_silence
from cortex_m_hil.flow.user_facing_errors import UsersCall
from cortex_m_hil.host import timeouts
from cortex_m_hil.host.api_calls import checked_call
from cortex_m_hil.host.numbers import in_range
from cortex_m_hil.program.tensor import Array
from cortex_m_hil.runner.links.protocol import (
    Action,
    Channel,
    ChannelState,
    Direction,
    Request,
    Stamp,
)
from cortex_m_hil.runner.session.session import ResponseTimeout, Session
from cortex_m_hil.targets.connection import Budget

KEPT_FRAMES: Final = 4096  # frames of an output that the host keeps until they are read, the newest
PAUSE: Final = 0.001  # seconds between two tries
ANSWER_GRACE: Final = 1.0  # seconds after a call's timeout; a firmware that has not answered by then hangs


@dataclass(frozen=True)
class ChannelFrame:
    """A frame that the firmware published; `lost` were lost between the one before it and this one."""

    stamp: Stamp
    data: bytes
    lost: int


@dataclass
class _Output:
    """An output that the host listens to.

    Attributes:
        channel: the channel.
        next: the number of the next frame that the firmware publishes, as far as the host knows.
        lost: frames that the firmware had no room for.
        gap: frames lost since the last one that was fetched; they become `lost` of the next one.
        frames: those that the test has not read yet.
    """

    channel: Channel
    next: int
    lost: int = 0
    gap: int = 0
    frames: deque[ChannelFrame] = field(default_factory=deque)

    def keep(self, frame: ChannelFrame) -> None:
        """Keep a frame for the test; of more than KEPT_FRAMES the oldest is lost."""
        self.frames.append(frame)
        if len(self.frames) > KEPT_FRAMES:
            dropped = self.frames.popleft()
            self.lost += 1
            self.frames[0] = replace(self.frames[0], lost=self.frames[0].lost + dropped.lost + 1)


@dataclass(frozen=True)
class Recording:
    """The outputs that the firmware made of a series of frames.

    Attributes:
        outputs: by the output's name, an array for each frame that was sent; None where none was published for it.
        latencies: likewise, ticks of the target's clock from the input to the output.
        tick_hz: the frequency of that clock; 0 where the firmware has none.
        lost: frames that the firmware published and had no room for, of all outputs.
        resent: requests that were sent again, as bytes were lost or damaged on the line.
        seconds: the duration by the host's clock.
    """

    outputs: Mapping[str, tuple[Array | None, ...]]
    latencies: Mapping[str, tuple[int | None, ...]]
    tick_hz: int
    lost: int
    resent: int
    seconds: float

    def table(self) -> str:
        """Return the latencies of each output as text: least, median, 95th percentile and most, in ticks."""
        rows = [["output", "frames", "missing", "min", "median", "p95", "max"]]
        for name, series in self.latencies.items():
            known = [one for one in series if one is not None]
            figures = [min(known), *np.percentile(known, [50, 95]), max(known)] if known else []
            cells = [f"{figure:.0f}" for figure in figures] or ["-"] * 4
            rows.append([name, str(len(known)), str(len(series) - len(known)), *cells])
        unit = f"ticks of {self.tick_hz} Hz" if self.tick_hz else "no clock"
        line = f"{unit}; {self.lost} lost in the firmware, {counted(self.resent, 'request')} sent again"
        return "\n".join([*align(rows), line])


class App:
    """The firmware's application, from its boot on: frames go in and come out by the channels that it marks.

    All calls raise ConfigError for what does not fit the firmware's channels, and ChannelError where the firmware does
    not take or publish a frame in time; `timeout` is in seconds of the simulator's CPU time, on a board by the clock.
    """

    def __init__(self, dut: Dut) -> None:
        """Open the application of a target that has just booted."""
        self.dut = dut
        self._boot: Session | None = None
        self._known: dict[str, Channel] = {}
        self._inputs: set[str] = set()  # inputs that this test sends to
        self._outputs: dict[str, _Output] = {}
        self._first_sent = 0  # the number of the first frame that was sent; 0: none
        self.longest_latency: int | None = None
        """The most ticks from an input to an output of all that was recorded, None if nothing was."""

    @property
    def channels(self) -> Mapping[str, int]:
        """Return the bytes of a frame of each channel that the firmware has passed so far, by name."""
        with self._user_call():
            self._learn_channels(self._session, ANSWER_GRACE)
        return {name: channel.nbytes for name, channel in self._known.items()}

    @property
    def lost(self) -> int:
        """Return the number of frames that the firmware published and had no room for, of all outputs."""
        return sum(output.lost for output in self._outputs.values())

    @property
    def log(self) -> str:
        """Return what the firmware printed, beside the frames too."""
        live = self.dut.live_session
        return live.log if live is not None else ""

    @checked_call("app.attach")
    def attach(self, channels: Sequence[str], *, timeout: float = timeouts.CHANNEL) -> None:
        """Take inputs over from the firmware's sensors: from now on it waits at each for what is sent.

        `send` does it for its own input. Where a test sends to several, it takes all of them over first.

        Args:
            channels: names in HIL_INPUT.
            timeout: how long the firmware may take until it waits at one of them.

        Raises:
            ConfigError, ChannelError, TargetHang, TargetFault, InfraError: as of `send`.
        """
        __tracebackhide__ = True
        with self._user_call(timeout):
            budget = self._budget(timeout)
            names = [channels] if isinstance(channels, str) else channels
            self._attach(
                [self._wait_for_channel(one, Direction.INPUT, budget, timeout) for one in names], budget, timeout
            )

    @checked_call("app.send")
    def send(self, channel: str, array: Any, *, timeout: float = timeouts.CHANNEL) -> None:
        """Give the firmware a frame, in place of what its sensor would give; return when it is on its way.

        The first call waits until the firmware has come to the input.

        Args:
            channel: the name in HIL_INPUT.
            array: of elements as large, and as many bytes, as the firmware has; nothing is converted.
            timeout: how long the firmware may take until it has room.

        Raises:
            ConfigError: there is no such input, or the array has another size.
            ChannelError: the firmware does not take the frame before this one in time, or does not come to the input.
            TargetHang, TargetFault: it stopped answering, or reported a fault.
            InfraError: target or link fail, or the target was reset.
        """
        __tracebackhide__ = True
        with self._user_call(timeout):
            self._send(channel, array, timeout)

    @checked_call("app.read")
    def read(
        self, channel: str, dtype: Any, *, shape: Sequence[int] = (-1,), timeout: float = timeouts.CHANNEL
    ) -> Array:
        """Return the next frame of an output.

        Once something was sent, frames that the firmware made before it are left out.

        Args:
            channel: the name in HIL_OUTPUT.
            dtype: of the elements, such as "int8", which are as large as the firmware's.
            shape: of the array; one dimension may be -1.
            timeout: how long the firmware may take.

        Raises:
            ConfigError: there is no such output, or the firmware's bytes are not of this dtype and shape.
            ChannelError: no frame came in time, or frames before it were lost in the firmware.
            TargetHang, TargetFault: it stopped answering, or reported a fault.
            InfraError: target or link fail, or the target was reset.
        """
        __tracebackhide__ = True
        with self._user_call(timeout):
            return self._read(channel, dtype, shape, timeout)

    @checked_call("app.record")
    def record(
        self, channel: str, frames: Sequence[Any], outputs: Mapping[str, Any], *, timeout: float = timeouts.CHANNEL
    ) -> Recording:
        """Send frames one after the other, and collect what the firmware makes of each.

        Args:
            channel: the name in HIL_INPUT.
            frames: an array for each frame, as `send` takes it.
            outputs: the dtype of each output to collect, by its name. What is published after a frame, and before the
                next one is taken, belongs to it; of several the last.
            timeout: how long the firmware may take for each frame.

        Raises:
            ConfigError, ChannelError, TargetHang, TargetFault, InfraError: as of `send`. What is missing is no error.
        """
        __tracebackhide__ = True
        with self._user_call(timeout):
            return self._record(channel, frames, outputs, timeout)

    @checked_call("app.compare")
    def compare(
        self,
        stages: Mapping[str, Any],
        *,
        atol: float | Mapping[str, float] = 0.0,
        timeout: float = timeouts.CHANNEL,
    ) -> None:
        """Compare the next frame of each stage with what is expected, and name the first stage that departs.

        Args:
            stages: the expected array of each output, by its name, in the order of the firmware's path. Dtype and size
                are those of the firmware's frame.
            atol: what an element may be off, or that for each stage by name.
            timeout: how long the firmware may take for each stage.

        Raises:
            Mismatch: a stage departs; the details have all stages.
            ConfigError, ChannelError, TargetHang, TargetFault, InfraError: as of `read`.
        """
        __tracebackhide__ = True
        if not stages:
            raise ConfigError("app.compare: no stages", hint='{"features": array, …}')
        expected = {name: as_array(value) for name, value in stages.items()}
        with self._user_call(timeout):
            tolerances = _tolerances(atol, expected)
            found = {name: self._read(name, array.dtype, array.shape, timeout) for name, array in expected.items()}
            _require_expected_stages(found, expected, tolerances)

    def close(self) -> None:
        """Let the firmware run on by itself."""
        session = self._boot
        if session is not None and not session.broken and self.dut.live_session is session:
            with self._user_call():
                for name in (*self._inputs, *self._outputs):
                    session.use_channel(self._known[name], Action.DETACH, ANSWER_GRACE)

    # --- inputs -----------------------------------------------------------------------------------

    def _send(self, name: str, array: Any, timeout: float) -> int:
        budget = self._budget(timeout)
        channel = self._wait_for_channel(name, Direction.INPUT, budget, timeout)
        data = _bytes_for(channel, array)
        if name not in self._inputs:
            self._attach([channel], budget, timeout)
        for is_last in _tries(budget):
            if self._session.await_work(budget):
                self._fetch_pending(timeout, self._use_channel(channel, Action.LOOK, timeout))
            number, state = self._give(channel, data, timeout)
            if state.done:
                self._first_sent = self._first_sent or number
                return number
            if is_last:
                break
        raise ChannelError(
            f"{channel.name} is flooded: the firmware has not taken the frame before this one in {timeout:g} s",
            hint="a longer timeout, or fewer frames: it comes to HIL_INPUT more slowly than they are sent",
        )

    def _give(self, channel: Channel, data: bytes, timeout: float) -> tuple[int, ChannelState]:
        """Offer a frame; where unfetched outputs keep the firmware from taking it, fetch them and offer it again."""
        session = self._session
        number, state = session.give_frame(channel, data, timeout + ANSWER_GRACE)
        if state.pending and not state.done:
            self._fetch_pending(timeout, state)
            number, state = session.give_frame(channel, data, timeout + ANSWER_GRACE)
        return number, state

    def _attach(self, channels: Sequence[Channel], budget: Budget, timeout: float) -> None:
        """Take inputs over: wait until the firmware waits at one of them, with nothing under way.

        What it publishes until then was made of the sensors' data.
        """
        for channel in channels:
            self._use_channel(channel, Action.ATTACH, timeout)
        for is_last in _tries(budget):
            states = [self._use_channel(channel, Action.LOOK, timeout) for channel in channels]
            self._fetch_pending(timeout, states[-1])
            if any(state.waiting for state in states):
                break
            if is_last:
                points = " or ".join(f"HIL_INPUT({channel.name})" for channel in channels)
                hint = "a longer timeout; what does it wait for between its channels?"
                raise ChannelError(f"the firmware does not come to {points} in {timeout:g} s", hint=hint)
        self._inputs.update(channel.name for channel in channels)
        self._fetch_until_empty(self._outputs.values(), timeout)
        if not self._first_sent:
            for output in self._outputs.values():
                output.lost = output.gap = 0
                output.frames.clear()

    # --- outputs ----------------------------------------------------------------------------------

    def _read(self, name: str, dtype: Any, shape: Sequence[int], timeout: float) -> Array:
        budget = self._budget(timeout)
        channel = self._wait_for_channel(name, Direction.OUTPUT, budget, timeout)
        form = _frame_type(channel, dtype, shape)
        output = self._outputs[name]
        for is_last in _tries(budget):
            self._session.await_work(budget)
            self._fetch_until_kept(output, timeout)
            if output.frames:
                break
            if output.gap and self._first_sent:
                gap, output.gap = output.gap, 0
                raise _frames_lost(channel, gap)
            if is_last:
                raise self._no_frame(output, timeout)
        frame = output.frames.popleft()
        if frame.lost and self._first_sent:
            raise _frames_lost(channel, frame.lost)
        return form.array(frame)

    def _fetch_until_kept(self, output: _Output, timeout: float) -> None:
        """Fetch frames of an output until one is for the test, or there is none."""
        while not output.frames and self._fetch(output, timeout).fetched is not None:
            pass

    def _no_frame(self, output: _Output, timeout: float) -> ChannelError:
        """Return the error for an output that did not come."""
        name = output.channel.name
        waits = [
            one for one in sorted(self._inputs) if self._use_channel(self._known[one], Action.LOOK, timeout).waiting
        ]
        where = f"; the firmware waits at HIL_INPUT({waits[0]})" if waits else ""
        hint = "send the next frame first" if waits else "a longer timeout; does the firmware come to this point?"
        return ChannelError(f"{name}: no frame in {timeout:g} s{where}", hint=hint)

    def _fetch_pending(self, timeout: float, state: ChannelState) -> None:
        """Fetch what the firmware has published, by the last known state, of all outputs: it keeps few frames."""
        for output in self._outputs.values():
            while state.pending and (state := self._fetch(output, timeout)).fetched is not None:
                pass

    def _fetch_until_empty(self, outputs: Iterable[_Output], timeout: float) -> None:
        """Fetch from outputs until there is nothing more, which tells what was lost as well."""
        for output in outputs:
            while self._fetch(output, timeout).fetched is not None:
                pass

    def _fetch(self, output: _Output, timeout: float) -> ChannelState:
        """Fetch the next frame of an output; `fetched` is None if there is none."""
        state = self._session.fetch_frame(output.channel, timeout + ANSWER_GRACE)
        stamp = state.fetched
        lost = _frames_between(state.total + 1 if stamp is None else stamp.number, output.next)
        output.lost += lost
        output.gap += lost
        if stamp is None:
            output.next += lost
            return state
        output.next = stamp.number + 1
        if stamp.input >= self._first_sent:
            output.keep(ChannelFrame(stamp, state.data, output.gap))
        output.gap = 0
        return state

    # --- a series ---------------------------------------------------------------------------------

    def _record(self, name: str, frames: Sequence[Any], outputs: Mapping[str, Any], timeout: float) -> Recording:
        began, session, budget = time.monotonic(), self._session, self._budget(timeout)
        channel = self._wait_for_channel(name, Direction.INPUT, budget, timeout)
        forms = {
            one: _frame_type(self._wait_for_channel(one, Direction.OUTPUT, budget, timeout), dtype, (-1,))
            for one, dtype in outputs.items()
        }
        if name not in self._inputs:
            self._attach([channel], budget, timeout)
        resent, lost, numbers = session.resent, self.lost, []
        found: dict[str, dict[int, ChannelFrame]] = {one: {} for one in outputs}
        for frame in frames:
            numbers.append(self._send(name, frame, timeout))
            self._collect(found)
        budget = self._budget(timeout)
        # Each output answers the last frame in the end, also where it lost others.
        while any(numbers[-1:] != [*found[one]][-1:] for one in outputs) and not budget.expired:
            session.await_work(budget)
            self._fetch_until_empty([self._outputs[one] for one in outputs], timeout)
            self._collect(found)
            time.sleep(PAUSE)
        self._fetch_until_empty(self._outputs.values(), timeout)
        self._collect(found)
        arrays = {
            one: tuple(forms[one].array(frame) if (frame := got.get(number)) else None for number in numbers)
            for one, got in found.items()
        }
        latencies = {
            one: tuple(frame.stamp.latency if (frame := got.get(number)) else None for number in numbers)
            for one, got in found.items()
        }
        known = [one for series in latencies.values() for one in series if one is not None]
        if session.identity.tick_hz and known:
            self.longest_latency = max([*known, self.longest_latency or 0])
        seconds = time.monotonic() - began
        hz = session.identity.tick_hz
        return Recording(arrays, latencies, hz, self.lost - lost, session.resent - resent, seconds)

    def _collect(self, found: dict[str, dict[int, ChannelFrame]]) -> None:
        for name, got in found.items():
            frames = self._outputs[name].frames
            while frames:
                frame = frames.popleft()
                got[frame.stamp.input] = frame

    # --- the session ------------------------------------------------------------------------------

    @property
    def _session(self) -> Session:
        """Return the session of the boot that this application began with."""
        if self._boot is None:
            self._boot = self.dut.session()
        if self._boot.broken or self.dut.live_session is not self._boot:
            what = "the firmware's session has ended since this application was opened"
            raise LaunchError(what, hint="open it again: app = hil_app(…)")
        return self._boot

    def _budget(self, timeout: float) -> Budget:
        return self._session.budget(timeout)

    def _use_channel(self, channel: Channel, action: Action, timeout: float) -> ChannelState:
        return self._session.use_channel(channel, action, timeout + ANSWER_GRACE)

    def _wait_for_channel(self, name: str, direction: Direction, budget: Budget, timeout: float) -> Channel:
        """Return a channel by its name; wait until the firmware has passed it."""
        for is_last in _tries(budget):
            if name not in self._known:
                self._learn_channels(self._session, timeout + ANSWER_GRACE)
            if name in self._known:
                break
            if is_last:
                said = ", ".join(self._known) or "none"
                hint = (
                    did_you_mean(name, self._known) if self._known else "HIL_INPUT, HIL_OUTPUT: hil docs own-firmware"
                )
                raise ConfigError(f"no channel {shown(name)} in {timeout:g} s; the firmware has {said}", hint=hint)
        channel = self._known[name]
        if channel.direction is not direction:
            use = "app.read gives its frames" if direction is Direction.INPUT else "app.send takes its frames"
            raise ConfigError(f"the channel {name} is an {channel.direction.name.lower()} of the firmware", hint=use)
        return channel

    def _learn_channels(self, session: Session, seconds: float) -> None:
        """Ask for the channels, and listen to each output."""
        if session.identity.without >> Request.CHANNEL & 1:
            what = f"the firmware {session.identity.firmware} was built without channels"
            raise NotOffered(what, hint="compile it and the target library with HIL_CHANNELS=1")
        for channel in session.channels(seconds):
            twin = self._known.setdefault(channel.name, channel)
            if twin != channel:
                what = f"the firmware has two channels {channel.name}"
                raise ConfigError(what, hint="another name for each HIL_INPUT and HIL_OUTPUT")
            if channel.direction is Direction.OUTPUT and channel.name not in self._outputs:
                state = session.use_channel(channel, Action.ATTACH, seconds)
                self._outputs[channel.name] = _Output(channel, state.total + 1)

    def _user_call(self, timeout: float = timeouts.CHANNEL) -> UsersCall:
        """Check what every call needs, and return what explains its errors."""
        __tracebackhide__ = True
        name = self.dut.target.name
        try:
            in_range(timeout, timeouts.SHORTEST_EXECUTION, timeouts.LONGEST_EXECUTION)
        except ValueError as error:
            raise ConfigError(f"timeout: {error}", target=name, hint="seconds: timeout=1.0") from None
        if self.dut.target.firmware is None:
            what = f"the runner of {name} has no channels: it is no firmware of your own"
            raise NotOffered(what, target=name, hint="a target with firmware: (hil docs own-firmware)")
        return UsersCall(name, lambda: self.log, self._explained)

    def _explained(self, error: HarnessError) -> HarnessError:
        if isinstance(error, ResponseTimeout):
            return explained_silence(self.dut, error, "the firmware does not answer any more")
        return error


def _tries(budget: Budget) -> Iterator[bool]:
    """Yield for each try whether it is the last: the budget was spent before it. PAUSE lies between two."""
    while True:
        yield budget.expired
        time.sleep(PAUSE)


def _frames_between(number: int, other: int) -> int:
    """Return how many frames of 32-bit numbers lie between two, 0 if `number` is not behind `other`."""
    distance = (number - other) & 0xFFFFFFFF
    return distance if distance < 1 << 31 else 0


def _frames_lost(channel: Channel, count: int) -> ChannelError:
    return ChannelError(
        f"{channel.name}: {counted(count, 'frame')} lost in the firmware, which had no room for more",
        hint="HIL_CHANNEL_DEPTH of the firmware's build is how many it keeps",
    )


def _bytes_for(channel: Channel, array: Any) -> bytes:
    """Return the bytes of an array, little-endian. Raises ConfigError if they are not a frame of the channel."""
    taken = as_array(array)
    _require_element(channel, taken.dtype)
    if taken.nbytes != channel.nbytes:
        raise ConfigError(
            f"{channel.name}: {shown(taken)} has {counted(taken.nbytes, 'byte')}, a frame of it has {channel.nbytes}",
            hint=f"HIL_INPUT({channel.name}, …, {channel.nbytes}) is what the firmware has",
        )
    return taken.astype(taken.dtype.newbyteorder("<"), copy=False).tobytes()


def _require_element(channel: Channel, dtype: np.dtype[Any]) -> None:
    """Raise ConfigError where the firmware's elements have another size than those of a dtype."""
    if channel.element not in (0, dtype.itemsize):
        sizes = f"{counted(dtype.itemsize, 'byte')}, those of the firmware {channel.element}"
        hint = f"its bytes, if that is what is meant: as uint{8 * channel.element}, by array.view"
        raise ConfigError(f"{channel.name}: elements of {dtype.name} have {sizes}", hint=hint)


@dataclass(frozen=True)
class _FrameType:
    """The type as which a frame's bytes are read."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def array(self, frame: ChannelFrame) -> Array:
        return np.frombuffer(frame.data, self.dtype).reshape(self.shape).copy()


def _frame_type(channel: Channel, dtype: Any, shape: Sequence[int]) -> _FrameType:
    """Return what a frame of a channel is read as. Raises ConfigError where its bytes do not fit."""
    try:
        wanted = np.dtype(dtype).newbyteorder("<")
    except TypeError:
        wanted = np.dtype(object)
    if dtype is None or wanted.kind not in "iuf":
        raise ConfigError(f"{channel.name}: {shown(dtype)} is no dtype of numbers", hint='dtype="int8"')
    _require_element(channel, wanted)
    try:
        shaped = np.empty(channel.nbytes, np.uint8).view(wanted).reshape(tuple(shape))
    except ValueError:
        form = f"{wanted.name}{list(shape)}" if tuple(shape) != (-1,) else f"elements of {wanted.name}"
        raise ConfigError(
            f"{channel.name}: a frame of it has {counted(channel.nbytes, 'byte')}, which are no {form}",
            hint=f"HIL_OUTPUT({channel.name}, …, {channel.nbytes}) is what the firmware has",
        ) from None
    return _FrameType(wanted, shaped.shape)


def _tolerances(atol: float | Mapping[str, float], stages: Mapping[str, Array]) -> Mapping[str, float]:
    """Return the tolerance of each stage. Raises ConfigError for one of no stage, or one that is no size."""
    given = dict(atol) if isinstance(atol, Mapping) else dict.fromkeys(stages, atol)
    for name, value in given.items():
        if name not in stages:
            raise ConfigError(f"atol: no stage {shown(name)}", hint=did_you_mean(name, stages))
        try:
            in_range(value, 0.0, sys.float_info.max)
        except ValueError as error:
            raise ConfigError(f"atol: {error}", hint="atol=0.5: what an element may differ by") from None
    return {name: given.get(name, 0.0) for name in stages}


def _require_expected_stages(
    found: Mapping[str, Array], expected: Mapping[str, Array], atol: Mapping[str, float]
) -> None:
    """Raise Mismatch for the first stage that departs from what is expected."""
    said = {name: _difference(found[name], expected[name], atol[name]) for name in expected}
    departed = [name for name, text in said.items() if text]
    if not departed:
        return
    names = list(expected)
    before = names[: names.index(departed[0])]
    where = f"between HIL_OUTPUT({before[-1]}) and" if before else "before"
    error = Mismatch(
        f"the stage {departed[0]} departs first: {said[departed[0]]}",
        details=[(name, text or "as expected") for name, text in said.items()],
        hint=f"what the firmware does {where} HIL_OUTPUT({departed[0]})",
    )
    error.stage = departed[0]
    raise error


def _difference(found: Array, expected: Array, atol: float) -> str:
    """Return how an array departs from the one that is expected, "" if it does not."""
    exact = expected.dtype.kind in "biu" and not atol
    same = found == expected if exact else np.isclose(found, expected, rtol=0, atol=atol, equal_nan=True)
    if bool(np.all(same)):
        return ""
    wrong = np.flatnonzero(~same)
    at = int(wrong[0])
    off = np.abs(found.astype(np.float64) - expected.astype(np.float64)).ravel()
    return (
        f"{len(wrong)} of {counted(expected.size, 'element')} wrong, the first at {at}: "
        f"{found.ravel()[at]}, expected {expected.ravel()[at]}; by {np.max(off[wrong]):g} at most"
    )
