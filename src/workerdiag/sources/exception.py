"""Reads the exception that the caller caught and those linked to it: class, text, task, worker and traceback.

Classes are recognised by name, not by import: the exception may be of any release of distributed.
Reading one may run foreign code, so each is read in its own thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import Any

from attrs import evolve, frozen

from workerdiag.deadline import CALL_FAILURES, NO_DEADLINE, Deadline, call_in_time
from workerdiag.errors import error_text, utf8_safe
from workerdiag.guard import guarded
from workerdiag.model.dask import KILLED_WORKER, KILLED_WORKER_OLD, LOST_ACTOR
from workerdiag.model.evidence import Evidence, ExceptionFacts, Gap, LogChunk
from workerdiag.model.identity import NO_IDENTITY, Identity, identity_of
from workerdiag.model.vocabulary import NOTE_START, ExceptionRelation
from workerdiag.sources import tracebacks
from workerdiag.sources.pickled_exceptions import MAX_BYTES, PickledObject, read_pickled
from workerdiag.sources.tracebacks import passed_dask, printed_frames, raised_in_task, task_line

#: At most this many linked exceptions (causes, contexts, members of groups) are read.
MAX_EXCEPTIONS = 30
#: Maximum bytes of all texts and tracebacks together.
_CHUNK_BYTES = 64 * 1024
#: Share of the remaining time that one exception may take: those linked to it may say more.
_SHARE = 0.5
#: With less time than this, in seconds, no code of an exception's class is run.
_MIN_S = 0.005


def exception_facts(exc: BaseException, deadline: Deadline = NO_DEADLINE) -> list[Evidence]:
    """Return the exception and all linked ones as evidence. Never raises.

    Each is read in its own thread, as its class may run any code. One that is late or fails is a `Gap`, and
    only its class is known.

    Returns:
        An `ExceptionFacts` for *exc* (first) and for every cause, unsuppressed context and member of a
        group, at most 30; then gaps; then one `LogChunk` (origin ``exception``) of their texts and
        tracebacks, at most 64 KiB, the caught one last, as Python prints them.
    """
    readings: list[ExceptionReport] = []
    gaps: list[Gap] = []
    for link in _linked_exceptions(exc, readings):
        try:
            if deadline.left_s < _MIN_S:
                raise TimeoutError("no time was left for it")
            read = partial(read_exception, link)
            readings.append(call_in_time("workerdiag-exception", read, deadline.share(_SHARE)))
        except CALL_FAILURES as problem:
            gaps.append(_unreadable_gap(link.exc, problem))
            readings.append(_read_class(link))
    chunk = _texts_chunk([each.printed for each in readings if each.printed])
    return [*(each.facts for each in readings), *gaps, *([chunk] if chunk.data else [])]


def _linked_exceptions(exc: BaseException, readings: list[ExceptionReport]) -> Iterator[ExceptionLink]:
    """Yield the exception and those linked to it, nearest first, each once; the caller extends *readings*."""
    seen = {id(exc)}
    waiting = deque([ExceptionLink(relation="raised", exc=exc)])
    for _ in range(MAX_EXCEPTIONS):
        if not waiting:
            return
        yield waiting.popleft()
        for link in readings[-1].further:
            if id(link.exc) not in seen:
                seen.add(id(link.exc))
                waiting.append(link)


def _unreadable_gap(exc: BaseException, problem: Exception) -> Gap:
    return Gap(
        source="exception",
        reason="timed-out" if isinstance(problem, TimeoutError) else "malformed",
        detail=f"{tracebacks.type_name(exc)} could not be read: {error_text(problem)}"[:500],
        remedy="give the text that Python prints for it as workerdiag.LogText(text)",
    )


def _texts_chunk(texts: list[str]) -> LogChunk:
    parts: list[bytes] = []
    left = _CHUNK_BYTES
    for text in texts:  # the nearest first: they matter most
        data = text.encode("utf-8", errors="replace")[:left]
        parts.append(data)
        left -= len(data) + 1
        if left <= 0:
            break
    return LogChunk(origin="exception", data=b"\n".join(reversed(parts)), stream="client")


#: Maximum characters of one text.
TEXT_CHARS = 16 * 1024
#: At most this many members of a group are read.
MAX_MEMBERS = 30
_MAX_KEYS = 100
_MAX_NOTES = 100
#: Exceptions that a bug in the program raises.
_OF_PROGRAMS = (LookupError, ValueError, TypeError, AttributeError, NameError, ArithmeticError)


@frozen(kw_only=True)
class ExceptionLink:
    """An exception and its relation to the caught one."""

    relation: ExceptionRelation
    exc: BaseException
    #: Whether the exception that links to it was raised in a task.
    carried: bool = False


@frozen(kw_only=True)
class ExceptionReport:
    """The facts of one exception."""

    facts: ExceptionFacts
    #: As Python prints it, without linked exceptions.
    printed: str
    #: Linked exceptions, the nearest first.
    further: tuple[ExceptionLink, ...]


def read_exception(link: ExceptionLink) -> ExceptionReport:
    """Read one exception; runs code of its class."""
    from_task = link.carried or raised_in_task(link.exc)
    facts = _make_facts(link.relation, link.exc, from_task=from_task)
    facts = evolve(facts, maybe_dask=_may_be_of_dask(link.exc, facts))
    if from_task:
        raised_at, source = task_line(tracebacks.traceback_of(link.exc))
        facts = evolve(facts, raised_at=raised_at, source=source)
    elif link.relation == "raised" and tracebacks.raised_by_caller(link.exc, facts.text):
        raised_at, source = tracebacks.caller_line(tracebacks.traceback_of(link.exc))
        facts = evolve(facts, in_caller=True, maybe_dask=False, raised_at=raised_at, source=source)
    notes = _attribute_or(link.exc, "__notes__", None)
    return ExceptionReport(
        facts=facts,
        printed=_format_exception(link.exc, facts, notes if isinstance(notes, list | tuple) else ()),
        further=tuple(linked_exceptions(link, from_task=from_task, members=_members(link.exc))),
    )


def _read_class(link: ExceptionLink) -> ExceptionReport:
    """Read only the class of an exception whose code does not return."""
    facts = ExceptionFacts(type=tracebacks.type_name(link.exc), text="", relation=link.relation)
    further = tuple(linked_exceptions(link, from_task=link.carried))
    return ExceptionReport(facts=facts, printed="", further=further)


def linked_exceptions(
    link: ExceptionLink, *, from_task: bool, members: tuple[BaseException, ...] = ()
) -> Iterator[ExceptionLink]:
    """Yield the cause, or else the context, and the members of a group."""
    if (cause := tracebacks.cause_of(link.exc)) is not None:
        yield ExceptionLink(relation="cause", exc=cause, carried=from_task)
    elif (context := tracebacks.context_of(link.exc)) is not None:
        yield ExceptionLink(relation="context", exc=context)
    for member in members:
        yield ExceptionLink(relation="member", exc=member, carried=from_task)


def _members(exc: BaseException) -> tuple[BaseException, ...]:
    members: Iterable[object] = tracebacks.members_of(exc)
    for group in _first_items(_attribute_or(exc, "error_groups", ())):  # FuturesCancelledError, 2024.7.0+
        members = chain(members, _first_items(_attribute_or(group, "errors", ())))
    return tuple(islice((each for each in members if isinstance(each, BaseException)), MAX_MEMBERS))


def _first_items(values: Any) -> Iterator[object]:
    with guarded("iterating over linked exceptions"):  # a Mock, or a property of a foreign class
        yield from islice(values or (), MAX_MEMBERS)


def _format_exception(exc: BaseException, facts: ExceptionFacts, notes: list[object] | tuple[object, ...]) -> str:
    frames = printed_frames(tracebacks.traceback_of(exc))
    head = f"Traceback (most recent call last):\n{frames}" if frames else ""
    texts = (note for note in notes[:_MAX_NOTES] if isinstance(note, str))
    others = (note for note in texts if not note.startswith(NOTE_START))  # our own notes are not evidence
    notes_text = "".join(f"\n{note[:TEXT_CHARS]}" for note in others)
    return utf8_safe(f"{head}{facts.type}: {facts.text}{notes_text[:TEXT_CHARS]}\n")


def _make_facts(relation: ExceptionRelation, exc: BaseException, *, from_task: bool) -> ExceptionFacts:
    names = {name for _, name in tracebacks.classes_of(exc)}
    args = tracebacks.args_of(exc)
    if type(exc) is Exception and len(args) == 1 and isinstance(args[0], bytes | bytearray):
        pickled = read_pickled(bytes(args[0][:MAX_BYTES]))
        if pickled is not None:
            return _pickled_facts(relation, pickled)
    text = error_text(exc)[:TEXT_CHARS]
    if "KilledWorker" in names:
        return _killed_worker_facts(relation, exc, text)
    task: object = None
    identity = NO_IDENTITY
    if text.startswith(LOST_ACTOR) and (actor := tracebacks.called_actor(tracebacks.traceback_of(exc))):
        task, identity = actor[0], identity_of(worker=actor[1])
    if not tracebacks.packages_of(exc).isdisjoint(("distributed", "dask")):
        task = _attribute_or(exc, "key", None) or _attribute_or(exc, "task", None)
    return ExceptionFacts(
        type=tracebacks.type_name(exc),
        text=text,
        relation=relation,
        from_task=from_task,
        task=_task_key(task),
        identity=identity,
    )


def _killed_worker_facts(relation: ExceptionRelation, exc: BaseException, text: str) -> ExceptionFacts:
    """Read a KilledWorker by its attributes (since 1.x; ``allowed_failures`` since 2022.9.2) or its text."""
    args = (*tracebacks.args_of(exc)[:3], None, None, None)
    task = _task_key(_attribute_or(exc, "task", args[0]))
    last = _attribute_or(exc, "last_worker", args[1])
    allowed = _attribute_or(exc, "allowed_failures", args[2])
    identity = _worker_identity(last)
    if identity.worker is None and (found := KILLED_WORKER.match(text) or KILLED_WORKER_OLD.match(text)):
        identity = identity_of(worker=found["worker"])
        task = found["task"]
    executing = _attribute_or(last, "executing", None)
    when = _attribute_or(last, "last_seen", None)
    return ExceptionFacts(
        type=tracebacks.type_name(exc),
        text=text,
        relation=relation,
        task=task,
        allowed_failures=allowed if isinstance(allowed, int) else None,
        identity=identity,
        # As of the last heartbeat: empty may also mean no heartbeat since the task began.
        executing=_task_keys(executing) if isinstance(executing, dict) and executing else None,
        threads=_positive_int_or_none(_attribute_or(last, "nthreads", None)),
        limit_bytes=_positive_int_or_none(_attribute_or(last, "memory_limit", None)),
        when=when if isinstance(when, float) else None,  # WorkerState.clean() sets it at the removal
    )


def _pickled_facts(relation: ExceptionRelation, pickled: PickledObject) -> ExceptionFacts:
    if not pickled.type.endswith(".KilledWorker"):
        text = "; ".join(_safe_str(value) for value in islice(pickled.plain_values(), 20))
        return ExceptionFacts(type=pickled.type, text=text[:TEXT_CHARS], relation=relation, from_task=True)
    args: tuple[object, ...] = (*pickled.args, None, None, None)
    key, last, allowed = args[:3]
    task = _task_key(key)
    worker = last if isinstance(last, PickledObject) else PickledObject("", ())
    identity = identity_of(**{part: worker.attribute(name) for part, name in _IDENTITY_ATTRIBUTES.items()})
    text = (
        f"Attempted to run task {task} on several workers, but all those workers died while running it. "
        f"The last worker that attempt to run the task was {identity.worker}. (Read from the pickle of "
        "another release of distributed, which this client could not load.)"
    )
    executing = worker.attribute("executing")
    when = worker.attribute("last_seen")
    return ExceptionFacts(
        type=pickled.type,
        text=text,
        relation=relation,
        task=task,
        allowed_failures=allowed if isinstance(allowed, int) else None,
        identity=identity,
        executing=_task_keys(executing.state[::2]) or None if isinstance(executing, PickledObject) else None,
        threads=_positive_int_or_none(worker.attribute("nthreads")),
        limit_bytes=_positive_int_or_none(worker.attribute("memory_limit")),
        when=when if isinstance(when, float) else None,
    )


#: Fields of an `Identity`, and the attributes of the scheduler's WorkerState.
_IDENTITY_ATTRIBUTES = {"worker": "address", "pid": "pid", "nanny": "nanny", "name": "name"}


def _worker_identity(worker: object) -> Identity:
    if isinstance(worker, str):  # as a plugin or a pickled copy may have it
        return identity_of(worker=worker) if "://" in worker else NO_IDENTITY
    return identity_of(**{part: _attribute_or(worker, key, None) for part, key in _IDENTITY_ATTRIBUTES.items()})


def _may_be_of_dask(exc: BaseException, facts: ExceptionFacts) -> bool:
    """Whether an exception may be about a lost worker, by its class, a worker it names, or where it was raised.

    A future cancelled for lost workers says so (``FutureCancelledError``, 2024.7.0 to 2026.8.0).
    """
    if _attribute_or(exc, "reason", None) == "unknown" and facts.type.endswith(".FutureCancelledError"):
        return False
    is_of_class = facts.type.startswith("distributed.") or "distributed" in tracebacks.packages_of(exc)
    if is_of_class or "://" in facts.text:
        return True
    if passed_dask(tracebacks.traceback_of(exc), from_task=facts.from_task):
        return True
    outside = (Exception,) if facts.from_task else _OF_PROGRAMS
    return not isinstance(exc, outside)


def _attribute_or(owner: object, name: str, default: object) -> object:
    try:
        return getattr(owner, name, default)
    except BaseException:  # noqa: BLE001  properties of foreign classes run foreign code
        return default


def _task_key(task: object) -> str | None:
    """Return a key as Dask writes it in logs and events: text, or the repr of a tuple."""
    if task is None or not isinstance(task, str | bytes | int | float | tuple):
        return None
    return _safe_str(task)[:1000]


def _safe_str(value: object) -> str:
    with guarded("showing a value"):  # an integer of 5,000 digits, and what foreign classes raise
        return utf8_safe(str(value))
    return f"<a {type(value).__name__} that cannot be shown>"


def _task_keys(tasks: Iterable[object]) -> tuple[str, ...]:
    found = (_task_key(_attribute_or(task, "key", task)) for task in islice(tasks, _MAX_KEYS))
    return tuple(key for key in found if key is not None)


def _positive_int_or_none(number: object) -> int | None:
    return number if isinstance(number, int) and number > 0 else None
