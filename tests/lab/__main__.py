"""Provoke one fault and print what workerdiag says: ``python -m tests.lab FAULT``."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import click

from .cluster import Lab
from .faults import FAULTS, Fault
from .kernel import UnavailableError


def about(fault: Fault) -> str:
    """Return what a fault does, in one line."""
    return (fault.__doc__ or "").strip()


@click.command(epilog="\b\nFaults:\n" + "\n".join(f"  {name:24} {about(each)}" for name, each in FAULTS.items()))
@click.argument("fault", type=click.Choice(list(FAULTS)), metavar="FAULT")
@click.option("--logs", is_flag=True, help="Print the logs of scheduler and workers as well.")
@click.option("--keep", is_flag=True, help="Keep the folder with the logs and print its name.")
def main(fault: str, *, logs: bool, keep: bool) -> None:
    """Start a real cluster, break it, and print the diagnosis."""
    folder = Path(tempfile.mkdtemp(prefix="workerdiag-lab-"))
    try:
        with Lab(folder) as lab:
            try:
                aftermath = FAULTS[fault](lab)
            except UnavailableError as problem:
                raise click.ClickException(f"not possible here: {problem}") from None
            click.echo(aftermath.explain())
            if logs:
                for log in lab.logs:
                    click.echo(f"\n==> {log} <==\n{log.read_text(errors='replace')}")
    finally:
        if keep:
            click.echo(f"kept {folder}", err=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
