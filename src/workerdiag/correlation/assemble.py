"""From matches to an incident: ends, merged by identity, else by time or as they fit together, with their signs."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import pairwise
from math import inf

from attrs import evolve

from workerdiag.correlation.attribution import ForeignProcesses, attribute_signs
from workerdiag.correlation.process_ends import CandidateTable, EndBuilder, EndTable, LogReader
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
from workerdiag.model.incident import Case, Incident, Lifetimes, grouped
from workerdiag.model.normalize import decimal
from workerdiag.model.process_end import TOGETHER_S, ProcessEnd
from workerdiag.model.rules import REGISTRATIONS, STANDSTILLS_OF_MACHINES, START_FAILED, STILL_ALIVE
from workerdiag.model.stop_reasons import is_retirement, is_stop_request
from workerdiag.model.timeline import ProcessHistory
from workerdiag.model.vocabulary import LOG_PLACES, STREAMS, MatchRole, Place, Stream

#: Roles of marks that do not show that the log was read for ends.
_NOT_INSPECTING: tuple[MatchRole, ...] = ("error", "deployment", "aftermath", RECOGNITION_ROLE)
#: Roles of marks that report the loss of a worker.
_LOSSES: tuple[MatchRole, ...] = ("death", "self-closed", "removal", "connection-lost", "restart", "blame")


def assemble(
    matches: Sequence[Match], evidence: Iterable[Evidence], clock: GraceDeadline | None = None
) -> Incident:
    """Join *matches* and other evidence into one incident, without reports of ends too late for *clock*."""
    rest = [piece for piece in evidence if not isinstance(piece, LogChunk)]
    if _has_no_loss(matches, rest):
        matches = list(_where_nobody_was_lost(matches, rest))
    lifetimes = Lifetimes(each for each in matches if not each.sign)
    matches = [
        each  # without a kernel's line that was attributed to a worker that still wrote after it
        for each in matches
        if each.identity.worker is None or not lifetimes.outlived((each.identity.worker,), each)
    ]
    marks = enrich_identities([each for each in matches if not each.sign], rest)
    clock = clock or GraceDeadline()
    merged = merge_ends(read_ends(marks), lifetimes, clock)
    own, foreign = split_foreign_processes(without_idle_nannies(merged))
    foreigners = ForeignProcesses(foreign, own)
    marks = [each for each in marks if each.role != "death" or not foreigners.include(each)]
    signs = [each for each in matches if each.sign and not foreigners.include(each)]
    exceptions = tuple(piece for piece in rest if isinstance(piece, ExceptionFacts))
    own = _add_exits(own, (piece for piece in rest if isinstance(piece, ProcessExit)), clock)
    deaths = sorted(
        _add_blames(own, _blames(marks, exceptions), clock), key=lambda end: (end.when is None, end.when or 0.0)
    )
    assigned, unassigned = attribute_signs(signs, marks, deaths, lifetimes)
    tasks_at_loss = (piece for piece in rest if isinstance(piece, TasksAtLoss))
    return Incident(
        cases=tuple(Case(end=end, signs=own) for end, own in zip(deaths, assigned, strict=True)),
        unassigned_signs=unassigned,
        marks=tuple(marks),
        exceptions=exceptions,
        readings=tuple(piece for piece in rest if isinstance(piece, MemoryReading)),
        histories=tuple(piece for piece in rest if isinstance(piece, ProcessHistory)),
        tasks_at_loss=tuple(sorted(tasks_at_loss, key=lambda each: each.when or 0.0)),
        inspected=_inspected_places(rest, matches),
        left_out=clock.refusals,
        lifetimes=lifetimes,
    )


def contradiction_notes(ends: Iterable[ProcessEnd]) -> list[str]:
    """One note for each process id of which two different ends are reported within seconds."""
    ends = [each for each in ends if each.identity.pid and each.when is not None]
    ends.sort(key=lambda end: (end.identity.pid or 0, end.when or 0.0))
    return [
        f"Two different ends of process {one.identity.pid} are reported: {one.exit_text} and {two.exit_text}. "
        "One of them is of another process with that number, in another container or on another machine."
        for one, two in pairwise(ends)
        if one.identity.pid == two.identity.pid
        and (two.when or 0.0) - (one.when or 0.0) <= TOGETHER_S
        and not one.identity.conflicts_with(two.identity)
        and one.exit_text
        and two.exit_text
    ]


def _blames(
    marks: Iterable[Match], exceptions: Iterable[ExceptionFacts]
) -> Iterator[tuple[Identity, Match | None]]:
    """The last worker of each task that Dask gave up on, by messages and exceptions."""
    yield from ((mark.identity, mark) for mark in marks if mark.role == "blame")
    named = (each.identity for each in exceptions)
    yield from ((each, None) for each in named if each.worker is not None or each.pid is not None)


def _has_no_loss(matches: Iterable[Match], rest: Iterable[Evidence]) -> bool:
    """Whether Dask reports workers that joined and none that left: then the kernel's lines are about others."""
    marks = [each for each in matches if not each.sign and each.stream != "kernel"]
    came = any(each.role == "start" and each.owner in REGISTRATIONS for each in marks)
    is_told = any(
        isinstance(piece, ProcessExit) or (isinstance(piece, ExceptionFacts) and not piece.from_task)
        for piece in rest
    )
    return came and not is_told and not any(each.role in _LOSSES for each in marks)


def _where_nobody_was_lost(matches: Iterable[Match], rest: Iterable[Evidence]) -> Iterator[Match]:
    """The matches without a kernel's lines of strangers; a maybe worker's are trouble if nobody asked Dask."""
    is_asked = any(isinstance(piece, Inspected) and piece.place == "worker states" for piece in rest)
    for each in matches:
        is_of_machine = each.owner in STANDSTILLS_OF_MACHINES or each.role == "aftermath"
        if each.stream != "kernel" or is_of_machine:
            yield each
        elif not is_asked and each.role == "death" and re.search(r"\b(?:python|dask)", each.text, re.IGNORECASE):
            yield evolve(each, role="trouble")


def _inspected_places(rest: Sequence[Evidence], matches: Iterable[Match]) -> frozenset[Place]:
    """The inspected places, without logs of which a part was left out: it may contain what seems absent."""
    cut = {piece.source for piece in rest if isinstance(piece, Gap)}
    inspected = {piece.place for piece in rest if isinstance(piece, Inspected)}
    streams = {
        each.stream for each in matches if each.line and each.origin not in cut and each.role not in _NOT_INSPECTING
    }
    by_messages = {log for stream, log in zip(STREAMS, LOG_PLACES, strict=True) if stream in streams}
    return frozenset(inspected | by_messages)


def _add_exits(ends: Iterable[ProcessEnd], exits: Iterable[ProcessExit], clock: GraceDeadline) -> list[ProcessEnd]:
    table = EndTable(ends)
    for exit_ in exits:
        if clock.is_over():
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
    how = f"ended by signal {exit_.signal}" if exit_.signal is not None else f"exit status {exit_.status}"
    mark = Match(
        owner="exit", role="death", text=how, origin=exit_.reporter, when=exit_.when, identity=exit_.identity
    )
    return evolve(end, signal=exit_.signal, status=exit_.status, marks=(*end.marks, mark))


def _is_of_later_process(exit_: ProcessExit, end: ProcessEnd) -> bool:
    """Whether a different address and a long time in between show that a pid was used again."""
    if exit_.identity.worker in (None, end.identity.worker) or exit_.when is None or end.when is None:
        return False
    return end.identity.worker is not None and abs(exit_.when - end.when) > SAME_PROCESS_S


def _add_blames(
    ends: Iterable[ProcessEnd], blames: Iterable[tuple[Identity, Match | None]], clock: GraceDeadline
) -> list[ProcessEnd]:
    """Add each blame, with its message if any, to the death of the worker that it names, known or not."""
    table = EndTable(ends)
    nameless = [number for number, end in enumerate(table.ends) if end.identity.worker is None]
    for identity, mark in blames:
        if clock.is_over():
            continue
        # the last ends of unknown workers are compared
        nameless = [each for each in nameless if table.ends[each].identity.worker is None][-400:]
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
    """The last end with that name; else the last nameless one, preferably unrequested; else the last of all."""
    if known := table.with_name(identity):
        return known[-1]
    may_be = [
        (not end.stop_requested, number)
        for number in nameless
        if ((end := table.ends[number]).lost or end.stop_requested) and not end.identity.conflicts_with(identity)
    ]
    if may_be:
        return max(may_be)[1]
    return len(table.ends) - 1 if identity.worker is None and table.ends else None


#: Streams whose writers watch processes from outside, even in one text with Dask's own.
_PLATFORMS: tuple[Stream, ...] = ("kernel", "kubernetes", "batch")
#: Observers, the closest to a worker process first.
_OBSERVERS = ("worker", "scheduler", "events", *_PLATFORMS, "service")


def enrich_identities(marks: Iterable[Match], rest: Iterable[Evidence]) -> list[Match]:
    """Add to *marks* what others knew of their process within a minute; a nanny's message has only the pid."""
    named: dict[int, list[tuple[Identity, float]]] = {}
    for piece in rest:
        identity, when = getattr(piece, "identity", None), getattr(piece, "when", None)
        if isinstance(identity, Identity) and identity.pid and identity.worker and when is not None:
            named.setdefault(identity.pid, []).append((identity, when))
    return [_enrich_identity(each, named.get(each.identity.pid or 0, ())) for each in marks]


def _enrich_identity(mark: Match, named: Sequence[tuple[Identity, float]]) -> Match:
    if mark.when is None or mark.identity.worker is not None:
        return mark
    for identity, when in named:
        if abs(mark.when - when) <= 60.0 and not mark.identity.conflicts_with(identity):
            return evolve(mark, identity=mark.identity.merged_with(identity))
    return mark


def read_ends(marks: Iterable[Match]) -> list[list[ProcessEnd]]:
    """The ends that each log and the events report, those of the closest observer first."""
    logs = grouped(marks, lambda mark: (mark.origin, _log_observer(mark)) if mark.line else ("", "events"))
    return [
        _ends_from_events(logs[place]) if place[1] == "events" else LogReader().read(logs[place])
        for place in sorted(logs, key=lambda place: _OBSERVERS.index(place[1]))
    ]


def _log_observer(mark: Match) -> str:
    """The writer of a line: one text may mix scheduler, nannies, kernel and platform."""
    if mark.owner.startswith(SERVICE_LANDMARKS):
        return "service"
    if mark.stream is not None and mark.stream in _PLATFORMS:
        return mark.stream
    of_scheduler = mark.stream in ("scheduler", "client") or mark.role in ("deregistered", "connection-lost")
    return "scheduler" if of_scheduler else "worker"


def merge_ends(
    groups: Iterable[Sequence[ProcessEnd]], lifetimes: Lifetimes, clock: GraceDeadline
) -> list[ProcessEnd]:
    """Merge the reports of one process. Those of one group are of different processes."""
    table = CandidateTable()
    for group in groups:
        taken: set[int] = set()
        timed = 0
        for end in filter(lambda _: not clock.is_over(), group):
            numbers = table.candidates(end, time_span(end), taken)
            others = [(number, table.ends[number]) for number in numbers]
            number = find_same_end(end, others, lifetimes, no_times=len(table.timed) == timed)
            if number is None:
                number = table.add(end)
            else:
                table.replace(number, table.ends[number].merged_with(end))
            table.set_span(number, time_span(table.ends[number]))
            taken.add(number)
            timed += table.ends[number].when is not None
        table.end_group()
    return table.ends


def split_foreign_processes(ends: list[ProcessEnd]) -> tuple[list[ProcessEnd], list[ProcessEnd]]:
    """Split off the kills of a whole machine that only the kernel reports, where Dask reports others."""
    ours = [end for end in ends if not is_kernel_only(end)]
    told = (end for end in ours if end.lost or end.deregistered or end.stop_requested)
    if not any(end.identity.pid or end.identity.worker or end.identity.nanny for end in told):
        return ends, []
    return ours, [end for end in ends if is_kernel_only(end)]


def without_idle_nannies(ends: list[ProcessEnd]) -> list[ProcessEnd]:
    """Leave out nannies that closed without asking a worker of theirs to, if workers were lost before."""
    ended = {end.identity.nanny for end in ends if end.exit_known} - {None}
    ends_of_workers = [end for end in ends if not (_is_idle_nanny(end) or _gave_up(end, ended))]
    return ends_of_workers if any(end.lost for end in ends_of_workers) else ends


def _gave_up(end: ProcessEnd, ended: Container[str | None]) -> bool:
    """Whether a nanny closed because its worker, whose exit it reported (*ended*), did not start."""
    is_nanny = end.identity.worker is None and end.identity.pid is None and not end.exit_known
    has_said_so = end.reason in ("nanny-start-failed", "nanny-instantiate-failed") or {
        mark.owner for mark in end.marks
    } == {START_FAILED}
    return is_nanny and has_said_so and end.identity.nanny in ended


def _is_idle_nanny(end: ProcessEnd) -> bool:
    if end.lost or end.exit_known or end.identity.worker is not None or not end.marks:
        return False
    return all(mark.role == "stop-request" and mark.identity.nanny is not None for mark in end.marks)


def _ends_from_events(marks: Iterable[Match]) -> list[ProcessEnd]:
    """One end for each worker address."""
    ends: dict[str, EndBuilder] = {}
    for mark in marks:
        worker = mark.identity.worker or mark.captures.get("worker")
        if not worker or mark.role not in ("removal", "closing", "self-closed", "stop-request"):
            continue
        end = ends.setdefault(worker, EndBuilder(identity=Identity(worker=worker)))
        end.learn_from(mark, reporter="scheduler events")
        reason = mark.captures.get("reason", "")
        if mark.role == "removal":
            stimulus = mark.captures.get("stimulus_id", "")
            expected = mark.captures.get("expected") == "True" or is_retirement(stimulus)
            end.stop_requested, end.lost = end.stop_requested or expected, end.lost or not expected
        elif mark.role == "stop-request" or is_stop_request(reason):
            end.stop_requested = True
        else:
            end.lost = True
    return [end.build() for end in ends.values() if any(mark.role != "closing" for mark in end.marks)]


#: Seconds within which two observers report one death.
SAME_MOMENT_S = 3.0
#: Seconds within which reports are paired in their order, not with the nearest. Of 247 workers that died four
#: at a time, below nannies that shared a log, order paired 191 with their exits, and nearness 143.
SAME_ORDER_S = 0.1
#: Seconds between ends of one pid from which they are two processes: pids are used again.
SAME_PROCESS_S = 600.0
#: Landmarks of programs that started a process and report only how it ended.
SERVICE_LANDMARKS = ("container.", "launcher.")


def find_same_end(
    end: ProcessEnd, others: Iterable[tuple[int, ProcessEnd]], lifetimes: Lifetimes, *, no_times: bool
) -> int | None:
    """The number of the one of *others* that is the same death, with *no_times* by their order alone; or None."""
    others = list(others)
    for number, other in others:
        if other.identity.same_process(end.identity) and _distance_s(end, other) <= SAME_PROCESS_S:
            return number
    timed = [
        (max(0.0, distance_s - SAME_ORDER_S), other.when, number)
        for number, other in others
        if end.when is not None
        and other.when is not None
        and (distance_s := _distance_s(end, other)) <= SAME_MOMENT_S
        and _may_be_one(end, other, lifetimes)
    ]
    if timed:
        return min(timed)[2]
    if end.when is None or no_times:
        return next((number for number, other in others if _is_complementary(end, other)), None)
    return None


def time_span(end: ProcessEnd) -> tuple[float, float]:
    """The first and last time at which *end* is reported; a stop begins with its request."""
    times = [end.when or 0.0]
    for each in end.marks if end.stop_requested else ():
        if each.when is not None:
            waited_s = decimal(each.captures.get("seconds")) if each.owner == STILL_ALIVE else None
            times += [each.when, each.when - (waited_s or 0.0)]
    return min(times), max(times)


def is_kernel_only(end: ProcessEnd) -> bool:
    """Whether only the kernel reports the end."""
    return end.reporters == ("kernel log",)


def _is_complementary(end: ProcessEnd, other: ProcessEnd) -> bool:
    """Whether one knows the exit and the other does not, or both report the same one."""
    if other.identity.conflicts_with(end.identity) or _needs_no_kernel(end, other):
        return False
    if end.exit_known and other.exit_known:
        return end.signal == other.signal and end.status == other.status
    return end.exit_known or other.exit_known


def _may_be_one(end: ProcessEnd, other: ProcessEnd, lifetimes: Lifetimes) -> bool:
    """Whether both can be one death. The pids of a container and of the kernel may differ."""
    is_by_service = all(each.owner.startswith(SERVICE_LANDMARKS) for each in end.marks)
    if is_by_service and end.exit_known and other.exit_known and end.signal != other.signal:
        return False
    if _needs_no_kernel(end, other) or _is_beside_a_stop(end, other) or _is_beside_a_stop(other, end):
        return False
    if _still_wrote_after(end, other, lifetimes) or _still_wrote_after(other, end, lifetimes):
        return False
    if not other.identity.conflicts_with(end.identity):
        return True
    one, two = evolve(end.identity, pid=None), evolve(other.identity, pid=None)
    by_kernel = is_kernel_only(end) != is_kernel_only(other)
    return by_kernel and end.signal == other.signal and not one.conflicts_with(two)


def _needs_no_kernel(one: ProcessEnd, two: ProcessEnd) -> bool:
    """Whether one left in order, and only the kernel reports the other."""
    in_order = any(each.deregistered or each.stop_requested for each in (one, two))
    return in_order and is_kernel_only(one) != is_kernel_only(two)


def _is_beside_a_stop(death: ProcessEnd, stop: ProcessEnd) -> bool:
    """Whether *death* is not the worker's that stopped: a nameless crash, or the worker still wrote afterwards."""
    if death.stop_requested or stop.exit_known or not stop.stop_requested:
        return False
    names = {name for each in death.identities for name in (each.nanny, each.pid)} - {None}
    is_nameless = names.isdisjoint(name for each in stop.identities for name in (each.nanny, each.pid))
    return (death.crashed and is_nameless) or _wrote_after(stop, death)


def _wrote_after(worker: ProcessEnd, death: ProcessEnd) -> bool:
    """Whether a worker wrote a line well after a nanny, which has the same clock, had reported that death."""
    reports = (each.when for each in death.marks if each.role == "death" and each.stream == "nanny")
    last_report = max((when for when in reports if when is not None), default=inf)
    return any(each.stream == "worker" and (each.when or 0.0) > last_report + 0.5 for each in worker.marks)


def _distance_s(one: ProcessEnd, two: ProcessEnd) -> float:
    """Seconds between two time spans: a worker that closes slowly is removed before its process ends."""
    if one.when is None or two.when is None:
        return 0.0
    (one_from, one_to), (two_from, two_to) = time_span(one), time_span(two)
    return max(0.0, one_from - two_to, two_from - one_to)


def _still_wrote_after(other: ProcessEnd, kernels: ProcessEnd, lifetimes: Lifetimes) -> bool:
    """Whether one still wrote after all that the kernel reports of the other."""
    if not is_kernel_only(kernels) or is_kernel_only(other):
        return False
    return all(lifetimes.outlived(other.addresses, line, other.when) for line in kernels.marks)
