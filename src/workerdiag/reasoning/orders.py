"""
Whom an order to stop is for: the workers that it lists, of those that were there when it was given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import Identity
from workerdiag.reasoning.ends import End

RETIREMENT = "scheduler.retire"
#: Landmarks with which a scheduler says that it has a worker.
REGISTRATIONS = ("scheduler.register-worker", "event.add-worker")
#: A worker says that it begins a little before the scheduler says that it has it.
_JOIN_SLACK_S = 5.0

_LISTED = re.compile(r"[(\[{]([^()\[\]{}=]*)[)\]}]\s*$")
#: A message that is quoted with so many characters was cut there.
_CUT_CHARS = 600


class Orders:
    """
    What the landmarks of an incident tell of retirements, and of when workers joined.

    Args:
        marks: The landmarks by their id.
    """

    def __init__(self, marks: Mapping[str, Sequence[Match]]) -> None:
        self._joined: dict[str, list[Match]] = {}
        for each in (mark for owner in REGISTRATIONS for mark in marks.get(owner, ())):
            self._joined.setdefault(each.whose.worker or "", []).append(each)
        self._retirements: dict[tuple[str, int], list[Match]] = {}
        for each in marks.get(RETIREMENT, ()):
            self._retirements.setdefault((each.origin, each.line), []).append(each)

    def had_joined(self, match: Match) -> bool:
        """
        Whether the worker that *match* names had registered before, in the same log.
        """
        joined = self._joined.get(match.whose.worker or "", ())
        return any(each.origin == match.origin and each.line < match.line for each in joined)

    def has_joined_between(self, worker: str, end: End, match: Match) -> bool:
        """
        Whether a worker of the same address joined after *end* and before *match*.
        """
        joined = self._joined.get(worker, ())
        return any(_is_after(each, end) and not _is_older(match, each) for each in joined)

    def are_for_another(self, sign: Match, end: End) -> bool:
        """
        Whether a sign of a stop was not meant for the worker that ended.

        It names another one, stands in an order to others, or was there before this one joined.
        """
        worker = end.whose.worker
        if sign.whose.worker and worker and sign.whose.worker != worker:
            return True
        joined = self._joined.get(worker, ()) if worker else ()
        if any(_is_older(sign, each) for each in joined if not _is_after(each, end)):
            return True
        there = self._retirements.get((sign.origin, sign.line), ())
        return any(not may_retire(each, end.whose) for each in there)


def may_retire(order: Match, whose: Identity) -> bool:
    """
    Whether a retirement, which lists addresses or names of workers, may be of this one.
    """
    listed = _listed(order.captures.get("worker"), order.text)
    if not listed or whose.worker is None or whose.worker in listed or whose.name in listed:
        return True
    return whose.name is None and not all("://" in each for each in listed)


@lru_cache(maxsize=10_000)
def _listed(worker: str | None, text: str) -> frozenset[str]:
    found = _LISTED.search(text)
    retired = worker or (found[1] if found and len(text) < _CUT_CHARS else "")
    return frozenset(each.strip(" '\"") for each in retired.split(",")) - {""}


def _is_older(sign: Match, joined: Match) -> bool:
    """
    Whether *sign* was there before a worker had joined: lines of one log are in order, clocks are not exact.
    """
    if sign.line and sign.origin == joined.origin:
        return sign.line < joined.line
    return sign.when is not None and joined.when is not None and sign.when < joined.when - _JOIN_SLACK_S


def _is_after(joined: Match, end: End) -> bool:
    """
    Whether a worker joined after *end*: one of the same address, which fixed ports give again.
    """
    if last := end.last_line(joined.origin):
        return joined.line > last
    return joined.when is not None and end.when is not None and joined.when > end.when
