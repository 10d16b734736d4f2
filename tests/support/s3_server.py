"""A store with a real S3 interface (localbucket), with objects that fail as in real stores."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, Literal

from attrs import field, frozen
from localbucket import S3Error, S3Handler

#: How reading a listed object fails: it is forbidden, the object is gone, or the connection breaks off.
Trouble = Literal["forbidden", "vanished", "torn"]

BUCKET = "logs"
SECRET = "do-not-tell-this-secret"


@frozen
class S3Store:
    """A bucket named ``logs``, backed by a folder of files."""

    folder: Path
    storage_options: dict[str, Any]
    #: Objects that fail, by key.
    troubles: dict[str, Trouble]
    #: Key and range of each read request.
    reads: list[tuple[str, str]] = field(factory=list)

    def url(self, key: str = "") -> str:
        """Return the URL of an object, or of the bucket."""
        return f"s3://{BUCKET}/{key}"

    def put(self, key: str, content: bytes, trouble: Trouble | None = None) -> None:
        """Create or change an object."""
        path = self.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        if trouble is not None:
            self.troubles[key] = trouble


@contextmanager
def s3_store(folder: Path) -> Iterator[S3Store]:
    """Serve a store on a free local port until the block ends."""
    (folder / BUCKET).mkdir(parents=True)

    class Handler(_Handler):
        data_root = folder

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    options = {
        "key": "anybody",
        "secret": SECRET,
        "endpoint_url": f"http://127.0.0.1:{server.server_port}",
        "client_kwargs": {"region_name": "us-east-1"},
        "config_kwargs": {"retries": {"max_attempts": 1}},  # s3fs itself tries five times
    }
    store = S3Store(folder=folder / BUCKET, storage_options=options, troubles={})
    Handler.store = store
    try:
        yield store
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(S3Handler):
    """Notes each read, and makes objects fail."""

    store: ClassVar[S3Store]

    def log_message(self, *_: object) -> None:
        """Say nothing on standard error."""

    def _get(self, bucket: str, key: str, include_body: bool) -> None:  # noqa: FBT001  as it is called
        if include_body:
            self.store.reads.append((key, self.headers.get("Range", "")))
            match self.store.troubles.get(key):
                case "forbidden":
                    raise S3Error(HTTPStatus.FORBIDDEN, "AccessDenied", "Access Denied")
                case "vanished":
                    raise S3Error(HTTPStatus.NOT_FOUND, "NoSuchKey", "The specified key does not exist.")
        super()._get(bucket, key, include_body)

    def _send_file(self, status: HTTPStatus, file: Any, start: int, length: int, *others: Any) -> None:
        headers, include_body = others
        if include_body and self.store.troubles.get(Path(file.name).name) == "torn":
            self._send_headers(status, length, headers)
            file.seek(start)
            self.wfile.write(file.read(length // 2))
            self.close_connection = True
            return
        super()._send_file(status, file, start, length, *others)
