"""Runs probes in this process directly, and in others through Dask, as source text.

Byte code of another release of Python can crash a server, so text is sent. It runs in a thread, so the event
loop continues, and returns JSON.
"""

from __future__ import annotations

import asyncio
import builtins
import inspect
import json
import pickle
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, TypedDict

from workerdiag.deadline import Deadline
from workerdiag.errors import describe_error
from workerdiag.guard import guarded
from workerdiag.model.dask import Client, is_disallowed
from workerdiag.sources.cluster.queries import answer_in_time

#: Runs remotely: each probe in its own namespace, independent of failures of the others.
_PROBE_RUNNER = """
def answer(texts, asked):
    import json
    answers = {}
    for name, text in texts.items():
        room = {"__name__": "workerdiag_" + name}
        try:
            exec(compile(text, "<workerdiag " + name + ">", "exec", dont_inherit=True), room)
            answers[name] = room["read"](asked)
        except Exception as problem:
            answers[name] = {"problem": type(problem).__name__ + ": " + str(problem)[:300]}
    return json.dumps(answers)
"""


class Request(TypedDict, total=False):
    """The argument of a probe."""

    #: How far back to search, and how long a probe may take, in seconds.
    since_s: float
    budget_s: float
    #: Pattern of a nanny's log line about its worker's exit.
    ended: str
    pids: list[int]
    #: Addresses that may still be listened at, and nannies whose workers ran here.
    addresses: list[str]
    nannies: list[str | None]


#: The JSON result of each probe, by its name.
Answer = dict[str, dict[str, Any]]


class UnreadableAnswerError(ValueError):
    """A process returned something that no probe returns."""


def probe_here(probes: Sequence[str], request: Request) -> Answer:
    """Run probes in this process; return the result of each, or its ``problem``."""
    answers: Answer = {}
    for name in probes:
        with guarded(f"running the probe {name}") as probing:
            answers[name] = _probe_module(name).read(request)
        if probing.problem is not None:
            answers[name] = {"problem": describe_error(probing.problem, most_chars=300)}
    return answers


async def probe_elsewhere(
    client: Client, nanny: str | None, probes: Sequence[str], request: Request, deadline: Deadline
) -> Answer:
    """Return the answer of another process: a nanny, by its address, or the scheduler (None).

    The scheduler's ``broadcast`` connects to any address, including that of a nanny whose worker is
    gone (distributed 2024.8.1 to 2026.8.0: ``Scheduler.broadcast``, ``Nanny.run``, ``worker.run``).

    Raises ConnectionError, PermissionError, TimeoutError or UnreadableAnswerError.
    """
    arguments = _call_arguments(probes, request)

    async def call() -> object:
        if nanny is None:
            return await client.scheduler.run_function(**arguments)
        message = {"op": "run", **arguments}
        reply = await client.scheduler.broadcast(msg=message, workers=[nanny], on_error="return_pickle")
        return reply.get(nanny)

    return _parse_reply(await answer_in_time(call, deadline))


def _call_arguments(probes: Sequence[str], request: Request) -> dict[str, object]:
    """Return arguments of the handler ``run``; they unpickle in any release of Python."""
    texts = {name: inspect.getsource(_probe_module(name)) for name in probes}
    namespace = {"texts": texts, "asked": request, "run": _PROBE_RUNNER}
    arguments = (builtins.eval, "exec(run, globals()) or answer(texts, asked)", namespace)
    return {"function": pickle.dumps(asyncio.to_thread), "args": pickle.dumps(arguments), "wait": True}


def _probe_module(probe: str) -> ModuleType:
    is_shared = probe == "control_groups"  # the flight recorder reads them too
    return import_module("workerdiag.procfs_and_cgroups" if is_shared else f"{__package__}.probes.{probe}")


def _parse_reply(reply: object) -> Answer:
    if isinstance(reply, bytes):  # a pickled exception of the scheduler
        reply = pickle.loads(reply)  # noqa: S301  from the scheduler, which Dask also trusts
    if isinstance(reply, Exception):
        raise _remote_error(str(reply))
    if not isinstance(reply, dict):
        raise UnreadableAnswerError(f"an answer of type {type(reply).__name__}")
    if reply.get("status") != "OK":
        raise _remote_error(str(reply.get("text") or reply.get("exception_text") or reply.get("exception")))
    text = reply.get("result")
    if not isinstance(text, str) or len(text) > 2**20:
        raise UnreadableAnswerError(f"a result of type {type(text).__name__}")
    answers = json.loads(text)
    return {str(name): part for name, part in dict(answers).items() if isinstance(part, dict)}


def _remote_error(text: str) -> Exception:
    return (PermissionError if is_disallowed(text) else ConnectionError)(text[:300])
