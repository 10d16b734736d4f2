"""
What the exception that the caller caught says: types, texts, tasks and workers, and its traceback as text.

Classes are known by their names, not by import: what was raised may be of any release of distributed.
"""

from __future__ import annotations

import re
import traceback
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

from workerdiag.model.evidence import NOBODY, Evidence, ExceptionFacts, Gap, Identity, LogChunk
from workerdiag.sources.addresses import identity_of
from workerdiag.sources.exception.pickled import PickledException, read_pickled
from workerdiag.sources.exception.tracebacks import raised_in_task

#: Of what hangs on one exception (causes, contexts, members of groups), so many are told of.
MOST_EXCEPTIONS = 30
#: Of one text, so many characters; of all the text and tracebacks together, so many bytes.
_TEXT_CHARS = 16 * 1024
_CHUNK_BYTES = 64 * 1024
#: Of one traceback, the innermost frames.
_MOST_FRAMES = 40
_MOST_KEYS = 100

#: How KilledWorker words itself: since 2022.9.2, and before (as a tuple).
_KILLED = re.compile(
    r"Attempted to run task '?(?P<task>.+?)'? on \d+ different workers[\s\S]*?"
    r"last worker that attempt(?:ed)? to run the task was (?P<worker>\w+://[^\s,]+?)\.?(?:\s|$)"
)
_KILLED_OLD = re.compile(r"\('?(?P<task>.+?)'?, <Worker(?:State)? '?(?P<worker>\w+://[^',\s>]+)")


def exception_facts(exc: BaseException) -> list[Evidence]:
    """
    The exception, and all that is reached from it, as evidence. Never raises.

    Returns:
        An `ExceptionFacts` for *exc* (first), and for every cause, context that is not suppressed and
        member of a group, up to 30; then one `LogChunk` (origin ``exception``) of their texts and
        tracebacks, at most 64 KiB, the caught one last, as Python prints them.
    """
    facts: list[ExceptionFacts] = []
    texts: list[str] = []
    try:
        for relation, each, from_task in _related(exc):
            said = _facts(relation, each, from_task=from_task)
            facts.append(said)
            texts.append(_printed(each, said))
    except Exception as problem:  # noqa: BLE001  hostile exceptions exist; what was understood is kept
        gap = Gap(
            source="exception",
            reason="malformed",
            detail=f"{type(exc).__name__} could not be read: {type(problem).__name__}",
            remedy="give the text that Python prints for it as workerdiag.LogText(text)",
        )
        return [*(facts or [ExceptionFacts(type=_type_name(exc), text="")]), gap]
    return [*facts, _chunk(texts)]


def _related(exc: BaseException) -> Iterator[tuple[str, BaseException, bool]]:
    """
    The exception and what hangs on it, nearest first, each once, with whether a task raised it.
    """
    seen = {id(exc)}
    waiting = deque([("raised", exc, False)])
    for _ in range(MOST_EXCEPTIONS):
        if not waiting:
            return
        relation, each, carried = waiting.popleft()
        from_task = carried or raised_in_task(each)
        yield relation, each, from_task
        for further, other in _next(each):
            if id(other) not in seen:
                seen.add(id(other))
                waiting.append((further, other, from_task and further != "context"))


def _next(exc: BaseException) -> Iterator[tuple[str, BaseException]]:
    if exc.__cause__ is not None:
        yield "cause", exc.__cause__
    elif exc.__context__ is not None and not exc.__suppress_context__:
        yield "context", exc.__context__
    members: Iterable[Any] = exc.exceptions if isinstance(exc, BaseExceptionGroup) else ()
    for group in _attribute(exc, "error_groups", ()) or ():  # FuturesCancelledError, 2024.7.0+
        members = chain(members, _attribute(group, "errors", ()))
    for member in islice(members, MOST_EXCEPTIONS):
        if isinstance(member, BaseException):
            yield "member", member


def _facts(relation: str, exc: BaseException, *, from_task: bool) -> ExceptionFacts:
    names = {cls.__name__ for cls in type(exc).__mro__}
    pickled = _pickled(exc)
    if pickled is not None:
        return _facts_of_pickled(relation, pickled)
    text = _text(exc)
    if "KilledWorker" in names:
        return _facts_of_killed(relation, exc, text)
    task = _attribute(exc, "key", None) or _attribute(exc, "task", None) if _is_of_dask(exc) else None
    return ExceptionFacts(
        type=_type_name(exc), text=text, relation=relation, from_task=from_task, task=_key(task)
    )


def _facts_of_killed(relation: str, exc: BaseException, text: str) -> ExceptionFacts:
    """
    KilledWorker: attributes since 1.x, ``allowed_failures`` since 2022.9.2; else by its text.
    """
    args = (*exc.args, None, None, None)
    task = _key(_attribute(exc, "task", args[0]))
    last = _attribute(exc, "last_worker", args[1])
    allowed = _attribute(exc, "allowed_failures", args[2])
    whose = _identity(last)
    if whose.worker is None and (found := _KILLED.search(text) or _KILLED_OLD.search(text)):
        whose = identity_of(worker=found["worker"])
        task = found["task"]
    executing = _attribute(last, "executing", None)
    when = _attribute(last, "last_seen", None)
    return ExceptionFacts(
        type=_type_name(exc),
        text=text,
        relation=relation,
        task=task,
        allowed_failures=allowed if isinstance(allowed, int) else None,
        whose=whose,
        # As of the last heartbeat: nothing may also mean that none came since the task began.
        executing=_keys(executing) if isinstance(executing, dict) and executing else None,
        threads=_positive(_attribute(last, "nthreads", None)),
        limit_bytes=_positive(_attribute(last, "memory_limit", None)),
        when=when if isinstance(when, float) else None,  # WorkerState.clean() sets it at the removal
    )


def _facts_of_pickled(relation: str, pickled: PickledException) -> ExceptionFacts:
    if not pickled.type.endswith(".KilledWorker"):
        text = "; ".join(str(value) for value in pickled.values[:20])
        return ExceptionFacts(type=pickled.type, text=text[:_TEXT_CHARS], relation=relation, from_task=True)
    said = pickled.attributes
    task = _key(pickled.values[0] if pickled.values else None)
    allowed = pickled.values[-1] if pickled.values else None  # args are (task, last_worker, allowed_failures)
    whose = identity_of(**{part: said.get(key) for part, key in _IDENTITY.items()})
    text = (
        f"Attempted to run task {task!r} on several workers, but all those workers died while running it. "
        f"The last worker that attempt to run the task was {whose.worker}. (Read from the pickle of "
        "another release of distributed, which this client could not load.)"
    )
    when = said.get("last_seen")
    return ExceptionFacts(
        type=pickled.type,
        text=text,
        relation=relation,
        task=task,
        allowed_failures=allowed if isinstance(allowed, int) else None,
        whose=whose,
        limit_bytes=_positive(said.get("memory_limit")),
        when=when if isinstance(when, float) else None,
    )


#: Parts of an `Identity`, and what the scheduler's WorkerState calls them.
_IDENTITY = {"worker": "address", "pid": "pid", "nanny": "nanny", "name": "name"}


def _identity(worker: object) -> Identity:
    if isinstance(worker, str):  # as a plugin or a pickled copy may have it
        return identity_of(worker=worker) if "://" in worker else NOBODY
    return identity_of(**{part: _attribute(worker, key, None) for part, key in _IDENTITY.items()})


def _pickled(exc: BaseException) -> PickledException | None:
    if type(exc) is not Exception or len(exc.args) != 1 or not isinstance(exc.args[0], bytes | bytearray):
        return None
    return read_pickled(bytes(exc.args[0]))


def _is_of_dask(exc: BaseException) -> bool:
    return any(cls.__module__.partition(".")[0] in ("distributed", "dask") for cls in type(exc).__mro__)


def _printed(exc: BaseException, facts: ExceptionFacts) -> str:
    """
    The exception as Python prints it, without what hangs on it.
    """
    try:
        frames = "".join(traceback.format_tb(exc.__traceback__, limit=-_MOST_FRAMES))
    except Exception:  # noqa: BLE001  frames that were rebuilt may lack anything
        frames = ""
    head = f"Traceback (most recent call last):\n{frames}" if frames else ""
    notes = "".join(f"\n{note}" for note in _attribute(exc, "__notes__", ()) or () if isinstance(note, str))
    return f"{head}{facts.type}: {facts.text}{notes[:_TEXT_CHARS]}\n"


def _chunk(texts: list[str]) -> LogChunk:
    kept: list[bytes] = []
    left = _CHUNK_BYTES
    for text in texts:  # the nearest matter most
        data = text.encode("utf-8", errors="replace")[:left]
        kept.append(data)
        left -= len(data) + 1
        if left <= 0:
            break
    return LogChunk(origin="exception", data=b"\n".join(reversed(kept)), stream="client")


def _text(exc: BaseException) -> str:
    """
    ``str(exc)``, clipped; says so if that fails.
    """
    try:
        return str.__getitem__(str(exc), slice(_TEXT_CHARS))
    except (Exception, SystemExit) as problem:  # noqa: BLE001  classes of users run what they like
        return f"<str() of it raised {type(problem).__name__}>"


def _type_name(exc: BaseException) -> str:
    cls = type(exc)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _attribute(owner: object, name: str, default: Any) -> Any:
    try:
        return getattr(owner, name, default)
    except (Exception, SystemExit):  # noqa: BLE001  properties of foreign classes run foreign code
        return default


def _key(task: object) -> str | None:
    """
    A key as Dask writes it in logs and events: text, or the repr of a tuple.
    """
    if task is None or not isinstance(task, str | bytes | int | float | tuple):
        return None
    return str(task)[:1000]


def _keys(tasks: dict[Any, Any]) -> tuple[str, ...]:
    found = (_key(_attribute(task, "key", task)) for task in list(tasks)[:_MOST_KEYS])
    return tuple(key for key in found if key is not None)


def _positive(number: object) -> int | None:
    return number if isinstance(number, int) and number > 0 else None
