"""The content of a case from diagnoses and deaths, and its escalation level."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from workerdiag.api.diagnosis import Diagnosis
from workerdiag.incidents.incident import WatchedDeath, is_likely, title_of
from workerdiag.model.diagnosis import Advice
from workerdiag.rendering.outline import outline
from workerdiag.rendering.wording import one_line
from workerdiag.sources.addresses import host_of
from workerdiag.watch.settings import WatchSettings
from workerdiag.watch.watched_case import WatchedCase

#: Maximum number of advice texts in a case.
_MAX_ADVICE = 5
#: Maximum number of hosts in a case.
_MAX_HOSTS = 1000


def with_diagnosis(case: WatchedCase, diagnosis: Diagnosis) -> WatchedCase:
    """Return the case with the content of *diagnosis*."""
    top, lead = diagnosis.top, dict(outline(diagnosis).lead)
    advice = _advice_texts(top.mitigations) if is_likely(diagnosis) and top is not None else []
    return evolve(
        case,
        cause=top.id if top is not None else None,
        title=title_of(diagnosis),
        probability=top.probability if top is not None else 0.0,
        blame=diagnosis.blame.verdict,
        task=_task_of(diagnosis),
        advice=tuple(advice[:_MAX_ADVICE]) or (lead["Do now"],),
        diagnosis_json=diagnosis.to_json(),
    )


def _advice_texts(mitigations: Sequence[Advice]) -> list[str]:
    """Return the advice: the first text as at the top of a report, the others with their conditions."""
    first = [one_line(each.do) for each in mitigations[:1]]
    others = [one_line(f"If {each.when}: {each.do}" if each.when else each.do) for each in mitigations[1:]]
    return [*first, *others]


def _task_of(diagnosis: Diagnosis) -> str:
    """Return the task that Dask blames, else the only task that ran on the first victim."""
    running = diagnosis.deaths[0].executing if diagnosis.deaths else None
    return one_line(diagnosis.blame.task or (running[0] if running is not None and len(running) == 1 else ""))


def with_deaths(case: WatchedCase, deaths: Sequence[WatchedDeath], settings: WatchSettings) -> WatchedCase:
    """Return the case with more deaths."""
    begin, count = case.progress.window_at, case.progress.window_count
    peak = case.progress.peak_count
    for when in sorted(each.when for each in deaths):
        if when >= begin + settings.collect_s:
            begin, count = when, 0
        count += 1
        peak = max(peak, count)
    hosts = frozenset(sorted(case.hosts | hosts_of(deaths))[:_MAX_HOSTS])
    progress = evolve(case.progress, window_at=begin, window_count=count, peak_count=peak)
    return evolve(case, death_count=case.death_count + len(deaths), hosts=hosts, progress=progress)


def escalation_level(case: WatchedCase, settings: WatchSettings) -> int:
    """Return the number of multiples of its first incident that a case has reached in deaths and hosts."""
    progress = case.progress
    return _powers(progress.peak_count, progress.first_death_count, settings.escalate_factor) + _powers(
        len(case.hosts), progress.first_host_count, settings.escalate_hosts
    )


def hosts_of(deaths: Sequence[WatchedDeath]) -> frozenset[str]:
    """Return the known hosts of the deaths."""
    named = (each.identity.host or host_of(each.identity.worker) for each in deaths)
    return frozenset(sorted({one_line(host) for host in named if host})[:_MAX_HOSTS])


def _powers(count: float, first: float, factor: float) -> int:
    powers = 0
    while first > 0 and count >= (first := first * factor):
        powers += 1
    return powers
