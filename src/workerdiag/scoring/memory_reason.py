"""Why memory went over the limit: each reason with what speaks for it in the memory account.

A reason is weighed by what is true of it, as likelihood ratios against "none of these"; the weights follow
deaths that were provoked for known reasons (docs/cures.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from attrs import evolve

from workerdiag.model.memory import MemoryAccount, ReasonChance
from workerdiag.model.vocabulary import MemoryReason
from workerdiag.scoring.memory_account import END_SHARE, Step, Workload
from workerdiag.scoring.recorded_memory import MUCH_SHARE
from workerdiag.units import format_bytes

#: A weight and the sentence for it.
Sign = tuple[float, str]
#: Below this probability no reason is named.
NAMED_FROM = 0.5
#: Weight of "none of these".
_NONE = 1.0
#: Strong, moderate and weak, as likelihood ratios.
_STRONG, _MODERATE, _WEAK = 12.0, 5.0, 0.8
#: Share of the limit at which Dask begins to spill.
SPILL_SHARE = 0.6
#: A piece or data below this share of the limit are not large.
_LARGE_SHARE = 0.15
#: Share of all rows that one key has if it is the matter.
_SKEWED_SHARE = 0.3
#: An input that is so many times the median is of another kind than the others.
_SKEWED_TIMES = 8
#: Inputs of this number are brought together; fewer belong to one operation.
_MANY = 8
#: How many tasks of a kind each worker finishes, at least, if it is not a single one that is too large.
#: After several deaths, each of a fresh worker, fewer show it.
_FINISHED_BEFORE, _FINISHED_BEFORE_EACH, _SEVERAL_DEATHS = 4, 2, 4
_BRINGS_TOGETHER = ("finalize", "concat", "repartitiontofewer")
_SHUFFLES = ("-transfer", "shuffle", "hash-join", "hashjoin", "p2p", "rearrange", "setindex", "set-index")


def memory_reasons(account: MemoryAccount, work: Workload, deaths: int) -> MemoryAccount:
    """The account with its reasons; *deaths* is the number of workers that were lost to memory."""
    judged = _Judge(account, work, deaths)
    found: dict[MemoryReason, Sign] = {
        name: sign for name, look in judged.looks() if (sign := look()) is not None and sign[0] > 0
    }
    whole = _NONE + sum(weight for weight, _ in found.values())
    reasons = sorted(
        (ReasonChance(reason=name, probability=weight / whole, why=why) for name, (weight, why) in found.items()),
        key=lambda each: -each.probability,
    )
    first = reasons[0] if reasons else None
    is_named = first is not None and first.probability >= NAMED_FROM
    return evolve(
        account,
        reasons=tuple(reasons),
        reason=first.reason if first and is_named else None,
        would_tell="" if is_named and account.task_bytes else _would_tell(work),
    )


def _would_tell(work: Workload) -> str:
    if not work.call:
        return "explain(exc, client) in the program's own except block: its frames show what was computed" + (
            "" if work.recorded else "; and the flight recorder, workerdiag.install(client), before the next run"
        )
    if work.recorded:  # it has told what it saw
        return ""
    return "the flight recorder, workerdiag.install(client), before the next run: it sees what tasks hold"


class _Judge:
    """Looks for each reason in one account."""

    def __init__(self, account: MemoryAccount, work: Workload, deaths: int) -> None:
        self._account = account
        self._work = work
        self._deaths = deaths
        self._limit = account.limit.bytes or 0
        self._floor = account.floor.bytes or 0
        self._step = work.governing
        self._full = work.full_need_bytes(self._limit)
        #: 0 where it is not known.
        self._at_once = account.tasks_at_once or 0

    def looks(self) -> Iterator[tuple[MemoryReason, Callable[[], Sign | None]]]:
        yield "data-in-graph", self._data_in_graph
        yield "brought-together", self._brought_together
        yield "skew", self._skew
        yield "shuffle-buffers", self._shuffle_buffers
        yield "results-stored", self._results_stored
        yield "leak", self._leak
        yield "not-returned", self._not_returned
        yield "pieces-too-large", self._pieces_too_large
        yield "too-many-at-once", self._too_many_at_once
        yield "one-task-too-large", self._one_task_too_large
        yield "runaway", self._runaway

    def _share(self, size: int | None) -> float:
        return (size or 0) / self._limit if self._limit else 0.0

    @property
    def _killed_kind(self) -> str:
        return self._work.killed.kind.lower() if self._work.killed else ""

    @property
    def _pieces_are_large(self) -> bool:
        """Whether the tasks of the computed collection, as many as ran at once, come near the limit."""
        return self._step is not None and bool(self._limit) and self._need(self._step) > SPILL_SHARE * self._limit

    @property
    def _has_pieces(self) -> bool:
        """Whether an array or a frame was computed, and not only a function of one's own that fills the memory."""
        can_be_cut = not {"array", "dataframe"}.isdisjoint(self._work.call.get("kinds", "").split(", "))
        is_opaque = any(each.is_opaque for each in self._work.steps) and not any(
            each.by_key for each in self._work.steps
        )
        return can_be_cut and (self._pieces_are_large or not is_opaque)

    @property
    def _reads_pieces(self) -> bool:
        """Whether workers died of a task that makes or reads a piece."""
        source = self._work.source
        return source is not None and self._killed_kind.startswith(source.name.lower())

    @property
    def _one_asked_for_too_much(self) -> bool:
        """Whether a function of one's own asked for more than a worker has, and had not filled it yet."""
        asked = self._work.asked
        if asked is None or not asked.is_unfilled or self._has_pieces:
            return False
        return self._floor + (asked.each_bytes or 0) >= END_SHARE * self._limit

    def _need(self, step: Step) -> int:
        return self._floor + max(self._at_once, 1) * step.task_bytes

    def _data_in_graph(self) -> Sign | None:
        account, killed = self._account, self._work.killed
        if self._pieces_are_large and self._work.call.get("embedded_type") == "DataFrame":
            # Partitions of a frame of this process: each goes to one task, so their size matters first.
            return _MODERATE, f"{format_bytes(account.in_graph.bytes or 0)} of data travel inside the graph"
        spec = killed.spec_bytes if killed else 0
        if self._share(spec) >= _LARGE_SHARE:
            return _STRONG * 2, f"the task that was killed brings {format_bytes(spec)} of data with it"
        size = account.in_graph.bytes
        if not size or (self._limit and self._share(size) < _LARGE_SHARE):
            return None
        weight = _STRONG * 2 if self._share(size) >= SPILL_SHARE / 2 else _MODERATE
        return weight, f"{format_bytes(size)} of data travel inside the graph ({account.in_graph.origin})"

    def _brought_together(self) -> Sign | None:
        killed, result = self._work.killed, self._account.result.bytes
        if (refused := self._work.refused_inputs_bytes) is not None:
            inputs = f"one task takes inputs of {format_bytes(refused)}, more than a worker may hold"
            return _STRONG, f"{inputs}: the scheduler refused it, and it never ran"
        if killed and killed.inputs >= _MANY and self._share(killed.inputs_bytes) >= SPILL_SHARE / 2:
            inputs = f"{killed.inputs:,} inputs of {format_bytes(killed.inputs_bytes)} in all"
            return _STRONG * 2, f"the task that was killed takes {inputs}"
        if result and self._share(result) >= SPILL_SHARE / 2:
            weight = _STRONG * 2 if any(each in self._killed_kind for each in _BRINGS_TOGETHER) else _MODERATE
            return weight, f"the whole result of {format_bytes(result)} comes together in one place"
        return None

    def _skew(self) -> Sign | None:
        step = next((each for each in self._work.steps if each.by_key), None)
        share = max((each.key_share or 0.0 for each in self._work.steps if each.by_key), default=0.0)
        if share >= _SKEWED_SHARE and step is not None:
            rows = f"one key has {share:.0%} of the rows in a sample"
            return _STRONG * 2, f"{rows}, and {step.name} brings all rows of a key together"
        killed = self._work.killed
        largest, median = (killed.largest_input_bytes, killed.median_input_bytes) if killed else (0, 0)
        if median and largest >= _SKEWED_TIMES * median and self._share(largest) >= _LARGE_SHARE:
            return _STRONG, f"one input has {format_bytes(largest)}, half of them less than {format_bytes(median)}"
        if step is None or self._pieces_are_large:
            return None
        is_early = self._reads_pieces or any(each in self._killed_kind for each in _SHUFFLES)
        return (
            _WEAK if is_early else _MODERATE,
            f"the pieces are small, and {step.name} brings all rows of a key together",
        )

    def _shuffle_buffers(self) -> Sign | None:
        is_shuffle = any(each in self._killed_kind for each in _SHUFFLES)
        if not is_shuffle and not any(each.by_key for each in self._work.steps):
            return None
        kind = self._work.killed.kind if self._work.killed else "the task"
        weight = _MODERATE if is_shuffle and not self._pieces_are_large else _WEAK
        return weight, f"{kind} exchanges rows between workers, whose buffers are no stored results"

    def _results_stored(self) -> Sign | None:
        stored = self._account.stored.bytes or 0
        if not self._work.paused:  # then it is what was there at the end, with the inputs of what ran
            stored -= max(self._at_once, 1) * (self._account.inputs.bytes or 0)
        if self._share(stored) >= SPILL_SHARE / 2 and (self._work.paused or not self._pieces_are_large):
            return _STRONG, f"{format_bytes(stored)} of the memory are results that the worker stores"
        kept = sum(each.kept_bytes for each in self._work.needs if not each.key)
        workers = max(len(self._work.workers), 1)
        if self._share(kept // workers) >= END_SHARE:
            return _MODERATE, f"results of {format_bytes(kept)} are kept on {workers} workers"
        return None

    def _idle_memory(self) -> int | None:
        """What a paused worker holds that runs next to nothing and stores little; None without one."""
        held = [
            each.memory_bytes - (each.stored_bytes or 0)
            for each in self._work.workers
            if each.status == "paused" and not each.executing and each.stored_bytes is not None
        ]
        most = max(held, default=0)
        return most if self._share(most) >= SPILL_SHARE else None

    def _recorded_leak(self) -> Sign | None:
        """Memory that is older than the task that ran, or was there while none did."""
        by_key = any(each.by_key for each in self._work.steps)
        if kept := next((each.kept for each in self._work.recorded if each.kept), None):
            return _STRONG * 2, f"{kept} is kept from task to task"
        brought = self._work.killed.spec_bytes if self._work.killed else 0
        if self._account.in_graph.bytes or self._share(brought) >= _LARGE_SHARE:
            return None  # data that wait with their tasks are no stored results either
        left = max(self._work.recorded, key=lambda each: each.left_rise_bytes, default=None)
        if left is None or self._share(left.left_rise_bytes) < MUCH_SHARE:
            return None
        size = f"{format_bytes(left.left_bytes or 0)} were left while no task ran"
        what = (
            f"{size}, without stored results: {format_bytes(left.left_rise_bytes)} more than after the first task"
        )
        return (_WEAK if by_key else _STRONG), what

    def _leak(self) -> Sign | None:
        if recorded := self._recorded_leak():
            return recorded
        idle = self._idle_memory()
        finished = max((each.finished for each in self._work.needs), default=0)
        if idle is not None:
            what = f"{format_bytes(idle)} stay in a worker that runs nothing and stores nothing"
            # Rows on their way to other workers are no stored results either.
            weight = _WEAK if any(each.by_key for each in self._work.steps) else _STRONG
            return weight, f"{what}, after {finished:,} finished tasks" if finished else what
        killed = self._work.killed
        if self._pieces_are_large or not self._deaths or self._account.in_graph.bytes:
            return None
        kind = killed or max(self._work.needs, key=lambda each: each.finished, default=None)
        if kind is None or kind.inputs_bytes or any(each.by_key for each in self._work.steps):
            return None
        each_worker = kind.finished / self._deaths
        least = _FINISHED_BEFORE_EACH if self._deaths >= _SEVERAL_DEATHS else _FINISHED_BEFORE
        if each_worker < least * max(self._at_once, 1):
            return None
        tasks = f"{kind.finished:,} tasks of the kind {kind.kind} finished for {self._deaths} deaths"
        return _STRONG, f"{tasks}: workers fill up over many tasks, none of which is too large alone"

    def _not_returned(self) -> Sign | None:
        leak = self._leak()
        if leak is None or any(each.kept for each in self._work.recorded):
            return None
        has_churn = any(each.piece_bytes for each in self._work.steps)
        return (_MODERATE if has_churn else _WEAK), "freed memory may not have been given back to the system"

    def _pieces_too_large(self) -> Sign | None:
        step, source = self._step, self._work.source
        if source is not None and not source.piece_bytes and self._reads_pieces:
            return _MODERATE, f"workers died of {source.name}, which makes or reads a piece; its size is not known"
        if step is None or not self._pieces_are_large:
            return None
        needs = f"{account_sum(self._account, max(self._at_once, 1))}, the limit is {format_bytes(self._limit)}"
        weight = _STRONG if self._need(step) > self._limit else _MODERATE
        return weight, f"{step.describe}: {needs}"

    def _too_many_at_once(self) -> Sign | None:
        if self._at_once < 2 or self._one_asked_for_too_much:
            return None
        asked = self._work.asked
        is_all = asked is not None and asked.running > 1 and not asked.is_steady and not self._has_pieces
        total = (asked.asked_bytes or 0) if asked and is_all else 0
        if asked and self._floor + total >= END_SHARE * self._limit and self._leak() is None:
            each = f"asked for {format_bytes(total)}, {format_bytes(asked.each_bytes or 0)} each"
            return _STRONG, f"{asked.running} tasks ran at once and {each}"
        if self._full is not None and not self._has_pieces:
            return (
                _STRONG,
                f"{self._at_once} tasks ran at once and held {format_bytes(self._full)} each time, no more",
            )
        if self._has_pieces or self._leak() is not None:  # which can be cut, or would only die later
            return (_WEAK, f"{self._at_once} tasks ran at once") if not self._pieces_are_large else None
        if not self._work.call:
            return _WEAK, f"{self._at_once} tasks were assigned at once"
        return _MODERATE, f"{self._at_once} tasks ran at once, and nothing else shows what filled the memory"

    def _one_task_too_large(self) -> Sign | None:
        if self._pieces_are_large or self._leak() is not None:
            return None
        asked = self._work.asked
        if asked and self._one_asked_for_too_much:
            size = format_bytes(asked.each_bytes or 0)
            return _STRONG, f"one task asked for {size} since it began, the limit is {format_bytes(self._limit)}"
        if self._at_once != 1:
            return None
        if self._has_pieces or not self._work.call or (asked and asked.is_steady):
            return _WEAK, "the task ran alone"
        return _MODERATE, "the task ran alone, without large inputs, and needed more than a worker has"

    def _runaway(self) -> Sign | None:
        if self._at_once != 1 or self._pieces_are_large or self._full or self._leak() is not None:
            return None
        asked = self._work.asked
        if asked and asked.is_unfilled:
            return None
        if asked and asked.is_steady and all(each.is_steady for each in self._work.recorded if each.asked_bytes):
            size = format_bytes(asked.asked_bytes or 0)
            return (
                _MODERATE * 0.8,
                f"the task ran alone, and grew bit by bit, by {size}, until its worker was ended",
            )
        if self._work.call and not self._has_pieces and self._work.grew_slowly(self._limit):
            return (
                _MODERATE * 0.8,
                "the task ran alone, and grew bit by bit until its worker was ended just above the limit",
            )
        return _WEAK, "the task ran alone; how fast it grew is not known"


def account_sum(account: MemoryAccount, tasks: int) -> str:
    """The sum of what tasks need, as ``100 MiB + 2 x (977 MiB in + 488 MiB out + 488 MiB copies) = 4 GiB``."""
    parts: Sequence[tuple[int, str]] = (
        (account.inputs.bytes or 0, "in"),
        (account.output.bytes or 0, "out"),
        (account.copies.bytes or 0, "copies"),
    )
    terms = " + ".join(f"{format_bytes(size)} {what}" for size, what in parts if size)
    floor, each = account.floor.bytes or 0, account.task_bytes or 0
    return f"{format_bytes(floor)} + {tasks} x ({terms}) = {format_bytes(floor + tasks * each)}"
