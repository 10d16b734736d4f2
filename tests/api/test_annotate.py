"""The answer in the exception itself."""

from __future__ import annotations

import asyncio
import logging
import pickle
import traceback
from dataclasses import dataclass
from unittest.mock import Mock

import pytest
from distributed.scheduler import KilledWorker

import workerdiag
from support.findings import explained, no_death
from workerdiag.api import annotate as module
from workerdiag.api.diagnosis import Diagnosis
from workerdiag.rendering.text import failure_note


def diagnosis(findings):
    """What `explain` returns for these findings."""
    return Diagnosis(
        outcome=findings.outcome, summary=findings.summary, causes=findings.causes, deaths=findings.deaths
    )


@pytest.fixture(autouse=True)
def answer(monkeypatch):
    """Stands for `explain`: a nanny's memory kill."""
    explain = Mock(return_value=diagnosis(explained()))
    monkeypatch.setattr(module, "explain", explain)
    return explain


def killed():
    """What Dask raises when workers died under a task."""
    return KilledWorker("load-1", Mock(address="tcp://10.0.0.4:3493"), 3)


def test_a_traceback_ends_with_the_cause():
    """The note is the last that a traceback shows, in three lines."""
    exc = killed()
    workerdiag.annotate(exc)
    first, *_ = "".join(traceback.format_exception(exc)).splitlines()[-3:]
    assert first.startswith("workerdiag: Cause: The nanny killed the worker: above its memory limit (97%")


def test_an_exception_gets_one_note():
    """Who annotates twice changes nothing."""
    exc = killed()
    workerdiag.annotate(exc)
    workerdiag.annotate(exc)
    assert len(exc.__notes__) == 1


def test_notes_of_others_stay():
    """A note that somebody else added is neither lost nor taken for ours."""
    exc = killed()
    exc.add_note("while loading part 7")
    workerdiag.annotate(exc)
    assert exc.__notes__[0] == "while loading part 7"
    assert len(exc.__notes__) == 2


@dataclass(frozen=True)
class FrozenError(Exception):
    """An exception whose attributes cannot be set."""


class RefusingError(Exception):
    """An exception that takes no notes."""

    def add_note(self, note):
        """Refuse it."""
        raise RuntimeError(note)


class UnreadableError(Exception):
    """An exception whose notes cannot be read."""

    @property
    def __notes__(self):
        """What cannot be read."""
        raise RuntimeError


@pytest.mark.parametrize("kind", [FrozenError, RefusingError, UnreadableError])
def test_an_exception_that_takes_no_note_raises_no_second_one(kind):
    """The answer is returned as ever."""
    assert workerdiag.annotate(kind()).top.id == "nanny.memory-terminate"


def test_notes_that_are_no_text_stay():
    """Whoever put them there."""
    exc = killed()
    exc.__notes__ = [b"while loading"]
    workerdiag.annotate(exc)
    assert exc.__notes__[0] == b"while loading"
    assert len(exc.__notes__) == 2


def test_a_failure_is_told_in_one_line_without_secrets():
    """As an answer is."""
    note = failure_note("bad\nurl tcp://ada:hunter2@10.0.0.4:8786 \u2026 é")
    assert note.startswith("workerdiag: no answer: bad url tcp://")
    assert note.isascii()
    assert "hunter2" not in note


def test_nothing_is_added_where_no_worker_died(answer):
    """The exception of a task that merely failed stays as it is."""
    answer.return_value = diagnosis(no_death())
    exc = ValueError("bad row")
    assert workerdiag.annotate(exc).outcome == "no-death"
    assert not hasattr(exc, "__notes__")


def test_a_note_survives_pickling():
    """It goes along to whoever the exception is sent to."""
    exc = ValueError("bad row")
    workerdiag.annotate(exc)
    assert pickle.loads(pickle.dumps(exc)).__notes__ == exc.__notes__


def test_logging_shows_the_note(caplog):
    """``logger.exception`` tells the cause."""
    exc = killed()
    workerdiag.annotate(exc)
    logging.getLogger("job").error("failed", exc_info=exc)
    assert "Cause: The nanny killed the worker" in caplog.text


def test_an_awaited_answer_is_added_as_well(answer):
    """With an asynchronous client the call is awaited, as in Dask."""

    async def later():
        return diagnosis(explained())

    answer.return_value = later()
    exc = killed()
    found = asyncio.run(workerdiag.annotate(exc, Mock()))
    assert found.outcome == "explained"
    assert len(exc.__notes__) == 1


def test_a_killed_worker_leaves_the_block_with_its_note():
    """The exception that comes out of the block is the same one, with a note."""
    exc = killed()
    with pytest.raises(KilledWorker) as caught, workerdiag.explaining(Mock()):
        raise exc
    assert caught.value is exc
    assert len(exc.__notes__) == 1


def test_a_killed_worker_in_a_group_gets_its_note():
    """As it leaves an ``asyncio.TaskGroup``."""
    exc = killed()
    with pytest.raises(ExceptionGroup), workerdiag.explaining(Mock()):
        raise ExceptionGroup("tasks", [ValueError("bad row"), ExceptionGroup("inner", [exc])])
    assert len(exc.__notes__) == 1


def test_a_killed_worker_that_another_was_raised_from_gets_its_note():
    """The other one stays as it is."""
    exc = killed()
    with pytest.raises(RuntimeError) as caught, workerdiag.explaining(Mock()):
        raise RuntimeError("no result") from exc
    assert len(exc.__notes__) == 1
    assert not hasattr(caught.value, "__notes__")


def test_exceptions_that_are_linked_in_a_circle_end(answer):
    """None of them is a death."""
    one, other = ValueError(1), ValueError(2)
    one.__cause__, other.__cause__ = other, one
    with pytest.raises(ValueError, match="1"), workerdiag.explaining(Mock()):
        raise one
    answer.assert_not_called()


def test_other_exceptions_leave_the_block_untouched(answer):
    """Nobody waits for an answer that was not asked for."""
    with pytest.raises(ValueError, match="bad row") as caught, workerdiag.explaining(Mock()):
        raise ValueError("bad row")
    assert not hasattr(caught.value, "__notes__")
    answer.assert_not_called()


def test_an_asynchronous_block_adds_the_note_too(answer):
    """``async with`` waits for the answer without holding up the loop."""

    async def later():
        return diagnosis(explained())

    async def block():
        async with workerdiag.explaining(Mock()):
            raise killed()

    answer.return_value = later()
    with pytest.raises(KilledWorker) as caught:
        asyncio.run(block())
    assert len(caught.value.__notes__) == 1
