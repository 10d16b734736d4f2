"""``workerdiag fleet``: what kills workers, from the tables of triage and the states of watchers."""

from __future__ import annotations

from typing import Literal, assert_never

import click

from workerdiag.cli.commands import EXIT_NOT_OK, EXIT_OK, command, format_option
from workerdiag.cli.terminal import is_colored, status_line, table_width

FleetFormat = Literal["text", "json", "html"]


@command(
    "workerdiag fleet triaged/",
    "workerdiag fleet triaged/ ~/.local/state/workerdiag/watch.db",
    "workerdiag fleet triaged/ --format html > fleet.html",
)
@click.argument("places", metavar="FOLDER...", nargs=-1, required=True, type=click.Path())
@format_option("text", "json", "html", text="`workerdiag schema fleet` prints the schema of the JSON.")
def fleet(places: tuple[str, ...], form: FleetFormat) -> int:
    """Say what kills workers: shares, hosts, versions, since when.

    A FOLDER is what `workerdiag triage --output` wrote, or has a watcher's state files (.db, .sqlite) in it;
    a table or a state can be named too. A death that several of them report counts once; stops that somebody
    asked for are not counted.

    Exit status: 0 a report; 1 none of the files could be read; 2 bad usage, or there is no such file.
    """
    from workerdiag.triage.fleet.fleet_function import fleet as read_fleet
    from workerdiag.triage.fleet.text import render_fleet

    with status_line("reading the tables"):
        report = read_fleet(*places)
    match form:
        case "text":
            text = render_fleet(report, width=table_width(), color=is_colored())
        case "json":
            text = report.to_json()
        case "html":
            text = report.to_html()
        case _:
            assert_never(form)
    click.echo(text)
    return EXIT_OK if report.tables else EXIT_NOT_OK
