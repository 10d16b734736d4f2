"""What to change: the mitigations of a cause, with the numbers of this death and the terms of its cluster."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from attrs import field, frozen

from workerdiag.model.diagnosis import Advice, Match
from workerdiag.model.evidence import ExceptionFacts, TasksAtLoss
from workerdiag.model.incident import Incident
from workerdiag.model.normalize import whole
from workerdiag.model.rules import CAPTURE_PLACEHOLDERS, MEMORY_PLACEHOLDERS, Cause, Mitigation
from workerdiag.model.vocabulary import Deployment, as_deployment
from workerdiag.redaction.secrets import redact_text
from workerdiag.scoring.crash_site import crash_placeholders
from workerdiag.scoring.memory_numbers import MemoryNumbers

#: What the cluster is known by: the caller's cluster object (`sources/scene.py`), ...
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
_LONGEST = 200
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
#: Libraries of C and of Python in which a fault shows but does not lie.
_C_LIBRARY = re.compile(r"(?:libc|libm|libpthread|ld-linux[\w-]*|libpython[\d.]*|libstdc\+\+|libgcc_s)[-.]")
#: Blanks for unknown numbers whose names say nothing to a reader.
_BLANKS = {name: "size" for name in MEMORY_PLACEHOLDERS if name not in ("percent", "growth")}
#: Commands that nobody types on a deployment that starts the workers itself.
_WORKER_COMMAND = re.compile(r"\bdask[ -]worker\b")
#: Marks examples with options of Slurm itself, not of dask-jobqueue.
_SLURM_CLASS = "SLURMCluster("
_OF_SLURM = re.compile(r"\b(?:job_extra_directives|job_directives_skip|account)=|\bSLURM_")
#: Options that HTCondorCluster lacks.
_OF_QUEUES = re.compile(r"\b(?:queue|walltime)=")
_STARTS_WORKERS: frozenset[Deployment] = frozenset({"coiled", "local"})


@frozen(kw_only=True)
class ClusterSetup:
    """The properties of the cluster that advice depends on."""

    deployment: Deployment | None = None
    #: The dask-jobqueue class of the cluster, or that for the batch system in its logs.
    jobqueue_class: str | None = None
    #: Values for the placeholders of mitigations, by name.
    words: Mapping[str, str] = field(factory=dict, hash=False)


#: The setup of an unknown cluster.
UNKNOWN_SETUP = ClusterSetup()


def cluster_setup(incident: Incident) -> ClusterSetup:
    """The setup of the cluster, from its cluster object or else from its logs."""
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


def _deployment(setup_events: Iterable[Mapping[str, str]], marks: Iterable[Match]) -> Deployment | None:
    """The deployment: by the cluster object, else by logs, a cluster manager's before its platform's."""
    marks = list(marks)
    by_manager = [mark.owner.partition(".")[2] for mark in marks if mark.role == _ROLE]
    by_platform = [_OF_STREAM.get(mark.stream or "") for mark in marks]
    names = [*(each.get("deployment") for each in setup_events), *by_manager, *by_platform]
    return next((found for name in names if (found := as_deployment(name))), None)


def _given_up_task(incident: Incident) -> Mapping[str, str]:
    """The task that Dask gave up on, its losses and the allowed number; empty if there is none."""
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
    """The setting ``allowed-failures``; KilledWorker counts one loss more.

    The scheduler's own message is ignored: until 2023.7.1 it had the limit instead.
    """
    for each in stated:
        if each.allowed_failures is not None:
            return each.allowed_failures
    losses = (whole(mark.captures.get("deaths")) for mark in blamed if _is_killed_worker(mark))
    return next((each - 1 for each in losses if each), None)


def mitigations(
    cause: Cause, numbers: MemoryNumbers, matches: Sequence[Match], setting: ClusterSetup = UNKNOWN_SETUP
) -> tuple[Advice, ...]:
    """The mitigations of *cause* that apply; sentences with an unknown number are left out."""
    words = {key: value for key, value in numbers.words.items() if value} | crash_placeholders(matches)
    sign_names = {match.sign for match in matches if match.owner == cause.id}
    for captures in (match.captures for match in reversed(matches) if match.captures):
        words |= {
            key: redact_text(captures[key])[:_LONGEST]  # a secret that is cut in two is harder to know
            for key in CAPTURE_PLACEHOLDERS
            if captures.get(key)
        }
    if _C_LIBRARY.match(words.get("module", "")):  # the fault is in whatever called it
        del words["module"]
    fitting = [each for each in cause.mitigations if not each.signs or sign_names & set(each.signs)]
    return applicable_advice(fitting, words, setting)


def applicable_advice(
    advice: Iterable[Mitigation], words: Mapping[str, str], setting: ClusterSetup
) -> tuple[Advice, ...]:
    """The items of *advice* that apply in *setting*, filled with *words* and facts about the cluster."""
    words = {**words, **setting.words}
    return tuple(
        Advice(
            do=do,
            when=fill_text(each.when, words),
            cost=fill_text(each.cost, words),
            example=fill_example(_for_batch_system(_example(each, setting.deployment), setting), words),
        )
        for each in advice
        if _applies(each, words, setting.deployment) and (do := fill_text(each.do, words))
    )


def _applies(advice: Mitigation, words: Mapping[str, str], deployment: Deployment | None) -> bool:
    if advice.deployments and deployment not in advice.deployments:
        return False
    return words.keys() >= set(advice.requires) and not words.keys() & set(advice.superseded_by)


def _example(advice: Mitigation, deployment: Deployment | None) -> str:
    """The example for that deployment; empty for a command that nobody types there."""
    if deployment and deployment in advice.examples:
        return advice.examples[deployment]
    if deployment in _STARTS_WORKERS and _WORKER_COMMAND.search(advice.example):
        return ""
    return advice.example


def _for_batch_system(example: str, setting: ClusterSetup) -> str:
    """An example for Slurm with the class of the cluster, if all batch systems share its options."""
    if setting.jobqueue_class is None or _OF_SLURM.search(example):
        return example
    if setting.jobqueue_class == "HTCondorCluster" and _OF_QUEUES.search(example):
        return example
    return example.replace(_SLURM_CLASS, f"{setting.jobqueue_class}(")


@lru_cache(maxsize=2000)  # of the rules' texts
def _sentences(text: str) -> tuple[str, ...]:
    return tuple(re.split(r"(?<=[.!?])\s+", text.strip()))


def fill_text(text: str, words: Mapping[str, str]) -> str:
    """*text* with its ``{numbers}`` filled in; sentences (or halves after a colon) with unknown ones are cut."""
    sentences = []
    for sentence in _sentences(text):
        filled_sentence = _fill_sentence(sentence, words)
        if filled_sentence is None and ":" in sentence:
            filled_sentence = _fill_sentence(sentence.rpartition(":")[0] + ".", words)
        if filled_sentence:
            sentences.append(filled_sentence)
    return " ".join(sentences)


def fill_example(text: str, words: Mapping[str, str]) -> str:
    """An example with its numbers, quoted for a shell; an unknown number becomes ``<port>`` or ``<size>``."""

    def typed(found: re.Match[str]) -> str:
        value = _without_blanks(words.get(found[1]))
        return shlex.quote(value) if value else f"<{_BLANKS.get(found[1], found[1])}>"

    return _PLACEHOLDER.sub(typed, text)


def _fill_sentence(sentence: str, words: Mapping[str, str]) -> str | None:
    if "{" not in sentence:  # as most are
        return sentence
    if any(name not in words for name in _PLACEHOLDER.findall(sentence)):
        return None
    return _PLACEHOLDER.sub(lambda found: words[found[1]], sentence)


def _without_blanks(value: str | None) -> str | None:
    return value.replace(" ", "") if value else None
