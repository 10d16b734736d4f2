"""Adds the answer to each exception that a client raises because of workers or the scheduler, by itself.

The scheduler reports a failed task to a client by the message ``task-erred`` (``Client._stream_handlers``,
distributed 2024.8.1 to 2026.8.0). ``future.result()``, ``gather``, ``dask.compute`` and ``as_completed``,
synchronous or not, all raise the exception object of that message. So the note is added there, once, before
anybody can see it. What the client's calls raise themselves is the matter of `workerdiag.api.noted_calls`.

Most programs pass, and this module is imported in the client's loop, so it imports next to nothing. The rest
is imported by `workerdiag.api.warm_up` while the program is idle, or with the first such exception: in a thread, so
that no exception waits beyond its limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Client

    from workerdiag.api.diagnosis import Diagnosis
    from workerdiag.model.dask import Method

_ERRED, _RETRIED, _FINISHED = "task-erred", "task-retried", "key-in-memory"


def auto(client: Client, *, on: bool = True, check: bool | None = None) -> None:
    """Add a diagnosis as a note to each exception that *client* raises because of workers or the scheduler.

    These are exceptions of tasks that Dask gave up on (``KilledWorker``, ``NoValidWorkerError``, a failed shuffle,
    refused inputs), a module that only the workers lack, lost connections and the futures cancelled with them, and,
    if nothing finished meanwhile, time-outs and Ctrl-C in calls that wait, loops over ``as_completed`` too. What a
    task raised by itself, and what the user asked for, gets none.

    Such an exception is delayed by at most two seconds (``workerdiag.note.timeout``), Ctrl-C by half a second, and
    time-outs of less than half a second not at all; results are not delayed. For every client of a program, set
    ``distributed.client.preload: [workerdiag.auto]`` in Dask's configuration.

    Args:
        client: The client, synchronous or not.
        on: False to undo it.
        check: Whether to warn (``RuntimeWarning``) of work that will not fit, by `workerdiag.check`, before it
            runs. None: the setting ``workerdiag.auto.check``.

    Raises:
        TypeError: *client* is not a `distributed.Client`, or of a release before 2024.8.1.
    """
    from workerdiag.recorder.internals import stream_handlers
    from workerdiag.settings import setting

    handlers = stream_handlers(client)
    if _ERRED not in handlers:
        raise TypeError(f"client must be a distributed.Client (2024.8.1 or newer), got {type(client).__name__}")
    ours = getattr(handlers[_ERRED], "__self__", None)
    if isinstance(ours, _Handlers):
        if not on:
            ours.undo(handlers)
    elif on:
        ours = _Handlers(client)
        ours.install(handlers)
    if on and isinstance(ours, _Handlers):
        ours.check_work(on=setting("auto.check") == "warn" if check is None else check)


class _Handlers:
    """What one client calls: its handlers of the scheduler's messages, and those of its methods that wait."""

    def __init__(self, client: Any) -> None:
        from workerdiag.api.noted_calls import NotedCalls

        self._client = client
        #: The original handlers of the client.
        self.originals: dict[str, Method] = {}
        answers = Answers(client)
        self._held = HeldExceptions(client, answers)
        self._calls = NotedCalls(client, answers)
        #: The original methods of the client, by name.
        self._methods: dict[str, Any] = {}
        self._undo: list[Callable[[], None]] = []
        #: Ends the look at work before it runs; None: there is none.
        self._unwatch_work: Callable[[], None] | None = None

    def install(self, handlers: dict[str, Method]) -> None:
        """Take the place of the client's own handlers and methods."""
        from workerdiag.api.noted_calls import hide_our_frames
        from workerdiag.api.warm_up import WarmUp
        from workerdiag.recorder.internals import replace_method, watch_actors, watch_iterations

        ours: dict[str, Method] = {
            _ERRED: self.on_task_erred,
            _RETRIED: self.on_task_retried,
            _FINISHED: self.on_key_in_memory,
        }
        self.originals = {name: handlers[name] for name in ours if name in handlers}
        handlers |= {name: ours[name] for name in self.originals}
        methods: dict[str, Method] = {
            "sync": self._calls.sync,
            "wait_for_workers": self._wait_for_workers,
            "close": self._close,
        }
        self._methods = {name: getattr(self._client, name, None) for name in methods}
        for name, method in methods.items():
            self._undo += filter(None, [replace_method(self._client, name, method)])
        for watch in (watch_actors, watch_iterations):
            self._undo += filter(None, [watch(self._client, self._calls.call)])
        hide_our_frames()
        WarmUp(self._client, self._calls.quiet_s).begin()

    def check_work(self, *, on: bool) -> None:
        """Warn of work that will not fit, or no longer."""
        if self._unwatch_work is not None and not on:
            self._unwatch_work()
            self._unwatch_work = None
        elif self._unwatch_work is None and on:
            from workerdiag.api.check import WorkNotes
            from workerdiag.recorder.internals import watch_graphs

            self._unwatch_work = watch_graphs(WorkNotes().look, self._client)

    def undo(self, handlers: dict[str, Method]) -> None:
        """Leave the client as it was."""
        self.check_work(on=False)
        handlers |= self.originals
        while self._undo:
            self._undo.pop()()

    def on_task_erred(self, key: object = None, exception: object = None, traceback: object = None) -> None:
        """Delay an exception about workers or the scheduler until it has its note; pass others on at once."""
        from workerdiag.api.dask_errors import is_missing_on_workers_only, is_of_cluster

        self._calls.finish()
        state = self._client.futures.get(key)
        exc, trace = _unpack(exception, traceback)
        if state is None or not (is_of_cluster(exc) or is_missing_on_workers_only(exc)):
            self.originals[_ERRED](key=key, exception=exception, traceback=traceback)
            return
        try:
            self._held.hold(key, state, exc, trace, self.originals[_ERRED])
        except Exception:  # noqa: BLE001  e.g. our modules are being replaced: never a second exception
            self.originals[_ERRED](key=key, exception=exc, traceback=trace)

    def on_task_retried(self, key: object = None) -> None:
        """Forget the exception of a task that runs again."""
        self._held.forget(key)
        self.originals[_RETRIED](key=key)

    def on_key_in_memory(self, **message: object) -> None:
        """Take note that work goes on."""
        self._calls.finish()
        self.originals[_FINISHED](**message)

    def _wait_for_workers(self, *args: object, **options: object) -> object:
        """Call ``Client.wait_for_workers``, which asks the cluster if there is one, and not ``Client.sync``."""
        original = self._methods["wait_for_workers"]
        if not hasattr(self._client.cluster, "wait_for_workers"):
            return original(*args, **options)
        return self._calls.call(
            partial(original, *args, **options), is_asynchronous=bool(self._client.asynchronous)
        )

    def _close(self, *args: object, **options: object) -> object:
        """Call ``Client.close``, as the user does."""
        self._calls.close()
        return self._methods["close"](*args, **options)


def _unpack(exception: Any, traceback: Any) -> tuple[Any, object]:
    """Deserialize the exception and its traceback; return them unchanged if that fails."""
    from distributed.core import clean_exception

    try:
        return clean_exception(exception, traceback)[1:]
    except Exception:  # noqa: BLE001  the client's own handler says what is wrong
        return exception, traceback


class HeldExceptions:
    """The exceptions of one client that wait for what *answers* knows of them, as their notes."""

    def __init__(self, client: Any, answers: Answers) -> None:
        from workerdiag.settings import seconds

        self._client = client
        self._ask = answers.ask
        #: Maximum delay of an exception, in seconds.
        self._patience_s = seconds("note.timeout")
        #: The waiting exception of each task, by key; the last one of a task that ran again.
        self._waiting: dict[object, BaseException] = {}
        #: One answer for all tasks that failed with one worker, by its address.
        self._answers: dict[str, asyncio.Task[Diagnosis]] = {}
        self._deliveries: set[asyncio.Task[None]] = set()

    def hold(self, key: object, state: object, exc: BaseException, trace: object, hand_on: Method) -> None:
        """Delay the exception of a task, and its traceback, until it has its note; then call *hand_on* with it."""
        self._waiting[key] = exc
        if isinstance(trace, TracebackType):
            exc.__traceback__ = trace  # it shows where the exception was raised, as in an ``except`` block
        loop = asyncio.get_running_loop()
        delivery = loop.create_task(self._deliver(key, state, exc, trace, hand_on, loop.time() + self._patience_s))
        self._deliveries.add(delivery)
        delivery.add_done_callback(self._deliveries.discard)

    def forget(self, key: object) -> None:
        """Drop the exception of a task that runs again."""
        self._waiting.pop(key, None)

    async def _deliver(
        self, key: object, state: object, exc: BaseException, trace: object, hand_on: Method, until_s: float
    ) -> None:
        """Add the note, then pass the exception on, if the task still waits for it.

        Meanwhile it may have been cancelled, lost, retried, or submitted anew under the same key. A module that
        is missing may be the task's own matter: it gets a note only if a cause is known.
        """
        is_sure_of_cluster = not isinstance(exc, ImportError)
        try:
            answer = self._answer(exc, until_s - 0.2)  # the rest is for the steps after it
            left_s = until_s - asyncio.get_running_loop().time()
            diagnosis = await asyncio.wait_for(asyncio.shield(answer), left_s)
            from workerdiag.api.annotate import add_note

            if is_sure_of_cluster or diagnosis.outcome == "explained":
                add_note(exc, diagnosis, is_of_cluster=is_sure_of_cluster)
        except TimeoutError:
            from workerdiag.model.vocabulary import LATE_NOTE

            if is_sure_of_cluster:
                exc.add_note(LATE_NOTE)
        except Exception as problem:  # noqa: BLE001  never a second exception
            if is_sure_of_cluster:
                exc.add_note(_failure_note(problem))
        finally:
            is_last = self._waiting.get(key) is exc
            if is_last:
                del self._waiting[key]
            if is_last and self._client.futures.get(key) is state and state.status == "pending":
                hand_on(key=key, exception=exc, traceback=trace)

    def _answer(self, exc: Any, until_s: float) -> asyncio.Task[Diagnosis]:
        death = str(getattr(getattr(exc, "last_worker", None), "address", exc))
        if death not in self._answers:
            loop = asyncio.get_running_loop()
            self._answers[death] = answer = loop.create_task(self._ask(exc, until_s))
            answer.add_done_callback(lambda done: done.cancelled() or done.exception())  # else asyncio complains
            loop.call_later(5.0, self._answers.pop, death, None)  # until then it is the same death
        return self._answers[death]


def _failure_note(problem: Exception) -> str:
    """Return the note about a failure; a fixed one if even that cannot be worded."""
    from workerdiag.model.vocabulary import LATE_NOTE

    try:
        from workerdiag.errors import error_text
        from workerdiag.rendering.text import failure_note

        return failure_note(error_text(problem))
    except Exception:  # noqa: BLE001  e.g. our modules are being replaced
        return LATE_NOTE


class Answers:
    """Asks `explain` on behalf of one client."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._turn = asyncio.Lock()

    async def ask(self, exc: BaseException | None, until_s: float) -> Diagnosis:
        """Return the diagnosis by *until_s*, the loop's time; raises TimeoutError if more time might help."""
        from workerdiag.api.warm_up import import_all, yielding

        async with self._turn:
            with yielding():
                await asyncio.to_thread(import_all)
                from workerdiag.api.explain import explain

                left_s = until_s - asyncio.get_running_loop().time()
                if left_s <= 0:
                    raise TimeoutError
                diagnosis: Diagnosis = await explain(exc, self._client, timeout=left_s)
        is_cut_short = any(each.reason == "timed-out" and each.place != "other" for each in diagnosis.gaps)
        if self._client.status == "running" and diagnosis.outcome == "unknown" and is_cut_short:
            raise TimeoutError
        return diagnosis
