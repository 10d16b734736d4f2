"""
An incident in a few words, the same wherever it is told or shown.
"""

from __future__ import annotations

from workerdiag.api.diagnosis import Diagnosis
from workerdiag.model.diagnosis import SURE_ENOUGH
from workerdiag.model.identity import Identity
from workerdiag.rendering.wording import one_line


def is_likely(diagnosis: Diagnosis) -> bool:
    """
    Whether a cause is named that is more likely than not; else the first one is a guess.
    """
    top = diagnosis.top
    return diagnosis.outcome == "explained" and top is not None and top.probability >= SURE_ENOUGH


def title_of(diagnosis: Diagnosis) -> str:
    """
    The likeliest cause in one line, or that it is not known.
    """
    top = diagnosis.top
    if top is None:
        return "cause unknown"
    title = one_line(top.title)
    return title if is_likely(diagnosis) else f"cause unknown, best guess: {title}"


def victim_name(identity: Identity) -> str:
    """
    The worker in a few words: its address, else its name, else its process id.
    """
    pid = f"pid {identity.pid}" if identity.pid is not None else ""
    return one_line(identity.worker or identity.name or pid)
