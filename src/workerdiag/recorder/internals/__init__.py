"""
Every private part of distributed that the recorder touches, each in one function.

What follows a live cluster or lives in a client touches them here as well; what sources read is in
`workerdiag.sources.internals`. Each function degrades: where a release lacks the part, it returns None and
the recorder goes on without that one fact. tests/lab/test_recorder_contract.py holds each against every
supported release (2024.8.1 to 2026.8.0). What is public there (plugins, preloads, events, periodic
callbacks, logging) is used where it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: Takes back what a function here has changed.
Undo = Callable[[], None]
_ATTRIBUTE = "_workerdiag_recording"


def get_recording(server: object) -> Any:
    """
    What records on this worker or nanny now; None if nothing does.
    """
    return getattr(server, _ATTRIBUTE, None)


def set_recording(server: object, recording: object) -> None:
    """
    Have `get_recording` return *recording* from now on.
    """
    if recording is None:
        vars(server).pop(_ATTRIBUTE, None)
    else:
        setattr(server, _ATTRIBUTE, recording)
