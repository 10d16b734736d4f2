"""The follower collects deaths until they have settled, and whatever fails leaves a page and no harm."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging

from support.dashboard_deaths import case, judgement, recorded_line
from workerdiag.integrations.dashboard.judge_process import UNJUDGED, DeathBook, JudgingError
from workerdiag.integrations.dashboard.page import DeathFollower

#: Seconds that a test waits for what takes a moment.
PATIENCE_S = 60.0


class Recorder:
    """As the recorder's handler: answers what is put in, one after the other, as soon as it is there."""

    def __init__(self, *batches, closing_reason="signal-15", epoch="e", missed_count=0):
        self.batches = list(batches)
        self.asked = []
        self.last = {"closing_reason": closing_reason}
        self.epoch, self.missed_count = epoch, missed_count
        self.is_over = False
        self.has_news = asyncio.Event()

    def add(self, batch):
        self.batches.append(batch)
        self.has_news.set()

    def end(self):
        self.is_over = True
        self.has_news.set()

    async def answer(self, since, epoch, wait_s):
        self.asked.append((since, epoch))
        reply = {"epoch": self.epoch, "position": since + 1, "missed_count": self.missed_count}
        if not self.batches and not self.is_over:
            self.has_news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.has_news.wait(), wait_s)
        if self.batches:
            return {**reply, "deaths": [json.loads(line) for line in self.batches.pop(0)]}
        return {**reply, "deaths": [], **(self.last if self.is_over else {})}


class Judge:
    """As the judging process: notes what it is given, and says what it was told to say."""

    def __init__(self, *answers):
        self.answers, self.given = list(answers), []

    def judge(self, deaths):
        self.given.append(list(deaths))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def stop(self):
        pass


async def follow(recorder, judge, until, settle_s=0.2):
    """The book once it is as wanted."""
    book = DeathBook()
    follower = DeathFollower(recorder.answer, book, judge, settle_s=settle_s)
    task = asyncio.create_task(follower.run())
    async with asyncio.timeout(PATIENCE_S):
        while True:
            await asyncio.sleep(0.01)
            if until(book):
                break
    recorder.end()
    await asyncio.wait_for(task, PATIENCE_S)
    return book


def test_deaths_that_settle_are_judged_together():
    """What dies within seconds is judged at once, and in the meantime the page says that something died."""

    async def scenario():
        recorder = Recorder([recorded_line(1)], [recorded_line(2)])
        judge = Judge(judgement(case(1, 2)))
        seen = set()

        def is_shown(book):
            seen.add(book.settling_count)
            return book.death_count == 2

        book = await follow(recorder, judge, is_shown, settle_s=0.5)
        assert [len(each) for each in judge.given] == [2]
        assert seen >= {2} or seen >= {1}
        assert book.settling_count == 0
        assert recorder.asked[:2] == [(0, ""), (1, "e")]

    asyncio.run(scenario())


def test_a_death_that_cannot_be_judged_is_shown_and_counted():
    """Where the process that judges fails, the page has the deaths and the reason, and the next one is judged."""

    async def scenario():
        recorder = Recorder([recorded_line(1)])
        judge = Judge(JudgingError("it ended with status -9"), judgement(case(2)))
        later = [[recorded_line(2)]]

        def is_told(book):
            if book.death_count == 1 and later:
                recorder.add(later.pop())
            return book.death_count == 2

        book = await follow(recorder, judge, is_told)
        cases = {each["id"]: each for each in json.loads(book.to_json())["cases"]}
        assert "it ended with status -9" in cases[UNJUDGED]["title"]
        assert cases[UNJUDGED]["workers"][0]["worker"] == "tcp://10.0.0.4:1001"
        assert cases[UNJUDGED]["report"] is None
        assert book.counts["unknown", "unknown", "unknown"] == 1

    asyncio.run(scenario())


def test_a_stop_that_was_asked_for_starts_no_judgement():
    """A cluster that scales up and down all day costs nothing."""

    async def scenario():
        stopped = json.loads(recorded_line(1))
        stopped["record"]["is_expected"] = True
        recorder = Recorder([json.dumps(stopped)], [recorded_line(2)])
        judge = Judge(judgement(case(2)))
        await follow(recorder, judge, lambda book: book.death_count)
        assert [len(each) for each in judge.given] == [1]

    asyncio.run(scenario())


def test_a_broken_recorder_ends_the_page_and_nothing_else(caplog):
    """A fault of ours is a line in the log of the scheduler."""

    async def scenario():
        async def broken(**_):
            raise ValueError("what is this")

        await DeathFollower(broken, DeathBook(), Judge()).run()

    with caplog.at_level(logging.WARNING, logger="distributed.scheduler.recorder"):
        asyncio.run(scenario())
    assert "The page of deaths is no longer updated: ValueError: what is this" in caplog.text


def test_deaths_that_nobody_read_are_told():
    """What the recorder had to let go of is a number on the page."""

    async def scenario():
        recorder = Recorder([recorded_line(1)], [recorded_line(2)], missed_count=7)
        book = await follow(recorder, Judge(judgement(case(1, 2))), lambda book: book.death_count == 2)
        assert book.missed_count >= 7

    asyncio.run(scenario())


def test_causes_are_learned_once():
    """Zeros for all known causes cost one judgement of nothing."""

    async def scenario():
        book, judge = DeathBook(), Judge(judgement())
        follower = DeathFollower(Recorder().answer, book, judge)
        await follower.learn_causes()
        await follower.learn_causes()
        assert judge.given == [[]]
        assert book.knows_causes

    asyncio.run(scenario())
