"""Matching text: what is found, where, and that it does not depend on how the text arrives."""

from __future__ import annotations

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from workerdiag.matching import prefilter, regex
from workerdiag.matching.literals import NoLiteralError, literals
from workerdiag.matching.match import search
from workerdiag.matching.patterns import END_REPORTS_PER_END
from workerdiag.matching.scan import Matcher
from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import LogChunk
from workerdiag.model.rules import Cause, Landmark, LogSign, Rulebook

BOOK = Rulebook(
    schema=1,
    release="test",
    landmarks=(
        Landmark(
            id="nanny.killed-by-signal",
            role="death",
            pattern=r"Worker process (?P<pid>\d+) was killed by signal (?P<signal>\d+)",
        ),
    ),
    causes=(
        Cause(
            id="exception.missing-module",
            revision=1,
            title="t",
            why="w",
            ends="raised",
            blame="environment",
            retry="unsafe",
            signs=(
                LogSign(
                    name="in-message",
                    pattern=r"Failed to deserialize[\s\S]*No module named '(?P<module>[^']+)'",
                    grade="decisive",
                ),
                LogSign(
                    name="no-module",
                    pattern=r"No module named '(?P<module>[^']+)'",
                    unless="Compute Failed",
                    grade="moderate",
                ),
            ),
        ),
    ),
)
DEATH = "2026-05-04 11:22:33,444 - distributed.nanny - INFO - Worker process 7012 was killed by signal 9"
BENIGN = (
    "2026-05-04 11:22:33,500 - distributed.core - INFO - Starting established connection to tcp://10.0.0.4:8786"
)
TRACEBACK = """\
2026-05-04 11:22:34,000 - distributed.protocol.core - CRITICAL - Failed to deserialize
Traceback (most recent call last):
  File "/opt/env/lib/python3.12/site-packages/distributed/protocol/core.py", line 175, in loads
ModuleNotFoundError: No module named 'soilmodels'"""


def found(text: str | bytes, *, pieces: int | None = None) -> list[Match]:
    data = text.encode() if isinstance(text, str) else text
    step = pieces or max(1, len(data))
    chunks = [LogChunk(origin="a.log", data=data[at : at + step]) for at in range(0, len(data), step)]
    return list(Matcher(BOOK).matches(chunks))


def test_a_match_says_where_who_and_when():
    """File, line, time, stream and captured identity come with every match."""
    [match] = found(f"{BENIGN}\n{BENIGN}\n{DEATH}\n")

    assert (match.origin, match.line, match.stream, match.identity.pid) == ("a.log", 3, "nanny", 7012)
    assert match.captures == {"pid": "7012", "signal": "9"}
    assert match.when == pytest.approx(1777893753.444)


def test_a_message_of_many_lines_is_one_piece_of_evidence():
    """A pattern may span a traceback, and the match knows its first and last line."""
    spanning = [each for each in found(f"{BENIGN}\n{TRACEBACK}\n{BENIGN}\n") if each.sign == "in-message"]

    assert [(each.line, each.last_line) for each in spanning] == [(2, 5)]


def test_a_pattern_does_not_span_two_messages():
    """What another message says further down is not of this one."""
    text = f"2026-05-04 11:22:34,000 - distributed.core - INFO - Failed to deserialize\n{BENIGN}\nx.y - ERROR - No module named 'a'"

    assert not [each for each in found(text) if each.sign == "in-message"]


def test_of_two_wordings_that_match_at_a_place_the_first_counts():
    """What a match quotes and captures does not depend on whose literal stands first in the text."""
    rule = Landmark(id="house.fell", role="death", patterns=(r"(?P<name>\w+) house fell", r"\w+ house"))
    chunk = LogChunk(origin="a.log", data=b"an old house fell\n")

    [match] = Matcher(evolve(BOOK, landmarks=(rule,))).matches([chunk])

    assert match.captures == {"name": "old"}


def test_unless_takes_a_match_back():
    """A failed task that misses a module kills nobody, and the sign says so with `unless`."""
    text = 'distributed.worker - ERROR - Compute Failed\nException: "ModuleNotFoundError("No module named \'a\'")"'

    assert [each.sign for each in found(text)] == []


@pytest.mark.parametrize("call", ["logger.info", "self.log.warning", "LOG.error"])
def test_a_program_that_would_write_a_message_is_no_log(call):
    """Reports quote the code that they suspect."""
    assert found(f'    {call}("Worker process 7012 was killed by signal 9")') == []


@pytest.mark.parametrize(
    "prefix",
    [
        "worker_1  | ",
        "2026-05-04T11:22:33.123456789Z ",
        "May  4 11:22:33 node7 dask-worker[811]: ",
        "2026-05-04T11:22:33+0000 node7 cloud-init[811]: ",
        "[  734.614436] cloud-init[1027]: ",
        "[pod/dask-worker-5/worker] ",
        "[ worker node-17.example.org ] : ",
        "[####      ] | 26% Completed | 51.3s",
        "> ",
        "\x1b[31m",
        "2026-05-04T11:22:33.123Z ",
        "[2026-05-04, 11:22:33 UTC] {logging_mixin.py:188} INFO - ",
    ],
)
def test_prefixes_of_others_do_not_hide_a_message(prefix):
    """Whoever passed the line on, the death is seen, with its logger's stream."""
    [match] = found(f"{prefix}distributed.nanny - INFO - Worker process 7012 was killed by signal 9\r\n")

    assert (match.stream, match.captures["signal"]) == ("nanny", "9")


def test_lines_of_several_processes_do_not_mix():
    """In one stream of two containers, a traceback is read past the other's lines."""
    lines = TRACEBACK.splitlines()
    mixed = "\n".join(f"worker_1 | {line}\nworker_2 | {BENIGN}" for line in lines)

    assert [each.sign for each in found(mixed) if each.sign == "in-message"] == ["in-message"]


def test_invalid_utf8_is_read_on():
    """Bytes that are no text are replaced, and the rest of the line still counts."""
    [match] = found(b"\xff\xfe\x00 " + DEATH.encode() + b" \xc3\n")

    assert match.identity.pid == 7012


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([DEATH, BENIGN, TRACEBACK, "", "torn - line", "x" * 9000]), max_size=30),
    st.integers(1, 5000),
)
def test_the_cut_into_chunks_changes_nothing(messages, pieces):
    """However the bytes arrive, the matches are the same."""
    text = "\n".join(messages)

    assert found(text, pieces=pieces) == found(text)


def test_a_line_of_many_megabytes_is_searched_throughout():
    """Without a line end for 20 MB, a message in the middle is found all the same."""
    text = "a" * 10_000_000 + " " + DEATH + " " + "b" * 10_000_000

    assert [each.identity.pid for each in found(text, pieces=1 << 20)] == [7012]


def test_of_endless_repeats_the_first_and_the_last_are_kept():
    """Memory is bounded: a million equal lines leave only so many matches."""
    matches = found("\n".join([DEATH] * (3 * END_REPORTS_PER_END)))

    assert len(matches) == 2 * END_REPORTS_PER_END
    assert (matches[0].line, matches[-1].line) == (1, 3 * END_REPORTS_PER_END)


def test_both_ways_of_finding_literals_agree(monkeypatch):
    """Where hyperscan has no wheel, plain search finds the same."""
    text = "\n".join([BENIGN, DEATH, TRACEBACK] * 50)
    fast = found(text)
    monkeypatch.setattr(prefilter, "available", lambda: False)

    assert found(text) == fast


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"exceeded (?P<percent>\d+)% memory budget", ("% memory budget",)),
        (r"(?:Exiting on signal|Received signal) \d", ("exiting on signal ", "received signal ")),
        (r"(?:a+b)?was killed", ("was killed",)),
        (r"Removed? worker '?\w+://", ("remove work", "removed wor")),  # ends rarer
        (r"id='worker-close-gracefully-", ("worker-close-gracefully-",)),
        ("\\d: (?:已杀死|段错误)", (": 已杀死", ": 段错误")),  # without case, and rare: many bytes
        ("Tué par le noyau", (" par le noyau",)),  # a capital É has other bytes
    ],
)
def test_literals_of_a_pattern(pattern, expected):
    """Every text that matches contains one of them."""
    assert literals(pattern) == expected


@pytest.mark.parametrize("pattern", [r"\d+ \w+", r"ab", r"killed by|\d+"])
def test_a_pattern_without_fixed_text_is_refused(pattern):
    """It would have to run on every line."""
    with pytest.raises(NoLiteralError):
        literals(pattern)


WRAPPED = (
    "2026-05-04 11:22:33,000 - distributed.worker - INFO -       Local Directory: /scratch/alex/dask-"
    "scratch-space/worker-x1y2z3\n" + DEATH + "\n"
)


@pytest.mark.parametrize("width", [72, 80, 100])
def test_hard_wrapped_lines_are_read_as_written(width):
    """A terminal that cuts lines at its width does not hide a message, and the line told is the given one."""
    rows = [line[at : at + width] for line in WRAPPED.splitlines() for at in range(0, len(line), width)]
    [match] = found("\n".join(rows) + "\n")

    assert match.identity.pid == 7012
    assert "was killed" in DEATH
    assert rows[match.line - 1].startswith("2026-05-04 11:22:33,444")


def test_a_single_line_that_a_terminal_cut_in_a_word_is_read_as_written():
    """An excerpt may be of one message; a line that just happens to be that long goes on with a new one."""
    text = f"{'job 12 on n7, says its nanny:':-<55}Worker process 7012 was killed by signal 9"
    [match] = found(f"{text[:80]}\n{text[80:]}\n")
    two = f"{'job 12 on n7, says its nanny:':-<60}Worker process 7012 \nWas killed by signal 9"

    assert match.identity.pid == 7012
    assert found(two) == []


def test_line_ends_of_a_json_string_are_line_ends():
    """A log pasted from JSON is one line with backslashes; its messages are found all the same."""
    [match] = found(f"{BENIGN}\n{BENIGN}\n{DEATH}".replace("\n", "\\n"))

    assert (match.identity.pid, match.line) == (7012, 1)


@pytest.mark.parametrize("quoted", ["\u2019soilmodels\u2019", "&#39;soilmodels&#39;", "\u2018soilmodels\u2019"])
def test_quotes_of_web_pages_are_quotes(quoted):
    """Typographic and escaped quotes stand for the typewriter's."""
    matches = found(f"ModuleNotFoundError: No module named {quoted}")

    assert [each.captures for each in matches] == [{"module": "soilmodels"}]


def test_a_failed_task_is_one_in_lower_case_too():
    """A lower-cased log still tells that only a task failed."""
    text = "distributed.worker - error - compute failed\nkey: x\nworker process 7012 was killed by signal 9"

    assert [each.in_task for each in found(text)] == [True]


def test_without_re2_long_messages_are_searched_throughout(monkeypatch):
    """The stand-in is given short pieces, and still finds what stands far into a message, once."""
    monkeypatch.setattr(regex, "re2", None)
    regex.pattern.cache_clear()
    try:
        text = "x" * 1990 + " was killed " + "y" * 3000 + " was killed "
        assert [each.span()[0] for each in regex.Pattern("was killed").finditer(text)] == [1991, 5003]
    finally:
        regex.pattern.cache_clear()


def test_records_as_get_worker_logs_gives_them_are_messages_of_their_own():
    """Printed, they are one line of tuples; what stands before the next record is not lost."""
    text = str({"tcp://10.0.0.4:4001": (("ERROR", f"Traceback\nValueError: x\n{DEATH}"), ("INFO", BENIGN))})

    assert [each.identity.pid for each in found(text)] == [7012]


def test_a_pattern_that_cannot_run_is_noted_in_each_answer_and_changes_no_matcher():
    """Two searches that share a matcher do not see each other's notes."""
    bad = Landmark(id="house.bad", role="death", pattern=r"(killed by signal) \1")
    book = evolve(BOOK, landmarks=(*BOOK.landmarks, bad))
    matcher = Matcher(book)
    before = matcher.left_out
    found = search([LogChunk(origin="log", data=DEATH.encode())], book, matcher)
    quiet = search([LogChunk(origin="log", data=b"nothing")], book, matcher)
    assert [note.partition(":")[0] for note in found.left_out] == ["house.bad is left out"]
    assert quiet.left_out == before == matcher.left_out == ()
