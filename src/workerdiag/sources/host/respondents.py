"""Selects the processes to probe about dead workers' machines, and the dead workers that each can speak for.

If no worker died but work stands still, nannies answer for their live workers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial

from attrs import frozen

from workerdiag.deadline import Deadline
from workerdiag.model.dask import Client, Reply
from workerdiag.model.identity import Identity
from workerdiag.model.scene import Location, Scene, Victim
from workerdiag.sources.addresses import host_of, identity_of
from workerdiag.sources.cluster import queries
from workerdiag.sources.cluster.workers import fetch_workers
from workerdiag.sources.host.locations import is_loopback, is_this_machine, local_nannies
from workerdiag.sources.host.remote_call import (
    DEATH_PROBES,
    LIVE_PROBES,
    Answer,
    Request,
    probe_elsewhere,
    probe_here,
)
from workerdiag.sources.machine import scheduler_ahead_s

#: At most this many processes are probed; each probe takes about 30 ms of one core.
MAX_RESPONDENTS = 4


@frozen(kw_only=True)
class Subject:
    """A dead worker, as one respondent can speak of it."""

    identity: Identity
    #: When it died, by the respondent's clock; None if unknown or alive.
    when: float | None
    #: Whether the respondent was its nanny, with the same cgroup, limits and directory.
    own: bool
    #: Its pid by the log of a nanny on its machine, found by the time of exit, if Dask does not know it.
    noted_pid: int | None = None

    @property
    def pid(self) -> int | None:
        """Its pid from Dask, or else from the nanny's log."""
        return self.identity.pid if self.identity.pid is not None else self.noted_pid


@frozen(kw_only=True)
class Respondent:
    """A process that answers probes, and the workers it answers for."""

    place: Location
    subjects: tuple[Subject, ...]
    #: Whether this is certainly the machine where they died.
    same_machine: bool = True
    #: False if the subjects are alive.
    is_about_dead: bool = True

    @property
    def title(self) -> str:
        """The machine's name in reports."""
        return self.place.identity.host or self.place.hostname or "this machine"

    @property
    def is_this_process(self) -> bool:
        """Whether the respondent is this process."""
        here = self.place.identity
        return here.pid == os.getpid() and (here.nanny is None or here.nanny in local_nannies())

    def probe_here(self, request: Request) -> Answer:
        """Run the probes in this process."""
        return probe_here(self._probes, request)

    async def ask(self, client: Client, request: Request, deadline: Deadline) -> Answer:
        """Run the probes in another process through Dask; raises as `probe_elsewhere`."""
        nanny = None if self.place.role == "scheduler" else str(self.place.identity.nanny)
        return await probe_elsewhere(client, nanny, self._probes, request, deadline)

    @property
    def _probes(self) -> tuple[str, ...]:
        return DEATH_PROBES if self.is_about_dead else LIVE_PROBES


def respondents(scene: Scene) -> tuple[list[Respondent], list[Victim]]:
    """Return the respondents, the one closest to the latest death first, and the victims without one."""
    spoken_for: dict[int, list[Subject]] = {}  # by the number of the location
    sure: dict[int, bool] = {}
    left: list[Victim] = []
    for victim in scene.victims:
        place = _location_for(victim, scene)
        number = -1 if place is None else scene.locations.index(place)
        if place is None or (len(spoken_for) >= MAX_RESPONDENTS and number not in spoken_for):
            left.append(victim)
            continue
        own = place.role == "nanny" and place.identity.nanny == victim.identity.nanny
        subject = Subject(
            identity=victim.identity, when=_on_respondents_clock(place, victim.when, scene), own=own
        )
        spoken_for.setdefault(number, []).append(subject)
        sure[number] = place.role != "client" or not is_loopback(victim.identity.host) or _shares_boot(scene)
    found = [
        Respondent(place=scene.locations[number], subjects=tuple(subjects), same_machine=sure[number])
        for number, subjects in spoken_for.items()
    ]
    return found, left


async def live_respondents(scene: Scene, deadline: Deadline) -> list[Respondent]:
    """Return one nanny of each host, at most four, those of paused workers first; the scheduler's errors pass."""
    answer = await queries.answer_in_time(partial(fetch_workers, scene.client), deadline)
    workers: Reply = answer["workers"]
    found: dict[str | None, Respondent] = {}
    for address in sorted(workers, key=lambda each: (workers[each].get("status") != "paused", each)):
        nanny = workers[address].get("nanny")
        if isinstance(nanny, str) and host_of(nanny) not in found and len(found) < MAX_RESPONDENTS:
            found[host_of(nanny)] = _live_respondent(address, workers[address])
    return list(found.values())


def _live_respondent(address: str, worker: Mapping[str, object]) -> Respondent:
    identity = identity_of(worker=address, nanny=worker.get("nanny"), name=worker.get("name"))
    is_here = identity.nanny in local_nannies()
    respondent_identity = Identity(
        pid=os.getpid() if is_here else None, nanny=identity.nanny, host=host_of(identity.nanny)
    )
    return Respondent(
        place=Location(role="nanny", identity=respondent_identity),
        subjects=(Subject(identity=identity, when=None, own=True),),
        is_about_dead=False,
    )


def _location_for(victim: Victim, scene: Scene) -> Location | None:
    host = victim.identity.host
    for place in scene.locations:
        if place.identity.nanny is not None and place.identity.nanny == victim.identity.nanny:
            return place
    for role in ("neighbour", "nanny", "scheduler"):
        for place in scene.locations:
            if place.role == role and host is not None and host in (place.identity.host, place.hostname):
                return place
    for place in scene.locations:
        if place.role == "client" and is_this_machine(host) and not _is_elsewhere(host, place, scene):
            return place
    return None


def _is_elsewhere(host: str | None, here: Location, scene: Scene) -> bool:
    """Whether a loopback address belongs to the scheduler's machine, and that is not this one."""
    boots = {each.boot_id for each in scene.locations if each.role == "scheduler" and each.boot_id}
    return is_loopback(host) and bool(boots) and here.boot_id not in boots


def _shares_boot(scene: Scene) -> bool:
    boots = [
        each.boot_id for each in scene.locations if each.role in ("scheduler", "client") and each.boot_id
    ]
    return len(boots) > 1 and len(set(boots)) == 1


def _on_respondents_clock(place: Location, when: float | None, scene: Scene) -> float | None:
    if when is None or place.clock_ahead_s is None:
        return when
    return when - scheduler_ahead_s(scene) + place.clock_ahead_s
