"""Messages as plain data: they come back as they were, and of what anybody may have written the good parts count."""

from __future__ import annotations

import json

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from support.death_records import decoded, found_report, nanny_report, scheduler_record
from workerdiag.wire.black_box import BlackBox, Sample, UnreadablePart
from workerdiag.wire.messages import (
    CgroupCounters,
    DeathReport,
    ExitReport,
    Heartbeat,
    RecorderState,
    RemovalRecord,
    StderrTail,
    decode_message,
    encode_message,
)
from workerdiag.wire.plain import BrokenValueError, from_plain, to_plain

MESSAGES = [
    decoded(scheduler_record(given_up=({"key": "load", "suspicious_count": 4},))),
    decoded(nanny_report(cgroup={"path": "/", "version": 2}, stderr={"text": "x"})),
    decoded(found_report(is_nanny_running=False)),
    DeathReport(
        kind="nanny-report",
        exit=ExitReport(status=255, known_by="unreadable-code"),
        cgroup=CgroupCounters(oom_kills_before=0),
        stderr=StderrTail(text=""),
        box=BlackBox(
            identity={"missing": "fatal-signals"},
            stage="closed",
            unreadable_parts=(UnreadablePart(region="lags", unreadable_count=1, cell_count=64),),
        ),
    ),
    RemovalRecord(last_heartbeat=Heartbeat(at=1.5)),
    RecorderState(is_recording=False),
]


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_comes_back_as_it_was(message):
    """By JSON, and by msgpack, which makes tuples of lists; with the number of its shape."""
    plain = encode_message(message)
    dropped = []
    assert plain["schema"] == 1
    assert decode_message(json.loads(json.dumps(plain)), dropped) == message
    assert decode_message(_with_tuples(plain), dropped) == message
    assert dropped == []


def _with_tuples(value):
    if isinstance(value, dict):
        return {name: _with_tuples(each) for name, each in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value


def test_what_is_not_known_is_left_out():
    """A message has no key without a value."""
    assert encode_message(DeathReport(kind="box-found", pid=7)) == {
        "schema": 1,
        "kind": "box-found",
        "pid": 7,
        "is_memory_terminated": False,
        "is_late": False,
    }


@pytest.mark.parametrize(
    ("changes", "dropped"),
    [
        ({"colour": "red"}, ["colour"]),
        ({"pid": "7"}, ["pid"]),
        ({"pid": True}, ["pid"]),
        ({"pid": -1}, ["pid"]),
        ({"pid": 2**70}, ["pid"]),
        ({"noticed_at": float("nan")}, ["noticed_at"]),
        ({"noticed_at": 1e300}, ["noticed_at"]),
        ({"worker_address": b"x"}, ["worker_address"]),
        ({"is_late": 1}, ["is_late"]),
        ({"exit": {"signal": 9, "known_by": "hearsay"}}, ["exit.known_by"]),
        ({"exit": 9}, ["exit"]),
        ({"stderr": {"is_shared": True}}, ["stderr"]),
        ({"running_tasks": [{"key": "a"}, {"slot": 1}, 3]}, ["running_tasks[1]", "running_tasks[2]"]),
        ({"box": {"samples": [{"at": 1.0, "open_files": "x"}]}}, ["box.samples[0].open_files"]),
        ({"box": {"identity": {"pid": 7, "worker": "w"}}}, ["box.identity.pid"]),
    ],
)
def test_a_field_that_is_not_understood_is_dropped_and_named(changes, dropped):
    """The rest of the message counts."""
    named = []
    report = decode_message({**nanny_report(), **changes}, named)
    assert named == dropped
    assert report.nanny_address == nanny_report()["nanny_address"]


def test_a_whole_number_may_come_as_a_float():
    """Other programs write JSON, too."""
    assert from_plain(Sample, {"at": 5, "open_files": 3.0}, []) == Sample(at=5.0, open_files=3)


@pytest.mark.parametrize(
    "plain",
    [None, 3, "x", [], {}, {"kind": []}, {"kind": "gossip"}, {"schema": 2, "kind": "removal"}],
)
def test_what_is_no_message_is_none(plain):
    """Anybody may write into the topic."""
    assert decode_message(plain) is None


def test_an_object_without_a_field_that_it_needs_is_refused():
    """Whoever holds it drops it."""
    with pytest.raises(BrokenValueError):
        from_plain(StderrTail, {}, [])


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.binary(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
_NAMES = st.sampled_from(sorted({*scheduler_record(), *nanny_report(), "stderr", "cgroup", "is_late"}))


@given(st.sampled_from(["removal", "nanny-report", "box-found"]), st.dictionaries(_NAMES, _JSON))
def test_any_plain_data_gives_a_message_that_comes_back(kind, fields):
    """Whatever stands in its fields; what was understood is written as it is read."""
    message = decode_message({**fields, "schema": 1, "kind": kind}, [])
    assert message.kind == kind
    assert decode_message(encode_message(message)) == message


def test_every_field_has_a_type_that_can_be_read():
    """A class with a field of another type is an error of whoever writes it, not of who reads."""

    @frozen
    class Strange:
        value: complex

    with pytest.raises(TypeError, match="complex"):
        from_plain(Strange, {"value": 3}, [])
    assert to_plain(Sample(at=1.0)) == {"at": 1.0}
