"""Follows the deaths of a scheduler inside its process: collects them, has them judged, and keeps the result.

On the scheduler's event loop it only waits, and needs some tenths of a millisecond for a death.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from functools import partial

from workerdiag.deadline import CALL_FAILURES, in_thread, monotonic_s
from workerdiag.errors import describe_error
from workerdiag.incidents.incident import SettleWindow
from workerdiag.integrations.dashboard.cases import JudgedCase, ids_of, victim_of
from workerdiag.integrations.dashboard.death_history import DeathBook
from workerdiag.integrations.dashboard.judge_client import KILL_S, Judge, Judgement, JudgingError
from workerdiag.model.dask import Method, Reply
from workerdiag.model.stop_reasons import is_deliberate
from workerdiag.wire.plain import BrokenValueError, from_plain
from workerdiag.wire.recorded_death import RecordedDeath

logger = logging.getLogger("distributed.scheduler.recorder")

#: Seconds within which deaths are judged together. The recorder has already waited for nannies.
SETTLE_S = 2.0
#: Limits of one judgement: deaths and bytes. Other deaths wait in the recorder.
MAX_DEATHS, MAX_BYTES = 100, 4 * 2**20
#: Wait of one question to the recorder, and minimum interval of questions, in seconds.
_WAIT_S, _LEAST_WAIT_S = 60.0, 0.05
#: Seconds that the thread waits beyond the time limit of the process.
_SLACK_S = 5.0
_THREAD = "workerdiag-deaths"
#: Id of the case for deaths that could not be judged.
UNJUDGED = "unjudged"

#: Asks the recorder, like `DeathWatch.answer`.
Ask = Method


class DeathFollower:
    """Follows deaths until it is cancelled or the scheduler closes.

    Args:
        ask: The recorder's handler.
        book: Receives the judgements.
        judge: Judges deaths; called in a thread.
        settle_s: Seconds for which deaths settle.
    """

    def __init__(self, ask: Ask, book: DeathBook, judge: Judge, *, settle_s: float = SETTLE_S) -> None:
        self._ask = ask
        self._book = book
        self._judge = judge
        self._settling = SettleWindow(settle_s)
        self._epoch, self._position = "", 0
        #: The settling deaths, as lines of JSON.
        self._deaths: list[bytes] = []
        self._one_at_a_time = asyncio.Lock()

    async def run(self) -> None:
        """Follow the deaths. A failure ends only this, with a line in the log."""
        try:
            while await self._look():
                if self._is_due():
                    await self._conclude()
        except Exception as problem:  # noqa: BLE001  the scheduler has better things to do
            logger.warning("The page of deaths stands still: %s", describe_error(problem))

    async def learn_causes(self) -> None:
        """Add all known causes to the book, so that it can return zero counts."""
        if self._book.knows_causes:
            return
        try:
            self._book.add(await self._judged([]))
        except JudgingError as problem:
            logger.info("The known causes cannot be listed: %s", problem)

    async def _look(self) -> bool:
        """Ask for deaths once. Returns whether there will be more."""
        due_at = self._settling.due_at
        wait_s = _WAIT_S if due_at is None else min(_WAIT_S, max(_LEAST_WAIT_S, due_at - monotonic_s()))
        reply = await self._ask(since=self._position, epoch=self._epoch, wait_s=wait_s)
        missed = reply["missed_count"] if reply["epoch"] == self._epoch else 0
        self._epoch, self._position = reply["epoch"], reply["position"]
        for death in reply["deaths"]:
            if not _is_deliberate(death):  # a cluster that scales down all day must not start processes
                self._deaths.append(json.dumps(death, default=str).encode())
                self._settling.arrived(monotonic_s())
            await asyncio.sleep(0)  # the scheduler has a whole cluster to serve
        self._book.settle(len(self._deaths), missed)
        await asyncio.sleep(_LEAST_WAIT_S)
        return reply.get("closing_reason") is None

    def _is_due(self) -> bool:
        is_full = len(self._deaths) >= MAX_DEATHS or sum(map(len, self._deaths)) >= MAX_BYTES
        return bool(self._deaths) and (is_full or self._settling.is_due(monotonic_s()))

    async def _conclude(self) -> None:
        """Judge what has settled, then pause for as long as that took: others need the processor too."""
        began = monotonic_s()
        deaths, self._deaths = self._deaths, []
        self._settling.judged()
        try:
            judgement = await self._judged(deaths)
        except JudgingError as problem:
            logger.warning("The page of deaths lacks a diagnosis of %d deaths: %s", len(deaths), problem)
            judgement = await in_thread(_THREAD, partial(unjudged, deaths, str(problem)), timeout_s=KILL_S)
        self._book.add(judgement)
        self._book.settle(0)
        await asyncio.sleep(monotonic_s() - began)

    async def _judged(self, deaths: Sequence[bytes]) -> Judgement:
        """Return the judgement, made in a thread.

        Raises:
            JudgingError: They could not be judged.
        """
        async with self._one_at_a_time:
            try:
                return await in_thread(
                    _THREAD, lambda: self._judge.judge(deaths), timeout_s=KILL_S + _SLACK_S
                )
            except CALL_FAILURES as problem:
                raise JudgingError(str(problem)) from problem


def _is_deliberate(death: Reply) -> bool:
    record = death.get("record") or {}
    return is_deliberate(announced=record.get("is_expected") is True, close_reason=record.get("close_reason"))


def unjudged(deaths: Sequence[bytes], problem: str) -> Judgement:
    """Return a case without a cause for the unexpected deaths."""
    known = []
    for line in deaths:
        try:
            known.append(from_plain(RecordedDeath, json.loads(line), []))
        except (ValueError, BrokenValueError):
            continue
    victims = tuple(victim_of(each) for each in known if not each.is_expected)
    title = f"not judged: {problem}"
    return Judgement(
        cases=(JudgedCase(id=UNJUDGED, title=title, victims=victims),) if victims else (),
        death_ids=ids_of(map(victim_of, known)),
    )
