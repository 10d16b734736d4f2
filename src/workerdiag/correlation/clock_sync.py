"""Clock correction: logs of several machines, aligned by starts and ends that two of them report."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf

from attrs import evolve

from workerdiag.model.diagnosis import Match

#: Seconds within which two observers log one moment.
SAME_S = 5.0
#: Seconds between the end of a process and its removal by the scheduler, if nothing hangs.
_CLOSE_S = 1.5
#: Seconds until a worker that starts is registered; on a busy machine it takes a minute.
_BEFORE_S, _MAX_DELAY_S = 1.0, 60.0
#: Ends and removals that are compared at most.
_MAX_ENDS, _MAX_REMOVALS = 20, 200
#: Time zones differ by multiples of a quarter of an hour, up to 26 hours (-12:00 to +14:00).
_ZONE_S = 900.0

#: Landmarks of one moment, by their common capture.
_MOMENTS: Mapping[str, tuple[str, str]] = {
    "worker.start": ("start", "worker"),
    "nanny.starts-worker": ("start", "worker"),
    "scheduler.register-worker": ("start", "worker"),
    "event.add-worker": ("start", "worker"),
    "nanny.killed-by-signal": ("end", "pid"),
    "nanny.exited-with-status": ("end", "pid"),
    "kernel.killed-process": ("end", "pid"),
    "nanny.memory-budget": ("memory", "pid"),
    "event.worker-restart-memory": ("memory", "pid"),
}
_EVENTS = "scheduler events"
_STOP_REQUESTS = frozenset(
    "nanny.still-alive nanny.asked-to-close nanny.asked-by-code worker.asked-to-stop worker.asked-by-code".split()
)
_Moment = tuple[str, str | int]


def synchronize_clocks(matches: Sequence[Match]) -> tuple[list[Match], tuple[str, ...]]:
    """The *matches* on the scheduler's clock, else on that of most moments, and a note for each corrected one."""
    moments = _moments(matches)
    ahead_s = _clock_offsets(moments, _end_times(matches)) if len(moments) > 1 else {}
    if not ahead_s:
        return list(matches), ()
    notes = tuple(
        f"the times in {clock} are {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} those of the others "
        "and were corrected"
        for clock, ahead in sorted(ahead_s.items())
    )
    shifts = ((each, ahead_s.get(_clock_name(each))) for each in matches)
    return [
        each if ahead is None or each.when is None else evolve(each, when=each.when - ahead)
        for each, ahead in shifts
    ], notes


def _clock_name(match: Match) -> str:
    return match.origin if match.line else _EVENTS


def _moments(matches: Iterable[Match]) -> dict[str, dict[_Moment, float]]:
    """The moments that each clock reports, without those that it reports twice (a reused pid)."""
    found: dict[str, dict[_Moment, list[float]]] = {}
    for each in matches:
        what, named = _MOMENTS.get(each.owner, ("", ""))
        who = getattr(each.identity, named) if what else None
        if who is not None and each.when is not None and not each.sign:
            found.setdefault(_clock_name(each), {}).setdefault((what, who), []).append(each.when)
    return {
        clock: {moment: times[0] for moment, times in clock_moments.items() if max(times) - min(times) <= SAME_S}
        for clock, clock_moments in found.items()
    }


def _end_times(matches: Iterable[Match]) -> dict[tuple[str, str], list[float]]:
    """When processes ended unasked, and when workers were removed, by clock and role."""
    found: dict[tuple[str, str], list[float]] = {}
    stop_requests: dict[str, float] = {}
    for each in matches:
        clock, when = _clock_name(each), each.when
        if when is None or each.sign:
            continue
        if each.owner in _STOP_REQUESTS:
            stop_requests[clock] = when
        elif each.role == "removal":
            found.setdefault((clock, "removal"), []).append(when)
        elif each.role in ("death", "restart") and when - stop_requests.get(clock, -inf) > 30.0:
            found.setdefault((clock, "end"), []).append(when)
    return found


def _clock_offsets(
    moments: Mapping[str, Mapping[_Moment, float]], ends: Mapping[tuple[str, str], Sequence[float]]
) -> dict[str, float]:
    """How many seconds each clock is ahead; correct clocks are left out."""
    reference = max(moments, key=lambda clock: (clock == _EVENTS, (clock, "removal") in ends, len(moments[clock])))
    true = dict(moments[reference])
    left = sorted(set(moments) - {reference})
    clocks_of: defaultdict[_Moment, list[str]] = defaultdict(list)
    for clock in left:
        for moment in moments[clock]:
            clocks_of[moment].append(clock)
    known = Counter(clock for moment in true for clock in clocks_of[moment])
    ahead_s: dict[str, float] = {}
    while left and known[clock := max(left, key=known.__getitem__)]:
        left.remove(clock)
        apart = {moment: when - true[moment] for moment, when in moments[clock].items() if moment in true}
        middle_s = _plausible_offset_s(apart.values())
        if middle_s is None:
            continue
        if all(what == "start" for what, _ in apart):
            middle_s = _offset_by_ends(middle_s, ends.get((clock, "end"), ()), ends.get((reference, "removal"), ()))
        if abs(middle_s) > (_CLOSE_S if ends.get((clock, "end")) else SAME_S):
            ahead_s[clock] = middle_s
        for moment in moments[clock].keys() - true.keys():
            true[moment] = moments[clock][moment] - ahead_s.get(clock, 0.0)
            known.update(clocks_of[moment])
    return ahead_s


def _offset_by_ends(middle_s: float, ends: Sequence[float], removals: Sequence[float]) -> float:
    """How far ahead a clock is by ends close to removals; by starts alone, slow registration would look like it."""
    ends, removals = ends[:_MAX_ENDS], sorted(removals)[:_MAX_REMOVALS]
    apart = [end - removal for end in ends for removal in removals]
    likely = [each for each in (0.0, middle_s, *apart) if -_BEFORE_S <= each - middle_s <= _MAX_DELAY_S]
    fits = {ahead_s: _fit(ahead_s, ends, removals) for ahead_s in likely}
    most = max(count for count, _ in fits.values())
    if not most:
        return middle_s
    for ahead_s in (0.0, middle_s):
        if ahead_s in fits and fits[ahead_s][0] == most and -fits[ahead_s][1] <= _CLOSE_S:
            return ahead_s
    return max(fits, key=lambda each: fits[each])


def _fit(ahead_s: float, ends: Sequence[float], removals: Sequence[float]) -> tuple[int, float]:
    close = [each for end in ends if (each := nearest_s(end - ahead_s, removals)) <= 3.0]
    return len(close), -sum(close) / len(close) if close else 0.0


def nearest_s(when: float, times: Sequence[float]) -> float:
    """Seconds from *when* to the nearest of *times*, which are sorted; infinite without any."""
    place = bisect_left(times, when)
    return min((abs(when - each) for each in times[max(0, place - 1) : place + 1]), default=inf)


def _plausible_offset_s(apart: Collection[float]) -> float | None:
    """The median of the differences, if all are about equal, and as large as of time zones and of kept clocks."""
    if not apart:
        return None
    middle_s = sorted(apart)[len(apart) // 2]
    zones_s = round(middle_s / _ZONE_S) * _ZONE_S
    alike = all(abs(each - middle_s) <= SAME_S for each in apart)
    skewed = abs(middle_s - zones_s) <= 300.0 + SAME_S and abs(zones_s) <= 26 * 3600.0
    return middle_s if alike and skewed else None
