"""
The closed sets: each word that a field, a rule or a report may hold, as a type.

mypy checks them in our code, cattrs in what is read, and the JSON schemas list them. A tuple in capitals
holds the words of a type for checks at run time.
"""

from __future__ import annotations

from typing import Literal, get_args

#: Who writes a piece of text. None anywhere means: work it out line by line.
Stream = Literal["worker", "nanny", "scheduler", "client", "kernel", "kubernetes", "batch"]
#: The log of each stream.
LogPlace = Literal[
    "worker log", "nanny log", "scheduler log", "client log", "kernel log", "kubernetes log", "batch log"
]
#: What kind of place was inspected, or was not: programs decide by it, never by the name that people read.
#: ``log`` is a text that was given, whoever wrote it; ``scheduler`` the scheduler as such, which may be
#: silent; ``versions`` what servers say of their packages; ``workerdiag`` our own work; ``other`` whatever
#: else is asked: a machine, a batch system, a platform, a store.
Place = Literal[
    LogPlace,
    "log",
    "scheduler",
    "scheduler events",
    "worker states",
    "task states",
    "versions",
    "flight recorder",
    "workerdiag",
    "other",
]
#: Why a place could not be inspected.
GapReason = Literal[
    "expired", "forbidden", "not-installed", "unreachable", "timed-out", "never-recorded", "malformed"
]
#: How an exception relates to the caught one.
ExceptionRelation = Literal["raised", "cause", "context", "member"]
#: Who answers for a machine, the closest to the dead process first; a ``neighbour`` is another worker's
#: nanny on the same host.
LocationRole = Literal["worker", "nanny", "neighbour", "scheduler", "client"]

#: How much a sign speaks for its cause.
Grade = Literal["decisive", "strong", "moderate", "weak", "hint"]
#: Who says how a process ended: its end, put together from all evidence of it, or any report of an exit,
#: whatever process it names (a landmark of the role ``exit-report``).
ExitWitness = Literal["process", "report"]
#: How often a cause ends workers.
Frequency = Literal["common", "usual", "rare"]
#: How a cause ends the worker; ``stopped`` is a deliberate stop, ``standstill`` kills nobody.
CauseEnd = Literal["stopped", "raised", "killed", "crashed", "never-started", "standstill", "disconnected"]
#: Who needs to act.
Verdict = Literal[
    "task", "other-task", "configuration", "environment", "platform", "operator", "nobody", "unknown"
]
#: Whether the same work may be expected to succeed.
RetryVerdict = Literal["safe", "unsafe", "unknown"]
#: What a program may do with the same work: run it again as it is; on workers with more memory; on other
#: machines or a new cluster (``retry-elsewhere``); not at all as it is; or leave it to a person (``ask``).
RetryAction = Literal["retry", "retry-with-memory", "retry-elsewhere", "do-not-retry", "ask"]
RuleStatus = Literal["experimental", "stable", "deprecated"]
#: Where a rule was learned: from what a project documents, from source code, from deaths that were provoked
#: and recorded, from reports of users.
RuleOrigin = Literal["documentation", "source-code", "lab", "report"]
#: What a landmark marks: ``death`` a process ended, ``self-closed`` it closed itself unasked, ``closed``
#: it closed and the reason is not known, ``stop-request`` somebody asked it to stop, ``removal`` the
#: scheduler removed it, ``deregistered`` it told the scheduler that it leaves, ``connection-lost`` its
#: connection ended without that, ``restart`` the nanny starts another one, ``start`` a process is up,
#: ``pause`` and ``resume`` it accepts no new work and does again, ``blame`` Dask gives up on a task,
#: ``trouble`` something is wrong, ``task-error`` a task failed, ``disconnect`` a connection or a peer was
#: lost, as also happens when all close in order, ``blocked`` an event loop did not run for some seconds,
#: ``error`` a message that its writer calls an error, ``failure`` something failed that kills no worker,
#: ``harmless`` what only looks like trouble, ``clean-exit`` a worker's command ended in order,
#: ``deployment`` how the cluster was started, ``exit-report`` some process ended, as a program other than
#: Dask says, ``other-program`` one that is no worker ended, so that those lines tell of no death,
#: ``aftermath`` what tells that a worker went only below the log of one that was up, ``note`` a message that
#: says nothing by itself.
LandmarkRole = Literal[
    "death",
    "self-closed",
    "closed",
    "stop-request",
    "removal",
    "deregistered",
    "connection-lost",
    "restart",
    "start",
    "pause",
    "resume",
    "blame",
    "trouble",
    "task-error",
    "disconnect",
    "blocked",
    "error",
    "failure",
    "harmless",
    "clean-exit",
    "deployment",
    "exit-report",
    "other-program",
    "aftermath",
    "note",
]
#: What a match is: a landmark or an event by its role (``closing``: a worker says why it closes;
#: ``event``: any other), a sign, or only the
#: finding whose log it is.
MatchRole = LandmarkRole | Literal["closing", "event", "sign", "recognised"]
#: How a cluster was brought up, as far as advice depends on it: ``command-line`` is `dask worker` by
#: hand; ``batch`` dask-jobqueue and workers in batch jobs; ``gateway`` Dask Gateway; ``cloud``
#: dask-cloudprovider (containers and virtual machines).
Deployment = Literal[
    "local", "command-line", "ssh", "batch", "mpi", "kubernetes", "gateway", "yarn", "cloud", "coiled"
]

#: What came of it. ``explained``: a cause is named, of a death or of a standstill. ``no-death``: a place
#: that would show a death was looked at, what stands there is known, and nothing died or stands still.
#: ``unknown``: something died or hangs, or could not be looked at; also where a task raised by itself what
#: was caught, and who died is another matter (``deaths_are_separate``). ``no-evidence``: nothing in what was
#: given is known.
Outcome = Literal["explained", "no-death", "unknown", "no-evidence"]
#: Why the watcher speaks: a case is ``new``; comes back after it was ``resolved`` (``recurring``); kills ten
#: times as often or on twice the hosts (``escalating``); is now thought to have another cause (``changed``);
#: goes on for hours (``reminder``); the cluster went (``ended``); what was held back (``digest``); the
#: watcher cannot see (``blind``).
NoticeReason = Literal[
    "new", "recurring", "escalating", "changed", "reminder", "resolved", "ended", "digest", "blind"
]
#: Why a notice is held back: somebody ``silenced`` it, it is a ``known-issue`` that asks for it, too many
#: were sent (``rate-limit``), it is a time for sleep (``quiet-hours``), or it closes what was never told
#: (``untold``).
HoldReason = Literal["silenced", "known-issue", "rate-limit", "quiet-hours", "untold"]
#: Where a case is: evidence still arrives (``settling``), deaths go on (``firing``, ``escalating``,
#: ``recurring``), there was none for a while on a cluster that is seen alive (``resolved``), the cluster
#: went (``ended``).
CaseState = Literal["settling", "firing", "escalating", "recurring", "resolved", "ended"]
#: Where a delivery is: ``dead`` was given up and is listed by ``workerdiag watch status``.
DeliveryState = Literal["pending", "sending", "sent", "dead"]
#: How a watcher is doing. ``connecting``: it has not seen the cluster yet; ``watching``: the scheduler
#: answers; ``blind``: it cannot see deaths; ``ended``: the cluster was closed; ``closed``: the watcher was.
WatcherState = Literal["connecting", "watching", "blind", "ended", "closed"]
#: How a diagnosis is printed.
ReportFormat = Literal["text", "json", "markdown", "html"]

STREAMS: tuple[Stream, ...] = get_args(Stream)
LOG_PLACES: tuple[LogPlace, ...] = get_args(LogPlace)
PLACES: tuple[Place, ...] = get_args(Place)
GAP_REASONS: tuple[GapReason, ...] = get_args(GapReason)
LOCATION_ROLES: tuple[LocationRole, ...] = get_args(LocationRole)
DEPLOYMENTS: tuple[Deployment, ...] = get_args(Deployment)
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
REPORT_FORMATS: tuple[ReportFormat, ...] = get_args(ReportFormat)


def as_stream(name: object) -> Stream | None:
    """
    *name* as a stream; None if it is not the name of one.
    """
    return next((each for each in STREAMS if each == name), None)


def as_deployment(name: object) -> Deployment | None:
    """
    *name* as a deployment; None if it is not the name of one.
    """
    return next((each for each in DEPLOYMENTS if each == name), None)
