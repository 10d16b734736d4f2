"""Search one part for marks and signs, as a task of triage does on a worker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from attrs import evolve, frozen

from workerdiag.deadline import NO_DEADLINE
from workerdiag.matching.match import find_matches
from workerdiag.matching.scan import Matcher
from workerdiag.model.diagnosis import RECOGNITION_ROLE, Match
from workerdiag.model.evidence import Evidence
from workerdiag.model.incident import END_ROLES
from workerdiag.model.rules import Rulebook
from workerdiag.triage.evidence_file import EvidenceFile, NotALogError, failure_in
from workerdiag.triage.outcome import (
    PartIndex,
    PartOutcome,
    pack,
    pack_evidence,
    workers_of,
)
from workerdiag.triage.part_text import PartText
from workerdiag.triage.parts import Part, reason_of
from workerdiag.triage.rows import InputStatus
from workerdiag.triage.segments import OVERLAP, cut_into_segments
from workerdiag.triage.text_search import TextSearch

#: Keep at most this many addresses of one part.
_MAX_ADDRESSES = 1000


@frozen(kw_only=True)
class ScanSettings:
    """The rules to use, and how to open files."""

    #: None: the rules that come with workerdiag, and installed packs.
    rulebook: Rulebook | None = None
    storage_options: Mapping[str, object] = {}


def scan_part(part: Part, settings: ScanSettings) -> bytes:
    """Return the packed outcome of a part. It also reports any problem with the file."""
    return _PartScan(part, settings).packed()


class _PartScan:
    """The search of one part."""

    def __init__(self, part: Part, settings: ScanSettings) -> None:
        self._part = part
        self._book, self._matcher = compiled_rules(settings)
        self._text = PartText(part, settings.storage_options, overlap=OVERLAP)
        self._search = TextSearch(part.file.url, self._matcher)
        self._pieces: Sequence[Evidence] = ()
        self._found: Sequence[Match] = ()
        self._status: InputStatus = "done"
        self._reason = ""

    def packed(self) -> bytes:
        """Return the packed outcome with what was found."""
        try:
            self._search.run(cut_into_segments(self._part.first_byte, self._text.blocks()))
            if self._search.problem:
                self._fail(self._search.problem)
            else:
                self._reason = _dropped_in(self._search)
            if self._text.evidence_file is not None:
                self._open(self._text.evidence_file)
            elif not self._text.is_read_elsewhere:
                self._tell_nothing()
        except NotALogError as problem:
            self._status, self._reason = "not-a-log", str(problem)
        except Exception as problem:  # noqa: BLE001  files and stores raise anything
            self._fail(reason_of(problem))
        if self._pieces:
            return pack_evidence(self._outcome(), self._pieces)
        return pack(self._outcome(), self._search.outermost, self._search.near_ends)

    def _open(self, evidence_file: EvidenceFile) -> None:
        self._pieces = list(evidence_file.evidence())
        searched = find_matches(self._pieces, self._matcher)
        self._found = searched.matches
        if not self._pieces:
            self._status, self._reason = "empty", "it has no death, or its worker may still run"
        failure = failure_in([*self._pieces, *searched.gaps], evidence_file.url)
        if failure:
            self._fail(failure)

    def _tell_nothing(self) -> None:
        """Set the status if the text is empty, or if nothing in it is recognized."""
        if self._status != "done":
            return
        if self._search.end is None:
            self._status, self._reason = "empty", "there is nothing in it"
        elif not self._search.outermost and not self._search.near_ends and not self._part.first_byte:
            self._status, self._reason = "not-a-log", "nothing in its text is recognized"

    def _fail(self, reason: str) -> None:
        self._status, self._reason = "failed", reason

    def _outcome(self) -> PartOutcome:
        found = (*self._search.outermost, *self._search.near_ends, *self._found)
        row = self._part.row(
            status=self._status,
            reason=self._reason,
            read_bytes=self._text.read_bytes,
            lines=self._search.newlines,
            knowledge=self._book.release,
        )
        return PartOutcome(
            row=row,
            index=evolve(_index(found, self._pieces), versions=self._search.versions),
            newlines=self._search.newlines,
            reports=sum(each.role in END_ROLES for each in found),
            dropped_ends=self._search.dropped_ends,
        )


def _dropped_in(search: TextSearch) -> str:
    """Say what was not kept of a text that is full of ends; empty if all was kept."""
    if not search.dropped_messages and not search.dropped_ends:
        return ""
    ends = f"{search.dropped_ends:,} reports of ends and " if search.dropped_ends else ""
    return f"of {ends}{search.dropped_messages:,} messages near ends only the first and the last are kept"


@cache
def _default_rules() -> tuple[Rulebook, Matcher]:
    from workerdiag.api.explain import DEFAULT_RULEBOOK

    return DEFAULT_RULEBOOK.within(NO_DEADLINE)


class _LastRules:
    """Cache of the compiled rules of the last task; the next task nearly always uses the same rules."""

    rules: tuple[Rulebook, Matcher] | None = None


def compiled_rules(settings: ScanSettings) -> tuple[Rulebook, Matcher]:
    """Return the compiled rules; the result of the last call is cached."""
    book = settings.rulebook
    if book is None:
        return _default_rules()
    last = _LastRules.rules
    if last is None or last[0] != book:
        last = _LastRules.rules = book, Matcher(book)
    return last


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
