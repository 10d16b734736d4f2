"""Reads the ends of worker processes from the landmarks of one log, and finds them by name and time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import partial
from itertools import chain, islice, pairwise
from math import inf

from attrs import asdict, define, evolve, field
from attrs.filters import exclude

from workerdiag.model.diagnosis import Match
from workerdiag.model.identity import NO_IDENTITY, Identity
from workerdiag.model.incident import NameIndex
from workerdiag.model.normalize import decimal, whole
from workerdiag.model.process_end import ProcessEnd
from workerdiag.model.rules import EXPECTED_REMOVALS, RETIREMENT, STILL_ALIVE
from workerdiag.model.signals import signal_of_status
from workerdiag.model.stop_reasons import may_retire

#: Seconds between the messages of one end in one log at most.
NEAR_S = 90.0
NEAR_LINES = 400
#: Processes in one log that end at the same time at most; a crash loop has thousands in turn.
MAX_AT_ONCE = 200
#: Seconds between a deregistration at the scheduler and the removal after it.
GOODBYE_LINES = 3

_SIGKILL = "9"
#: What a nanny logs once per process (nanny.py, ``WorkerProcess.kill``), without a name.
_ONCE_PER_PROCESS = (STILL_ALIVE, "nanny.asked-to-close", "nanny.asked-by-code", "nanny.closing-by-itself")
#: Landmarks that are requests to processes named elsewhere, not the end of one.
_STOP_REQUESTS = ("signal.received", RETIREMENT, "scheduler.restart", "scheduler.closing")


class LogReader:
    """Reads the landmarks of one log in order and assembles ends from them."""

    def __init__(self) -> None:
        #: All ends with their numbers, and the latest of each worker.
        self._numbers: dict[EndBuilder, int] = {}
        self._latest: dict[str, EndBuilder] = {}
        self._open: list[EndBuilder] = []
        self._stop_requests: list[Match] = []
        self._last_goodbye: Match | None = None
        self._informative = False
        #: Addresses of the nannies in this log; those of one process share it.
        self._nannies: set[str] = set()
        #: Deaths after which a nanny restarts its worker: it was not closing.
        self._restarted: frozenset[Match] = frozenset()
        #: How many workers that nannies announced to restart have not started yet.
        self._restarts = 0
        #: The worker that last reported its start, until its end is reported.
        self._worker: str | None = None
        #: Lines in which workers joined. Names are used again; earlier requests are for other workers.
        self._joined: dict[str, int] = {}

    def read(self, marks: Iterable[Match]) -> list[ProcessEnd]:
        """The ends that the landmarks of one log report, in its order."""
        handlers = {
            "start": self._start,
            "stop-request": self._stop,
            "self-closed": self._ended,
            "closed": lambda mark: self._learn(self._open_for(mark), mark),
            "death": self._death,
            "removal": self._removal,
            "restart": self._restart,
        }
        marks = list(marks)
        ends = [each for each in marks if each.role in ("death", "restart")]
        self._restarted = frozenset(one for one, two in pairwise(ends) if _is_restart_after(one, two))
        for mark in marks:
            if nanny := mark.captures.get("nanny"):
                self._nannies.add(nanny)
            if mark.role == "deregistered":
                self._last_goodbye = mark
            elif handler := handlers.get(mark.role):
                handler(mark)
        return [end.build() for end in self._numbers]

    def _learn(self, end: EndBuilder, mark: Match) -> None:
        end.learn_from(mark, reporter=f"{mark.stream or 'worker'} log")
        if worker := end.identity.worker:
            known = self._latest.setdefault(worker, end)
            if self._numbers[known] < self._numbers[end]:
                self._latest[worker] = end

    def _start(self, mark: Match) -> None:
        self._informative = True  # INFO lines are there, so a missing one was not written
        if mark.owner == "scheduler.register-worker" and mark.identity.worker:
            self._joined[mark.identity.worker] = mark.line
        if mark.owner == "worker.start":
            self._worker = mark.identity.worker
            self._followed_by(mark)

    def _followed_by(self, start: Match) -> None:
        """A worker that starts replaces one that has ended, unless its nanny said so or that is being killed."""
        restarts, self._restarts = self._restarts, max(0, self._restarts - 1)
        over = [
            end
            for end in self._open
            if _is_near_end(end, start) and not start.identity.conflicts_with(end.identity)
        ]
        if len(self._nannies) > 1 or len(over) > 1:
            over = [] if restarts else [end for end in over if not _is_being_killed(end)][:1]
        self._open = [each for each in self._open if each not in over]

    def _stop(self, mark: Match) -> None:
        if mark.owner in _STOP_REQUESTS:
            self._stop_requests.append(mark)
            return
        self._informative = self._informative or mark.owner != STILL_ALIVE  # which is a warning
        end = self._open_for(mark)
        end.stop_requested = end.stop_requested or not any(each.role == "self-closed" for each in end.marks)
        self._learn(end, mark)

    def _ended(self, mark: Match) -> EndBuilder:
        end = self._open_for(mark)
        end.lost = True
        self._learn(end, mark)
        return end

    def _death(self, mark: Match) -> None:
        self._informative = self._informative or mark.owner in (
            "nanny.killed-by-signal",
            "nanny.exited-with-status",
        )
        if mark.owner.startswith("shell.") and self._worker is not None:
            mark = _told_by_shell(mark, self._worker)
        end = self._ended(mark)
        self._open = [each for each in self._open if each is not end]
        self._worker = None

    def _removal(self, mark: Match) -> None:
        end = self._latest.get(mark.identity.worker or "") or self._new_end(mark)
        goodbye = self._last_goodbye
        is_near = goodbye is not None and 0 <= mark.line - goodbye.line <= GOODBYE_LINES
        polite = is_near or "follows" in mark.captures
        end.deregistered = end.deregistered or polite
        end.lost = end.lost or not polite
        end.stop_requested = end.stop_requested or mark.owner in EXPECTED_REMOVALS
        self._learn(end, mark)

    def _restart(self, mark: Match) -> None:
        latest = islice(reversed(self._numbers), MAX_AT_ONCE)
        near = [each for each in latest if not each.restarted and _is_near_end(each, mark)]
        # the death of one with an exit was told; one that is only asked to close may yet live
        if near:
            end = next((each for each in near if each.exit_known), near[0])
            self._open = [each for each in self._open if each is not end]
        else:
            end = self._new_end(mark)
            end.lost = True
            if self._informative:  # only status 0 is passed over in silence (nanny.py, mark_stopped)
                end.status = 0
        end.restarted = True
        self._learn(end, mark)
        self._restarts += 1
        self._worker = None

    def _open_for(self, mark: Match) -> EndBuilder:
        ends = self._open[::-1]
        if mark.owner == STILL_ALIVE:
            ends.sort(key=partial(_wait_mismatch_s, mark))
        elif mark.captures.get("signal") in (_SIGKILL, "15"):  # SIGTERM in old releases
            ends.sort(key=lambda end: not _is_being_killed(end))
        for end in ends:
            if not _is_near_end(end, mark) or end.identity.conflicts_with(mark.identity):
                continue
            if not _is_repeat(end, mark) and not self._of_other(end, mark):
                return end
        end = self._new_end(mark)
        self._open = [*self._open[1 - MAX_AT_ONCE :], end]
        return end

    def _of_other(self, end: EndBuilder, mark: Match) -> bool:
        """Whether a death is of another nanny's worker: one that was asked to close exits with 0, unreported."""
        if len(self._nannies) < 2 or mark.role != "death" or not end.stop_requested:
            return False
        if (mark.identity.nanny and mark.identity.nanny == end.identity.nanny) or _is_being_killed(end):
            return False
        latest = end.marks[-1].when if end.marks else None
        is_late = latest is not None and mark.when is not None and mark.when - latest > 5.0
        return mark in self._restarted or is_late or mark.captures.get("signal") == _SIGKILL

    def _is_requested(self, mark: Match) -> bool:
        """Whether a stop request before *mark* may be for its worker; a retirement names its workers."""
        since = self._joined.get(mark.identity.worker or "", 0)
        return any(
            (each.owner != RETIREMENT or may_retire(each, mark.identity))
            for each in self._stop_requests
            if each.line > since and _request_covers(each, mark)
        )

    def _new_end(self, mark: Match) -> EndBuilder:
        end = EndBuilder(identity=self._identity_in(mark), stop_requested=self._is_requested(mark))
        self._numbers[end] = len(self._numbers)
        return end

    def _identity_in(self, mark: Match) -> Identity:
        """The worker of the only nanny in this log, whose end *mark* must report."""
        if len(self._nannies) != 1 or mark.identity.worker is not None:
            return NO_IDENTITY
        return Identity(worker=self._worker, nanny=next(iter(self._nannies)))


def _told_by_shell(mark: Match, worker: str) -> Match:
    """A shell's message about *worker*, without the pid of the command and the time of the line above."""
    when = mark.when if mark.line == mark.message_line else None
    return evolve(mark, when=when, identity=evolve(mark.identity, worker=worker, pid=None))


def _is_being_killed(end: EndBuilder) -> bool:
    return any(each.owner == STILL_ALIVE for each in end.marks)


def _wait_mismatch_s(patience: Match, end: EndBuilder) -> float:
    """Seconds from the request to stop until the wait that *patience* reports began."""
    times = [each.when for each in end.marks if each.when is not None]
    waited_s = decimal(patience.captures.get("seconds"))
    if patience.when is None or waited_s is None or not times:
        return inf
    return abs(patience.when - waited_s - min(times))


def _is_repeat(end: EndBuilder, mark: Match) -> bool:
    """Whether *mark* is logged once per process, names none, and was already logged for this one."""
    if mark.owner not in _ONCE_PER_PROCESS or mark.identity.nanny is not None:
        return False
    return any(each.owner == mark.owner and each.identity.nanny is None for each in end.marks)


def _is_restart_after(one: Match, two: Match) -> bool:
    """Whether a nanny that goes on restarts its worker after that death, at once."""
    if one.role != "death" or two.role != "restart":
        return False
    if one.when is not None and two.when is not None:
        return two.when - one.when <= 1.0
    return two.line - one.line <= GOODBYE_LINES


def _is_near_end(end: EndBuilder, mark: Match) -> bool:
    if not end.marks:
        return True
    latest = end.marks[-1]
    if latest.when is not None and mark.when is not None:
        return abs(mark.when - latest.when) <= NEAR_S
    return abs(mark.line - latest.line) <= NEAR_LINES


def _request_covers(order: Match, mark: Match) -> bool:
    """Whether a stop request (a signal, a retirement, the end of the scheduler) still holds."""
    if order.when is not None and mark.when is not None:
        return -1.0 <= mark.when - order.when <= 120.0
    return 0 <= mark.line - order.line <= NEAR_LINES


@define(eq=False)
class EndBuilder:
    """One end whose reports are still being read; the fields are those of `ProcessEnd`."""

    identity: Identity = NO_IDENTITY
    when: float | None = None
    signal: int | None = None
    status: int | None = None
    stop_requested: bool = False
    deregistered: bool = False
    lost: bool = False
    reason: str | None = None
    reporters: dict[str, None] = field(factory=dict)
    marks: list[Match] = field(factory=list)
    #: Whether a nanny reported that it restarts the worker.
    restarted: bool = False

    @property
    def exit_known(self) -> bool:
        """Whether a report says how the process ended."""
        return self.signal is not None or self.status is not None

    def learn_from(self, mark: Match, *, reporter: str) -> None:
        """Add what *mark* says."""
        self.identity = self.identity.merged_with(mark.identity)
        if self.when is None or (mark.role == "death" and mark.when is not None):
            self.when = mark.when
        self.signal = self.signal if self.signal is not None else whole(mark.captures.get("signal"))
        if self.signal is None and mark.role == "death":
            status = whole(mark.captures.get("status"))
            if status is not None:
                self.signal = None if self.identity.pid else signal_of_status(status)
                self.status = status if self.signal is None else self.status
        self.reason = self.reason or mark.captures.get("reason") or mark.captures.get("stimulus")
        self.reporters[reporter] = None
        self.marks.append(mark)

    def build(self) -> ProcessEnd:
        """The end as a value."""
        known = asdict(self, recurse=False, filter=exclude("restarted"))
        return ProcessEnd(**known | {"reporters": tuple(self.reporters), "marks": tuple(self.marks)})


#: Seconds between the reports of ends that are compared.
_BUCKET_S = 4.0
#: Time buckets under which a slow end is found at most: its first and its last.
_MAX_BUCKETS = 64
#: Ends that are compared at most among those that share a name, or that only the time distinguishes.
_MAX_COMPARED = 400


class EndTable:
    """Numbered ends, the newest value of each."""

    def __init__(self, ends: Iterable[ProcessEnd] = ()) -> None:
        self.ends: list[ProcessEnd] = []
        self._names: NameIndex[int] = NameIndex()
        for end in ends:
            self.add(end)

    def add(self, end: ProcessEnd) -> int:
        """Append *end*. Returns its number."""
        self.ends.append(end)
        self.replace(len(self.ends) - 1, end)
        return len(self.ends) - 1

    def replace(self, number: int, end: ProcessEnd) -> None:
        """Replace what was known of an end by *end*."""
        self.ends[number] = end
        self._names.add(number, number, *end.identities)

    def with_name(self, *identities: Identity) -> list[int]:
        """The numbers of the ends of processes that one of *identities* names."""
        return [
            number
            for number in self._names.find(*identities)
            if any(self.ends[number].same_process(each) for each in identities)
        ]


class CandidateTable(EndTable):
    """Numbered ends that are also found by the time span of their reports."""

    def __init__(self) -> None:
        super().__init__()
        #: The ends that have a time.
        self.timed: set[int] = set()
        self._timeless: dict[int, None] = {}
        self._buckets: dict[int, dict[int, None]] = {}
        #: Time spans that are not in the buckets yet, by number.
        self._pending: dict[int, tuple[float, float]] = {}

    def set_span(self, number: int, span: tuple[float, float]) -> None:
        """Note the first and last time at which the end is reported; it is found by them after `end_group`."""
        if self.ends[number].when is None:
            self._timeless[number] = None
            return
        self._timeless.pop(number, None)
        self.timed.add(number)
        self._pending[number] = span

    def end_group(self) -> None:
        """Make the ends of one group findable by time; no two of them are the same."""
        for number, span in self._pending.items():
            for bucket in _time_buckets(span):
                self._buckets.setdefault(bucket, {})[number] = None
        self._pending.clear()

    def candidates(self, end: ProcessEnd, span: tuple[float, float], taken: Collection[int]) -> list[int]:
        """The ends that may be *end*, by number, without *taken*: with its name, at its time, or without a time."""
        found = {number for number in self.with_name(*end.identities) if number not in taken}
        compared = 0
        everywhere = chain.from_iterable([self._timeless, *self._buckets.values()])
        for number in self._near(span) if end.when is not None else everywhere:
            if number not in found and number not in taken:
                found.add(number)
                compared += 1
                if compared >= _MAX_COMPARED:
                    break
        return sorted(found)

    def _near(self, span: tuple[float, float]) -> Iterator[int]:
        for bucket in _time_buckets(span):
            for near in (bucket, bucket - 1, bucket + 1):
                yield from self._buckets.get(near, ())
        yield from self._timeless


def _time_buckets(span: tuple[float, float]) -> list[int]:
    first, last = (int(when // _BUCKET_S) for when in span)
    if last - first < _MAX_BUCKETS:
        return list(range(first, last + 1))
    half = _MAX_BUCKETS // 2
    return [*range(first, first + half), *range(last - half + 1, last + 1)]
