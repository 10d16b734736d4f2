"""The one rule for whether two of the recorder's messages describe the same death."""

from __future__ import annotations

from collections.abc import Collection

from attrs import asdict, evolve, frozen

from workerdiag.model.identity import differ

#: Largest distance of messages about the same pid: clocks differ, and a death may be noticed late.
_SAME_PID_S = 600.0
#: The same without a pid: another process may soon have the address.
_SAME_ADDRESS_S = 60.0


@frozen(kw_only=True)
class DeathIdentity:
    """The parts of a message that identify a death. None: unknown."""

    #: Address; a nanny may still have that of the worker before.
    worker: str | None = None
    #: Given to the worker; others may have the same.
    name: str | None = None
    pid: int | None = None
    #: Address.
    nanny: str | None = None
    boot_id: str | None = None
    #: Name of the machine by its own account.
    host: str | None = None
    #: Seconds since the epoch, by the clock of whoever noticed it.
    noticed_at: float | None = None
    #: The message is of a box found later, or was delivered late: its time says little.
    found_later: bool = False

    def or_else(self, other: DeathIdentity) -> DeathIdentity:
        """Both in one; the parts known here win."""
        return evolve(other, **asdict(self, filter=lambda _, value: value is not None))

    def conflicts_with(self, other: DeathIdentity) -> bool:
        """Whether the two are certainly different processes."""
        return (
            differ(self.pid, other.pid)
            or differ(self.boot_id, other.boot_id)
            or differ(self.host, other.host)
        )


def same_death(one: DeathIdentity, other: DeathIdentity) -> bool:
    """Whether both describe the end of one process.

    Either the worker's address is equal, or pid and nanny are: a nanny may not yet have the address of a
    worker that dies right after its start. A pid alone is not enough, since each container has a pid 7.
    """
    if one.conflicts_with(other):
        return False
    same_pid = _are_equal(one.pid, other.pid)
    if not _are_equal(one.worker, other.worker) and not (same_pid and _are_equal(one.nanny, other.nanny)):
        return False
    if one.noticed_at is None or other.noticed_at is None:
        return True
    if same_pid and (one.found_later or other.found_later):
        return True
    return abs(one.noticed_at - other.noticed_at) <= (_SAME_PID_S if same_pid else _SAME_ADDRESS_S)


def is_known_death(known: Collection[DeathIdentity], new: DeathIdentity) -> bool:
    """Whether *new* is the death that all of *known* describe, of which each may know another part."""
    return any(same_death(each, new) for each in known) and not any(
        each.conflicts_with(new) for each in known
    )


def _are_equal(one: object, other: object) -> bool:
    return one is not None and one == other
