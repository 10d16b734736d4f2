"""The closed sets: types of the words that a field, rule or report may hold.

mypy checks them in our code, cattrs checks them in input, and the JSON schemas list them. A tuple in capitals
holds the words of a type for checks at run time.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

#: Who writes a piece of text. None means: detect it line by line.
Stream = Literal["worker", "nanny", "scheduler", "client", "kernel", "kubernetes", "batch"]
#: The log of each stream.
LogPlace = Literal[
    "worker log", "nanny log", "scheduler log", "client log", "kernel log", "kubernetes log", "batch log"
]
#: The kind of place that was inspected, or was not. Programs decide by it, never by the name shown to people.
#: ``log``: a text that was given, whoever wrote it. ``scheduler``: the scheduler itself, which may be silent.
#: ``versions``: what servers report of their packages. ``workerdiag``: our own work. ``other``: anything else
#: that is queried: a machine, a batch system, a platform, a store.
Place = Literal[
    LogPlace,
    "log",
    "scheduler",
    "scheduler events",
    "worker states",
    "task states",
    "versions",
    "workload",
    "flight recorder",
    "workerdiag",
    "other",
]
#: Why a place could not be inspected.
GapReason = Literal[
    "expired", "forbidden", "not-installed", "unreachable", "timed-out", "never-recorded", "malformed"
]
#: How an exception relates to the caught exception.
ExceptionRelation = Literal["raised", "cause", "context", "member"]
#: Who answers for a machine, closest to the dead process first. A ``neighbour`` is another worker's nanny on
#: the same host.
LocationRole = Literal["worker", "nanny", "neighbour", "scheduler", "client"]

#: How strongly a sign speaks for its cause.
Grade = Literal["decisive", "strong", "moderate", "weak", "hint"]
#: Source of an exit: the end of a process, merged from all evidence, or any report of an exit of whatever
#: process (a landmark of the role ``exit-report``).
ExitWitness = Literal["process", "report"]
#: How often a cause ends workers.
Frequency = Literal["common", "usual", "rare"]
#: How a cause ends the worker. ``stopped`` is a deliberate stop; ``standstill`` kills no worker.
CauseEnd = Literal["stopped", "raised", "killed", "crashed", "never-started", "standstill", "disconnected"]
#: Who needs to act.
Verdict = Literal["task", "other-task", "configuration", "environment", "platform", "operator", "nobody", "unknown"]
#: Whether the same work can be expected to succeed.
RetryVerdict = Literal["safe", "unsafe", "unknown"]
#: What a program may do with the same work: run it again unchanged; on workers with more memory; on other
#: machines or a new cluster (``retry-elsewhere``); not run it unchanged; or leave it to a person (``ask``).
RetryAction = Literal["retry", "retry-with-memory", "retry-elsewhere", "do-not-retry", "ask"]
#: A factor of a probability: how common the cause is, a sign, an absence, a sign against it, what other causes
#: explain of its signs, what all causes and unknown add up to, and the other deaths of the incident.
FactorKind = Literal["frequency", "sign", "absence", "against", "explained", "rivals", "deaths"]
RuleStatus = Literal["experimental", "stable", "deprecated"]
#: Where a rule was learned: from documentation, from source code, from deaths that were provoked and
#: recorded, or from reports of users.
RuleOrigin = Literal["documentation", "source-code", "lab", "report"]
#: How a worker leaves, or is seen to leave. ``death``: a process ended. ``self-closed``: it closed without a
#: request. ``closed``: it closed for an unknown reason. ``stop-request``: somebody asked it to stop. ``removal``:
#: the scheduler removed it. ``deregistered``: it told the scheduler that it leaves. ``connection-lost``: its
#: connection ended without notice.
_LeaveRole = Literal["death", "self-closed", "closed", "stop-request", "removal", "deregistered", "connection-lost"]
#: ``restart``: the nanny starts a new process. ``start``: a process is up. ``pause``, ``resume``: it stops
#: accepting work, and accepts work again.
_LifeRole = Literal["restart", "start", "pause", "resume"]
#: ``blame``: Dask gives up on a task. ``trouble``: something is wrong. ``task-error``: a task failed.
#: ``disconnect``: a connection or a peer was lost, as also happens in an orderly shutdown. ``blocked``: an event
#: loop did not run for some seconds. ``error``: a message that its writer calls an error. ``failure``: something
#: failed that kills no worker.
_TroubleRole = Literal["blame", "trouble", "task-error", "disconnect", "blocked", "error", "failure"]
#: ``harmless``: it only looks like trouble. ``clean-exit``: a worker's command ended normally. ``deployment``: how
#: the cluster was started. ``exit-report``: a program other than Dask reports that some process ended.
#: ``other-program``: a process that is not a worker ended, so its lines report no death. ``aftermath``: it shows
#: that a worker is gone, but only after the log of a worker that was up. ``note``: a message that means nothing
#: alone.
_OtherRole = Literal["harmless", "clean-exit", "deployment", "exit-report", "other-program", "aftermath", "note"]
#: What a landmark marks.
LandmarkRole = Literal[_LeaveRole, _LifeRole, _TroubleRole, _OtherRole]
#: The kind of a match: the role of a landmark or event (``closing``: a worker says why it closes; ``event``:
#: any other event), a sign, or only the finding whose log it is.
MatchRole = LandmarkRole | Literal["closing", "event", "sign", "recognised"]
#: How a cluster was started, as far as advice depends on it. ``command-line``: `dask worker` by hand.
#: ``batch``: dask-jobqueue, and workers in batch jobs. ``gateway``: Dask Gateway. ``cloud``:
#: dask-cloudprovider (containers and virtual machines).
Deployment = Literal[
    "local", "command-line", "ssh", "batch", "mpi", "kubernetes", "gateway", "yarn", "cloud", "coiled"
]

#: The result of a diagnosis. ``explained``: a cause is named for a death or a standstill. ``no-death``: a
#: place that would show a death was inspected, all of it is recognized, and nothing died or stands still.
#: ``unknown``: something died or hangs, or could not be inspected; or a task itself raised the caught
#: exception, and the deaths are unrelated (``deaths_are_separate``). ``no-evidence``: nothing in the input is
#: recognized.
Outcome = Literal["explained", "no-death", "unknown", "no-evidence"]
#: Why the watcher sends a notice: a case is ``new``; returns after it was ``resolved`` (``recurring``); kills
#: ten times as often or on twice the hosts (``escalating``); now has a different likely cause (``changed``);
#: is over (``resolved``); its cluster is gone (``ended``). ``blind``: the watcher cannot see the cluster.
NoticeReason = Literal["new", "recurring", "escalating", "changed", "resolved", "ended", "blind"]
#: The state of a case: evidence still arrives (``settling``); deaths continue (``firing``, ``escalating``,
#: ``recurring``); no deaths for a while on a cluster that is seen alive (``resolved``); the cluster is gone
#: (``ended``).
CaseState = Literal["settling", "firing", "escalating", "recurring", "resolved", "ended"]
#: The state of a delivery. ``dead``: it was given up, and ``workerdiag watch status`` lists it.
DeliveryState = Literal["pending", "sending", "sent", "dead"]
#: The state of a watcher. ``connecting``: it has not seen the cluster yet. ``watching``: the scheduler
#: answers. ``blind``: it cannot see deaths. ``ended``: the cluster was closed. ``closed``: the watcher was
#: closed.
WatcherState = Literal["connecting", "watching", "blind", "ended", "closed"]
#: The format in which a diagnosis is printed.
ReportFormat = Literal["text", "json", "markdown", "html"]
#: ``pieces-too-large``: a chunk or partition, times what its task needs, times the threads. ``too-many-at-once``:
#: each task alone fits, together they do not. ``one-task-too-large``: one task needs more than a worker has.
#: ``skew``: one piece is many times the others. ``runaway``: one task grows without end.
_TaskReason = Literal["pieces-too-large", "too-many-at-once", "one-task-too-large", "skew"]
#: ``results-stored``: results that are kept fill it. ``brought-together``: everything comes to one place.
#: ``data-in-graph``: the caller's data travel with the tasks. ``leak``: something grows from task to task.
#: ``not-returned``: freed memory is not given back. ``shuffle-buffers``: rows on their way to other workers.
_KeptReason = Literal[
    "results-stored", "brought-together", "data-in-graph", "leak", "not-returned", "shuffle-buffers"
]
#: Why the memory of a worker went over its limit.
MemoryReason = Literal[_TaskReason, _KeptReason, "runaway"]
#: Whether work is expected to fit the workers' memory: ``fits``; ``tight``: it may spill or pause workers;
#: ``too-many-threads``: a task fits, but not one for each thread; ``will-not-fit``: one task is too large;
#: ``result-too-big``: the whole result comes together in one place; ``not-known``: no size is known beforehand.
CheckGrade = Literal["fits", "tight", "too-many-threads", "will-not-fit", "result-too-big", "not-known"]
_PieceFact = Literal["pieces-above-limit", "pieces-above-spilling", "pieces-of-unknown-size", "cut-into-pieces"]
_GraphFact = Literal["frame-in-graph", "large-specification", "data-in-graph", "large-graph-in-log"]
_CopiesFact = Literal["much-data-in-graph", "copies-of-data-at-once", "copies-in-opaque-function"]
_InputFact = Literal["refused-inputs", "many-large-inputs", "many-large-inputs-awaited", "takes-many-inputs"]
_WholeFact = Literal["large-result", "gathering-task", "gathers-many-pieces", "gathers-by-itself", "joined-pieces"]
_UnevenFact = Literal["frequent-key", "uneven-inputs", "one-of-its-kind", "reduces-little"]
_KeyFact = Literal["by-key", "small-pieces", "died-before-key", "exchanging-task"]
_StoredFact = Literal["stored-results", "unmeasured-results", "kept-results", "persisted-results"]
_KeptFact = Literal["kept-object", "memory-left", "idle-memory", "memory-stays", "rising-with-nothing-to-spill"]
_TaskFact = Literal["many-tasks-each", "work-known", "several-at-once", "unmeasured-lost", "loops-until-done"]
_EndFact = Literal["fewer-threads-sufficed", "bigger-worker-sufficed", "alone", "held-the-same", "asked-together"]
_AskedFact = Literal["asked-for-too-much", "asked-bit-by-bit", "asked-unfilled", "refused-allocation"]
_WorkFact = Literal[_PieceFact, _GraphFact, _CopiesFact, _InputFact, _WholeFact, _UnevenFact, _KeyFact]
#: What a memory account or the workload may show: `scoring.memory_reason` looks for each of them, rules weigh it.
MemoryFact = Literal[_WorkFact, _StoredFact, _KeptFact, _TaskFact, _EndFact, _AskedFact]
#: How much a fact speaks for a reason.
Strength = Literal["strong", "moderate", "weak", "hint"]
#: ``worker-memory``: a larger limit. ``threads``: fewer tasks at once. ``piece-size``: chunks or partitions of so
#: many bytes. ``data-in-tasks``: load data in tasks, or scatter them once. ``do-not-collect``: write results out,
#: or reduce them as they come. ``spread-key``: spread the rows of one key.
_WorkCure = Literal["worker-memory", "threads", "piece-size", "data-in-tasks", "do-not-collect", "spread-key"]
#: ``fix-leak``: mend what grows. ``restart-workers``: restart them in turn. ``trim``: give freed memory back.
_KeptCure = Literal["fix-leak", "restart-workers", "trim"]
#: A change that makes work succeed whose workers ran out of memory.
CureKind = Literal[_WorkCure, _KeptCure]

LEAVE_ROLES: tuple[LandmarkRole, ...] = get_args(_LeaveRole)
STREAMS: tuple[Stream, ...] = get_args(Stream)
LOG_PLACES: tuple[LogPlace, ...] = get_args(LogPlace)
PLACES: tuple[Place, ...] = get_args(Place)
GAP_REASONS: tuple[GapReason, ...] = get_args(GapReason)
LOCATION_ROLES: tuple[LocationRole, ...] = get_args(LocationRole)
DEPLOYMENTS: tuple[Deployment, ...] = get_args(Deployment)
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
REPORT_FORMATS: tuple[ReportFormat, ...] = get_args(ReportFormat)


def as_stream(name: object) -> Stream | None:
    """Return *name* as a stream, or None if there is no such stream."""
    return next((each for each in STREAMS if each == name), None)


def as_deployment(name: object) -> Deployment | None:
    """Return *name* as a deployment, or None if there is no such deployment."""
    return next((each for each in DEPLOYMENTS if each == name), None)


#: The words that identify our note in an exception (PEP 678): how it begins, and how many lines it has at most.
NOTE_START: Final = "workerdiag: "
NOTE_LINES: Final = 3
#: How a note without an answer begins.
NO_ANSWER: Final = f"{NOTE_START}no answer"
#: The note where there was no time for an answer.
LATE_NOTE: Final = f"{NO_ANSWER} in time; print(workerdiag.explain(exc, client)) takes longer and tells why"
