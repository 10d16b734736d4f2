"""The moments around deaths that a drawing numbers, and how a list below it words them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from attrs import frozen

from workerdiag.model.diagnosis import Death
from workerdiag.model.identity import NO_IDENTITY, Identity
from workerdiag.model.timeline import Moment, MomentKind
from workerdiag.rendering.wording import clip, exit_text, identity_text, one_line, shorten_bytes

#: Limits of the numbers in a drawing: all, and those reserved for other moments than deaths.
MAX_MARKS, _LEAST_OTHERS = 12, 4
#: Moments this long before the first death and after the last one are drawn, in seconds.
BEFORE_S, AFTER_S = 60.0, 5.0
_MAX_QUOTE_CHARS = 100
#: A removal within this time of a death is how the scheduler notices it, in seconds.
_NOTICED_S = 2.0
#: The same message within this time is one moment, in seconds.
_SAME_S = 1.0
#: What a list of log lines as JSON has behind each line.
_STRING_END = re.compile(r'"[\s,\]}]*$')
_WORDS: Mapping[MomentKind, str] = {
    "start": "{who} came up",
    "pause": "{who} was paused: too much memory",
    "resume": "{who} takes tasks again",
    "self-closed": "{who} closed itself",
    "stop-request": "{who} was asked to stop",
    "connection-lost": "the scheduler lost the connection to {who}",
    "removal": "the scheduler removed {who}",
    "restart": "the nanny starts another worker",
    "blame": "Dask gives up: {text}",
    "trouble": "{text}",
}
#: In words, what says nothing to those who do not know Dask's log.
_PLAINER: Mapping[str, str] = {"End worker": "the command dask worker ended"}
#: Kinds that are worded by their message.
_QUOTED: tuple[MomentKind, ...] = ("blame", "trouble")


@frozen(kw_only=True)
class Mark:
    """A numbered moment."""

    at: float
    text: str
    is_death: bool = False


def numbered_marks(
    deaths: Sequence[Death], moments: Iterable[Moment], begin: float
) -> tuple[list[Mark], int]:
    """The deaths and other *moments* since *begin* that get a number, by time, and how many are left out."""
    first, last = deaths[0].when or 0.0, deaths[-1].when or 0.0
    ends = [
        Mark(
            at=each.when or 0.0,
            text=_death_text(each, is_first=not number and len(deaths) > 1),
            is_death=True,
        )
        for number, each in enumerate(deaths)
    ]
    near = [
        each
        for each in moments
        if begin <= each.at <= last + AFTER_S and not _is_told_by_a_death(each, deaths)
    ]
    others = [Mark(at=each.at, text=_moment_text(each)) for each in _unique_moments(near)]
    others.sort(key=lambda each: abs(each.at - first))
    kept = [*ends[: MAX_MARKS - min(len(others), _LEAST_OTHERS)]]
    kept += others[: MAX_MARKS - len(kept)]
    left_out = len(ends) + len(others) - len(kept)
    return sorted(kept, key=lambda each: (each.at, each.is_death)), left_out


def _unique_moments(moments: Iterable[Moment]) -> list[Moment]:
    """Return the moments. Of those with the same message within a second, only one stays, preferably a blame."""
    unique: list[Moment] = []
    latest: dict[str, int] = {}
    for each in sorted(moments, key=lambda each: each.at):
        said = _quote(each) if each.kind in _QUOTED else _moment_text(each)
        index = latest.get(said)
        if index is None or each.at - unique[index].at > _SAME_S:
            latest[said] = len(unique)
            unique.append(each)
        elif each.kind == "blame":
            unique[index] = each
    return unique


def _is_told_by_a_death(moment: Moment, deaths: Sequence[Death]) -> bool:
    return moment.kind in ("removal", "connection-lost") and any(
        each.identity.worker == moment.identity.worker and abs((each.when or 0.0) - moment.at) <= _NOTICED_S
        for each in deaths
    )


def _death_text(death: Death, *, is_first: bool) -> str:
    who = who_text(death.identity)
    return f"{'first victim, ' if is_first else ''}{who}: {exit_text(death)}"


def _moment_text(moment: Moment) -> str:
    return _WORDS[moment.kind].format(who=who_text(moment.identity), text=_quote(moment))


def _quote(moment: Moment) -> str:
    """Its message, without the end of the string that it stood in."""
    text = one_line(shorten_bytes(moment.text))
    whole = _STRING_END.sub("", text) if text.count('"') % 2 else text
    return _PLAINER.get(whole) or clip(whole, _MAX_QUOTE_CHARS)


def who_text(identity: Identity) -> str:
    """Return a name of a worker: its address, else whatever is known."""
    if identity == NO_IDENTITY:
        return "a worker"
    return one_line(identity.worker or identity_text(identity))
