"""``workerdiag settings``, ``sources``, ``report``, ``replay`` and ``mcp``: each shows or runs what is there."""

from __future__ import annotations

from collections.abc import Mapping
from math import isinf
from typing import TYPE_CHECKING

import click

from workerdiag._version import __version__
from workerdiag.cli.commands import (
    EXIT_NOT_OK,
    EXIT_OK,
    FolderPath,
    UnusableError,
    command,
    knowledge_option,
    load_checked_rulebook,
    status_line,
    warn,
    wrapped,
)
from workerdiag.errors import BundleError
from workerdiag.model.evidence import Gap
from workerdiag.redaction.secrets import redact_text
from workerdiag.rendering.wording import printable
from workerdiag.units import format_duration

if TYPE_CHECKING:
    from workerdiag.bundle.bundle_file import Bundle
    from workerdiag.model.diagnosis import Findings
    from workerdiag.rendering.bug_report import ReportExtras


@command("workerdiag settings")
def settings() -> int:
    """List the settings: key, value, and where it was set.

    They are those of Dask's configuration in this process, under "workerdiag". Workers, nannies and
    schedulers each have their own.

    Exit status: 0 all are valid, 1 there are unknown keys or wrong values.
    """
    from workerdiag.settings import ROOT, SETTINGS, origin, setting, unusable_entries

    problems = tuple(unusable_entries())
    rows = [(f"{ROOT}.{key}", setting(key), key) for key in SETTINGS]
    columns = max(len(name) for name, _, _ in rows)
    for name, value, key in rows:
        shown = redact_text("null" if value is None else str(value))
        click.echo(printable(f"{name:<{columns}}  {shown}  ({origin(key, value)})"))
    for each in problems:
        warn(each)
    return EXIT_NOT_OK if problems else EXIT_OK


@command("workerdiag sources")
def sources() -> None:
    """List the places to query besides Dask, and what a query takes.

    The most short-lived come first. The cluster decides which of them apply.
    """
    from workerdiag.sources.registry import source_terms

    for name, terms in source_terms():
        click.echo(printable(name))
        if isinstance(terms, Gap):
            properties = {"cannot be asked": f"{terms.detail}; {terms.remedy}"}
        else:
            keeps = isinf(terms.lasts_s)
            properties = {
                "lasts": "as long as the place keeps it" if keeps else f"about {format_duration(terms.lasts_s)}",
                "permission": terms.permission or "none",
                "extra": f"pip install 'workerdiag[{terms.extra}]'" if terms.extra else "none",
                "cost": terms.cost,
            }
        for what, text in properties.items():
            head = f"  {what + ':':<12}"
            for line in wrapped(text, first=head, rest=" " * len(head)) if text else ():
                click.echo(line)


@command("workerdiag mcp --root /var/log/dask", "workerdiag mcp --root . --scheduler tcp://10.0.0.1:8786")
@click.option(
    "--root",
    "roots",
    multiple=True,
    metavar="DIR",
    type=FolderPath(),
    help="A folder whose files may be read. May be repeated. Without it, none may.",
)
@click.option(
    "--scheduler",
    "schedulers",
    multiple=True,
    metavar="ADDRESS",
    help="A scheduler that may be queried, e.g. tcp://10.0.0.1:8786. May be repeated.",
)
@knowledge_option
def mcp(roots: tuple[str, ...], schedulers: tuple[str, ...], knowledge: tuple[str, ...]) -> None:
    """Let an assistant ask why workers died.

    A server of the Model Context Protocol, to be started by the assistant. It explains logs, bundles and
    schedulers, and searches the knowledge base. It reads only what is allowed here, changes nothing, and
    hides secrets. Needs the extra: pip install 'workerdiag[mcp]'.

    Exit status: 0 the assistant has closed it; 2 bad usage, or the extra is missing.
    """
    try:
        from workerdiag.integrations.mcp import DeathTools, make_server
    except ImportError as problem:
        raise UnusableError(str(problem)) from None
    from workerdiag.integrations.allowed_files import AllowedFiles

    tools = DeathTools(load_checked_rulebook(knowledge), AllowedFiles.below(roots), schedulers)
    make_server(tools).run("stdio")


@command("workerdiag report death.zip", "workerdiag report death.zip > report.md")
@click.argument("bundle", metavar="PATH|URL|-", type=click.Path(readable=False, allow_dash=True))
def report(bundle: str) -> int:
    """Make a bug report of a death bundle.

    A bundle is what `Diagnosis.save("death.zip")` and `workerdiag explain --save death.zip` write. The
    report is Markdown of at most 60,000 characters: what happened, why, when, and with which versions and
    configuration. Read it before you publish it: likely secrets are hidden, names are not.

    Exit status: 0 a report; 2 bad usage, or no bundle.
    """
    from workerdiag.model.diagnosis import findings_answer
    from workerdiag.pipeline import diagnose
    from workerdiag.rendering.bug_report import render_report
    from workerdiag.rulebook.load import load_rulebook

    with status_line("reading the bundle"):
        found = _open_bundle(bundle)
        again = diagnose(found.evidence(), load_rulebook(), version=__version__)
    findings = found.findings or again
    changed = again if findings_answer(again) != findings_answer(findings) else None
    click.echo(render_report(findings, _report_extras(found, findings, changed)).rstrip("\n"))
    return EXIT_OK


def _open_bundle(place: str) -> Bundle:
    from workerdiag.bundle.bundle_file import read_bundle
    from workerdiag.sources.logs.file_kinds import MAX_BUNDLE_BYTES, read_at_most, sniff_blocks
    from workerdiag.sources.logs.inputs import input_name, resolve_logs

    name = input_name(place)
    try:
        for log in resolve_logs(place, 1):
            kind, blocks = sniff_blocks(log.blocks())
            data = read_at_most(blocks, MAX_BUNDLE_BYTES) if kind == "bundle" else b""
            if data and (bundle := read_bundle(log.origin, data)) is not None:
                return bundle
    except (OSError, ImportError) as problem:
        detail = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
        raise BundleError(name, detail, "check the path") from problem
    remedy = "Diagnosis.save() writes one; for logs use workerdiag explain"
    raise BundleError(name, "it is not a death bundle", remedy)


def _report_extras(bundle: Bundle, findings: Findings, again: Findings | None) -> ReportExtras:
    from workerdiag.bundle.bug_report import remote_configuration, remote_versions, timeline
    from workerdiag.bundle.kept_evidence import KeptLog
    from workerdiag.rendering.bug_report import ReportExtras

    logs = [each for each in bundle.kept_evidence.items if isinstance(each, KeptLog)]
    unconfigured = "The configuration: the process that saved the bundle had not used distributed"
    return ReportExtras(
        again=again,
        moments=timeline(findings, bundle.kept_evidence.items),
        versions={**remote_versions(bundle.kept_evidence.items), **bundle.versions},
        configuration={**remote_configuration(bundle.kept_evidence.items), **bundle.configuration},
        logs=tuple((each.origin, each.read_bytes, sum(len(part.data) for part in each.parts)) for each in logs),
        missing=(
            *bundle.kept_evidence.left_out,
            *(f"{gap.source}: {gap.detail}" for gap in bundle.gaps),
            *([] if bundle.configuration else [unconfigured]),
        ),
        origin=_origin_lines(bundle.manifest),
    )


def _origin_lines(manifest: Mapping[str, object]) -> tuple[str, str]:
    saved = f"saved {manifest.get('saved_at', 'at an unknown time')} by workerdiag {manifest.get('workerdiag')}"
    hidden = manifest.get("hidden")
    names = ", ".join(map(str, hidden)) if isinstance(hidden, list) else ""
    return saved, f"hidden: {names}" if names else "nothing was hidden"


@command("workerdiag replay kit.zip --trust", "workerdiag replay kit.zip --trust --limit 500MB")
@click.argument("kit", metavar="FILE", type=click.Path(readable=False))
@click.option("--limit", metavar="SIZE", help="Memory limit; without it, that of the workers that died.")
@click.option(
    "--memray",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Run the task that kills once more, and have memray record its allocations here.",
)
@click.option("--trust", is_flag=True, help="Reading a kit runs code: say that you trust whoever made it.")
@click.option("--timeout", default="10 minutes", show_default=True, help="The time for all of it.")
def replay(kit: str, limit: str | None, memray: str | None, timeout: str, *, trust: bool) -> int:
    """Run again what ran when a worker died.

    A kit is what `diagnosis.kit.save("kit.zip")` writes. Its tasks run here, each alone in a process that is ended
    as a nanny would end it. That tells whether one of them kills a worker by itself or only beside others, how
    much memory it held, and which limit would have sufficed.

    Exit status: 0 a verdict; 1 it cannot be replayed here; 2 bad usage, or no kit.
    """
    from workerdiag.replay.kit import Kit

    with status_line("replaying"):
        try:
            found = Kit.load(kit).replay(limit, memray, trusted=trust, timeout=timeout)
        except ValueError as problem:
            raise UnusableError(str(problem)) from None
    click.echo(printable(str(found)))
    return EXIT_NOT_OK if found.verdict == "cannot-replay" else EXIT_OK
