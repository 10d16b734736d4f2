"""``workerdiag.check()``: whether work fits the workers, before it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from inspect import currentframe
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

from attrs import evolve

from workerdiag.api.explain import parse_timeout
from workerdiag.deadline import Deadline
from workerdiag.model.check import Check
from workerdiag.model.evidence import Event, Evidence, Gap
from workerdiag.model.vocabulary import as_deployment
from workerdiag.rulebook.load import load_rulebook
from workerdiag.scoring.memory_account import Workload
from workerdiag.scoring.work_check import check_work
from workerdiag.sources.capacity import CapacitySource
from workerdiag.sources.modules import modules_of_work
from workerdiag.sources.workload.computed import given_work
from workerdiag.sources.workload.source import computed_events

if TYPE_CHECKING:
    from distributed import Client


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
    work = given_work(collection, _callers(currentframe()))
    if not work.collections:
        kind = type(collection).__name__
        raise TypeError(f"check takes a Dask collection, such as an array or a dataframe, got {kind}")
    if client is None:
        from distributed import default_client

        client = default_client()  # type: ignore[no-untyped-call]
    events = list(computed_events(work))
    source = CapacitySource(cast("Any", client), modules_of_work(value for _, value in work.collections))
    if client.asynchronous:
        return cast("Check", _check_async(events, source, deadline))
    return _check(events, source, deadline)


async def _check_async(events: Sequence[Event], source: CapacitySource, deadline: Deadline) -> Check:
    return await asyncio.to_thread(_check, events, source, deadline)


def _check(events: Sequence[Event], source: CapacitySource, deadline: Deadline) -> Check:
    pieces = list(source.collect(budget_s=deadline.left_s))
    cluster = [each for each in pieces if isinstance(each, Event)]
    work = Workload.of_events([*events, *cluster])
    deployments = (as_deployment(each.fields.get("deployment")) for each in cluster)
    deployment = next((each for each in deployments if each), None)
    found = check_work(work, deployment, load_rulebook().reasons)
    return evolve(found, missing=tuple(_missing(cluster)), notes=(*found.notes, *_unread(pieces)))


def _callers(frame: FrameType | None) -> Iterable[tuple[FrameType, int]]:
    """The frames that called *frame*, outermost first."""
    found = []
    while frame is not None and (frame := frame.f_back) is not None:
        found.append((frame, frame.f_lineno))
    return found[::-1]


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
