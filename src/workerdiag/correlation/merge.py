"""
Which ends, told by different observers, are of one process: by identity, else by time, else by order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from attrs import evolve

from workerdiag.correlation.end_builder import EndBuilder
from workerdiag.correlation.end_index import EndCandidates
from workerdiag.correlation.event_reader import ends_from_events
from workerdiag.correlation.log_reader import LogReader
from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import Evidence
from workerdiag.model.identity import Identity
from workerdiag.model.landmark_ids import STILL_ALIVE
from workerdiag.model.lifetimes import Lifetimes
from workerdiag.model.numerals import decimal
from workerdiag.model.process_end import worker_addresses

#: Two observers of one death write within so many seconds of each other.
SAME_MOMENT_S = 3.0
#: Ends of one pid that are further apart are of two processes: pids are used again.
SAME_PROCESS_S = 600.0
#: What a source knows of a process holds for what a log says of its pid so many seconds before or after.
NAMED_S = 60.0
_KERNEL = "kernel log"
#: Streams whose writers watch processes from outside, also within one text with Dask's own.
_PLATFORMS = ("kernel", "kubernetes", "batch")
#: Observers by how closely they know a worker process.
_TRUSTED = ("worker", "scheduler", *_PLATFORMS, "service")
#: Landmarks of whoever started a process from outside, and says only how it ended.
_SERVICES = ("container.", "launcher.")


def enrich_identities(marks: Iterable[Match], rest: Iterable[Evidence]) -> list[Match]:
    """
    The landmarks, those of a process that other evidence names with all that this knows of it.

    A nanny's message has the pid alone, and nannies of one process share a log.
    """
    named: dict[int, list[tuple[Identity, float]]] = {}
    for piece in rest:
        identity, when = getattr(piece, "identity", None), getattr(piece, "when", None)
        if isinstance(identity, Identity) and identity.pid and identity.worker and when is not None:
            named.setdefault(identity.pid, []).append((identity, when))
    return [_enrich_identity(each, named.get(each.identity.pid or 0, ())) for each in marks]


def _enrich_identity(mark: Match, named: Sequence[tuple[Identity, float]]) -> Match:
    if mark.when is None or mark.identity.worker is not None:
        return mark
    for identity, when in named:
        if abs(mark.when - when) <= NAMED_S and not mark.identity.conflicts_with(identity):
            return evolve(mark, identity=mark.identity.merged_with(identity))
    return mark


def process_ends(marks: Iterable[Match]) -> list[list[EndBuilder]]:
    """
    The ends of each log, of the closest observers first, and those of the events.
    """
    logs: dict[tuple[str, str], list[Match]] = {}
    events: list[Match] = []
    for mark in marks:
        if mark.line:
            logs.setdefault((mark.origin, _log_observer(mark)), []).append(mark)
        else:
            events.append(mark)
    in_order = sorted(logs, key=lambda log: _TRUSTED.index(log[1]))
    return [LogReader().read(logs[each]) for each in in_order] + [ends_from_events(events)]


def _log_observer(mark: Match) -> str:
    """
    Who tells it: one text may hold what scheduler, nannies, kernel and platform wrote.
    """
    if mark.owner.startswith(_SERVICES):
        return "service"
    if mark.stream in _PLATFORMS:
        return mark.stream or ""
    of_scheduler = mark.stream in ("scheduler", "client") or mark.role in ("deregistered", "connection-lost")
    return "scheduler" if of_scheduler else "worker"


def merge_ends(
    groups: Iterable[list[EndBuilder]], lifetimes: Lifetimes, out_of_time: Callable[[], bool]
) -> tuple[list[EndBuilder], int]:
    """
    One end for each process, what logs tell of the same one absorbed; and how many were left out.
    """
    whole: list[EndBuilder] = []
    known = EndCandidates()
    left_out = 0
    for group in groups:
        taken: set[EndBuilder] = set()
        timed = 0
        for end in group:
            if left_out or out_of_time():
                left_out += 1
                continue
            others = known.of(end, _time_span(end), taken)
            same = _find_same_process(end, others, lifetimes, no_times=known.timed_count == timed)
            if same is None:
                whole.append(end)
                same = end
            else:
                same.absorb(end)
            known.add(same, _time_span(same))
            taken.add(same)
            timed += same.when is not None
    return whole, left_out


def without_foreign_processes(ends: list[EndBuilder]) -> tuple[list[EndBuilder], list[EndBuilder]]:
    """
    Without processes that only the kernel speaks of, where Dask tells of other ones; and these.

    A kernel log holds the kills of a whole machine; a fact that does not match the victim
    does not count.
    """
    ours = [end for end in ends if not _is_kernel_only(end)]
    if not any((end.lost or end.deregistered) and (end.identity.pid or end.identity.worker) for end in ours):
        return ends, []
    return ours, [end for end in ends if _is_kernel_only(end)]


def without_idle_nannies(ends: list[EndBuilder]) -> list[EndBuilder]:
    """
    Without nannies that closed with no worker below them, where workers were lost: theirs had died before.

    A nanny that has one asks it to close, and says so. A cluster closes one whose worker does not come back.
    """
    ends_of_workers = [end for end in ends if not _is_idle_nanny(end)]
    return ends_of_workers if any(end.lost for end in ends_of_workers) else ends


def _is_idle_nanny(end: EndBuilder) -> bool:
    if end.lost or end.exit_known or end.identity.worker is not None or not end.marks:
        return False
    return all(mark.role == "stop-request" and mark.identity.nanny is not None for mark in end.marks)


def _find_same_process(
    end: EndBuilder, others: Sequence[EndBuilder], lifetimes: Lifetimes, *, no_times: bool
) -> EndBuilder | None:
    for other in others:
        if other.identity.same_process(end.identity) and _end_distance_s(end, other) <= SAME_PROCESS_S:
            return other
    timed = [
        (_end_distance_s(end, other), index, other)
        for index, other in enumerate(others)
        if end.when is not None and other.when is not None and _may_be_one(end, other, lifetimes)
    ]
    if timed and min(timed)[0] <= SAME_MOMENT_S:
        return min(timed)[2]
    if end.when is None or no_times:
        for other in others:  # no clocks to compare: the first that it can be
            if _is_complementary(end, other):
                return other
    return None


def _is_complementary(end: EndBuilder, other: EndBuilder) -> bool:
    """
    Whether one knows the exit and the other does not, or both tell of the same signal.
    """
    if other.identity.conflicts_with(end.identity):
        return False
    if end.exit_known and other.exit_known:
        return end.signal == other.signal and end.status == other.status
    return end.exit_known or other.exit_known


def _may_be_one(end: EndBuilder, other: EndBuilder, lifetimes: Lifetimes) -> bool:
    """
    Nothing contradicts it; a container's pids are not the kernel's, so these may differ.
    """
    if end.exit_known and other.exit_known and end.signal != other.signal and _is_service_only(end):
        return False
    if _is_kernel_only(end) != _is_kernel_only(other) and any(
        each.deregistered or each.stop_requested for each in (end, other)
    ):
        return False  # what leaves in order needs no kernel, and it keeps no account of what nannies kill
    if _outlived(end, other, lifetimes) or _outlived(other, end, lifetimes):
        return False
    if not other.identity.conflicts_with(end.identity):
        return True
    kernel = _is_kernel_only(end) != _is_kernel_only(other)
    one, two = evolve(end.identity, pid=None), evolve(other.identity, pid=None)
    return kernel and end.signal == other.signal and not one.conflicts_with(two)


def _end_distance_s(one: EndBuilder, two: EndBuilder) -> float:
    """
    Seconds between the two, each from the first to the last that is told of it.

    A worker that closes slowly is let go of seconds before its process ends.
    """
    if one.when is None or two.when is None:
        return 0.0
    (one_from, one_to), (two_from, two_to) = _time_span(one), _time_span(two)
    return max(0.0, one_from - two_to, two_from - one_to)


def _time_span(end: EndBuilder) -> tuple[float, float]:
    times = [end.when or 0.0]
    for each in end.marks if end.stop_requested else ():
        if each.when is not None:
            waited_s = decimal(each.captures.get("seconds")) if each.owner == STILL_ALIVE else None
            times += [each.when, each.when - (waited_s or 0.0)]
    return min(times), max(times)


def _is_kernel_only(end: EndBuilder) -> bool:
    """
    Whether only the kernel tells of it.
    """
    return _KERNEL in end.reporters and len(end.reporters) == 1


def _outlived(other: EndBuilder, kernels: EndBuilder, lifetimes: Lifetimes) -> bool:
    """
    Whether one spoke after all that the kernel tells of the other.
    """
    if not _is_kernel_only(kernels) or _is_kernel_only(other):
        return False
    addresses = worker_addresses(*other.identities)
    return all(lifetimes.outlived(addresses, line, other.when) for line in kernels.marks)


def _is_service_only(end: EndBuilder) -> bool:
    """
    Whether only who started the process says how it ended.
    """
    return all(each.owner.startswith(_SERVICES) for each in end.marks)
