"""What several causes have in common, written once (``knowledge/shared/*.toml``) and added to each of them."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import evolve, field, frozen
from attrs.validators import matches_re, min_len

from workerdiag.model.rules import Cause, Mitigation, NextStepRule, Sign

#: Stand among causes for "no cause is known" and "only a task failed".
UNKNOWN = "unknown"
FAILED_TASK = "failed-task"
#: Number of a cause's own mitigations before the shared ones.
OWN_FIRST = 2


@frozen(kw_only=True)
class SharedRules:
    """Signs against a cause, mitigations and next steps that several causes have in common."""

    #: The file's name without its ending.
    id: str = field(validator=matches_re(r"[a-z0-9]+(-[a-z0-9]+)*"))
    #: Ids of causes, families as ``signal.*``, ``unknown`` or ``failed-task``.
    causes: tuple[str, ...] = field(validator=min_len(1))
    #: Causes of those families without the shared rules.
    exceptions: tuple[str, ...] = ()
    against: tuple[Sign, ...] = ()
    mitigations: tuple[Mitigation, ...] = ()
    next_steps: tuple[NextStepRule, ...] = ()

    def is_for(self, cause_id: str) -> bool:
        """Whether it is added to the cause of that id."""
        family = f"{cause_id.partition('.')[0]}.*"
        return cause_id not in self.exceptions and (cause_id in self.causes or family in self.causes)

    def with_origin(self) -> tuple[Mitigation, ...]:
        """The mitigations, each with the name of this file."""
        return tuple(evolve(each, advice=self.id) for each in self.mitigations)


def with_shared(cause: Cause, rules: Iterable[SharedRules]) -> Cause:
    """Return the *cause* with the shared *rules* for it; their mitigations follow its own first ones.

    Own mitigations that need a sign do not count: without the sign, shared ones would come first.
    """
    shared = [each for each in rules if each.is_for(cause.id)]
    always = [at for at, each in enumerate(cause.mitigations, start=1) if not each.signs]
    own_first = always[OWN_FIRST - 1] if len(always) >= OWN_FIRST else len(cause.mitigations)
    return evolve(
        cause,
        against=(*cause.against, *(sign for each in shared for sign in each.against)),
        mitigations=(
            *cause.mitigations[:own_first],
            *(advice for each in shared for advice in each.with_origin()),
            *cause.mitigations[own_first:],
        ),
        next_steps=(*cause.next_steps, *(step for each in shared for step in each.next_steps)),
    )


def advice_for_outcome(name: str, rules: Iterable[SharedRules]) -> tuple[Mitigation, ...]:
    """What to look at in the case of that *name*: `UNKNOWN` or `FAILED_TASK`."""
    marked = [each for shared in rules if name in shared.causes for each in shared.with_origin()]
    return tuple(each for each in marked if each.inspect)


def unknown_cause_problems(causes: Iterable[Cause], rules: Iterable[SharedRules]) -> Iterable[str]:
    """Yield a line for each name in *rules* that is not a cause of this folder."""
    ids = {each.id for each in causes}
    known = {UNKNOWN, FAILED_TASK, *ids, *(f"{each.partition('.')[0]}.*" for each in ids)}
    for shared in rules:
        for name in (*shared.causes, *shared.exceptions):
            if name not in known:
                yield f"shared/{shared.id}.toml: names a cause that is not there: {name}"
