"""
Hypothesis strategies: one of the corpus, cut, joined, repeated and damaged.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from fuzz import corpus

MOST_BYTES = 300_000


def mutated(seeds: Sequence[bytes], *, lines: bool) -> st.SearchStrategy[bytes]:
    """
    Some of the *seeds*, mutated; at last whole lines are put in, if it consists of *lines*.
    """
    share = st.floats(0, 1)
    steps = st.lists(
        st.tuples(
            st.sampled_from(sorted(_STEPS)),
            st.floats(0, 1),
            st.floats(0, 1),
            st.integers(0, 255),
            st.sampled_from(seeds),
        ),
        max_size=6,
    )
    planted = st.lists(st.tuples(share, st.sampled_from(_LINES)), max_size=4)
    return st.builds(
        lambda seed, steps, planted: _planted(_stepped(seed, steps), planted if lines else []),
        st.sampled_from(seeds),
        steps,
        planted,
    )


_LINES = (*corpus.SECRETS, *corpus.HOSTILE, corpus.DEATH, corpus.DEATH)


def _stepped(data: bytes, steps: Sequence[tuple[str, float, float, int, bytes]]) -> bytes:
    for name, one, two, number, other in steps:
        first, last = sorted((int(one * len(data)), int(two * len(data))))
        data = _STEPS[name](data, first, last, number, other)[:MOST_BYTES]
    return data


def _planted(data: bytes, planted: Sequence[tuple[float, bytes]]) -> bytes:
    if not planted:
        return data
    head, lines = data[:8].ljust(8), data[8:].split(b"\n")  # the first bytes choose exceptions
    for where, line in planted:
        lines.insert(int(where * len(lines)), line)
    return b"\n".join((head, *lines))


def _attack(number: int) -> bytes:
    return corpus.HOSTILE[number % len(corpus.HOSTILE)]


def _repeated(data: bytes, first: int, last: int, number: int, _: bytes) -> bytes:
    return data[:first] + data[first : min(last, first + 400)] * (number * 3) + data[last:]


_STEPS = {
    "cut": lambda data, first, last, _, __: data[:first] + data[last:],
    "keep": lambda data, first, last, _, __: data[first:last],
    "repeat": _repeated,
    "byte": lambda data, first, _, number, __: data[:first] + bytes([number]) + data[first + 1 :],
    "insert": lambda data, first, _, number, __: (
        data[:first] + corpus.HOSTILE[number % len(corpus.HOSTILE)] + data[first:]
    ),
    "splice": lambda data, first, last, _, other: data[:first] + other[first:last] + data[first:],
    "join": lambda data, *_: data.replace(b"\n", b" "),
    "shuffle": lambda data, first, last, _, __: data[last:] + data[first:last] + data[:first],
    "nul": lambda data, first, last, _, __: data[:first] + bytes(min(last - first, 5000)) + data[last:],
}
