"""
Small jobs in batches, so that each does not cost what a Dask task does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from attrs import frozen

from workerdiag.errors import TriageError, describe_error

#: A batch has at most this many jobs: a small log takes 5 ms, a Dask task from submit to result 10 to 20 ms.
MAX_JOBS: Final = 64
#: A batch has at most this part of the remaining jobs of each thread. What runs when the client dies is read
#: again, and a thread that ends early waits for the others: both stay under 4 %.
_REMAINING_SHARE = 25

_J = TypeVar("_J")


@frozen
class Failed:
    """
    A job of a batch that returned nothing.
    """

    reason: str


def cut_batches(
    jobs: Iterable[_J], share: Callable[[_J], float], threads: Callable[[], int]
) -> Iterator[tuple[_J, ...]]:
    """
    All jobs in their order, in batches of at least one.

    Args:
        jobs: All.
        share: The part of a full batch that a job takes by itself: 1 or more fills it.
        threads: How many batches run at a time, asked for each batch.
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
    """
    What ``function(job, *arguments)`` returns for each job, or why it returned nothing.

    Raises:
        MemoryError: There was not enough for one of them.
    """
    return [run_job(job, function, *arguments) for job in batch]


def run_job(job: object, function: Callable[..., object], *arguments: object) -> object | Failed:
    """
    What ``function(job, *arguments)`` returns, or why it returned nothing.

    Raises:
        MemoryError: There was not enough, which may be the fault of other jobs.
    """
    try:
        return function(job, *arguments)
    except MemoryError:
        raise
    except TriageError as problem:
        return Failed(problem.why)
    except Exception as problem:  # noqa: BLE001  files and stores raise anything
        return Failed(describe_error(problem))
