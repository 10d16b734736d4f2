"""Sinks from what is typed on a command line, with secrets from the environment."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from importlib import import_module

from workerdiag.watch.sinks import SHIPPED
from workerdiag.watch.sinks.base import Sink, SinkSetupError, environment_variable

#: Before the name of a variable that holds the value: ``env:HOOK_URL`` keeps a token out of ``ps``.
_FROM_ENVIRONMENT = "env:"


def sinks_of(options: Mapping[str, Iterable[str]], environment: Mapping[str, str] = os.environ) -> tuple[Sink, ...]:
    """Return the sinks of all options, each option as often as it was given.

    Args:
        options: The values by the name of the kind, as in `SHIPPED`. A value ``env:NAME`` is that of the
            variable *NAME*.
        environment: Where secrets are.

    Raises:
        SinkSetupError: One of them cannot work so.
    """
    return tuple(sink_of(kind, value, environment) for kind, values in options.items() for value in values)


def sink_of(kind: str, value: str, environment: Mapping[str, str] = os.environ) -> Sink:
    """Return the sink of one option, e.g. ``slack`` and ``#dask``.

    Raises:
        SinkSetupError: It cannot work so.
    """
    if value.startswith(_FROM_ENVIRONMENT):
        value = environment_variable(kind, environment, value.removeprefix(_FROM_ENVIRONMENT))
    shipped = next((each for each in SHIPPED if each.name == kind), None)
    if shipped is None:
        known = ", ".join(each.name for each in SHIPPED)
        raise SinkSetupError(kind, "there is no such sink", f"choose among {known}")
    sink: Sink = import_module(f"workerdiag.watch.sinks.{shipped.module}").from_option(value, environment)
    return sink
