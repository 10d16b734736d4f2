"""The changes that make the work succeed, each with its sum: a number is enough, or it is not given."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from math import ceil, floor, prod
from typing import TypeVar

from attrs import evolve

from workerdiag.model.diagnosis import Advice, Findings, RetryPolicy
from workerdiag.model.memory import Cure, MemoryAccount, MemoryTerm, ReasonChance, Step
from workerdiag.model.replay import MeasuredNeed
from workerdiag.model.rules import MEMORY_REASON, ReasonRule
from workerdiag.model.vocabulary import CureKind, Deployment, MemoryReason
from workerdiag.redaction.objects import redact_object
from workerdiag.scoring.advice import MemoryNumbers
from workerdiag.scoring.memory_account import END_SHARE, MANY, Workload
from workerdiag.scoring.memory_reason import EXCHANGED_PIECES, SMALLER_SHARE, SPILL_SHARE, account_sum
from workerdiag.units import format_bytes, format_limit, round_up_limit

_F = TypeVar("_F", bound=Findings)

#: What to do, in words, and what it costs; the change itself follows as code.
_WORDS: Mapping[CureKind, tuple[str, str]] = {
    "worker-memory": ("Give each worker {size} of memory", "Fewer workers per machine."),
    "threads": ("Let each worker run {value} task{s} at a time", "Less parallelism."),
    "piece-size": ("Make the pieces smaller: at most {size} each", "More tasks, so more scheduling."),
    "data-in-tasks": (
        "Keep the data out of the graph: load them in the tasks, or scatter them once",
        "The data must be where workers can read them.",
    ),
    "do-not-collect": ("Do not hold everything at once: write it out in parts, or reduce it as it comes", ""),
    "spread-key": ("Spread the one large piece over several tasks", "A second step."),
    "fix-leak": ("Mend what grows from task to task", ""),
    "restart-workers": ("Restart the workers in turn", "Stored results move at each restart."),
    "trim": ("Have freed memory given back to the system", ""),
}
#: At most this many changes are suggested, for reasons at least this likely, if the first is likely enough to try:
#: of two between which nothing decides, both.
MAX_CURES, _LEAST_CHANCE, _WORTH_A_TRY = 3, 0.2, 0.4
#: A task takes one piece and gives one, and needs as much again while it runs, if nothing more is known.
_USUAL_PIECES = 4
#: Share of a limit that work may take without being paused.
_USABLE_SHARE = 0.8
#: Smaller pieces cost more in scheduling than they save.
_LEAST_PIECE_BYTES = 2**20
#: How likely a change suffices once its reason is right.
_PIECES_HELP, _THREADS_HELP, _MEMORY_HELPS, _CODE_HELPS = 0.85, 0.8, 0.8, 0.85
#: How likely a limit suffices that was measured, and the share by which it may be wrong.
_MEASURED_HELPS, _EXACT = 0.95, 1.05
#: Of that, where nobody knows how many copies a function makes.
_COPIES_UNKNOWN = 0.8
#: And where what must be kept in all passes the memory of all workers, and goes to disk and back; and with
#: more memory, because such work may take very long.
_OVERFLOWS, _LARGE_WORK = 0.5, 0.75
#: How likely all the memory that there is suffices, and how many times the present limit it must be to be tried.
_ALL_HELPS, _MUCH_MORE = 0.7, 2

#: Reasons for which the memory that running tasks have asked for is what they need.
_OF_ASKED: tuple[MemoryReason, ...] = ("too-many-at-once", "one-task-too-large")
#: Reasons against which no amount of memory helps.
_GROWING: tuple[MemoryReason, ...] = ("leak", "runaway")

#: How workers read what was made in the caller's process, by what was computed.
_READS = {"array": "da.from_zarr(path)", "dataframe": "dd.read_parquet(path)", "bag": "db.read_text(paths)"}
_FORMATS = ("parquet", "zarr", "csv", "json", "hdf", "orc", "sql", "netcdf", "textfiles", "avro")
#: How a deployment, or else anybody, is told a number of threads and a limit.
_SETTINGS: Mapping[CureKind, Mapping[Deployment | None, str]] = {
    "threads": {
        "local": "LocalCluster(threads_per_worker={value})",
        "batch": "SLURMCluster(cores={value}, processes=1)",
        "coiled": 'coiled.Cluster(worker_options={{"nthreads": {value}}})',
        None: "dask worker tcp://scheduler:8786 --nthreads {value}",
    },
    "worker-memory": {
        "local": 'LocalCluster(memory_limit="{size}")',
        "batch": 'SLURMCluster(cores=1, processes=1, memory="{size}")',
        "coiled": 'coiled.Cluster(worker_memory="{size}")',
        "kubernetes": 'dask worker --memory-limit "{size}"   # and a tenth more as the limit of the pod',
        None: 'dask worker tcp://scheduler:8786 --memory-limit "{size}"',
    },
}


def suggested_cures(
    account: MemoryAccount, work: Workload, deployment: Deployment | None, rules: Sequence[ReasonRule]
) -> tuple[Cure, ...]:
    """At most three changes, in the order in which to try them: those of the likeliest reason first."""
    if not account.reasons or account.reasons[0].probability < _WORTH_A_TRY:
        return ()
    found: dict[tuple[str, int | None], Cure] = {}
    kinds = {each.id: each.cures for each in rules}
    for each in account.reasons:
        if each.probability >= _LEAST_CHANCE:
            case = _Treatment(account, work, deployment, each)
            cures = [cure for kind in kinds[each.reason] if (cure := _MAKERS[kind](case))]
            for cure in sorted(cures, key=lambda cure: -cure.probability) if case.kept_each else cures:
                found.setdefault((cure.kind, cure.value), cure)
    return tuple(found.values())[:MAX_CURES]


def with_measured_need(findings: _F, measured: MeasuredNeed, deployment: Deployment | None) -> _F:
    """The findings with that need in the decision, the memory account and the cures."""
    account, task = findings.memory, redact_object(measured.task)[:100]
    limit = account.limit.bytes if account is not None else None
    cures = redact_object(_measured_cures(findings.cures, measured, limit, deployment))
    if account is not None:
        account = evolve(account, measured=MemoryTerm(bytes=measured.task_bytes, origin=f"replay of task {task}"))
    advice, enough = tuple(map(cure_advice, cures)), next(each for each in cures if each.kind == "worker-memory")
    causes = tuple(
        evolve(each, mitigations=(*advice, *each.mitigations[len(findings.cures) :]))
        for each in findings.causes[:1]
    )
    decision = evolve(
        findings.decision,
        needs_memory_bytes=measured.memory_bytes,
        needs_memory_lower_bound_bytes=None,
        policy=_measured_policy(findings.decision.policy, enough.value),
    )
    return evolve(findings, memory=account, cures=cures, causes=(*causes, *findings.causes[1:]), decision=decision)


def _measured_policy(policy: RetryPolicy, value: int | None) -> RetryPolicy:
    """The policy, with enough memory where a program may act: then the work finishes."""
    if policy.action not in ("retry-with-memory", "do-not-retry") or value is None:
        return policy
    return evolve(
        policy,
        action="retry-with-memory",
        reason="a replay measured how much memory the same work needs",
        conditions=(f"Each worker that may run it needs at least {format_limit(value)}.",),
        memory_bytes=value,
        max_tries=1,
    )


def _measured_cures(
    cures: Sequence[Cure], measured: MeasuredNeed, limit_bytes: int | None, deployment: Deployment | None
) -> tuple[Cure, ...]:
    """The *cures* with what was measured in the place of what was worked out."""
    found: list[Cure] = []
    fitting = [each for each in measured.table[:-1] if limit_bytes and each.memory_bytes * _EXACT <= limit_bytes]
    if fitting:
        most = fitting[-1]
        size = format_bytes(most.memory_bytes)
        why = f"replayed, {most.threads} at a time need {size}, of {format_bytes(limit_bytes or 0)}"
        found.append(_setting("threads", most.threads, why, _MEASURED_HELPS, deployment))
    value = round_up_limit(measured.memory_bytes * _EXACT)
    why = f"replayed, it needs {format_bytes(measured.memory_bytes)}, exact to 5%"
    found.append(_setting("worker-memory", value, why, _MEASURED_HELPS, deployment))
    others = [each for each in cures if each.kind not in ("threads", "worker-memory")]
    return (*found, *others)[:MAX_CURES]


def cure_advice(cure: Cure) -> Advice:
    """The cure as what to do now, with its sum if it has a number."""
    why = f" {cure.why[:1].upper()}{cure.why[1:]}." if cure.value is not None else ""
    return Advice(do=f"{cure.do}.{why}", cost=cure.cost, example=cure.change)


def numbers_for_reason(numbers: MemoryNumbers, reason: MemoryReason, cures: Sequence[Cure]) -> MemoryNumbers:
    """The numbers for mitigations and policy where the reason is known: a size is enough, or it is not given."""
    enough = next((each.value for each in cures[:1] if each.kind == "worker-memory"), None)
    if reason == "one-task-too-large" and not cures:  # more is right, and a try shows whether it is enough
        enough = numbers.worth_a_try_bytes
    words = {key: text for key, text in numbers.words.items() if key not in ("needs_memory", "pod_memory")}
    if cures or reason in _GROWING:
        words[MEMORY_REASON] = reason
    return evolve(numbers, worth_a_try_bytes=enough, words=words)


class _Treatment:
    """One account with one of its reasons, for the changes against that."""

    def __init__(
        self, account: MemoryAccount, work: Workload, deployment: Deployment | None, reason: ReasonChance
    ) -> None:
        self.account = account
        self.work = work
        self.reason = reason
        self.deployment = deployment
        self.limit = account.limit.bytes or 0
        self.floor = account.floor.bytes or 0
        self.tasks = account.tasks_at_once or 1
        asked = work.asked if reason.reason in _OF_ASKED and not work.governing else None
        self.occupied = self.floor + (account.stored.bytes or 0 if asked else 0)  # beside what tasks asked for
        #: What the running tasks asked for, where that passes the limit.
        self.asked = asked if asked and self.occupied + (asked.asked_bytes or 0) >= END_SHARE * self.limit else None
        self.full = work.full_need_bytes(self.limit)
        #: How many will run at once when there are more of them.
        self.threads = max(work.threads or 1, self.tasks)
        #: What has to be kept in all, and what all workers hold without spilling.
        self.kept = work.number("kept_bytes") or 0
        self.held_in_all = work.worker_count * self.room

    @property
    def makes_unknown_copies(self) -> bool:
        """Whether what tasks need is only known to be at least so much."""
        return self.work.governing is not None and self.work.governing.is_opaque

    @property
    def room(self) -> int:
        """What tasks may hold without spilling."""
        return max(int(self.limit * SPILL_SHARE) - self.floor, self.limit // 10)

    @property
    def kept_each(self) -> int:
        """What each worker must keep, if all workers together cannot without spilling; else 0."""
        return self.kept // self.work.worker_count if self.kept > self.held_in_all else 0

    @property
    def kept_why(self) -> str:
        """What is to be said of what must be kept; empty if there is room for it."""
        if not self.kept_each:
            return ""
        held = f"{self.work.worker_count} workers hold {format_bytes(self.held_in_all)} of that without spilling"
        return f"; {format_bytes(self.kept)} are kept in all, {held}, {ceil(self.kept / self.room)} would hold it"

    def cure(self, kind: CureKind, change: str, why: str, helps: float, value: int | None = None) -> Cure:
        return _cure(kind, change, why, self._chance(kind, helps), value)

    def cluster_option(self, kind: CureKind, value: int, why: str, helps: float) -> Cure:
        return _setting(kind, value, why, self._chance(kind, helps), self.deployment)

    def _chance(self, kind: CureKind, helps: float) -> float:
        if self.makes_unknown_copies and kind in ("piece-size", "threads"):
            helps *= _COPIES_UNKNOWN
        if self.kept_each:
            helps *= _LARGE_WORK if kind == "worker-memory" else _OVERFLOWS
        return round(min(1.0, self.reason.probability * helps), 2)

    def variable(self, fallback: str) -> str:
        named = next((each.variable for each in self.work.steps if each.variable), "")
        return self.work.call.get("embedded_name") or named or fallback


def _cure(kind: CureKind, change: str, why: str, chance: float, value: int | None) -> Cure:
    words, cost = _WORDS[kind]
    size = format_limit(value or 0) if kind == "worker-memory" else format_bytes(value or 0)
    do = words.format(size=size, value=value, s="" if value == 1 else "s")
    return Cure(do=do, kind=kind, value=value, change=change, why=why, probability=chance, cost=cost)


def _setting(kind: CureKind, value: int, why: str, chance: float, deployment: Deployment | None) -> Cure:
    settings = _SETTINGS[kind]
    change = settings.get(deployment, settings[None]).format(value=value, size=format_limit(value))
    return _cure(kind, change, why, chance, value)


def _smaller_pieces(case: _Treatment) -> Cure | None:
    if not case.limit:
        return None
    step, source = case.work.governing, case.work.source
    room = f"{format_bytes(int(case.limit * SPILL_SHARE))} (where spilling begins) - {format_bytes(case.floor)}"
    is_known = step and step.piece_bytes and (source is None or source.piece_bytes)
    if step is None or not is_known or case.reason.reason == "shuffle-buffers":
        pieces = EXCHANGED_PIECES if any(each.by_key for each in case.work.steps) else _USUAL_PIECES
        size = _nice_size(case.room // (case.threads * pieces))
        if source and source.piece_bytes and size > SMALLER_SHARE * source.piece_bytes:
            return None
        why = f"{room}, for {case.threads} x {pieces} pieces at once: {format_bytes(size)} each"
        change = _frame_change(source, size) if source else f"pieces of at most {format_bytes(size)}"
        return case.cure("piece-size", change, why, _PIECES_HELP, size)
    made = _where_cut(case.work, step)
    is_crossed = len(_long_axes(made)) < len(_long_axes(step))  # each piece meets all pieces of another array
    before = (step if is_crossed else made).cut_bytes
    each = step.task_bytes + (step.copies_bytes if step.is_opaque else 0)  # it was ended while it made them
    least = min(_LEAST_PIECE_BYTES, _LEAST_PIECE_BYTES * before // step.largest_bytes)  # it may make far more of it
    size = _nice_size(int(before * min(1.0, case.room / (case.threads * max(each, 1)))), max(least, 1))
    if size >= before:
        return None
    why = (
        f"{account_sum(case.account, case.tasks)}, the limit is {format_bytes(case.limit)}; "
        f"with pieces of {format_bytes(size)} {case.threads} tasks at once need "
        f"{format_bytes(case.floor + int(case.threads * each * size / before))}"
        f"{', with twice the copies' if step.is_opaque else ''}{case.kept_why}"
    )
    config = f'dask.config.set({{"array.chunk-size": "{max(1, size // 2**20)}MiB"}})'
    if made.is_between:
        change = f"{config}   # before the rechunk, for the chunks on its way"
    elif is_crossed:
        shorter = (size / before) ** (len(_cut_axes(made)) / len(_cut_axes(step)))
        change = _array_change(made, smaller_chunk(made, int((made.piece_bytes or 0) * shorter)), step, size)
    elif made.chunk:
        change = _array_change(made, smaller_chunk(made, size, case.work.source), made, size)
    else:
        change = _frame_change(made, size)
    if made.name.startswith("rechunk") and _turns_chunks(made, case.work.source) and not made.is_between:
        change = f"{config}; {change}"  # for the chunks on its way, which have 128 MiB else
    return case.cure("piece-size", change, why, _PIECES_HELP, size)


def _where_cut(work: Workload, step: Step) -> Step:
    """The step in which the caller says how large the pieces of *step* are: a rechunk, or where they are made."""
    source = work.source
    if step.is_between:
        return step
    cut = [each for each in work.steps if each.name.startswith("rechunk") and not each.is_between]
    cut = [each for each in cut if (each.piece_bytes or 0) >= step.largest_bytes]
    made = source if source and source.piece_bytes else step
    return max(cut, key=lambda each: each.piece_bytes or 0, default=made)


def _turns_chunks(made: Step, source: Step | None) -> bool:
    """Whether a rechunk makes chunks longer along one axis and shorter along another, with others on its way."""
    pairs = list(zip(made.chunk, source.chunk, strict=False)) if source else []
    return any(after > before for after, before in pairs) and any(after < before for after, before in pairs)


def _long_axes(step: Step) -> list[int]:
    return [at for at, each in enumerate(step.chunk) if each > 1]


def _cut_axes(step: Step) -> list[int]:
    """Those along which it is in several pieces; all if that is not known."""
    long = _long_axes(step)
    return [at for at in long if len(step.shape) == len(step.chunk) and step.chunk[at] < step.shape[at]] or long


def _nice_size(size: int, least: int = _LEAST_PIECE_BYTES) -> int:
    """The size rounded down to what one would type: whole MiB, and about powers of two above 16 MiB and below 1."""
    size = max(size, least)
    step = 2**20 if 2**20 <= size < 2**24 else 2 ** max(size.bit_length() - 2, 0)
    return size // step * step


def _array_change(made: Step, chunk: tuple[int, ...], sized: Step, size: int) -> str:
    """The caller's own line with other chunks, or what to write where the array is made.

    Pieces of the step *sized* then have at most *size* bytes.
    """
    plain = f"({', '.join(map(str, chunk))}{',' if len(chunk) == 1 else ''})"
    named = plain
    if len(made.dims) == len(chunk):
        named = "{" + ", ".join(f"{name!r}: {each}" for name, each in zip(made.dims, chunk, strict=True)) + "}"
    note = f"{sized.name}: {format_bytes(size)} a chunk at most"
    if made is not sized:
        note = f"and what it meets alike; {note}"
    if made.name.startswith("rechunk"):
        line = _with_chunks(made.made_by, ("rechunk", "chunk"), plain, named)
        return f"{line}   # {note}" if line else f"rechunk({named})   # in place of the present one; {note}"
    if line := _with_chunks(made.made_by, (), plain, named):
        return f"{line}   # {note}"
    where = f"where {made.variable or made.name} is made"
    return f"chunks={named}   # {where}, {note}"


def smaller_chunk(step: Step, size: int, source: Step | None = None) -> tuple[int, ...]:
    """A chunk of at most *size* bytes: first the axes that are cut already are shortened, all alike.

    One that is in one chunk may be so on purpose, and so may one that a rechunk made longer than in *source*: they
    are shortened if the others do not suffice.
    """
    itemsize = max(1.0, (step.piece_bytes or 1) / max(prod(step.chunk), 1))
    before = source.chunk if source and len(source.chunk) == len(step.chunk) else step.chunk
    long, cut = _long_axes(step), _cut_axes(step)
    short = [at for at in long if step.chunk[at] <= before[at]]
    chunk = list(step.chunk)
    for axes in ([at for at in cut if at in short], cut, short, long):
        free = [at for at in axes if chunk[at] > 1]
        factor = min(1.0, (size / (prod(chunk) * itemsize)) ** (1 / max(len(free), 1)))
        for at in free:
            chunk[at] = max(1, floor(chunk[at] * factor))
        while prod(chunk) * itemsize > size and any(chunk[at] > 1 for at in free):
            widest = max(free, key=lambda at: chunk[at])
            chunk[widest] = max(1, floor(chunk[widest] * 0.9))
    return tuple(chunk)


def _frame_change(step: Step, size: int) -> str:
    """How a frame is made with smaller partitions: what comes after a read cannot make the read smaller."""
    rows = max(1, size // step.row_bytes) if step.row_bytes else None
    partitions = ceil(step.cut_bytes * step.pieces / size) if step.piece_bytes else None
    name = step.variable or "the frame"
    sized = f"   # {format_bytes(size)} a partition at most"
    match step.argument:
        case "split_row_groups":
            line = _with_argument(step.made_by, "blocksize", f'"{size // 2**20}MiB"')
            rewrite = f"; a row group is not split: write the file with row_group_size={rows}" if rows else ""
            return f"{line or f'read_parquet(..., blocksize={size})'}{sized}{rewrite}"
        case "npartitions" if partitions:
            line = _with_argument(step.made_by, "npartitions", str(partitions))
            return f"{line or f'from_pandas(..., npartitions={partitions})'}{sized}"
        case "chunksize" if rows:
            return f"{_with_argument(step.made_by, 'chunksize', str(rows)) or f'chunksize={rows}'}{sized}"
        case "partition_freq" if rows:
            more = f", about {ceil((step.rows or rows) / rows)} times as many partitions"
            return f"partition_freq=...   # where {step.name} is made: {rows:,} rows a partition{more}"
        case "blocksize":
            line = _with_argument(step.made_by, "blocksize", str(size)) if step.inputs_bytes else ""
            where = f"where {name} is read, or smaller parts where it is made by a function"
            return f"{line or f'blocksize={size}'}   # {f'{format_bytes(size)} of text' if line else where}"
        case _:
            return f"smaller parts where {name} is made: {format_bytes(size)} each at most"


def _with_chunks(code: str, methods: tuple[str, ...], plain: str, named: str) -> str:
    """A statement of the caller with other chunks; empty if it has none, or cannot be read.

    They are all arguments of one of these methods, or else the argument ``chunks``. Functions of xarray take them
    by the names of dimensions.
    """
    for call in _calls(code):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        value = named if name == "chunk" or name.startswith("open_") else plain
        if name in methods and call.args:
            return _replaced(code, call.args[0], (call.keywords or call.args)[-1], value)
        given = next((word for word in call.keywords if word.arg == "chunks"), None)
        if given is not None and not methods:
            return _replaced(code, given.value, given.value, value)
    return ""


def _calls(code: str) -> list[ast.Call]:
    """The calls of a statement on one line; none if it cannot be read."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError):
        return []
    is_plain = code.isascii() and "\n" not in code  # then columns are characters
    return [each for each in ast.walk(tree) if is_plain and isinstance(each, ast.Call)]


def _replaced(code: str, first: ast.expr, last: ast.expr | ast.keyword, value: str) -> str:
    return f"{code[: first.col_offset]}{value}{code[last.end_col_offset :]}"


def _with_argument(code: str, name: str, value: str) -> str:
    """A statement of the caller with another value of an argument, or with one more; empty if it cannot be read."""
    calls = _calls(code)
    given = [word.value for each in calls for word in each.keywords if word.arg == name]
    if given:
        return _replaced(code, given[0], given[0], value)
    makers = [
        each
        for each in calls
        if isinstance(each.func, ast.Attribute) and each.func.attr.startswith(("read_", "from_"))
    ]
    if makers and makers[0].end_col_offset:
        end = makers[0].end_col_offset - 1
        return f"{code[:end]}, {name}={value}{code[end:]}"
    return ""


def _fewer_threads(case: _Treatment) -> Cure | None:
    if sufficient := case.work.sufficient_threads:
        why = f"with {sufficient} at a time no worker died any more"
        return case.cluster_option("threads", sufficient, why, _MEASURED_HELPS)
    if case.tasks < 2 or not case.limit:
        return None
    full, each = case.full, case.account.task_bytes
    if full and not case.work.governing:
        each = (full - case.floor) // case.tasks
    if case.asked:
        each = case.asked.each_bytes
    if each and case.occupied + case.tasks * each < END_SHARE * case.limit:  # then something else filled it
        each = None
    fits = int((END_SHARE * 0.95 * case.limit - case.occupied) // each) if each else 1
    if fits < 1:
        return None
    value = min(fits, case.tasks - 1)
    if each:
        base, total = format_bytes(case.occupied), format_bytes(case.occupied + value * each)
        why = f"{base} + {value} x {format_bytes(each)} = {total}, of {format_bytes(case.limit)}"
    else:
        why = f"{case.tasks} tasks shared {format_bytes(case.limit)}; alone each may have all of it"
    return case.cluster_option("threads", value, why, _THREADS_HELP)


def _more_memory(case: _Treatment) -> Cure | None:
    """A larger limit, if what is needed is known."""
    match case.reason.reason:
        case "brought-together":
            return _memory_for_inputs(case)
        case "results-stored":
            return _memory_for_results(case)
        case _:
            return _memory_for_tasks(case)


def _memory_for_tasks(case: _Treatment) -> Cure | None:
    full, each = case.full, case.account.task_bytes
    if case.reason != case.account.reasons[0]:  # it is the last to try, and only for the likeliest reason
        return None
    if (enough := case.work.sufficient_memory_bytes) and enough > case.limit:
        why = f"what killed workers alone finished on one of {format_limit(enough)}"
        return case.cluster_option("worker-memory", enough, why, _MEMORY_HELPS)
    if case.asked and case.asked.is_unfilled:
        # with room for one, as many begin as a worker has threads, if workers died of others like it too
        count = case.threads if case.work.ran_at_deaths > 1 else case.tasks
        need = case.occupied + count * (case.asked.each_bytes or 0)
        size = format_bytes(case.asked.each_bytes or 0)
        why = f"{format_bytes(case.occupied)} + {count} x {size} asked for = {format_bytes(need)}"
    elif full and not case.work.governing:
        need, why = full, f"workers held {format_bytes(full)} each time and wanted no more"
    elif each and case.work.governing and not case.makes_unknown_copies:
        need, why = case.floor + case.tasks * each, account_sum(case.account, case.tasks) + case.kept_why
    else:
        return _all_memory_there_is(case) if case.reason.reason == "one-task-too-large" else None
    value = round_up_limit(max(need / _USABLE_SHARE, (case.floor + case.kept_each) / SPILL_SHARE))
    if value <= case.limit:
        return None
    why = f"{why}; with head-room below the share at which workers are paused and ended"
    return case.cluster_option("worker-memory", value, why, _MEMORY_HELPS)


def _all_memory_there_is(case: _Treatment) -> Cure | None:
    """The most that one machine with all workers has for each, where nobody knows how much is enough."""
    machine, workers = case.work.machine_bytes or 0, case.work.worker_count
    value = int(machine * _USABLE_SHARE / workers) // 2**30 * 2**30
    if value < _MUCH_MORE * case.limit:
        return None
    why = f"how much tasks need is not known, so all that there is: {format_bytes(machine)} for {workers} workers"
    cure = case.cluster_option("worker-memory", value, why, _ALL_HELPS)
    return evolve(cure, do=f"Try {format_limit(value)} a worker, all there is: how much is enough is not known")


def _memory_for_inputs(case: _Treatment) -> Cure | None:
    inputs = case.account.inputs.bytes
    if not inputs or not case.limit or inputs <= case.limit * SPILL_SHARE or case.makes_unknown_copies:
        return None
    value = round_up_limit((2 * inputs + case.floor) / _USABLE_SHARE)
    why = f"{format_bytes(inputs)} in + as much out + {format_bytes(case.floor)}, with head-room"
    return case.cluster_option("worker-memory", value, why, 0.6)


def _memory_for_results(case: _Treatment) -> Cure | None:
    stored = case.account.stored.bytes or 0
    if not stored and case.work.scattered_bytes:
        return _all_memory_there_is(case)
    total = f"{format_bytes(stored)} stored"
    if (kept := case.work.unmeasured) and case.work.paused:  # all of them, by what those that are there hold
        held = sum(each.memory_bytes - case.floor for each in case.work.paused)
        each, count = held // kept.kept, ceil(kept.expected / case.work.worker_count)
        if count * each > stored:
            stored, total = count * each, f"{count} x {format_bytes(each)}"
    asked = (case.work.asked and case.work.asked.asked_bytes) or 0
    value = round_up_limit(max((stored + case.floor) / SPILL_SHARE, (stored + case.floor + asked) / _USABLE_SHARE))
    if not stored or value <= case.limit:
        return None
    share = f"and {format_bytes(asked)} asked for" if asked else f"at most {SPILL_SHARE:.0%} of the limit"
    why = f"{total} + {format_bytes(case.floor)}, {share}"
    return case.cluster_option("worker-memory", value, why, 0.6)


def _data_in_tasks(case: _Treatment) -> Cure:
    name = case.variable("data")
    read = _READS.get(case.work.call.get("kinds", ""))
    change = f"[{name}] = client.scatter([{name}], broadcast=True)   # and pass that future to the tasks"
    if not case.work.call.get("embedded_type"):  # Dask sends a list item by item, which may take for ever
        change += f"; if it is a long list, scatter np.asarray({name})"
    if read:
        change = f"{name} = {read}   # read by the tasks, not made here"
    call = case.work.call
    if call.get("kinds") == "dataframe" and call.get("embedded_type") and not call.get("embedded_partitioned"):
        change = f"# give the function the path of {name} instead, and read it there: each task brings a copy now"
    return case.cure("data-in-tasks", change, case.reason.why, _CODE_HELPS)


def _do_not_collect(case: _Treatment) -> Cure | None:
    if case.reason.reason == "results-stored":
        if case.work.scattered_bytes:  # tasks need it
            return None
        change = f"del {case.variable('futures')}   # and persisted collections, once each is reduced or written"
        if case.work.call.get("gathered") == "True" and case.work.number("futures"):
            change = (
                "for future, result in as_completed(futures, with_results=True): ...   # reduce each as it comes"
            )
        return case.cure("do-not-collect", change, case.reason.why, _THREADS_HELP)
    name = case.variable("x")
    change = {
        "array": f"{name}.to_zarr('result.zarr')   # instead of compute(); or reduce it first",
        "dataframe": f"{name}.to_parquet('result/')   # instead of compute(); or reduce it first",
    }.get(
        case.work.call.get("kinds", ""),
        "client.map(reduce_part, parts)   # and bring together what is left of them",
    )
    if any(f".to_{each}(" in case.work.call.get("code", "") for each in _FORMATS):  # it is written out already
        change = "# leave it in parts: no repartition(npartitions=1), and nothing else that takes all, before that"
    if case.work.call.get("kinds") == "dataframe" and case.work.killed and "groupby" in case.work.killed.kind:
        change = f"{name}.groupby(...).agg(..., split_out={MANY})   # or more: so many partitions share the groups"
    if joined := case.work.joined(case.limit * SPILL_SHARE / 2):
        kept = f"# no repartition(npartitions={joined.pieces}): keep the {joined.pieces * joined.inputs} partitions"
        change = f"{kept}; and if all of it is computed: {change}"
    return case.cure("do-not-collect", change, case.reason.why, _CODE_HELPS)


def _spread_key(case: _Treatment) -> Cure:
    step = next((each for each in case.work.steps if each.by_key), None)
    if step is None:
        which = case.work.killed.which if case.work.killed else "the task"
        change = f"# cut what {which} takes into several: a blocksize where files are read, or smaller arguments"
        return case.cure("spread-key", change, case.reason.why, _CODE_HELPS)
    key = step.key or "key"
    salted = f'{case.variable("df")}.groupby([{key!r}, "salt"]).agg(...).groupby({key!r}).agg(...)'
    change = f"{salted}   # salt: a column of random numbers; or a built-in aggregation instead of apply"
    if step.name == "merge":
        change = f"right = right.drop_duplicates({key!r})   # or aggregate by it: before the merge, each key once"
    return case.cure("spread-key", change, case.reason.why, _CODE_HELPS)


def _fix_leak(case: _Treatment) -> Cure:
    kind = max(case.work.needs, key=lambda each: each.finished, default=None)
    where = f" in {kind.kind}" if kind and kind.kind else ""
    kept = next((each.kept for each in case.work.recorded if each.kept), None)
    change = f"# look{where} for what is kept from task to task: a cache, a global list, a library's pool"
    if kept:
        change = f"# {kept.name} grows from task to task ({kept.where}): empty it, or give it a limit"
    return case.cure("fix-leak", change, case.reason.why, _CODE_HELPS)


def _restart_workers(case: _Treatment) -> Cure:
    change = "dask worker tcp://scheduler:8786 --lifetime 1h --lifetime-stagger 10m --lifetime-restart"
    if case.deployment == "local":
        change = 'LocalCluster(lifetime="1h", lifetime_stagger="10m", lifetime_restart=True)'
    return case.cure("restart-workers", change, "more memory only delays it; restarts empty it", 0.5)


def _trim(case: _Treatment) -> Cure:
    change = "client.run(lambda: __import__('ctypes').CDLL('libc.so.6').malloc_trim(0))   # whenever it grows"
    return case.cure("trim", change, "glibc keeps freed memory; malloc_trim gives it back", 0.5)


#: What makes a change of each kind; None where it would not help, or not enough is known.
_MAKERS: Mapping[CureKind, Callable[[_Treatment], Cure | None]] = {
    "piece-size": _smaller_pieces,
    "threads": _fewer_threads,
    "worker-memory": _more_memory,
    "data-in-tasks": _data_in_tasks,
    "do-not-collect": _do_not_collect,
    "spread-key": _spread_key,
    "fix-leak": _fix_leak,
    "restart-workers": _restart_workers,
    "trim": _trim,
}
