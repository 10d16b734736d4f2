"""Deaths are judged together and told by what they died of."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from support.death_records import NOW, decoded, nanny_report, scheduler_record
from support.watched_deaths import (
    EXIT,
    OOM,
    SEGFAULT,
    asked_to_stop,
    crashed,
    killed_by_nanny,
    left_by_code,
    recorded,
    vanished,
)
from workerdiag import incidents as judge_module
from workerdiag.incidents import WatchedDeath, judge, judge_standstill, watched_deaths
from workerdiag.model.diagnosis import Death
from workerdiag.model.evidence import Event, Inspected, LogChunk
from workerdiag.model.identity import Identity
from workerdiag.sources.cluster.state import ClusterState, state_events
from workerdiag.wire.recorded_death import merge_messages

#: Seconds that a judgement may take in tests; none comes near.
LONG_S = 120.0
DEATHS = (killed_by_nanny, crashed, left_by_code)
#: What the scheduler's state tells where tasks wait and there is no worker.
NO_WORKER = (
    *state_events(ClusterState(workers={}, counts={"states": {"queued": 3}}, now=NOW), silent=(), known={}),
    Inspected(place="worker states"),
    Inspected(place="task states"),
    Inspected(place="scheduler events"),
)


def causes(incidents):
    """The cause of each incident, with the ids of its deaths."""
    return [
        (each.diagnosis.top.id if each.diagnosis.top else None, [death.id for death in each.deaths])
        for each in incidents
    ]


def test_deaths_of_three_causes_are_three_incidents():
    """Each cause is one incident with its own diagnosis and key, the oldest first."""
    deaths = [DEATHS[number % 3](number) for number in range(1, 13)]
    incidents = judge(deaths, timeout_s=LONG_S)
    assert causes(incidents) == [
        (SEGFAULT, ["death-1", "death-4", "death-7", "death-10"]),
        (EXIT, ["death-2", "death-5", "death-8", "death-11"]),
        (OOM, ["death-3", "death-6", "death-9", "death-12"]),
    ]
    assert len({each.key for each in incidents}) == 3
    for each in incidents:
        assert (each.key, each.when) == (each.diagnosis.fingerprint, each.deaths[0].when)
        assert {death.cause for death in each.diagnosis.deaths} == {each.diagnosis.top.id}


def test_deaths_that_only_the_log_tells_of_do_not_count():
    """A nanny's log has the deaths of others; a diagnosis is about those that are judged."""
    others = [piece for number in range(2, 8) for piece in killed_by_nanny(number).evidence]
    death = crashed(1)
    (incident,) = judge([evolve(death, evidence=(*others, *death.evidence))], timeout_s=LONG_S)
    assert incident.diagnosis.top.id == SEGFAULT
    assert incident.key == judge([death], timeout_s=LONG_S)[0].key


def test_each_exit_in_a_log_is_that_of_one_death():
    """Nobody knows the processes of workers whose nannies share a log: alone, each could have the exit of another."""
    ends = (
        "exited with status 3",
        "was killed by signal 11",
        "exited with status 3",
        "was killed by signal 9",
    )
    stamp = f"{datetime.fromtimestamp(NOW, tz=UTC):%Y-%m-%d %H:%M:%S}"
    log = "".join(
        f"{stamp},{10 * number:03} - distributed.nanny - INFO - Worker process {70 + number} {how}\n"
        for number, how in enumerate(ends)
    ).encode()
    deaths = []
    for number in range(1, 5):
        worker = Identity(worker=f"tcp://10.0.0.4:{number}")
        fields = {"action": "remove-worker", "expected": False}
        when = NOW + 0.04 + 0.001 * number
        removal = Event(topic=worker.worker, fields=fields, when=when, identity=worker)
        evidence = (removal, LogChunk(origin="nanny log", data=log, stream="nanny"))
        deaths.append(WatchedDeath(id=f"death-{number}", when=when, identity=worker, evidence=evidence))
    counts = {cause: len(ids) for cause, ids in causes(judge(deaths, timeout_s=LONG_S))}
    assert counts == {EXIT: 2, SEGFAULT: 1, "external.sigkill": 1}


def test_the_key_does_not_depend_on_what_died_beside_it():
    """A death has the same key alone and among others."""
    alone = judge([crashed(2)], timeout_s=LONG_S)
    among = judge([killed_by_nanny(1), crashed(2), vanished(3)], timeout_s=LONG_S)
    assert alone[0].key in {each.key for each in among}


def test_what_follows_a_death_belongs_to_it():
    """A worker that dies seconds after another one had its task is of that cascade, whose first victim leads."""
    follower = vanished(4, task="load")
    assert causes(judge([follower, crashed(1)], timeout_s=LONG_S)) == [(SEGFAULT, ["death-1", "death-4"])]
    late = evolve(follower, when=NOW + 60)
    assert len(judge([crashed(1), late], timeout_s=LONG_S)) == 2
    other = vanished(4, task="another")
    assert len(judge([crashed(1), other], timeout_s=LONG_S)) == 2


@pytest.mark.parametrize(("probability", "count"), [(0.42, 1), (0.9, 2)])
def test_a_guess_does_not_part_a_death_from_its_cascade(probability, count, monkeypatch):
    """A follower with the same task, whose own cause is only guessed, belongs to the death before it."""

    def found(watched, deaths):
        causes = ((SEGFAULT, 0.9), (EXIT, probability))
        return [
            (each, evolve(death, cause=cause, probability=chance))
            for each, death, (cause, chance) in zip(watched, deaths[: len(watched)], causes, strict=True)
        ]

    monkeypatch.setattr(judge_module, "pair_deaths", found)
    assert len(judge([crashed(1), left_by_code(4)], timeout_s=LONG_S)) == count


def test_deliberate_stops_are_no_incident():
    """What the scheduler expected, or a nanny was asked for, is told to nobody."""
    expected = evolve(crashed(1), is_expected=True)
    assert judge([expected, asked_to_stop(2)], timeout_s=LONG_S) == []
    assert causes(judge([expected, asked_to_stop(2), crashed(3)], timeout_s=LONG_S)) == [(SEGFAULT, ["death-3"])]


@pytest.mark.parametrize(
    ("cause", "probability", "told"),
    [("exit.lifetime", 0.95, 0), ("exit.lifetime", 0.6, 1), ("exit.sigterm", 0.99, 1)],
)
def test_only_a_sure_and_deliberate_stop_is_silent(cause, probability, told, monkeypatch):
    """A stop that is only likely is told, and so is one that the platform asked for."""

    def found(watched, deaths):
        return [
            (each, evolve(death, cause=cause, probability=probability))
            for each, death in zip(watched, deaths[: len(watched)], strict=True)
        ]

    monkeypatch.setattr(judge_module, "pair_deaths", found)
    assert len(judge([crashed(1)], timeout_s=LONG_S)) == told


def test_a_death_of_which_nothing_is_known_is_an_incident():
    """Without any evidence it is still told that a worker died."""
    (incident,) = judge([evolve(crashed(1), evidence=())], timeout_s=LONG_S)
    assert (incident.diagnosis.outcome, len(incident.deaths)) == ("unknown", 1)
    assert incident.key


@pytest.mark.parametrize(("age_s", "causes_told"), [(0.5, ["external.sigkill"]), (4.5, [])])
def test_a_worker_killed_while_its_loop_ran_was_not_killed_by_its_nanny(age_s, causes_told):
    """Its nanny was asked as well, but kills only one that has not stopped for four seconds, which sends no heartbeat."""
    record = scheduler_record(1, last_heartbeat={"at": NOW, "age_s": age_s, "rss_bytes": 60})
    ending = {"signal": 9, "known_by": "nanny"}
    report = nanny_report(1, exit=ending, stop_requested="nanny-kill", nanny_status="closing", box=None)
    deaths = watched_deaths(merge_messages(map(decoded, [record, report])))
    assert [each.diagnosis.top.id for each in judge(deaths, timeout_s=LONG_S)] == causes_told


@pytest.mark.parametrize(
    ("ending", "is_unexplained"),
    [({"status": 255, "known_by": "nanny"}, True), (None, True), ({"signal": 9, "known_by": "nanny"}, False)],
)
def test_a_death_of_which_exit_and_cause_are_lost_is_marked(ending, is_unexplained):
    """A nanny that could not learn how its worker ended says 255, which tells nothing; a signal does."""
    report = [nanny_report(1, exit=ending, box=None)] if ending else []
    incidents = judge([crashed(2), recorded(1, scheduler_record(1), *report)], timeout_s=LONG_S)
    assert {each.id: incident.is_unexplained for incident in incidents for each in incident.deaths} == {
        "death-1": is_unexplained,
        "death-2": False,
    }


def test_a_failure_of_ours_is_an_incident_of_unknown_cause(monkeypatch):
    """Whatever goes wrong while deaths are judged, they are told."""

    def fail(*_args):
        raise RuntimeError("defect")

    monkeypatch.setattr(judge_module, "_groups", fail)
    (incident,) = judge([crashed(1), killed_by_nanny(2)], timeout_s=LONG_S)
    assert (incident.diagnosis.outcome, len(incident.deaths)) == ("unknown", 2)
    assert "RuntimeError: defect" in incident.diagnosis.summary
    assert incident.key


def test_no_time_is_no_reason_to_be_silent():
    """Also when there was no time left, each death is in some incident."""
    deaths = [DEATHS[number % 3](number) for number in range(1, 31)]
    incidents = judge(deaths, timeout_s=0.0)
    assert sorted(death.id for each in incidents for death in each.deaths) == sorted(each.id for each in deaths)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from([*DEATHS, vanished, asked_to_stop]), max_size=12), st.randoms())
def test_each_unexpected_death_is_told_once(makers, rng):
    """Whatever died and in whatever order it is given, each death is in one incident, and each key once."""
    deaths = [make(number) for number, make in enumerate(makers, start=1)]
    wanted = {each.id for each, make in zip(deaths, makers, strict=True) if make is not asked_to_stop}
    rng.shuffle(deaths)
    incidents = judge(deaths, timeout_s=LONG_S)
    told = [death.id for each in incidents for death in each.deaths]
    assert len(told) == len(set(told))
    assert set(told) == wanted
    assert len({each.key for each in incidents}) == len(incidents)


def test_a_standstill_is_an_incident_without_deaths():
    """Tasks wait and there is no worker: that is told although nothing died."""
    incident = judge_standstill(NO_WORKER, when=NOW, timeout_s=LONG_S)
    assert incident is not None
    assert (incident.diagnosis.top.id, incident.deaths, incident.when) == ("standstill.no-workers", (), NOW)


@pytest.mark.parametrize("evidence", [(), (Event(topic="versions", fields={"python": "3.12"}),)])
def test_where_work_goes_on_there_is_no_standstill(evidence):
    """Evidence that tells of no standstill is no incident."""
    assert judge_standstill(evidence, when=NOW, timeout_s=LONG_S) is None


def test_a_diagnosis_of_many_deaths_says_how_many():
    """It rests on the evidence of the first twenty, and does not tell them as all."""
    (incident,) = judge([crashed(number) for number in range(1, 61)], timeout_s=LONG_S)
    found = incident.diagnosis
    assert (len(incident.deaths), found.death_count, len(found.deaths)) == (60, 60, 20)
    assert "at least 20 of 60 worker processes" in found.summary


def test_finding_what_a_death_follows_takes_few_looks(monkeypatch):
    """Where all had the same task, not each is held against each."""
    looks = 0
    when = judge_module._when

    def counting(judged):
        nonlocal looks
        looks += 1
        return when(judged)

    monkeypatch.setattr(judge_module, "_when", counting)
    known = Death(identity=Identity(), assigned=("load",), cause=SEGFAULT, probability=0.9)
    unknown = evolve(known, cause=None)
    deaths = [
        (evolve(crashed(number), when=NOW + number / 100), (known, unknown)[number % 2]) for number in range(2000)
    ]
    (group,) = judge_module._groups(deaths)
    assert len(group) == 2000
    assert looks < 2000 * 20
