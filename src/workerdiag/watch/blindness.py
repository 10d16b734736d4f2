"""Blindness: what keeps the watcher from seeing its cluster, and since when."""

from __future__ import annotations

from typing import Literal

from attrs import define, field, frozen

#: ``scheduler``: it does not answer. ``overrun``: deaths were lost unread. ``judge``: deaths could not be
#: judged.
Obstacle = Literal["scheduler", "overrun", "judge"]


@frozen
class _SeenObstacle:
    since: float
    problem: str


@define
class Blindness:
    """Whether the watcher sees the cluster. Each obstacle counts until it is removed."""

    #: Minimum duration of an obstacle, in seconds: a restart of the scheduler does not count.
    patience_s: float
    _obstacles: dict[Obstacle, _SeenObstacle] = field(factory=dict, init=False)

    def lost(self, obstacle: Obstacle, since: float, problem: str) -> None:
        """Note an obstacle. A known one keeps its start and gets the new wording."""
        known = self._obstacles.get(obstacle)
        self._obstacles[obstacle] = _SeenObstacle(known.since if known else since, problem)

    def overrun(self, now: float, count: int) -> None:
        """Note deaths that were overwritten."""
        noun = "death or event was" if count == 1 else "deaths or events were"
        self.missed(now, f"{count} {noun} overwritten before the watcher read them")

    def too_many(self, now: float, count: int) -> None:
        """Note deaths in the journal of a scheduler that is gone, which were not read."""
        noun = "death" if count == 1 else "deaths"
        self.missed(now, f"{count} {noun} in the journal of the scheduler before were too many to read")

    def missed(self, now: float, problem: str) -> None:
        """Note deaths that nobody will read. This counts for the minimum duration."""
        known = self._obstacles.pop("overrun", None)
        self.lost("overrun", now, f"{known.problem}; then {problem}"[:300] if known else problem)

    def regained(self, obstacle: Obstacle) -> None:
        """Note that an obstacle is removed."""
        self._obstacles.pop(obstacle, None)

    def has_lost(self, obstacle: Obstacle) -> bool:
        """Whether there is an obstacle, even for a short time."""
        return obstacle in self._obstacles

    def problem(self, now: float) -> str | None:
        """Return why the watcher is blind; None if it sees."""
        if (past := self._obstacles.get("overrun")) is not None and now - past.since >= self.patience_s:
            del self._obstacles["overrun"]
        problems = [
            each.problem
            for obstacle, each in self._obstacles.items()
            if obstacle != "scheduler" or now - each.since >= self.patience_s
        ]
        return "; ".join(problems) or None
