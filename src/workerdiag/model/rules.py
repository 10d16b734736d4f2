"""
What is known about the ways a worker dies: causes, what to change about them, and the landmarks of a log.

Pure data. ``workerdiag.rulebook`` makes these objects from ``knowledge/``.
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

#: What mitigations may quote of a death in braces: its memory, ...
MEMORY_PLACEHOLDERS = ("rss", "limit", "more_than", "needs_memory", "pod_memory", "growth", "percent")
#: ... where it crashed, if a pattern of the cause captures faulthandler's frames under this name, ...
STACK_CAPTURE = "stack"
CRASH_PLACEHOLDERS = ("frame", "package")
#: ... what is known of the cluster and of a task that was given up, ...
CLUSTER_PLACEHOLDERS = ("dashboard", "cluster", "gave_up", "losses", "allowed_failures")
#: ... and captures of these names in the cause's own patterns.
CAPTURE_PLACEHOLDERS = ("module", "task", "seconds", "path", "port", "address")
#: A scheduler has a new worker.
REGISTRATIONS = ("scheduler.register-worker", "event.add-worker")
#: A scheduler retires the workers that it lists.
RETIREMENT = "scheduler.retire"
#: A nanny loses patience with a worker process that was asked to close.
STILL_ALIVE = "nanny.still-alive"
#: The command of a nanny whose worker did not start ends with a traceback that says so.
START_FAILED = "nanny.start-failed"
#: How a scheduler that was asked stands: its workers, and what waits for them.
SCHEDULER_STATE = "event.scheduler-state"
#: A line without a header reports an end, in words that nobody has written down.
LINE_OF_OTHERS = "untold.line-of-others"
#: A log ends in the words of somebody else, which are of no kind that stood there before.
LAST_LINE = "log.last-line"
#: In a log without a word of Dask's stands a line with a word of an end.
LOG_OF_OTHERS = "log.of-others"
#: Where a task itself says so, workers of the tasks that it waited for died.
KILLED_WORKER = "trouble.killed-worker"
#: A kernel goes no further, or does not for a program that may be a worker.
STANDSTILLS_OF_MACHINES = ("untold.machine-down", "untold.stuck-in-the-kernel", "untold.machine-in-trouble")
#: Ends that every run comes to: a script that is done stops its workers, and connections close.
EVERYDAY_ENDS: tuple[CauseEnd, ...] = ("stopped", "disconnected")
#: The ratio for causes of everyday ends, where a sign stands alone and nothing tells that a process ended:
#: an orderly shutdown leaves the same message.
LONE_GRADES: Mapping[Grade, float] = {"moderate": 250.0}
#: Odds of a cause against "unknown" before anything is seen.
FREQUENCIES: Mapping[Frequency, float] = {"common": 0.04, "usual": 0.02, "rare": 0.01}


@frozen(kw_only=True)
class Mitigation:
    """
    Something to change. Text may use ``{numbers}`` computed from the death.
    """

    #: When it applies; empty: always.
    when: str = ""
    do: str
    #: The same as a place to look at ("the log of ..."), for where no cause is known.
    inspect: str = ""
    #: What it costs.
    cost: str = ""
    #: Configuration or command, as it would be typed.
    example: str = ""
    #: Numbers that the text uses; where one is unknown the mitigation is worded without.
    uses: tuple[str, ...] = ()
    #: Numbers that make it superfluous: where one of them is known it is left out.
    superseded_by: tuple[str, ...] = ()
    #: Signs of this cause that it is for: where none of them shows it is left out; empty: always for it.
    signs: tuple[str, ...] = ()
    #: Words without which it makes no sense: where one of them is not known it is left out.
    requires: tuple[str, ...] = ()
    #: Deployments it is for; empty: all of them.
    deployments: tuple[Deployment, ...] = ()
    #: Deployment to what is typed there instead of `example`.
    examples: Mapping[Deployment, str] = field(factory=dict, hash=False)
    #: Name of the file under ``knowledge/shared`` that it is from; empty: of the cause itself.
    advice: str = ""


@frozen(kw_only=True)
class RivalCause:
    """
    A cause with similar signs, and how to distinguish the two.
    """

    cause: str
    difference: str


@frozen(kw_only=True)
class NextStepRule:
    """
    A place whose inspection would confirm or exclude the cause, or explain a landmark.
    """

    inspect: str
    command: str = ""
    permission: str = ""
    #: Until when it can still be done.
    until: str = ""


@frozen(kw_only=True)
class Cause:
    """
    One way for a worker to die, to never start, or to stand still.
    """

    id: str = field(validator=matches_re(r"[a-z0-9-]+\.[a-z0-9-]+"))
    revision: int = field(validator=ge(1))
    #: Who wrote it, when it was added (2026-11-21), and where it was learned.
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
    #: Oldest engine that understands this rule.
    engine: str = "0.1"
    #: Whether it is this cause also when all that happened is that a task failed.
    includes_task_errors: bool = False
    #: Whether it ends a worker at a memory limit of its own: its nanny's, its container's, its job's.
    at_own_limit: bool = False
    #: Causes whose signs are consequences of this one, where this one is shown.
    explains: tuple[str, ...] = ()
    rivals: tuple[RivalCause, ...] = ()
    signs: tuple[Sign, ...] = ()
    against: tuple[Sign, ...] = ()
    mitigations: tuple[Mitigation, ...] = ()
    next_steps: tuple[NextStepRule, ...] = ()
    references: tuple[str, ...] = ()

    @property
    def family(self) -> str:
        """
        The part of the id before the dot.
        """
        return self.id.partition(".")[0]


@frozen(kw_only=True)
class Landmark:
    """
    A message that marks a point in a worker's life, with who and how captured from it.

    Captures with these names mean the same everywhere: ``pid``, ``worker``, ``nanny``,
    ``name``, ``host``, ``container``, ``signal``, ``signal_name``, ``status``, ``reason``, ``stimulus``,
    ``task``.
    """

    id: str = field(validator=matches_re(r"[a-z0-9-]+\.[a-z0-9-]+"))
    revision: int = field(default=1, validator=ge(1))
    role: LandmarkRole
    pattern: str = ""
    #: Instead of `pattern`: several, of which one is enough.
    patterns: tuple[str, ...] = field(default=(), validator=pattern_or_patterns)
    #: Whether the pattern is searched in ``logger - LEVEL - message`` and not in the message alone.
    in_header: bool = False
    unless: str | None = None
    #: The same, of the very lines that match: a denial in one line says nothing of another.
    unless_in_line: str | None = None
    streams: tuple[Stream, ...] = ()
    #: Exit of the process that the message implies when it captures none.
    signal: int | None = None
    status: int | None = None
    introduced: str = ""
    removed: str = ""
    seen: tuple[str, ...] = ()
    lookalikes: tuple[str, ...] = ()
    #: Where to look when it bars the all-clear and no cause is known; may use ``{captures}`` of the pattern.
    next_steps: tuple[NextStepRule, ...] = ()

    @property
    def wordings(self) -> tuple[str, ...]:
        """
        The patterns, of which one is enough.
        """
        return self.patterns or (self.pattern,)


@frozen(kw_only=True)
class Rulebook:
    """
    All that is known, of one release.
    """

    #: Shape of the files, and the release that reports quote.
    schema: int
    release: str
    causes: tuple[Cause, ...]
    landmarks: tuple[Landmark, ...]
    #: Advice for where no cause is known, but Dask gave up on a task or workers were lost.
    advice: tuple[Mitigation, ...] = ()
    #: The same for where nothing died and a task failed.
    task_advice: tuple[Mitigation, ...] = ()
    #: What was left out or overridden, and why (packs that are newer than this engine ...).
    notes: tuple[str, ...] = ()
    #: The literals that every message matching a pattern must contain, where known ahead. None for a pattern
    #: that is searched for in other text than logs and is known to compile.
    literals: Mapping[str, tuple[str, ...]] = field(factory=dict, hash=False, eq=False, repr=False)

    def cause(self, cause_id: str) -> Cause | None:
        """
        The cause of that id, or None.
        """
        return self._causes_by_id.get(cause_id)

    @cached_property
    def _causes_by_id(self) -> Mapping[str, Cause]:
        return {each.id: each for each in self.causes}

    @cached_property
    def landmarks_by_id(self) -> Mapping[str, Landmark]:
        """
        The landmarks by their id.
        """
        return {each.id: each for each in self.landmarks}

    @cached_property
    def signs(self) -> Mapping[tuple[str, str], Sign]:
        """
        All signs, by their cause's id and their name there.
        """
        return {
            (cause.id, sign.name): sign for cause in self.causes for sign in (*cause.signs, *cause.against)
        }

    @cached_property
    def against(self) -> frozenset[tuple[str, str]]:
        """
        The signs that speak against a cause, by its id and their name there.
        """
        return frozenset((cause.id, sign.name) for cause in self.causes for sign in cause.against)

    @cached_property
    def active_causes(self) -> Mapping[str, Cause]:
        """
        The causes that count, by their id: all but the deprecated ones.
        """
        return {cause.id: cause for cause in self.causes if cause.status != "deprecated"}

    @cached_property
    def signs_shown_without_match(self) -> Mapping[str, tuple[Sign, ...]]:
        """
        By the ids of their causes, the signs that an exit, or landmarks together, can show by themselves.
        """
        found: dict[str, tuple[Sign, ...]] = {}
        for cause in self.active_causes.values():
            for sign in cause.signs:
                if isinstance(sign, (ExitSign, TogetherSign)):
                    found[cause.id] = (*found.get(cause.id, ()), sign)
        return found

    def log_rules(self) -> Iterator[tuple[str, str, LogSign | Landmark]]:
        """
        All rules with a pattern for log text, each with its owner's id and its name there.
        """
        for landmark in self.landmarks:
            yield landmark.id, "", landmark
        for cause in self.causes:
            for sign in (*cause.signs, *cause.against):
                if isinstance(sign, LogSign):
                    yield cause.id, sign.name, sign
