"""A fleet report on real deaths: a watcher saw them, and triage reads the logs that they left."""

from __future__ import annotations

import os
import queue
import signal

import pytest

import workerdiag
from support.triage_work import triage_here

from .processes import PATIENCE_S, wait_until

pytestmark = pytest.mark.lab


def test_deaths_that_watcher_and_triage_both_saw_count_once(lab, tmp_path):
    """Two workers are killed, and later one is asked to go: two losses of one cause, known from both sides."""
    lab.scheduler()
    for name in ("first", "second", "third"):
        lab.worker(name=name)
    client = lab.client(workers=3)
    heard: queue.Queue[object] = queue.Queue()
    folder = tmp_path / "fleet"
    folder.mkdir()
    with workerdiag.watch(client, heard.put, state=folder / "watch.db") as watcher:
        wait_until(lambda: watcher.status().state == "watching", "the watcher to see the cluster")
        (retired, _), *killed = client.run(os.getpid).items()
        for _, pid in killed:
            os.kill(pid, signal.SIGKILL)
        heard.get(timeout=PATIENCE_S)  # judged: what is asked for from now on is another matter
        client.retire_workers([retired])
        wait_until(lambda: watcher.status().death_count >= 3, "the watcher to see all of them")
    triage_here(lab.logs, folder)
    report = workerdiag.fleet(folder)
    assert {each.cause: each.death_count for each in report.causes} == {"external.sigkill": 2}, str(report)
    assert report.duplicate_count >= 2
    assert report.requested_count >= 1
    assert not report.is_partial
