"""Arguments in, exit status out."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Literal

import click

from workerdiag._version import __version__
from workerdiag.cli.commands import SafeGroup, command, is_colored, status_line, text_width
from workerdiag.cli.explain import explain
from workerdiag.cli.knowledge import draft, knowledge
from workerdiag.cli.show import mcp, replay, report, settings, sources
from workerdiag.cli.triage import fleet, triage
from workerdiag.cli.watch import watch

if TYPE_CHECKING:
    from workerdiag.model.diagnosis import Findings

#: The deaths of `workerdiag.demo`, named here so that ``--help`` need not import it.
DEMO_DEATHS = ("oom", "segfault", "exit", "sigkill")


@click.group(
    cls=SafeGroup,
    examples=("workerdiag explain worker.log", "workerdiag demo", "workerdiag knowledge list"),
    name="workerdiag",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="workerdiag")
def main() -> None:
    """Why did my Dask worker die, and what do I do now?"""


@command("workerdiag demo", "workerdiag demo --death segfault", group=main)
@click.option(
    "--death", type=click.Choice(DEMO_DEATHS), default="oom", show_default=True, help="How the worker dies."
)
@click.option("--full", is_flag=True, help="Print the whole report.")
def demo(death: str, *, full: bool) -> int:
    """Kill a real worker, and explain why it died.

    Starts two workers with 400 MiB each on this machine, which takes some seconds, and leaves nothing behind.
    """
    import logging  # slow to import, and no report needs it

    from workerdiag.demo import run

    try:
        with ExitStack() as waiting:
            erase = waiting.enter_context(status_line("waiting for the death and its explanation"))

            def say(text: str) -> None:
                erase()
                click.echo(text, color=True)

            def show(findings: Findings) -> None:
                from workerdiag.rendering.text import render_text

                waiting.close()  # the cluster takes some seconds to close
                again = f"workerdiag demo --death {death} --full"
                text = render_text(findings, width=text_width(), color=is_colored(), full=full, whole_by=again)
                click.echo(text, color=True)

            return run(death, say=say, show=show)
    except KeyboardInterrupt:
        # At exit Dask cleans up the half-made cluster, and says how badly that went.
        sys.unraisablehook = lambda _: None
        logging.disable()
        raise


@command("workerdiag schema > diagnosis.schema.json", "workerdiag schema fleet", group=main)
@click.argument("document", type=click.Choice(("diagnosis", "fleet")), default="diagnosis")
def schema(document: Literal["diagnosis", "fleet"]) -> None:
    """Print the JSON Schema of a diagnosis or a fleet report.

    It describes what `workerdiag explain --format json` and `Diagnosis.to_dict()` give; with `fleet`,
    `workerdiag fleet --format json` and `FleetReport.to_dict()`.
    """
    import json

    from workerdiag.rendering.json import json_schema
    from workerdiag.triage.fleet.report import fleet_schema

    made = {"diagnosis": json_schema, "fleet": fleet_schema}[document]
    click.echo(json.dumps(made(), indent=2))


@command(
    "workerdiag completion bash > ~/.local/share/bash-completion/completions/workerdiag",
    'workerdiag completion zsh > "${fpath[1]}/_workerdiag"',
    "workerdiag completion fish > ~/.config/fish/completions/workerdiag.fish",
    group=main,
)
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    """Print a script for shell completion.

    Put it where the shell looks for such scripts, then start a new shell.
    """
    from click.shell_completion import ShellComplete, get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None  # click has all three
    # ShellComplete.source, not BashComplete.source: that one starts bash to look at its version.
    click.echo(ShellComplete.source(kind(main, {}, "workerdiag", "_WORKERDIAG_COMPLETE")))


for each in (explain, fleet, knowledge, mcp, replay, report, settings, sources, triage, watch):
    main.add_command(each)
knowledge.add_command(draft)
