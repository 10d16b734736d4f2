"""
Which tasks a dead worker really ran, by its black box, or else by its last heartbeat.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from workerdiag.model.evidence import TasksAtLoss
from workerdiag.model.identity import Identity
from workerdiag.sources.recorder.selection import RecordedDeath

_MAX_KEYS = 500
#: With these words a worker or the reader of its box says that it may lack running tasks
#: (`workerdiag.recorder.worker.worker_recording`, `workerdiag.recorder.box.reader`).
_INCOMPLETE_NOTES = ("running tasks", "watch tasks", "tasks on some threads", "slots of threads")


def executing_evidence(death: RecordedDeath, identity: Identity) -> TasksAtLoss | None:
    """
    The tasks that were on the worker; None where neither scheduler nor black box knows.

    A task that ran at the last heartbeat and was not finished when the worker was lost still ran then. What
    else was assigned may have begun since, unless all threads had a task already.
    """
    record, report = death.record, death.report
    assigned = [str(each) for each in _list_or_empty(record.get("assigned"))][:_MAX_KEYS]
    from_box = [
        each
        for each in _list_or_empty(report.get("executing"))
        if isinstance(each, Mapping) and each.get("key")
    ]
    exact = "executing" in report and _is_complete(report.get("box"))
    if not record and not exact:
        return None
    from_heartbeat = [
        each
        for each in _list_or_empty(record.get("executing"))
        if isinstance(each, Mapping) and each.get("key")
    ]
    known = [*assigned, *(str(each["key"]) for each in from_heartbeat)]
    tasks = (
        [_full_key(each, known) for each in from_box]
        if exact
        else [str(each["key"]) for each in from_heartbeat]
    )
    moment = _end_time(report, from_box) if exact else None
    return TasksAtLoss(
        identity=identity,
        tasks=tuple(tasks),
        threads=tuple(str(each.get("thread") or "")[:100] for each in from_box)
        if exact
        else ("",) * len(tasks),
        seconds=tuple(_running_s(each, moment) for each in from_box)
        if exact
        else tuple(_running_s_by_heartbeat(each, record) for each in from_heartbeat),
        crashed=tuple(_bool_or_none(each.get("crashed")) for each in from_box)
        if exact
        else (None,) * len(tasks),
        exact=exact,
        maybe_more=not exact and not _are_all_threads_busy(record, tasks),
        assigned=tuple(dict.fromkeys([*tasks, *assigned])),
        counted=bool(record) and record.get("expected") is not True,
        gave_up=tuple(
            str(each["key"])
            for each in _list_or_empty(record.get("gave_up"))
            if isinstance(each, Mapping) and "key" in each
        ),
        allowed_failures=_count_or_none(record.get("allowed_failures")),
        when=death.when or None,
    )


def _is_complete(box: object) -> bool:
    """
    Whether a box, as far as there is one, has all running tasks (`workerdiag.recorder`: ``worker``, ``box``).
    """
    if not isinstance(box, Mapping):
        return True  # it was too long to be passed on; the tasks are those that it had
    identity = box.get("identity")
    missing = str(identity.get("missing", "")) if isinstance(identity, Mapping) else ""
    noted = [missing, *map(str, _list_or_empty(box.get("torn")))]
    return not any(word in each for each in noted for word in _INCOMPLETE_NOTES)


def _full_key(task: Mapping[str, Any], known: Collection[str]) -> str:
    """
    The key of a task; one that had no room in the box is completed where that can be only one.
    """
    key = str(task["key"])
    if not task.get("clipped"):
        return key
    begun = [each for each in dict.fromkeys(known) if each.startswith(key)]
    return begun[0] if len(begun) == 1 else key


def _end_time(report: Mapping[str, Any], boxed: list[Mapping[str, Any]]) -> float | None:
    """
    When the process ended, by the clock of its own machine: that of its box and its nanny.
    """
    box = report.get("box")
    written = _float_or_none(box.get("written_at")) if isinstance(box, Mapping) else None
    noticed_at = _float_or_none(report.get("when")) if report.get("source") == "nanny" else None
    begun = [since for each in boxed if (since := _float_or_none(each.get("since"))) is not None]
    return max([each for each in (written, noticed_at) if each is not None] + begun, default=None)


def _running_s(task: Mapping[str, Any], moment: float | None) -> float | None:
    since = _float_or_none(task.get("since"))
    return None if since is None or moment is None else max(0.0, round(moment - since, 3))


def _running_s_by_heartbeat(task: Mapping[str, Any], record: Mapping[str, Any]) -> float | None:
    """
    For how long a task had run when the worker was lost: until the heartbeat, and since.
    """
    heartbeat, seconds = record.get("heard"), _float_or_none(task.get("seconds"))
    age = _float_or_none(heartbeat.get("age_s")) if isinstance(heartbeat, Mapping) else None
    return None if seconds is None else round(seconds + (age or 0.0), 3)


def _are_all_threads_busy(record: Mapping[str, Any], tasks: list[str]) -> bool:
    seceded = {str(each) for each in _list_or_empty(record.get("seceded"))}
    threads = _count_or_none(record.get("nthreads"))
    return threads is not None and len([each for each in tasks if each not in seceded]) >= threads


def _bool_or_none(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _list_or_empty(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _float_or_none(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _count_or_none(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
