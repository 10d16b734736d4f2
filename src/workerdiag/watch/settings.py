"""The settings of a watcher: when it sends notices, and where it keeps evidence."""

from __future__ import annotations

from pathlib import Path

from attrs import field, frozen
from attrs.validators import ge

from workerdiag.settings import seconds, setting


def _configured_folder() -> Path | None:
    folder = setting("watch.bundles")
    return Path(folder).expanduser() if folder else None


@frozen(kw_only=True)
class WatchSettings:
    """The settings of a watcher. Some defaults come from ``workerdiag.watch`` in Dask's configuration."""

    #: Seconds that deaths wait for more evidence before they are judged.
    settle_s: float = 10.0
    #: Minimum seconds between a notice and one that only adds to it (escalating, changed), and the length of
    #: the windows in which deaths are counted.
    collect_s: float = field(factory=lambda: seconds("watch.collect"))
    #: Seconds without a death of its key, on a cluster seen alive, after which a case is resolved.
    resolve_s: float = field(factory=lambda: seconds("watch.resolve"))
    #: Seconds after its resolution within which a case recurs; later it is new.
    recur_s: float = 7 * 86_400.0
    #: Seconds without seeing the cluster after which the watcher is blind.
    blind_s: float = 120.0
    #: Escalate when the deaths within one window exceed this multiple of those of the first incident, ...
    escalate_factor: float = field(default=10.0, validator=ge(1.1))
    #: ... or when the hosts do so; each power of these numbers is one more level.
    escalate_hosts: float = field(default=2.0, validator=ge(1.1))
    #: Folder for a death bundle of each case that is opened; None: no bundles.
    bundle_folder: Path | None = field(factory=_configured_folder)
    #: URL at which that folder is served, for links; empty: notices name the path.
    bundle_url: str = field(factory=lambda: setting("watch.bundles-url") or "")
