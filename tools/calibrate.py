"""
Whether "90 %" is right nine times in ten: reliability of the probabilities, kept per release.

    python tools/calibrate.py            # measure, and fail if it got worse than docs/calibration.md says
    python tools/calibrate.py --write    # write the tables of the current release there

Measured on the labelled incidents under ``tests/cases``, with the installed workerdiag.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from calibration_page import Answer, Measures, grade_table, in_order, kept, measured, with_release
from grading import graded, tellable

import workerdiag
from workerdiag.incidents import KnownIncident, answer, explained, read_incidents
from workerdiag.matching.scan import Matcher
from workerdiag.model.rules import Rulebook

ROOT = Path(__file__).parents[1]
CASES = ROOT / "tests" / "cases"
PAGE = ROOT / "docs" / "calibration.md"
#: How much worse a measure may get by chance, with so few cases, before it counts as worse.
SLACK = 0.01


def answers(incidents: Sequence[KnownIncident], book: Rulebook, matcher: Matcher) -> list[Answer]:
    """
    One for each incident of which a cause was named.
    """
    found = []
    for each in incidents:
        findings = explained(each.logs, book, matcher)
        if findings.outcome == "explained" and findings.top is not None:
            right = answer(findings) in each.expected
            found.append(Answer(case=each.name, sure=findings.top.probability, right=right))
    return found


def worse(now: Measures, release: str, before: Mapping[str, Measures]) -> Iterator[str]:
    """
    What got worse: than the page says of *release* itself, and of the newest release before it.
    """
    earlier = [each for each in before if in_order(each) < in_order(release)]
    if release not in before:
        yield f"docs/calibration.md has no row for {release}: write it with --write"
    for each in (*earlier[-1:], *((release,) if release in before else ())):
        then = before[each]
        for name in ("brier", "calibration_error"):
            measure, limit = getattr(now, name), getattr(then, name)
            if measure > limit + SLACK:
                yield f"{name} is {measure:.3f}, worse than the {limit:.3f} of {each}"


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Exit status 1 when a measure got worse than the page says, or the page lacks the release.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="write docs/calibration.md")
    write = parser.parse_args(arguments).write
    book = workerdiag.load_rulebook(packs=False)
    matcher, incidents = Matcher(book), read_incidents(CASES)
    found = answers(incidents, book, matcher)
    grades = grade_table(graded(incidents, book, matcher), len(tellable(incidents)))
    before = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    page = with_release(before, book.release, found, grades)
    print(page)
    print(*(f"wrong: {each.case} ({each.sure:.2f})" for each in found if not each.right), sep="\n")
    if write:
        PAGE.write_text(page, encoding="utf-8")
    problems = list(worse(measured(found), book.release, kept(page if write else before)))
    print(*problems, sep="\n", file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    raise SystemExit(main())
