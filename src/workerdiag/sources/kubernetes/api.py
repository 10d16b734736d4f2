"""A read-only client of the Kubernetes API, with few requests bounded in time and bytes; failures become gaps.

kr8s (0.20), which dask-kubernetes also uses, finds the credentials inside and outside a cluster. The server's
JSON (core/v1) is read without trusting its structure, and each gap has one command that helps.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import time
import warnings
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from attrs import define

from workerdiag.deadline import Deadline
from workerdiag.errors import error_text
from workerdiag.model.evidence import Gap
from workerdiag.model.vocabulary import GapReason
from workerdiag.units import parse_timestamp

SOURCE_NAME = "Kubernetes"
MAX_BYTES = 4 * 2**20
#: File with a pod's namespace (Kubernetes documentation, "Accessing the API from a Pod").
_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class KubernetesApi:
    """The API server, for one round of requests; *note* is called with every gap."""

    def __init__(self, note: Callable[[Gap], None], deadline: Deadline) -> None:
        self._note = note
        self._deadline = deadline
        self._request_s = deadline.share(0.5, at_least_s=0.1).left_s
        self._noted_gaps: set[tuple[str, str]] = set()
        self._bytes_left = MAX_BYTES
        self._turn = asyncio.Semaphore(4)
        self._api: Any = None
        #: Seconds by which its clock is ahead of ours; None before the first response.
        self.ahead_s: float | None = None

    async def open(self) -> None:
        """Find credentials and check the server; raises UnansweredError without a server."""
        try:
            from kr8s.asyncio import api
        except ImportError:
            remedy = "pip install 'workerdiag[kubernetes]'"
            raise self._noted("", UnansweredError("not-installed", "kr8s is not installed", remedy)) from None
        try:
            async with asyncio.timeout(self._request_s):
                with warnings.catch_warnings():
                    # kr8s warns of servers newer or older than those it was tested with.
                    warnings.filterwarnings("ignore", "Kubernetes version .* is not supported")
                    self._api = await api()
                self._api.timeout = self._request_s
        except Exception as problem:  # kr8s, httpx and credential plug-ins raise anything
            raise self._noted("", connection_failure(problem)) from problem

    @property
    def namespace(self) -> str:
        """The namespace of this pod, or else of the kubeconfig's context."""
        try:
            inside = not self._api.auth.active_context and _OWN_NAMESPACE.read_text().strip()
        except OSError:
            inside = ""
        return inside or str(self._api.namespace)

    async def items(
        self, kind: str, *, namespace: str, labels: str = "", fields: str = "", most: int
    ) -> tuple[list[dict[str, object]], bool]:
        """Return at most *most* objects of a kind (``pods``), and whether these are all; raises UnansweredError."""
        selectors = {"labelSelector": labels, "fieldSelector": fields}
        params = {"limit": str(most), **{key: text for key, text in selectors.items() if text}}
        answer = await self._object(kind, "list", namespace, kind, params) or {}
        if not isinstance(answer.get("items"), list):
            detail = f"the list of {kind} has no items"
            raise self._noted(kind, UnansweredError("malformed", detail, "kubectl version"))
        return mappings_at(answer, "items"), not mapping_at(answer, "metadata").get("continue")

    async def item(self, kind: str, name: str, *, namespace: str = "") -> dict[str, object] | None:
        """Return one object, or None if none has that name; raises UnansweredError."""
        return await self._object(kind, "get", namespace, f"{kind}/{name}", {})

    async def log(self, pod: str, *, namespace: str, params: Mapping[str, str], most_bytes: int) -> bytes:
        """Return a container's log, at most *most_bytes*; raises UnansweredError."""
        path = f"pods/{pod}/log"
        try:
            async with asyncio.timeout(3.0):  # a kubelet has it, whose node may be lost
                status, body, _ = await self._get("pods/log", "get", namespace, path, params, most_bytes)
        except TimeoutError:
            detail = "the node that has the log did not answer in time"
            late = UnansweredError("timed-out", detail, kubectl_command(path, namespace))
            raise self._noted("pods/log", late) from None
        return body if status == 200 else b""

    async def _object(
        self, kind: str, verb: str, namespace: str, path: str, params: Mapping[str, str]
    ) -> dict[str, object] | None:
        status, body, cut = await self._get(kind, verb, namespace, path, params, MAX_BYTES)
        if status == 404:
            return None
        answer = None if cut else _parse_json(body)
        if isinstance(answer, dict):
            return answer
        what = f"is longer than {len(body)} bytes" if cut else "is not a JSON object"
        detail, remedy = f"the answer to {verb} {kind} {what}", kubectl_command(path, namespace)
        raise self._noted(kind, UnansweredError("malformed", detail, remedy))

    async def _get(
        self, kind: str, verb: str, namespace: str, path: str, params: Mapping[str, str], most_bytes: int
    ) -> tuple[int, bytes, bool]:
        try:
            async with self._turn, asyncio.timeout(min(self._request_s, self._deadline.left_s)):
                status, body, cut = await self._read(namespace, path, params, most_bytes)
        except Exception as problem:  # as in open()
            raise self._noted(kind, connection_failure(problem)) from problem
        no_such_log = status == 400 and kind == "pods/log"  # no such container, or not yet
        if status in (200, 404) or no_such_log:
            return status, body, cut
        refusal = http_failure(status, body, verb=verb, kind=kind, namespace=namespace, path=path)
        raise self._noted(kind, refusal)

    async def _read(
        self, namespace: str, path: str, params: Mapping[str, str], most_bytes: int
    ) -> tuple[int, bytes, bool]:
        call = self._api.call_api(
            "GET",
            version="v1",
            namespace=namespace or None,
            url=path,
            params=dict(params),
            raise_for_status=False,
            stream=True,
            headers={"Accept-Encoding": "identity"},  # so that few bytes cannot become many
        )
        most_bytes = min(most_bytes, self._bytes_left)
        body = bytearray()
        async with call as response:
            self._compare_clocks(response.headers.get("date"))
            async for block in response.aiter_bytes():
                body += block
                if len(body) > most_bytes:
                    break
            status: int = response.status_code
        self._bytes_left -= min(len(body), most_bytes)
        return status, bytes(body[:most_bytes]), len(body) > most_bytes

    def _compare_clocks(self, date: str | None) -> None:
        try:
            theirs = parsedate_to_datetime(date or "").timestamp() + 0.5  # whole seconds, rounded down
        except ValueError:
            return
        if self.ahead_s is None:
            self.ahead_s = theirs - time.time()

    def _noted(self, kind: str, error: UnansweredError) -> UnansweredError:
        if (kind, error.reason) not in self._noted_gaps:
            self._noted_gaps.add((kind, error.reason))
            name = f"{SOURCE_NAME} {kind}".strip()
            self._note(Gap(source=name, reason=error.reason, detail=error.detail[:500], remedy=error.remedy))
        return error


_USER = re.compile(r'User "([^"\s]{1,200})"')


@define(eq=False)
class UnansweredError(Exception):
    """The API server did not answer a request."""

    reason: GapReason
    detail: str
    #: The command that fixes the cause, or sends the same request.
    remedy: str


def connection_failure(problem: Exception) -> UnansweredError:
    """Return why there was no response, from an exception of kr8s or its HTTP client."""
    name = type(problem).__name__
    detail = f"{name}: {error_text(problem)}"[:500].rstrip(": ")
    if isinstance(problem, TimeoutError) or "Timeout" in name:
        return UnansweredError("timed-out", detail, "kubectl get --raw /readyz")
    if isinstance(problem, ValueError) and "credentials" in detail:
        detail = "no kubeconfig and no service account of a pod were found here"
        return UnansweredError("forbidden", detail, "kubectl config current-context")
    response = getattr(problem, "response", None)
    if getattr(response, "status_code", None) in (401, 403):
        return UnansweredError("forbidden", detail, "kubectl auth can-i list pods")
    return UnansweredError("unreachable", detail, "kubectl cluster-info")


def http_failure(status: int, body: bytes, *, verb: str, kind: str, namespace: str, path: str) -> UnansweredError:
    """Return why the server refused, with the command that grants the permission.

    *verb* and *kind* are as in roles (``list``, ``pods/log``); *namespace* is empty for objects without one.
    """
    described = text_at(_parse_json(body), "message")[:500]
    message = described or f"{verb} {kind}: HTTP status {status}"
    if status == 401:
        return UnansweredError("forbidden", f"not logged in: {message}", "kubectl auth can-i list pods")
    if status == 403:
        user = _USER.search(message)
        command = _grant_command(kind, namespace, user[1] if user else "ME")
        return UnansweredError("forbidden", message, command)
    return UnansweredError("unreachable", message, kubectl_command(path, namespace))


def kubectl_command(path: str, namespace: str) -> str:
    """Return the ``kubectl`` command for the same request."""
    scope = f"-n {shlex.quote(namespace)} " if namespace else ""
    if path.endswith("/log"):
        return f"kubectl {scope}logs {shlex.quote(path.split('/')[1])}"
    return f"kubectl {scope}get {shlex.quote(path)}"


def _parse_json(body: bytes) -> object:
    try:
        return json.loads(body)
    except ValueError:
        return None


def _grant_command(kind: str, namespace: str, user: str) -> str:
    if kind == "nodes":  # which have no namespace
        role, scope = "clusterrole", ""
    else:
        role, scope = "role", f" -n {shlex.quote(namespace)}"
    name = f"workerdiag-{kind.replace('/', '-')}"
    made = f"kubectl{scope} create {role} {name} --verb=get,list --resource={kind}"
    return f"{made} && kubectl{scope} create {role}binding {name} --{role}={name} --user={shlex.quote(user)}"


#: ``resource.Quantity`` of apimachinery.
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "m": 1e-3} | {
    f"{letter}i": 2 ** (10 * power) for power, letter in enumerate("KMGT", start=1)
}


def mapping_at(value: object, *keys: str) -> dict[str, object]:
    """Return the mapping below *keys*, or an empty one."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def mappings_at(value: object, key: str) -> list[dict[str, object]]:
    """Return the mappings in the list under *key*, or none."""
    found = value.get(key) if isinstance(value, dict) else None
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def text_at(value: object, key: str) -> str:
    """Return the text under *key*, or ""."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


def time_at(value: object, key: str) -> float | None:
    """Return the time under *key* in seconds since the epoch, or None."""
    return parse_timestamp(text_at(value, key))


def parse_quantity(amount: object) -> int | None:
    """Return an amount such as ``350Mi`` in bytes, or None."""
    found = re.fullmatch(r"(\d{1,18}(?:\.\d{1,6})?)([A-Za-z]{0,2})", str(amount))
    if not found or found[2] not in _UNITS:
        return None
    return int(float(found[1]) * _UNITS[found[2]])
