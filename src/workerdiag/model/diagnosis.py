"""
What was concluded: matches, deaths, ranked causes, blame, next steps.

`Findings` is what the pipeline returns; the public ``Diagnosis`` adds the renderings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import field, frozen
from attrs.validators import and_, ge, le

from workerdiag.model.evidence import Gap
from workerdiag.model.identity import NO_IDENTITY, Identity
from workerdiag.model.normalize import normalize_fields
from workerdiag.model.timeline import Timeline
from workerdiag.model.vocabulary import Grade, MatchRole, Outcome, RetryAction, Stream, Verdict

#: Shape of the JSON form; one more whenever a reader could notice.
JSON_SCHEMA = 1

#: Metadata of an attribute that earlier JSON of the same schema lacks; its default is read then.
ADDED_LATER: Final[Mapping[str, bool]] = {"added_later": True}

#: Role of a match that only says whose log it is.
RECOGNITION_ROLE: Final = "recognised"

#: Below this probability a cause is no ground for a verdict or a decision.
SURE_ENOUGH = 0.5

_probability = and_(ge(0.0), le(1.0))


@frozen(kw_only=True)
class Match:
    """
    A sign or a landmark, found at one place.
    """

    #: Id of the cause or the landmark.
    owner: str
    #: Name of the sign; empty for a landmark.
    sign: str = ""
    role: MatchRole = "sign"
    #: What was seen, in its own words, clipped.
    text: str = ""
    captures: Mapping[str, str] = field(factory=dict, hash=False)
    #: Where: file (or topic, or ``exception``), and the line counted from 1; 0 without lines.
    origin: str = ""
    line: int = 0
    last_line: int = 0
    #: Where it begins in the text of its log, in bytes; None where no text has it as it was read.
    offset: int | None = None
    #: First line of the message that it stands in, counted as *line*; 0 in text without headers.
    message_line: int = 0
    stream: Stream | None = None
    when: float | None = None
    #: Whether the text gives no year (syslog), so that one was assumed.
    year_assumed: bool = False
    identity: Identity = NO_IDENTITY
    #: Whether it stands in the report of a failed task ("Compute Failed"), which kills nobody.
    in_task: bool = False


@frozen(kw_only=True, field_transformer=normalize_fields)
class Clue:
    """
    One piece of evidence as a report shows it.
    """

    sign: str
    text: str
    #: ``worker.log:120`` or ``event worker-restart-memory``.
    where: str
    grade: Grade
    when: float | None = None
    #: How many times the same was seen.
    times: int = field(default=1, validator=ge(1))


@frozen(kw_only=True, field_transformer=normalize_fields)
class Advice:
    """
    A mitigation, with its numbers filled in from this death.
    """

    do: str
    when: str = ""
    cost: str = ""
    example: str = ""


@frozen(kw_only=True, field_transformer=normalize_fields)
class RankedCause:
    """
    A cause with how likely it is, and why.
    """

    id: str
    revision: int
    title: str
    family: str
    why: str
    #: Chance from 0 to 1; all causes and ``unknown_probability`` sum to 1.
    probability: float = field(validator=_probability)
    evidence: tuple[Clue, ...] = ()
    against: tuple[Clue, ...] = ()
    #: Signs that could not be checked, with the place that was not looked at.
    unchecked: tuple[str, ...] = ()
    mitigations: tuple[Advice, ...] = ()
    references: tuple[str, ...] = ()


@frozen(kw_only=True, field_transformer=normalize_fields)
class Death:
    """
    One worker process that ended, or that the scheduler lost.
    """

    identity: Identity
    when: float | None = None
    #: Signal or exit status, where anybody said.
    signal: int | None = None
    status: int | None = None
    #: Whether somebody asked it to stop.
    stop_requested: bool = False
    #: How it was noticed: ``nanny log``, ``scheduler log``, ``exception``, ...
    reporters: tuple[str, ...] = ()
    #: Reason or stimulus given, as Dask words it.
    reason: str | None = None
    #: Tasks that were assigned to it when it died, and those known to be executing.
    assigned: tuple[str, ...] = ()
    executing: tuple[str, ...] | None = None
    #: Where it crashed, where a dump tells: the task's frames, innermost first, as ``function (file:line)``.
    crashed_in: tuple[str, ...] = ()
    rss_bytes: int | None = None
    limit_bytes: int | None = None
    #: Likeliest cause of this death alone, and its chance.
    cause: str | None = None
    probability: float = 0.0


@frozen(kw_only=True, field_transformer=normalize_fields)
class Blame:
    """
    Who needs to act.
    """

    verdict: Verdict = "unknown"
    #: The task that Dask blames, if it blames one.
    task: str | None = None
    reasons: tuple[str, ...] = ()
    #: Whether that task would have failed had only executing tasks been counted; None: not known.
    fairly_blamed: bool | None = None


@frozen(kw_only=True, field_transformer=normalize_fields)
class NextStep:
    """
    One place to inspect that would settle more than it costs.
    """

    inspect: str
    command: str = ""
    permission: str = ""
    until: str = ""
    #: Causes it would tell apart.
    distinguishes: tuple[str, ...] = ()


@frozen(kw_only=True, field_transformer=normalize_fields)
class RetryPolicy:
    """
    What a program may do with the same work, and when that holds.
    """

    #: ``ask`` wherever no cause is at least 80 % likely.
    action: RetryAction = "ask"
    #: One sentence; empty in a diagnosis of a release that had no policies.
    reason: str = ""
    #: When it holds, a sentence each; with ``ask``: what decides.
    conditions: tuple[str, ...] = ()
    #: With ``retry-with-memory``: what each worker should have at least, in bytes; else None. It is more than
    #: what was too little; whether it is enough is only known where `Decision.needs_memory_bytes` says so.
    memory_bytes: int | None = None
    #: How often the work may be tried in this way; None: as often as whoever runs it likes.
    max_tries: int | None = field(default=None, metadata=ADDED_LATER)


@frozen(kw_only=True, field_transformer=normalize_fields)
class Decision:
    """
    For callers that act without reading.
    """

    #: Whether running the same work again, unchanged, may be expected to succeed.
    retry_safe: bool | None = None
    #: Memory that would have been enough for a worker, in bytes. None: not known, as wherever it was stopped
    #: while it still wanted more.
    needs_memory_bytes: int | None = None
    #: More memory than this was wanted, in bytes; nobody knows how much more. That size is too small.
    needs_memory_lower_bound_bytes: int | None = None
    #: Whether the platform or its operator ended it, not the work.
    platform_fault: bool | None = None
    #: What to do with the same work; never anything but ``ask`` below 80 %.
    policy: RetryPolicy = field(default=RetryPolicy(), metadata=ADDED_LATER)


@frozen(kw_only=True, field_transformer=normalize_fields)
class TaskFailure:
    """
    An exception that a task raised, which ends no worker.
    """

    #: Name of its class, e.g. ``KeyError``.
    type: str
    message: str = ""
    #: Where in the task, as ``function (file:line)``; empty if it is not known.
    raised_at: str = ""
    #: That line with its neighbours, each with its number.
    source: tuple[str, ...] = ()


@frozen(kw_only=True, field_transformer=normalize_fields)
class UnlistedDeaths:
    """
    Deaths of which only the number is known.
    """

    #: How many are known.
    count: int = field(default=0, validator=ge(0))
    #: Whether there may be more: logs or events were counted only in part.
    maybe_more: bool = False


@frozen(kw_only=True, field_transformer=normalize_fields)
class Findings:
    """
    Everything that was concluded about one incident.
    """

    outcome: Outcome
    #: One sentence: what happened, also when nothing died.
    summary: str
    causes: tuple[RankedCause, ...] = ()
    unknown_probability: float = field(default=1.0, validator=_probability)
    deaths: tuple[Death, ...] = ()
    blame: Blame = Blame()
    next_steps: tuple[NextStep, ...] = ()
    gaps: tuple[Gap, ...] = ()
    decision: Decision = Decision()
    #: Equal for repeats of the same trouble; no host, pid or time in it.
    fingerprint: str = ""
    #: Release of the knowledge base that was asked, and of workerdiag.
    knowledge: str = ""
    version: str = ""
    #: Lines of notes: rules skipped, logs clipped.
    notes: tuple[str, ...] = ()
    #: What the task raised that the caller's exception comes from, if it was one.
    failure: TaskFailure | None = field(default=None, metadata=ADDED_LATER)
    #: Whether a task raised by itself what the caller caught, so that the deaths are a separate matter.
    deaths_are_separate: bool = field(default=False, metadata=ADDED_LATER)
    #: What is drawn: memory, tasks and events around the deaths.
    timeline: Timeline = field(default=Timeline(), metadata=ADDED_LATER)
    #: Deaths beyond those in ``deaths``, of which only the first and the last hundreds are listed.
    unlisted_deaths: UnlistedDeaths = field(default=UnlistedDeaths(), metadata=ADDED_LATER)

    @property
    def death_count(self) -> int:
        """
        How many deaths are known, listed or not; a lower bound with `UnlistedDeaths.maybe_more`.
        """
        return len(self.deaths) + self.unlisted_deaths.count

    @property
    def top(self) -> RankedCause | None:
        """
        The likeliest cause, or None.
        """
        return self.causes[0] if self.causes else None


def findings_answer(findings: Findings) -> str:
    """
    The id of the likeliest cause if there is one, else the outcome.
    """
    return findings.top.id if findings.outcome == "explained" and findings.top else findings.outcome
