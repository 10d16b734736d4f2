"""Judge one cluster run: from its marks to its deaths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from attrs import define, evolve, field

from workerdiag.model.diagnosis import Death, Match
from workerdiag.model.evidence import Evidence, Gap, Inspected
from workerdiag.pipeline import judge_matches
from workerdiag.scoring.evaluate import EvaluatedDeath
from workerdiag.sources.addresses import host_of
from workerdiag.triage.outcome import unpack_evidence, unpack_matches, unpack_outcome, workers_of
from workerdiag.triage.rows import DeathRow
from workerdiag.triage.runs import Run
from workerdiag.triage.scan import ScanSettings, compiled_rules
from workerdiag.triage.text_search import outermost_of
from workerdiag.triage.versions import Versions

#: A row holds at most this many characters of evidence.
_EVIDENCE_CHARS = 300


def judge_run(work: tuple[Run, Sequence[bytes]], settings: ScanSettings) -> list[DeathRow]:
    """Return the deaths of one run, each judged separately with the evidence of all its logs.

    Args:
        work: The run, and the packed outcomes of its parts in the order of their bytes.
        settings: The rules to use.
    """
    run, packed = work
    book, matcher = compiled_rules(settings)
    found: dict[str, _Found] = {}
    evidence: list[Evidence] = []
    lines: dict[str, int] = {}
    versions: dict[str, Versions] = {}
    #: Which container reports a worker.
    places: dict[str, str] = {}
    for each_part in packed:
        outcome = unpack_outcome(each_part)
        row = outcome.row
        above = lines.get(row.url, 0)
        if outcome.holds == "evidence":
            pieces = list(unpack_evidence(each_part, row.url))
            evidence += pieces
            places |= dict.fromkeys(workers_of(pieces), row.url)
        else:
            found.setdefault(row.url, _Found()).add(*unpack_matches(each_part, row.url), above)
        lines[row.url] = above + outcome.newlines
        versions[row.url] = versions.get(row.url, Versions()).or_else(outcome.index.versions)
        if row.status == "failed":
            evidence.append(
                Gap(
                    source=row.url,
                    place="log",
                    reason="unreachable",
                    detail=row.reason,
                    remedy="read it again",
                )
            )
        elif row.status == "done":
            evidence.append(Inspected(place="log"))
    matches = [match for each in found.values() for match in each.in_order()]
    offsets = {(each.origin, each.line): each.offset or 0 for each in reversed(matches)}
    common = Versions.common(versions.values())
    rows = (
        _death_row(each, run, offsets, places, book.release)
        for each in judge_matches(matches, evidence, book, matcher)
    )
    return [_with_versions(row, versions.get(row.url, common).or_else(common)) for row in rows]


@define
class _Found:
    outermost: list[Match] = field(factory=list)
    near_ends: list[Match] = field(factory=list)

    def add(self, outermost: Iterable[Match], near_ends: Iterable[Match], lines: int) -> None:
        """Add the matches of the next part, which begins after *lines* lines.

        Of the first and last matches of each part, keep only the first and last of the whole input.
        """
        self.outermost = outermost_of([*self.outermost, *(_moved(each, lines) for each in outermost)])
        self.near_ends += (_moved(each, lines) for each in near_ends)

    def in_order(self) -> list[Match]:
        """Return all matches, in the order of the text."""
        return sorted((*self.outermost, *self.near_ends), key=lambda match: match.offset or 0)


def _moved(match: Match, lines: int) -> Match:
    """Return the match with lines counted from the beginning of the file."""
    if not lines:
        return match
    return evolve(
        match,
        line=match.line + lines,
        last_line=match.last_line + lines,
        message_line=match.message_line + lines if match.message_line else 0,
    )


def _death_row(
    judged: EvaluatedDeath,
    run: Run,
    offsets: Mapping[tuple[str, int], int],
    places: Mapping[str, str],
    knowledge: str,
) -> DeathRow:
    death, cause = judged.death, judged.cause
    marks = (mark for mark in judged.end.marks if (mark.origin, mark.line) in offsets)
    first = min(marks, key=lambda mark: (mark.origin, mark.line), default=None)
    return DeathRow(
        case=judged.fingerprint,
        cause=cause.id if cause else None,
        family=cause.family if cause else None,
        probability=cause.probability if cause else 0.0,
        outcome=judged.outcome,
        blame=judged.blame,
        stop_requested=death.stop_requested,
        host=_host(death),
        worker=death.identity.worker,
        nanny=death.identity.nanny,
        name=death.identity.name,
        pid=death.identity.pid,
        died_at=None if death.when is None else round(death.when, 6),
        exit_code=death.status,
        signal=death.signal,
        scheduler=run.schedulers[0] if run.schedulers else None,
        run=run.id,
        url=first.origin if first else places.get(death.identity.worker or "", run.urls[0]),
        offset=offsets[first.origin, first.line] if first else 0,
        rss_bytes=death.rss_bytes,
        limit_bytes=death.limit_bytes,
        evidence=cause.evidence[0].text[:_EVIDENCE_CHARS] if cause and cause.evidence else "",
        knowledge=knowledge,
    )


def _with_versions(row: DeathRow, versions: Versions) -> DeathRow:
    return evolve(row, distributed_version=versions.distributed, python_version=versions.python)


def _host(death: Death) -> str | None:
    identity = death.identity
    return identity.host or host_of(identity.worker) or host_of(identity.nanny)
