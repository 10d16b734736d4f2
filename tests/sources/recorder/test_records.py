"""What was recorded of deaths is understood where it outlived scheduler and worker: in files and on volumes."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path

import fsspec
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import workerdiag
from support.dead_boxes import DUMP, left_by_a_dead_process
from support.death_records import NOW, decoded, found_report, nanny_report, scheduler_record, worker_address
from workerdiag.cli import main
from workerdiag.model.evidence import Event, ExceptionFacts, Gap, LogChunk, ProcessExit, TasksAtLoss
from workerdiag.model.identity import Identity
from workerdiag.recorder.box.writer import BoxWriter
from workerdiag.recorder.delivery import death_message
from workerdiag.recorder.journal import Journal
from workerdiag.sources.logs.inputs import resolve_logs
from workerdiag.sources.logs.source import LogSource
from workerdiag.sources.recorder.death_evidence import death_evidence
from workerdiag.wire.recorded_death import RecordedDeath

HOUR = 3600.0
DEATH = RecordedDeath(record=decoded(scheduler_record()), report=decoded(nanny_report()))


def no_failure(part, why):
    """Takes what a journal lacks."""
    pytest.fail(f"{part}: {why}")


def found(**box):
    """What the finder of a black box tells, of a worker that nobody saw die."""
    said = found_report()
    return {**said, "box": {**said["box"], "faulthandler_dump": "", **box}}


def written(path, *messages):
    """A file of records, as the scheduler appends them."""
    path.write_text("".join(f"{json.dumps(each)}\n" for each in messages), encoding="utf-8")
    return path


def read(*inputs, facts=(), budget_s=10.0):
    return list(LogSource(inputs, unbox=death_message, facts=facts).collect(budget_s=budget_s))


def of_kind(kind, evidence):
    return [each for each in evidence if isinstance(each, kind)]


def dead(evidence):
    """Whose deaths are told of, in order."""
    return [each.identity.worker for each in of_kind(Event, evidence) if each.topic == "recorder"]


def test_records_in_a_file_tell_what_a_live_scheduler_would(tmp_path):
    """The evidence is that of `RecorderSource`, piece by piece."""
    path = written(tmp_path / "deaths.jsonl", scheduler_record(), nanny_report())
    assert read(path) == list(death_evidence([DEATH]))


def test_what_the_appender_writes_is_found_wherever_it_wrote(tmp_path):
    """A file, the one that was put aside, and the objects below a URL, in which record and message lie apart."""
    for target in (str(tmp_path / "local" / "deaths.jsonl"), "memory://deaths-of-wd"):
        for message in (scheduler_record(), nanny_report()):
            appender = Journal(target, no_failure)
            appender.put(message)
            appender.close()
    (tmp_path / "local" / "deaths.jsonl").rename(tmp_path / "local" / "deaths.jsonl.1")
    expected = list(death_evidence([DEATH]))
    assert read(tmp_path / "local") == expected
    assert read("memory://deaths-of-wd") == expected
    fsspec.filesystem("memory").rm("/deaths-of-wd", recursive=True)


def test_of_many_batches_the_newest_are_read_first(tmp_path, monkeypatch):
    """Whichever process of whichever host wrote them: time may not do for all."""
    clock = iter([NOW, NOW + 60, NOW + 30])
    for number in range(3):
        monkeypatch.setattr("workerdiag.recorder.journal.time.time", lambda: next(clock))
        appender = Journal(f"file://{tmp_path}/deaths", no_failure)
        monkeypatch.undo()
        appender.put(scheduler_record(number))
        appender.close()
    origins = [each.origin for each in resolve_logs(str(tmp_path / "deaths"), 1)]
    assert [json.loads(Path(each).read_text())["pid"] for each in origins] == [1, 2, 0]


def test_a_command_and_a_call_explain_a_file_of_records(tmp_path):
    """Both name the segmentation fault, and the task that ran."""
    path = written(tmp_path / "deaths.jsonl", scheduler_record(), nanny_report())
    diagnosis = workerdiag.explain(logs=str(path))
    assert (diagnosis.top.id, diagnosis.deaths[0].executing) == ("signal.segfault", ("load",))
    ran = CliRunner().invoke(main, ["explain", str(path), "--format", "json"])
    assert (ran.exit_code, json.loads(ran.stdout)["causes"][0]["id"]) == (0, "signal.segfault")


def test_packed_records_are_unpacked(tmp_path):
    """As logs are, and whatever the file is called."""
    path = tmp_path / "kept"
    path.write_bytes(gzip.compress(json.dumps(nanny_report()).encode()))
    assert dead(read(path)) == [worker_address(1)]


def test_lines_that_cannot_be_used_are_named_and_the_rest_is_used(tmp_path):
    """Garbage, another schema, a line too long, and a last one that was cut off."""
    good = [json.dumps(scheduler_record()), json.dumps(nanny_report())]
    bad = ["{{{", json.dumps({"schema": 2, "kind": "nanny-report"}), '{"a": "' + "x" * 2**21, good[1][:-40]]
    path = tmp_path / "deaths.jsonl"
    path.write_text("\n".join([good[0], *bad[:3], good[1], bad[3]]))
    evidence = read(path)
    (gap,) = of_kind(Gap, evidence)
    assert dead(evidence) == [worker_address(1)]
    assert of_kind(ProcessExit, evidence)
    assert gap.reason == "malformed"
    assert "4 lines" in gap.detail
    assert "lines 2, 6: not JSON, or truncated" in gap.detail
    assert "line 3: of an unknown schema (2)" in gap.detail
    assert "line 4: too long" in gap.detail


def test_a_first_line_that_is_cut_off_does_not_hide_the_rest(tmp_path):
    """A file whose beginning was lost in its first record still holds records."""
    path = tmp_path / "deaths.jsonl"
    path.write_text(f"{json.dumps(scheduler_record(3))[:200]}\n{json.dumps(nanny_report())}\n")
    assert dead(read(path)) == [worker_address(1)]


def test_other_files_of_json_stay_logs(tmp_path):
    """Lines of a container's log are no records."""
    path = tmp_path / "pod.log"
    path.write_text('{"log": "distributed.nanny - INFO - x", "stream": "stderr"}\n')
    assert [each.origin for each in of_kind(LogChunk, read(path))] == [str(path)]


def test_without_an_exception_it_is_the_last_death_and_those_shortly_before(tmp_path):
    """By the newest record and not by today; the workers that were told to go afterwards are no deaths."""
    path = written(
        tmp_path / "deaths.jsonl",
        scheduler_record(1, noticed_at=NOW - 2 * HOUR),
        scheduler_record(2, noticed_at=NOW - 600),
        scheduler_record(3, noticed_at=NOW),
        *(scheduler_record(number, noticed_at=NOW + 2 * HOUR, is_expected=True) for number in range(4, 9)),
        scheduler_record(9, noticed_at=NOW + 2 * HOUR, close_reason="nanny-close"),
        scheduler_record(10, noticed_at=NOW + 2 * HOUR),
        nanny_report(10, noticed_at=NOW + 2 * HOUR, stop_requested="nanny-kill"),
    )
    assert dead(read(path)) == [worker_address(2), worker_address(3)]


def test_where_all_were_told_to_go_that_is_said(tmp_path):
    """A file of scale-downs is not a file without workers."""
    path = written(
        tmp_path / "deaths.jsonl",
        scheduler_record(1, is_expected=True),
        scheduler_record(2, is_expected=True),
    )
    diagnosis = workerdiag.explain(logs=path)
    assert [each.stop_requested for each in diagnosis.deaths] == [True, True]
    assert diagnosis.top.id == "exit.scheduler-retired"


@pytest.mark.parametrize(
    "facts",
    [
        ExceptionFacts(type="KilledWorker", text="", identity=Identity(worker=worker_address(1))),
        ExceptionFacts(type="KilledWorker", text="", task="sum-1"),
    ],
    ids=["worker", "task"],
)
def test_an_exception_selects_the_deaths_in_question(tmp_path, facts):
    """Its worker and its task; what came long before or after them is of other deaths."""
    path = written(
        tmp_path / "deaths.jsonl",
        scheduler_record(0, noticed_at=NOW - 48 * HOUR, assigned_keys=["sum-1"]),
        scheduler_record(1, noticed_at=NOW - 2 * HOUR, assigned_keys=["sum-1"]),
        scheduler_record(2, noticed_at=NOW - 2 * HOUR - 60),
        scheduler_record(3, noticed_at=NOW),
    )
    assert dead(read(path, facts=[facts])) == [worker_address(2), worker_address(1)]


def test_records_of_other_workers_are_not_put_on_the_one_in_question(tmp_path):
    """That they do not tell of it is a gap."""
    path = written(tmp_path / "deaths.jsonl", scheduler_record(1), nanny_report(1))
    facts = ExceptionFacts(type="KilledWorker", text="", identity=Identity(worker="tcp://10.9.9.9:1"))
    (gap,) = read(path, facts=[facts])
    assert (gap.reason, "tcp://10.9.9.9:1" in gap.detail) == ("never-recorded", True)


def test_what_is_told_twice_is_one_death(tmp_path):
    """The finder of a box, and the nanny, which knows the exit status and counts, in whatever order."""
    for messages in (
        (found(), nanny_report(), scheduler_record()),
        (nanny_report(), scheduler_record(), found()),
    ):
        evidence = read(written(tmp_path / "deaths.jsonl", *messages))
        assert (dead(evidence), [each.signal for each in of_kind(ProcessExit, evidence)]) == (
            [worker_address(1)],
            [11],
        )


def test_a_box_that_ended_in_mid_work_looks_like_a_kill(tmp_path):
    """That is a guess, and where to look next is where a kill would have been noted."""
    diagnosis = workerdiag.explain(logs=written(tmp_path / "deaths.jsonl", found()))
    assert (diagnosis.outcome, diagnosis.top.id) == ("unknown", "external.sigkill")
    assert "kernel log" in diagnosis.next_steps[0].inspect


@pytest.mark.parametrize(
    "box",
    [
        {"stage": "closing", "close_reason": "worker-close"},
        {"faulthandler_dump": "Fatal Python error: Segmentation fault\n"},
        {"identity": {"missing": "last-output fatal-signals"}},
    ],
)
def test_a_box_of_a_worker_that_may_have_had_a_last_word_is_no_sign_of_a_kill(tmp_path, box):
    """It was closing, or crashed, or its dump went elsewhere."""
    (event,) = [
        each
        for each in of_kind(Event, read(written(tmp_path / "deaths.jsonl", found(**box))))
        if each.topic == "recorder" and "reported_by" in each.fields
    ]
    assert "ended_suddenly" not in event.fields


@pytest.mark.slow
def test_many_records_take_bounded_memory_and_the_newest_are_told(tmp_path):
    """More than there is room for: the last deaths are told of, and that others were let go of."""
    path = tmp_path / "deaths.jsonl"
    with path.open("w") as file:
        for number in range(2_000):
            file.write(json.dumps(nanny_report(number, stderr={"text": "x" * 20_000})) + "\n")
    tracemalloc.start()
    evidence = read(path, budget_s=60)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 * 2**20
    assert dead(evidence)[-1] == worker_address(1999)
    assert len(dead(evidence)) == 32
    assert any("records were dropped" in gap.detail for gap in of_kind(Gap, evidence))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
_FIELDS = st.sampled_from(
    sorted(
        {
            *scheduler_record(),
            *nanny_report(),
            "cgroup",
            "last_heartbeat",
            "given_up",
            "status_changes",
            "stderr",
        }
    )
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.dictionaries(_FIELDS, _JSON, max_size=4)), max_size=4))
def test_hostile_records_are_never_an_error(tmp_path_factory, parts):
    """Whatever stands where in a record, there is evidence or a gap, and a report that can be printed."""
    keep = ("schema", "kind")
    messages = [
        {
            **(nanny_report() if by_nanny else scheduler_record()),
            **{k: v for k, v in more.items() if k not in keep},
        }
        for by_nanny, more in parts
    ]
    path = written(tmp_path_factory.mktemp("records") / "deaths.jsonl", scheduler_record(), *messages)
    diagnosis = workerdiag.explain(logs=path)
    assert "workerdiag itself failed" not in diagnosis.summary
    str(diagnosis).encode()


# ------------------------------------------------------------------------------------ black boxes


def with_signal(message, number):
    return {**message, "exit": {"signal": number}}


@pytest.mark.parametrize("named", [lambda path: path, lambda path: path.parent], ids=["file", "folder"])
def test_a_box_on_a_volume_tells_of_its_worker_s_death(tmp_path, named):
    """Who died, what ran on which thread, the last words; that nobody was told how it ended."""
    path, pid = left_by_a_dead_process(tmp_path)
    evidence = read(named(path))
    (exit_,) = of_kind(ProcessExit, evidence)
    assert (exit_.identity.worker, exit_.identity.pid) == ("tcp://10.0.0.4:1", pid)
    assert (exit_.signal, exit_.status) == (None, None)
    assert [(each.tasks, each.exact) for each in of_kind(TasksAtLoss, evidence)] == [(("nap",), True)]
    assert [each.data for each in of_kind(LogChunk, evidence)] == [b"the last words\n"]


def test_a_command_explains_a_folder_of_boxes(tmp_path):
    """The dump beside the box is read: it names the signal and the thread."""
    left_by_a_dead_process(tmp_path, dump=DUMP)
    ran = CliRunner().invoke(main, ["explain", str(tmp_path), "--format", "json"])
    said = json.loads(ran.stdout)
    assert (ran.exit_code, said["causes"][0]["id"]) == (0, "signal.segfault")
    assert (said["deaths"][0]["signal"], said["deaths"][0]["executing"]) == (11, ["nap"])


def test_a_death_that_nobody_saw_is_not_no_death(tmp_path):
    """A killed worker without a nanny died, though its box cannot say why."""
    path, pid = left_by_a_dead_process(tmp_path)
    diagnosis = workerdiag.explain(logs=path)
    assert [each.identity.pid for each in diagnosis.deaths] == [pid]
    assert diagnosis.outcome != "no-death"


def test_a_worker_that_was_told_to_go_is_no_death(tmp_path):
    """Its box says who asked it to."""
    path, _ = left_by_a_dead_process(tmp_path, stage="closed: worker-lifetime-reached")
    assert workerdiag.explain(logs=path).outcome == "no-death"


def test_the_box_of_a_living_worker_is_no_death(tmp_path):
    """It is said to be in use."""
    box = BoxWriter.create(tmp_path, slots=2, worker="tcp://10.0.0.4:1")
    try:
        (gap,) = read(tmp_path)
    finally:
        box.close(remove=True)
    assert (gap.source, gap.reason) == ("black boxes", "never-recorded")


def test_what_the_nanny_meant_to_tell_is_read_with_the_box(tmp_path):
    """It knows the exit status; both are one death."""
    path, pid = left_by_a_dead_process(tmp_path)
    message = nanny_report(
        pid=pid,
        worker_address="tcp://10.0.0.4:1",
        nanny_address="tcp://10.0.0.4:2",
        noticed_at=path.stat().st_mtime,
    )
    written(path.with_name(path.name + ".death"), with_signal(message, 9))
    for given_ in (path, tmp_path):
        assert [(each.signal, each.identity.pid) for each in of_kind(ProcessExit, read(given_))] == [(9, pid)]


def test_a_copied_box_that_was_written_lately_may_be_in_use(tmp_path):
    """Packed, its lock cannot be asked: it is of the dead after ten minutes, or if it says so itself."""
    path, _ = left_by_a_dead_process(tmp_path)
    packed = tmp_path / "copy"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert [each.source for each in read(packed)] == ["black boxes"]


def test_a_damaged_box_is_a_gap(tmp_path):
    """It is named, with what is wrong."""
    path, _ = left_by_a_dead_process(tmp_path)
    path.write_bytes(path.read_bytes()[:20])
    (gap,) = read(path)
    assert (gap.source, gap.reason) == (str(path), "malformed")
