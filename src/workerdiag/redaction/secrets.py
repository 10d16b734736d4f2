"""
What looks like a secret is hidden before a report can carry it away.

Reports go into chats, tickets and bug trackers; log lines, commands and error messages hold
passwords and keys. Hidden is the value; the name before it stays, as it may be the clue.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

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
    )
)
#: Each secret has one of these in it, or before it, in capitals or not.
_WORDS = (
    "pass pwd secret token credential authorization apikey api_key api-key accesskey access_key access-key"
    " privatekey private_key private-key ?sig &sig x-amz x-goog akia asia eyj ghp_ gho_ ghu_ ghs_ ghr_"
    " github_pat_ xox aiza"
).split()
_PASSWORD_IN_URL = re.compile(r"://[^/\s:@]{0,200}:[^/\s@]{1,400}@")
#: How far a secret can reach from there, with some room.
_BEFORE_CHARS, _BEHIND_CHARS = 128, 4400
_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----")
_KEY_ENDS = re.compile(r"-----END [A-Z ]{0,30}KEY-----")
_KEY_CHARS = 8000
_KEY_TEXT = re.compile(r"(?:\s*(?:Proc-Type|DEK-Info):[^\n]{0,200})*[A-Za-z0-9+/=\s\\]{0,8000}")


def redacted(text: str, *, keep_lines: bool = False) -> str:
    """
    The *text* with what looks like a password, key or token hidden.

    Takes time that grows with the length of the text, whatever is in it.

    Args:
        text: Of any length.
        keep_lines: Leave as many line ends as there were.
    """
    if "PRIVATE KEY-----" in text:
        text = _without_private_keys(text, keep_lines=keep_lines)
    shown: list[str] = []
    done = 0
    for start, end in _windows(text):
        shown += (text[done:start], _without_values(text[start:end]))
        done = end
    return "".join((*shown, text[done:])) if shown else text


def _without_values(text: str) -> str:
    for secret in _SECRETS:
        text = secret.sub(rf"\g<1>{HIDDEN}", text)
    return text


def _windows(text: str) -> Iterator[tuple[int, int]]:
    """
    From where to where the text has to be looked at closely.
    """
    start = end = -1
    for at in sorted(_hints(text)):
        if start >= 0 and at - _BEFORE_CHARS <= end:
            end = at + _BEHIND_CHARS
            continue
        if start >= 0:
            yield start, end
        start, end = max(0, at - _BEFORE_CHARS), at + _BEHIND_CHARS
    if start >= 0:
        yield start, min(len(text), end)


def _hints(text: str) -> Iterator[int]:
    """
    Where a secret may be. Plain searches: one pattern for all of them takes ten times as long.
    """
    lower = text.lower()
    if len(lower) != len(text):  # some letters become two: places would not be the same
        lower = "".join(char.lower() if char.isascii() else char for char in text)
    for word in _WORDS:
        yield from _places(lower, word)
    for at in _places(text, "://"):
        if _PASSWORD_IN_URL.match(text, at):
            yield at


def _places(text: str, word: str) -> Iterator[int]:
    at = text.find(word)
    while at >= 0:
        yield at
        at = text.find(word, at + len(word))


def _without_private_keys(text: str, *, keep_lines: bool) -> str:
    shown: list[str] = []
    done = 0
    for begins in _KEY_BEGINS.finditer(text):
        if begins.start() < done:
            continue
        ends = _KEY_ENDS.search(text, begins.end(), begins.end() + _KEY_CHARS)
        end = ends.end() if ends else _end_of_key(text, begins.end())
        lines = text.count("\n", begins.start(), end) if keep_lines else 0
        shown += (text[done : begins.start()], HIDDEN, "\n" * lines)
        done = end
    return "".join((*shown, text[done:]))


def _end_of_key(text: str, at: int) -> int:
    """
    Where a key ends that has no end mark: behind all that it can be made of.
    """
    found = _KEY_TEXT.match(text, at)
    return found.end() if found else at


def redacted_gaps(gaps: Iterable[Gap]) -> tuple[Gap, ...]:
    """
    The *gaps* without secrets in what was tried and what would help, each trouble once.
    """
    found: dict[tuple[str, str, str], Gap] = {}
    for gap in gaps:
        said = evolve(
            gap, source=redacted(gap.source), detail=redacted(gap.detail), remedy=redacted(gap.remedy)
        )
        found.setdefault((said.source, said.reason, said.detail), said)
    return tuple(found.values())
