"""
Topics of events: those that a scheduler keeps and rules refer to, and those that sources make.
"""

from __future__ import annotations

import re

from workerdiag.model.rules import Rulebook
from workerdiag.model.signs import EventSign

#: Topics of the events that sources make; no scheduler has them.
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
#: Topics that are asked for anyhow: what is about all workers, and each worker's own.
_ALWAYS_QUERIED = frozenset({"all", "worker"})
#: A scheduler is asked for at most this many topics, whatever packs want.
MAX_TOPICS = 20
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


def scheduler_topics(book: Rulebook) -> tuple[str, ...]:
    """
    The topics that a scheduler must be asked for, so that the event signs of *book* can show.

    A sign that takes any topic asks for none: what it looks for stands among the others.
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
