"""Never make it worse: what fails while we look does not fail the program that is looked at."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable


class guarded:  # noqa: N801  it reads as a statement: ``with guarded("asking the scheduler") as failure:``
    """Run a block that may fail in any way, and go on behind it.

    An exception of the block ends the block and is kept in `problem`. ``KeyboardInterrupt``, ``SystemExit`` and
    the cancellation of a task pass.

    Args:
        doing: What the block does, for the debug log: ``"asking the scheduler"``.
        note: Called with the exception, e.g. to note a gap.
    """

    def __init__(self, doing: str, note: Callable[[Exception], object] | None = None) -> None:
        self.doing = doing
        #: What the block raised; None while it has not failed.
        self.problem: Exception | None = None
        self._note = note

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(problem, Exception):
            return False
        with suppress(Exception):  # a handler may fail, and the class of a foreign exception too
            _log_debug(self.doing, problem, trace)
        # Its frames would keep what they hold alive, in a circle with this object.
        self.problem = problem.with_traceback(None)
        if self._note is not None:
            self._note(problem)
        return True


def _log_debug(doing: str, problem: Exception, trace: TracebackType | None) -> None:
    """Log where a block failed, without the exception's own text: making it may run foreign code."""
    import logging  # slow to import, and rarely needed

    logger = logging.getLogger("workerdiag.guard")
    if logger.isEnabledFor(logging.DEBUG):
        import traceback

        where = "".join(traceback.format_tb(trace))
        logger.debug("Failed while %s: %s\n%s", doing, type(problem).__name__, where)
