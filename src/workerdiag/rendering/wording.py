"""How numbers, exits, places and deaths are worded, and how text that others wrote is made harmless."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import is_
from typing import TypeVar, cast

from attrs import evolve

from workerdiag.model.diagnosis import Death, Findings, Present, RetryPolicy
from workerdiag.model.identity import Identity
from workerdiag.model.incident import grouped
from workerdiag.model.signals import UNREADABLE_STATUS, signal_name
from workerdiag.model.timeline import HeldObject, ProcessHistory
from workerdiag.model.user_code import is_library
from workerdiag.model.vocabulary import RetryAction, Verdict
from workerdiag.redaction.objects import map_fields
from workerdiag.redaction.visible_text import ESCAPES
from workerdiag.units import format_bytes, format_duration, format_limit, format_time

T = TypeVar("T")

#: A field as `Event.describe` writes it.
_EVENT_FIELD = re.compile(r"(?:^|, )([a-z_-]+)=(.*?)(?=, [a-z_-]+=|$)")
#: Fields about the report itself, and values that say nothing.
_SAID_OTHERWISE, _NOTHING = frozenset({"stimulus_id", "reported_by"}), frozenset({"", "0", "False", "None"})
#: What fields are called in a report; others by their own names.
_FIELD_NAMES = {
    "rss": "process memory",
    "host_available": "free memory of the host",
    "open_files_limit": "limit of open files",
    "thread_count": "threads",
    "seconds_since_heartbeat": "time since the last heartbeat",
    "prev-status": "status before",
}
#: Fields of events that are bytes, and the shape of a number.
_SIZES = frozenset({"rss", "memory", "memory_limit", "nbytes"})
_NUMBER = re.compile(r"\d{1,18}(?:\.\d{1,18})?")

#: How batch systems number jobs: 4711, 4711.server, 4711[3].
_JOB = re.compile(r"\d{1,10}(?:[.\[_].*)?")
_ESCAPES = re.compile(ESCAPES)
#: Bytes as ``repr`` writes them: how they begin, and the quotation mark at their end, if it was not cut off.
_BYTES = re.compile(r"""(\bb(?P<mark>['"])(?:\\x[0-9a-f]{2}){2})(?:\\.|(?!(?P=mark))[^\\\n]){16,}((?P=mark)|$)""")
#: What stands between two single backticks.
CODE_SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
#: Any character that may need cleaning.
_ODD = re.compile(r"[^ -~\n]")
#: Unicode categories that hide or reorder what shows: controls, formats (bidi, zero width), private use.
_INVISIBLE = frozenset({"Cc", "Cf", "Co"})

#: Punctuation that has a plain form: ellipsis, dashes, quotation marks.
_PLAIN = {0x2026: "...", 0x2013: "-", 0x2014: "-", 0x201C: '"', 0x201D: '"', 0x2018: "'", 0x2019: "'"}

VERDICT_TEXTS: Mapping[Verdict, str] = {
    "task": "The task: its code or its data ended the worker.",
    "other-task": "Another task, not the one that Dask names.",
    "configuration": "The configuration: a limit, a timeout or a start-up option.",
    "environment": "The software on the worker: a package, a version or a library.",
    "platform": "The platform: the host, the kernel, the container, the batch system or the cloud.",
    "operator": "Whoever requested it: a scale-down, a restart or a cancellation.",
    "nobody": "No one needs to act.",
    "unknown": "Unknown.",
}

TASK_TEXT = "The task: its code or its data."

_RETRY_TEXTS: Mapping[RetryAction, str] = {
    "retry": "Retry it as it is",
    "retry-with-memory": "Retry it on workers with more memory",
    "retry-elsewhere": "Retry it elsewhere",
    "do-not-retry": "Do not retry it as it is",
    "ask": "Ask a person before retrying it",
}

_CERTAINTIES = (
    (0.99, "almost certain"),
    (0.90, "very likely"),
    (0.70, "likely"),
    (0.50, "more likely than not"),
    (0.20, "possible"),
    (0.00, "unlikely"),
)


def printable(text: str) -> str:
    """The text without anything a terminal acts upon, and without characters that hide or reorder others.

    Line ends stay, as line feeds; tabs and other blanks become spaces; lone surrogates become ``U+FFFD``.
    """
    if type(text) is str and _ODD.search(text) is None:
        return text
    text = _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n").replace("\t", " ")
    return _ODD.sub(_printable_char, text)


def _printable_char(odd: re.Match[str]) -> str:
    char = odd[0]
    match unicodedata.category(char):
        case "Zs" | "Zl" | "Zp":
            return " "
        case "Cs":
            return "\ufffd"
        case category:
            return "" if category in _INVISIBLE else char


def printable_object(value: T) -> T:
    """The same object with every text in it cleaned, at any depth."""
    return map_texts(printable, value)


def map_texts(change: Callable[[str], str], value: T) -> T:
    """Return the object with every text in it changed, at any depth. What is not part of its value stays."""
    if isinstance(value, str):
        return cast("T", change(value))
    if isinstance(value, tuple):
        parts = tuple(map_texts(change, each) for each in value)
        return value if all(map(is_, parts, value)) else cast("T", parts)
    if isinstance(value, list):
        return cast("T", [map_texts(change, each) for each in value])
    if isinstance(value, dict):
        return cast("T", {map_texts(change, key): map_texts(change, each) for key, each in value.items()})
    return map_fields(partial(map_texts, change), value)


def one_line(text: str) -> str:
    """The text with every run of blanks and line ends made one space."""
    return " ".join(text.split())


def plain_punctuation(text: str) -> str:
    """The text with ellipses, dashes and quotation marks as ASCII has them."""
    return text.translate(_PLAIN)


def capitalize(sentence: str) -> str:
    """The sentence with a capital letter, unless it begins with an address or another name."""
    return sentence[:1].upper() + sentence[1:] if sentence.partition(" ")[0].isalpha() else sentence


def clip(text: str, most: int) -> str:
    """The text, or as many of its words as make *most* characters with dots behind them; a long word is cut."""
    if len(text) <= most:
        return text
    kept = text[: most - 3].rpartition(" ")[0]
    return f"{kept if len(kept) > most // 2 else text[: most - 4]} ..."


def shorten_bytes(text: str) -> str:
    r"""The text with long pickles and other bytes, as ``repr`` writes them, cut down to ``b'\x80\x05...'``."""
    return _BYTES.sub(r"\1...\3", text)


def format_percent(chance: float) -> str:
    """A chance from 0 to 1 as a percentage that never claims certainty."""
    if chance > 0.99:
        return "over 99%"
    if 0 < chance < 0.01:
        return "under 1%"
    return f"{chance:.0%}"


def certainty_text(chance: float) -> str:
    """A chance from 0 to 1 in words."""
    return next(words for least, words in _CERTAINTIES if chance >= least)


def event_text(text: str) -> str:
    """The text of an event in words: ``event NAME: pid=129, rss=4101242880`` becomes ``pid 129, rss 3.82 GiB``.

    Any other text stays as it is.
    """
    _, _, fields = text.partition(": ") if text.startswith("event ") and "\n" not in text else ("", "", "")
    known = [(found[1], found[2]) for found in _EVENT_FIELD.finditer(fields)]
    words = [
        f"{_FIELD_NAMES.get(bare) or bare.replace('_', ' ').replace('-', ' ')} {_field_value(key, value)}"
        for key, value in known
        if key not in _SAID_OTHERWISE and value not in _NOTHING
        for bare in [key.removesuffix("_bytes")]
    ]
    return ", ".join(words[:8]) or text


def _field_value(key: str, value: str) -> str:
    if value == "True":
        return "yes"
    if not _NUMBER.fullmatch(value):
        return value
    if (key in _SIZES or key.endswith("_bytes")) and value.isdecimal():
        return format_bytes(int(value))
    if key.startswith("seconds_"):
        return format_duration(float(value))
    return f"{float(value):.0%}" if key.endswith(("_fraction", "_share")) else value


def identity_text(identity: Identity) -> str:
    """A worker process, by the parts a person would look for first."""
    address = one_line(identity.worker or "")
    parts = {
        "name": identity.name,
        "pid": identity.pid,
        "nanny": None if address else identity.nanny,
        "job" if _JOB.fullmatch(identity.container or "") else "in": identity.container,
        "on": None if identity.host and identity.host in address else identity.host,
    }
    known = ", ".join(f"{label} {one_line(str(part))}" for label, part in parts.items() if part is not None)
    if known.startswith(("on ", "in ")) and not address:
        return f"a worker {known}"
    return f"{address} ({known})" if address and known else address or known or "a worker"


def exit_text(death: Death) -> str:
    """How the process ended, as far as it is known."""
    if death.signal is not None:
        name = signal_name(death.signal)
        words = f"killed by signal {death.signal}" + (f" ({name})" if name else "")
    elif death.status is not None:
        unless_unknown = ", or an unknown one" if death.status == UNREADABLE_STATUS else ""
        words = f"exited with status {death.status}{unless_unknown}"
    else:
        return "stopped as asked" if death.stop_requested else "exit status unknown"
    return f"{words}, as asked" if death.stop_requested else words


def retry_text(policy: RetryPolicy) -> str:
    """What to do with the same work, without a full stop."""
    if policy.action == "retry-with-memory" and policy.memory_bytes is not None:
        once = ", once" if policy.max_tries == 1 else ""
        return f"{_RETRY_TEXTS[policy.action]}{once}: at least {format_limit(policy.memory_bytes)} each"
    return _RETRY_TEXTS[policy.action]


def pluralize(count: int, noun: str) -> str:
    """``1 worker``, ``2 workers``."""
    return f"{count} {noun}" if count == 1 else f"{count:,} {noun}s"


MAX_DEATHS = 10
MAX_ALIKE = 3

#: In words, the reasons that distributed gives for the loss of a worker (scheduler.py, worker.py).
_REASONS: Mapping[str, str] = {
    "handle-worker-cleanup": "its connection ended",
    "check-worker-ttl": "missed heartbeats",
    "worker-handle-scheduler-connection-broken": "it lost the scheduler",
    "worker-close": "the worker was closed",
    "nanny-close": "its nanny was closed",
    "nanny-instantiate-failed": "its nanny could not start it",
    "scheduler-remove-worker": "the scheduler removed it",
    "scheduler-close": "the scheduler closed",
    "retire-workers": "it was retired",
    "client-restart": "a client restarted it",
    "signal": "it received a signal",
}
#: The reason of a worker or nanny that could not start, with the class of the error (distributed, core.py).
_NO_START = re.compile(r"failure-to-start-<class '(?:\w+\.)*(\w+)'>")


def death_count_text(findings: Findings) -> str:
    """How many there are: ``3``, ``10,000`` or ``at least 800``."""
    text = f"{findings.death_count:,}"
    return f"at least {text}" if findings.unlisted_deaths.maybe_more and findings.deaths else text


def death_lines(findings: Findings, most: int = MAX_DEATHS) -> tuple[tuple[str, ...], str]:
    """At most *most* lines for deaths, many alike in one, in their order; and how many deaths are left out."""
    groups = grouped(findings.deaths, lambda death: (exit_text(death), death.cause))
    top = findings.top.id if findings.top else None
    lines_shown: list[str] = []
    left_out = findings.unlisted_deaths.count
    for group in groups.values():
        lines = [_group_line(group, top)] if len(group) > MAX_ALIKE else [_death_line(each, top) for each in group]
        room = most - len(lines_shown)
        lines_shown += lines[:room]
        if len(lines) > room:
            left_out += len(group) if len(group) > MAX_ALIKE else len(lines) - room
    return tuple(lines_shown), f"and {left_out:,} more" if left_out else ""


def churn_lines(findings: Findings) -> tuple[str, ...]:
    """That workers die and are replaced again and again, and how much work is done twice; a sentence each."""
    churn = findings.churn
    if churn is None:
        return ()
    is_none_left = findings.present is not None and findings.present.workers == 0
    until = ", and none is left now" if is_none_left else ""
    least = "at least " if churn.maybe_more else ""
    deaths = f"{least}{pluralize(churn.deaths, 'death')} in {format_duration(churn.period_s)}"
    last = f"the last {format_duration(churn.ago_s)} ago"
    lines = [f"Workers die and are replaced again and again{until}: {deaths}, {last}"]
    lost, finished = churn.lost_results.count, churn.finished.count
    if lost:
        share = f" of {finished:,} finished results ({lost / finished:.0%})" if finished else " finished results"
        lines.append(f"Work is done twice: {lost:,}{share} were lost with their workers")
    elif lost == 0:
        lines.append("No finished result was lost; what ran on them begins again")
    if churn.interrupted.count:
        lines.append(f"{pluralize(churn.interrupted.count, 'task')} ran when their workers died, and begin again")
    why = "as tasks just wait for workers" if is_none_left else "while tasks finish between the deaths"
    return (*lines, f"Nothing is raised {why}")


def present_lines(present: Present | None) -> tuple[str, ...]:
    """What stands still at the moment of the question, then what runs; a line each."""
    return (*still_lines(present), *_running_lines(present)) if present is not None else ()


def still_lines(present: Present) -> Iterator[str]:
    """Who is silent or paused, what tasks wait for, and what they require in vain."""
    if present.silent:
        yield f"{_listed(present.silent)} silent for {present.silent_s or 0:.0f} s: no heartbeat"
    if present.paused:
        yield f"{_listed(present.paused)} paused: no new task begins there"
    if present.given_up_workers:
        wanted = present.wanted_workers or present.given_up_workers
        gone = f"The cluster gave up {present.given_up_workers} of its {pluralize(wanted, 'worker')}"
        yield f"{gone} and starts no others by itself: client.cluster.scale({wanted})"
    for task in present.tasks:
        if task.waits_for:
            some = f"{'an' if task.waits_for[0] in 'aeiou' else 'a'} {task.waits_for}"
            what = f'{task.waits_for} "{task.awaited_name}"' if task.awaited_name else some
            silent_s = task.holder_silent_s
            holder = f"; its holder was last heard of {silent_s:.0f} s ago" if silent_s else ""
            yield one_line(f"Task {task.key} waits for {what}{task.waits_at and f' in {task.waits_at}'}{holder}")
    if present.restrictions:
        yield one_line(f"Tasks wait for {present.restrictions}, which no worker of this cluster is or has")


def _running_lines(present: Present) -> Iterator[str]:
    for task in present.tasks:
        if not task.waits_for and task.running_s is not None:
            yield one_line(f"Task {task.key} runs on {task.worker}, for {task.running_s:.0f} s so far")
    if present.waiting_tasks:
        workers = f"; {pluralize(present.workers, 'worker')} in the cluster" if present.workers is not None else ""
        yield f"{pluralize(present.waiting_tasks, 'task')} not begun{workers}"


def _listed(addresses: Sequence[str]) -> str:
    names = ", ".join(map(one_line, addresses))
    return f"Worker {names} is" if len(addresses) == 1 else f"Workers {names} are"


def memory_line(deaths: Sequence[Death]) -> str:
    """The most memory of a worker at its death, and its limit; empty if unknown."""
    seen = [each for each in deaths if each.rss_bytes is not None]
    if not seen:
        limits = sorted({each.limit_bytes for each in deaths if each.limit_bytes is not None})
        return f"Memory limit of a worker: {format_bytes(limits[-1])}" if limits else ""
    most = max(seen, key=lambda death: death.rss_bytes or 0)
    text = f"Memory at death: {format_bytes(most.rss_bytes or 0)}"
    if not most.limit_bytes:
        return text
    share = (most.rss_bytes or 0) / most.limit_bytes
    percent = f"{share:.0%}" if share >= 0.01 else "under 1%"
    return f"{text} of {format_bytes(most.limit_bytes)} allowed ({percent})"


#: A variable with less than this share of the memory in use is not told of; and seconds before the end until
#: which it is as good as the end.
_HELD_SHARE, _AT_THE_END_S = 0.1, 10.0


def held_lines(histories: Sequence[ProcessHistory]) -> list[str]:
    """What held the memory of the first process of which that was looked at, as it came near its limit."""
    history = next((each for each in histories if each.censuses), None)
    if history is None:
        return []
    census = history.censuses[-1]
    held_bytes, limit_bytes = census.rss_bytes or 0, census.limit_bytes or 0
    if not held_bytes or not limit_bytes:
        return []
    ago_s = (history.when or census.at) - census.at
    before = f", {format_duration(ago_s)} before the end" if ago_s > _AT_THE_END_S else ""
    seen = f"(seen at {held_bytes / limit_bytes:.0%} of the limit{before})"
    large = [each for each in census.objects if each.size_bytes >= _HELD_SHARE * held_bytes][:2]
    if not large and census.is_complete:
        return [f"No variable held much of the {format_bytes(held_bytes)} in use {seen}"]
    return [f"Held by {_variable_text(each, held_bytes)} {seen}" for each in large]


def _variable_text(held: HeldObject, in_use_bytes: int) -> str:
    name = f"`{one_line('.'.join(filter(None, (held.module, held.name))))}`"
    if held.line is not None and is_library(held.line.file):  # a name that the user does not know
        name += f" in {one_line(held.line.function)} of {one_line(held.line.file.rpartition('-packages/')[2])}"
    kind = f"{one_line(held.type)}{'' if held.count is None else f' of {held.count:,}'}"
    size, in_use = format_bytes(held.size_bytes), format_bytes(in_use_bytes)
    if held.size_bytes > in_use_bytes:  # not all of it has been filled
        return f"{name}: {kind}, {size} asked for, {in_use} in use"
    return f"{name}: {kind}, {size} of {in_use} in use"


def crash_line(deaths: Sequence[Death]) -> str:
    """Return where the workers crashed, by the most common dump; empty without one."""
    ends = [(one_line(each.crashed_in[0]), one_line(each.crashed_in[-1])) for each in deaths if each.crashed_in]
    return _most_common(inner if inner == outer else f"{inner}, from {outer}" for inner, outer in ends)


def stopped_line(deaths: Sequence[Death]) -> str:
    """Return the line of the user's code at which most of the workers were ended; empty if none is known."""
    return _most_common(one_line(str(evolve(line, task=None))) for each in deaths for line in each.lines)


def _most_common(places: Iterable[str]) -> str:
    if not (counts := Counter(places)):
        return ""
    (place, _), *others = counts.most_common()
    return f"{place}; and {pluralize(len(others), 'other place')}" if others else place


def last_output_line(deaths: Sequence[Death]) -> str:
    """Return what most of the workers wrote last, if no logger wrote it; empty if nothing is known."""
    lines = Counter(each.last_output for each in deaths if each.last_output)
    return clip(one_line(lines.most_common(1)[0][0]), 160) if lines else ""


def _death_line(death: Death, top: str | None) -> str:
    head = ", ".join(part for part in (identity_text(death.identity), format_time(death.when)) if part)
    return f"{head}: " + "; ".join((exit_text(death), *_death_facts(death), *_other_cause(death, top)))


def _group_line(group: Sequence[Death], top: str | None) -> str:
    first, last = group[0], group[-1]
    times = [format_time(each.when) for each in group if format_time(each.when)]
    between = _time_range(min(times), max(times)) if times else ""
    text = "; ".join((exit_text(first), *_other_cause(first, top)))
    ends = f"from {identity_text(first.identity)} to {identity_text(last.identity)}"
    return f"{len(group)} workers{between}: {text}; {ends}"


def _time_range(first: str, last: str) -> str:
    day, _, clock = last.partition(" ")
    if first == last:
        return f", {first}"
    return f", {first} to {clock if first.startswith(day) else last}"


def _death_facts(death: Death) -> list[str]:
    facts = []
    if death.reason:
        reason = re.sub(r"-\d+(\.\d+)?$", "", one_line(death.reason))  # a stimulus ends in its time
        start = _NO_START.match(reason)
        words = f"it could not start: {start[1]}" if start else _REASONS.get(reason)
        facts.append(f"Dask: {words or clip(reason, 60)}")
    if death.executing:
        facts.append(f"was executing {pluralize(len(death.executing), 'task')}")
    if death.assigned:
        facts.append(f"had {pluralize(len(death.assigned), 'task')} assigned")
    return facts


def _other_cause(death: Death, top: str | None) -> list[str]:
    """The cause of this death, if the report is not about it."""
    if death.cause is None or death.cause == top:
        return []
    return [f"{death.cause}, {format_percent(death.probability)}"]
