"""``workerdiag.check()``: whether work fits the workers, before it runs; and warnings of work that will not.

All collections go to the scheduler through ``Client._graph_to_futures`` (client.py, distributed 2024.8.1 to
2026.8.0). The frames behind that call still have them as the user made them, with his names.
"""

from __future__ import annotations

import asyncio
import warnings
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from inspect import currentframe
from traceback import walk_stack
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

from attrs import evolve

from workerdiag.api.diagnosis import stated_deployment
from workerdiag.api.explain import DEFAULT_RULEBOOK, parse_timeout
from workerdiag.deadline import Deadline, start_thread
from workerdiag.guard import guarded
from workerdiag.model.check import Check
from workerdiag.model.evidence import Event, Evidence, Gap
from workerdiag.model.rules import ReasonRule
from workerdiag.model.user_code import is_library
from workerdiag.model.vocabulary import NOTE_START
from workerdiag.scoring.memory_account import Workload
from workerdiag.scoring.work_check import check_work, work_grade
from workerdiag.sources.capacity import CapacitySource
from workerdiag.sources.modules import modules_of_work
from workerdiag.sources.workload.computed import Computed, find_computed, given_work
from workerdiag.sources.workload.source import computed_events

if TYPE_CHECKING:
    from distributed import Client


#: Work whose tasks and data are smaller than this fits any worker.
_LEAST_BYTES = 2**25


def check(collection: object, client: Client | None = None, *, timeout: str | float | None = None) -> Check:
    """Say whether a computation fits the workers before it runs. Nothing is computed, and no data is read.

    ::

        check = workerdiag.check(ds.rolling(time=90).mean(), client)
        print(check)  # Too many threads: concatenate: 100 MiB + 2 x (763 MiB in + ...

    Args:
        collection: A Dask array, dataframe, bag or delayed value, an object of xarray, or a list of them.
        client: The client of the cluster that is to compute it. Without it, the client at hand.
        timeout: Seconds in total, or a duration as Dask writes it; None: the setting
            ``workerdiag.explain.timeout``.

    Returns:
        A `Check` with its ``grade``, the sum behind it, and the changes that would make it fit; with an
        asynchronous client an awaitable of one.

    Raises:
        TypeError: There is no Dask collection in *collection*.
        ValueError: There is no client.
    """
    deadline = Deadline.after(parse_timeout(timeout))
    frame = currentframe()
    work = given_work(collection, list(walk_stack(frame and frame.f_back))[::-1])
    if not work.collections:
        kind = type(collection).__name__
        raise TypeError(f"check takes a Dask collection, such as an array or a dataframe, got {kind}")
    if client is None:
        from distributed import default_client

        client = default_client()  # type: ignore[no-untyped-call]
    events = list(computed_events(work))
    modules = modules_of_work(value for _, value in work.collections)
    source = CapacitySource(client, modules, with_disk=True)
    if client.asynchronous:
        return cast("Check", asyncio.to_thread(_check, events, source, deadline))
    return _check(events, source, deadline)


def check_for_alarm(computed: Computed, client: Any, deadline: Deadline) -> Check | None:
    """The check of work that is about to run, by its sizes alone; None unless it will not fit."""
    events = list(computed_events(computed))
    if Workload.of_events(events).largest_known_bytes < _LEAST_BYTES:
        return None
    cluster = [each for each in CapacitySource(client).collect(budget_s=deadline.left_s) if isinstance(each, Event)]
    work = Workload.of_events([*events, *cluster])
    if work_grade(work) != "will-not-fit":
        return None
    return check_work(work, stated_deployment(cluster), _reason_rules(deadline))


def _check(events: Sequence[Event], source: CapacitySource, deadline: Deadline) -> Check:
    pieces = list(source.collect(budget_s=deadline.left_s))
    cluster = [each for each in pieces if isinstance(each, Event)]
    work = Workload.of_events([*events, *cluster])
    found = check_work(work, stated_deployment(cluster), _reason_rules(deadline))
    return evolve(found, missing=tuple(_missing(cluster)), notes=(*found.notes, *_unread(pieces)))


def _reason_rules(deadline: Deadline) -> Sequence[ReasonRule]:
    return DEFAULT_RULEBOOK.within(deadline)[0].reasons


def _missing(events: Iterable[Event]) -> Iterator[str]:
    for each in events:
        if each.topic != "module":
            continue
        name, fields = each.fields.get("package") or each.fields["module"], each.fields
        if fields.get("lacking_workers"):
            asked = f"{fields['lacking_workers']} of {fields['asked_workers']} workers"
            yield f"{asked} lack {name}, which the work needs: they would fail to read its tasks."
        elif fields.get("differs"):
            yield f"Workers have {name} {fields['others']}, this process {fields['client']}."
        else:
            yield f"The scheduler lacks {name}."


def _unread(pieces: Iterable[Evidence]) -> Iterator[str]:
    for each in pieces:
        if isinstance(each, Gap):
            yield f"The {each.source} did not answer: {each.detail}"


#: At most so many collections that were checked are remembered.
_MAX_KNOWN = 1000


class WorkNotes:
    """Looks at each collection once, and warns if it will not fit. The work goes on as it would."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, None] = OrderedDict()

    def look(self, client: Client, frame: FrameType) -> None:
        """Check what the calls behind *frame* compute; an asynchronous client does not wait for it."""
        with guarded("checking work before it runs"):
            frames = list(walk_stack(frame))[::-1]
            work = find_computed(frames)
            if work is None or not work.collections or not self._is_new(work):
                return
            own = (each for each in reversed(frames) if not is_library(each[0].f_code.co_filename))
            caller, line = next(own, frames[0])
            place = caller.f_code.co_filename, line
            thread = start_thread("workerdiag-work", partial(_tell, work, client, *place))
            if not client.asynchronous:
                thread.join(0.25)  # a late warning still comes

    def _is_new(self, work: Computed) -> bool:
        from dask.base import tokenize  # of the process that has made the collections

        token = tokenize(*(value for _, value in work.collections))
        if token in self._known:
            return False
        self._known[token] = None
        if len(self._known) > _MAX_KNOWN:
            self._known.popitem(last=False)
        return True


def _tell(work: Computed, client: Any, file: str, line: int) -> None:
    with guarded("checking work before it runs"):
        found = check_for_alarm(work, client, Deadline.after(5.0))
        if found is not None:
            warnings.warn_explicit(NOTE_START + found.in_brief, RuntimeWarning, file, line)
