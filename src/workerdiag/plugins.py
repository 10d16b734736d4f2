"""Everything that authors of sources build on; docs/writing-a-source.md shows how.

These names stay. All other modules, except `workerdiag.testing`, may change in any release.
"""

from __future__ import annotations

from workerdiag.deadline import Deadline
from workerdiag.model.evidence import (
    Event,
    Evidence,
    EvidenceSource,
    ExceptionFacts,
    Gap,
    Inspected,
    LogChunk,
    MemoryReading,
    ProcessExit,
    TasksAtLoss,
)
from workerdiag.model.identity import Identity
from workerdiag.model.scene import Location, Scene, Terms, Victim
from workerdiag.model.vocabulary import GapReason, Place, Stream

__all__ = [
    "Deadline",
    "Event",
    "Evidence",
    "EvidenceSource",
    "ExceptionFacts",
    "Gap",
    "GapReason",
    "Identity",
    "Inspected",
    "Location",
    "LogChunk",
    "MemoryReading",
    "Place",
    "ProcessExit",
    "Scene",
    "Stream",
    "TasksAtLoss",
    "Terms",
    "Victim",
]
