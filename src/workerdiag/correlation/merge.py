"""The ends that logs and events report, and the passes that merge the reports of one process."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from attrs import define, evolve

from workerdiag.correlation.end_table import CandidateTable, EndBuilder
from workerdiag.correlation.log_reader import LogReader
from workerdiag.correlation.same_end import SERVICE_LANDMARKS, find_same_end, is_kernel_only, time_span
from workerdiag.deadline import GraceDeadline
from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import Evidence
from workerdiag.model.identity import Identity
from workerdiag.model.incident import Lifetimes
from workerdiag.model.process_end import ProcessEnd
from workerdiag.model.rules import START_FAILED
from workerdiag.model.stop_reasons import is_retirement, is_stop_request
from workerdiag.model.vocabulary import Stream

#: Seconds between a source and a log in which a pid is the same process.
NAMED_S = 60.0
#: Streams whose writers watch processes from outside, even in one text with Dask's own.
_PLATFORMS: tuple[Stream, ...] = ("kernel", "kubernetes", "batch")
#: Observers, the closest to a worker process first.
_DASK = ("worker", "scheduler")
_OBSERVERS = (*_DASK, *_PLATFORMS, "service")
#: Reasons of a nanny whose worker did not start (nanny.py, 2026.8.0).
_START_FAILED = ("nanny-start-failed", "nanny-instantiate-failed")


@define
class ReportLimit:
    """Counts the reports of ends for which no time remains."""

    clock: GraceDeadline
    left_out: int = 0

    def allows_one(self) -> bool:
        """Whether time remains for one more report; if not, it is counted."""
        if self.left_out or self.clock.is_over():
            self.left_out += 1
            return False
        return True


def enrich_identities(marks: Iterable[Match], rest: Iterable[Evidence]) -> list[Match]:
    """Add to *marks* what other evidence knows about their process: a nanny's message has only the pid."""
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
        if abs(mark.when - when) <= NAMED_S and not mark.identity.conflicts_with(identity):
            return evolve(mark, identity=mark.identity.merged_with(identity))
    return mark


def read_ends(marks: Iterable[Match]) -> list[list[ProcessEnd]]:
    """The ends that each log and the events report, those of the closest observer first."""
    logs: dict[tuple[str, str], list[Match]] = {}
    events: list[Match] = []
    for mark in marks:
        if mark.line:
            logs.setdefault((mark.origin, _log_observer(mark)), []).append(mark)
        else:
            events.append(mark)
    in_order = sorted(logs, key=lambda log: _OBSERVERS.index(log[1]))
    groups = [LogReader().read(logs[each]) for each in in_order]
    by_dask = sum(observer in _DASK for _, observer in in_order)
    return [*groups[:by_dask], _ends_from_events(events), *groups[by_dask:]]


def _log_observer(mark: Match) -> str:
    """The writer of a line: one text may mix scheduler, nannies, kernel and platform."""
    if mark.owner.startswith(SERVICE_LANDMARKS):
        return "service"
    if mark.stream is not None and mark.stream in _PLATFORMS:
        return mark.stream
    of_scheduler = mark.stream in ("scheduler", "client") or mark.role in ("deregistered", "connection-lost")
    return "scheduler" if of_scheduler else "worker"


def merge_ends(
    groups: Iterable[Sequence[ProcessEnd]], lifetimes: Lifetimes, limit: ReportLimit
) -> list[ProcessEnd]:
    """Merge the reports of one process. Those of one group are of different processes."""
    table = CandidateTable()
    for group in groups:
        taken: set[int] = set()
        timed = 0
        for end in filter(lambda _: limit.allows_one(), group):
            numbers = table.candidates(end, time_span(end), taken)
            others = [(number, table.ends[number]) for number in numbers]
            number = find_same_end(end, others, lifetimes, no_times=table.timed_count == timed)
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
    """Split off the processes that only the kernel reports, where Dask reports others.

    A kernel log holds the kills of a whole machine.
    """
    ours = [end for end in ends if not is_kernel_only(end)]
    told = (end for end in ours if end.lost or end.deregistered or end.stop_requested)
    if not any(end.identity.pid or end.identity.worker or end.identity.nanny for end in told):
        return ends, []
    return ours, [end for end in ends if is_kernel_only(end)]


def without_idle_nannies(ends: list[ProcessEnd]) -> list[ProcessEnd]:
    """Leave out nannies that closed without a worker of theirs, if workers were lost before.

    A nanny with a worker logs that it asks the worker to close.
    """
    ended = {end.identity.nanny for end in ends if end.exit_known} - {None}
    ends_of_workers = [end for end in ends if not (_is_idle_nanny(end) or _gave_up(end, ended))]
    return ends_of_workers if any(end.lost for end in ends_of_workers) else ends


def _gave_up(end: ProcessEnd, ended: Container[str | None]) -> bool:
    """Whether a nanny closed because its worker, whose exit it reported (*ended*), did not start."""
    is_nanny = end.identity.worker is None and end.identity.pid is None and not end.exit_known
    has_said_so = end.reason in _START_FAILED or {mark.owner for mark in end.marks} == {START_FAILED}
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
