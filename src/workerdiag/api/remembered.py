"""
The diagnosis that an exception was given, for whoever handles it when its cluster is gone.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from attrs import evolve, frozen

from workerdiag.api.diagnosis import Diagnosis

_NAME: Final = "_workerdiag_remembers"


@frozen(eq=False)
class _Remembered:
    """
    What stands in an attribute of the exception, in this process alone: a copy of it holds None.
    """

    diagnosis: Diagnosis

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()


def remember(exc: BaseException, diagnosis: Diagnosis) -> None:
    """
    Keep the diagnosis, without its evidence, for as long as the exception lives in this process.
    """
    with suppress(Exception):  # its class has a __dict__ of its own kind
        exc.__dict__[_NAME] = _Remembered(evolve(diagnosis, kept_evidence=None))


def remembered(exc: BaseException) -> Diagnosis | None:
    """
    The latest diagnosis of the exception, or None.
    """
    with suppress(Exception):
        kept = exc.__dict__.get(_NAME)
        return kept.diagnosis if isinstance(kept, _Remembered) else None
    return None
