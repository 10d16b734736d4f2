"""A Kubernetes API server over HTTP that answers from a recording (tests/recordings/kubernetes), or misbehaves.

The bodies are the answers of a kube-apiserver 1.20 after a real death (tests/lab_kubernetes). Selecting,
limiting and looking up by name follow the API reference.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from workerdiag.model.identity import Identity
from workerdiag.model.scene import Location, Scene, Victim

RECORDINGS = Path(__file__).parents[1] / "recordings" / "kubernetes"
USER = "system:serviceaccount:dask:reader"
_PATH = re.compile(
    r"/api/v1(?:/namespaces/(?P<namespace>[\w-]+))?/(?P<kind>\w+)(?:/(?P<name>[\w.-]+)(?P<log>/log)?)?"
)
#: The field of each field selector (kube-apiserver, fields of pods and events).
_FIELDS = {"reason": "reason", "type": "type"}
_FLOOD = 100 * 2**20

#: The expected cause of each recording, from the answers of Kubernetes alone.
CAUSES = {
    "oom-killed": "kubernetes.oom-killed",
    "exit-3": "code.process-exit",
    "segfault": "signal.segfault",
    "killed-9": "external.sigkill",
    "evicted-scratch": "kubernetes.evicted",
    "eviction-api": "kubernetes.deleted",  # 1.20 leaves the same traces for both
    "preempted": "kubernetes.preempted",
    "node-lost": "kubernetes.node-lost",
    "image-pull": "kubernetes.image-pull",
    "unschedulable": "kubernetes.unschedulable",
    "deleted": "kubernetes.deleted",
    "liveness": "kubernetes.probe-failed",
    "sidecar-oom": "code.process-exit",
    "quota": "kubernetes.unschedulable",
    "command-missing": "kubernetes.container-create-failed",
    "secret-missing": "kubernetes.container-create-failed",
    "crash-at-start": "exception.preload-failed",
    "deadline": "kubernetes.deadline",
    "restarted-since": "kubernetes.oom-killed",
}


def recording(name: str) -> dict[str, Any]:
    """Return the recording of that name."""
    return json.loads((RECORDINGS / f"{name}.json").read_text())


def scene_of(recorded: Mapping[str, Any], **changes: Any) -> Scene:
    """Return the scene of a recorded death, in a cluster that the operator calls ``lab``."""
    victims = [Victim(identity=Identity(**each["identity"]), when=each["when"]) for each in recorded["victims"]]
    times = [each.when for each in victims] or [time.time()]
    environment = {
        "KUBERNETES_SERVICE_HOST": "10.96.0.1",
        "DASK_SCHEDULER_ADDRESS": "tcp://lab-scheduler.default.svc.cluster.local:8786",
    }
    place = Location(role="scheduler", identity=Identity(host="10.88.0.1"), environment=environment)
    whole = {
        "victims": tuple(victims),
        "locations": (place,),
        "since": min(times) - 900 if victims else None,
        "until": max(times) + 120 if victims else None,
    }
    return Scene(**{**whole, **changes})


def shifted(recorded: Mapping[str, Any], by_s: float) -> dict[str, Any]:
    """Return the recording with all times *by_s* seconds later."""

    def later(stamp: re.Match[str]) -> str:
        when = datetime.fromisoformat(stamp[0]) + timedelta(seconds=by_s)
        return when.strftime("%Y-%m-%dT%H:%M:%SZ")

    whole = json.loads(re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z", later, json.dumps(recorded)))
    for victim in whole["victims"]:
        victim["when"] += by_s
    return whole


class Server(ThreadingHTTPServer):
    """Answers from *recorded*, unless it misbehaves on purpose."""

    daemon_threads = True

    def __init__(
        self,
        recorded: Mapping[str, Any],
        *,
        then: Mapping[str, Any] | None = None,
        forbidden: Sequence[str] = (),
        does: str = "",
        ahead_s: float = 0.0,
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.recorded = recorded
        #: The recording used after the first list of pods.
        self.then = then
        #: Seconds by which its clock is ahead.
        self.ahead_s = ahead_s
        #: Kinds of objects that this user may not read.
        self.forbidden = forbidden
        #: ``hang``, ``garbage``, ``flood``, ``refuse``, ``expired`` (credentials) or nothing special.
        self.does = does
        #: Methods and paths of requests, in order.
        self.requests: list[tuple[str, str]] = []
        #: Paths of requests that hang until the test sets `over`.
        self.held: list[str] = []
        self.over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def is_hanging(self) -> bool:
        """Whether a request still hangs."""
        return bool(self.held) and not self.over.is_set()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *arguments: object) -> None:
        """Log nothing: pytest shows what matters."""

    def date_time_string(self, timestamp: float | None = None) -> str:
        return super().date_time_string((timestamp or time.time()) + self.server.ahead_s)

    def do_GET(self) -> None:
        self.server.requests.append((self.command, self.path))
        path = urlsplit(self.path)
        if path.path.rstrip("/") == "/version":
            self._say(200, self.server.recorded["version"])
        elif self.server.does:
            self._misbehave()
        else:
            self._answer(_PATH.fullmatch(path.path), {key: each[0] for key, each in parse_qs(path.query).items()})

    def _misbehave(self) -> None:
        does = self.server.does
        if does == "hang":
            self.server.held.append(self.path)
            self.server.over.wait()
        elif does == "garbage":
            self._say_text(200, "<html>\x00 not the API \xff")
        elif does == "expired":
            self._say(401, {"kind": "Status", "code": 401, "message": "Unauthorized"})
        elif does == "refuse":
            self._say(503, {"kind": "Status", "code": 503, "message": "etcdserver: request timed out"})
        else:
            self._flood()

    def _flood(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(_FLOOD))
        self.end_headers()
        try:
            for _ in range(_FLOOD // 2**20):
                self.wfile.write(b'{"items": [' + b" " * (2**20 - 11))
        except OSError:
            pass

    def _answer(self, path: re.Match[str] | None, query: Mapping[str, str]) -> None:
        if path is None:
            self._not_found("")
            return
        kind = "pods/log" if path["log"] else path["kind"]
        if kind in self.server.forbidden:
            verb, scope = ("get" if path["name"] else "list"), f'in the namespace "{path["namespace"]}"'
            message = f'{kind} is forbidden: User "{USER}" cannot {verb} resource "{kind}" in API group "" {scope}'
            self._say(403, {"kind": "Status", "code": 403, "reason": "Forbidden", "message": message})
        elif path["log"]:
            suffix = "/previous" if query.get("previous") == "true" else ""
            text = self.server.recorded["logs"].get(f"{path['name']}/{query['container']}{suffix}")
            self._say_text(200, text) if text else self._say(
                400, {"message": "previous terminated container not found"}
            )
        elif path["name"]:
            found = [each for each in self._objects(path) if each["metadata"]["name"] == path["name"]]
            self._say(200, found[0]) if found else self._not_found(path["name"])
        else:
            self._list(self._objects(path), query)
            if kind == "pods" and self.server.then is not None:
                self.server.recorded = self.server.then

    def _objects(self, path: re.Match[str]) -> list[dict[str, Any]]:
        listed = self.server.recorded.get(path["kind"], [])
        return [each for each in listed if path["namespace"] in (None, each["metadata"].get("namespace"))]

    def _list(self, objects: list[dict[str, Any]], query: Mapping[str, str]) -> None:
        for test in filter(None, query.get("labelSelector", "").split(",")):
            key, _, value = test.partition("=")
            objects = [each for each in objects if each["metadata"].get("labels", {}).get(key) == value]
        for test in filter(None, query.get("fieldSelector", "").split(",")):
            objects = [each for each in objects if _fits(each, test)]
        most = int(query.get("limit", 10**6))
        more = {"continue": "there-is-more"} if len(objects) > most else {}
        self._say(200, {"kind": "List", "apiVersion": "v1", "metadata": more, "items": objects[:most]})

    def _not_found(self, name: str) -> None:
        self._say(404, {"kind": "Status", "code": 404, "reason": "NotFound", "message": f'"{name}" not found'})

    def _say(self, status: int, body: object) -> None:
        self._say_text(status, json.dumps(body))

    def _say_text(self, status: int, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _fits(each: Mapping[str, Any], test: str) -> bool:
    key, wanted, value = re.fullmatch(r"([\w.]+)(!?=)=?(.*)", test).groups()
    found: Any = each
    for step in key.split("."):
        found = (found or {}).get(step)
    return ((found or "") == value) == (wanted == "=")


@contextmanager
def serve(recorded: Mapping[str, Any], **changes: Any) -> Iterator[Server]:
    """Serve *recorded* on this machine."""
    with Server(recorded, **changes) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            server.shutdown()
