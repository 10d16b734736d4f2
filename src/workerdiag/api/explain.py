"""``workerdiag.explain()``: the checks of its arguments, the steps of one call, and the share of time of each.

The steps are the exception, the live cluster, the logs, and the diagnosis of all of them.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from attrs import fields

from workerdiag._version import __version__
from workerdiag.api.diagnosis import Diagnosis
from workerdiag.bundle.kept_evidence import EvidenceTap
from workerdiag.deadline import Deadline
from workerdiag.errors import describe_error
from workerdiag.guard import guarded
from workerdiag.lazy import collector_paused
from workerdiag.model.diagnosis import Findings
from workerdiag.model.evidence import Evidence, EvidenceSource, ExceptionFacts, Gap, LogText
from workerdiag.model.identity import Identity
from workerdiag.model.replay import KitContent
from workerdiag.model.rules import Rulebook
from workerdiag.model.vocabulary import Stream
from workerdiag.replay.kit import Kit
from workerdiag.settings import seconds
from workerdiag.sources.runner import collect_each, drop_late_text, failure_gap, gap_on_error
from workerdiag.units import parse_duration
from workerdiag.values import frozen

if TYPE_CHECKING:
    from distributed import Client

    from workerdiag.matching.scan import Matcher
    from workerdiag.sources.logs.inputs import LogInput
    from workerdiag.wire.messages import DeathReport


def explain(
    exc: BaseException | None = None,
    client: Client | None = None,
    *,
    logs: LogInput | Sequence[LogInput] = (),
    sources: Sequence[EvidenceSource] | None = None,
    rulebook: Rulebook | None = None,
    timeout: str | float | None = None,
) -> Diagnosis:
    """Say why a worker died, or why work stands still, and what to do now.

    Safe in an ``except`` block: it raises nothing but `TypeError` for a wrong argument, returns
    within *timeout*, and changes nothing on the cluster.

    Args:
        exc: The exception you caught. Its causes, contexts and members count too.
        client: The client. Without it, only *exc* and *logs* are read, and this machine, if *exc* names a
            worker that lived here.
        logs: Paths, globs, fsspec URLs, ``-``, open files or `LogText`. Death bundles, files of death
            records and black boxes are recognised by their content.
        sources: Places to query instead of those that apply.
        rulebook: The rules to use; None: the shipped knowledge and installed packs.
        timeout: Seconds in total, or a duration as Dask writes it (``"10s"``); None: the setting
            ``workerdiag.explain.timeout``, which is 10 seconds. A first call loads workerdiag before they count.

    Returns:
        A `Diagnosis`; with an asynchronous client an awaitable of one, as in Dask. A `Diagnosis` can be
        awaited as well and returns itself, so ``await`` is right with any client.

    Raises:
        TypeError: An argument is of a wrong type.
    """
    arguments = read_arguments(exc, client, logs=logs, sources=sources, rulebook=rulebook, timeout=timeout)

    if arguments.is_asynchronous:  # no type tells asynchronous clients apart; a Diagnosis can be awaited too
        return cast("Diagnosis", answer_async(arguments))
    return answer(arguments).diagnosis


@frozen(kw_only=True)
class ExplainArguments:
    """The checked arguments of one call, and the gaps that unusable ones leave."""

    exc: BaseException | None = None
    client: object = None
    logs: Sequence[Any] = ()
    #: The writer of the logs, if the caller knows it.
    stream: Stream | None = None
    sources: Sequence[EvidenceSource] | None = None
    rulebook: Rulebook | None = None
    #: The processes in question, if a watcher knows them.
    about: tuple[Identity, ...] = ()
    #: Number of known deaths of the same trouble without evidence.
    more_deaths: int = 0
    gaps: tuple[Gap, ...] = ()
    plan: TimePlan

    @property
    def is_asynchronous(self) -> bool:
        """Whether the client makes the call awaitable here; it depends on the calling thread."""
        with guarded("asking the client whether it is asynchronous"):
            return self.sources is None and getattr(self.client, "asynchronous", False) is True
        return False  # a client that cannot say is queried as any other


def read_arguments(
    exc: object = None,
    client: object = None,
    *,
    logs: object = (),
    sources: object = None,
    rulebook: object = None,
    timeout: object = None,
) -> ExplainArguments:
    """Check the types of all arguments, and turn *logs* and *sources* into lists; raises TypeError."""
    if exc is not None and not isinstance(exc, BaseException):
        hint = '; give logs as explain(logs=["worker.log"])' if isinstance(exc, str | os.PathLike) else ""
        raise TypeError(f"exc must be an exception or None, got {type(exc).__name__}{hint}")
    if rulebook is not None and not isinstance(rulebook, Rulebook):
        raise TypeError(f"rulebook must be a Rulebook or None, got {type(rulebook).__name__}")
    if not _may_be_client(client):
        raise TypeError(f"client must be a distributed.Client or None, got {type(client).__name__}")
    budget_s = parse_timeout(timeout)
    gaps: list[Gap] = []
    places = None if sources is None else _taken("sources", "a sequence of EvidenceSource objects", sources, gaps)
    if named := next((each for each in places or () if isinstance(each, str)), None):
        raise TypeError(f"sources must be EvidenceSource objects, got {named[:80]!r}")
    is_one = isinstance(logs, str | os.PathLike | LogText) or hasattr(logs, "read")
    inputs = [logs] if is_one else _taken("logs", "paths, URLs, open files or LogText", logs, gaps)
    return ExplainArguments(
        exc=exc,
        client=client,
        logs=inputs,
        sources=places,
        rulebook=rulebook,
        gaps=tuple(gaps),
        plan=TimePlan(budget_s, with_logs=bool(inputs)),
    )


def parse_timeout(timeout: object) -> float:
    """Return a timeout in seconds, None being the setting; raises TypeError, also for text with a minus."""
    if timeout is None:
        return seconds("explain.timeout")
    if not isinstance(timeout, str | int | float):
        raise TypeError(f'timeout must be seconds or text like "10s", got {type(timeout).__name__}')
    try:
        value = parse_duration(timeout) if isinstance(timeout, str) else timeout
    except ValueError as problem:
        raise TypeError(f'timeout must be seconds or text like "10s": {problem}') from None
    if value < 0 and not isinstance(timeout, float):
        raise TypeError('timeout is below zero: give seconds, or text like "10s"')
    return min(max(0.0, value), 86_400.0)  # clocks cannot count to infinity


def _may_be_client(client: object) -> bool:
    with guarded("checking the client"):
        return client is None or hasattr(client, "scheduler") or hasattr(client, "sync")
    return True  # one that fails here fails where it is asked too, and is a gap there


def _taken(name: str, wanted: str, values: object, gaps: list[Gap]) -> list[Any]:
    """Return the items of a list or a generator; those before a failure are kept."""
    if isinstance(values, str | bytes | bytearray) or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be {wanted}, got {type(values).__name__}")
    taken: list[object] = []
    with guarded(f"taking the {name}") as taking:
        taken.extend(values)
    if taking.problem is not None:
        gaps.append(failure_gap(name, taking.problem))
    return taken


class DefaultRulebook:
    """The shipped rules and installed packs. A pack that loads too slowly is used by a later call."""

    def __init__(self) -> None:
        self._whole: tuple[Rulebook, Matcher] | None = None

    def within(self, deadline: Deadline) -> tuple[Rulebook, Matcher]:
        """Return the rules with the packs that load before *deadline*, and their matcher."""
        from workerdiag.matching.scan import Matcher
        from workerdiag.rulebook.load import load_rulebook_in_time

        if self._whole is not None:
            return self._whole
        with collector_paused():
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
    with guarded("loading workerdiag"), collector_paused():
        from workerdiag import pipeline  # noqa: F401  most of what an answer needs
        from workerdiag.rulebook.load import shipped_rulebook

        if arguments.rulebook is None:
            shipped_rulebook()
    arguments.plan.start()
    facts = _exception_facts(arguments)
    live = LiveEvidence()
    with guarded("asking the cluster") as asking:
        live = _query_live(arguments, facts)
    if asking.problem is not None:
        live = LiveEvidence([failure_gap("cluster", asking.problem, place="scheduler")])
    return _diagnose(arguments, [*facts, *_workload(arguments, facts)], live)


async def answer_async(arguments: ExplainArguments) -> Diagnosis:
    """Return the diagnosis, without blocking the client's event loop."""
    import asyncio  # slow to import, and not needed for logs

    return (await asyncio.to_thread(answer, arguments)).diagnosis


def _exception_facts(arguments: ExplainArguments) -> list[Evidence]:
    if (exc := arguments.exc) is None:
        return []
    from workerdiag.sources.exception import exception_facts

    return list(gap_on_error("exception", lambda: exception_facts(exc)))


def _workload(arguments: ExplainArguments, facts: Sequence[Evidence]) -> list[Evidence]:
    """What the caller computed, unless the error is the program's or a task's own."""
    caught = next((each for each in facts if isinstance(each, ExceptionFacts)), None)
    is_separate = caught is not None and (caught.in_caller or (caught.from_task and not caught.maybe_dask))
    if arguments.sources is not None or (is_separate and not str(caught and caught.type).endswith("MemoryError")):
        return []
    if arguments.exc is None and arguments.client is None:
        return []
    from workerdiag.sources.workload.source import workload_evidence

    return workload_evidence(arguments.exc, arguments.client, arguments.plan.workload)


class LiveEvidence(NamedTuple):
    """What the cluster and its platforms answered."""

    pieces: Sequence[Evidence] = ()
    #: How to run again what ran as the workers died.
    recipe: tuple[KitContent, bytes] | None = None


def _query_live(arguments: ExplainArguments, facts: Sequence[Evidence]) -> LiveEvidence:
    if arguments.sources is not None:
        return LiveEvidence(list(chain(*collect_each(arguments.sources, arguments.plan.live))))
    if arguments.client is None and not _names_a_worker(facts):
        return LiveEvidence()
    from workerdiag.model.rules import scheduler_topics
    from workerdiag.sources.discovery import Discovery

    topics = scheduler_topics(_rules(arguments)[0]) if arguments.client is not None else ()
    discovery = Discovery(arguments.client, facts, arguments.plan.live, topics=topics)
    return LiveEvidence(discovery.collect(), discovery.recipe)


def _names_a_worker(facts: Sequence[Evidence]) -> bool:
    return any(isinstance(each, ExceptionFacts) and each.identity.worker for each in facts)


def _diagnose(arguments: ExplainArguments, facts: Sequence[Evidence], live: LiveEvidence) -> Answer:
    from workerdiag.sources.logs.source import LogSource

    plan, tap = arguments.plan, EvidenceTap()
    logs = LogSource(
        arguments.logs, stream=arguments.stream, unbundle=_evidence_of_bundle, unbox=_message_of_box, facts=facts
    )
    evidence = tap.tee(
        chain(
            arguments.gaps,
            facts,
            drop_late_text(live.pieces, plan.search),
            gap_on_error(logs.name, lambda: logs.collect(budget_s=plan.logs.left_s), place=logs.place),
        )
    )
    with guarded("making the diagnosis") as making:
        findings = _run_pipeline(arguments, evidence, tap)
        found = {each.name: getattr(findings, each.name) for each in fields(Findings)}
        kit = None if live.recipe is None else Kit(*live.recipe)
        diagnosis = Diagnosis(**found, kept_evidence=tap.kept_evidence(), kit=kit)
    if making.problem is not None:
        with guarded("reading the rest"):
            deque(evidence, maxlen=0)  # it is known then which logs can be read
        diagnosis = _failed(arguments, making.problem)
    return Answer(
        diagnosis=diagnosis,
        unread=tuple(logs.unread),
        has_evidence=logs.has_read_any or not all(isinstance(each, Gap) for each in tap.kept_evidence().items),
        failure=making.problem,
    )


def _run_pipeline(arguments: ExplainArguments, evidence: Iterable[Evidence], observer: EvidenceTap) -> Findings:
    from workerdiag import pipeline

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


def _failed(arguments: ExplainArguments, problem: Exception) -> Diagnosis:
    from workerdiag.redaction.objects import redact_object

    gap = Gap(
        source="workerdiag",
        place="workerdiag",
        reason="malformed",
        detail=f"failed: {describe_error(problem)}"[:500],
    )
    summary = "workerdiag itself failed; what follows is all it can say."
    return Diagnosis(outcome="unknown", summary=summary, gaps=redact_object((*arguments.gaps, gap)))


def _evidence_of_bundle(name: str, data: bytes) -> Sequence[Evidence] | None:
    from workerdiag.bundle.bundle_file import bundle_evidence  # imports cattrs

    return bundle_evidence(name, data)


def _message_of_box(place: str, data: bytes, fault: bytes) -> DeathReport | None:
    from workerdiag.recorder.delivery import death_message  # imports the recorder

    return death_message(place, data, fault)


class TimePlan:
    """The deadlines of one call of `explain` within *budget_s* from `start`.

    Logs take time from the live cluster, but not most of it: the cluster forgets, files do not.
    """

    def __init__(self, budget_s: float, *, with_logs: bool) -> None:
        self._budget_s = budget_s
        self._live_s = budget_s * (0.6 if with_logs else 0.75)
        self._least_logs_s = min(0.5, 0.1 + 0.1 * budget_s)  # even if it is late
        self.start()

    def start(self) -> None:
        """Let the time begin now, as when our own modules and rules are loaded: seconds on a busy machine."""
        collecting_s = self._budget_s - max(0.1 * self._budget_s, min(0.25, 0.5 * self._budget_s))
        self._whole = Deadline.after(self._budget_s)
        #: Deadline for collecting; then the conclusion begins.
        self.found = Deadline.after(collecting_s)
        #: Deadline for searching the text of live places.
        self.search = Deadline.after(min(0.85 * self._budget_s, collecting_s))

    @property
    def workload(self) -> Deadline:
        """For reading what was computed, from now on: all that the cluster, which was asked before, has left."""
        return self.found.share(at_least_s=0.1)

    @property
    def packs(self) -> Deadline:
        """For loading installed packs, from now on."""
        return self._whole.share(0.15)

    @property
    def live(self) -> Deadline:
        """For the live cluster and its platforms, from now on."""
        return self.search.share(at_most_s=self._live_s)

    @property
    def logs(self) -> Deadline:
        """For reading logs, from now on; some time in any case."""
        return self.search.share(at_least_s=self._least_logs_s)
