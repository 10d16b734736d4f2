"""
What was concluded of deaths that belong together.
"""

from __future__ import annotations

from attrs import frozen

from workerdiag.api.diagnosis import Diagnosis
from workerdiag.incidents.deaths import WatchedDeath


@frozen(kw_only=True)
class AlertIncident:
    """
    Deaths of one trouble that belong together, with the diagnosis of all of them; or a standstill.
    """

    #: `Diagnosis.fingerprint`: equal for repeats of the same trouble.
    key: str
    diagnosis: Diagnosis
    #: Oldest first: the first is the first victim. None of a standstill.
    deaths: tuple[WatchedDeath, ...] = ()
    #: When it began, in seconds since the epoch.
    when: float
