"""Probes the machine that a worker died on through a process that still runs there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Self

from attrs import evolve

from workerdiag.deadline import MORE_TIME, NO_DEADLINE, Deadline
from workerdiag.guard import guarded
from workerdiag.model.dask import PROCESS_ENDED_BY
from workerdiag.model.evidence import Evidence, Gap, Inspected, LogChunk
from workerdiag.model.scene import Scene, Terms, Victim
from workerdiag.model.vocabulary import GapReason
from workerdiag.sources.cluster.queries import query_gap
from workerdiag.sources.host.kernel_lines import answer_evidence, kernel_log
from workerdiag.sources.host.remote_call import Answer, Request, probe_elsewhere, probe_here
from workerdiag.sources.host.respondents import Respondent, live_respondents, paused_respondents, respondents
from workerdiag.sources.runner import gap_on_error

#: How far before a death to search for its cause, in seconds.
_BEFORE_S = 300.0


class HostSource:
    """Reads kernel log, cgroup, disks, limits and uptime of the machines of dead workers, or of live ones.

    The probes run in this process if the nanny is in it. Otherwise they run in a thread of the victim's
    nanny, another nanny on the host, or the scheduler on the host; at most four processes are probed.
    """

    name = "host"
    terms = Terms(
        lasts_s=3600.0,
        permission="for the kernel log root, the group adm or systemd-journal, or sysctl kernel.dmesg_restrict=0;"
        " for the rest the worker's own",
        cost="a thread in one nanny of each host, for about 30 ms",
    )

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._deadline = NO_DEADLINE
        self._problem: Gap | None = None

    @classmethod
    def of(cls, scene: Scene) -> Self | None:
        """Return the source for *scene*; None without both a victim and a client."""
        return cls(scene) if scene.victims or scene.client is not None else None

    def collect(self, *, budget_s: float) -> Iterator[Evidence]:
        """Yield the machines' evidence, and a gap for each that cannot be probed."""
        self._deadline = Deadline.of_budget(budget_s)
        targets, left = respondents(self._scene) if self._scene.victims else (self._live_respondents(), [])
        if self._scene.victims:
            targets = [*targets, *paused_respondents(self._scene)]
        answers = self._answers(targets)
        yielded: set[tuple[str, bytes]] = set()  # two nannies of one machine return the same
        for each, answer in zip(targets, answers, strict=True):
            if isinstance(answer, dict):
                for piece in gap_on_error(f"host {each.title}", partial(answer_evidence, answer, each)):
                    if not isinstance(piece, LogChunk) or (piece.origin, piece.data) not in yielded:
                        yield piece
                    if isinstance(piece, LogChunk):
                        yielded.add((piece.origin, piece.data))
        yield from gap_on_error(self.name, partial(self._kernel_log_evidence, targets, answers, left))
        yield from self._gaps(targets, answers, left)

    def _live_respondents(self) -> list[Respondent]:
        """Return nannies of live workers, paused ones first; none if the scheduler does not answer in time."""
        with guarded("asking for live workers") as asking:
            ask = partial(live_respondents, self._scene, self._share(0.4))
            timeout_s = self._share(0.5).left_s
            found: list[Respondent] = self._scene.client.sync(ask, asynchronous=False, callback_timeout=timeout_s)
            return found
        if asking.problem is not None and getattr(self._scene.client, "status", "") != "closed":
            self._problem = machine_gap("this cluster", asking.problem)  # else the scheduler's gap says it
        return []

    def _answers(self, targets: Sequence[Respondent]) -> list[Answer | BaseException]:
        """Return each answer or exception; this process is probed last."""
        remote = [each for each in targets if not each.is_this_process]

        async def ask_all() -> list[Answer | BaseException]:
            return await asyncio.gather(*map(self._ask, remote), return_exceptions=True)

        answers: list[Answer | BaseException] = []
        if remote:
            with guarded("probing machines") as probing:
                timeout_s = self._share(1.0).left_s
                answers = self._scene.client.sync(ask_all, asynchronous=False, callback_timeout=timeout_s)
            if probing.problem is not None:
                answers = [probing.problem] * len(remote)
        told = iter(answers)
        return [
            next(told) if each in remote else probe_here(each.probes, self._probe_request(each)) for each in targets
        ]

    async def _ask(self, respondent: Respondent) -> Answer:
        place, request = respondent.place, self._probe_request(respondent)
        nanny = None if place.role == "scheduler" else str(place.identity.nanny)
        deadline = self._share(0.9).share(at_most_s=3.0)
        return await probe_elsewhere(self._scene.client, nanny, respondent.probes, request, deadline)

    def _probe_request(self, respondent: Respondent) -> Request:
        ahead_s = respondent.place.clock_ahead_s or 0.0
        times = [each.when for each in respondent.subjects]
        known = [when for when in times if when is not None]
        since_s = time.time() + ahead_s - min(known) + _BEFORE_S if len(known) == len(times) else 900.0
        return {
            "since_s": max(_BEFORE_S, since_s),
            "ended": PROCESS_ENDED_BY,
            "budget_s": max(0.1, min(1.0, 0.3 * self._deadline.left_s)),
            "pids": [each.pid for each in respondent.subjects if each.pid is not None],
            "addresses": [
                each.identity.nanny for each in respondent.subjects if each.identity.nanny and not each.own
            ],
            "nannies": [each.identity.nanny for each in respondent.subjects if each.own],
        }

    def _kernel_log_evidence(
        self, targets: Sequence[Respondent], answers: Sequence[object], left: Sequence[Victim]
    ) -> Iterator[Evidence]:
        told = [(each, answer) for each, answer in zip(targets, answers, strict=True) if each.is_about_dead]
        pairs = [(each, answer) for each, answer in told if isinstance(answer, dict)]
        gaps = [found for each, answer in pairs if (found := kernel_gap(answer, each)) is not None]
        yield from gaps
        sure = bool(pairs) and len(pairs) == len(told) and all(each.same_machine for each, _ in told)
        doubtful = any(kernel_log(answer).leaves_doubt(each.subjects) for each, answer in pairs)
        if sure and not left and not gaps and not doubtful:
            for each, _ in pairs:
                for subject in each.subjects:
                    yield Inspected(place="kernel log", identity=subject.identity)

    def _gaps(
        self, targets: Sequence[Respondent], answers: Sequence[object], left: Sequence[Victim]
    ) -> Iterator[Gap]:
        if self._problem is not None:
            yield self._problem
        for each, answer in zip(targets, answers, strict=True):
            if isinstance(answer, BaseException):
                yield machine_gap(each.title, answer)
            elif not each.same_machine:
                # It is known by a loopback address only, so only lines with the pid count.
                detail = f"without the cluster it is not known whether {each.title} is this machine"
                remedy = "workerdiag.explain(exc, client) with a client of the cluster"
                yield Gap(source=f"host {each.title}", reason="unreachable", detail=detail, remedy=remedy)
        for host in dict.fromkeys(str(each.identity.host or each.identity.worker) for each in left):
            yield machine_gap(host, ConnectionError("no nanny or scheduler is left there to ask"))

    def _share(self, part: float) -> Deadline:
        return self._deadline.share(part, at_least_s=0.05)


def machine_gap(title: str, problem: BaseException) -> Gap:
    """Return the gap of a machine that could not be probed."""
    found = query_gap(f"host {title}", problem)
    remedies: dict[GapReason, str] = {
        "timed-out": MORE_TIME,
        "forbidden": "take run out of distributed.nanny.blocked-handlers",
    }
    look = f"on {title}: dmesg -T | grep -iE 'killed process|segfault'; uptime"
    return evolve(found, remedy=remedies.get(found.reason, look))


def kernel_gap(answer: Answer, respondent: Respondent) -> Gap | None:
    """Return the gap of a kernel log that was not read completely; None if it was."""
    section = answer.get("kernel", {})
    if section.get("reaches_back"):
        return None
    reason: GapReason = "never-recorded"
    problems = section.get("problems") or {"probe": section.get("problem", "no answer")}
    detail = "; ".join(f"{name}: {problem}" for name, problem in dict(problems).items())[:500]
    remedy = f"on {respondent.title}: journalctl -k --since '1 hour ago'"
    if "lines" in section:
        reason, detail = "expired", f"{section.get('read_from')} does not go back to the death"
    elif section.get("forbidden"):
        reason, remedy = "forbidden", f"on {respondent.title}: sudo dmesg -T | grep -iE 'killed process|segfault'"
    source = f"kernel log of {respondent.title}"
    return Gap(source=source, place="kernel log", reason=reason, detail=detail, remedy=remedy)
