"""Places that wait: however long they wait, what is found is the same."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from workerdiag.matching import patterns, scan, tail
from workerdiag.matching.regex import SearchWork
from workerdiag.matching.scan import Matcher
from workerdiag.model.diagnosis import Match
from workerdiag.model.evidence import LogChunk, LogExcerpt
from workerdiag.rulebook.load import load_rulebook

MATCHER = Matcher(load_rulebook())
TIME = "2026-05-04 11:22:33,444"
DEATH = f"{TIME} - distributed.nanny - INFO - Worker process {{}} was killed by signal 9"
STOP = f"{TIME} - distributed.scheduler - INFO - Retire worker addresses (stimulus_id='retire-workers-1.5') ['tcp://10.0.0.9:1']\n"
LONG = f"{TIME} - my.app - INFO - {'x' * 3000} {{}}"
OTHERS = "w-1 | Killed {}"
FAILED_TASK = f"{TIME} - distributed.worker - ERROR - Compute Failed\nKey: a-{{}}\nState: executing\nException: \"KeyError('a')\""
GUESS = f"{TIME} - my.app - ERROR - This is often caused by: worker process {{}} was killed by signal 9"
MESSAGES = st.sampled_from(
    [
        DEATH,
        FAILED_TASK,
        f"{TIME} - distributed.worker - INFO -       Start worker at:     tcp://10.0.0.4:{{}}",
        f"{TIME} - my.app - INFO - nothing {{}}",
        LONG,
        OTHERS,
        f"{TIME} - distributed.worker - INFO - log.info(Start worker at: tcp://10.0.0.4:{{}})",
        f"{TIME} - distributed.scheduler - INFO - Retire workers {{}}",
        f"{TIME} - distributed.scheduler - INFO - Retire workers {{}}: will not",
        f"{TIME} - distributed.scheduler - ERROR - {{}}",
        GUESS,
        f"{TIME} - distributed.nanny - INFO - Worker process {{}} was killed by signal 9. Maybe by the kernel.",
        f"{TIME} - distributed.nanny - INFO - workerdiag: worker process {{}} was killed by signal 9",
        "Killed by signal 9, process {}",
        "",
    ]
)


class Excerpts:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.seen: set[tuple[tuple[str, str], LogExcerpt]] = set()

    def on_match(self, _origin: str, sign: tuple[str, str], message: LogExcerpt) -> None:
        """Keep the excerpt."""
        self.seen.add((sign, message))


def found(data: bytes, step: int) -> tuple[list[Match], Excerpts]:
    """The matches in a log that comes in pieces of *step* bytes, and what an observer sees of them."""
    observer = Excerpts()
    chunks = (LogChunk(origin="a.log", data=data[at : at + step]) for at in range(0, len(data), step))
    return list(MATCHER.matches(chunks, observer)), observer


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@example([*[(DEATH, 1)] * 6, (LONG, 18), (DEATH, 50)], 60_000)
@example([(DEATH, 9), (OTHERS, 1), (LONG, 15), (FAILED_TASK, 109)], 1)
@example([(DEATH, 400), (LONG, 30), (FAILED_TASK, 300), (LONG, 30), (DEATH, 2)], 90_000)
@example([(DEATH, 20), (LONG, 20), (DEATH, 9), (LONG, 20), *[(GUESS, 150)] * 8], 280_000)
@example([(DEATH, 20), (LONG, 20), *[(DEATH, 150), (FAILED_TASK, 20)] * 8], 280_000)
@given(
    st.lists(st.tuples(MESSAGES, st.integers(1, 150)), min_size=8, max_size=30),
    st.integers(1, 400_000),
)
def test_what_waits_is_found_as_if_it_did_not(runs, block_bytes):
    """Few blocks or many: the first and the last matches, and their excerpts."""
    lines = [message.format(number) for message, times in runs for number in range(times)]
    data = "\n".join(lines).encode()
    with (
        patch.object(scan, "MAX_BYTES", 1),
        patch.object(patterns, "MATCHES_PER_END", 3),
        patch.object(patterns, "END_REPORTS_PER_END", 3),
    ):
        whole, seen = found(data, len(data) or 1)
        with patch.object(tail, "MAX_BLOCK_BYTES", block_bytes):
            waited, excerpts = found(data, 30_000)

    assert waited == whole
    assert seen.seen <= excerpts.seen


def test_what_later_text_surely_shows_is_not_looked_at():
    """Of a worker that dies ten thousand times, the lines that are taken apart are those of the matches that stay."""
    data = "".join(f"{DEATH}\n".format(number) for number in range(10_000)).encode()
    work = SearchWork()
    chunks = (LogChunk(origin="a.log", data=data[at : at + 90_000]) for at in range(0, len(data), 90_000))
    with (
        patch.object(scan, "MAX_BYTES", 1),
        patch.object(tail, "MAX_BLOCK_BYTES", 600_000),
    ):
        kept = list(MATCHER.matches(chunks, work=work))

    deaths = [each for each in kept if each.owner == "nanny.killed-by-signal"]
    assert len(deaths) == 2 * patterns.END_REPORTS_PER_END
    assert work.line_bytes < len(data) / 3
    assert (work.reports["nanny.killed-by-signal"], work.unsure_reports) == (10_000, set())
