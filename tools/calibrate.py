"""Whether "90 %" is right nine times in ten: reliability of the probabilities, kept per release.

    python tools/calibrate.py            # measure, and fail if it got worse than docs/calibration.md says
    python tools/calibrate.py --write    # write the tables of the current release there
    python tools/calibrate.py --write FOLDER   # with incidents of other channels, such as a lab's death bundles

Measured with the installed workerdiag on the labelled incidents under ``tests/cases``, which the rules were
tried on, and under ``tests/field``, which are as people report them. Fails on any wrong all-clear, too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from calibration_page import (
    Answer,
    Measures,
    error_by_chance,
    grade_table,
    in_order,
    measured,
    read_measures,
    support_table,
    with_release,
)
from grading import graded, shown_grades, supporting, tellable
from held_out import by_other_families, channel_table, held_out_table, judged, with_less_knowledge

import workerdiag
from workerdiag.authoring.rule_tests import KnownIncident, explain_logs, read_incidents
from workerdiag.matching.scan import Matcher
from workerdiag.model.diagnosis import findings_answer
from workerdiag.model.rules import Rulebook

ROOT = Path(__file__).parents[1]
FOLDERS = (ROOT / "tests" / "cases", ROOT / "tests" / "field")
PAGE = ROOT / "docs" / "calibration.md"
#: How much worse a measure may get by chance, with so few cases, before it counts as worse.
SLACK = 0.01


def answers(incidents: Sequence[KnownIncident], book: Rulebook, matcher: Matcher) -> list[Answer]:
    """One for each incident of which a cause was named."""
    found = []
    for each in incidents:
        findings = explain_logs(each.logs, book, matcher)
        if findings.outcome == "explained" and findings.top is not None:
            right = findings_answer(findings) in each.expected
            rests_on = supporting(findings.top.id, each, book, matcher)
            found.append(Answer(case=each.name, sure=findings.top.probability, right=right, rests_on=rests_on))
    return found


def wrong_all_clears(incidents: Sequence[KnownIncident], book: Rulebook, matcher: Matcher) -> Iterator[str]:
    """The incidents of which "no death" is said, and is not true."""
    for each in incidents:
        died = "no-death" not in each.expected and not each.quiet
        if died and explain_logs(each.logs, book, matcher).outcome == "no-death":
            yield f"wrong all-clear: {each.name}"


def worse(now: Measures, release: str, before: Mapping[str, Measures]) -> Iterator[str]:
    """What got worse: than the page says of *release* itself, and of the newest release before it."""
    earlier = [each for each in before if in_order(each) < in_order(release)]
    if release not in before:
        yield f"docs/calibration.md has no row for {release}: write it with --write"
    for each in (*earlier[-1:], *((release,) if release in before else ())):
        then = before[each]
        for name in ("brier", "calibration_error"):
            measure, limit = getattr(now, name), getattr(then, name)
            if measure > limit + SLACK:
                yield f"{name} is {measure:.3f}, worse than the {limit:.3f} of {each}"


def unseen_tables(
    incidents: Sequence[KnownIncident],
    others: Sequence[KnownIncident],
    before: str,
    book: Rulebook,
    matcher: Matcher,
) -> str:
    """Calibration out of sample, and by channel: of *incidents* and *others*, else as in the page *before*."""
    known = judged((*incidents, *others), book, matcher)
    shown = [(each, shown_grades(each, book, matcher)) for each in incidents]
    cross, ranges = by_other_families(shown, book, matcher)
    without_sign, without_cause = with_less_knowledge((*incidents, *others), book, matcher)
    own = {each.name for each in incidents}
    rows = {
        "in sample": [each for each in known if each.incident.name in own],
        "with ratios measured on other families": cross,
        "as people report them (`tests/field`)": [
            each for each in known if FOLDERS[1] in each.incident.logs[0].parents
        ],
        "without the sign it rests on": [each for each in without_sign if each.incident.name in own],
        "without its cause": [each for each in without_cause if each.incident.name in own],
    }
    fits = ", ".join(f"{grade} {low:.0f} to {high:.0f}" for grade, (low, high) in ranges.items())
    return "\n".join(
        (
            "Out of sample. Each family of causes was judged with the ratios that the other families show:",
            f"{fits}.",
            "With less knowledge, a symptom of the true cause is left out; without its cause none is right.",
            "",
            held_out_table(rows),
            "",
            "By channel, with all knowledge and with less (both ways together). Live clusters:",
            "`tests/lab/README.md` says how to keep their incidents, `nox -s calibrate -- FOLDER` judges them.",
            "",
            channel_table(known, (*without_sign, *without_cause), before),
        )
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 when a measure got worse than the page says, or the page lacks the release."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write docs/calibration.md")
    parser.add_argument("folders", nargs="*", type=Path, help="more incidents, for the table of channels alone")
    options = parser.parse_args(arguments)
    write = options.write
    book = workerdiag.load_rulebook(packs=False)
    matcher = Matcher(book)
    incidents = [each for folder in FOLDERS for each in read_incidents(folder)]
    found = answers(incidents, book, matcher)
    shown = [(each, shown_grades(each, book, matcher)) for each in tellable(incidents)]
    grades = grade_table(graded(shown, book), len(shown))
    before = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    others = [each for folder in options.folders for each in read_incidents(folder)]
    tables = f"{support_table(found)}\n\n{grades}\n\n{unseen_tables(incidents, others, before, book, matcher)}"
    page = with_release(before, book.release, found, tables)
    print(page)
    print(f"calibration error that chance alone gives so few answers: {error_by_chance(found):.3f}")
    print(*(f"wrong: {each.case} ({each.sure:.2f})" for each in found if not each.right), sep="\n")
    if write:
        PAGE.write_text(page, encoding="utf-8")
    problems = [
        *worse(measured(found), book.release, read_measures(page if write else before)),
        *wrong_all_clears(incidents, book, matcher),
    ]
    print(*problems, sep="\n", file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    raise SystemExit(main())
