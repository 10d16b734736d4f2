"""Findings, to which the public ``Diagnosis`` adds renderings: deaths, ranked causes, blame and next steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs.validators import ge

from workerdiag.model.evidence import Gap
from workerdiag.model.identity import NO_IDENTITY, Identity
from workerdiag.model.memory import PROBABILITY, Cure, MemoryAccount
from workerdiag.model.normalize import normalize_fields
from workerdiag.model.timeline import CodeLine, Timeline
from workerdiag.model.vocabulary import FactorKind, Grade, MatchRole, Outcome, RetryAction, Stream, Verdict
from workerdiag.values import field, frozen

#: Shape of the JSON form; one more whenever a reader could notice.
JSON_SCHEMA = 1

#: Metadata of an attribute that earlier JSON of the same schema lacks; readers then use its default.
ADDED_LATER: Final[Mapping[str, bool]] = {"added_later": True}

#: Role of a match that only identifies the program that wrote the log.
RECOGNITION_ROLE: Final = "recognised"

#: Probability from which a cause supports a verdict or a decision.
SURE_ENOUGH = 0.5


@frozen(kw_only=True)
class Match:
    """A sign or a landmark found at one place."""

    #: Id of the cause or the landmark.
    owner: str
    #: Name of the sign; empty for a landmark.
    sign: str = ""
    role: MatchRole = "sign"
    #: The matched text, clipped.
    text: str = ""
    captures: Mapping[str, str] = field(factory=dict, hash=False)
    #: Where: file (or topic, or ``exception``), and the line counted from 1; 0 without lines.
    origin: str = ""
    line: int = 0
    last_line: int = 0
    #: Offset in the text of its log, in bytes; None if the text was changed before the search.
    offset: int | None = None
    #: First line of its message, counted as *line*; 0 in text without headers.
    message_line: int = 0
    stream: Stream | None = None
    when: float | None = None
    #: Whether the text gives no year (syslog), so that one was assumed.
    year_assumed: bool = False
    identity: Identity = NO_IDENTITY
    #: Whether it is in the report of a failed task ("Compute Failed"), which kills no worker.
    in_task: bool = False


@frozen(kw_only=True, field_transformer=normalize_fields)
class Clue:
    """One piece of evidence as a report shows it."""

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
    """A mitigation, with its numbers filled in from this death."""

    do: str
    when: str = ""
    cost: str = ""
    example: str = ""


@frozen(kw_only=True, field_transformer=normalize_fields)
class Factor:
    """One factor of the probability of a cause, which is the product of all of them."""

    kind: FactorKind
    #: What the odds are multiplied by. Not called a value: beside a name, that would be masked like a secret's.
    times: float
    #: The frequency, the sign, or the causes that explain it or share with it, with commas.
    name: str = ""
    #: The place of the sign, as in its `Clue`.
    where: str = ""


@frozen(kw_only=True, field_transformer=normalize_fields)
class RankedCause:
    """A cause with its probability and its evidence."""

    id: str
    revision: int
    title: str
    family: str
    why: str
    #: From 0 to 1; all causes and ``unknown_probability`` sum to 1.
    probability: float = field(validator=PROBABILITY)
    evidence: tuple[Clue, ...] = ()
    against: tuple[Clue, ...] = ()
    #: Signs that could not be checked, with the place that was not read.
    unchecked: tuple[str, ...] = ()
    mitigations: tuple[Advice, ...] = ()
    references: tuple[str, ...] = ()
    #: How its probability comes about, where most of it comes from.
    factors: tuple[Factor, ...] = field(default=(), metadata=ADDED_LATER)


@frozen(kw_only=True, field_transformer=normalize_fields)
class Death:
    """One worker process that ended, or that the scheduler lost."""

    identity: Identity
    when: float | None = None
    #: Signal or exit status, if known.
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
    #: Where it crashed, if a dump shows it: the task's frames, innermost first, as ``function (file:line)``.
    crashed_in: tuple[str, ...] = ()
    #: The lines of the user's code at which its tasks were when its nanny ended it for its memory.
    lines: tuple[CodeLine, ...] = field(default=(), metadata=ADDED_LATER)
    #: The last line that it wrote on standard error, if no logger of Dask wrote it.
    last_output: str = ""
    rss_bytes: int | None = None
    limit_bytes: int | None = None
    #: Likeliest cause of this death alone, and its probability.
    cause: str | None = None
    probability: float = 0.0


@frozen(kw_only=True, field_transformer=normalize_fields)
class Blame:
    """Who needs to act."""

    verdict: Verdict = "unknown"
    #: The task that Dask blames, if it blames one.
    task: str | None = None
    reasons: tuple[str, ...] = ()
    #: Whether that task's function would also have failed if only executing tasks were counted; None if not known.
    fairly_blamed: bool | None = None


@frozen(kw_only=True, field_transformer=normalize_fields)
class NextStep:
    """One place to inspect next, with its cost."""

    inspect: str
    command: str = ""
    permission: str = ""
    until: str = ""
    #: Causes it would tell apart.
    distinguishes: tuple[str, ...] = ()
    #: Whether the error itself calls for it; else it is for any error.
    of_error: bool = field(default=False, metadata=ADDED_LATER)


@frozen(kw_only=True, field_transformer=normalize_fields)
class RetryPolicy:
    """What a program may do with the same work, and under which conditions."""

    #: ``ask`` wherever no cause is at least 80 % likely.
    action: RetryAction = "ask"
    #: One sentence; empty in a diagnosis of a release that had no policies.
    reason: str = ""
    #: When it holds, one sentence each; with ``ask``: what a person has to decide.
    conditions: tuple[str, ...] = ()
    #: With ``retry-with-memory``: the least memory for each worker, in bytes; else None. It is more than was
    #: too little. It is known to be enough only if `Decision.needs_memory_bytes` has a value.
    memory_bytes: int | None = None
    #: How often the work may be tried in this way; None: no limit.
    max_tries: int | None = field(default=None, metadata=ADDED_LATER)


@frozen(kw_only=True, field_transformer=normalize_fields)
class Decision:
    """The decision for callers that act without reading."""

    #: Whether running the same work again, unchanged, may be expected to succeed.
    retry_safe: bool | None = None
    #: Memory that would have been enough for a worker, in bytes. None if not known, as for any worker that
    #: was stopped while it wanted more.
    needs_memory_bytes: int | None = None
    #: A size that is too small, in bytes: more memory was wanted, and how much more is unknown.
    needs_memory_lower_bound_bytes: int | None = None
    #: Whether the platform or its operator ended it, not the work.
    platform_fault: bool | None = None
    #: What to do with the same work; always ``ask`` below 80 %.
    policy: RetryPolicy = field(default=RetryPolicy(), metadata=ADDED_LATER)


@frozen(kw_only=True, field_transformer=normalize_fields)
class TaskFailure:
    """An exception that a task or the caller's own program raised, which ends no worker."""

    #: Name of its class, e.g. ``KeyError``.
    type: str
    message: str = ""
    #: Where in the task or in the program, as ``function (file:line)``; empty if it is not known.
    raised_at: str = ""
    #: That line with its neighbours, each with its number.
    source: tuple[str, ...] = ()
    #: Whether a task raised it; else the caller's own program did, and no worker took part.
    in_task: bool = field(default=True, metadata=ADDED_LATER)


@frozen(kw_only=True, field_transformer=normalize_fields)
class UnlistedDeaths:
    """Deaths of which only the number is known."""

    #: The number of known deaths.
    count: int = field(default=0, validator=ge(0))
    #: Whether there may be more, because logs or events were only counted in part.
    maybe_more: bool = False


@frozen(kw_only=True, field_transformer=normalize_fields)
class PresentTask:
    """A task that the client waits for, at the moment of the question."""

    key: str
    #: As the scheduler has it: ``processing``, ``queued``, ``no-worker`` or ``waiting``.
    state: str
    #: Address of the worker that has it.
    worker: str | None = None
    #: Seconds for which it runs; None if it does not.
    running_s: float | None = None
    #: What its code waits for: ``lock``, ``semaphore``, ``queue``, ``variable``, ``event``, ``actor`` or
    #: ``task``; empty if it waits for nothing of Dask's, or if that is not known.
    waits_for: str = ""
    #: Where, as ``function (file:line)``, and the name of the lock or queue.
    waits_at: str = ""
    awaited_name: str = ""
    #: Seconds since the holder of the lock was heard of; None if nobody holds it, or for other waits.
    holder_silent_s: float | None = None


@frozen(kw_only=True, field_transformer=normalize_fields)
class Present:
    """What ran, waited, was paused or silent when the question was asked."""

    #: Number of workers; None if not known.
    workers: int | None = None
    #: Workers that the client's cluster object wants, and those of them that it ended and starts no others for.
    wanted_workers: int | None = None
    given_up_workers: int | None = None
    #: Number of tasks that no worker has yet, at least.
    waiting_tasks: int = 0
    #: Addresses of paused workers, and of those that answer nobody; at most five each.
    paused: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    #: Seconds since the longest silent worker was heard of.
    silent_s: float | None = None
    #: What waiting tasks require that no worker offers, such as ``worker tcp://10.0.0.4:3001``.
    restrictions: str = ""
    #: Some of the tasks that the client waits for.
    tasks: tuple[PresentTask, ...] = ()


@frozen(kw_only=True, field_transformer=normalize_fields)
class CountTerm:
    """A number of tasks."""

    #: None if it is not known.
    count: int | None = None
    #: Where it was seen; empty if it is not known.
    origin: str = ""
    #: What would show it; empty if it is known.
    missing: str = ""


@frozen(kw_only=True, field_transformer=normalize_fields)
class Churn:
    """Workers that die, are replaced and die again while work waits, so that nothing is ever raised."""

    #: The likeliest cause of the newest deaths; None if it is not known.
    cause: str | None = None
    #: Deaths of that cause, and whether there may be more.
    deaths: int = 0
    maybe_more: bool = False
    #: Seconds from the first of them to the last, and since the last.
    period_s: float = 0.0
    ago_s: float = 0.0
    #: How many of the dead had taken the place of another one.
    replacements: int = 0
    #: Finished results that were lost with the dead, and are computed again.
    lost_results: CountTerm = CountTerm()
    #: All results that were finished, those computed again too.
    finished: CountTerm = CountTerm()
    #: Tasks that ran when their worker died, and begin again.
    interrupted: CountTerm = CountTerm()


@frozen(kw_only=True, field_transformer=normalize_fields)
class Findings:
    """All findings about one incident."""

    outcome: Outcome
    #: One sentence: what happened, also when nothing died.
    summary: str
    causes: tuple[RankedCause, ...] = ()
    unknown_probability: float = field(default=1.0, validator=PROBABILITY)
    deaths: tuple[Death, ...] = ()
    blame: Blame = Blame()
    next_steps: tuple[NextStep, ...] = ()
    gaps: tuple[Gap, ...] = ()
    decision: Decision = Decision()
    #: Equal for repeats of the same trouble; contains no host, pid or time.
    fingerprint: str = ""
    #: Release of the knowledge base, and of workerdiag.
    knowledge: str = ""
    version: str = ""
    #: Lines of notes: rules skipped, logs clipped.
    notes: tuple[str, ...] = ()
    #: The error of the task, or of the caller's own program, behind the caller's exception, if there is one.
    failure: TaskFailure | None = field(default=None, metadata=ADDED_LATER)
    #: Whether the caller caught a task's or the program's own error, so that the deaths are a separate matter.
    deaths_are_separate: bool = field(default=False, metadata=ADDED_LATER)
    #: Memory, tasks and events around the deaths, for the drawings.
    timeline: Timeline = field(default=Timeline(), metadata=ADDED_LATER)
    #: What ran and waited when the question was asked; None if nothing did, or nobody could be asked.
    present: Present | None = field(default=None, metadata=ADDED_LATER)
    #: How workers die and are replaced again and again while work waits; None if they do not.
    churn: Churn | None = field(default=None, metadata=ADDED_LATER)
    #: Deaths beyond those in ``deaths``, of which only the first and the last hundreds are listed.
    unlisted_deaths: UnlistedDeaths = field(default=UnlistedDeaths(), metadata=ADDED_LATER)
    #: What filled the limit, and why, if memory was the cause; else None.
    memory: MemoryAccount | None = field(default=None, metadata=ADDED_LATER)
    #: What `workerdiag.rescue` did because of the deaths, one sentence each, in order.
    acts: tuple[str, ...] = field(default=(), metadata=ADDED_LATER)
    #: At most three changes, in the order in which to try them.
    cures: tuple[Cure, ...] = field(default=(), metadata=ADDED_LATER)

    @property
    def death_count(self) -> int:
        """How many deaths are known, listed or not; a lower bound with `UnlistedDeaths.maybe_more`."""
        return len(self.deaths) + self.unlisted_deaths.count

    @property
    def top(self) -> RankedCause | None:
        """The likeliest cause, or None."""
        return self.causes[0] if self.causes else None


def findings_answer(findings: Findings) -> str:
    """The id of the likeliest cause if there is one, else the outcome."""
    return findings.top.id if findings.outcome == "explained" and findings.top else findings.outcome
