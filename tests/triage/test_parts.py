"""Death bundles, black boxes and files of death records among the inputs of a triage."""

from __future__ import annotations

import json

import pytest

import workerdiag
from support.dead_boxes import DUMP, left_by_a_dead_process
from support.death_records import nanny_report, scheduler_record, worker_address
from support.triage_work import nanny_log, triage_here
from workerdiag.recorder.box.writer import BoxWriter


def told(rows):
    """Who died, of what, and in which input that stands."""
    return {(each.worker, each.cause, each.url) for each in rows}


def test_the_deaths_of_a_bundle_are_rows(tmp_path):
    """A bundle is judged anew; that its logs lie beside it counts no death twice."""
    log, bundle = tmp_path / "nanny.log", tmp_path / "kept.zip"
    log.write_text(nanny_log(3, seed=1))
    workerdiag.explain(logs=log).save(bundle)
    alone, inputs, _ = triage_here([bundle], tmp_path / "alone")
    assert [(each.status, each.reason) for each in inputs] == [("done", "")]
    assert [(each.cause, each.url) for each in alone] == [("signal.segfault", str(bundle))] * 3
    both, _, _ = triage_here([bundle, log], tmp_path / "both")
    assert [(each.cause, each.url) for each in both] == [("signal.segfault", str(log))] * 3


@pytest.mark.slow
def test_all_deaths_in_a_file_of_records_are_rows(tmp_path):
    """However many there are; a truncated last line is said and costs no other."""
    path = tmp_path / "deaths.jsonl"
    lines = [json.dumps(each(n)) for n in range(1, 1001) for each in (scheduler_record, nanny_report)]
    path.write_text("\n".join([*lines, lines[-1][:50]]))
    deaths, (row,), _ = triage_here([path], tmp_path / "out")
    assert told(deaths) == {(worker_address(n), "signal.segfault", str(path)) for n in range(1, 1001)}
    assert (row.status, "truncated" in row.reason, len(deaths)) == ("failed", True, 1000)


def test_a_box_is_read_with_what_lies_beside_it(tmp_path):
    """Faulthandler's dump is no input of its own; a box of a worker that may run is a row without deaths."""
    path, pid = left_by_a_dead_process(tmp_path, dump=DUMP)
    live = BoxWriter.create(tmp_path, slots=2, worker="tcp://10.0.0.4:9")
    try:
        (death,), inputs, _ = triage_here([tmp_path], tmp_path.with_name("out"))
    finally:
        live.close(remove=True)
    assert (death.pid, death.signal, death.cause, death.url) == (pid, 11, "signal.segfault", str(path))
    assert sorted((each.status, each.url) for each in inputs) == [
        ("done", str(path)),
        ("empty", str(live.path)),
    ]
