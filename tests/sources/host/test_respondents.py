"""Which processes are asked about the machines of workers."""

from __future__ import annotations

from workerdiag.model.evidence import Event
from workerdiag.model.identity import identity_of
from workerdiag.model.scene import Victim
from workerdiag.sources.host.respondents import paused_respondents
from workerdiag.sources.scene import make_scene


def state(worker, status):
    """The state of a living worker, whose nanny is on the same machine."""
    identity = identity_of(worker=worker, nanny=worker.replace(":1", ":2"))
    return Event(topic="worker-state", fields={"status": status}, identity=identity)


def test_a_machine_of_paused_workers_is_asked_whoever_died_elsewhere():
    """Their disk may be full now; a death of before says nothing of it. One nanny speaks for its machine."""
    dead = Victim(identity=identity_of(worker="tcp://10.0.0.9:1"), when=1.0)
    pieces = [
        state("tcp://10.0.0.4:11", "paused"),
        state("tcp://10.0.0.4:12", "paused"),
        state("tcp://10.0.0.5:13", "running"),
    ]
    asked = paused_respondents(make_scene([dead], [], None, pieces))
    assert [each.place.identity.host for each in asked] == ["10.0.0.4"]
    assert not any(each.is_about_dead for each in asked)
