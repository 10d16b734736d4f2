"""Which workers a stop request is for: those that it lists, if they were registered when it was made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf

from workerdiag.model.diagnosis import Match
from workerdiag.model.process_end import ProcessEnd
from workerdiag.model.rules import REGISTRATIONS, RETIREMENT, Rulebook
from workerdiag.model.stop_reasons import may_retire, retired_workers

#: Seconds by which a worker may log its start before the scheduler logs its registration.
_JOIN_SLACK_S = 5.0

#: Seconds for which a stop request holds; a worker that retires hands over its data first.
ORDER_S = 300.0
#: The same in lines of a log without times.
ORDER_LINES = 400


class StopRequests:
    """Retirements, and when workers joined, taken from an incident's landmarks by id."""

    def __init__(self, marks: Mapping[str, Sequence[Match]]) -> None:
        self._joined: dict[str, list[Match]] = {}
        for each in (mark for owner in REGISTRATIONS for mark in marks.get(owner, ())):
            self._joined.setdefault(each.identity.worker or "", []).append(each)
        self._retirements: dict[tuple[str, int], list[Match]] = {}
        for each in marks.get(RETIREMENT, ()):
            self._retirements.setdefault((each.origin, each.line), []).append(each)
        self._kept: dict[str, list[Match]] = {}
        for each in marks.get("scheduler.could-not-retire", ()):
            self._kept.setdefault(each.identity.worker or "", []).append(each)

    def had_joined(self, match: Match) -> bool:
        """Whether the worker that *match* names had registered before, in the same log."""
        joined = self._joined.get(match.identity.worker or "", ())
        return any(each.origin == match.origin and each.line < match.line for each in joined)

    def has_joined_between(self, worker: str, end: ProcessEnd, match: Match) -> bool:
        """Whether a worker with the same address joined after *end* and before *match*."""
        joined = self._joined.get(worker, ())
        return any(_is_after(each, end) and not _is_older(match, each) for each in joined)

    def is_for_other_worker(self, sign: Match, end: ProcessEnd) -> bool:
        """Whether a sign of a stop request names other workers, or precedes the registration of this worker."""
        worker = end.identity.worker
        if sign.identity.worker and worker and sign.identity.worker != worker:
            return True
        joined = self._joined.get(worker, ()) if worker else ()
        if any(_is_older(sign, each) for each in joined if not _is_after(each, end)):
            return True
        there = self._retirements.get((sign.origin, sign.line), ())
        if there and self._stayed(worker, sign, end):
            return True
        return any(not may_retire(each, end.identity) for each in there)

    def indexed(
        self, signs: Mapping[tuple[str, str], Sequence[Match]], book: Rulebook
    ) -> dict[tuple[str, str], OrderIndex]:
        """The signs of stop requests, by cause and sign, indexed by the workers that they are for."""
        return {
            key: OrderIndex(matches, self._named_in)
            for key, matches in signs.items()
            if (cause := book.cause(key[0])) is not None and cause.ends == "stopped"
        }

    def _named_in(self, sign: Match) -> frozenset[str]:
        """Addresses of the workers that a stop request is limited to; empty if it may be for any."""
        if sign.identity.worker:
            return frozenset((sign.identity.worker,))
        for order in self._retirements.get((sign.origin, sign.line), ()):
            listed = retired_workers(order)
            if all("://" in each for each in listed):
                return listed
        return frozenset()

    def _stayed(self, worker: str | None, order: Match, end: ProcessEnd) -> bool:
        """Whether the scheduler could not retire the worker between the order and the end."""
        last = end.last_line(order.origin) or inf
        return any(
            each.origin == order.origin and order.line <= each.line < last
            for each in self._kept.get(worker or "", ())
        )


class OrderIndex:
    """Signs of stop requests, indexed by worker and by place, so that each death is compared with few of them."""

    def __init__(self, signs: Sequence[Match], named_in: Callable[[Match], Iterable[str]]) -> None:
        self._signs = signs
        self._numbers: defaultdict[str | tuple[str, int] | None, list[int]] = defaultdict(list)
        for number, each in enumerate(signs):
            self._numbers[each.origin, each.line].append(number)
            for name in tuple(named_in(each)) or (None,):
                self._numbers[name].append(number)

    def may_be_for(self, end: ProcessEnd) -> Sequence[Match]:
        """The signs that name no other worker, or that stand in a message that reports the end; in their order."""
        who = end.identity
        if who.worker is None:
            return self._signs
        keys = {None, who.worker, who.name, *end.places}
        numbers = {number for key in keys if key in self._numbers for number in self._numbers[key]}
        return [self._signs[number] for number in sorted(numbers)]


def is_in_force(order: Match, end: ProcessEnd) -> bool:
    """Whether *order* came so shortly before *end* that it can have caused it."""
    if order.when is not None and end.first_when is not None:
        return end.first_when - order.when <= ORDER_S
    line = end.first_line(order.origin)
    return not line or not order.line or line - order.line <= ORDER_LINES


def _is_older(sign: Match, joined: Match) -> bool:
    """Whether *sign* precedes the registration of a worker. Lines of one log are in order; clocks are not exact."""
    if sign.line and sign.origin == joined.origin:
        return sign.line < joined.line
    return sign.when is not None and joined.when is not None and sign.when < joined.when - _JOIN_SLACK_S


def _is_after(joined: Match, end: ProcessEnd) -> bool:
    """Whether a worker with the same address joined after *end*; fixed ports are used again."""
    if last := end.last_line(joined.origin):
        return joined.line > last
    return joined.when is not None and end.when is not None and joined.when > end.when
