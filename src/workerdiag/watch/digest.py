"""The digest: one notice that lists the notices that were held back."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve, field, frozen
from attrs.validators import ge

from workerdiag.model.vocabulary import HoldReason, NoticeReason
from workerdiag.rendering.wording import clip, pluralize
from workerdiag.watch.cases import case_id
from workerdiag.watch.notices import clean, title_line
from workerdiag.watch.watched_case import Notice

#: Limits of a digest: cases, and characters of a line.
_MAX_LISTED, _LINE_CHARS = 20, 300
#: Maximum number of characters of a cluster's name in a title.
_CLUSTER_CHARS = 40


@frozen(kw_only=True)
class HeldBack:
    """Notices of one case that were held back for the same reason."""

    case_id: str
    #: Of the last notice.
    title: str
    hold: HoldReason
    #: The reason and the end of its silence.
    why: str = ""
    #: The reasons of the notices, each once.
    reasons: tuple[NoticeReason, ...]
    count: int = field(default=1, validator=ge(1))
    #: When the first notice was held back, by the watcher's clock.
    since: float

    def with_another(self, later: HeldBack) -> HeldBack:
        """Merge the two."""
        reasons = tuple(dict.fromkeys((*self.reasons, *later.reasons)))
        count = self.count + later.count
        return evolve(self, title=later.title, why=later.why, reasons=reasons, count=count)


@frozen(kw_only=True)
class PolicyState:
    """The state of the policy between two notices of one cluster."""

    #: When notices were sent within the current window of the rate limit.
    sent_at: tuple[float, ...] = ()
    #: Notices that were held back since the last digest.
    held: tuple[HeldBack, ...] = ()
    #: Number of held-back notices that are not listed, since there are too many cases.
    unlisted_count: int = 0
    #: Ids of open cases for which no notice went out.
    untold: frozenset[str] = frozenset()
    #: Number of digests so far; each has its own id.
    digest_count: int = 0


def digest_notice(cluster: str, state: PolicyState, now: float) -> Notice:
    """Return the next digest. Nothing follows it, so its state is ``resolved``."""
    count = sum(each.count for each in state.held) + state.unlisted_count
    cases = len({each.case_id for each in state.held})
    name = clip(clean(cluster), _CLUSTER_CHARS)
    about = f"{pluralize(cases, 'case')}{' and more' if state.unlisted_count else ''}"
    were = "was" if count == 1 else "were"
    title = title_line(f"{name}: {pluralize(count, 'notice')} about {about} {were} held back")
    since = min((each.since for each in state.held), default=now)
    id_ = case_id(cluster, f"digest {state.digest_count + 1} since {since:.0f}")
    return Notice(
        id=f"{id_}-1",
        reason="digest",
        case_id=id_,
        key="digest",
        cluster=clean(cluster),
        state="resolved",
        title=title,
        text="\n".join(clip(line, _LINE_CHARS) for line in (title, *_held_lines(state))),
        at=now,
        opened_at=since,
        last_death_at=now,
    )


def _held_lines(state: PolicyState) -> Iterator[str]:
    for each in state.held[:_MAX_LISTED]:
        said = f"{pluralize(each.count, 'notice')} ({', '.join(each.reasons)})"
        why = f"{_hold_text(each.hold)}{', ' if each.why else ''}{each.why}"
        yield f"- {each.title}: {said}; {why}"
    rest = sum(each.count for each in state.held[_MAX_LISTED:]) + state.unlisted_count
    if rest:
        yield f"- and {pluralize(rest, 'notice')} about other cases"


def _hold_text(hold: HoldReason) -> str:
    match hold:
        case "silenced":
            return "silenced"
        case "known-issue":
            return "a known issue"
        case "rate-limit":
            return "too many notices were sent"
        case "quiet-hours":
            return "quiet hours"
        case "untold":
            return "nobody was told of the case"
