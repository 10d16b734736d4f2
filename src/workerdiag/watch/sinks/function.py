"""A plain function as a sink."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from attrs import field, frozen

from workerdiag.watch.case import Notice
from workerdiag.watch.sinks.setup import name_field, text_given
from workerdiag.watch.sinks.sink import Delivery, Sink, SinkSetupError

_REMEDY = "give a function that takes a Notice, or an object with name and deliver()"


def _function_given(_sink: object, _field: object, value: Any) -> None:
    if not callable(value):
        raise SinkSetupError("function", f"{type(value).__name__} is no function", _REMEDY)


def _default_name(sink: FunctionSink) -> str:
    kind = type(sink.function).__name__
    return f"function:{getattr(sink.function, '__qualname__', kind)}"[:200]


@frozen
class FunctionSink:
    """Calls a function, or awaits one that is asynchronous, with each notice.

    It may see a notice twice, with the same ``notice.id``. A notice counts as delivered when it returns;
    if it raises it is called again later, unless it raises a `DeliveryError` that is final.
    """

    function: Callable[[Notice], object] = field(validator=_function_given)
    #: Two functions of one name need different ones.
    name: str = name_field("function", _default_name)

    def deliver(self, delivery: Delivery) -> Mapping[str, str]:
        """Call it; nothing is noted for the next time."""
        returned = self.function(delivery.notice)
        if inspect.isawaitable(returned):
            asyncio.run(_awaited(returned))
        return {}


async def _awaited(returned: Awaitable[object]) -> None:
    await returned


def as_sink(given: Sink | Callable[[Notice], object]) -> Sink:
    """A sink as it is, and a function as a sink.

    Raises:
        SinkSetupError: It is neither.
    """
    if not isinstance(given, Sink):
        return FunctionSink(given)
    text_given(type(given).__name__, "the name", "give it an attribute `name`")(None, None, given.name)
    return given
