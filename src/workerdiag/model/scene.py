"""What is known of the dead workers and of where they ran: what a source beyond Dask is made from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import Any, TypeVar

from workerdiag.model.identity import Identity
from workerdiag.model.vocabulary import LOCATION_ROLES, LocationRole
from workerdiag.values import field, frozen

_T = TypeVar("_T")


@frozen(kw_only=True)
class Victim:
    """A dead worker, as Dask knew it."""

    identity: Identity
    #: When its loss was noticed, in seconds since the epoch by the scheduler's clock.
    when: float | None = None
    #: When it joined, by the same clock.
    since: float | None = None


@frozen(kw_only=True)
class Location:
    """The machine, container and job of one process, as the process reports them."""

    role: LocationRole
    #: The process that was asked; its ``host`` is the one in its Dask address.
    identity: Identity
    #: The host name that the machine reports.
    hostname: str = ""
    #: ``/proc/sys/kernel/random/boot_id``, which changes with each boot of the machine.
    boot_id: str = ""
    #: Environment variables that name the platform and the job; secrets are not among them.
    environment: Mapping[str, str] = field(factory=dict, hash=False)
    #: Path of the process's cgroup by controller (``memory``; empty: cgroup v2).
    cgroups: Mapping[str, str] = field(factory=dict, hash=False)
    #: Seconds by which its clock is ahead of the caller's; None if not measured.
    clock_ahead_s: float | None = None

    def is_of(self, victim: Identity) -> bool:
        """Whether the process was the victim's nanny, or a worker at its address."""
        here = self.identity
        is_own = (here.nanny and here.nanny == victim.nanny) or (here.worker and here.worker == victim.worker)
        return self.role in ("worker", "nanny") and bool(is_own)


@frozen(kw_only=True)
class Scene:
    """The dead workers, where they ran, and who manages the cluster."""

    #: The dead workers, latest first.
    victims: tuple[Victim, ...] = ()
    #: Living workers that take no new tasks.
    paused: tuple[Identity, ...] = ()
    #: Locations that a surviving process speaks for: victims' nannies, scheduler, this process.
    locations: tuple[Location, ...] = ()
    #: Start of the time of interest, in seconds since the epoch; None: not known.
    since: float | None = None
    until: float | None = None
    #: The ``distributed.Client``, for sources that ask through Dask; None if there is none.
    client: Any = field(default=None, eq=False, repr=False)

    @property
    def cluster(self) -> Any:
        """The cluster object (``Client.cluster``); None if the client was given an address."""
        return getattr(self.client, "cluster", None)

    def cluster_is(self, *names: str) -> bool:
        """Whether the class of the cluster object or one of its bases is, or comes from, one of *names*."""
        if self.cluster is None:
            return False
        classes = type(self.cluster).__mro__
        known = {each.__name__ for each in classes} | {each.__module__.partition(".")[0] for each in classes}
        return not known.isdisjoint(names)

    def variable(self, name: str, *, of: Identity | None = None) -> str | None:
        """Return an environment variable from where the dead ran (*of*: on that host), the scheduler or here."""
        for place in self.nearest(of):
            if place.environment.get(name):
                return place.environment[name]
        return None

    def nearest(self, identity: Identity | None = None) -> tuple[Location, ...]:
        """Return the locations, closest to the dead first; with *identity*, only those on its host."""
        fitting = [each for each in self.locations if identity is None or _is_same_host(each, identity)]
        return tuple(sorted(fitting, key=lambda each: LOCATION_ROLES.index(each.role)))


@frozen(kw_only=True)
class Terms:
    """What a query to a source takes, and how long the source can be asked."""

    #: Seconds that the evidence usually lasts after a death. The most perishable sources are asked first.
    lasts_s: float = inf
    #: The minimum permission, as the platform names it.
    permission: str = ""
    #: The extra of workerdiag that installs its dependencies; empty: none.
    extra: str = ""
    #: What a query costs the system that is asked.
    cost: str = ""


def terms_of(source: object) -> Terms:
    """Return the ``terms`` that a source states, or default terms."""
    stated = getattr(source, "terms", None)
    return stated if isinstance(stated, Terms) else Terms()


def most_perishable_first(sources: Iterable[_T]) -> list[_T]:
    """Return the *sources* in the order in which their evidence is lost."""
    return sorted(sources, key=lambda source: terms_of(source).lasts_s)


def _is_same_host(place: Location, identity: Identity) -> bool:
    hosts = {place.identity.host, place.hostname} - {None, ""}
    return identity.host is None or not hosts or identity.host in hosts
