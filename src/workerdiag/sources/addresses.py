"""Derives identities and hosts from Dask addresses and recorded deaths."""

from __future__ import annotations

from urllib.parse import urlsplit

from attrs import evolve

from workerdiag.model.identity import Identity
from workerdiag.wire.recorded_death import RecordedDeath


def host_of(address: str | None) -> str | None:
    """Return the host in an address such as ``tcp://10.0.0.4:34937``, or None."""
    if not address or "://" not in address:
        return None
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None


def identity_of(
    *, worker: object = None, pid: object = None, nanny: object = None, name: object = None
) -> Identity:
    """Return an identity from values of any type that came over the wire.

    A name equal to the address is dropped: Dask names an unnamed worker by its address.
    """
    address = worker if isinstance(worker, str) and worker else None
    named = None if name is None or name == address else str(name)[:200]
    return Identity(
        worker=address,
        pid=pid if isinstance(pid, int) and not isinstance(pid, bool) and pid > 0 else None,
        nanny=nanny if isinstance(nanny, str) and nanny else None,
        name=named or None,
        host=host_of(address),
    )


def identity_of_death(death: RecordedDeath) -> Identity:
    """Return the identity for the evidence of a recorded death."""
    who = death.identity
    identity = identity_of(worker=who.worker, pid=who.pid, nanny=who.nanny, name=who.name)
    return evolve(identity, boot_id=who.boot_id)
