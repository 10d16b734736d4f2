"""Count how often workers died, by cause, host, hour and version, and list the unexplained deaths."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from attrs import frozen

from workerdiag.rendering.wording import pluralize
from workerdiag.triage.rows import DeathRow, InputRow, InputStatus

#: Show at most this many lines of each count, and inputs of each group.
_SHOWN = 10
_URLS = 3
_UNKNOWN = "not known"


@frozen(kw_only=True)
class Unexplained:
    """A group of similar deaths without a known cause."""

    #: Key that the deaths have in common.
    case: str
    deaths: int
    #: How they ended: ``signal 9``, ``status 1`` or ``not known``.
    exit: str
    #: Their first few logs, sorted.
    urls: tuple[str, ...]

    @property
    def draft_command(self) -> str:
        """Return the command that drafts a rule from their logs."""
        return shlex.join(["workerdiag", "knowledge", "draft", *self.urls])


@frozen(kw_only=True)
class Summary:
    """Counts of the deaths that nobody asked for, the most frequent first."""

    deaths: int
    #: Number of deaths that somebody asked for: scale-down, restart, the end of a cluster.
    requested: int
    runs: int
    by_cause: tuple[tuple[str, int], ...]
    by_host: tuple[tuple[str, int], ...]
    #: By date and hour (UTC), such as ``2026-11-21 08:00``.
    by_hour: tuple[tuple[str, int], ...]
    #: By version of distributed.
    by_version: tuple[tuple[str, int], ...]
    unexplained: tuple[Unexplained, ...]
    #: Number of parts of inputs by status.
    inputs: tuple[tuple[InputStatus, int], ...]

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterable[str]:
        yield f"{pluralize(self.deaths, 'death')} in {pluralize(self.runs, 'cluster run')}."
        if self.requested:
            are = "is" if self.requested == 1 else "are"
            yield f"{pluralize(self.requested, 'stop')} that somebody asked for {are} not counted."
        counts = ((status, count) for status, count in self.inputs)
        yield (
            "Parts of inputs: " + (", ".join(f"{count} {status}" for status, count in counts) or "none") + "."
        )
        for title, counted in (
            ("By cause", self.by_cause),
            ("By host", self.by_host),
            ("By hour (UTC)", self.by_hour),
            ("By version of distributed", self.by_version),
        ):
            yield from _table(title, counted)
        if self.unexplained:
            yield ""
            yield "Unexplained"
        for each in self.unexplained[:_SHOWN]:
            yield f"  {each.deaths:>6}  exit {each.exit} (case {each.case})"
            yield f"          {each.draft_command}"


def summarize(deaths: Sequence[DeathRow], inputs: Iterable[InputRow]) -> Summary:
    """Return the summary of both tables."""
    unasked = [each for each in deaths if not each.stop_requested]
    return Summary(
        deaths=len(unasked),
        requested=len(deaths) - len(unasked),
        runs=len({each.run for each in deaths}),
        by_cause=_counted(unasked, lambda row: row.cause or "unexplained"),
        by_host=_counted(unasked, lambda row: row.host or _UNKNOWN),
        by_hour=tuple(sorted(_counted(unasked, _hour))),
        by_version=_counted(unasked, lambda row: row.distributed_version or _UNKNOWN),
        unexplained=_unexplained(unasked),
        inputs=tuple(sorted(Counter(each.status for each in inputs).items())),
    )


def _counted(rows: Iterable[DeathRow], key: Callable[[DeathRow], str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(Counter(map(key, rows)).items(), key=lambda item: (-item[1], item[0])))


def _hour(row: DeathRow) -> str:
    if row.died_at is None:
        return _UNKNOWN
    return datetime.fromtimestamp(row.died_at, tz=UTC).strftime("%Y-%m-%d %H:00")


def _unexplained(rows: Iterable[DeathRow]) -> tuple[Unexplained, ...]:
    groups: dict[tuple[str, str], list[DeathRow]] = {}
    for row in rows:
        if row.cause is None:
            groups.setdefault((row.case, _exit(row)), []).append(row)
    found = (
        Unexplained(
            case=case,
            deaths=len(group),
            exit=exit_,
            urls=tuple(sorted({row.url for row in group})[:_URLS]),
        )
        for (case, exit_), group in groups.items()
    )
    return tuple(sorted(found, key=lambda each: (-each.deaths, each.case, each.exit)))


def _exit(row: DeathRow) -> str:
    if row.signal is not None:
        return f"signal {row.signal}"
    return _UNKNOWN if row.exit_code is None else f"status {row.exit_code}"


def _table(title: str, counted: Sequence[tuple[str, int]]) -> Iterable[str]:
    if not counted:
        return
    yield ""
    yield title
    for name, count in counted[:_SHOWN]:
        yield f"  {count:>6}  {name}"
    if len(counted) > _SHOWN:
        yield f"          and {len(counted) - _SHOWN} more"
