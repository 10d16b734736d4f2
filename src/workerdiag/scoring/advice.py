"""What to change: the mitigations of a cause, with the numbers of this death and the terms of its cluster.

The numbers are memory at the end, the limit in force, and how much more to try. They do not say how much would have
been enough: a worker stopped at a limit wanted more.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain

from workerdiag.model.dask import LOST_ACTOR
from workerdiag.model.diagnosis import Advice, Match
from workerdiag.model.evidence import ExceptionFacts, MemoryReading, TasksAtLoss
from workerdiag.model.incident import Incident
from workerdiag.model.normalize import decimal, whole
from workerdiag.model.process_end import ProcessEnd
from workerdiag.model.rules import CAPTURE_PLACEHOLDERS, MEMORY_PLACEHOLDERS, STACK_CAPTURE, Cause, Mitigation
from workerdiag.model.vocabulary import Deployment, as_deployment
from workerdiag.redaction.secrets import redact_text
from workerdiag.units import format_bytes, format_limit, parse_bytes, round_up_limit
from workerdiag.values import field, frozen

#: The cluster classes of dask-jobqueue (0.9.0), which share their options.
_JOBQUEUE_CLASSES = frozenset(
    f"{each}Cluster" for each in ("HTCondor", "LSF", "Moab", "OAR", "PBS", "SGE", "SLURM")
)
#: The same, by the words of the batch system.
_CLASS_OF_SYSTEM = {
    f"batch-system.{each.lower()}": f"{each}Cluster" for each in ("PBS", "LSF", "SGE", "HTCondor", "OAR")
}
#: Whose words are in a log only where a platform of that kind runs the workers.
_OF_STREAM: Mapping[str, Deployment] = {"kubernetes": "kubernetes", "batch": "batch"}
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
#: Libraries of C and of Python in which a fault shows but does not lie.
_C_LIBRARY = re.compile(r"(?:libc|libm|libpthread|ld-linux[\w-]*|libpython[\d.]*|libstdc\+\+|libgcc_s)[-.]")
#: Of a future that Dask cancels since its inputs are gone (client.py, FutureCancelledError).
_LOST_DEPENDENCIES = " cancelled for reason: lost dependencies"
#: Blanks for unknown numbers whose names say nothing to a reader.
_BLANKS = {name: "size" for name in MEMORY_PLACEHOLDERS if name not in ("percent", "growth")}


@frozen(kw_only=True)
class ClusterSetup:
    """The properties of the cluster that advice depends on."""

    deployment: Deployment | None = None
    #: The dask-jobqueue class of the cluster, or that for the batch system in its logs.
    jobqueue_class: str | None = None
    #: Values for the placeholders of mitigations, by name.
    words: Mapping[str, str] = field(factory=dict, hash=False)


UNKNOWN_SETUP = ClusterSetup()


def cluster_setup(incident: Incident) -> ClusterSetup:
    """The setup of the cluster, from its cluster object or else from its logs."""
    setups = incident.fields_of("cluster-setup")
    types = (each.get("type") for each in incident.fields_of("cluster"))
    systems = (_CLASS_OF_SYSTEM[each.owner] for each in incident.marks if each.owner in _CLASS_OF_SYSTEM)
    words = {key: each[key] for each in reversed(setups) for key in ("dashboard", "cluster") if each.get(key)}
    return ClusterSetup(
        deployment=_deployment(setups, incident.marks),
        jobqueue_class=next(chain((each for each in types if each in _JOBQUEUE_CLASSES), systems), None),
        words=words
        | _given_up_task(incident)
        | _lack_of_nannies(incident)
        | _lost_actor(incident)
        | _lost_data(incident),
    )


def _deployment(setups: Iterable[Mapping[str, str]], marks: Sequence[Match]) -> Deployment | None:
    """The deployment: by the cluster object, else by logs, a cluster manager's before its platform's."""
    by_manager = [mark.owner.partition(".")[2] for mark in marks if mark.role == "deployment"]
    by_platform = [_OF_STREAM.get(mark.stream or "") for mark in marks]
    names = [*(each.get("deployment") for each in setups), *by_manager, *by_platform]
    return next((found for name in names if (found := as_deployment(name))), None)


def _lack_of_nannies(incident: Incident) -> dict[str, str]:
    """Whether the scheduler knows workers, and none with a nanny that could restart it."""
    states = incident.fields_of("worker-state")
    return {"no_nanny": "no nanny"} if states and not any(each.get("nanny") for each in states) else {}


def _lost_actor(incident: Incident) -> dict[str, str]:
    """The key of the actor that was called, if its worker is gone."""
    called = (each.task for each in incident.exceptions if each.text.startswith(LOST_ACTOR) and each.task)
    task = next(called, None)
    return {"actor": _key_text(task)} if task else {}


def _lost_data(incident: Incident) -> dict[str, str]:
    """The key of the task whose inputs the scheduler no longer has."""
    texts = (each.text.partition(_LOST_DEPENDENCIES) for each in incident.exceptions)
    task = next((before.rpartition("\n")[2] for before, found, _ in texts if found), None)
    return {"lost_data": f"task {_key_text(task)}"} if task else {}


def _key_text(key: str) -> str:
    return redact_text(key).strip("'\"")[:120]


def _given_up_task(incident: Incident) -> dict[str, str]:
    """The task that Dask gave up on, its losses and the allowed number; empty if there is none."""
    killed = [each for each in incident.exceptions if each.class_name == "KilledWorker"]
    gave_up = [each for each in incident.tasks_at_loss if each.gave_up]
    blamed = [mark for mark in incident.marks if mark.role == "blame" or _is_killed_worker(mark)]
    if not (killed or gave_up or blamed):
        return {}
    tasks = (
        *(each.task for each in killed),
        *(each.gave_up[0] for each in gave_up),
        *(mark.captures.get("task") for mark in blamed),
    )
    task = next(filter(None, tasks), None)
    allowed = _allowed_failures([*killed, *gave_up], blamed)
    counted = {"allowed_failures": str(allowed), "losses": str(allowed + 1)} if allowed is not None else {}
    return {"gave_up": f"task {_key_text(task)}" if task else "a task", **counted}


def _is_killed_worker(mark: Match) -> bool:
    return mark.owner.startswith("client.killed-worker")


def _allowed_failures(stated: Iterable[ExceptionFacts | TasksAtLoss], blamed: Iterable[Match]) -> int | None:
    """The setting ``allowed-failures``, not by the scheduler's message; a KilledWorker counts one loss more."""
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
            key: redact_text(captures[key])[:200]  # a secret that is cut in two is harder to know
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
            example=fill_example(_example(each, setting), words),
        )
        for each in advice
        if _applies(each, words, setting.deployment) and (do := fill_text(each.do, words))
    )


def _applies(advice: Mitigation, words: Mapping[str, str], deployment: Deployment | None) -> bool:
    if advice.deployments and deployment not in advice.deployments:
        return False
    return words.keys() >= set(advice.requires) and not words.keys() & set(advice.superseded_by)


def _example(advice: Mitigation, setting: ClusterSetup) -> str:
    """The example for that deployment and its batch system; empty for a command that nobody types there."""
    example = advice.examples.get(setting.deployment) if setting.deployment else None
    if example is None:
        is_vain = setting.deployment in ("coiled", "local") and re.search(r"\bdask[ -]worker\b", advice.example)
        example = "" if is_vain else advice.example
    own = setting.jobqueue_class
    if own is None or re.search(r"\b(?:job_extra_directives|job_directives_skip|account)=|\bSLURM_", example):
        return example
    if own == "HTCondorCluster" and re.search(r"\b(?:queue|walltime)=", example):
        return example
    return example.replace("SLURMCluster(", f"{own}(")


@lru_cache(maxsize=2000)  # of the rules' texts
def _sentences(text: str) -> tuple[str, ...]:
    return tuple(re.split(r"(?<=[.!?])\s+", text.strip()))


def fill_text(text: str, words: Mapping[str, str]) -> str:
    """*text* with its ``{numbers}`` filled in; sentences (or halves after a colon) with unknown ones are cut."""
    filled = (
        _fill_sentence(each, words)
        or (_fill_sentence(f"{each.rpartition(':')[0]}.", words) if ":" in each else None)
        for each in _sentences(text)
    )
    return " ".join(filter(None, filled))


def fill_example(text: str, words: Mapping[str, str]) -> str:
    """An example with its numbers, quoted for a shell; an unknown number becomes ``<port>`` or ``<size>``."""

    def typed(found: re.Match[str]) -> str:
        value = (words.get(found[1]) or "").replace(" ", "")
        return shlex.quote(value) if value else f"<{_BLANKS.get(found[1], found[1])}>"

    return _PLACEHOLDER.sub(typed, text)


def _fill_sentence(sentence: str, words: Mapping[str, str]) -> str | None:
    if "{" not in sentence:  # as most are
        return sentence
    if any(name not in words for name in _PLACEHOLDER.findall(sentence)):
        return None
    return _PLACEHOLDER.sub(lambda found: words[found[1]], sentence)


#: The landmark in a nanny's log with the share of the limit at which it ends a worker.
MEMORY_BUDGET = "nanny.memory-budget"


@frozen(kw_only=True)
class MemoryNumbers:
    """The known numbers of an incident."""

    #: A lower bound for what was wanted: the largest memory seen, or the limit that was hit.
    wanted_more_than_bytes: int | None = None
    #: A limit for one more try, rounded; None if none is known to have ended at its own, or one with more did.
    worth_a_try_bytes: int | None = None
    #: Values for the placeholders of mitigations, by name.
    words: Mapping[str, str] = field(factory=dict, hash=False)


def memory_numbers(incident: Incident, matches: Sequence[Match]) -> MemoryNumbers:
    """The largest memory seen, the smallest limit, a lower bound for what was wanted, and a size to try."""
    told_by = (*incident.marks, *matches)
    captured = [mark.captures for mark in told_by if mark.captures]
    limit = max((size for captures in captured if (size := parse_bytes(captures.get("limit", "")))), default=None)
    limit = limit or max((each.limit_bytes for each in incident.exceptions if each.limit_bytes), default=None)
    limit = min((each for each in (limit, *(each.limit_bytes for each in incident.readings)) if each), default=None)
    told = [size for captures in captured if (size := captured_rss(captures))]
    measured = [each.rss_bytes for each in incident.readings if each.rss_bytes]
    exceeded = [exceeded_bytes(mark, limit) for mark in told_by]
    rss = max((*told, *measured, *exceeded), default=0) or None
    at_the_end = max((*told, *exceeded), default=0)  # a heartbeat is as old as its interval
    wanted = max(rss or 0, limit or 0) or None
    # head-room above what was used as autoscalers recommend it (krr, Dr. Elephant), and more after a limit
    beyond = int(max((rss or 0) * 1.25, (limit or 0) * 1.5))
    first = max(beyond, 256 * 2**20) if beyond else None  # Python with Dask takes 50 to 70 MiB at rest
    growth = _growth_per_s(incident.readings)
    words = {
        "rss": format_bytes(rss) if rss else "",
        "limit": format_bytes(limit) if limit else "",
        "more_than": format_bytes(wanted) if wanted else "",
        "needs_memory": format_limit(first) if first else "",
        "pod_memory": _as_quantity(round_up_limit(round_up_limit(first) * 1.2)) if first else "",  # Dask acts first
        "growth": f"{format_bytes(growth)} per second" if growth else "",
        "percent": f"{round(100 * rss / limit)}" if rss and limit else "",
    }
    return MemoryNumbers(
        wanted_more_than_bytes=wanted,
        worth_a_try_bytes=_worth_a_try(first, at_the_end, limit, incident) if first else None,
        words=words,
    )


def reading_of(end: ProcessEnd, incident: Incident) -> tuple[int | None, int | None]:
    """The last known memory and limit of a dead process, in bytes."""
    rss = next((size for mark in reversed(end.marks) if (size := captured_rss(mark.captures))), None)
    limit = captured_limit(end.marks)
    for reading in incident.naming(end, MemoryReading):
        if reading.identity.same_process(end.identity):
            rss, limit = rss or reading.rss_bytes, limit or reading.limit_bytes
    for facts in incident.naming(end, ExceptionFacts):
        if facts.identity.same_process(end.identity):
            limit = limit or facts.limit_bytes
    return rss, limit


def captured_limit(marks: Iterable[Match]) -> int | None:
    """The limit in the first message or event that has one, in bytes."""
    return next((size for each in marks if (size := parse_bytes(each.captures.get("limit", "")))), None)


def captured_rss(captures: Mapping[str, str]) -> int | None:
    """The resident memory in a message or an event, in bytes."""
    if (rss_kb := whole(captures.get("rss_kb"))) is not None:
        return rss_kb * 1024
    return parse_bytes(captures.get("rss", ""))


def exceeded_bytes(mark: Match, limit: int | None) -> int:
    """The least that a worker held: the share of *limit* that its nanny saw exceeded; 0 for other messages."""
    if limit is None or mark.owner != MEMORY_BUDGET:
        return 0
    return int(limit * share(mark.captures.get("percent"), of=100))


def share(text: str | None, *, of: int = 1) -> float:
    """A share in a message or a setting; 0 if it is switched off, as with "False"."""
    return (decimal(text) or 0.0) / of


def _as_quantity(size_bytes: int) -> str:
    """A size in the notation of Kubernetes and Docker: ``640Mi``."""
    unit, one = ("Gi", 2**30) if size_bytes % 2**30 == 0 else ("Mi", 2**20)
    return f"{size_bytes // one}{unit}"


def _worth_a_try(first: int, rss_at_the_end: int, limit: int | None, incident: Incident) -> int | None:
    """The first size to try as a limit, if the death was at one; None if not, or if another worker had as much."""
    if limit is None or 0 < rss_at_the_end < 0.8 * limit:  # something else filled the machine
        return None
    felt: dict[str | int | None, int] = {}
    told = [(each.identity, each.limit_bytes) for each in incident.exceptions]
    told += [(each.identity, each.limit_bytes) for each in incident.readings]
    for who, limit_bytes in told:
        if limit_bytes:
            felt[who.worker or who.pid] = min(limit_bytes, felt.get(who.worker or who.pid, limit_bytes))
    return round_up_limit(first) if first > max(felt.values(), default=0) else None


def _growth_per_s(readings: Sequence[MemoryReading]) -> int | None:
    """Bytes per second by which the fastest-growing process grew in the minute before its last reading, or None."""
    of_process: dict[tuple[str | None, int | None], list[tuple[float, int]]] = {}
    for each in readings:
        if each.when is not None and each.rss_bytes and (each.identity.worker or each.identity.pid):
            of_process.setdefault((each.identity.worker, each.identity.pid), []).append((each.when, each.rss_bytes))
    found = []
    for seen in of_process.values():
        end, most = max(seen)
        begin, least = min(each for each in seen if each[0] >= end - 60.0)
        if end - begin >= 0.5 and most - least >= 2**24:
            found.append(int((most - least) / (end - begin)))
    return max(found, default=None)


_MAX_FRAMES = 10
_FRAME = re.compile(r'File "([^"\n]{1,1000})", line (\d{1,9}) in ([^\n]{1,300})')
#: Modules that run tasks: what they call is the code of a task.
_RUNNERS = re.compile(r"(?:^|/)(?:distributed|dask|concurrent/futures|multiprocessing)/|(?:^|/)threading\.py$")
_PACKAGES = re.compile(r"(?:^|/)(?:site|dist)-packages/(.+)")
_LIBRARY = re.compile(r"(?:^|/)(?:python\d[\d.]*|Lib)/(.+)")


def _crash_frames(matches: Iterable[Match]) -> list[tuple[str, str]]:
    """Path and text of each frame of the thread that crashed, innermost first (CPython's ``dump_frame``)."""
    stack = next((each.captures[STACK_CAPTURE] for each in matches if each.captures.get(STACK_CAPTURE)), "")
    frames = []
    for name, line, function in _FRAME.findall(stack)[: 3 * _MAX_FRAMES]:
        path = name.replace("\\", "/")
        is_by_value = path.startswith("<")  # what cloudpickle sends has no file: <dynamic-code>
        place = f"line {int(line)} of its file" if is_by_value else f"{_package_path(path)}:{int(line)}"
        frames.append((path, f"{function.strip()} ({place})"[:120]))
    return frames


def crash_site(matches: Iterable[Match]) -> tuple[str, ...]:
    """The frames that the worker's own code called; all frames if the worker's own code crashed."""
    frames = _crash_frames(matches)
    runner = next((index for index, (path, _) in enumerate(frames) if _RUNNERS.search(path)), len(frames))
    return tuple(text for _, text in (frames[:runner] or frames)[:_MAX_FRAMES])


def crash_placeholders(matches: Iterable[Match]) -> dict[str, str]:
    """The placeholders of mitigations: ``frame``, and ``package`` if the innermost code is in an installed one."""
    frames = _crash_frames(matches)
    if not frames:
        return {}
    packages = [found[1].partition("/")[0] for path, _ in frames if (found := _PACKAGES.search(path))]
    package = next((each for each in packages if each not in ("distributed", "dask")), "")
    return {"frame": frames[0][1]} | ({"package": package.removesuffix(".py")} if package else {})


def _package_path(path: str) -> str:
    """A path relative to its package, so that it neither names a user nor differs between workers."""
    found = _PACKAGES.search(path) or _LIBRARY.search(path)
    return found[1] if found else path.rpartition("/")[2]
