"""Which last lines of logs are somebody else's, and of a kind that did not stand there before."""

from __future__ import annotations

import pytest

from workerdiag import LogText, explain
from workerdiag.matching.other_lines import LastLine, strange_last_line
from workerdiag.model.evidence import LogChunk
from workerdiag.model.rules import LOG_OF_OTHERS

DASK = b"2026-05-04 11:22:31,333 - distributed.worker - INFO -         Registered to:      tcp://10.0.0.1:8786\n"


@pytest.mark.parametrize("line", [b"contract 7 withdrawn", b"[2026-05-04 11:40:00] agent: contract withdrawn"])
def test_a_line_below_dasks_that_is_none_of_dasks_is_strange(line):
    """Whatever it says, and whether it has a time."""
    assert strange_last_line(DASK + line) == line.decode()


@pytest.mark.parametrize(
    "text",
    [
        b"contract 7 withdrawn",
        DASK.rstrip(),
        DASK + b"    Threads: 4",
        DASK + b"sigma=0.3\n" + DASK + b"sigma=0.4",
        DASK + b"ValueError: bad tile",
        DASK + b"2026-05-04 11:40:00,000 - distributed.worker - WARNING - Compute Failed\nKey: load-7\nArgs: (7,)",
        DASK + b"pool-2   Ready   <none>   2d   v1.30.1",
    ],
)
def test_other_rules_judge_what_is_dasks_or_a_table_or_an_exception(text):
    """Nor is it strange where a line of its kind stood above."""
    assert strange_last_line(text) is None


def test_the_line_has_its_number_however_the_log_was_cut():
    """Blank lines below it count as none."""
    data = DASK * 3 + b"contract 7 withdrawn\n\n"
    for size in (1, 7, len(data)):
        end = LastLine()
        assert list(end.tee(LogChunk(origin="a", data=data[at : at + size]) for at in range(0, len(data), size)))
        assert [each.line for each in end.matches()] == [4]


def test_the_line_that_tells_of_an_end_in_a_log_of_others_has_its_own_number():
    """It need not be the last one."""
    end = LastLine()
    data = b"agent up\ncontract 7 was terminated by its owner\nwriting the bill\nbill written\n"
    assert list(end.tee([LogChunk(origin="a", data=data)]))
    assert [(each.owner, each.line) for each in end.matches()] == [(LOG_OF_OTHERS, 2)]


def test_a_strange_line_alone_says_nothing():
    """Nothing of Dask stands above it."""
    assert explain(logs=LogText("contract 7 withdrawn\n"), timeout="60s").outcome == "no-evidence"
