"""The public API as users type it: checked by mypy against the installed wheel, never run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, assert_type

from distributed import Client

import workerdiag
from workerdiag.model.diagnosis import Blame, Death, Decision, NextStep, RankedCause, RetryPolicy
from workerdiag.model.rules import Rulebook
from workerdiag.model.vocabulary import (
    CureKind,
    GapReason,
    NoticeReason,
    Outcome,
    RetryAction,
    Verdict,
    WatcherState,
)
from workerdiag.plugins import Evidence, EvidenceSource, Gap
from workerdiag.replay.outcome import ReplayObstacle
from workerdiag.watch.case import WatchedCase
from workerdiag.watch.sinks.slack import SlackSink
from workerdiag.watch.watcher import Watcher


def in_an_except_block(client: Client) -> str:
    """The one line that most people ever write."""
    try:
        client.submit(sum, [1, 2]).result()
    except Exception as exc:
        return str(workerdiag.explain(exc, client))
    return ""


def before_it_runs(client: Client, collection: object) -> bool:
    """A program that refuses what will not fit."""
    check = workerdiag.check(collection, client, timeout="5s")
    assert_type(check, workerdiag.Check)
    assert_type([each.kind for each in check.cures], list[CureKind])
    return check.grade != "will-not-fit" and not check.missing


def replayed(diagnosis: workerdiag.Diagnosis) -> workerdiag.Diagnosis:
    """What killed, run again; and the diagnosis with its number."""
    assert_type(diagnosis.kit, workerdiag.Kit | None)
    if diagnosis.kit is None:
        return diagnosis
    path = diagnosis.kit.save("kit.zip")
    replay = workerdiag.Kit.load(path).replay("500 MB", trusted=True, timeout="2 minutes")
    assert_type(replay.needs_memory_bytes, int | None)
    if replay.verdict == "cannot-replay":
        assert_type(replay.obstacle, ReplayObstacle | None)
    return diagnosis.with_replay(replay)


def after_everything_is_gone(path: Path) -> workerdiag.Diagnosis:
    """From files and texts alone the answer is there at once, so it is no awaitable."""
    text = workerdiag.LogText("...", stream="nanny", worker="tcp://10.0.0.4:34937")
    with path.open("rb") as opened:
        diagnosis = workerdiag.explain(logs=[path, str(path), "s3://logs/worker.log", opened, text], timeout=5)
    assert_type(diagnosis, workerdiag.Diagnosis)
    return diagnosis


async def with_an_asynchronous_client(exc: BaseException, client: Client) -> workerdiag.Diagnosis:
    """As in Dask, the call is awaited where the client is asynchronous."""
    diagnosis: workerdiag.Diagnosis = await workerdiag.explain(exc, client, timeout="5s")
    return diagnosis


def reading_a_diagnosis(diagnosis: workerdiag.Diagnosis) -> None:
    """Every field that a caller may rely on, with its type."""
    assert_type(diagnosis.outcome, Outcome)
    assert_type(diagnosis.summary, str)
    assert_type(diagnosis.causes, tuple[RankedCause, ...])
    assert_type(diagnosis.top, RankedCause | None)
    assert_type(diagnosis.unknown_probability, float)
    assert_type(diagnosis.deaths, tuple[Death, ...])
    assert_type(diagnosis.blame, Blame)
    assert_type(diagnosis.blame.verdict, Verdict)
    assert_type(diagnosis.gaps[0].reason, GapReason)
    assert_type(diagnosis.next_steps, tuple[NextStep, ...])
    assert_type(diagnosis.gaps, tuple[Gap, ...])
    assert_type(diagnosis.decision, Decision)
    assert_type(diagnosis.decision.retry_safe, bool | None)
    assert_type(diagnosis.decision.needs_memory_bytes, int | None)
    assert_type(diagnosis.decision.needs_memory_lower_bound_bytes, int | None)
    assert_type(diagnosis.decision.policy, RetryPolicy)
    assert_type(diagnosis.decision.policy.action, RetryAction)
    assert_type(diagnosis.decision.policy.memory_bytes, int | None)
    assert_type(diagnosis.fingerprint, str)
    assert_type(diagnosis.to_markdown(), str)
    assert_type(diagnosis.to_html(), str)
    assert_type(diagnosis.to_dict(), dict[str, Any])
    assert_type(workerdiag.Diagnosis.from_json(diagnosis.to_json()), workerdiag.Diagnosis)


class PrometheusSource:
    """A source of one's own, as docs/writing-a-source.md shows: no base class needed."""

    name = "prometheus"

    def collect(self, *, budget_s: float) -> Iterator[Evidence]:
        """What there is, within the budget."""
        yield Gap(source=self.name, reason="unreachable", detail=f"nothing within {budget_s} s")


def with_rules_and_sources_of_ones_own() -> Rulebook:
    """Both are plain arguments."""
    source: EvidenceSource = PrometheusSource()
    book = workerdiag.load_rulebook("our-rules", Path("more-rules"))
    assert_type(book, Rulebook)
    assert_type(workerdiag.explain(sources=[source], rulebook=book), workerdiag.Diagnosis)
    return book


def watching_a_cluster(client: Client, seen: list[WatchedCase]) -> tuple[str, ...]:
    """A callback, a sink, and the loop."""
    with workerdiag.watch(client, seen.append, SlackSink("#dask", "token"), state=Path("state.db")) as watcher:
        assert_type(watcher, Watcher)
        assert_type(watcher.status().state, WatcherState)
        for notice in watcher:
            assert_type(notice, WatchedCase)
            assert_type(notice.reason, NoticeReason)
    return tuple(each.title for each in watcher.cases())


async def watching_beside_other_things() -> None:
    """Asynchronous, of a scheduler that moves."""
    async with workerdiag.watch(lambda: "tcp://10.0.0.1:8786", name="prod") as watcher:
        async for notice in watcher:
            assert_type(notice.text, str)


def what_is_raised_on_purpose() -> tuple[type[workerdiag.WorkerdiagError], ...]:
    """One base class to catch."""
    return (workerdiag.BadReportError, workerdiag.RuleFileError, workerdiag.UnreadableInputError)
