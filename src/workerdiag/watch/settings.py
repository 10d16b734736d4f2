"""
After how long, and from which numbers on, a watcher speaks; and where it keeps evidence.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from attrs import Attribute, field, frozen
from attrs.validators import ge

from workerdiag.settings import seconds, setting


def duration_setting(
    key: str, validator: Callable[[object, Attribute[float], float], object] | None = None
) -> float:
    """
    A field whose default is that of Dask's configuration, in seconds.
    """
    return field(factory=lambda: seconds(key), validator=validator)


def _configured_folder() -> Path | None:
    folder = setting("watch.bundles")
    return Path(folder).expanduser() if folder else None


@frozen(kw_only=True)
class WatchSettings:
    """
    Times and numbers of a watcher; what is not given is as ``workerdiag.watch`` in Dask's configuration says.

    The defaults there are those that Alertmanager's users know.
    """

    #: Seconds for which deaths wait for the rest of their evidence before they are judged.
    settle_s: float = duration_setting("watch.settle")
    #: At least this many seconds lie between a notice and one that only adds to it (escalating, changed);
    #: deaths are counted by windows of this length (Alertmanager's ``group_interval``).
    collect_s: float = duration_setting("watch.collect")
    #: A case is resolved after this many seconds without a death of its key on a cluster that is seen alive.
    resolve_s: float = duration_setting("watch.resolve")
    #: A case that comes back this many seconds after it was resolved is recurring; later it is new.
    recur_s: float = duration_setting("watch.recur")
    #: Seconds between reminders of a case that goes on (Alertmanager's ``repeat_interval``).
    remind_s: float = duration_setting("watch.remind")
    #: The watcher is blind if it has not seen the cluster for this many seconds.
    blind_s: float = duration_setting("watch.blind")
    #: A case escalates at this many times the deaths of its first incident within one window, ...
    escalate_factor: float = field(factory=lambda: float(setting("watch.escalate-factor")), validator=ge(1.1))
    #: ... or at this many times the hosts; each power of these numbers is one more level.
    escalate_hosts: float = field(factory=lambda: float(setting("watch.escalate-hosts")), validator=ge(1.1))
    #: Where a death bundle is written for each case that is opened; None: nowhere.
    bundle_folder: Path | None = field(factory=_configured_folder)
    #: The address at which that folder is served, for links; empty: notices name the path.
    bundle_url: str = field(factory=lambda: setting("watch.bundles-url") or "")
