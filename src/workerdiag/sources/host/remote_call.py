"""
Asking a process what its machine knows: this one directly, others through Dask, as text that they run.

Text, because byte code of another release of Python can crash a server; in a thread of theirs, so
that their event loops go on; and what comes back is JSON.
"""

from __future__ import annotations

import asyncio
import builtins
import inspect
import json
import pickle
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from types import ModuleType
from typing import Any, TypedDict

from workerdiag.deadline import Deadline
from workerdiag.errors import describe_error
from workerdiag.model.dask import Client, is_disallowed
from workerdiag.sources.cluster.queries import answer_in_time

#: Names of probes: modules of the standard library alone, each with a function ``read``.
LOCATION_PROBES = ("location",)
DEATH_PROBES = ("kernel", "control_groups", "nannies", "machine")
LIVE_PROBES = ("control_groups", "machine")
#: One machine says some kB, with a full kernel log 256 kB.
MAX_CHARS = 2**20

#: Runs where it is sent: each text in a room of its own, and none that fails takes the others along.
_PROBE_RUNNER = """
def answer(texts, asked):
    import json
    told = {}
    for name, text in texts.items():
        room = {"__name__": "workerdiag_" + name}
        try:
            exec(compile(text, "<workerdiag " + name + ">", "exec", dont_inherit=True), room)
            told[name] = room["read"](asked)
        except Exception as problem:
            told[name] = {"problem": type(problem).__name__ + ": " + str(problem)[:300]}
    return json.dumps(told)
"""


class Request(TypedDict, total=False):
    """
    What probes are asked for.
    """

    #: How far back to look, and how long a probe may take, in seconds.
    since_s: float
    budget_s: float
    #: How a nanny words the end of its worker process, as a pattern.
    ended: str
    pids: list[int]
    #: Addresses that may still be listened at, and nannies whose workers lived here.
    addresses: list[str]
    nannies: list[str | None]


#: By probe, what it read, as JSON has it.
Answer = dict[str, dict[str, Any]]


class UnreadableAnswerError(ValueError):
    """
    A process answered something that no probe of ours returns.
    """


def probe_here(probes: Sequence[str], request: Request) -> Answer:
    """
    What this process and its machine know: by probe, what it read, or its ``problem``.
    """
    answers: Answer = {}
    for name in probes:
        try:
            answers[name] = _probe_module(name).read(request)
        except Exception as problem:  # noqa: BLE001  one that fails does not take the others along
            answers[name] = {"problem": describe_error(problem, most_chars=300)}
    return answers


async def probe_elsewhere(
    client: Client, nanny: str | None, probes: Sequence[str], request: Request, deadline: Deadline
) -> Answer:
    """
    The answer of another process: a nanny's, by its address, or (None) the scheduler's.

    The scheduler's ``broadcast`` connects to whatever address it is given, also a nanny's whose worker is
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


def run_in_client_loop(
    client: Client, call: Callable[[], Coroutine[object, object, object]], deadline: Deadline
) -> None:
    """
    Run *call* on the client's event loop and wait for it here, in another thread.

    The coroutine is made by the loop: one that has stopped would leave it behind, never awaited.
    """
    loop = client.loop.asyncio_loop
    over: Future[None] = Future()
    tasks: list[asyncio.Task[object]] = []

    def begin() -> None:
        if over.set_running_or_notify_cancel():
            tasks.append(loop.create_task(call()))
            tasks[0].add_done_callback(partial(_tell, over))

    loop.call_soon_threadsafe(begin)
    try:
        over.result(timeout=deadline.left_s)
    finally:
        if not over.cancel() and not over.done():
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(_cancel, tasks)


def _tell(over: Future[None], task: asyncio.Task[object]) -> None:
    if task.cancelled():
        over.set_exception(ConnectionError("the client's event loop ended"))
    elif problem := task.exception():
        over.set_exception(problem)
    else:
        over.set_result(None)


def _cancel(tasks: Sequence[asyncio.Task[object]]) -> None:
    for task in tasks:
        task.cancel()


async def gather_answers(
    calls: Sequence[Callable[[], Awaitable[Answer]]],
) -> list[Answer | BaseException]:
    """
    What all *calls* return, made at once, or what they raised.
    """
    return await asyncio.gather(*(call() for call in calls), return_exceptions=True)


def _call_arguments(probes: Sequence[str], request: Request) -> dict[str, object]:
    """
    Arguments of the handler ``run``: everything in them is found by name in any release of Python.
    """
    namespace = {
        "texts": {name: _probe_source(name) for name in probes},
        "asked": request,
        "run": _PROBE_RUNNER,
    }
    arguments = (builtins.eval, "exec(run, globals()) or answer(texts, asked)", namespace)
    return {"function": pickle.dumps(asyncio.to_thread), "args": pickle.dumps(arguments), "wait": True}


def _probe_module(probe: str) -> ModuleType:
    is_shared = probe == "control_groups"  # the flight recorder reads them too
    return import_module("workerdiag.procfs.cgroups" if is_shared else f"{__package__}.probes.{probe}")


@cache
def _probe_source(probe: str) -> str:
    return inspect.getsource(_probe_module(probe))


def _parse_reply(reply: object) -> Answer:
    if isinstance(reply, bytes):  # an exception of the scheduler's, pickled
        reply = pickle.loads(reply)  # noqa: S301  from the scheduler, which Dask trusts alike
    if isinstance(reply, Exception):
        raise _remote_error(str(reply))
    if not isinstance(reply, dict):
        raise UnreadableAnswerError(f"an answer of type {type(reply).__name__}")
    if reply.get("status") != "OK":
        raise _remote_error(str(reply.get("text") or reply.get("exception_text") or reply.get("exception")))
    text = reply.get("result")
    if not isinstance(text, str) or len(text) > MAX_CHARS:
        raise UnreadableAnswerError(f"a result of type {type(text).__name__}")
    answers = json.loads(text)
    return {str(name): part for name, part in dict(answers).items() if isinstance(part, dict)}


def _remote_error(text: str) -> Exception:
    if is_disallowed(text):
        return PermissionError(text[:300])
    return ConnectionError(text[:300])
