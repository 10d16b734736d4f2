"""
The numbers that mitigations use: what a worker used, what it was allowed, what it would have needed.
"""

from __future__ import annotations

from workerdiag.model.evidence import ExceptionFacts, Identity, MemoryReading
from workerdiag.model.rules import MEMORY_WORDS
from workerdiag.reasoning.incident import assemble
from workerdiag.reasoning.limits import numbers_of

ME = Identity(worker="tcp://10.0.0.4:4002", pid=7012)


def numbers(*evidence):
    return numbers_of(assemble([], evidence), [])


def test_the_smallest_limit_is_the_one_that_is_felt():
    """
    Dask believed in 4 GB, the control group allowed 300 MB: that is what to raise.
    """
    dask = ExceptionFacts(type="KilledWorker", text="", whose=ME, limit_bytes=4 * 10**9)
    group = MemoryReading(whose=ME, rss_bytes=290 * 10**6, limit_bytes=300 * 10**6)

    assert numbers(dask, group).limit_bytes == 300 * 10**6
    assert numbers(group, dask).limit_bytes == 300 * 10**6


def test_a_reading_without_a_limit_changes_no_limit():
    """
    Not every group has one.
    """
    dask = ExceptionFacts(type="KilledWorker", text="", whose=ME, limit_bytes=4 * 10**9)

    assert numbers(dask, MemoryReading(whose=ME, rss_bytes=10**9)).limit_bytes == 4 * 10**9


def test_mitigations_may_use_these_numbers_and_no_others():
    """
    The linter goes by the names that the model has.
    """
    assert set(numbers(MemoryReading(whose=ME, rss_bytes=10**9)).words) == set(MEMORY_WORDS)
