"""
``explain()`` and what it returns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, overload

from workerdiag.api.call import Call
from workerdiag.api.diagnosis import Diagnosis
from workerdiag.model.evidence import EvidenceSource, LogText
from workerdiag.model.rules import Rulebook

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Diagnosis", "LogInput", "explain"]

LogInput = str | Path | IO[str] | IO[bytes] | LogText


@overload
def explain(
    exc: BaseException | None = None,
    client: None = None,
    *,
    logs: LogInput | Sequence[LogInput] = (),
    sources: Sequence[EvidenceSource] | None = None,
    rulebook: Rulebook | None = None,
    timeout: str | float = "10s",
) -> Diagnosis: ...
@overload
def explain(
    exc: BaseException | None = None,
    client: Client | None = None,
    *,
    logs: LogInput | Sequence[LogInput] = (),
    sources: Sequence[EvidenceSource] | None = None,
    rulebook: Rulebook | None = None,
    timeout: str | float = "10s",
) -> Any: ...
def explain(
    exc: BaseException | None = None,
    client: Client | None = None,
    *,
    logs: LogInput | Sequence[LogInput] = (),
    sources: Sequence[EvidenceSource] | None = None,
    rulebook: Rulebook | None = None,
    timeout: str | float = "10s",
) -> Any:
    """
    Why did a worker die (or why does work stand still), and what to do now.

    Safe in an ``except`` block: it does not raise, whatever it meets (wrong types of
    arguments aside), is back within *timeout*, and changes nothing on the cluster.

    Args:
        exc: The exception caught, if there was one. Its causes, contexts and members count too.
        client: The client. Without it *exc* and *logs* are looked at, and this machine, if *exc* names a
            worker that lived here.
        logs: Paths, globs, fsspec URLs, ``-``, open files or `LogText`. A death bundle, what the flight
            recorder appended to a file, and black boxes are known by their content.
        sources: Places to ask instead of those that apply by themselves.
        rulebook: What to judge by; None: the shipped knowledge.
        timeout: Seconds in total, or as Dask writes durations (``"10s"``).

    Returns:
        A `Diagnosis`; with an asynchronous client an awaitable of one, as in Dask.

    Raises:
        TypeError: An argument is of a wrong type.
    """
    _check(exc, client, logs, timeout)
    budget_s = _seconds(timeout)
    inputs = [logs] if isinstance(logs, str | Path | LogText) or hasattr(logs, "read") else list(logs)
    call = Call(exc, client, inputs, sources, rulebook, budget_s)
    if client is not None and getattr(client, "asynchronous", False) and sources is None:
        return call.answer_async()
    return call.answer()


def _check(exc: object, client: object, logs: object, timeout: object) -> None:
    if exc is not None and not isinstance(exc, BaseException):
        raise TypeError(f"exc must be an exception or None, got {type(exc).__name__}")
    if client is not None and not hasattr(client, "scheduler") and not hasattr(client, "sync"):
        raise TypeError(f"client must be a distributed.Client or None, got {type(client).__name__}")
    if not isinstance(timeout, str | int | float):
        raise TypeError(f'timeout must be seconds or text like "10s", got {type(timeout).__name__}')
    if not (isinstance(logs, str | Path | LogText) or hasattr(logs, "__iter__") or hasattr(logs, "read")):
        raise TypeError(f"logs must be paths, URLs, open files or LogText, got {type(logs).__name__}")


def _seconds(timeout: str | float) -> float:
    """
    A duration in seconds, written as Dask does (dask.utils.parse_timedelta).
    """
    if isinstance(timeout, int | float):
        return float(timeout)
    if plain := re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*s?\s*", timeout):  # spares importing dask
        return float(plain[1])
    from dask.utils import parse_timedelta

    try:
        return float(parse_timedelta(timeout))
    except (ValueError, KeyError):
        raise TypeError(f'timeout must be seconds or text like "10s", got {timeout!r}') from None
