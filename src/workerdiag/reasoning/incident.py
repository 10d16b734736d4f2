"""
Which evidence belongs to which death, and which death was first.

Logs, events and exceptions each tell of ends in their own words; those that are one process
are joined, and every sign goes to the death it belongs to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import field, frozen

from workerdiag.model.diagnosis import RECOGNISED, Match
from workerdiag.model.evidence import (
    Evidence,
    ExceptionFacts,
    Executing,
    Gap,
    Identity,
    LogChunk,
    Looked,
    MemoryReading,
    ProcessExit,
)
from workerdiag.reasoning.ends import End
from workerdiag.reasoning.joining import ends_told, joined, with_names, without_strangers
from workerdiag.reasoning.orders import REGISTRATIONS
from workerdiag.reasoning.owning import of_strangers, sorted_out

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


def assemble(matches: Sequence[Match], evidence: Iterable[Evidence]) -> Incident:
    """
    Join *matches* and the evidence that is not text into one incident.
    """
    rest = [piece for piece in evidence if not isinstance(piece, LogChunk)]
    if _nobody_was_lost(matches, rest):
        matches = [each for each in matches if each.stream != "kernel"]
    exceptions = tuple(piece for piece in rest if isinstance(piece, ExceptionFacts))
    running = [piece for piece in rest if isinstance(piece, Executing)]
    marks = with_names([each for each in matches if not each.sign], rest)
    signs = [each for each in matches if each.sign]
    ends, strangers = without_strangers(joined(ends_told(marks)))
    signs = [each for each in signs if not of_strangers(each, strangers, ends)]
    marks = [each for each in marks if each.role != "death" or not of_strangers(each, strangers, ends)]
    for exit_ in (piece for piece in rest if isinstance(piece, ProcessExit)):
        _learn_exit(ends, exit_)
    for mark in (each for each in marks if each.role == "blame"):
        _learn_blame(ends, mark.whose, mark)
    for facts in exceptions:
        if facts.whose.worker or facts.whose.pid:
            _learn_blame(ends, facts.whose, None)
    ends.sort(key=lambda end: (end.when is None, end.when or 0.0))
    owned, loose = sorted_out(signs, ends)
    return Incident(
        cases=tuple(Case(end=end, signs=tuple(owned.get(id(end), ()))) for end in ends),
        loose=tuple(loose),
        marks=tuple(marks),
        exceptions=exceptions,
        readings=tuple(piece for piece in rest if isinstance(piece, MemoryReading)),
        executing=tuple(sorted(running, key=lambda each: each.when or 0.0)),
        looked=_looked(rest, matches),
    )


def _nobody_was_lost(matches: Iterable[Match], rest: Iterable[Evidence]) -> bool:
    """
    Whether Dask tells of workers that came and of none that went: then the kernel speaks of strangers.
    """
    if any(isinstance(piece, ProcessExit | ExceptionFacts) and _is_loss(piece) for piece in rest):
        return False
    marks = [each for each in matches if not each.sign and each.stream != "kernel"]
    came = any(each.role == "start" and each.owner in REGISTRATIONS for each in marks)
    return came and not any(each.role in _LOSSES for each in marks)


def _is_loss(piece: ProcessExit | ExceptionFacts) -> bool:
    return isinstance(piece, ProcessExit) or not piece.from_task


def _learn_exit(ends: list[End], exit_: ProcessExit) -> None:
    end = next((each for each in ends if each.shares(exit_.whose)), None)
    if end is None:
        end = End(whose=exit_.whose, when=exit_.when, lost=True)
        ends.append(end)
    told = exit_.signal is not None or exit_.status is not None
    if told and not end.exit_known:
        end.signal, end.status = exit_.signal, exit_.status
        end.file(_as_mark(exit_))
    end.noticed[exit_.said_by] = None


def _as_mark(exit_: ProcessExit) -> Match:
    """
    An exit that no message tells of, as one, so that findings can say where it is from.
    """
    how = f"ended by signal {exit_.signal}" if exit_.signal is not None else f"exit status {exit_.status}"
    return Match(
        owner="exit", role="death", text=how, origin=exit_.said_by, when=exit_.when, whose=exit_.whose
    )


def _learn_blame(ends: list[End], whose: Identity, mark: Match | None) -> None:
    """
    Dask gave up on a task: the last worker that it names died, whoever else says so.
    """
    known = [end for end in ends if end.shares(whose)]
    fitting = [end for end in ends if (end.lost or end.asked) and not end.whose.contradicts(whose)]
    nameless = [end for end in sorted(fitting, key=lambda end: not end.asked) if end.whose.worker is None]
    if known:
        end = known[-1]
    elif nameless:
        end = nameless[-1]
    elif whose.worker is None and ends:
        end = ends[-1]
    else:
        end = End(lost=True)
        ends.append(end)
    end.whose = end.whose.joined(whose)
    end.noticed["exception"] = None
    if mark is not None:
        end.file(mark)


def _looked(rest: Sequence[Evidence], matches: Iterable[Match]) -> frozenset[str]:
    """
    Places that were looked at. What is absent from a log of which a part was left out may stand there.
    """
    cut = {piece.source for piece in rest if isinstance(piece, Gap)}
    said = {piece.place for piece in rest if isinstance(piece, Looked)} - {f"log {each}" for each in cut}
    shown = {
        f"{each.stream} log"
        for each in matches
        if each.stream and each.line and each.origin not in cut and each.role not in _NOT_LOOKING
    }
    return frozenset(said | shown)
