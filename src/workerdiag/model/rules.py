"""The rules about how workers die: causes, what to change about them, and the landmarks of a log.

Pure data: ``workerdiag.rulebook`` makes these objects from ``knowledge/``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from attrs import field, frozen
from attrs.validators import ge, matches_re

from workerdiag.model.signs import ExitSign, LogSign, Sign, TogetherSign, pattern_or_patterns
from workerdiag.model.vocabulary import (
    CauseEnd,
    Deployment,
    Frequency,
    Grade,
    LandmarkRole,
    RetryVerdict,
    RuleOrigin,
    RuleStatus,
    Stream,
    Verdict,
)

#: Placeholders of mitigations, in braces: the memory of a death, ...
MEMORY_PLACEHOLDERS = ("rss", "limit", "more_than", "needs_memory", "pod_memory", "growth", "percent")
#: ... its crash site, if a pattern of the cause captures faulthandler's frames under this name, ...
STACK_CAPTURE = "stack"
CRASH_PLACEHOLDERS = ("frame", "package")
#: ... data of the cluster and of a task that Dask gave up on, ...
CLUSTER_PLACEHOLDERS = ("dashboard", "cluster", "gave_up", "losses", "allowed_failures")
#: ... and captures of these names in the cause's own patterns.
CAPTURE_PLACEHOLDERS = ("module", "task", "seconds", "path", "port", "address")
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
#: Likelihood ratios for causes of everyday ends, if a sign stands alone and nothing shows that a process
#: ended: an orderly shutdown leaves the same message.
LONE_GRADES: Mapping[Grade, float] = {"moderate": 250.0}
#: Prior odds of a cause against "unknown".
FREQUENCIES: Mapping[Frequency, float] = {"common": 0.04, "usual": 0.02, "rare": 0.01}


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
    #: Signs of this cause for which it applies; if none of them shows, it is left out. Empty: it always
    #: applies.
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
class Landmark:
    """A message that marks a point in a worker's life, with captures that say which worker and how.

    Captures with these names mean the same everywhere: ``pid``, ``worker``, ``nanny``,
    ``name``, ``host``, ``container``, ``signal``, ``signal_name``, ``status``, ``reason``, ``stimulus``,
    ``task``, ``follows``.
    """

    id: str = field(validator=matches_re(r"[a-z0-9-]+\.[a-z0-9-]+"))
    revision: int = field(default=1, validator=ge(1))
    role: LandmarkRole
    pattern: str = ""
    #: Alternative patterns instead of `pattern`; one match is enough.
    patterns: tuple[str, ...] = field(default=(), validator=pattern_or_patterns)
    #: Whether the pattern is searched in ``logger - LEVEL - message``, not only in the message.
    in_header: bool = False
    unless: str | None = None
    #: The same for the matching lines only: a denial in one line says nothing about another.
    unless_in_line: str | None = None
    #: Text that the three lines above may have. Matches below it get the capture ``follows``, and the first
    #: and last of them are kept apart from those of the others: thousands of the ones hide no other.
    follows: str = ""
    streams: tuple[Stream, ...] = ()
    #: Exit that the message implies if it captures none.
    signal: int | None = None
    status: int | None = None
    introduced: str = ""
    removed: str = ""
    seen: tuple[str, ...] = ()
    lookalikes: tuple[str, ...] = ()
    #: Where to look if it bars the all-clear and no cause is known; may use ``{captures}`` of the pattern.
    next_steps: tuple[NextStepRule, ...] = ()

    @property
    def wordings(self) -> tuple[str, ...]:
        """The alternative patterns; one match is enough."""
        return self.patterns or (self.pattern,)


@frozen(kw_only=True)
class Rulebook:
    """All rules of one release."""

    #: Version of the file format, and the release that reports quote.
    schema: int
    release: str
    causes: tuple[Cause, ...]
    landmarks: tuple[Landmark, ...]
    #: Advice if no cause is known, but Dask gave up on a task or workers were lost.
    advice: tuple[Mitigation, ...] = ()
    #: The same if nothing died and a task failed.
    task_advice: tuple[Mitigation, ...] = ()
    #: What was left out or overridden, and why (such as packs that are newer than this engine).
    notes: tuple[str, ...] = ()
    #: Literals that every match of a pattern must contain, if known in advance. None for a pattern that is
    #: known to compile and is not searched in logs.
    literals: Mapping[str, tuple[str, ...]] = field(factory=dict, hash=False, eq=False, repr=False)

    def cause(self, cause_id: str) -> Cause | None:
        """Return the cause with that id, or None."""
        return self._causes_by_id.get(cause_id)

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
        return {
            (cause.id, sign.name): sign for cause in self.causes for sign in (*cause.signs, *cause.against)
        }

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
