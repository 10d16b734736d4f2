"""
The evidence of each case, kept as a death bundle from the moment at which the case is opened.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from attrs import define, field

from workerdiag.errors import BundleError, describe_error
from workerdiag.incidents.watched_incident import WatchedIncident


def made_folder(path: Path) -> Path:
    """
    The folder at *path*, made if it is not there; for its owner alone, as evidence is not for everybody.

    Raises:
        BundleError: It cannot be made.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as problem:
        why = "it is a file" if path.is_file() else describe_error(problem)
        raise BundleError(str(path), why, "name a folder that can be written") from None
    return path


@define
class BundleFolder:
    """
    A folder of death bundles, one for each time that a case is opened.
    """

    path: Path
    #: What could not be written since somebody looked.
    _problems: list[Exception] = field(factory=list, init=False)

    def save(self, incident: WatchedIncident, case_id: str) -> str:
        """
        Write the evidence of an incident, and return the path; empty if that failed, which is noted.
        """
        try:
            moment = datetime.fromtimestamp(incident.when, UTC)
            path = self.path / f"{case_id}-{moment:%Y%m%dT%H%M%SZ}.zip"
            return str(incident.diagnosis.save(path))
        except Exception as problem:  # noqa: BLE001  a notice without evidence is better than none
            self._problems.append(problem)
            return ""

    def take_problems(self) -> list[Exception]:
        """
        What could not be written since this was last called.
        """
        problems, self._problems = self._problems, []
        return problems
