"""Which signs count for or against their causes in one death, and which workers a stop request is for."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import TypeAlias

from workerdiag.model.diagnosis import Match
from workerdiag.model.incident import Incident, grouped
from workerdiag.model.process_end import ProcessEnd
from workerdiag.model.rules import REGISTRATIONS, RETIREMENT, STILL_ALIVE, Cause, ExitSign, LogSign, Rulebook
from workerdiag.model.stop_reasons import is_restart_event, may_retire, retired_workers, workers_of_restart

#: Seconds by which a stop request may follow the end in another log, since clocks differ.
ORDER_SLACK_S = 2.0
#: Streams in which a process writes only about itself.
_OF_ONE_PROCESS = ("worker", "nanny")
#: Matches by the name of their sign.
SignMatches: TypeAlias = dict[str, list[Match]]
_ADDRESS = re.compile(r"\b(?:tcp|tls|ucx|ws|wss|inproc)://[\w.:\[\]/-]*\w")


class Relevance:
    """Decides which signs count in a death, by the order of the reports; *book* has the causes of the signs."""

    def __init__(self, incident: Incident, book: Rulebook) -> None:
        marks = incident.marks_by_owner
        self._lifetimes = incident.lifetimes
        self._stop_requests = StopRequests(marks)
        orders = (each for each in incident.marks if each.role == "stop-request" and each.owner != STILL_ALIVE)
        self._request_lines = {(each.origin, each.line) for each in orders if each.line}
        self._retirements = {(each.origin, each.line) for each in marks.get(RETIREMENT, ())}
        joined = (each for owner in REGISTRATIONS for each in marks.get(owner, ()))
        self._registers = {each.origin for each in joined if each.line}
        self._takes_leave = {each.origin for each in incident.marks if each.role == "deregistered"}
        self._book = book
        self._against = book.against
        self._shown_without_match = book.signs_shown_without_match.keys()
        self._ended: dict[str, list[ProcessEnd]] = {}
        for end in incident.ends:
            for worker in end.addresses:
                self._ended.setdefault(worker, []).append(end)
        #: Matches that no death claims, by cause and sign; and the signs of which one match stands for all.
        self._unassigned = self._by_sign(incident.unassigned_signs)
        self._alike = {key for key, matches in self._unassigned.items() if self._are_alike(matches)}
        self._orders = {
            key: OrderIndex(matches, self._stop_requests.named_in)
            for key, matches in self._unassigned.items()
            if (cause := book.cause(key[0])) is not None and cause.ends == "stopped"
        }

    def of(self, end: ProcessEnd | None, signs: Iterable[Match]) -> dict[str, SignMatches]:
        """The signs that count in a death with its own *signs*, by cause; those against only beside one for it."""
        own = self._by_sign(signs)
        found: dict[str, SignMatches] = {}
        keys = (own | self._unassigned).keys()
        for owner, sign in keys - self._against:
            if matches := self._counting(own, (owner, sign), end):
                found.setdefault(owner, {})[sign] = matches
        against: dict[str, SignMatches] = {}
        for owner, sign in keys & self._against:
            if owner in found or owner in self._shown_without_match:
                origins = {each.origin for some in found.get(owner, {}).values() for each in some}
                matches = self._counting(own, (owner, sign), end)
                if matches := _of_this_process(matches, end, origins):
                    against.setdefault(owner, {})[sign] = matches
        return {owner: found.get(owner, {}) | against.get(owner, {}) for owner in found | against}

    def _by_sign(self, matches: Iterable[Match]) -> dict[tuple[str, str], list[Match]]:
        return grouped(filter(self._may_count, matches), lambda each: (each.owner, each.sign))

    def _are_alike(self, matches: Sequence[Match]) -> bool:
        """Whether all these matches of one sign count in a death, or none does."""
        cause = self._book.cause(matches[0].owner)
        is_by_match = cause is not None and cause.ends in ("standstill", "stopped")
        return not is_by_match and not any(each.in_task or each.stream == "kernel" for each in matches)

    def _counting(
        self, own: Mapping[tuple[str, str], list[Match]], key: tuple[str, str], end: ProcessEnd | None
    ) -> list[Match]:
        found = [each for each in own.get(key, ()) if self._counts(each, end)]
        others: Sequence[Match] = self._unassigned.get(key, [])
        if end is not None and key in self._alike:
            return [*found, *(others if self._counts(others[0], end) else ())]
        if end is not None and key in self._orders:
            others = self._orders[key].may_be_for(end)
        return [*found, *(each for each in others if self._counts(each, end))]

    def _may_count(self, match: Match) -> bool:
        """Whether a sign can count in any death; one that names a worker after its death is a consequence."""
        cause, sign = self._book.cause(match.owner), self._book.signs.get((match.owner, match.sign))
        if cause is None or (cause.family == "network" and self._is_of_the_dead(match)):
            return False
        is_of_start = isinstance(sign, LogSign) and sign.only_unregistered
        return not (is_of_start and self._stop_requests.had_joined(match))

    def _counts(self, match: Match, end: ProcessEnd | None) -> bool:
        """Whether a sign that may count does so here.

        A failed task kills no worker. A stop request after the death, or for another worker, did not cause
        it. A standstill elsewhere ended no worker.
        """
        cause = self._book.cause(match.owner)
        if cause is None or (match.in_task and not _may_come_from_task(match, cause, end)):
            return False
        if end is None:  # a retirement in a log that lists registrations but no departure ended nothing
            is_retirement = (match.origin, match.line) in self._retirements
            return not (is_retirement and match.origin in self._registers)
        if cause.ends == "standstill" and not _may_have_stood_still(match, end):
            return False
        if cause.ends in ("killed", "crashed"):
            return self._lifetimes.may_describe(match, end) and not self._ended_otherwise(match, cause, end)
        return cause.ends != "stopped" or self._may_have_stopped(match, end)

    def _may_have_stopped(self, order: Match, end: ProcessEnd) -> bool:
        if end.stop_requested and _is_told_in(end, order):
            return True  # it is what this process was told
        if not is_in_force(order, end) or self._stop_requests.is_for_other_worker(order, end):
            return False
        if is_restart_event(order) and (workers := workers_of_restart(order.captures)):
            return not workers.isdisjoint(end.addresses)
        if not end.stop_requested and self._is_after_death(order, end):
            return False
        until, slack_s = (end.first_when, 0.25) if end.stop_requested else (end.when, ORDER_SLACK_S)
        return order.when is None or until is None or order.when <= until + slack_s

    def _is_after_death(self, order: Match, end: ProcessEnd) -> bool:
        """Whether a stop request follows the death in one log, where a removal alone does not count as one."""
        shows_deaths = order.origin in self._takes_leave or any(
            mark.role in ("death", "self-closed", "restart") for mark in end.marks
        )
        is_request = (order.origin, order.line) in self._request_lines
        return is_request and shows_deaths and 0 < end.first_line(order.origin) < order.line

    def _is_of_the_dead(self, match: Match) -> bool:
        """Whether *match* names a worker that had already ended: its silence is a consequence."""
        named = _ADDRESS.findall("\n".join((match.text, *match.captures.values())))
        return any(
            _is_before(end, match) and not self._stop_requests.has_joined_between(worker, end, match)
            for worker in set(named)
            for end in self._ended.get(worker, ())
        )

    def _ended_otherwise(self, match: Match, cause: Cause, end: ProcessEnd) -> bool:
        """Whether the process is known to have ended in a way that the cause cannot bring about.

        A kernel message is then about another process, and signs below decisive do not count. For a crash the
        kernel names the thread, so the message is not about a process that stopped on request.
        """
        has_left_in_order = (end.stop_requested or end.deregistered) and not end.exit_known
        if match.stream == "kernel" and cause.ends == "crashed" and has_left_in_order:
            return True
        exits = [each for each in cause.signs if isinstance(each, ExitSign)]
        signals = {number for each in exits for number in each.signals}
        statuses = {number for each in exits for number in each.statuses}
        if not signals or any(each.any_failure for each in exits) or not _is_exit_certain(end):
            return False
        if end.signal in signals or (end.signal is None and end.status in statuses):
            return False
        sign = self._book.signs.get((match.owner, match.sign))
        return match.stream == "kernel" or (end.signal is None and not (sign and sign.grade == "decisive"))


def _may_come_from_task(match: Match, cause: Cause, end: ProcessEnd | None) -> bool:
    """Whether the error of a task may be the cause; of a death by a signal, if it came soon after."""
    if not cause.includes_task_errors or cause.ends != "raised" or end is None or end.signal is None:
        return cause.includes_task_errors
    return match.when is None or end.when is None or end.when - match.when <= 60.0


def _may_have_stood_still(match: Match, end: ProcessEnd) -> bool:
    """Whether a sign of a standstill, which a user may have ended, concerns the lost worker and no other."""
    if match.identity.worker is None:
        return not end.unexpected or match.stream in _OF_ONE_PROCESS
    return not end.exit_known or end.same_process(match.identity)


def _is_told_in(end: ProcessEnd, order: Match) -> bool:
    return (order.origin, order.line) in end.places and (
        bool(order.line)
        or any(mark.text == order.text for mark in end.marks if not mark.line and mark.origin == order.origin)
    )


def _of_this_process(matches: Iterable[Match], end: ProcessEnd | None, origins: set[str]) -> list[Match]:
    """The signs against a cause that come from this process, or from a log that also has signs for that cause."""
    logs = origins | {mark.origin for mark in (end.marks if end else ())}
    names = {name for each in (end.identities if end else ()) for name in (each.worker, each.pid) if name}

    def is_own(match: Match) -> bool:
        who = match.identity
        if end is not None and who.worker is not None and end.conflicts_with(who):
            return False
        if match.stream not in _OF_ONE_PROCESS or not match.line or match.origin in logs:
            return True
        return end is not None and (who.worker in names or who.pid in names) and end.same_process(who)

    return [each for each in matches if is_own(each)]


def _is_before(end: ProcessEnd, match: Match) -> bool:
    if match.line and (line := end.first_line(match.origin)):
        return line < match.line
    if match.when is None:
        return match.origin == "exception"  # whoever caught it looked after all that the logs tell
    return end.when is not None and end.when + ORDER_SLACK_S <= match.when


def _is_exit_certain(end: ProcessEnd) -> bool:
    """Whether the exit of the process itself is known: by its nanny, or by a signal."""
    if end.signal is not None:
        return True
    by_nanny = any(mark.owner in ("nanny.exited-with-status", "nanny.restarting") for mark in end.marks)
    return (
        by_nanny and end.status is not None and end.status < 128
    )  # shells and Dask report signals and unknown ends above


class StopRequests:
    """Retirements, and when workers joined, taken from an incident's landmarks by id."""

    def __init__(self, marks: Mapping[str, Sequence[Match]]) -> None:
        joined = (mark for owner in REGISTRATIONS for mark in marks.get(owner, ()))
        self._joined = grouped(joined, lambda mark: mark.identity.worker)
        self._kept = grouped(marks.get("scheduler.could-not-retire", ()), lambda mark: mark.identity.worker)
        self._retirements = grouped(marks.get(RETIREMENT, ()), lambda mark: (mark.origin, mark.line))

    def had_joined(self, match: Match) -> bool:
        """Whether the worker that *match* names had registered before, in the same log."""
        joined = self._joined.get(match.identity.worker, ())
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
        last = end.last_line(sign.origin) or inf
        has_stayed = any(  # the scheduler could not retire it
            each.origin == sign.origin and sign.line <= each.line < last for each in self._kept.get(worker, ())
        )
        return any(has_stayed or not may_retire(each, end.identity) for each in there)

    def named_in(self, sign: Match) -> frozenset[str]:
        """Addresses of the workers that a stop request is limited to; empty if it may be for any."""
        if sign.identity.worker:
            return frozenset((sign.identity.worker,))
        for order in self._retirements.get((sign.origin, sign.line), ()):
            listed = retired_workers(order)
            if all("://" in each for each in listed):
                return listed
        return frozenset()


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
    """Whether *order* came so shortly before *end* that it can have caused it; data are handed over first."""
    if order.when is not None and end.first_when is not None:
        return end.first_when - order.when <= 300.0
    line = end.first_line(order.origin)
    return not line or not order.line or line - order.line <= 400


def _is_older(sign: Match, joined: Match) -> bool:
    """Whether *sign* precedes the registration of a worker. Lines of one log are in order; clocks are not exact."""
    if sign.line and sign.origin == joined.origin:
        return sign.line < joined.line
    return sign.when is not None and joined.when is not None and sign.when < joined.when - 5.0


def _is_after(joined: Match, end: ProcessEnd) -> bool:
    """Whether a worker with the same address joined after *end*; fixed ports are used again."""
    if last := end.last_line(joined.origin):
        return joined.line > last
    return joined.when is not None and end.when is not None and joined.when > end.when
