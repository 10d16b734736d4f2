"""Exceptions and clients that raise any Exception, made of a few bytes, so that a failure can be tried again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

_RAISED = (
    ValueError,
    OSError,
    KeyError,
    MemoryError,
    RuntimeError,
    AttributeError,
    RecursionError,
)


def exception_of(data: bytes) -> BaseException:
    """A chain of exceptions; each byte chooses one of its links, the rest is its text."""
    text = data[8:].decode("utf-8", "surrogateescape")
    last: BaseException | None = None
    for number in data[:8]:
        exc = _exception(number, text)
        if last is not None and number % 3:
            exc.__cause__ = last
        elif last is not None:
            exc.__context__ = last
        last = exc
    return last or ValueError(text)


def _exception(number: int, text: str) -> BaseException:
    def fail(_: object) -> NoReturn:
        raise _RAISED[number % len(_RAISED)](text)

    kinds: tuple[Callable[[], BaseException], ...] = (
        lambda: OSError(28, text),
        lambda: MemoryError(text),
        lambda: ExceptionGroup(text[:50], [ValueError(text), OSError(text)]),
        lambda: type("KilledWorker", (Exception,), {"task": text, "last_worker": property(fail)})(text),
        lambda: type("Odd", (Exception,), {"__str__": fail, "__repr__": fail})(text),
        lambda: type("CommClosedError", (IOError,), {"__module__": "distributed.comm.core"})(text),
        lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, text[:200]),
        lambda: _killed(text),
    )
    exc = kinds[number % len(kinds)]()
    if number & 64:
        exc.add_note(text[:1000])
    return exc


def _killed(text: str) -> BaseException:
    from distributed.scheduler import KilledWorker

    return KilledWorker(text[:300], None, 3)


class Client:
    """A client whose every attribute and every call is chosen by a byte."""

    asynchronous = False
    status = "running"

    def __init__(self, data: bytes) -> None:
        self._data = data or b"\0"
        self._at = 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._answer()

    def _answer(self) -> Any:
        number = self._data[self._at % len(self._data)]
        self._at += 1
        text = self._data[:2000].decode("utf-8", "surrogateescape")
        answers: tuple[Any, ...] = (None, text, {text[:20]: text}, [text] * 3, 1e308, self._answer, self, -1)
        if number > 230:
            raise _RAISED[number % len(_RAISED)](text)
        return answers[number % len(answers)]

    def sync(self, *_: Any, **__: Any) -> Any:
        """As a real client's, but nothing is run."""
        return self._answer()

    __call__ = sync
