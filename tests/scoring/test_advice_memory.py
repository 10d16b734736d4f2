"""The numbers that mitigations use: what a worker used, what it was allowed, what it would have needed."""

from __future__ import annotations

import re

import pytest

from workerdiag.correlation.assemble import assemble
from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import ExceptionFacts, MemoryReading
from workerdiag.model.identity import Identity
from workerdiag.model.rules import MEMORY_PLACEHOLDERS
from workerdiag.rulebook.load import load_rulebook
from workerdiag.scoring.advice import memory_numbers, mitigations
from workerdiag.units import format_bytes, parse_bytes

ME = Identity(worker="tcp://10.0.0.4:4002", pid=7012)


def numbers(*evidence):
    return memory_numbers(assemble([], evidence), [])


def test_the_smallest_limit_is_the_one_that_is_felt():
    """Dask believed in 4 GB, the control group allowed 300 MB: that is what to raise."""
    dask = ExceptionFacts(type="KilledWorker", text="", identity=ME, limit_bytes=4 * 10**9)
    group = MemoryReading(identity=ME, rss_bytes=290 * 10**6, limit_bytes=300 * 10**6)

    assert numbers(dask, group).words["limit"] == format_bytes(300 * 10**6)
    assert numbers(group, dask).words["limit"] == format_bytes(300 * 10**6)


def test_a_reading_without_a_limit_changes_no_limit():
    """Not every group has one."""
    dask = ExceptionFacts(type="KilledWorker", text="", identity=ME, limit_bytes=4 * 10**9)

    assert numbers(dask, MemoryReading(identity=ME, rss_bytes=10**9)).words["limit"] == format_bytes(4 * 10**9)


def test_mitigations_may_use_these_numbers_and_no_others():
    """The linter goes by the names that the model has."""
    assert set(numbers(MemoryReading(identity=ME, rss_bytes=10**9)).words) == set(MEMORY_PLACEHOLDERS)


def test_what_was_seen_is_a_bound_and_never_enough():
    """Who was stopped at a limit wanted more: no number says how much, the one to try is beyond the bound."""
    found = numbers(MemoryReading(identity=ME, rss_bytes=390 * 2**20, limit_bytes=400 * 2**20))
    assert found.wanted_more_than_bytes == 400 * 2**20
    assert parse_bytes(found.words["needs_memory"]) > found.wanted_more_than_bytes


def test_a_limit_beyond_the_one_that_was_felt_is_worth_a_try():
    """The group's limit ended the worker, not the larger one that Dask believed in."""
    dask = ExceptionFacts(type="KilledWorker", text="", identity=ME, limit_bytes=4 * 10**9)
    group = MemoryReading(identity=ME, limit_bytes=2**30)
    assert numbers(dask, group).worth_a_try_bytes == 1.5 * 2**30
    assert numbers(MemoryReading(identity=ME, rss_bytes=2**30)).worth_a_try_bytes is None


def test_no_size_is_worth_a_try_that_another_worker_died_with():
    """Of workers of two sizes the larger one was too small as well."""
    other = Identity(worker="tcp://10.0.0.5:4002")
    sizes = [MemoryReading(identity=who, limit_bytes=size) for who, size in ((ME, 2**30), (other, 2**31))]
    assert numbers(*sizes).worth_a_try_bytes is None


def test_a_worker_ended_far_below_its_limit_was_not_ended_by_it():
    """The kernel killed it at a tenth of its limit: others filled the machine."""
    small = Match(owner="kernel.killed-process", role="exit", captures={"rss_kb": "100000"})
    incident = assemble([], [MemoryReading(identity=ME, limit_bytes=2**30)])
    assert memory_numbers(incident, [small]).worth_a_try_bytes is None


@pytest.mark.parametrize(
    ("rss_mib", "dask", "kubernetes"), [(390, "512 MiB", "640Mi"), (2 * 1024, "2.5 GiB", "3Gi")]
)
def test_a_pod_gets_more_than_dask_is_told_of(rss_mib, dask, kubernetes):
    """So that Dask acts before the kernel does; each as it is typed."""
    words = numbers(MemoryReading(identity=ME, rss_bytes=rss_mib * 2**20)).words
    assert (words["needs_memory"], words["pod_memory"]) == (dask, kubernetes)


def test_the_largest_number_wins_over_that_of_a_message():
    """A pause says what the worker held then; a sample shortly before the death is larger."""
    paused = Match(owner="worker.paused", role="pause", captures={"rss": "835 MiB"})
    sampled = MemoryReading(identity=ME, rss_bytes=968 * 2**20, limit_bytes=2**30)
    assert memory_numbers(assemble([], [sampled]), [paused]).words["rss"] == "968 MiB"


def test_a_share_that_a_nanny_saw_exceeded_is_a_number():
    """The worker held 95% of its limit when it was ended, more than when it was paused."""
    paused = Match(owner="worker.paused", role="pause", captures={"rss": "400 MiB", "limit": "500 MiB"})
    exceeded = Match(owner="nanny.memory-budget", role="trouble", captures={"percent": "95"})
    assert memory_numbers(assemble([], []), [paused, exceeded]).words["rss"] == "475 MiB"


def test_the_number_to_try_leaves_room_for_dask_itself():
    """A limit below what Python with Dask takes is not answered by half as much again."""
    found = numbers(MemoryReading(identity=ME, rss_bytes=50 * 2**20, limit_bytes=30 * 10**6))
    assert parse_bytes(found.words["needs_memory"]) >= 256 * 2**20


@pytest.mark.parametrize("limit", [100 * 10**6, 409 * 2**20, 2**30, 3 * 2**30, 11 * 2**30, 50 * 10**9, 2**38])
def test_the_number_to_try_is_one_that_people_type(limit):
    """640 MiB or 1.5 GiB, never 614.40 MiB, and rounded up."""
    found = numbers(MemoryReading(identity=ME, limit_bytes=limit))
    assert re.fullmatch(r"\d{1,3} MiB|\d{1,3}(\.5)? GiB", found.words["needs_memory"])
    assert parse_bytes(found.words["needs_memory"]) >= 1.5 * limit


def test_growth_is_told_from_readings_of_one_process():
    """Two workers of different size are no growth; one that holds more a second later is."""
    other = Identity(worker="tcp://10.0.0.4:4003", pid=7013)
    first = MemoryReading(identity=ME, rss_bytes=100 * 2**20, when=1000.0)
    later = MemoryReading(identity=ME, rss_bytes=340 * 2**20, when=1002.0)
    beside = MemoryReading(identity=other, rss_bytes=900 * 2**20, when=1001.0)
    assert numbers(first, beside).words["growth"] == ""
    assert numbers(first, beside, later).words["growth"] == "120 MiB per second"


def test_advice_on_adaptive_scaling_needs_adaptive_scaling():
    """A mitigation that is for some signs of its cause is left out where none of them shows."""
    cause = load_rulebook().cause("exit.scheduler-retired")
    none = numbers()

    def advised(sign):
        seen = Match(owner=cause.id, sign=sign, role="sign")
        return " ".join(each.do for each in mitigations(cause, none, [seen]))

    assert "daptive" not in advised("retired-worker")
    assert "Make adaptive scaling less eager." in advised("cluster-is-adaptive")
