"""The literals of a pattern: fixed texts, one of which is in every message that it matches.

The prefilter looks for these in the raw bytes, which is many times faster than running every pattern on every
line (measurements: benchmarks/scan.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as sre_parser  # type: ignore[attr-defined]
from typing import Any

#: Shorter literals are in nearly every line, so they would filter nothing.
MIN_CHARS = 4
#: Text of healthy logs: a literal that is a part of it has far too many hits.
_HEALTHY = """
yyyy-mm-dd - distributed.core - info - starting established connection to tcp://
distributed.scheduler - info - register worker addr: tcp:// name: remove worker addr: starting
worker compute stream distributed.scheduler - info - receive client connection: client- remove
client client- close client connection: distributed.nanny - info - start nanny at: 'tcp:// closing
nanny at 'tcp:// worker process nanny asking worker to close distributed.worker - info - start
worker at: listening to: dashboard at: waiting to connect to: threads: memory: local directory:
dask-scratch-space/worker- registered to: worker name: starting worker plugin shuffle reason:
distributed.worker.memory - warning - unmanaged memory use is high. this may indicate a memory leak
event loop was unresponsive in worker for this is often caused by long-running gil-holding functions
full garbage collections took % cpu time recently (threshold: 10%) connection to has been
distributed.process distributed.comm.core distributed.protocol.core distributed.shuffle
distributed\\worker.py distributed/worker.py", line traceback (most recent call last): file
"/site-packages/distributed/ file "<string>", line error exception warning
/lib/python3.12/site-packages/ in <module> python3 asyncio tornado.application dask worker scheduler
client name: worker (stimulus_id=
""".replace("\n", " ")
#: Words that logs are full of. Hyperscan compares the last 8 bytes of a literal first, so a literal that ends
#: in one of them stops it at each: 250 such literals of 3,700 took a third of a scan.
_ORDINARY = (
    "connection distributed scheduler worker initialized exception process function starting computing"
    " unresponsive error failed complete returned received memory"
).split()
_LAST_CHARS = 8
#: Web pages and word processors replace these characters (`workerdiag.matching.log_lines` restores
#: them).
_RESPELT = "'\""
#: At most this many combinations of alternatives are expanded.
_MAX_SPELLINGS = 16
_NOTHING = frozenset({""})
#: A part of a pattern as Python parses it: its opcode and its argument.
_Item = tuple[object, Any]


class NoLiteralError(ValueError):
    """A pattern without a literal of at least `MIN_CHARS` characters."""


def literals(pattern: str) -> tuple[str, ...]:
    """Return lower-case texts, one of which is in every message that *pattern* matches; raises NoLiteralError."""
    try:
        tree = sre_parser.parse(pattern, re.IGNORECASE)
    except re.error as problem:
        raise NoLiteralError(f"{problem}") from None
    best = _required_texts(tree, optional=False)
    if best is None or _is_healthy(best):  # optional parts may give rarer literals
        found = (each for each in (best, _required_texts(tree, optional=True)) if each is not None)
        best = max(found, key=_rarity, default=None)
    if best is None or min(map(_width, best)) < MIN_CHARS:
        raise NoLiteralError(
            f"every alternative needs a fixed text of at least {MIN_CHARS} characters: {pattern!r}"
        )
    return tuple(sorted(set(map(_without_ordinary_end, best))))


def _without_ordinary_end(text: str) -> str:
    """Return the longest prefix of *text* that does not end in ordinary words; *text* itself if there is none."""
    for end in range(len(text), _LAST_CHARS - 1, -1):
        words = re.findall(r"\w+", text[end - _LAST_CHARS : end])
        is_ordinary = all(any(word in ordinary for ordinary in _ORDINARY) for word in words)
        if not is_ordinary and (end == len(text) or text in _HEALTHY or text[:end] not in _HEALTHY):
            return text[:end]
    return text


def _required_texts(
    items: Iterable[_Item], *, optional: bool, before: frozenset[str] = _NOTHING
) -> frozenset[str] | None:
    """Return the best set of texts, one of which is in every match; None if there is none.

    *optional* expands texts with and without an optional part; *before* is the text right before *items*.
    """
    options: list[frozenset[str]] = []
    run = before
    for item in items:
        longer = _concatenations(run, _possible_texts(item, optional=optional))
        if longer is not None:
            run = longer
            continue
        inner = _inner_texts(*item, optional=optional, before=run if len(run) == 1 else _NOTHING)
        repeated = _repeated_texts(item, optional=optional)  # one of them follows the text before
        options += [each for each in (_concatenations(run, repeated) or run, inner) if each]
        run = repeated
    return max((each for each in (*options, run) if "" not in each), key=_rarity, default=None)


def _possible_texts(item: _Item, *, optional: bool) -> frozenset[str] | None:
    op, value = item
    if op is sre.LITERAL:
        return frozenset({chr(value).lower()}) if _is_fixed(chr(value)) else None
    if op is sre.IN:
        chars = [code for kind, code in value if kind is sre.LITERAL and code < 0x80 and chr(code) not in _RESPELT]
        return frozenset(chr(code).lower() for code in chars) if len(chars) == len(value) else None
    if op is sre.SUBPATTERN:
        return _possible_runs(value[-1], optional=optional)
    branches: Iterable[Iterable[_Item]] = ()
    if op is sre.BRANCH:
        branches = value[1]
    elif optional and op in (sre.MAX_REPEAT, sre.MIN_REPEAT) and value[:2] == (0, 1):
        branches = ([], value[2])
    possible = [_possible_runs(each, optional=optional) for each in branches]
    whole = [each for each in possible if each is not None]
    return frozenset[str]().union(*whole) if whole and len(whole) == len(possible) else None


def _is_fixed(char: str) -> bool:
    """Whether *char* has one encoding, apart from the case of ASCII letters. Chinese characters have."""
    return char not in _RESPELT and (char.isascii() or char.lower() == char.upper())


def _possible_runs(items: Iterable[_Item], *, optional: bool) -> frozenset[str] | None:
    run: frozenset[str] | None = frozenset({""})
    for item in items:
        run = _concatenations(run, _possible_texts(item, optional=optional))
        if run is None:
            return None
    return run


def _concatenations(run: frozenset[str] | None, more: frozenset[str] | None) -> frozenset[str] | None:
    if run is None or more is None or len(run) * len(more) > _MAX_SPELLINGS:
        return None
    return frozenset(first + second for first in run for second in more)


def _repeated_texts(item: _Item, *, optional: bool) -> frozenset[str]:
    """Return all texts that *item* may repeat; the empty text if they are not known."""
    op, value = item
    if op in (sre.MAX_REPEAT, sre.MIN_REPEAT) and value[0] > 0:
        return _possible_runs(value[2], optional=optional) or _NOTHING
    return _NOTHING


def _inner_texts(
    op: object, value: Any, *, optional: bool, before: frozenset[str] = _NOTHING
) -> frozenset[str] | None:
    if op is sre.SUBPATTERN:
        return _required_texts(value[-1], optional=optional, before=before)
    if op in (sre.MAX_REPEAT, sre.MIN_REPEAT):
        least, _, body = value
        return _required_texts(body, optional=optional, before=before) if least > 0 else None
    if op is sre.BRANCH:
        branches = [_required_texts(each, optional=optional, before=before) for each in value[1]]
        together = frozenset[str]().union(*(each for each in branches if each))
        if None not in branches and len(together) <= 40:  # more are better written as several signs
            return together
        return None if before == _NOTHING else _inner_texts(op, value, optional=optional)
    return None


def _is_healthy(texts: frozenset[str]) -> bool:
    return any(each in _HEALTHY for each in texts)


def _width(text: str) -> int:
    """Return the number of bytes: one Chinese character is as rare as three ASCII characters."""
    return len(text.encode())


def _rarity(texts: frozenset[str]) -> tuple[bool, bool, int, int, int]:
    """Return a sort key: not from healthy logs first, then longer up to a limit, then fewer."""
    shortest = min(map(_width, texts))
    return (shortest >= MIN_CHARS, not _is_healthy(texts), min(12, shortest), -len(texts), shortest)


def is_common_in_healthy_logs(pattern: str) -> bool:
    """Whether the prefilter would stop at many lines of every healthy log for *pattern*."""
    short = (each for each in literals(pattern) if len(each) <= 13)  # a longer one is a whole message
    return any(each in _HEALTHY for each in short)
