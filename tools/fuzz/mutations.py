"""Hypothesis strategies: one of the corpus, cut, joined, repeated and damaged."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

from hypothesis import strategies as st

from fuzz import boxes, bundles, corpus
from fuzz.scripts import SCRIPT_BYTES, Script

MOST_BYTES = 300_000
_MOST_FLOOD_BYTES = 8 * 10**6
_MOST_STEPS = 6
_WITH_LINES = frozenset({"log", "exception", "client"})
_LINES = (*corpus.SECRETS, *corpus.HOSTILE, corpus.DEATH, corpus.DEATH)
_DATE = re.compile(rb"\b20\d\d(?=-\d\d)")
_YEARS = (b"0000", b"9999", b"0001", b"1969", b"2038", b"10000", b"-1")
_NUMBER = re.compile(rb"\d+")
_NUMBERS = (b"0", b"-1", b"9" * 30, b"1e999", b"NaN", b"4294967296", b"0x7f", b"137", b"1" * 5000)
_LINE_ENDS = (b"\r", b"\r\n", b"\n\r", b"\x85", b"\x0b", "\u2028".encode(), b"\n\n", b"\\n")
_ENCODINGS = ("utf-16", "utf-16-le", "utf-32", "utf-8-sig", "latin-1", "utf-7")


def mutated(kind: str, seeds: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Some of the *seeds*, mutated as suits their kind."""
    scripts = st.binary(min_size=SCRIPT_BYTES, max_size=SCRIPT_BYTES)
    return scripts.map(lambda script: mutant(kind, seeds, Script(script)))


def mutant(kind: str, seeds: Sequence[bytes], script: Script) -> bytes:
    """One input."""

    def stepped(data: bytes) -> bytes:
        for _ in range(script.number() % (_MOST_STEPS + 1)):
            data = script.one_of(_STEPS)(data[:MOST_BYTES], script, seeds)
        return data

    seed = script.one_of(seeds)
    if kind == "log" and script.number() % 8:
        start = int(script.share() ** 2 * len(seed))
        seed = seed[start : start + 500 + script.number() * 16]  # most of what goes wrong needs no more
    inside = script.number() % 3
    if kind == "bundle" and inside:
        return bundles.with_member(seed, script, lambda data: _planted(stepped(data), script))
    if kind == "box" and inside:
        return boxes.overwritten(seed, script)
    data = stepped(seed)
    return _planted(data, script) if kind in _WITH_LINES else data


def _planted(data: bytes, script: Script) -> bytes:
    """The data with whole lines put in."""
    count = script.number() % 5
    if not count:
        return data
    head, lines = data[:8].ljust(8), data[8:].split(b"\n")  # the first bytes choose exceptions
    for _ in range(count):
        lines.insert(int(script.share() * len(lines)), script.one_of(_LINES))
    return b"\n".join((head, *lines))


# ---------------------------------------------------------------------------- steps

Step = Callable[[bytes, Script, Sequence[bytes]], bytes]


def _cut(data: bytes, script: Script, _: Sequence[bytes]) -> bytes:
    first, last = script.span(data)
    return data[:first] + data[last:]


def _keep(data: bytes, script: Script, _: Sequence[bytes]) -> bytes:
    first, last = script.span(data)
    return data[first:last]


def _repeat(data: bytes, script: Script, _: Sequence[bytes]) -> bytes:
    first, last = script.span(data)
    return data[:first] + data[first : min(last, first + 400)] * (script.number() * 3) + data[last:]


def _flood(data: bytes, script: Script, _: Sequence[bytes]) -> bytes:
    """One line many times, now and then 100,000 times."""
    first, _last = script.span(data)
    line = data[first:].partition(b"\n")[0][:200] + b"\n"
    times = 100_000 if script.number() < 16 else script.number() * 4
    return data[:first] + (line * times)[:_MOST_FLOOD_BYTES] + data[first:]


def _widen(data: bytes, script: Script, _: Sequence[bytes]) -> bytes:
    """A huge line out of some lines, with what is around it."""
    first, last = script.span(data)
    return data[:first] + (data[first:last].replace(b"\n", b" ") * 20)[:MOST_BYTES] + data[last:]


def _byte(data: bytes, script: Script, _: Sequence[bytes]) -> bytes:
    first, _last = script.span(data)
    return data[:first] + bytes([script.number()]) + data[first + 1 :]


def _sprinkle(data: bytes, script: Script, _: Sequence[bytes]) -> bytes:
    """A byte of any value now and then."""
    noisy, apart = bytearray(data), 5 + script.number() * 3
    for at in range(script.number(), len(noisy), apart):
        noisy[at] = (noisy[at] * 7 + apart + at) % 256
    return bytes(noisy)


def _insert(data: bytes, script: Script, _: Sequence[bytes]) -> bytes:
    first, _last = script.span(data)
    return data[:first] + script.one_of(corpus.HOSTILE) + data[first:]


def _splice(data: bytes, script: Script, seeds: Sequence[bytes]) -> bytes:
    other = script.one_of(seeds)
    first, last = script.span(other)
    at, _last = script.span(data)
    return data[:at] + other[first:last] + data[at:]


def _interleave(data: bytes, script: Script, seeds: Sequence[bytes]) -> bytes:
    """The lines of two logs in turn, as two processes write them to one terminal."""
    other = script.one_of(seeds)[:MOST_BYTES]
    ours, theirs = data.split(b"\n"), other.split(b"\n")
    both = [line for pair in zip(ours, theirs, strict=False) for line in pair]
    return b"\n".join((*both, *ours[len(theirs) :], *theirs[len(ours) :]))


def _shuffle(data: bytes, script: Script, _: Sequence[bytes]) -> bytes:
    first, last = script.span(data)
    return data[last:] + data[first:last] + data[:first]


def _nul(data: bytes, script: Script, _: Sequence[bytes]) -> bytes:
    first, last = script.span(data)
    return data[:first] + bytes(min(last - first, 5000)) + data[last:]


def _join(data: bytes, script: Script, _: Sequence[bytes]) -> bytes:
    return data.replace(b"\n", b" ", script.number() * script.number())


def _ends(data: bytes, script: Script, _: Sequence[bytes]) -> bytes:
    return data.replace(b"\n", script.one_of(_LINE_ENDS))


def _dates(data: bytes, script: Script, _: Sequence[bytes]) -> bytes:
    return _DATE.sub(script.one_of(_YEARS), data, count=script.number())


def _numbers(data: bytes, script: Script, _: Sequence[bytes]) -> bytes:
    first, _last = script.span(data)
    return data[:first] + _NUMBER.sub(script.one_of(_NUMBERS), data[first:], count=1 + script.number() % 20)


def _encode(data: bytes, script: Script, _: Sequence[bytes]) -> bytes:
    return data.decode("utf-8", "replace").encode(script.one_of(_ENCODINGS), "replace")


def _wrap(data: bytes, script: Script, _: Sequence[bytes]) -> bytes:
    """Each line as container runtimes and log shippers wrap it, or the text as one JSON string."""
    text = data.decode("utf-8", "replace")
    if not script.number() % 4:
        return json.dumps({"payload": {"message": text}}).encode()
    return b"\n".join(json.dumps({"log": f"{line}\n", "stream": "stderr"}).encode() for line in text.splitlines())


_STEPS: Sequence[Step] = (
    _cut,
    _keep,
    _repeat,
    _flood,
    _widen,
    _byte,
    _sprinkle,
    _insert,
    _insert,
    _splice,
    _splice,
    _interleave,
    _shuffle,
    _nul,
    _join,
    _ends,
    _dates,
    _numbers,
    _encode,
    _wrap,
)
