"""What is kept of a log, however it came and however long it is, is diagnosed as the log itself was."""

from __future__ import annotations

from itertools import pairwise

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

import workerdiag
from workerdiag.bundle.kept_evidence import EvidenceTap
from workerdiag.matching.scan import Matcher
from workerdiag.model.evidence import LogChunk
from workerdiag.pipeline import diagnose

BOOK = workerdiag.load_rulebook()
MATCHER = Matcher(BOOK)
#: At most this much is kept of one log: its beginning, its end, and messages.
MOST_BYTES = (32 + 256 + 1024) * 1024

HEADER = "2026-05-04 11:22:{:02d},444 - distributed.{} - {} - "
QUIET = HEADER.format(30, "worker", "INFO") + "Nothing to see here, one line of many that say little\n"
#: Messages that show signs and landmarks, of several lines or of one, some without a header.
TELLING = {
    "disk full": HEADER.format(33, "worker", "WARNING")
    + "Compute Failed\nKey: x\nOSError: [Errno 28] No space left on device: '/tmp/x'\n",
    "signal": HEADER.format(34, "nanny", "INFO") + "Worker process 7 was killed by signal 11\n",
    "memory": HEADER.format(35, "nanny", "WARNING")
    + "Worker tcp://10.0.0.4:40331 (pid=129) exceeded 95% memory budget. Restarting...\n",
    "removal": HEADER.format(36, "scheduler", "INFO") + "Remove worker addr: tcp://10.0.0.4:40331 name: w1\n",
    "killed": "Killed\n",
    "slurm": "slurmstepd: error: Detected 1 oom_kill event in StepId=42.0. Some of the step tasks were OOM Killed.\n",
    "segfault": "Fatal Python error: Segmentation fault\n\nThread 0x00007f (most recent call first):\n"
    + '  File "/x.py", line 3 in f\n' * 40,
}
SILENT = {
    "quiet": QUIET,
    "many": QUIET * 3_000,
    "other": HEADER.format(31, "scheduler", "INFO") + "Somebody else writes here as well\n",
    "blank": "\n" * 5_000,
    "long": "x" * 9_000 + "\n",
    "endless": "x" * 40_000,
    "short": "a\n" * 20_000,
    "unended": "no line end",
}
TEXTS = TELLING | SILENT
#: A log is made of these texts, each so many times.
LOGS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(list(TELLING)), st.just(1)),
        st.tuples(st.sampled_from(list(SILENT)), st.integers(1, 2)),
    ),
    min_size=1,
    max_size=7,
)
CUTS = st.lists(st.integers(0, 1_000_000), max_size=6)


def log_of(texts):
    """The bytes of a log made of *texts*."""
    return "".join(TEXTS[name] * count for name, count in texts).encode()


def chunks_of(log, cuts):
    """The log, cut at these millionths of its length."""
    places = sorted({0, *(len(log) * cut // 1_000_000 for cut in cuts), len(log)})
    return [LogChunk(origin="w.log", data=log[start:end]) for start, end in pairwise(places)]


def diagnosed(evidence):
    """The findings, and what was kept on the way."""
    tap = EvidenceTap()
    findings = diagnose(tap.tee(evidence), BOOK, matcher=MATCHER, observer=tap)
    return findings, tap.kept_evidence()


@pytest.mark.slow
@settings(max_examples=25)
@given(texts=LOGS, cuts=CUTS)
def test_what_is_kept_is_diagnosed_as_the_log_was(texts, cuts):
    """Same causes, same line numbers; a copy of the copy is the same again."""
    first, kept = diagnosed(chunks_of(log_of(texts), cuts))
    again, kept_again = diagnosed(kept.evidence())
    third, _ = diagnosed(kept_again.evidence())

    assert again == first == third


@pytest.mark.slow
@settings(max_examples=25)
@given(texts=LOGS, cuts=CUTS)
def test_each_part_is_of_the_log_at_its_line(texts, cuts):
    """A part holds the very bytes of the log from the line that it names, whole lines in the order of the log, and not much."""
    log = log_of(texts)
    _, kept = diagnosed(chunks_of(log, cuts))
    (kept_log,) = kept.items
    starts = [0, *(at + 1 for at, byte in enumerate(log) if byte == 0x0A)]
    behind = 0

    assert kept_log.read_bytes == len(log)
    assert sum(len(part.data) for part in kept_log.parts) <= min(len(log), MOST_BYTES)
    for part in kept_log.parts:
        line_start = starts[part.line - 1]
        at = log.index(part.data, max(behind, line_start))
        assert at == line_start or log.find(b"\n", line_start, at) < 0
        behind = at + len(part.data)
        last_line = part.data.rpartition(b"\n")[2]
        assert not last_line or len(last_line) >= 8 * 1024 or behind == len(log)


@settings(max_examples=20)
@given(texts=LOGS, cuts=CUTS)
def test_how_a_log_is_cut_into_chunks_changes_nothing(texts, cuts):
    """The same bytes are kept of a log that comes in one chunk and in many."""
    log = log_of(texts)
    whole, pieces = chunks_of(log, ()), chunks_of(log, cuts)

    assert diagnosed(whole)[1].items == diagnosed(pieces)[1].items


@pytest.mark.slow
@settings(max_examples=20)
@given(
    parts=st.lists(st.tuples(LOGS, st.integers(0, 1_000)), min_size=2, max_size=4),
    cuts=CUTS,
)
def test_line_numbers_of_excerpts_are_kept(parts, cuts):
    """A log that is itself made of excerpts is diagnosed again at the lines of the log that they are from."""
    chunks, line = [], 1
    for texts, left_out in parts:
        log = log_of(texts)
        first, *others = chunks_of(log, cuts)
        chunks += [evolve(first, first_line=line), *others]
        line += log.count(b"\n") + 1 + left_out
    first, kept = diagnosed(chunks)

    assert diagnosed(kept.evidence())[0] == first


@pytest.mark.parametrize("line", [HEADER.format(31, "scheduler", "INFO") + "Somebody else\n", QUIET])
def test_the_only_line_of_dask_is_kept(line):
    """An all-clear rests on one recognised line; it is kept wherever in a long log it stands."""
    others = b"foo bar\n" * 60_000
    first, kept = diagnosed(chunks_of(others + line.encode() + others, ()))

    assert diagnosed(kept.evidence())[0] == first
    assert first.outcome == "no-death"
