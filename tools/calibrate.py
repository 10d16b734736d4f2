"""
Whether "90 %" is right nine times in ten: reliability of the probabilities, kept per release.

    python tools/calibrate.py            # measure, and fail if it got worse than docs/calibration.md says
    python tools/calibrate.py --write    # write docs/calibration.md

Measured on the labelled incidents under ``tests/cases``, with the installed workerdiag.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from attrs import frozen

import workerdiag

ROOT = Path(__file__).parents[1]
CASES = ROOT / "tests" / "cases"
PAGE = ROOT / "docs" / "calibration.md"
#: How much worse a measure may get by chance, with so few cases, before it counts as worse.
SLACK = 0.01
BINS = 10


@frozen(kw_only=True)
class Answer:
    """
    What was promised for one labelled incident, and whether it came true.
    """

    case: str
    sure: float
    right: bool


@frozen(kw_only=True)
class Measures:
    """
    Brier score and expected calibration error of some answers; 0 is perfect for both.
    """

    count: int
    brier: float
    calibration_error: float


def answers() -> list[Answer]:
    """
    One for each labelled incident of which a cause was named.
    """
    found = []
    for path in sorted(CASES.glob("*/meta.toml")):
        meta = tomllib.loads(path.read_text(encoding="utf-8"))
        logs = sorted(each for each in path.parent.iterdir() if each.name != "meta.toml")
        diagnosis = workerdiag.explain(logs=logs)
        if diagnosis.outcome == "explained" and diagnosis.top is not None:
            right = diagnosis.top.id in meta["expected"]
            found.append(Answer(case=path.parent.name, sure=diagnosis.top.probability, right=right))
    return found


def bins(found: Sequence[Answer]) -> dict[int, list[Answer]]:
    """
    Answers by the tenth that their probability lies in.
    """
    sorted_in: dict[int, list[Answer]] = {}
    for each in found:
        sorted_in.setdefault(min(BINS - 1, int(each.sure * BINS)), []).append(each)
    return dict(sorted(sorted_in.items()))


def measured(found: Sequence[Answer]) -> Measures:
    """
    The measures of all answers together.
    """
    count = len(found)
    off = sum(abs(sum(each.sure - each.right for each in some)) for some in bins(found).values())
    return Measures(
        count=count,
        brier=sum((each.sure - each.right) ** 2 for each in found) / count,
        calibration_error=off / count,
    )


def page(found: Sequence[Answer], release: str) -> str:
    """
    The text of ``docs/calibration.md``.
    """
    total = measured(found)
    rows = [_row(low, some) for low, some in bins(found).items()]
    return "\n".join(
        (
            "# Calibration",
            "",
            "Of the labelled incidents under `tests/cases`: how sure the first cause was, and how often it",
            "was right. `nox -s calibrate` measures it again and fails when it got worse. The rules are also",
            "tried on these incidents, so field reports come out less well.",
            "",
            "| knowledge | incidents with a cause named | Brier score | expected calibration error |",
            "|---|---|---|---|",
            f"| {release} | {total.count} | {total.brier:.3f} | {total.calibration_error:.3f} |",
            "",
            "| probability | incidents | mean probability | share right |",
            "|---|---|---|---|",
            *rows,
            "",
        )
    )


def _row(low: int, some: Sequence[Answer]) -> str:
    sure = sum(each.sure for each in some) / len(some)
    right = sum(each.right for each in some) / len(some)
    return f"| {low / BINS:.1f} to {(low + 1) / BINS:.1f} | {len(some)} | {sure:.2f} | {right:.2f} |"


def kept() -> Measures | None:
    """
    The measures of the last release, as the page has them.
    """
    if not PAGE.exists():
        return None
    row = re.search(
        r"^\| [\w.]+ \| (\d+) \| ([\d.]+) \| ([\d.]+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    return Measures(count=int(row[1]), brier=float(row[2]), calibration_error=float(row[3])) if row else None


def main() -> int:
    """
    Exit status 1 when a measure got worse than the page says, or there is no page.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="write docs/calibration.md")
    arguments = parser.parse_args()
    found = answers()
    text = page(found, workerdiag.load_rulebook().release)
    print(text)
    print(*(f"wrong: {each.case} ({each.sure:.2f})" for each in found if not each.right), sep="\n")
    if arguments.write:
        PAGE.write_text(text, encoding="utf-8")
        return 0
    before, now = kept(), measured(found)
    if before is None:
        print("docs/calibration.md is missing: write it with --write", file=sys.stderr)
        return 1
    worse = now.brier > before.brier + SLACK or now.calibration_error > before.calibration_error + SLACK
    if worse:
        print(f"worse than before: {before}", file=sys.stderr)
    return int(worse)


if __name__ == "__main__":
    raise SystemExit(main())
