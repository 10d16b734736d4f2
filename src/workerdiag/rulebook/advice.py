"""
Advice that many causes share, written once (``knowledge/advice/*.toml``) and given to each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import evolve, field, frozen
from attrs.validators import matches_re, min_len

from workerdiag.model.mitigation import Mitigation
from workerdiag.model.rules import Cause

#: Stand among causes for "no cause is known" and "only a task failed".
UNKNOWN = "unknown"
FAILED_TASK = "failed-task"
#: So many of a cause's own mitigations come before what it shares with others.
OWN_FIRST = 2


@frozen(kw_only=True)
class SharedAdvice:
    """
    Mitigations that several causes have in common.
    """

    #: The file's name without its ending.
    id: str = field(validator=matches_re(r"[a-z0-9]+(-[a-z0-9]+)*"))
    #: Ids of causes, families as ``signal.*``, ``unknown`` or ``failed-task``.
    causes: tuple[str, ...] = field(validator=min_len(1))
    #: Causes of those families that do not get it.
    exceptions: tuple[str, ...] = ()
    mitigations: tuple[Mitigation, ...] = field(validator=min_len(1))

    def is_for(self, cause_id: str) -> bool:
        """
        Whether the cause of that id gets this advice.
        """
        family = f"{cause_id.partition('.')[0]}.*"
        return cause_id not in self.exceptions and (cause_id in self.causes or family in self.causes)

    def with_origin(self) -> tuple[Mitigation, ...]:
        """
        The mitigations, each with the name of this file.
        """
        return tuple(evolve(each, advice=self.id) for each in self.mitigations)


def attach_advice(causes: Iterable[Cause], advice: Sequence[SharedAdvice]) -> list[Cause]:
    """
    The *causes*, each with the advice that is for it after the first of its own.
    """
    return [
        evolve(
            cause,
            mitigations=(
                *cause.mitigations[:OWN_FIRST],
                *(each for shared in advice if shared.is_for(cause.id) for each in shared.with_origin()),
                *cause.mitigations[OWN_FIRST:],
            ),
        )
        for cause in causes
    ]


def advice_for_outcome(name: str, advice: Iterable[SharedAdvice]) -> tuple[Mitigation, ...]:
    """
    What to look at in the case of that *name*: `UNKNOWN` or `FAILED_TASK`.
    """
    marked = [each for shared in advice if name in shared.causes for each in shared.with_origin()]
    return tuple(each for each in marked if each.inspect)


def unknown_cause_problems(causes: Iterable[Cause], advice: Iterable[SharedAdvice]) -> Iterable[str]:
    """
    One line for each name in *advice* that is no cause of this folder.
    """
    ids = {each.id for each in causes}
    known = {UNKNOWN, FAILED_TASK, *ids, *(f"{each.partition('.')[0]}.*" for each in ids)}
    for shared in advice:
        for name in (*shared.causes, *shared.exceptions):
            if name not in known:
                yield f"advice/{shared.id}.toml: names a cause that is not there: {name}"
