"""The rules about how workers die, as pure data: causes with their signs and mitigations, and landmarks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import ClassVar, get_args

from attrs.validators import ge, matches_re, min_len

from workerdiag.model.normalize import EventValue
from workerdiag.model.vocabulary import (
    CauseEnd,
    CureKind,
    Deployment,
    ExitWitness,
    Frequency,
    Grade,
    LandmarkRole,
    MemoryFact,
    MemoryReason,
    Place,
    RetryVerdict,
    RuleOrigin,
    RuleStatus,
    Stream,
    Strength,
    Verdict,
)
from workerdiag.values import field, frozen

_name = matches_re(r"[a-z0-9]+(-[a-z0-9]+)*")


def _pattern_or_patterns(rule: TextRule | None, _: object, patterns: tuple[str, ...]) -> None:
    if rule is not None and bool(rule.pattern) == bool(patterns):
        raise ValueError("expected one of the keys 'pattern' and 'patterns'")


@frozen(kw_only=True, slots=False)  # beside `NamedSign`, which has slots
class TextRule:
    """A rule for messages of logs. Patterns are RE2, case-insensitive, searched in one whole message."""

    pattern: str = ""
    #: Alternative patterns instead of `pattern`; one match is enough.
    patterns: tuple[str, ...] = field(default=(), validator=_pattern_or_patterns)
    #: A message that also matches this is not meant (RE2 has no look-around).
    unless: str | None = None
    #: Streams from which the message must come; empty: any.
    streams: tuple[Stream, ...] = ()
    #: The first release of distributed that shows it, and the first that does not.
    introduced: str = ""
    removed: str = ""
    #: Whole log lines that it is for, and similar lines that it is not for.
    seen: tuple[str, ...] = ()
    lookalikes: tuple[str, ...] = ()

    @property
    def wordings(self) -> tuple[str, ...]:
        """The alternative patterns; one match is enough."""
        return self.patterns or (self.pattern,)


@frozen(kw_only=True)
class NamedSign:
    """What every sign has."""

    name: str = field(validator=_name)
    grade: Grade
    #: Name of its fact. Of the signs of one fact only the strongest counts. Default: the sign's name.
    fact: str = ""


@frozen(kw_only=True)
class VersionedSign(NamedSign):
    """A sign that not all releases of distributed show."""

    #: The first release that shows it, and the first that does not.
    introduced: str = ""
    removed: str = ""


@frozen(kw_only=True)
class LogSign(TextRule, NamedSign):
    """A message in a log."""

    kind: ClassVar[str] = "log"
    #: Whether it is a sign only if the captured ``worker`` has not registered before in the same log.
    only_unregistered: bool = False


@frozen(kw_only=True)
class LandmarkSign(VersionedSign):
    """A landmark (``knowledge/landmarks``) with certain captures, e.g. a stop for a given reason."""

    kind: ClassVar[str] = "landmark"
    landmark: str
    #: RE2 patterns by capture name; each must match the whole captured text.
    where: Mapping[str, str] = field(factory=dict, hash=False)


@frozen(kw_only=True)
class ExitSign(NamedSign):
    """The exit of the dead process, whoever reported it."""

    kind: ClassVar[str] = "exit"
    signals: tuple[int, ...] = ()
    statuses: tuple[int, ...] = ()
    by: tuple[ExitWitness, ...] = ("process",)
    #: Landmark ids of reports that do not count for it.
    except_reports: tuple[str, ...] = ()
    #: Any nonzero exit status that is not listed elsewhere.
    any_failure: bool = False

    def is_for(self, signal: int | None, status: int | None) -> bool:
        """Whether it is the sign of a process that ended with this signal or status."""
        if signal in self.signals or status in self.statuses:
            return True
        return self.any_failure and signal is None and status not in (None, 0)


@frozen(kw_only=True)
class EventSign(VersionedSign):
    """An event of the scheduler, the platform or the operating system."""

    kind: ClassVar[str] = "event"
    #: RE2, must match the whole topic; ``worker`` stands for any worker's address.
    topic: str
    #: RE2 pattern by field, which must match the whole value; or a boolean, which must equal it.
    where: Mapping[str, str | bool] = field(factory=dict, hash=False)
    #: Minimum number by field.
    at_least: Mapping[str, float] = field(factory=dict, hash=False)


@frozen(kw_only=True)
class ExceptionSign(VersionedSign):
    """The exception that the caller caught, or an exception in it."""

    kind: ClassVar[str] = "exception"
    #: Names of exception types, with or without module.
    types: tuple[str, ...] = ()
    #: RE2, searched in the text.
    pattern: str | None = None
    #: True: only if raised in a task; False: only if not; None: either.
    from_task: bool | None = None


@frozen(kw_only=True)
class AbsentSign(NamedSign):
    """Something that was looked for where it would have been, and is not there."""

    kind: ClassVar[str] = "absent"
    #: Landmarks that were all absent for this death.
    landmarks: tuple[str, ...]
    #: The place that must have been inspected.
    inspected: Place


@frozen(kw_only=True)
class TogetherSign(NamedSign):
    """Several signs or landmarks close together, which say more than each alone."""

    kind: ClassVar[str] = "together"
    #: Names of signs of the same cause, or ids of landmarks. A name given twice must show twice.
    signs: tuple[str, ...]
    #: Further names, of which one is enough. With `in_order` it comes last.
    any_of: tuple[str, ...] = ()
    #: Maximum distance in one log, in lines; 0: anywhere, even in different logs.
    within_lines: int = field(default=200, validator=ge(0))
    #: Whether they must come in the order given.
    in_order: bool = False


Sign = LogSign | LandmarkSign | ExitSign | EventSign | ExceptionSign | AbsentSign | TogetherSign

#: The class of each kind in rule files.
SIGN_KINDS: Mapping[str, type[Sign]] = {each.kind: each for each in get_args(Sign)}

#: Placeholders of mitigations, in braces: the memory of a death, ...
MEMORY_PLACEHOLDERS = ("rss", "limit", "more_than", "needs_memory", "pod_memory", "growth", "percent")
#: ... the reason in its memory account, which decides what a mitigation would leave to an "if", ...
MEMORY_REASON = "memory_reason"
#: ... its crash site, if a pattern of the cause captures faulthandler's frames under this name, ...
STACK_CAPTURE = "stack"
CRASH_PLACEHOLDERS = ("frame", "package")
#: ... data of the cluster and of a task that Dask gave up on, ...
CLUSTER_PLACEHOLDERS = (
    "dashboard",
    "cluster",
    "gave_up",
    "losses",
    "allowed_failures",
    "no_nanny",
    "actor",
    "lost_data",
)
#: ... and captures of these names in the cause's own patterns.
CAPTURE_PLACEHOLDERS = ("module", "task", "error", "seconds", "path", "port", "address", "pid", "workers_awaited")
#: A scheduler registers a new worker.
REGISTRATIONS = ("scheduler.register-worker", "event.add-worker")
#: A scheduler retires the workers that it lists.
RETIREMENT = "scheduler.retire"
#: A scheduler removes a worker at the end of its retirement.
EXPECTED_REMOVALS = ("scheduler.expected-removal", "scheduler.expected-removal-old")
#: A nanny loses patience with a worker process that was asked to close.
STILL_ALIVE = "nanny.still-alive"
#: The command of a nanny whose worker did not start ends with a traceback that says so.
START_FAILED = "nanny.start-failed"
#: The state that a scheduler reports: its workers, and the tasks that wait for them.
SCHEDULER_STATE = "event.scheduler-state"
#: A line without a header reports an end, in words that no rule has.
LINE_OF_OTHERS = "untold.line-of-others"
#: The last line of a log is not Dask's, and unlike any line before it.
LAST_LINE = "log.last-line"
#: A line in a log without any Dask message has a word for an end.
LOG_OF_OTHERS = "log.of-others"
#: A task itself reports that workers of the tasks it waited for died.
KILLED_WORKER = "trouble.killed-worker"
#: A kernel stands still, or does so for a program that may be a worker.
STANDSTILLS_OF_MACHINES = ("untold.machine-down", "untold.stuck-in-the-kernel", "untold.machine-in-trouble")
#: How every run ends: a finished script stops its workers, and connections close.
EVERYDAY_ENDS: tuple[CauseEnd, ...] = ("stopped", "disconnected")


@frozen(kw_only=True)
class Mitigation:
    """A change that prevents the cause. Its text may use ``{numbers}`` computed from the death."""

    #: When it applies; empty: always.
    when: str = ""
    do: str
    #: The same as a place to inspect ("the log of ..."), if no cause is known.
    inspect: str = ""
    #: What it costs.
    cost: str = ""
    #: Configuration or command, as a user would type it.
    example: str = ""
    #: Numbers that the text uses; if one is unknown, the mitigation is worded without it.
    uses: tuple[str, ...] = ()
    #: Numbers that make it superfluous: if one of them is known, it is left out.
    superseded_by: tuple[str, ...] = ()
    #: Signs of this cause; if none of them shows, it is left out. Empty: it always applies.
    signs: tuple[str, ...] = ()
    #: Placeholders that it needs: if one of them is unknown, it is left out.
    requires: tuple[str, ...] = ()
    #: Deployments for which it applies; empty: all.
    deployments: tuple[Deployment, ...] = ()
    #: Examples that replace `example`, by deployment.
    examples: Mapping[Deployment, str] = field(factory=dict, hash=False)
    #: Name of its file under ``knowledge/shared``; empty: it is part of the cause itself.
    advice: str = ""


@frozen(kw_only=True)
class RivalCause:
    """A cause with similar signs, and how to distinguish the two."""

    cause: str
    difference: str


@frozen(kw_only=True)
class NextStepRule:
    """A place whose inspection would confirm or exclude the cause, or explain a landmark."""

    inspect: str
    command: str = ""
    permission: str = ""
    #: Until when it can still be done.
    until: str = ""


@frozen(kw_only=True)
class Cause:
    """One way for a worker to die, to never start, or to stand still."""

    id: str = field(validator=matches_re(r"[a-z0-9-]+\.[a-z0-9-]+"))
    revision: int = field(validator=ge(1))
    #: Its author, the date it was added (such as 2026-11-21), and where it was learned.
    author: str = ""
    added: str = field(default="", validator=matches_re(r"(\d{4}-\d{2}-\d{2})?"))
    origin: tuple[RuleOrigin, ...] = ()
    title: str
    #: What happens, and why, for a data scientist.
    why: str
    ends: CauseEnd
    blame: Verdict
    retry: RetryVerdict
    retry_advice: str = ""
    frequency: Frequency = "usual"
    status: RuleStatus = "stable"
    #: Why it is deprecated, and what to use instead.
    deprecated_because: str = ""
    successor: str = ""
    #: Oldest engine version that understands this rule.
    engine: str = "0.1"
    #: Whether this cause can apply when only a task failed.
    includes_task_errors: bool = False
    #: Whether it ends a worker at the worker's own memory limit: that of its nanny, container or job.
    at_own_limit: bool = False
    #: Causes whose signs are consequences of this cause, if this cause shows.
    explains: tuple[str, ...] = ()
    rivals: tuple[RivalCause, ...] = ()
    signs: tuple[Sign, ...] = ()
    against: tuple[Sign, ...] = ()
    mitigations: tuple[Mitigation, ...] = ()
    next_steps: tuple[NextStepRule, ...] = ()
    references: tuple[str, ...] = ()

    @property
    def family(self) -> str:
        """The part of the id before the dot."""
        return self.id.partition(".")[0]


@frozen(kw_only=True)
class ErrorRule:
    """What one kind of caught exception can come of (``knowledge/errors.toml``)."""

    name: str = field(validator=_name)
    #: Names of exception classes, without module; empty: any.
    types: tuple[str, ...] = ()
    #: RE2, searched in the text.
    pattern: str | None = None
    #: True: only if raised in a task; False: only if not; None: either.
    from_task: bool | None = None
    #: Ends of workers that can be behind it; empty: the end of a worker is not, except by one of `causes`.
    ends: tuple[CauseEnd, ...] = ()
    #: Further causes by id, or families as ``network.*``.
    causes: tuple[str, ...] = ()
    #: The landmark of the same failure in a worker's log: its next steps are those of the exception too.
    landmark: str | None = None

    def admits(self, cause: Cause) -> bool:
        """Whether *cause* can surface as this exception."""
        return cause.ends in self.ends or cause.id in self.causes or f"{cause.family}.*" in self.causes


@frozen(kw_only=True)
class ReasonSign:
    """What shows a reason: all *facts*, and none of *unless*."""

    facts: tuple[MemoryFact, ...] = field(validator=min_len(1))
    unless: tuple[MemoryFact, ...] = ()
    strength: Strength


@frozen(kw_only=True)
class ReasonExample:
    """Evidence that a worker left whose memory went over for this reason, as log text and as events."""

    about: str
    text: str
    #: Fields of each event, and its ``topic``.
    events: tuple[Mapping[str, EventValue], ...] = field(default=(), hash=False)
    #: Whether the reason is named; else something else is, or nothing.
    is_named: bool = True


@frozen(kw_only=True)
class ReasonRule:
    """Why memory goes over the limit, and what helps (``knowledge/reasons.toml``)."""

    id: MemoryReason
    title: str
    #: What happens, for a data scientist.
    why: str
    frequency: Frequency = "usual"
    #: The changes that help, in the order in which to try them; none where only the code can be mended.
    cures: tuple[CureKind, ...] = ()
    #: Facts of which none may hold, whatever shows it.
    unless: tuple[MemoryFact, ...] = ()
    #: The first of them that shows decides.
    signs: tuple[ReasonSign, ...] = field(validator=min_len(1))
    #: What looks the same, and what tells them apart.
    lookalikes: Mapping[MemoryReason, str] = field(factory=dict, hash=False)
    examples: tuple[ReasonExample, ...] = ()


@frozen(kw_only=True)
class Landmark(TextRule):
    """A message that marks a point in a worker's life, with captures that say which worker and how.

    Captures with these names mean the same everywhere: ``pid``, ``worker``, ``nanny``, ``name``, ``host``,
    ``container``, ``signal``, ``signal_name``, ``status``, ``reason``, ``stimulus``, ``task``, ``follows``.
    """

    id: str = field(validator=matches_re(r"[a-z0-9-]+\.[a-z0-9-]+"))
    revision: int = field(default=1, validator=ge(1))
    role: LandmarkRole
    #: Whether the pattern is searched in ``logger - LEVEL - message``, not only in the message.
    in_header: bool = False
    #: As `unless`, for the matching lines only: a denial in one line says nothing about another.
    unless_in_line: str | None = None
    #: Text that the three lines above may have. Matches below it get the capture ``follows``, and the first
    #: and last of them are kept apart from those of the others: thousands of the ones hide no other.
    follows: str = ""
    #: Exit that the message implies if it captures none.
    signal: int | None = None
    status: int | None = None
    #: Where to look if it bars the all-clear and no cause is known; may use ``{captures}`` of the pattern.
    next_steps: tuple[NextStepRule, ...] = ()


@frozen(kw_only=True)
class Rulebook:
    """All rules of one release."""

    #: Version of the file format, and the release that reports quote.
    schema: int
    release: str
    causes: tuple[Cause, ...]
    landmarks: tuple[Landmark, ...]
    #: What caught exceptions can come of; the first that fits decides.
    errors: tuple[ErrorRule, ...] = ()
    #: Why memory goes over a limit.
    reasons: tuple[ReasonRule, ...] = ()
    #: Advice if no cause is known, but Dask gave up on a task or workers were lost.
    advice: tuple[Mitigation, ...] = ()
    #: The same if nothing died and a task failed.
    task_advice: tuple[Mitigation, ...] = ()
    #: What was left out or overridden, and why (such as packs that are newer than this engine).
    notes: tuple[str, ...] = ()
    #: Literals that every match of a pattern must contain, if known in advance. None for a pattern that is
    #: known to compile and is not searched in logs.
    literals: Mapping[str, tuple[str, ...]] = field(factory=dict, hash=False, eq=False, repr=False)

    def cause(self, cause_id: str | None) -> Cause | None:
        """Return the cause with that id, or None."""
        return self._causes_by_id.get(cause_id or "")

    @cached_property
    def _causes_by_id(self) -> Mapping[str, Cause]:
        return {each.id: each for each in self.causes}

    @cached_property
    def landmarks_by_id(self) -> Mapping[str, Landmark]:
        """The landmarks by id."""
        return {each.id: each for each in self.landmarks}

    @cached_property
    def signs(self) -> Mapping[tuple[str, str], Sign]:
        """All signs, by the cause's id and the sign's name."""
        return {(cause.id, sign.name): sign for cause in self.causes for sign in (*cause.signs, *cause.against)}

    @cached_property
    def against(self) -> frozenset[tuple[str, str]]:
        """The signs that speak against a cause, by the cause's id and the sign's name."""
        return frozenset((cause.id, sign.name) for cause in self.causes for sign in cause.against)

    @cached_property
    def active_causes(self) -> Mapping[str, Cause]:
        """The active causes by id, without deprecated causes."""
        return {cause.id: cause for cause in self.causes if cause.status != "deprecated"}

    @cached_property
    def signs_shown_without_match(self) -> Mapping[str, tuple[Sign, ...]]:
        """The signs that an exit or a group of landmarks alone can show, by their cause's id."""
        found: dict[str, tuple[Sign, ...]] = {}
        for cause in self.active_causes.values():
            for sign in cause.signs:
                if isinstance(sign, (ExitSign, TogetherSign)):
                    found[cause.id] = (*found.get(cause.id, ()), sign)
        return found

    def log_rules(self) -> Iterator[tuple[str, str, LogSign | Landmark]]:
        """All rules with a pattern for log text, with the owner's id and the rule's name."""
        for landmark in self.landmarks:
            yield landmark.id, "", landmark
        for cause in self.causes:
            for sign in (*cause.signs, *cause.against):
                if isinstance(sign, LogSign):
                    yield cause.id, sign.name, sign


#: Topics of events that sources create; no scheduler has them.
SOURCE_TOPICS = frozenset(
    "awaited-task batch-job black-box client-state cgroup cluster cluster-setup configuration disk finished-kind"
    " host last-output limits lost-tasks module nanny-state recorder rescue scheduler-state spill-disk"
    " task-needs task-state tasks-made undelivered-error unread-task versions worker-state workload"
    " workload-step".split()
)


def scheduler_topics(book: Rulebook) -> tuple[str, ...]:
    """At most 20 topics to request from a scheduler, so that the event signs of *book* can show."""
    topics = {
        topic
        for cause in book.causes
        if cause.status != "deprecated"
        for sign in (*cause.signs, *cause.against)
        if isinstance(sign, EventSign)
        for topic in sign.topic.split("|")
        if re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)*", topic)
    }
    return tuple(sorted(topics - SOURCE_TOPICS - {"all", "worker"}))[:20]
