"""One round of requests to a cluster, in the order in which answers expire."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from workerdiag.model.dask import Client, Reply
from workerdiag.model.evidence import Evidence, Inspected
from workerdiag.model.identity import Identity
from workerdiag.sources.addresses import identity_of
from workerdiag.sources.cluster import logs, queries, selection, snapshot, tasks, versions_and_settings
from workerdiag.sources.cluster.asker import TOPICS, Asker, ClusterQuestion
from workerdiag.sources.cluster.evidence import event_evidence, worker_state_events
from workerdiag.sources.cluster.losses import count_losses
from workerdiag.sources.cluster.nannies import NannyLogs
from workerdiag.sources.cluster.silence import still_silent
from workerdiag.sources.cluster.state import ClusterState, scheduler_clock, state_events
from workerdiag.sources.cluster.workers import fetch_workers

#: Time that a nanny takes to start a new worker, in seconds.
_RESTART_S = 1.5


class ClusterSession:
    """One round of requests; answers are kept however the round ends.

    Args:
        client: The client of the cluster.
        question: What to ask.
        asker: Sends the requests and holds the answers of earlier rounds.
    """

    def __init__(self, client: Client, question: ClusterQuestion, asker: Asker) -> None:
        self._client = client
        self._question = question
        self._topics = question.topics or TOPICS
        self._about = tuple({each.worker: each for each in question.about if each.worker}.values())
        self._asker = asker
        self._nannies = NannyLogs(client, asker, self._about)
        self._evidence: list[Evidence] = []
        #: The scheduler snapshot; empty without one.
        self._snapshot: Reply = {}
        self._versions: Reply = {}
        self._workers: dict[str, Reply] = {}
        self._worker_count = 0
        self._known = {each.worker: each for each in self._about if each.worker}
        #: Events of the topic ``all``; None if the request failed.
        self._all_events: selection.TimedEvents | None = None
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
            self._asker.is_responsive = False
            remedy = "call explain() while the client is open, or with a new Client of the same scheduler"
            self._asker.gap("scheduler", "unreachable", f"the client is {status}", remedy)
        return self._asker.is_responsive

    def would_block(self) -> bool:
        """Whether waiting here would block the event loop that receives the answers; if so, note a gap."""
        if self._client.asynchronous:
            self._asker.is_responsive = False
            remedy = "await workerdiag.explain(exc, client)"
            self._asker.gap("scheduler", "unreachable", "the client is asynchronous here", remedy)
            return True
        return False

    def evidence(self) -> list[Evidence]:
        """Return all evidence so far; if the scheduler is unresponsive, also logs of servers in this process."""
        local = [] if self._asker.is_responsive else queries.local_server_logs(self._client)
        text = self._log_evidence(list(local))
        cluster = versions_and_settings.cluster_object_events(self._client)
        return [*self._evidence, *self._asker.gaps, *text, *cluster]

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
        """Take a snapshot if the scheduler can run our function."""
        ask = self._asker.ask
        versions = partial(versions_and_settings.fetch_versions, self._client)
        self._versions = await ask("versions", versions, place="versions") or {}
        if self._versions and versions_and_settings.has_same_python(self._versions):
            take = partial(
                snapshot.take_snapshot,
                self._client,
                keys=tasks.wanted_keys(self._client),
                executing=[tasks.parsed_key(each) for each in self._question.executing],
                addresses=[str(each.worker) for each in self._about],
                topics=self._topics,
                records=queries.SCHEDULER_RECORDS,
            )
            self._snapshot = await ask("inside", take, place="task states") or {}

    async def _events(self, topic: str) -> selection.TimedEvents | None:
        found = snapshot.snapshot_events(self._snapshot, topic)
        if found is not None:
            return found
        call = partial(queries.fetch_events, self._client, topic)
        what = f"events {topic}"
        answer: selection.TimedEvents | None = await self._asker.ask(what, call, place="scheduler events")
        return answer

    async def _ask_own_topic(self, dead: Identity) -> None:
        topic = str(dead.worker)
        entries = await self._events(topic)
        if selection.was_asked_to_close(entries or ()):
            self._asked_to_close.add(topic)
        if entries:
            self._add_events(topic, selection.last_events(entries))
            self._evidence.append(Inspected(place="scheduler events", identity=dead))
        elif entries is not None:
            detail = f"the scheduler has no events of {topic}; it forgets them an hour after the removal"
            self._asker.gap("scheduler events", "expired", detail, "install the flight recorder beforehand")

    async def _ask_workers(self, what: str) -> None:
        """Update what is known of the workers; without an answer nothing changes."""
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
            identity = identity_of(
                worker=address, pid=worker.get("pid"), nanny=worker.get("nanny"), name=worker.get("name")
            )
            self._known[address] = identity.merged_with(self._known.get(address, identity))

    def _select_dead(self) -> None:
        """Select the dead workers to ask about, and the start of the relevant time."""
        entries = self._all_events or ()
        now = selection.last_noted(self._workers, entries)
        gone = selection.find_removals(entries)
        self._dead = selection.recently_dead(gone, self._about, now=now)
        self._since = selection.relevant_since(gone, self._about, now=now)

    async def _select_nannies(self) -> list[str]:
        """Return the nannies to ask over the network; read the logs of those in this process."""
        if local := await self._nannies.local_logs():
            self._evidence += self._log_evidence(local)
            return []
        entries = self._all_events or ()
        nannies = selection.select_nannies(self._dead, self._workers, entries)
        if not nannies and self._dead:  # a nanny is known by its worker, which it may be restarting
            await asyncio.sleep(self._asker.request_deadline().share(0.5, at_most_s=_RESTART_S).left_s)
            await self._ask_workers("workers again")
            nannies = selection.select_nannies(self._dead, self._workers, entries)
        if not nannies and (self._workers or self._dead):
            what = f"worker {self._dead[0].worker}" if self._dead else "any worker"
            remedy = "give the output of `dask worker`; a nanny is known only while its worker is registered"
            self._asker.gap("nanny log", "never-recorded", f"no nanny of {what} is known", remedy)
        return nannies

    async def _ask_topics(self) -> None:
        entries = self._all_events or ()
        known = [*snapshot.early_removals(self._snapshot), *entries]
        self._add_events("all", selection.relevant_events(known, self._dead, since=self._since))
        complete = self._all_events is not None
        for topic in self._topics:
            found = await self._events(topic)
            complete = complete and found is not None
            self._add_events(topic, selection.recent_events(found or (), since=self._since))
        if selection.may_lack_events(entries, since=self._since):
            detail = f"the scheduler keeps its last {len(entries)} events, and earlier ones matter"
            remedy = "set distributed.admin.low-level-log-length beforehand, or install the flight recorder"
            self._asker.gap("scheduler events", "expired", detail, remedy)
        elif complete:
            self._evidence.append(Inspected(place="scheduler events"))

    async def _ask_scheduler_log(self) -> None:
        found = self._snapshot.get("log")
        records = None if found is None else queries.parse_records(found)
        if records is None:
            call = partial(queries.fetch_scheduler_log, self._client)
            records = await self._asker.ask("log", call, place="scheduler log")
        if records is not None:
            self._evidence += self._log_evidence([queries.ServerLog(records)])

    async def _ask_states(self) -> None:
        """Add the states of tasks and workers; a snapshot adds the scheduler's clock, versions and settings."""
        counts: Reply | None = self._snapshot or None
        if counts is None:
            call = partial(tasks.count_states, self._client)
            counts = await self._asker.ask("task states", call, place="task states")
        state = ClusterState(
            workers=self._workers,
            worker_count=self._worker_count,
            counts=counts or {},
            now=scheduler_clock(self._snapshot, self._workers),
            losses=count_losses(
                self._snapshot,
                self._all_events or (),
                since=self._since,
                asked_to_close=self._asked_to_close,
            ),
            nannies=self._nannies.found,
            pending=tasks.pending_count(self._client),
            gave_up=self._question.gave_up,
        )
        silent = await still_silent(self._client, self._asker, state)
        if counts is not None:
            kinds = tasks.finished_kind_events(counts, self._question.executing)
            self._evidence += [*tasks.task_state_events(counts), *kinds, Inspected(place="task states")]
        self._evidence += worker_state_events(state, silent=silent, known=self._known)
        if counts is not None or self._workers:
            self._evidence += state_events(state, silent=silent, known=self._known)
        await self._add_environment(in_trouble=bool(self._about) or state.in_trouble)

    async def _add_environment(self, *, in_trouble: bool) -> None:
        of_workers = None
        if self._versions and self._dead and not self._workers and not self._nannies.found:
            detail = "the scheduler forgets a worker's versions with it, and no worker or nanny is left"
            remedy = "look for 'Mismatched versions' in the log of a worker; or wait for one, and ask again"
            self._asker.gap("versions", "expired", detail, remedy)
        if in_trouble and self._versions and not self._snapshot and self._workers:
            call = partial(queries.fetch_worker_versions, self._client, list(self._workers))
            of_workers = await self._asker.ask("worker versions", call, place="versions")
        where = getattr(self._client.scheduler, "address", None)
        self._evidence += versions_and_settings.environment_events(
            self._versions, self._snapshot, of_workers, address=where, in_trouble=in_trouble
        )

    def _log_evidence(self, server_logs: Sequence[queries.ServerLog]) -> list[Evidence]:
        """Return evidence from logs not read before; nannies in one process share a log."""
        nannies = {worker.get("nanny") for worker in self._workers.values()}
        nannies |= {each.nanny for each in self._dead} | {each.nanny for each in server_logs}
        known: set[queries.ServerLogRecord] = set()
        evidence: list[Evidence] = []
        for each in server_logs:
            if each.name not in self._read_logs:
                self._read_logs.add(each.name)
                evidence += logs.log_evidence(each, others=nannies, without=known, since=self._since)
                known.update(each.records)
        return evidence

    def _add_events(self, topic: str, entries: selection.TimedEvents) -> None:
        self._evidence += event_evidence(topic, entries, self._known)
