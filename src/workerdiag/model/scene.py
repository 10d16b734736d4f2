"""
What is known of the dead and of where they lived, before any platform is asked.

A source beyond Dask is made from a `Scene`: it finds there whom to ask about, and whether it
has anything to ask at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import Any, TypeVar

from attrs import field, frozen

from workerdiag.model.identity import Identity
from workerdiag.model.vocabulary import LOCATION_ROLES, LocationRole

_T = TypeVar("_T")


@frozen(kw_only=True)
class Victim:
    """
    A worker that is gone, as Dask knew it.
    """

    identity: Identity
    #: When it was found to be gone, seconds since the epoch by the scheduler's clock.
    when: float | None = None
    #: When it had joined, by the same clock.
    since: float | None = None


@frozen(kw_only=True)
class Location:
    """
    The machine, container and job of one process, in its own words.
    """

    role: LocationRole
    #: The process that was asked; its ``host`` as Dask addresses it.
    identity: Identity
    #: The machine's own name for itself.
    hostname: str = ""
    #: ``/proc/sys/kernel/random/boot_id``: another one after each start of the machine.
    boot_id: str = ""
    #: Environment variables that name the platform and the job; secrets are not among them.
    environment: Mapping[str, str] = field(factory=dict, hash=False)
    #: Controller (``memory``; empty: cgroup v2) to the path of the process's group.
    cgroups: Mapping[str, str] = field(factory=dict, hash=False)
    #: How far its clock is ahead of the caller's, in seconds; None if not measured.
    clock_ahead_s: float | None = None


@frozen(kw_only=True)
class Scene:
    """
    The dead, where they lived, and who manages the cluster.
    """

    #: The dead, the latest first.
    victims: tuple[Victim, ...] = ()
    #: Of whom somebody still lives to tell: victims' nannies, scheduler, this process.
    locations: tuple[Location, ...] = ()
    #: The time of interest, seconds since the epoch; None: not known.
    since: float | None = None
    until: float | None = None
    #: The ``distributed.Client``, for sources that ask through Dask; None without one.
    client: Any = field(default=None, eq=False, repr=False)

    @property
    def cluster(self) -> Any:
        """
        The cluster object (``Client.cluster``); None where the client was given an address.
        """
        return getattr(self.client, "cluster", None)

    def cluster_is(self, *names: str) -> bool:
        """
        Whether the class of the cluster object, or a base of it, is one of these classes or packages.
        """
        if self.cluster is None:
            return False
        classes = type(self.cluster).__mro__
        known = {each.__name__ for each in classes} | {each.__module__.partition(".")[0] for each in classes}
        return not known.isdisjoint(names)

    def variable(self, name: str, *, of: Identity | None = None) -> str | None:
        """
        An environment variable of where the dead lived (*of*: on that host), else of the scheduler or here.
        """
        for place in self.nearest(of):
            if place.environment.get(name):
                return place.environment[name]
        return None

    def nearest(self, identity: Identity | None = None) -> tuple[Location, ...]:
        """
        The places, the closest to the dead first; with *identity*, only those on its host.
        """
        fitting = [each for each in self.locations if identity is None or _is_same_host(each, identity)]
        return tuple(sorted(fitting, key=lambda each: LOCATION_ROLES.index(each.role)))


@frozen(kw_only=True)
class Terms:
    """
    What it takes to ask a source, and how long it can still be asked.
    """

    #: How long after a death the evidence is usually there, in seconds; the most perishable
    #: sources are asked first.
    lasts_s: float = inf
    #: The least permission, as the platform names it.
    permission: str = ""
    #: The extra of workerdiag that brings what it needs; empty: none.
    extra: str = ""
    #: What asking costs those who are asked.
    cost: str = ""


def terms_of(source: object) -> Terms:
    """
    The ``terms`` that a source states; those of one that states none.
    """
    stated = getattr(source, "terms", None)
    return stated if isinstance(stated, Terms) else Terms()


def most_perishable_first(sources: Iterable[_T]) -> list[_T]:
    """
    The *sources* in the order in which their evidence gets lost.
    """
    return sorted(sources, key=lambda source: terms_of(source).lasts_s)


def _is_same_host(place: Location, identity: Identity) -> bool:
    hosts = {place.identity.host, place.hostname} - {None, ""}
    return identity.host is None or not hosts or identity.host in hosts
