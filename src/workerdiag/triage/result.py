"""
`TriageResult`: the rows of both tables.
"""

from __future__ import annotations

from pathlib import Path

from attrs import frozen

from workerdiag.triage.rows import DeathRow, InputRow
from workerdiag.triage.summary import Summary, summarize


@frozen(kw_only=True)
class TriageResult:
    """
    What was found; ``str(result)`` is the summary.
    """

    deaths: tuple[DeathRow, ...]
    inputs: tuple[InputRow, ...]
    #: The folder with the tables, if one was given.
    output: Path | None = None
    #: Runs that could not be judged, and deaths that are left out or may be counted twice: a sentence each.
    notes: tuple[str, ...] = ()

    @property
    def summary(self) -> Summary:
        """
        The deaths counted by cause, host, hour and version, and what stays unexplained.
        """
        return summarize(self.deaths, self.inputs)

    def __str__(self) -> str:
        return str(self.summary)
