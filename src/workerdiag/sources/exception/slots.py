"""Reads an exception and its class without running their code.

A class may define properties such as ``__cause__`` or ``args``, and a metaclass its own ``__name__``. The
interpreter uses slots, which cannot be replaced.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any

from workerdiag.errors import utf8_safe

_MAX_CHARS = 300
_EXCEPTION = vars(BaseException)
_CLASS = vars(type)


def cause_of(exc: BaseException) -> BaseException | None:
    """Return the exception's cause."""
    cause: BaseException | None = _slot(exc, "__cause__")
    return cause


def context_of(exc: BaseException) -> BaseException | None:
    """Return the exception's context, or None if it is suppressed."""
    context: BaseException | None = _slot(exc, "__context__")
    return None if _slot(exc, "__suppress_context__") else context


def traceback_of(exc: BaseException) -> TracebackType | None:
    """Return the exception's traceback."""
    raised_at: TracebackType | None = _slot(exc, "__traceback__")
    return raised_at


def members_of(exc: BaseException) -> tuple[BaseException, ...]:
    """Return the members of an exception group; none of any other exception."""
    if not isinstance(exc, BaseExceptionGroup):
        return ()
    members: tuple[BaseException, ...] = vars(BaseExceptionGroup)["exceptions"].__get__(exc)
    return members


def args_of(exc: BaseException) -> tuple[object, ...]:
    """Return the exception's arguments."""
    args: tuple[object, ...] = _slot(exc, "args")
    return args


def classes_of(exc: BaseException) -> Iterator[tuple[str, str]]:
    """Yield module and name of the exception's class and its base classes."""
    for cls in _CLASS["__mro__"].__get__(type(exc)):
        yield _module(cls), _CLASS["__name__"].__get__(cls)


def packages_of(exc: BaseException) -> set[str]:
    """Return the packages that define those classes."""
    return {module.partition(".")[0] for module, _ in classes_of(exc)}


def type_name(exc: BaseException) -> str:
    """Return the class as Python prints it: ``ValueError``, ``distributed.scheduler.KilledWorker``."""
    module, name = _module(type(exc)), _CLASS["__qualname__"].__get__(type(exc))
    return utf8_safe(name if module == "builtins" else f"{module}.{name}")[:_MAX_CHARS]


def _module(cls: type) -> str:
    module = _CLASS["__module__"].__get__(cls)
    return str.__str__(module) if isinstance(module, str) else "?"


def _slot(exc: BaseException, name: str) -> Any:
    return _EXCEPTION[name].__get__(exc)
