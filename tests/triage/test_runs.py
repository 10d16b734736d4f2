"""Which logs are judged together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workerdiag.triage.outcome import PartIndex, PartOutcome
from workerdiag.triage.runs import find_runs
from workerdiag.triage.tables import InputRow


def outcome(url, *, schedulers=(), workers=(), times=None):
    """What is known of one log."""
    first, last = times or (None, None)
    return PartOutcome(
        row=InputRow(url=url, status="done", knowledge="1"),
        index=PartIndex(schedulers=schedulers, workers=workers, first_when=first, last_when=last),
    )


def groups(*outcomes, folders=None):
    """The inputs of each run."""
    return sorted(each.urls for each in find_runs(outcomes, folders))


def test_one_scheduler_at_overlapping_times_is_one_run():
    """The same address days later is another run."""
    found = groups(
        outcome("a", schedulers=("tcp://s:1",), times=(0, 1000)),
        outcome("b", schedulers=("tcp://s:1",), times=(500, 2000)),
        outcome("c", schedulers=("tcp://s:1",), times=(90_000, 90_100)),
        outcome("d", schedulers=("tcp://t:1",), times=(0, 1000)),
    )
    assert found == [("a", "b"), ("c",), ("d",)]


def test_a_log_without_scheduler_goes_by_its_workers():
    """A nanny's log that names a worker which the scheduler's log names at that time is of its run."""
    found = groups(
        outcome("scheduler", schedulers=("tcp://s:1",), workers=("tcp://w:1",), times=(0, 1000)),
        outcome("nanny", workers=("tcp://w:1",), times=(900, 900)),
        outcome("later", workers=("tcp://w:1",), times=(90_000, 90_000)),
        outcome("stranger", times=(0, 1000)),
    )
    assert found == [("later",), ("nanny", "scheduler"), ("stranger",)]


def test_workers_join_no_logs_that_name_different_schedulers():
    """Addresses of workers are used again; those of two schedulers tell two runs apart."""
    found = groups(
        outcome("a", schedulers=("tcp://s:1",), workers=("tcp://w:1",), times=(0, 10)),
        outcome("b", schedulers=("tcp://t:1",), workers=("tcp://w:1",), times=(0, 10)),
    )
    assert found == [("a",), ("b",)]


def test_a_rotated_log_goes_with_the_one_it_was_rotated_with():
    """By its name and its time, where it names nobody. The number of a worker or a job is no rotation."""
    found = groups(
        outcome("n.log.2.gz", schedulers=("tcp://s:1",), times=(0, 100)),
        outcome("n.log.1", times=(101, 200)),
        outcome("n.log", times=(201, 300)),
        outcome("n.log-20260504", times=(90_000, 90_100)),
        outcome("w-1", times=(201, 300)),
        outcome("w-2", times=(201, 300)),
    )
    assert found == [("n.log", "n.log.1", "n.log.2.gz"), ("n.log-20260504",), ("w-1",), ("w-2",)]


def test_parts_of_a_file_are_one_log():
    """What its parts tell counts together."""
    found = groups(outcome("a", schedulers=("tcp://s:1",), times=(0, 1)), outcome("a", times=(5, 6)))
    assert found == [("a",)]


@pytest.mark.parametrize(
    ("folders", "expected"),
    [
        ("s3://logs/*/", [("s3://logs/1/a", "s3://logs/1/b"), ("s3://logs/2/a",)]),
        ("s3://logs/", [("s3://logs/1/a", "s3://logs/1/b", "s3://logs/2/a")]),
        ("s3://**/", [("s3://logs/1/a", "s3://logs/1/b"), ("s3://logs/2/a",)]),
        ("gs://*/", [("s3://logs/1/a",), ("s3://logs/1/b",), ("s3://logs/2/a",)]),
    ],
)
def test_a_pattern_of_folders_decides_alone(folders, expected):
    """Logs for which it stands for the same text are of one run, whatever they name."""
    urls = ("s3://logs/1/a", "s3://logs/1/b", "s3://logs/2/a")
    assert groups(*(outcome(url, schedulers=("tcp://s:1",)) for url in urls), folders=folders) == expected


LOGS = st.lists(
    st.tuples(
        st.sampled_from(["s", "t", ""]), st.sampled_from(["v", "w", ""]), st.integers(0, 5), st.integers(0, 5)
    ),
    max_size=8,
)


@given(logs=LOGS, seed=st.randoms())
def test_every_log_is_in_one_run_in_whatever_order(logs, seed):
    """The runs depend on the logs alone."""
    outcomes = [
        outcome(
            str(number),
            schedulers=(scheduler,) if scheduler else (),
            workers=(worker,) if worker else (),
            times=(1000 * begin, 1000 * (begin + length)),
        )
        for number, (scheduler, worker, begin, length) in enumerate(logs)
    ]
    runs = find_runs(outcomes)
    seed.shuffle(outcomes)
    assert runs == find_runs(outcomes)
    assert sorted(url for each in runs for url in each.urls) == sorted(map(str, range(len(logs))))
