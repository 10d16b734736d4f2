"""Grafana Loki: the logs of dead workers, found by their names in stream labels."""

from __future__ import annotations

import json
import os
import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from http.client import HTTPMessage
from typing import IO, Any, ClassVar, Self
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from workerdiag.deadline import Deadline
from workerdiag.model.evidence import Evidence, Gap, Inspected, LogChunk
from workerdiag.model.identity import Identity
from workerdiag.model.scene import Scene, Terms, Victim
from workerdiag.settings import setting
from workerdiag.sources import machine
from workerdiag.sources.machine import ProviderQuery, ProviderSource, request_timeout_s
from workerdiag.values import frozen

#: Labels with the name of a pod, task or job, as the agents set them (promtail, Alloy, Fluent Bit,
#: the Docker driver, OpenTelemetry), the commonest first.
_OWN_LABELS = ("pod", "pod_name", "k8s_pod_name", "kubernetes_pod_name", "container_name", "container")
_HOST_LABELS = ("host", "hostname", "instance", "node", "node_name", "nodename", "host_name")
#: Names that need no escaping in a selector.
_PLAIN = re.compile(r"[\w.:-]+")
_MAX_BYTES = 4 * 2**20


@frozen
class LokiSource(ProviderSource):
    """Reads the end of streams whose labels name a dead worker, or else lines about it in its host's streams.

    The address is ``workerdiag.loki.url`` in Dask's configuration, or ``LOKI_ADDR`` as for logcli;
    ``LOKI_BEARER_TOKEN`` and ``LOKI_ORG_ID`` are passed on.
    """

    name: ClassVar[str] = "Loki"
    terms: ClassVar[Terms] = Terms(
        lasts_s=31 * 86400.0,
        permission="read access to the tenant",
        cost="at most three queries for each of at most eight workers",
    )

    _url: str

    @classmethod
    def of(cls, scene: Scene) -> Self | None:
        """Return the source if Loki's address is configured and a worker died, else None."""
        url = setting("loki.url") or os.environ.get("LOKI_ADDR")
        known = isinstance(url, str) and urlsplit(url).scheme in ("http", "https")
        return cls(scene, str(url).rstrip("/")) if known and scene.victims else None

    def _queries(self, deadline: Deadline) -> Iterator[ProviderQuery]:
        api = _LokiApi(self._url, deadline)
        labels: list[str] = []
        logcli = f"logcli {shlex.quote(f'--addr={self._url}')}"
        yield ProviderQuery("/loki/api/v1/labels", f"{logcli} labels", partial(_fetch_labels, api, labels))
        for victim in self.scene.victims:
            missed = self._missed(victim) or self.scene.until or time.time()
            yield ProviderQuery(
                "/loki/api/v1/query_range",
                f"{logcli} query {_query_argument(victim)}",
                partial(_worker_evidence, api, labels, victim, missed),
            )


def _query_argument(victim: Victim) -> str:
    name = victim.identity.name or ""
    if _PLAIN.fullmatch(name) or not name:
        return shlex.quote(f'{{pod=~"{name}.*"}}')
    return shlex.quote(f"{{pod={json.dumps(name, ensure_ascii=False)}}}")


class _SameHostRedirects(HTTPRedirectHandler):
    """Refuses redirects to another host, which must not get the token and the tenant."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        before, after = urlsplit(req.full_url), urlsplit(newurl)
        if (before.scheme, before.netloc) != (after.scheme, after.netloc):
            return None
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@frozen
class _LokiApi:
    url: str
    deadline: Deadline

    def get(self, path: str, **params: str | int) -> Any:
        request = Request(f"{self.url}{path}?{urlencode(params)}", headers=dict(_headers()))  # noqa: S310  http or https
        try:
            timeout_s = request_timeout_s(self.deadline)
            with build_opener(_SameHostRedirects).open(request, timeout=timeout_s) as answer:
                body = answer.read(_MAX_BYTES + 1)
        except HTTPError as refused:
            detail = refused.read(300).decode("utf-8", errors="replace")
            raise OSError(f"HTTP status {refused.code}: {detail}") from None
        if len(body) > _MAX_BYTES:
            raise ValueError(f"the answer is longer than {_MAX_BYTES} bytes")
        answered = json.loads(body)
        if not isinstance(answered, dict) or answered.get("status") != "success":
            raise ValueError("the answer is not Loki's")
        return answered["data"]


def _headers() -> Iterator[tuple[str, str]]:
    if token := os.environ.get("LOKI_BEARER_TOKEN"):
        yield "Authorization", f"Bearer {token}"
    if tenant := os.environ.get("LOKI_ORG_ID"):
        yield "X-Scope-OrgID", tenant


def _fetch_labels(api: _LokiApi, labels: list[str]) -> Iterator[Evidence]:
    labels += api.get("/loki/api/v1/labels")
    yield from ()


def _worker_evidence(api: _LokiApi, labels: Sequence[str], victim: Victim, missed: float) -> Iterator[Evidence]:
    """Yield the worker's own streams, or else the lines of its host that name it."""
    window: dict[str, str | int] = {
        "start": int((missed - 900.0) * 1e9),
        "end": int((missed + 60.0) * 1e9),
        "limit": 5000,
        "direction": "backward",
    }
    for selector, own in _selectors(labels, victim.identity):
        streams = api.get("/loki/api/v1/query_range", query=selector, **window)["result"]
        chunks = [_stream_chunk(each, victim.identity, own=own) for each in streams]
        if chunks:
            yield from chunks
            if own:
                yield Inspected(place="worker log", identity=victim.identity)
            return
    detail = f"no stream is labelled with the name or host of {victim.identity.worker or victim.identity.name}"
    remedy = f"logcli {shlex.quote(f'--addr={api.url}')} series '{{}}'"
    yield Gap(source=LokiSource.name, reason="never-recorded", detail=detail, remedy=remedy)


def _selectors(labels: Sequence[str], identity: Identity) -> Iterator[tuple[str, bool]]:
    """Yield queries to try, each with whether its streams are the worker's own."""
    for known in (identity.container, identity.name):
        for label in _OWN_LABELS:
            # Short names such as "0" occur in every cluster.
            if known and len(known) > 3 and _PLAIN.fullmatch(known) and label in labels:
                yield f'{{{label}=~"{known.replace(".", "[.]")}(-.*)?"}}', True
    for label in _HOST_LABELS:
        if identity.host and identity.worker and _PLAIN.fullmatch(identity.host) and label in labels:
            line = json.dumps(identity.worker)
            yield f'{{{label}=~"{identity.host.replace(".", "[.]")}(:.*|[.].*)?"}} |= {line}', False


def _stream_chunk(stream: Mapping[str, Any], victim: Identity, *, own: bool) -> LogChunk:
    labels = stream["stream"]
    lines = sorted((int(at), str(line)) for at, line, *_ in stream["values"])
    data = "".join(f"{line}\n" for _, line in lines).encode()
    pod = next((labels[each] for each in _OWN_LABELS[:4] if each in labels), None)
    in_pod = machine.without_pid(victim.merged_with(Identity(container=pod)))
    identity = in_pod if own else Identity(host=victim.host)
    name = ", ".join(f"{key}={value}" for key, value in sorted(labels.items())[:6])
    return LogChunk(origin=f"loki {{{name}}}"[:200], data=data, identity=identity)
