"""
Checks in which releases of distributed each rule's message is worded as the rule says.

    python tools/wording.py [--since 2024.8.1] [--only RELEASE]... [--cache FOLDER] [--write]

Released wheels are downloaded with pip and read, never run. Exit status 1 when the releases
that a rule claims (``introduced``, ``removed``) are not those that word it so.
"""

from __future__ import annotations

import tempfile
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

import click
from attrs import frozen
from packaging.version import Version
from ranges import Claim, claim, problems, spans
from releases import NoReleaseError, known_releases, wheel_of
from spoken import Speech
from templates import Template, templates_of_wheel

from workerdiag.model.rules import Rulebook
from workerdiag.rulebook import read_folder

ROOT = Path(__file__).parents[1]
KNOWLEDGE = ROOT / "knowledge"
TABLE = ROOT / "docs" / "wording.md"
#: Oldest release that is supported live.
OLDEST_LIVE = "2024.8.1"

Vocabulary = Mapping[Version, frozenset[Template]]


@frozen(kw_only=True)
class Checked:
    """
    One rule of distributed's own wording, and what the releases say of it.
    """

    #: Cause or landmark, and the name of the sign in it.
    owner: str
    sign: str
    file: str
    claimed: Claim
    said_in: frozenset[Version]
    problems: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.owner} {self.sign}".strip()


@click.command()
@click.option("--since", default=OLDEST_LIVE, show_default=True, help="Oldest release to read.")
@click.option(
    "--only", multiple=True, metavar="RELEASE", help="Read these besides; with --since none: no others."
)
@click.option(
    "--cache", type=click.Path(path_type=Path), help="Folder for the wheels (default: a temporary one)."
)
@click.option("--write", is_flag=True, help=f"Write {TABLE.relative_to(ROOT)}.")
def main(since: str, only: Sequence[str], cache: Path | None, *, write: bool) -> None:
    """
    Check the releases that the rules claim to be worded for.
    """
    with tempfile.TemporaryDirectory() as temporary:
        try:
            said = read_releases(chosen(since, only), cache or Path(temporary))
        except NoReleaseError as problem:
            raise click.ClickException(str(problem)) from None
    book = read_folder(KNOWLEDGE)
    checked = list(check(book, said))
    wrong = [each for each in checked if each.problems]
    for each in wrong:
        found = spans(each.said_in, list(said)) or "none"
        click.echo(f"{each} ({each.file})\n  claimed: {each.claimed}\n  found:   {found}")
        click.echo("\n".join(f"  {problem}" for problem in each.problems))
    rules = sum(1 for _ in book.log_rules())
    click.echo(
        f"{len(said)} releases read, {min(said)} to {max(said)}. Of {rules} patterns, {len(checked)} are "
        f"about distributed's own text: {len(wrong)} with a wrong range. The others are not."
    )
    if write:
        TABLE.write_text("\n".join(table(checked, list(said))) + "\n", encoding="utf-8")
    raise SystemExit(1 if wrong else 0)


def chosen(since: str, only: Sequence[str]) -> list[Version]:
    """
    The releases to read, oldest first.
    """
    wanted = {Version(each) for each in only}
    if since != "none":
        wanted |= {each for each in known_releases() if each >= Version(since)}
    if not wanted:
        raise NoReleaseError(f"there is no release since {since}")
    return sorted(wanted)


def read_releases(releases: Sequence[Version], cache: Path) -> Vocabulary:
    """
    What each release can say, oldest first; those without a wheel are left out, with a note.
    """
    said = {}
    for release in releases:
        if (wheel := wheel_of(release, cache)) is None:
            click.echo(f"distributed {release} has no wheel: not read", err=True)
        else:
            said[release] = templates_of_wheel(wheel)
    return said


def check(book: Rulebook, said: Vocabulary) -> Iterator[Checked]:
    """
    Every rule that is about distributed's own text.

    That is one that a release can say, or that claims to be said in some releases only.
    """
    looked_at = list(said)
    everything = {
        template: "\0".join(template).lower()
        for template in sorted(frozenset[Template]().union(*said.values()))
    }
    files = landmark_files()
    for owner, sign, rule in book.log_rules():
        speech = Speech(rule, everything)
        said_in = frozenset(each for each in looked_at if speech.is_in(said[each]))
        if not said_in and not rule.introduced and not rule.removed:
            continue
        surely_in = frozenset(each for each in said_in if speech.is_in(said[each], surely=True))
        claimed = claim(rule.introduced, rule.removed)
        yield Checked(
            owner=owner,
            sign=sign,
            file=files.get(owner, f"knowledge/causes/{owner.replace('.', '/')}.toml"),
            claimed=claimed,
            said_in=said_in,
            problems=tuple(
                problems(claimed, said_in, looked_at, surely_in=surely_in, wholly=speech.is_wholly_own)
            ),
        )


def landmark_files() -> dict[str, str]:
    """
    The file of each landmark, by its id.
    """
    return {
        each["id"]: str(path.relative_to(ROOT))
        for path in KNOWLEDGE.glob("landmarks/*.toml")
        for each in tomllib.loads(path.read_text(encoding="utf-8")).get("landmark", ())
    }


def table(checked: Sequence[Checked], looked_at: Sequence[Version]) -> Iterator[str]:
    """
    The lines of the page: releases of distributed that say what a cause or landmark is known by.
    """
    newer = max(Version(OLDEST_LIVE), looked_at[0])
    older = [str(each) for each in looked_at if each < newer]
    yield from (
        "# Causes by release of distributed",
        "",
        "Written by `nox -s wording -- --write`, from the texts in the released wheels; not by hand. The",
        "second column says which releases have at least one of the messages that the cause or landmark is",
        "known by; the third, which messages are not in all of these. Causes known only by landmarks and by",
        "the texts of others (kernel, platform, other libraries) are not listed.",
        "",
        *textwrap.wrap(f"Read were {''.join(f'{each}, ' for each in older)}and all since {newer}.", 100),
        "A message that is new between two of these is told from the later one: `introduced` in its rule is",
        f"exact. What begins with {looked_at[0]} may be older; an open range holds to {looked_at[-1]}.",
        "",
        "| cause or landmark | said in | of which |",
        "|---|---|---|",
    )
    said = sorted((each for each in checked if each.said_in), key=lambda each: each.owner)
    for owner, members in groupby(said, key=lambda each: each.owner):
        signs = list(members)
        together = frozenset[Version]().union(*(each.said_in for each in signs))
        parts = [
            f"{each.sign} {spans(each.said_in, looked_at)}" for each in signs if each.said_in != together
        ]
        yield f"| `{owner}` | {spans(together, looked_at)} | {'; '.join(parts)} |"


if __name__ == "__main__":
    main()
