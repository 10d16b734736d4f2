"""
One round of questions to a cluster, in the order in which the answers get lost.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from workerdiag.model.evidence import Evidence, Gap, Identity, Looked
from workerdiag.sources.addresses import identity_of
from workerdiag.sources.cluster import choice, logs, queries, surroundings, tasks
from workerdiag.sources.cluster import evidence as words
from workerdiag.sources.cluster.patience import when_told

#: Topics that carry causes (distributed 2024.8.1 to 2026.8.0), beside ``all`` and the workers' own.
_TOPICS = ("worker-restart-memory", "scheduler", "worker-fail-hard")
#: Of the time that is left, one question may take so much; then the scheduler counts as silent.
_SHARE = 0.5
#: While the client is not connected an answer is unlikely.
_SHARE_UNCONNECTED = 0.2
#: A nanny has started a new worker after so long.
_RESTART_S = 1.5
#: A nanny that has not answered after so long will not.
_NANNY_S = 5.0
#: Of the budget, so much is for asking; the rest for ending in time.
_ASKING = 0.9


class Interview:
    """
    What has been answered stays, however the round ends.
    """

    def __init__(self, client: Any, about: Sequence[Identity], budget_s: float) -> None:
        self._client = client
        self._about = tuple({each.worker: each for each in about if each.worker}.values())
        self._deadline = time.monotonic() + budget_s * _ASKING
        self._evidence: list[Evidence] = []
        #: Whether the scheduler answers, as far as is known.
        self._answers = True
        self._workers: dict[str, Mapping[str, Any]] = {}
        self._known = {each.worker: each for each in self._about if each.worker}
        #: Events of the topic ``all``.
        self._entries: choice.Entries = ()
        #: Logs that are told of already.
        self._read: set[str] = set()
        self._dead: list[Identity] = list(self._about)
        #: What happened before, by the scheduler's clock, is of other deaths.
        self._since = 0.0

    def can_begin(self) -> bool:
        """
        Whether the client is open; if not, that is a gap.
        """
        status = self._status()
        if status in ("closed", "closing", "newly-created") or self._client.scheduler is None:
            self._answers = False
            remedy = "call explain() while the client is open, or with a new Client of the same scheduler"
            self._gap("scheduler", "unreachable", f"the client is {status}", remedy)
        return self._answers

    def would_block(self) -> bool:
        """
        Whether waiting here would stop the event loop that the answers come through; that is a gap.
        """
        if self._client.asynchronous:
            self._answers = False
            remedy = "await workerdiag.explain(exc, client)"
            self._gap("scheduler", "unreachable", "the client is asynchronous here", remedy)
            return True
        return False

    def break_off(self, problem: Exception) -> None:
        """
        The round could not be brought to its end.
        """
        self._answers = False
        self._evidence.append(queries.gap("scheduler", problem, status=self._status()))

    def told(self) -> list[Evidence]:
        """
        All evidence so far; where the scheduler is silent, also from servers in this process.
        """
        return [*self._evidence, *(() if self._answers else self._local_logs())]

    async def ask_all(self) -> None:
        """
        Every question, until the scheduler falls silent or the time is up.
        """
        for each in self._about:
            await self._ask_own_topic(each)
        self._entries = (
            await self._ask("scheduler events", partial(queries.events, self._client, "all")) or ()
        )
        await self._ask_workers()
        self._choose()
        for each in self._dead[len(self._about) :]:
            await self._ask_own_topic(each)
        nannies = await self._nannies() if self._answers else []
        answers = self._asking(nannies)
        await self._ask_topics()
        await self._ask_scheduler_log()
        await self._ask_states()
        self._tell_nannies(nannies, await answers)

    async def _ask(self, place: str, call: Callable[[], Awaitable[Any]]) -> Any:
        """
        The scheduler's answer; None, and a gap, without one. Once silent it is asked no more.
        """
        if not self._answers:
            return None
        try:
            return await queries.answered(call, within_s=self._share_s())
        except Exception as problem:  # noqa: BLE001  the scheduler passes on whatever its handlers raise
            status = self._status()
            self._answers = status == "running" and not isinstance(problem, OSError)  # a TimeoutError is one
            silent = "" if self._answers else "scheduler: "
            self._evidence.append(queries.gap(f"{silent}{place}", problem, status=status))
        return None

    async def _ask_own_topic(self, dead: Identity) -> None:
        topic = str(dead.worker)
        entries = await self._ask("scheduler events", partial(queries.events, self._client, topic))
        if entries:
            self._tell(topic, choice.last(entries))
            self._evidence.append(Looked(place="scheduler events", whose=dead))
        elif entries is not None:
            detail = f"the scheduler has no events of {topic}; it forgets them an hour after the removal"
            self._gap("scheduler events", "expired", detail, "install the flight recorder beforehand")

    async def _ask_workers(self) -> None:
        answer = await self._ask("worker states", partial(queries.identity, self._client)) or {}
        self._workers = dict(answer.get("workers") or {})
        for address, said in self._workers.items():
            whose = identity_of(worker=address, nanny=said.get("nanny"), name=said.get("name"))
            self._known[address] = self._known.get(address, whose).joined(whose)

    def _choose(self) -> None:
        """
        The dead to ask about, and from when on events are of interest.
        """
        heard = [said.get("last_seen") for said in self._workers.values()]
        moments = [*(float(each) for each in heard if each), *(when for when, _ in self._entries[-1:])]
        now = max(moments, default=0.0)  # the scheduler's clock, as of the last thing it noted down
        gone = choice.removals(self._entries)
        asked = {each.worker for each in self._about}
        self._dead = choice.recently_dead(gone, self._about, now=now)
        self._since = min([now, *(each.when for each in gone if each.worker in asked)]) - choice.RECENT_S

    async def _nannies(self) -> list[str]:
        """
        Addresses of the nannies to ask over the network; those in this process are read at once.
        """
        await when_told(self._local_records, self._pids(), within_s=self._share_s())
        if local := self._local_logs(only_nannies=True):
            self._evidence += local
            return []
        nannies = choice.nannies_to_ask(self._dead, self._workers, self._entries)
        if not nannies and self._dead:  # a nanny is known by its worker, which may be on its way back
            await asyncio.sleep(min(_RESTART_S, 0.5 * self._share_s()))
            await self._ask_workers()
            nannies = choice.nannies_to_ask(self._dead, self._workers, self._entries)
        if not nannies:
            what = f"worker {self._dead[0].worker}" if self._dead else "any worker"
            remedy = "start workers with a nanny (that is the default; not --no-nanny)"
            self._gap("nanny log", "never-recorded", f"no nanny of {what} is known", remedy)
        return nannies

    def _asking(self, nannies: Sequence[str]) -> asyncio.Future[list[Any]]:
        """
        The nannies' answers, or what went wrong; that one is gone takes the scheduler 30 s to notice.
        """
        within_s = min(_NANNY_S, self._share_s())
        reads = [partial(queries.nanny_records, self._client, each) for each in nannies]
        pids = self._pids() if len(nannies) == 1 else ()
        calls = [partial(when_told, each, pids, within_s=within_s) for each in reads]
        return asyncio.gather(
            *(queries.answered(call, within_s=within_s) for call in calls), return_exceptions=True
        )

    def _pids(self) -> tuple[int, ...]:
        """
        Processes that have ended and whose nannies will say how, if there are such nannies.
        """
        return tuple(each.pid for each in self._about if each.pid is not None and each.nanny)

    async def _local_records(self) -> list[queries.Record]:
        """
        What the nannies in this process have noted; if there are none, there is no waiting for them.
        """
        read = [records for _, nanny, records in queries.local_records(self._client) if nanny]
        done = [queries.Record(0.0, "", f"Worker process {pid} ") for pid in self._pids()]
        return [record for records in read for record in records] if read else done

    def _tell_nannies(self, nannies: Sequence[str], answers: Sequence[Any]) -> None:
        seen: set[queries.Record] = set()  # nannies of one process have the same log
        for nanny, answer in zip(nannies, answers, strict=True):
            name = f"nanny log of {nanny}"
            if isinstance(answer, BaseException):
                self._evidence.append(queries.gap(name, answer))
            else:
                self._evidence += self._of_log(name, answer, nanny=nanny, others=nannies, without=seen)
                seen.update(answer)

    def _local_logs(self, *, only_nannies: bool = False) -> list[Evidence]:
        """
        Logs of servers in this process that have not been read yet.
        """
        evidence: list[Evidence] = []
        seen: set[queries.Record] = set()
        local = [
            (name, nanny, records)
            for name, nanny, records in queries.local_records(self._client)
            if name not in self._read and (nanny or not only_nannies)
        ]
        others = [nanny for _, nanny, _ in local if nanny]
        for name, nanny, records in local:
            evidence += self._of_log(name, records, nanny=nanny, others=others, without=seen)
            seen.update(records)
        return evidence

    async def _ask_topics(self) -> None:
        self._tell("all", choice.relevant(self._entries, self._dead, since=self._since))
        complete = bool(self._entries)
        for topic in _TOPICS:
            entries = await self._ask("scheduler events", partial(queries.events, self._client, topic))
            complete = complete and entries is not None
            self._tell(topic, choice.recent(entries or (), since=self._since))
        if complete:
            self._evidence.append(Looked(place="scheduler events"))

    async def _ask_scheduler_log(self) -> None:
        records = await self._ask("scheduler log", partial(queries.scheduler_records, self._client))
        if records is not None:
            self._evidence += self._of_log("scheduler log", records, nanny=None)

    async def _ask_states(self) -> None:
        """
        Of tasks and of workers; with the former come the scheduler's clock, versions and settings, and pids.
        """
        place = "task states"
        inside: Mapping[str, Any] = {}
        versions = await self._ask(place, partial(tasks.versions, self._client)) or {}
        if versions and tasks.same_python(versions):
            keys = tasks.wanted_keys(self._client)
            inside = await self._ask(place, partial(tasks.look_inside, self._client, keys)) or {}
        self._tell_surroundings(versions, inside)
        counts = inside or await self._ask(place, partial(tasks.counted, self._client))
        if counts is not None:
            self._evidence += [*tasks.task_states(counts), Looked(place=place)]
        heard = [said["last_seen"] for said in self._workers.values() if said.get("last_seen")]
        now = inside.get("now") or (max(heard) if len(heard) > 1 else None)
        pids = inside.get("pids", {})
        for address in self._workers.keys() & pids.keys():
            self._known[address] = identity_of(worker=address, pid=pids[address]).joined(self._known[address])
        self._evidence += words.of_workers(self._workers, now=now, known=self._known)
        if self._workers or self._answers:
            self._evidence.append(Looked(place="worker states"))

    def _tell_surroundings(self, versions: Mapping[str, Any], inside: Mapping[str, Any]) -> None:
        address = getattr(self._client.scheduler, "address", None)
        self._evidence += surroundings.of_versions(versions, address)
        self._evidence += surroundings.of_settings(inside, address)
        self._evidence += surroundings.of_differing(versions, inside)

    def _of_log(
        self,
        name: str,
        records: Sequence[queries.Record],
        *,
        nanny: str | None,
        others: Collection[str] = (),
        without: Collection[queries.Record] = (),
    ) -> list[Evidence]:
        self._read.add(name)
        known = {said.get("nanny") for said in self._workers.values()} | {each.nanny for each in self._dead}
        return logs.of_log(
            name, records, nanny=nanny, others={*others, *known}, without=without, since=self._since
        )

    def _tell(self, topic: str, entries: choice.Entries) -> None:
        self._evidence += words.of_events(topic, entries, self._known)

    def _gap(self, source: str, reason: str, detail: str, remedy: str) -> None:
        self._evidence.append(Gap(source=source, reason=reason, detail=detail, remedy=remedy))

    def _share_s(self) -> float:
        share = _SHARE if self._status() == "running" else _SHARE_UNCONNECTED
        return share * max(0.0, self._deadline - time.monotonic())

    def _status(self) -> str:
        return str(getattr(self._client, "status", "unknown"))
