"""How likely each candidate is."""

from __future__ import annotations

from support.findings import explained, nanny_kill, no_death, unknown
from workerdiag.rendering.task_timeline import candidate_bars


def test_each_candidate_has_a_bar_as_long_as_it_is_likely():
    """The likeliest first, "something else" last."""
    bars = list(candidate_bars(explained()))
    assert [bar.percent for bar in bars] == ["97%", "2%", "1%"]
    assert [bar.id for bar in bars] == ["nanny.memory-terminate", "kernel.oom-killer", ""]
    assert 'width="97%"' in bars[0].svg
    assert bars[-1].title == "Something else"


def test_what_speaks_against_the_others_is_said():
    """Why a candidate was ruled out stands below it; what speaks against the first has its own section."""
    first, second, _ = candidate_bars(explained())
    assert not first.against
    assert second.against == ("Against it: Out of memory: Killed process 129 (kern.log:7)",)


def test_without_candidates_there_are_no_bars():
    """A healthy cluster has none, and what is next to impossible is left out."""
    assert not list(candidate_bars(no_death()))
    rare = nanny_kill(probability=0.001)
    assert [bar.id for bar in candidate_bars(unknown(causes=(rare,), unknown_probability=0.999))] == [""]
