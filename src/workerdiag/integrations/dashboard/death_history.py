"""The deaths of one scheduler for the dashboard, in bounded memory."""

from __future__ import annotations

import base64
import json
import zlib
from collections import Counter
from collections.abc import Container, Mapping
from heapq import nlargest
from itertools import islice
from typing import Final, TypeVar

from attrs import define, evolve, field

from workerdiag.integrations.dashboard.judge import DeadWorker, JudgedCase, Judgement, KnownCause, ids_of

_T = TypeVar("_T")

#: Schema number of the JSON, increased with each change that readers could notice.
JSON_SCHEMA: Final = 1
#: Maximum number of cases; those without a death for longest are dropped.
MAX_CASES = 100
#: Numbers of dead workers of a case to keep and to list, the newest first; others are only counted.
MAX_VICTIMS, MAX_NAMED = 50, 10
#: Number of dead workers whose memory is drawn, the newest of all cases.
MAX_CURVES = 20
#: Limits of the reports to keep, of the cases with the newest deaths: number and total bytes, compressed.
MAX_REPORTS, MAX_REPORT_BYTES = 50, 16 * 2**20
#: Number of counted deaths to remember: ten times what the recorder keeps.
_MAX_KNOWN = 10_000
_UNKNOWN: Final = "unknown"

#: Labels of the counts: cause, family and blame.
Labels = tuple[str, str, str]


@define(eq=False)
class ShownCase:
    """One row: a problem and its victims."""

    judged: JudgedCase
    first_at: float
    last_at: float
    death_count: int = 0
    #: Victims by id, in the order of judgement.
    victims: dict[str, DeadWorker] = field(factory=dict)
    #: The report, compressed; None if it was dropped.
    report: bytes | None = None

    def to_plain(self, drawn: Container[str]) -> dict[str, object]:
        """Return the row as plain data, with the memory of the deaths in *drawn*."""
        judged = self.judged
        newest_first = islice(reversed(self.victims.values()), MAX_NAMED)
        return {
            "id": judged.id,
            "title": judged.title,
            "cause": judged.cause,
            "family": judged.family,
            "probability": round(judged.probability, 3),
            "is_likely": judged.is_likely,
            "blame": judged.blame,
            "death_count": self.death_count,
            "first_at": self.first_at,
            "last_at": self.last_at,
            "workers": [_plain_victim(each, is_drawn=each.id in drawn) for each in newest_first],
            "report": f"workerdiag/deaths/{judged.id}.html" if self.report is not None else None,
        }


class DeathBook:
    """Cases by id, and counts that only grow."""

    def __init__(self) -> None:
        self._cases: dict[str, ShownCase] = {}
        #: The case of each death, the newest last.
        self._case_of: dict[str, str] = {}
        self._counts: Counter[Labels] = Counter()
        self._causes: tuple[KnownCause, ...] = ()
        #: Version and text of the cached JSON.
        self._json = (-1, "")
        #: Grows with each change.
        self.version = 0
        #: Number of deaths that wait to be judged.
        self.settling_count = 0
        #: Number of deaths that the recorder dropped unread.
        self.missed_count = 0

    @property
    def knows_causes(self) -> bool:
        """Whether causes without deaths are known too."""
        return bool(self._causes)

    @property
    def death_count(self) -> int:
        """The number of deaths counted."""
        return self._counts.total()

    def cases(self) -> list[ShownCase]:
        """Return the cases, those with the newest deaths first."""
        return sorted(self._cases.values(), key=lambda each: each.last_at, reverse=True)

    def counts(self) -> Mapping[Labels, int]:
        """Return the number of deaths by cause, family and blame, with zero for other known causes."""
        known = [(each.cause, each.family, each.blame) for each in self._causes]
        return dict.fromkeys([(_UNKNOWN, _UNKNOWN, _UNKNOWN), *known], 0) | self._counts

    def report(self, case_id: str) -> bytes | None:
        """Return the HTML report of a case; None if there is no such case, or its report was dropped."""
        case = self._cases.get(case_id)
        return zlib.decompress(case.report) if case is not None and case.report is not None else None

    def to_json(self) -> str:
        """Return everything shown, as docs/dashboard.md describes it. It is cached until the next change."""
        if self._json[0] != self.version:
            self._json = (self.version, json.dumps(self._plain()))
        return self._json[1]

    def settle(self, count: int, missed_count: int = 0) -> None:
        """Note the number of waiting deaths, and of further missed ones."""
        if count != self.settling_count or missed_count:
            self.settling_count = count
            self.missed_count += missed_count
            self.version += 1

    def add(self, judgement: Judgement) -> None:
        """Add a judgement. A death that was judged before moves to its new case."""
        self._causes = judgement.causes or self._causes
        told = ids_of(each for case in judgement.cases for each in case.victims)
        for id_ in judgement.death_ids - told:
            self._remove(id_)
        for case in judgement.cases:
            self._add_case(case)
        self._enforce_limits()
        self.version += 1

    def _plain(self) -> dict[str, object]:
        cases = self.cases()
        victims = (victim for case in cases for victim in case.victims.values())
        drawn = {each.id for each in nlargest(MAX_CURVES, victims, key=lambda each: each.when)}
        return {
            "schema": JSON_SCHEMA,
            "death_count": self.death_count,
            "settling_count": self.settling_count,
            "missed_count": self.missed_count,
            "cases": [each.to_plain(drawn) for each in cases],
        }

    def _add_case(self, judged: JudgedCase) -> None:
        if not judged.victims:
            return
        times = [each.when for each in judged.victims]
        shown = self._cases.setdefault(judged.id, ShownCase(judged, min(times), max(times)))
        shown.judged = evolve(judged, victims=(), report="")
        shown.first_at = min(shown.first_at, *times)
        shown.last_at = max(shown.last_at, *times)
        if judged.report:
            shown.report = base64.b64decode(judged.report)
        for victim in judged.victims:
            id_ = victim.report_id if victim.report_id in self._case_of else victim.id
            if self._case_of.get(id_) not in (None, judged.id):
                self._remove(id_)
                self._case_of[id_] = judged.id
                shown.death_count += 1
            elif id_ not in self._case_of:
                self._case_of[id_] = judged.id
                shown.death_count += 1
                self._counts[_labels(judged)] += 1
            shown.victims[id_] = victim

    def _remove(self, death_id: str) -> None:
        """Remove a death from its case; it stays counted."""
        shown = self._cases.get(self._case_of.get(death_id, ""))
        if shown is None:
            return
        self._case_of[death_id] = ""
        shown.victims.pop(death_id, None)
        shown.death_count -= 1
        if shown.death_count == 0:
            del self._cases[shown.judged.id]

    def _enforce_limits(self) -> None:
        for old in self.cases()[MAX_CASES:]:
            del self._cases[old.judged.id]
            gone = [id_ for id_, case_id in self._case_of.items() if case_id == old.judged.id]
            self._case_of |= dict.fromkeys(gone, "")
        left = MAX_REPORT_BYTES
        for number, case in enumerate(self.cases()):
            left -= len(case.report or b"")
            if number >= MAX_REPORTS or left < 0:
                case.report = None
            _forget_oldest(case.victims, MAX_VICTIMS)
        _forget_oldest(self._case_of, _MAX_KNOWN)


def _plain_victim(victim: DeadWorker, *, is_drawn: bool) -> dict[str, object]:
    plain: dict[str, object] = {"worker": victim.worker, "name": victim.name, "when": victim.when}
    if is_drawn:
        plain["memory"] = {
            "seconds": victim.seconds,
            "rss_bytes": victim.rss_bytes,
            "limit_bytes": victim.limit_bytes,
        }
    return plain


def _labels(judged: JudgedCase) -> Labels:
    if judged.cause is None or judged.family is None or not judged.is_likely:
        return (_UNKNOWN, _UNKNOWN, judged.blame)
    return (judged.cause, judged.family, judged.blame)


def _forget_oldest(entries: dict[str, _T], most: int) -> None:
    while len(entries) > most:
        del entries[next(iter(entries))]
