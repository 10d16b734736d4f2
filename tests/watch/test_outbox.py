"""The outbox: every notice arrives, in order, whatever sinks do."""

from __future__ import annotations

import math
import pickle
import threading
import time
from collections.abc import Callable

import pytest
from attrs import define, field
from hypothesis import given, settings
from hypothesis import strategies as st

from support.watch_values import NOW, FakeClock, make_notice
from workerdiag.errors import StateFileError
from workerdiag.watch import outbox as outbox_module
from workerdiag.watch.outbox import Outbox
from workerdiag.watch.sinks.base import Delivery, DeliveryError, SinkSetupError
from workerdiag.watch.store import RetrySettings, Store, delivery_id

#: Longer than any test waits.
LONG_S = 60.0
#: Failures cost a test no time.
QUICK = RetrySettings(first_s=0.001, longest_s=0.002, max_attempts=1000)


@define
class FakeSink:
    name: str = "fake"
    answer: Callable[[Delivery], object] = lambda _: {}
    seen: list[Delivery] = field(factory=list)

    def deliver(self, delivery):
        self.seen.append(delivery)
        return self.answer(delivery)

    @property
    def notices(self) -> list[str]:
        return [each.notice.notice_id for each in self.seen]


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(clock):
    opened = Store(clock=clock)
    yield opened
    opened.close()


@pytest.fixture
def outbox(store, clock):
    started = []

    def start(*sinks, **options):
        made = Outbox(store, sinks, clock=clock, **{"retry": QUICK, **options})
        made.start()
        started.append(made)
        return made

    yield start
    for each in started:
        each.close(0)


def unsent(store):
    return (*store.outbox.stored("sending"), *store.outbox.stored("pending"))


def wait_until(is_so: Callable[[], object]) -> None:
    until = time.monotonic() + LONG_S
    while not is_so():
        assert time.monotonic() < until, "it never came so"
        time.sleep(0.002)


def fail(times: int, problem: BaseException, receipt: object = None) -> Callable[[Delivery], object]:
    def answer(delivery):
        if delivery.attempt <= times:
            raise problem
        return receipt

    return answer


def test_a_notice_goes_to_every_sink(store, outbox):
    """Once to each, with an id that is the sink's and the notice's."""
    one, two = FakeSink("one"), FakeSink("two")
    running = outbox(one, two)
    store.outbox.enqueue(make_notice(), ["one", "two"])
    store.outbox.enqueue(make_notice(), ["one", "two"])
    running.wake()
    running.close(LONG_S)
    assert not unsent(store)
    assert [each.id for each in one.seen] == [delivery_id("case-a-1", "one")]
    assert [each.id for each in two.seen] == [delivery_id("case-a-1", "two")]
    assert {each.state for each in store.outbox.stored()} == {"sent"}
    assert {each.name: each.counts for each in store.outbox.sinks()}["one"] == {
        "pending": 0,
        "sending": 0,
        "sent": 1,
        "dead": 0,
    }


def test_what_is_in_the_outbox_at_the_start_is_sent(store, outbox):
    """Nothing waits for the next notice."""
    store.outbox.enqueue(make_notice(), ["fake"])
    sink = FakeSink()
    outbox(sink).close(LONG_S)
    assert sink.seen == [Delivery(id=delivery_id("case-a-1", "fake"), notice=make_notice())]


def test_a_failure_is_tried_again_under_the_same_id(store, outbox, clock):
    """Also one that is no `DeliveryError`; the attempt is counted, the problem listed."""
    sink = FakeSink(answer=fail(2, OSError("connection reset")))
    store.outbox.enqueue(make_notice(), ["fake"])
    running = outbox(sink)
    for attempts in (1, 2):
        wait_until(
            lambda n=attempts: [(each.attempts, each.state) for each in store.outbox.stored()] == [(n, "pending")]
        )
        assert store.outbox.stored()[0].problem == "OSError: connection reset"
        assert running.status()[0].problem == "OSError: connection reset"
        clock.now += 1
        running.wake()
    running.close(LONG_S)
    assert not unsent(store)
    assert [each.attempt for each in sink.seen] == [1, 2, 3]
    assert len({each.id for each in sink.seen}) == 1
    assert running.status()[0].problem == ""


@pytest.mark.parametrize("raised", [SystemExit(1), KeyboardInterrupt(), GeneratorExit(), RecursionError()])
def test_whatever_a_sink_raises_its_thread_goes_on(store, outbox, clock, raised):
    """Foreign code cannot end the deliveries of its sink."""
    sink = FakeSink(answer=fail(1, raised))
    store.outbox.enqueue(make_notice(), ["fake"])
    running = outbox(sink)
    wait_until(lambda: store.outbox.stored("pending") and store.outbox.stored()[0].attempts == 1)
    clock.now += 1
    running.close(LONG_S)
    assert not unsent(store)


def test_a_final_error_is_a_dead_letter_at_once(store, outbox):
    """It is listed with its problem, and holds no later notice back."""
    final = DeliveryError("the token is wrong", is_final=True)

    def answer(delivery):
        if delivery.notice.notice_id == "case-a-1":
            raise final

    sink = FakeSink(answer=answer)
    store.outbox.enqueue(make_notice(), ["fake"])
    store.outbox.enqueue(make_notice(sequence=2), ["fake"])
    outbox(sink).close(LONG_S)
    (dead,) = store.outbox.stored("dead")
    assert (dead.notice.notice_id, dead.problem, dead.attempts) == ("case-a-1", "the token is wrong", 1)
    assert [each.notice.notice_id for each in store.outbox.stored("sent")] == ["case-a-2"]


def test_too_many_attempts_are_a_dead_letter(store, outbox, clock):
    """The last problem is kept."""
    sink = FakeSink(answer=fail(99, DeliveryError("busy")))
    store.outbox.enqueue(make_notice(), ["fake"])
    running = outbox(sink, retry=RetrySettings(first_s=0.001, longest_s=0.002, max_attempts=3))
    for attempts in (1, 2, 3):
        wait_until(lambda n=attempts: store.outbox.stored()[0].attempts == n and not store.outbox.stored("sending"))
        clock.now += 1
        running.wake()
    (dead,) = store.outbox.stored("dead")
    assert (dead.attempts, dead.problem) == (3, "busy")


def test_a_dead_letter_can_be_sent_again(store, outbox, clock):
    """Under its old id, with as many attempts as a new one."""
    sink = FakeSink(answer=fail(3, DeliveryError("busy")))
    store.outbox.enqueue(make_notice(), ["fake", "other"])
    running = outbox(sink, retry=RetrySettings(first_s=0.001, longest_s=0.002, max_attempts=2))
    wait_until(lambda: store.outbox.stored()[0].attempts == 1 and not store.outbox.stored("sending"))
    clock.now += 1
    running.wake()
    wait_until(lambda: store.outbox.stored("dead"))
    assert store.outbox.resend_dead("unknown") == store.outbox.resend_dead(sink="other") == 0
    assert store.outbox.resend_dead(delivery_id("case-a-1", "fake")) == 1
    running.wake()
    wait_until(lambda: store.outbox.stored()[0].attempts == 3 and not store.outbox.stored("sending"))
    clock.now += 1
    running.close(LONG_S)
    assert [each.attempt for each in sink.seen] == [1, 2, 3, 4]
    assert len({each.id for each in sink.seen}) == 1


def test_a_sink_that_hangs_holds_nobody(store, outbox, clock):
    """Others deliver, `close` comes back, and the status says since when it hangs."""
    hangs = threading.Event()
    stuck, fine = FakeSink("stuck", answer=lambda _: hangs.wait(LONG_S)), FakeSink("fine")
    store.outbox.enqueue(make_notice(), ["stuck", "fine"])
    running = outbox(stuck, fine)
    wait_until(lambda: fine.seen and stuck.seen)
    clock.now += 600
    store.outbox.enqueue(make_notice("case-b"), ["stuck", "fine"])
    running.wake()
    wait_until(lambda: len(store.outbox.stored("sent")) == 2)
    status = {each.name: each for each in running.status()}
    assert status["stuck"].sending_since == NOW
    assert status["stuck"].counts["pending"] == 1
    assert status["fine"].sending_since is None
    running.close(0.05)
    assert [(each.sink, each.state) for each in unsent(store)] == [("stuck", "sending"), ("stuck", "pending")]
    hangs.set()


def test_retry_after_is_honoured_by_the_whole_sink(store, outbox, clock):
    """A receiver that asks for a pause gets nothing of other cases meanwhile, but other sinks go on."""
    limited = DeliveryError("too many", retry_after_s=100.0)
    once = fail(1, limited)
    sink = FakeSink(answer=lambda each: once(each) if each.notice.id == "case-a" else None)
    other = FakeSink("other")
    store.outbox.enqueue(make_notice("case-a"), ["fake", "other"])
    running = outbox(sink, other)
    wait_until(lambda: len(sink.seen) == 1 and not store.outbox.stored("sending"))
    store.outbox.enqueue(make_notice("case-b"), ["fake", "other"])
    for _ in range(2):
        running.wake()
        wait_until(lambda: len(other.seen) == 2)
        assert len(sink.seen) == 1
        clock.now += 49.9
    assert next(each.due_at >= NOW + 100 for each in store.outbox.stored("pending"))
    clock.now += 1
    running.close(LONG_S)
    assert not unsent(store)
    assert sorted(sink.notices) == ["case-a-1", "case-a-1", "case-b-1"]


def test_retry_after_holds_over_a_restart(store, outbox, clock):
    """The next watcher asks the receiver no sooner, also for what came after the restart."""
    store.outbox.enqueue(make_notice("case-a"), ["fake", "other"])
    busy = FakeSink(answer=fail(1, DeliveryError("too many", retry_after_s=3600.0)))
    outbox(busy).close(LONG_S)
    store.outbox.enqueue(make_notice("case-b"), ["fake", "other"])
    clock.now += 3500
    sink, other = FakeSink(), FakeSink("other")
    outbox(sink, other).close(LONG_S)
    assert len(unsent(store)) == 2
    assert (sink.notices, other.notices) == ([], ["case-a-1", "case-b-1"])
    clock.now += 101
    outbox(sink).close(LONG_S)
    assert not unsent(store)
    assert sink.notices == ["case-a-1", "case-b-1"]


def test_a_failure_of_one_case_holds_no_other_over_a_restart(store, outbox):
    """Only what the receiver asked for is a pause of the whole sink."""
    store.outbox.enqueue(make_notice("case-a"), ["fake"])
    outbox(FakeSink(answer=fail(1, OSError())), retry=RetrySettings(first_s=LONG_S)).close(0.5)
    store.outbox.enqueue(make_notice("case-b"), ["fake"])
    sink = FakeSink()
    outbox(sink).close(0.5)
    assert sink.notices == ["case-b-1"]


@pytest.mark.parametrize(("given", "wait_s"), [("5", 5), (" 2.5 ", 2.5), (7, 7)])
def test_a_header_may_be_given_as_it_is(given, wait_s):
    """Sinks of others pass ``Retry-After`` on as text."""
    error = DeliveryError("429", retry_after_s=given)
    assert error.retry_after_s == wait_s
    assert pickle.loads(pickle.dumps(error)).retry_after_s == wait_s


@pytest.mark.parametrize("given", ["Wed, 21 Oct 2026 07:28:00 GMT", "", "nan", math.inf, [], None, "9" * 9999])
def test_a_wait_that_is_no_number_is_not_given(store, outbox, clock, given):
    """The notice is tried again as after any other failure."""
    sink = FakeSink(answer=fail(1, DeliveryError("429", retry_after_s=given)))
    store.outbox.enqueue(make_notice(), ["fake"])
    running = outbox(sink)
    wait_until(lambda: store.outbox.stored("pending") and store.outbox.stored()[0].attempts == 1)
    clock.now += 1
    running.close(LONG_S)
    assert not unsent(store)


def test_an_outcome_that_cannot_be_noted_is_a_failed_attempt(store, outbox, clock, monkeypatch):
    """The delivery is never left behind as one that is being sent."""
    note_sent, problems = store.outbox.note_sent, [OverflowError("too large")]

    def note(*given):
        if problems:
            raise problems.pop()
        note_sent(*given)

    monkeypatch.setattr(store.outbox, "note_sent", note)
    store.outbox.enqueue(make_notice(), ["fake"])
    running = outbox(FakeSink())
    wait_until(lambda: store.outbox.stored("pending") and store.outbox.stored()[0].attempts == 1)
    assert "OverflowError: too large" in store.outbox.stored()[0].problem
    clock.now += 1
    running.close(LONG_S)
    assert not unsent(store)


def test_the_last_receipt_of_a_case_is_handed_on(store, outbox):
    """To the next delivery of that case at that sink, and to no other."""
    one = FakeSink("one", answer=lambda each: {"ts": f"one-{each.notice.notice_id}"})
    two = FakeSink("two", answer=lambda _: None)
    for case, sequence in [("a", 1), ("b", 1), ("a", 2), ("a", 3)]:
        store.outbox.enqueue(make_notice(case, sequence), ["one", "two"])
    outbox(one, two).close(LONG_S)
    assert [each.receipt for each in one.seen] == [{}, {}, {"ts": "one-a-1"}, {"ts": "one-a-2"}]
    assert [each.receipt for each in two.seen] == [{}] * 4


class _Odd(dict):
    def items(self):
        raise RuntimeError


@pytest.mark.parametrize("returned", [None, 7, ["a"], {"a": "x" * 3000}, _Odd()])
def test_a_receipt_that_cannot_be_kept_is_none(store, outbox, returned):
    """The notice was sent all the same."""
    sink = FakeSink(answer=lambda _: returned)
    store.outbox.enqueue(make_notice(), ["fake"])
    store.outbox.enqueue(make_notice(sequence=2), ["fake"])
    outbox(sink).close(LONG_S)
    assert [each.receipt for each in sink.seen] == [{}, {}]
    assert len(store.outbox.stored("sent")) == 2


def test_what_was_cut_off_is_sent_again(store, outbox):
    """After a kill while it was sent: under the same id, the lost attempt counted."""
    store.outbox.enqueue(make_notice(), ["fake"])
    store.outbox.claim("fake")  # and there the process ended
    sink = FakeSink()
    outbox(sink).close(LONG_S)
    assert [(each.id, each.attempt) for each in sink.seen] == [(delivery_id("case-a-1", "fake"), 2)]


def test_a_clock_that_was_set_back_holds_nothing_for_ever(store, outbox, clock):
    """At the start nothing is due later than the longest wait from now."""
    store.outbox.enqueue(make_notice(), ["fake"])
    store.outbox.note_failed(store.outbox.claim("fake")[0].id, "busy", NOW + 1)
    clock.now -= 10 * 365 * 86400
    sink = FakeSink()
    running = outbox(sink)
    clock.now += QUICK.longest_retry_after_s + 1
    running.wake()
    wait_until(lambda: sink.seen)


def test_a_state_file_that_cannot_be_written_costs_no_repeat(store, outbox, monkeypatch):
    """What was sent is noted as soon as there is room again; meanwhile the status says why not."""
    monkeypatch.setattr(outbox_module, "_POLL_S", 0.01)
    is_full = threading.Event()
    note_sent = store.outbox.note_sent

    def note(*given):
        if is_full.is_set():
            raise StateFileError("state.db", "database or disk is full")
        note_sent(*given)

    monkeypatch.setattr(store.outbox, "note_sent", note)
    is_full.set()
    sink = FakeSink()
    store.outbox.enqueue(make_notice(), ["fake"])
    running = outbox(sink)
    wait_until(lambda: "disk is full" in running.status()[0].problem)
    is_full.clear()
    wait_until(lambda: store.outbox.stored("sent"))
    running.close(LONG_S)
    assert len(sink.seen) == 1
    assert running.status()[0].problem == ""


def test_a_state_file_that_cannot_be_read_for_a_while_ends_no_sink(store, outbox, monkeypatch):
    """It is tried again."""
    monkeypatch.setattr(outbox_module, "_POLL_S", 0.01)
    claim, problems = store.outbox.claim, [StateFileError("state.db", "locked"), ZeroDivisionError()]

    def claim_or_fail(name):
        if problems:
            raise problems.pop()
        return claim(name)

    monkeypatch.setattr(store.outbox, "claim", claim_or_fail)
    sink = FakeSink()
    store.outbox.enqueue(make_notice(), ["fake"])
    outbox(sink)
    wait_until(lambda: sink.seen)


def test_a_notice_that_was_changed_by_hand_is_a_dead_letter(store, outbox):
    """It holds back no other one."""
    store.outbox.enqueue(make_notice(), ["fake"])
    store.outbox.enqueue(make_notice(sequence=2), ["fake"])
    with store.file.transaction() as connection:
        connection.execute("UPDATE notice SET body = '{' WHERE id = 'case-a-1'")
    sink = FakeSink()
    outbox(sink).close(LONG_S)
    assert not unsent(store)
    assert sink.notices == ["case-a-2"]
    assert [(each.notice, each.state) for each in store.outbox.stored("dead")] == [(None, "dead")]


def test_no_problem_shows_a_secret(store, outbox):
    """Libraries like to quote the URL with the token in it."""
    problem = OSError("cannot reach https://user:hunter2secret@example.org/hook?token=xoxb-123456789012-abcdefghij")
    sink = FakeSink(answer=fail(1, problem))
    store.outbox.enqueue(make_notice(), ["fake"])
    outbox(sink)
    wait_until(lambda: store.outbox.stored()[0].problem)
    shown = store.outbox.stored()[0].problem
    assert "example.org" in shown
    assert "hunter2" not in shown
    assert "abcdefghij" not in shown


def test_a_sink_that_is_gone_is_still_listed(store, outbox):
    """Its deliveries wait until there is one of that name again."""
    store.outbox.enqueue(make_notice(), ["gone"])
    running = outbox(FakeSink())
    assert [(each.name, each.counts.get("pending", 0)) for each in running.status()] == [
        ("gone", 1),
        ("fake", 0),
    ]
    running.close(LONG_S)
    assert [each.sink for each in unsent(store)] == ["gone"]


def test_two_sinks_of_one_name_are_refused(store):
    """Each would get what is the other's."""
    with pytest.raises(SinkSetupError, match="cannot use the fake sink: several sinks have this name"):
        Outbox(store, [FakeSink(), FakeSink()])


def test_two_watchers_without_a_common_file_send_the_same_ids(outbox, clock):
    """A receiver that knows one drops the other: the id is made of notice and sink alone."""
    sinks = []
    for _ in range(2):
        store = Store()
        store.outbox.enqueue(make_notice(), ["fake"])
        sinks.append(FakeSink())
        running = Outbox(store, [sinks[-1]])
        running.start()
        running.close(LONG_S)
        store.close()
    assert sinks[0].seen == sinks[1].seen != []


@settings(max_examples=25)
@given(
    notices=st.lists(st.sampled_from("abc"), min_size=1, max_size=12),
    failures=st.lists(st.sampled_from(["ok", "fail", "final", "later"]), max_size=40),
    restarts=st.sets(st.integers(0, 12), max_size=3),
)
def test_a_case_keeps_its_order_and_loses_nothing(notices, failures, restarts):
    """Per case and sink the first is sent before the second, and each is sent or listed as dead."""
    store, ahead = Store(), list(failures)

    def answer(_):
        match ahead.pop() if ahead else "ok":
            case "fail":
                raise OSError
            case "final":
                raise DeliveryError("no", is_final=True)
            case "later":
                raise DeliveryError("slow down", retry_after_s=0.001)

    sent: list[str] = []
    sink = FakeSink(answer=lambda each: (answer(each), sent.append(each.notice.notice_id))[0])
    running = Outbox(store, [sink], retry=QUICK)
    running.start()
    for number, case in enumerate(notices):
        store.outbox.enqueue(make_notice(case, notices[:number].count(case) + 1), ["fake"])
        running.wake()
        if number in restarts:
            running.close(0)
            running._threads[0]._has_ended.wait(LONG_S)
            running = Outbox(store, [sink], retry=QUICK)
            running.start()
    running.close(LONG_S)
    assert not unsent(store)
    dead = [each.notice.notice_id for each in store.outbox.stored("dead")]
    assert sorted(sent + dead) == sorted({each.notice.notice_id for each in store.outbox.stored()})
    for case in set(notices):
        numbers = [int(each.split("-")[1]) for each in sent if each.startswith(case)]
        assert numbers == sorted(numbers)
    store.close()


@given(
    failures=st.integers(1, 10**6),
    asked=st.none() | st.floats(),
    chance=st.floats(0, 1),
)
def test_a_wait_is_never_shorter_than_asked_and_never_endless(failures, asked, chance):
    """Also for a receiver that asks for nonsense."""
    retry = RetrySettings()
    wait = retry.wait_s(failures, asked, lambda: chance)
    assert 0.5 * retry.first_s <= wait <= retry.longest_retry_after_s + retry.first_s
    if asked is not None and asked <= retry.longest_retry_after_s:
        assert wait >= asked
    if asked is None or math.isnan(asked) or asked < 0:
        assert wait <= retry.longest_s


def test_waits_double_up_to_the_longest():
    """Half of each is left to chance."""
    retry = RetrySettings()
    assert [retry.wait_s(number, None, lambda: 1.0) for number in (1, 2, 3, 10, 11)] == [1, 2, 4, 512, 600]
    assert [retry.wait_s(number, None, lambda: 0.0) for number in (1, 2, 3, 11)] == [0.5, 1, 2, 300]
