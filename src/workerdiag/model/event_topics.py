"""Topics of events: those of a scheduler that rules refer to, and those that sources create."""

from __future__ import annotations

import re

from workerdiag.model.rules import Rulebook
from workerdiag.model.signs import EventSign

#: Topics of events that sources create; no scheduler has them.
SOURCE_TOPICS = frozenset(
    {
        "awaited-task",
        "batch-job",
        "black-box",
        "cgroup",
        "cluster",
        "cluster-setup",
        "configuration",
        "disk",
        "finished-kind",
        "host",
        "limits",
        "nanny-state",
        "recorder",
        "scheduler-state",
        "task-state",
        "versions",
        "worker-state",
    }
)
#: Topics that are always requested: that of all workers, and those of each worker.
_ALWAYS_QUERIED = frozenset({"all", "worker"})
#: Topics that are requested from a scheduler at most, whatever packs need.
MAX_TOPICS = 20
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


def scheduler_topics(book: Rulebook) -> tuple[str, ...]:
    """The topics to request from a scheduler, so that the event signs of *book* can show.

    A sign for any topic adds none: its events are among the others.
    """
    topics = {
        topic
        for cause in book.causes
        if cause.status != "deprecated"
        for sign in (*cause.signs, *cause.against)
        if isinstance(sign, EventSign)
        for topic in sign.topic.split("|")
        if _NAME.fullmatch(topic)
    }
    return tuple(sorted(topics - SOURCE_TOPICS - _ALWAYS_QUERIED))[:MAX_TOPICS]
