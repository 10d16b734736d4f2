"""The client's own state, where its scheduler does not answer: what it says, and what its address says."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator

from workerdiag.deadline import Deadline
from workerdiag.guard import guarded
from workerdiag.model.dask import Client
from workerdiag.model.evidence import Event

#: What an address says by the error of a connection (``man 2 connect``).
_ANSWER_OF_ERROR = {
    errno.ECONNREFUSED: "refused",
    errno.EHOSTUNREACH: "no-route",
    errno.ENETUNREACH: "no-route",
    errno.ETIMEDOUT: "no-answer",
}


def client_state_events(client: Client, deadline: Deadline) -> Iterator[Event]:
    """Yield one event: the status of the client, of its scheduler's address, and of a scheduler in this process.

    The address is connected to once, for at most a second, and nothing is sent.
    """
    with guarded("asking the client for its own state"):
        scheduler = getattr(client, "scheduler", None)
        address = str(getattr(scheduler, "address", "") or "")
        cluster = getattr(client, "cluster", None)
        in_process = getattr(cluster, "scheduler", None)
        status = str(getattr(client, "status", "unknown"))
        if address or in_process is not None or status == "closed":
            yield Event(
                topic="client-state",
                fields={
                    "status": status,
                    "address": address or None,
                    "answer": _answer_of(address, deadline.share(at_most_s=1.0).left_s),
                    "cluster": _name_of(getattr(cluster, "status", None)),
                    "scheduler": _name_of(getattr(in_process, "status", None)),
                },
            )


def _name_of(status: object) -> str | None:
    name = getattr(status, "name", status)
    return name if isinstance(name, str) else None


def _answer_of(address: str, timeout_s: float) -> str | None:
    """What an address of TCP says: ``answers``, ``refused``, ``no-route``, ``no-answer``, ``unknown-host``."""
    protocol, _, place = address.partition("://")
    host, _, port = place.rpartition(":")
    if protocol not in ("tcp", "tls", "ws", "wss") or not port.isdigit() or timeout_s <= 0:
        return None
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s).close()
    except socket.gaierror:
        return "unknown-host"
    except TimeoutError:
        return "no-answer"
    except OSError as problem:
        return _ANSWER_OF_ERROR.get(problem.errno or 0)
    return "answers"
