"""Calls of `App` and `Launched`: their errors name the target, and have no traceback into this package."""

from __future__ import annotations

from collections.abc import Callable

from cortex_m_hil.errors import HarnessError, VerdictError


class UsersCall:
    """A context manager of a call on a target that gives errors the target's name, its log, and no traceback.

    It is a class because contextlib would restore the traceback that is cut here.
    """

    def __init__(
        self,
        target: str,
        log: Callable[[], str],
        explain: Callable[[HarnessError], HarnessError] = lambda error: error,
    ) -> None:
        """Begin a call.

        Args:
            target: the name of the target.
            log: returns what the target has printed, for verdicts without a log.
            explain: returns the error to be raised in place of another.
        """
        self._target, self._log, self._explain = target, log, explain

    def __enter__(self) -> None:
        """Return nothing, for there is nothing to prepare."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        __tracebackhide__ = True  # pytest shows no frame that has it
        if isinstance(error, HarnessError):
            error = self._explain(error)
            error.target = error.target or self._target
            if isinstance(error, VerdictError):
                error.log = error.log or self._log()
            raise error.with_traceback(None) from error.__cause__
