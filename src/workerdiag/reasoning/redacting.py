"""
What looks like a secret is hidden before a report can carry it away.

Reports go into chats, tickets and bug trackers; log lines, commands and error messages hold
passwords and keys. Hidden is the value; the name before it stays, as it may be the clue.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from attrs import evolve

from workerdiag.model.evidence import Gap

HIDDEN = "[hidden]"

_NAME = r"(?:pass(?:word|wd|phrase)?|pwd|secret|token|(?:api|access|private)[_-]?key|credentials?)"
#: Each with the group that stays before what is hidden. Bounded, so that no line can stall it.
_SECRETS = tuple(
    re.compile(pattern)
    for pattern in (
        # Authorization: Bearer ..., Proxy-Authorization: Basic ...
        r"(?i)(\bauthorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?:bearer|basic|token)?\s{0,3})[^\s\"',]{6,4000}",
        # DB_PASSWORD=..., "aws_secret_access_key": "...", --token ...
        rf"(?i)((?:\b|_)(?:[\w-]{{0,40}}[_-])?{_NAME}(?:[_-]?(?:id|value))?[\"']?\s{{0,3}}[=:]\s{{0,3}}[\"']?)[^\s\"',;&)}}\]]{{3,4000}}",
        rf"(?i)(--(?:[\w-]{{0,40}}-)?{_NAME}\s{{1,3}})[^\s-][^\s]{{2,4000}}",
        # postgres://user:password@host
        r"(://[^/\s:@]{0,200}:)[^/\s@]{1,400}(?=@)",
        # https://bucket/object?X-Amz-Signature=...&sig=...
        r"(?i)([?&](?:x-amz-[\w-]{1,40}|x-goog-[\w-]{1,40}|sig|signature)=)[^&\s\"']{1,4000}",
        # Formats that are keys by their looks: AWS, JWT, GitHub, Slack, Google.
        r"()\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
        r"()\beyJ[\w-]{8,4000}\.[\w-]{8,4000}\.[\w-]{4,4000}",
        r"()\b(?:gh[pousr]_\w{30,255}|github_pat_\w{30,255}|xox[abprs]-[\w-]{10,255}|AIza[\w-]{35})",
        r"()-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[\s\S]{0,8000}?(?:-----END [A-Z ]{0,30}KEY-----|\Z)",
    )
)
#: Without any of these there is nothing to hide.
_QUICK = re.compile(
    r"(?i)pass|pwd|secret|token|key|credential|auth|://|sig|x-amz|x-goog|akia|asia|eyj|gh\w_|pat_|xox|aiza"
)


def redacted(text: str) -> str:
    """
    The *text* with what looks like a password, key or token hidden.
    """
    if not _QUICK.search(text):
        return text
    for secret in _SECRETS:
        text = secret.sub(rf"\g<1>{HIDDEN}", text)
    return text


def redacted_gaps(gaps: Iterable[Gap]) -> tuple[Gap, ...]:
    """
    The *gaps* without secrets in what was tried and what would help.
    """
    return tuple(
        evolve(gap, source=redacted(gap.source), detail=redacted(gap.detail), remedy=redacted(gap.remedy))
        for gap in gaps
    )
