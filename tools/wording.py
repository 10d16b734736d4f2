"""Checks in which releases of distributed each rule's message is worded as the rule says.

    python tools/wording.py [--since 2024.8.1] [--only RELEASE]... [--cache FOLDER] [--write]

Checked are log text, events (topics, fields, values), exceptions (types, texts), and what
landmarks capture (reasons, stimulus ids). Released wheels are downloaded with pip and read,
never run. Exit status 1 when the releases that a rule claims (``introduced``, ``removed``)
are not those that word it so.
"""

from __future__ import annotations

import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from packaging.version import Version
from ranges import spans
from releases import NoReleaseError, known_releases, wheel_of
from rule_check import RuleCheck, check_rules, rules
from vocabulary import Vocabulary, vocabulary_of_wheel
from wording_page import page

from workerdiag.rulebook.toml_folder import read_folder

ROOT = Path(__file__).parents[1]
KNOWLEDGE = ROOT / "knowledge"
TABLE = ROOT / "docs" / "wording.md"
#: Oldest release that is supported live.
OLDEST_LIVE = "2024.8.1"


@click.command()
@click.option("--since", default=OLDEST_LIVE, show_default=True, help="Oldest release to read.")
@click.option("--only", multiple=True, metavar="RELEASE", help="Read these besides; with --since none: no others.")
@click.option("--cache", type=click.Path(path_type=Path), help="Folder for the wheels (default: a temporary one).")
@click.option("--write", is_flag=True, help=f"Write {TABLE.relative_to(ROOT)}.")
def main(since: str, only: Sequence[str], cache: Path | None, *, write: bool) -> None:
    """Check the releases that the rules claim to be worded for."""
    with tempfile.TemporaryDirectory() as temporary:
        try:
            vocabularies = read_releases(chosen(since, only), cache or Path(temporary))
        except NoReleaseError as problem:
            raise click.ClickException(str(problem)) from None
    looked_at = list(vocabularies)
    book = read_folder(KNOWLEDGE)
    checked = list(check_rules(book, vocabularies))
    wrong = [each for each in checked if each.problems]
    for each in wrong:
        click.echo("\n".join(report(each, looked_at)))
    count = sum(1 for _ in rules(book))
    click.echo(
        f"{len(looked_at)} releases read, {looked_at[0]} to {looked_at[-1]}. "
        f"Of {count} landmarks and signs with a text, "
        f"{len(checked)} are about distributed's own: {len(wrong)} with a wrong range. The others are not."
    )
    if write:
        TABLE.write_text("\n".join(page(checked, looked_at)) + "\n", encoding="utf-8")
    raise SystemExit(1 if wrong else 0)


def chosen(since: str, only: Sequence[str]) -> list[Version]:
    """The releases to read, oldest first."""
    wanted = {Version(each) for each in only}
    if since != "none":
        wanted |= {each for each in known_releases() if each >= Version(since)}
    if not wanted:
        raise NoReleaseError(f"there is no release since {since}")
    return sorted(wanted)


def read_releases(releases: Sequence[Version], cache: Path) -> dict[Version, Vocabulary]:
    """What each release can say, oldest first; those without a wheel are left out, with a note."""
    vocabularies = {}
    for release in releases:
        if (wheel := wheel_of(release, cache)) is None:
            click.echo(f"distributed {release} has no wheel: not read", err=True)
        else:
            vocabularies[release] = vocabulary_of_wheel(wheel)
    return vocabularies


def report(checked: RuleCheck, looked_at: Sequence[Version]) -> Iterator[str]:
    """A wrong claim: what was found, and what is wrong with it."""
    yield f"{checked} ({checked.kind}, {file_of(checked)})"
    yield f"  claimed: {checked.claimed}"
    yield f"  found:   {spans(checked.said_in, looked_at) or 'none'}"
    yield from (f"  {problem}" for problem in checked.problems)
    if checked.kind == "event" and not checked.said_in:
        yield "  and none of our sources gives an event of that topic"


def file_of(checked: RuleCheck) -> str:
    """The file that a rule stands in."""
    for path in KNOWLEDGE.glob("landmarks/*.toml"):
        ids = [each["id"] for each in tomllib.loads(path.read_text(encoding="utf-8")).get("landmark", ())]
        if checked.owner in ids and not checked.sign:
            return str(path.relative_to(ROOT))
    return f"knowledge/causes/{checked.owner.replace('.', '/')}.toml"


if __name__ == "__main__":
    main()
