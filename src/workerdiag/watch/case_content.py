"""
What a case takes from a diagnosis: cause, certainty, blame, task and advice.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from workerdiag.api.diagnosis import Diagnosis
from workerdiag.incidents.alert_incident import is_likely, title_of
from workerdiag.model.diagnosis import Advice
from workerdiag.rendering.outline import outline
from workerdiag.rendering.wording import one_line
from workerdiag.watch.alerts import AlertCase

#: Sentences of advice that a case keeps.
_MAX_ADVICE = 5


def with_diagnosis(case: AlertCase, diagnosis: Diagnosis) -> AlertCase:
    """
    The case with what *diagnosis* says.
    """
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
    """
    What to do: the first as in the first lines of a report, the others with the condition of each.
    """
    first = [one_line(each.do) for each in mitigations[:1]]
    others = [one_line(f"If {each.when}: {each.do}" if each.when else each.do) for each in mitigations[1:]]
    return [*first, *others]


def _task_of(diagnosis: Diagnosis) -> str:
    """
    The task that Dask blames, else the only one that ran on the first victim.
    """
    running = diagnosis.deaths[0].executing if diagnosis.deaths else None
    return one_line(diagnosis.blame.task or (running[0] if running is not None and len(running) == 1 else ""))
