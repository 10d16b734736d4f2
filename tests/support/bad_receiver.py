"""
A receiver of notices that is as bad as receivers get: late, full, broken, or gone after it has read.
"""

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
    """
    Whether the receiver kept a request, whatever it answered.
    """
    return behaviour not in ("error", "limit")


@define(kw_only=True)
class BadReceiver(Generic[R]):
    """
    Keeps every request that it read whole.
    """

    #: Makes a request of body, headers and what the receiver does with it; raises ValueError for a part of one.
    read: Callable[[bytes, Mapping[str, str], str], R]
    #: What it may do with a request, each as often as it stands there: take, late, too-late, cut, error, limit.
    behaviours: tuple[str, ...]
    #: Seconds that the sender waits for an answer.
    timeout_s: float
    #: The header ``Retry-After`` of an answer 429, in seconds.
    retry_after: str
    requests: list[R] = field(factory=list)
    #: From now on it takes all.
    is_kind: bool = False
    url: str = ""

    @contextmanager
    def serving(self) -> Iterator[None]:
        """
        Listen meanwhile.
        """
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
        with suppress(ValueError):  # one that was cut off by the kill is none
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
