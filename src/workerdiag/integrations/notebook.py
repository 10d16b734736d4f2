"""
The answer in a notebook: under the cell that failed, by itself, and on ``%explain``.

``%load_ext workerdiag`` imports this module in notebooks and in IPython's terminal; nothing else does.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Iterator
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from IPython.display import display

from workerdiag.api.annotate import is_worker_death
from workerdiag.api.diagnosis import Diagnosis
from workerdiag.api.explain import explain
from workerdiag.errors import describe_error
from workerdiag.integrations.diagnose import diagnose, is_from_dask, linked_exceptions

if TYPE_CHECKING:
    from distributed import Client
    from IPython.core.interactiveshell import ExecutionResult, InteractiveShell

_WAITING = "workerdiag: asking the cluster why ..."
_EVENT = "post_run_cell"


def load_ipython_extension(shell: InteractiveShell) -> None:
    """
    Show the answer under each cell that fails with an exception of Dask, and add ``%explain``.
    """
    explainer = WorkerdiagMagics(shell)
    shell.register_magics(explainer)
    shell.events.register(_EVENT, explainer.on_cell_run)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """
    Undo it.
    """
    explainer = shell.magics_manager.registry.pop(WorkerdiagMagics.__name__)
    shell.events.unregister(_EVENT, explainer.on_cell_run)
    shell.magics_manager.magics["line"].pop("explain")


@magics_class
class WorkerdiagMagics(Magics):
    """
    What ``%load_ext workerdiag`` adds to one shell.
    """

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._variables = shell.user_ns
        #: Answers of asynchronous clients that are on their way.
        self._pending: set[asyncio.Task[None]] = set()
        #: Those that arrived since the last cell, by the place where they are shown.
        self._arrived: list[tuple[Any, object]] = []

    def on_cell_run(self, result: ExecutionResult) -> None:
        """
        Show the answer if the cell failed with an exception of Dask and workers died or work stands still.

        A failure of ours is one line of text.
        """
        self._show_again()
        exc = result.error_in_exec
        if exc is None or not is_from_dask(exc):
            return
        try:
            client = self._client_of(exc)
            if client is not None and client.asynchronous:
                self._show_later(explain(exc, client), exc)
            elif _is_worth_showing(found := diagnose(exc, client=client), exc):
                display(found)
        except Exception as problem:  # noqa: BLE001  the user's error is what matters
            print(f"workerdiag: no answer: {describe_error(problem)}")  # noqa: T201  under the cell

    @magic_arguments()
    @argument("client", nargs="?", help="variable that holds the client; without it, the client at hand")
    @argument("--now", action="store_true", help="the cluster as it is, whatever exception was raised before")
    @line_magic
    def explain(self, line: str) -> Diagnosis | None:
        """
        Say why a worker died, or why work stands still: of the last exception that came from Dask.

        The answer is the value of the line: ``diagnosis = %explain``. With an asynchronous client it is shown
        as soon as it is there.
        """
        arguments = parse_argstring(self.explain, line)
        exc = None if arguments.now else _last_exception()
        client = self._named_client(arguments.client) if arguments.client else self._client_of(exc)
        if exc is None and client is None:
            raise UsageError("nothing to explain: there is no client, and no exception came from Dask")
        if client is not None and client.asynchronous:
            self._show_later(explain(exc, client))
            return None
        answer: Diagnosis = explain(exc, client)
        return answer

    def _show_later(self, answer: Awaitable[Diagnosis], exc: BaseException | None = None) -> None:
        """
        Show that the cluster is asked, and the answer in that place; the loop meanwhile runs other cells.

        Args:
            answer: Of an asynchronous client.
            exc: The exception under whose cell it is shown, if it is worth that; None: shown in any case.
        """
        place = display(_WAITING, display_id=True)

        async def show() -> None:
            found = await answer
            shown = found if exc is None or _is_worth_showing(found, exc) else f"workerdiag: {found.summary}"
            place.update(shown)
            self._arrived.append((place, shown))

        task = asyncio.get_running_loop().create_task(show())
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    def _show_again(self) -> None:
        """
        For a program that executes notebooks (nbclient): it reads only what the running cell puts out.
        """
        while self._arrived:
            place, shown = self._arrived.pop()
            place.update(shown)

    def _named_client(self, name: str) -> Client:
        from distributed import Client

        client = self._variables.get(name)
        if not isinstance(client, Client):
            raise UsageError(f"{name} must be a variable that holds a distributed.Client")
        return client

    def _client_of(self, exc: BaseException | None) -> Client | None:
        """
        The client that waits for a task of *exc*, or else Dask's default client; None if there is none.
        """
        from distributed import default_client

        tasks = {str(getattr(each, "task", "")) for each in linked_exceptions(exc)} if exc else set()
        for client in self._running_clients():
            if tasks & {str(key) for key in client.futures}:
                return client
        try:
            client = default_client()
        except ValueError:
            return None
        return client if client.status == "running" else None

    def _running_clients(self) -> Iterator[Client]:
        from distributed import Client

        values = list(self._variables.values())
        yield from (each for each in values if isinstance(each, Client) and each.status == "running")


def _is_worth_showing(found: Diagnosis | None, exc: BaseException) -> bool:
    """
    Whether it says why: a death of workers is worth an answer in any case.
    """
    killed = any(is_worker_death(each) for each in linked_exceptions(exc))
    return found is not None and (killed or found.outcome == "explained")


def _last_exception() -> BaseException | None:
    """
    What the shell showed last, if Dask raised it.
    """
    exc: Any = getattr(sys, "last_value", None)
    return exc if isinstance(exc, BaseException) and is_from_dask(exc) else None
