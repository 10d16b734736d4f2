"""Private parts of `distributed.Client`: its handlers of the scheduler's messages, and all clients of a process.

What runs in a client touches them: notes in exceptions, and the observer of a program's tests.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workerdiag.model.dask import Method


def stream_handlers(client: object) -> dict[str, Method]:
    """What a client calls for each kind of message from the scheduler (``Client._stream_handlers``), or nothing."""
    handlers = getattr(client, "_stream_handlers", None)
    return handlers if isinstance(handlers, dict) else {}


def is_made_asynchronous(client: object) -> bool:
    """Whether a client was created with ``asynchronous=True`` (``Client._asynchronous``).

    ``Client.asynchronous`` is also true for synchronous clients in a coroutine on their event loop.
    """
    return bool(getattr(client, "_asynchronous", False))


def open_clients() -> list[Any]:
    """The clients that can be asked from this thread (``Client._instances``), the default one first."""
    from distributed import Client
    from distributed.client import _get_global_client

    with suppress(RuntimeError):
        asyncio.get_running_loop()
        return []  # waiting here would stop the loop, on which an answer may depend
    clients = list(Client._instances)  # noqa: SLF001  there is no other way to all of them
    opened = [each for each in clients if each.status == "running" and not each.asynchronous]
    default = _get_global_client()
    return sorted(opened, key=lambda each: each is not default)
