"""Adds the answer to an exception: as a note (PEP 678), and as a diagnosis for later handlers."""

from __future__ import annotations

from collections.abc import Awaitable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, cast, overload

from workerdiag.api.diagnosis import Diagnosis
from workerdiag.api.explain import explain
from workerdiag.guard import guarded
from workerdiag.model.dask import is_worker_death
from workerdiag.model.vocabulary import NO_ANSWER, NOTE_START
from workerdiag.settings import seconds
from workerdiag.values import evolve, frozen

if TYPE_CHECKING:
    from distributed import Client

_NAME: Final = "_workerdiag_remembers"


@frozen(eq=False)
class Kept:
    """The value of an attribute of the exception, in this process only: pickling it gives None."""

    diagnosis: Diagnosis | None

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()


def keep(exc: BaseException, name: str, diagnosis: Diagnosis | None) -> None:
    """Store a diagnosis, or its absence, in an attribute of an exception."""
    exc.__dict__[name] = Kept(diagnosis)


def kept(exc: BaseException, name: str) -> Kept | None:
    """Return what `keep` stored, or None."""
    found = exc.__dict__.get(name)
    return found if isinstance(found, Kept) else None


def remember(exc: BaseException, diagnosis: Diagnosis) -> None:
    """Store the diagnosis, without its evidence, in the exception."""
    keep(exc, _NAME, evolve(diagnosis, kept_evidence=None))


def remembered(exc: BaseException) -> Diagnosis | None:
    """Return the latest diagnosis of the exception, or None."""
    found = kept(exc, _NAME)
    return found.diagnosis if found is not None else None


@overload
def annotate(exc: BaseException, client: None = None, *, timeout: str | float | None = None) -> Diagnosis: ...
@overload
def annotate(exc: BaseException, client: Client | None, *, timeout: str | float | None = None) -> Any: ...
def annotate(exc: BaseException, client: Client | None = None, *, timeout: str | float | None = None) -> Any:
    """Add the answer to *exc* as a note of three lines: the cause and how sure, what to do, whether to retry.

    The note is ASCII and free of secrets. Tracebacks, IPython, rich, pytest, logging and Sentry show it, and
    it survives pickling. An exception gets one note, or none if its class does not accept notes. Nothing is
    added if nothing died, or nothing in the exception is known. Like `explain`, it is safe in an ``except``
    block.

    Args:
        exc: The exception caught.
        client: The client, as for `explain`.
        timeout: Seconds in total, or as Dask writes durations; None: the setting
            ``workerdiag.note.timeout``, which is 2 seconds.

    Returns:
        The `Diagnosis`; with an asynchronous client an awaitable of one.

    Raises:
        TypeError: An argument is of a wrong type.
    """
    answer: object = explain(exc, client, timeout=seconds("note.timeout") if timeout is None else timeout)
    if isinstance(answer, Diagnosis):
        add_note(exc, answer)
        return answer
    return _annotate_later(exc, cast("Awaitable[Diagnosis]", answer))


async def _annotate_later(exc: BaseException, answer: Awaitable[Diagnosis]) -> Diagnosis:
    diagnosis: Diagnosis = await answer
    add_note(exc, diagnosis)
    return diagnosis


def add_note(exc: BaseException, diagnosis: Diagnosis, *, is_of_cluster: bool = False) -> None:
    """Add the diagnosis to *exc* once, and store it there, if anything died or may have, or it *is_of_cluster*.

    It replaces a note without an answer.
    """
    from workerdiag.rendering.text import render_note

    if diagnosis.outcome == "no-evidence" or (diagnosis.outcome == "no-death" and not is_of_cluster):
        return
    remember(exc, diagnosis)
    note = render_note(diagnosis)
    with guarded("adding a note"):  # a class of exceptions may not accept notes, such as a frozen dataclass
        notes: list[object] = getattr(exc, "__notes__", [])
        notes[:] = [each for each in notes if not str(each).startswith(NO_ANSWER)]
        if not any(str(each).startswith(NOTE_START) for each in notes):
            exc.add_note(note)


class explaining:  # noqa: N801  used as a statement: ``with workerdiag.explaining(client):``
    """A context manager that adds the note to each ``KilledWorker`` that leaves its block.

    This includes a ``KilledWorker`` in an exception group, such as that of ``asyncio.TaskGroup``, and one
    that led to another exception.

    Use ``with`` for a synchronous client, ``async with`` for an asynchronous one. The client is not changed.

    Args:
        client: The client that the block computes with.
        timeout: Maximum delay of the exception, in seconds; None: as for `annotate`.
    """

    def __init__(self, client: Client, *, timeout: str | float | None = None) -> None:
        self._client = client
        self._timeout = timeout

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        if (death := _worker_death_in(exc)) is not None:
            annotate(death, self._client, timeout=self._timeout)
        return False

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        if (death := _worker_death_in(exc)) is not None:
            await annotate(death, self._client, timeout=self._timeout)
        return False


def _worker_death_in(exc: BaseException | None) -> BaseException | None:
    """Return the first ``KilledWorker`` among *exc*, what led to it, and the members of groups."""
    from workerdiag.sources.tracebacks import linked_exceptions

    return next(filter(is_worker_death, linked_exceptions(exc)), None) if exc is not None else None
