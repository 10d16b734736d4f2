"""The watcher's feed on real clusters, with the flight recorder and without. Each test makes one promise."""

from __future__ import annotations

import asyncio
import signal
import threading
import time

import pytest

import workerdiag
from workerdiag.errors import ClusterEndedError, SchedulerUnreachableError
from workerdiag.incidents import judge, judge_standstill
from workerdiag.watch.feed import scheduler_feed
from workerdiag.watch.feed.scheduler_feed import SchedulerFeed

from . import tasks
from .cluster import raised
from .processes import PATIENCE_S, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("boxes")]
common = pytest.mark.common
KILL, SEGFAULT = (tasks.shoot_itself, signal.SIGKILL), (tasks.segfault,)
both = pytest.mark.parametrize("recorder", [True, False], ids=["recorder", "events"])


class Follower:
    """A feed with an event loop and a cursor of its own, as a watcher has them."""

    def __init__(self, target):
        self.feed = SchedulerFeed(target)
        self.cursor = None
        self.followed = []
        self._loop = asyncio.new_event_loop()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.run(self.feed.close())
        self._loop.close()

    def run(self, awaited):
        """The outcome of a coroutine."""
        return self._loop.run_until_complete(awaited)

    def poll(self, wait_s=0.0):
        """The next batch."""
        batch = self.run(self.feed.poll(self.cursor, wait_s=wait_s))
        self.cursor = batch.cursor
        return batch

    def follow(self, wait_s=1.0):
        """Poll until that raises something; `followed` has the deaths until then."""
        while True:
            self.followed += self.poll(wait_s=wait_s).deaths

    def until(self, is_enough, what):
        """The deaths, by id, of all batches until there are enough; those told again with all their evidence."""
        found = {}

        def look():
            for each in self.poll(wait_s=1.0).deaths:
                found.setdefault(each.id, []).append(each)
            return is_enough(found)

        wait_until(look, what)
        return found


def watched(lab, *, recorder, workers=1, **options):
    """The client of a cluster, and who follows it."""
    lab.scheduler(DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES="0")
    for number in range(workers):
        lab.worker(name=f"worker-{number}", **options)
    client = lab.client(workers=workers)
    if recorder:
        workerdiag.install(client)
    follower = Follower(lab.address)
    lab.callback(follower.__exit__)
    follower.poll()
    return client, follower


def last_told(found):
    """Each death as it was told last."""
    return [told[-1] for told in found.values()]


@common
@both
@pytest.mark.parametrize(
    ("task", "cause"),
    [(KILL, "external.sigkill"), (SEGFAULT, "signal.segfault")],
    ids=["SIGKILL", "SIGSEGV"],
)
def test_a_death_is_told_within_seconds_and_judged_by_its_cause(lab, recorder, task, cause):
    """By the evidence that the feed brings, and nothing else."""
    client, follower = watched(lab, recorder=recorder)
    raised(client.submit(*task, mark=lab.mark(), key="crash"))
    lost_at = time.time()
    (death,) = last_told(follower.until(bool, "the death"))
    assert (death.identity.pid, death.is_expected) == (lab.running(), False)
    assert abs(death.when - lost_at) < PATIENCE_S
    (incident,) = judge([death], timeout_s=PATIENCE_S)
    assert incident.diagnosis.top.id == cause
    assert follower.poll().deaths == ()


@both
def test_a_watcher_that_was_away_gets_what_it_missed_and_nothing_twice(lab, recorder):
    """Deaths between two feeds with one cursor."""
    client, follower = watched(lab, recorder=recorder)
    raised(client.submit(*KILL, mark=lab.mark("one"), key="one"))
    first = follower.until(bool, "the first death")
    client.wait_for_workers(1, timeout=PATIENCE_S)
    (address,) = client.scheduler_info(n_workers=-1)["workers"]
    follower.poll()  # more may have become known of the first
    raised(client.submit(*KILL, mark=lab.mark("two"), key="two"))
    with Follower(lab.address) as other:
        other.cursor = follower.cursor
        second = other.until(bool, "the second death")
        assert other.poll().deaths == ()
    assert not set(first) & set(second)
    assert [each.identity.worker for each in last_told(second)] == [address]


@both
def test_deaths_of_two_causes_at_once_are_told_apart(lab, recorder):
    """Each has the evidence of its own death alone."""
    client, follower = watched(lab, recorder=recorder, workers=2)
    addresses = list(client.scheduler_info(n_workers=-1)["workers"])
    for task, address, name in zip((KILL, SEGFAULT), addresses, ("kill", "segfault"), strict=True):
        client.submit(*task, mark=lab.mark(name), key=name, workers=[address])
    found = last_told(follower.until(lambda found: len(found) == 2, "both deaths"))
    causes = {
        each.identity.pid: [incident.diagnosis.top.id for incident in judge([each], timeout_s=PATIENCE_S)]
        for each in found
    }
    assert causes == {lab.running("kill"): ["external.sigkill"], lab.running("segfault"): ["signal.segfault"]}
    together = judge(found, timeout_s=PATIENCE_S)
    assert {each.diagnosis.top.id for each in together} == {"external.sigkill", "signal.segfault"}


@both
def test_a_retirement_is_expected(lab, recorder):
    """It is told, and nobody judges it."""
    client, follower = watched(lab, recorder=recorder, workers=2)
    (gone, _) = client.scheduler_info(n_workers=-1)["workers"]
    client.retire_workers([gone])
    (death,) = last_told(follower.until(bool, "the removal"))
    assert (death.identity.worker, death.is_expected) == (gone, True)
    assert judge([death], timeout_s=PATIENCE_S) == []


@both
def test_a_scheduler_that_starts_again_at_its_address_is_followed(lab, recorder):
    """It counts anew; what the one before had written down is read."""
    journal = lab.folder / "deaths.jsonl"
    preload = '["workerdiag.recorder.preload"]' if recorder else "[]"
    environment = {
        "DASK_DISTRIBUTED__SCHEDULER__PRELOAD": preload,
        "DASK_WORKERDIAG__RECORDER__APPEND_TO": str(journal),
    }
    scheduler = lab.scheduler(**environment)
    lab.worker(nanny=False)
    client = lab.client()
    with Follower(lab.address) as follower:
        before = follower.poll()
        client.submit(*KILL, key="unseen")
        if recorder:
            wait_until(lambda: journal.exists() and "removal" in journal.read_text(), "the journal")
        scheduler.send(signal.SIGKILL)
        scheduler.ended()
        with pytest.raises(SchedulerUnreachableError):
            follower.follow()
        stored = follower.run(follower.feed.stored(before.cursor))[0]
        assert len(stored) == int(recorder)
        lab.scheduler(**environment)
        lab.worker(name="again", nanny=False)
        again = lab.client()
        wait_until(lambda: _answers(follower), "the new scheduler")
        assert follower.cursor.epoch != before.cursor.epoch
        again.submit(*KILL, key="seen")
        found = follower.until(bool, "the death at the new scheduler")
        assert not set(found) & {each.id for each in stored}


def _answers(follower):
    try:
        follower.poll()
    except SchedulerUnreachableError:
        return False
    return True


@both
def test_a_cluster_that_is_closed_has_ended(lab, recorder):
    """That is no failure, and deliberate stops on the way are no deaths to judge.

    The recorder says so to whoever has the address; without it, the cluster object does for certain.
    """
    cluster, client = lab.cluster(workers=2)
    if recorder:
        workerdiag.install(client)
    with Follower(cluster.scheduler_address if recorder else client) as follower:
        follower.poll()
        closing = threading.Timer(0.5, cluster.close)
        closing.start()
        with pytest.raises(ClusterEndedError):
            follower.follow(wait_s=PATIENCE_S)
        closing.join()
        assert judge(follower.followed, timeout_s=PATIENCE_S) == []


@both
def test_a_feed_keeps_no_cluster_alive(lab, recorder):
    """An idle scheduler closes as soon as without it, and says so."""
    scheduler = idle_scheduler(lab, recorder)
    with Follower(lab.address) as follower:
        follower.poll()
        with pytest.raises(ClusterEndedError):
            follower.follow(wait_s=PATIENCE_S)
        scheduler.ended()  # rarely with an abort of its own, with a feed or without
    scheduler.wait_for_output("after being idle")


@both
def test_a_watcher_keeps_no_cluster_alive(lab, recorder):
    """Its looks are no work; it ends with the cluster."""
    scheduler = idle_scheduler(lab, recorder)
    with workerdiag.watch(lab.address) as watcher:
        assert list(watcher) == [], "nothing died"
        scheduler.ended()
    scheduler.wait_for_output("after being idle")


def idle_scheduler(lab, recorder):
    """A scheduler that closes where nobody gives it work."""
    scheduler = lab.scheduler(
        DASK_DISTRIBUTED__SCHEDULER__IDLE_TIMEOUT="4s",
        DASK_DISTRIBUTED__SCHEDULER__PRELOAD='["workerdiag.recorder.preload"]' if recorder else "[]",
    )
    scheduler.wait_for_output("Scheduler at:")
    return scheduler


@both
def test_tasks_that_no_worker_takes_are_a_standstill(lab, recorder, monkeypatch):
    """Though nothing died; it is judged, and over once a worker comes."""
    lab.scheduler(DASK_DISTRIBUTED__SCHEDULER__PRELOAD='["workerdiag.recorder.preload"]' if recorder else "[]")
    client = lab.client(workers=0)
    future = client.submit(tasks.nap, 0.0, key="wait")
    monkeypatch.setattr(scheduler_feed, "STANDSTILL_S", 0.5)
    with Follower(lab.address) as follower:
        batch = wait_until(lambda: _with_standstill(follower), "a standstill")
        incident = judge_standstill(batch.standstill, when=batch.now, timeout_s=PATIENCE_S)
        assert incident.diagnosis.outcome == "explained"
        assert incident.deaths == ()
        lab.worker()
        assert future.result(timeout=PATIENCE_S) == "rested"
        assert follower.poll().standstill == ()


def _with_standstill(follower):
    batch = follower.poll(wait_s=0.5)
    return batch if batch.standstill else None


@both
def test_paused_workers_are_a_standstill(lab, recorder, monkeypatch):
    """All of them hold more memory than they may, so no task starts."""
    lab.scheduler(DASK_DISTRIBUTED__SCHEDULER__PRELOAD='["workerdiag.recorder.preload"]' if recorder else "[]")
    lab.worker(
        memory_limit="1GiB",
        env={
            "DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE": "0.01",
            "DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE": "False",
        },
    )
    client = lab.client(workers=0)
    wait_until(lambda: _statuses(client) == {"paused"}, "the worker to pause")
    future = client.submit(tasks.nap, 0.0, key="wait")
    monkeypatch.setattr(scheduler_feed, "STANDSTILL_S", 0.5)
    with Follower(lab.address) as follower:
        batch = wait_until(lambda: _with_standstill(follower), "a standstill")
        incident = judge_standstill(batch.standstill, when=batch.now, timeout_s=PATIENCE_S)
        assert incident is not None
        assert "paused" in incident.diagnosis.top.id
    assert not future.done()


def _statuses(client):
    return {each["status"] for each in client.scheduler_info(n_workers=-1)["workers"].values()}


def test_looking_is_no_client(lab):
    """The scheduler has nobody to send anything to, and nothing to keep."""
    client, follower = watched(lab, recorder=False)
    follower.poll(wait_s=0.5)

    def clients(dask_scheduler):
        return sorted(dask_scheduler.clients)

    assert [each for each in client.run_on_scheduler(clients) if each != client.id] == ["fire-and-forget"]


def test_the_address_of_a_worker_is_said_to_be_one(lab):
    """The worker's log has one traceback at most, however often it is asked."""
    _, client = lab.cluster()
    (worker,) = client.scheduler_info()["workers"]
    with Follower(worker) as follower:
        for _ in range(3):
            with pytest.raises(SchedulerUnreachableError, match=f"{worker} is a Worker, not a scheduler"):
                follower.poll()
    (records,) = client.get_worker_logs().values()
    assert len([text for _, text in records if "No handler" in text]) <= 1
