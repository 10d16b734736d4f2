"""
One call of `explain`: chooses sources, calls the pipeline, words what failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from attrs import fields

from workerdiag.api.diagnosis import Diagnosis
from workerdiag.model.diagnosis import Findings
from workerdiag.model.evidence import Evidence, EvidenceSource, Gap
from workerdiag.model.rules import Rulebook
from workerdiag.rulebook import load_rulebook
from workerdiag.sources.budget import Budget

if TYPE_CHECKING:
    from distributed import Client

    from workerdiag.keeping.keeper import Keeper
    from workerdiag.matching.scan import Matcher


class Call:
    """
    One call of `explain`.
    """

    def __init__(
        self,
        exc: BaseException | None,
        client: Client | None,
        logs: list[Any],
        sources: Sequence[EvidenceSource] | None,
        rulebook: Rulebook | None,
        budget_s: float,
    ) -> None:
        self._exc = exc
        self._client = client
        self._logs = logs
        self._sources = sources
        self._rulebook = rulebook
        self._budget = Budget(budget_s, with_logs=bool(logs))

    def answer(self) -> Diagnosis:
        """
        Its answer, whatever happens on the way.
        """
        return self._diagnosed(self._live)

    async def answer_async(self) -> Diagnosis:
        """
        The same from within an event loop, which is not held up.
        """
        import asyncio

        from workerdiag.gathering import Gathering
        from workerdiag.sources.run import in_time

        facts = self._facts()
        try:
            live = await Gathering(self._client, facts, budget_s=self._budget.live_s).collect_async()
        except Exception as problem:  # noqa: BLE001  never make it worse
            live = [_failed("cluster", problem)]
        return await asyncio.to_thread(
            self._diagnosed, lambda _: in_time(live, deadline=self._budget.search_until)
        )

    def _diagnosed(self, live: Callable[[list[Evidence]], Iterable[Evidence]]) -> Diagnosis:
        from workerdiag.keeping.keeper import Keeper

        keeper = Keeper()
        try:
            return self._judged(self._evidence(live), keeper)
        except Exception as problem:  # noqa: BLE001  explain() never raises into an except block
            return Diagnosis(
                outcome="unknown",
                summary="workerdiag itself failed; what follows is all it can say.",
                gaps=(_failed("workerdiag", problem),),
                kept=keeper.kept(),
            )

    def _judged(self, evidence: Iterable[Evidence], keeper: Keeper) -> Diagnosis:
        from workerdiag import __version__
        from workerdiag.pipeline import diagnose

        book, matcher = (self._rulebook, None) if self._rulebook else _shipped()
        findings = diagnose(
            keeper.passing(evidence), book, version=__version__, matcher=matcher, witness=keeper
        )
        found = {each.name: getattr(findings, each.name) for each in fields(Findings)}
        return Diagnosis(**found, kept=keeper.kept())

    def _evidence(self, live: Callable[[list[Evidence]], Iterable[Evidence]]) -> Iterator[Evidence]:
        from workerdiag.sources.logs import LogSource
        from workerdiag.sources.run import safely

        facts = self._facts()
        yield from facts
        yield from live(facts)
        if self._logs:
            source = LogSource(self._logs, unbundle=_unbundled, unbox=_unboxed, facts=facts)
            yield from safely(source.name, lambda: source.collect(budget_s=self._budget.left_s))

    def _facts(self) -> list[Evidence]:
        from workerdiag.sources.exception import exception_facts
        from workerdiag.sources.run import safely

        exc = self._exc
        return [] if exc is None else list(safely("exception", lambda: exception_facts(exc)))

    def _live(self, facts: list[Evidence]) -> Iterable[Evidence]:
        from workerdiag.sources.run import collect_all, in_time
        from workerdiag.sources.scene import victims_of

        if self._sources is not None:
            found = collect_all(self._sources, budget_s=self._budget.live_s)
            return in_time(found, deadline=self._budget.search_until)
        if self._client is None and not victims_of(facts):
            return []
        from workerdiag.gathering import Gathering

        found = Gathering(self._client, facts, budget_s=self._budget.live_s).collect()
        return in_time(found, deadline=self._budget.search_until)


@lru_cache(maxsize=1)  # frozen values; two callers may share them
def _shipped() -> tuple[Rulebook, Matcher]:
    from workerdiag.matching.scan import Matcher

    book = load_rulebook()
    return book, Matcher(book)


def _unbundled(name: str, data: bytes) -> Sequence[Evidence] | None:
    from workerdiag.bundle.reading import evidence_in

    return evidence_in(name, data)


def _unboxed(place: str, data: bytes, fault: bytes) -> Mapping[str, Any] | None:
    from workerdiag.recorder.reopening import message_in

    return message_in(place, data, fault)


def _failed(name: str, problem: BaseException) -> Gap:
    return Gap(
        source=name,
        reason="malformed",
        detail=f"failed: {type(problem).__name__}: {problem}"[:500],
    )
