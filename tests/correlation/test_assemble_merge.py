"""Ends of nannies beside those of their workers: one death, or two."""

from __future__ import annotations

import pytest

from workerdiag.correlation.assemble import without_idle_nannies
from workerdiag.model.diagnosis import Match
from workerdiag.model.identity import Identity
from workerdiag.model.process_end import ProcessEnd

NANNY = "tcp://10.0.0.4:9001"
#: Its worker crashed, and the nanny started another one.
CRASHED = ProcessEnd(identity=Identity(nanny=NANNY, pid=7001), when=100.0, signal=11, lost=True)


def lost_nanny(**known):
    return ProcessEnd(identity=Identity(nanny=NANNY), when=900.0, lost=True, **known)


@pytest.mark.parametrize(
    "known",
    [
        {},
        {"marks": (Match(owner="nanny.self-closed", role="self-closed"),)},
        {
            "marks": (
                Match(owner="nanny.start-failed", role="self-closed"),
                Match(owner="x.lost", role="removal"),
            )
        },
        {"reason": "worker-handle-scheduler-connection-broken"},
    ],
)
def test_a_nanny_that_is_lost_without_a_word_is_a_death_of_its_own(known):
    """That a worker of it crashed before, and was replaced, does not account for it."""
    later = lost_nanny(**known)
    assert without_idle_nannies([CRASHED, later]) == [CRASHED, later]


@pytest.mark.parametrize(
    "known",
    [
        {"reason": "nanny-start-failed"},
        {"reason": "nanny-instantiate-failed"},
        {"marks": (Match(owner="nanny.start-failed", role="self-closed"),)},
    ],
)
def test_a_nanny_that_says_its_worker_did_not_start_is_none(known):
    """The end of that worker is told already."""
    assert without_idle_nannies([CRASHED, lost_nanny(**known)]) == [CRASHED]
