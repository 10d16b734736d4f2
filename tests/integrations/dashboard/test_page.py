"""The page in a real scheduler of this process: what it answers, and that it leaves Dask's own as it was."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import dask
import pytest
from distributed import Scheduler
from prometheus_client import REGISTRY
from tornado.httpclient import AsyncHTTPClient, HTTPClientError

from support.dashboard_deaths import case, judgement
from support.death_records import nanny_report
from workerdiag.integrations.dashboard import judge_process
from workerdiag.integrations.dashboard import page as dashboard
from workerdiag.recorder.scheduler import RecorderScheduler
from workerdiag.wire import DEATH_TOPIC

#: Seconds until a death is judged on a busy machine.
PATIENCE_S = 100.0


class Served:
    """A scheduler that records, and its web server."""

    def __init__(self, scheduler):
        self.scheduler = scheduler
        self.base = f"http://127.0.0.1:{scheduler.http_server.port}"
        self.plugin = RecorderScheduler()

    async def get(self, path):
        return await AsyncHTTPClient().fetch(f"{self.base}/{path}", request_timeout=PATIENCE_S)

    async def deaths(self, count):
        """The answer, once it has so many deaths."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                found = json.loads((await self.get("workerdiag/deaths.json")).body)
                if found["death_count"] >= count:
                    return found
                await asyncio.sleep(0.05)


@pytest.fixture
def judge_at_once(monkeypatch):
    """Judgements to return, in place of a process; tests of the process itself are in test_judge_process.py."""
    answers = []
    monkeypatch.setattr(judge_process.JudgingProcess, "judge", lambda *_: answers.pop(0))
    return answers


def counted():
    """The crashes in the text that Prometheus scrapes."""
    labels = {"cause": "signal.segfault", "family": "signal", "blame": "task"}
    return REGISTRY.get_sample_value("workerdiag_deaths_total", labels)


@asynccontextmanager
async def served(**options) -> AsyncIterator[Served]:
    """A scheduler with the recorder; it has Dask's dashboard where Bokeh is installed."""
    arguments = {"host": "127.0.0.1", "port": 0, "dashboard_address": "127.0.0.1:0", **options}
    async with Scheduler(**arguments) as scheduler:
        found = Served(scheduler)
        await found.plugin.start(scheduler)
        scheduler.add_plugin(found.plugin, name=found.plugin.name)
        yield found


def test_a_death_becomes_a_row_with_a_report(judge_at_once):
    """A death is a case in JSON, one in the counter, and has a report that may load nothing."""
    judge_at_once.append(judgement(case(1, report="<p>why</p>")))

    async def scenario():
        async with served() as web:
            web.scheduler.log_event(DEATH_TOPIC, nanny_report(1))
            (row,) = (await web.deaths(1))["cases"]
            assert row["cause"] == "signal.segfault"
            assert counted() == 1
            report = await web.get(row["report"])
            assert report.body == b"<p>why</p>"
            assert "default-src 'none'" in report.headers["Content-Security-Policy"]

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_death_of_which_more_is_told_is_counted_once(judge_at_once):
    """The nanny's report and the scheduler's record of one death are one in the counter, whenever they come."""
    judge_at_once += [judgement(case(1)), judgement(case(1, 2))]

    async def scenario():
        async with served() as web:
            web.scheduler.log_event(DEATH_TOPIC, nanny_report(1))
            await web.deaths(1)
            web.scheduler.log_event(DEATH_TOPIC, nanny_report(2))
            await web.deaths(2)
            assert counted() == 2

    asyncio.run(scenario())


def test_the_page_is_one_text_for_all():
    """Both pages are there before anything died, and hold nothing that came from a worker."""

    async def scenario():
        async with served() as web:
            for path in ("deaths", "individual-deaths"):
                page = (await web.get(path)).body.decode()
                assert "workerdiag/deaths.json" in page
                assert page.count("<html") == 1

    asyncio.run(scenario())


def test_an_unknown_report_is_not_found():
    """A link to what is not kept any more is answered with 404."""

    async def scenario():
        async with served() as web:
            for path in ("workerdiag/deaths/0123456789ab.html", "workerdiag/deaths/..%2f.html"):
                with pytest.raises(HTTPClientError) as caught:
                    await web.get(path)
                assert caught.value.code == 404

    asyncio.run(scenario())


def test_what_ends_recording_takes_the_page_away():
    """After `uninstall` Dask's server is as it was."""

    async def scenario():
        async with served() as web:
            await web.get("deaths")
            await web.plugin.close()
            for path in ("deaths", "workerdiag/deaths.json"):
                with pytest.raises(HTTPClientError):
                    await web.get(path)
            assert (await web.get("health")).body == b"ok"

    asyncio.run(scenario())


def test_the_recorder_starts_once():
    """A scheduler starts the plugins of its preloads twice; there is one page and one recorder all the same."""

    async def scenario():
        async with served() as web:
            applications = len(web.scheduler.http_application.applications)
            handlers = dict(web.scheduler.handlers)
            await web.plugin.start(web.scheduler)
            assert len(web.scheduler.http_application.applications) == applications
            assert web.scheduler.handlers == handlers

    asyncio.run(scenario())


def test_the_page_can_be_hidden():
    """With `recorder.dashboard: hide` nothing is shown, and nothing is judged."""

    async def scenario():
        with dask.config.set({"workerdiag.recorder.dashboard": "hide"}):
            async with served() as web:
                with pytest.raises(HTTPClientError):
                    await web.get("deaths")

    asyncio.run(scenario())


def test_a_fault_of_ours_does_not_stop_the_scheduler(monkeypatch, caplog):
    """Whatever part fails, the scheduler starts, records, and says in its log what is missing."""

    def broken(*_, **__):
        raise RuntimeError("a fault of ours")

    async def scenario():
        async with served() as web:
            assert (await web.get("health")).body == b"ok"
            assert web.plugin.missing == {}

    caplog.set_level(logging.WARNING, logger="distributed.scheduler.recorder")
    for name in ("attach", "plain_page", "application", "export_counts"):
        with monkeypatch.context() as patch:
            patch.setattr(dashboard, name, broken)
            asyncio.run(scenario())
        assert "a fault of ours" in caplog.text
        caplog.clear()


def test_a_scheduler_that_closes_waits_for_no_judgement(monkeypatch):
    """Closing takes no longer than without the page, also while deaths are being judged."""
    started = threading.Event()

    def hang(self, text):
        started.set()
        assert self._is_stopped.wait(PATIENCE_S)
        raise OSError

    async def scenario():
        async with served() as web:
            web.scheduler.log_event(DEATH_TOPIC, nanny_report(1))
            assert await asyncio.to_thread(started.wait, PATIENCE_S)

    monkeypatch.setattr(judge_process.JudgingProcess, "judge", hang)
    asyncio.run(asyncio.wait_for(scenario(), PATIENCE_S))


def test_a_prefix_of_dask_is_ours_too():
    """Behind a proxy Dask serves its pages below a prefix, and ours beside them."""

    async def scenario():
        async with served(http_prefix="/dask/one") as web:
            assert "deaths-rows" in (await web.get("dask/one/deaths")).body.decode()
            assert json.loads((await web.get("dask/one/workerdiag/deaths.json")).body)["cases"] == []

    asyncio.run(scenario())
