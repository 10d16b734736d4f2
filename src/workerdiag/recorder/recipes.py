"""The recipes of what workers ran as they died: the specifications of the tasks, and of all that they take.

Dask forgets a graph once its client has the error. Here its specifications are kept by reference, bounded in number
and size. They are pickled when somebody asks, in a thread.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from workerdiag.deadline import monotonic_s, start_thread
from workerdiag.errors import describe_error
from workerdiag.guard import guarded
from workerdiag.model.process_end import RECENT_S
from workerdiag.model.replay import RecipeGap, RecipeGapReason
from workerdiag.recorder import internals
from workerdiag.recorder.large_objects import estimated_bytes
from workerdiag.values import field, frozen
from workerdiag.wire.messages import encode_message
from workerdiag.wire.recorded_death import RecipeAnswer, RecipeDeath

if TYPE_CHECKING:
    from workerdiag.model.dask import Reply, Scheduler, TaskState, WorkerState

#: Name of the scheduler's handler that returns recipes.
HANDLER: Final = "workerdiag_recipe"
#: Deaths, tasks of one death, and specifications for these and all their ancestors.
MAX_DEATHS, MAX_TASKS, MAX_SPECS = 8, 20, 2000
#: What the data inside all specifications may take, as estimated.
MAX_BYTES = 16 * 2**20
#: Following a graph takes so many seconds of the event loop at a time; tasks between two looks at the clock.
_SLICE_S, _LOOK_EVERY = 0.0005, 32
#: Assigned tasks among which those that ran are looked for, and gaps that are told.
_MAX_CHOSEN_FROM, _MAX_GAPS = 500, 50

#: A specification with the keys of the tasks whose results it takes.
_Step = tuple[object, tuple[object, ...]]


@frozen(kw_only=True, eq=False)
class Recipe:
    """How to compute again what one worker had been given when it died."""

    worker: str
    at: float
    #: Keys of the tasks; first those that ran at the last heartbeat, then in the order in which a worker runs them.
    tasks: tuple[object, ...]
    #: By key, of the tasks and of their ancestors, the nearest first.
    steps: dict[object, _Step] = field(factory=dict)
    #: Bytes of the data inside each specification, once that was estimated.
    sizes: dict[object, int] = field(factory=dict)
    gaps: dict[object, RecipeGapReason] = field(factory=dict)


class Recipes:
    """The recipes of the last deaths."""

    def __init__(self) -> None:
        self._recipes: deque[Recipe] = deque(maxlen=MAX_DEATHS)

    @property
    def size_bytes(self) -> int:
        """What the data inside all specifications take, those of several deaths once."""
        sizes = {key: size for each in list(self._recipes) for key, size in list(each.sizes.items())}
        return sum(sizes.values())

    def keep(self, scheduler: Scheduler, state: WorkerState, event: Reply) -> None:
        """Keep the recipe of a worker that is being removed; *event* is as for `removal_record`."""
        tasks = _tasks_that_ran(scheduler, state, event)
        if tasks:
            recipe = Recipe(worker=state.address, at=time.time(), tasks=tuple(task.key for task in tasks))
            self._recipes.append(recipe)
            self._continue(recipe, walk(recipe, tasks))

    def _continue(self, recipe: Recipe, steps: Iterator[None]) -> None:
        """Follow the graph for a while, and later on if there is more of it; at its end look at the sizes."""
        until = monotonic_s() + _SLICE_S
        for _ in steps:
            if monotonic_s() > until:
                asyncio.get_running_loop().call_soon(self._continue, recipe, steps)
                return
        try:
            start_thread("workerdiag-recipes", partial(self._limit, recipe))
        except RuntimeError:  # of unknown size, it cannot stay
            with suppress(ValueError):  # it is gone by now
                self._recipes.remove(recipe)

    async def answer(
        self, about: Collection[str] = (), tasks: Collection[str] = (), most_bytes: int = MAX_BYTES
    ) -> dict[str, object]:
        """A `RecipeAnswer` as plain data, and under ``recipe`` the pickled steps by key, if they are small enough.

        It is about these workers, by address, or those of these tasks, which Dask gave up on, or the last death.
        """
        chosen = self._chosen(set(about), set(map(str, tasks)))
        return await asyncio.to_thread(_answer, chosen, min(int(most_bytes), 2 * MAX_BYTES))

    def _chosen(self, about: Collection[str], tasks: Collection[str]) -> list[Recipe]:
        since = time.time() - RECENT_S
        chosen = [
            each
            for each in self._recipes
            if each.worker in about or (each.at >= since and any(str(key) in tasks for key in each.tasks))
        ]
        return chosen or [each for each in islice(reversed(self._recipes), 1) if each.at >= since]

    def _limit(self, newest: Recipe) -> None:
        """Leave out the largest specifications of the newest, then the oldest recipes, until there is room."""
        known: dict[int, int] = {}
        for each in list(self._recipes):
            known.update({id(each.steps[key][0]): size for key, size in list(each.sizes.items())})
        sizes = {
            key: known[id(spec)] if id(spec) in known else _spec_bytes(spec)
            for key, (spec, _) in newest.steps.items()
        }
        total = sum(sizes.values())
        for key in sorted(sizes, key=sizes.__getitem__, reverse=True):
            if total <= MAX_BYTES:
                break
            total -= sizes.pop(key)
            del newest.steps[key]
            newest.gaps[key] = "too-large"
        newest.sizes.update(sizes)
        while len(self._recipes) > 1 and self.size_bytes > MAX_BYTES:
            self._recipes.popleft()


def _tasks_that_ran(scheduler: Scheduler, state: WorkerState, event: Reply) -> list[TaskState]:
    keys = islice(event.get("processing-tasks") or (), _MAX_CHOSEN_FROM)
    running = {task.key for task in state.executing}
    assigned = list(filter(None, map(scheduler.tasks.get, keys)))
    assigned.sort(key=lambda task: (task.key not in running, -task.suspicious, task.priority or ()))
    return assigned[:MAX_TASKS]


def walk(recipe: Recipe, tasks: Collection[TaskState]) -> Iterator[None]:
    """Follow the graph from some tasks to all their ancestors, the nearest first, a few tasks at a time."""
    ahead, seen = deque(tasks), set(recipe.tasks)
    while ahead and len(recipe.gaps) <= _MAX_GAPS:
        for task in [ahead.popleft() for _ in range(min(len(ahead), _LOOK_EVERY))]:
            spec, inputs = internals.run_spec(task), task.dependencies
            if spec is None:
                recipe.gaps[task.key] = "no-recipe"
            elif len(recipe.steps) >= MAX_SPECS or len(inputs) > MAX_SPECS:
                recipe.gaps[task.key] = "too-many"
            else:
                recipe.steps[task.key] = (spec, tuple([each.key for each in inputs]))
                new = [each for each in inputs if each.key not in seen]
                seen.update([each.key for each in new])
                ahead.extend(new)
        if ahead:
            yield


def _spec_bytes(spec: object) -> int:
    with guarded("sizing a specification"):
        return estimated_bytes(spec)
    return 0


def _answer(recipes: list[Recipe], most_bytes: int) -> dict[str, object]:
    import cloudpickle

    steps: dict[Any, _Step] = {}
    gaps: dict[object, RecipeGapReason] = {}
    for each in reversed(recipes):
        steps = {**each.steps, **steps}
        gaps = {**each.gaps, **gaps}
    problem, data = "", b""
    with guarded("pickling a recipe") as pickling:
        data = cloudpickle.dumps(steps) if steps else b""
    if pickling.problem is not None:
        problem = f"the tasks cannot be pickled: {describe_error(pickling.problem)}"[:500]
    elif len(data) > most_bytes:
        problem, data = f"the tasks with the data inside them take {len(data)} bytes, more than {most_bytes}", b""
    answer = RecipeAnswer(
        deaths=tuple(
            RecipeDeath(worker=each.worker, at=each.at, tasks=tuple(_names(each.tasks))) for each in recipes
        ),
        gaps=tuple(
            RecipeGap(key=name, reason=gaps[key])
            for key, name in zip(islice(gaps, _MAX_GAPS), _names(gaps), strict=False)
            if key not in steps
        ),
        problem=problem,
    )
    return {**encode_message(answer), "recipe": data}


def _names(keys: Collection[object]) -> Iterator[str]:
    return (str(key)[:500] for key in keys)
