"""Group the inputs that are logs of one cluster run, which are judged together."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from math import inf

from workerdiag.triage.outcome import PartIndex, PartOutcome
from workerdiag.values import frozen

#: For each log the numbers of all logs in its group, in a list that they share.
Groups = list[list[int]]
#: The suffix that rotation adds to the name of a log: a number or a date, and the compression.
_ROTATED = re.compile(r"(?:\.\d{1,4}|[.-]\d{4}-?\d\d-?\d\d(?:[T_-]?\d+)?)?(?:\.(?:gz|bz2|xz|zst))?$")


@frozen(kw_only=True)
class Run:
    """One cluster from its start to its end, as far as the inputs tell."""

    id: str
    #: Addresses of its scheduler; a host name and an IP may mean the same scheduler.
    schedulers: tuple[str, ...] = ()
    #: The inputs, sorted.
    urls: tuple[str, ...]


@frozen
class _Log:
    url: str
    schedulers: frozenset[str]
    workers: frozenset[str]
    #: Its first and last time; infinite if they are not known.
    first: float
    last: float


def find_runs(outcomes: Iterable[PartOutcome], folders: str | None = None) -> list[Run]:
    """Return the runs, sorted by id.

    Without *folders*, inputs that name the same scheduler at overlapping times belong to one run. An input
    that names no scheduler joins the run that shares a worker with it at that time, or the run of the file it
    was rotated with. With it, such as ``s3://logs/*/``, those belong to one run for which ``*`` is the same text.
    """
    logs = _logs(outcomes)
    groups: Groups = [[number] for number in range(len(logs))]
    if folders is not None:
        _join_folders(logs, groups, folders)
    else:
        _join_overlapping(logs, groups, lambda log: log.schedulers)
        nameless = {number for number, log in enumerate(logs) if not log.schedulers}
        _join_overlapping(logs, groups, lambda log: log.workers, only=nameless)
        _join_overlapping(logs, groups, lambda log: (_ROTATED.sub("", log.url),), only=nameless)
    members = {id(group): group for group in groups}.values()
    runs = (_run([logs[number] for number in sorted(group)]) for group in members)
    return sorted(runs, key=lambda run: run.id)


def folder_pattern(folders: str) -> re.Pattern[str]:
    """Return the pattern for the beginnings of inputs; ``**`` matches any number of names."""
    pieces = ({"**": ".*", "*": "[^/]*"}.get(each, re.escape(each)) for each in re.split(r"(\*\*|\*)", folders))
    return re.compile("".join(pieces))


def _logs(outcomes: Iterable[PartOutcome]) -> list[_Log]:
    by_url: dict[str, list[PartIndex]] = {}
    for each in outcomes:
        by_url.setdefault(each.row.url, []).append(each.index)
    return [
        _Log(
            url,
            frozenset(name for each in parts for name in each.schedulers),
            frozenset(name for each in parts for name in each.workers),
            min((each.first_when for each in parts if each.first_when is not None), default=-inf),
            max((each.last_when for each in parts if each.last_when is not None), default=inf),
        )
        for url, parts in sorted(by_url.items())
    ]


def _join(groups: Groups, one: int, two: int) -> None:
    """Make one group of those of two logs."""
    small, large = sorted((groups[one], groups[two]), key=len)
    if small is not large:
        large += small
        for number in small:
            groups[number] = large


def _join_folders(logs: Sequence[_Log], groups: Groups, folders: str) -> None:
    pattern = folder_pattern(folders)
    first_of: dict[str, int] = {}
    for number, log in enumerate(logs):
        if found := pattern.match(log.url):
            _join(groups, first_of.setdefault(found[0], number), number)


def _join_overlapping(
    logs: Sequence[_Log], groups: Groups, names: Callable[[_Log], Iterable[str]], *, only: set[int] | None = None
) -> None:
    """Join logs that share a name at overlapping times, at least one of which is in *only*."""
    by_name: dict[str, list[int]] = {}
    for number, log in enumerate(logs):
        for name in names(log):
            by_name.setdefault(name, []).append(number)
    for numbers in by_name.values():
        numbers.sort(key=lambda number: (logs[number].first, number))
        reach, latest = -inf, -1
        for number in numbers:
            near = latest >= 0 and logs[number].first <= reach + 600  # logs are cut and rotated
            if near and (only is None or number in only or latest in only):
                _join(groups, latest, number)
            if not near or logs[number].last >= reach:
                reach, latest = logs[number].last, number


def _run(logs: Sequence[_Log]) -> Run:
    """Return the run of these logs. Its id does not change when later logs are added."""
    first = min(logs, key=lambda log: (log.first, log.url))
    schedulers = tuple(sorted({name for log in logs for name in log.schedulers}))
    id_ = hashlib.sha256(f"{first.url}\n{first.first}".encode()).hexdigest()[:12]
    return Run(id=id_, schedulers=schedulers, urls=tuple(log.url for log in logs))
