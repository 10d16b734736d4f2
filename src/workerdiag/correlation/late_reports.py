"""
The passes that add exits and blames of tasks to the deaths that logs and events report.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import evolve

from workerdiag.correlation.end_table import EndTable
from workerdiag.correlation.merge import ReportLimit
from workerdiag.correlation.same_end import SAME_PROCESS_S
from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import ProcessExit
from workerdiag.model.identity import Identity
from workerdiag.model.process_end import ProcessEnd

#: At most this many ends whose worker is unknown are compared with a blame: the last.
_MAX_NAMELESS = 400


def add_exits(
    ends: Iterable[ProcessEnd], exits: Iterable[ProcessExit], limit: ReportLimit
) -> list[ProcessEnd]:
    """
    Add each exit to the end of its process; one that no end is of becomes a death of its own.
    """
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
    """
    Whether another address and much time between them say that a pid was used again.
    """
    if exit_.identity.worker in (None, end.identity.worker) or exit_.when is None or end.when is None:
        return False
    return end.identity.worker is not None and abs(exit_.when - end.when) > SAME_PROCESS_S


def _exit_mark(exit_: ProcessExit) -> Match:
    """
    The message of an exit that no log reports, so that findings can say where it is from.
    """
    how = f"ended by signal {exit_.signal}" if exit_.signal is not None else f"exit status {exit_.status}"
    return Match(
        owner="exit", role="death", text=how, origin=exit_.reporter, when=exit_.when, identity=exit_.identity
    )


def add_blames(
    ends: Iterable[ProcessEnd], blames: Iterable[tuple[Identity, Match | None]], limit: ReportLimit
) -> list[ProcessEnd]:
    """
    Add each blame to the death of the worker that it names, which died whoever else says so.

    Args:
        ends: The deaths that are known.
        blames: The last worker of a task that Dask gave up on, and the message that says so, if there is one.
        limit: Whether there is time.
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
    """
    The last end of that name, else the last without a name, preferably unrequested; else the last of all.
    """
    if known := table.with_name(identity):
        return known[-1]
    may_be = [each for each in nameless if _may_be_blamed(table.ends[each], identity)]
    if may_be:
        return max(may_be, key=lambda each: (not table.ends[each].stop_requested, each))
    return len(table.ends) - 1 if identity.worker is None and table.ends else None


def _may_be_blamed(end: ProcessEnd, identity: Identity) -> bool:
    return (end.lost or end.stop_requested) and not end.identity.conflicts_with(identity)
