"""
Checks in which releases of distributed each rule's message is worded as the rule says.

    python tools/wording.py [--since 2024.8.1] [--only RELEASE]... [--cache FOLDER] [--write]

Checked are log text, events (topics, fields, values), exceptions (types, texts), and what
landmarks capture (reasons, stimulus ids). Released wheels are downloaded with pip and read,
never run. Exit status 1 when the releases that a rule claims (``introduced``, ``removed``)
are not those that word it so.
"""

from __future__ import annotations

import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import click
from attrs import frozen
from packaging.version import Version
from ranges import Claim, problems, spans
from releases import NoReleaseError, known_releases, wheel_of
from rewording import rewordings
from rule_check import RuleCheck, check_rules, rules
from vocabulary import Vocabulary, merge_vocabularies, vocabulary_of_wheel
from wording_page import page

from workerdiag.model.rules import Rulebook
from workerdiag.rulebook.folder import read_folder

ROOT = Path(__file__).parents[1]
KNOWLEDGE = ROOT / "knowledge"
TABLE = ROOT / "docs" / "wording.md"
#: Oldest release that is supported live.
OLDEST_LIVE = "2024.8.1"

VocabularyByRelease = Mapping[Version, Vocabulary]


@frozen(kw_only=True)
class RuleReport:
    """
    One rule of distributed's own wording, and what the releases say of it.
    """

    #: Cause or landmark, and the name of the sign in it.
    owner: str
    sign: str
    #: ``log text``, ``event``, ``exception`` or ``landmark``.
    kind: str
    claimed: Claim
    said_in: frozenset[Version]
    problems: tuple[str, ...]
    #: What the newest release words otherwise than the one before.
    rewordings: tuple[str, ...] = ()

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
            vocabularies = read_releases(chosen(since, only), cache or Path(temporary))
        except NoReleaseError as problem:
            raise click.ClickException(str(problem)) from None
    book = read_folder(KNOWLEDGE)
    checked = list(check(book, vocabularies))
    wrong = [each for each in checked if each.problems]
    click.echo("\n".join(report(checked, list(vocabularies))))
    count = sum(1 for _ in rules(book))
    click.echo(
        f"{len(vocabularies)} releases read, {min(vocabularies)} to {max(vocabularies)}. "
        f"Of {count} landmarks and signs with a text, "
        f"{len(checked)} are about distributed's own: {len(wrong)} with a wrong range. The others are not."
    )
    if write:
        TABLE.write_text(
            "\n".join(page(book, checked, list(vocabularies), OLDEST_LIVE)) + "\n", encoding="utf-8"
        )
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


def read_releases(releases: Sequence[Version], cache: Path) -> VocabularyByRelease:
    """
    What each release can say, oldest first; those without a wheel are left out, with a note.
    """
    vocabularies = {}
    for release in releases:
        if (wheel := wheel_of(release, cache)) is None:
            click.echo(f"distributed {release} has no wheel: not read", err=True)
        else:
            vocabularies[release] = vocabulary_of_wheel(wheel)
    return vocabularies


def check(book: Rulebook, vocabularies: VocabularyByRelease) -> Iterator[RuleReport]:
    """
    Every rule that is about distributed's own text.

    Of log text, that is what a release can say, or what claims to be said in some releases only.
    """
    for rule in check_rules(book, merge_vocabularies(vocabularies.values())):
        said_in = frozenset(each for each in vocabularies if rule.held.is_in(vocabularies[each]))
        if said_in or rule.is_due:
            yield RuleReport(
                owner=rule.owner,
                sign=rule.sign,
                kind=rule.kind,
                claimed=rule.claimed,
                said_in=said_in,
                problems=tuple(_problems(rule, said_in, vocabularies)),
                rewordings=tuple(_rewordings(rule, vocabularies)),
            )


def _problems(
    rule: RuleCheck, said_in: frozenset[Version], vocabularies: VocabularyByRelease
) -> Iterator[str]:
    looked_at = list(vocabularies)
    surely_in = frozenset(each for each in said_in if rule.held.is_in(vocabularies[each], surely=True))
    wholly = rule.held.is_wholly_own
    yield from problems(rule.claimed, said_in, looked_at, surely_in=surely_in, wholly=wholly)


def _rewordings(rule: RuleCheck, vocabularies: VocabularyByRelease) -> Iterator[str]:
    for older, newer in list(pairwise(vocabularies.values()))[-1:]:
        yield from rewordings(rule.held, older, newer)


def report(checked: Sequence[RuleReport], looked_at: Sequence[Version]) -> Iterator[str]:
    """
    The rules with a problem, and those of which the newest release words something otherwise.
    """
    for each in checked:
        if each.problems:
            yield f"{each} ({each.kind}, {file_of(each)})"
            yield f"  claimed: {each.claimed}"
            yield f"  found:   {spans(each.said_in, looked_at) or 'none'}"
            yield from (f"  {problem}" for problem in (*each.problems, *each.rewordings))
            if each.kind == "event" and not each.said_in:
                yield "  and none of our sources gives an event of that topic"
    for each in checked:
        if each.rewordings and not each.problems:
            yield f"{each} ({each.kind}): still matched, but {looked_at[-1]} words something differently"
            yield from (f"  {change}" for change in each.rewordings)


def file_of(checked: RuleReport) -> str:
    """
    The file that a rule stands in.
    """
    for path in KNOWLEDGE.glob("landmarks/*.toml"):
        ids = [each["id"] for each in tomllib.loads(path.read_text(encoding="utf-8")).get("landmark", ())]
        if checked.owner in ids and not checked.sign:
            return str(path.relative_to(ROOT))
    return f"knowledge/causes/{checked.owner.replace('.', '/')}.toml"


if __name__ == "__main__":
    main()
