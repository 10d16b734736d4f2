"""Installs the flight recorder on a running cluster, and uninstalls it."""

from __future__ import annotations

import contextlib
import pkgutil
from collections.abc import Mapping

from workerdiag.errors import InstallError
from workerdiag.model.dask import Client, Method, Scheduler, is_disallowed
from workerdiag.values import field, frozen
from workerdiag.wire import PLUGIN_NAME

#: What every process must be able to import; a string, because a function would import this module there.
_PROBE = "workerdiag.wire.messages:MESSAGE_SCHEMA"
_MAX_NAMED = 5


@frozen(kw_only=True)
class Installation:
    """The processes that record, and what each of them cannot record."""

    #: Whether the scheduler keeps a record of each death.
    scheduler: bool
    #: Addresses of the workers that have a black box now. Workers that join later get one too.
    workers: tuple[str, ...]
    #: Addresses of the workers whose nanny reports how they end.
    nannies: tuple[str, ...]
    #: What is not recorded, by address (or ``scheduler``), each for a person.
    missing: Mapping[str, tuple[str, ...]] = field(factory=dict, hash=False)
    _client: Client = field(repr=False, eq=False)

    def uninstall(self) -> object:
        """As `uninstall`, with the client that it was installed with."""
        return uninstall(self._client)

    def __str__(self) -> str:
        workers, nannies = len(self.workers), len(self.nannies)
        parts = [
            f"{workers} worker{'' if workers == 1 else 's'}",
            f"{nannies} nann{'y' if nannies == 1 else 'ies'}",
            "the scheduler" if self.scheduler else "not in the scheduler",
        ]
        where = f"{parts[0]}, {parts[1]} and {parts[2]}"
        lines = [f"The flight recorder runs in {where}; workers that join later record too."]
        lines += [f"  {where}: {'; '.join(notes)}" for where, notes in self.missing.items()]
        return "\n".join(lines)


def install(client: Client, *, scheduler: bool = True) -> object:
    """Have a cluster record what explains the next death: in workers, nannies and the scheduler.

    Installing again changes nothing. Workers that join later record too, as do those that are restarted.
    If a disk is read-only or full, or the release of distributed lacks a hook, that one fact is not recorded
    and `Installation.missing` says so.

    Args:
        client: A ``distributed.Client``; with an asynchronous one the call is awaitable, as in Dask.
        scheduler: Whether to record on the scheduler as well, which runs code there.

    Returns:
        An `Installation`.

    Raises:
        InstallError: The client is closed, or workerdiag cannot be imported everywhere. Nothing is installed.
        TypeError: *client* is no `distributed.Client`.
    """
    if not hasattr(client, "sync"):
        raise TypeError(f"client must be a distributed.Client, got {type(client).__name__}")
    if client.status == "closed":
        raise InstallError(("the cluster",), "the client is closed", "call it while the client is open")
    return client.sync(_install, client, scheduler=scheduler)


def uninstall(client: Client) -> object:
    """Undo `install` in every process: removes plugins, hooks, handlers, threads and files.

    A recorder enabled by configuration (a preload) continues. Does nothing if nothing was installed.
    """
    return client.sync(_uninstall, client)


async def _install(client: Client, *, scheduler: bool) -> Installation:
    from workerdiag.recorder.nanny import RecorderNanny
    from workerdiag.recorder.scheduler import RecorderScheduler
    from workerdiag.recorder.worker import RecorderWorker

    missing: dict[str, tuple[str, ...]] = {}
    if scheduler and (forbidden := await _why_forbidden(client)):
        missing["scheduler"] = (forbidden,)
        scheduler = False
    await check_importable(client)
    try:
        if scheduler:
            await client.register_plugin(RecorderScheduler(), name=PLUGIN_NAME)
        await client.register_plugin(RecorderNanny(), name=PLUGIN_NAME)
        await client.register_plugin(RecorderWorker(), name=PLUGIN_NAME)
    except BaseException:
        with contextlib.suppress(Exception):
            await _uninstall(client)
        raise
    return await _collect_status(client, missing, scheduler=scheduler)


async def _why_forbidden(client: Client) -> str:
    """Why code cannot run on the scheduler; raises InstallError if it can and cannot import workerdiag."""
    try:
        await client.run_on_scheduler(pkgutil.resolve_name, _PROBE)
    except ImportError as problem:
        raise _missing_package_error(["the scheduler"], problem) from None
    except ValueError as problem:
        if not is_disallowed(problem):
            raise
        return "code on the scheduler is not allowed (distributed.scheduler.blocked-handlers)"
    return ""


async def check_importable(client: Client) -> None:
    """Raise InstallError unless all workers and nannies can import workerdiag."""
    for of_nannies in (False, True):
        replies = await client.run(pkgutil.resolve_name, _PROBE, nanny=of_nannies, on_error="return")
        problems = {who: reply for who, reply in replies.items() if isinstance(reply, ImportError)}
        if problems:
            what = "the nanny of " if of_nannies else ""
            raise _missing_package_error([f"{what}{who}" for who in problems], next(iter(problems.values())))


def _missing_package_error(where: list[str], problem: BaseException) -> InstallError:
    more = [f"{len(where) - _MAX_NAMED} more"] if len(where) > _MAX_NAMED else []
    return InstallError(
        where=(*where[:_MAX_NAMED], *more),
        why=f"workerdiag cannot be imported there: {problem}",
        remedy="install workerdiag in the environment of scheduler and workers",
    )


async def _collect_status(client: Client, missing: dict[str, tuple[str, ...]], *, scheduler: bool) -> Installation:
    from workerdiag.recorder.recording import recorder_status

    in_workers = await client.run(recorder_status, on_error="return")
    in_nannies = await client.run(recorder_status, nanny=True, on_error="return")
    for replies, prefix in ((in_workers, ""), (in_nannies, "nanny of ")):
        for who, reply in replies.items():
            answered = isinstance(reply, dict)
            notes = tuple(reply["missing"].values()) if answered else (f"it does not answer: {reply}",)
            if notes:
                missing[f"{prefix}{who}"] = notes
    return Installation(
        scheduler=scheduler,
        workers=_recording_addresses(in_workers),
        nannies=_recording_addresses(in_nannies),
        missing=missing,
        client=client,
    )


def _recording_addresses(replies: Mapping[str, object]) -> tuple[str, ...]:
    statuses = ((who, reply) for who, reply in replies.items() if isinstance(reply, dict))
    return tuple(sorted(who for who, reply in statuses if reply["is_recording"]))


async def _uninstall(client: Client) -> None:
    not_there = contextlib.suppress(ValueError, ImportError)  # not installed, or not allowed
    with not_there:
        await client.unregister_worker_plugin(PLUGIN_NAME)
    with not_there:
        await client.unregister_worker_plugin(PLUGIN_NAME, nanny=True)
    with not_there:
        await client.run_on_scheduler(remove_from_scheduler)


async def remove_from_scheduler(dask_scheduler: Scheduler) -> None:
    """Remove the plugin from a scheduler, unless a preload registered it. Runs on the scheduler."""
    from workerdiag.recorder.internals import get_recording

    plugin = dask_scheduler.plugins.get(PLUGIN_NAME)
    if plugin is not None and get_recording(dask_scheduler) is None:
        dask_scheduler.remove_plugin(name=PLUGIN_NAME)
        close: Method = getattr(plugin, "close")  # noqa: B009  of our plugin
        await close()
