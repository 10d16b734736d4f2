"""What ran, waited, was paused or silent when the question was asked."""

from __future__ import annotations

from workerdiag import load_rulebook
from workerdiag.api.diagnosis import Diagnosis
from workerdiag.model.diagnosis import Present, PresentTask
from workerdiag.model.evidence import Event, ExceptionFacts, ProcessExit
from workerdiag.model.identity import Identity
from workerdiag.pipeline import diagnose
from workerdiag.rendering.wording import present_lines

BOOK = load_rulebook()
ONE, TWO = "tcp://10.0.0.4:3001", "tcp://10.0.0.4:3002"
STATE = Event(topic="scheduler-state", fields={"workers": 2, "running_workers": 1, "waiting_tasks": 3})
LOCKED = Event(
    topic="awaited-task",
    fields={
        "key": "update-1",
        "waits_for": "lock",
        "waits_at": "update (jobs.py:12)",
        "lock_name": "database",
        "lock_silent_s": 9.5,
        "state": "processing",
        "worker": ONE,
        "running_s": 8.0,
    },
    identity=Identity(worker=ONE),
)
SILENT = Event(
    topic="worker-state",
    fields={"status": "running", "silent": True, "seconds_since_heartbeat": 14.2},
    identity=Identity(worker=TWO),
)
QUEUED = Event(topic="task-state", fields={"state": "queued", "count": 4})


def test_the_present_is_told_beside_a_death():
    """A worker crashed; who holds the lock, who is silent and what has not begun is said nevertheless."""
    dead = Identity(worker="tcp://10.0.0.4:3000", pid=3000)
    exited = ProcessExit(reporter="nanny log", signal=11, when=1e9, identity=dead)
    found = diagnose([exited, STATE, LOCKED, SILENT, QUEUED], BOOK)
    assert present_lines(found.present) == (
        f"Worker {TWO} is silent for 14 s: no heartbeat",
        'Task update-1 waits for lock "database" in update (jobs.py:12); its holder was last heard of 10 s ago',
        "4 tasks not begun; 2 workers in the cluster",
    )


def test_a_cluster_that_gave_up_its_workers_is_told_how_to_start_them():
    """A LocalCluster ends the nanny of a worker that happens to be starting again, and then work waits for ever."""
    cluster = Event(topic="cluster", fields={"type": "LocalCluster", "workers_wanted": 3, "workers_given_up": 2})
    lines = present_lines(diagnose([STATE, QUEUED, cluster], BOOK).present)
    assert lines[0] == (
        "The cluster gave up 2 of its 3 workers and starts no others by itself: client.cluster.scale(3)"
    )


def test_an_idle_cluster_has_no_present():
    """Nothing is unfinished and everybody is well; without a client nobody could be asked."""
    assert diagnose([STATE], BOOK).present is None
    assert diagnose([LOCKED], BOOK).present is None


def test_the_callers_own_mistake_has_no_present():
    """No worker took part in it."""
    mistake = ExceptionFacts(type="KeyError", text="'x'", in_caller=True, maybe_dask=False)
    assert diagnose([mistake, STATE, SILENT], BOOK).present is None


def test_the_present_travels_in_json():
    """Every field returns as it was."""
    found = diagnose([STATE, LOCKED, SILENT], BOOK)
    assert found.present == Present(
        workers=2,
        silent=(TWO,),
        silent_s=14.2,
        tasks=(
            PresentTask(
                key="update-1",
                state="processing",
                worker=ONE,
                running_s=8.0,
                waits_for="lock",
                waits_at="update (jobs.py:12)",
                awaited_name="database",
                holder_silent_s=9.5,
            ),
        ),
    )
    whole = Diagnosis(outcome=found.outcome, summary=found.summary, present=found.present)
    assert Diagnosis.from_json(whole.to_json()) == whole
