"""A function as a sink."""

from __future__ import annotations

import asyncio

import pytest

from support.notices import delivery_of, sample_notice
from workerdiag.watch.sinks.base import DeliveryError, FunctionSink, SinkSetupError, as_sink


def test_a_function_gets_the_notice():
    """Any function of one argument is a sink, named after itself."""
    seen = []

    def remember(notice):
        seen.append(notice)

    sink = as_sink(remember)
    assert sink.deliver(delivery_of()) == {}
    assert seen == [sample_notice()]
    assert sink.name.startswith("function:")
    assert sink.name.endswith("remember")


def test_an_asynchronous_function_is_awaited():
    """A notice counts as delivered only when the coroutine is done."""
    seen = []

    async def remember(notice):
        await asyncio.sleep(0)
        seen.append(notice)

    as_sink(remember).deliver(delivery_of())
    assert seen == [sample_notice()]


@pytest.mark.parametrize("problem", [ValueError("no"), DeliveryError("no", is_final=True)])
def test_what_a_function_raises_is_for_the_outbox(problem):
    """A function's error is not swallowed: the outbox decides whether it is called again."""

    def fail(notice):
        raise problem

    with pytest.raises(type(problem)):
        as_sink(fail).deliver(delivery_of())


def test_a_sink_stays_as_it_is():
    """An object with a name and `deliver` is no function."""
    sink = FunctionSink(print, name="printer")
    assert as_sink(sink) is sink


@pytest.mark.parametrize("wrong", [None, "https://example.org", 3])
def test_what_is_neither_is_refused_at_once(wrong):
    """A mistake shows when the watcher is made, not at the first death."""
    with pytest.raises(SinkSetupError, match="is not a function"):
        as_sink(wrong)


def test_a_sink_without_a_usable_name_is_refused():
    """The outbox finds a sink again by its name, so it has one."""
    with pytest.raises(SinkSetupError, match="name"):
        FunctionSink(print, name=" ")
