"""Drafts of rules from logs that no rule explains."""

from __future__ import annotations

import tomllib

import pytest

from workerdiag.authoring.draft import UnusualLine, draft_rule, line_pattern, line_template, unusual_lines
from workerdiag.matching.regex import pattern
from workerdiag.model.evidence import LogChunk
from workerdiag.rulebook.load import load_rulebook, quiet_lines

BOOK = load_rulebook()
QUIET = {line_template(each.partition(" - ")[2].partition(" - ")[2]) for each in quiet_lines()}
LOG = """\
2026-05-04 11:22:30,100 - distributed.nanny - INFO -         Start Nanny at: 'tcp://10.0.0.4:4001'
2026-05-04 11:22:31,100 - distributed.worker - INFO -       Start worker at:      tcp://10.0.0.4:4002
2026-05-04 11:22:31,300 - distributed.core - INFO - Starting established connection to tcp://10.0.0.2:8786
2026-05-04 11:22:40,000 - quantalib.engine - ERROR - lattice 0x7f001122 lost its anchor after 131 sweeps in /data/run7/cfg
2026-05-04 11:22:40,100 - distributed.nanny - INFO - Worker process 7012 exited with status 41
"""


def suggested(text: str) -> list[UnusualLine]:
    return unusual_lines([LogChunk(origin="worker.log", data=text.encode())], BOOK, quiet=QUIET)


def test_what_no_rule_knows_and_no_healthy_cluster_writes_is_suggested():
    """The stranger's error is the only unusual line; start-up and the death itself are known."""
    assert [line.where for line in suggested(LOG)] == ["worker.log:4"]


def test_a_draft_is_toml_with_a_pattern_that_matches_other_runs():
    """Numbers, addresses and paths may differ; the words may not."""
    rule = tomllib.loads(draft_rule(suggested(LOG)))
    [sign] = rule["sign"]
    other = "lattice 0x55aa00 lost its anchor after 9 sweeps in /data/run8/cfg"

    assert pattern(sign["pattern"]).search(other)
    assert not pattern(sign["pattern"]).search("lattice kept its anchor after 9 sweeps")
    assert sign["grade"] == "weak"


def test_a_line_with_characters_that_do_not_show_makes_a_draft_that_can_be_read():
    """Also one with a character beyond the first 65,536, as hidden text has."""
    line = UnusualLine(template="it broke", text="it 'broke'\U000e0041 \x07 here", where="a.log:1", score=1.0)
    [sign] = tomllib.loads(draft_rule([line]))["sign"]
    assert sign["seen"] == [line.text]


@pytest.mark.parametrize(
    "text",
    [
        "went from 3 to 4 (50%) [a+b] {x} ^$ | \\d",
        "peer tcp://10.0.0.4:4002 said 'no' and \"never\"",
        "C:\\Users\\me\\job and /home/me/job",
    ],
)
def test_a_generalised_line_matches_itself(text):
    """Whatever stands in a line, its pattern is one of RE2's and finds it."""
    assert pattern(line_pattern(text)).search(text)


def test_a_healthy_log_suggests_nothing():
    """Start-up lines alone are no ground for a rule."""
    assert suggested("\n".join(LOG.splitlines()[:3])) == []


@pytest.mark.parametrize("logger", ["distributed.worker - ERROR", "distributed.scheduler - WARNING"])
def test_who_writes_a_line_is_not_what_it_means(logger):
    """A line of Dask's own logger, the first or the last of a log, is unusual if no rule knows its words."""
    line = f"2026-05-04 11:22:40,000 - {logger} - The frobnicator has lost its capacitor\n"
    assert [each.text for each in suggested(line)] == ["The frobnicator has lost its capacitor"]
