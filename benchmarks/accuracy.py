"""How often the answer is right, on a folder of labelled deaths.

    python benchmarks/accuracy.py FOLDER [--wrong]

FOLDER holds ``*.yaml`` cases (``id``, ``text``, ``label`` with ``primary`` and ``secondary``) or a folder per
recorded death (``meta.json`` with ``label``, and the files that were captured). A label may be
``none`` (nothing died) or ``unknown``. Counted are the deaths whose text decides: a case says
so with ``decidable_from_text`` and an ``evidence`` other than ``inferred``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen
from rows import Row, publish

import workerdiag

#: Captured file -> the stream it is; None lets workerdiag work it out.
CAPTURED = (
    ("scheduler*.log", "scheduler"),
    ("client*.txt", "client"),
    ("script.log", "client"),
    ("worker*.log", None),
    ("nanny*.log", None),
    ("podlog-*.txt", None),
    ("joblog-*.txt", None),
    ("dmesg.txt", "kernel"),
    ("journal_kernel.txt", "kernel"),
    ("journal.txt", None),
    ("systemctl_*.txt", None),
    ("k8s_events.txt", "kubernetes"),
    ("describe_pods.txt", "kubernetes"),
    ("sacct.txt", "batch"),
    ("scontrol_*.txt", "batch"),
    ("qacct.txt", "batch"),
    ("qstat.txt", "batch"),
)
#: Share of first causes that are right: in field reports, which are torn and partial, and in recordings.
REPORTED_GOAL, RECORDED_GOAL = 0.80, 0.90
#: From this probability on, an answer that is wrong does harm.
CONFIDENT = 0.8


@frozen(kw_only=True)
class Case:
    """A death, or a quiet log, with what is known to be true of it."""

    name: str
    logs: tuple[workerdiag.LogText, ...]
    right: tuple[str, ...]
    #: Whether the text decides.
    fair: bool = True


@frozen(kw_only=True)
class Answer:
    """What `explain` said of a case."""

    case: Case
    causes: tuple[str, ...]
    #: Probability of the first cause; None when none was named.
    sure: float | None
    seconds: float

    @property
    def is_strict(self) -> bool:
        """The first cause is the primary label."""
        return self.causes[0] == self.case.right[0]

    @property
    def is_lenient(self) -> bool:
        """The first cause is one of the labels."""
        return self.causes[0] in self.case.right


def cases(folder: Path) -> Iterator[Case]:
    """All cases of *folder*, whichever of the two shapes they have."""
    for path in sorted(folder.glob("*.yaml")):
        yield _written(path)
    for path in sorted(folder.glob("*/meta.json")):
        meta = json.loads(path.read_text(encoding="utf-8"))
        if label := meta.get("label"):
            texts = [
                workerdiag.LogText(each.read_text(encoding="utf-8", errors="replace"), stream=stream)
                for pattern, stream in CAPTURED
                for each in sorted(path.parent.glob(pattern))
            ]
            yield Case(name=path.parent.name, logs=tuple(texts), right=_labels(label))


def _written(path: Path) -> Case:
    import yaml

    case: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    pieces = [{"text": case["text"]}] if isinstance(case["text"], str) else case["text"]
    streams = [None if piece.get("stream") in ("unknown", "") else piece.get("stream") for piece in pieces]
    return Case(
        name=case["id"],
        logs=tuple(
            workerdiag.LogText(piece["text"], stream=stream) for piece, stream in zip(pieces, streams, strict=True)
        ),
        right=_labels(case["label"]),
        fair=case.get("decidable_from_text") is True and case.get("evidence") != "inferred",
    )


def _labels(label: dict[str, Any]) -> tuple[str, ...]:
    return (label["primary"], *(label.get("secondary") or ()))


def answer_for(case: Case) -> Answer:
    """The answer to one case, from its text alone."""
    began = time.perf_counter()
    diagnosis = workerdiag.explain(logs=case.logs)
    said = tuple(cause.id for cause in diagnosis.causes)
    explained = diagnosis.outcome == "explained" and diagnosis.top is not None
    quiet = "none" if diagnosis.outcome == "no-death" else "unknown"
    return Answer(
        case=case,
        causes=said if explained else (quiet,),
        sure=diagnosis.causes[0].probability if explained else None,
        seconds=time.perf_counter() - began,
    )


def rows(answers: Sequence[Answer], name: str, *, goal: float) -> Iterator[Row]:
    """Shares from 0 to 1 over the fair deaths, and counts of what must not happen."""
    died = [each for each in answers if each.case.fair and each.case.right[0] not in ("none", "unknown")]
    alarms = [
        each
        for each in answers
        if each.case.right[0] == "none" and each.causes[0] not in ("none", "unknown", *each.case.right)
    ]
    brash = [each for each in answers if not each.is_lenient and (each.sure or 0) >= CONFIDENT]
    sure = [(each.sure, each.is_lenient) for each in answers if each.sure is not None]
    yield Row(what=f"{name}: deaths whose text decides", measured=len(died), unit="of " + str(len(answers)))
    yield Row(
        what=f"{name}: first cause is a label",
        measured=share(died, lambda each: each.is_lenient),
        unit="",
        goal=goal,
        at_least=True,
    )
    yield Row(
        what=f"{name}: first cause is the primary one",
        measured=share(died, lambda each: each.is_strict),
        unit="",
    )
    yield Row(what=f"{name}: false alarms", measured=len(alarms), unit="", goal=0)
    yield Row(what=f"{name}: wrong with at least {CONFIDENT:.0%}", measured=len(brash), unit="")
    yield Row(what=f"{name}: calibration error", measured=calibration_error(sure), unit="")
    yield Row(
        what=f"{name}: time per case",
        measured=statistics.median(each.seconds for each in answers) * 1e3,
        unit="ms",
    )


def share(answers: Sequence[Answer], good: Callable[[Answer], bool]) -> float:
    """How many of *answers* are good, from 0 to 1."""
    return sum(map(good, answers)) / len(answers) if answers else 0.0


def calibration_error(pairs: Iterable[tuple[float, bool]]) -> float:
    """Expected calibration error over ten bins: how far what was promised is from what came true."""
    bins: dict[int, list[tuple[float, bool]]] = {}
    for sure, right in pairs:
        bins.setdefault(min(9, int(sure * 10)), []).append((sure, right))
    count = sum(map(len, bins.values()))
    return sum(abs(sum(sure - right for sure, right in each)) for each in bins.values()) / count if count else 0.0


def main() -> int:
    """Exit status 2 when the folder holds no cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--wrong", action="store_true", help="list the cases that were answered wrongly")
    arguments = parser.parse_args()
    answers = [answer_for(case) for case in cases(arguments.folder)]
    if not answers:
        parser.error(f"{arguments.folder} holds no labelled deaths")
    if arguments.wrong:
        for each in answers:
            if not each.is_lenient:
                print(f"{each.case.name}: is {each.case.right[0]}, said {each.causes[0]} ({each.sure or 0:.2f})")
    goal = RECORDED_GOAL if any(arguments.folder.glob("*/meta.json")) else REPORTED_GOAL
    publish(rows(answers, arguments.folder.name, goal=goal))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
