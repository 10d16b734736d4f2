"""
What exits and caught exceptions add to the ends that logs and events tell of, or which ends they are of.
"""

from __future__ import annotations

from workerdiag.correlation.end_index import NamedEnds
from workerdiag.correlation.process_end import End
from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import Identity, ProcessExit

#: Of ends whose worker nobody names, the last so many are compared.
_MOST_NAMELESS = 400


class KnownEnds:
    """
    Ends that are learnt more of.
    """

    def __init__(self, ends: list[End]) -> None:
        self.ends = ends
        self._names = NamedEnds(ends)
        self._nameless = [end for end in ends if end.whose.worker is None]

    def learn_exit(self, exit_: ProcessExit) -> None:
        """
        How a process ended, as a source knows.
        """
        end = next(iter(self._names.named(exit_.whose)), None)
        if end is None:
            end = self._new(End(whose=exit_.whose, when=exit_.when, lost=True))
        told = exit_.signal is not None or exit_.status is not None
        if told and not end.exit_known:
            end.signal, end.status = exit_.signal, exit_.status
            end.file(_as_mark(exit_))
        end.noticed[exit_.said_by] = None

    def learn_blame(self, whose: Identity, mark: Match | None) -> None:
        """
        Dask gave up on a task: the last worker that it names died, whoever else says so.
        """
        known = self._names.named(whose)
        if known:
            end = known[-1]
        elif nameless := self._nameless_for(whose):
            end = nameless[-1]
        elif whose.worker is None and self.ends:
            end = self.ends[-1]
        else:
            end = self._new(End(lost=True))
        end.whose = end.whose.joined(whose)
        self._names.add(end)
        end.noticed["exception"] = None
        if mark is not None:
            end.file(mark)

    def _new(self, end: End) -> End:
        self.ends.append(end)
        self._names.add(end)
        if end.whose.worker is None:
            self._nameless.append(end)
        return end

    def _nameless_for(self, whose: Identity) -> list[End]:
        """
        Ends that may be that worker's, those that nobody asked for last.
        """
        self._nameless = [end for end in self._nameless if end.whose.worker is None][-_MOST_NAMELESS:]
        fitting = [
            end for end in self._nameless if (end.lost or end.asked) and not end.whose.contradicts(whose)
        ]
        return sorted(fitting, key=lambda end: not end.asked)


def _as_mark(exit_: ProcessExit) -> Match:
    """
    An exit that no message tells of, as one, so that findings can say where it is from.
    """
    how = f"ended by signal {exit_.signal}" if exit_.signal is not None else f"exit status {exit_.status}"
    return Match(
        owner="exit", role="death", text=how, origin=exit_.said_by, when=exit_.when, whose=exit_.whose
    )
