"""
When worker processes are known to have lived, so that no kill from before is taken for theirs.

Whoever speaks after its kill was not killed: a line of the kernel that is older than the last sign of life
is of another process of that machine.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from math import inf

from workerdiag.model.diagnosis import Match
from workerdiag.model.process_end import ProcessEnd
from workerdiag.model.rules import REGISTRATIONS

#: The kernel's clock and those of Dask's processes differ by no more than this, where nothing tells.
SLACK_S = 2.0
#: Landmarks of what a worker process says itself.
_SPOKEN = (
    *REGISTRATIONS,
    "worker.start",
    "worker.asked-to-stop",
    "worker.asked-by-code",
    "worker.closed-itself",
    "event.closing-worker",
    "event.worker-status-change",
)
#: Zones differ by multiples of a quarter of an hour; a log in another one tells no order of times.
_ZONE_S = 900.0
#: A death is noticed so long after its line in the kernel log.
_NOTICED_S = 300.0


class Lifetimes:
    """
    The times at which workers spoke, by their addresses.

    Args:
        marks: The landmarks of an incident, with their times on one clock.
    """

    def __init__(self, marks: Iterable[Match]) -> None:
        self._joined: dict[str, list[float]] = {}
        self._spoke: dict[str, list[float]] = {}
        for mark in marks:
            worker = mark.identity.worker
            if worker is None or mark.when is None or mark.owner not in _SPOKEN:
                continue
            self._spoke.setdefault(worker, []).append(mark.when)
            if mark.owner in REGISTRATIONS:
                self._joined.setdefault(worker, []).append(mark.when)
        for times in (*self._joined.values(), *self._spoke.values()):
            times.sort()

    def outlived(self, workers: Iterable[str], line: Match, until: float | None = None) -> bool:
        """
        Whether one of these *workers* spoke after *line*, which tells of the end of a process.

        Args:
            workers: The addresses of one process.
            line: A message of the kernel.
            until: When the process was gone; None if that is not known.
        """
        when = line.when
        if when is None or line.stream != "kernel" or (until is not None and _may_be_in_zone(until - when)):
            return False
        return any(self._spoke_after(worker, when + SLACK_S, until) for worker in workers)

    def may_describe(self, sign: Match, end: ProcessEnd) -> bool:
        """
        Whether *sign* may tell of *end*; False only for a kernel's line, which names another pid or none.

        The kernel tells of no orderly end, and of none whose process spoke afterwards.
        """
        if sign.stream != "kernel" or end.has_pid(sign.identity.pid):
            return True
        if end.deregistered or (end.stop_requested and not end.crashed):
            return False
        return not self.outlived(end.addresses, sign, end.when)

    def _spoke_after(self, worker: str, since: float, until: float | None) -> bool:
        """
        Whether the process that had the address then, or the first one to have it, spoke later.
        """
        joined, spoke = self._joined.get(worker, []), self._spoke.get(worker, [])
        before = bisect_right(joined, since)
        following = joined[before] if before and before < len(joined) else inf
        last = min(following, inf if until is None else until + SLACK_S)
        place = bisect_right(spoke, since)
        return place < len(spoke) and spoke[place] < last


def _may_be_in_zone(apart_s: float) -> bool:
    """
    Whether a line so long before a death may be of its time, in a log of another zone.
    """
    return apart_s > _NOTICED_S and min(apart_s % _ZONE_S, -apart_s % _ZONE_S) <= SLACK_S * 5
