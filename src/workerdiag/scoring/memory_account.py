"""The memory account of a death: what is known of the work, and what filled the limit, each with its origin."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar

from attrs import AttrsInstance, asdict, evolve, field, fields

from workerdiag.model.diagnosis import Death, Match
from workerdiag.model.evidence import Event, TaskFacts, TasksAtLoss
from workerdiag.model.incident import Incident
from workerdiag.model.memory import UNKNOWN_COPIES, MemoryAccount, MemoryTerm, Step
from workerdiag.model.normalize import whole
from workerdiag.scoring.advice import MemoryNumbers, captured_rss
from workerdiag.scoring.findings import kind_of_task
from workerdiag.scoring.recorded_memory import LastMemory, last_memories
from workerdiag.units import format_bytes, parse_bytes
from workerdiag.values import frozen

#: The client warns of a graph with data in it; the scheduler refuses a task whose inputs no worker may hold.
LARGE_GRAPH, REFUSED_INPUTS = "harmless.large-graph", "scheduler.inputs-too-large"
#: A worker warns that it has no stored results to write to disk; and the capture of what an allocation asked for.
UNMANAGED, REFUSED_ALLOCATION = "harmless.unmanaged-high", "allocation"
#: A worker with more than this has done something.
_MOST_FLOOR_BYTES = 250 * 2**20
#: Share of the limit at which a nanny ends a worker, unless configured; and by how much it is passed until the
#: nanny looks, a tenth of a second later at most, where memory grows slowly.
END_SHARE, _CAUGHT_SHARE = 0.95, 0.02
#: How many copies of a piece a function may make: more are something else, unless only its first task ran.
_MOST_COPIES, _MOST_COPIES_ALONE = 16, 256
#: Inputs of this number are brought together; fewer belong to one operation.
MANY = 8
#: Modules of types that Dask measures; and what it counts for an object of another, in bytes, at most.
_MEASURED = {"", "numpy", "pandas", "pyarrow", "scipy", "xarray", "cupy", "cudf", "dask", *sys.stdlib_module_names}
_EMPTY_BYTES = 1024
#: Kinds that the scheduler names by their types: they were scattered, unless a collection has such a name.
_SCATTERED = {"ndarray", "DataFrame", "dict", "list"}
_SAMPLES = "the flight recorder's samples"
_RECORDER = "the flight recorder (workerdiag.install(client)) before the next run"
_T = TypeVar("_T", bound=AttrsInstance)


@frozen(kw_only=True)
class TaskNeeds:
    """What the scheduler knows of a task that workers died of, or of a kind: ``task-needs`` and ``tasks-made``."""

    key: str = ""
    kind: str = ""
    #: How often a task of its kind finished: again if its result was lost, and in earlier computations.
    finished: int = 0
    #: How many there are in the latest computation, and the bytes that those made which were done, kept or not.
    tasks: int = 0
    made_bytes: int = 0
    kept: int = 0
    kept_bytes: int = 0
    inputs: int = 0
    inputs_bytes: int = 0
    largest_input_bytes: int = 0
    median_input_bytes: int = 0
    spec_bytes: int = 0
    #: How many clients were opened by tasks.
    clients: int = 0
    #: How often a task of its kind was on a worker as that was lost (``TaskPrefix.suspicious``).
    suspicious: int = 0
    #: Types of the results of its kind, as Dask names them, and how many tasks of it there are, done or not.
    types: str = ""
    expected: int = 0

    @property
    def mean_bytes(self) -> int:
        """The size of a result of its kind, at least; 0 if it is not known."""
        return self.made_bytes // max(1, min(self.finished, self.tasks))

    @property
    def which(self) -> str:
        """The task, by the number of its piece if its key has one."""
        numbered = re.fullmatch(r"\(.+, (\d+)\)", self.key)
        return f"task {numbered[1]} of the kind {self.kind}" if numbered else self.key[:100]

    @classmethod
    def of_facts(cls, facts: TaskFacts) -> Self:
        """The needs as the recorder has them from the moment of the loss; the scheduler forgets them soon."""
        sizes = [each.size_bytes for each in facts.inputs if each.size_bytes is not None]
        return cls(
            key=facts.key,
            kind=kind_of_task(facts.key),
            finished=facts.finished_siblings,
            inputs=facts.input_count,
            inputs_bytes=facts.input_bytes or 0,
            largest_input_bytes=max(sizes, default=0),
            median_input_bytes=_median(sizes) if sizes and len(sizes) == facts.input_count else 0,
            spec_bytes=facts.spec_bytes or 0,
        )

    def joined(self, other: Self) -> Self:
        """The same task with the larger of each number: one that is not known is 0."""
        numbers = {name: value for name, value in asdict(other).items() if isinstance(value, int)}
        return evolve(self, **{name: max(value, getattr(self, name)) for name, value in numbers.items()})


@frozen(kw_only=True)
class WorkerMemory:
    """A living worker at its last heartbeat."""

    status: str = ""
    memory_bytes: int = 0
    limit_bytes: int = 0
    stored_bytes: int | None = None
    spilled_bytes: int = 0
    executing: int = 0
    threads: int | None = None


@frozen(kw_only=True)
class Workload:
    """What is known of the work."""

    #: Fields of the event ``workload``; empty without one.
    call: Mapping[str, str] = field(factory=dict, hash=False)
    steps: tuple[Step, ...] = ()
    needs: tuple[TaskNeeds, ...] = ()
    #: By kind, forgotten ones too: those whose results are known.
    made: Mapping[str, TaskNeeds] = field(factory=dict, hash=False)
    workers: tuple[WorkerMemory, ...] = ()
    #: The limit and the threads that the cluster object gives each worker.
    given_limit_bytes: int | None = None
    given_threads: int | None = None
    given_workers: int | None = None
    #: Memory of the machine that has all workers.
    machine_bytes: int | None = None
    #: Memory of each process that its nanny ended, when it did, in bytes.
    held_bytes: tuple[int, ...] = ()
    #: Sizes in log text: of a graph that was sent, of the inputs of a task.
    graph_bytes: int | None = None
    refused_inputs_bytes: int | None = None
    refused_limit_bytes: int | None = None
    #: Size of an array that a process could not get.
    refused_allocation_bytes: int | None = None
    #: For each worker, the times and sizes of its warnings of memory that is no stored result.
    unspillable: tuple[tuple[tuple[float, int], ...], ...] = ()
    #: Free on the fullest disk that workers spill to.
    free_disk_bytes: int | None = None
    #: The threads of a worker that was lost, at most.
    lost_threads: int | None = None
    #: How many different tasks are known to have run as workers died.
    ran_at_deaths: int = 0
    #: How many tasks at once no worker died of any more, after `workerdiag.rescue` had lowered the threads.
    sufficient_threads: int | None = None
    #: The memory of the bigger worker on which those tasks finished that had killed others alone.
    sufficient_memory_bytes: int | None = None
    #: The last memory of each process that the flight recorder saw end.
    recorded: tuple[LastMemory, ...] = ()
    #: Whether an exception, or the flight recorder, names the tasks that workers died of.
    is_killed_named: bool = False
    #: On how many of the lost workers the task was that they died of; and at most, another one of its kind.
    killed_deaths: int = 0
    sibling_deaths: int = 0

    @classmethod
    def of(cls, incident: Incident) -> Self:
        """What the evidence of an incident has of it."""
        marks = incident.marks_by_owner
        work = cls._of_captures({owner: [each.captures for each in some] for owner, some in marks.items()})
        refused = (parse_bytes(each.captures.get(REFUSED_ALLOCATION, "")) for each in incident.all_signs)
        return evolve(
            work,
            needs=_with_facts(work.needs, incident.tasks_at_loss),
            unspillable=_warnings(marks.get(UNMANAGED, ())),
            recorded=last_memories(incident),
            is_killed_named=any(each.task for each in incident.exceptions)
            or any(facts.ran for loss in incident.tasks_at_loss for facts in loss.facts),
            ran_at_deaths=len({key for each in incident.tasks_at_loss if each.exact for key in each.tasks}),
            refused_allocation_bytes=max(filter(None, refused), default=None),
        )

    @classmethod
    def of_events(cls, events: Iterable[Event]) -> Self:
        """What events alone have of it, before it runs."""
        by_owner: dict[str, list[Mapping[str, str]]] = {}
        for each in events:
            known = {name: str(value) for name, value in each.fields.items() if value is not None}
            by_owner.setdefault(f"event.{each.topic}", []).append(known)
        return cls._of_captures(by_owner)

    @classmethod
    def _of_captures(cls, by_owner: Mapping[str, Sequence[Mapping[str, str]]]) -> Self:
        def all_of(topic: str) -> Sequence[Mapping[str, str]]:
            return by_owner.get(f"event.{topic}", ())

        def first(topic: str) -> Mapping[str, str]:
            return next(iter(all_of(topic)), {})

        def largest(owner: str, name: str) -> int | None:
            return max(
                filter(None, (parse_bytes(each.get(name, "")) for each in by_owner.get(owner, ()))), default=None
            )

        acts, cluster = all_of("rescue"), first("cluster")
        has_sufficed = any(each.get("has_sufficed") == "True" for each in acts)
        lowered = (whole(each.get("threads")) for each in acts if has_sufficed)
        larger = (whole(each.get("sufficient_memory_bytes")) for each in acts)
        needs = tuple(_typed(TaskNeeds, each) for each in all_of("task-needs"))
        forgotten = (_typed(TaskNeeds, each) for each in all_of("tasks-made"))
        made = {each.kind: each for each in (*forgotten, *needs) if each.made_bytes}
        return cls(
            call=first("workload"),
            steps=tuple(_with_size(_typed(Step, each), made) for each in all_of("workload-step")),
            needs=needs,
            made=made,
            workers=tuple(filter(None, map(_worker, all_of("worker-state")))),
            given_limit_bytes=whole(cluster.get("worker_limit_bytes")),
            given_threads=whole(cluster.get("worker_threads")),
            given_workers=whole(cluster.get("workers_wanted")),
            machine_bytes=whole(cluster.get("machine_bytes")),
            free_disk_bytes=whole(first("spill-disk").get("free_bytes")),
            held_bytes=tuple(filter(None, map(captured_rss, all_of("worker-restart-memory")))),
            graph_bytes=largest(LARGE_GRAPH, "graph"),
            refused_inputs_bytes=largest(REFUSED_INPUTS, "inputs"),
            refused_limit_bytes=largest(REFUSED_INPUTS, "allowed"),
            lost_threads=whole(first("scheduler-state").get("lost_threads")),
            sufficient_threads=next(filter(None, lowered), None),
            sufficient_memory_bytes=next(filter(None, larger), None),
        )

    def number(self, name: str) -> int | None:
        """A number of the call."""
        return whole(self.call.get(name))

    @property
    def threads(self) -> int | None:
        """How many tasks a worker can run at once."""
        return max(
            (each.threads for each in self.workers if each.threads), default=self.given_threads or self.lost_threads
        )

    @property
    def worker_count(self) -> int:
        """How many workers there are, at least."""
        return max(self.given_workers or 0, len(self.workers), 1)

    @property
    def governing(self) -> Step | None:
        """The step whose tasks need most."""
        return max(
            (each for each in self.steps if each.piece_bytes), key=lambda each: each.task_bytes, default=None
        )

    @property
    def at_least(self) -> Workload:
        """The same with the lower bounds of all sizes of which only bounds are known."""
        least = self.call.get("result_least_bytes")
        call = dict(self.call) | ({} if least is None else {"result_bytes": least})
        return evolve(self, steps=tuple(each.at_least for each in self.steps), call=call)

    @property
    def largest_known_bytes(self) -> int:
        """The most that a task, or all data in the graph, is known to take."""
        task = self.governing.task_bytes if self.governing else 0
        return max(task, self.number("embedded_bytes") or 0)

    def joined(self, large_bytes: float) -> Step | None:
        """The step that puts many partitions of a frame into large ones, if they are small where it is read."""
        if self.source and (self.source.piece_bytes or 0) >= large_bytes:
            return None
        many = (each for each in self.steps if each.rows and each.inputs >= MANY)
        return next((each for each in many if (each.piece_bytes or 0) >= large_bytes), None)

    @property
    def source(self) -> Step | None:
        """The step that makes or reads the pieces: what died unmeasured, shapes the largest task, or is largest."""
        shape = {1, *(self.governing.chunk if self.governing else ())}
        killed = self.killed.kind.lower() if self.killed else ""

        def rank(each: Step) -> tuple[bool, bool, int]:
            size = each.piece_bytes or 0
            return not size and killed.startswith(each.name.lower()), {1, *each.chunk} <= shape, size

        return max((each for each in self.steps if each.is_source), key=rank, default=None)

    @property
    def killed(self) -> TaskNeeds | None:
        """The task that workers died of: what is named, else one of the kind that most of the lost workers had."""
        named = next((each for each in self.needs if each.key), None)
        kinds = () if self.is_killed_named else self.needs
        return max((each for each in kinds if each.suspicious), key=lambda each: each.suspicious, default=named)

    @property
    def unmeasured(self) -> TaskNeeds | None:
        """Kept results of classes whose size Dask does not know."""
        many = (each for each in self.needs if each.kept >= MANY)
        return next((each for each in many if is_unmeasured(each.types, each.kept_bytes // each.kept)), None)

    @property
    def scattered_bytes(self) -> int:
        """What each worker has, at least, of what was scattered."""
        found = [self.made[each] for each in _SCATTERED & self.made.keys() if not self.call.get("kinds")]
        return max((max(each.mean_bytes, each.made_bytes // self.worker_count) for each in found), default=0)

    @property
    def paused(self) -> tuple[WorkerMemory, ...]:
        """The living workers that take no new tasks."""
        return tuple(each for each in self.workers if each.status == "paused")

    @property
    def asked(self) -> LastMemory | None:
        """The end of the process whose running tasks asked for most."""
        return max(
            (each for each in self.recorded if each.asked_bytes),
            key=lambda each: each.asked_bytes or 0,
            default=None,
        )

    def full_need_bytes(self, limit: int) -> int | None:
        """What a worker held that died several times with all that it wanted; None if it wanted more each time."""
        held = sorted(self.held_bytes)[-3:]
        is_same = len(held) == 3 and held[-1] - held[0] <= 0.01 * held[-1]
        return held[-1] if limit and is_same and held[0] > limit * (1 + _CAUGHT_SHARE) else None


def _with_size(step: Step, made: Mapping[str, TaskNeeds]) -> Step:
    """The step with the size of its results, where types do not tell how large its pieces are."""
    if step.piece_bytes or step.name not in made:
        return step
    size = made[step.name].mean_bytes
    return evolve(step, piece_bytes=size, rows=size // step.row_bytes if step.row_bytes else None)


def is_unmeasured(types: str, mean_bytes: int) -> bool:
    """Whether Dask does not know the size of results of these types (dask/sizeof.py) and counts empty objects."""
    modules = {each.rpartition(".")[0].partition(".")[0] for each in types.split(", ")}
    return mean_bytes < _EMPTY_BYTES and _MEASURED.isdisjoint(modules)


def with_deaths_of_siblings(work: Workload, lost: Sequence[Death]) -> Workload:
    """The work with on how many of the *lost* workers the task was that they died of, and others of its kind."""
    killed = work.killed.key if work.killed else ""
    counts, kind = Counter(key for each in lost for key in set(each.assigned)), kind_of_task(killed)
    siblings = (count for key, count in counts.items() if key != killed and kind_of_task(key) == kind)
    return evolve(work, killed_deaths=counts[killed], sibling_deaths=max(siblings, default=0))


def with_seen_copies(incident: Incident, work: Workload, lost: Sequence[Death]) -> Workload:
    """The work with what an opaque function needed at least as workers were ended, if it can be of copies."""
    step, tasks = work.governing, _tasks_at_once(incident, work, lost)
    kind = work.killed.kind if work.killed else ""
    if step is None or not step.is_opaque or not tasks or (step.is_source and step.name not in kind):
        return work
    held = max([*work.held_bytes, *(each.held_bytes or 0 for each in work.recorded)], default=0)
    each = (held - (_floor(work).bytes or 0)) // tasks
    if work.asked:
        each = work.asked.each_bytes or 0
    seen = each - step.inputs_bytes - (step.piece_bytes or 0)
    is_first = tasks == 1 and step.name in kind and work.killed and work.killed.finished < len(lost)
    if not 0 < seen <= (_MOST_COPIES_ALONE if is_first else _MOST_COPIES) * step.largest_bytes:
        return work  # it needs memory for something else
    known = evolve(step, seen_copies_bytes=seen)
    return evolve(work, steps=tuple(known if each is step else each for each in work.steps))


def memory_account(
    incident: Incident, work: Workload, numbers: MemoryNumbers, lost: Sequence[Death]
) -> MemoryAccount:
    """The account, without the reasons."""
    limit = parse_bytes(numbers.words.get("limit", ""))
    limits = [*(each.limit_bytes for each in work.workers), *(each.limit_bytes for each in incident.exceptions)]
    exact = min(filter(None, limits), default=None) or work.given_limit_bytes or work.refused_limit_bytes or limit
    if exact and limit and limit < 0.9 * exact:  # that of a container or a job ends it first
        exact = limit
    step, killed = work.governing, work.killed
    stored = max((each.stored_bytes or 0 for each in work.paused), default=None)
    spilled = max((each.spilled_bytes for each in work.paused), default=None)
    seen = "last heartbeat of a paused worker"
    if stored is None and work.recorded:
        stored = max((each.stored_bytes for each in work.recorded if each.stored_bytes is not None), default=None)
        spilled = max(
            (each.spilled_bytes for each in work.recorded if each.spilled_bytes is not None), default=None
        )
        seen = _SAMPLES
    asked, left = work.asked, max((each.left_bytes or 0 for each in work.recorded), default=0)
    result = work.number("result_bytes") if work.call.get("gathered") == "True" else None
    result = result if result and result > 2**20 else None
    unknown_limit = MemoryTerm(missing="a worker's log")
    unseen = MemoryTerm(missing="" if work.recorded else _RECORDER)
    return MemoryAccount(
        limit=MemoryTerm(bytes=exact, origin="the worker's memory limit") if exact else unknown_limit,
        held=_held(work, numbers) or unseen,
        stored=unseen if stored is None else MemoryTerm(bytes=stored, origin=seen),
        spilled=unseen if spilled is None else MemoryTerm(bytes=spilled, origin=seen),
        floor=_floor(work),
        left=MemoryTerm(bytes=left, origin=f"{_SAMPLES}, while no task ran") if left else MemoryTerm(),
        asked=_asked(asked) if asked else MemoryTerm(),
        inputs=_inputs(work) or unseen,
        output=MemoryTerm(bytes=step.piece_bytes, origin=step.describe) if step else unseen,
        copies=MemoryTerm(bytes=step.copies_bytes, origin=_copies_origin(step)) if step else unseen,
        in_graph=_in_graph(work),
        result=MemoryTerm(bytes=result, origin="shape and type of what was computed") if result else MemoryTerm(),
        tasks_at_once=_tasks_at_once(incident, work, lost),
        step=step.describe if step else (killed.kind if killed else ""),
        line=work.call.get("place", ""),
    )


def _held(work: Workload, numbers: MemoryNumbers) -> MemoryTerm | None:
    if work.held_bytes:
        return MemoryTerm(bytes=max(work.held_bytes), origin="the nanny, when it ended the worker")
    if recorded := max((each.held_bytes or 0 for each in work.recorded), default=0):
        return MemoryTerm(bytes=recorded, origin="the flight recorder's last look")
    rss = parse_bytes(numbers.words.get("rss", ""))
    return MemoryTerm(bytes=rss, origin="last seen") if rss else None


def _inputs(work: Workload) -> MemoryTerm | None:
    if work.refused_inputs_bytes:
        return MemoryTerm(bytes=work.refused_inputs_bytes, origin="the scheduler's own sum of the inputs")
    if work.killed and work.killed.inputs_bytes:
        count = work.killed.inputs
        origin = f"{count:,} input{'s' if count != 1 else ''} of the task on the scheduler"
        return MemoryTerm(bytes=work.killed.inputs_bytes, origin=origin)
    if work.governing:
        return MemoryTerm(bytes=work.governing.inputs_bytes, origin=work.governing.describe)
    return None


def _asked(asked: LastMemory) -> MemoryTerm:
    tasks = f"{asked.running} task{'s' if asked.running != 1 else ''} since they began"
    origin = f"{tasks}; filled of it: {format_bytes(max(0, asked.filled_bytes or 0))}"
    return MemoryTerm(bytes=asked.asked_bytes, origin=origin)


def _with_facts(needs: Sequence[TaskNeeds], losses: Iterable[TasksAtLoss]) -> tuple[TaskNeeds, ...]:
    found = {each.key or f" {each.kind}": each for each in needs}
    for loss in losses:
        for facts in loss.facts:
            if facts.ran or facts.key in found:
                recorded = TaskNeeds.of_facts(facts)
                known = found.get(facts.key)
                found[facts.key] = known.joined(recorded) if known else recorded
    return tuple(found.values())


def _copies_origin(step: Step) -> str:
    if step.is_opaque and step.seen_copies_bytes > step.expected_copies_bytes:
        return "at least: what workers held as they were ended"
    if step.is_opaque:
        return f"assumed: {UNKNOWN_COPIES} copies in a function of which nobody knows how many it makes"
    if step.is_source and step.rows:
        return "assumed: two copies while it is read or made"
    return "assumed: one copy while it is computed"


def _in_graph(work: Workload) -> MemoryTerm:
    embedded, warned = work.number("embedded_bytes") or 0, work.graph_bytes or 0
    origin = "the client's warning of a large graph" if warned else ""
    if embedded:
        kind, count = work.call.get("embedded_type", "value"), work.number("embedded_count") or 1
        most = format_bytes(work.number("embedded_task_bytes") or 0)
        origin = f"{count} {kind}{'s' if count != 1 else ''} in the graph, at most {most} in one task"
    return MemoryTerm(bytes=max(embedded, warned) or None, origin=origin)


def _floor(work: Workload) -> MemoryTerm:
    recorded = [each.floor_bytes for each in work.recorded if each.floor_bytes]
    if recorded and (most := max(recorded)) <= _MOST_FLOOR_BYTES:
        return MemoryTerm(bytes=most, origin=f"{_SAMPLES}, before the first task")
    idle = [each.memory_bytes for each in work.workers if not each.executing and not each.stored_bytes]
    least = min((each for each in idle if 0 < each <= _MOST_FLOOR_BYTES), default=None)
    if least:
        return MemoryTerm(bytes=least, origin="a worker that runs nothing holds it now")
    return MemoryTerm(bytes=100 * 2**20, origin="usual for a worker with NumPy and pandas")  # measured


def _tasks_at_once(incident: Incident, work: Workload, lost: Sequence[Death]) -> int | None:
    threads = max(filter(None, (each.threads for each in incident.exceptions)), default=work.threads)
    recorded = [len(each.tasks) for each in incident.tasks_at_loss if each.exact]
    if recorded:
        return max(recorded)
    assigned = [min(len(each.assigned), threads or len(each.assigned)) for each in lost]
    return max(assigned, default=0) or None


def _warnings(marks: Iterable[Match]) -> tuple[tuple[tuple[float, int], ...], ...]:
    found: dict[str, list[tuple[float, int]]] = {}
    for each in marks:
        size = parse_bytes(each.captures.get("unmanaged", ""))
        if size and each.when is not None:
            found.setdefault(each.origin, []).append((each.when, size))
    return tuple(tuple(sorted(each)) for each in found.values())


def _worker(known: Mapping[str, str]) -> WorkerMemory | None:
    if whole(known.get("memory_bytes")) is None or not whole(known.get("limit_bytes")):
        return None
    other_names = {"executing": known.get("executing_count", ""), "threads": known.get("nthreads", "")}
    return _typed(WorkerMemory, {**known, **other_names})


#: How a capture is read, by the type of its field.
_READERS: Mapping[str, Callable[[str], Any]] = {
    "str": str,
    "bool": lambda text: text == "True",
    "int": lambda text: whole(text) or 0,
    "int | None": whole,
    "float | None": lambda text: float(text) if text else None,
    "tuple[int, ...]": lambda text: tuple(each for part in text.split(" x ") if (each := whole(part)) is not None),
    "tuple[str, ...]": lambda text: tuple(filter(None, text.split(", "))),
}


def _typed(kind: type[_T], known: Mapping[str, str]) -> _T:
    """The fields of an event, which are text in a mark, as a class has them; others keep their defaults."""
    return kind(
        **{each.name: _READERS[str(each.type)](known[each.name]) for each in fields(kind) if each.name in known}
    )


def _median(values: Iterable[int]) -> int:
    """The lower median; without the import of `statistics`, which every explanation would pay for."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2]
