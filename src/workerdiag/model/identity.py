"""
The process, machine and container that a fact is about.
"""

from __future__ import annotations

from attrs import frozen

from workerdiag.model.normalize import normalize_fields


@frozen(kw_only=True, field_transformer=normalize_fields)
class Identity:
    """
    Whose a fact is. Every part may be unknown; a part that contradicts does not match.
    """

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
        """
        Whether both name the same part differently, so that they cannot be one process.
        """
        pairs = (
            (self.worker, other.worker),
            (self.pid, other.pid),
            (self.nanny, other.nanny),
            (self.container, other.container),
            (self.boot_id, other.boot_id),
        )
        differs = any(one is not None and two is not None and one != two for one, two in pairs)
        return differs or self._on_other_host(other)

    def _on_other_host(self, other: Identity) -> bool:
        """
        Whether the hosts differ; a name (syslog has one) and an IP (addresses do) may be one host.
        """
        if self.host is None or other.host is None or is_ip_address(self.host) != is_ip_address(other.host):
            return False
        return self.host != other.host

    def same_process(self, other: Identity) -> bool:
        """
        Whether a part that names one process (worker address or pid) is equal in both.
        """
        return (self.worker is not None and self.worker == other.worker) or (
            self.pid is not None and self.pid == other.pid
        )

    def merged_with(self, other: Identity) -> Identity:
        """
        Both together; what *self* knows wins.
        """
        return Identity(
            worker=self.worker or other.worker,
            pid=self.pid if self.pid is not None else other.pid,
            nanny=self.nanny or other.nanny,
            name=self.name or other.name,
            host=self.host or other.host,
            container=self.container or other.container,
            boot_id=self.boot_id or other.boot_id,
        )


def is_ip_address(host: str) -> bool:
    """
    Whether *host* is an IP address and not a name.
    """
    return ":" in host or host.replace(".", "").isdigit()


NO_IDENTITY = Identity()
