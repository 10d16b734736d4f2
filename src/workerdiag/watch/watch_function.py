"""``workerdiag.watch``: starts a watcher from its arguments."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import evolve

from workerdiag.watch.case import WatchedCase
from workerdiag.watch.casebook import made_folder
from workerdiag.watch.feed import open_feed
from workerdiag.watch.outbox import INBOX_NAME
from workerdiag.watch.settings import WatchSettings
from workerdiag.watch.sinks.base import Sink, SinkSetupError, as_sink
from workerdiag.watch.store import Store
from workerdiag.watch.watcher import Watcher

if TYPE_CHECKING:
    from distributed import Client


def watch(
    client_or_address: Client | str | Path | Callable[[], str],
    *sinks: Sink | Callable[[WatchedCase], object],
    state: str | os.PathLike[str] | None = None,
    bundles: str | os.PathLike[str] | None = None,
    name: str | None = None,
    settings: WatchSettings | None = None,
) -> Watcher:
    """Watch a cluster, and say why its workers die: to *sinks*, and to ``for notice in watcher``.

    It starts at once, in threads of its own, and connects again by itself whenever the scheduler restarts. It
    changes nothing on the cluster and keeps none alive. Close it, or use ``with`` or ``async with``.

    Args:
        client_or_address: A client, the scheduler's address, the path of a scheduler file, or a callable that
            returns an address, which is called before each question.
        sinks: Where notices go: plain functions of a notice (a `WatchedCase`), or sinks of
            `workerdiag.watch.sinks`.
        state: Path of the file in which it keeps what it knows, so that nothing is lost or told twice when it
            is restarted; None: in memory.
        bundles: A folder for a death bundle of each case that is opened; notices say where it is. None: the
            folder of *settings*, if that has one.
        name: What people call the cluster; None: the name of its cluster object, else its address.
        settings: After how long, and from which numbers on, it speaks; None: as Dask's configuration says.

    Raises:
        TypeError: An argument is of a wrong type.
        SinkSetupError: A sink cannot work so, or two have one name.
        StateFileError: The state file cannot be used: it is of another version, or of another program.
        StateInUseError: Another watcher uses it.
        BundleError: The folder for bundles cannot be made.
    """
    settings = settings or WatchSettings()
    if folder := bundles or settings.bundle_folder:
        settings = evolve(settings, bundle_folder=made_folder(Path(folder)))
    feed = open_feed(client_or_address, name=name)
    taken = [as_sink(each) for each in sinks]
    if any(each.name == INBOX_NAME for each in taken):
        raise SinkSetupError(INBOX_NAME, "the loop over notices has this name", "give it another one")
    store = Store.open(state)
    try:
        return Watcher(
            feed=feed,
            cluster=feed.cluster,
            sinks=taken,
            store=store,
            settings=settings,
        ).start()
    except BaseException:
        store.close()
        raise
