"""Whom we clear of a death without a flight recorder: only who certainly had not begun."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from workerdiag.correlation.assemble import assemble
from workerdiag.model.diagnosis import Blame, Match
from workerdiag.model.evidence import ExceptionFacts
from workerdiag.model.identity import Identity
from workerdiag.rulebook.load import load_rulebook
from workerdiag.scoring.advice import MemoryNumbers
from workerdiag.scoring.blame_and_retry import blame, decision

WORKER = Identity(worker="tcp://10.0.0.4:4002", pid=7012)
BOOK = load_rulebook()


def judged(*, executing, unfinished, threads=1, probability=0.99, verdict="task", finished_kind=None):
    """Who is blamed, by what ran at the last heartbeat and what was assigned when the worker was lost."""
    killed = ExceptionFacts(
        type="distributed.scheduler.KilledWorker",
        text="",
        task="quick",
        identity=WORKER,
        executing=executing,
        threads=threads,
    )
    removed = Match(
        owner="event.remove-worker",
        role="removal",
        captures={"worker": str(WORKER.worker), "processing": ", ".join(unfinished)},
        origin="event all",
        when=1000.0,
        identity=WORKER,
    )
    marks = [removed]
    if finished_kind is not None:
        captures = {"key": finished_kind}
        marks.append(Match(owner="event.finished-kind", role="event", captures=captures, origin="event"))
    cause = next(each for each in BOOK.causes if each.blame == verdict)
    ranked = [SimpleNamespace(id=cause.id, probability=probability)]
    return blame(ranked, BOOK, assemble(marks, [killed]))


def test_a_task_that_died_within_a_heartbeat_is_not_acquitted():
    """What the last heartbeat names was finished when the worker was lost: the thread was free for another."""
    verdict = judged(executing=("before",), unfinished=("quick", "after"))
    assert (verdict.verdict, verdict.fairly_blamed) == ("task", None)
    assert not any("before" in reason for reason in verdict.reasons)


def test_a_task_behind_one_that_was_not_finished_is_acquitted():
    """The only thread had a task, which the scheduler still waited for: nothing else can have begun."""
    verdict = judged(executing=("crash",), unfinished=("crash", "quick"))
    assert (verdict.verdict, verdict.fairly_blamed) == ("other-task", False)


def test_a_task_behind_one_of_its_own_function_is_not_acquitted():
    """Which of them Dask names is chance: who reads of another task looks for another mistake."""
    verdict = judged(executing=("quick-1",), unfinished=("quick-1", "quick"))
    assert (verdict.verdict, verdict.fairly_blamed) == ("task", True)


def test_a_task_behind_one_whose_kind_has_finished_elsewhere_is_not_acquitted():
    """What a process had finished just before it was killed, nobody is told; and that kind ends no workers."""
    verdict = judged(executing=("nap-2",), unfinished=("nap-2", "quick"), finished_kind="nap-2")
    assert (verdict.verdict, verdict.fairly_blamed) == ("task", None)
    assert not any("nap-2" in reason for reason in verdict.reasons)


@pytest.mark.parametrize("threads", [2, None])
def test_with_a_thread_to_spare_nothing_is_certain(threads):
    """A second thread may have begun it since, and so may one that nobody counted."""
    verdict = judged(executing=("crash",), unfinished=("crash", "quick"), threads=threads)
    assert (verdict.verdict, verdict.fairly_blamed) == ("task", None)


@pytest.mark.parametrize(("probability", "fairly"), [(0.95, False), (0.6, None)])
def test_a_likely_platform_fault_clears_no_task(probability, fairly):
    """Only one that is as good as certain does."""
    verdict = judged(executing=None, unfinished=("quick",), probability=probability, verdict="platform")
    assert verdict.fairly_blamed is fairly


@pytest.mark.parametrize(("verdict", "fault"), [("unknown", None), ("platform", True), ("task", False)])
def test_whether_the_platform_is_at_fault_is_known_only_where_somebody_is_blamed(verdict, fault):
    """A program that reads False takes the platform for cleared."""
    ranked = [SimpleNamespace(id="external.sigkill", probability=0.99)]
    assert decision(ranked, BOOK, Blame(verdict=verdict), MemoryNumbers()).platform_fault is fault


@pytest.mark.parametrize(("given_up", "blamed"), [(("load",), "load"), (("load", "nap"), None)])
def test_of_several_tasks_that_dask_gave_up_none_is_blamed(given_up, blamed):
    """One of them ended its worker, another was on a worker that something else ended."""
    marks = [
        Match(owner="scheduler.task-failed", role="blame", captures={"task": each}, origin="log", line=line)
        for line, each in enumerate(given_up, 1)
    ]
    cause = SimpleNamespace(id="signal.segfault", probability=0.99)
    assert blame([cause], BOOK, assemble(marks, [])).task == blamed
