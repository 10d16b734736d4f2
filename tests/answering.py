"""
A local HTTP server that answers what a test puts into it, for sources that ask over HTTP.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext
from typing import Self
from urllib.parse import parse_qs, urlsplit

from attrs import define, field, frozen


@frozen
class Answer:
    body: bytes | str | dict | list = b""
    status: int = 200
    type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    #: Seconds to wait before answering.
    after_s: float = 0.0
    #: The body is sent so many times.
    times: int = 1


@frozen
class Asked:
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes


def by_last_part(answers: Mapping[str, Answer], *, otherwise: Answer) -> Callable[[Asked], Answer]:
    """
    Answers a request by the last part of its path.
    """
    return lambda asked: answers.get(asked.path.rpartition("/")[2], otherwise)


@define
class Answering:
    """
    ``answer`` is called with each request; all requests are kept.
    """

    answer: Callable[[Asked], Answer]
    asked: list[Asked] = field(factory=list)
    url: str = ""
    tls: SSLContext | None = None
    _server: ThreadingHTTPServer | None = None

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
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                url = urlsplit(self.path)
                asked = Asked(
                    self.command,
                    url.path,
                    parse_qs(url.query),
                    dict(self.headers.items()),
                    self.rfile.read(length),
                )
                owner.asked.append(asked)
                self._send(owner.answer(asked))

            def _send(self, answer: Answer) -> None:
                time.sleep(answer.after_s)
                body = json.dumps(answer.body) if isinstance(answer.body, dict | list) else answer.body
                data = body.encode() if isinstance(body, str) else body
                try:
                    self.send_response(answer.status)
                    self.send_header("Content-Type", answer.type)
                    self.send_header("Content-Length", str(len(data) * answer.times))
                    for key, value in answer.headers:
                        self.send_header(key, value)
                    self.end_headers()
                    for _ in range(answer.times):
                        self.wfile.write(data)
                except OSError:
                    pass  # the asker has left

            do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _serve  # noqa: N815  http.server's names

            def log_message(self, *_: object) -> None:
                pass

        return Handler
