"""``workerdiag.explain()``, and the checks of its arguments."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from attrs import frozen

from workerdiag.api.time_plan import TimePlan
from workerdiag.deadline import CALL_FAILURES, Deadline, HelperThread, call_in_time
from workerdiag.errors import error_text
from workerdiag.model.evidence import EvidenceSource, Gap, LogText
from workerdiag.model.identity import Identity
from workerdiag.model.rules import Rulebook
from workerdiag.model.vocabulary import GapReason, Place, Stream
from workerdiag.settings import seconds
from workerdiag.units import parse_duration

if TYPE_CHECKING:
    from distributed import Client

    from workerdiag.api.diagnosis import Diagnosis
    from workerdiag.sources.logs import LogInput

#: Longest timeout, in seconds: clocks cannot count to infinity.
_MAX_S = 86_400.0
#: Share of the time for the code of one argument: a generator of logs, a property of a client.
_SHARE = 0.1
#: Maximum number of items taken from a list or a generator.
MAX_INPUTS = 100_000
_NO_LIST = object()
#: Names of the items of lists, for messages.
_WANTED: Mapping[str, str] = {
    "logs": "paths, URLs, open files or LogText",
    "sources": "a sequence of EvidenceSource objects",
}
#: Sources that are not asked if an argument is unusable.
_PLACES: Mapping[str, Place] = {"timeout": "other", "client": "scheduler", "logs": "log", "sources": "other"}


def explain(
    exc: BaseException | None = None,
    client: Client | None = None,
    *,
    logs: LogInput | Sequence[LogInput] = (),
    sources: Sequence[EvidenceSource] | None = None,
    rulebook: Rulebook | None = None,
    timeout: str | float | None = None,
) -> Diagnosis:
    """Say why a worker died, or why work stands still, and what to do now.

    Safe in an ``except`` block: it raises nothing but `TypeError` for a wrong argument, returns
    within *timeout*, and changes nothing on the cluster.

    Args:
        exc: The exception you caught. Its causes, contexts and members count too.
        client: The client. Without it, only *exc* and *logs* are read, and this machine, if *exc* names a
            worker that lived here.
        logs: Paths, globs, fsspec URLs, ``-``, open files or `LogText`. Death bundles, files of death
            records and black boxes are recognised by their content.
        sources: Places to query instead of those that apply.
        rulebook: The rules to use; None: the shipped knowledge and installed packs.
        timeout: Seconds in total, or a duration as Dask writes it (``"10s"``); None: the setting
            ``workerdiag.explain.timeout``, which is 10 seconds.

    Returns:
        A `Diagnosis`; with an asynchronous client an awaitable of one, as in Dask. A `Diagnosis` can be
        awaited as well and returns itself, so ``await`` is right with any client.

    Raises:
        TypeError: An argument is of a wrong type.
    """
    arguments = read_arguments(exc, client, logs=logs, sources=sources, rulebook=rulebook, timeout=timeout)
    from workerdiag.api.explain_steps import answer, answer_async

    if arguments.is_asynchronous:  # no type tells asynchronous clients apart; a Diagnosis can be awaited too
        return cast("Diagnosis", answer_async(arguments))
    return answer(arguments).diagnosis


@frozen(kw_only=True)
class ExplainArguments:
    """The checked arguments of one call, and the gaps that unusable ones leave."""

    exc: BaseException | None = None
    client: object = None
    logs: Sequence[Any] = ()
    #: The writer of the logs, if the caller knows it.
    stream: Stream | None = None
    sources: Sequence[EvidenceSource] | None = None
    rulebook: Rulebook | None = None
    #: The processes in question, if a watcher knows them.
    about: tuple[Identity, ...] = ()
    #: Number of known deaths of the same trouble without evidence.
    more_deaths: int = 0
    gaps: tuple[Gap, ...] = ()
    plan: TimePlan

    @property
    def is_asynchronous(self) -> bool:
        """Whether the client makes the call awaitable here; it depends on the calling thread."""
        try:
            return self.sources is None and getattr(self.client, "asynchronous", False) is True
        except Exception:  # noqa: BLE001  a client that cannot say is queried as any other
            return False


def read_arguments(
    exc: object, client: object, *, logs: object, sources: object, rulebook: object, timeout: object
) -> ExplainArguments:
    """Check the types of all arguments, and turn *logs* and *sources* into lists.

    Raises TypeError for a wrong type, and for a *timeout* that is written with a minus.
    """
    if exc is not None and not isinstance(exc, BaseException):
        hint = '; give logs as explain(logs=["worker.log"])' if isinstance(exc, str | os.PathLike) else ""
        raise TypeError(f"exc must be an exception or None, got {type(exc).__name__}{hint}")
    if rulebook is not None and not isinstance(rulebook, Rulebook):
        raise TypeError(f"rulebook must be a Rulebook or None, got {type(rulebook).__name__}")
    given_s = _given_seconds(timeout)
    deadline = Deadline.after(parse_timeout(given_s))
    gaps: list[Gap] = []
    if given_s < 0:  # the rest of a deadline that has passed must not raise
        problem = ValueError("it is less than no time, so next to nothing was looked at")
        gaps.append(_argument_gap("timeout", problem, 'give seconds, or text like timeout="10s"'))
    client = _usable_client(client, deadline, gaps)
    places = None if sources is None else _bounded_list("sources", sources, deadline, gaps)
    if named := next((each for each in places or () if isinstance(each, str)), None):
        raise TypeError(f"sources must be EvidenceSource objects, got {named[:80]!r}")
    inputs = _log_inputs(logs, deadline, gaps)
    return ExplainArguments(
        exc=exc,
        client=client,
        logs=inputs,
        sources=places,
        rulebook=rulebook,
        gaps=tuple(gaps),
        plan=TimePlan(deadline, with_logs=bool(inputs)),
    )


def parse_timeout(timeout: object) -> float:
    """Return a timeout in seconds, from a number or a duration of Dask; None and NaN mean the setting.

    Raises TypeError for anything else, and for a text or whole number below zero.
    """
    limited = float(min(max(_given_seconds(timeout), 0.0), _MAX_S))
    return seconds("explain.timeout") if isnan(limited) else limited


def _given_seconds(timeout: object) -> float:
    if timeout is None:
        return seconds("explain.timeout")
    if not isinstance(timeout, str | int | float):
        raise TypeError(f'timeout must be seconds or text like "10s", got {type(timeout).__name__}')
    try:
        value = parse_duration(timeout) if isinstance(timeout, str) else timeout
    except ValueError as problem:
        raise TypeError(f'timeout must be seconds or text like "10s": {problem}') from None
    if value < 0 and not isinstance(timeout, float):
        raise TypeError('timeout is below zero: give seconds, or text like "10s"')
    return value


def _usable_client(client: object, deadline: Deadline, gaps: list[Gap]) -> object:
    if client is None or type(client).__module__ == "distributed.client":
        return client
    try:
        known = call_in_time("workerdiag-client", partial(_is_client, client), deadline.share(_SHARE))
    except CALL_FAILURES as problem:
        gaps.append(_argument_gap("client", problem, "give the logs: explain(exc, logs=[...])"))
        return None
    if not known:
        raise TypeError(f"client must be a distributed.Client or None, got {type(client).__name__}")
    return client


def _is_client(client: object) -> bool:
    known = hasattr(client, "scheduler") or hasattr(client, "sync")
    getattr(client, "asynchronous", False)  # raises here rather than later
    return known


def _log_inputs(logs: object, deadline: Deadline, gaps: list[Gap]) -> list[object]:
    if isinstance(logs, str | Path | LogText | io.IOBase):
        return [logs]
    return _bounded_list("logs", logs, deadline, gaps)


def _bounded_list(name: str, values: object, deadline: Deadline, gaps: list[Gap]) -> list[Any]:
    """Return the items of a list or a generator, or an open file; those before a failure are kept."""
    taken: list[object] = []
    wanted = _WANTED[name]
    if isinstance(values, str | bytes | bytearray):
        raise TypeError(f"{name} must be {wanted}, got {type(values).__name__}")
    try:
        if type(values) is list or type(values) is tuple:
            taken += values
        else:
            thread = HelperThread("workerdiag-inputs", partial(_iterate, values))
            taken.extend(thread.take(deadline.share(_SHARE)))  # items before a failure are kept
    except CALL_FAILURES as problem:
        gaps.append(_argument_gap(name, problem, f"give the {name} as a list"))
    if any(each is _NO_LIST for each in taken[:1]):
        raise TypeError(f"{name} must be {wanted}, got {type(values).__name__}")
    if len(taken) > MAX_INPUTS:
        detail = f"only the first {MAX_INPUTS} are looked at"
        gaps.append(Gap(source=name, place=_PLACES[name], reason="malformed", detail=detail))
    return taken[:MAX_INPUTS]


def _iterate(values: object) -> Iterator[object]:
    if hasattr(values, "read"):
        yield values
    elif hasattr(values, "__iter__"):
        yield from islice(values, MAX_INPUTS + 1)
    else:
        yield os.fspath(values) if isinstance(values, os.PathLike) else _NO_LIST


def _argument_gap(name: str, problem: Exception, remedy: str) -> Gap:
    reason: GapReason = "timed-out" if isinstance(problem, TimeoutError) else "malformed"
    detail = f"it could not be used: {error_text(problem)}"[:500]
    return Gap(source=name, place=_PLACES[name], reason=reason, detail=detail, remedy=remedy)
