"""
After how long, and from which numbers on, a watcher speaks; and where it keeps evidence.
"""

from __future__ import annotations

from pathlib import Path

from attrs import field, frozen
from attrs.validators import ge


@frozen(kw_only=True)
class WatchSettings:
    """
    Times and numbers of a watcher; the defaults are those that Alertmanager's users know.
    """

    #: Seconds for which deaths wait for the rest of their evidence before they are judged.
    settle_s: float = 10.0
    #: At least so many seconds lie between a notice and one that only adds to it (escalating, changed);
    #: deaths are counted by windows of this length (Alertmanager's ``group_interval``).
    collect_s: float = 300.0
    #: A case is resolved after so many seconds without a death of its key on a cluster that is seen alive.
    resolve_s: float = 900.0
    #: A case that comes back so many seconds after it was resolved is recurring; later it is new.
    recur_s: float = 7 * 86_400.0
    #: Seconds between reminders of a case that goes on (Alertmanager's ``repeat_interval``).
    remind_s: float = 4 * 3600.0
    #: The watcher is blind if it has not seen the cluster for so many seconds.
    blind_s: float = 120.0
    #: A case escalates at so many times the deaths of its first incident within one window, ...
    escalate_factor: float = field(default=10.0, validator=ge(1.1))
    #: ... or at so many times the hosts; each power of these numbers is one more level.
    escalate_hosts: float = field(default=2.0, validator=ge(1.1))
    #: Where a death bundle is written for each case that is opened; None: nowhere.
    bundle_folder: Path | None = None
