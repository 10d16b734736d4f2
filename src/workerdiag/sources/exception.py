"""Reads the exception that the caller caught and those linked to it: class, text, task, worker and traceback.

Classes are recognised by name, not by import: the exception may be of any release of distributed.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from types import SimpleNamespace

from workerdiag.errors import describe_error, error_text, utf8_safe
from workerdiag.guard import guarded
from workerdiag.model.dask import KILLED_WORKER, KILLED_WORKER_OLD, LOST_ACTOR
from workerdiag.model.evidence import Evidence, ExceptionFacts, Gap, LogChunk
from workerdiag.model.identity import NO_IDENTITY, Identity, identity_of
from workerdiag.model.vocabulary import NOTE_START, ExceptionRelation
from workerdiag.sources import tracebacks
from workerdiag.values import evolve, frozen

MAX_EXCEPTIONS = 30
#: Of ``Exception(<bytes>)``, for one that the client cannot load (``clean_exception``, core.py, until 2026.8.0).
_MAX_PICKLE_BYTES = 2**20
#: Maximum bytes of all texts and tracebacks together, and characters of one text.
_CHUNK_BYTES, TEXT_CHARS = 64 * 1024, 16 * 1024
#: At most this many members of a group are read, and keys of tasks.
MAX_MEMBERS, _MAX_KEYS = 30, 100
#: Stands for the arguments that a KilledWorker of another release lacks.
_NO_ARGS = (None, None, None)
#: Exceptions that a bug in the program raises.
_OF_PROGRAMS = (LookupError, ValueError, TypeError, AttributeError, NameError, ArithmeticError)


@frozen(kw_only=True)
class ExceptionLink:
    """An exception and its relation to the caught one."""

    relation: ExceptionRelation
    exc: BaseException
    #: Whether the exception that links to it was raised in a task.
    carried: bool = False


def exception_facts(exc: BaseException) -> list[Evidence]:
    """Return the exception and all linked ones as evidence. Of one that cannot be read only its class is known.

    Returns:
        An `ExceptionFacts` for *exc* (first) and for every cause, unsuppressed context and member of a
        group, at most 30; then gaps; then one `LogChunk` (origin ``exception``) of their texts and
        tracebacks, at most 64 KiB, the caught one last, as Python prints them.
    """
    facts: list[ExceptionFacts] = []
    gaps: list[Gap] = []
    texts: list[str] = []
    seen = {id(exc)}
    waiting = deque([ExceptionLink(relation="raised", exc=exc)])
    while waiting and len(facts) < MAX_EXCEPTIONS:
        link = waiting.popleft()
        found = ExceptionFacts(type=tracebacks.type_name(link.exc), text="", relation=link.relation)
        with guarded("reading an exception") as reading:  # its class may be of anybody
            found = read_exception(link)
            texts.append(_format_exception(link.exc, found))
        if reading.problem is not None:
            detail = f"{found.type} could not be read: {describe_error(reading.problem)}"[:500]
            remedy = "give the text that Python prints for it as workerdiag.LogText(text)"
            gaps.append(Gap(source="exception", reason="malformed", detail=detail, remedy=remedy))
        facts.append(found)
        for further in linked_exceptions(link, from_task=link.carried or found.from_task):
            if id(further.exc) not in seen:
                seen.add(id(further.exc))
                waiting.append(further)
    chunk = _texts_chunk(texts)
    return [*facts, *gaps, *([chunk] if chunk.data else [])]


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


def read_exception(link: ExceptionLink) -> ExceptionFacts:
    """Read one exception; runs code of its class."""
    from_task = link.carried or tracebacks.raised_in_task(link.exc)
    facts = _make_facts(link.relation, link.exc, from_task=from_task)
    facts = evolve(facts, maybe_dask=_may_be_of_dask(link.exc, facts))
    if from_task:
        raised_at, source = tracebacks.task_line(link.exc.__traceback__)
        return evolve(facts, raised_at=raised_at, source=source)
    if link.relation == "raised" and tracebacks.raised_by_caller(link.exc, facts.text):
        raised_at, source = tracebacks.caller_line(link.exc.__traceback__)
        return evolve(facts, in_caller=True, maybe_dask=False, raised_at=raised_at, source=source)
    return facts


def linked_exceptions(link: ExceptionLink, *, from_task: bool) -> Iterator[ExceptionLink]:
    """Yield the cause, or else the context, and the members of a group."""
    if (cause := link.exc.__cause__) is not None:
        yield ExceptionLink(relation="cause", exc=cause, carried=from_task)
    elif (context := tracebacks.context_of(link.exc)) is not None:
        yield ExceptionLink(relation="context", exc=context)
    for member in _members(link.exc):
        yield ExceptionLink(relation="member", exc=member, carried=from_task)


def _members(exc: BaseException) -> Iterator[BaseException]:
    if "distributed" in tracebacks.packages_of(exc):  # FuturesCancelledError, 2024.7.0+
        groups = getattr(exc, "error_groups", None) or ()
        return islice(chain.from_iterable(each.errors for each in groups), MAX_MEMBERS)
    return islice(tracebacks.members_of(exc), MAX_MEMBERS)


def _format_exception(exc: BaseException, facts: ExceptionFacts) -> str:
    frames = tracebacks.printed_frames(exc.__traceback__)
    head = f"Traceback (most recent call last):\n{frames}" if frames else ""
    texts = (note for note in getattr(exc, "__notes__", ()) if isinstance(note, str))
    others = (note for note in texts if not note.startswith(NOTE_START))  # our own notes are not evidence
    notes_text = "".join(f"\n{note}" for note in others)
    return utf8_safe(f"{head}{facts.type}: {facts.text}{notes_text[:TEXT_CHARS]}\n")


def _make_facts(relation: ExceptionRelation, exc: BaseException, *, from_task: bool) -> ExceptionFacts:
    is_pickled = type(exc) is Exception and len(exc.args) == 1 and isinstance(exc.args[0], bytes | bytearray)
    if is_pickled and (values := _values_in_pickle(bytes(exc.args[0][:_MAX_PICKLE_BYTES]))):
        return _pickled_facts(relation, values)
    kind, text = tracebacks.type_name(exc), error_text(exc)[:TEXT_CHARS]
    if any(each.__name__ == "KilledWorker" for each in type(exc).__mro__):
        # By its attributes (since 1.x; ``allowed_failures`` since 2022.9.2), or its arguments or text.
        names = ("task", "last_worker", "allowed_failures")
        given = [getattr(exc, name, each) for name, each in zip(names, (*exc.args, *_NO_ARGS), strict=False)]
        return _killed_worker_facts(relation, kind, text, given)
    task: object = None
    identity = NO_IDENTITY
    if text.startswith(LOST_ACTOR) and (actor := tracebacks.called_actor(exc.__traceback__)):
        task, identity = actor[0], identity_of(worker=actor[1])
    if not tracebacks.packages_of(exc).isdisjoint(("distributed", "dask")):
        task = getattr(exc, "key", None) or getattr(exc, "task", None)
    return ExceptionFacts(
        type=kind, text=text, relation=relation, from_task=from_task, task=_task_key(task), identity=identity
    )


def _killed_worker_facts(
    relation: ExceptionRelation, kind: str, text: str, given: Sequence[object]
) -> ExceptionFacts:
    """Read a KilledWorker by its task, last worker (a WorkerState) and allowed failures."""
    key, last, allowed = given
    task, identity = _task_key(key), _worker_identity(last)
    if identity.worker is None and (found := KILLED_WORKER.match(text) or KILLED_WORKER_OLD.match(text)):
        identity = identity_of(worker=found["worker"])
        task = found["task"]
    executing, when = getattr(last, "executing", None), getattr(last, "last_seen", None)
    tasks = islice(executing if isinstance(executing, dict) else (), _MAX_KEYS)
    return ExceptionFacts(
        type=kind,
        text=text,
        relation=relation,
        task=task,
        allowed_failures=allowed if isinstance(allowed, int) else None,
        identity=identity,
        # As of the last heartbeat: empty may also mean no heartbeat since the task began.
        executing=tuple(filter(None, (_task_key(getattr(each, "key", each)) for each in tasks))) or None,
        threads=_positive_int_or_none(getattr(last, "nthreads", None)),
        limit_bytes=_positive_int_or_none(getattr(last, "memory_limit", None)),
        when=when if isinstance(when, float) else None,  # WorkerState.clean() sets it at the removal
    )


def _values_in_pickle(data: bytes) -> list[str | float | None]:
    """The texts and numbers in a pickle, in order, None for others, as far as it is whole; nothing of it is run."""
    from pickletools import genops  # slow to import

    found: list[str | float | None] = []
    with suppress(Exception):  # of any bytes
        for code, value, _ in islice(genops(data), 10_000):
            if code.name in ("GLOBAL", "INST"):
                found += str(value).split(" ")
            elif "GET" in code.name or code.name == "NONE":
                found.append(None)
            elif isinstance(value, str | float | int) and not re.search("PUT|PROTO|FRAME", code.name):
                found.append(value)
    return [each for each in found if not str(each).startswith(("tblib", "unpickle_exception"))]


def _pickled_facts(relation: ExceptionRelation, values: Sequence[str | float | None]) -> ExceptionFacts:
    known = [each for each in values if each is not None]
    kind = utf8_safe(".".join(map(str, known[:2])))[:200]
    if not kind.endswith(".KilledWorker"):
        text = utf8_safe("; ".join(map(str, known[2:20])))[:TEXT_CHARS]
        return ExceptionFacts(type=kind, text=text, relation=relation, from_task=True)
    behind = {str(name): values[at + 1 : at + 4] for at, name in reversed(list(enumerate(values)))}  # the first one
    arguments = known[known.index("args") + 1 if "args" in known else 2 :]
    until = arguments.index("WorkerState") if "WorkerState" in arguments else 1
    key = tuple(each for each in arguments[:until] if each != "distributed.scheduler")
    state: dict[str, object] = {name: next(iter(some), None) for name, some in behind.items()}
    running = [*behind.get("executing", ()), None, None]
    state["executing"] = {running[0]: running[1]} if isinstance(running[1], float) else None
    given = (key[0] if len(key) == 1 else key, SimpleNamespace(**state), *behind.get("host", ())[1:2], None)[:3]
    facts = _killed_worker_facts(relation, kind, "", given)
    text = f"The last worker that attempt to run task {facts.task} was {facts.identity.worker}. (From a pickle.)"
    return evolve(facts, text=text)


def _worker_identity(worker: object) -> Identity:
    if isinstance(worker, str):  # as a plugin or a pickled copy may have it
        return identity_of(worker=worker) if "://" in worker else NO_IDENTITY
    own = {name: getattr(worker, name, None) for name in ("pid", "nanny", "name")}
    return identity_of(worker=getattr(worker, "address", None), **own)


def _may_be_of_dask(exc: BaseException, facts: ExceptionFacts) -> bool:
    """Whether an exception may be about a lost worker, by its class, a worker it names, or where it was raised.

    A future cancelled for lost workers says so (``FutureCancelledError``, 2024.7.0 to 2026.8.0).
    """
    if getattr(exc, "reason", None) == "unknown" and facts.type.endswith(".FutureCancelledError"):
        return False
    return (
        facts.type.startswith("distributed.")
        or "distributed" in tracebacks.packages_of(exc)
        or "://" in facts.text
        or tracebacks.passed_dask(exc.__traceback__, from_task=facts.from_task)
        or not isinstance(exc, Exception if facts.from_task else _OF_PROGRAMS)
    )


def _task_key(task: object) -> str | None:
    """Return a key as Dask writes it in logs and events: text, or the repr of a tuple."""
    if task is None or not isinstance(task, str | bytes | int | float | tuple):
        return None
    return utf8_safe(str(task))[:1000]


def _positive_int_or_none(number: object) -> int | None:
    return number if isinstance(number, int) and number > 0 else None
