"""
Which evidence belongs to which death, and which death was first.

Logs, events and exceptions each tell of ends in their own words; those that are one process
are joined, and every sign goes to the death it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from attrs import field, frozen

from workerdiag.correlation.attribution import of_strangers, sorted_out
from workerdiag.correlation.end_index import NamedEnds, NamedPieces
from workerdiag.correlation.end_registry import KnownEnds
from workerdiag.correlation.merge import (
    ends_told,
    joined,
    with_names,
    without_bare_nannies,
    without_strangers,
)
from workerdiag.correlation.process_end import End
from workerdiag.correlation.process_lifetimes import Lifetimes
from workerdiag.correlation.stop_requests import REGISTRATIONS, split_orders
from workerdiag.model.diagnosis import RECOGNISED, Match
from workerdiag.model.evidence import (
    Evidence,
    ExceptionFacts,
    Executing,
    Gap,
    LogChunk,
    Looked,
    MemoryReading,
    ProcessExit,
)

#: Roles of marks that show nobody looked at the log for ends.
_NOT_LOOKING = ("error", "deployment", RECOGNISED)
#: What tells that a worker was lost.
_LOSSES = ("death", "ended", "removal", "vanished", "restart", "blame")


@frozen(kw_only=True)
class Case:
    """
    One death with the signs that are its own, or (without a death) what is left over.
    """

    end: End | None
    signs: tuple[Match, ...] = ()


@frozen(kw_only=True)
class Incident:
    """
    Everything seen, sorted by the death it belongs to.
    """

    #: In the order in which they died.
    cases: tuple[Case, ...]
    #: Signs that no death claims; they count for every one.
    loose: tuple[Match, ...]
    #: All landmarks, of whomever.
    marks: tuple[Match, ...]
    exceptions: tuple[ExceptionFacts, ...] = ()
    readings: tuple[MemoryReading, ...] = ()
    #: What was running on workers that were lost, oldest first.
    executing: tuple[Executing, ...] = ()
    #: Places that were looked at, so that absence counts there.
    looked: frozenset[str] = field(default=frozenset())
    #: Reports of ends for which no time was left.
    left_out: int = 0
    #: When workers spoke.
    lifetimes: Lifetimes = field(factory=lambda: Lifetimes(()), repr=False, eq=False)
    #: The same by the names of the processes that they are about.
    exceptions_of: NamedPieces[ExceptionFacts] = field(init=False, repr=False, eq=False)
    readings_of: NamedPieces[MemoryReading] = field(init=False, repr=False, eq=False)
    executing_of: NamedPieces[Executing] = field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "exceptions_of", NamedPieces(self.exceptions))
        object.__setattr__(self, "readings_of", NamedPieces(self.readings))
        object.__setattr__(self, "executing_of", NamedPieces(self.executing))


def assemble(
    matches: Sequence[Match], evidence: Iterable[Evidence], out_of_time: Callable[[], bool] = lambda: False
) -> Incident:
    """
    Join *matches* and the evidence that is not text into one incident.

    Args:
        matches: All that was found.
        evidence: Chunks of logs in it are passed over.
        out_of_time: Whether time is up; reports of ends that were not joined until then are left out.
    """
    rest = [piece for piece in evidence if not isinstance(piece, LogChunk)]
    if _nobody_was_lost(matches, rest):
        matches = [each for each in matches if each.stream != "kernel"]
    exceptions = tuple(piece for piece in rest if isinstance(piece, ExceptionFacts))
    running = [piece for piece in rest if isinstance(piece, Executing)]
    lifetimes = Lifetimes(each for each in matches if not each.sign)
    matches = [each for each in matches if not _outlived(each, lifetimes)]
    marks = with_names([each for each in matches if not each.sign], rest)
    signs = [each for each in matches if each.sign]
    whole, left_out = joined(ends_told(marks), lifetimes, out_of_time)
    ends, strangers = without_strangers(without_bare_nannies(whole))
    ours, theirs = NamedEnds(ends), NamedEnds(strangers)
    signs = [each for each in signs if not of_strangers(each, theirs, ours)]
    marks = [each for each in marks if each.role != "death" or not of_strangers(each, theirs, ours)]
    known = KnownEnds(ends)
    told: list[Callable[[], None]] = [
        *(partial(known.learn_exit, piece) for piece in rest if isinstance(piece, ProcessExit)),
        *(partial(known.learn_blame, mark.whose, mark) for mark in marks if mark.role == "blame"),
        *(partial(known.learn_blame, each.whose, None) for each in exceptions if _names_a_process(each)),
    ]
    for learn in told:
        if left_out or out_of_time():
            left_out += 1
        else:
            learn()
    ends.sort(key=lambda end: (end.when is None, end.when or 0.0))
    to_many, signs = split_orders(signs, marks)
    owned, loose = sorted_out(signs, ends, lifetimes)
    return Incident(
        cases=tuple(Case(end=end, signs=tuple(owned.get(id(end), ()))) for end in ends),
        loose=(*to_many, *loose),
        marks=tuple(marks),
        exceptions=exceptions,
        readings=tuple(piece for piece in rest if isinstance(piece, MemoryReading)),
        executing=tuple(sorted(running, key=lambda each: each.when or 0.0)),
        looked=_looked(rest, matches),
        left_out=left_out,
        lifetimes=lifetimes,
    )


def _outlived(line: Match, lifetimes: Lifetimes) -> bool:
    """
    Whether a kernel's line was given as that of a worker, read beside it, which spoke after that.
    """
    return line.whose.worker is not None and lifetimes.outlived((line.whose.worker,), line)


def _nobody_was_lost(matches: Iterable[Match], rest: Iterable[Evidence]) -> bool:
    """
    Whether Dask tells of workers that came and of none that went: then the kernel speaks of strangers.
    """
    if any(isinstance(piece, ProcessExit | ExceptionFacts) and _is_loss(piece) for piece in rest):
        return False
    marks = [each for each in matches if not each.sign and each.stream != "kernel"]
    came = any(each.role == "start" and each.owner in REGISTRATIONS for each in marks)
    return came and not any(each.role in _LOSSES for each in marks)


def _names_a_process(facts: ExceptionFacts) -> bool:
    return facts.whose.worker is not None or facts.whose.pid is not None


def _is_loss(piece: ProcessExit | ExceptionFacts) -> bool:
    return isinstance(piece, ProcessExit) or not piece.from_task


def _looked(rest: Sequence[Evidence], matches: Iterable[Match]) -> frozenset[str]:
    """
    Places that were looked at. What is absent from a log of which a part was left out may stand there.
    """
    cut = {piece.source.removeprefix("log ") for piece in rest if isinstance(piece, Gap)}
    said = {piece.place for piece in rest if isinstance(piece, Looked)} - {f"log {each}" for each in cut}
    shown = {
        f"{each.stream} log"
        for each in matches
        if each.stream and each.line and each.origin not in cut and each.role not in _NOT_LOOKING
    }
    return frozenset(said | shown)
