"""
The diagnosis that an exception was given, for whoever handles it when its cluster is gone.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final
from weakref import WeakKeyDictionary

from attrs import evolve

from workerdiag.api.diagnosis import Diagnosis

_DIAGNOSES: Final[WeakKeyDictionary[BaseException, Diagnosis]] = WeakKeyDictionary()


def remember(exc: BaseException, diagnosis: Diagnosis) -> None:
    """
    Keep the diagnosis, without its evidence, for as long as the exception lives in this process.

    Python's built-in exceptions take no weak references: theirs is not kept. Dask's do.
    """
    with suppress(TypeError):
        _DIAGNOSES[exc] = evolve(diagnosis, kept_evidence=None)


def remembered(exc: BaseException) -> Diagnosis | None:
    """
    The latest diagnosis of the exception, or None.
    """
    with suppress(TypeError):
        return _DIAGNOSES.get(exc)
    return None
