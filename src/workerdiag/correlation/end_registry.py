"""
What exits and caught exceptions add to the ends that logs and events tell of, or which ends they are of.
"""

from __future__ import annotations

from workerdiag.correlation.end_builder import EndBuilder
from workerdiag.correlation.end_index import EndsByName
from workerdiag.correlation.merge import SAME_PROCESS_S
from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import ProcessExit
from workerdiag.model.identity import Identity

#: Of ends whose worker nobody names, the last so many are compared.
_MAX_NAMELESS = 400


class EndRegistry:
    """
    Ends that are learnt more of.
    """

    def __init__(self, ends: list[EndBuilder]) -> None:
        self.ends = ends
        self._names = EndsByName(ends)
        self._nameless = [end for end in ends if end.identity.worker is None]

    def add_exit(self, exit_: ProcessExit) -> None:
        """
        How a process ended, as a source knows.
        """
        named = self._names.with_name(exit_.identity)
        end = next((each for each in named if not _is_of_later_process(exit_, each)), None)
        if end is None:
            end = self._add_end(EndBuilder(identity=exit_.identity, when=exit_.when, lost=True))
        is_exit_known = exit_.signal is not None or exit_.status is not None
        if is_exit_known and not end.exit_known:
            end.signal, end.status = exit_.signal, exit_.status
            end.marks.append(_exit_mark(exit_))
        end.reporters[exit_.reporter] = None

    def add_blame(self, identity: Identity, mark: Match | None) -> None:
        """
        Dask gave up on a task: the last worker that it names died, whoever else says so.
        """
        known = self._names.with_name(identity)
        if known:
            end = known[-1]
        elif nameless := self._nameless_for(identity):
            end = nameless[-1]
        elif identity.worker is None and self.ends:
            end = self.ends[-1]
        else:
            end = self._add_end(EndBuilder(lost=True))
        end.identity = end.identity.merged_with(identity)
        self._names.add(end)
        end.reporters["exception"] = None
        if mark is not None:
            end.marks.append(mark)

    def _add_end(self, end: EndBuilder) -> EndBuilder:
        self.ends.append(end)
        self._names.add(end)
        if end.identity.worker is None:
            self._nameless.append(end)
        return end

    def _nameless_for(self, identity: Identity) -> list[EndBuilder]:
        """
        Ends that may be that worker's, those that nobody asked for last.
        """
        self._nameless = [end for end in self._nameless if end.identity.worker is None][-_MAX_NAMELESS:]
        fitting = [
            end
            for end in self._nameless
            if (end.lost or end.stop_requested) and not end.identity.conflicts_with(identity)
        ]
        return sorted(fitting, key=lambda end: not end.stop_requested)


def _is_of_later_process(exit_: ProcessExit, end: EndBuilder) -> bool:
    """
    Whether another address and much time between them say that a pid was used again.
    """
    if exit_.identity.worker in (None, end.identity.worker) or exit_.when is None or end.when is None:
        return False
    return end.identity.worker is not None and abs(exit_.when - end.when) > SAME_PROCESS_S


def _exit_mark(exit_: ProcessExit) -> Match:
    """
    An exit that no message tells of, as one, so that findings can say where it is from.
    """
    how = f"ended by signal {exit_.signal}" if exit_.signal is not None else f"exit status {exit_.status}"
    return Match(
        owner="exit", role="death", text=how, origin=exit_.reporter, when=exit_.when, identity=exit_.identity
    )
