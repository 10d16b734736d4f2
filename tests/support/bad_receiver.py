"""A receiver of notices that fails in every way: late, full, broken, or gone after reading."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Generic, TypeVar

from attrs import define, field

R = TypeVar("R")


def is_taken(behaviour: str) -> bool:
    """Whether the receiver kept a request, whatever its answer."""
    return behaviour not in ("error", "limit")


@define(kw_only=True)
class BadReceiver(Generic[R]):
    """Keeps every request that it read completely."""

    #: Parses body, headers and the receiver's behaviour into a request; raises ValueError for a partial
    #: request.
    read: Callable[[bytes, Mapping[str, str], str], R]
    #: Possible behaviours, weighted by how often they are listed: take, late, too-late, cut, error, limit.
    behaviours: tuple[str, ...]
    #: Time-out of the sender, in seconds.
    timeout_s: float
    #: The header ``Retry-After`` of an answer 429, in seconds.
    retry_after: str
    requests: list[R] = field(factory=list)
    #: Whether it takes every request from now on.
    is_kind: bool = False
    url: str = ""

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Listen until the block ends."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"receiver": self}))
        server.daemon_threads = True
        self.url = f"http://127.0.0.1:{server.server_port}/"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    receiver: BadReceiver

    def do_POST(self) -> None:
        behaviour = "take" if self.receiver.is_kind else random.choice(self.receiver.behaviours)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with suppress(ValueError):  # the kill cut it off
            self.receiver.requests.append(self.receiver.read(body, dict(self.headers), behaviour))
        with suppress(OSError):
            self._answer(behaviour)

    def _answer(self, behaviour: str) -> None:
        match behaviour:
            case "cut":
                self.connection.close()
                return
            case "late" | "too-late":
                time.sleep(self.receiver.timeout_s * (0.5 if behaviour == "late" else 1.5))
        self.send_response({"error": 500, "limit": 429}.get(behaviour, 200))
        if behaviour == "limit":
            self.send_header("Retry-After", self.receiver.retry_after)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass
