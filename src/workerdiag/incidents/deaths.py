"""
A death that can be judged: whose it is, and all that is known of it.
"""

from __future__ import annotations

from attrs import field, frozen

from workerdiag.model.evidence import Evidence
from workerdiag.model.identity import Identity


@frozen(kw_only=True)
class WatchedDeath:
    """
    One worker that the scheduler lost, with the evidence that was there at once.
    """

    #: The same for the same death, however often and from wherever it is read.
    id: str
    #: When the scheduler noticed it, in seconds since the epoch, by its own clock.
    when: float
    identity: Identity
    #: Whether somebody asked for it: a deliberate stop is no incident.
    is_expected: bool = False
    #: What is known of this death alone; empty if it must be asked for.
    evidence: tuple[Evidence, ...] = field(default=(), eq=False, repr=False)
