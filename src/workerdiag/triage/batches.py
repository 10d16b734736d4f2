"""Group small jobs in batches, which saves the cost of one Dask task per job."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from attrs import frozen

from workerdiag.errors import TriageError, describe_error

#: A batch has at most this many jobs: a small log takes 5 ms, a Dask task from submit to result 10 to 20 ms.
MAX_JOBS: Final = 64
#: A batch has at most the jobs left per thread divided by this. Jobs that run when the client dies are read
#: again, and a thread that ends early waits for the others: both stay under 4 %.
_REMAINING_SHARE = 25

_J = TypeVar("_J")


@frozen
class Failed:
    """A job of a batch that failed."""

    reason: str


def cut_batches(
    jobs: Iterable[_J], share: Callable[[_J], float], threads: Callable[[], int]
) -> Iterator[tuple[_J, ...]]:
    """Yield all jobs in their order, in batches of at least one job.

    Args:
        jobs: All jobs.
        share: Returns the fraction of a full batch that one job takes; 1 or more fills a batch.
        threads: Returns how many batches run at a time; called for each batch.
    """
    left = deque(jobs)
    while left:
        most = min(MAX_JOBS, max(1, len(left) // (_REMAINING_SHARE * threads())))
        batch = [left.popleft()]
        filled = share(batch[0])
        while left and len(batch) < most and (filled := filled + share(left[0])) <= 1:
            batch.append(left.popleft())
        yield tuple(batch)


def run_batch(
    batch: Sequence[object], function: Callable[..., object], *arguments: object
) -> list[object | Failed]:
    """Return ``function(job, *arguments)`` for each job, or why it failed.

    Raises:
        MemoryError: One of the jobs ran out of memory.
    """
    return [run_job(job, function, *arguments) for job in batch]


def run_job(job: object, function: Callable[..., object], *arguments: object) -> object | Failed:
    """Return ``function(job, *arguments)``, or why it failed.

    Raises:
        MemoryError: Memory ran out, which other jobs may have caused.
    """
    try:
        return function(job, *arguments)
    except MemoryError:
        raise
    except TriageError as problem:
        return Failed(problem.why)
    except Exception as problem:  # noqa: BLE001  files and stores raise anything
        return Failed(describe_error(problem))
