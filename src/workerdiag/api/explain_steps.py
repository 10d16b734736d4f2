"""The steps of one call of `explain`: exception, live cluster, logs, diagnosis; and its default rules."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from attrs import define, field, fields, frozen

from workerdiag import pipeline
from workerdiag._version import __version__
from workerdiag.api.diagnosis import Diagnosis
from workerdiag.api.explain import ExplainArguments
from workerdiag.bundle.retention.evidence_tap import EvidenceTap
from workerdiag.deadline import Deadline
from workerdiag.errors import describe_error
from workerdiag.matching.scan.matcher import Matcher
from workerdiag.model.diagnosis import Findings
from workerdiag.model.evidence import Evidence, Gap
from workerdiag.model.rules import Rulebook
from workerdiag.redaction.objects import redact_object
from workerdiag.rulebook.load import load_rulebook_in_time
from workerdiag.sources.logs import LogSource
from workerdiag.sources.runner import collect_all, drop_late_text, failure_gap, gap_on_error

if TYPE_CHECKING:
    from workerdiag.sources.discovery import Discovery
    from workerdiag.wire.messages import DeathReport


@define
class DefaultRulebook:
    """The shipped rules and installed packs. A pack that loads too slowly is used by a later call."""

    _whole: tuple[Rulebook, Matcher] | None = field(default=None, init=False)

    def within(self, deadline: Deadline) -> tuple[Rulebook, Matcher]:
        """Return the rules with the packs that load before *deadline*, and their matcher."""
        if self._whole is not None:
            return self._whole
        book, is_whole = load_rulebook_in_time(deadline)
        ready = book, Matcher(book)
        if is_whole:
            self._whole = ready
        return ready


#: Frozen values, so threads may share them. Two first calls at once each load them.
DEFAULT_RULEBOOK = DefaultRulebook()


@frozen(kw_only=True)
class Answer:
    """A diagnosis, with the fate of its inputs."""

    diagnosis: Diagnosis
    #: Logs that could not be read, or not completely.
    unread: tuple[Gap, ...] = ()
    #: Whether anything could be read at all.
    has_evidence: bool = False
    #: The defect of workerdiag that prevented a diagnosis.
    failure: Exception | None = None


def answer(arguments: ExplainArguments) -> Answer:
    """Return the answer to one call. Failures of sources are gaps, our own are in `Answer.failure`."""
    facts = _exception_facts(arguments)
    live = list(gap_on_error("cluster", lambda: _query_live(arguments, facts), place="scheduler"))
    return _diagnose(arguments, facts, live)


async def answer_async(arguments: ExplainArguments) -> Diagnosis:
    """Return the diagnosis, without blocking the client's event loop."""
    import asyncio  # slow to import, and not needed for logs

    facts = await asyncio.to_thread(_exception_facts, arguments)
    try:
        discovery = await asyncio.to_thread(_discovery, arguments, facts)
        live = await discovery.collect_async()
    except (Exception, SystemExit) as problem:  # noqa: BLE001  never make it worse
        live = [failure_gap("cluster", problem, place="scheduler")]
    return (await asyncio.to_thread(_diagnose, arguments, facts, live)).diagnosis


def _exception_facts(arguments: ExplainArguments) -> list[Evidence]:
    exc, deadline = arguments.exc, arguments.plan.exception
    if exc is None:
        return []
    from workerdiag.sources.exception import exception_facts

    return list(gap_on_error("exception", lambda: exception_facts(exc, deadline)))


def _query_live(arguments: ExplainArguments, facts: Sequence[Evidence]) -> list[Evidence]:
    if arguments.sources is not None:
        return collect_all(arguments.sources, arguments.plan.live)
    if arguments.client is None and not (facts and _names_a_worker(facts)):
        return []
    return _discovery(arguments, facts).collect()


def _names_a_worker(facts: Sequence[Evidence]) -> bool:
    from workerdiag.sources.scene import find_victims

    return bool(find_victims(facts))


def _discovery(arguments: ExplainArguments, facts: Sequence[Evidence]) -> Discovery:
    from workerdiag.model.event_topics import scheduler_topics
    from workerdiag.sources.discovery import Discovery  # imports platforms

    topics = scheduler_topics(_rules(arguments)[0]) if arguments.client is not None else ()
    return Discovery(arguments.client, facts, arguments.plan.live, topics=topics)


def _diagnose(arguments: ExplainArguments, facts: Sequence[Evidence], live: Sequence[Evidence]) -> Answer:
    plan, tap = arguments.plan, EvidenceTap()
    logs = LogSource(
        arguments.logs,
        stream=arguments.stream,
        unbundle=_evidence_of_bundle,
        unbox=_message_of_box,
        facts=facts,
    )
    evidence = tap.tee(
        chain(
            arguments.gaps,
            facts,
            drop_late_text(live, plan.search),
            gap_on_error(logs.name, lambda: logs.collect(budget_s=plan.logs.left_s), place=logs.place),
        )
    )
    failure = None
    try:
        diagnosis = _to_diagnosis(_run_pipeline(arguments, evidence, tap), tap)
    except Exception as problem:  # noqa: BLE001  explain() never raises into an except block
        diagnosis, failure = _diagnosis_after_failure(arguments, evidence, tap, problem)
    return Answer(
        diagnosis=diagnosis,
        unread=tuple(logs.unread),
        has_evidence=logs.has_read_any
        or not all(isinstance(each, Gap) for each in tap.kept_evidence().items),
        failure=failure,
    )


def _run_pipeline(
    arguments: ExplainArguments, evidence: Iterable[Evidence], observer: EvidenceTap | None = None
) -> Findings:
    book, matcher = _rules(arguments)
    return pipeline.diagnose(
        evidence,
        book,
        version=__version__,
        matcher=matcher,
        observer=observer,
        deadline=arguments.plan.found,
        about=arguments.about,
        more_deaths=arguments.more_deaths,
    )


def _rules(arguments: ExplainArguments) -> tuple[Rulebook, Matcher | None]:
    if arguments.rulebook is not None:
        return arguments.rulebook, None
    return DEFAULT_RULEBOOK.within(arguments.plan.packs)


def _diagnosis_after_failure(
    arguments: ExplainArguments, rest: Iterator[Evidence], tap: EvidenceTap, problem: Exception
) -> tuple[Diagnosis, Exception | None]:
    """Return the diagnosis without the evidence on which the pipeline fails, or the failure."""
    from workerdiag.api.fault_isolation import diagnose_without_faults

    try:
        deque(rest, maxlen=0)  # the evidence behind the faulty piece is kept too
        findings = diagnose_without_faults(
            lambda pieces: _run_pipeline(arguments, pieces),
            list(tap.kept_evidence().evidence()),
            problem,
            deadline=arguments.plan.salvage,
        )
        if findings is not None:
            return _to_diagnosis(findings, tap), None
    except Exception as worse:  # noqa: BLE001  then there is nothing left to try
        problem = worse
    gap = Gap(
        source="workerdiag",
        place="workerdiag",
        reason="malformed",
        detail=f"failed: {describe_error(problem)}"[:500],
    )
    summary = "workerdiag itself failed; what follows is all it can say."
    gaps = redact_object((*arguments.gaps, gap))
    return Diagnosis(outcome="unknown", summary=summary, gaps=gaps), problem


def _to_diagnosis(findings: Findings, tap: EvidenceTap) -> Diagnosis:
    found = {each.name: getattr(findings, each.name) for each in fields(Findings)}
    return Diagnosis(**found, kept_evidence=tap.kept_evidence())


def _evidence_of_bundle(name: str, data: bytes) -> Sequence[Evidence] | None:
    from workerdiag.bundle.reader import bundle_evidence  # imports cattrs

    return bundle_evidence(name, data)


def _message_of_box(place: str, data: bytes, fault: bytes) -> DeathReport | None:
    from workerdiag.recorder.box.found_box import death_message  # imports the recorder

    return death_message(place, data, fault)
