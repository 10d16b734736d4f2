"""The systemd journal of this machine: what a dead worker's service wrote, and systemd about it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import ClassVar, Self

from workerdiag.deadline import Deadline
from workerdiag.model.evidence import Evidence, Gap, Inspected, LogChunk
from workerdiag.model.scene import Scene, Terms, Victim
from workerdiag.sources import commands, machine
from workerdiag.sources.host.respondents import is_loopback
from workerdiag.values import frozen

#: The unit is the last part of the cgroup path that names one (man 7 systemd.unit).
_UNIT = re.compile(r"(?:^|/)(?P<unit>[\w@:.\\-]+\.(?:service|scope))(?=/|$)")
#: Units of the user manager, which are not the service.
_MANAGER = re.compile(r"user@\d+\.service|init\.scope")


@frozen
class JournalSource:
    """Reads the journal of a dead worker's unit on this machine, or else of its process."""

    name: ClassVar[str] = "journal"
    terms: ClassVar[Terms] = Terms(
        lasts_s=14 * 86400.0,
        permission="group systemd-journal, for services of others",
        cost="reads the journal of this machine",
    )

    _scene: Scene
    _here: tuple[tuple[Victim, str], ...]

    @classmethod
    def of(cls, scene: Scene) -> Self | None:
        """Return the source if a worker died here in a systemd unit or wrote to the journal, else None."""
        here = tuple((each, match) for each in scene.victims if (match := _journal_match(scene, each)))
        return cls(scene, here) if here else None

    def collect(self, *, budget_s: float) -> Iterator[Evidence]:
        """Yield the journal from a quarter of an hour before the deaths to a minute after."""
        deadline = Deadline.of_budget(budget_s)
        queried: set[tuple[str, int]] = set()
        for index, (victim, match) in enumerate(self._here):
            missed = int(machine.missed_at(self._scene, victim) or self._scene.until or 0)
            if (match, missed) in queried:
                continue
            queried.add((match, missed))
            yield from _unit_evidence(victim, match, missed, deadline.share(1 / (len(self._here) - index)))


def _unit_evidence(victim: Victim, match: str, missed: int, deadline: Deadline) -> Iterator[Evidence]:
    selection = ["--unit", match] if not match.startswith("_PID=") else [match]
    command = [
        "journalctl",
        "--no-pager",
        "--quiet",
        "--output=short-iso-precise",
        "--utc",
        "--lines=5000",
        f"--since=@{missed - 900}",
        f"--until=@{missed + 60}",
        *selection,
    ]
    try:
        result = commands.run_command(command, deadline)
    except (OSError, TimeoutError) as problem:
        yield commands.command_gap(JournalSource.name, command, problem)
        return
    if result.returncode != 0:
        yield commands.command_gap(JournalSource.name, command, result)
    elif result.stdout.strip():
        is_unit, origin = selection[0] == "--unit", " ".join(["journalctl", *selection])
        identity = machine.without_pid(victim.identity) if is_unit else victim.identity
        yield LogChunk(origin=origin, data=result.stdout, identity=identity)
        yield Inspected(identity=victim.identity)
    else:
        detail = "the part of the journal that this user may read does not mention it"
        remedy = f"sudo {shlex.join(command)}"
        yield Gap(source=JournalSource.name, reason="never-recorded", detail=detail, remedy=remedy)


def _journal_match(scene: Scene, victim: Victim) -> str | None:
    here = next((each for each in scene.locations if each.role == "client"), None)
    host = victim.identity.host
    if here is None or host is None:
        return None
    if not is_loopback(host) and host not in (here.hostname, here.identity.host):
        return None
    pid = victim.identity.pid
    for place in scene.nearest(victim.identity):
        if place.role in ("worker", "nanny") and place.identity.nanny == victim.identity.nanny:
            for group in place.cgroups.values():
                units = [each for each in _UNIT.findall(group) if not _MANAGER.fullmatch(each)]
                if units:
                    return str(units[-1])
            if pid and place.environment.get("JOURNAL_STREAM"):  # man 5 systemd.exec
                return f"_PID={pid}"
    return None
