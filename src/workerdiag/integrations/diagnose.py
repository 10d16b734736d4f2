"""The diagnosis of an exception from another program, often after the cluster is gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

from workerdiag.api.annotate import remembered
from workerdiag.api.diagnosis import Diagnosis
from workerdiag.api.explain import explain
from workerdiag.deadline import Deadline
from workerdiag.settings import seconds
from workerdiag.sources.cluster.client import connect
from workerdiag.sources.exception.slots import cause_of, context_of, members_of, packages_of

if TYPE_CHECKING:
    from distributed import Client

#: Limits for connecting to a scheduler, as a share of the time, and for disconnecting, in seconds.
_CONNECT_SHARE, _CLOSE_S = 0.4, 1.0
#: Maximum number of linked exceptions.
_MAX_LINKED = 50


def diagnose(
    exc: BaseException,
    scheduler: str | None = None,
    *,
    client: Client | None = None,
    timeout_s: float | None = None,
) -> Diagnosis | None:
    """Return why workers died, if *exc* came from Dask; else None.

    The diagnosis that `annotate`, `auto` or `explaining` made while the cluster existed comes first.
    Otherwise the scheduler is queried: the one at *scheduler*, that of the current client, or that of Dask's
    setting ``scheduler-address``.

    Args:
        exc: The exception; its causes, contexts and members count too.
        scheduler: Address of the scheduler.
        client: A synchronous client to use instead.
        timeout_s: Seconds in total; None: the setting ``workerdiag.explain.timeout``.
    """
    known = next((found for each in linked_exceptions(exc) if (found := remembered(each))), None)
    if known is None and not is_from_dask(exc):
        return None
    if known is not None and known.outcome == "explained":
        return known
    if timeout_s is None:
        timeout_s = seconds("explain.timeout")
    deadline = Deadline.after(timeout_s)
    with nullcontext(client) if client else open_client(scheduler, timeout_s * _CONNECT_SHARE) as asked:
        if known is not None and asked is None:
            return known
        diagnosis: Diagnosis = explain(exc, asked, timeout=max(deadline.left_s, 1.0))
        return diagnosis


def is_from_dask(exc: BaseException) -> bool:
    """Whether Dask's scheduler or client raised the exception or a linked one."""
    return any("distributed" in packages_of(each) for each in linked_exceptions(exc))


def linked_exceptions(exc: BaseException) -> Iterator[BaseException]:
    """Yield the exception and all linked ones, the nearest first."""
    ahead: list[BaseException | None] = [exc]
    known: set[int] = set()
    while ahead and len(known) < _MAX_LINKED:
        each = ahead.pop(0)
        if each is not None and id(each) not in known:
            known.add(id(each))
            yield each
            ahead += [cause_of(each), context_of(each), *members_of(each)]


@contextmanager
def open_client(scheduler: str | None, timeout_s: float) -> Iterator[Client | None]:
    """Yield a synchronous client, or None. A client opened here is closed again."""
    import dask
    import distributed

    if scheduler is None:
        with suppress(ValueError):  # there is none
            at_hand = distributed.default_client()  # type: ignore[no-untyped-call]
            if at_hand.status == "running" and not at_hand.asynchronous:
                yield at_hand
                return
        scheduler = dask.config.get("scheduler-address", None)
    opened = None
    if scheduler is not None:
        with suppress(Exception):  # the scheduler is gone, or the address is wrong
            opened = connect(scheduler, timeout_s=timeout_s)
    try:
        yield opened
    finally:
        if opened is not None:
            with suppress(Exception):
                opened.close(timeout=_CLOSE_S)  # type: ignore[no-untyped-call]
