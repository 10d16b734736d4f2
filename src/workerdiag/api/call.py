"""
One call of `explain`: chooses sources, calls the pipeline, words what failed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import fields

from workerdiag.api.arguments import HandedIn
from workerdiag.api.diagnosis import Diagnosis
from workerdiag.errors import worded
from workerdiag.model.diagnosis import Findings
from workerdiag.model.evidence import Evidence, Gap
from workerdiag.model.rules import Rulebook
from workerdiag.sources.budget import Budget

if TYPE_CHECKING:
    from workerdiag.bundle.retention.evidence_tap import Keeper
    from workerdiag.matching.scan.matcher import Matcher


class Call:
    """
    One call of `explain`.
    """

    def __init__(
        self, exc: BaseException | None, given: HandedIn, rulebook: Rulebook | None, budget_s: float
    ) -> None:
        self._exc = exc
        self._given = given
        self._rulebook = rulebook
        self._budget = Budget(budget_s, with_logs=bool(given.logs))

    def answer(self) -> Diagnosis:
        """
        Its answer, whatever happens on the way.
        """
        return self._diagnosed(self._facts(), self._live)

    async def answer_async(self) -> Diagnosis:
        """
        The same from within an event loop, which is not held up.
        """
        import asyncio

        from workerdiag.sources.discovery import Gathering
        from workerdiag.sources.runner import in_time

        facts = await asyncio.to_thread(self._facts)
        try:
            topics = await asyncio.to_thread(self._topics)
            budget_s = self._budget.live_s
            gathering = Gathering(self._given.client, facts, budget_s=budget_s, topics=topics)
            live = await gathering.collect_async()
        except (Exception, SystemExit) as problem:  # noqa: BLE001  never make it worse
            live = [_failed("cluster", problem)]
        return await asyncio.to_thread(
            self._diagnosed, facts, lambda _: in_time(live, deadline=self._budget.search_until)
        )

    def _diagnosed(
        self, facts: list[Evidence], live: Callable[[list[Evidence]], Iterable[Evidence]]
    ) -> Diagnosis:
        from workerdiag.bundle.retention.evidence_tap import Keeper

        keeper = Keeper()
        evidence = keeper.passing(self._evidence(facts, live))
        try:
            return _shown(self._judged(evidence, witness=keeper), keeper)
        except Exception as problem:  # noqa: BLE001  explain() never raises into an except block
            return self._salvaged(evidence, keeper, problem)

    def _judged(self, evidence: Iterable[Evidence], witness: Keeper | None = None) -> Findings:
        from workerdiag import __version__
        from workerdiag.pipeline import diagnose

        book, matcher = self._rules()
        return diagnose(
            evidence,
            book,
            version=__version__,
            matcher=matcher,
            witness=witness,
            out_of_time=self._budget.is_over,
        )

    def _rules(self) -> tuple[Rulebook, Matcher | None]:
        if self._rulebook is not None:
            return self._rulebook, None
        from workerdiag.api.default_rulebook import RULES

        return RULES.within(self._budget.packs_s)

    def _salvaged(self, evidence: Iterable[Evidence], keeper: Keeper, problem: Exception) -> Diagnosis:
        """
        What can be said without those pieces of the evidence that the pipeline fails for.
        """
        from workerdiag.api.fault_isolation import salvaged

        gap = _failed("workerdiag", problem)
        try:
            deque(evidence, maxlen=0)  # what comes behind the piece at fault is kept as well
            pieces = list(keeper.kept().evidence())
            findings = salvaged(self._judged, pieces, problem, until=self._budget.salvage_until)
            if findings is not None:
                return _shown(findings, keeper)
        except Exception as worse:  # noqa: BLE001  then there is nothing left to try
            gap = _failed("workerdiag", worse)
        from workerdiag.redaction.objects import redacted_object

        summary = "workerdiag itself failed; what follows is all it can say."
        gaps = redacted_object((*self._given.gaps, gap))
        return Diagnosis(outcome="unknown", summary=summary, gaps=gaps)

    def _evidence(
        self, facts: list[Evidence], live: Callable[[list[Evidence]], Iterable[Evidence]]
    ) -> Iterator[Evidence]:
        from workerdiag.sources.logs import LogSource
        from workerdiag.sources.runner import safely

        yield from self._given.gaps
        yield from facts
        yield from live(facts)
        if self._given.logs:
            source = LogSource(self._given.logs, unbundle=_unbundled, unbox=_unboxed, facts=facts)
            yield from safely(source.name, lambda: source.collect(budget_s=self._budget.left_s))

    def _facts(self) -> list[Evidence]:
        from workerdiag.sources.exception import exception_facts
        from workerdiag.sources.runner import safely

        exc, within_s = self._exc, self._budget.exception_s
        return (
            [] if exc is None else list(safely("exception", lambda: exception_facts(exc, budget_s=within_s)))
        )

    def _live(self, facts: list[Evidence]) -> Iterator[Evidence]:
        from workerdiag.sources.runner import in_time, safely

        yield from in_time(safely("cluster", lambda: self._asked(facts)), deadline=self._budget.search_until)

    def _asked(self, facts: list[Evidence]) -> list[Evidence]:
        from workerdiag.sources.runner import collect_all
        from workerdiag.sources.scene import victims_of

        given = self._given
        if given.sources is not None:
            return collect_all(given.sources, budget_s=self._budget.live_s)
        if given.client is None and not victims_of(facts):
            return []
        from workerdiag.sources.discovery import Gathering

        topics = self._topics() if given.client is not None else ()
        return Gathering(given.client, facts, budget_s=self._budget.live_s, topics=topics).collect()

    def _topics(self) -> tuple[str, ...]:
        """
        The topics of events that the rules refer to.
        """
        from workerdiag.model.event_topics import scheduler_topics

        return scheduler_topics(self._rules()[0])


def _shown(findings: Findings, keeper: Keeper) -> Diagnosis:
    found = {each.name: getattr(findings, each.name) for each in fields(Findings)}
    return Diagnosis(**found, kept=keeper.kept())


def _unbundled(name: str, data: bytes) -> Sequence[Evidence] | None:
    from workerdiag.bundle.reader import evidence_in

    return evidence_in(name, data)


def _unboxed(place: str, data: bytes, fault: bytes) -> Mapping[str, Any] | None:
    from workerdiag.recorder.box.message import message_in

    return message_in(place, data, fault)


def _failed(name: str, problem: BaseException) -> Gap:
    return Gap(source=name, reason="malformed", detail=f"failed: {worded(problem)}"[:500])
