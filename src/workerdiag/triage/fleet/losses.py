"""Group workers that were lost together. They are one observation, because the others add no information."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from attrs import field, frozen

from workerdiag.model.process_end import TOGETHER_S
from workerdiag.triage.tables import DeathRow


@frozen(kw_only=True)
class JointLoss:
    """Deaths on one cluster within seconds, from the same trouble."""

    #: The deaths, earliest first.
    deaths: tuple[DeathRow, ...]
    #: Time of the first death; None: not known.
    at: float | None = field(init=False)

    @at.default
    def _at(self) -> float | None:
        return self.deaths[0].died_at


def group_losses(deaths: Iterable[DeathRow]) -> tuple[JointLoss, ...]:
    """Group deaths into joint losses: same run, same case, at most `TOGETHER_S` seconds after the first.

    A death without a time is a separate loss.
    """
    groups: dict[tuple[str, str], list[DeathRow]] = {}
    for each in deaths:
        groups.setdefault((each.run, each.case), []).append(each)
    return tuple(
        JointLoss(deaths=tuple(members))
        for group in groups.values()
        for members in _split(sorted(group, key=_time))
    )


def _split(deaths: Sequence[DeathRow]) -> list[list[DeathRow]]:
    losses: list[list[DeathRow]] = []
    begin = -inf
    for each in deaths:
        if each.died_at is not None and each.died_at - begin <= TOGETHER_S:
            losses[-1].append(each)
        else:
            losses.append([each])
            begin = each.died_at if each.died_at is not None else -inf
    return losses


def _time(death: DeathRow) -> float:
    return death.died_at if death.died_at is not None else inf
