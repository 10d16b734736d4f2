"""
What is known of the cluster as a whole, whoever died: how it was brought up, where its dashboard is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from attrs import field, frozen

from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import ExceptionFacts, TasksAtLoss
from workerdiag.model.incident import Incident
from workerdiag.model.normalize import whole
from workerdiag.model.vocabulary import Deployment, as_deployment
from workerdiag.redaction.secrets import redact_text

#: Who tells of the cluster: the caller's cluster object (`sources/scene.py`), ...
_SETUP, _CLUSTER = "event.cluster-setup", "event.cluster"
#: The cluster classes of dask-jobqueue (0.9.0), which share their options.
_JOBQUEUE_CLASSES = frozenset(
    f"{each}Cluster" for each in ("HTCondor", "LSF", "Moab", "OAR", "PBS", "SGE", "SLURM")
)
#: ... the batch system's own words, ...
_CLASS_OF_SYSTEM: Mapping[str, str] = {
    "batch-system.pbs": "PBSCluster",
    "batch-system.lsf": "LSFCluster",
    "batch-system.sge": "SGECluster",
    "batch-system.htcondor": "HTCondorCluster",
    "batch-system.oar": "OARCluster",
}
#: ... and landmarks of this role, whose names end in a deployment.
_ROLE = "deployment"
#: Whose words are in a log only where a platform of that kind runs the workers.
_OF_STREAM: Mapping[str, Deployment] = {"kubernetes": "kubernetes", "batch": "batch"}
_KILLED_WORKER = "KilledWorker"
#: Messages quote a key that is text.
_QUOTES = "'\""


@frozen(kw_only=True)
class ClusterSetup:
    """
    The cluster that workers died in, as far as advice depends on it.
    """

    deployment: Deployment | None = None
    #: Which of dask-jobqueue's classes it was made with, or is for the batch system that wrote.
    jobqueue_class: str | None = None
    #: Ready to be put into text, by the names that mitigations use.
    words: Mapping[str, str] = field(factory=dict, hash=False)


#: Nothing is known of the cluster.
UNKNOWN_SETUP = ClusterSetup()


def cluster_setup(incident: Incident) -> ClusterSetup:
    """
    The cluster of *incident*: as its cluster object says, else as its logs do.
    """
    setup_events = [mark.captures for mark in incident.marks if mark.owner == _SETUP]
    marks = [mark for mark in incident.marks if mark.owner == _CLUSTER]
    setup_words = {
        key: each[key] for each in reversed(setup_events) for key in ("dashboard", "cluster") if each.get(key)
    }
    return ClusterSetup(
        deployment=_deployment(setup_events, incident.marks),
        jobqueue_class=next(
            (type_ for mark in marks if (type_ := mark.captures.get("type")) in _JOBQUEUE_CLASSES),
            next(
                (_CLASS_OF_SYSTEM[each.owner] for each in incident.marks if each.owner in _CLASS_OF_SYSTEM),
                None,
            ),
        ),
        words={**setup_words, **_given_up_task(incident)},
    )


def failed_tasks(incident: Incident) -> int:
    """
    How many tasks failed, as far as logs or the caught exception tell.

    The worker and the client tell of the same one, each in its own words; one log may be given twice.
    """
    by_log: dict[tuple[str, str], Counter[object]] = {}
    for mark in incident.marks:
        if mark.role == "task-error":
            by_log.setdefault((mark.owner, mark.origin), Counter())[_message_key(mark)] += 1
    by_teller: dict[str, Counter[object]] = {}
    for (teller, _), messages in by_log.items():
        by_teller[teller] = by_teller.get(teller, Counter()) | messages
    logged = max((each.total() for each in by_teller.values()), default=0)
    return logged or sum(facts.from_task and facts.relation == "raised" for facts in incident.exceptions)


def _message_key(mark: Match) -> tuple[object, ...]:
    """
    What a message has of its own, in whichever copy of a log it stands.
    """
    if mark.when is None:
        return mark.origin, mark.line
    return mark.when, mark.text, mark.captures.get("exception")


def _deployment(setup_events: Iterable[Mapping[str, str]], marks: Iterable[Match]) -> Deployment | None:
    """
    The cluster object's first; of logs those of a manager before those of the platform below it.
    """
    marks = list(marks)
    by_manager = [mark.owner.partition(".")[2] for mark in marks if mark.role == _ROLE]
    by_platform = [_OF_STREAM.get(mark.stream or "") for mark in marks]
    names = [*(each.get("deployment") for each in setup_events), *by_manager, *by_platform]
    return next((found for name in names if (found := as_deployment(name))), None)


def _given_up_task(incident: Incident) -> Mapping[str, str]:
    """
    Which task Dask gave up on, after how many losses, and how many it allows; empty if on none.
    """
    killed = [each for each in incident.exceptions if each.type.rpartition(".")[2] == _KILLED_WORKER]
    gave_up = [each for each in incident.tasks_at_loss if each.gave_up]
    blamed = [mark for mark in incident.marks if mark.role == "blame" or _is_killed_worker(mark)]
    if not (killed or gave_up or blamed):
        return {}
    tasks = [
        *(each.task for each in killed),
        *(each.gave_up[0] for each in gave_up),
        *(mark.captures.get("task") for mark in blamed),
    ]
    task = next((each for each in tasks if each), None)
    allowed = _allowed_failures([*killed, *gave_up], blamed)
    counted = {"allowed_failures": str(allowed), "losses": str(allowed + 1)} if allowed is not None else {}
    return {"gave_up": f"task {redact_text(task).strip(_QUOTES)[:120]}" if task else "a task", **counted}


def _is_killed_worker(mark: Match) -> bool:
    return mark.owner.startswith("client.killed-worker")


def _allowed_failures(stated: Iterable[ExceptionFacts | TasksAtLoss], blamed: Iterable[Match]) -> int | None:
    """
    ``allowed-failures``: Dask gives a task up at one loss more, and KilledWorker counts the losses.

    The scheduler's own message does not count here: until 2023.7.1 it had the limit instead.
    """
    for each in stated:
        if each.allowed_failures is not None:
            return each.allowed_failures
    losses = (whole(mark.captures.get("deaths")) for mark in blamed if _is_killed_worker(mark))
    return next((each - 1 for each in losses if each), None)
