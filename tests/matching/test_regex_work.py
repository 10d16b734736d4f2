"""What matching does for a text is linear in its bytes, whatever they are: counted, as clocks depend on the machine."""

from __future__ import annotations

from functools import partial, partialmethod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.deadlines import LooksDeadline
from workerdiag.deadline import Deadline, GraceDeadline
from workerdiag.matching import scan
from workerdiag.matching.confirmation import Confirmation
from workerdiag.matching.literals import literals
from workerdiag.matching.match import search
from workerdiag.matching.messages import MAX_COPIES, REACH_AHEAD, REACH_BEHIND
from workerdiag.matching.prefilter import LiteralScan
from workerdiag.matching.regex import SearchWork
from workerdiag.matching.scan import Matcher
from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import Event, LogChunk
from workerdiag.rulebook.load import load_rulebook, patterns

KIB, MIB = 1024, 1024 * 1024
BOOK = load_rulebook()
MATCHER = Matcher(BOOK)
HEADER = "2026-05-04 11:22:33,444 - distributed.nanny - INFO - "
LITERALS = sorted({each for text in patterns(BOOK) for each in BOOK.literals.get(text) or literals(text)})
ONE_LINE = [each for each in LITERALS if "\n" not in each]
FRAME = '  File "/opt/app/pipeline.py", line 7, in f\n'


def filled(pattern: str | bytes, size: int) -> bytes:
    """*pattern* again and again, up to *size* bytes."""
    data = pattern if isinstance(pattern, bytes) else pattern.encode()
    return (data * (size // len(data) + 1))[:size]


SHAPES = {
    "Killed lines, small": filled("Killed\n", 5_600),
    "Killed lines": filled("Killed\n", 100 * KIB),
    "Killed lines, numbered": "".join(f"Killed {each}\n" for each in range(8_000)).encode(),
    "Killed with CRLF": filled("Killed\r\n", 48 * KIB),
    "Killed with CR only": filled("Killed\r", 48 * KIB),
    "a line of 10 kB": filled("Killed ", 10_000),
    "a line of 300 KiB": filled("Killed by signal 9 ", 300 * KIB),
    "a line of all literals": filled(" ".join(ONE_LINE), 64 * KIB),
    "a line of 300 KiB of all literals": filled(" ".join(ONE_LINE), 300 * KIB),
    "lines of 7 kB of literals": filled(f"{' '.join(ONE_LINE)[:7000]}\n", 100 * KIB),
    "lines of 9 kB of literals": filled(f"{' '.join(ONE_LINE)[:9000]}\n", 100 * KIB),
    "a line for each literal": filled("\n".join(ONE_LINE), 100 * KIB),
    "a message for each literal": "".join(f"{HEADER}{each}\n" for each in ONE_LINE).encode(),
    "literals without blanks": filled("".join(ONE_LINE), 48 * KIB),
    "one literal, packed": filled("exit", 48 * KIB),
    "only newlines": b"\n" * (4 * MIB),
    "newlines with a word at times": filled("\n" * 4000 + "Killed\n", 128 * KIB),
    "no newline at all": b"x" * (4 * MIB),
    "NULs": b"\0" * (2 * MIB),
    "NULs between": filled("K\0illed\0Killed\n", 48 * KIB),
    "invalid UTF-8": filled(b"\xff\xfeKilled\xc3\n", 48 * KIB),
    "text without headers": filled("something was killed by signal 9, exit status 1\n", 100 * KIB),
    "continuation lines": f"{HEADER}Failed to deserialize\n".encode() + filled("  No module named 'x'\n", 300 * KIB),
    "nanny deaths": "".join(
        f"{HEADER}Worker process {each} was killed by signal 9\n" for each in range(4_000)
    ).encode(),
    "removals": "".join(
        f"{HEADER.replace('nanny', 'scheduler')}Remove worker addr: tcp://10.0.0.4:{each} name: {each}\n"
        for each in range(4_000)
    ).encode(),
    "tracebacks": filled(f"Traceback (most recent call last):\n{FRAME}MemoryError: Unable to allocate 1 GiB\n", 100 * KIB),
    "a nested traceback": filled(f"{FRAME}During handling of the above exception, another exception occurred:\n", 100 * KIB),
    "JSON lines": filled('{"log":"distributed.nanny - INFO - Worker process 1 was killed by signal 9\\n","stream":"stderr"}\n', 48 * KIB),
    "broken JSON lines": filled('{"log":"Killed\n', 48 * KIB),
    "alternating headers": filled(f"{HEADER}Killed\nKilled\nWARNING: Killed\n", 48 * KIB),
    "a passer for each line": "".join(f"w-{each}: Killed\n" for each in range(3_000)).encode(),
    "passers in turns": "".join(f"w-{each % 300}: Killed\n" for each in range(6_000)).encode(),
    "headers of passers in turns": "".join(
        f"w-{each % 900}: distributed.nanny - INFO - Killed\n" for each in range(6_000)
    ).encode(),
    "kernel lines": filled("[ 123.456789] Out of memory: Killed process 42 (python) anon-rss:1kB\n", 100 * KIB),
    "Slurm lines": filled("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=1.batch cgroup.\n", 100 * KIB),
    "code that logs": filled('logger.info("Worker process 1 was killed by signal 9") ', 48 * KIB),
    "escapes": filled("\x1b[31mKilled\x1b[0m\n", 48 * KIB),
    "entities": filled("&quot;Killed&quot;&amp;\n", 48 * KIB),
}  # fmt: skip


def worked(data: bytes, matcher: Matcher = MATCHER) -> tuple[SearchWork, list[Match]]:
    """What matching did for *data*, which comes in pieces as a file does, and what it found."""
    done = SearchWork()
    chunks = [LogChunk(origin="a.log", data=data[at : at + MIB]) for at in range(0, len(data), MIB)]
    return done, list(matcher.matches(chunks, work=done))


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_work_is_linear_in_the_text(name):
    """Each byte is read as part of a line once, gathered `MAX_COPIES` times, and there searched by each pattern once."""
    size = len(SHAPES[name])
    done, found = worked(SHAPES[name])
    looks = 2 + size // (256 * KIB)
    read = size + looks * (REACH_BEHIND + REACH_AHEAD)

    assert done.line_bytes <= read
    assert done.gathered_bytes <= MAX_COPIES * read
    assert done.searched_chars <= MAX_COPIES * read * len(patterns(BOOK))
    assert len(found) <= size


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Killed lines, small", "Killed lines", "nanny deaths", "continuation lines", "kernel lines"])  # fmt: skip
def test_no_pattern_runs_on_a_message_twice(name, monkeypatch):
    """However many places in a message are worth a look, each pattern looks through it once."""
    runs: list[tuple[str, str, tuple[int, ...]]] = []
    run = Confirmation.run

    def counted(self, text, record):
        runs.append((text, record.text, tuple(record.line_offsets)))
        return run(self, text, record)

    monkeypatch.setattr(Confirmation, "run", counted)
    worked(SHAPES[name][: 32 * KIB])

    assert len(runs) == len(set(runs))


def test_when_time_is_up_text_is_only_counted():
    """What was found until then stays, and the rest is a gap; events as well."""
    chunks = [LogChunk(origin="a.log", data=SHAPES["nanny deaths"]), *[Event(topic="all", fields={})] * 50]
    found = search(chunks, BOOK, MATCHER, deadline=LooksDeadline(looks=20))

    assert found.matches
    assert [(gap.source, gap.reason) for gap in found.gaps] == [
        ("a.log", "timed-out"),
        ("scheduler events", "timed-out"),
    ]


@pytest.mark.slow
def test_the_clock_is_read_by_lines_and_not_by_messages():
    """Text without headers is put into messages of a thousand lines, of which a few take a second."""
    text = filled("Killed\n", 4 * MIB)
    work = SearchWork(clock=GraceDeadline(Deadline.after(0), grace=20))
    list(MATCHER.matches([LogChunk(origin="a.log", data=text)], None, work))

    assert work.gathered_bytes <= MIB


def test_a_text_full_of_literals_is_not_searched_beyond_the_time(monkeypatch):
    """Time that ends in the midst of one long piece of text ends the search there, and the rest is counted."""
    text = b"distributed.nanny - INFO - Worker process 7 was killed by signal 11\n" * (4 * MIB // 68)
    searched = []

    def counted(look, self, block, begin):
        searched.append(len(block))
        return look(self, block, begin)

    for name in ("_scanned", "_found_one_by_one"):
        monkeypatch.setattr(LiteralScan, name, partialmethod(partial(counted, getattr(LiteralScan, name))))
    found = search([LogChunk(origin="a.log", data=text)], BOOK, MATCHER, deadline=Deadline.after(0))

    assert found.matches
    assert sum(searched) <= MIB
    [gap] = found.gaps
    assert gap.reason == "timed-out"
    assert 3 * MIB <= int(gap.detail.split()[0]) < len(text)


LINES = st.sampled_from(
    [
        f"{HEADER}Worker process 7012 was killed by signal 9",
        f"{HEADER}Starting established connection",
        "w-1: Killed",
        "w-2: Killed by signal 9",
        "w-2: distributed.nanny - INFO - Worker process 1 was killed by signal 9",
        "Killed",
        "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=1.batch cgroup.",
        "x" * 3000,
        "y" * 9000 + " was killed by signal 9 " + "z" * 9000,
        "MemoryError",
        "",
    ]
)


@settings(max_examples=40, deadline=None)
@given(st.lists(LINES, max_size=60), st.integers(500, 60_000))
def test_messages_are_the_same_however_the_text_is_cut(lines, step):
    """Mixed streams, text without headers and overlong lines: what is found depends on the bytes alone."""
    data = "\n".join(lines).encode()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(scan, "MAX_BYTES", 1)  # so that each piece is looked at when it comes
        chunks = [LogChunk(origin="a.log", data=data[at : at + step]) for at in range(0, len(data), step)]
        whole = list(MATCHER.matches([LogChunk(origin="a.log", data=data)]))

        assert list(MATCHER.matches(chunks)) == whole
