"""Notes in what a client's own calls raise. The client is a stand-in with a real event loop in a thread."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
import time
import warnings
from types import SimpleNamespace

import dask
import distributed.exceptions
import pytest
from attrs import evolve
from distributed.client import FutureCancelledError, FutureState
from distributed.comm import CommClosedError

from support.findings import explained, no_death, unknown
from workerdiag.api import noted_calls
from workerdiag.api.diagnosis import Diagnosis
from workerdiag.model.diagnosis import Churn, CountTerm
from workerdiag.model.vocabulary import LATE_NOTE, NOTE_START


def diagnosis(findings):
    """The findings as `explain` returns them."""
    return Diagnosis(outcome=findings.outcome, summary="-", causes=findings.causes, deaths=findings.deaths)


class Answers:
    """Answers at once, and keeps what it was asked."""

    def __init__(self):
        self.asked = []
        self.found = diagnosis(explained())
        self.delay_s = 0.0

    async def ask(self, exc, _until_s):
        """The prepared answer, after the delay."""
        self.asked.append(exc)
        await asyncio.sleep(self.delay_s)
        return self.found


class StandIn:
    """As much of a client as its calls need (distributed.client.Client)."""

    def __init__(self, loop):
        self.loop = SimpleNamespace(asyncio_loop=loop)
        self.futures = {}
        self.cluster = None
        self.asynchronous = False
        self.status = "running"

    def sync(self, func, *args, **options):
        """Call it in this thread."""
        options.pop("asynchronous", None)
        return func(*args, **options)


@pytest.fixture
def loop():
    """An event loop that runs in a thread, like that of a synchronous client."""
    made = asyncio.new_event_loop()
    thread = threading.Thread(target=made.run_forever)
    thread.start()
    yield made
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0.01), made).result()  # what was cancelled ends
    made.call_soon_threadsafe(made.stop)
    thread.join()
    made.close()


@pytest.fixture
def scene(loop):
    """A client, its noted calls, and what answers them."""
    client, answers = StandIn(loop), Answers()
    calls = noted_calls.NotedCalls(client, answers)
    return SimpleNamespace(client=client, calls=calls, answers=answers)


def raised(scene, exc, *, name="_result", after_s=0.0):
    """What leaves a call of *name* that raises *exc* after some seconds, with the notes of ours."""

    def call():
        time.sleep(after_s)
        raise exc

    call.__name__ = name
    with pytest.raises(BaseException) as caught:
        scene.calls.sync(call)
    assert caught.value is exc
    return [each for each in getattr(exc, "__notes__", []) if each.startswith(NOTE_START)]


def lost(reason="scheduler-connection-lost"):
    """A future that was cancelled, for that reason."""
    return FutureCancelledError("load-1", reason)


@pytest.mark.parametrize("exc", [lost(), lost("scheduler-restart"), CommClosedError("in <TCP>: Stream is closed")])
def test_what_a_call_raises_because_of_the_cluster_gets_a_note(scene, exc):
    """The scheduler reports none of these to the client."""
    assert len(raised(scene, exc)) == 1


@pytest.mark.parametrize("exc", [ValueError("mine"), OSError("no such file"), MemoryError("mine")])
def test_other_errors_pass(scene, exc):
    """They are of the task or of the caller."""
    assert not raised(scene, exc)
    assert not scene.answers.asked


def test_what_the_user_cancelled_is_not_explained_to_him(scene, monkeypatch):
    """He knows; what another cancelled is another matter."""
    monkeypatch.setattr("distributed.client.futures_of", lambda futures: futures)

    def _cancel(futures):
        """Nothing is sent."""

    scene.calls.sync(_cancel, [SimpleNamespace(key="load-1")])
    assert not raised(scene, lost(None))
    assert not scene.answers.asked
    assert raised(scene, FutureCancelledError("load-2", None))
    assert raised(scene, lost()), "the same work, submitted again"


@pytest.mark.parametrize("name", ["_restart", "_shutdown"])
def test_what_the_user_restarted_or_shut_down_is_not_explained_to_him(scene, name):
    """His futures are cancelled with it."""

    def call():
        """It goes well."""

    call.__name__ = name
    scene.calls.sync(call)
    assert not raised(scene, lost("scheduler-restart"))
    assert not scene.answers.asked


@pytest.mark.parametrize("exc", [lost(None), lost(), CommClosedError("closed"), TimeoutError()])
def test_a_client_that_the_user_closes_says_nothing(scene, exc):
    """Calls in other threads end with it."""
    scene.calls.close()
    assert not raised(scene, exc)


def test_a_cluster_that_the_user_closed_says_nothing(scene):
    """The connection is lost because he wanted it."""
    scene.client.cluster = SimpleNamespace(status=SimpleNamespace(name="closed"))
    assert not raised(scene, lost())


def test_a_time_out_gets_a_note_if_work_stands_still(scene):
    """Somebody waited, and nothing finished meanwhile."""
    assert raised(scene, TimeoutError(), after_s=noted_calls._POLL_S)


def test_a_time_out_while_work_goes_on_is_none(scene):
    """A future that finished meanwhile shows that nothing stands still."""
    exc = TimeoutError()

    def _gather():
        time.sleep(noted_calls._POLL_S)
        scene.calls.finish()
        raise exc

    with pytest.raises(TimeoutError):
        scene.calls.sync(_gather)
    assert not scene.answers.asked


def test_a_time_out_that_a_task_raised_is_its_own(scene):
    """The scheduler reported it, so it was judged before."""
    exc = TimeoutError("the database is slow")
    state = FutureState("load-1")
    state.status, state.exception = "error", exc
    scene.client.futures["load-1"] = state
    assert not raised(scene, exc, after_s=noted_calls._POLL_S)
    assert not scene.answers.asked


def test_a_time_out_of_a_function_that_the_user_runs_on_workers_is_its_own(scene):
    """What happened to the worker meanwhile is not."""
    assert not raised(scene, TimeoutError("the database is slow"), name="_run", after_s=noted_calls._POLL_S)
    assert raised(scene, CommClosedError("closed"), name="_run")


@pytest.mark.parametrize("found", [no_death, unknown])
def test_a_time_out_without_a_known_cause_gets_no_note(scene, found):
    """Slow work is no trouble, and nothing is said where nothing is known."""
    scene.answers.found = diagnosis(found())
    assert not raised(scene, TimeoutError(), after_s=noted_calls._POLL_S)


def test_a_time_out_of_a_client_that_lost_its_scheduler_gets_a_note_in_any_case(scene):
    """It waits for a connection, not for work."""
    scene.answers.found = diagnosis(unknown())
    scene.client.status = "connecting"
    assert raised(scene, TimeoutError(), after_s=noted_calls._POLL_S)


def test_dask_hides_our_frames_where_it_hides_its_own():
    """Once, and only if it shortens tracebacks at all."""
    with dask.config.set({"admin.traceback.shorten": ["asyncio"]}):
        for _ in range(2):
            noted_calls.hide_our_frames()
        _, ours = dask.config.get("admin.traceback.shorten")
        assert re.search(ours, noted_calls.__file__)
    with dask.config.set({"admin.traceback.shorten": []}):
        noted_calls.hide_our_frames()
        assert dask.config.get("admin.traceback.shorten") == []


def test_workers_that_did_not_come_get_a_note_in_any_case(scene):
    """That they are missing is a fault of the cluster, known or not."""
    scene.answers.found = diagnosis(unknown())
    if not hasattr(distributed.exceptions, "WorkerStartTimeoutError"):
        pytest.skip("this release raises a plain TimeoutError")
    exc = distributed.exceptions.WorkerStartTimeoutError(2, 5, 3)
    assert raised(scene, exc, name="_wait_for_workers", after_s=noted_calls._POLL_S)


def test_polls_are_not_slowed_and_rarely_looked_at(scene, monkeypatch):
    """A short time-out takes less than five milliseconds more, and the cluster is asked once in half a minute."""
    monkeypatch.setattr(noted_calls, "_STANDSTILL_S", 0.02)
    scene.answers.delay_s = 0.1
    raised(scene, TimeoutError())
    began_s = time.thread_time()
    notes = [raised(scene, TimeoutError(), after_s=0.001) for _ in range(100)]
    assert time.thread_time() - began_s < 100 * 0.005
    assert not notes[0], "it does not wait for the answer"
    while scene.calls._found is None:
        time.sleep(0.01)
    assert raised(scene, TimeoutError()), "the answer is there by now"
    assert len(scene.answers.asked) == 1


def test_polls_of_work_that_goes_on_are_never_looked_at(scene, monkeypatch):
    """Each future that finishes begins the wait anew."""
    monkeypatch.setattr(noted_calls, "_STANDSTILL_S", 0.4)
    for _ in range(20):
        assert not raised(scene, TimeoutError(), after_s=0.025)
        scene.calls.finish()
    assert not scene.answers.asked


def test_a_standstill_is_looked_at_anew_after_half_a_minute(scene, monkeypatch):
    """What held work up then may not be what holds it up now."""
    assert raised(scene, TimeoutError(), after_s=noted_calls._POLL_S)
    assert raised(scene, TimeoutError())
    assert len(scene.answers.asked) == 1
    monkeypatch.setattr(noted_calls, "_BETWEEN_LOOKS_S", 0.0)
    assert raised(scene, TimeoutError(), after_s=noted_calls._POLL_S)
    assert len(scene.answers.asked) == 2


def test_a_standstill_that_ended_is_not_told_of_the_next_time_out(scene):
    """What was found holds while nothing finishes."""
    assert raised(scene, TimeoutError(), after_s=noted_calls._POLL_S)
    scene.calls.finish()
    assert not raised(scene, TimeoutError(), after_s=noted_calls._POLL_S)


def test_ctrl_c_is_answered_with_the_standstill(scene):
    """What made somebody press it is asked for, not the KeyboardInterrupt."""
    assert raised(scene, KeyboardInterrupt())
    assert scene.answers.asked == [None]


def test_ctrl_c_while_work_goes_on_is_left_alone(scene):
    """Nothing made somebody press it but the time that the work takes, which a time-out is told."""
    cause = evolve(explained().causes[0], id=noted_calls._STILL_RUNNING)
    scene.answers.found = Diagnosis(outcome="explained", summary="-", causes=(cause,))
    assert not raised(scene, KeyboardInterrupt())
    assert raised(scene, TimeoutError(), after_s=noted_calls._POLL_S)


def test_ctrl_c_ends_within_half_a_second(scene):
    """An answer that takes longer is not waited for."""
    scene.answers.delay_s = 60.0
    began_s = time.monotonic()
    assert not raised(scene, KeyboardInterrupt())
    assert noted_calls._INTERRUPT_S < 0.5
    assert time.monotonic() - began_s < 2, "the machine may be busy"


def test_a_second_ctrl_c_ends_at_once(scene, monkeypatch):
    """It passes through whatever waits for the answer to the first."""
    second = KeyboardInterrupt()

    class Interrupted:
        def cancel(self):
            """Nobody waits."""

        def result(self, _timeout):
            raise second

    monkeypatch.setattr(scene.calls, "_in_loop", lambda *_: Interrupted())

    def _result():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        scene.calls.sync(_result)
    assert caught.value is second


@pytest.mark.parametrize(("exc", "is_told"), [(lost(), True), (TimeoutError(), False)])
def test_an_answer_that_is_late_is_told_of_errors_that_are_surely_of_the_cluster(scene, exc, is_told):
    """A time-out may be no trouble at all."""
    scene.answers.delay_s = 60.0
    with dask.config.set({"workerdiag.note.timeout": "20ms"}):
        notes = raised(scene, exc, after_s=noted_calls._POLL_S)
    assert notes == [LATE_NOTE] * is_told


def test_a_failure_of_ours_is_no_second_exception(scene):
    """Whatever fails on the way, the user gets the exception that Dask raised."""
    scene.answers.ask = None
    assert not raised(scene, lost())


def test_an_asynchronous_call_gets_its_note_too(scene):
    """Its exception leaves the awaitable that the client returned."""

    async def _result():
        raise lost()

    async def scenario():
        with pytest.raises(FutureCancelledError) as caught:
            await scene.calls.sync(_result, asynchronous=True)
        return caught.value

    assert asyncio.run(scenario()).__notes__


def test_what_explain_itself_asks_is_not_noted(scene):
    """Its questions to the scheduler may fail, and must not ask again."""
    assert not raised(scene, CommClosedError("closed"), name="ask_all")
    assert not scene.answers.asked


CHURN = Churn(deaths=6, period_s=30.0, lost_results=CountTerm(count=36, origin="events"))


@pytest.fixture
def churning(scene, monkeypatch):
    """A client whose workers die again and again, and which is looked after much sooner than a real one."""
    for name, value_s in (("_WAITS_S", 0.1), ("_BETWEEN_LOOKS_S", 0.3), ("_ONE_WAIT_S", 0.05)):
        monkeypatch.setattr(noted_calls, name, value_s)
    scene.deaths, scene.counted = 6, 0

    async def count(_client):
        scene.counted += 1
        return scene.deaths

    async def versions(_client):
        return {"python": ".".join(map(str, sys.version_info[:3]))}

    monkeypatch.setattr("workerdiag.sources.cluster.queries.count_recent_losses", count)
    monkeypatch.setattr("workerdiag.sources.cluster.workers.fetch_versions", versions)
    scene.answers.found = evolve(diagnosis(explained()), churn=CHURN)
    scene.calls = noted_calls.NotedCalls(scene.client, scene.answers)
    scene.client.futures = {"load-1": SimpleNamespace(status="pending")}
    return scene


def waited(scene, seconds):
    """The warnings while a call waits, as many short calls do."""

    def _wait(until_s):
        time.sleep(until_s)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scene.calls.sync(_wait, seconds)
        time.sleep(0.1)
    return [str(each.message) for each in caught if each.category is RuntimeWarning]


def test_a_churn_is_warned_of_once_while_a_call_waits(churning):
    """Nothing is raised, so it cannot be a note; the same computation is warned of once, another again."""
    (told,) = waited(churning, 1.2)
    assert told.startswith(f"{NOTE_START}Workers die and are replaced again and again: 6 deaths in 30 seconds")
    assert "Work is done twice: 36 finished results" in told
    churning.deaths = 12
    assert not waited(churning, 0.6)
    churning.client.futures = {"load-2": SimpleNamespace(status="pending")}
    assert len(waited(churning, 0.6)) == 1


@pytest.mark.parametrize(("deaths", "churn", "asked"), [(2, CHURN, 0), (6, None, 1)])
def test_a_wait_without_a_churn_gets_no_warning(churning, deaths, churn, asked):
    """Below three deaths the cluster is not even queried, and no more than once for the same deaths."""
    churning.deaths = deaths
    churning.answers.found = evolve(churning.answers.found, churn=churn)
    assert not waited(churning, 1.2)
    assert (len(churning.answers.asked), churning.counted <= 4) == (asked, True)


def test_short_calls_are_not_looked_after(churning):
    """A poll costs next to nothing, and nobody is asked."""
    assert not waited(churning, 0.0)
    time.sleep(0.4)
    assert churning.counted == 0
    began_s = time.perf_counter()
    for _ in range(1000):
        churning.calls.sync(_nothing)
    assert (time.perf_counter() - began_s) / 1000 < 0.001


def _nothing():
    """A call that does not wait long."""


_nothing.__name__ = "_wait"
