"""Answers held against the truths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Literal, get_args

from peers.answers import Answer
from peers.truths import Asked, Truth, truth_of

Mark = Literal["right", "unknown", "unsure and wrong", "wrong all-clear", "confidently wrong", "raised"]
#: Probability from which a reader takes the first cause for the answer.
CONFIDENT = 0.8


def mark(answer: Answer, truth: Truth) -> Mark:
    """How good an answer is."""
    if answer.outcome == "raised":
        return "raised"
    if answer.said in truth.right[answer.asked]:
        return "right"
    if answer.outcome in {"unknown", "no-evidence"}:
        return "unknown"
    if answer.outcome == "no-death":
        return "wrong all-clear"
    return "confidently wrong" if (answer.probability or 0) >= CONFIDENT else "unsure and wrong"


def table(answers: Iterable[Answer], truths: Mapping[str, Truth]) -> Iterator[str]:
    """Lines for people: how many answers of each mark, by when it was asked, then each that is wrong."""
    marked = [(each, mark(each, truth), truth) for each, truth in _known(answers, truths)]
    counts = Counter((answer.asked, given) for answer, given, _ in marked)
    kinds: tuple[Asked, ...] = get_args(Asked)
    yield f"{'':18}" + "".join(f"{kind:>11}" for kind in kinds) + f"{'all':>11}"
    for given in get_args(Mark):
        row = [counts[kind, given] for kind in kinds]
        yield f"{given:18}" + "".join(f"{number:>11}" for number in (*row, sum(row)))
    whole = [sum(counts[kind, given] for given in get_args(Mark)) for kind in kinds]
    yield f"{'answers':18}" + "".join(f"{number:>11}" for number in (*whole, sum(whole)))
    order = get_args(Mark)
    for answer, given, truth in sorted(marked, key=lambda each: (order.index(each[1]), each[0].test)):
        if given not in {"right", "unknown"}:
            yield from _told(answer, given, truth)


def without_failed(answers: Iterable[Answer], failed: Container[str]) -> tuple[list[Answer], list[Answer]]:
    """The answers that count, and those of tests that failed.

    What such a test is about may not have happened, as on a busy machine. An `explain` that raised counts.
    """
    counted: list[Answer] = []
    unproven: list[Answer] = []
    for answer in answers:
        counts = answer.test not in failed or answer.outcome == "raised"
        (counted if counts else unproven).append(answer)
    return counted, unproven


def _known(answers: Iterable[Answer], truths: Mapping[str, Truth]) -> Iterator[tuple[Answer, Truth]]:
    for answer in answers:
        if truth := truth_of(answer.test, truths):
            yield answer, truth


def _told(answer: Answer, given: Mark, truth: Truth) -> Iterator[str]:
    sure = "" if answer.probability is None else f" ({answer.probability:.2f})"
    yield f"{given}: {answer.test}, {answer.asked}"
    yield f"  said {answer.said}{sure}; right: {' or '.join(sorted(truth.right[answer.asked]))}: {truth.why}"
