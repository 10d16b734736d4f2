"""
What one exception says of itself: its class and text, and whom and which task it names.

Classes are known by their names, not by import: what was raised may be of any release of distributed.
Everything here may run foreign code, so it is called in a thread of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

from attrs import frozen

from workerdiag.errors import clean, said_by
from workerdiag.model.evidence import NOBODY, ExceptionFacts, Identity
from workerdiag.sources.addresses import identity_of
from workerdiag.sources.exception import slots
from workerdiag.sources.exception.frames import printed_frames
from workerdiag.sources.exception.pickled import MOST_BYTES, PickledException, read_pickled
from workerdiag.sources.exception.tracebacks import raised_in_task

#: Of one text, so many characters.
TEXT_CHARS = 16 * 1024
#: Of what hangs on one exception (members of groups), so many are told of.
MOST_MEMBERS = 30
_MOST_KEYS = 100
_MOST_NOTES = 100

#: How KilledWorker words itself: since 2022.9.2, and before (as a tuple). Bounded, and only as its text
#: begins: any other search takes seconds for text that nearly fits, and holds the interpreter meanwhile.
_KILLED = re.compile(
    r"\s*Attempted to run task '?(?P<task>.{1,2000}?)'? on \d{1,9} different workers[\s\S]{0,300}?"
    r"last worker that attempt(?:ed)? to run the task was (?P<worker>\w{1,20}://[^\s,]{1,300}?)\.?(?:\s|$)"
)
_KILLED_OLD = re.compile(
    r"\s*\('?(?P<task>.{1,2000}?)'?, <Worker(?:State)? '?(?P<worker>\w{1,20}://[^',\s>]{1,300})"
)


@frozen(kw_only=True)
class Link:
    """
    An exception, and how it came to be looked at.
    """

    relation: str
    exc: BaseException
    #: Whether what it hangs on was raised in a task.
    carried: bool = False


@frozen(kw_only=True)
class Reading:
    """
    What one exception says.
    """

    facts: ExceptionFacts
    #: As Python prints it, without what hangs on it.
    printed: str
    #: What hangs on it, the nearest first.
    further: tuple[Link, ...]


def read(link: Link) -> Reading:
    """
    All that one exception says; runs code of its class.
    """
    from_task = link.carried or raised_in_task(link.exc)
    facts = _facts(link.relation, link.exc, from_task=from_task)
    notes = _attribute(link.exc, "__notes__", None)
    return Reading(
        facts=facts,
        printed=_printed(link.exc, facts, notes if isinstance(notes, list | tuple) else ()),
        further=tuple(further(link, from_task=from_task, members=_members(link.exc))),
    )


def read_class(link: Link) -> Reading:
    """
    What is known of an exception whose own code does not come back.
    """
    facts = ExceptionFacts(type=slots.type_name(link.exc), text="", relation=link.relation)
    return Reading(facts=facts, printed="", further=tuple(further(link, from_task=link.carried)))


def further(link: Link, *, from_task: bool, members: tuple[BaseException, ...] = ()) -> Iterator[Link]:
    """
    The cause, else the context, and the members of a group.
    """
    if (cause := slots.cause_of(link.exc)) is not None:
        yield Link(relation="cause", exc=cause, carried=from_task)
    elif (context := slots.context_of(link.exc)) is not None:
        yield Link(relation="context", exc=context)
    for member in members:
        yield Link(relation="member", exc=member, carried=from_task)


def _members(exc: BaseException) -> tuple[BaseException, ...]:
    members: Iterable[Any] = slots.members_of(exc)
    for group in _some(_attribute(exc, "error_groups", ())):  # FuturesCancelledError, 2024.7.0+
        members = chain(members, _some(_attribute(group, "errors", ())))
    return tuple(islice((each for each in members if isinstance(each, BaseException)), MOST_MEMBERS))


def _some(values: Any) -> Iterator[Any]:
    """
    The first of what can be iterated over, and may have no end.
    """
    try:
        yield from islice(values or (), MOST_MEMBERS)
    except Exception:  # noqa: BLE001  a Mock, or a property of a foreign class
        return


def _printed(exc: BaseException, facts: ExceptionFacts, notes: list[Any] | tuple[Any, ...]) -> str:
    frames = printed_frames(slots.traceback_of(exc))
    head = f"Traceback (most recent call last):\n{frames}" if frames else ""
    said = "".join(f"\n{note[:TEXT_CHARS]}" for note in notes[:_MOST_NOTES] if isinstance(note, str))
    return clean(f"{head}{facts.type}: {facts.text}{said[:TEXT_CHARS]}\n")


def _facts(relation: str, exc: BaseException, *, from_task: bool) -> ExceptionFacts:
    names = {name for _, name in slots.classes_of(exc)}
    pickled = _pickled(exc)
    if pickled is not None:
        return _facts_of_pickled(relation, pickled)
    text = _text(exc)
    if "KilledWorker" in names:
        return _facts_of_killed(relation, exc, text)
    task = _attribute(exc, "key", None) or _attribute(exc, "task", None) if _is_of_dask(exc) else None
    return ExceptionFacts(
        type=slots.type_name(exc), text=text, relation=relation, from_task=from_task, task=_key(task)
    )


def _facts_of_killed(relation: str, exc: BaseException, text: str) -> ExceptionFacts:
    """
    KilledWorker: attributes since 1.x, ``allowed_failures`` since 2022.9.2; else by its text.
    """
    args = (*slots.args_of(exc)[:3], None, None, None)
    task = _key(_attribute(exc, "task", args[0]))
    last = _attribute(exc, "last_worker", args[1])
    allowed = _attribute(exc, "allowed_failures", args[2])
    whose = _identity(last)
    if whose.worker is None and (found := _KILLED.match(text) or _KILLED_OLD.match(text)):
        whose = identity_of(worker=found["worker"])
        task = found["task"]
    executing = _attribute(last, "executing", None)
    when = _attribute(last, "last_seen", None)
    return ExceptionFacts(
        type=slots.type_name(exc),
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
        text = "; ".join(_shown(value) for value in pickled.values[:20])
        return ExceptionFacts(type=pickled.type, text=text[:TEXT_CHARS], relation=relation, from_task=True)
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
    args = slots.args_of(exc)
    if type(exc) is not Exception or len(args) != 1 or not isinstance(args[0], bytes | bytearray):
        return None
    return read_pickled(bytes(args[0][:MOST_BYTES]))


def _is_of_dask(exc: BaseException) -> bool:
    return not slots.packages_of(exc).isdisjoint(("distributed", "dask"))


def _text(exc: BaseException) -> str:
    """
    ``str(exc)``, clipped; says so if that fails.
    """
    return said_by(exc)[:TEXT_CHARS]


def _attribute(owner: object, name: str, default: Any) -> Any:
    try:
        return getattr(owner, name, default)
    except BaseException:  # noqa: BLE001  properties of foreign classes run foreign code
        return default


def _key(task: object) -> str | None:
    """
    A key as Dask writes it in logs and events: text, or the repr of a tuple.
    """
    if task is None or not isinstance(task, str | bytes | int | float | tuple):
        return None
    return _shown(task)[:1000]


def _shown(value: object) -> str:
    try:
        return clean(str(value))
    except Exception:  # noqa: BLE001  an integer of 5,000 digits, and what foreign classes raise
        return f"<a {type(value).__name__} that cannot be shown>"


def _keys(tasks: dict[Any, Any]) -> tuple[str, ...]:
    found = (_key(_attribute(task, "key", task)) for task in islice(tasks, _MOST_KEYS))
    return tuple(key for key in found if key is not None)


def _positive(number: object) -> int | None:
    return number if isinstance(number, int) and number > 0 else None
