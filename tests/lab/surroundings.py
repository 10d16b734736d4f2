"""The places where people see an exception, and the last line that each shows."""

from __future__ import annotations

import io
import logging
import os
import pickle
import re
import traceback
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from .processes import PATIENCE_S

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_RAISE = "import pickle, pathlib\nraise pickle.loads(pathlib.Path({path!r}).read_bytes())"
#: Width of a terminal that wraps no line of a note.
_COLUMNS = 250


class Surroundings(ExitStack):
    """Formats an exception as each place does; on exit it ends the notebook's kernel.

    Args:
        folder: Folder for the kernel's files.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def check_last_line(self, exc: BaseException, note: str) -> str:
        """Return the last line of *note*, after a check that each place shows it as the last line of *exc*."""
        last_line = note.splitlines()[-1]
        shown = {name: show(exc) for name, show in PLACES.items()} | {"notebook": self.in_notebook(exc)}
        last_lines = {name: _ANSI.sub("", text).rstrip().splitlines()[-1] for name, text in shown.items()}
        assert last_lines == dict.fromkeys(shown, last_line)
        return last_line

    def in_notebook(self, exc: BaseException) -> str:
        """Return a cell's error from a real kernel, which gets the exception pickled as a client does."""
        path = self._folder / "exception.pickle"
        path.write_bytes(pickle.dumps(exc))
        reply = self._kernel.execute_interactive(
            _RAISE.format(path=str(path)), timeout=PATIENCE_S, output_hook=lambda _: None
        )
        return "\n".join(reply["content"]["traceback"])

    @cached_property
    def _kernel(self) -> Any:
        from jupyter_client.manager import KernelManager

        manager = KernelManager(transport="ipc", ip=str(self._folder / "kernel"))
        manager.start_kernel(env={**os.environ, "IPYTHONDIR": str(self._folder)})
        self.callback(manager.shutdown_kernel, now=True)
        client = manager.blocking_client()
        client.start_channels()
        self.callback(client.stop_channels)
        client.wait_for_ready(timeout=PATIENCE_S)
        return client


def in_script(exc: BaseException) -> str:
    """Return the traceback that Python prints at the end of a program."""
    return "".join(traceback.format_exception(exc))


def in_log(exc: BaseException) -> str:
    """Return what ``logger.exception`` writes."""
    record = logging.LogRecord("app", logging.ERROR, "app.py", 1, "failed", (), (type(exc), exc, None))
    return logging.Formatter().format(record)


def in_pytest(exc: BaseException) -> str:
    """Return the last "E" line of a failed test's traceback in pytest's default style."""
    text = str(pytest.ExceptionInfo.from_exception(exc).getrepr(style="long"))
    return [line.removeprefix("E").strip() for line in text.splitlines() if line.startswith("E  ")][-1]


def in_ipython(exc: BaseException) -> str:
    """Return what IPython's terminal shows by default."""
    from IPython.core.ultratb import AutoFormattedTB

    return str(AutoFormattedTB(mode="Context").text(type(exc), exc, exc.__traceback__))


def in_rich(exc: BaseException) -> str:
    """Return Rich's traceback."""
    from rich.console import Console
    from rich.traceback import Traceback

    console = Console(file=io.StringIO(), width=_COLUMNS)
    console.print(Traceback.from_exception(type(exc), exc, exc.__traceback__))
    return console.file.getvalue()


def in_sentry(exc: BaseException) -> str:
    """Return the exception's value in the event of Sentry's SDK; nothing leaves this process."""
    import sentry_sdk
    from sentry_sdk.transport import Transport

    sent = []

    class Kept(Transport):
        def capture_envelope(self, envelope: Any) -> None:
            sent.append(envelope.get_event())

    client = sentry_sdk.Client(
        dsn="https://key@sentry.invalid/1", transport=Kept, default_integrations=False, shutdown_timeout=0
    )
    with sentry_sdk.new_scope() as scope:
        scope.set_client(client)
        scope.capture_exception(exc)
    client.close()
    (event,) = sent
    return str(event["exception"]["values"][-1]["value"])


#: Formats an exception for each place, except a notebook, which needs a kernel.
PLACES: Mapping[str, Callable[[BaseException], str]] = {
    "script": in_script,
    "logging": in_log,
    "pytest": in_pytest,
    "IPython": in_ipython,
    "rich": in_rich,
    "Sentry": in_sentry,
}
