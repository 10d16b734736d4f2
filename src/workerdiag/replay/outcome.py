"""What came of a replay: a verdict, the memory that the tasks held, and the limits that would have sufficed."""

from __future__ import annotations

from collections.abc import Iterator
from signal import Signals
from typing import Literal, assert_never

from workerdiag.model.replay import MeasuredNeed, ThreadNeed
from workerdiag.units import format_bytes
from workerdiag.values import frozen

#: Whether a task kills a worker by itself, only beside those that ran with it, or not at all.
ReplayVerdict = Literal["kills-alone", "only-in-company", "does-not-kill", "cannot-replay"]
#: How a task ended: it returned or raised, its process crashed or left by itself, was ended at the limit or at what
#: the machine could give, or the time was over.
ReplayEnd = Literal["returned", "raised", "crashed", "over-limit", "over-machine", "timed-out"]
#: Why nothing can be said.
ReplayObstacle = Literal[
    "incomplete",
    "another-python",
    "another-system",
    "inputs-failed",
    "task-raised",
    "machine-too-small",
    "timed-out",
]

_KEY_CHARS = 100


@frozen(kw_only=True)
class ReplayedTask:
    """One task, alone in a process."""

    key: str
    end: ReplayEnd
    #: What the process held before the task, with the inputs of the task; and what these take.
    base_bytes: int | None = None
    inputs_bytes: int = 0
    #: The most that it held; None if that was not measured.
    peak_bytes: int | None = None
    #: Of a process that crashed: its status, or a signal as a negative number.
    exit_code: int | None = None
    #: What it raised, or the last line that its process wrote on standard error.
    detail: str = ""

    @property
    def worker_bytes(self) -> int:
        """What the process held without the inputs, as any worker does."""
        return (self.base_bytes or 0) - self.inputs_bytes

    @property
    def own_bytes(self) -> int | None:
        """What the task and its inputs take besides that."""
        return None if self.peak_bytes is None else self.peak_bytes - self.worker_bytes


@frozen(kw_only=True)
class Replay:
    """What came of the tasks of a kit, each alone in a process that is watched as a nanny watches a worker."""

    verdict: ReplayVerdict
    #: The task that kills, which is not always the one that Dask gave up on; or the latter.
    task: str = ""
    #: Why nothing can be said; None with another verdict.
    obstacle: ReplayObstacle | None = None
    #: The same with its facts, for a person.
    detail: str = ""
    #: Those that were replayed, in that order.
    tasks: tuple[ReplayedTask, ...] = ()
    limit_bytes: int | None = None
    #: The most that the process of `task` held.
    peak_bytes: int | None = None
    #: The memory limit with which a worker with as many threads would have lived; None if that was not measured.
    needs_memory_bytes: int | None = None
    #: It is more than that, if this machine or the time did not suffice, or a task beside it could not be replayed.
    needs_more_than_bytes: int | None = None
    #: The limit for one thread, and for more up to those of the worker.
    table: tuple[ThreadNeed, ...] = ()

    @property
    def measured_need(self) -> MeasuredNeed | None:
        """What it says of the memory that is needed; None if the tasks fit the limit, or it is not known."""
        own = next((each.own_bytes for each in self.tasks if each.key == self.task), None)
        if self.verdict not in ("kills-alone", "only-in-company") or own is None or self.needs_memory_bytes is None:
            return None
        return MeasuredNeed(task=self.task, task_bytes=own, memory_bytes=self.needs_memory_bytes, table=self.table)

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def _lines(replay: Replay) -> Iterator[str]:
    yield f"{replay.verdict}: {_sentence(replay)}"
    if replay.peak_bytes is not None and replay.needs_memory_bytes is not None:
        yield f"Peak: {format_bytes(replay.peak_bytes)} in a process of its own"
    if replay.needs_memory_bytes is not None:
        yield f"Needs: a memory limit of {format_bytes(replay.needs_memory_bytes)} for each worker"
    elif replay.needs_more_than_bytes is not None:
        yield f"Needs: a memory limit of more than {format_bytes(replay.needs_more_than_bytes)} for each worker"
    if len(replay.table) > 1:
        for each in replay.table:
            yield f"  {each.threads} thread{'' if each.threads == 1 else 's'}: {format_bytes(each.memory_bytes)}"


def _sentence(replay: Replay) -> str:
    limit = f"a limit of {format_bytes(replay.limit_bytes)}" if replay.limit_bytes else "no limit"
    task = replay.task if len(replay.task) <= _KEY_CHARS else f"{replay.task[: _KEY_CHARS - 1]}…"
    match replay.verdict:
        case "kills-alone":
            return f"task {task} {_how(replay)}"
        case "only-in-company":
            return f"task {task} lives alone under {limit}, and not beside the tasks that ran with it"
        case "does-not-kill":
            return f"task {task} lives under {limit}, also beside the tasks that ran with it"
        case "cannot-replay":
            return replay.detail
        case _:
            assert_never(replay.verdict)


def _how(replay: Replay) -> str:
    ended = next((each for each in replay.tasks if each.key == replay.task), None)
    code = ended.exit_code if ended is not None else None
    if ended is None or ended.end != "crashed" or code is None:
        return f"alone passes the limit of {format_bytes(replay.limit_bytes or 0)}"
    if code >= 0:
        return f"alone ends its process with exit status {code}"
    name = Signals(-code).name if -code in set(Signals) else "not known"
    return f"alone ends its process by signal {-code} ({name})"
