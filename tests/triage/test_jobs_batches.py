"""Small jobs in batches: none is lost or repeated, and what one does harms no other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workerdiag.errors import TriageError
from workerdiag.triage.jobs import MAX_JOBS, Failed, cut_batches, run_batch


@given(st.lists(st.floats(0, 3), max_size=2000), st.integers(1, 16))
def test_each_job_is_in_one_batch(shares, threads):
    """All jobs come in their order; a batch is not empty, and not overfull unless one job fills it."""
    batches = list(cut_batches(shares, lambda share: share, lambda: threads))
    assert [share for batch in batches for share in batch] == shares
    assert all(len(batch) == 1 or (len(batch) <= MAX_JOBS and sum(batch) <= 1) for batch in batches)


def test_few_jobs_remain_in_work_whenever_it_is_interrupted():
    """What all threads do at any time is at most a twenty-fifth of the rest, as long as each has a job."""
    threads, left = 8, 10_000
    for batch in cut_batches(range(left), lambda _: 0.0, lambda: threads):
        assert len(batch) == 1 or len(batch) * threads * 25 <= left
        left -= len(batch)


def fail_for(number, problem):
    """A job that fails for one number."""
    if number == 2:
        raise problem
    return number


def test_an_error_costs_no_other_job():
    """The others have their results; the reason is worded for people."""
    assert run_batch([1, 2, 3], fail_for, OSError("gone")) == [1, Failed("OSError: gone"), 3]
    assert run_batch([1, 2, 3], fail_for, TriageError("cut", "wait")) == [1, Failed("cut"), 3]


def test_want_of_memory_is_no_job_s_fault():
    """The jobs that ran before may have taken it: each is tried again."""
    with pytest.raises(MemoryError):
        run_batch([1, 2, 3], fail_for, MemoryError())
