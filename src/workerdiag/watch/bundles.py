"""A death bundle for each case, written when the case is opened."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from attrs import define, field

from workerdiag.errors import BundleError, describe_error
from workerdiag.incidents.incident import WatchedIncident


def made_folder(path: Path) -> Path:
    """Return the folder at *path*, and create it if necessary, readable by its owner only.

    Raises:
        BundleError: It cannot be created.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as problem:
        why = "it is a file" if path.is_file() else describe_error(problem)
        raise BundleError(str(path), why, "name a folder that can be written") from None
    return path


@define
class BundleFolder:
    """A folder of death bundles: one whenever a case is opened."""

    path: Path
    #: Bundles that could not be written since the last look.
    _problems: list[Exception] = field(factory=list, init=False)

    def save(self, incident: WatchedIncident, case_id: str) -> str:
        """Write the evidence of an incident, and return its path; empty if that failed, which is noted."""
        try:
            moment = datetime.fromtimestamp(incident.when, UTC)
            path = self.path / f"{case_id}-{moment:%Y%m%dT%H%M%SZ}.zip"
            return str(incident.diagnosis.save(path))
        except Exception as problem:  # noqa: BLE001  a notice without evidence is better than none
            self._problems.append(problem)
            return ""

    def take_problems(self) -> list[Exception]:
        """Return what could not be written since the last call."""
        problems, self._problems = self._problems, []
        return problems
