"""Why memory went over the limit: what the account and the workload show, and the rules that weigh it.

A fact is looked for here; what it is worth, and for which reason, is in ``knowledge/reasons.toml``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import ceil
from typing import cast

from attrs import evolve

from workerdiag.model.memory import MemoryAccount, ReasonChance, Step
from workerdiag.model.rules import ReasonRule
from workerdiag.model.vocabulary import Frequency, MemoryFact, Strength
from workerdiag.scoring.memory_account import END_SHARE, MANY, TaskNeeds, Workload, is_unmeasured
from workerdiag.scoring.recorded_memory import MUCH_SHARE
from workerdiag.units import format_bytes

#: Below this probability no reason is named.
NAMED_FROM = 0.5
#: Likelihood ratios against "none of these", set by deaths for known reasons (docs/cures.md).
STRENGTHS: Mapping[Strength, float] = {"strong": 24.0, "moderate": 12.0, "weak": 4.0, "hint": 0.5}
#: How likely a reason is before anything is seen.
_PRIORS: Mapping[Frequency, float] = {"common": 1.0, "usual": 1.0, "rare": 0.6}
_NONE = 1.0
#: Share of the limit at which Dask begins to spill.
SPILL_SHARE = 0.6
#: A piece or data below this share of the limit are not large; where no limit is known, below this size.
_LARGE_SHARE, _LARGE_BYTES = 0.15, 100 * 2**20
#: Share of all rows that one key has if it is the matter.
_SKEWED_SHARE = 0.3
#: An input that is so many times the median is of another kind than the others.
_SKEWED_TIMES = 8
#: Rows that are exchanged are taken apart and put together: in a trial workers died of pieces for 4, not for 8.
EXCHANGED_PIECES = 8
#: Pieces that are no smaller than this share of the present ones are no change.
SMALLER_SHARE = 0.75
#: How many tasks of a kind each worker finishes, at least, if it is not a single one that is too large.
#: After several deaths, each of a fresh worker, fewer show it.
_FINISHED_BEFORE, _FINISHED_BEFORE_EACH, _SEVERAL_DEATHS = 4, 2, 4
#: Warnings of one worker of memory that cannot be spilled that make a rise: how many, in what time, by what share.
_WARNINGS, _RISE_S, _RISE_SHARE = 3, 60.0, 0.2
#: Types that Dask measures by a few items (dask/sizeof.py), and the size of results that may fill a worker.
_SAMPLED, _KEPT_BYTES = ("dict", "list", "tuple", "set"), 2**20
_BRINGS_TOGETHER = ("finalize", "concat", "repartitiontofewer")
_LAST_OF_COMPUTE = ("finalize", "hlgfinalizecompute", "repartitiontofewer")
_SHUFFLES = ("-transfer", "shuffle", "hash-join", "hashjoin", "p2p", "rearrange", "setindex", "set-index")


def memory_reasons(
    account: MemoryAccount, work: Workload, deaths: int, rules: Sequence[ReasonRule]
) -> MemoryAccount:
    """The account with its reasons by *rules*; *deaths* is the number of workers that were lost to memory."""
    facts = MemoryFacts(account, work, deaths)
    found = [(each, *sign) for each in rules if (sign := _weighed(each, facts)) is not None]
    whole = _NONE + sum(weight for _, weight, _ in found)
    reasons = sorted(
        (
            ReasonChance(reason=each.id, title=each.title, probability=weight / whole, why=why)
            for each, weight, why in found
        ),
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


def _weighed(rule: ReasonRule, facts: MemoryFacts) -> tuple[float, str] | None:
    """The weight of a reason by the first sign that shows, with its sentence; None if none shows."""
    if facts.any_of(rule.unless):
        return None
    for sign in rule.signs:
        sentences = [facts.sentence(each) for each in sign.facts]
        if None not in sentences and not facts.any_of(sign.unless):
            return _PRIORS[rule.frequency] * STRENGTHS[sign.strength], sentences[0] or ""
    return None


def _would_tell(work: Workload) -> str:
    if not work.call:
        return "explain(exc, client) in the program's own except block: its frames show what was computed" + (
            "" if work.recorded else "; and the flight recorder, workerdiag.install(client), before the next run"
        )
    if work.recorded:  # it has told what it saw
        return ""
    return "the flight recorder, workerdiag.install(client), before the next run: it sees what tasks hold"


class MemoryFacts:
    """Looks for facts in one account: each has a method of its name, which returns a sentence or None."""

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
        self._killed_kind = work.killed.kind.lower() if work.killed else ""
        self._keyed = [each for each in work.steps if each.by_key]
        self._seen: dict[MemoryFact, str | None] = {}

    def sentence(self, fact: MemoryFact) -> str | None:
        """The sentence of a fact with its numbers; None if it does not hold."""
        if fact not in self._seen:
            self._seen[fact] = cast("str | None", getattr(self, f"_{fact.replace('-', '_')}")())
        return self._seen[fact]

    def any_of(self, facts: Collection[MemoryFact]) -> bool:
        """Whether one of them holds."""
        return any(self.sentence(each) is not None for each in facts)

    def _share(self, size: int | None) -> float:
        """The share of the limit; of what counts as large, where no limit is known."""
        return (size or 0) / (self._limit or _LARGE_BYTES / _LARGE_SHARE)

    def _need(self, step: Step) -> int:
        """What tasks need at least by what they take and give, whatever was seen of them."""
        step = step.at_least
        each = step.task_bytes - step.copies_bytes + step.expected_copies_bytes
        return self._floor + max(self._at_once, 1) * each

    # pieces

    def _pieces_above_limit(self) -> str | None:
        step = self._step
        return self._pieces_above_spilling() if step and self._need(step) > self._limit else None

    def _pieces_above_spilling(self) -> str | None:
        """The tasks of the computed collection, as many as ran at once, come near the limit."""
        step = self._step
        if step is None or not self._limit or self._need(step) <= SPILL_SHARE * self._limit:
            return None
        needs = account_sum(self._account, max(self._at_once, 1))
        return f"{step.describe}: {needs}, the limit is {format_bytes(self._limit)}"

    def _copies_in_opaque_function(self) -> str | None:
        """An opaque function may have made of its piece what workers held."""
        step = self._step
        if step is None or not step.seen_copies_bytes or self._pieces_above_spilling():
            return None
        times = ceil(step.seen_copies_bytes / step.largest_bytes)
        return f"{step.describe}, and its function made at least {times} more of each until its worker was ended"

    def _pieces_of_unknown_size(self) -> str | None:
        if self._reads_first_piece():
            return "workers died of the first partition, which Dask makes to know the types of a frame"
        source = self._work.source
        is_known = source is None or (source.piece_bytes and source.least_share is None)
        if source is None or is_known or not self._killed_kind.startswith(source.name.lower()):
            return None
        made = f"workers died of {source.name}, which makes or reads a piece"
        if not source.piece_bytes:
            return f"{made}; its size is not known"
        least = format_bytes(source.at_least.piece_bytes or 0)
        return f"{made} of {least} to {format_bytes(source.piece_bytes)} in memory"

    def _cut_into_pieces(self) -> str | None:
        """An array or a frame was computed, and not only a function of one's own that fills the memory."""
        if self._reads_first_piece():
            return "the work is cut into pieces"
        kinds = self._work.call.get("kinds", "").split(", ")
        can_be_cut = bool(self._work.steps) or not {"array", "dataframe"}.isdisjoint(kinds)
        is_opaque = any(each.is_opaque for each in self._work.steps) and not self._keyed
        is_cut = can_be_cut and (
            self.any_of(("pieces-above-spilling", "copies-in-opaque-function")) or not is_opaque
        )
        return "the work is cut into pieces" if is_cut else None

    def _reads_first_piece(self) -> bool:
        """Whether ``from_map`` or ``from_delayed`` made a part of a frame for its types: ``meta=`` is missing."""
        return self._work.call.get("widest_kind") == "make_meta"

    # data of the caller

    def _frame_in_graph(self) -> str | None:
        """Partitions of a frame of this process: each goes to one task, so their size matters first."""
        if self._work.call.get("embedded_partitioned") != "True":
            return None
        return f"{format_bytes(self._account.in_graph.bytes or 0)} of data travel inside the graph"

    def _large_specification(self) -> str | None:
        size = self._work.killed.spec_bytes if self._work.killed else 0
        is_large = self._share(size) >= _LARGE_SHARE
        return f"the task that was killed brings {format_bytes(size)} of data with it" if is_large else None

    def _data_in_graph(self) -> str | None:
        size = self._account.in_graph
        is_large = self._share(size.bytes) >= _LARGE_SHARE and bool(self._work.call.get("embedded_bytes"))
        return (
            f"{format_bytes(size.bytes or 0)} of data travel inside the graph ({size.origin})" if is_large else None
        )

    def _much_data_in_graph(self) -> str | None:
        return self._data_in_graph() if self._share(self._account.in_graph.bytes) >= SPILL_SHARE / 2 else None

    def _copies_of_data_at_once(self) -> str | None:
        """Each task that runs has what it was sent, and what was made of that."""
        if self._frame_in_graph() or not self._at_once:
            return None
        size = self._work.number("embedded_task_bytes") or 0
        if self._share(2 * self._at_once * size) < SPILL_SHARE:
            return None
        return f"each of {self._at_once} tasks at once brings {format_bytes(size)} of data with it, twice"

    def _large_graph_in_log(self) -> str | None:
        size = self._work.graph_bytes
        is_large = self._share(size) >= SPILL_SHARE / 2
        return f"a graph of {format_bytes(size or 0)} was sent, so data travel inside it" if is_large else None

    # what comes together

    def _refused_inputs(self) -> str | None:
        if (size := self._work.refused_inputs_bytes) is None:
            return None
        inputs = f"one task takes inputs of {format_bytes(size)}, more than a worker may hold"
        return f"{inputs}: the scheduler refused it, and it never ran"

    def _many_large_inputs(self) -> str | None:
        killed = self._work.killed
        if killed is None or not self._is_taking_much(killed):
            return None
        return (
            f"the task that was killed takes {killed.inputs:,} inputs of {format_bytes(killed.inputs_bytes)} in all"
        )

    def _many_large_inputs_awaited(self) -> str | None:
        """Workers died of its inputs, which they kept for it."""
        task = next((each for each in self._work.needs if each.key and self._is_taking_much(each)), None)
        if task is None or task == self._work.killed:
            return None
        size = format_bytes(task.inputs_bytes)
        return f"{task.kind} waits for {task.inputs:,} inputs, of which {size} were there already"

    def _is_taking_much(self, task: TaskNeeds) -> bool:
        return task.inputs >= MANY and self._share(task.inputs_bytes) >= SPILL_SHARE / 2

    def _gathers_by_itself(self) -> str | None:
        """It asked for other tasks and their results; those of one kind are more than a worker has room for."""
        killed, work = self._work.killed, self._work
        if killed is None or not killed.clients or killed.inputs or not self._alone() or not self._deaths:
            return None
        others = (each for each in work.made.values() if each.kind != killed.kind)
        most = max(others, key=lambda each: each.made_bytes, default=None)
        size = most.made_bytes // self._deaths if most else 0
        if most is None or most.mean_bytes * MANY > size or self._share(size) < SPILL_SHARE:
            return None
        return f"tasks had others run by a client of their own, and {most.kind} gave {format_bytes(size)} each time"

    def _takes_many_inputs(self) -> str | None:
        """By the graph, where the scheduler has forgotten the task and nobody knows how large its inputs are."""
        kind, inputs = self._work.call.get("widest_kind", ""), self._work.number("widest_inputs") or 0
        is_one = inputs >= MANY and self._killed_kind == kind.lower() != ""
        return f"workers died of {kind}, which takes {inputs:,} inputs at once" if is_one else None

    def _large_result(self) -> str | None:
        size = self._account.result.bytes
        is_large = self._share(size) >= SPILL_SHARE / 2
        return f"the whole result of {format_bytes(size or 0)} comes together in one place" if is_large else None

    def _joined_pieces(self) -> str | None:
        """A repartition puts them together, so smaller ones where the frame is read change nothing."""
        step = self._work.joined((self._limit or _LARGE_BYTES / _LARGE_SHARE) * SPILL_SHARE / 2)
        if step is None:
            return None
        return f"{step.name} puts {step.inputs:,} partitions into one of {format_bytes(step.piece_bytes or 0)}"

    def _gathering_task(self) -> str | None:
        is_one = any(each in self._killed_kind for each in _BRINGS_TOGETHER)
        return f"workers died of {self._killed_kind}, which brings parts together" if is_one else None

    def _gathers_many_pieces(self) -> str | None:
        """The last task of ``compute()`` takes every piece; unless it is known that they are small."""
        pieces = self._work.number("result_pieces") or 0
        is_last = self._killed_kind.startswith(_LAST_OF_COMPUTE)
        known = self._work.number("result_bytes") or (self._work.killed.inputs_bytes if self._work.killed else 0)
        is_small = 0 < self._share(known) < SPILL_SHARE / 2
        if not is_last or is_small or pieces < MANY or self._work.call.get("gathered") != "True":
            return None
        return f"workers died of {self._killed_kind}, to which compute() brings all {pieces:,} pieces"

    def _reduces_little(self) -> str | None:
        """A reduction in a tree takes some results of its own at a time (dask: ``split_every``, 8), to the last."""
        made = self._work.made.get(self._work.killed.kind) if self._work.killed else None
        is_tree = self._killed_kind.endswith(("-tree", "-aggregate"))
        if not made or not is_tree or self._share(self._floor + MANY * made.mean_bytes) < SPILL_SHARE:
            return None
        return (
            f"{made.kind} gives {format_bytes(made.mean_bytes)} each time, and takes up to {MANY} of these at once"
        )

    # rows by key

    def _one_of_its_kind(self) -> str | None:
        """Others were on workers that died by chance alone; where each fills up, its neighbours are there too."""
        killed, work, deaths = self._work.killed, self._work, self._work.killed_deaths
        if not killed or min(killed.finished, killed.tasks or MANY) < MANY or deaths < 3 or work.sibling_deaths > 1:
            return None
        if killed.suspicious > deaths * max(work.threads or 1, self._at_once):  # others died elsewhere, too
            return None
        others = f"any other of its kind, of which {killed.finished:,} finished, on one of them at most"
        return f"{killed.which} was on {deaths} workers that died, and {others}"

    def _frequent_key(self) -> str | None:
        share = max((each.key_share or 0.0 for each in self._keyed), default=0.0)
        if share < _SKEWED_SHARE:
            return None
        rows = f"one key has {share:.0%} of the rows in a sample"
        return f"{rows}, and {self._keyed[0].name} brings all rows of a key together"

    def _uneven_inputs(self) -> str | None:
        killed = self._work.killed
        largest, median = (killed.largest_input_bytes, killed.median_input_bytes) if killed else (0, 0)
        if not median or largest < _SKEWED_TIMES * median or self._share(largest) < _LARGE_SHARE:
            return None
        return f"one input has {format_bytes(largest)}, half of them less than {format_bytes(median)}"

    def _by_key(self) -> str | None:
        if not self._keyed:
            return None
        small = "" if self._pieces_above_spilling() else "the pieces are small, and "
        return f"{small}{self._keyed[0].name} brings all rows of a key together"

    def _small_pieces(self) -> str | None:
        """So many of them as an exchange of rows takes at once have room, or nearly."""
        taken = [each.inputs_bytes for each in self._keyed if each.inputs_bytes]
        sizes = taken or [each.piece_bytes or self._limit for each in self._work.steps if each.is_source]
        at_once = max(self._work.threads or 1, self._at_once) * EXCHANGED_PIECES
        if not sizes or self._floor + max(sizes) * SMALLER_SHARE * at_once > SPILL_SHARE * self._limit:
            return None
        return f"pieces of {format_bytes(max(sizes))} need no large buffers"

    def _died_before_key(self) -> str | None:
        source = self._work.source
        if source is not None and self._killed_kind.startswith(source.name.lower()):
            return "workers died of what comes before it"
        return self._exchanging_task()

    def _exchanging_task(self) -> str | None:
        is_one = any(each in self._killed_kind for each in _SHUFFLES)
        kind = self._work.killed.kind if self._work.killed else ""
        return f"{kind} exchanges rows between workers, whose buffers are no stored results" if is_one else None

    # results

    def _stored_results(self) -> str | None:
        stored = self._account.stored.bytes or 0
        if not self._work.paused:  # then it is what was there at the end, with the inputs of what ran
            if self._pieces_above_spilling():
                return None
            stored -= max(self._at_once, 1) * (self._account.inputs.bytes or 0)
        stored = max(stored, self._work.scattered_bytes)
        is_much = self._share(stored) >= SPILL_SHARE / 2
        return f"{format_bytes(stored)} of the memory are results that the worker stores" if is_much else None

    def _unmeasured_results(self) -> str | None:
        """Results are kept on full workers, of a class whose size Dask does not know."""
        kept = self._work.unmeasured
        if kept is None or not self._work.paused:
            return None
        return (
            f"{kept.kept:,} results of the class {kept.types} are kept, and Dask does not know how large they are"
        )

    def _unmeasured_lost(self) -> str | None:
        """Results that stay on workers were lost with them, again and again, and Dask can only guess their size."""
        killed, made = self._work.killed, self._work.made.get(self._work.killed.kind if self._work.killed else "")
        awaited = self._work.call.get("awaited", "").split(", ")
        is_gathered = killed is not None and self._work.call.get("gathered") == "True" and killed.kind in awaited
        if killed is None or made is None or not self._work.call or is_gathered:
            return None
        is_kept = self._work.call.get("gathered") != "True" and made.mean_bytes >= _KEPT_BYTES
        is_sampled = is_kept and killed.types in _SAMPLED
        if killed.finished < MANY or not (is_sampled or is_unmeasured(killed.types, made.mean_bytes)):
            return None
        unknown = "measures only a few items of them" if is_sampled else "does not know how large they are"
        kept = f"results of the class {killed.types} stay on the workers, and Dask {unknown}"
        return f"{kept}: {killed.finished:,} finished for {self._deaths} deaths"

    def _kept_results(self) -> str | None:
        """They are on the workers, or all will be there before the call has them."""
        kinds = [each for each in self._work.needs if not each.key]
        futures, awaited = self._work.number("futures") or 0, self._work.call.get("awaited", "").split(", ")
        due = sum(min(futures, each.tasks) * each.mean_bytes for each in kinds if each.kind in awaited)
        kept, workers = max(due, sum(each.kept_bytes for each in kinds)), self._work.worker_count
        is_much = bool(self._limit) and self._share(kept // workers) >= END_SHARE
        return f"results of {format_bytes(kept)} are to be kept on {workers} workers" if is_much else None

    def _persisted_results(self) -> str | None:
        persisted, workers = self._work.number("persisted_bytes") or 0, self._work.worker_count
        is_much = bool(self._limit) and self._share(persisted // workers) >= SPILL_SHARE
        return f"{format_bytes(persisted)} are persisted on {workers} workers" if is_much else None

    # what grows

    def _kept_object(self) -> str | None:
        kept = next((each.kept for each in self._work.recorded if each.kept), None)
        return f"{kept} is kept from task to task" if kept else None

    def _memory_left(self) -> str | None:
        """More than after the first task, while none ran; data that wait with their tasks are no stored results."""
        left = max(self._work.recorded, key=lambda each: each.left_rise_bytes, default=None)
        is_much = left is not None and self._share(left.left_rise_bytes) >= MUCH_SHARE
        if left is None or not is_much or self._travels_with_tasks():
            return None
        size = f"{format_bytes(left.left_bytes or 0)} were left while no task ran"
        return (
            f"{size}, without stored results: {format_bytes(left.left_rise_bytes)} more than after the first task"
        )

    def _travels_with_tasks(self) -> bool:
        """Whether data of the caller wait on workers with their tasks: they are no stored results."""
        return bool(self._account.in_graph.bytes or self._large_specification())

    def _idle_memory(self) -> str | None:
        """What a paused worker holds that runs next to nothing and stores little."""
        held = [
            each.memory_bytes - (each.stored_bytes or 0)
            for each in self._work.workers
            if each.status == "paused" and not each.executing and each.stored_bytes is not None
        ]
        if self._share(most := max(held, default=0)) < SPILL_SHARE or self._travels_with_tasks():
            return None
        finished = max((each.finished for each in self._work.needs), default=0)
        what = f"{format_bytes(most)} stay in a worker that runs nothing and stores nothing"
        return f"{what}, after {finished:,} finished tasks" if finished else what

    def _many_tasks_each(self) -> str | None:
        kind = self._work.killed or max(self._work.needs, key=lambda each: each.finished, default=None)
        if kind is None or kind.inputs_bytes or not self._deaths or self._account.in_graph.bytes or self._keyed:
            return None
        each_worker = kind.finished / self._deaths
        least = _FINISHED_BEFORE_EACH if self._deaths >= _SEVERAL_DEATHS else _FINISHED_BEFORE
        if each_worker < least * max(self._at_once, 1) or self._pieces_above_spilling() or self._one_of_its_kind():
            return None
        tasks = f"{kind.finished:,} tasks of the kind {kind.kind} finished for {self._deaths} deaths"
        return f"{tasks}: workers fill up over many tasks, none of which is too large alone"

    def _memory_stays(self) -> str | None:
        stays = self.any_of(("kept-object", "memory-left", "idle-memory", "many-tasks-each"))
        return "freed memory may not have been given back to the system" if stays else None

    def _rising_with_nothing_to_spill(self) -> str | None:
        """A worker warned again and again, each time of more."""
        for warned in self._work.unspillable:
            times = [at for at, _ in warned]
            sizes = [size for _, size in warned]
            rises = sizes == sorted(sizes) and sizes[-1] >= (1 + _RISE_SHARE) * sizes[0]
            if len(warned) >= _WARNINGS and times[-1] - times[0] >= _RISE_S and rises:
                grown = f"{format_bytes(sizes[0])} to {format_bytes(sizes[-1])} in {times[-1] - times[0]:.0f} s"
                return f"memory that is no stored result rose from {grown}"
        return None

    # tasks

    def _work_known(self) -> str | None:
        return "what was computed is known" if self._work.call else None

    def _loops_until_done(self) -> str | None:
        kind, loops = self._killed_kind, self._work.call.get("loops", "").lower().split(", ")
        return f"{kind} has a loop that goes on until something happens (while)" if kind in loops and kind else None

    def _alone(self) -> str | None:
        return "the task ran alone" if self._at_once == 1 else None

    def _several_at_once(self) -> str | None:
        return f"{self._at_once} tasks ran at once" if self._at_once > 1 else None

    def _fewer_threads_sufficed(self) -> str | None:
        count = self._work.sufficient_threads
        return f"with {count} at a time no worker died any more" if count else None

    def _bigger_worker_sufficed(self) -> str | None:
        size = self._work.sufficient_memory_bytes
        return f"what killed workers alone finished on one of {format_bytes(size)}" if size else None

    def _held_the_same(self) -> str | None:
        size = self._full
        return f"workers held {format_bytes(size)} each time, no more" if size is not None else None

    def _asked_together(self) -> str | None:
        asked = self._work.asked
        if asked is None or asked.running < 2 or asked.is_steady or self._cut_into_pieces():
            return None
        if self._floor + (asked.asked_bytes or 0) < END_SHARE * self._limit:
            return None
        each = f"asked for {format_bytes(asked.asked_bytes or 0)}, {format_bytes(asked.each_bytes or 0)} each"
        return f"{asked.running} tasks ran at once and {each}"

    def _asked_for_too_much(self) -> str | None:
        """A function of one's own asked for more than a worker has, and had not filled it yet."""
        asked = self._work.asked
        if asked is None or not asked.is_unfilled or self._cut_into_pieces():
            return None
        size, limit = format_bytes(asked.each_bytes or 0), format_bytes(self._limit)
        is_more = self._floor + (asked.each_bytes or 0) >= END_SHARE * self._limit
        return f"one task asked for {size} since it began, the limit is {limit}" if is_more else None

    def _asked_unfilled(self) -> str | None:
        asked = self._work.asked
        return "it asked for memory that was not filled yet" if asked and asked.is_unfilled else None

    def _asked_bit_by_bit(self) -> str | None:
        asked = self._work.asked
        if not (asked and all(each.is_steady for each in self._work.recorded if each.asked_bytes)):
            return None
        return f"it grew bit by bit, by {format_bytes(asked.asked_bytes or 0)}, until its worker was ended"

    def _refused_allocation(self) -> str | None:
        size = self._work.refused_allocation_bytes
        return f"one piece of {format_bytes(size)} was asked for, and refused" if size else None


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
