"""
The id of a death: the same wherever it is read, however often, and whatever becomes known of it later.
"""

from __future__ import annotations

import hashlib

from workerdiag.wire.recorded_death import RecordedDeath

_ID_CHARS = 24


def removal_id(worker: str | None, stimulus_id: str | None) -> str:
    """
    The id of a death that the scheduler noticed; the same in its events, in the recorder and in a journal.

    A stimulus has the time in it, and removes a worker once (``stimulus_id`` in scheduler.py).
    """
    return _hash("removal", worker, stimulus_id)


def death_id(death: RecordedDeath) -> str:
    """
    The id of a recorded death, which stays when more becomes known of it.

    Of one that only a nanny, or whoever found the box, knows, that is a matter of the process: such a worker
    was not, or no longer, known to the scheduler.
    """
    if death.record is not None:
        return removal_id(death.record.worker_address, death.record.stimulus_id)
    who = death.identity
    return _hash("process", who.worker, who.pid, who.boot_id, who.nanny)


def _hash(*parts: object) -> str:
    text = "\0".join("" if each is None else str(each) for each in parts)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_ID_CHARS]
