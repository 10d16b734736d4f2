"""
Searches one part for marks and signs: what a task of triage does on a worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from math import inf
from typing import Any, Final

from attrs import evolve, frozen

from workerdiag.deadline import NO_DEADLINE
from workerdiag.matching.scan.matcher import Matcher
from workerdiag.matching.scan.records import REACH_AHEAD, REACH_BEHIND
from workerdiag.matching.scan.work_budget import WorkBudget
from workerdiag.matching.text.recognition import Recognition
from workerdiag.model.diagnosis import RECOGNITION_ROLE, Match
from workerdiag.model.evidence import LogChunk
from workerdiag.model.rules import Rulebook
from workerdiag.triage.outcome import PartIndex, PartOutcome, pack, pack_outcome
from workerdiag.triage.part_text import NotALogError, PartText
from workerdiag.triage.parts import ALIGNMENT, MIB, Part, reason_of
from workerdiag.triage.rows import InputStatus
from workerdiag.triage.versions import LONGEST_NAMING, VERSIONS_WITHIN, Versions

#: How far before and behind a place its message may reach, rounded up to where parts may begin.
OVERLAP: Final = -(-max(REACH_BEHIND, REACH_AHEAD) // ALIGNMENT) * ALIGNMENT
#: The matcher keeps at most 800 places of each sign of one text; so a part is searched in so many bytes.
_SEGMENT_BYTES = 8 * MIB
#: At most this many places are kept of one part.
_MAX_MATCHES = 100_000
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
    storage_options: Mapping[str, Any] = {}


@frozen
class _Segment:
    """
    Bytes of a text with enough around them to see whole messages.
    """

    #: Where the bytes begin in the text, and which of them count.
    base: int
    first: int
    end: int
    data: bytes
    #: Ends of lines before the base, from the beginning of the part on; negative if that lies behind it.
    newlines_before: int
    #: Whether it is all of the text, which is mended then, if it is short.
    is_whole: bool = False


def scan_part(part: Part, settings: ScanSettings) -> bytes:
    """
    The packed outcome of a part; whatever is wrong with the file is said in it.
    """
    book, matcher = compiled_rules(settings)
    text = PartText(part, settings.storage_options, overlap=OVERLAP)
    found: list[Match] = []
    status: InputStatus = "done"
    reason, newlines, end = "", 0, part.first_byte
    versions = Versions()
    try:
        for segment in _segments(part.first_byte, text.blocks()):
            own = (segment.first - segment.base, segment.end - segment.base)
            work = WorkBudget()
            found += _matches(segment, part.file.url, matcher, work)
            for gap in work.gaps(part.file.url, "log", "bytes of its text"):
                status, reason = "failed", gap.detail
            newlines += segment.data.count(b"\n", *own)
            if segment.first < VERSIONS_WITHIN:
                behind = min(segment.end, VERSIONS_WITHIN) - segment.base
                versions = versions.seen_in(segment.data[own[0] : behind + LONGEST_NAMING])
            end = segment.end
            if len(found) > _MAX_MATCHES:
                status, reason = (
                    "failed",
                    f"more than {_MAX_MATCHES} messages: behind byte {end} none is kept",
                )
                break
    except NotALogError as problem:
        status, reason = "not-a-log", str(problem)
    except Exception as problem:  # noqa: BLE001  files and stores raise anything
        status, reason = "failed", reason_of(problem)
    if status == "done" and end == part.first_byte and not text.is_read_elsewhere:
        status, reason = "empty", "there is nothing in it"
    elif status == "done" and not found and not part.first_byte and not text.is_read_elsewhere:
        status, reason = "not-a-log", "nothing in its text is known"
    row = part.row(
        status=status, reason=reason, read_bytes=text.read_bytes, lines=newlines, knowledge=book.release
    )
    outcome = PartOutcome(
        row=row,
        index=evolve(_index(found), versions=versions),
        newlines=newlines,
        reports=sum(each.role in _DEATHS for each in found),
    )
    return pack(outcome, found) if found else pack_outcome(outcome)


@cache
def _default_rules() -> tuple[Rulebook, Matcher]:
    from workerdiag.api.default_rulebook import DEFAULT_RULEBOOK

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


def _segments(first: int, blocks: Iterable[tuple[int, bytes]]) -> Iterator[_Segment]:
    """
    The text in segments that overlap, aligned so that they are searched as the whole would be.

    Args:
        first: Where what counts begins.
        blocks: Each with its place in the text; the first may lie before *first*, and those behind what
            counts are marked by an empty block.
    """
    held, base, own, end = bytearray(), max(0, first - OVERLAP), first, inf
    newlines: int | None = None
    problem: Exception | None = None
    pieces = iter(blocks)
    while True:
        try:
            place, data = next(pieces, (-1, b""))
        except Exception as raised:  # noqa: BLE001  what was read before it counts
            problem = raised
            break
        if place < 0:
            break
        if not data:  # what follows is only looked at
            end = place
        held += data
        if newlines is None and base + len(held) > own:
            newlines = -held.count(b"\n", 0, own - base)
        if len(held) >= _SEGMENT_BYTES + 2 * OVERLAP and newlines is not None:
            stop = int(min(end, (base + len(held) - OVERLAP) // ALIGNMENT * ALIGNMENT))
            yield _Segment(base, own, stop, bytes(held), newlines)
            keep = max(0, stop - OVERLAP - base) // ALIGNMENT * ALIGNMENT
            newlines += held.count(b"\n", 0, keep)
            del held[:keep]
            base, own = base + keep, stop
    stop = int(min(end, base + len(held)))
    if stop > own and newlines is not None:
        is_whole = base == own == 0 and end == inf
        yield _Segment(base, own, stop, bytes(held), newlines, is_whole)
    if problem is not None:
        raise problem


def _matches(segment: _Segment, url: str, matcher: Matcher, work: WorkBudget) -> Iterator[Match]:
    """
    What stands in a segment, with its place in the whole text, and lines counted from the part's beginning.
    """
    chunks: Iterable[LogChunk] = (
        LogChunk(
            origin=url,
            data=segment.data[at : at + MIB],
            first_line=1 if not at and not segment.is_whole else None,  # so that it is not mended
        )
        for at in range(0, len(segment.data), MIB)
    )
    recognition = Recognition() if segment.base == segment.first == 0 else None
    if recognition is not None:
        chunks = recognition.tee(chunks)
    found = [*matcher.matches(chunks, None, work)]
    if recognition is not None:
        found += recognition.matches()
    for match in found:
        offset = segment.base
        offset += _line_start(segment.data, match.line) if match.offset is None else match.offset
        if not segment.first <= offset < segment.end:
            continue
        lines = segment.newlines_before
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


def _index(found: Iterable[Match]) -> PartIndex:
    schedulers: set[str] = set()
    workers: set[str] = set()
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
        workers=tuple(sorted(workers)),
        first_when=min(times, default=None),
        last_when=max(times, default=None),
    )
