"""
What is known of an exception, kept in it: its diagnosis, for whoever handles it when its cluster is gone.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from attrs import evolve, frozen

from workerdiag.api.diagnosis import Diagnosis

_NAME: Final = "_workerdiag_remembers"


@frozen(eq=False)
class Kept:
    """
    What stands in an attribute of the exception, in this process alone: a copy of it holds None.
    """

    diagnosis: Diagnosis | None

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()


def keep(exc: BaseException, name: str, diagnosis: Diagnosis | None) -> None:
    """
    Keep a diagnosis, or that there was none, in an attribute of an exception, for as long as it lives here.
    """
    with suppress(Exception):  # its class has a __dict__ of its own kind
        exc.__dict__[name] = Kept(diagnosis)


def kept(exc: BaseException, name: str) -> Kept | None:
    """
    What `keep` has kept; None if there is nothing.
    """
    with suppress(Exception):
        found = exc.__dict__.get(name)
        return found if isinstance(found, Kept) else None
    return None


def remember(exc: BaseException, diagnosis: Diagnosis) -> None:
    """
    Keep the diagnosis, without its evidence, for as long as the exception lives in this process.
    """
    keep(exc, _NAME, evolve(diagnosis, kept_evidence=None))


def remembered(exc: BaseException) -> Diagnosis | None:
    """
    The latest diagnosis of the exception, or None.
    """
    found = kept(exc, _NAME)
    return found.diagnosis if found is not None else None
