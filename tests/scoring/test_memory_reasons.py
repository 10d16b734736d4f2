"""The rules of reasons: what ended the worker does not matter, and log text gives what it is worth, no more."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from attrs import evolve

from workerdiag import pipeline
from workerdiag.authoring.rule_tests import reason_problems
from workerdiag.matching.scan import Matcher
from workerdiag.model.evidence import Event, LogChunk
from workerdiag.model.incident import Incident
from workerdiag.model.vocabulary import MemoryFact, MemoryReason
from workerdiag.rulebook.load import load_rulebook
from workerdiag.scoring.advice import MemoryNumbers
from workerdiag.scoring.memory_account import Workload, memory_account
from workerdiag.scoring.memory_reason import MemoryFacts

GIB = 2**30
BOOK = load_rulebook(packs=False)
MATCHER = Matcher(BOOK)
PAGE = Path(__file__).parents[2] / "docs" / "cures.md"
#: A matrix of which two chunks at once, with what their product needs, are far above 4 GiB.
PRODUCT = (
    Event(topic="workload", fields={"place": "main (work.py:12)", "gathered": True, "kinds": "array"}),
    Event(
        topic="workload-step",
        fields={
            "name": "matmul",
            "inputs": 2,
            "inputs_bytes": 2 * GIB,
            "piece_bytes": GIB,
            "pieces": 4,
            "chunk": "8192 x 16384",
            "dtype": "float64",
        },
    ),
    Event(topic="cluster", fields={"type": "LocalCluster", "worker_limit_bytes": 4 * GIB, "workers_wanted": 2}),
)
ENDS = {
    "nanny": "2026-05-04 11:22:33,444 - distributed.nanny.memory - WARNING - Worker tcp://10.3.4.5:38211 (pid=4711) exceeded 95% memory budget. Restarting...",
    "kernel": "[ 9702.273361] Out of memory: Killed process 4711 (python) total-vm:7774512kB, anon-rss:6663031kB, file-rss:0kB, shmem-rss:7kB, UID:0 pgtables:13632kB oom_score_adj:0",
    "container": "pod dask-worker-77c9 container worker terminated (OOMKilled), exit code 137",
    "batch system": "slurmstepd: error: Detected 2 oom-kill event(s) in StepId=7120344.batch cgroup. Some of your processes may have been killed by the cgroup out-of-memory handler.",
    "yarn": "Container [pid=20411,containerID=container_1512207719406_0021_01_000003] is running beyond physical memory limits. Current usage: 4.1 GB of 4 GB physical memory used; 6.2 GB of 8.4 GB virtual memory used. Killing container.",
    "MemoryError": "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 3.73 GiB for an array with shape (500000000,) and data type int64",
    "paused": "2026-05-04 11:22:30,001 - distributed.worker.memory - WARNING - Worker is at 81% memory usage. Pausing worker.  Process memory: 3.25 GiB -- Worker memory limit: 4.00 GiB",
}
UNMANAGED = "2026-05-04 11:{at}:28,001 - distributed.worker.memory - WARNING - Unmanaged memory use is high. This may indicate a memory leak or the memory may not be released to the OS -- Unmanaged memory: {size} GiB -- Worker memory limit: 4.00 GiB"
GRAPH = "/opt/env/lib/python3.12/site-packages/distributed/client.py:3361: UserWarning: Sending large graph of size {size}."


def diagnosed(*lines, evidence=()):
    text = "\n".join((*lines, ""))
    return pipeline.diagnose([LogChunk(origin="log", data=text.encode()), *evidence], BOOK, matcher=MATCHER)


@pytest.mark.parametrize("end", ENDS)
def test_whatever_ended_the_worker_has_the_same_account_and_reason(end):
    """Nanny, kernel, container, batch system, a refused allocation; and a worker that is only paused."""
    diagnosis = diagnosed(ENDS[end], evidence=PRODUCT)

    assert diagnosis.memory.reason == "pieces-too-large"
    assert diagnosis.memory.limit.bytes
    assert diagnosis.cures[0].kind == "piece-size"


def test_a_large_graph_in_a_log_is_a_reason_that_may_be_wrong():
    """Nobody knows how many tasks share the data; a graph that is small beside the limit is none."""
    large = diagnosed(GRAPH.format(size="2.10 GiB"), ENDS["paused"], ENDS["nanny"])
    small = diagnosed(GRAPH.format(size="13.23 MiB"), ENDS["paused"], ENDS["nanny"])

    assert large.memory.reason == "data-in-graph"
    assert large.memory.reasons[0].probability <= 0.8
    assert small.memory.reason is None


def test_memory_that_rises_and_cannot_be_spilled_may_be_a_leak():
    """Several warnings, each of more. One, or the same again, is what any hungry task brings."""
    rising = [UNMANAGED.format(at=at, size=size) for at, size in ((22, 2.8), (24, 3.1), (26, 3.5))]
    level = [UNMANAGED.format(at=at, size=2.9) for at in (22, 24, 26)]

    found = diagnosed(*rising, ENDS["paused"]).memory
    assert found.reason == "leak"
    assert found.reasons[0].probability <= 0.8
    assert diagnosed(*level, ENDS["paused"]).memory.reason is None


def test_refused_inputs_in_a_log_name_their_own_numbers():
    """The scheduler says how much they are, and how much a worker may have; nothing died."""
    line = "2026-11-21 08:47:37,641 - distributed.scheduler - ERROR - Task ('concat-all', 0) has 1.46 GiB worth of input dependencies, but worker tcp://127.0.0.1:37925 has memory_limit set to 400.00 MiB. It seems like you called client.compute() on a huge collection."
    diagnosis = diagnosed(line)

    assert diagnosis.memory.reason == "brought-together"
    assert diagnosis.memory.limit.bytes == 400 * 2**20
    assert diagnosis.cures[0].kind == "do-not-collect"


def test_what_must_be_kept_in_all_lowers_what_smaller_pieces_promise():
    """Their sum stays the same. Where no worker has room for it, more memory comes first, and its number holds it."""
    kept = Event(topic="workload", fields={**PRODUCT[0].fields, "kept_bytes": 40 * GIB})
    plain = diagnosed(ENDS["nanny"], evidence=PRODUCT)
    diagnosis = diagnosed(ENDS["nanny"], evidence=(kept, *PRODUCT[1:]))

    assert plain.cures[0].probability > 0.7
    assert diagnosis.cures[0].kind == "worker-memory"
    assert diagnosis.cures[0].value * 0.6 * 2 >= 40 * GIB
    (smaller,) = [each for each in diagnosis.cures if each.kind == "piece-size"]
    assert smaller.probability < 0.5
    assert "40 GiB are kept in all" in smaller.why


@pytest.mark.parametrize("rule", BOOK.reasons, ids=lambda each: each.id)
def test_the_examples_of_a_reason_are_right(rule):
    """And one that expects the opposite is told."""
    assert list(reason_problems(rule, BOOK, MATCHER)) == []
    wrong = evolve(rule, examples=tuple(evolve(each, is_named=not each.is_named) for each in rule.examples))
    assert len(list(reason_problems(wrong, BOOK, MATCHER))) == len(rule.examples) > 0


def test_every_reason_has_a_rule_and_every_fact_is_looked_for():
    """Rules name closed sets, and none of their words is left out."""
    assert {each.id for each in BOOK.reasons} == set(get_args(MemoryReason))
    incident = Incident(cases=(), unassigned_signs=(), marks=())
    work = Workload.of(incident)
    facts = MemoryFacts(memory_account(incident, work, MemoryNumbers(), ()), work, 0)
    assert [facts.sentence(each) for each in get_args(MemoryFact)] == [None] * len(get_args(MemoryFact))
    used = {
        fact for rule in BOOK.reasons for each in rule.signs for fact in (*each.facts, *each.unless, *rule.unless)
    }
    assert used == set(get_args(MemoryFact))


def test_the_page_lists_the_reasons_with_their_changes():
    """The table of docs/cures.md is that of the rules."""
    text = PAGE.read_text(encoding="utf-8")
    for rule in BOOK.reasons:
        changes = ", ".join(f"`{each}`" for each in rule.cures) or "mend the code: no memory is enough"
        assert f"| `{rule.id}` | {rule.title} | {changes} |\n" in text
