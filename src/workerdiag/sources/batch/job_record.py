"""A batch system's record of one run of a job, and whether that run's end can explain a death."""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Iterable

from attrs import frozen

#: A death at most this many seconds outside a run belongs to it: clocks differ by up to five minutes, and
#: both Dask and batch systems take minutes to notice a silent node.
_NEAR_S = 900.0
#: A run that starts more than this many seconds after a death is another one: dask-jobqueue's replacement job
#: starts 15 s later.
_BEFORE_S = 10.0
#: A cancellation this many seconds after a death did not cause it: dask-jobqueue itself cancels the job of a
#: lost worker 15 s later (distributed 2026.8.0: ``deploy.lost-worker-timeout``).
_CANCELLED_LATE_S = 10.0
#: Any other end of a job this many seconds after a death did not cause it; Slurm's KillWait is 30 s.
_ENDED_LATE_S = 60.0

_MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)")
_AMERICAN = re.compile(r"(\d\d)/(\d\d)/(\d{4}) (\d\d):(\d\d):(\d\d)")
_CTIME = re.compile(r"([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d)(?:\.\d+)?(?: (\d{4}))?")


@frozen(kw_only=True)
class JobRecord:
    """One run of one job, as the batch system recorded it."""

    job: str
    text: str
    #: Seconds since the epoch; None if the run has not started or ended.
    started: float | None = None
    ended: float | None = None
    #: Whether somebody cancelled the job.
    cancelled: bool = False
    #: Whether the cause of the end is recorded late or applies to the whole run, such as a lost node or an
    #: OOM kill within the job.
    holds_late: bool = False
    waiting: bool = False
    #: Memory limit of the job and its peak memory, in bytes.
    limit_bytes: int | None = None
    rss_bytes: int | None = None
    #: Used share of the time limit, in percent.
    percent_of_time: float | None = None

    def may_explain(self, missed: float | None) -> bool:
        """Whether the end of this run can explain a death noticed at *missed*; not if the job outlived it."""
        if missed is None or self.ended is None or self.holds_late:
            return True
        return self.ended - missed <= (_CANCELLED_LATE_S if self.cancelled else _ENDED_LATE_S)

    def distance_s(self, missed: float) -> float:
        """Return the seconds by which *missed* lies outside this run; 0 within it."""
        before = self.started - missed if self.started is not None else 0.0
        after = missed - self.ended if self.ended is not None else 0.0
        return max(0.0, before, after)


def run_of_death(records: Iterable[JobRecord], missed: float | None) -> JobRecord | None:
    """Return the run in which a worker died, or None if no run is near; a requeued job has several.

    Without a time it is the last run.
    """
    runs = list(records)
    if missed is None:
        return runs[-1] if runs else None
    begun = [each for each in runs if not each.waiting and (each.started or missed) <= missed + _BEFORE_S]
    near = min(begun, key=lambda each: each.distance_s(missed), default=None)
    return near if near is not None and near.distance_s(missed) <= _NEAR_S else None


def parse_batch_time(text: str) -> float | None:
    """Parse a UTC time as batch systems write it; return seconds since the epoch, or None.

    A time without a year (LSF) is in this year, or in the last one if it would lie in the future.
    """
    if found := _ISO.search(text):
        return _utc_time(*map(int, found.groups()))
    if found := _AMERICAN.search(text):
        month, day, year, *time_of_day = map(int, found.groups())
        return _utc_time(year, month, day, *time_of_day)
    found = _CTIME.search(text)
    if found is None or found[1] not in _MONTHS:
        return None
    month, day, *time_of_day = _MONTHS.index(found[1]) + 1, *(int(found[part]) for part in (2, 3, 4, 5))
    tomorrow = time.gmtime(time.time() + 86400)
    year = int(found[6] or tomorrow.tm_year)
    if not found[6] and (month, day) > (tomorrow.tm_mon, tomorrow.tm_mday):
        year -= 1
    return _utc_time(year, month, day, *time_of_day)


def _utc_time(*parts: int) -> float | None:
    try:
        return float(calendar.timegm((*parts, 0, 0, 0)))
    except ValueError:  # a thirteenth month: some sites write the day first
        return None


def parse_size(text: str, *, unit: str = "") -> int | None:
    """Return the bytes of ``364528K``, ``2412340kb``, ``151.734MB`` or ``4G``, in powers of 1024.

    A number without a unit has *unit*.
    """
    found = re.fullmatch(r"\s*(\d{1,15}(?:\.\d+)?)\s*([bkmgtp]?)(?:i?b|n)?(?:ytes)?\s*", text, re.IGNORECASE)
    if found is None:
        return None
    power = "bkmgtp".find((found[2] or unit[:1] or "b").lower())
    return int(float(found[1]) * 1024 ** max(0, power)) or None


def percent_used(used: str, given: str) -> float | None:
    """Return the percentage *used* of a *given* time, or None if either is unknown."""
    spent, whole = parse_batch_duration(used), parse_batch_duration(given)
    return None if spent is None or not whole else round(100.0 * spent / whole, 1)


def parse_batch_duration(text: str) -> float | None:
    """Return the seconds of ``1-02:03:04``, ``02:03:04``, ``03:04``, ``21s`` or ``20``, or None."""
    found = re.fullmatch(r"\s*(?:(\d{1,9})[-+])?((?:\d+:){1,2}\d+(?:\.\d+)?|\d+(?:\.\d+)?)s?\s*", text)
    if found is None:
        return None
    total = 0.0
    for part in found[2].split(":"):
        total = 60 * total + float(part)
    return total + 86400 * int(found[1] or 0)
