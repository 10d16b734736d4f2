"""Deaths with real evidence, as a watcher gets them from the recorder's messages."""

from __future__ import annotations

from typing import Any

from support.death_records import NOW, decoded, nanny_report, scheduler_record, worker_address
from workerdiag.incidents import WatchedDeath
from workerdiag.model.identity import identity_of
from workerdiag.sources.recorder.death_evidence import death_evidence
from workerdiag.wire.recorded_death import merge_messages

#: The causes of the deaths below, and the key of each.
OOM, SEGFAULT, EXIT = "nanny.memory-terminate", "signal.segfault", "code.process-exit"


def recorded(number: int, *messages: dict[str, Any], **more: Any) -> WatchedDeath:
    """Return the death that *messages* describe."""
    death = merge_messages(map(decoded, messages))[0]
    identity = identity_of(worker=worker_address(number), pid=number, nanny=death.identity.nanny)
    evidence = tuple(death_evidence([death]))
    return WatchedDeath(
        **{"id": f"death-{number}", "when": death.time, "identity": identity, "evidence": evidence} | more
    )


def killed_by_nanny(number: int, **record: Any) -> WatchedDeath:
    """Return the death of a worker at its memory limit."""
    box = {"stage": "running", "written_at": NOW + number, "samples": ()}
    ending = {"signal": 9, "known_by": "nanny"}
    report = nanny_report(number, exit=ending, is_memory_terminated=True, terminate_fraction=0.95, box=box)
    return recorded(number, scheduler_record(number, **record), report)


def crashed(number: int, **record: Any) -> WatchedDeath:
    """Return the death of a worker by a segmentation fault."""
    return recorded(number, scheduler_record(number, **record), nanny_report(number))


def left_by_code(number: int, **record: Any) -> WatchedDeath:
    """Return the death of a worker whose task called ``sys.exit(3)``."""
    box = {"stage": "running", "written_at": NOW + number, "samples": ()}
    report = nanny_report(number, exit={"status": 3, "known_by": "nanny"}, box=box)
    return recorded(number, scheduler_record(number, **record), report)


def vanished(number: int, *, task: str = "", **record: Any) -> WatchedDeath:
    """Return the death of a worker that only the scheduler knows, with a separate task."""
    task = task or f"only-here-{number}"
    own = {"assigned_keys": (task,), "executing_at_heartbeat": (), "assigned_count": 1}
    return recorded(number, scheduler_record(number, **own | record))


def asked_to_stop(number: int) -> WatchedDeath:
    """Return the death of a worker that its nanny was asked to stop, unknown to the scheduler."""
    ending = {"signal": 15, "known_by": "nanny"}
    report = nanny_report(number, exit=ending, stop_requested="nanny-kill", nanny_status="closing")
    return recorded(number, scheduler_record(number), report)
