"""
Silences: somebody knows of a trouble, and wants no notices of it until a time, for a reason.
"""

from __future__ import annotations

import hashlib
from fnmatch import fnmatchcase

from attrs import frozen

from workerdiag.errors import SilenceError
from workerdiag.rendering.wording import one_line
from workerdiag.units import parse_duration, parse_timestamp
from workerdiag.watch.alerts import Notice

#: The longest silence, in seconds: what is silent for more than a year is forgotten, not known.
MAX_SILENCE_S = 366 * 86_400.0


@frozen(kw_only=True)
class Silence:
    """
    Holds back the notices that it matches, until its end.
    """

    id: str
    #: A pattern (``*``, ``?``, ``[abc]``) for the id or the key of a case, the id of a cause, or a cluster.
    matches: str
    #: Seconds since the epoch, by the watcher's clock, as `created_at`.
    until: float
    #: Why, for those who wonder later.
    reason: str
    created_at: float

    def covers(self, notice: Notice, now: float) -> bool:
        """
        Whether the notice is held back now.
        """
        names = (notice.case_id, notice.key, notice.cause or "", notice.cluster)
        return now < self.until and any(name and fnmatchcase(name, self.matches) for name in names)


def new_silence(matches: str, *, until: float, reason: str, now: float) -> Silence:
    """
    A silence from *now* on.

    Raises:
        SilenceError: It matches nothing, has no reason, or no end in the future and within a year.
    """
    matches, reason = matches.strip(), one_line(reason)
    if not matches:
        raise SilenceError("it does not say what to silence: give a case, a key, a cause or a cluster")
    if not reason:
        raise SilenceError("it has no reason: say why, for those who wonder later")
    if not now < until:
        raise SilenceError("its end is not in the future")
    if until - now > MAX_SILENCE_S:
        raise SilenceError("it would last for more than a year")
    id_ = hashlib.sha256(f"{matches}\n{until}\n{reason}\n{now}".encode("utf-8", "backslashreplace"))
    return Silence(id=id_.hexdigest()[:8], matches=matches, until=until, reason=reason, created_at=now)


def parse_until(text: str, now: float) -> float:
    """
    The end of a silence: a time with a zone (``2026-11-23T08:00:00+01:00``), or how long it lasts (``2h``).

    Raises:
        SilenceError: It is neither.
    """
    moment = parse_timestamp(text.strip())
    if moment is not None:
        return moment
    try:
        return now + parse_duration(text)
    except ValueError:
        raise SilenceError(
            f"{text[:100]!r} is no end: give a time with its zone (2026-11-23T08:00:00Z) or a duration (2h)"
        ) from None
