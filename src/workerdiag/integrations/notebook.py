"""The answer in a notebook: automatically under a failed cell, and by ``%explain``.

Only ``%load_ext workerdiag`` imports this module, in notebooks and in IPython's terminal.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from IPython.display import display

from workerdiag.api.diagnosis import Diagnosis
from workerdiag.api.explain import explain
from workerdiag.errors import describe_error
from workerdiag.guard import guarded
from workerdiag.integrations.diagnose import diagnose, is_from_dask
from workerdiag.model.dask import is_worker_death
from workerdiag.settings import setting
from workerdiag.sources.tracebacks import linked_exceptions

if TYPE_CHECKING:
    from distributed import Client
    from IPython.core.interactiveshell import ExecutionResult, InteractiveShell

_WAITING = "asking the cluster why ..."
_EVENT = "post_run_cell"


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Show the answer under each cell that fails with an exception of Dask, and add ``%explain``.

    With the setting ``workerdiag.auto.check``, work that will not fit is told before it runs.
    """
    explainer = WorkerdiagMagics(shell)
    shell.register_magics(explainer)
    shell.events.register(_EVENT, explainer.on_cell_run)
    if setting("auto.check") == "warn":
        from workerdiag.api.check import WorkNotes
        from workerdiag.recorder.internals import watch_graphs

        explainer.unwatch_work = watch_graphs(WorkNotes().look) or explainer.unwatch_work


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Undo `load_ipython_extension`."""
    explainer = shell.magics_manager.registry.pop(WorkerdiagMagics.__name__)
    shell.events.unregister(_EVENT, explainer.on_cell_run)
    explainer.unwatch_work()
    shell.magics_manager.magics["line"].pop("explain")


@magics_class
class WorkerdiagMagics(Magics):
    """The magics that ``%load_ext workerdiag`` adds to a shell."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._variables = shell.user_ns
        #: Pending answers of asynchronous clients.
        self._pending: set[asyncio.Task[None]] = set()
        #: Arguments of `_update` for answers that arrived since the last cell.
        self._arrived: list[tuple[object, Diagnosis, BaseException | None]] = []
        #: Ends the look at work before it runs, if there is one.
        self.unwatch_work: Callable[[], None] = lambda: None

    def on_cell_run(self, result: ExecutionResult) -> None:
        """Show the answer, or that there is none, under a cell that failed with an exception of Dask."""
        with guarded("answering below a cell") as answering:
            while self._arrived:  # nbclient and the like read only the output of the running cell
                _update(*self._arrived.pop())
            if (exc := result.error_in_exec) is not None and is_from_dask(exc):
                self._answer(exc)
        if answering.problem is not None:
            display(_plain_line(f"no answer: {describe_error(answering.problem)}"), raw=True)

    def _answer(self, exc: BaseException) -> None:
        client = self._client_of(exc)
        if client is not None and client.asynchronous:
            self._show_later(exc, client, is_asked_for=False)
        else:
            place = display(_plain_line(_WAITING), raw=True, display_id=True)
            _update(place, diagnose(exc, client=client), exc)

    @magic_arguments()
    @argument("client", nargs="?", help="variable that holds the client; without it, the client at hand")
    @argument("--now", action="store_true", help="the cluster as it is, whatever exception was raised before")
    @line_magic
    def explain(self, line: str) -> Diagnosis | None:
        """Say why a worker died, or why work stands still: of the last exception that came from Dask.

        The answer is the value of the line: ``diagnosis = %explain``. With an asynchronous client it is shown
        as soon as it is there.
        """
        arguments = parse_argstring(self.explain, line)
        last: object = getattr(sys, "last_value", None)
        is_ours = not arguments.now and isinstance(last, BaseException) and is_from_dask(last)
        exc = cast("BaseException", last) if is_ours else None
        client = self._named_client(arguments.client) if arguments.client else self._client_of(exc)
        if exc is None and client is None:
            raise UsageError("nothing to explain: there is no client, and no exception came from Dask")
        if client is not None and client.asynchronous:
            self._show_later(exc, client, is_asked_for=True)
            return None
        if client is None and exc is not None:
            return diagnose(exc)
        answer: Diagnosis = explain(exc, client)
        return answer

    def _show_later(self, exc: BaseException | None, client: Client, *, is_asked_for: bool) -> None:
        """Show a placeholder, and later the answer in its place. Meanwhile the loop runs other cells."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise UsageError("no event loop is running: await workerdiag.explain(exc, client)") from None
        place = display(_plain_line(_WAITING), raw=True, display_id=True)

        async def show() -> None:
            found = await explain(exc, client)
            shown = None if is_asked_for else exc
            _update(place, found, shown)
            self._arrived.append((place, found, shown))

        task = loop.create_task(show())
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    def _named_client(self, name: str) -> Client:
        from distributed import Client

        client = self._variables.get(name)
        if not isinstance(client, Client):
            raise UsageError(f"{name} must be a variable that holds a distributed.Client")
        return client

    def _client_of(self, exc: BaseException | None) -> Client | None:
        """Return the client that waits for a task of *exc*, else Dask's default client; None if there is none."""
        from distributed import Client, default_client

        linked: Iterable[Any] = linked_exceptions(exc) if exc else ()
        tasks = {str(each.task) for each in linked if is_worker_death(each)}
        for each in list(self._variables.values()):
            if isinstance(each, Client) and each.status == "running" and tasks & {str(key) for key in each.futures}:
                return each
        try:
            client: Client = default_client()
        except ValueError:
            return None
        return client if client.status == "running" else None


def _update(place: Any, found: Diagnosis | None, exc: BaseException | None) -> None:
    """Show the answer in its place: one line if it explains nothing and no worker died of *exc*."""
    is_death = exc is None or any(is_worker_death(each) for each in linked_exceptions(exc))
    if found is not None and (is_death or found.outcome == "explained"):
        place.update(found)
    else:
        place.update(_plain_line(found.summary if found else "no explanation found"), raw=True)


def _plain_line(line: str) -> dict[str, str]:
    return {"text/plain": f"workerdiag: {line}"}
