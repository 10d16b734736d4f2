"""The process, machine and container that a fact is about."""

from __future__ import annotations

from urllib.parse import urlsplit

from workerdiag.model.normalize import normalize_fields
from workerdiag.values import frozen


@frozen(kw_only=True, field_transformer=normalize_fields)
class Identity:
    """The process that a fact is about. Every part may be unknown; known parts must be equal to match."""

    #: Address the scheduler knows the worker by, e.g. ``tcp://10.0.0.4:34937``.
    worker: str | None = None
    #: Process id of the worker process, on its own host and in its own pid namespace.
    pid: int | None = None
    #: Address of the nanny, which outlives its worker processes.
    nanny: str | None = None
    #: Name the worker was given (``--name``, or by the cluster object).
    name: str | None = None
    host: str | None = None
    #: Pod, container or batch job the process ran in.
    container: str | None = None
    #: Which start of the machine it ran in (``/proc/sys/kernel/random/boot_id``).
    boot_id: str | None = None

    def conflicts_with(self, other: Identity) -> bool:
        """Whether a part known to both differs, so that they cannot be one process."""
        return (
            differ(self.worker, other.worker)
            or differ(self.pid, other.pid)
            or differ(self.nanny, other.nanny)
            or differ(self.container, other.container)
            or differ(self.boot_id, other.boot_id)
            # a name (as in syslog) and an IP address may be one host
            or (differ(self.host, other.host) and is_ip_address(self.host or "") == is_ip_address(other.host or ""))
        )

    def same_process(self, other: Identity) -> bool:
        """Whether both are one process: by the worker's address, or by the pid if nothing else differs.

        A nanny may still have the address of the previous worker: with the same nanny, the pid counts.
        """
        if differ(self.pid, other.pid) or differ(self.boot_id, other.boot_id):
            return False
        if self.worker is not None and self.worker == other.worker:
            return True
        if self.pid is None or other.pid is None:
            return False
        same_nanny = self.nanny is not None and self.nanny == other.nanny
        return same_nanny or not self.conflicts_with(other)

    def merged_with(self, other: Identity) -> Identity:
        """Both combined; *self* has precedence."""
        return Identity(
            worker=self.worker or other.worker,
            pid=self.pid if self.pid is not None else other.pid,
            nanny=self.nanny or other.nanny,
            name=self.name or other.name,
            host=self.host or other.host,
            container=self.container or other.container,
            boot_id=self.boot_id or other.boot_id,
        )


def differ(one: object, other: object) -> bool:
    """Whether both are known and not equal."""
    return one is not None and other is not None and one != other


def is_ip_address(host: str) -> bool:
    """Whether *host* is an IP address, not a name."""
    return ":" in host or host.replace(".", "").isdigit()


NO_IDENTITY = Identity()


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
