"""``workerdiag report`` and ``replay``: a death bundle as text for a bug report, a kit that is run again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from workerdiag._version import __version__
from workerdiag.cli.commands import EXIT_NOT_OK, EXIT_OK, UnusableError, command, status_line
from workerdiag.errors import BundleError
from workerdiag.rendering.wording import printable

if TYPE_CHECKING:
    from workerdiag.bundle.bundle_file import Bundle
    from workerdiag.model.diagnosis import Findings
    from workerdiag.rendering.bug_report import ReportExtras


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
