"""
Searches one part for marks and signs: what a task of triage does on a worker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

from attrs import evolve, frozen

from workerdiag.deadline import NO_DEADLINE
from workerdiag.matching.match import find_matches
from workerdiag.matching.scan.confirmation import MATCHES_PER_END
from workerdiag.matching.scan.matcher import Matcher
from workerdiag.matching.text.last_line import LastLine
from workerdiag.matching.text.recognition import Recognition
from workerdiag.matching.work_budget import WorkBudget
from workerdiag.model.diagnosis import RECOGNITION_ROLE, Match
from workerdiag.model.evidence import Evidence, LogChunk
from workerdiag.model.rules import Rulebook
from workerdiag.triage.container import Container, NotALogError, failure_in
from workerdiag.triage.outcome import (
    PartIndex,
    PartOutcome,
    pack,
    pack_evidence,
    pack_outcome,
    workers_of,
)
from workerdiag.triage.part_text import PartText
from workerdiag.triage.parts import MIB, Part, reason_of
from workerdiag.triage.rows import InputStatus
from workerdiag.triage.segments import OVERLAP, Segment, cut_into_segments
from workerdiag.triage.versions import LONGEST_NAMING, VERSIONS_WITHIN, Versions

#: At most this many places are kept of one part, and so many before only the outermost of a kind are.
_MAX_MATCHES = 100_000
_MAX_DETAILED = 60_000
#: At most this many addresses of one part are kept.
_MAX_ADDRESSES = 1000
_DEATHS = ("death", "self-closed", "removal")


@frozen(kw_only=True)
class ScanSettings:
    """
    By what rules, and how files are opened.
    """

    #: None: those that come with workerdiag, and installed packs.
    rulebook: Rulebook | None = None
    storage_options: Mapping[str, object] = {}


def scan_part(part: Part, settings: ScanSettings) -> bytes:
    """
    The packed outcome of a part; whatever is wrong with the file is said in it.
    """
    return _PartScan(part, settings).packed()


class _PartScan:
    """
    One part, while it is searched.
    """

    def __init__(self, part: Part, settings: ScanSettings) -> None:
        self._part = part
        self._book, self._matcher = compiled_rules(settings)
        self._text = PartText(part, settings.storage_options, overlap=OVERLAP)
        self._found: list[Match] = []
        self._pieces: Sequence[Evidence] = ()
        self._status: InputStatus = "done"
        self._reason = ""
        self._newlines, self._end = 0, part.first_byte
        self._versions = Versions()

    def packed(self) -> bytes:
        """
        The outcome, and what was found.
        """
        try:
            for segment in cut_into_segments(self._part.first_byte, self._text.blocks()):
                self._search(segment)
                if len(self._found) > _MAX_MATCHES:
                    self._fail(f"more than {_MAX_MATCHES} messages: behind byte {self._end} none is kept")
                    break
            if self._text.container is not None:
                self._open(self._text.container)
            elif not self._text.is_read_elsewhere:
                self._tell_nothing()
        except NotALogError as problem:
            self._status, self._reason = "not-a-log", str(problem)
        except Exception as problem:  # noqa: BLE001  files and stores raise anything
            self._fail(reason_of(problem))
        outcome = self._outcome()
        if self._pieces:
            return pack_evidence(outcome, self._pieces)
        return pack(outcome, self._found) if self._found else pack_outcome(outcome)

    def _search(self, segment: Segment) -> None:
        self._found += self._matches(segment)
        own = (segment.first - segment.base, segment.end - segment.base)
        self._newlines += segment.data.count(b"\n", *own)
        if segment.first < VERSIONS_WITHIN:
            behind = min(segment.end, VERSIONS_WITHIN) - segment.base
            self._versions = self._versions.seen_in(segment.data[own[0] : behind + LONGEST_NAMING])
        self._end = segment.end

    def _matches(self, segment: Segment) -> list[Match]:
        """
        What stands in a segment; where that has deaths and more of some kind than is kept, piece by piece.
        """
        work, url = WorkBudget(), self._part.file.url
        found = _matches_around(segment, url, self._matcher, work)
        own = list(_own_matches(found, segment))
        if _is_clipped(found) and any(each.role in _DEATHS for each in own):
            pieces = list(segment.pieces()) if len(self._found) < _MAX_DETAILED else []
            if pieces:
                return [match for piece in pieces for match in self._matches(piece)]
            self._fail(f"it has more messages than are kept, some before byte {segment.end}")
        for gap in work.gaps(url, "log", "bytes of its text"):
            self._fail(gap.detail)
        return own

    def _open(self, container: Container) -> None:
        self._pieces = list(container.evidence())
        searched = find_matches(self._pieces, self._matcher)
        self._found = searched.matches
        if not self._pieces:
            self._status, self._reason = "empty", "there is no death in it, or its worker may still run"
        failure = failure_in([*self._pieces, *searched.gaps], container.url)
        if failure:
            self._fail(failure)

    def _tell_nothing(self) -> None:
        """
        Say so if there is nothing in the text, or nothing that is known.
        """
        if self._status != "done":
            return
        if self._end == self._part.first_byte:
            self._status, self._reason = "empty", "there is nothing in it"
        elif not self._found and not self._part.first_byte:
            self._status, self._reason = "not-a-log", "nothing in its text is known"

    def _fail(self, reason: str) -> None:
        self._status, self._reason = "failed", reason

    def _outcome(self) -> PartOutcome:
        row = self._part.row(
            status=self._status,
            reason=self._reason,
            read_bytes=self._text.read_bytes,
            lines=self._newlines,
            knowledge=self._book.release,
        )
        return PartOutcome(
            row=row,
            index=evolve(_index(self._found, self._pieces), versions=self._versions),
            newlines=self._newlines,
            reports=sum(each.role in _DEATHS for each in self._found),
        )


@cache
def _default_rules() -> tuple[Rulebook, Matcher]:
    from workerdiag.api.answer import DEFAULT_RULEBOOK

    return DEFAULT_RULEBOOK.within(NO_DEADLINE)


class _LastRules:
    """
    The rules of the task before, compiled: those of the next are nearly always the same.
    """

    rules: tuple[Rulebook, Matcher] | None = None


def compiled_rules(settings: ScanSettings) -> tuple[Rulebook, Matcher]:
    """
    The rules, ready to run; those of the call before are kept.
    """
    book = settings.rulebook
    if book is None:
        return _default_rules()
    last = _LastRules.rules
    if last is None or last[0] != book:
        last = _LastRules.rules = book, Matcher(book)
    return last


def _matches_around(segment: Segment, url: str, matcher: Matcher, work: WorkBudget) -> list[Match]:
    """
    What stands in a segment and around it, as the matcher tells it.
    """
    chunks: Iterable[LogChunk] = (
        LogChunk(
            origin=url,
            data=segment.data[at : at + MIB],
            first_line=1 if not at and not segment.is_whole else None,  # so that it is not mended
        )
        for at in range(0, len(segment.data), MIB)
    )
    if segment.base or segment.first:
        return [*matcher.matches(chunks, None, work)]
    recognition, end = Recognition(), LastLine()
    found = [*matcher.matches(end.tee(recognition.tee(chunks)), None, work)]
    return [*found, *recognition.matches(), *(end.matches() if segment.is_whole else ())]


def _is_clipped(found: Iterable[Match]) -> bool:
    """
    Whether there are as many matches of one kind as are kept, so that there may be more.
    """
    counts = Counter((each.owner, each.sign, each.role) for each in found)
    return max(counts.values(), default=0) >= 2 * MATCHES_PER_END


def _own_matches(found: Iterable[Match], segment: Segment) -> Iterator[Match]:
    """
    Those that count, with their places in the whole text, and lines counted from the part's beginning.
    """
    lines = segment.newlines_before
    for match in found:
        offset = segment.base
        offset += _line_start(segment.data, match.line) if match.offset is None else match.offset
        if not segment.first <= offset < segment.end:
            continue
        yield evolve(
            match,
            offset=offset,
            line=match.line + lines if match.line else 0,
            last_line=match.last_line + lines if match.last_line else 0,
            message_line=match.message_line + lines if match.message_line else 0,
        )


def _line_start(data: bytes, line: int) -> int:
    """
    Where line number *line* begins; for short texts that the matcher has mended, and for their beginnings.
    """
    at = 0
    for _ in range(line - 1):
        at = data.find(b"\n", at) + 1
    return at


def _index(found: Iterable[Match], pieces: Iterable[Evidence]) -> PartIndex:
    schedulers: set[str] = set()
    workers = workers_of(pieces)
    times: list[float] = []
    for each in found:
        if each.role == RECOGNITION_ROLE:
            continue
        if not each.sign and (scheduler := each.captures.get("scheduler")):
            schedulers.add(scheduler)
        if each.identity.worker and len(workers) < _MAX_ADDRESSES:
            workers.add(each.identity.worker)
        if each.when is not None and not each.year_assumed:
            times.append(each.when)
    return PartIndex(
        schedulers=tuple(sorted(schedulers)[:_MAX_ADDRESSES]),
        workers=tuple(sorted(workers)[:_MAX_ADDRESSES]),
        first_when=min(times, default=None),
        last_when=max(times, default=None),
    )
