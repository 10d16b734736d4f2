"""Search the text of one part. Keep all matches near ends of processes, and the first and last of the rest.

Memory is bounded: in a part that is full of ends, the messages near them are left out first, then ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from attrs import evolve

from workerdiag.matching.other_lines import LastLine, Recognition
from workerdiag.matching.scan import Matcher
from workerdiag.matching.work_budget import WorkBudget
from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import LogChunk
from workerdiag.model.incident import END_ROLES
from workerdiag.triage.parts import MIB
from workerdiag.triage.segments import Segment
from workerdiag.triage.versions import LONGEST_NAMING, VERSIONS_WITHIN, Versions

#: The first and the last of each kind of message that are kept; near ends of processes, all are kept.
_OUTERMOST = 100
#: Keep at most about this many messages near ends of one part; each takes 2 kB. After that, keep only the
#: ends, at most this many: judging one takes 0.5 ms and 8 kB.
_MAX_NEAR_ENDS = 100_000
_MAX_ENDS = 50_000


class TextSearch:
    """The search of the text of one part.

    It keeps the first and the last of each kind of message. Near ends of processes it keeps all, that is in
    segments that have an end and in the segments before them.

    Args:
        url: The file's URL, which becomes the origin of matches.
        matcher: The patterns to look for.
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
        #: Number of messages near ends, and of reports of ends, of which only the first and the last are
        #: kept.
        self.dropped_messages = 0
        self.dropped_ends = 0
        self._raised: Exception | None = None
        self._last_two: list[Segment] = []
        self._ends = 0
        self._kept_ends = 0
        #: Ranges in which all matches were kept, and ranges in which all ends were.
        self._detailed: list[tuple[int, int]] = []
        self._with_ends: list[tuple[int, int]] = []
        #: The byte after the last segment that was searched closely.
        self._looked_to = 0

    def run(self, segments: Iterable[Segment]) -> None:
        """Search all segments.

        Raises:
            Exception: The exception of reading; what was read before has been searched.
        """
        read = self._read(segments)
        first, second = next(read, None), next(read, None)
        if first is not None and second is not None:
            self._search_long(first, chain((first, second), read))
        elif first is not None:
            found = self._all_in(first)
            has_end = any(each.role in END_ROLES for each in found)
            self.outermost, self.near_ends = ([], found) if has_end else (outermost_of(found), [])
        if self._raised is not None:
            raise self._raised

    def _read(self, segments: Iterable[Segment]) -> Iterator[Segment]:
        try:
            for segment in segments:
                own = (segment.first - segment.base, segment.end - segment.base)
                self.newlines += segment.data.count(b"\n", *own)
                if segment.first < VERSIONS_WITHIN:
                    behind = min(segment.end, VERSIONS_WITHIN) - segment.base
                    self.versions = self.versions.seen_in(segment.data[own[0] : behind + LONGEST_NAMING])
                self.end = segment.end
                yield segment
        except Exception as problem:  # noqa: BLE001  files and stores raise anything; what was read counts
            self._raised = problem

    def _search_long(self, first: Segment, segments: Iterable[Segment]) -> None:
        work, recognition = WorkBudget(), Recognition()
        found = list(self._matcher.matches(recognition.tee(self._chunks(segments, work)), None, work))
        self._look_closely(work)
        self._note_gaps(work)
        if not first.first:
            found += recognition.matches()
        text = evolve(first, end=self.end or first.end, data=b"")
        self.outermost = outermost_of(
            [
                each
                for each in _own_matches(found, text)
                if not _is_within(each, self._with_ends if each.role in END_ROLES else self._detailed)
            ]
        )

    def _chunks(self, segments: Iterable[Segment], work: WorkBudget) -> Iterator[LogChunk]:
        """Yield the text without the overlap of segments. Search segments that have an end closely."""
        done: int | None = None
        for segment in segments:
            start = 0 if done is None else done - segment.base
            for at in range(start, len(segment.data), MIB):
                first_line = 1 if done is None and not at else None  # prevents repair
                yield LogChunk(origin=self._url, data=segment.data[at : at + MIB], first_line=first_line)
            done = segment.base + len(segment.data)
            self._last_two = [*self._last_two[-1:], segment]
            self._look_closely(work)

    def _look_closely(self, work: WorkBudget) -> None:
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
        own = (segment.first, segment.end)
        if len(self.near_ends) < _MAX_NEAR_ENDS:
            self.near_ends += found
            self._detailed.append(own)
        elif self._kept_ends < _MAX_ENDS:
            self.near_ends += ends
            self.dropped_messages += len(found) - len(ends)
        else:
            self.dropped_messages += len(found) - len(ends)
            self.dropped_ends += len(ends)
            return
        self._kept_ends += len(ends)
        self._with_ends.append(own)

    def _all_in(self, segment: Segment) -> list[Match]:
        work = WorkBudget(keeps_all=True)
        chunks: Iterable[LogChunk] = (
            LogChunk(
                origin=self._url,
                data=segment.data[at : at + MIB],
                first_line=1 if not at and not segment.is_whole else None,  # prevents repair
            )
            for at in range(0, len(segment.data), MIB)
        )
        recognition, end = Recognition(), LastLine()
        found = list(self._matcher.matches(end.tee(recognition.tee(chunks)), None, work))
        if not segment.first:
            found += (*recognition.matches(), *(end.matches() if segment.is_whole else ()))
        self._note_gaps(work)
        return list(_own_matches(found, segment))

    def _note_gaps(self, work: WorkBudget) -> None:
        for gap in work.gaps(self._url, "log", "bytes of its text"):
            self.problem = gap.detail


def _is_within(match: Match, ranges: Iterable[tuple[int, int]]) -> bool:
    return any(low <= (match.offset or 0) < high for low, high in ranges)


def outermost_of(found: Sequence[Match]) -> list[Match]:
    """Return the first and last matches of each kind, in order.

    Those of all pieces of a text together include those of the whole text.
    """
    numbers: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for number, each in enumerate(found):
        numbers[each.owner, each.sign].append(number)
    outer = ({*those[:_OUTERMOST], *those[-_OUTERMOST:]} for those in numbers.values())
    return [found[number] for number in sorted(set[int]().union(*outer))]


def _own_matches(found: Iterable[Match], segment: Segment) -> Iterator[Match]:
    """Yield the matches that count, with offsets in the whole text, and lines counted from the part's beginning."""
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
    """Return where line *line* begins, in short texts that the matcher has repaired, and in their beginnings."""
    at = 0
    for _ in range(line - 1):
        at = data.find(b"\n", at) + 1
    return at
