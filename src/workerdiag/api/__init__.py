"""
``explain()`` and what it returns.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, overload

from workerdiag.api.arguments import check_types, parse_timeout, read_arguments
from workerdiag.api.call import ExplainCall
from workerdiag.api.diagnosis import Diagnosis
from workerdiag.model.evidence import EvidenceSource, LogText
from workerdiag.model.rules import Rulebook

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Diagnosis", "LogInput", "explain"]

LogInput = str | Path | IO[str] | IO[bytes] | LogText

#: Of the time, so much for what the arguments themselves may do: a generator of logs, properties of a client.
_ARGUMENTS_SHARE = 0.1


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
        A `Diagnosis`; with an asynchronous client an awaitable of one, as in Dask. A `Diagnosis` may be
        awaited, too, and is itself: so ``await`` is right whatever the client turns out to be.

    Raises:
        TypeError: An argument is of a wrong type.
    """
    check_types(exc, rulebook, timeout)
    began = time.monotonic()
    budget_s = parse_timeout(timeout)
    arguments = read_arguments(client, logs, sources, within_s=_ARGUMENTS_SHARE * budget_s)
    call = ExplainCall(exc, arguments, rulebook, budget_s - (time.monotonic() - began))
    return call.answer_async() if arguments.is_asynchronous and sources is None else call.answer()
