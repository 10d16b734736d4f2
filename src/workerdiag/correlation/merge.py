"""
Which ends, told by different observers, are of one process: by identity, else by time, else by order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from attrs import evolve

from workerdiag.correlation.end_index import Candidates
from workerdiag.correlation.log_reader import STILL_ALIVE, LogReader, ends_of_events
from workerdiag.correlation.process_end import End
from workerdiag.correlation.process_lifetimes import Lifetimes, addresses
from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import Evidence, Identity
from workerdiag.model.numerals import decimal

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


def with_names(marks: Iterable[Match], rest: Iterable[Evidence]) -> list[Match]:
    """
    The landmarks, those of a process that other evidence names with all that this knows of it.

    A nanny's message has the pid alone, and nannies of one process share a log.
    """
    named: dict[int, list[tuple[Identity, float]]] = {}
    for piece in rest:
        whose, when = getattr(piece, "whose", None), getattr(piece, "when", None)
        if isinstance(whose, Identity) and whose.pid and whose.worker and when is not None:
            named.setdefault(whose.pid, []).append((whose, when))
    return [_with_name(each, named.get(each.whose.pid or 0, ())) for each in marks]


def _with_name(mark: Match, named: Sequence[tuple[Identity, float]]) -> Match:
    if mark.when is None or mark.whose.worker is not None:
        return mark
    for whose, when in named:
        if abs(mark.when - when) <= NAMED_S and not mark.whose.contradicts(whose):
            return evolve(mark, whose=mark.whose.joined(whose))
    return mark


def ends_told(marks: Iterable[Match]) -> list[list[End]]:
    """
    The ends of each log, of the closest observers first, and those of the events.
    """
    logs: dict[tuple[str, str], list[Match]] = {}
    events: list[Match] = []
    for mark in marks:
        if mark.line:
            logs.setdefault((mark.origin, _observer(mark)), []).append(mark)
        else:
            events.append(mark)
    in_order = sorted(logs, key=lambda log: _TRUSTED.index(log[1]))
    return [LogReader().read(logs[each]) for each in in_order] + [ends_of_events(events)]


def _observer(mark: Match) -> str:
    """
    Who tells it: one text may hold what scheduler, nannies, kernel and platform wrote.
    """
    if mark.owner.startswith(_SERVICES):
        return "service"
    if mark.stream in _PLATFORMS:
        return mark.stream or ""
    of_scheduler = mark.stream in ("scheduler", "client") or mark.role in ("goodbye", "vanished")
    return "scheduler" if of_scheduler else "worker"


def joined(
    groups: Iterable[list[End]], lifetimes: Lifetimes, out_of_time: Callable[[], bool]
) -> tuple[list[End], int]:
    """
    One end for each process, what logs tell of the same one absorbed; and how many were left out.
    """
    whole: list[End] = []
    known = Candidates()
    left_out = 0
    for group in groups:
        taken: set[int] = set()
        timed = 0
        for end in group:
            if left_out or out_of_time():
                left_out += 1
                continue
            others = known.of(end, _span(end), taken)
            same = _same_process(end, others, lifetimes, no_times=known.timed_count == timed)
            if same is None:
                whole.append(end)
                same = end
            else:
                same.absorb(end)
            known.add(same, _span(same))
            taken.add(id(same))
            timed += same.when is not None
    return whole, left_out


def without_strangers(ends: list[End]) -> tuple[list[End], list[End]]:
    """
    Without processes that only the kernel speaks of, where Dask tells of other ones; and these.

    A kernel log holds the kills of a whole machine; a fact that does not match the victim
    does not count.
    """
    ours = [end for end in ends if not _is_kernels(end)]
    if not any((end.lost or end.polite) and (end.whose.pid or end.whose.worker) for end in ours):
        return ends, []
    known = set(map(id, ours))
    return ours, [end for end in ends if id(end) not in known]


def without_bare_nannies(ends: list[End]) -> list[End]:
    """
    Without nannies that closed with no worker below them, where workers were lost: theirs had died before.

    A nanny that has one asks it to close, and says so. A cluster closes one whose worker does not come back.
    """
    kept = [end for end in ends if not _is_bare_nanny(end)]
    return kept if any(end.lost for end in kept) else ends


def _is_bare_nanny(end: End) -> bool:
    if end.lost or end.exit_known or end.whose.worker is not None or not end.marks:
        return False
    return all(mark.role == "stop" and mark.whose.nanny is not None for mark in end.marks)


def _same_process(end: End, others: Sequence[End], lifetimes: Lifetimes, *, no_times: bool) -> End | None:
    for other in others:
        if other.whose.shares(end.whose) and _apart_s(end, other) <= SAME_PROCESS_S:
            return other
    timed = [
        (_apart_s(end, other), index, other)
        for index, other in enumerate(others)
        if end.when is not None and other.when is not None and _may_be_one(end, other, lifetimes)
    ]
    if timed and min(timed)[0] <= SAME_MOMENT_S:
        return min(timed)[2]
    if end.when is None or no_times:
        for other in others:  # no clocks to compare: the first that it can be
            if _complementary(end, other):
                return other
    return None


def _complementary(end: End, other: End) -> bool:
    """
    Whether one knows the exit and the other does not, or both tell of the same signal.
    """
    if other.whose.contradicts(end.whose):
        return False
    if end.exit_known and other.exit_known:
        return end.signal == other.signal and end.status == other.status
    return end.exit_known or other.exit_known


def _may_be_one(end: End, other: End, lifetimes: Lifetimes) -> bool:
    """
    Nothing contradicts it; a container's pids are not the kernel's, so these may differ.
    """
    if end.exit_known and other.exit_known and end.signal != other.signal and _is_of_service(end):
        return False
    if _is_kernels(end) != _is_kernels(other) and any(each.polite or each.asked for each in (end, other)):
        return False  # what leaves in order needs no kernel, and it keeps no account of what nannies kill
    if _outlived(end, other, lifetimes) or _outlived(other, end, lifetimes):
        return False
    if not other.whose.contradicts(end.whose):
        return True
    kernel = _is_kernels(end) != _is_kernels(other)
    one, two = evolve(end.whose, pid=None), evolve(other.whose, pid=None)
    return kernel and end.signal == other.signal and not one.contradicts(two)


def _apart_s(one: End, two: End) -> float:
    """
    Seconds between the two, each from the first to the last that is told of it.

    A worker that closes slowly is let go of seconds before its process ends.
    """
    if one.when is None or two.when is None:
        return 0.0
    (one_from, one_to), (two_from, two_to) = _span(one), _span(two)
    return max(0.0, one_from - two_to, two_from - one_to)


def _span(end: End) -> tuple[float, float]:
    times = [end.when or 0.0]
    for each in end.marks if end.asked else ():
        if each.when is not None:
            waited_s = decimal(each.captures.get("seconds")) if each.owner == STILL_ALIVE else None
            times += [each.when, each.when - (waited_s or 0.0)]
    return min(times), max(times)


def _is_kernels(end: End) -> bool:
    """
    Whether only the kernel tells of it.
    """
    return _KERNEL in end.noticed and len(end.noticed) == 1


def _outlived(other: End, kernels: End, lifetimes: Lifetimes) -> bool:
    """
    Whether one spoke after all that the kernel tells of the other.
    """
    if not _is_kernels(kernels) or _is_kernels(other):
        return False
    return all(lifetimes.outlived(addresses(other), line, other.when) for line in kernels.marks)


def _is_of_service(end: End) -> bool:
    """
    Whether only who started the process says how it ended.
    """
    return all(each.owner.startswith(_SERVICES) for each in end.marks)
