"""Every private part of distributed that the recorder uses, each in one function.

The watcher and client-side code use these functions too; `workerdiag.sources.internals` holds those for
sources. If a release lacks the private part, the function returns None and the recorder omits that one fact.
tests/lab/test_recorder_contract.py tests each function with every supported release (2024.8.1 to 2026.8.0).
Public parts (plugins, preloads, events, periodic callbacks, logging) are used directly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: Undoes a change that a function here made.
Undo = Callable[[], None]
_ATTRIBUTE = "_workerdiag_recording"


def get_recording(server: object) -> Any:
    """The active recording of a worker or nanny; None if there is none."""
    return getattr(server, _ATTRIBUTE, None)


def set_recording(server: object, recording: object) -> None:
    """Make `get_recording` return *recording*."""
    if recording is None:
        vars(server).pop(_ATTRIBUTE, None)
    else:
        setattr(server, _ATTRIBUTE, recording)
