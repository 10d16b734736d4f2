"""
The machine that a worker died on, asked through who still lives there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Self

from workerdiag.model.evidence import Evidence, Gap, LogChunk, Looked
from workerdiag.model.scene import Scene, Terms, Victim
from workerdiag.sources.host.evidence import is_doubtful, of_answer
from workerdiag.sources.host.gaps import kernel_gap, machine_gap, unsure_gap
from workerdiag.sources.host.live_workers import of_the_living
from workerdiag.sources.host.remote_call import each_answered, wait_in_loop
from workerdiag.sources.host.respondents import Respondent, respondents
from workerdiag.sources.runner import safely

#: Of the budget, so much is for asking; the rest for ending in time.
_ASKING_SHARE = 0.85
#: What a machine may take to answer.
_ANSWER_S = 3.0
#: Without a time of death, so far back is looked.
_LOOK_BACK_S = 900.0
#: What led to a death is looked for so long before it.
_BEFORE_S = 300.0


class HostSource:
    """
    Kernel log, control group, disks, limits and uptime of where the dead lived; or of the living.

    A machine is asked in this process, if the nanny lives here, else through the victim's nanny, a
    neighbour's, or the scheduler on the same host: they run a text of ours in a thread of theirs. At most
    four are asked.

    Args:
        scene: The dead and the places where they lived.
    """

    name = "host"
    terms = Terms(
        lasts_s=3600.0,
        permission=(
            "to read the kernel log: root, or membership of the group adm or systemd-journal, or sysctl"
            " kernel.dmesg_restrict=0; for the rest that of the worker"
        ),
        cost="a thread of one nanny of each host, for some 30 ms",
    )

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._deadline = 0.0
        self._problem: Gap | None = None

    @classmethod
    def of(cls, scene: Scene) -> Self | None:
        """
        The source for *scene*; None where nobody died and there is no client to ask of the living.
        """
        return cls(scene) if scene.victims or scene.client is not None else None

    def collect(self, *, budget_s: float) -> Iterator[Evidence]:
        """
        What the machines say, and a gap for each that cannot be asked.
        """
        self._deadline = time.monotonic() + _ASKING_SHARE * budget_s
        asked, left = respondents(self._scene) if self._scene.victims else (self._living(), [])
        answers = self._answers(asked)
        told: set[tuple[str, bytes]] = set()  # two nannies of one machine tell the same of it
        for each, answer in zip(asked, answers, strict=True):
            if isinstance(answer, dict):
                for piece in safely(f"host {each.title}", partial(of_answer, answer, each)):
                    if not isinstance(piece, LogChunk) or (piece.origin, piece.data) not in told:
                        yield piece
                    if isinstance(piece, LogChunk):
                        told.add((piece.origin, piece.data))
        yield from safely(self.name, partial(self._kernel_logs, asked, answers, left))
        yield from self._gaps(asked, answers, left)

    def _living(self) -> list[Respondent]:
        """
        Nannies of workers that live, paused ones first; none if the scheduler does not tell of them in time.
        """
        found: list[Respondent] = []

        async def ask() -> None:
            found.extend(await of_the_living(self._scene, within_s=0.4 * self._left_s()))

        try:
            wait_in_loop(self._scene.client, ask, within_s=0.5 * self._left_s())
        except Exception as problem:  # noqa: BLE001  a closing client raises anything
            self._problem = machine_gap("this cluster", problem)
        return found

    def _answers(self, asked: Sequence[Respondent]) -> list[dict[str, Any] | BaseException]:
        """
        What each said, or why it did not; those in this process are asked last, as they take our time.
        """
        found: dict[int, dict[str, Any] | BaseException] = {}
        remote = [index for index, each in enumerate(asked) if not each.is_this_process]

        async def ask_all() -> None:
            calls = [partial(self._ask, asked[index]) for index in remote]
            found.update(zip(remote, await each_answered(calls), strict=True))

        if remote:
            try:
                wait_in_loop(self._scene.client, ask_all, within_s=self._left_s())
            except Exception as problem:  # noqa: BLE001  a closing client raises anything
                found |= {index: problem for index in remote if index not in found}
        for index, each in enumerate(asked):
            if index not in found:
                found[index] = each.ask_here(self._asked_of(each))
        return [found[index] for index in range(len(asked))]

    async def _ask(self, respondent: Respondent) -> dict[str, Any]:
        within_s = min(_ANSWER_S, 0.9 * self._left_s())
        return await respondent.ask(self._scene.client, self._asked_of(respondent), within_s=within_s)

    def _asked_of(self, respondent: Respondent) -> dict[str, Any]:
        """
        The argument of the probes, see ``probes``.
        """
        ahead_s = respondent.place.clock_ahead_s or 0.0
        times = [each.when for each in respondent.subjects]
        known = [when for when in times if when is not None]
        since_s = time.time() + ahead_s - min(known) + _BEFORE_S if len(known) == len(times) else _LOOK_BACK_S
        return {
            "since_s": max(_BEFORE_S, since_s),
            "budget_s": max(0.1, min(1.0, 0.3 * self._left_s())),
            "pids": [each.pid for each in respondent.subjects if each.pid is not None],
            "addresses": [
                each.whose.nanny for each in respondent.subjects if each.whose.nanny and not each.own
            ],
            "nannies": [each.whose.nanny for each in respondent.subjects if each.own],
        }

    def _kernel_logs(
        self, asked: Sequence[Respondent], answers: Sequence[Any], left: Sequence[Victim]
    ) -> Iterator[Evidence]:
        """
        Whether what the kernel does not say may count: if all kernel logs were read wholly.
        """
        pairs = [
            (each, answer)
            for each, answer in zip(asked, answers, strict=True)
            if isinstance(answer, dict) and each.of_the_dead
        ]
        gaps = [found for each, answer in pairs if (found := kernel_gap(answer, each)) is not None]
        yield from gaps
        sure = bool(pairs) and len(pairs) == len(asked) and all(each.same_machine for each in asked)
        if sure and not left and not gaps and not any(is_doubtful(answer, each) for each, answer in pairs):
            for each in asked:
                for subject in each.subjects:
                    yield Looked(place="kernel log", whose=subject.whose)

    def _gaps(
        self, asked: Sequence[Respondent], answers: Sequence[Any], left: Sequence[Victim]
    ) -> Iterator[Gap]:
        if self._problem is not None:
            yield self._problem
        for each, answer in zip(asked, answers, strict=True):
            if isinstance(answer, BaseException):
                yield machine_gap(each.title, answer)
            elif not each.same_machine:
                yield unsure_gap(each.title)
        for host in dict.fromkeys(str(each.whose.host or each.whose.worker) for each in left):
            yield machine_gap(
                host, ConnectionError("no nanny or scheduler that could tell of it is left there")
            )

    def _left_s(self) -> float:
        return max(0.05, self._deadline - time.monotonic())
