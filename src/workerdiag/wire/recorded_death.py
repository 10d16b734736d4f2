"""One death, as its removal record and its report describe it together, and answers to who follows deaths."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce
from itertools import chain

from workerdiag.model.identity import Identity, identity_of
from workerdiag.model.process_end import RECENT_S
from workerdiag.model.replay import RecipeGap
from workerdiag.model.stop_reasons import UNRESPONSIVE, is_stop_request
from workerdiag.values import evolve, field, frozen
from workerdiag.wire.black_box import MissingPart
from workerdiag.wire.messages import (
    DeathIdentity,
    DeathMessage,
    DeathReport,
    RemovalRecord,
    RescueAct,
    is_known_death,
)


@frozen(kw_only=True)
class RecordedDeath:
    """What scheduler and nanny recorded of one death; either may have nothing."""

    record: RemovalRecord | None = None
    report: DeathReport | None = None
    #: What `workerdiag.rescue` did because of it, in order.
    acts: tuple[RescueAct, ...] = ()
    #: Those of record and report.
    identities: tuple[DeathIdentity, ...] = field(init=False, eq=False, repr=False)
    #: Both in one: the scheduler knows the worker's address for sure, and when it was lost by its own clock.
    identity: DeathIdentity = field(init=False, eq=False, repr=False)

    @identities.default
    def _identities(self) -> tuple[DeathIdentity, ...]:
        return tuple(DeathIdentity.of(each) for each in (self.record, self.report) if each is not None)

    @identity.default
    def _identity(self) -> DeathIdentity:
        return reduce(DeathIdentity.or_else, self.identities, DeathIdentity())

    @classmethod
    def of(cls, message: DeathMessage) -> RecordedDeath:
        """The death of which only *message* is known."""
        return cls().with_message(message)

    def is_of(self, message: DeathMessage) -> bool:
        """Whether the message is about this death. A second removal record never is."""
        if isinstance(message, RemovalRecord) and self.record is not None:
            return False
        return is_known_death(self.identities, DeathIdentity.of(message))

    def with_message(self, message: DeathMessage) -> RecordedDeath:
        """The death with what *message* adds, or itself; a nanny knows the exit status, a found box does not."""
        if isinstance(message, RemovalRecord):
            return evolve(self, record=message)
        if isinstance(message, RescueAct):
            return evolve(self, acts=(*self.acts, message)[:20]) if message not in self.acts else self
        if self.report is None or (self.report.kind == "box-found" and message.kind == "nanny-report"):
            return evolve(self, report=message)
        return self

    def without_box(self) -> RecordedDeath:
        """The death without what the box has beyond the running tasks."""
        if self.report is None or self.report.box is None:
            return self
        return evolve(self, report=evolve(self.report, box=None))

    @property
    def id(self) -> str:
        """The id of the death: the same wherever it is read, however often, whatever becomes known of it later.

        Of one that only a nanny, or whoever found the box, knows, that is a matter of the process: such a
        worker was not, or no longer, known to the scheduler.
        """
        if self.record is not None:
            return removal_id(self.record.worker_address, self.record.stimulus_id)
        who = self.identity
        return _hash("process", who.worker, who.pid, who.boot_id, who.nanny)

    @property
    def time(self) -> float:
        """When it was noticed, for sorting: 0 if that is not known."""
        return self.identity.noticed_at or 0.0

    @property
    def at(self) -> float | None:
        """When it was noticed, in seconds since the epoch."""
        return self.time or None

    @property
    def was_announced(self) -> bool:
        """Whether the scheduler expected the removal."""
        return self.record is not None and self.record.is_expected

    @property
    def is_expected(self) -> bool:
        """Whether somebody announced it, to the scheduler or the nanny, or asked the worker to stop."""
        reason = self.record.close_reason if self.record is not None else None
        return self.was_announced or self.was_asked_to_stop or is_stop_request(reason or "")

    @property
    def was_asked_to_stop(self) -> bool:
        """Whether somebody asked the nanny to end it: a worker that does not answer was not asked."""
        unresponsive = self.record is not None and (self.record.stimulus_id or "").startswith(UNRESPONSIVE)
        return self.report is not None and self.report.was_asked_to_stop and not unresponsive

    def has_task(self, keys: Collection[str]) -> bool:
        """Whether one of these tasks was on the worker, as far as that was noted."""
        if not keys:
            return False
        record, report = self.record or RemovalRecord(), self.report
        named = chain(
            record.assigned_keys,
            (each.key for each in record.executing_at_heartbeat),
            (each.key for each in record.given_up),
            (each.key for each in (report.running_tasks if report is not None else None) or ()),
        )
        return any(key in keys for key in named)


@frozen(kw_only=True)
class DeathsAnswer:
    """What the scheduler answers when it is asked for deaths."""

    #: Oldest first.
    deaths: tuple[RecordedDeath, ...] = ()
    #: The scheduler's clock, in seconds since the epoch.
    now: float | None = None
    #: Deaths in question for which the answer had no room.
    omitted_count: int = 0
    #: Deaths that the ring no longer has.
    dropped_count: int = 0
    #: What the scheduler does not record, with the reason for a person.
    missing: Mapping[MissingPart, str] = field(factory=dict, hash=False)


def removal_id(worker: str | None, stimulus_id: str | None) -> str:
    """The id of a death that the scheduler noticed; the same in its events, in the recorder and in a journal.

    A stimulus has the time in it, and removes a worker once (``stimulus_id`` in scheduler.py).
    """
    return _hash("removal", worker, stimulus_id)


def merge_messages(messages: Iterable[DeathMessage]) -> tuple[RecordedDeath, ...]:
    """The deaths that the messages describe, in the order in which they were first mentioned."""
    deaths: list[RecordedDeath] = []
    for message in messages:
        place = next((n for n in reversed(range(len(deaths))) if deaths[n].is_of(message)), None)
        if place is None and not isinstance(message, RescueAct):
            deaths.append(RecordedDeath.of(message))
        elif place is not None:
            deaths[place] = deaths[place].with_message(message)
    return tuple(deaths)


def select_recent(
    deaths: Sequence[RecordedDeath], *, about: Collection[str], tasks: Collection[str], now: float
) -> list[RecordedDeath]:
    """The deaths in question, those of the same tasks, and unexpected ones of the quarter of an hour before.

    What matters most comes first; within each group the newest, as deaths arrive oldest first.
    """
    in_question = [each for each in deaths if each.identity.worker in about]
    moment = max((each.time for each in in_question), default=now)
    same: list[RecordedDeath] = []
    recent: list[RecordedDeath] = []
    for death in reversed(deaths):
        if death.was_announced or death.identity.worker in about:
            continue
        if death.has_task(tasks):
            same.append(death)
        elif death.time >= moment - RECENT_S:
            recent.append(death)
    return [*in_question, *same, *recent]


def _hash(*parts: object) -> str:
    text = "\0".join("" if each is None else str(each) for each in parts)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


@frozen(kw_only=True)
class ClusterFigures:
    """How a cluster stands, in numbers that cost its scheduler next to nothing."""

    worker_count: int = 0
    #: Workers that take tasks: neither paused nor closing.
    running_worker_count: int = 0
    #: Tasks that could run but have no worker.
    waiting_count: int = 0
    #: Tasks that are assigned to workers.
    assigned_count: int = 0
    #: Of these, the ones that ran at the last heartbeats.
    executing_count: int = 0


@frozen(kw_only=True)
class WatchAnswer:
    """The deaths that came, or of which more became known, after a change that the asker names."""

    #: Another one for each start of the recorder: changes are counted from 1 in each.
    epoch: str
    #: Number of the last change that the answer has; what to ask after next time.
    position: int = 0
    #: The scheduler's clock, in seconds since the epoch.
    now: float
    #: In the order of their last changes.
    deaths: tuple[RecordedDeath, ...] = ()
    #: Whether there were more than the answer has room for.
    has_more: bool = False
    #: Deaths after that change which the ring no longer has.
    missed_count: int = 0
    figures: ClusterFigures = ClusterFigures()
    #: Why the scheduler closes, in its own word; None: it does not.
    closing_reason: str | None = None
    #: Where the records are appended, without what may be a password; None: nowhere.
    journal: str | None = None


def identity_of_death(death: RecordedDeath) -> Identity:
    """Return the identity for the evidence of a recorded death."""
    who = death.identity
    identity = identity_of(worker=who.worker, pid=who.pid, nanny=who.nanny, name=who.name)
    return evolve(identity, boot_id=who.boot_id)


@frozen(kw_only=True)
class RecipeDeath:
    """A worker that died, and what it had been given: of it there is a recipe."""

    worker: str
    #: When, in seconds since the epoch, by the scheduler's clock.
    at: float
    #: Keys of its tasks, those that ran at the last heartbeat first.
    tasks: tuple[str, ...] = ()


@frozen(kw_only=True)
class RecipeAnswer:
    """What a recipe is of, and what it lacks; the pickle goes beside it."""

    #: Oldest first.
    deaths: tuple[RecipeDeath, ...] = ()
    gaps: tuple[RecipeGap, ...] = ()
    #: Why there is no pickle; empty if there is.
    problem: str = ""
