"""The key by which repeats of one trouble are known."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.death_records import (
    NANNY,
    NOW,
    decoded,
    nanny_report,
    scheduler_record,
    worker_address,
)
from support.findings import dead, nanny_kill
from support.thinned_evidence import findings_of, has_key_of, without_lines
from workerdiag.authoring.rule_tests import evidence_of, read_incidents
from workerdiag.model.evidence import LogChunk, ProcessExit
from workerdiag.model.identity import Identity
from workerdiag.scoring.findings import exit_class, fingerprint, kind_of_task
from workerdiag.sources.recorder.death_evidence import death_evidence
from workerdiag.wire.recorded_death import merge_messages

INCIDENTS = {each.name: each for each in read_incidents(Path(__file__).parents[1] / "cases")}
SURE, UNSURE = nanny_kill(probability=0.97), nanny_kill(probability=0.31)


def elsewhere(**changes):
    """A death like `dead`, on another host, of another process, on another day."""
    identity = Identity(worker="tcp://10.9.9.9:1", pid=7, host="other")
    return dead(identity=identity, when=1.0, rss_bytes=7, **changes)


def test_a_sure_cause_is_the_whole_key():
    """Neither the exits nor the task that happen to be known change the key of a cause."""
    known = fingerprint("explained", [SURE], [dead()], "load-1")
    assert fingerprint("explained", [SURE], [], None) == known
    assert fingerprint("explained", [nanny_kill(probability=0.5)], [elsewhere(status=1)], "sum-2") == known


def test_two_causes_have_two_keys():
    """Different troubles are told apart."""
    assert fingerprint("explained", [nanny_kill(id="signal.segfault")], [], None) != fingerprint(
        "explained", [SURE], [], None
    )


def test_an_unknown_trouble_is_known_by_its_kind_of_exit_and_task():
    """The same task that dies the same way elsewhere is the same trouble; another kind of end or task is not."""
    known = fingerprint("unknown", [UNSURE], [dead()], "load-1234567890ab")
    assert fingerprint("unknown", [], [elsewhere(), dead()], "load-abcdef012345") == known
    assert fingerprint("unknown", [], [dead(signal=11)], "load-abcdef012345") != known
    assert fingerprint("unknown", [], [dead()], "sum-abcdef012345") != known
    assert fingerprint("no-evidence", [], [dead()], "load-1") != known


@pytest.mark.parametrize(
    ("signal", "status", "expected"),
    [
        (11, None, "crashed"),
        (None, 134, "crashed"),
        (9, None, "killed"),
        (None, 137, "killed"),
        (15, None, "terminated"),
        (None, 1, "exited"),
        (None, 0, "exited"),
        (None, 255, "exited"),
        (None, None, "unknown"),
    ],
)
def test_exits_have_classes(signal, status, expected):
    """A signal and the status by which a shell or container tells it are one class."""
    assert exit_class([dead(signal=signal, status=status)]) == expected


def test_an_end_on_request_is_no_class():
    """Workers that left as asked do not change the key of a trouble."""
    assert exit_class([dead(stop_requested=True, signal=15), dead(signal=11)]) == "crashed"


@pytest.mark.parametrize("key", ["load-0a1b2c3d", "('load-0a1b2c3d', 4)", '["load-0a1b2c3d"', "load-17"])
def test_keys_of_one_function_are_one_kind(key):
    """The running parts of keys do not count."""
    assert kind_of_task(key) == "load"


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(INCIDENTS))
@settings(max_examples=10)
@given(data=st.data())
def test_thinner_evidence_keeps_the_key_while_the_cause_stays(name, data):
    """Whichever lines and logs are lost of a recorded incident, its key stays as long as its cause is told."""
    share = data.draw(st.sampled_from([2, 3, 8]))
    offset = data.draw(st.integers(0, share - 1))
    evidence = list(evidence_of(INCIDENTS[name].logs))
    lost = data.draw(st.sets(st.integers(0, len(evidence) - 1)))
    left = [without_lines(each, share, offset) for number, each in enumerate(evidence) if number not in lost]
    assert has_key_of(findings_of(left), findings_of(evidence))


def ways_to_know(exit_, *nanny_log, dump="", **report):
    """Each tells a death of worker 1: a nanny's log, the recorder's messages, an exit line and the records as read."""
    box = {"stage": "running", "written_at": NOW + 1, "samples": (), "faulthandler_dump": dump}
    told = nanny_report(1, **{"exit": {**exit_, "known_by": "nanny"}, "box": box, **report})
    removal = scheduler_record(1)
    victim = Identity(worker=worker_address(1), pid=1, nanny=NANNY, host="10.0.0.4")
    text = "".join(f"2026-11-21 10:11:44,000 - distributed.nanny - {line}\n" for line in nanny_log)
    log = LogChunk(origin="nanny log", data=text.encode(), stream="nanny", identity=victim)
    return {
        "nanny log": [log],
        "report": _recorded(told),
        "both messages": _recorded(removal, told),
        "exit": [] if report else [ProcessExit(identity=victim, when=NOW + 1, reporter="nanny", **exit_)],
    }


def _recorded(*messages):
    return list(death_evidence([merge_messages(map(decoded, messages))[0]]))


TROUBLES = {
    "signal.segfault": ways_to_know(
        {"signal": 11},
        "INFO - Worker process 1 was killed by signal 11",
        dump="Fatal Python error: Segmentation fault\n",
    ),
    "code.process-exit": ways_to_know({"status": 3}, "INFO - Worker process 1 exited with status 3"),
    "nanny.memory-terminate": ways_to_know(
        {"signal": 15},
        f"WARNING - Worker {worker_address(1)} (pid=1) exceeded 95% memory budget. Restarting...",
        "INFO - Worker process 1 was killed by signal 15",
        is_memory_terminated=True,
        terminate_fraction=0.95,
    ),
}


@settings(max_examples=40)
@given(st.data())
def test_a_trouble_has_one_key_whichever_of_its_sources_is_at_hand(data):
    """Exit lines, nanny logs and the recorder's messages, each alone or with others, and the removal beside them."""
    cause = data.draw(st.sampled_from(sorted(TROUBLES)))
    ways = TROUBLES[cause]
    telling = sorted(name for name, pieces in ways.items() if pieces)
    at_hand = data.draw(st.lists(st.sampled_from(telling), min_size=1, unique=True))
    evidence = [piece for name in at_hand for piece in ways[name]]
    evidence += _recorded(scheduler_record(1)) if data.draw(st.booleans()) else []
    found = findings_of(evidence)
    assert (found.top.id, found.fingerprint) == (cause, fingerprint("explained", [found.top], [], None))
    assert found.top.probability >= 0.5


#: What a scheduler or a nanny may not know, or an older one does not send.
MAY_LACK = {
    scheduler_record: ("pid", "nanny_address", "last_heartbeat", "executing_at_heartbeat", "assigned_keys"),
    nanny_report: ("exit", "running_tasks", "box", "pid", "worker_address"),
}


@settings(max_examples=60)
@given(st.data())
def test_a_recorder_that_knows_less_tells_the_same_key(data):
    """Whichever fields the messages of scheduler and nanny lack, the key stays as long as the cause is told."""
    ends = [{"exit": {"signal": 11, "known_by": "nanny"}}, {"exit": {"status": 3, "known_by": "nanny"}}]
    end = data.draw(st.sampled_from(ends))
    whole = _recorded(scheduler_record(1), nanny_report(1, **end))
    messages = []
    for make, fields in MAY_LACK.items():
        message = make(1, **(end if make is nanny_report else {}))
        for each in data.draw(st.sets(st.sampled_from(fields))):
            del message[each]
        messages.append(message)
    left = data.draw(st.sampled_from([messages, messages[:1], messages[1:]]))
    assert has_key_of(findings_of(_recorded(*left)), findings_of(whole))
