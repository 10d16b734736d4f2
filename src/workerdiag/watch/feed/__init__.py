"""Where the watcher's deaths come from: a scheduler with the flight recorder, or the events of one without."""

from __future__ import annotations

from workerdiag.watch.feed.scheduler_feed import SchedulerFeed

__all__ = ["SchedulerFeed"]
