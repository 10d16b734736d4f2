"""``workerdiag sources``: the places that can be queried, and what a query takes."""

from __future__ import annotations

from math import isinf

import click

from workerdiag.cli.commands import command
from workerdiag.cli.terminal import wrapped
from workerdiag.model.evidence import Gap
from workerdiag.model.scene import Terms
from workerdiag.rendering.wording import printable
from workerdiag.units import format_duration


@command("workerdiag sources")
def sources() -> None:
    """List the places to query besides Dask, and what a query takes.

    The most short-lived come first. The cluster decides which of them apply.
    """
    from workerdiag.sources.registry import source_terms

    for name, terms in source_terms():
        click.echo(printable(name))
        for line in _source_lines(terms):
            click.echo(printable(line))


def _source_lines(terms: Terms | Gap) -> list[str]:
    if isinstance(terms, Gap):
        properties = {"cannot be asked": f"{terms.detail}; {terms.remedy}"}
    else:
        properties = {
            "lasts": "as long as the place keeps it"
            if isinf(terms.lasts_s)
            else f"about {format_duration(terms.lasts_s)}",
            "permission": terms.permission or "none",
            "extra": f"pip install 'workerdiag[{terms.extra}]'" if terms.extra else "none",
            "cost": terms.cost,
        }
    rows = [(f"  {what + ':':<12}", text) for what, text in properties.items() if text]
    return [line for head, text in rows for line in wrapped(text, first=head, rest=" " * len(head))]
