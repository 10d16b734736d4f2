"""Real deaths with the flight recorder, as the page of a diagnosis draws them."""

from __future__ import annotations

import pytest

import workerdiag

from . import tasks
from .cluster import raised
from .processes import PATIENCE_S
from .test_recorder import recorded

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("boxes")]


def test_what_the_recorder_sampled_reaches_the_page(lab):
    """Memory by time, the limits with their thresholds, and the tasks on both threads are in the drawings."""
    client = recorded(lab, "--nthreads", "2", memory_limit="300MB")
    client.submit(tasks.nap, 60, lab.mark("nap"), key="nap")
    lab.running("nap")
    error = raised(client.submit(tasks.grow, 600, 2, key="grow"))
    diagnosis = workerdiag.explain(error, client, timeout=PATIENCE_S)
    (history,) = diagnosis.timeline.histories
    assert history.recorded
    assert len(history.samples) > 1
    assert history.samples[-1].process_bytes > history.samples[0].process_bytes
    limits = history.limits
    assert limits.worker_bytes == 300 * tasks.MB
    assert (limits.spill_fraction, limits.pause_fraction, limits.terminate_fraction) == (0.7, 0.8, 0.95)
    assert {each.key for each in history.tasks if each.ended_at is None} == {"nap", "grow"}
    assert len({each.thread for each in history.tasks}) == 2
    page = diagnosis.to_html()
    assert page.count('class="wd-chart"') == 2
    assert "terminate 95%" in page
    assert workerdiag.Diagnosis.from_json(diagnosis.to_json()) == diagnosis
