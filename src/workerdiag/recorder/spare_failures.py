"""Opt-in: requested stops of workers do not count towards ``allowed-failures`` (docs/fair-blame.md)."""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from attrs import define, field
from distributed.diagnostics.plugin import SchedulerPlugin

from workerdiag.model.dask import Reply, Scheduler, TaskState
from workerdiag.model.stop_reasons import UNRESPONSIVE, is_stop_request_beyond_tasks
from workerdiag.recorder import internals
from workerdiag.wire import DEATH_TOPIC
from workerdiag.wire.messages import DeathReport, Message, PlatformNotice, decode_message

logger = logging.getLogger("distributed.scheduler.recorder")

#: Facts about a removal that arrive later than this change nothing any more.
LATE_REPORT_S = 300.0
MAX_REMOVALS = 1000
#: Fields of a report that are long, and say nothing of a stop.
_LONG_FIELDS = ("box", "running_tasks", "stderr")


@define(eq=False)
class _CountedLoss:
    """An unexpected removal: the tasks that Dask counted it against."""

    worker: str
    pid: int | None
    when: float
    #: References that end with the task, so that a new one of the same key is never spared for it.
    tasks: tuple[weakref.ref[TaskState], ...]
    #: Whether it was removed for not answering, which is the work's doing as a rule.
    unresponsive: bool
    spared: bool = field(default=False)


class SparePlatformDeaths(SchedulerPlugin):
    """Takes back what Dask counts against tasks whose worker was asked to stop or was taken away.

    ::

        client.register_plugin(SparePlatformDeaths())
    """

    name = "workerdiag-spare-platform-deaths"
    idempotent = True
    transition = "".format  # type: ignore[assignment]  # as in `RecorderScheduler`

    def __init__(self) -> None:
        self._scheduler: Any = None
        self._pids: dict[str, int | None] = {}
        self._stop_reasons: dict[str, str] = {}
        self._losses: list[_CountedLoss] = []
        self._has_failed = False

    async def start(self, scheduler: Any) -> None:
        """Begin, with the current workers."""
        self._scheduler = scheduler
        for address in list(scheduler.workers):
            self.add_worker(scheduler, address)

    async def close(self) -> None:
        """End; what was taken back stays so."""
        self._losses.clear()
        self._stop_reasons.clear()
        self._pids.clear()

    def add_worker(self, scheduler: Any, worker: str) -> None:
        """Remember its process id, by which nannies know it."""
        self._stop_reasons.pop(worker, None)
        self._pids[worker] = getattr(scheduler.workers.get(worker), "pid", None) or None

    def log_event(self, topic: str, msg: object) -> None:
        """Look for removals, and for facts about them, before or after."""
        if not isinstance(msg, Mapping):
            return
        try:
            if topic == "all" and msg.get("action") == "remove-worker":
                self._on_removal(msg)
            elif topic == DEATH_TOPIC:
                short = {name: value for name, value in msg.items() if name not in _LONG_FIELDS}
                self._on_message(decode_message(short))
            elif topic in self._pids and msg.get("action") == "closing-worker":
                reason = str(msg.get("reason"))
                if is_stop_request_beyond_tasks(reason):
                    self._stop_reasons[topic] = reason
        except Exception:  # a count that stays does no harm
            if not self._has_failed:
                self._has_failed = True
                logger.warning("Losses of workers may not be spared", exc_info=True)

    def remove_worker(self, scheduler: object, worker: str, **_: object) -> None:  # noqa: ARG002  as of any plugin
        """Spare the loss at once if the worker itself had announced it."""
        self._pids.pop(worker, None)
        reason = self._stop_reasons.pop(worker, None)
        if reason is not None:
            self._spare((each for each in self._losses if each.worker == worker), reason)

    def _on_removal(self, msg: Reply) -> None:
        if msg.get("expected"):
            return  # Dask counts nothing then
        worker = str(msg.get("worker"))
        now = time.time()
        tasks = _counted_tasks(self._scheduler, msg.get("processing-tasks") or ())
        self._losses = [each for each in self._losses if each.when >= now - LATE_REPORT_S]
        unresponsive = str(msg.get("stimulus_id")).startswith(UNRESPONSIVE)
        self._losses.append(_CountedLoss(worker, self._pids.get(worker), now, tasks, unresponsive))
        del self._losses[:-MAX_REMOVALS]

    def _on_message(self, message: Message | None) -> None:
        why = reason_to_spare(message)
        if why is None or not isinstance(message, DeathReport | PlatformNotice):
            return
        now = time.time()
        worker, pid = message.worker_address, message.pid
        host = message.address_host if isinstance(message, PlatformNotice) else message.hostname
        if worker in self._pids:
            self._stop_reasons[worker] = why  # reported before the scheduler noticed
            return
        self._spare(
            (
                each
                for each in self._losses
                if each.when >= now - LATE_REPORT_S
                and (each.worker == worker if worker else (host and f"//{host}:" in each.worker))
                and (pid is None or each.pid is None or each.pid == pid)
            ),
            why,
        )

    def _spare(self, removals: Iterable[_CountedLoss], why: str) -> None:
        for each in removals:
            if each.spared or each.unresponsive:
                continue
            each.spared = True
            uncounted = sum(internals.uncount_failure(task) for ref in each.tasks if (task := ref()) is not None)
            logger.info(
                "The loss of worker %s (%s) does not count against its %d tasks", each.worker, why, uncounted
            )


def reason_to_spare(message: Message | None) -> str | None:
    """Why a loss was not the work's doing, where a message says so as a fact; None if it does not.

    Facts are: somebody asked the nanny to close, or to stop its worker, and not for memory;
    somebody who watches the platform says that it took the worker or its host.
    """
    if isinstance(message, PlatformNotice):
        return message.cause[:100]
    if isinstance(message, DeathReport) and message.was_asked_to_stop:
        return f"its nanny had been asked to stop it ({message.nanny_status})"
    return None


def _counted_tasks(scheduler: Scheduler, keys: Collection[object]) -> tuple[weakref.ref[TaskState], ...]:
    """The tasks that the removal was counted against and that Dask has not given up on."""
    allowed = internals.allowed_failures(scheduler)
    found = (scheduler.tasks.get(key) for key in keys)
    return tuple(
        weakref.ref(task)
        for task in found
        if task is not None and (allowed is None or internals.suspicious_count(task) <= allowed)
    )
