"""One round of requests to a cluster, in the order in which answers expire, and its logs as evidence.

The scheduler notices the closed connection first. The nanny learns the exit status 10 to 60 ms later, and
KilledWorker may reach an ``except`` block between the two. Hence a short wait for nannies, and another one for
heartbeats of workers that seem silent. Times in logs are converted to UTC.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

from workerdiag.deadline import Deadline
from workerdiag.guard import guarded
from workerdiag.model.dask import PROCESS_ENDED, Client, Reply, is_other_nanny
from workerdiag.model.evidence import Evidence, Gap, Inspected, LogChunk
from workerdiag.model.identity import Identity, host_of, identity_of
from workerdiag.model.process_end import RECENT_S
from workerdiag.model.vocabulary import Place, Stream
from workerdiag.settings import seconds
from workerdiag.sources.cluster import losses, queries, state, workers
from workerdiag.sources.cluster.event_evidence import event_evidence, worker_state_events
from workerdiag.sources.cluster.queries import Asker, ClusterQuestion, ServerLog, ServerLogRecord, answer_in_time
from workerdiag.sources.cluster.scheduler_functions import KEY_CHARS, SnapshotRequest
from workerdiag.sources.cluster.synchronization import Wait, fetch_stacks, wait_in
from workerdiag.sources.cluster.workers import fetch_workers


class ClusterSession:
    """One round of requests; answers are kept however the round ends."""

    def __init__(self, client: Client, question: ClusterQuestion, asker: Asker) -> None:
        self._client = client
        self._question = question
        self._topics = question.topics or queries.TOPICS
        self._about = tuple({each.worker: each for each in question.about if each.worker}.values())
        self._asker = asker
        self._nannies = NannyLogs(client, asker, self._about)
        self._evidence: list[Evidence] = []
        self._client_state: list[Evidence] = []
        #: The scheduler snapshot; empty without one.
        self._snapshot: Reply = {}
        self._versions: Reply = {}
        self._workers: dict[str, Reply] = {}
        self._worker_count = 0
        self._known = {each.worker: each for each in self._about if each.worker}
        #: Events of the topic ``all``; None if the request failed.
        self._all_events: losses.TimedEvents | None = None
        self._dead: list[Identity] = list(self._about)
        #: Addresses of workers that announced that they were asked to close.
        self._asked_to_close: set[str] = set()
        #: Names of the logs that are in the evidence already.
        self._read_logs: set[str] = set()
        #: Earlier events belong to other deaths, by the scheduler's clock.
        self._since = 0.0

    def can_begin(self) -> bool:
        """Whether the client is open; if not, note a gap."""
        status = self._asker.status()
        if status in ("closed", "closing", "newly-created") or self._client.scheduler is None:
            remedy = "call explain() while the client is open, or with a new Client of the same scheduler"
            self._asker.refuse(f"the client is {status}", remedy)
        return self._asker.is_responsive

    def can_wait(self) -> bool:
        """Whether waiting here does not block the event loop that receives the answers; if it does, note a gap."""
        if self._client.asynchronous:
            self._asker.refuse("the client is asynchronous here", "await workerdiag.explain(exc, client)")
        return self._asker.is_responsive

    def evidence(self) -> list[Evidence]:
        """Return all evidence so far; if the scheduler is unresponsive, also logs of servers in this process."""
        local = [] if self._asker.is_responsive else queries.local_server_logs(self._client)
        text = self._log_evidence(list(local))
        cluster = workers.cluster_object_events(self._client)
        return [*self._evidence, *self._asker.gaps, *text, *cluster, *self._client_state]

    def look_at_client(self) -> None:
        """Look at the client itself, if its scheduler did not answer; this may take a second."""
        if not self._asker.is_responsive and not self._client_state:
            self._client_state += state.client_state_events(self._client, self._asker.request_deadline())

    async def ask_all(self) -> None:
        """Send every request, until the scheduler stops responding or the time is up."""
        await self._take_snapshot()
        for each in self._about:
            await self._ask_own_topic(each)
        self._all_events = await self._events("all")
        await self._ask_workers("workers")
        self._select_dead()
        for each in self._dead[len(self._about) :]:
            await self._ask_own_topic(each)
        nannies = await self._select_nannies() if self._asker.is_responsive else []
        answers = self._nannies.asking(nannies)
        await self._ask_topics()
        await self._ask_scheduler_log()
        await self._ask_states()
        self._evidence += self._log_evidence(self._nannies.answered_logs(nannies, await answers))

    async def _take_snapshot(self) -> None:
        ask = self._asker.ask
        versions = partial(workers.fetch_versions, self._client)
        self._versions = await ask("versions", versions, place="versions") or {}
        if self._versions and workers.has_same_python(self._versions):
            addresses = [str(each.worker) for each in self._about]
            wanted: SnapshotRequest = {
                "keys": state.wanted_keys(self._client),
                "executing": list(map(state.parsed_key, self._question.executing)),
                "tasks": list(map(state.parsed_key, self._question.tasks)),
                "addresses": addresses,
                "recent_s": RECENT_S,
                "topics": [*self._topics, *addresses],
                "records": queries.SCHEDULER_RECORDS,
                "settings": workers.SETTINGS,
            }
            take = partial(queries.take_snapshot, self._client, wanted)
            self._snapshot = await ask("inside", take, place="task states") or {}

    async def _events(self, topic: str) -> losses.TimedEvents | None:
        found = queries.snapshot_events(self._snapshot, topic)
        if found is not None:
            return found
        call = partial(queries.fetch_events, self._client, topic)
        what = f"events {topic}"
        answer: losses.TimedEvents | None = await self._asker.ask(what, call, place="scheduler events")
        return answer

    async def _ask_own_topic(self, dead: Identity) -> None:
        topic = str(dead.worker)
        entries = await self._events(topic)
        if losses.was_asked_to_close(entries or ()):
            self._asked_to_close.add(topic)
        if entries:
            self._add_events(topic, entries[-100:])
            self._evidence.append(Inspected(place="scheduler events", identity=dead))
        elif entries is not None:
            detail = f"the scheduler has no events of {topic}; it forgets them an hour after the removal"
            self._asker.gap("scheduler events", "expired", detail, "install the flight recorder beforehand")

    async def _ask_workers(self, what: str) -> None:
        if what == "workers" and "workers" in self._snapshot:
            found: Reply | None = self._snapshot
        else:
            call = partial(fetch_workers, self._client, near=[each.worker for each in self._dead])
            found = await self._asker.ask(what, call, place="worker states")
        if found is None:
            return
        self._workers, self._worker_count = dict(found["workers"]), int(found["worker_count"])
        self._evidence.append(Inspected(place="worker states"))
        for address, worker in self._workers.items():
            parts = {part: worker.get(part) for part in ("pid", "nanny", "name")}
            identity = identity_of(worker=address, **parts)
            self._known[address] = identity.merged_with(self._known.get(address, identity))

    def _select_dead(self) -> None:
        entries = self._all_events or ()
        now = losses.last_noted(self._workers, entries)
        gone = losses.find_removals(entries)
        self._dead = losses.recently_dead(gone, self._about, now=now)
        self._since = losses.relevant_since(gone, self._about, now=now)

    async def _select_nannies(self) -> list[str]:
        """Return the nannies to ask over the network; read the logs of those in this process."""
        if local := await self._nannies.local_logs():
            self._evidence += self._log_evidence(local)
            return []
        entries = self._all_events or ()
        nannies = losses.select_nannies(self._dead, self._workers, entries)
        if not nannies and self._dead:  # a nanny is known by its worker, which it may be restarting
            await asyncio.sleep(self._asker.request_deadline().share(0.5, at_most_s=1.5).left_s)
            await self._ask_workers("workers again")
            nannies = losses.select_nannies(self._dead, self._workers, entries)
        if not nannies and (self._workers or self._dead):
            what = f"worker {self._dead[0].worker}" if self._dead else "any worker"
            remedy = "give the output of `dask worker`; a nanny is known only while its worker is registered"
            self._asker.gap("nanny log", "never-recorded", f"no nanny of {what} is known", remedy)
        return nannies

    async def _ask_topics(self) -> None:
        entries = self._all_events or ()
        known = [*queries.early_removals(self._snapshot), *entries]
        self._add_events("all", losses.relevant_events(known, self._dead, since=self._since))
        complete = self._all_events is not None
        for topic in self._topics:
            found = await self._events(topic)
            complete = complete and found is not None
            self._add_events(topic, losses.recent_events(found or (), since=self._since))
        if losses.may_lack_events(entries, since=self._since):
            detail = f"the scheduler keeps only its last {len(entries)} events; relevant ones may be earlier"
            remedy = "set distributed.admin.low-level-log-length beforehand, or install the flight recorder"
            self._asker.gap("scheduler events", "expired", detail, remedy)
        elif complete:
            self._evidence.append(Inspected(place="scheduler events"))

    async def _ask_scheduler_log(self) -> None:
        found = self._snapshot.get("log")
        if found is None:
            call = partial(queries.fetch_log, self._client)
            found = await self._asker.ask("log", call, place="scheduler log")
        if found is not None:
            self._evidence += self._log_evidence([ServerLog(queries.parse_records(found))])

    async def _ask_states(self) -> None:
        """Add the states of tasks and workers; a snapshot adds the scheduler's clock, versions and settings."""
        counts: Reply | None = self._snapshot or None
        if counts is None:
            call = partial(state.count_states, self._client)
            counts = await self._asker.ask("task states", call, place="task states")
        lost = losses.count_losses(
            self._snapshot, self._all_events or (), since=self._since, asked_to_close=self._asked_to_close
        )
        standing = state.ClusterState(
            workers=self._workers,
            worker_count=self._worker_count,
            counts=counts or {},
            now=state.scheduler_clock(self._snapshot, self._workers),
            losses=lost,
            nannies=self._nannies.found,
            pending=state.pending_count(self._client),
            gave_up=self._question.gave_up,
            workers_wanted=workers.workers_wanted(self._client),
            workers_awaited=self._question.workers_awaited,
        )
        silent = await still_silent(self._client, self._asker, standing)
        if counts is not None:
            self._evidence += [
                *state.task_state_events(counts),
                *state.finished_kind_events(counts, self._question.executing),
                *state.lost_task_events(counts, self._known),
                *state.need_events(counts),
                Inspected(place="task states"),
            ]
            await self._look_for_undelivered_errors(counts)
        self._evidence += worker_state_events(standing, silent=silent, known=self._known)
        if counts is not None or self._workers:
            waits = await self._ask_what_tasks_wait_for(silent)
            self._evidence += state.state_events(standing, silent=silent, known=self._known, waits=waits)
        await self._add_environment(in_trouble=bool(self._about) or standing.in_trouble)

    async def _look_for_undelivered_errors(self, counts: Reply) -> None:
        """Add errors that the client could not read: still not there when `auto` would have handed them on."""
        wait_s = seconds("note.timeout") + 0.5
        is_late = self._question.has_failed or self._asker.request_deadline().left_s < wait_s
        if not is_late and any(state.undelivered_errors(counts, self._client)):
            await asyncio.sleep(wait_s)
            self._evidence += state.undelivered_errors(counts, self._client)

    async def _ask_what_tasks_wait_for(self, silent: Collection[str]) -> dict[str, Wait | None]:
        """Return what those tasks wait for that run and whose workers answer, by their stacks.

        Besides those that the client waits for, some others: one of them may do what these wait for.
        """
        running = [each for each in state.awaited_tasks(self._snapshot) if each["running_s"] is not None]
        if not running:
            return {}
        awaited = [each["key"] for each in running if each["worker"] not in silent]
        lists = [
            worker.get("executing") or () for address, worker in self._workers.items() if address not in silent
        ]
        others = [key for listed in lists for key, _ in listed if len(key) < KEY_CHARS]
        keys = [state.parsed_key(each) for each in list(dict.fromkeys([*awaited, *others]))[:20]]
        call = partial(fetch_stacks, self._client, keys)
        with guarded("asking for call stacks"):  # a worker that does not answer says nothing of its scheduler
            stacks = await answer_in_time(call, self._asker.request_deadline().share(at_most_s=1.0))
            return {key: wait_in(stack) for key, stack in stacks.items()}
        return {}

    async def _add_environment(self, *, in_trouble: bool) -> None:
        of_workers = None
        if self._versions and self._dead and not self._workers and not self._nannies.found:
            detail = "the scheduler forgets the versions of a removed worker, and no worker or nanny is left"
            remedy = "look for 'Mismatched versions' in a worker's log; or ask again once there is a worker"
            self._asker.gap("versions", "expired", detail, remedy)
        if in_trouble and self._versions and not self._snapshot and self._workers:
            call = partial(queries.fetch_worker_versions, self._client, list(self._workers))
            of_workers = await self._asker.ask("worker versions", call, place="versions")
        where = getattr(self._client.scheduler, "address", None)
        known = workers.with_worker_versions(self._snapshot, of_workers)
        self._evidence += [
            *workers.version_events(self._versions, where),
            *workers.setting_events(self._snapshot, where),
            *workers.version_conflict_events(self._versions, known, in_trouble=in_trouble),
        ]

    def _log_evidence(self, server_logs: Sequence[ServerLog]) -> list[Evidence]:
        """Return evidence from logs not read before; nannies in one process share a log."""
        nannies = {worker.get("nanny") for worker in self._workers.values()}
        nannies |= {each.nanny for each in self._dead} | {each.nanny for each in server_logs}
        known: set[ServerLogRecord] = set()
        evidence: list[Evidence] = []
        for each in server_logs:
            if each.name not in self._read_logs:
                self._read_logs.add(each.name)
                evidence += log_evidence(each, others=nannies, without=known, since=self._since)
                known.update(each.records)
        return evidence

    def _add_events(self, topic: str, entries: losses.TimedEvents) -> None:
        self._evidence += event_evidence(topic, entries, self._known)


_ASCTIME = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}")
_LOGGERS = {"nanny": "distributed.nanny", "scheduler": "distributed.scheduler"}


def log_evidence(
    log: ServerLog, *, others: Collection[str | None], without: Collection[ServerLogRecord], since: float
) -> list[Evidence]:
    """Return a log as text *without* records that are in the evidence already, then an `Inspected` or a gap.

    There is a gap if the level hides exits, as WARNING does, or if relevant records, those after *since*, were
    not read. *others* are the addresses of all known nannies.
    """
    name, records, nanny = log.name, log.records, log.nanny
    place: Place = "nanny log" if nanny else "scheduler log"
    shared = nanny is not None and shares_log(nanny, records, others)
    identity = Identity(nanny=None if shared else nanny, host=host_of(nanny))
    new = (each for each in records if each not in without)
    chunk = records_chunk(name, new, stream="nanny" if nanny else "scheduler", identity=identity)
    evidence: list[Evidence] = [] if chunk is None else [chunk]
    if not any(each.level in ("INFO", "DEBUG") for each in records):
        detail = "its level hides INFO, at which exits are logged" if records else "it is empty"
        remedy = "set logging.distributed: info in Dask's configuration"
        gap = Gap(source=name, place=place, reason="never-recorded", detail=detail, remedy=remedy)
        return [*evidence, gap]
    if log.is_cut and records[0].created > since:
        detail = f"only its last {len(records)} records were read, and relevant ones may be earlier"
        remedy = "give the log of that process: explain(..., logs=[...])"
        return [*evidence, Gap(source=name, place=place, reason="expired", detail=detail, remedy=remedy)]
    return [*evidence, Inspected(place=place, identity=identity)]


def records_chunk(
    origin: str, records: Iterable[ServerLogRecord], *, stream: Stream, identity: Identity
) -> LogChunk | None:
    """Return log records as text, or None if there are none.

    Each record's time is rewritten in UTC: a server writes its local time without a zone, whereas
    events carry seconds since the epoch.
    """
    lines = [_format_record(record, _LOGGERS[stream]) for record in records]
    if not lines:
        return None
    data = "\n".join((*lines, "")).encode("utf-8", errors="replace")
    return LogChunk(origin=origin, data=data, stream=stream, identity=identity)


def _format_record(record: ServerLogRecord, logger: str) -> str:
    moment = datetime.fromtimestamp(record.created, tz=UTC)
    time = f"{moment:%Y-%m-%d %H:%M:%S},{moment.microsecond // 1000:03d}"
    text = record.text[: 16 * 1024]  # a line that lists lost keys can be megabytes long
    rewritten, count = _ASCTIME.subn(time, text)
    if count:
        return rewritten
    if re.match(rf"distributed\.[\w.]+ - {re.escape(record.level)} - ", text):
        return f"{time} - {text}"
    return f"{time} - {logger} - {record.level} - {text}"  # distributed.admin.log-format is customised


def shares_log(nanny: str, records: Iterable[ServerLogRecord], others: Collection[str | None]) -> bool:
    """Whether other nannies write to the same log, so that its lines may be about any worker of the host.

    All nannies in one process share a logger, as in a LocalCluster or ``dask worker --nworkers 4``.
    """
    if any(other and other != nanny and host_of(other) == host_of(nanny) for other in others):
        return True
    return any(is_other_nanny(each.text, nanny) for each in records)


#: Longest wait for a logged exit, in seconds. A nanny never logs exit status 0, so such a death costs this.
EXIT_WAIT_S = 0.6
_POLL_S = 0.1
#: The status of every error that Python does not catch: only whether the nanny starts the worker again, which
#: it says some milliseconds later, tells such an end from a start that failed.
_STATUS_ONE = re.compile(r"exited with status 1\b")
#: A nanny's last message about an exit: it starts the worker again, or closes (``_on_worker_exit`` and
#: ``close`` in nanny.py).
_NEXT = ("Restarting worker", "Closing Nanny")
#: The records of a nanny's log, or why it did not answer.
NannyAnswer = Sequence[ServerLogRecord] | BaseException


class NannyLogs:
    """The nannies that may know how a worker ended; a LocalCluster's live in this process."""

    def __init__(self, client: Client, asker: Asker, about: Sequence[Identity]) -> None:
        self._client = client
        self._asker = asker
        #: Processes that have ended and have a nanny, which will log the exit.
        self._pids = tuple(each.pid for each in about if each.pid is not None and each.nanny)
        self._about = tuple(about)
        #: Number of nannies found.
        self.found = 0

    async def local_logs(self) -> list[ServerLog]:
        """Return the logs of the nannies in this process, once they have logged the exits in question."""
        logs = self._local_logs()
        if logs:
            await wait_for_exits(self._local_records, self._pids, self._asker.request_deadline())
            logs = self._local_logs()
        self.found += len(logs)
        return logs

    def asking(self, nannies: Sequence[str]) -> asyncio.Future[list[NannyAnswer]]:
        """Begin to fetch their records; the future holds records or an exception for each nanny.

        The scheduler takes 30 s to notice that a nanny is gone.
        """
        self.found += len(nannies)
        deadline = self._asker.request_deadline().share(at_most_s=5.0)
        is_only_one = len(nannies) == 1

        async def ask(nanny: str) -> Sequence[ServerLogRecord]:
            own = [each.pid for each in self._about if each.pid is not None and each.nanny == nanny]
            read = partial(queries.fetch_nanny_log, self._client, nanny)
            return await wait_for_exits(read, self._pids if is_only_one else own, deadline)

        answers = (answer_in_time(partial(ask, each), deadline) for each in nannies)
        return asyncio.gather(*answers, return_exceptions=True)

    def answered_logs(self, nannies: Sequence[str], answers: Sequence[NannyAnswer]) -> list[ServerLog]:
        """Return the logs of the nannies that answered; note a gap for each other."""
        logs = []
        for nanny, answer in zip(nannies, answers, strict=True):
            if isinstance(answer, BaseException):
                name = f"nanny log of {nanny}"
                self._asker.gaps.append(queries.query_gap(name, answer, place="nanny log"))
            else:
                logs.append(ServerLog(answer, nanny))
        return logs

    def _local_logs(self) -> list[ServerLog]:
        return [each for each in queries.local_server_logs(self._client) if each.nanny]

    async def _local_records(self) -> list[ServerLogRecord]:
        return [record for log in self._local_logs() for record in log.records]


async def wait_for_exits(
    read: Callable[[], Awaitable[Sequence[ServerLogRecord]]], pids: Collection[int], deadline: Deadline
) -> Sequence[ServerLogRecord]:
    """Return the records of a nanny's log once they show the exits of all *pids*, or after `EXIT_WAIT_S`.

    Without pids there is no wait; it takes at most half of the time left.
    """
    waiting = deadline.share(0.5, at_most_s=EXIT_WAIT_S)
    records = await read()
    while not _are_ends_noted(records, pids) and not waiting.is_over:
        await asyncio.sleep(_POLL_S)
        records = await read()
    return records


def _are_ends_noted(records: Iterable[ServerLogRecord], pids: Collection[int]) -> bool:
    """Whether the log has the exits of all *pids*, and what the nanny did after one with status 1."""
    noted: set[int] = set()
    is_next_due = False
    for each in records:
        found = PROCESS_ENDED.search(each.text)
        if found is not None:
            noted.add(int(found[1]))
            is_next_due |= int(found[1]) in pids and _STATUS_ONE.search(each.text) is not None
        is_next_due &= not any(said in each.text for said in _NEXT)
    return noted.issuperset(pids) and not is_next_due


async def still_silent(client: Client, asker: Asker, standing: state.ClusterState) -> frozenset[str]:
    """Return the workers that seem silent and send no heartbeat during the wait.

    The wait lets a busy scheduler process the heartbeats in its queue.
    """
    suspected = standing.maybe_silent()
    if not suspected:
        return frozenset()
    listening = asker.request_deadline().share(0.4, at_most_s=state.LISTENING_S)
    await asyncio.sleep(listening.left_s)
    call = partial(fetch_workers, client, near=suspected)
    answer = await asker.ask("workers later", call, place="worker states")
    later: Mapping[str, Reply] = (answer or {}).get("workers") or {}
    seen = {each: worker.get("last_seen") for each, worker in later.items()}
    silent = (each for each in suspected if each in seen)
    return frozenset(each for each in silent if seen[each] == standing.workers[each].get("last_seen"))
