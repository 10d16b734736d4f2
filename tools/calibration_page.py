"""The text of ``docs/calibration.md``: one row, and one section of tables, for each knowledge release."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from attrs import frozen
from grading import Counted, GradeCounts, RestsOn

from workerdiag.model.odds import GRADES

BINS = 10
#: As many facts as these, and more, are one row of a table.
_MANY_FACTS = 3
_HEAD = """# Calibration

Of the labelled incidents under `tests/cases`, which the rules are tried on, and `tests/field`, which are
as people report them: how sure the first cause was, how often it was right, and what it rested on.
`nox -s calibrate` measures it again, and fails when it is worse than this page says of this release or of
the one before, and on any wrong all-clear. `nox -s calibrate -- --write` writes the tables of the current
release; those of older ones stay as they were. Unseen reports come out less well: the
tables out of sample say how much, those by channel where.

| knowledge | incidents with a cause named | Brier score | expected calibration error |
|---|---|---|---|
"""
_ROW = re.compile(r"^\| (\d[\w.]*) \| (\d+) \| ([\d.]+) \| ([\d.]+) \|$", re.MULTILINE)
_SECTION = re.compile(r"^## (\d[\w.]*)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


@frozen(kw_only=True)
class Answer:
    """What was promised for one labelled incident, and whether it came true."""

    case: str
    sure: float
    right: bool
    rests_on: RestsOn | None = None


@frozen(kw_only=True)
class Measures:
    """Brier score and expected calibration error of some answers; 0 is perfect for both."""

    count: int
    brier: float
    calibration_error: float


def measured(answers: Sequence[Answer]) -> Measures:
    """The measures of all answers together."""
    count = len(answers)
    off = sum(abs(sum(each.sure - each.right for each in some)) for some in bins(answers).values())
    return Measures(
        count=count,
        brier=sum((each.sure - each.right) ** 2 for each in answers) / count,
        calibration_error=off / count,
    )


def error_by_chance(answers: Sequence[Answer]) -> float:
    """The calibration error to expect if every promise held exactly: few answers never come out even."""
    return sum(_distance([each.sure for each in some]) for some in bins(answers).values()) / len(answers)


def _distance(chances: Sequence[float]) -> float:
    """How far the number of answers that come true is from the number promised, on average."""
    likely = [1.0]  # of 0, 1, 2 ... right answers
    for chance in chances:
        likely = [
            wrong * (1 - chance) + right * chance
            for wrong, right in zip((*likely, 0.0), (0.0, *likely), strict=True)
        ]
    return sum(each * abs(count - sum(chances)) for count, each in enumerate(likely))


def bins(answers: Sequence[Answer]) -> dict[int, list[Answer]]:
    """Answers by the tenth that their probability lies in."""
    sorted_in: dict[int, list[Answer]] = {}
    for each in answers:
        sorted_in.setdefault(min(BINS - 1, int(each.sure * BINS)), []).append(each)
    return dict(sorted(sorted_in.items()))


def read_measures(page: str) -> dict[str, Measures]:
    """The measures of each release, as the text of a page has them, oldest first."""
    rows = {
        row[1]: Measures(count=int(row[2]), brier=float(row[3]), calibration_error=float(row[4]))
        for row in _ROW.finditer(page.partition("\n## ")[0])
    }
    return {release: rows[release] for release in sorted(rows, key=in_order)}


def with_release(page: str, release: str, answers: Sequence[Answer], grades: str) -> str:
    """The text of *page* with the tables of *release* anew, and those of other releases as they were.

    Args:
        page: The text so far; may be empty.
        release: The release that was measured.
        answers: What was promised and came true.
        grades: Its table of grades (`grade_table`).
    """
    rows = {**read_measures(page), release: measured(answers)}
    sections = {found[1]: found[2].strip("\n") for found in _SECTION.finditer(page)}
    sections[release] = f"{_reliability(answers)}\n\n{grades}"
    lines = "\n".join(_row(each, rows[each]) for each in sorted(rows, key=in_order))
    newest_first = sorted(sections, key=in_order, reverse=True)
    parts = [f"{_HEAD}{lines}", *(f"## {each}\n\n{sections[each].strip()}" for each in newest_first)]
    return "\n\n".join(parts) + "\n"


def support_table(answers: Sequence[Answer]) -> str:
    """What answers rest on, what was promised of them, and what came true."""
    rows = [
        "| best sign | facts | end told | incidents | mean probability | share right |",
        "|---|---|---|---|---|---|",
    ]
    groups: dict[tuple[int, int, bool], list[Answer]] = {}
    for each in answers:
        if each.rests_on is not None:
            rank = list(GRADES).index(each.rests_on.grade)
            key = (rank, min(_MANY_FACTS, each.rests_on.fact_count), each.rests_on.is_end_known)
            groups.setdefault(key, []).append(each)
    for (rank, count, is_end_known), some in sorted(groups.items()):
        sure = sum(each.sure for each in some) / len(some)
        right = sum(each.right for each in some) / len(some)
        facts = f"{count} or more" if count == _MANY_FACTS else str(count)
        rows.append(
            f"| {list(GRADES)[rank]} | {facts} | {'yes' if is_end_known else 'no'} "
            f"| {len(some)} | {sure:.2f} | {right:.2f} |"
        )
    return "\n".join(rows)


def grade_table(grades: Mapping[str, GradeCounts], incident_count: int) -> str:
    """What each grade claims, and what was measured of it."""
    rows = [
        f"Likelihood ratios, measured on {incident_count} incidents, each with the interval that holds the true",
        "one 95 times in 100. Alone: no stronger sign of that cause shows. Beside: one does.",
        "",
        "| grade | ratio used | measured | cause, and it counted | not the cause | all pairs | alone | beside |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for grade, counts in grades.items():
        used, every, ratio = GRADES[grade], counts.all, counts.ratio
        place = "inside" if ratio.low <= used <= ratio.high else "OUTSIDE"
        rows.append(
            f"| {grade} | {used:.0f} | {ratio}: {place} | {every.true_shown} of {every.true_pairs} "
            f"| {every.false_shown} of {every.false_pairs} | {every.ratio} "
            f"| {_ratio_cell(counts.alone)} | {_ratio_cell(counts.beside)} |"
        )
    return "\n".join(rows)


def _ratio_cell(counted: Counted) -> str:
    """The ratio, if such a sign counted at all."""
    shown = counted.true_shown + counted.false_shown
    return f"{counted.true_shown} and {counted.false_shown}: {counted.ratio}" if shown else "never"


def in_order(release: str) -> tuple[tuple[int, str], ...]:
    """A key that sorts calendar releases: 2026.9.0 before 2026.11.0."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in release.split("."))


def _row(release: str, total: Measures) -> str:
    return f"| {release} | {total.count} | {total.brier:.3f} | {total.calibration_error:.3f} |"


def _reliability(answers: Sequence[Answer]) -> str:
    rows = ["| probability | incidents | mean probability | share right |", "|---|---|---|---|"]
    for low, some in bins(answers).items():
        sure = sum(each.sure for each in some) / len(some)
        right = sum(each.right for each in some) / len(some)
        rows.append(f"| {low / BINS:.1f} to {(low + 1) / BINS:.1f} | {len(some)} | {sure:.2f} | {right:.2f} |")
    return "\n".join(rows)
