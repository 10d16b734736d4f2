"""
What keeps the watcher from seeing, and since when.
"""

from __future__ import annotations

from typing import Literal

from attrs import define, field, frozen

#: ``scheduler``: it does not answer; ``overrun``: deaths were lost before they were read; ``judge``: deaths
#: could not be judged.
Obstacle = Literal["scheduler", "overrun", "judge"]


@frozen
class _SeenObstacle:
    since: float
    problem: str


@define
class Blindness:
    """
    Whether the watcher sees the cluster; each obstacle counts until it is gone.
    """

    #: Seconds that an obstacle must last: restarts of a scheduler are none.
    patience_s: float
    _obstacles: dict[Obstacle, _SeenObstacle] = field(factory=dict, init=False)

    def lost(self, obstacle: Obstacle, since: float, problem: str) -> None:
        """
        Note an obstacle; the moment at which it began stays, the wording is the newest.
        """
        known = self._obstacles.get(obstacle)
        self._obstacles[obstacle] = _SeenObstacle(known.since if known else since, problem)

    def overrun(self, now: float, count: int) -> None:
        """
        Note deaths that were overwritten.
        """
        noun = "death or event was" if count == 1 else "deaths or events were"
        self.missed(now, f"{count} {noun} overwritten before the watcher read them")

    def too_many(self, now: float, count: int) -> None:
        """
        Note deaths that a scheduler wrote down before it went, and that were not read.
        """
        noun = "death" if count == 1 else "deaths"
        self.missed(now, f"{count} {noun} in the journal of the scheduler before were too many to read")

    def missed(self, now: float, problem: str) -> None:
        """
        Note deaths that nobody will read; it counts for as long as anything else must last.
        """
        known = self._obstacles.pop("overrun", None)
        self.lost("overrun", now, f"{known.problem}; then {problem}"[:300] if known else problem)

    def regained(self, obstacle: Obstacle) -> None:
        """
        Note that an obstacle is gone.
        """
        self._obstacles.pop(obstacle, None)

    def has_lost(self, obstacle: Obstacle) -> bool:
        """
        Whether an obstacle is there, however short.
        """
        return obstacle in self._obstacles

    def problem(self, now: float) -> str | None:
        """
        Why the watcher is blind; None if it sees.
        """
        if (past := self._obstacles.get("overrun")) is not None and now - past.since >= self.patience_s:
            del self._obstacles["overrun"]
        problems = [
            each.problem
            for obstacle, each in self._obstacles.items()
            if obstacle != "scheduler" or now - each.since >= self.patience_s
        ]
        return "; ".join(problems) or None
