"""
``workerdiag report``: from a death bundle to text for a bug report.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from workerdiag import __version__
from workerdiag.cli.errors import GOOD, Guarded
from workerdiag.errors import BundleError

if TYPE_CHECKING:
    from workerdiag.bundle.reader import Bundle
    from workerdiag.model.diagnosis import Findings
    from workerdiag.rendering.report import Beside

_NO_BUNDLE = "Diagnosis.save() writes one; for logs use workerdiag explain"


@click.command(
    cls=Guarded,
    examples=(
        "workerdiag report death.zip",
        "workerdiag report death.zip > report.md",
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("bundle", metavar="PATH|URL|-", type=click.Path(readable=False, allow_dash=True))
def report(bundle: str) -> int:
    """
    Make a bug report of a death bundle.

    A bundle is what `Diagnosis.save("death.zip")` and `workerdiag explain --save death.zip` write. The
    report is Markdown of at most 60,000 characters: what happened, why, when, and with which versions and
    configuration. Read it before you publish it: what looked like a secret was hidden, names were not.

    Exit status: 0 a report; 2 bad usage, or no bundle.
    """
    from workerdiag.rendering.report import render_report

    found = _read(bundle)
    again = _judged_again(found)
    findings = found.findings or again
    changed = again if _answer(again) != _answer(findings) else None
    click.echo(render_report(findings, _beside(found, findings, changed)).rstrip("\n"))
    return GOOD


def _read(place: str) -> Bundle:
    """
    The bundle at a path, a URL or on standard input.
    """
    from workerdiag.bundle.reader import read_bundle
    from workerdiag.sources.logs.containers import ZipArchiveError
    from workerdiag.sources.logs.inputs import logs_in, name_of

    name = name_of(place)
    try:
        for log in logs_in(place, 1):
            for _ in log.blocks():
                break  # it is text
    except ZipArchiveError as archive:
        if archive.data and (found := read_bundle(archive.name, archive.data)) is not None:
            return found
    except (OSError, ImportError) as problem:
        said = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
        raise BundleError(name, said, "check the path") from problem
    raise BundleError(name, "it is none", _NO_BUNDLE)


def _judged_again(found: Bundle) -> Findings:
    from workerdiag.pipeline import diagnose
    from workerdiag.rulebook import load_rulebook

    return diagnose(found.evidence(), load_rulebook(), version=__version__)


def _answer(findings: Findings) -> str:
    return findings.top.id if findings.outcome == "explained" and findings.top else findings.outcome


def _beside(found: Bundle, findings: Findings, again: Findings | None) -> Beside:
    from workerdiag.bundle.remote_environment import configuration_told, versions_told
    from workerdiag.bundle.retention.kept_evidence import KeptLog
    from workerdiag.bundle.timeline import timeline
    from workerdiag.rendering.report import Beside

    logs = [each for each in found.kept.items if isinstance(each, KeptLog)]
    return Beside(
        again=again,
        moments=timeline(findings, found.kept.items),
        versions={**versions_told(found.kept.items), **found.versions},
        configuration={**configuration_told(found.kept.items), **found.configuration},
        logs=tuple(
            (each.origin, each.read_bytes, sum(len(part.data) for part in each.parts)) for each in logs
        ),
        missing=tuple(_missing(found)),
        origin=tuple(_origin(found)),
    )


def _missing(found: Bundle) -> Iterator[str]:
    yield from found.kept.left_out
    for gap in found.gaps:
        yield f"{gap.source}: {gap.detail}"
    if not found.configuration:
        yield "The configuration: the process that saved the bundle had not used distributed"


def _origin(found: Bundle) -> Iterator[str]:
    manifest = found.manifest
    yield f"saved {manifest.get('saved_at', 'at an unknown time')} by workerdiag {manifest.get('workerdiag')}"
    hidden = manifest.get("hidden")
    names = ", ".join(map(str, hidden)) if isinstance(hidden, list) else ""
    yield f"hidden: {names}" if names else "nothing was hidden"
