"""Would these tests notice a broken kernel? Mutant after mutant, each built and judged by a worker process."""

from __future__ import annotations

import errno
import json
import os
import queue
import select
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from cortex_m_hil.campaigns import mutation_worker
from cortex_m_hil.campaigns.kernels import Kernels
from cortex_m_hil.campaigns.mutants import Mutant, drawn
from cortex_m_hil.campaigns.mutation_worker import JUDGED, Outcome, Settings
from cortex_m_hil.campaigns.store import Run
from cortex_m_hil.errors import ConfigError, LaunchError
from cortex_m_hil.host import subprocesses
from cortex_m_hil.host.deadline import Deadline

ANSWER_TIMEOUT: Final = 7200.0  # seconds: two builds at their limits, and programs that hang one after the other
INFRA_IN_A_ROW: Final = 4  # runs, after which something else is wrong
LOG_LINES: Final = 40


@dataclass(frozen=True)
class Plan:
    """What is asked.

    Attributes:
        tests: what pytest is given; none where it is ExecuTorch's suite alone.
        upstream: whether ExecuTorch's own suite is judged by as well.
        count: how many mutants are drawn, 0 for all.
        folders: of ExecuTorch's source, which are mutated; without, the builtin kernels are.
        redzones: whether memory plans have red zones.
        once: whether a mutant is judged on the first target only whose runner it changes.
        localize: whether the operator of each that is killed is looked for.
        kernels: a digest of the sources that the mutants are of.
        seconds: of each program on each target, without a mutant; empty until the tests have run.
        left_out: how many programs of each target do not end there as in their tests.
        operators: of the programs: mutants are drawn from what any of these reaches.
    """

    tests: tuple[str, ...]
    targets: tuple[str, ...]
    count: int
    seed: int
    kernels: str
    targets_file: str = ""
    folders: tuple[str, ...] = ()
    upstream: bool = False
    redzones: bool = False
    once: bool = False
    localize: bool = False
    seconds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    operators: tuple[str, ...] = ()

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Plan:
        """From what `asdict` made of one, and JSON of that."""
        names = "tests", "targets", "operators", "folders"
        return cls(**{**fields, **{name: tuple(fields.get(name, ())) for name in names}})

    def kernels_now(self) -> Kernels:
        """Those that its mutants are of, as they are now."""
        settings = self.settings(Path())
        return mutation_worker.kernels_of(self.folders, [settings.resolve(name) for name in self.targets])

    @property
    def asked(self) -> str:
        """What is run, as it is asked for on a command line."""
        return " ".join([*self.tests, *(["--upstream"] if self.upstream else [])])

    def as_fields(self) -> dict[str, Any]:
        return asdict(self)

    def asks_like(self, other: Plan) -> bool:
        """Whether they differ in nothing but what the tests' run told, and the seed."""
        names = "tests", "upstream", "targets", "count", "kernels", "targets_file", "folders", "redzones", "localize"
        return all(getattr(self, name) == getattr(other, name) for name in (*names, "once"))

    def mutants(self, kernels: Kernels) -> list[Mutant]:
        """Those that are drawn. ConfigError where these are not the kernels that it was begun with."""
        if kernels.digest != self.kernels:
            raise ConfigError(
                "the kernels have changed since it was begun", hint="begin anew: hil mutate TEST -t TARGET --reset"
            )
        return drawn(kernels.mutants_of(self.operators), self.count, self.seed)

    def settings(self, ready: Path) -> Settings:
        """`ready` has the kept programs."""
        return Settings(str(ready), self.targets, self.targets_file, self.localize, self.folders)


class Worker:
    """A process of `mutation_worker`; it ends with this one, and with all that it has started."""

    def __init__(self, settings: Settings, log: Path) -> None:
        self._log = log
        command = [sys.executable, "-m", mutation_worker.__name__, json.dumps(asdict(settings)), str(log)]
        self._child = subprocesses.start(command)
        self._lock = threading.Lock()
        self._told = b""

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Its answer. LaunchError where it ends without one; what its harness raised is one as well."""
        self._send(json.dumps(request).encode() + b"\n")
        answer: dict[str, Any] = json.loads(self._line(Deadline.after(ANSWER_TIMEOUT)))
        if problem := answer.get("error"):
            what = f"{problem['type']}: {problem['message']}"
            raise LaunchError(what, hint=problem["hint"], log=problem["log"])
        return answer

    def end(self) -> None:
        """Safe to call twice, and from another thread: a question under way then ends in LaunchError."""
        with self._lock:
            self._child.end()

    def _send(self, data: bytes) -> None:
        stdin = self._child.pipes[0].fileno()
        try:
            while data:
                select.select([], [stdin], [], ANSWER_TIMEOUT)
                data = data[os.write(stdin, data) :]
        except OSError as error:
            if error.errno != errno.EPIPE:
                raise
            raise self._ended() from None

    def _line(self, deadline: Deadline) -> bytes:
        stdout = self._child.pipes[1].fileno()
        while b"\n" not in self._told:
            ready, _, _ = select.select([stdout], [], [], deadline.remaining)
            chunk = os.read(stdout, 1 << 16) if ready else b""
            if not chunk:
                raise self._ended()
            self._told += chunk
        line, _, self._told = self._told.partition(b"\n")
        return line

    def _ended(self) -> LaunchError:
        self.end()
        said = (os.read(self._child.pipes[2].fileno(), 1 << 16) or b"").decode(errors="replace")
        said += self._log.read_text(errors="replace") if self._log.exists() else ""
        lines = said.strip().splitlines() or ["it said nothing"]
        return LaunchError(f"a worker of hil mutate has ended: {lines[-1]}", log="\n".join(lines[-LOG_LINES:]))


class Workers:
    """As many as are asked at a time, each begun when it is needed first. Use `with`."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        """`folder` has their logs."""
        self._settings, self._folder = settings, folder
        self._lock = threading.Lock()
        self._idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        self._all: list[Worker] = []
        self._ended = False

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Of all, and of what they are asked: that ends in LaunchError."""
        with self._lock:
            self._ended = True
        for worker in self._all:
            worker.end()

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """LaunchError where the worker, or the harness in it, ends without an answer."""
        worker = self._take()
        answer = worker.ask(request)
        self._idle.put(worker)
        return answer

    def unmutated(self, target: str) -> tuple[dict[str, float | None], list[str]]:
        """Seconds of each program without a mutant, None where it does not end as in its test; all operators."""
        answer = self.ask({"target": target})
        return answer["seconds"], answer["operators"]

    def _take(self) -> Worker:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            pass
        with self._lock:
            if self._ended:
                raise LaunchError("hil mutate is ending")
            self._all.append(Worker(self._settings, self._folder / f"worker-{len(self._all)}.log"))
            return self._all[-1]


class Mutation:
    """Carries out the runs of a plan, several at a time."""

    def __init__(self, plan: Plan, mutants: Sequence[Mutant], workers: Workers) -> None:
        self.plan, self._workers = plan, workers
        self.keys = tuple(f"{mutant.name} {target}" for mutant in mutants for target in plan.targets)
        self._in_vain = 0

    def next(self, runs: Sequence[Run], under_way: Collection[str] = ()) -> str | None:
        """LaunchError if run after run teaches nothing; the next call of `hil mutate` goes on."""
        if self._in_vain >= INFRA_IN_A_ROW:
            why = runs[-1].error
            raise LaunchError(f"nothing was learnt in {self._in_vain} runs: {why}", hint="mend that, and go on")
        busy = {_mutant(key) for key in under_way} if self.plan.once else set()
        left = (key for key in self.left(runs) if key not in under_way and _mutant(key) not in busy)
        return next(left, None)

    def left(self, runs: Sequence[Run]) -> list[str]:
        """Keys that are still to be run."""
        done = {one.key for one in runs}
        judged = {_mutant(one.key) for one in runs if Outcome(one.verdict) in JUDGED}
        over = judged if self.plan.once else set()
        return [key for key in self.keys if key not in done and _mutant(key) not in over]

    def carry_out(self, key: str) -> Run:
        name, _, target = key.rpartition(" ")
        request = {"target": target, "mutant": name, "seconds": self.plan.seconds[target]}
        run = Run(**{**self._workers.ask(request)["run"], "key": key})
        self._in_vain = self._in_vain + 1 if run.verdict == Outcome.INFRA.value else 0
        return run

    def stop(self) -> None:
        self._workers.end()


def _mutant(key: str) -> str:
    """Its name, without the target."""
    return key.rpartition(" ")[0]
