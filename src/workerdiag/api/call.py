"""
One call of `explain`: chooses sources, calls the pipeline, words what failed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import fields

from workerdiag.api.arguments import ExplainArguments
from workerdiag.api.diagnosis import Diagnosis
from workerdiag.errors import describe_error
from workerdiag.model.diagnosis import Findings
from workerdiag.model.evidence import Evidence, Gap
from workerdiag.model.rules import Rulebook
from workerdiag.sources.budget import Budget

if TYPE_CHECKING:
    from workerdiag.bundle.retention.evidence_tap import EvidenceTap
    from workerdiag.matching.scan.matcher import Matcher


class ExplainCall:
    """
    One call of `explain`.
    """

    def __init__(
        self,
        exc: BaseException | None,
        arguments: ExplainArguments,
        rulebook: Rulebook | None,
        budget_s: float,
    ) -> None:
        self._exc = exc
        self._arguments = arguments
        self._rulebook = rulebook
        self._budget = Budget(budget_s, with_logs=bool(arguments.logs))

    def answer(self) -> Diagnosis:
        """
        Its answer, whatever happens on the way.
        """
        return self._diagnose(self._exception_facts(), self._live)

    async def answer_async(self) -> Diagnosis:
        """
        The same from within an event loop, which is not held up.
        """
        import asyncio

        from workerdiag.sources.discovery import Discovery
        from workerdiag.sources.runner import drop_late_text

        facts = await asyncio.to_thread(self._exception_facts)
        try:
            topics = await asyncio.to_thread(self._topics)
            budget_s = self._budget.live_s
            gathering = Discovery(self._arguments.client, facts, budget_s=budget_s, topics=topics)
            live = await gathering.collect_async()
        except (Exception, SystemExit) as problem:  # noqa: BLE001  never make it worse
            live = [_failure_gap("cluster", problem)]
        return await asyncio.to_thread(
            self._diagnose, facts, lambda _: drop_late_text(live, deadline=self._budget.search_until)
        )

    def _diagnose(
        self, facts: list[Evidence], live: Callable[[list[Evidence]], Iterable[Evidence]]
    ) -> Diagnosis:
        from workerdiag.bundle.retention.evidence_tap import EvidenceTap

        evidence_tap = EvidenceTap()
        evidence = evidence_tap.tee(self._evidence(facts, live))
        try:
            return _to_diagnosis(self._run_pipeline(evidence, observer=evidence_tap), evidence_tap)
        except Exception as problem:  # noqa: BLE001  explain() never raises into an except block
            return self._diagnose_without_faults(evidence, evidence_tap, problem)

    def _run_pipeline(self, evidence: Iterable[Evidence], observer: EvidenceTap | None = None) -> Findings:
        from workerdiag import __version__
        from workerdiag.pipeline import diagnose

        book, matcher = self._rules()
        return diagnose(
            evidence,
            book,
            version=__version__,
            matcher=matcher,
            observer=observer,
            out_of_time=self._budget.is_over,
        )

    def _rules(self) -> tuple[Rulebook, Matcher | None]:
        if self._rulebook is not None:
            return self._rulebook, None
        from workerdiag.api.default_rulebook import DEFAULT_RULEBOOK

        return DEFAULT_RULEBOOK.within(self._budget.packs_s)

    def _diagnose_without_faults(
        self, evidence: Iterable[Evidence], evidence_tap: EvidenceTap, problem: Exception
    ) -> Diagnosis:
        """
        What can be said without those pieces of the evidence that the pipeline fails for.
        """
        from workerdiag.api.fault_isolation import diagnose_without_faults

        gap = _failure_gap("workerdiag", problem)
        try:
            deque(evidence, maxlen=0)  # what comes behind the piece at fault is kept as well
            pieces = list(evidence_tap.kept_evidence().evidence())
            findings = diagnose_without_faults(
                self._run_pipeline, pieces, problem, until=self._budget.salvage_until
            )
            if findings is not None:
                return _to_diagnosis(findings, evidence_tap)
        except Exception as worse:  # noqa: BLE001  then there is nothing left to try
            gap = _failure_gap("workerdiag", worse)
        from workerdiag.redaction.objects import redact_object

        summary = "workerdiag itself failed; what follows is all it can say."
        gaps = redact_object((*self._arguments.gaps, gap))
        return Diagnosis(outcome="unknown", summary=summary, gaps=gaps)

    def _evidence(
        self, facts: list[Evidence], live: Callable[[list[Evidence]], Iterable[Evidence]]
    ) -> Iterator[Evidence]:
        from workerdiag.sources.logs import LogSource
        from workerdiag.sources.runner import gap_on_error

        yield from self._arguments.gaps
        yield from facts
        yield from live(facts)
        if self._arguments.logs:
            source = LogSource(
                self._arguments.logs, unbundle=_evidence_of_bundle, unbox=_message_of_box, facts=facts
            )
            yield from gap_on_error(source.name, lambda: source.collect(budget_s=self._budget.left_s))

    def _exception_facts(self) -> list[Evidence]:
        from workerdiag.sources.exception import exception_facts
        from workerdiag.sources.runner import gap_on_error

        exc, within_s = self._exc, self._budget.exception_s
        return (
            []
            if exc is None
            else list(gap_on_error("exception", lambda: exception_facts(exc, budget_s=within_s)))
        )

    def _live(self, facts: list[Evidence]) -> Iterator[Evidence]:
        from workerdiag.sources.runner import drop_late_text, gap_on_error

        yield from drop_late_text(
            gap_on_error("cluster", lambda: self._query_cluster(facts)), deadline=self._budget.search_until
        )

    def _query_cluster(self, facts: list[Evidence]) -> list[Evidence]:
        from workerdiag.sources.runner import collect_all
        from workerdiag.sources.scene import find_victims

        arguments = self._arguments
        if arguments.sources is not None:
            return collect_all(arguments.sources, budget_s=self._budget.live_s)
        if arguments.client is None and not find_victims(facts):
            return []
        from workerdiag.sources.discovery import Discovery

        topics = self._topics() if arguments.client is not None else ()
        return Discovery(arguments.client, facts, budget_s=self._budget.live_s, topics=topics).collect()

    def _topics(self) -> tuple[str, ...]:
        """
        The topics of events that the rules refer to.
        """
        from workerdiag.model.event_topics import scheduler_topics

        return scheduler_topics(self._rules()[0])


def _to_diagnosis(findings: Findings, evidence_tap: EvidenceTap) -> Diagnosis:
    found = {each.name: getattr(findings, each.name) for each in fields(Findings)}
    return Diagnosis(**found, kept_evidence=evidence_tap.kept_evidence())


def _evidence_of_bundle(name: str, data: bytes) -> Sequence[Evidence] | None:
    from workerdiag.bundle.reader import bundle_evidence

    return bundle_evidence(name, data)


def _message_of_box(place: str, data: bytes, fault: bytes) -> Mapping[str, Any] | None:
    from workerdiag.recorder.box.message import death_message

    return death_message(place, data, fault)


def _failure_gap(name: str, problem: BaseException) -> Gap:
    return Gap(source=name, reason="malformed", detail=f"failed: {describe_error(problem)}"[:500])
