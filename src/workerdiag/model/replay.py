"""What a kit is of: the tasks that ran when workers died; and what their replay says of the memory they need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from workerdiag.values import field, frozen

#: Why a recipe lacks a task: it is data that somebody put there, its specification is too large, or there are too
#: many ancestors.
RecipeGapReason = Literal["no-recipe", "too-large", "too-many"]


@frozen(kw_only=True)
class RecipeGap:
    """A task, or an input of one, that a recipe has not got."""

    key: str
    reason: RecipeGapReason


@frozen(kw_only=True)
class KitDeath:
    """A worker that died, and the tasks that ran on it."""

    worker: str
    #: When, in seconds since the epoch.
    at: float
    #: Keys of the tasks; where it is not known which of them ran, those that probably did.
    tasks: tuple[str, ...] = ()
    is_known: bool = False


@frozen(kw_only=True)
class KitContent:
    """What a kit is of: the readable part of it."""

    #: The task that Dask gave up on, or else one that ran at the last death.
    killed: str = ""
    #: Oldest first.
    deaths: tuple[KitDeath, ...] = ()
    #: Of the workers that died; None: not known, or no limit.
    limit_bytes: int | None = None
    nthreads: int | None = None
    #: The share of the limit at which a nanny ends its worker.
    terminate_fraction: float | None = None
    #: What the worker had imported.
    modules: tuple[str, ...] = ()
    #: Versions of ``python`` and of packages, by name.
    versions: Mapping[str, str] = field(factory=dict, hash=False)
    gaps: tuple[RecipeGap, ...] = ()
    #: Keys of inputs whose data are in the kit.
    data: tuple[str, ...] = ()
    #: Why there is no recipe; empty if there is one.
    problem: str = ""

    @property
    def tasks(self) -> tuple[str, ...]:
        """All that ran, first the task that Dask gave up on, then those beside it, the last death first."""
        newest_first = self.deaths[::-1]
        deaths = sorted(newest_first, key=lambda each: self.killed not in each.tasks)
        return tuple(dict.fromkeys((self.killed, *(key for each in deaths for key in each.tasks))))


@frozen(kw_only=True)
class ThreadNeed:
    """The memory limit with which so many such tasks at a time would have lived."""

    threads: int
    memory_bytes: int


@frozen(kw_only=True)
class MeasuredNeed:
    """The memory that the work was measured to need, when its tasks were replayed."""

    task: str
    #: What that task and its inputs take besides what any worker has.
    task_bytes: int
    #: The limit that is needed with the threads of the workers that died, and with other numbers of threads.
    memory_bytes: int
    table: tuple[ThreadNeed, ...] = ()
