"""Connects to a scheduler by its address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Client


def connect(address: str, *, timeout_s: float, name: str = "workerdiag") -> Client:
    """Return a synchronous client that is not the default client; the caller closes it.

    Raises:
        Exception: Whatever Dask raises for an invalid address, or if no scheduler answers there.
    """
    import distributed

    kind: Any = distributed.Client
    client = kind.__new__(kind)
    try:
        client.__init__(address, timeout=timeout_s, set_as_default=False, name=name)
    except BaseException:
        # Dask's __del__ would wait twice the time-out for a loop that never started (client.py).
        client.status = "closed"
        raise
    made: Client = client
    return made
