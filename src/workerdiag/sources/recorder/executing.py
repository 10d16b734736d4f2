"""
Which tasks a dead worker really ran, by its black box, or else by its last heartbeat.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from workerdiag.model.evidence import Executing, Identity
from workerdiag.sources.recorder.selection import Death

_MOST_KEYS = 500
#: With these words a worker or the reader of its box says that it may lack running tasks
#: (`workerdiag.recorder.worker.worker_recording`, `workerdiag.recorder.box.reader`).
_NOT_WHOLE = ("running tasks", "watch tasks", "tasks on some threads", "slots of threads")


def executing(death: Death, whose: Identity) -> Executing | None:
    """
    The tasks that were on the worker; None where neither scheduler nor black box knows.

    A task that ran at the last heartbeat and was not finished when the worker was lost still ran then. What
    else was assigned may have begun since, unless all threads had a task already.
    """
    record, told = death.record, death.told
    assigned = [str(each) for each in _list(record.get("assigned"))][:_MOST_KEYS]
    boxed = [each for each in _list(told.get("executing")) if isinstance(each, Mapping) and each.get("key")]
    exact = "executing" in told and _is_whole(told.get("box"))
    if not record and not exact:
        return None
    heard = [each for each in _list(record.get("executing")) if isinstance(each, Mapping) and each.get("key")]
    known = [*assigned, *(str(each["key"]) for each in heard)]
    tasks = [_whole(each, known) for each in boxed] if exact else [str(each["key"]) for each in heard]
    moment = _moment(told, boxed) if exact else None
    return Executing(
        whose=whose,
        tasks=tuple(tasks),
        threads=tuple(str(each.get("thread") or "")[:100] for each in boxed) if exact else ("",) * len(tasks),
        seconds=tuple(_since(each, moment) for each in boxed)
        if exact
        else tuple(_now(each, record) for each in heard),
        crashed=tuple(_truth(each.get("crashed")) for each in boxed) if exact else (None,) * len(tasks),
        exact=exact,
        maybe_more=not exact and not _all_threads_taken(record, tasks),
        assigned=tuple(dict.fromkeys([*tasks, *assigned])),
        assigned_count=_count(record.get("assigned_count")),
        counted=bool(record) and record.get("expected") is not True,
        gave_up=tuple(
            str(each["key"])
            for each in _list(record.get("gave_up"))
            if isinstance(each, Mapping) and "key" in each
        ),
        allowed_failures=_count(record.get("allowed_failures")),
        when=death.when or None,
    )


def _is_whole(box: object) -> bool:
    """
    Whether a box, as far as there is one, has all running tasks (`workerdiag.recorder`: ``worker``, ``box``).
    """
    if not isinstance(box, Mapping):
        return True  # it was too long to be passed on; the tasks are those that it had
    identity = box.get("identity")
    missing = str(identity.get("missing", "")) if isinstance(identity, Mapping) else ""
    noted = [missing, *map(str, _list(box.get("torn")))]
    return not any(word in each for each in noted for word in _NOT_WHOLE)


def _whole(task: Mapping[str, Any], known: Collection[str]) -> str:
    """
    The key of a task; one that had no room in the box is completed where that can be only one.
    """
    key = str(task["key"])
    if not task.get("clipped"):
        return key
    begun = [each for each in dict.fromkeys(known) if each.startswith(key)]
    return begun[0] if len(begun) == 1 else key


def _moment(told: Mapping[str, Any], boxed: list[Mapping[str, Any]]) -> float | None:
    """
    When the process ended, by the clock of its own machine: that of its box and its nanny.
    """
    box = told.get("box")
    written = _number(box.get("written_at")) if isinstance(box, Mapping) else None
    noticed = _number(told.get("when")) if told.get("source") == "nanny" else None
    begun = [since for each in boxed if (since := _number(each.get("since"))) is not None]
    return max([each for each in (written, noticed) if each is not None] + begun, default=None)


def _since(task: Mapping[str, Any], moment: float | None) -> float | None:
    since = _number(task.get("since"))
    return None if since is None or moment is None else max(0.0, round(moment - since, 3))


def _now(task: Mapping[str, Any], record: Mapping[str, Any]) -> float | None:
    """
    For how long a task had run when the worker was lost: until the heartbeat, and since.
    """
    heard, seconds = record.get("heard"), _number(task.get("seconds"))
    age = _number(heard.get("age_s")) if isinstance(heard, Mapping) else None
    return None if seconds is None else round(seconds + (age or 0.0), 3)


def _all_threads_taken(record: Mapping[str, Any], tasks: list[str]) -> bool:
    seceded = {str(each) for each in _list(record.get("seceded"))}
    threads = _count(record.get("nthreads"))
    return threads is not None and len([each for each in tasks if each not in seceded]) >= threads


def _truth(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _list(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
