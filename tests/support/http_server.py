"""A local HTTP server with answers from a test, for sources that query over HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext
from typing import Self
from urllib.parse import parse_qs, urlsplit

from attrs import define, field, frozen

#: Seconds between two drops; less than any time-out of an SDK.
_DRIP_S = 0.02
#: Number of announced drops: more than fall in twenty minutes.
_DRIPS = 2**16
#: How long to wait for the request of an abandoned thread, in seconds.
_LATE_S = 10.0


@frozen
class HttpAnswer:
    body: bytes | str | dict | list = b""
    status: int = 200
    type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    #: Whether it answers nothing until the server ends.
    hangs: bool = False
    #: How many times to send the body.
    times: int = 1
    #: Whether one more byte follows now and then until the server ends.
    drips: bool = False


@frozen
class HttpRequest:
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes


def by_last_path_part(
    answers: Mapping[str, HttpAnswer], *, otherwise: HttpAnswer
) -> Callable[[HttpRequest], HttpAnswer]:
    """Return a function that answers a request by the last part of its path."""
    return lambda request: answers.get(request.path.rpartition("/")[2], otherwise)


@define
class HttpServer:
    """Calls ``answer`` with each request, and keeps all requests."""

    answer: Callable[[HttpRequest], HttpAnswer]
    requests: list[HttpRequest] = field(factory=list)
    url: str = ""
    tls: SSLContext | None = None
    #: Set once a request came whose answer does not end before the server ends.
    _holds: threading.Event = field(factory=threading.Event)
    _over: threading.Event = field(factory=threading.Event)
    _server: ThreadingHTTPServer | None = None

    def is_hanging(self) -> bool:
        """Whether somebody asked and has no complete answer yet.

        On a busy machine it waits for a thread that was abandoned before it could ask.
        """
        return self._holds.wait(_LATE_S) and not self._over.is_set()

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        if self.tls is not None:
            self._server.socket = self.tls.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if self.tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        self._over.set()
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                url = urlsplit(self.path)
                request = HttpRequest(
                    self.command,
                    url.path,
                    parse_qs(url.query),
                    dict(self.headers.items()),
                    self.rfile.read(length),
                )
                owner.requests.append(request)
                answer = owner.answer(request)
                if answer.hangs or answer.drips:
                    owner._holds.set()
                if answer.hangs:
                    owner._over.wait()
                else:
                    self._send(answer)

            def _send(self, answer: HttpAnswer) -> None:
                body = json.dumps(answer.body) if isinstance(answer.body, dict | list) else answer.body
                data = body.encode() if isinstance(body, str) else body
                try:
                    self.send_response(answer.status)
                    self.send_header("Content-Type", answer.type)
                    length = len(data) * answer.times + (_DRIPS if answer.drips else 0)
                    self.send_header("Content-Length", str(length))
                    for key, value in answer.headers:
                        self.send_header(key, value)
                    self.end_headers()
                    for _ in range(answer.times):
                        self.wfile.write(data)
                    while answer.drips and not owner._over.wait(_DRIP_S):
                        self.wfile.write(b" ")
                except OSError:
                    pass  # the client has left

            do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _serve  # noqa: N815  http.server's names

            def log_message(self, *_: object) -> None:
                pass

        return Handler
