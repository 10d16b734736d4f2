"""What client, scheduler and workers have of the modules that an error or lost work is about.

An ImportError names its module. Work that workers could not unpickle names its modules in the scheduler: such
workers leave within milliseconds of their first task of the kind, and none comes in their place.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

from workerdiag.deadline import Deadline
from workerdiag.guard import guarded
from workerdiag.model.dask import Client, Reply, Scheduler
from workerdiag.model.evidence import Event, Evidence, ExceptionFacts, LogChunk
from workerdiag.model.identity import identity_of
from workerdiag.model.normalize import EventValue
from workerdiag.model.vocabulary import Place
from workerdiag.sources.cluster.scheduler_functions import by_value, forget, host_in, pauses, topics_of
from workerdiag.sources.cluster.workers import has_same_python
from workerdiag.sources.host.remote_call import probe_elsewhere, probe_here
from workerdiag.values import frozen

#: At most this many modules are compared, on at most this many workers.
MAX_MODULES, _MAX_WORKERS = 20, 5
#: A worker that leaves at most this many seconds after it got its tasks may not have been able to read them.
_MOST_HELD_S = 0.15
#: So many workers must have left so: one alone may as well have been killed.
_LEAST_UNREAD = 2
#: A nanny tells of a process that ended by itself, or starts another one in its place, with the time in UTC.
_TOLD_END = re.compile(
    rb"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[^\n]{0,60} - "
    rb"(?:(Worker process \d+) (?:was killed by|exited with)|Restarting worker)"
)
#: Seconds between the two messages of a nanny about one end.
_BOTH_TOLD_S = 1.0
#: Seconds between the scheduler's removal and what a nanny says of the same end.
_TELLING_S = 3.0
#: Errors that name the module in which something was not found, as Python words them.
_NAMES_MODULE = re.compile(
    r"No module named ['\"](\w+)|cannot import name ['\"]\w+['\"] from (?:partially initialized module )?['\"](\w+)"
    r"|Can't get attribute '[\w.<>]+' on <module '(\w+)|module '(\w+)[\w.]*' has no attribute "
)


@frozen(kw_only=True)
class ModuleQuestion:
    """The modules and the lost workers in question, and whom to ask."""

    #: Modules that errors name, without submodules.
    named: tuple[str, ...] = ()
    #: Addresses of workers that were lost unexpectedly.
    lost: tuple[str, ...] = ()
    #: Times at which nannies told of an end that no message brought about.
    told_ends: tuple[float, ...] = ()
    #: Addresses of workers that are there.
    workers: tuple[str, ...] = ()
    #: Whether the scheduler may run a function of ours.
    may_look: bool = False

    @property
    def is_open(self) -> bool:
        """Whether there is anything to ask."""
        return bool(self.named or (self.lost and self.may_look))


def module_question(
    client: Client | None, caught: Iterable[ExceptionFacts], pieces: Sequence[Evidence]
) -> ModuleQuestion:
    """Return the question that errors, also those of the client's futures, and a cluster's evidence lead to."""
    errors = [each for each in caught if not each.in_caller]
    events = [each for each in pieces if isinstance(each, Event)]
    removed = (
        each for each in events if each.fields.get("action") == "remove-worker" and not each.fields.get("expected")
    )
    states = (each for each in events if each.topic == "worker-state")
    version = next((each.fields.get("python") for each in events if each.topic == "versions"), None)
    named = [name for each in errors for name in _named_modules(each)] or _modules_of_futures(client)
    return ModuleQuestion(
        named=tuple(dict.fromkeys(named))[:MAX_MODULES],
        lost=tuple(dict.fromkeys(each.identity.worker for each in removed if each.identity.worker))[:50],
        workers=tuple(each.identity.worker for each in states if each.identity.worker)[:_MAX_WORKERS],
        told_ends=tuple(_told_ends(pieces)),
        may_look=has_same_python({"python": version}),
    )


def _told_ends(pieces: Iterable[Evidence]) -> Iterator[float]:
    """Yield when nannies logged that a process ended with a signal or a status, or that they start another one.

    The nannies of one process share their log, so what several logs have alike is told once.
    """
    told = Counter[tuple[float, str]]()
    for each in pieces:
        if isinstance(each, LogChunk) and each.stream == "nanny":
            told |= Counter(_told_in(each.data))
    yield from (when for when, _ in told.elements())


def _told_in(log: bytes) -> Iterator[tuple[float, str]]:
    """Yield when a process ended, and which; the new start that follows it is no other end."""
    ended_at = 0.0
    for found in _TOLD_END.finditer(log):
        when = datetime.strptime(found[1].decode(), "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
        if found[2] or when - ended_at > _BOTH_TOLD_S:
            yield when, (found[2] or b"").decode()
        ended_at = when if found[2] else 0.0


def _named_modules(facts: ExceptionFacts) -> Iterator[str]:
    for found in islice(_NAMES_MODULE.finditer(facts.text), MAX_MODULES):
        yield next(name for name in found.groups() if name)


def _modules_of_futures(client: Client | None) -> list[str]:
    futures = list(getattr(client, "futures", {}).values())
    failed = (each for each in futures if getattr(each, "status", "") == "error")
    raised = [getattr(each, "exception", None) for each in islice(failed, MAX_MODULES)]
    errors = [*raised, *(getattr(each, "__cause__", None) for each in raised)]
    names = [each.name for each in errors if isinstance(each, ImportError)]
    return [name.partition(".")[0] for name in names if isinstance(name, str)]


class ModuleSource:
    """Compares the modules in question on all sides, by name and by version of their package; imports none."""

    name = "modules"
    place: Place = "versions"

    def __init__(self, client: Client, question: ModuleQuestion) -> None:
        self._client = client
        self._question = question

    def collect(self, *, budget_s: float) -> Iterator[Evidence]:
        """Yield what was found, in *budget_s* seconds; the client's event loop must be another thread's."""
        deadline = Deadline.of_budget(budget_s)
        with guarded("comparing modules"):
            until_s = deadline.left_s
            yield from self._client.sync(self._compare, deadline, asynchronous=False, callback_timeout=until_s)

    async def _compare(self, deadline: Deadline) -> list[Event]:
        question, unread = self._question, {}
        if question.lost and question.may_look:
            look, lost = by_value(workerdiag_looks_at_unread), list(question.lost)
            call = self._client.run_on_scheduler(look, lost, list(question.told_ends))
            unread = await asyncio.wait_for(call, deadline.share(0.5).left_s)
        names = list(dict.fromkeys([*question.named, *unread.get("modules", ())]))[:MAX_MODULES]
        if not names:
            return list(unread_events(unread, {}, is_local=self._is_local()))
        request: Any = {"modules": names}
        places: list[str | None] = [None, *question.workers]
        asking = (
            probe_elsewhere(self._client, place, ("modules",), request, deadline.share(0.8)) for place in places
        )
        answers = await asyncio.gather(*asking, return_exceptions=True)
        here = _found(await asyncio.to_thread(probe_here, ("modules",), request)) or {}
        scheduler, *workers = (_found(each) for each in answers)
        known = [each for each in workers if each is not None]
        events = module_events(names, here, scheduler, known)
        return [*unread_events(unread, here, is_local=self._is_local()), *events]

    def _is_local(self) -> bool:
        cluster = getattr(self._client, "cluster", None)
        return type(cluster).__name__ == "LocalCluster" and bool(getattr(cluster, "worker_spec", None))


def _found(answer: object) -> Mapping[str, Reply] | None:
    found = answer.get("modules", {}).get("found") if isinstance(answer, Mapping) else None
    return found if isinstance(found, Mapping) else None


def unread_events(unread: Reply, here: Mapping[str, Reply], *, is_local: bool) -> Iterator[Event]:
    """Yield an event for each worker that left because it could not read what the scheduler sent it.

    Workers of a LocalCluster find what this program found when it started them: ``module`` is one that it found
    later. Of other workers that are gone, nothing is known.
    """
    if len(unread.get("workers", ())) < _LEAST_UNREAD:
        return
    names = unread.get("modules", ())
    late = next((name for name in names if is_local and (name not in here or here[name].get("late"))), None)
    fields: dict[str, EventValue] = {
        "task": ", ".join(unread.get("keys", ())[:3]) or None,
        "modules": ", ".join(names) or None,
        "module": late,
        "path": _own_path(here.get(late or "", {})),
        "importable": is_local and late is None,
        "local": is_local,
        "only_dask": not names,
    }
    for worker in unread.get("workers", ()):
        yield Event(topic="unread-task", fields=fields, identity=identity_of(worker=worker))


def module_events(
    names: Collection[str],
    here: Mapping[str, Reply],
    scheduler: Mapping[str, Reply] | None,
    workers: Sequence[Mapping[str, Reply]],
) -> Iterator[Event]:
    """Yield an event for each module that somebody lacks or has in another version, while the client has it.

    *scheduler* is None if it did not answer; *workers* are the answers of workers.
    """
    for name in names:
        if (own := here.get(name)) is None:
            continue
        lacking = sum(name not in each for each in workers)
        sides = [*workers, *([scheduler] if scheduler and not workers else [])]
        others = [each[name] for each in sides if name in each]
        different = [each for each in others if each.get("version") != own.get("version")]
        lacks_scheduler = scheduler is not None and name not in scheduler and (lacking > 0 or not workers)
        if lacking or different or lacks_scheduler:
            yield Event(
                topic="module",
                fields={
                    "module": name,
                    "package": str(own.get("package") or "") or None,
                    "path": _own_path(own),
                    "client": str(own.get("version") or "there"),
                    "others": str(different[0].get("version") or "another") if different else None,
                    "lacking_workers": lacking,
                    "asked_workers": len(workers),
                    "lacks_scheduler": lacks_scheduler,
                    "differs": bool(different),
                },
            )


def _own_path(found: Reply) -> str | None:
    """The file or folder of a module that no package has installed."""
    path = "" if found.get("package") else str(found.get("file") or "")
    return path.removesuffix("/__init__.py") or None


async def workerdiag_looks_at_unread(
    addresses: list[str], told_ends: list[float], dask_scheduler: Scheduler
) -> dict[str, object]:
    """Return the tasks that workers could not read, inside the scheduler: ``workers``, ``keys``, ``modules``."""
    forget(dask_scheduler)
    pause, topics = pauses(), topics_of(dask_scheduler) or {}
    given: dict[object, list[float]] = {}
    for each in list(getattr(dask_scheduler, "transition_log", ())):
        if each[2] == "processing":
            given.setdefault(each[0], []).append(each[-1])
    await pause()
    unread: dict[Any, None] = {}
    workers: list[str] = []
    removed_at = [
        when
        for address in addresses
        for when, message in list(topics[address].events if address in topics else ())
        if isinstance(message, dict) and message.get("action") == "remove-worker"
    ]
    told_removals = set()  # by each nanny's word at most one, the nearest
    for told in sorted(told_ends):
        near = [when for when in removed_at if abs(when - told) <= _TELLING_S and when not in told_removals]
        told_removals |= set(sorted(near, key=lambda when: abs(when - told))[:1])
    for address in [each for each in addresses if each in topics]:
        keys = _unread_tasks(dask_scheduler, address, topics, given, told_removals)
        workers += [address] if keys else []
        unread.update(dict.fromkeys(keys))
        await pause()
    names: dict[str, None] = {}
    for key in list(unread)[:10]:
        names.update(dict.fromkeys(modules_of_task(dask_scheduler.tasks[key].run_spec)))
        await pause()
    texts = [str(each)[:200] for each in unread]
    return {"workers": workers, "keys": texts, "modules": list(names)[:MAX_MODULES]}


def _unread_tasks(
    scheduler: Scheduler,
    address: str,
    topics: Mapping[str, Any],
    given: Mapping[object, list[float]],
    told_removals: Collection[float],
) -> list[Any]:
    """Return the tasks with which a worker left as soon as it got them, if none came in its place."""
    events = [each for each in list(topics[address].events) if isinstance(each[1], dict)]
    removals = [each for each in events if each[1].get("action") == "remove-worker"]
    says_why = any(each[1].get("action") == "closing-worker" for each in events)
    if says_why or not removals or removals[-1][1].get("expected"):
        return []
    when, removal = removals[-1]
    near = [each for each in scheduler.workers if host_in(each) == host_in(address) and each in topics]
    is_replaced = any(began > when for each in near for began, _ in list(topics[each].events)[:1])
    keys = [key for key in removal.get("processing-tasks") or () if key in scheduler.tasks]
    for key in keys:
        got = max([each for each in given.get(key, ()) if each <= when], default=0)
        if when - got > _MOST_HELD_S or scheduler.tasks[key].prefix.duration_average >= 0:
            return []
    return [] if is_replaced or when in told_removals else keys


def modules_of_work(collections: Iterable[Any]) -> list[str]:
    """The modules that reading the tasks of *collections* imports, but those of Dask and of Python itself."""
    names: dict[str, None] = {}
    for value in collections:
        with guarded("looking for the modules of a graph"):
            for each in islice(_functions_of(value), 500):
                names |= dict.fromkeys(modules_of_task(each))
    return list(names)[:MAX_MODULES]


def _functions_of(value: Any) -> Iterator[object]:
    """What the tasks of a collection run: of a dataframe what its expressions hold, else one task of each layer."""
    if (expression := getattr(value, "expr", None)) is not None:
        for node in expression.walk():
            yield from (each for each in node.operands if callable(each) and not isinstance(each, type))
        return
    for layer in getattr(value.dask, "layers", {}).values():
        task = getattr(layer, "task", None)
        yield task if task is not None else next(iter(getattr(layer, "mapping", {}).values()), None)


def modules_of_task(task: object) -> list[str]:
    """Return the modules that unpickling a task imports, but those of Dask and of Python itself.

    The task is pickled until its pickle has 5000 objects or 256 KiB.
    """
    from distributed.protocol.pickle import cloudpickle  # type: ignore[attr-defined]

    known = {"", *sys.stdlib_module_names, "dask", "distributed", "cloudpickle", "__main__", "__mp_main__"}
    names: dict[str, None] = {}
    objects = written_bytes = 0

    class EnoughReadError(Exception):
        pass

    def write(data: bytes) -> None:
        nonlocal written_bytes
        written_bytes += len(data)
        if written_bytes > 2**18:
            raise EnoughReadError

    class NameReader(cloudpickle.Pickler):  # type: ignore[misc]
        def persistent_id(self, thing: object) -> None:
            nonlocal objects
            objects += 1
            if objects > 5000:
                raise EnoughReadError
            name = _imported_module(thing).partition(".")[0]
            if name not in known:
                names[name] = None

    with suppress(Exception):  # what cannot be pickled here says nothing of those who have it
        NameReader(SimpleNamespace(write=write), protocol=5, buffer_callback=[].append).dump(task)
    return list(names)


def _imported_module(thing: Any) -> str:
    """Return the module that unpickling a thing imports; empty for what travels whole, as a lambda does."""
    from distributed.protocol.pickle import cloudpickle  # type: ignore[attr-defined]

    kind = type(thing).__name__
    if kind == "module":
        return str(thing.__name__)
    if not isinstance(thing, type) and kind not in ("function", "builtin_function_or_method"):
        return ""
    name = str(getattr(thing, "__module__", None))
    if name in cloudpickle.list_registry_pickle_by_value():
        return ""
    try:
        return name if attrgetter(thing.__qualname__)(sys.modules[name]) is thing else ""
    except (AttributeError, KeyError):
        return ""
