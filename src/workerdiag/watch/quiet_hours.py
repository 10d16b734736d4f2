"""Quiet hours: a daily time span in some time zone in which notices wait."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time
from zoneinfo import ZoneInfo

from attrs import field, frozen

from workerdiag.errors import QuietHoursError

_WRITTEN = re.compile(r"\s*(\d{1,2}):(\d\d)\s*-\s*(\d{1,2}):(\d\d)\s+(\S+)\s*")


@frozen(kw_only=True)
class QuietHours:
    """A daily time span, across midnight if its end is before its start."""

    begin: time
    end: time
    #: Name of the time zone, such as ``Europe/Berlin``.
    zone: str
    _zone_info: ZoneInfo = field(init=False, eq=False, repr=False)

    @_zone_info.default
    def _load_zone(self) -> ZoneInfo:
        try:
            return ZoneInfo(self.zone)
        except Exception as problem:
            raise QuietHoursError(
                f"{self.zone!r} is no time zone of this machine; name one such as Europe/Berlin or UTC,"
                " or install the package tzdata"
            ) from problem

    @classmethod
    def parse(cls, text: str) -> QuietHours:
        """Parse quiet hours such as ``22:00-07:00 Europe/Berlin``.

        Raises:
            QuietHoursError: The format is different, or the time zone is not known.
        """
        found = _WRITTEN.fullmatch(text[:200])
        times = (_time_of(found[1], found[2]), _time_of(found[3], found[4])) if found else (None, None)
        begin, end = times
        if found is None or begin is None or end is None or begin == end:
            raise QuietHoursError(
                f"{text[:100]!r} are no quiet hours: write them as 22:00-07:00 Europe/Berlin"
            )
        return cls(begin=begin, end=end, zone=found[5])

    def holds(self, now: float) -> bool:
        """Whether *now*, in seconds since the epoch, is in them, with the daylight saving time of the zone."""
        clock = datetime.fromtimestamp(now, UTC).astimezone(self._zone_info).time()
        if self.begin <= self.end:
            return self.begin <= clock < self.end
        return clock >= self.begin or clock < self.end


def _time_of(hour: str, minute: str) -> time | None:
    return time(int(hour), int(minute)) if int(hour) < 24 and int(minute) < 60 else None
