"""A diagnosis in at most three lines of ASCII, for the end of a traceback (PEP 678)."""

from __future__ import annotations

import unicodedata

from workerdiag.model.diagnosis import Findings
from workerdiag.model.notes import NO_ANSWER, NOTE_START
from workerdiag.redaction.secrets import redact_text
from workerdiag.rendering.outline import outline
from workerdiag.rendering.wording import clip, one_line, plain_punctuation, printable, retry_text

#: Characters of a line, and of the certainty in the last one.
_LINE_CHARS, _CERTAINTY_CHARS = 200, 100


def render_note(findings: Findings) -> str:
    """What to do, whether to retry and how to learn more, and in the last line the cause with its probability.

    The cause comes last because that line stands next to the prompt.
    """
    lead = {label: _to_ascii(text.rstrip(".")) for label, text in outline(findings).lead}
    what, answer = next(iter(lead.items()))
    place = f", in {lead['Where']}" if "Where" in lead else ""
    sure = clip(lead["How sure"], _CERTAINTY_CHARS)
    policy = findings.decision.policy
    again = "" if policy.action == "ask" else f"{_to_ascii(retry_text(policy))}. "
    lines = (
        clip(f"{NOTE_START}{lead['Do now']}.", _LINE_CHARS),
        f"{again}More: print(workerdiag.explain(exc, client))",
        clip(f"{what}: {answer}{place}", _LINE_CHARS - len(sure) - 3) + f" ({sure})",
    )
    return "\n".join(lines)


def failure_note(problem: str) -> str:
    """The note where no answer could be made: one line, without secrets."""
    return clip(f"{NO_ANSWER}: {_to_ascii(one_line(printable(redact_text(problem))))}", _LINE_CHARS)


def _to_ascii(text: str) -> str:
    plain = unicodedata.normalize("NFKD", plain_punctuation(text))
    return plain.encode("ascii", "replace").decode()
