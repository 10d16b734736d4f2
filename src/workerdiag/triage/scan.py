"""Search one part for marks and signs, as a task of triage does on a worker.

Its text is cut into overlapping segments, in which a search finds what it would find in the whole. All matches
near ends of processes are kept, and the first and last of the rest. Memory is bounded: in a part that is full of
ends, the messages near them are left out first, then ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from math import inf
from typing import Final

from workerdiag.api.explain import DEFAULT_RULEBOOK
from workerdiag.deadline import NO_DEADLINE
from workerdiag.guard import guarded
from workerdiag.matching.match import find_matches
from workerdiag.matching.messages import REACH_AHEAD, REACH_BEHIND
from workerdiag.matching.other_lines import LastLine, Recognition
from workerdiag.matching.regex import SearchWork
from workerdiag.matching.scan import Matcher
from workerdiag.model.diagnosis import RECOGNITION_ROLE, Match
from workerdiag.model.evidence import Evidence, LogChunk
from workerdiag.model.incident import END_ROLES
from workerdiag.model.rules import Rulebook
from workerdiag.triage.outcome import (
    LONGEST_NAMING,
    VERSIONS_WITHIN,
    PartIndex,
    PartOutcome,
    Versions,
    pack,
    workers_of,
)
from workerdiag.triage.parts import ALIGNMENT, MIB, NotALogError, Part, PartText, failure_in, reason_of
from workerdiag.triage.tables import InputStatus
from workerdiag.values import evolve, field, frozen

_MAX_ADDRESSES = 1000


@frozen(kw_only=True)
class ScanSettings:
    """The rules to use, and how to open files."""

    #: None: the rules that come with workerdiag, and installed packs.
    rulebook: Rulebook | None = None
    storage_options: Mapping[str, object] = field(factory=dict, repr=False)


def scan_part(part: Part, settings: ScanSettings) -> bytes:
    """Return the packed outcome of a part. It also reports any problem with the file."""
    book, matcher = compiled_rules(settings)
    text = PartText(part, settings.storage_options, overlap=OVERLAP)
    search = TextSearch(part.file.url, matcher)
    pieces: Sequence[Evidence] = ()
    found: Sequence[Match] = ()
    status: InputStatus = "done"
    reason = ""
    blocks = guarded("reading blocks")

    def read() -> Iterator[tuple[int, bytes]]:
        with blocks:
            yield from text.blocks()

    with guarded("reading a part of a log") as reading:
        search.run(cut_into_segments(part.first_byte, read()))
        if blocks.problem is not None:  # what was read before it counts
            raise blocks.problem
        found = (*search.outermost, *search.near_ends)
        if text.pieces is not None:
            pieces = text.pieces
            searched = find_matches(pieces, matcher)
            found = searched.matches
            if not pieces:
                status, reason = "empty", "it has no death, or its worker may still run"
            if failure := failure_in([*pieces, *searched.gaps], part.file.url):
                status, reason = "failed", failure
        elif not text.is_read_elsewhere:
            status, reason = search.status(is_first=not part.first_byte)
    if isinstance(reading.problem, NotALogError):
        status, reason = "not-a-log", str(reading.problem)
    elif reading.problem is not None:
        found = (*search.outermost, *search.near_ends)
        status, reason = "failed", reason_of(reading.problem)
    outcome = PartOutcome(
        row=part.row(
            status=status, reason=reason, read_bytes=text.read_bytes, lines=search.newlines, knowledge=book.release
        ),
        index=evolve(_index(found, pieces), versions=search.versions),
        newlines=search.newlines,
        reports=sum(each.role in END_ROLES for each in found),
        dropped_ends=search.dropped_ends,
    )
    return pack(outcome, search.outermost, search.near_ends, pieces)


def compiled_rules(settings: ScanSettings) -> tuple[Rulebook, Matcher]:
    """Return the rules and their matcher; those of the last task are cached, as the next mostly has the same."""
    book = settings.rulebook
    return DEFAULT_RULEBOOK.within(NO_DEADLINE) if book is None else _compiled(book)


@lru_cache(maxsize=1)
def _compiled(book: Rulebook) -> tuple[Rulebook, Matcher]:
    return book, Matcher(book)


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


#: How far a message may reach before and after a place in it, in bytes, rounded up to `ALIGNMENT`.
OVERLAP: Final = -(-max(REACH_BEHIND, REACH_AHEAD) // ALIGNMENT) * ALIGNMENT
#: Bytes that are searched closely around the end of a process.
_SEGMENT_BYTES = 8 * MIB


@frozen
class Segment:
    """Bytes of a text, with enough context to see whole messages."""

    #: Offset of *data* in the text, and the range of bytes that count.
    base: int
    first: int
    end: int
    data: bytes
    #: Newlines between the beginning of the part and the base; negative if the part begins after the base.
    newlines_before: int
    #: Whether it is the whole text. A short whole text is repaired.
    is_whole: bool = False


def cut_into_segments(first: int, blocks: Iterable[tuple[int, bytes]]) -> Iterator[Segment]:
    """Yield the text in overlapping segments, aligned so that they are searched as the whole text would be.

    Bytes count from *first*. Each block comes with its place in the text; the first may lie before *first*, and
    those behind what counts follow an empty block.
    """
    held, base, own, end = bytearray(), max(0, first - OVERLAP), first, inf
    newlines: int | None = None
    for place, data in blocks:
        if not data:  # the rest is overlap
            end = place
        held += data
        if newlines is None and base + len(held) > own:
            newlines = -held.count(b"\n", 0, own - base)
        if len(held) >= _SEGMENT_BYTES + 2 * OVERLAP and newlines is not None:
            stop = int(min(end, (base + len(held) - OVERLAP) // ALIGNMENT * ALIGNMENT))
            yield Segment(base, own, stop, bytes(held), newlines)
            keep = max(0, stop - OVERLAP - base) // ALIGNMENT * ALIGNMENT
            newlines += held.count(b"\n", 0, keep)
            del held[:keep]
            base, own = base + keep, stop
    stop = int(min(end, base + len(held)))
    if stop > own and newlines is not None:
        is_whole = base == own == 0 and end == inf
        yield Segment(base, own, stop, bytes(held), newlines, is_whole)


#: The first and the last of each kind of message that are kept; near ends of processes, all are kept.
_OUTERMOST = 100
#: Keep at most about this many messages near ends of one part; each takes 2 kB. After that, keep only the
#: ends, at most this many: judging one takes 0.5 ms and 8 kB.
_MAX_NEAR_ENDS = 100_000
_MAX_ENDS = 50_000


class TextSearch:
    """The search of the text of one part.

    It keeps the first and the last of each kind of message. Near ends of processes it keeps all, that is in
    segments that have an end and in the segments before them. The *url* becomes the origin of matches.
    """

    def __init__(self, url: str, matcher: Matcher) -> None:
        self._url = url
        self._matcher = matcher
        self.outermost: list[Match] = []
        self.near_ends: list[Match] = []
        #: Number of newlines; the byte after the searched text (None: nothing was searched); versions named.
        self.newlines = 0
        self.end: int | None = None
        self.versions = Versions()
        #: Why the text was not searched completely; empty if it was.
        self.problem = ""
        #: Messages near ends, and reports of ends, of which only the first and the last are kept.
        self.dropped_messages = 0
        self.dropped_ends = 0
        self._last_two: list[Segment] = []
        self._ends = 0
        self._kept_ends = 0
        #: Ranges in which all ends were kept, and whether all other matches were too.
        self._kept: list[tuple[int, int, bool]] = []
        #: The byte after the last segment that was searched closely.
        self._looked_to = 0

    def run(self, segments: Iterable[Segment]) -> None:
        """Search all segments."""
        read = self._read(segments)
        first, second = next(read, None), next(read, None)
        if first is not None and second is not None:
            self._search_long(first, chain((first, second), read))
        elif first is not None:
            found = self._all_in(first)
            has_end = any(each.role in END_ROLES for each in found)
            self.outermost, self.near_ends = ([], found) if has_end else (outermost_of(found), [])

    def status(self, *, is_first: bool) -> tuple[InputStatus, str]:
        """Return how the search ended, and why the text was not searched, or is not kept, completely."""
        if self.problem:
            return "failed", self.problem
        if self.end is None:
            return "empty", "there is nothing in it"
        if is_first and not self.outermost and not self.near_ends:
            return "not-a-log", "nothing in its text is recognized"
        if not self.dropped_messages and not self.dropped_ends:
            return "done", ""
        ends = f"{self.dropped_ends:,} reports of ends and " if self.dropped_ends else ""
        what = f"of {ends}{self.dropped_messages:,} messages near ends"
        return "done", f"{what} only the first and the last are kept"

    def _read(self, segments: Iterable[Segment]) -> Iterator[Segment]:
        for segment in segments:
            own = (segment.first - segment.base, segment.end - segment.base)
            self.newlines += segment.data.count(b"\n", *own)
            if segment.first < VERSIONS_WITHIN:
                behind = min(segment.end, VERSIONS_WITHIN) - segment.base
                self.versions = self.versions.seen_in(segment.data[own[0] : behind + LONGEST_NAMING])
            self.end = segment.end
            yield segment

    def _search_long(self, first: Segment, segments: Iterable[Segment]) -> None:
        work, recognition = SearchWork(), Recognition()
        found = list(self._matcher.matches(recognition.tee(self._chunks(segments, work)), None, work))
        self._look_closely(work)
        self._note_gaps(work)
        if not first.first:
            found += recognition.matches()
        text = evolve(first, end=self.end or first.end, data=b"")
        self.outermost = outermost_of([each for each in _own_matches(found, text) if not self._is_kept(each)])

    def _is_kept(self, match: Match) -> bool:
        is_end, at = match.role in END_ROLES, match.offset or 0
        return any(first <= at < end and (is_end or is_detailed) for first, end, is_detailed in self._kept)

    def _chunks(self, segments: Iterable[Segment], work: SearchWork) -> Iterator[LogChunk]:
        """Yield the text without the overlap of segments. Search segments that have an end closely."""
        done: int | None = None
        for segment in segments:
            start = 0 if done is None else done - segment.base
            yield from self._chunks_of(segment.data, start, has_line=done is None)
            done = segment.base + len(segment.data)
            self._last_two = [*self._last_two[-1:], segment]
            self._look_closely(work)

    def _chunks_of(self, data: bytes, start: int, *, has_line: bool) -> Iterator[LogChunk]:
        """Yield the data; if the first chunk *has_line*, the number of its first line, it is not repaired."""
        for at in range(start, len(data), MIB):
            first_line = 1 if has_line and at == start else None
            yield LogChunk(origin=self._url, data=data[at : at + MIB], first_line=first_line)

    def _look_closely(self, work: SearchWork) -> None:
        """Keep all matches of the last two segments if a new end was found, or if ends can no longer be counted."""
        ends = sum(work.reports.values())
        if ends == self._ends and not work.unsure_reports:
            return
        self._ends = ends
        for segment in self._last_two:
            if segment.first >= self._looked_to:
                self._looked_to = segment.end
                self._keep(segment, self._all_in(segment))

    def _keep(self, segment: Segment, found: Sequence[Match]) -> None:
        """Keep all matches near ends, or only the ends, as far as there is room."""
        ends = [each for each in found if each.role in END_ROLES]
        is_detailed = len(self.near_ends) < _MAX_NEAR_ENDS
        self.dropped_messages += 0 if is_detailed else len(found) - len(ends)
        if is_detailed or self._kept_ends < _MAX_ENDS:
            self.near_ends += found if is_detailed else ends
            self._kept_ends += len(ends)
            self._kept.append((segment.first, segment.end, is_detailed))
        else:
            self.dropped_ends += len(ends)

    def _all_in(self, segment: Segment) -> list[Match]:
        work, recognition, end = SearchWork(keeps_all=True), Recognition(), LastLine()
        chunks = self._chunks_of(segment.data, 0, has_line=not segment.is_whole)
        found = list(self._matcher.matches(end.tee(recognition.tee(chunks)), None, work))
        if not segment.first:
            found += (*recognition.matches(), *(end.matches() if segment.is_whole else ()))
        self._note_gaps(work)
        return list(_own_matches(found, segment))

    def _note_gaps(self, work: SearchWork) -> None:
        for gap in work.gaps(self._url, "log", "bytes of its text"):
            self.problem = gap.detail


def outermost_of(found: Sequence[Match]) -> list[Match]:
    """Return the first and last matches of each kind, in order."""
    numbers: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for number, each in enumerate(found):
        numbers[each.owner, each.sign].append(number)
    outer = ({*those[:_OUTERMOST], *those[-_OUTERMOST:]} for those in numbers.values())
    return [found[number] for number in sorted(set[int]().union(*outer))]


def _own_matches(found: Iterable[Match], segment: Segment) -> Iterator[Match]:
    """Yield the matches that count, with offsets in the whole text, and lines counted from the part's beginning."""
    for match in found:
        offset = segment.base
        offset += _line_start(segment.data, match.line) if match.offset is None else match.offset
        if segment.first <= offset < segment.end:
            yield evolve(moved(match, segment.newlines_before), offset=offset)


def moved(match: Match, lines: int) -> Match:
    """Return the match in a text with *lines* more lines before it; 0 stays: it is not known."""
    if not lines:
        return match
    return evolve(
        match,
        line=match.line + lines if match.line else 0,
        last_line=match.last_line + lines if match.last_line else 0,
        message_line=match.message_line + lines if match.message_line else 0,
    )


def _line_start(data: bytes, line: int) -> int:
    """Return where line *line* begins, in short texts that the matcher has repaired, and in their beginnings."""
    at = 0
    for _ in range(line - 1):
        at = data.find(b"\n", at) + 1
    return at
