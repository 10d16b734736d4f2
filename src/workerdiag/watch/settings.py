"""The settings of a watcher: when it sends notices, and where it keeps evidence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from attrs import Attribute, field, frozen
from attrs.validators import ge

from workerdiag.settings import seconds, setting


def duration_setting(
    key: str, validator: Callable[[object, Attribute[float], float], object] | None = None
) -> float:
    """Return a field with its default from Dask's configuration, in seconds."""
    return field(factory=lambda: seconds(key), validator=validator)


def _configured_folder() -> Path | None:
    folder = setting("watch.bundles")
    return Path(folder).expanduser() if folder else None


@frozen(kw_only=True)
class WatchSettings:
    """The settings of a watcher. Defaults come from ``workerdiag.watch`` in Dask's configuration.

    They are similar to those of Alertmanager.
    """

    #: Seconds that deaths wait for more evidence before they are judged.
    settle_s: float = duration_setting("watch.settle")
    #: Minimum seconds between a notice and one that only adds to it (escalating, changed), and the length of
    #: the windows in which deaths are counted (Alertmanager's ``group_interval``).
    collect_s: float = duration_setting("watch.collect")
    #: Seconds without a death of its key, on a cluster seen alive, after which a case is resolved.
    resolve_s: float = duration_setting("watch.resolve")
    #: Seconds after its resolution within which a case recurs; later it is new.
    recur_s: float = duration_setting("watch.recur")
    #: Seconds between reminders of an open case (Alertmanager's ``repeat_interval``).
    remind_s: float = duration_setting("watch.remind")
    #: Seconds without seeing the cluster after which the watcher is blind.
    blind_s: float = duration_setting("watch.blind")
    #: Escalate when the deaths within one window exceed this multiple of those of the first incident, ...
    escalate_factor: float = field(factory=lambda: float(setting("watch.escalate-factor")), validator=ge(1.1))
    #: ... or when the hosts do so; each power of these numbers is one more level.
    escalate_hosts: float = field(factory=lambda: float(setting("watch.escalate-hosts")), validator=ge(1.1))
    #: Folder for a death bundle of each case that is opened; None: no bundles.
    bundle_folder: Path | None = field(factory=_configured_folder)
    #: URL at which that folder is served, for links; empty: notices name the path.
    bundle_url: str = field(factory=lambda: setting("watch.bundles-url") or "")
