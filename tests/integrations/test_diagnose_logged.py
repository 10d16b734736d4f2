"""The diagnosis of whatever is logged or reported: never late, never raising, never twice, never in the way."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest
from distributed.comm import CommClosedError

from support.diagnoses import diagnosis_with
from workerdiag.api.annotate import remember
from workerdiag.integrations import diagnose as diagnosing
from workerdiag.integrations.diagnose import diagnose_in_passing, facts
from workerdiag.model.diagnosis import RetryPolicy

ANSWER = diagnosis_with(RetryPolicy(action="retry"))


@pytest.fixture
def asked(monkeypatch):
    """The exceptions that a diagnosis was made of; each gets the answer."""
    asked = []

    def diagnose(exc, scheduler=None, *, timeout_s):
        asked.append(exc)
        return ANSWER

    monkeypatch.setattr(diagnosing, "diagnose", diagnose)
    return asked


def test_an_exception_is_asked_about_once(asked, killed):
    """Logged, reported and logged again: the program waits once."""
    assert [diagnose_in_passing(killed) for _ in range(3)] == [ANSWER] * 3
    assert asked == [killed]


def test_equal_exceptions_of_two_clusters_have_answers_of_their_own(asked):
    """One is not answered with what killed the workers of the other."""

    class EqualError(CommClosedError):
        def __eq__(self, other):
            return isinstance(other, EqualError)

        def __hash__(self):
            return 1

    errors = [EqualError("one"), EqualError("two")]
    for each in errors:
        diagnose_in_passing(each)
    assert [id(each) for each in asked] == [id(each) for each in errors]


def test_what_is_known_costs_nothing(asked, killed):
    """What `annotate` or `auto` found is the answer."""
    remember(killed, ANSWER)
    assert diagnose_in_passing(killed) == ANSWER
    assert not asked


def test_an_event_loop_is_not_stopped(asked, killed):
    """In it only what is known already is told."""

    async def log():
        return diagnose_in_passing(killed)

    assert asyncio.run(log()) is None
    remember(killed, ANSWER)
    assert asyncio.run(log()) == ANSWER
    assert not asked


def test_what_does_not_come_back_is_left_behind(monkeypatch, killed):
    """A hanging diagnosis holds nothing up beyond its time."""
    end = threading.Event()
    monkeypatch.setattr(diagnosing, "diagnose", lambda *_, **__: end.wait(60))
    try:
        assert diagnose_in_passing(killed, timeout_s=0.05) is None
        assert not end.is_set()
    finally:
        end.set()


def test_a_failure_of_ours_stays_with_us(monkeypatch, killed):
    """The program's own error is what is told."""
    monkeypatch.setattr(diagnosing, "diagnose", lambda *_, **__: 1 / 0)
    assert diagnose_in_passing(killed) is None


def test_what_is_logged_while_asking_is_not_asked_about(monkeypatch, killed):
    """An answer that logs an error of Dask does not ask itself."""
    inner = []

    def diagnose(exc, scheduler=None, *, timeout_s):
        inner.append(diagnose_in_passing(exc))
        return ANSWER

    monkeypatch.setattr(diagnosing, "diagnose", diagnose)
    assert diagnose_in_passing(killed) == ANSWER
    assert inner == [None]


def test_errors_of_other_programs_start_no_thread(monkeypatch):
    """A program that logs a thousand errors of its own does not notice."""
    monkeypatch.setattr(diagnosing, "call_in_time", lambda *_: pytest.fail("asked"))
    assert diagnose_in_passing(ValueError("no")) is None


def test_of_many_exceptions_a_few_are_asked_about(asked):
    """A program whose connections break a thousand times is not held up a thousand times."""
    many = [CommClosedError("gone") for _ in range(30)]
    told = [diagnose_in_passing(each) for each in many]
    assert len(asked) == 10
    assert told == [ANSWER] * 10 + [None] * 20


def test_it_is_quiet(killed, caplog):
    """Nothing of ours is logged."""
    caplog.set_level(logging.DEBUG, "workerdiag")
    diagnose_in_passing(killed, timeout_s=2)
    assert not caplog.records


def test_the_memory_to_try_is_among_the_facts():
    """Whoever files a diagnosis under names finds how much memory the same work may be tried with."""
    known = facts(diagnosis_with(RetryPolicy(action="retry-with-memory", memory_bytes=2**30, max_tries=1)))
    assert (known["action"], known["memory_bytes"]) == ("retry-with-memory", 2**30)
