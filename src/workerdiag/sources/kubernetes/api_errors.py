"""Reasons why the API server did not answer, each with one command that helps."""

from __future__ import annotations

import json
import re
import shlex

from attrs import define

from workerdiag.errors import error_text
from workerdiag.model.vocabulary import GapReason

_USER = re.compile(r'User "([^"\s]{1,200})"')
#: Kinds without a namespace, which need a ``clusterrole`` to read.
_CLUSTER_WIDE = ("nodes",)


@define(eq=False)
class UnansweredError(Exception):
    """The API server did not answer a request."""

    #: As in `Gap.reason`.
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


def http_failure(
    status: int, body: bytes, *, verb: str, kind: str, namespace: str, path: str
) -> UnansweredError:
    """Return why the server refused, with the command that grants the permission.

    *verb* and *kind* are as in roles (``list``, ``pods/log``); *namespace* is empty for objects without one.
    """
    message = _status_message(body) or f"{verb} {kind}: HTTP status {status}"
    if status == 401:
        return UnansweredError("forbidden", f"not logged in: {message}", "kubectl auth can-i list pods")
    if status == 403:
        user = _USER.search(message)
        return UnansweredError(
            "forbidden", message, _grant_command(kind, namespace, user[1] if user else "ME")
        )
    return UnansweredError("unreachable", message, kubectl_command(path, namespace))


def kubectl_command(path: str, namespace: str) -> str:
    """Return the ``kubectl`` command for the same request."""
    scope = f"-n {shlex.quote(namespace)} " if namespace else ""
    if path.endswith("/log"):
        return f"kubectl {scope}logs {shlex.quote(path.split('/')[1])}"
    return f"kubectl {scope}get {shlex.quote(path)}"


def _status_message(body: bytes) -> str:
    try:
        status = json.loads(body)
    except ValueError:
        return ""
    return str(status.get("message", ""))[:500] if isinstance(status, dict) else ""


def _grant_command(kind: str, namespace: str, user: str) -> str:
    if kind in _CLUSTER_WIDE:
        role, scope = "clusterrole", ""
    else:
        role, scope = "role", f" -n {shlex.quote(namespace)}"
    name = f"workerdiag-{kind.replace('/', '-')}"
    made = f"kubectl{scope} create {role} {name} --verb=get,list --resource={kind}"
    return f"{made} && kubectl{scope} create {role}binding {name} --{role}={name} --user={shlex.quote(user)}"
