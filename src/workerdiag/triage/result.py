"""`TriageResult`: the rows of both tables."""

from __future__ import annotations

from pathlib import Path

from attrs import frozen

from workerdiag.triage.rows import DeathRow, InputRow
from workerdiag.triage.summary import Summary, summarize


@frozen(kw_only=True)
class TriageResult:
    """The result of a triage; ``str(result)`` is the summary."""

    deaths: tuple[DeathRow, ...]
    inputs: tuple[InputRow, ...]
    #: The folder of the tables, if one was given.
    output: Path | None = None
    #: Sentences about runs that could not be judged, and deaths that are left out or may be counted twice.
    notes: tuple[str, ...] = ()

    @property
    def summary(self) -> Summary:
        """Counts of the deaths by cause, host, hour and version, and the unexplained deaths."""
        return summarize(self.deaths, self.inputs)

    def __str__(self) -> str:
        return str(self.summary)
