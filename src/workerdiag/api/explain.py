"""
``workerdiag.explain()``: the function that users call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from workerdiag.api.arguments import read_arguments
from workerdiag.model.evidence import EvidenceSource
from workerdiag.model.rules import Rulebook

if TYPE_CHECKING:
    from distributed import Client

    from workerdiag.api.diagnosis import Diagnosis
    from workerdiag.sources.logs import LogInput


def explain(
    exc: BaseException | None = None,
    client: Client | None = None,
    *,
    logs: LogInput | Sequence[LogInput] = (),
    sources: Sequence[EvidenceSource] | None = None,
    rulebook: Rulebook | None = None,
    timeout: str | float | None = None,
) -> Diagnosis:
    """
    Say why a worker died, or why work stands still, and what to do now.

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
    from workerdiag.api.answer import answer, answer_async

    if arguments.is_asynchronous:  # no type tells which clients are: a Diagnosis can be awaited as well
        return cast("Diagnosis", answer_async(arguments))
    return answer(arguments).diagnosis
