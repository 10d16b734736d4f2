"""A pytest plugin that asks `explain` beside distributed's own tests, and touches nothing of theirs.

Three kinds of answers: live, before a client closes; with an error of a lost worker, as the client
hands it to the test; and from what the test wrote to standard error, after it. All are appended
to ``answers.jsonl``, and how each test ended to ``results.jsonl``, in the folder that the
environment variable `FOLDER` names. Nobody asks where `SILENT` is set: for comparison.
"""

from __future__ import annotations

import functools
import inspect
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import asdict
from distributed import Client
from distributed.comm import CommClosedError
from distributed.scheduler import KilledWorker, NoValidWorkerError, NoWorkerError

import workerdiag
from peers.answers import Answer, answer_of, write_row
from peers.truths import Asked

if TYPE_CHECKING:
    import pytest

FOLDER = "WORKERDIAG_PEERS"
SILENT = "WORKERDIAG_PEERS_SILENT"
#: Errors that a lost worker leaves a client with; what tasks raise by themselves is the tests' own.
_ERRORS = (KilledWorker, CommClosedError, NoValidWorkerError, NoWorkerError)
#: Answers of one kind about one test; some tests catch hundreds of errors.
_ENOUGH = 2
_TIMEOUT_S = 5


class Results:
    """Writes down how each test ended."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how a part of a test ended."""
        row = {"test": report.nodeid, "when": report.when, "is": report.outcome}
        write_row(self._folder / "results.jsonl", row)


class Observer:
    """Asks about the test that runs, and writes the answers down."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._test = ""
        self._asked: Counter[str] = Counter()
        self._asking = False
        self._bundles = 0

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Begin with the next test."""
        self._test = nodeid
        self._asked.clear()
        self._asking = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """When a test is over, ask about what it wrote to standard error."""
        if report.when != "teardown" or report.skipped:
            return
        text = "".join(said for title, said in report.sections if "stderr" in title)
        if text.strip():
            began = time.perf_counter()
            self._note("log", workerdiag.explain(logs=workerdiag.LogText(text)), began)

    def wants(self, asked: Asked) -> bool:
        """Whether another answer of this kind is of use; not while one is being found."""
        if self._asking:
            return False
        self._asked[asked] += 1
        return self._asked[asked] <= _ENOUGH

    def ask(self, asked: Asked, client: Client, exc: BaseException | None = None) -> None:
        """Ask from a thread of the user's."""
        if self.wants(asked):
            self._asking, began = True, time.perf_counter()
            try:
                self._note(asked, workerdiag.explain(exc, client, timeout=_TIMEOUT_S), began)
            except Exception as problem:  # noqa: BLE001  it promises not to raise: that is an answer, too
                self._note(asked, problem, began)
            finally:
                self._asking = False

    async def ask_async(self, asked: Asked, client: Client, exc: BaseException | None = None) -> None:
        """Ask from a coroutine of the user's."""
        if self.wants(asked):
            self._asking, began = True, time.perf_counter()
            try:
                self._note(asked, await workerdiag.explain(exc, client, timeout=_TIMEOUT_S), began)
            except Exception as problem:  # noqa: BLE001  as above
                self._note(asked, problem, began)
            finally:
                self._asking = False

    def _note(self, asked: Asked, said: workerdiag.Diagnosis | Exception, began: float) -> None:
        seconds = round(time.perf_counter() - began, 3)
        if isinstance(said, Exception):
            answer = Answer(test=self._test, asked=asked, outcome="raised", summary=repr(said), seconds=seconds)
        else:
            self._bundles += 1
            bundle = f"{os.getpid()}-{self._bundles}.zip"
            said.save(self._folder / bundle, redact=False)
            answer = answer_of(said, self._test, asked, bundle=bundle, seconds=seconds)
        write_row(self._folder / "answers.jsonl", asdict(answer))


def pytest_configure(config: pytest.Config) -> None:
    """Watch tests from now on, where a folder for answers is named."""
    config.addinivalue_line("markers", "flaky: of pytest-rerunfailures, which nobody needs here")
    if not (folder := os.environ.get(FOLDER)):
        return
    config.pluginmanager.register(Results(Path(folder)), "workerdiag-results")
    if SILENT not in os.environ:
        observer = Observer(Path(folder))
        config.pluginmanager.register(observer, "workerdiag-peers")
        watch_clients(observer)


def watch_clients(observer: Observer) -> None:
    """Have each client ask before it closes, and when it hands out an error of a lost worker."""
    ways = {"close": _asking_first, "_close": _asking_first_async, "sync": _asking_on_errors}
    for name, asking in ways.items():
        setattr(Client, name, asking(getattr(Client, name), observer))


def _asking_first(close: Callable[..., Any], observer: Observer) -> Callable[..., Any]:
    @functools.wraps(close)
    def asking(self: Client, *args: Any, **kwargs: Any) -> Any:
        if not self.asynchronous and _of_the_test(self):
            observer.ask("live", self)
        return close(self, *args, **kwargs)

    return asking


def _asking_first_async(close: Callable[..., Any], observer: Observer) -> Callable[..., Any]:
    @functools.wraps(close)
    async def asking(self: Client, *args: Any, **kwargs: Any) -> Any:
        if self.asynchronous and _of_the_test(self):
            await observer.ask_async("live", self)
        return await close(self, *args, **kwargs)

    return asking


def _asking_on_errors(sync: Callable[..., Any], observer: Observer) -> Callable[..., Any]:
    @functools.wraps(sync)
    def asking(self: Client, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            result = sync(self, func, *args, **kwargs)
        except _ERRORS as error:
            if _of_the_test(self):
                observer.ask("exception", self, error)
            raise
        return watched(self, result) if inspect.iscoroutine(result) else result

    async def watched(client: Client, result: Any) -> Any:
        try:
            return await result
        except _ERRORS as error:
            if _of_the_test(client):
                await observer.ask_async("exception", client, error)
            raise

    return asking


def _of_the_test(client: Client) -> bool:
    """Whether a test made that client; workers make some for their tasks."""
    return client.status in {"running", "connecting"} and not client.id.startswith("Client-worker")
