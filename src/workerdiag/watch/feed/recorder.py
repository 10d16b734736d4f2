"""Reads deaths from the flight recorder on the scheduler, by a long poll."""

from __future__ import annotations

import sys
from functools import partial

from workerdiag.deadline import Deadline
from workerdiag.incidents.incident import watched_deaths
from workerdiag.model.dask import Client, Reply, is_disallowed
from workerdiag.sources.cluster.queries import answer_in_time
from workerdiag.watch.feed.connection import LATE_S
from workerdiag.watch.feed.death_feed import Cursor, Look
from workerdiag.watch.feed.farewell import LISTEN_S
from workerdiag.wire.constants import MESSAGE_SCHEMA
from workerdiag.wire.plain import from_plain
from workerdiag.wire.watch_answer import WatchAnswer


class NoRecorderError(Exception):
    """The scheduler does not record, or has an unknown version of the recorder."""


async def look_at_recorder(client: Client, after: Cursor | None, *, wait_s: float, lookback_s: float) -> Look:
    """Return the deaths after a cursor; without one, those of the last *lookback_s* seconds.

    Raises:
        NoRecorderError: There is no recorder any more.
        TimeoutError: The scheduler does not answer in time.
    """
    ask = partial(
        client.scheduler.workerdiag_watch,
        since=after.position if after is not None else 0,
        epoch=after.epoch if after is not None else "",
        wait_s=wait_s,
        lookback_s=lookback_s if after is None else None,
    )
    try:
        reply = await answer_in_time(ask, Deadline.after(wait_s + LATE_S))
    except Exception as problem:
        if is_disallowed(problem):
            raise NoRecorderError from None
        raise
    if not isinstance(reply, dict) or reply.get("schema") != MESSAGE_SCHEMA:
        raise NoRecorderError  # a server without this handler answers nothing
    dropped: list[str] = []
    answer = from_plain(WatchAnswer, {name: reply[name] for name in reply if name != "schema"}, dropped)
    is_known = after is not None and after.epoch == answer.epoch
    return Look(
        cursor=Cursor(epoch=answer.epoch, position=answer.position),
        now=answer.now,
        deaths=watched_deaths(answer.deaths),
        unreported=frozenset(each.id for each in answer.deaths if each.report is None),
        missed_count=answer.missed_count if is_known else 0,
        figures=answer.figures,
        closing_reason=answer.closing_reason,
        journal=answer.journal,
    )


async def listen_to_recorder(client: Client, after: Cursor) -> Reply:
    """Wait for an answer without deaths, which comes as soon as the scheduler closes."""
    answer: Reply = await client.scheduler.workerdiag_watch(
        since=sys.maxsize, epoch=after.epoch, wait_s=LISTEN_S
    )
    return answer
