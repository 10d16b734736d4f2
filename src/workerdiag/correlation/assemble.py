"""From matches to an incident: read ends, merge those of one death, add late reports, attribute signs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from attrs import evolve

from workerdiag.correlation.attribution import ForeignProcesses, attribute_signs
from workerdiag.correlation.end_table import EndTable
from workerdiag.correlation.merge import (
    ReportLimit,
    enrich_identities,
    merge_ends,
    read_ends,
    split_foreign_processes,
    without_idle_nannies,
)
from workerdiag.correlation.same_end import SAME_PROCESS_S
from workerdiag.deadline import GraceDeadline
from workerdiag.model.diagnosis import RECOGNITION_ROLE, Match
from workerdiag.model.evidence import (
    Evidence,
    ExceptionFacts,
    Gap,
    Inspected,
    LogChunk,
    MemoryReading,
    ProcessExit,
    TasksAtLoss,
)
from workerdiag.model.identity import Identity
from workerdiag.model.incident import Case, Incident, Lifetimes
from workerdiag.model.process_end import ProcessEnd
from workerdiag.model.rules import REGISTRATIONS, STANDSTILLS_OF_MACHINES
from workerdiag.model.timeline import ProcessHistory
from workerdiag.model.vocabulary import LOG_PLACES, STREAMS, MatchRole, Place

#: Ends of unknown workers that are compared with a blame at most: the last ones.
_MAX_NAMELESS = 400
#: Names that a kernel gives a process that may be a worker.
_MAYBE_WORKER = re.compile(r"\b(?:python|dask)", re.IGNORECASE)
#: Roles of marks that do not show that the log was read for ends.
_NOT_INSPECTING: tuple[MatchRole, ...] = ("error", "deployment", "aftermath", RECOGNITION_ROLE)
#: Roles of marks that report the loss of a worker.
_LOSSES: tuple[MatchRole, ...] = ("death", "self-closed", "removal", "connection-lost", "restart", "blame")


def assemble(
    matches: Sequence[Match], evidence: Iterable[Evidence], clock: GraceDeadline | None = None
) -> Incident:
    """Join *matches* and the evidence that is not log text into one incident.

    Reports of ends that are not merged before *clock* runs out are left out.
    """
    rest = [piece for piece in evidence if not isinstance(piece, LogChunk)]
    if _has_no_loss(matches, rest):
        matches = list(_where_nobody_was_lost(matches, rest))
    lifetimes = Lifetimes(each for each in matches if not each.sign)
    matches = [each for each in matches if not _outlived(each, lifetimes)]
    marks = enrich_identities([each for each in matches if not each.sign], rest)
    limit = ReportLimit(clock or GraceDeadline())
    merged = merge_ends(read_ends(marks), lifetimes, limit)
    own, foreign = split_foreign_processes(without_idle_nannies(merged))
    foreigners = ForeignProcesses(foreign, own)
    marks = [each for each in marks if each.role != "death" or not foreigners.include(each)]
    signs = [each for each in matches if each.sign and not foreigners.include(each)]
    exceptions = tuple(piece for piece in rest if isinstance(piece, ExceptionFacts))
    own = _add_exits(own, (piece for piece in rest if isinstance(piece, ProcessExit)), limit)
    deaths = sorted(
        _add_blames(own, _blames(marks, exceptions), limit),
        key=lambda end: (end.when is None, end.when or 0.0),
    )
    attribution = attribute_signs(signs, marks, deaths, lifetimes)
    tasks_at_loss = (piece for piece in rest if isinstance(piece, TasksAtLoss))
    return Incident(
        cases=tuple(Case(end=end, signs=own) for end, own in zip(deaths, attribution.assigned, strict=True)),
        unassigned_signs=attribution.unassigned,
        marks=tuple(marks),
        exceptions=exceptions,
        readings=tuple(piece for piece in rest if isinstance(piece, MemoryReading)),
        histories=tuple(piece for piece in rest if isinstance(piece, ProcessHistory)),
        tasks_at_loss=tuple(sorted(tasks_at_loss, key=lambda each: each.when or 0.0)),
        inspected=_inspected_places(rest, matches),
        left_out=limit.left_out,
        lifetimes=lifetimes,
    )


def _blames(
    marks: Iterable[Match], exceptions: Iterable[ExceptionFacts]
) -> Iterator[tuple[Identity, Match | None]]:
    """The last worker of each task that Dask gave up on, by messages and exceptions."""
    yield from ((mark.identity, mark) for mark in marks if mark.role == "blame")
    yield from (
        (each.identity, None)
        for each in exceptions
        if each.identity.worker is not None or each.identity.pid is not None
    )


def _outlived(line: Match, lifetimes: Lifetimes) -> bool:
    """Whether a kernel's line was attributed to a worker that still wrote after it."""
    return line.identity.worker is not None and lifetimes.outlived((line.identity.worker,), line)


def _has_no_loss(matches: Iterable[Match], rest: Iterable[Evidence]) -> bool:
    """Whether Dask reports workers that joined and none that left: then the kernel's lines are about others."""
    if any(isinstance(piece, ProcessExit | ExceptionFacts) and _reports_loss(piece) for piece in rest):
        return False
    marks = [each for each in matches if not each.sign and each.stream != "kernel"]
    came = any(each.role == "start" and each.owner in REGISTRATIONS for each in marks)
    return came and not any(each.role in _LOSSES for each in marks)


def _where_nobody_was_lost(matches: Iterable[Match], rest: Iterable[Evidence]) -> Iterator[Match]:
    """The matches without a kernel's lines about processes that are not workers.

    If the cluster was not queried, a process that may be a worker is kept: its line counts as trouble.
    """
    is_asked = any(isinstance(piece, Inspected) and piece.place == "worker states" for piece in rest)
    for each in matches:
        if each.stream != "kernel" or _is_of_machine(each):
            yield each
        elif not is_asked and each.role == "death" and _MAYBE_WORKER.search(each.text):
            yield evolve(each, role="trouble")


def _is_of_machine(match: Match) -> bool:
    """Whether a kernel's line is about its whole machine, and so about every worker on it."""
    return match.owner in STANDSTILLS_OF_MACHINES or match.role == "aftermath"


def _reports_loss(piece: ProcessExit | ExceptionFacts) -> bool:
    return isinstance(piece, ProcessExit) or not piece.from_task


def _inspected_places(rest: Sequence[Evidence], matches: Iterable[Match]) -> frozenset[Place]:
    """The inspected places, without logs of which a part was left out: it may contain what seems absent."""
    cut = {piece.source for piece in rest if isinstance(piece, Gap)}
    inspected = {piece.place for piece in rest if isinstance(piece, Inspected)}
    streams = {
        each.stream
        for each in matches
        if each.line and each.origin not in cut and each.role not in _NOT_INSPECTING
    }
    by_messages = {log for stream, log in zip(STREAMS, LOG_PLACES, strict=True) if stream in streams}
    return frozenset(inspected | by_messages)


def _add_exits(
    ends: Iterable[ProcessEnd], exits: Iterable[ProcessExit], limit: ReportLimit
) -> list[ProcessEnd]:
    """Add each exit to the end of its process, or as a death of its own."""
    table = EndTable(ends)
    for exit_ in exits:
        if not limit.allows_one():
            continue
        named = table.with_name(exit_.identity)
        number = next((each for each in named if not _is_of_later_process(exit_, table.ends[each])), None)
        if number is None:
            number = table.add(ProcessEnd(identity=exit_.identity, when=exit_.when, lost=True))
        table.replace(number, _with_exit(table.ends[number], exit_))
    return table.ends


def _with_exit(end: ProcessEnd, exit_: ProcessExit) -> ProcessEnd:
    end = evolve(end, reporters=tuple(dict.fromkeys((*end.reporters, exit_.reporter))))
    if end.exit_known or (exit_.signal is None and exit_.status is None):
        return end
    return evolve(end, signal=exit_.signal, status=exit_.status, marks=(*end.marks, _exit_mark(exit_)))


def _is_of_later_process(exit_: ProcessExit, end: ProcessEnd) -> bool:
    """Whether a different address and a long time in between show that a pid was used again."""
    if exit_.identity.worker in (None, end.identity.worker) or exit_.when is None or end.when is None:
        return False
    return end.identity.worker is not None and abs(exit_.when - end.when) > SAME_PROCESS_S


def _exit_mark(exit_: ProcessExit) -> Match:
    how = f"ended by signal {exit_.signal}" if exit_.signal is not None else f"exit status {exit_.status}"
    return Match(
        owner="exit", role="death", text=how, origin=exit_.reporter, when=exit_.when, identity=exit_.identity
    )


def _add_blames(
    ends: Iterable[ProcessEnd], blames: Iterable[tuple[Identity, Match | None]], limit: ReportLimit
) -> list[ProcessEnd]:
    """Add each blame to the death of the worker that it names; that worker died even if nothing else reports it.

    A blame is the last worker of a task that Dask gave up on, with the message that reports it, if any.
    """
    table = EndTable(ends)
    nameless = [number for number, end in enumerate(table.ends) if end.identity.worker is None]
    for identity, mark in blames:
        if not limit.allows_one():
            continue
        nameless = [each for each in nameless if table.ends[each].identity.worker is None][-_MAX_NAMELESS:]
        number = _blamed(identity, table, nameless)
        if number is None:
            number = table.add(ProcessEnd(lost=True))
            nameless.append(number)
        end = table.ends[number]
        blamed = evolve(
            end,
            identity=end.identity.merged_with(identity),
            reporters=tuple(dict.fromkeys((*end.reporters, "exception"))),
            marks=end.marks if mark is None else (*end.marks, mark),
        )
        table.replace(number, blamed)
    return table.ends


def _blamed(identity: Identity, table: EndTable, nameless: Sequence[int]) -> int | None:
    """The last end with that name; else the last without a name, preferably unrequested; else the last of all."""
    if known := table.with_name(identity):
        return known[-1]
    may_be = [each for each in nameless if _may_be_blamed(table.ends[each], identity)]
    if may_be:
        return max(may_be, key=lambda each: (not table.ends[each].stop_requested, each))
    return len(table.ends) - 1 if identity.worker is None and table.ends else None


def _may_be_blamed(end: ProcessEnd, identity: Identity) -> bool:
    return (end.lost or end.stop_requested) and not end.identity.conflicts_with(identity)
