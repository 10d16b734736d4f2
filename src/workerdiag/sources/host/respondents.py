"""Finds the machines of dead workers, the processes there to probe, and the workers that each can speak for.

Nannies, the scheduler and this process say where they run. If no worker died but work stands still, nannies
answer for their live workers.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterator, Sequence
from functools import partial
from ipaddress import ip_address
from itertools import islice

from workerdiag.deadline import Deadline
from workerdiag.guard import guarded
from workerdiag.model.dask import Client, Reply
from workerdiag.model.evidence import Gap
from workerdiag.model.identity import Identity, host_of, identity_of
from workerdiag.model.scene import Location, Scene, Victim
from workerdiag.model.vocabulary import LocationRole
from workerdiag.procfs_and_cgroups import group_paths
from workerdiag.sources.cluster import queries
from workerdiag.sources.cluster.workers import fetch_workers
from workerdiag.sources.host.remote_call import Answer, probe_elsewhere, probe_here
from workerdiag.sources.internals import is_scheduler_here, nannies_here
from workerdiag.sources.machine import scheduler_ahead_s
from workerdiag.values import evolve, frozen

#: What is asked about the dead and about the living: probes (``sources/host/probes``), by name.
DEATH_PROBES = ("kernel", "control_groups", "nannies", "machine")
_LIVE_PROBES = ("control_groups", "machine")
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

    @property
    def probes(self) -> tuple[str, ...]:
        """What to ask it."""
        return DEATH_PROBES if self.is_about_dead else _LIVE_PROBES


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
        when = victim.when
        if when is not None and place.clock_ahead_s is not None:
            when += place.clock_ahead_s - scheduler_ahead_s(scene)
        subject = Subject(identity=victim.identity, when=when, own=own)
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
            identity = identity_of(worker=address, nanny=nanny, name=workers[address].get("name"))
            found[host_of(nanny)] = _live_respondent(identity)
    return list(found.values())


def paused_respondents(scene: Scene) -> list[Respondent]:
    """Return the nanny of one paused worker of each host, at most four: its disk may be full."""
    nannies = {host_of(each.nanny): each for each in scene.paused if each.nanny is not None}
    return [_live_respondent(each) for each in islice(nannies.values(), MAX_RESPONDENTS)]


def _live_respondent(identity: Identity) -> Respondent:
    is_here = identity.nanny in local_nannies()
    pid = os.getpid() if is_here else None
    respondent_identity = Identity(pid=pid, nanny=identity.nanny, host=host_of(identity.nanny))
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
    places = [each for each in scene.locations if each.role in ("scheduler", "client") and each.boot_id]
    return len(places) > 1 and len({each.boot_id for each in places}) == 1


#: At most this many nannies are asked.
MAX_NANNIES = 4
#: Minimum time of one request, in seconds.
_MIN_S = 0.05
_FORBIDDEN_REMEDY = "take run (nanny) and run_function (scheduler) out of distributed.*.blocked-handlers"


def find_locations(
    client: Client, victims: Sequence[Victim], deadline: Deadline
) -> tuple[list[Location], list[Gap]]:
    """Return the machines, containers and jobs of surviving processes near *victims*, and gaps for silent ones.

    It asks the victims' nannies (at most four; in place of a lost one another nanny on its host), the
    scheduler and this process. It must not be called from the client's own event loop.
    """
    inquiry = _LocationInquiry(client, victims, deadline.share(0.9))  # the rest is for returning on time
    inquiry.probe_here()
    if getattr(client, "status", None) == "running":
        with guarded("locating workers", inquiry.note_silent_scheduler):
            client.sync(inquiry.ask_others, asynchronous=False, callback_timeout=deadline.left_s)
    return list(inquiry.locations), list(inquiry.gaps)


def is_this_machine(host: str | None) -> bool:
    """Whether *host*, a name or an address in Dask's form, is this machine."""
    if not host:
        return False
    if is_loopback(host) or host in (name := socket.gethostname(), name.partition(".")[0]):
        return True
    try:  # a socket can be bound only to the machine's own addresses
        family = socket.AF_INET6 if ip_address(host).version == 6 else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
    except (OSError, ValueError):  # no DNS look-up of a name: it may take long
        return False
    return True


def is_loopback(host: str | None) -> bool:
    """Whether *host* is a loopback address, which every machine has."""
    return host is not None and (host in ("localhost", "::1") or host.startswith("127."))


def local_nannies() -> dict[str, object]:
    """Return this process's nannies (those of a LocalCluster), by address."""
    return {str(each.address_safe): each for each in nannies_here() if getattr(each, "address_safe", None)}


class _LocationInquiry:
    def __init__(self, client: Client, victims: Sequence[Victim], deadline: Deadline) -> None:
        self._client = client
        self._victims = victims
        self._deadline = deadline
        self._scheduler: str | None = getattr(getattr(client, "scheduler", None), "address", None)
        self._is_scheduler_here = self._scheduler is not None and is_scheduler_here(self._scheduler)
        self.locations: list[Location] = []
        self.gaps: list[Gap] = []
        self._registered_nannies: set[str] = set()

    def note_silent_scheduler(self, problem: Exception) -> None:
        self.gaps.append(_location_gap("scheduler", problem))

    def probe_here(self) -> None:
        """Add this process's own location, also for the nannies and the scheduler in it."""
        location = probe_here(("location",), {})["location"]
        hosts = [each.identity.host for each in self._victims if is_this_machine(each.identity.host)]
        here: list[tuple[LocationRole, Identity]] = [("client", Identity(host=next(iter(hosts), None)))]
        nannies = {each.identity.nanny for each in self._victims if each.identity.nanny}
        local = sorted(nannies & local_nannies().keys())
        here += [("nanny", Identity(nanny=nanny, host=host_of(nanny))) for nanny in local]
        if self._is_scheduler_here:
            here.append(("scheduler", Identity(host=host_of(self._scheduler))))
        for role, identity in here:
            own = evolve(identity, pid=os.getpid())
            self.locations.append(_make_location(role, own, location, ahead_s=0.0))

    async def ask_others(self) -> None:
        """Ask nannies and the scheduler in other processes concurrently."""
        wanted = await self._others()
        asking = (self._ask_with_clock(role, identity) for role, identity in wanted)
        answers = await asyncio.gather(*asking, return_exceptions=True)
        hosts = {place.identity.host for place in self.locations if place.role == "neighbour"}
        for (role, identity), answer in zip(wanted, answers, strict=True):
            is_covered = role == "nanny" and identity.host in hosts  # another nanny answered for its machine
            if isinstance(answer, BaseException) and not is_covered:
                name = f"{role} {identity.nanny or identity.host or ''}".strip()
                self.gaps.append(_location_gap(name, answer))

    async def _ask_with_clock(self, role: LocationRole, identity: Identity) -> Answer:
        began = time.time()
        deadline = self._deadline.share(at_least_s=_MIN_S)
        if role == "nanny" and identity.nanny not in self._registered_nannies:
            deadline = deadline.share(at_most_s=1.0)  # it may be gone
        nanny = None if role == "scheduler" else str(identity.nanny)
        answer = await probe_elsewhere(self._client, nanny, ("location",), {}, deadline)
        location = answer.get("location", {})
        midpoint = (began + time.time()) / 2
        ahead_s = round(float(location["now"]) - midpoint, 3) if "now" in location else None
        self.locations.append(_make_location(role, identity, location, ahead_s=ahead_s))
        return location

    async def _others(self) -> list[tuple[LocationRole, Identity]]:
        """Return the processes to ask: the victims' nannies, one nanny on each other host, the scheduler."""
        answered = {place.identity.nanny for place in self.locations if place.identity.nanny}
        gone = [each for each in self._victims if each.identity.nanny not in answered]
        wanted: list[tuple[LocationRole, Identity]] = []
        if not self._is_scheduler_here:
            wanted.append(("scheduler", Identity(host=host_of(self._scheduler))))
        if not gone:
            return wanted
        workers = await self._workers([each.identity.worker or each.identity.nanny for each in gone])
        registered = (worker.get("nanny") for worker in workers.values())
        alive = self._registered_nannies = {str(each) for each in registered if each}
        known = dict.fromkeys(each.identity.nanny for each in gone if each.identity.nanny)
        nannies = list(known)[:MAX_NANNIES]
        wanted += [("nanny", Identity(nanny=each, host=host_of(each))) for each in nannies]
        without = {each.identity.host for each in gone if each.identity.nanny not in alive} - {None}
        for host in sorted(str(each) for each in without)[:MAX_NANNIES]:
            neighbour = next((each for each in sorted(alive - {*nannies}) if host_of(each) == host), None)
            if neighbour is not None:
                wanted.append(("neighbour", Identity(nanny=neighbour, host=host)))
        return wanted

    async def _workers(self, near: Sequence[str | None]) -> Reply:
        """Return the scheduler's workers by address, those on the hosts of *near* first; empty if it is silent."""
        with guarded("asking for workers", self.note_silent_scheduler):
            deadline = self._deadline.share(0.5, at_least_s=_MIN_S)
            found = await queries.answer_in_time(partial(fetch_workers, self._client, near=near), deadline)
            return dict(found["workers"])
        return {}


def _make_location(role: LocationRole, identity: Identity, location: Reply, *, ahead_s: float | None) -> Location:
    groups = location.get("cgroups")
    lines = [each for each in groups if isinstance(each, str)] if isinstance(groups, list) else []
    return Location(
        role=role,
        identity=identity,
        hostname=str(location.get("hostname", "")),
        boot_id=str(location.get("boot_id", "")),
        environment=dict(_text_items(location.get("environment"))),
        cgroups=dict(_text_items(dict(group_paths(lines)))),
        clock_ahead_s=ahead_s,
    )


def _text_items(items: object) -> Iterator[tuple[str, str]]:
    for name, value in items.items() if isinstance(items, dict) else ():
        yield str(name)[:100], str(value)[:1000]


def _location_gap(place: str, problem: BaseException) -> Gap:
    found = queries.query_gap(f"location: {place}", problem)
    return evolve(found, remedy=_FORBIDDEN_REMEDY) if found.reason == "forbidden" else found
