"""Many deaths, close together: each is told once, as what it was, and explained by its own evidence."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import workerdiag
from support.simulated_cluster import REQUESTED, WAYS, SimulatedCluster

#: Seconds since the last end, whose worker ends next, and how.
ENDS = st.lists(
    st.tuples(st.floats(0.1, 20.0), st.integers(0, 2), st.sampled_from(sorted(WAYS))), min_size=1, max_size=6
)
#: In a log that nannies share: those of which a nanny says something, and no two at the very same moment.
SHARED_ENDS = st.lists(
    st.tuples(st.floats(0.3, 20.0), st.integers(0, 2), st.sampled_from(sorted(WAYS.keys() - {"silent exit"}))),
    min_size=1,
    max_size=6,
)


def ended(ends, **more):
    """A cluster after these ends."""
    cluster, second = SimulatedCluster(**more), 4.0
    for apart_s, number, way in ends:
        second += apart_s
        cluster.end(cluster.nannies[number], second, way)
    return cluster


def are_apart(ends):
    """Whether no two processes end at the very same moment: one that is asked and then killed ends four seconds later."""
    starts = accumulate(apart_s for apart_s, _, _ in ends)
    times = sorted(start + 4.0 * (way == "code, slowly") for start, (_, _, way) in zip(starts, ends, strict=True))
    return all(later - earlier >= 0.3 for earlier, later in pairwise(times))


def findings_by_worker(logs):
    """What is said of each death: whose, whether it was asked for, signal and status, and its cause."""
    deaths = workerdiag.explain(logs=logs, timeout="60s").deaths
    return sorted(
        (str(each.identity.worker), each.stop_requested, each.signal, each.status, each.cause) for each in deaths
    )


def true(cluster):
    return sorted((worker, way in REQUESTED, *WAYS[way][1:], WAYS[way][0]) for worker, way in cluster.truth.items())


@pytest.mark.slow
@given(ENDS)
@settings(max_examples=60, deadline=None)
def test_each_death_is_told_as_what_it_was(ends):
    """Whoever dies beside it, and however soon after."""
    cluster = ended(ends)
    assert findings_by_worker(cluster.logs()) == true(cluster)


@pytest.mark.slow
@given(SHARED_ENDS)
@settings(max_examples=60, deadline=None)
def test_in_a_log_that_nannies_share_too(ends):
    """There a nanny's message has the pid alone."""
    assume(are_apart(ends))
    cluster = ended(ends)
    assert findings_by_worker(cluster.logs(shared=True)) == true(cluster)


@pytest.mark.slow
@pytest.mark.parametrize("skew_s", [-70.0, 2.0, 4.0, 30.0])
@given(ENDS)
@settings(max_examples=20, deadline=None)
def test_and_with_clocks_that_are_wrong(skew_s, ends):
    """Each machine's by another amount."""
    cluster = ended(ends, skew_s=skew_s)
    assert findings_by_worker(cluster.logs()) == true(cluster)
