"""The flight recorder on clusters that change: that grow and shrink by themselves, restart, close in mid-work."""

from __future__ import annotations

import os
import signal
import threading

import pytest

import workerdiag
from workerdiag.recorder.recording import recorder_status
from workerdiag.wire import DEATH_TOPIC
from workerdiag.wire.messages import DEATH_KINDS

from . import tasks
from .cluster import raised
from .processes import wait_until
from .promises import named_cause
from .test_recorder import files, ran, reports

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("boxes")]

IMPATIENT = {"distributed.scheduler.allowed-failures": 0}
#: So that a test need not wait for what Dask takes its time for: it looks each 100 ms, and is sure after three.
EAGER = {"interval": "100ms", "wait_count": 3, "target_duration": "500ms"}
MOST = 4


def recording(client):
    """By worker, whether it records."""
    return {worker: said["is_recording"] for worker, said in client.run(recorder_status, on_error="ignore").items()}


def left(boxes):
    """The boxes that are there, without what lies beside them."""
    return [name for name in files(boxes) if name.endswith(".box")]


def grown(client):
    """Futures of work that makes an adaptive cluster grow to its maximum, and its workers by then."""
    futures = client.map(tasks.nap, [0.2] * 400, pure=False)
    wait_until(lambda: len(recording(client)) == MOST, "the cluster to grow")
    return futures, recording(client)


def test_an_adaptive_cluster_records_whoever_joins_and_forgets_whoever_is_sent_away(lab, boxes):
    """Each worker that joins records; those sent away are reports as that and leave no box; a death is explained."""
    cluster, client = lab.cluster(**IMPATIENT)
    workerdiag.install(client)
    cluster.adapt(minimum=1, maximum=MOST, **EAGER)
    futures, first = grown(client)
    assert all(first.values())
    del futures
    wait_until(lambda: len(recording(client)) == 1, "the cluster to shrink")
    wait_until(lambda: len(left(boxes)) == 1, "the boxes of those sent away to go")
    sent_away = reports(client, MOST - 1)
    assert len(sent_away) == MOST - 1
    assert all(each.stop_requested or each.nanny_status == "closing_gracefully" for each in sent_away)
    diagnosis = workerdiag.explain(client=client)
    assert (diagnosis.top.id, diagnosis.blame.verdict) == ("exit.scheduler-retired", "nobody")
    assert len(diagnosis.deaths) == MOST - 1
    futures, second = grown(client)
    young = next(iter(second.keys() - first.keys()))
    future = client.submit(tasks.nap, 60, lab.mark(), key="deadly", workers=[young], priority=10)
    os.kill(lab.running(), signal.SIGKILL)
    diagnosis = workerdiag.explain(raised(future), client)
    (death,) = [each for each in reports(client, MOST) if each.pid == lab.running()]
    assert (death.exit.signal, death.stop_requested, ran(death)) == (9, None, ["deadly"])
    (explained,) = [each for each in diagnosis.deaths if each.identity.worker == young]
    assert (explained.signal, explained.executing, explained.stop_requested) == (9, ("deadly",), False)
    assert named_cause(diagnosis) == "external.sigkill"
    del futures


def test_a_restart_in_mid_work_leaves_one_box_for_each_worker(lab, boxes):
    """`Client.restart` ends workers in the midst of tasks: as asked for, each once, and the next ones record."""
    _, client = lab.cluster(workers=2)
    workerdiag.install(client)
    pids = set(client.run(os.getpid).values())
    futures = [client.submit(tasks.nap, 60, lab.mark(name), key=name) for name in ("one", "two")]
    assert {lab.running(name) for name in ("one", "two")} <= pids
    client.restart()
    del futures
    messages = reports(client, 2)
    assert {each.pid for each in messages} == pids
    assert all(each.stop_requested for each in messages)
    assert list(recording(client).values()) == [True, True]
    wait_until(lambda: len(left(boxes)) == 2, "two boxes")


def test_closing_in_mid_work_leaves_nothing(lab, boxes):
    """When a cluster is closed while tasks run, no box stays, no thread, and nobody is reports as lost."""
    before = set(threading.enumerate())
    cluster, client = lab.cluster(workers=2)
    workerdiag.install(client)
    heard = []
    client.subscribe_topic(DEATH_TOPIC, heard.append)
    future = client.submit(tasks.nap, 60, lab.mark(), key="nap")
    assert lab.running()
    assert len(left(boxes)) == 2
    del future
    cluster.close()
    wait_until(lambda: files(boxes) == [], "all boxes to go")
    assert not [each for _, each in heard if each["kind"] in DEATH_KINDS[1:] and "stop_requested" not in each]
    wait_until(
        lambda: not any("workerdiag" in each.name for each in set(threading.enumerate()) - before),
        "the threads to end, of which one may still read the rules",
    )
